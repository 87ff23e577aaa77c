//! What stands out on a machine: a question to each file, answered by tested figures of the run alone.
//!
//! The rule of their order: what this machine does not give that it reports, or that is predicted, or that it gives elsewhere; then
//! what a program pays that it can avoid; then what the machine can do. Within each the larger factor first: the larger figure over
//! the smaller one.

mod cache_size;
mod congestion_control;
mod cpu_distance;
mod disk;
mod disk_cache;
mod fresh_memory;
mod idle_cache;
mod memory_shared;
mod streams_between_cpus;
mod wake_up;
mod worst_time;

use kelvin_core::{Estimate, MetricValue, Rate, Run, StandOut, StandOutQuestion};

use super::ladder::LadderRung;
use super::metric_selector::MetricSelector;
use super::rates;
use crate::evidence::{Evidence, RoundHeadlines, ratio_of_rounds};
use crate::result::{Analysis, GapCauses, MetricResult};
use crate::wording;

/// Sentences of the first screen, at most.
const MAX_STAND_OUTS: usize = 8;
/// Minimum rounds of each side where there are too few for an interval: if then every round of one is beyond every round of the
/// other by the least factor, chance does so in 1 of 20 runs at most.
const MIN_RANGE_ROUNDS: usize = 3;

/// Whose doing it is, and so how consequential; the first the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    /// What this machine does not give.
    OfThisMachine,
    /// What a program pays and can avoid.
    Avoidable,
    /// What the machine can do.
    Ability,
}

/// An answer before it is worded.
struct StandOutAnswer {
    weight: Consequence,
    factor: f64,
    sides: Vec<MetricValue>,
    ratio: Option<Estimate>,
    facts: StandOutFacts,
}

/// A figure and the half-width of its interval: a duration in nanoseconds, or a rate per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeasuredAmount {
    pub value: f64,
    pub half_width: f64,
}

impl MeasuredAmount {
    fn from_rounds(rounds: &RoundHeadlines<'_>) -> Self {
        let half_width = rounds.estimate().map_or(0.0, |found| (found.high - found.low) / 2.0);
        Self { value: rounds.headline(), half_width }
    }
}

/// What the run has measured that a figure contains or suffers from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SlownessReason {
    /// Two wake-ups of another CPU, each of so long.
    WakeUps(MeasuredAmount),
    /// A cache of this name that answers only up to these sizes.
    Cache { name: String, ends: [u64; 2] },
    /// What was found when its causes were taken away.
    Causes(GapCauses),
}

/// What the sentence of an answer needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StandOutFacts {
    /// A wake-up, and how many times a switch it is.
    WakeUp { wake: MeasuredAmount, times: f64 },
    /// Between which sizes a cache ends, the reported size, its name, and a load beyond it.
    CacheSize { ends: [u64; 2], reported: u64, name: String, beyond: MeasuredAmount },
    /// A cache line from CPU to CPU, in nanoseconds: near and far.
    Distance { modes: [f64; 2] },
    /// Streams with each on one CPU, and each between two.
    StreamsAcross { apart: MeasuredAmount, together: MeasuredAmount },
    /// A stream under the system's congestion control, of this name, and under the one that the run chose.
    CongestionControl { name: String, systems: MeasuredAmount, other: MeasuredAmount },
    /// A figure by name, its prediction, and what of it the run has measured, in words.
    WorstTime { named: String, figure: String, predicted: String, within: Option<SlownessReason> },
    /// The first touch of a page of so many bytes, the same of memory just freed, and how many times as much it is as in huge pages.
    FreshMemory { page: u64, touch: MeasuredAmount, again: Option<MeasuredAmount>, in_huge: Option<f64> },
    /// How much of so many bytes of files has left the page cache, as a share, in so many seconds.
    IdleCache { left: f64, seconds: f64 },
    /// What one CPU reads, and what all of so many do.
    MemoryShared { one: MeasuredAmount, all: MeasuredAmount, cpus: u64 },
    /// Later passes over the first, where they are faster.
    DiskCached { times: f64 },
    /// They are not, or hardly.
    DiskUncached { hardly: bool },
    /// Reading in order, random reads per second, and the time of one alone.
    Disk { read: MeasuredAmount, requests: MeasuredAmount, latency: MeasuredAmount },
}

impl StandOutFacts {
    fn question(&self) -> StandOutQuestion {
        match self {
            Self::WakeUp { .. } => StandOutQuestion::WakeUp,
            Self::CacheSize { .. } => StandOutQuestion::CacheSize,
            Self::Distance { .. } => StandOutQuestion::Distance,
            Self::StreamsAcross { .. } => StandOutQuestion::StreamsAcross,
            Self::CongestionControl { .. } => StandOutQuestion::CongestionControl,
            Self::WorstTime { .. } => StandOutQuestion::WorstTime,
            Self::FreshMemory { .. } => StandOutQuestion::FreshMemory,
            Self::IdleCache { .. } => StandOutQuestion::IdleCache,
            Self::MemoryShared { .. } => StandOutQuestion::MemoryShared,
            Self::DiskCached { .. } | Self::DiskUncached { .. } => StandOutQuestion::DiskCache,
            Self::Disk { .. } => StandOutQuestion::Disk,
        }
    }
}

/// All questions, in the order in which equal answers are listed.
const STAND_OUT_RULES: [fn(&StandOutContext<'_>) -> Option<StandOutAnswer>; 11] = [
    wake_up::answer,
    cache_size::answer,
    cpu_distance::answer,
    worst_time::answer,
    idle_cache::answer,
    congestion_control::answer,
    streams_between_cpus::answer,
    fresh_memory::answer,
    disk_cache::answer,
    memory_shared::answer,
    disk::answer,
];

/// What a question is asked of.
pub(super) struct StandOutContext<'a> {
    run: &'a Run,
    analysis: &'a Analysis,
    rungs: &'a [LadderRung],
    rates: Vec<(&'static str, Rate)>,
    evidence: Evidence<'a>,
}

/// Two figures, the other over the base, and whether that is tested.
struct FigureRatio {
    sides: [MetricValue; 2],
    base: MeasuredAmount,
    other: MeasuredAmount,
    ratio: Estimate,
    is_tested: bool,
}

impl FigureRatio {
    /// Whether all of the interval, or every pair of rounds, is above a factor.
    fn is_above(&self, factor: f64) -> bool {
        self.is_tested && self.ratio.low > factor
    }

    /// The same of below.
    fn is_below(&self, factor: f64) -> bool {
        self.is_tested && self.ratio.high < factor
    }

    fn into_answer(self, weight: Consequence, says: StandOutFacts) -> StandOutAnswer {
        let factor = self.ratio.value.max(1.0 / self.ratio.value);
        StandOutAnswer { weight, factor, sides: self.sides.into(), ratio: Some(self.ratio), facts: says }
    }
}

impl StandOutContext<'_> {
    fn result(&self, spot: &MetricSelector) -> Option<&MetricResult> {
        spot.find(&self.analysis.results)
    }

    /// The rounds of a result that is known.
    fn result_rounds(&self, result: &MetricResult) -> Option<RoundHeadlines<'_>> {
        result.outcome.summary()?;
        self.evidence.rounds_at(&result.metric, &result.case)
    }

    fn rounds(&self, spot: &MetricSelector) -> Option<RoundHeadlines<'_>> {
        self.result_rounds(self.result(spot)?)
    }

    /// The rounds of one figure over those of another; `None` if either is not known.
    fn figure_ratio(&self, base: &MetricSelector, other: &MetricSelector) -> Option<FigureRatio> {
        ratio_of_figures(&self.rounds(base)?, &self.rounds(other)?)
    }
}

fn ratio_of_figures(base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>) -> Option<FigureRatio> {
    let ratio = ratio_of_rounds(base, other)?.estimate;
    let is_tested = !ratio.is_range || base.values.len().min(other.values.len()) >= MIN_RANGE_ROUNDS;
    let sides = [base.metric_value(), other.metric_value()];
    Some(FigureRatio {
        sides,
        base: MeasuredAmount::from_rounds(base),
        other: MeasuredAmount::from_rounds(other),
        ratio,
        is_tested,
    })
}

/// What stands out, most consequential first.
pub(super) fn stand_outs(run: &Run, analysis: &Analysis, climbed: &[LadderRung]) -> Vec<StandOut> {
    let seen = StandOutContext {
        run,
        analysis,
        rungs: climbed,
        rates: rates::named_rates(analysis),
        evidence: Evidence::from_run(run),
    };
    let mut answers: Vec<StandOutAnswer> = STAND_OUT_RULES.iter().filter_map(|answer| answer(&seen)).collect();
    answers.sort_by(|a, b| a.weight.cmp(&b.weight).then(b.factor.total_cmp(&a.factor)));
    answers.truncate(MAX_STAND_OUTS);
    let worded = |StandOutAnswer { factor, sides, ratio, facts: says, .. }: StandOutAnswer| StandOut {
        about: says.question(),
        sides,
        ratio,
        factor,
        text: wording::overview::stand_out_sentence(&says),
    };
    answers.into_iter().map(worded).collect()
}
