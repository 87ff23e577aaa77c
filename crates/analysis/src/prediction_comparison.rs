//! Measured against predicted: the ratio, the verdict, and the hazards that touch a figure with a gap.

use kelvin_core::IndirectSort;
use std::cmp::Reverse;

use crate::prelude::*;

/// Compares a result with its prediction, where it has one. The hazards that touch a figure with a gap are listed with those of this kind of
/// metric before those of everything, the worst first; none was tried as its cause.
pub(crate) fn compare_with_prediction(run: &Run, result: &mut MetricResult) {
    let Some(prediction) = &result.prediction else { return };
    let Some(summary) = result.outcome.summary() else {
        result.verdict = RangeVerdict::NotMeasured;
        return;
    };
    result.ratio = (prediction.value != 0.0).then(|| summary.headline / prediction.value);
    result.verdict = range_verdict(summary, prediction);
    result.log_distance = range_distance(summary.headline, prediction);
    if matches!(result.verdict, RangeVerdict::Above | RangeVerdict::Below) {
        let matching = run.header.hazards.iter().filter(|hazard| hazard.is_affecting(&result.metric.id));
        let mut hazards: Vec<&Hazard> = matching.collect();
        // A hazard of everything, such as a busy machine, explains less than one of this metric alone: samples that other work
        // disturbed are excluded already.
        hazards.indirect_sort_by_key(|hazard| (hazard.affects.is_empty(), Reverse(hazard.severity)));
        result.explained_by = hazards.into_iter().map(|hazard| hazard.id).collect();
    }
}

/// As predicted if the interval touches the predicted range: that of this run, whose inputs the prediction is made of.
fn range_verdict(summary: &Summary, prediction: &Prediction) -> RangeVerdict {
    match summary.run_ends() {
        (lower, _) if lower > prediction.high => RangeVerdict::Above,
        (_, upper) if upper < prediction.low => RangeVerdict::Below,
        _ => RangeVerdict::AsPredicted,
    }
}

/// How far a value is outside a predicted range, in half-widths of that: its uncertainty. Both on a scale of logarithms, where the
/// range's errors add up, or as they are where an end is not above zero.
pub(crate) fn range_distance(value: f64, prediction: &Prediction) -> Option<f64> {
    let ends = [prediction.low, prediction.high, value];
    let is_positive = ends.iter().all(|&end| end > 0.0);
    let [low, high, value] = ends.map(|end| if is_positive { end.ln() } else { end });
    let half_width = (high - low) / 2.0;
    let excess = (value - high).max(low - value).max(0.0);
    (half_width > 0.0 && excess.is_finite()).then(|| excess / half_width)
}

#[cfg(test)]
mod tests {
    use kelvin_core::PredictionBasis;

    use super::*;

    fn range(low: f64, high: f64) -> Prediction {
        Prediction {
            value: (low * high).sqrt(),
            low,
            high,
            basis: PredictionBasis::Derived,
            formula: String::new(),
            inputs: Vec::new(),
            derivation: String::new(),
            sources: Vec::new(),
            calibration: None,
            formula_name: "a test".into(),
            ceiling: None,
        }
    }

    #[test]
    fn range_distance_is_in_half_widths() {
        // A factor of 2 either way: 4 times its upper end is two of them beyond it, a quarter of its lower end as many.
        let distance = |value: f64| range_distance(value, &range(50.0, 200.0)).unwrap();
        assert_eq!([distance(50.0), distance(100.0), distance(200.0)], [0.0; 3]);
        assert!((distance(800.0) - 2.0).abs() < 1e-12 && (distance(12.5) - 2.0).abs() < 1e-12);
        // The narrower the range the further: 1.21 times the end of a range of a factor of 1.1 are two.
        assert!((range_distance(1.331, &range(1.0 / 1.1, 1.1)).unwrap() - 2.0).abs() < 1e-12);
        // A share that may be 0 has no logarithm.
        assert_eq!(range_distance(0.5, &range(0.0, 0.2)), Some(0.3 / 0.1));
        assert_eq!(range_distance(2.0, &range(1.0, 1.0)), None);
    }
}
