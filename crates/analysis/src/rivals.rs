//! One piece of work by kelvin and by rival programs: from results to the rows of one table.

use kelvin_core::catalogue::{RIVAL_COMPARISONS, Rival, RivalComparison};

use crate::prelude::*;

impl RivalResult {
    /// Whether a result is part of a comparison, and so belongs in its table only.
    pub fn is_rival_metric(result: &MetricResult) -> bool {
        let is_same = |metric: &Metric| metric.id == result.metric.id;
        RIVAL_COMPARISONS
            .iter()
            .any(|metrics| is_same(metrics.ratio) || is_same(metrics.kelvin) || is_same(metrics.other))
    }

    /// The comparisons among results, in their order.
    pub(crate) fn from_results(results: &[MetricResult]) -> Vec<Self> {
        let comparison = |ratio: &MetricResult| {
            let metrics = RIVAL_COMPARISONS.iter().find(|metrics| metrics.ratio.id == ratio.metric.id)?;
            Self::from_ratio(ratio, metrics, results)
        };
        results.iter().filter_map(comparison).collect()
    }

    fn from_ratio(ratio: &MetricResult, metrics: &RivalComparison, results: &[MetricResult]) -> Option<Self> {
        let Some(Value::Word(program)) = ratio.case.get(&Rival::AXIS.name) else { return None };
        let side = |metric: &Metric| {
            let result = results.iter().find(|result| result.metric.id == metric.id && result.case == ratio.case)?;
            result.outcome.summary()
        };
        let outcome = match (ratio.outcome.summary(), side(metrics.kelvin), side(metrics.other)) {
            (Some(summary), Some(kelvin), Some(other)) => {
                // One round's notes represent the others, which differ in their figures only.
                let ratio_note = summary.notes.first().cloned();
                let side_note = |(name, side): (&str, &Summary)| Some(format!("{name}: {}", side.notes.first()?));
                let side_notes = [("kelvin", kelvin), ("the other", other)].into_iter().filter_map(side_note);
                RivalOutcome::Compared(Box::new(RivalFigures {
                    unit: metrics.kelvin.unit,
                    kelvin: kelvin.headline_figure(),
                    other: other.headline_figure(),
                    ratio: summary.headline_figure(),
                    expected: ratio.prediction.as_ref().map(|prediction| prediction.value),
                    verdict: ratio.verdict,
                    notes: ratio_note.into_iter().chain(side_notes).collect(),
                }))
            }
            _ => RivalOutcome::Missing(Box::new(ratio.outcome.clone())),
        };
        let case = ratio.case.iter().filter(|(name, _)| *name != Rival::AXIS.name).collect();
        Some(Self { id: ratio.metric.id, program, case, outcome })
    }
}
