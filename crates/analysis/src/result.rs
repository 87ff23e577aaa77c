//! The analysis of a run: the types that every report is made from.

use kelvin_core::{Canary, CanaryReading, Case, Metric, MetricCase, Name, Overview, Prediction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod class_comparison;
mod findings;
mod laws;
mod memory;
mod studies;

pub use class_comparison::*;
pub use findings::*;
pub use kelvin_core::{
    CanaryCorrelation, Distribution, Figure, ImpossibleValue, Mode, ModeUnit, Outcome, RangeVerdict, Summary, TagCount,
    Warning, WarningKind,
};
pub use laws::*;
pub use memory::*;
pub use studies::*;

/// The analysis of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// One result for each metric at each case, in the order of the plan.
    pub results: Vec<MetricResult>,
    /// The canaries over the run, and their references.
    pub canaries: Vec<CanaryHistory>,
    /// The run against published machines of its class.
    #[serde(default)]
    pub class_comparison: ClassComparison,
    /// Studies, with conclusions.
    pub studies: Vec<Study>,
    /// The levels of the memory hierarchy, where the run measured the curve that shows them.
    #[serde(default)]
    pub levels: Option<MemoryLevels>,
    /// Scaling laws, fitted to measurements over numbers of workers: no predictions.
    #[serde(default)]
    pub laws: Vec<FittedLaw>,
    /// What is known of curves beside their measurements: lines that follow from lower metrics, and bounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_lines: Vec<ModelLine>,
    /// The knees of curves over users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knees: Vec<KneeMark>,
    /// The knees of curves over CPUs, jobs and streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth_ends: Vec<GrowthEnd>,
    /// Visits over the time of a study.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timelines: Vec<Timeline>,
    /// The best cases of metrics over two parameters.
    #[serde(default)]
    pub best_cells: Vec<BestCell>,
    /// Upper bounds of lines of curves.
    #[serde(default)]
    pub ceilings: Vec<LineCeiling>,
    /// Round trips whose distributions are shown together.
    #[serde(default)]
    pub tails: Option<TailGroup>,
    /// Work that kelvin and rivals both did, if asked for.
    #[serde(default)]
    pub rivals: Vec<RivalResult>,
    /// What a reader sees first, of a run that is a picture of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overview: Option<Overview>,
    /// What is worth knowing, most important first.
    pub findings: Vec<Finding>,
    /// The run in at most ten lines: what the machine is, what is odd and why.
    pub verdict: Vec<String>,
    /// Share of all batches that were undisturbed; `None` without canaries.
    pub undisturbed_share: Option<f64>,
    /// The block canary over the chain canary, each in its steady state; `None` if they were not read.
    #[serde(default)]
    pub block_over_chain: Option<f64>,
    /// That over its value in earlier runs, if it was never as low as there: another thread shared the core
    /// from the beginning of the run to its end.
    #[serde(default)]
    pub core_sharing_ratio: Option<f64>,
    /// How far the core's frequency was from its dominant one, a standard deviation as a part of it, if it moved: intervals of figures at
    /// that frequency are as wide.
    #[serde(default)]
    pub frequency_moved: Option<f64>,
    /// How much longer work took on average over the run than on the core left alone, a geometric mean by the block canary, as a share.
    #[serde(default)]
    pub slowdown: Option<f64>,
}

/// One metric at one case: measured, predicted, compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricResult {
    /// Id of the probe that measured it.
    pub probe: Name,
    /// Definition of the metric.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// Whether it was measured only as an input of predictions.
    pub only_input: bool,
    /// The outcome.
    pub outcome: Outcome,
    /// The headline in core cycles, where that makes sense and the core's frequency is known.
    pub cycles: Option<f64>,
    /// The prediction, if there is one.
    pub prediction: Option<Prediction>,
    /// Why there is no prediction.
    pub no_prediction_reason: Option<String>,
    /// Measured over predicted.
    pub ratio: Option<f64>,
    /// The measurement against the prediction.
    pub verdict: RangeVerdict,
    /// How far outside the predicted range the headline lies, in half-widths of that range, both as logarithms; 0 within it, `None`
    /// without a headline, a prediction, or a range that has a width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_distance: Option<f64>,
    /// What is usual of this figure on published machines of the class; `None` where too few are known, or the machine has no class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_range: Option<FigureClassRange>,
    /// Ids of the hazards of this run that touch a figure with a gap, none of them tried as its cause; empty without a gap.
    pub explained_by: Vec<Name>,
    /// Warnings about this number.
    pub warnings: Vec<Warning>,
}

impl Analysis {
    /// The result of a metric at a case.
    pub fn result_at(&self, metric_case: &MetricCase) -> Option<&MetricResult> {
        self.results.iter().find(|result| result.metric.id == metric_case.metric && result.case == metric_case.case)
    }
}

impl MetricResult {
    /// Where it was measured.
    pub fn metric_case(&self) -> MetricCase {
        MetricCase { metric: self.metric.id, case: self.case.clone() }
    }
}

/// A canary over the course of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CanaryHistory {
    /// Which.
    pub canary: Canary,
    /// Its steady state over the run, in nanoseconds: the dominant one, of the block canary the fastest.
    pub reference: f64,
    /// Relative distance from the reference up to which a batch counts as undisturbed.
    pub tolerance: f64,
    /// Share of its readings within the tolerance.
    pub steady_share: f64,
    /// Its readings, thinned to at most a few thousand (median, and extremes, of neighbouring ones).
    pub points: Vec<CanaryReading>,
}
