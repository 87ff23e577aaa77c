//! Conclusions: a question to the data of a run, both sides of it, by how much they differ, and the test.
//!
//! Data only: the rules of `kelvin_analysis` make them, with their sentences.

mod load;
mod transfer;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Case, Name, Unit};

pub use load::*;
pub use transfer::*;

/// A claim that the data of a run supports, refutes, or leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conclusion {
    /// The claim.
    pub claim: Claim,
    /// Whether it holds; `None` if the data does not decide.
    pub holds: Option<bool>,
    /// Its evidence.
    pub evidence: TestEvidence,
    /// What its test says, on its own and among all of the report; `None` where nothing was tested: with fewer than four rounds, for
    /// example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TestOutcome>,
}

/// What the test of a figure against a limit says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestOutcome {
    /// Whether the figure differs from the limit.
    pub difference: PValue,
    /// Whether it is the same, where that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equivalence: Option<Equivalence>,
    /// Rounds of each side that would decide, where these do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_to_decide: Option<u64>,
}

/// The chance of what was found if it were not so.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PValue {
    /// In this test alone.
    pub raw: f64,
    /// Corrected for all tests of its kind in the report: the least share of false ones among them at which this one still counts.
    pub adjusted: f64,
}

impl PValue {
    /// That of a test before it is corrected.
    pub fn new(p: f64) -> Self {
        Self { raw: p, adjusted: p }
    }

    /// Whether it counts.
    pub fn is_significant(&self, false_share: f64) -> bool {
        self.adjusted <= false_share
    }
}

/// Whether a figure is the same as its limit, but for a margin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Equivalence {
    /// The margin, as a share of the limit.
    pub margin: f64,
    /// The chance that it is not.
    pub p_value: PValue,
    /// Whether it is, and is not known to differ either.
    pub holds: bool,
}

impl Conclusion {
    /// The margin within which both sides are the same, if they are.
    pub fn same_within(&self) -> Option<f64> {
        let equivalence = self.outcome?.equivalence?;
        (equivalence.holds && self.holds.is_none()).then_some(equivalence.margin)
    }
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Whether this is the range of too few rounds for an interval, from which nothing follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_range: bool,
}

impl Estimate {
    /// A value with the ends of its interval.
    pub fn new(value: f64, (low, high): (f64, f64)) -> Self {
        Self { value, low, high, is_range: false }
    }

    /// Whether it is known to within this share: half of its interval's width, on the scale of logarithms.
    pub fn is_known_within(&self, share: f64) -> bool {
        !self.is_range && (self.high / self.low).ln() / 2.0 <= share.ln_1p()
    }

    /// A value without an error.
    pub fn exact(value: f64) -> Self {
        Self::new(value, (value, value))
    }

    /// The value and both ends as a function has them that keeps their order.
    pub fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self { value: function(self.value), low: function(self.low), high: function(self.high), ..*self }
    }

    /// The value, the lower end and the upper end.
    pub fn parts(&self) -> [f64; 3] {
        [self.value, self.low, self.high]
    }

    /// Whether all of the interval is above a limit; `None` if the limit is inside, or this is a range.
    pub fn is_above(&self, limit: f64) -> Option<bool> {
        match (self.low > limit, self.high < limit) {
            _ if self.is_range => None,
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// Whether all of the interval is below a limit; `None` if the limit is inside.
    pub fn is_below(&self, limit: f64) -> Option<bool> {
        self.is_above(limit).map(|is_above| !is_above)
    }

    /// Whether all of the interval is within a distance of zero; `None` if only a part is.
    pub fn is_within(&self, distance: f64) -> Option<bool> {
        match self {
            _ if self.low >= -distance && self.high <= distance => Some(true),
            _ if self.low > distance || self.high < -distance => Some(false),
            _ => None,
        }
    }

    /// In another unit: divided by a factor.
    pub fn divided_by(&self, divisor: f64) -> Self {
        self.map(|value| value / divisor)
    }
}

/// One side of a comparison: a metric at a case, with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricValue {
    /// Id of the metric.
    pub metric: Name,
    /// The case.
    pub case: Case,
    /// Its headline, in `unit`.
    pub value: f64,
    /// Unit of the value.
    pub unit: Unit,
    /// Rounds behind it.
    pub rounds: usize,
}

/// A claim: the kind of question, and all that its sentence needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// One figure is a multiple of another.
    Ratio {
        /// Which.
        question: RatioQuestion,
        /// What the other one is compared with.
        base: MetricValue,
        /// The other one.
        other: MetricValue,
        /// The other over the base.
        ratio: Estimate,
        /// The limit that the ratio is tested against.
        limit: f64,
    },
    /// A share of something is larger than a limit.
    Share {
        /// Which.
        question: ShareQuestion,
        /// The metric at the case that it is a share of.
        figure: MetricValue,
        /// The share.
        share: Estimate,
        /// The limit that it is tested against.
        limit: f64,
    },
    /// The order of reads matters less in a remote directory than in a local one.
    OrderConverges {
        /// Remote blocks read in order, and at random.
        remote: [MetricValue; 2],
        /// How much longer those at random take, remotely and locally, as ratios.
        ratios: [Estimate; 2],
        /// The remote ratio over the local one.
        ratio: Estimate,
        /// Requests to the server for a block in order, and at random, where its client counted them.
        requests: Option<[f64; 2]>,
    },
    /// One of several is the best.
    Best {
        /// Which.
        question: BestQuestion,
        /// The best.
        best: MetricValue,
        /// Those not significantly different from it.
        rivals: Vec<Case>,
        /// The next best.
        next: Case,
        /// How many others there are.
        others: usize,
    },
    /// The best setting that was found by search is a gain.
    Tuned {
        /// The read with it, and its rate.
        best: MetricValue,
        /// The setting.
        setting: TunedSetting,
        /// Its rate over that of the baseline.
        gain: Estimate,
    },
    /// One of two lines is below the other from some size up.
    Crossing {
        /// The line that the other is compared with.
        base: Name,
        /// The other line.
        other: Name,
        /// Sizes at which both were measured.
        sizes: usize,
        /// Sizes at which the other is certainly below.
        below: Vec<u64>,
        /// Sizes at which it is certainly above.
        above: Vec<u64>,
        /// Its crossings.
        crossings: Vec<Crossover>,
    },
    /// The bytes of a message cost more than everything else, from some size up.
    BytesOutweighCalls {
        /// The smallest message, in bytes.
        smallest: u64,
        /// Where it takes twice the smallest one's time, between which sizes; `None` if it nowhere certainly does.
        from: Option<Crossover>,
        /// The message size that shows it, in bytes.
        example_bytes: u64,
        /// Its time over that of the smallest.
        ratio: Estimate,
    },
    /// Work is spread over more tasks than there are CPUs.
    MoreTasksThanCpus {
        /// With as many tasks as CPUs.
        base: MetricValue,
        /// With more.
        other: MetricValue,
        /// How much longer they take, as a share.
        slowdown: Estimate,
    },
    /// A law describes how a rate grows with the number of workers.
    Law(ScalabilityClaim),
    /// Which host limits streams to or from another host.
    HostLimit {
        /// The streams.
        figure: MetricValue,
        /// Their utilisation of a CPU of this host, and of the other one.
        busy: [Estimate; 2],
        /// The utilisation from which a CPU is saturated.
        full: f64,
    },
    /// All pages of a kind have a property, or none has.
    Pages {
        /// The metric of the property.
        metric: Name,
        /// The kind of page.
        case: Case,
        /// Whether all have it, rather than none.
        all: bool,
    },
    /// How a time depends on a quantity.
    Dependence(DependenceClaim),
    /// A claim on the levels of the memory hierarchy.
    Level(MemoryLevelClaim),
    /// A claim on the transfer of files.
    Transfer(TransferClaim),
    /// A claim on a server under load.
    Load(LoadClaim),
}

/// The setting that a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunedSetting {
    /// Bytes of a block.
    pub block: f64,
    /// Threads.
    pub threads: f64,
    /// Queue depth of each thread.
    pub depth: f64,
}

/// A crossing of two lines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Crossover {
    /// The last position at which it is certainly on its old side.
    pub after: u64,
    /// The first at which it is certainly on its new one.
    pub until: u64,
    /// Where both are equal, interpolated linearly between those.
    pub near: f64,
    /// Whether it is below from there up.
    pub reversed: bool,
}

/// The question of a comparison of two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatioQuestion {
    /// Do as many tasks as CPUs finish earlier than one?
    TasksFaster,
    /// Do they use the CPUs efficiently?
    TasksEfficient,
    /// Do processes take longer than threads?
    ProcessesAgainstThreads,
    /// Is more than half of a round trip its protocol?
    ProtocolInRoundTrip,
    /// Does a round trip take longer between CPUs?
    RoundTripBetweenCpus,
    /// Is a round trip over another protocol shorter than over TCP?
    RoundTripAgainstTcp,
    /// Does connecting cost more than a round trip?
    ConnectAgainstRoundTrip,
    /// Does closing?
    CloseAgainstRoundTrip,
    /// Do several streams carry more than one?
    MoreStreams,
    /// Do streams carry more with both ends on one CPU?
    StreamsOnOneCpu,
    /// Does another method of sending carry more?
    SendMethod,
    /// Does a program on another host cost more than its kernel?
    ProgramAgainstKernel,
    /// Does a message queue behind a stream?
    WaitBehindStream,
    /// Do more streams to another host carry more?
    MoreStreamsToHost,
    /// Do still more streams to another host carry no more?
    FurtherStreamsToHost,
    /// Does a cache below the kernel answer?
    CacheBelowKernel,
    /// Is a smaller block or depth enough?
    BlockSufficient,
    /// Is the one before it not enough?
    BlockInsufficient,
    /// Do more threads help?
    MoreThreads,
    /// Do reads at random take longer than in order?
    RandomAgainstSequential,
    /// Does a read take longer beside a second thread?
    TwoThreadsAgainstOne,
    /// Does its time grow by more than the number of threads from two on?
    BeyondEqualShares,
    /// Are cached reads faster than uncached ones?
    CachedAgainstUncached,
    /// Does the rate fall in the largest blocks?
    LargestBlock,
    /// Does a system call take longer than a function call?
    SystemCallAgainstCall,
    /// Does a fork take longer than creating a thread?
    ForkAgainstThread,
    /// Does a switch between processes take longer than between threads?
    ProcessSwitchAgainstThread,
    /// Does it take longer to wake a process than a thread?
    ProcessWakeAgainstThread,
}

/// What a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareQuestion {
    /// Of the machine's CPU time, that in neither user nor system time.
    UnaccountedTime,
    /// Of the time, how much the busiest CPU is busy in the case with most idle time.
    CpuOfStreams,
    /// Of datagrams between processes, those lost.
    DatagramsLost,
    /// Of datagrams to another host, those lost.
    DatagramsLostToHost,
    /// Of paced datagrams to another host, those lost.
    PacedDatagramsLost,
    /// Of the link's capacity, that used.
    LinkUsed,
    /// Of a remote block's time, the remote access.
    RemoteAccess,
}

/// The question of which is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BestQuestion {
    /// Threads and blocks together.
    ThreadsAndBlocks,
    /// Engines at one size of a request.
    EngineAtSize,
    /// Engines, each at its best setting.
    TunedEngine,
}

/// A claim on how a time depends on a quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DependenceClaim {
    /// Of which quantity.
    pub question: DependenceQuestion,
    /// How it depends on it, if the claim is so.
    pub law: DependenceLaw,
    /// The time at the smallest of the quantity.
    pub base: MetricValue,
    /// Smallest and largest of the quantity.
    pub span: [u64; 2],
    /// Where the time is furthest from the law.
    pub at: u64,
    /// The time there over that by the law.
    pub ratio_to_law: Estimate,
    /// The margin within which it is as the law says, as a share.
    pub margin: f64,
    /// What one more of the quantity adds, in nanoseconds; `None` of a time that does not depend on it.
    pub per_unit: Option<Estimate>,
}

/// A quantity that a time may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependenceQuestion {
    /// The time of a one-byte call on the size of the file.
    FileSize,
    /// The time of a function call on the number of its arguments.
    Arguments,
    /// The time of a fork on the memory of the process.
    Resident,
}

/// How a time depends on a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependenceLaw {
    /// Not at all.
    Constant,
    /// One more of the quantity always adds the same.
    Linear,
}

/// A claim on the universal scalability law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScalabilityClaim {
    /// The measurements determine it.
    Determined {
        /// The parameters held fixed.
        fixed: Case,
        /// Numbers of workers that were measured.
        points: usize,
        /// Rounds of each.
        rounds: usize,
        /// Numbers of workers that it needs.
        needed: usize,
    },
    /// It describes the measurements.
    Describes {
        /// The parameters held fixed.
        fixed: Case,
        /// Its largest deviation.
        furthest: LawDeviation,
    },
    /// Contention takes more than a limit of the work.
    Contention {
        /// The parameters held fixed.
        fixed: Case,
        /// Contention.
        sigma: Estimate,
        /// Coherency.
        kappa: Estimate,
        /// The limit.
        limit: f64,
    },
    /// The rate falls within the measured range.
    Peak {
        /// The parameters held fixed.
        fixed: Case,
        /// Most workers that were measured.
        max_workers: u64,
        /// Whole numbers of workers at which the rate is highest; `None` beyond the most that were measured.
        peak_workers: [Option<f64>; 3],
        /// The highest rate, in bytes per second.
        rate: Option<f64>,
    },
}

/// The largest deviation of a law from the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LawDeviation {
    /// Workers.
    pub workers: u64,
    /// Law over measured.
    pub ratio: f64,
}

/// A claim on the levels of the memory hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryLevelClaim {
    /// No level is visible.
    NotVisible {
        /// Smallest and largest working set, in bytes.
        span: [u64; 2],
    },
    /// The curve is flat.
    Flat {
        /// Nanoseconds of a load.
        latency: f64,
        /// Smallest and largest working set, in bytes.
        span: [u64; 2],
    },
    /// There is a level.
    Found {
        /// Its name.
        name: String,
        /// Nanoseconds of a load.
        latency: Estimate,
        /// Bytes between which it ends, if it does.
        ends: Option<[u64; 2]>,
        /// Its largest working set, in bytes.
        to_bytes: u64,
        /// Bytes of the cache that the machine reports for it.
        reported: Option<u64>,
        /// Whether it is main memory.
        is_memory: bool,
    },
    /// A reported cache has no plateau.
    NotFound {
        /// Its level.
        level: u32,
        /// Its bytes.
        bytes: u64,
    },
    /// Base pages cost more than huge ones.
    Translation {
        /// The largest working set of both, in bytes.
        bytes: u64,
        /// Nanoseconds of a load with base pages, and with huge ones.
        latencies: [f64; 2],
        /// The working set from which it is visible.
        visible_from: Option<u64>,
        /// Reported reach of the machine's TLBs, in bytes.
        reach: Option<u64>,
    },
}

/// The evidence of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestEvidence {
    /// The ratio of medians with its interval, from order statistics of the rounds of both.
    RatioOfMedians {
        /// Rounds of the other side, and of the base.
        rounds: [usize; 2],
        /// Number of points among which one side was chosen from the same rounds.
        chosen_among: Option<usize>,
    },
    /// The median of rounds and its interval.
    Median {
        /// Rounds.
        rounds: usize,
        /// Its other evidence, in words: the derivation of a bound, for example.
        over: Option<String>,
    },
    /// The median of rounds and its interval, against the same limit in each of several cases.
    CaseByCase {
        /// Cases.
        cases: usize,
        /// Rounds of each.
        rounds: usize,
    },
    /// Ratios of medians at several sizes or against several others, jointly at 95 %.
    JointRatios {
        /// Each ratio, with its size, if any.
        ratios: Vec<(Option<u64>, Estimate)>,
        /// Rounds of the first one.
        rounds: usize,
    },
    /// Medians of the ratios of rounds of the same pass, jointly at 95 %.
    Ratios {
        /// Ratios.
        count: usize,
        /// Fewest rounds of a side.
        rounds: usize,
    },
    /// The time at each point over that by a law, in the rounds of the same pass: true if all are certainly within a margin of it, false if
    /// one certainly is not.
    AtEachPoint {
        /// Points.
        points: usize,
        /// Passes in which all have a figure.
        rounds: usize,
    },
    /// Medians of weighted sums of the logarithms of rounds of the same pass.
    Contrasts {
        /// Cells.
        cells: usize,
        /// Fewest rounds of a cell.
        rounds: usize,
    },
    /// How many rounds agree.
    Rounds {
        /// Agreeing rounds.
        agreeing: usize,
        /// All rounds.
        rounds: usize,
        /// Lowest and highest share of a round.
        range: [f64; 2],
        /// Distance from all or none that counts as such.
        tolerance: f64,
    },
    /// Least squares of the law on logarithms of mean rates, intervals by a parametric bootstrap of rounds.
    LeastSquares {
        /// Numbers of workers.
        points: usize,
        /// Its largest deviation.
        furthest: LawDeviation,
    },
    /// There are too few points to check the coefficients.
    TooFewPoints,
    /// Optimal partitioning of the curve of latency.
    Partitioning {
        /// Points.
        points: usize,
        /// Smallest and largest working set, in bytes.
        span: [u64; 2],
        /// Distance of points from the line between their neighbours.
        noise: f64,
        /// Least factor from one level to the next.
        step: f64,
    },
    /// Whether two latencies are apart, by the interval of their ratio.
    Intervals {
        /// Nanoseconds.
        latencies: [f64; 2],
        /// Whether they are.
        disjoint: bool,
    },
    /// Means of visits to several numbers of users, with intervals by a parametric bootstrap.
    LoadSteps {
        /// Numbers of users.
        loads: usize,
        /// Fewest visits of one.
        steps: usize,
    },
    /// Visits at saturation with Student's interval.
    Saturated {
        /// Visits.
        steps: usize,
    },
    /// Slope of memory over time within visits to equal numbers of users.
    Slope {
        /// Visits.
        steps: usize,
        /// Seconds from the first to the last.
        seconds: f64,
    },
    /// Asymptotic bounds and exact mean value analysis of a closed network.
    ClosedNetwork {
        /// Requests a second of each resource alone, by its word.
        capacities: Vec<(Name, f64)>,
        /// Mean think time, in seconds.
        think: f64,
    },
    /// Rounds whose search found the same parts of a setting.
    Search {
        /// Rounds.
        rounds: usize,
        /// Rounds that found each part.
        agreeing: Vec<usize>,
    },
}
