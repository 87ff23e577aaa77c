//! What was measured of one metric at one case, and what is to be said of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Canary, Case, EventRate, HeadlineSamples, Interval, Name, SkipReason};

/// The outcome of one metric at one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A number.
    Measured(Box<Summary>),
    /// Too few undisturbed samples for the headline that the metric defines; the summary as found.
    NotKnown(Box<Summary>),
    /// The number is physically impossible, and so is no headline.
    Invalid(ImpossibleValue),
    /// It was not measured, for this reason.
    Skipped(SkipReason),
    /// Every round failed, for this reason.
    Failed(String),
    /// The run ended before it.
    NotReached,
}

impl Outcome {
    /// The summary of a measured metric.
    pub fn summary(&self) -> Option<&Summary> {
        match self {
            Self::Measured(summary) => Some(summary),
            _ => None,
        }
    }

    /// The summary of what was found, also where it is too disturbed to be known.
    pub fn found_summary(&self) -> Option<&Summary> {
        match self {
            Self::Measured(summary) | Self::NotKnown(summary) => Some(summary),
            _ => None,
        }
    }
}

/// A physically impossible value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpossibleValue {
    /// The measured value, in the metric's unit.
    pub value: f64,
    /// The bound, in the metric's unit.
    pub bound: f64,
    /// Derivation of the bound, if it is one of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<String>,
    /// The likely cause, in words.
    pub likely_cause: String,
}

/// The summary of the samples of one metric at one case. All figures in the metric's unit, overhead subtracted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The headline: of the treatment that the metric defines.
    pub headline: f64,
    /// Where the headline of another run is expected; `None` with a single round.
    pub interval: Option<Interval>,
    /// The interval of the headline by the rounds of this run, without what differs from run to run; `None` with a single round.
    pub run_interval: Option<Interval>,
    /// Which samples made the headline.
    pub treatment: HeadlineSamples,
    /// All samples but warm-up.
    pub as_found: Figure,
    /// Undisturbed samples; `None` if there are too few, or no canaries.
    pub undisturbed: Option<Figure>,
    /// Share of the samples (without warm-up) that are undisturbed; 1 where there are no canaries and no tags.
    pub undisturbed_share: f64,
    /// Rounds with samples.
    pub rounds: u32,
    /// Rounds that failed.
    pub failed_rounds: u32,
    /// The headline of each round, in the order in which they ran.
    pub round_headlines: Vec<f64>,
    /// Seconds from the start of the run at which each of those rounds began.
    pub round_times: Vec<f64>,
    /// Variance of the headline explained by the spread between rounds; later runs learn from it.
    pub within_variance: f64,
    /// Earlier runs of this machine from which the interval was learned.
    pub learned_runs: u32,
    /// Distribution of the samples that made the headline.
    pub distribution: Distribution,
    /// Modes of samples, rounds or runs, if there is more than one; largest first.
    pub modes: Vec<Mode>,
    /// Of what they are the modes.
    #[serde(default)]
    pub mode_unit: ModeUnit,
    /// Effective number of independent samples.
    pub effective_samples: f64,
    /// How many samples carry each tag.
    pub tags: Vec<TagCount>,
    /// Notes of the rounds, each once: proofs by counters, degradations.
    pub notes: Vec<String>,
    /// Correlation of the samples with each canary beside them: whether the canaries see what moves the metric.
    pub canary_correlations: Vec<CanaryCorrelation>,
    /// What the processor counted for an operation, where it has counters that may be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<EventRate>,
}

/// Rank correlation of a metric's samples with the canary readings on either side of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CanaryCorrelation {
    /// Which canary.
    pub canary: Canary,
    /// Spearman's rank correlation with the sample's time: 1 where the canary is slow whenever the sample is.
    pub correlation: f64,
    /// Two-sided p value.
    pub p: f64,
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// The value.
    pub value: f64,
    /// Its interval; `None` with a single round.
    pub interval: Option<Interval>,
    /// Samples behind it.
    pub n: u64,
}

impl Figure {
    /// A value of which no interval is known.
    pub fn without_interval(value: f64, n: u64) -> Self {
        Self { value, interval: None, n }
    }
}

/// Quantiles and moments of samples. Over batches these are quantiles of batch means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Whether a sample is the mean of a batch rather than one operation.
    pub is_of_batch_means: bool,
    /// Number of samples.
    pub n: u64,
    /// Best in the metric's direction (the lowest where there is none).
    pub best: f64,
    /// Lowest.
    pub min: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Lower quartile.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// Upper quartile.
    pub p75: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Highest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

/// The ends of an interval; the value twice where there is none.
pub fn ends_or(interval: Option<Interval>, value: f64) -> (f64, f64) {
    interval.map_or((value, value), |interval| (interval.lower, interval.upper))
}

impl Summary {
    /// The ends of the interval of this run alone; the headline twice where there is none.
    pub fn run_ends(&self) -> (f64, f64) {
        ends_or(self.run_interval, self.headline)
    }

    /// The headline as a figure.
    pub fn headline_figure(&self) -> Figure {
        Figure { value: self.headline, interval: self.interval, n: self.distribution.n }
    }

    /// The modes of a value that is bimodal from round to round or from run to run; empty for any other.
    pub fn states(&self) -> &[Mode] {
        if matches!(self.mode_unit, ModeUnit::Rounds | ModeUnit::Runs) { &self.modes } else { &[] }
    }
}

/// A mode of samples, rounds or runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mode {
    /// Its centre, in the metric's unit.
    pub center: f64,
    /// Its share of the samples, rounds or runs.
    pub share: f64,
    /// What it is, if known: for memory latency the level of the hierarchy, for the bandwidth of all CPUs their core-to-core
    /// latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// Of what modes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModeUnit {
    /// Samples: the value is in either from one operation to the next, which is a pattern of the work and no reason for doubt.
    #[default]
    Samples,
    /// Stretches of a round, or rounds too near to each other to be distinguished: what is measured changes meanwhile.
    Periods,
    /// Rounds: it changes from process to process, and each round has one mode. The headline is that of the mode
    /// with most rounds.
    Rounds,
    /// Runs, earlier ones of this machine and this one: it changes from run to run. The headline is this run's.
    Runs,
}

impl ModeUnit {
    /// In words: `rounds`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Periods => "samples, in stretches",
            Self::Rounds => "rounds",
            Self::Runs => "runs",
        }
    }
}

/// How many samples carry a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TagCount {
    /// The tag's name.
    pub tag: Name,
    /// How many samples carry it.
    pub count: u64,
}

/// A measurement against its prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RangeVerdict {
    /// Its interval touches the predicted range.
    AsPredicted,
    /// Above that range.
    Above,
    /// Below that range.
    Below,
    /// There is no prediction.
    NotPredicted,
    /// There is no number to compare.
    NotMeasured,
}

/// A warning about a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Of what.
    #[serde(flatten)]
    pub kind: WarningKind,
    /// In words, with figures.
    pub text: String,
}

/// Of what a warning is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WarningKind {
    /// The value has two or more modes, which no repetition narrows.
    Modes,
    /// The value moved over the run.
    Drift,
    /// The samples are so correlated that few are independent.
    FewEffectiveSamples,
    /// The target for the interval was not reached.
    WideInterval {
        /// Half of the interval over the value.
        share: f64,
        /// What that should have been at most.
        target: f64,
    },
    /// Few samples were undisturbed.
    Disturbed,
    /// Halves of the run differ: comparisons with it are weak.
    HalvesDiffer,
    /// Some rounds failed.
    FailedRounds,
    /// The value is possible but implausible.
    Implausible,
}

impl Warning {
    /// A warning of this kind.
    pub fn new(kind: WarningKind, text: String) -> Self {
        Self { kind, text }
    }
}

/// What is kept of a metric at a case in a run without samples: its headline with the interval that they gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeptHeadline {
    /// Id of the probe that measured it.
    #[schemars(with = "Id")]
    pub probe: Name,
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The case.
    pub case: Case,
    /// The outcome: the rounds of its summary, what they noted, and their tags are left out.
    pub outcome: Outcome,
    /// Warnings about this number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}
