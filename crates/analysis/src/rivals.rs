//! The same work by kelvin and by rival programs: from results to the rows of one table.

use kelvin_catalogue::{BESIDE_RIVALS, BesideRivals, Rival};
use kelvin_model::{Metric, Treatment, Unit, Value};

use crate::result::{BesideRival, Compared, Figure, MetricResult, RivalOutcome, Summary};

impl BesideRival {
    /// Whether a result is part of a comparison, and so belongs in its table only.
    pub fn is_part(result: &MetricResult) -> bool {
        let is_one = |metric: &Metric| metric.id == result.metric.id;
        BESIDE_RIVALS.iter().any(|metrics| is_one(metrics.ratio) || is_one(metrics.kelvin) || is_one(metrics.other))
    }

    /// The comparisons among results, in their order.
    pub(crate) fn among(results: &[MetricResult]) -> Vec<Self> {
        let of = |ratio: &MetricResult| {
            let metrics = BESIDE_RIVALS.iter().find(|metrics| metrics.ratio.id == ratio.metric.id)?;
            Self::of(ratio, metrics, results)
        };
        results.iter().filter_map(of).collect()
    }

    fn of(ratio: &MetricResult, metrics: &BesideRivals, results: &[MetricResult]) -> Option<Self> {
        let Some(Value::Word(program)) = ratio.case.get(&Rival::AXIS.name) else { return None };
        let side = |metric: &Metric| {
            let found = results.iter().find(|result| result.metric.id == metric.id && result.case == ratio.case)?;
            found.outcome.summary()
        };
        let outcome = match (ratio.outcome.summary(), side(metrics.kelvin), side(metrics.other)) {
            (Some(summary), Some(kelvin), Some(other)) => {
                RivalOutcome::Compared(Box::new(compared(ratio, summary, (kelvin, other), metrics.kelvin.unit)))
            }
            _ => RivalOutcome::Missing(Box::new(ratio.outcome.clone())),
        };
        let case = ratio.case.iter().filter(|(name, _)| *name != Rival::AXIS.name).collect();
        Some(Self { id: ratio.metric.id, program, case, outcome })
    }
}

fn compared(ratio: &MetricResult, summary: &Summary, (kelvin, other): (&Summary, &Summary), unit: Unit) -> Compared {
    let mut notes = summary.notes.clone();
    // One round's notes represent the others, which differ in their figures only.
    notes.truncate(1);
    for (name, side) in [("kelvin", kelvin), ("the other", other)] {
        notes.extend(side.notes.first().map(|note| format!("{name}: {note}")));
    }
    Compared {
        unit,
        kelvin: headline(kelvin),
        other: headline(other),
        ratio: headline(summary),
        expected: ratio.prediction.as_ref().map(|prediction| prediction.value),
        verdict: ratio.verdict,
        notes,
    }
}

fn headline(summary: &Summary) -> Figure {
    let n = match (summary.treatment, &summary.undisturbed) {
        (Treatment::AsFound, _) | (_, None) => summary.as_found.n,
        (_, Some(undisturbed)) => undisturbed.n,
    };
    Figure { value: summary.headline, interval: summary.interval, n }
}
