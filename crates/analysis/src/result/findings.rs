//! What is worth knowing of a run.

use kelvin_core::{CauseVerdict, Estimate, ExplainedPart, MetricCase, PartKind, Run};

use super::*;

/// Something worth knowing, in a sentence, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// How much it matters.
    pub importance: Importance,
    /// The sentence.
    pub text: String,
    /// Its evidence: figures or a test.
    pub reason: String,
    /// The data of both.
    pub data: FindingData,
    /// Ids of the metrics it is about.
    pub metrics: Vec<Name>,
}

/// What is worth knowing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingData {
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
    /// Only headlines are kept of the run.
    OnlyHeadlines,
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
    Undisturbed {
        /// Share of the guarded samples that were undisturbed.
        share: f64,
    },
    /// An impossible figure.
    Invalid {
        /// Which.
        source: MetricCase,
        /// The bound it exceeds.
        impossible: ImpossibleValue,
    },
    /// How many figures have no value.
    MissingFigures {
        /// Why.
        kind: MissingFigureKind,
        /// How many.
        count: usize,
        /// Of how many.
        total: usize,
        /// The first of them.
        first: MetricCase,
    },
    /// The levels of the memory hierarchy.
    MemoryLevels,
    /// The host moved the CPUs.
    CpusMoved(MovedCpus),
    /// The network between two processes, in brief.
    Network {
        /// The conclusions that matter most.
        sentences: Vec<String>,
    },
    /// The network to another host, in brief.
    OtherHost {
        /// What was carried, and the conclusions that matter most.
        sentences: Vec<String>,
    },
    /// An area that is slower or faster as a whole than machines of its class.
    AreaOffClass(AreaComparison),
    /// All areas that a class is well known of, two at least, are slower as a whole than machines of it.
    SlowMachine(Vec<AreaComparison>),
    /// A gap between measured and predicted.
    Gap(PredictionGap),
    /// Figures with one kind of warning.
    Warned {
        /// How many.
        count: usize,
        /// Of how many.
        total: usize,
        /// Number expected by chance alone.
        expected_by_chance: f64,
        /// The first of them.
        first: MetricCase,
        /// Its warning.
        warning: Warning,
    },
}

/// Why figures have no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingFigureKind {
    /// Their rounds failed.
    Failed,
    /// Too few of their samples were undisturbed.
    NotKnown,
    /// They were skipped.
    Skipped,
}

/// CPUs that the host moved, within the run or since another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MovedCpus {
    /// The case that shows it: the largest working set.
    pub case: Case,
    /// Id of the rate that changes most with it.
    pub correlated: Option<Name>,
}

/// A gap between measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionGap {
    /// Where.
    pub source: MetricCase,
    /// Measured over predicted.
    pub ratio: f64,
    /// The cache that is smaller than the machine reports, if that explains it.
    pub level: Option<MemoryLevel>,
    /// Ids of the hazards that touch the figure, none of them tried as its cause.
    pub hazards: Vec<Name>,
    /// What was found of its causes, if they were tried.
    pub causes: Option<GapCauses>,
}

/// What was found of the causes of a gap, each of which was taken away once.
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
    pub summary: Name,
    /// Its share of the figure.
    pub share: Estimate,
}

impl GapCauses {
    /// Of the figure at a place, if a run tried its causes.
    pub(crate) fn from_run(run: &Run, metric_case: &MetricCase) -> Option<Self> {
        let explanation = run.explanation(&metric_case.metric, &metric_case.case)?;
        let causes = &explanation.causes;
        let names = |verdicts: &[CauseVerdict]| {
            causes.iter().filter(|cause| verdicts.contains(&cause.verdict)).map(|cause| cause.summary).collect()
        };
        let shown_cause = |part: &ExplainedPart| {
            let PartKind::Cause(id) = part.kind else { return None };
            let cause = causes.iter().find(|cause| cause.id == id)?;
            Some(ShownCause { summary: cause.summary, share: part.share.share })
        };
        Some(Self {
            shown: explanation.parts.iter().filter_map(shown_cause).collect(),
            not_explained: explanation.not_explained.share,
            ruled_out: names(&[CauseVerdict::RuledOut, CauseVerdict::Opposite]),
            not_decided: names(&[
                CauseVerdict::Undecided,
                CauseVerdict::MechanismsDisagree,
                CauseVerdict::OneMechanism,
                CauseVerdict::Invalid,
            ]),
        })
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
