//! Two sides compared, each of one run or several: what differs between them, figure by figure and besides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::{Id, Word};
use crate::{Better, Case, Estimate, Foreign, GateResult, Metric, MetricCase, Name, PValue};

/// Version of the format of a comparison. A format is never edited, only followed by the next one.
pub const COMPARE_FORMAT: u32 = 1;

/// What a comparison of two sides shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of this format, [`COMPARE_FORMAT`].
    pub compare_format: u32,
    /// What is compared with.
    pub base: ComparedSide,
    /// What is compared.
    pub other: ComparedSide,
    /// Share by which a figure must differ to be better or worse, and within which it is the same.
    pub threshold: f64,
    /// What differs besides figures: the machine, its kernel and settings, how kelvin was called, versions of methods.
    pub differences: Vec<FactDifference>,
    /// Core frequency during the base and during the other, in hertz, if both are known.
    pub clocks: Option<[f64; 2]>,
    /// Core frequency of the other over that of the base by the canaries beside their samples, where all of their runs have these and are of
    /// one machine: figures of a fixed number of core cycles are told at the frequency of the base on both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<f64>,
    /// Median over all figures of how many times as good the base is as the other: above 1 the other is slower.
    pub median_ratio: Option<f64>,
    /// How many times as wide as their own runs tell the errors of figures are, because most figures differ by more than that.
    pub interval_inflation: f64,
    /// The figures of both, the most consequential first.
    pub figures: Vec<ComparedFigure>,
    /// The times of both on one scale, as the first screen of a run has them; none where not both are pictures of a machine, or where it
    /// was not asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<ComparedRung>,
    /// What only one of them has, or what means something else in each.
    pub not_compared: Vec<NotCompared>,
    /// How both were measured, where that was in turn: `kelvin ab`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaving: Option<Interleaving>,
    /// What a gate finds, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateResult>,
}

/// How two settings of one machine were measured in turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interleaving {
    /// Blocks of two measurements of either, of the figure that has most.
    pub blocks: usize,
    /// Seconds that all of it took.
    pub seconds: f64,
}

impl ComparedSide {
    /// Whether kelvin did not measure it: a published machine, or a foreign run, of which little else is known.
    pub fn is_external(&self) -> bool {
        self.runs.iter().all(|run| run.foreign.is_some())
    }
}

impl Comparison {
    /// The figures with a verdict, in their order.
    pub fn with_verdict(&self, predicate: impl Fn(&ChangeVerdict) -> bool) -> impl Iterator<Item = &ComparedFigure> {
        self.figures.iter().filter(move |figure| predicate(&figure.verdict))
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedSide {
    /// As it was asked for: `last~1`.
    pub name: String,
    /// Its runs, oldest first; none of a published machine.
    pub runs: Vec<ComparedRun>,
}

/// A run of a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRun {
    /// Its id.
    #[schemars(with = "Word")]
    pub id: String,
    /// Its start, RFC 3339 in UTC.
    pub started: String,
    /// Seconds from start to end.
    pub seconds: f64,
    /// Whether it was interrupted, and has only what was measured until then.
    pub is_partial: bool,
    /// The program that measured it, if not kelvin: its values are compared as published ones, without a spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Foreign>,
}

/// A fact that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactDifference {
    /// Its group: `Kernel`.
    pub group: String,
    /// What it is: `Release`.
    pub label: String,
    /// What it is in the base; none where it is unknown, or not there.
    pub base: Option<String>,
    /// What it is in the other.
    pub other: Option<String>,
}

/// A figure that both sides have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedFigure {
    /// The metric.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// The figure of the base, in the metric's unit: the median of its runs; the mean of its rounds, where both were measured in turn.
    pub base: f64,
    /// The figure of the other.
    pub other: f64,
    /// Rounds behind the base and the other: of commands, how often each was run.
    pub rounds: [usize; 2],
    /// What the base and the other were made of.
    pub sides: [SideFigure; 2],
    /// The other over the base, with an interval that holds for this figure alone; a range, or nothing, with too few rounds.
    pub ratio: Estimate,
    /// What the ratio is one of, where both were measured in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_basis: Option<RatioBasis>,
    /// Where the spread from run to run is known from.
    pub spread_source: SpreadSource,
    /// What follows.
    pub verdict: ChangeVerdict,
    /// The chance of a difference beyond the threshold by accident.
    pub difference: Option<PValue>,
    /// The chance of lying so far inside the threshold by accident.
    pub equivalence: Option<PValue>,
    /// The smallest change for the worse that would have been found four times in five, as a share.
    pub detectable_change: Option<f64>,
    /// How many times as many runs of each side, or blocks, would decide, if the figure stays what it is.
    pub times_to_decide: Option<f64>,
    /// What is known of a cause of the difference; nothing where none can be told, or none is certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseOfChange>,
}

/// One time of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRung {
    /// What takes so long.
    pub label: String,
    /// Whether it is the rung above it under another condition, which is all that `what` says.
    pub continues: bool,
    /// How long in the base and in the other, in seconds, where that is known.
    pub seconds: [Option<f64>; 2],
    /// Its place among the figures of the comparison, from 0; none where not both have it at one case.
    pub figure: Option<usize>,
}

/// A cause of a figure beside its difference: both sides may have the same without it, its control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseOfChange {
    /// Its id.
    #[schemars(with = "Id")]
    pub id: Name,
    /// What it is: `waking another CPU`.
    pub summary: Name,
    /// The figure of which its control is this many times.
    pub control: MetricCase,
    /// How many times.
    pub times: f64,
    /// What was found.
    pub finding: CauseFinding,
}

/// What is known of a cause of a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseFinding {
    /// Its cost, the figure less its control, changed by more than the figure in proportion, and that is a share of the difference.
    Explains {
        /// The cost in the base and in the other, in the metric's unit.
        cost: [f64; 2],
        /// The share of the difference; what is left of 1 is that of the control.
        share: Estimate,
        /// The chance of it by accident.
        p_value: PValue,
    },
    /// Its control cannot be compared, for this reason.
    NoControl(NotComparedReason),
}

/// What the figure of one side was made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideFigure {
    /// Its 95 % interval, with what differs from run to run; none of too few rounds, of what is published, and of what was measured in
    /// turn, where only the ratio has one.
    pub interval: Option<[f64; 2]>,
    /// The figures of the rounds of each of its runs, in the metric's unit; none of what is published.
    pub rounds: Vec<Vec<f64>>,
    /// Its modes, the lower one first, where it was measured in turn and has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<SideMode>,
}

/// One of several modes of a side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideMode {
    /// Its median, in the metric's unit.
    pub center: f64,
    /// Its share of all rounds.
    pub share: f64,
}

/// What the ratio of two sides that were measured in turn is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatioBasis {
    /// The means of all rounds: what many times cost.
    Means,
    /// The best rounds of groups of blocks, which are hardly disturbed: the ratio is known better by these, and the means allow it.
    BestRounds,
}

impl ComparedFigure {
    /// By which share the other is worse; below zero where it is better, and for metrics without a better direction where it is lower.
    pub fn worse_by(&self) -> f64 {
        worse_by(self.ratio.value, self.metric.better)
    }
}

/// By which share a ratio of other to base is for the worse.
pub fn worse_by(ratio: f64, better: Better) -> f64 {
    if better == Better::Higher { 1.0 - ratio } else { ratio - 1.0 }
}

/// Where the spread of a figure from run to run is known from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpreadSource {
    /// This many earlier runs of the machine.
    Runs(usize),
    /// Nothing: the standard deviation that is assumed, as a share.
    Assumed(f64),
    /// This many blocks, each with both sides: what differs between blocks is the error.
    Blocks(usize),
}

/// What a comparison says of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeVerdict {
    /// Better by more than the threshold.
    Better,
    /// Worse by more than the threshold.
    Worse,
    /// Higher by more than the threshold, where neither direction is better.
    Higher,
    /// Lower by more than the threshold, where neither direction is better.
    Lower,
    /// They are the same within the threshold.
    Same,
    /// Not known.
    NotKnown(UndecidedReason),
}

impl ChangeVerdict {
    /// Whether it is one of a figure that changed.
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Same | Self::NotKnown(_))
    }
}

/// Why nothing follows of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndecidedReason {
    /// The two are too close together, or too uncertain.
    Undecided,
    /// A side has fewer than four rounds.
    TooFewRounds,
    /// The core's frequency differed by as much.
    CoreFrequency,
    /// One side is published, without the spread from run to run.
    Published,
}

/// What is not compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotCompared {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The case, as tables write it.
    pub case: String,
    /// Why not.
    pub reason: NotComparedReason,
}

/// Why a figure is not compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotComparedReason {
    /// The versions of the method in the base and in the other: a changed loop is no changed machine.
    MethodVersion([u32; 2]),
    /// The two are in different units, or their headlines of other samples.
    Definition,
    /// Only the base has it; what the other says of it.
    OnlyBase(String),
    /// Only the other has it; what the base says of it.
    OnlyOther(String),
    /// Neither has it, for this reason.
    Neither(String),
    /// A side is not above zero: there is no ratio.
    NoRatio,
    /// The published value covers something else.
    NotEqual(String),
}
