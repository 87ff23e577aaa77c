//! What hosts do to each other: the ratio of each figure, together over alone, over all hosts.

use std::collections::BTreeMap;

use kelvin_core::{Better, Estimate};
use kelvin_stats::{FALSE_DISCOVERY_RATE, adjusted_p_values, normal_cdf, normal_quantile};
use serde::{Deserialize, Serialize};

use super::task::FigureRatio;

/// The level of all intervals.
const LEVEL: f64 = 0.95;
/// Ratios that are nearer to 1 than this do not matter, however certain they are: as in `kelvin compare`.
const MIN_DIFFERENCE: f64 = 0.01;
/// A figure without an error has this one, as a logarithm: less than any clock shows.
const MIN_ERROR: f64 = 1e-6;

/// The ratio of a figure over all hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommonRatio {
    /// Metric and case.
    pub figure: String,
    /// Which direction is better.
    pub better: Better,
    /// How many hosts have it with an interval.
    pub hosts: usize,
    /// Its mean, together over alone, with an interval of 95 %.
    pub ratio: Estimate,
    /// The lowest and the highest one of a host.
    pub range: [f64; 2],
    /// Whether it differs from 1 by more than chance and the spread of repeated runs, corrected for all figures, and by more than 1 %.
    pub differs: bool,
}

impl CommonRatio {
    /// How large the difference is, where there is one; else how many of its errors.
    fn sort_weight(&self) -> f64 {
        let [value, low, high] = self.ratio.parts().map(f64::ln);
        if self.differs { value.abs() } else { value.abs() / (high - low) }
    }

    /// Whether it is worse when all hosts measure.
    pub fn is_worse(&self) -> bool {
        match self.better {
            Better::Lower => self.ratio.value > 1.0,
            Better::Higher => self.ratio.value < 1.0,
            Better::Neither => false,
        }
    }
}

/// The ratios of figures over hosts: those that differ, the largest first, and then the others, the most certain first.
pub fn common_ratios<'a>(hosts: impl IntoIterator<Item = &'a Vec<FigureRatio>>) -> Vec<CommonRatio> {
    let mut by_figure: BTreeMap<&str, Vec<&FigureRatio>> = BTreeMap::new();
    for figure in hosts.into_iter().flatten().filter(|figure| is_usable(&figure.ratio)) {
        by_figure.entry(&figure.figure).or_default().push(figure);
    }
    let (mut ratios, p_values): (Vec<CommonRatio>, Vec<f64>) =
        by_figure.into_values().map(|figures| common_ratio(&figures)).unzip();
    for (ratio, p_value) in ratios.iter_mut().zip(adjusted_p_values(&p_values)) {
        ratio.differs = p_value <= FALSE_DISCOVERY_RATE && ratio.ratio.value.ln().abs() > MIN_DIFFERENCE.ln_1p();
    }
    ratios.sort_by(|first, second| {
        second.differs.cmp(&first.differs).then(second.sort_weight().total_cmp(&first.sort_weight()))
    });
    ratios
}

/// A ratio with an interval of positive numbers; not the range of too few rounds.
fn is_usable(ratio: &Estimate) -> bool {
    !ratio.is_range
        && ratio.low > 0.0
        && ratio.low <= ratio.value
        && ratio.value <= ratio.high
        && ratio.high.is_finite()
}

/// That of one figure, and the chance of its mean if hosts do nothing to each other.
fn common_ratio(figures: &[&FigureRatio]) -> (CommonRatio, f64) {
    let quantile = normal_quantile(0.5 + LEVEL / 2.0);
    let effects: Vec<Effect> = figures
        .iter()
        .map(|figure| {
            let [value, low, high] = figure.ratio.parts().map(f64::ln);
            Effect { value, error: ((high - low) / (2.0 * quantile)).max(MIN_ERROR) }
        })
        .collect();
    let mean = mean_effect(&effects);
    let values = figures.iter().map(|figure| figure.ratio.value);
    let range = [values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max)];
    let bounds = (mean.value - quantile * mean.error, mean.value + quantile * mean.error);
    let ratio = CommonRatio {
        figure: figures[0].figure.clone(),
        better: figures[0].better,
        hosts: figures.len(),
        ratio: Estimate::new(mean.value, bounds).map(f64::exp),
        range,
        differs: false,
    };
    (ratio, 2.0 * normal_cdf(-mean.value.abs() / mean.error))
}

/// A logarithm with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Effect {
    value: f64,
    error: f64,
}

/// The mean of effects that differ between hosts by more than their errors (the random-effects model of DerSimonian and Laird,
/// "Meta-analysis in clinical trials", Controlled Clinical Trials 7, 1986, equations 8 to 10).
fn mean_effect(effects: &[Effect]) -> Effect {
    let weights: Vec<f64> = effects.iter().map(|effect| effect.error.powi(-2)).collect();
    let total: f64 = weights.iter().sum();
    let weighted = |weights: &[f64]| -> f64 {
        let sum: f64 = effects.iter().zip(weights).map(|(effect, weight)| weight * effect.value).sum();
        sum / weights.iter().sum::<f64>()
    };
    let fixed = weighted(&weights);
    let heterogeneity: f64 =
        effects.iter().zip(&weights).map(|(effect, weight)| weight * (effect.value - fixed).powi(2)).sum();
    let scale = total - weights.iter().map(|weight| weight * weight).sum::<f64>() / total;
    let degrees = effects.len() as f64 - 1.0;
    let variance_between = if scale > 0.0 { ((heterogeneity - degrees) / scale).max(0.0) } else { 0.0 };
    let weights: Vec<f64> = effects.iter().map(|effect| 1.0 / (effect.error.powi(2) + variance_between)).collect();
    Effect { value: weighted(&weights), error: weights.iter().sum::<f64>().sqrt().recip() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(figure: &str, value: f64, relative_error: f64) -> FigureRatio {
        let bound = |sign: f64| value * (sign * normal_quantile(0.975) * relative_error).exp();
        FigureRatio {
            figure: figure.into(),
            better: Better::Lower,
            ratio: Estimate::new(value, (bound(-1.0), bound(1.0))),
        }
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} {expected}");
    }

    #[test]
    fn mean_of_equal_effects_has_their_pooled_error() {
        let mean = mean_effect(&[Effect { value: 0.3, error: 0.2 }; 4]);
        assert_near(mean.value, 0.3);
        assert_near(mean.error, 0.1);
    }

    #[test]
    fn mean_of_unequal_effects_has_the_spread_between_them() {
        // Weights 100 and 25:
        // fixed = 0.2, Q = 100 * 0.04 + 25 * 0.64 = 20, scale = 125 - 10625 / 125 = 40, variance = 19 / 40 = 0.475.
        let mean = mean_effect(&[Effect { value: 0.0, error: 0.1 }, Effect { value: 1.0, error: 0.2 }]);
        let weights = [1.0 / 0.485, 1.0 / 0.515];
        assert_near(mean.value, weights[1] / (weights[0] + weights[1]));
        assert_near(mean.error, 1.0 / (weights[0] + weights[1]).sqrt());
        assert_eq!(mean_effect(&[Effect { value: 0.5, error: 0.25 }]), Effect { value: 0.5, error: 0.25 });
    }

    #[test]
    fn figures_that_differ_come_first() {
        let host = |slow: f64| vec![ratio("a", 1.002, 0.0005), ratio("b", slow, 0.05), ratio("c", 1.03, 0.05)];
        let ratios = common_ratios(&[host(2.0), host(1.8)]);
        let names: Vec<&str> = ratios.iter().map(|ratio| ratio.figure.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"], "b differs; a is certain, and too near to 1");
        assert_eq!(ratios.iter().map(|ratio| ratio.differs).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((ratios[0].hosts, ratios[0].range), (2, [1.8, 2.0]));
        assert!(ratios[0].is_worse() && ratios[0].ratio.low > 1.5 && ratios[0].ratio.high < 2.3);
    }

    #[test]
    fn ranges_and_impossible_intervals_are_left_out() {
        let mut of_few_rounds = ratio("a", 2.0, 0.1);
        of_few_rounds.ratio.is_range = true;
        let mut impossible = ratio("b", 2.0, 0.1);
        impossible.ratio.low = -1.0;
        assert!(common_ratios(&[vec![of_few_rounds, impossible]]).is_empty());
    }
}
