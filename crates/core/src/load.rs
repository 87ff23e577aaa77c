//! What requests to an HTTP server brought: how many a second, how long they took, what went wrong, and whether the generator
//! was the limit.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One load on one server, as it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResult {
    /// The server, as it was named.
    pub target: String,
    /// What was asked of it.
    pub offered: OfferedLoad,
    /// Seconds that were measured, without the warm-up.
    pub seconds: f64,
    /// Seconds in which the right answers came: those that were measured, and of an open loop how much longer its last answer took
    /// than the fastest one.
    pub answer_seconds: f64,
    /// The signal that ended it early, if one did.
    pub interrupted: Option<String>,
    /// Right answers: in a closed loop those that were whole within these seconds, in an open loop those to requests that became due
    /// in them.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Bytes of all bodies that were read within these seconds: also of answers that had begun before, were not whole at the end,
    /// or were not right. What the server sent in the same time is compared with this.
    pub received: u64,
    /// From when a request was due until its answer was whole: what a user waits.
    #[serde(with = "if_any")]
    #[schemars(with = "Option<LatencySummary>")]
    pub response: LatencySummary,
    /// From when it was sent: a generator that waits for a stalled server sees only this.
    #[serde(with = "if_any")]
    #[schemars(with = "Option<LatencySummary>")]
    pub service: LatencySummary,
    /// In a closed loop, the response times with those added that users who do not wait would have seen (Gil Tene's
    /// correction with the mean time of a user's cycle): an estimate, while the times from when a request was due need none.
    pub corrected: Option<LatencySummary>,
    /// What was no right answer.
    pub errors: RequestErrors,
    /// Requests without an answer when the measurement ended: of an open loop those that became due in the measured time, which are
    /// among its response times with the time that they had waited by then; of users those that had waited for nearly all of it.
    pub unanswered: u64,
    /// Requests in flight, averaged over the measured time, if any was seen: a log may be over before its first one is on its way.
    pub in_flight: Option<f64>,
    /// Connections that were opened in the whole run.
    pub connections: u64,
    /// Requests that were sent again on a new connection, because the server had closed the one that they went out on.
    pub resent: u64,
    /// What HTTP/2 did in the whole run; none of a load by HTTP/1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Figures>,
    /// Times in which no byte of an answer came.
    pub stalls: Stalls,
    /// Each kind of request of a mix; none of another load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindResult>,
    /// Each stage of a load that changes over time; none of another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageResult>,
    /// Each second.
    pub series: Vec<SecondResult>,
    /// The generator itself.
    pub generator: GeneratorStats,
}

impl LoadResult {
    /// One in which nothing has happened.
    pub fn empty(target: &str) -> Self {
        Self { target: target.to_owned(), ..Self::default() }
    }

    /// Right answers a second.
    pub fn rate(&self) -> f64 {
        self.per_second(self.requests)
    }

    /// Bytes of their bodies a second.
    pub fn byte_rate(&self) -> f64 {
        self.per_second(self.bytes)
    }

    /// Requests that brought no right answer: errors, and those that had no answer in the end.
    pub fn failed_requests(&self) -> u64 {
        self.errors.count() + self.unanswered
    }

    /// Which share of all requests these are.
    pub fn failed_share(&self) -> f64 {
        self.figures().failed_share()
    }

    /// What tables, plots and conditions take of it.
    pub fn figures(&self) -> LoadFigures<'_> {
        LoadFigures {
            target: &self.target,
            offered: self.offered,
            rate: Some(self.rate()),
            requests: self.requests,
            failed_requests: self.failed_requests(),
            response: self.response,
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = if self.answer_seconds > 0.0 { self.answer_seconds } else { self.seconds };
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

/// The figures of a load that tables, plots and conditions take: of one generator, or of several at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadFigures<'l> {
    /// The server, as it was named.
    pub target: &'l str,
    /// What was asked of it.
    pub offered: OfferedLoad,
    /// Right answers a second, if it is known.
    pub rate: Option<f64>,
    /// Right answers.
    pub requests: u64,
    /// Requests that brought none.
    pub failed_requests: u64,
    /// From when a request was due until its answer was whole.
    pub response: LatencySummary,
}

impl LoadFigures<'_> {
    /// Which share of all requests brought no right answer.
    pub fn failed_share(&self) -> f64 {
        let failed = self.failed_requests as f64;
        if failed > 0.0 { failed / (failed + self.requests as f64) } else { 0.0 }
    }
}

/// How requests are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OfferedLoad {
    /// Users who wait for each answer, and think before the next request.
    Users {
        /// How many.
        users: u32,
        /// Nanoseconds of thought after each answer, on average.
        think: f64,
    },
    /// Requests at a rate, whether answers come or not.
    Rate {
        /// Requests a second asked for.
        rate: f64,
        /// Requests a second that became due in the measured time.
        due: f64,
        /// Requests that had to wait until one of the allowed connections was free.
        delayed: u64,
    },
}

impl Default for OfferedLoad {
    fn default() -> Self {
        Self::Users { users: 0, think: 0.0 }
    }
}

/// Times of requests, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 95 % are at most this.
    pub p95: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// 99.9 % are at most this.
    pub p999: f64,
    /// 99.99 % are at most this.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
}

/// Times of requests as JSON: null where there were none, whose mean is not 0.
mod if_any {
    use super::{Deserialize, Deserializer, LatencySummary, Serialize, Serializer};

    pub fn serialize<S: Serializer>(times: &LatencySummary, serializer: S) -> Result<S::Ok, S::Error> {
        Some(times).filter(|times| times.count > 0).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LatencySummary, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or_default())
    }
}

/// Requests that brought no right answer in the measured time, by what was wrong. None of them counts as throughput.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestErrors {
    /// No connection was made.
    pub connect: u64,
    /// This host had no port left to connect from.
    pub no_port: u64,
    /// The connection ended before an answer.
    pub closed: u64,
    /// The server refused the request, or ended its stream, by HTTP/2.
    #[serde(default)]
    pub reset: u64,
    /// No answer within the time-out.
    pub timed_out: u64,
    /// The body ended before its length.
    pub short: u64,
    /// What came was no HTTP response.
    pub malformed: u64,
    /// A whole body of other bytes than the file's.
    pub wrong: u64,
    /// Answers with a status other than 2xx and 304.
    pub status: BTreeMap<u16, u64>,
    /// What the first of them said.
    pub first: Option<String>,
}

impl RequestErrors {
    /// All together.
    pub fn count(&self) -> u64 {
        let ended = self.connect + self.no_port + self.closed + self.reset + self.timed_out;
        let without_status = ended + self.short + self.malformed + self.wrong;
        without_status + self.status.values().sum::<u64>()
    }

    /// Adds those of another thread; the first of them may have come before the first of these.
    pub fn merge(&mut self, other: &Self, is_other_first: bool) {
        for (count, other) in [
            (&mut self.connect, other.connect),
            (&mut self.no_port, other.no_port),
            (&mut self.closed, other.closed),
            (&mut self.reset, other.reset),
            (&mut self.timed_out, other.timed_out),
            (&mut self.short, other.short),
            (&mut self.malformed, other.malformed),
            (&mut self.wrong, other.wrong),
        ] {
            *count += other;
        }
        for (&status, count) in &other.status {
            *self.status.entry(status).or_default() += count;
        }
        if is_other_first {
            self.first.clone_from(&other.first);
        }
    }
}

/// What HTTP/2 did, beside what single requests brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http2Figures {
    /// Requests in flight on each connection, at most, as it was asked for.
    pub streams: u32,
    /// The fewest that the server allowed on a connection (SETTINGS_MAX_CONCURRENT_STREAMS), where that is less.
    pub allowed_streams: Option<u32>,
    /// Connections on which the server allowed fewer than were asked for.
    pub limited_connections: u64,
    /// Requests that waited because of that.
    pub limited_requests: u64,
    /// Connections that the server had end (GOAWAY).
    pub goaways: u64,
    /// Requests that the server declared to have left undone (REFUSED_STREAM, or sent after a GOAWAY): each is sent once more.
    pub refused: u64,
}

impl Http2Figures {
    /// A connection whose server allows this many requests in flight.
    pub fn add_allowed(&mut self, allowed: usize) {
        let Some(allowed) = u32::try_from(allowed).ok().filter(|&allowed| allowed < self.streams) else { return };
        self.limited_connections += 1;
        self.allowed_streams = Some(self.allowed_streams.map_or(allowed, |fewest| fewest.min(allowed)));
    }

    /// Adds what another thread, or another generator, saw.
    pub fn merge(&mut self, other: &Self) {
        self.allowed_streams = [self.allowed_streams, other.allowed_streams].into_iter().flatten().min();
        for (count, other) in [
            (&mut self.limited_connections, other.limited_connections),
            (&mut self.limited_requests, other.limited_requests),
            (&mut self.goaways, other.goaways),
            (&mut self.refused, other.refused),
        ] {
            *count += other;
        }
    }
}

/// One kind of request of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindResult {
    /// What it is called.
    pub name: String,
    /// How often it is asked for, relative to the weights of the others.
    pub weight: f64,
    /// What its requests brought.
    #[serde(flatten)]
    pub figures: GroupFigures,
}

/// One stage of a load that changes over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageResult {
    /// What was asked for in it.
    pub level: StageLevel,
    /// Its seconds, as they were planned.
    pub seconds: f64,
    /// What its requests brought: at a rate those that were due in it, of users those that were over in it.
    #[serde(flatten)]
    pub figures: GroupFigures,
}

/// How much a stage asks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StageLevel {
    /// Requests a second.
    Rate(f64),
    /// Users.
    Users(u32),
}

/// What some requests of a load brought in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupFigures {
    /// Right answers.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Requests that brought none: errors, and at a rate those that had no answer in the end.
    pub failed_requests: u64,
    /// From when a request was due until its answer was whole.
    #[serde(with = "if_any")]
    #[schemars(with = "Option<LatencySummary>")]
    pub response: LatencySummary,
}

/// Times in which no byte of any answer came: for [`Stalls::MIN_NANOSECONDS`] or longer, and longer than chance makes them of answers that come by
/// themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// Seconds of all together.
    pub seconds: f64,
}

impl Stalls {
    /// Nanoseconds of the shortest.
    pub const MIN_NANOSECONDS: u64 = 5_000_000;
    /// Mean times between answers that the shortest takes: of answers at random times one in e^20 is as long.
    pub const MIN_MEAN_INTERVALS: f64 = 20.0;
    /// Median response times that it takes: of a few users all may wait for as long as an answer takes.
    pub const MIN_MEDIAN_RESPONSES: f64 = 10.0;
}

/// One second of the measured time, by when answers were whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondResult {
    /// Right answers.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// What was no right answer.
    pub errors: u64,
    /// The median response time, in nanoseconds, of right answers as those below.
    pub p50: Option<f64>,
    /// 99 % of the response times are at most this.
    pub p99: Option<f64>,
    /// The longest response time.
    pub max: Option<f64>,
}

/// What the generator itself did in the measured time, all its threads together unless something else is stated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorStats {
    /// Seconds of CPU time that it worked, without those that it only looked at the clock; none where the measured time was too short
    /// for the kernel to tell of any.
    pub cpu: Option<f64>,
    /// Seconds that it looked at the clock until a request was due.
    pub spin_seconds: f64,
    /// Seconds that it could have run and had no CPU, where the kernel tells.
    pub off_cpu: Option<f64>,
    /// Share of the time that its busiest thread worked or had no CPU.
    pub busy: Option<f64>,
    /// Each of its threads.
    pub threads: Vec<GeneratorThread>,
    /// From when a request was due and could be sent until it was.
    #[serde(with = "if_any")]
    #[schemars(with = "Option<LatencySummary>")]
    pub late: LatencySummary,
    /// From when an answer had come until it was read, on average in nanoseconds: by the kernel's time of its last packet, and with
    /// TLS from when the kernel told of it.
    pub read_delay: Option<f64>,
    /// From when it began to send a request until that left, on average in nanoseconds, by the kernel's time of some; none with TLS
    /// or HTTP/2.
    pub send_delay: Option<f64>,
    /// What its delays added to the response time of each right answer: how late the request was sent, and with TLS how late the
    /// answer was read. A plain answer counts until it came.
    #[serde(with = "if_any")]
    #[schemars(with = "Option<LatencySummary>")]
    pub own_delay: LatencySummary,
    /// The 99 % quantile of these as a share of that of the response times, where the response times above it are therefore no
    /// measure of the server. Its rate, mean and median may still be one.
    pub slow_tail: Option<f64>,
    /// How often it was woken up and found nothing to do: more than a few times are a fault of the generator.
    pub spurious_wakeups: u64,
    /// The mean of these as a share of that of the response times, where it is so much that response times are no measure of the
    /// server. Those from when a request was sent may still be one, and so may the rate.
    pub slow_mean: Option<f64>,
    /// CPUs that its threads might run on.
    pub cpus: Vec<u32>,
    /// Why it, and not the server, may have been the limit.
    pub limit: Option<GeneratorLimit>,
}

/// What one thread of the generator did in the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorThread {
    /// Seconds of CPU time that it worked, as those of all threads.
    pub cpu: Option<f64>,
    /// Seconds that it looked at the clock until a request was due.
    pub spin_seconds: f64,
    /// Seconds that it could have run and had no CPU, where the kernel tells.
    pub off_cpu: Option<f64>,
    /// Share of the time that it worked or had no CPU.
    pub busy: Option<f64>,
    /// CPUs that it might run on.
    pub cpus: Vec<u32>,
}

/// Why the generator may have been the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GeneratorLimit {
    /// A thread worked, or waited for a CPU, for nearly all of the time.
    Busy {
        /// Which share of it.
        share: f64,
        /// Which thread, the busiest one, counted from 1 on in the order of [`GeneratorStats::threads`].
        thread: u32,
    },
    /// It sent requests so late that there were fewer of them.
    Late {
        /// Which share of the requests that leaves out.
        share: f64,
    },
}
