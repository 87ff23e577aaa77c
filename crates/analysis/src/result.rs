//! The analysis of a run: the types that every report is made from.

use std::ops::Deref;

use kelvin_model::{
    Canary, CanaryPoint, Case, CauseVerdict, Conclusion, Estimate, Explanation, Interval, Knee, Metric, Name, Part,
    PartOf, Place, Prediction, Reason, Run, Screen, Treatment, Unit,
};
use kelvin_stats::Scalability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The analysis of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// One result for each metric at each case, in the order of the plan.
    pub results: Vec<MetricResult>,
    /// The canaries over the run, and their references.
    pub canaries: Vec<CanaryHistory>,
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
    /// The knees of curves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knees: Vec<KneeMark>,
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
    pub tails: Option<Tails>,
    /// The same work done by kelvin and by rivals, if asked for.
    #[serde(default)]
    pub rivals: Vec<BesideRival>,
    /// What a reader sees first, of a run that is a picture of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<Screen>,
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
    pub core_shared: Option<f64>,
    /// How far the core's frequency was from its dominant one, a standard deviation as a part of it, if it moved: intervals of figures at
    /// that frequency are as wide.
    #[serde(default)]
    pub frequency_moved: Option<f64>,
    /// How much longer work took on average over the run than on the core left alone, a geometric mean by the block canary, as a share.
    #[serde(default)]
    pub slowed: Option<f64>,
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
    pub none_because: Option<String>,
    /// Measured over predicted.
    pub ratio: Option<f64>,
    /// The measurement against the prediction.
    pub verdict: Verdict,
    /// How far outside the predicted range the headline lies, in half-widths of that range, both as logarithms; 0 within it, `None`
    /// without a headline, a prediction, or a range that has a width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<f64>,
    /// Ids of the hazards of this run that touch a figure with a gap, none of them tried as its cause; empty without a gap.
    pub explained_by: Vec<Name>,
    /// Warnings about this number.
    pub warnings: Vec<Warning>,
}

impl MetricResult {
    /// Where it was measured.
    pub fn place(&self) -> Place {
        Place { metric: self.metric.id, case: self.case.clone() }
    }
}

/// The universal scalability law as fitted to a rate over a number of workers: lambda n / (1 + sigma (n - 1) + kappa n (n - 1)).
///
/// It is fitted to the measurements, and so is never a prediction of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FittedLaw {
    /// The metric.
    pub metric: Name,
    /// The parameter that is the number of workers.
    pub workers: Name,
    /// The other parameters.
    pub held: Case,
    /// The most workers that were measured; the law says nothing beyond.
    pub most: u64,
    /// Rate of one worker, in the metric's unit.
    pub lambda: Coefficient,
    /// Contention: the share of the work for which workers wait for each other.
    pub sigma: Coefficient,
    /// Coherency: the cost of coordinating with one other worker, as a share of the work.
    pub kappa: Coefficient,
    /// The number of workers with the highest rate; `None` where it never falls.
    pub peak: Option<f64>,
    /// Lower end of its 95 % interval; `None` where even there it never falls.
    pub peak_lower: Option<f64>,
    /// Upper end of its 95 % interval; `None` where it may never fall.
    pub peak_upper: Option<f64>,
    /// Whether it describes the measurements: at no number of workers is it off by more than a tenth and more than that rate's
    /// interval.
    pub describes: bool,
    /// The number of workers of its largest deviation.
    pub furthest_at: u64,
    /// The law's rate over the measured one there.
    pub furthest_ratio: f64,
}

impl FittedLaw {
    /// The law's rate with this many workers, in the metric's unit.
    pub fn at(&self, workers: f64) -> f64 {
        Scalability { lambda: self.lambda.value, sigma: self.sigma.value, kappa: self.kappa.value }.at(workers)
    }
}

/// A line beside the measurements of a curve that follows from lower metrics alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelLine {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameter over which it runs.
    pub axis: Name,
    /// The other parameters.
    pub held: Case,
    /// What it is, for a legend.
    pub label: String,
    /// Whether measurements are on one side of it, rather than on it.
    pub is_bound: bool,
    /// Positions and values, in the metric's unit.
    pub points: Vec<(u64, f64)>,
}

/// The knee of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneeMark {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameter over which it runs.
    pub axis: Name,
    /// The other parameters.
    pub held: Case,
    /// Where it is.
    pub knee: Knee,
}

/// What was measured again and again over the time of a study, relative to what is usual of each: steady where it stays at 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The metric.
    pub metric: Name,
    /// Title.
    pub title: String,
    /// The visits, in groups that are alike.
    pub groups: Vec<TimelineGroup>,
    /// How far from 1 counts as the same.
    pub same: f64,
    /// A moment of note: its name, and seconds since the start of the run.
    pub back: Option<(String, f64)>,
}

/// Visits that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineGroup {
    /// Their name.
    pub label: String,
    /// Seconds since the start of the run, and the figure over the mean of its own case; in the order of time.
    pub points: Vec<(f64, f64)>,
}

/// A fitted coefficient with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coefficient {
    /// The best-fitting coefficient.
    pub value: f64,
    /// Lower end of its interval.
    pub lower: f64,
    /// Upper end of its interval.
    pub upper: f64,
}

/// The case at which a metric over two parameters was best, and those not significantly different.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BestCell {
    /// The metric.
    pub metric: Name,
    /// The parameters held fixed.
    pub held: Case,
    /// The best case.
    pub best: Case,
    /// The cases that may be equally good.
    pub as_good: Vec<Case>,
    /// The conclusion.
    pub conclusion: Concluded,
}

/// The outcome of one metric at one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A number.
    Measured(Box<Summary>),
    /// Too few undisturbed samples for the headline that the metric defines; the summary as found.
    NotKnown(Box<Summary>),
    /// The number is physically impossible, and so is no headline.
    Invalid(Ceiling),
    /// It was not measured, for this reason.
    Skipped(Reason),
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
}

/// A physically impossible value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
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
    /// Its interval; `None` with a single round.
    pub interval: Option<Interval>,
    /// Which samples made the headline.
    pub treatment: Treatment,
    /// All samples but warm-up.
    pub as_found: Figure,
    /// Undisturbed samples; `None` if there are too few, or no canaries.
    pub undisturbed: Option<Figure>,
    /// Share of the samples (without warm-up) that are undisturbed; 1 where there are no canaries and no tags.
    pub kept_share: f64,
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
    pub modes_of: ModesOf,
    /// Effective number of independent samples.
    pub effective_samples: f64,
    /// How many samples carry each tag.
    pub tags: Vec<TagCount>,
    /// Notes of the rounds, each once: proofs by counters, degradations.
    pub notes: Vec<String>,
    /// Correlation of the samples with each canary beside them: whether the canaries see what moves the metric.
    pub canary_correlations: Vec<CanaryCorrelation>,
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

/// Quantiles and moments of samples. Over batches these are quantiles of batch means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Whether a sample is the mean of a batch rather than one operation.
    pub of_batch_means: bool,
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

impl Summary {
    /// The modes of a value that is bimodal from round to round or from run to run; empty for any other.
    pub fn states(&self) -> &[Mode] {
        if matches!(self.modes_of, ModesOf::Rounds | ModesOf::Runs) { &self.modes } else { &[] }
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
pub enum ModesOf {
    /// Samples: the value is in either from one operation to the next, which is a pattern of the work and no reason for doubt.
    #[default]
    Samples,
    /// Stretches of a round, or rounds too near to each other to be told apart: what is measured changes meanwhile.
    Stretches,
    /// Rounds: it changes from process to process, and each round has one mode. The headline is that of the mode
    /// with most rounds.
    Rounds,
    /// Runs, earlier ones of this machine and this one: it changes from run to run. The headline is this run's.
    Runs,
}

impl ModesOf {
    /// In words: `rounds`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Stretches => "samples, in stretches",
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
pub enum Verdict {
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
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Warning {
    /// The value has two or more modes, which no repetition narrows.
    Modes {
        /// In words, with figures.
        text: String,
    },
    /// The value moved over the run.
    Drift {
        /// In words, with figures.
        text: String,
    },
    /// The samples are so correlated that few are independent.
    FewEffectiveSamples {
        /// In words, with figures.
        text: String,
    },
    /// The target for the interval was not reached.
    Wide {
        /// Half of the interval over the value.
        share: f64,
        /// What that should have been at most.
        target: f64,
        /// In words, with figures.
        text: String,
    },
    /// Few samples were undisturbed.
    Disturbed {
        /// In words, with figures.
        text: String,
    },
    /// Halves of the run differ: comparisons with it are weak.
    HalvesDiffer {
        /// In words, with figures.
        text: String,
    },
    /// Some rounds failed.
    FailedRounds {
        /// In words, with figures.
        text: String,
    },
    /// The value is possible but implausible.
    Implausible {
        /// In words, with figures.
        text: String,
    },
}

impl Warning {
    /// The sentence.
    pub fn text(&self) -> &str {
        match self {
            Self::Modes { text }
            | Self::Drift { text }
            | Self::FewEffectiveSamples { text }
            | Self::Wide { text, .. }
            | Self::Disturbed { text }
            | Self::HalvesDiffer { text }
            | Self::FailedRounds { text }
            | Self::Implausible { text } => text,
        }
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
    pub points: Vec<CanaryPoint>,
}

/// The levels of the memory hierarchy, found from the latency of loads against the working set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLevels {
    /// Id of the metric whose curve they were read from.
    pub metric: Name,
    /// The levels with base pages, innermost first; a single one where the curve has no step.
    pub levels: Vec<MemoryLevel>,
    /// The additional cost of base pages over huge ones, if both were measured.
    pub translation: Option<Translation>,
    /// One sentence for each level, each reported cache without a level, and translation.
    pub conclusions: Vec<Concluded>,
}

/// One level: a plateau of the curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLevel {
    /// `L1`, `L2`, `L3` or `DRAM`.
    pub name: String,
    /// Median latency over its working sets, in nanoseconds.
    pub latency: f64,
    /// From the lowest to the highest interval over its working sets, in nanoseconds.
    pub interval: Interval,
    /// The smallest working set on the plateau, in bytes.
    pub from_bytes: u64,
    /// The largest working set on the plateau, in bytes.
    pub to_bytes: u64,
    /// Working sets between which it ends; `None` for the last one, whose end was not measured.
    pub capacity: Option<Capacity>,
    /// The cache that the machine reports for it, in bytes.
    pub reported_bytes: Option<u64>,
    /// Whether the reported size lies within the capacity; `None` without either.
    pub agrees: Option<bool>,
}

/// Two working sets between which a level ends, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// The largest one that still fits: by its latency at most a quarter of the loads miss.
    pub low: u64,
    /// The smallest one that does not: by its latency at least half of the loads miss.
    pub high: u64,
}

/// The additional cost of base pages over huge ones at the same working set: TLB misses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Translation {
    /// The largest working set that was measured with both, in bytes.
    pub bytes: u64,
    /// Latency there with base pages, in nanoseconds.
    pub base: f64,
    /// Latency there with huge pages, in nanoseconds.
    pub huge: f64,
    /// Whether base pages are certainly slower there.
    pub apart: bool,
    /// The smallest working set at which they are slower by a tenth or more, in bytes.
    pub shows_from: Option<u64>,
}

/// Something worth knowing, in a sentence, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// How much it matters.
    pub importance: Importance,
    /// The sentence.
    pub text: String,
    /// Its evidence: figures or a test.
    pub because: String,
    /// The data of both.
    pub found: Found,
    /// Ids of the metrics it is about.
    pub metrics: Vec<Name>,
}

/// What is worth knowing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The kernel's clock source changed during the run.
    ClockChanged {
        /// The old one.
        before: Option<String>,
        /// The new one.
        after: Option<String>,
    },
    /// The run was not finished.
    Partial {
        /// Why.
        reason: String,
        /// Seconds after which it ended.
        seconds: f64,
    },
    /// A serious hazard.
    Hazard {
        /// Its id.
        id: Name,
    },
    /// Other work kept the machine busy.
    Busy {
        /// Ids of the hazards that say so, the plainest first.
        hazards: Vec<Name>,
    },
    /// Another thread shared the core.
    CoreShared {
        /// Times as slow as in earlier runs.
        slower: f64,
        /// The block canary over the chain canary.
        block_over_chain: f64,
    },
    /// The core had no frequency that was its usual one.
    FrequencyMoved {
        /// How far it was from the dominant one, a standard deviation as a part of it.
        deviation: f64,
    },
    /// How quiet the machine was.
    Quiet {
        /// Share of the guarded samples that were undisturbed.
        share: f64,
    },
    /// An impossible figure.
    Invalid {
        /// Which.
        at: Place,
        /// The bound it exceeds.
        ceiling: Ceiling,
    },
    /// How many figures have no value.
    Counted {
        /// Why.
        of: CountOf,
        /// How many.
        count: usize,
        /// Of how many.
        all: usize,
        /// The first of them.
        first: Place,
    },
    /// The levels of the memory hierarchy.
    MemoryLevels,
    /// The host moved the CPUs.
    Moved(Moved),
    /// The network between two processes, in brief.
    Network {
        /// The conclusions that matter most.
        said: Vec<String>,
    },
    /// The network to another host, in brief.
    OtherHost {
        /// What was carried, and the conclusions that matter most.
        said: Vec<String>,
    },
    /// A gap between measured and predicted.
    Gap(Gap),
    /// Figures with one kind of warning.
    Warned {
        /// How many.
        count: usize,
        /// Of how many.
        all: usize,
        /// Number expected by chance alone.
        by_chance: f64,
        /// The first of them.
        first: Place,
        /// Its warning.
        warning: Warning,
    },
}

/// Why figures have no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CountOf {
    /// Their rounds failed.
    Failed,
    /// Too few of their samples were undisturbed.
    NotKnown,
    /// They were skipped.
    Skipped,
}

/// CPUs that the host moved, within the run or since another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// The case that shows it: the largest working set.
    pub case: Case,
    /// Id of the rate that changes most with it.
    pub most: Option<Name>,
}

/// A gap between measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Where.
    pub at: Place,
    /// Measured over predicted.
    pub ratio: f64,
    /// The cache that is smaller than the machine reports, if that explains it.
    pub level: Option<MemoryLevel>,
    /// Ids of the hazards that touch the figure, none of them tried as its cause.
    pub hazards: Vec<Name>,
    /// What was found of its causes, if they were tried.
    pub causes: Option<GapCauses>,
}

/// What was found of the causes of a gap, each of which was taken away in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GapCauses {
    /// Those that are shown, the largest first.
    pub shown: Vec<ShownCause>,
    /// The share of the figure that none of them takes, and no prediction says it should; below zero where several act on the same time.
    pub not_explained: Estimate,
    /// What takes nothing of the figure.
    pub ruled_out: Vec<Name>,
    /// What may take some of it or not.
    pub not_decided: Vec<Name>,
}

/// A cause that is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownCause {
    /// What it is: `waking an idle CPU`.
    pub what: Name,
    /// Its share of the figure.
    pub share: Estimate,
}

impl GapCauses {
    /// Of the figure at a place, if a run tried its causes.
    pub(crate) fn tried(run: &Run, at: &Place) -> Option<Self> {
        run.explanation(&at.metric, &at.case).map(Self::of)
    }

    /// Of what an experiment shows.
    fn of(explanation: &Explanation) -> Self {
        let causes = &explanation.causes;
        let names = |wanted: &[CauseVerdict]| {
            causes.iter().filter(|cause| wanted.contains(&cause.verdict)).map(|cause| cause.what).collect()
        };
        let shown = |part: &Part| {
            let PartOf::Cause(id) = part.of else { return None };
            let cause = causes.iter().find(|cause| cause.id == id)?;
            Some(ShownCause { what: cause.what, share: part.share.share })
        };
        Self {
            shown: explanation.parts.iter().filter_map(shown).collect(),
            not_explained: explanation.not_explained.share,
            ruled_out: names(&[CauseVerdict::RuledOut, CauseVerdict::Opposite]),
            not_decided: names(&[
                CauseVerdict::Undecided,
                CauseVerdict::MechanismsDisagree,
                CauseVerdict::OneMechanism,
                CauseVerdict::Void,
            ]),
        }
    }
}

/// How much a finding matters; the greater the more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Importance {
    /// Good to know.
    Detail,
    /// Worth a look.
    Notable,
    /// Changes how to read the run.
    Major,
}

/// What a study concludes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Study {
    /// Id of the study: `os.tasks`.
    pub id: Name,
    /// The answer, of each case that was studied; empty where the conclusions are short enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
    /// The design: what was varied and held fixed.
    pub design: String,
    /// The conclusions.
    pub conclusions: Vec<Concluded>,
    /// Tables of what was compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<StudyTable>,
    /// Ids of metrics for which these tables are place enough: they are for reading beside others, and need no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_tables: Vec<Name>,
}

/// What a study answers of a case, before its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The answer in a sentence.
    pub says: String,
    /// The figures that it rests on, in a line each, the weightiest first.
    pub because: Vec<String>,
}

/// A table of a study: a row for each of what was compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyTable {
    /// Id, usable as a file name: `transfer.small`.
    pub id: String,
    /// Title.
    pub title: String,
    /// The columns after the label of a row.
    pub columns: Vec<StudyColumn>,
    /// The rows.
    pub rows: Vec<StudyRow>,
    /// Ids of the metrics whose figures it has, so that they need no lines elsewhere.
    pub metrics: Vec<Name>,
    /// The column whose figures are drawn as bars, and one with marks beside them.
    pub bars: Option<[usize; 2]>,
}

/// A column of a study's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyColumn {
    /// Label.
    pub label: String,
    /// Unit of its figures.
    pub unit: Unit,
    /// Whether it is shown where there is room for a few columns only.
    pub is_main: bool,
}

/// A row of a study's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyRow {
    /// What was measured.
    pub label: String,
    /// A figure for each column, where there is one.
    pub cells: Vec<Option<Figure>>,
}

/// A conclusion with its words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concluded {
    /// The sentence.
    pub text: String,
    /// Its test, with figures.
    pub test: String,
    /// The data of both.
    #[serde(flatten)]
    pub conclusion: Conclusion,
}

impl Deref for Concluded {
    type Target = Conclusion;

    fn deref(&self) -> &Conclusion {
        &self.conclusion
    }
}

/// The ceiling of one line of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineCeiling {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameters held fixed along the line.
    pub held: Case,
    /// Lower end of its interval, in the metric's unit.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Id of the metric that it is derived from.
    pub by: Name,
}

/// Metrics whose distributions are drawn together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tails {
    /// The prefix of their ids.
    pub family: Name,
    /// Ids of the metrics.
    pub metrics: Vec<Name>,
    /// What they share: the message size with most measurements, in bytes.
    pub held: Case,
}

/// The same work done by kelvin and by a rival, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BesideRival {
    /// Id of the measure: `file.rivals.cached`.
    pub id: Name,
    /// The rival.
    pub program: Name,
    /// The case, without the program.
    pub case: Case,
    /// The outcome.
    pub outcome: RivalOutcome,
}

/// The outcome of a comparison with a rival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RivalOutcome {
    /// Both sides, and how they compare.
    Compared(Box<Compared>),
    /// Why there is no comparison: the outcome of the ratio.
    Missing(Box<Outcome>),
}

/// The unit of comparisons before there were others.
fn bytes_per_second() -> Unit {
    Unit::BytesPerSecond
}

/// Both sides of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Unit of both figures: of a rate, or of the time of one operation.
    #[serde(default = "bytes_per_second")]
    pub unit: Unit,
    /// kelvin's figure.
    pub kelvin: Figure,
    /// The rival's.
    pub other: Figure,
    /// How many times as fast as the rival kelvin is, over pairs that directly followed each other; not the ratio of the two figures
    /// above, which are not paired.
    pub ratio: Figure,
    /// What the ratio should be, if that is predicted.
    pub expected: Option<f64>,
    /// The ratio against that.
    pub verdict: Verdict,
    /// How each side was timed and verified, and which program it was.
    pub notes: Vec<String>,
}
