//! Claims on a server under load: what limits it, what would limit it next, and the laws that its figures must obey.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Estimate, LawDeviation};
use crate::{Case, Name};

/// A claim on a server under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadClaim {
    /// What limits throughput, and from how many users on.
    Limit(Box<LoadLimit>),
    /// What would limit it if the present limit were further away.
    WhatIf(NextLimitClaim),
    /// The universal scalability law describes how throughput grows with users.
    Scalability {
        /// What is common to all numbers of users.
        fixed: Case,
        /// Contention: the share of a request for which users wait for each other.
        contention: Estimate,
        /// Coherency: the cost of each other user, as a share of a request.
        coherency: Estimate,
        /// The whole number of users with the highest throughput; `None` where it does not fall up to the most that were there.
        peak: Option<f64>,
        /// Its largest deviation.
        furthest: LawDeviation,
    },
    /// A resource does more work than was asked for.
    Amplification {
        /// What is common to all numbers of users.
        fixed: Case,
        /// The resource, by its word.
        resource: Name,
        /// Bytes that it moved for each byte that was served.
        ratio: Estimate,
    },
    /// A law that ties measured quantities holds.
    Law(LoadLawCheck),
    /// The load generator was not the limit.
    Generator {
        /// Use of a CPU by its busiest thread at saturation, if watched.
        cpu: Option<Estimate>,
        /// The largest lateness of a number of users, in nanoseconds, if watched.
        late: Option<f64>,
    },
    /// The response time grows from that of one user by waiting.
    Response {
        /// With the fewest users: how many, and the mean in nanoseconds.
        single_user: (u64, f64),
        /// With the most.
        saturated: (u64, f64),
    },
    /// Some users wait for all of a visit while others are served again and again.
    Waiting {
        /// The fewest users of whom some do.
        users: u64,
        /// How many of their requests, on average.
        waiting: Estimate,
    },
    /// The memory of a process grows as long as it serves.
    Growth {
        /// Of the server rather than the load generator.
        of_server: bool,
        /// Bytes a second.
        bytes_per_second: Estimate,
        /// Bytes a request, at the mean throughput.
        bytes_per_request: Estimate,
        /// Bytes from the first visit to the last.
        bytes_in_study: Estimate,
    },
    /// The server is at the end what it was at the start.
    Steady {
        /// What is common to all numbers of users.
        fixed: Case,
        /// By how much throughput changes over the study at equal numbers of users, as a share.
        drift: Estimate,
        /// Throughput in the last visit, to the fewest users, over that of the visits to them before, less 1: how many users, and by
        /// how much, with the interval in which a visit like those before would be.
        return_step: Option<(u64, Estimate)>,
        /// How much counts as the same.
        tolerance: f64,
    },
    /// Something on a host hinders requests at saturation.
    Disturbance(DisturbanceClaim),
    /// More workers serve more.
    MoreWorkers(MoreWorkersClaim),
    /// What changes from one sweep to another that differs in one property.
    Comparison(Box<LoadComparison>),
    /// A published study, predicted from its capacities alone, is as it was seen.
    Published(PublishedLoadCase),
}

/// What the same server gave with more workers: an intervention that decides whether their number limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MoreWorkersClaim {
    /// What is common to all numbers of users.
    pub fixed: Case,
    /// How many users there were.
    pub users: u64,
    /// How many workers the server has, and how many it had then.
    pub workers: [u64; 2],
    /// Requests a second with each of these, means of visits.
    pub throughput: [f64; 2],
    /// The second over the first.
    pub ratio: Estimate,
    /// The least ratio that counts as more.
    pub limit: f64,
}

/// A figure of two sweeps that differ in one property.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadComparison {
    /// The axis of the property.
    pub axis: Name,
    /// What is common to all numbers of users: of the usual sweep, and of the other.
    pub cases: [Case; 2],
    /// What is compared.
    pub figure: LoadFigure,
    /// It in both.
    pub values: [Estimate; 2],
}

/// What is compared of two sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadFigure {
    /// Whether the throughput at saturation, in requests a second, is the same.
    Throughput {
        /// The other's over the usual one's, less 1.
        deviation: Estimate,
        /// How far off counts as the same.
        tolerance: f64,
    },
    /// Whether the other's knee, in users, is later.
    Knee,
    /// Whether the disk reads less for each byte served.
    DiskBytes,
}

/// What limits throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadLimit {
    /// What is common to all numbers of users.
    pub fixed: Case,
    /// The answer.
    pub verdict: LoadVerdict,
    /// The rule that decides, in words.
    pub rule: String,
    /// Why the answer is not certain; empty where it is.
    pub doubts: Vec<LoadDoubt>,
    /// The least number of users with 95 % of the saturation throughput; `None` where there is no saturation.
    pub knee: Option<Knee>,
    /// The highest throughput, over neighbouring numbers of users, in requests a second; of too few a single one, and where it still
    /// grows that with the most users.
    pub saturation: Estimate,
    /// Bytes of an answer, on average.
    pub request_bytes: Option<f64>,
    /// The resources that were watched, the fullest first, each at saturation.
    pub utilisations: Vec<ResourceUse>,
}

/// A number of users on the grid of those that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The number.
    pub users: u64,
    /// Lower end of its 95 % interval.
    pub low: u64,
    /// Upper end of its 95 % interval: at it throughput is that high with certainty.
    pub high: u64,
}

/// How full a resource is at saturation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUse {
    /// The resource, by its word.
    pub resource: Name,
    /// Share of its capacity.
    pub utilisation: Estimate,
    /// Its capacity in bytes a second, where it has one.
    pub capacity_bytes: Option<f64>,
}

/// What limits throughput.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadVerdict {
    /// A resource of the server, or on the way to it.
    Resource {
        /// Its word.
        resource: Name,
    },
    /// Several, all within 10 % of the fullest.
    Both {
        /// Their words, the fullest first.
        resources: Vec<Name>,
    },
    /// One of several: whether they are within 10 % of each other is not certain.
    OneOf {
        /// Their words, the fullest first.
        resources: Vec<Name>,
    },
    /// The client: nothing follows about the server.
    Client {
        /// The word of the client's resource that is full.
        resource: Name,
    },
    /// Something that was not watched itself: throughput and response times by the number of users, and where requests were meanwhile,
    /// point to it. It is never certain.
    NotSampled {
        /// How it limits.
        limit: UnsampledLimit,
        /// Where requests were most of the time.
        location: RequestLocation,
    },
    /// Not known.
    Unknown {
        /// Why.
        reason: UnknownLimit,
    },
}

impl LoadVerdict {
    /// The words of the resources that limit, the fullest first.
    pub fn resources(&self) -> &[Name] {
        match self {
            Self::Resource { resource } | Self::Client { resource } => std::slice::from_ref(resource),
            Self::Both { resources } | Self::OneOf { resources } => resources,
            Self::NotSampled { .. } | Self::Unknown { .. } => &[],
        }
    }
}

/// How something limits that was not watched itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnsampledLimit {
    /// It serves this many requests at a time, each for as long: a lock, few places behind it, a rate that it keeps to.
    LimitedConcurrency {
        /// How many.
        concurrency: u64,
        /// For how long.
        nanoseconds: u64,
    },
    /// Each request takes so much longer than its work, with any number of users: nothing that they share.
    PerRequest {
        /// How much.
        nanoseconds: u64,
    },
    /// Segments are lost on the way while requests are there most of the time.
    Losses {
        /// How many of a thousand that are sent are sent again.
        per_thousand: u64,
    },
    /// Nobody is answered at all for some time, again and again.
    Stalls {
        /// How much of the time, in hundredths.
        percent: u64,
        /// For how long at a time, on average.
        nanoseconds: u64,
        /// From the beginning of one to that of the next, on average.
        period_nanoseconds: u64,
    },
    /// Other programs have the CPUs: threads that work for requests are ready to run and have none.
    OtherWork {
        /// For how much of the time of requests, in hundredths, at both ends together.
        percent: u64,
    },
    /// The files fit into memory only with fewer users: from this many on the disk reads them again and again.
    Memory {
        /// This many.
        users: u64,
        /// How many bytes it reads then for a hundred that are served.
        percent: u64,
    },
    /// Requests are turned away, or fail.
    Refusals {
        /// How many of a hundred.
        percent: u64,
    },
}

/// Where requests are most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestLocation {
    /// In the server, which neither works for them nor reads or writes.
    Server,
    /// In the server, which waits for its disk.
    Disk,
    /// On their way to the client, where neither its receive window nor the server's send buffer keeps them.
    Network,
    /// Neither in the server nor on the way from it: in a proxy, or in a queue before the server.
    Between,
    /// At the load generator.
    Client,
}

/// Why the limit is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownLimit {
    /// Too few numbers of users, or visits to one.
    TooFewSamples,
    /// Throughput still grows at the largest number of users.
    StillGrowing {
        /// That number.
        users: u64,
    },
    /// No resource is above 60 %.
    NoneBusy,
    /// No resource is near its capacity: something limits that was not watched.
    NoneSaturated {
        /// The fullest one.
        busiest: Name,
    },
    /// All workers have a connection, and most of the time none of them works.
    WorkersWait {
        /// Whether more workers, or more of them with a connection, were seen to serve no more: they wait for each other, or for what
        /// serves one at a time.
        refuted: bool,
    },
    /// A resource gave more than its capacity, which was therefore measured wrongly.
    BeyondCapacity {
        /// The resource.
        resource: Name,
    },
}

/// Why a verdict is not certain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadDoubt {
    /// What was watched explains less throughput than it allows: its limit is near, not reached.
    Unexplained,
    /// A law does not hold.
    Law(LoadLaw),
    /// Neither the CPU of the client nor its generator was watched.
    ClientNotSampled,
    /// Requests were sent late by more than a tenth of the response time.
    LateGenerator,
    /// More than one request in a hundred failed.
    Errors,
    /// It was not watched itself: a trace of what requests wait for would decide it.
    NotSampled,
    /// Other work was there in all visits: one without it would decide it.
    OtherWork,
    /// No visit was made with more memory, which would decide it.
    OutOfMemory,
    /// No visit was made with more of the limit, which would decide it; the use of workers says that they have connections, not that
    /// more of them would serve more.
    Untested,
    /// Throughput changed over the study at equal numbers of users, or the limit was not full in some visits.
    Unsteady,
    /// Something hindered requests that is not how the limit acts.
    Disturbed {
        /// What.
        disturbance: Disturbance,
        /// On the server's side rather than on the load generator's.
        of_server: bool,
    },
}

/// What hinders requests without being a resource that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Disturbance {
    /// Connections found the accept queue full, and were tried again later.
    AcceptQueue,
    /// The hypervisor gave CPU time to others.
    Steal,
    /// A CPU quota kept a process from running.
    Quota,
    /// Segments were lost and sent again.
    Retransmissions,
    /// Threads were ready to run and had no CPU: other work had it, or a quota that cannot be seen.
    OffCpu,
    /// Nobody was answered at all for some time, again and again.
    Stalls,
}

/// What hinders requests at saturation, and how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DisturbanceClaim {
    /// What is common to all numbers of users.
    pub fixed: Case,
    /// What it is.
    pub disturbance: Disturbance,
    /// On the server's side rather than on the load generator's.
    pub of_server: bool,
    /// Connections of a visit for the accept queue; threads without a CPU; else a share: of CPU time, of the quota's periods, of the segments
    /// sent, of the time in stalls.
    pub amount: Estimate,
    /// Whether that is how the limit acts: a full link drops segments, a quota that is used up stops its process.
    pub is_how_it_limits: bool,
}

/// A law that ties measured quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadLaw {
    /// Requests in flight at the server are the client's throughput times its response time from when requests left
    /// (J. D. C. Little, 1961).
    Little,
    /// The bytes that leave the server arrive at the client.
    FlowBalance,
    /// The use of the fullest resource grows in proportion to throughput.
    Utilisation,
}

/// A law checked on the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadLawCheck {
    /// Which law.
    pub law: LoadLaw,
    /// What is common to all numbers of users.
    pub fixed: Case,
    /// One side of the law over the other, less 1: over all visits, or at the number of users where it does not hold.
    pub deviation: Estimate,
    /// That number of users.
    pub users: Option<u64>,
    /// How far off is allowed.
    pub tolerance: f64,
}

/// What would limit throughput next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextLimitClaim {
    /// What is common to all numbers of users.
    pub fixed: Case,
    /// The present limit, by its word.
    pub limit: Name,
    /// The next one.
    pub next: Name,
    /// How many times as fast the present limit would have to be to make it the limit, by its use under load.
    pub as_measured: LimitProjection,
    /// Like `as_measured`, by its capacity alone, if that was measured.
    pub from_capacity: Option<LimitProjection>,
}

/// A limit moved away until the next one is met.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitProjection {
    /// How many times as fast the present limit would have to be.
    pub factor: f64,
    /// The throughput there, in requests a second.
    pub throughput: f64,
}

/// A published case of a server under load: what its capacities say, beside what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedLoadCase {
    /// The case, in the words of the study.
    pub name: String,
    /// What limits throughput by the capacities.
    pub limit: Name,
    /// What the study named.
    pub limit_published: Name,
    /// The throughput that the capacities allow, in requests a second.
    pub capacity: f64,
    /// The throughput at saturation that was seen.
    pub saturation_published: f64,
    /// Whether it is that of the study's other cases, as none was published of this one.
    pub saturation_of_others: bool,
    /// The number of users where the asymptotic bounds cross.
    pub crossing: f64,
    /// The least number of users with 95 % of the capacity, by mean value analysis.
    pub knee: u64,
    /// Like `knee`, with 95 % of the published saturation.
    pub knee_by_published_saturation: u64,
    /// The number of users that the study named.
    pub knee_published: u64,
}
