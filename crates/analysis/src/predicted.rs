//! Measured against predicted: the ratio, the verdict, and the hazards that touch a figure with a gap.

use std::cmp::Reverse;

use kelvin_model::{Case, Hazard, Metric, Name, Prediction, Run};

use crate::result::{Outcome, Summary, Verdict};

/// A measurement against its prediction.
pub(crate) struct Compared {
    pub ratio: Option<f64>,
    pub verdict: Verdict,
    /// Hazards that touch a figure with a gap: those of this kind of metric before those of everything, the worst first. None was tried as
    /// its cause.
    pub explained_by: Vec<Name>,
}

pub(crate) fn compare(run: &Run, metric: &Metric, case: &Case, outcome: &Outcome) -> Compared {
    let nothing = |verdict| Compared { ratio: None, verdict, explained_by: Vec::new() };
    let record = run.prediction(&metric.id, case);
    let Some(prediction) = record.and_then(|record| record.prediction.as_ref()) else {
        return nothing(Verdict::NotPredicted);
    };
    let Some(summary) = outcome.summary() else { return nothing(Verdict::NotMeasured) };
    let verdict = verdict(summary, prediction);
    Compared {
        ratio: (prediction.value != 0.0).then(|| summary.headline / prediction.value),
        verdict,
        explained_by: match verdict {
            Verdict::Above | Verdict::Below => touching(&run.outline.hazards, &metric.id),
            _ => Vec::new(),
        },
    }
}

/// As predicted if the interval touches the predicted range.
fn verdict(summary: &Summary, prediction: &Prediction) -> Verdict {
    let (lower, upper) =
        summary.interval.map_or((summary.headline, summary.headline), |interval| (interval.lower, interval.upper));
    if lower > prediction.high {
        Verdict::Above
    } else if upper < prediction.low {
        Verdict::Below
    } else {
        Verdict::AsPredicted
    }
}

fn touching(hazards: &[Hazard], metric: &str) -> Vec<Name> {
    let mut touching: Vec<&Hazard> = hazards.iter().filter(|hazard| hazard.touches(metric)).collect();
    // A hazard of everything, such as a busy machine, says less than one of just this metric: and samples that other work disturbed are
    // set apart already.
    touching.sort_by_key(|hazard| (hazard.affects.is_empty(), Reverse(hazard.severity)));
    touching.into_iter().map(|hazard| hazard.id).collect()
}
