//! The same reading by kelvin and by other programs, side by side: from results to the rows of one table.

use kelvin_catalogue::file::{BESIDE_RIVALS, BesideRivals, Rival};
use kelvin_model::{Case, Metric, Name, Treatment, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Figure, MetricResult, Outcome, Summary, Verdict};

/// The same work done by kelvin and by another program, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BesideRival {
    /// Id of the measure: `file.rivals.cached`.
    pub id: Name,
    /// The other program.
    pub program: Name,
    /// What both did, without the program.
    pub case: Case,
    /// What came of it.
    pub outcome: RivalOutcome,
}

/// What came of a comparison with another program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RivalOutcome {
    /// Both sides, and how they compare.
    Compared(Box<Compared>),
    /// Why there is no comparison: the outcome of the ratio.
    Missing(Box<Outcome>),
}

/// Both sides of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Bytes per second that kelvin read.
    pub kelvin: Figure,
    /// Bytes per second that the other program read.
    pub other: Figure,
    /// kelvin over the other program, over pairs that followed one another directly. It is not the ratio of the two figures
    /// above, which do not pair what belongs together.
    pub ratio: Figure,
    /// What the ratio should be, if that is predicted.
    pub expected: Option<f64>,
    /// How the ratio stands to that.
    pub verdict: Verdict,
    /// How each side was timed and proven, and which program it was.
    pub notes: Vec<String>,
}

impl BesideRival {
    /// Whether a result is a part of such a comparison, and so belongs to its table and to no other.
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
                RivalOutcome::Compared(Box::new(compared(ratio, summary, (kelvin, other))))
            }
            _ => RivalOutcome::Missing(Box::new(ratio.outcome.clone())),
        };
        let case = ratio.case.iter().filter(|(name, _)| *name != Rival::AXIS.name).collect();
        Some(Self { id: ratio.metric.id, program, case, outcome })
    }
}

fn compared(ratio: &MetricResult, summary: &Summary, (kelvin, other): (&Summary, &Summary)) -> Compared {
    let mut notes = summary.notes.clone();
    // Those of a single round stand for the others, which differ in their figures.
    notes.truncate(1);
    for (name, side) in [("kelvin", kelvin), ("the other", other)] {
        notes.extend(side.notes.first().map(|note| format!("{name}: {note}")));
    }
    Compared {
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
