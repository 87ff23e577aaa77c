//! What a reader sees first of a run, as data: the ladder of its times, its rates, what stands out, and what to do first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Estimate, MetricCase, MetricValue, Name, Unit};

/// What a reader sees first of a run that is a picture of its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    /// What changes how to read the run, in a sentence each.
    pub cautions: Vec<String>,
    /// The times of the machine on one scale, from one level to the next.
    pub rungs: Vec<Rung>,
    /// The rates of the machine.
    pub rates: Vec<RateRow>,
    /// What stands out, most consequential first.
    pub stand_outs: Vec<StandOut>,
    /// What removes hazards of this machine, and those hazards.
    pub remedies: Vec<Remedy>,
    /// How precise the figures of the run are; `None` where none has an interval.
    pub precision: Option<Precision>,
    /// Metrics without a figure, by reason.
    pub missing: Vec<MissingFigures>,
}

/// One time of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// What takes so long.
    pub label: String,
    /// Whether it is the rung above it under another condition, which is all that `what` says.
    pub continues: bool,
    /// Whether it is the first to be left out where there is no room for all; of several the last one first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_spare: bool,
    /// How long, in seconds.
    pub figure: OverviewFigure,
    /// How long on published machines.
    pub published: Vec<PublishedTime>,
}

/// The same time on a published machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedTime {
    /// Id of the machine.
    #[schemars(with = "Id")]
    pub machine: Name,
    /// The time, in seconds.
    pub seconds: f64,
}

/// Rates of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateRow {
    /// What carries so much.
    pub label: String,
    /// Its rates.
    pub rates: Vec<Rate>,
    /// What makes it doubtful that they are of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// One rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Of which work: `read`.
    pub work: String,
    /// Unit of the figure.
    pub unit: Unit,
    /// The figure.
    pub figure: OverviewFigure,
}

/// A figure of the first screen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverviewFigure {
    /// Where the run measured it.
    pub source: Option<MetricCase>,
    /// The measured value, with the half-width of its interval to either side; `None` where it is not known.
    pub measured: Option<Estimate>,
    /// It in words, with no more digits than its interval supports, or why there is none in a word or two.
    pub text: String,
    /// Why it is not known, in full.
    pub missing_reason: Option<String>,
    /// What was found where undisturbed samples are too few for a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_found: Option<AsFoundFigure>,
    /// The prediction, if there is one.
    pub predicted: Option<PredictedRange>,
    /// The figure against that.
    pub verdict: PredictionVerdict,
    /// Where the figure lies on machines of the class, whatever else the run measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_range: Option<UsualRange>,
}

impl OverviewFigure {
    /// The value that is drawn: as measured, else as found.
    pub fn drawn_value(&self) -> Option<Estimate> {
        self.measured.or_else(|| self.as_found.as_ref().map(|headline| headline.value))
    }

    /// The words behind the axis: of what is drawn, else why there is nothing.
    pub fn drawn_text(&self) -> &str {
        self.as_found.as_ref().map_or(&self.text, |headline| &headline.text)
    }
}

/// What all samples of a figure give, disturbed ones among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AsFoundFigure {
    /// Their value, with its interval.
    pub value: Estimate,
    /// It in words, with no more digits than its interval supports.
    pub text: String,
}

/// A prediction of a figure of the first screen, in its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedRange {
    /// The predicted value.
    pub value: f64,
    /// Lower end of the range.
    pub low: f64,
    /// Upper end of the range.
    pub high: f64,
    /// The derivation.
    pub derivation: String,
}

/// Where a figure of the first screen lies on nine in ten machines of a class, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsualRange {
    /// Lower end of the range.
    pub low: f64,
    /// Upper end of the range.
    pub high: f64,
    /// Machines of the class, and of others of its kind, on which it rests.
    pub machines: usize,
}

/// A figure against its prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PredictionVerdict {
    /// Slower than the predicted range.
    Slower,
    /// Faster than the predicted range.
    Faster,
    /// Within the predicted range.
    AsPredicted,
    /// There is no prediction, or no figure.
    #[default]
    NotCompared,
}

/// What stands out on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StandOut {
    /// The question that it answers.
    pub question: StandOutQuestion,
    /// The figures that it compares or states: the evidence.
    pub sides: Vec<MetricValue>,
    /// The last side over the first, where that is tested.
    pub ratio: Option<Estimate>,
    /// How many times as much as it might be; 1 where it only states what the machine can do.
    pub factor: f64,
    /// The sentence.
    pub text: String,
}

/// A question that the first screen answers where the answer stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StandOutQuestion {
    /// What waking an idle CPU costs beside a switch on one.
    WakeUp,
    /// How much of the reported last-level cache answers.
    CacheSize,
    /// What the first touch of fresh memory costs, beside memory just freed and huge pages.
    FreshMemory,
    /// How much of idle files leaves the page cache.
    IdleCache,
    /// Whether something below the kernel caches the disk.
    DiskCache,
    /// What TCP streams carry between two CPUs beside on one each.
    StreamsBetweenCpus,
    /// What a local stream loses by the system's congestion control.
    CongestionControl,
    /// Which kernel services more threads of one process do no more of, though their CPUs are there.
    ServiceScaling,
    /// How much longer a cache line takes between the farthest cores than between the nearest.
    CoreDistance,
    /// How much longer a load from the farthest node's memory takes than from that of a CPU's own.
    NodeDistance,
    /// Whether the host moves the CPUs of the machine.
    CpuDistance,
    /// Which time is longest beside its prediction.
    WorstTime,
    /// At how many CPUs memory gives no more.
    MemoryScaling,
    /// How much more of the disk several CPUs get than one, and from how many on no more.
    DeviceScaling,
    /// What all CPUs together draw from memory beside one.
    SharedMemoryBandwidth,
    /// What the disk can do.
    Disk,
}

/// What removes hazards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The command, or the advice in words.
    pub command: String,
    /// Whether it is a command.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_command: bool,
    /// Ids of those hazards.
    #[schemars(with = "Vec<Id>")]
    pub hazards: Vec<Name>,
    /// They in words.
    pub problems: Vec<String>,
}

/// How precise the figures of a run are: half-widths of their intervals as shares of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Precision {
    /// Figures with an interval.
    pub figures: usize,
    /// Half of them are at least as precise as this.
    pub median: f64,
    /// Nine of ten are.
    pub p90: f64,
}

/// Metrics without a figure, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissingFigures {
    /// Why.
    pub reason: MissingReason,
    /// Figures that are missing: metrics at cases.
    pub figures: usize,
    /// Ids of those metrics, each once.
    #[schemars(with = "Vec<Id>")]
    pub metrics: Vec<Name>,
}

/// Why figures are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// All rounds failed.
    Failed,
    /// The number was impossible.
    Invalid,
    /// Too few samples were undisturbed.
    NotKnown,
    /// It was skipped.
    Skipped,
    /// The run ended before it.
    NotReached,
}
