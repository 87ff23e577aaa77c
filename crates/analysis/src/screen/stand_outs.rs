//! What stands out on a machine: a question to each file, answered by tested figures of the run alone.
//!
//! The rule of their order: what this machine does not give that it reports, or that is predicted, or that it gives elsewhere; then
//! what a program pays that it can avoid; then what the machine can do. Within each the larger factor first: the larger figure over
//! the smaller one.

mod cache_size;
mod congestion_control;
mod disk;
mod disk_cache;
mod distance;
mod fresh_memory;
mod idle_cache;
mod memory_shared;
mod streams_across;
mod wake_up;
mod worst_time;

use kelvin_model::{Estimate, Question, Rate, Run, Side, StandOut};

use super::ladder::Climbed;
use super::rates;
use super::spot::Spot;
use crate::evidence::{Evidence, Rounds, ratio};
use crate::result::{Analysis, GapCauses, MetricResult};
use crate::words;

/// Sentences of the first screen, at most.
const MOST: usize = 8;
/// Minimum rounds of each side where there are too few for an interval: if then every round of one is beyond every round of the
/// other by the least factor, chance does so in 1 of 20 runs at most.
const LEAST_ROUNDS: usize = 3;

/// Whose doing it is, and so how consequential; the first the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// What this machine does not give.
    OfThisMachine,
    /// What a program pays and can avoid.
    Avoidable,
    /// What the machine can do.
    Ability,
}

/// An answer before it is worded.
struct Answer {
    weight: Weight,
    factor: f64,
    sides: Vec<Side>,
    ratio: Option<Estimate>,
    says: Says,
}

/// A figure and the half-width of its interval: a duration in nanoseconds, or a rate per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Amount {
    pub value: f64,
    pub half_width: f64,
}

impl Amount {
    fn of(rounds: &Rounds<'_>) -> Self {
        let half_width = rounds.estimate().map_or(0.0, |found| (found.high - found.low) / 2.0);
        Self { value: rounds.headline(), half_width }
    }
}

/// What the run has measured that a figure contains or suffers from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Within {
    /// Two wake-ups of another CPU, each of so long.
    WakeUps(Amount),
    /// A cache of this name that answers only up to these sizes.
    Cache { name: String, ends: [u64; 2] },
    /// What was found when its causes were taken away.
    Causes(GapCauses),
}

/// What the sentence of an answer needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Says {
    /// A wake-up, and how many times a switch it is.
    WakeUp { wake: Amount, times: f64 },
    /// Between which sizes a cache ends, the reported size, its name, and a load beyond it.
    CacheSize { ends: [u64; 2], reported: u64, name: String, beyond: Amount },
    /// A cache line from CPU to CPU, in nanoseconds: near and far.
    Distance { modes: [f64; 2] },
    /// Streams with each on one CPU, and each between two.
    StreamsAcross { apart: Amount, together: Amount },
    /// A stream under the system's congestion control, of this name, and under the one that the run chose.
    CongestionControl { name: String, systems: Amount, other: Amount },
    /// A figure by name, its prediction, and what of it the run has measured, in words.
    WorstTime { named: String, figure: String, predicted: String, within: Option<Within> },
    /// The first touch of a page of so many bytes, the same of memory just freed, and how many times as much it is as in huge pages.
    FreshMemory { page: u64, touch: Amount, again: Option<Amount>, in_huge: Option<f64> },
    /// How much of so many bytes of files has left the page cache, as a share, in so many seconds.
    IdleCache { left: f64, seconds: f64 },
    /// What one CPU reads, and what all of so many do.
    MemoryShared { one: Amount, all: Amount, cpus: u64 },
    /// Later passes over the first, where they are faster.
    DiskCached { times: f64 },
    /// They are not, or hardly.
    DiskUncached { hardly: bool },
    /// Reading in order, random reads per second, and the time of one alone.
    Disk { read: Amount, requests: Amount, latency: Amount },
}

impl Says {
    fn about(&self) -> Question {
        match self {
            Self::WakeUp { .. } => Question::WakeUp,
            Self::CacheSize { .. } => Question::CacheSize,
            Self::Distance { .. } => Question::Distance,
            Self::StreamsAcross { .. } => Question::StreamsAcross,
            Self::CongestionControl { .. } => Question::CongestionControl,
            Self::WorstTime { .. } => Question::WorstTime,
            Self::FreshMemory { .. } => Question::FreshMemory,
            Self::IdleCache { .. } => Question::IdleCache,
            Self::MemoryShared { .. } => Question::MemoryShared,
            Self::DiskCached { .. } | Self::DiskUncached { .. } => Question::DiskCache,
            Self::Disk { .. } => Question::Disk,
        }
    }
}

/// All questions, in the order in which equal answers are listed.
const ALL: [fn(&Seen<'_>) -> Option<Answer>; 11] = [
    wake_up::answer,
    cache_size::answer,
    distance::answer,
    worst_time::answer,
    idle_cache::answer,
    congestion_control::answer,
    streams_across::answer,
    fresh_memory::answer,
    disk_cache::answer,
    memory_shared::answer,
    disk::answer,
];

/// What a question is asked of.
pub(super) struct Seen<'a> {
    run: &'a Run,
    analysis: &'a Analysis,
    climbed: &'a [Climbed],
    rates: Vec<(&'static str, Rate)>,
    evidence: Evidence<'a>,
}

/// Two figures, the other over the base, and whether that is tested.
struct Compared {
    sides: [Side; 2],
    base: Amount,
    other: Amount,
    ratio: Estimate,
    is_tested: bool,
}

impl Compared {
    /// Whether all of the interval, or every pair of rounds, is above a factor.
    fn is_above(&self, factor: f64) -> bool {
        self.is_tested && self.ratio.low > factor
    }

    /// The same of below.
    fn is_below(&self, factor: f64) -> bool {
        self.is_tested && self.ratio.high < factor
    }

    fn answer(self, weight: Weight, says: Says) -> Answer {
        let factor = self.ratio.value.max(1.0 / self.ratio.value);
        Answer { weight, factor, sides: self.sides.into(), ratio: Some(self.ratio), says }
    }
}

impl Seen<'_> {
    fn result(&self, spot: &Spot) -> Option<&MetricResult> {
        spot.find(&self.analysis.results)
    }

    /// The rounds of a result that is known.
    fn rounds_of(&self, result: &MetricResult) -> Option<Rounds<'_>> {
        result.outcome.summary()?;
        self.evidence.at(&result.metric, &result.case)
    }

    fn rounds(&self, spot: &Spot) -> Option<Rounds<'_>> {
        self.rounds_of(self.result(spot)?)
    }

    /// The rounds of one figure over those of another; `None` if either is not known.
    fn compare(&self, base: &Spot, other: &Spot) -> Option<Compared> {
        compared(&self.rounds(base)?, &self.rounds(other)?)
    }
}

fn compared(base: &Rounds<'_>, other: &Rounds<'_>) -> Option<Compared> {
    let ratio = ratio(base, other)?.estimate;
    let is_tested = !ratio.is_range || base.values.len().min(other.values.len()) >= LEAST_ROUNDS;
    let sides = [base.side(), other.side()];
    Some(Compared { sides, base: Amount::of(base), other: Amount::of(other), ratio, is_tested })
}

/// What stands out, most consequential first.
pub(super) fn stand_outs(run: &Run, analysis: &Analysis, climbed: &[Climbed]) -> Vec<StandOut> {
    let seen = Seen { run, analysis, climbed, rates: rates::named(analysis), evidence: Evidence::of(run) };
    let mut answers: Vec<Answer> = ALL.iter().filter_map(|answer| answer(&seen)).collect();
    answers.sort_by(|a, b| a.weight.cmp(&b.weight).then(b.factor.total_cmp(&a.factor)));
    answers.truncate(MOST);
    let worded = |Answer { factor, sides, ratio, says, .. }: Answer| StandOut {
        about: says.about(),
        sides,
        ratio,
        factor,
        text: words::screen::stand_out(&says),
    };
    answers.into_iter().map(worded).collect()
}
