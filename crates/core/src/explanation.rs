//! An experiment on one figure, and what it shows of the causes of that figure.
//!
//! An [`Experiment`] is raw: rounds as found and under controls, interleaved. An [`Explanation`] is what analysis concludes from it:
//! the figure as a sum, with a remainder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::{Id, Word};
use crate::{Case, Estimate, EventRate, Measurement, Metric, Name, Prediction, PredictionRecord, SkipReason};

/// Version of the format of an explanation. A format is never edited, only followed by the next one.
pub const EXPLANATION_FORMAT: u32 = 2;

/// A metric at a case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MetricCase {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The case.
    pub case: Case,
}

impl std::fmt::Display for MetricCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { metric, case } = self;
        if case.is_empty() { f.pad(metric) } else { f.pad(&format!("{metric} ({case})")) }
    }
}

/// Rounds of one figure, as found and under controls, made in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Id of the probe.
    pub probe: Name,
    /// The metric.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// Whether the machine is virtual, so that part of a cause may belong to its host.
    pub is_virtual: bool,
    /// The causes that can touch the figure, and how each was tried.
    pub causes: Vec<CauseTrial>,
    /// The rounds.
    pub arms: Vec<Arm>,
    /// The prediction of the figure, from inputs as found.
    pub predicted: Option<PredictionRecord>,
    /// Like `predicted`, from inputs under the controls of all that was shown.
    pub predicted_without: Option<PredictionRecord>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// A condition of an experiment, and the rounds under it.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Ids of the controls in force; none as found.
    pub controls: Vec<Name>,
    /// The rounds, by the number of their pass.
    pub measurement: Measurement,
}

/// A cause that can touch a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct CauseTrial {
    /// Its id.
    pub id: Name,
    /// What it is: `waking an idle CPU`.
    pub summary: Name,
    /// What helps against it.
    pub remedy: Name,
    /// Its mechanisms, the most direct one first.
    pub mechanisms: Vec<MechanismTrial>,
    /// What it cannot touch, measured as found and under each of its controls.
    pub negative_control: Option<MetricCase>,
    /// Its size by a formula over lower metrics, as found.
    pub size: Option<FigureDifference>,
}

/// One way in which a cause is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct MechanismTrial {
    /// In words: `gone with both CPUs kept awake`.
    pub description: Name,
    /// How the amount follows from rounds.
    pub amount: AmountFormula,
    /// Why it cannot be tried here.
    pub refused: Option<SkipReason>,
    /// Why it may do nothing in a virtual machine, where another one then takes its place.
    pub idle_in_guest: Option<Name>,
    /// Whether it only takes the place of one that does nothing.
    pub is_substitute: bool,
}

/// How the amount of a cause follows from rounds.
#[derive(Clone, Debug, PartialEq)]
pub enum AmountFormula {
    /// The figure as found less the figure under this control.
    Without(Name),
    /// The figure under the second control, which makes much of the cause, less that under the first, which makes little of it.
    Sweep([Name; 2]),
    /// The figure under the first control less that under the second, which takes more away; nothing is known where the second does
    /// nothing.
    BeyondLinear([Name; 2]),
    /// A difference of other figures.
    Difference(FigureDifference),
}

/// This many times the difference of two other figures, as found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureDifference {
    /// The larger one.
    pub minuend: MetricCase,
    /// What is taken from it.
    pub subtrahend: MetricCase,
    /// How often it counts in one operation.
    pub factor: f64,
}

/// What an experiment shows: a figure as a sum of what is shown to cause it, and a remainder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Version of this format, [`EXPLANATION_FORMAT`].
    pub why_format: u32,
    /// Version of kelvin.
    #[schemars(with = "Word")]
    pub kelvin: String,
    /// Id of the probe.
    #[schemars(with = "Id")]
    pub probe: Name,
    /// The metric.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// Passes over all conditions.
    pub passes: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// The figure, in the metric's unit: the median of all samples as found.
    pub figure: Estimate,
    /// What amounts are of.
    pub amounts: AmountUnit,
    /// The figure as an amount.
    pub whole: Estimate,
    /// Its prediction from inputs as found.
    pub predicted: Option<Prediction>,
    /// Why there is none.
    pub no_prediction_reason: Option<String>,
    /// Its prediction from inputs without what is shown.
    pub predicted_without: Option<Prediction>,
    /// The parts of the sum: what is left without all that is shown, then each cause that is shown, the largest first.
    pub parts: Vec<ExplainedPart>,
    /// What no part explains.
    pub not_explained: AmountShare,
    /// Whether that may be nothing: its interval holds zero. One below zero says that causes act on the same time.
    pub is_explained: bool,
    /// Every cause that can touch the figure.
    pub causes: Vec<CauseResult>,
    /// What the processor counted for an operation as found, where it has counters that may be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<EventRate>,
}

/// What amounts of an explanation are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AmountUnit {
    /// Nanoseconds of one operation.
    Operation,
    /// Nanoseconds for each million bytes: rates do not add up, times do.
    Megabyte,
    /// The metric's own unit.
    MetricUnit,
}

/// An amount, and its share of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AmountShare {
    /// The amount.
    pub amount: Estimate,
    /// Its share of the figure.
    pub share: Estimate,
}

/// One part of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedPart {
    /// What it is.
    pub kind: PartKind,
    /// How large it is.
    #[serde(flatten)]
    pub share: AmountShare,
}

/// What a part of a figure is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// What is left without all that is shown, as measured: no prediction says otherwise.
    Rest,
    /// What is left should take so long, by the prediction from its own inputs; what it takes longer is not explained.
    Expected,
    /// A cause, by its id.
    Cause(#[schemars(with = "Id")] Name),
}

/// A cause and what was found of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseResult {
    /// Its id.
    #[schemars(with = "Id")]
    pub id: Name,
    /// What it is.
    pub summary: Name,
    /// What helps against it.
    pub remedy: Name,
    /// What was found.
    pub verdict: CauseVerdict,
    /// As much of it as all its mechanisms show.
    pub share: Option<AmountShare>,
    /// The part of that which belongs to the host of a virtual machine, where it is shown.
    pub host_share: Option<AmountShare>,
    /// What each mechanism shows.
    pub evidence: Vec<MechanismEvidence>,
    /// Its size by the formula, where one is known.
    pub by_formula: Option<FormulaSize>,
}

/// What was found of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseVerdict {
    /// Its control takes a part of the figure away, and so does a second mechanism where there is one.
    Shown,
    /// Its control changes the figure by less than matters.
    RuledOut,
    /// The interval holds both nothing and what matters.
    Undecided,
    /// One mechanism shows it and another does not.
    MechanismsDisagree,
    /// One mechanism shows it, and no other could be tried beside it.
    OneMechanism,
    /// The figure is larger without it.
    Opposite,
    /// Its controls moved what they cannot touch by as much as matters here, and say nothing.
    Invalid,
    /// It cannot be tried here.
    NotTried(SkipReason),
}

/// What one mechanism shows of a cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MechanismEvidence {
    /// The mechanism, in words.
    pub description: Name,
    /// The amount that it shows.
    pub amount: Option<Estimate>,
    /// Why it shows none, or does not count.
    pub missing_reason: Option<String>,
    /// What the cause cannot touch, under this control.
    pub negative_control: Option<NegativeControl>,
}

/// A metric that a cause cannot touch, under its control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NegativeControl {
    /// What it is.
    #[serde(flatten)]
    pub at: MetricCase,
    /// Its value as found, in its unit.
    pub value: f64,
    /// Its unit.
    pub unit: crate::Unit,
    /// Its value under the control over that as found.
    pub ratio: Estimate,
    /// Whether it moved by more than matters to the figure.
    pub moved: bool,
}

/// The size of a cause by a formula over lower metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FormulaSize {
    /// The formula.
    #[serde(flatten)]
    pub formula: FigureDifference,
    /// What comes out, in nanoseconds.
    pub nanoseconds: Estimate,
}
