//! What the data of a run answers: a question, both sides of it, by how much, and the test that carries the answer.
//!
//! Data alone: what is said of it is in `kelvin_analysis::words`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Case, Name, Unit};

/// One answer that the data of a run gives, refuses, or leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conclusion {
    /// What is claimed.
    pub claim: Claim,
    /// Whether it holds; `None` where the data does not tell.
    pub holds: Option<bool>,
    /// What it rests on.
    pub evidence: Test,
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
}

impl Estimate {
    /// Whether all of the interval is above a limit; `None` if the limit is inside.
    pub fn is_above(&self, limit: f64) -> Option<bool> {
        match (self.low > limit, self.high < limit) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// Whether all of the interval is below a limit; `None` if the limit is inside.
    pub fn is_below(&self, limit: f64) -> Option<bool> {
        self.is_above(limit).map(|above| !above)
    }

    /// The same in another unit, so many of which make one.
    pub fn over(&self, each: f64) -> Self {
        Self { value: self.value / each, low: self.low / each, high: self.high / each }
    }
}

/// One side of a comparison: a metric at a case, and what it came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
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

/// What is claimed: the shape of the question, and all that a sentence about it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// One figure is so many times another.
    Ratio {
        /// Which.
        question: RatioQuestion,
        /// What the other one is set beside.
        base: Side,
        /// The other one.
        other: Side,
        /// The other over the base.
        ratio: Estimate,
        /// What the ratio is asked to be beyond.
        limit: f64,
    },
    /// A part of something is larger than is worth saying.
    Share {
        /// Which.
        question: ShareQuestion,
        /// The metric at the case that it is a part of.
        of: Side,
        /// The part.
        share: Estimate,
        /// What it is asked to be beyond.
        limit: f64,
    },
    /// One of several is the best.
    Best {
        /// Which.
        question: BestQuestion,
        /// The best.
        best: Side,
        /// Those that cannot be told apart from it.
        rivals: Vec<Case>,
        /// The next best.
        next: Case,
        /// How many others there are.
        others: usize,
    },
    /// The best setting that searches found gains.
    Tuned {
        /// What is read, and how fast, with it.
        best: Side,
        /// The setting.
        setting: Setting,
        /// Its rate over that of reading plainly.
        gain: Estimate,
    },
    /// From some size on one of two lines is below the other.
    Crossing {
        /// The line that the other is set beside.
        base: Name,
        /// The other line.
        other: Name,
        /// Sizes at which both were measured.
        sizes: usize,
        /// Sizes at which the other is surely below.
        below: Vec<u64>,
        /// Sizes at which it is surely above.
        above: Vec<u64>,
        /// Where it changes sides.
        crossings: Vec<ChangeOfSides>,
    },
    /// The bytes of a message cost more than everything else in it, from some size on.
    BytesOutweighCalls {
        /// The smallest message, in bytes.
        smallest: u64,
        /// Where it takes twice the smallest one's time, and the sizes between which that lies; `None` where it nowhere surely does.
        from: Option<ChangeOfSides>,
        /// The message that shows it, in bytes.
        shown_at: u64,
        /// Its time over that of the smallest.
        times: Estimate,
    },
    /// Work is spread over more tasks than there are CPUs.
    MoreTasksThanCpus {
        /// With as many tasks as CPUs.
        base: Side,
        /// With more.
        other: Side,
        /// How much longer they take, as a share.
        longer: Estimate,
    },
    /// A law describes how a rate grows with the number of workers.
    Law(LawClaim),
    /// Who is the limit of what is carried to or from another host.
    HostLimit {
        /// What is carried.
        of: Side,
        /// How far it fills a CPU of this host, and of the other one.
        busy: [Estimate; 2],
        /// The share from which on a CPU is full.
        full: f64,
    },
    /// Pages of a kind are all something, or none of them is.
    Pages {
        /// The metric that tells.
        metric: Name,
        /// The kind of page.
        case: Case,
        /// Whether all of them are; else none is.
        all: bool,
    },
    /// Something about the levels of the memory hierarchy.
    Level(LevelClaim),
}

/// What a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Bytes of a block.
    pub block: f64,
    /// Threads.
    pub threads: f64,
    /// Queue depth of each.
    pub depth: f64,
}

/// Where one of two lines changes sides with the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeOfSides {
    /// The last position at which it surely was on its old side.
    pub after: u64,
    /// The first at which it surely is on its new one.
    pub until: u64,
    /// Where both are equal, on a straight line between those.
    pub near: f64,
    /// Whether it is below from there on.
    pub to_below: bool,
}

/// What two figures are compared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatioQuestion {
    /// Do as many tasks as CPUs finish earlier than one?
    TasksFaster,
    /// Do they use the CPUs efficiently?
    TasksEfficient,
    /// Do processes take longer than threads?
    ProcessesBesideThreads,
    /// Is more than half of a round trip its protocol?
    ProtocolInRoundTrip,
    /// Does a round trip take longer between CPUs?
    RoundTripBetweenCpus,
    /// Is a round trip over another protocol shorter than over TCP?
    RoundTripBesideTcp,
    /// Does connecting cost more than a round trip?
    ConnectBesideRoundTrip,
    /// Does closing?
    CloseBesideRoundTrip,
    /// Do several streams carry more than one?
    MoreStreams,
    /// Do streams carry more with both ends on one CPU?
    StreamsOnOneCpu,
    /// Does another method of sending carry more?
    SendMethod,
    /// Does a program at the other end cost more than its kernel?
    ProgramBesideKernel,
    /// Does a message wait behind a stream?
    WaitBehindStream,
    /// Do more streams to another host carry more?
    MoreStreamsToHost,
    /// Does a cache below the kernel answer?
    CacheBelowKernel,
    /// Is a smaller block or depth enough?
    Enough,
    /// Is the one before it not enough?
    NotEnough,
    /// Do more threads help?
    MoreThreads,
}

/// What a part is asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareQuestion {
    /// Of the machine's CPU time, what is in neither user nor system time.
    UnseenTime,
    /// Of the time, how much the fullest CPU is busy where it is least so.
    CpuOfStreams,
    /// Of datagrams between processes, those lost.
    DatagramsLost,
    /// Of datagrams to another host, those lost.
    DatagramsLostToHost,
    /// Of datagrams sent evenly to another host, those lost.
    PacedDatagramsLost,
    /// Of what the link can carry, what was carried.
    LinkUsed,
    /// Of a remote block, the way to it.
    RemoteWay,
}

/// What the best of several is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BestQuestion {
    /// Threads and blocks together.
    ThreadsAndBlocks,
    /// Engines at one size of a request.
    EngineAtSize,
    /// Engines, each by its best setting.
    TunedEngine,
}

/// What is claimed of the universal scalability law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LawClaim {
    /// What was measured determines it.
    Determined {
        /// What was held.
        held: Case,
        /// Numbers of workers that were measured.
        points: usize,
        /// Rounds of each.
        rounds: usize,
        /// Numbers of workers that it takes.
        needed: usize,
    },
    /// It describes what was measured.
    Describes {
        /// What was held.
        held: Case,
        /// Where it is furthest off.
        furthest: Furthest,
    },
    /// Contention takes a part of the work that is worth saying.
    Contention {
        /// What was held.
        held: Case,
        /// Contention.
        sigma: Estimate,
        /// Coherency.
        kappa: Estimate,
        /// The part that is worth saying.
        limit: f64,
    },
    /// The rate falls within what was measured.
    Peak {
        /// What was held.
        held: Case,
        /// Most workers that were measured.
        most: u64,
        /// Workers at which the rate is highest; ends that are not finite are `None`.
        at: [Option<f64>; 3],
        /// The highest rate, in bytes per second.
        rate: Option<f64>,
    },
}

/// Where a law is furthest from what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Furthest {
    /// Workers.
    pub workers: u64,
    /// Law over measured.
    pub ratio: f64,
}

/// What is claimed of the levels of the memory hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LevelClaim {
    /// No level can be told.
    NotTold {
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
    /// A cache that is reported shows in no plateau.
    Unseen {
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
        /// From which working set on it shows.
        shows_from: Option<u64>,
        /// Bytes that the machine's TLBs are stated to reach.
        reach: Option<u64>,
    },
}

/// What an answer rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// The ratio of medians with its interval by Welch's test on logarithms of rounds.
    RatioOfMedians {
        /// Rounds of the other side, and of the base.
        rounds: [usize; 2],
        /// Among how many points one side was chosen by the same rounds.
        chosen_among: Option<usize>,
    },
    /// The median of rounds and its interval.
    Median {
        /// Rounds.
        rounds: usize,
        /// What else it rests on, in words of the machine's own facts: the derivation of a bound, say.
        over: Option<String>,
    },
    /// The median of rounds and its interval, against the same limit in each of several cases.
    CaseByCase {
        /// Cases.
        cases: usize,
        /// Rounds of each.
        rounds: usize,
    },
    /// Welch's test of two means.
    Welch {
        /// Chance of as large a difference by accident.
        p: f64,
        /// Rounds of both sides.
        rounds: [usize; 2],
    },
    /// Welch's test at several sizes or against several others, all of which hold together with 95 %.
    Together {
        /// Each ratio, with the size at which it is, or none.
        ratios: Vec<(Option<u64>, Estimate)>,
        /// Rounds of the first one.
        rounds: usize,
    },
    /// How many rounds agree.
    Rounds {
        /// Those that do.
        agreeing: usize,
        /// All.
        rounds: usize,
        /// Lowest and highest share that a round found.
        range: [f64; 2],
        /// Distance from all or none that counts as such.
        tolerance: f64,
    },
    /// Least squares of the law on logarithms of mean rates, intervals by a parametric bootstrap of rounds.
    LeastSquares {
        /// Numbers of workers.
        points: usize,
        /// Where it is furthest off.
        furthest: Furthest,
    },
    /// That there are too few points to check as many coefficients.
    TooFewPoints,
    /// Optimal partitioning of the curve of latency.
    Partitioning {
        /// Points.
        points: usize,
        /// Smallest and largest working set, in bytes.
        span: [u64; 2],
        /// How far points lie off the line between their neighbours.
        noise: f64,
        /// Factor from one level to the next, at least.
        step: f64,
    },
    /// Whether the intervals of two latencies are apart.
    Intervals {
        /// Nanoseconds.
        latencies: [f64; 2],
        /// Whether they are.
        apart: bool,
    },
    /// Rounds of a search that found the same parts of a setting.
    Search {
        /// Rounds.
        rounds: usize,
        /// Rounds that found each part.
        agreeing: Vec<usize>,
    },
}
