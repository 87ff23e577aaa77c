//! Which generators of a load differ from their peers.

use kelvin_stats::{MAD_TO_STD, mad, median};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::merge::GeneratorShare;

/// Scaled median absolute deviations from the median from which on a value is an outlier (Iglewicz and Hoaglin, "How to Detect and
/// Handle Outliers", 1993).
const MAX_DEVIATIONS: f64 = 3.5;

/// Differences that are too small to matter, however equal the others are: of a rate, as a share; of a time of day, in seconds besides
/// the clocks' own errors; of a response time, as a factor.
const MIN_RATE_DIFFERENCE: f64 = 0.05;
const MIN_SECONDS: f64 = 0.1;
const MIN_RESPONSE_FACTOR: f64 = 1.5;

/// Answers of a generator from which on its 99 % quantile rests on ten.
const MIN_ANSWERS_FOR_P99: u64 = 1000;

/// A figure by which generators are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StragglerFigure {
    /// Right answers a second, as a share of the requests that were asked for; in a closed loop a second and user.
    Rate,
    /// Start of the measured time, in seconds after the median of all.
    Start,
    /// End of the measured time, in seconds after the median of all.
    End,
    /// Median response time, in nanoseconds.
    P50,
    /// 99 % quantile of the response times, in nanoseconds.
    P99,
}

/// A generator that differs from its peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Straggler {
    /// Its name.
    pub generator: String,
    /// By what it differs.
    pub figure: StragglerFigure,
    /// Its value.
    pub value: f64,
    /// The median of all generators; of two, the other's value.
    pub peers: f64,
    /// How many scaled median absolute deviations it is from there; none of two, of which either may be the odd one, nor where the
    /// deviation is 0.
    pub deviations: Option<f64>,
}

/// The generators of a load that differ, by figure.
pub(super) fn stragglers(generators: &[GeneratorShare]) -> Vec<Straggler> {
    let clock_error = generators.iter().filter_map(|share| share.clock.max_error).fold(0.0, f64::max) / 1e9;
    let seconds = MIN_SECONDS + clock_error;
    let values = |value: fn(&GeneratorShare) -> Option<f64>| -> Vec<f64> {
        // A figure that one of them has not is no ground for a comparison.
        generators.iter().map(value).collect::<Option<_>>().unwrap_or_default()
    };
    [
        (StragglerFigure::Rate, values(GeneratorShare::relative_rate), Difference::Share(MIN_RATE_DIFFERENCE)),
        (StragglerFigure::Start, values(|share| Some(share.start_offset)), Difference::Absolute(seconds)),
        (StragglerFigure::End, values(|share| Some(share.end_offset)), Difference::Absolute(seconds)),
        (
            StragglerFigure::P50,
            values(|share| share.quantile(1, |times| times.p50)),
            Difference::Factor(MIN_RESPONSE_FACTOR),
        ),
        (
            StragglerFigure::P99,
            values(|share| share.quantile(MIN_ANSWERS_FOR_P99, |times| times.p99)),
            Difference::Factor(MIN_RESPONSE_FACTOR),
        ),
    ]
    .into_iter()
    .flat_map(|(figure, values, least)| {
        let straggler = |outlier: Outlier| Straggler {
            generator: generators[outlier.index].name.clone(),
            figure,
            value: values[outlier.index],
            peers: outlier.peers,
            deviations: outlier.deviations,
        };
        outliers(&values, least).into_iter().map(straggler).collect::<Vec<_>>()
    })
    .collect()
}

/// The least difference that matters.
#[derive(Clone, Copy, Debug)]
enum Difference {
    Absolute(f64),
    /// Of the median.
    Share(f64),
    /// In either direction.
    Factor(f64),
}

impl Difference {
    /// The value on a scale on which equal distances are equal differences, and the least distance there.
    fn scaled(self, values: &[f64]) -> (Vec<f64>, f64) {
        match self {
            Self::Absolute(least) => (values.to_vec(), least),
            Self::Share(share) => (values.to_vec(), share * median(values)),
            Self::Factor(factor) => (values.iter().map(|value| value.max(1.0).ln()).collect(), factor.ln()),
        }
    }
}

/// A value that is far from the others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outlier {
    index: usize,
    peers: f64,
    deviations: Option<f64>,
}

/// The values that are far from their median: by more than the least difference, and by more than `MAX_DEVIATIONS`. Both of two that
/// differ are.
fn outliers(values: &[f64], least: Difference) -> Vec<Outlier> {
    let (scaled, least) = least.scaled(values);
    if let &[first, second] = &scaled[..] {
        let differs = (first - second).abs() > least;
        let outlier = |index: usize| Outlier { index, peers: values[1 - index], deviations: None };
        return if differs { vec![outlier(0), outlier(1)] } else { Vec::new() };
    }
    let center = median(&scaled);
    let deviation = MAD_TO_STD * mad(&scaled);
    let far = scaled.iter().enumerate().filter(|(_, value)| {
        let distance = (*value - center).abs();
        distance > least && distance > MAX_DEVIATIONS * deviation
    });
    let peers = median(values);
    far.map(|(index, value)| Outlier {
        index,
        peers,
        deviations: (deviation > 0.0).then(|| (value - center).abs() / deviation),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(values: &[f64], least: Difference) -> Vec<usize> {
        outliers(values, least).iter().map(|outlier| outlier.index).collect()
    }

    #[test]
    fn far_value_is_an_outlier_and_its_distance_is_known() {
        // Median 11, absolute deviations 2, 1, 0, 1, 29: their median is 1.
        let values = [9.0, 10.0, 11.0, 12.0, 40.0];
        let found = outliers(&values, Difference::Absolute(1.0));
        assert_eq!(found, [Outlier { index: 4, peers: 11.0, deviations: Some(29.0 / MAD_TO_STD) }]);
        assert!(indices(&values, Difference::Absolute(29.0)).is_empty());
        assert!(indices(&[9.0, 10.0, 11.0, 12.0, 16.0], Difference::Absolute(1.0)).is_empty(), "3.37 deviations");
    }

    #[test]
    fn equal_values_but_one_have_no_deviation() {
        let found = outliers(&[5.0, 5.0, 5.0, 4.0], Difference::Share(0.05));
        assert_eq!(found, [Outlier { index: 3, peers: 5.0, deviations: None }]);
        assert!(indices(&[5.0, 5.0, 5.0, 4.8], Difference::Share(0.05)).is_empty());
        assert!(indices(&[5.0, 5.0, 5.0], Difference::Share(0.05)).is_empty());
    }

    #[test]
    fn factors_count_in_either_direction() {
        let factor = Difference::Factor(1.5);
        assert_eq!(indices(&[100.0, 101.0, 100.0, 160.0, 60.0], factor), [3, 4]);
        assert!(indices(&[100.0, 101.0, 100.0, 140.0, 70.0], factor).is_empty());
    }

    #[test]
    fn of_two_that_differ_either_is_named() {
        let found = outliers(&[10.0, 12.0], Difference::Absolute(1.0));
        assert_eq!(found.iter().map(|outlier| outlier.peers).collect::<Vec<_>>(), [12.0, 10.0]);
        assert!(indices(&[10.0, 10.5], Difference::Absolute(1.0)).is_empty());
        assert_eq!(
            (indices(&[10.0], Difference::Absolute(1.0)), indices(&[], Difference::Factor(1.5))),
            (vec![], vec![])
        );
    }
}
