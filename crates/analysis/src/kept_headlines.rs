//! A run that is kept by its headlines: what takes the place of its samples where these are too much to store.
//!
//! Its headlines and intervals are those that the samples gave. What needs the samples or their rounds again is lost: distributions
//! over time, canaries, conclusions of studies, comparisons.

use kelvin_core::KeptHeadline;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use crate::prelude::*;

/// Significant digits of a kept number: a hundredth of the narrowest interval, and a third fewer bytes than all digits.
const KEPT_DIGITS: usize = 6;

/// A run by the headlines of its analysis, without samples.
pub fn keep_headlines(run: &Run, analysis: &Analysis) -> Run {
    let mut kept = Run { predictions: rounded(&run.predictions), ..run.clone() };
    for measurement in &mut kept.measurements {
        measurement.rounds.retain(|round| !matches!(round.outcome, RoundOutcome::Measured(_)));
    }
    // What was learned from earlier runs is in the intervals.
    kept.header.spread_history.clear();
    kept.header.core_ratio_history.clear();
    let headlines: Vec<KeptHeadline> = analysis.results.iter().filter_map(kept_headline).collect();
    kept.kept_headlines = rounded(&headlines);
    kept
}

/// The headline of a result; `None` where what is left of the measurement says why there is none.
fn kept_headline(result: &MetricResult) -> Option<KeptHeadline> {
    let outcome = match &result.outcome {
        Outcome::Measured(summary) => Outcome::Measured(without_rounds(summary)),
        Outcome::NotKnown(summary) => Outcome::NotKnown(without_rounds(summary)),
        Outcome::Invalid(value) => Outcome::Invalid(value.clone()),
        Outcome::Skipped(_) | Outcome::Failed(_) | Outcome::NotReached => return None,
    };
    let (probe, metric, case) = (result.probe, result.metric.id, result.case.clone());
    Some(KeptHeadline { probe, metric, case, outcome, warnings: result.warnings.clone() })
}

fn without_rounds(summary: &Summary) -> Box<Summary> {
    Box::new(Summary {
        round_headlines: Vec::new(),
        round_times: Vec::new(),
        tags: Vec::new(),
        notes: Vec::new(),
        canary_correlations: Vec::new(),
        ..summary.clone()
    })
}

/// The same data with its fractions rounded to [`KEPT_DIGITS`]; as it is where it has a number that JSON has not, which no store takes.
fn rounded<T: Clone + Serialize + DeserializeOwned>(data: &T) -> T {
    kelvin_core::json::edit(data, round_fractions).unwrap_or_else(|_| data.clone())
}

fn round_fractions(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = format!("{:.*e}", KEPT_DIGITS - 1, number.as_f64().unwrap_or_default());
            // Next to the greatest number it may round to none.
            if let Some(rounded) = text.parse().ok().and_then(Number::from_f64) {
                *number = rounded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(round_fractions),
        Value::Object(fields) => fields.values_mut().for_each(round_fractions),
        _ => {}
    }
}

/// The figure of a kept headline as predictions need it.
pub(crate) fn measured_value(kept: &KeptHeadline) -> Result<MeasuredValue, MissingInput> {
    match &kept.outcome {
        Outcome::Measured(summary) => {
            let quartiles = || (summary.distribution.p75 - summary.distribution.p25) / 2.0;
            let half_width = summary.run_interval.map_or_else(quartiles, |interval| interval.half_width());
            Ok(MeasuredValue { value: summary.headline, half_width })
        }
        Outcome::NotKnown(summary) => Err(MissingInput::AsFound(AsFoundValue {
            value: summary.as_found.value,
            low: summary.distribution.p5,
            high: summary.distribution.p95,
            reason: format!("undisturbed in {} of its samples, which are too few", percent(summary.undisturbed_share)),
        })),
        _ => Err(MissingInput::NoFigure("came out beyond what is possible".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_rounded_and_whole_numbers_stay() {
        let numbers = (1_234_567_890_123_u64, [1.234_567_89, -0.000_123_456_78, 0.0, 1e300], "1.23456789");
        let expected = (1_234_567_890_123_u64, [1.234_57, -0.000_123_457, 0.0, 1e300], "1.23456789".to_owned());
        let numbers = (numbers.0, numbers.1, numbers.2.to_owned());
        assert_eq!(rounded(&numbers), expected);
        assert_eq!(rounded(&[1.234_567_89, f64::INFINITY]), [1.234_567_89, f64::INFINITY]);
    }
}
