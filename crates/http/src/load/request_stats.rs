//! What of a load a thread counts: answers and failures of the measured time, their times, and each second; and the sum of several threads.

use std::ops::Range;

use kelvin_core::load::{GroupFigures, Http2Figures, LatencySummary, LoadResult, RequestErrors, Stalls};
use kelvin_stats::Histogram;

use crate::load::series::SecondStats;
use crate::load::setup::LoadSetup;

/// Nanoseconds of a second.
pub(crate) const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// How many times as long as the longest answer a request waits that gets none.
const STUCK_FACTOR: f64 = 10.0;

/// When one request was due, was sent, and was over, in nanoseconds of one clock; and its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTimestamps {
    pub(crate) due: u64,
    pub(crate) sent: u64,
    pub(crate) end: u64,
    /// How long of that the generator itself kept it waiting.
    pub(crate) generator_delay: u64,
    /// The number of its kind in a mix.
    pub(crate) kind: u32,
}

/// Why a request brought no right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    Connect,
    NoPort,
    Closed,
    #[cfg_attr(not(feature = "http2"), allow(dead_code, reason = "only a stream of HTTP/2 is reset"))]
    Reset,
    TimedOut,
    Truncated,
    Malformed,
    WrongBody,
    Status(u16),
}

/// Which requests belong to the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CountingRule {
    /// Those that are over in it: in a closed loop a request that takes long keeps others from being asked.
    #[default]
    WhenEnded,
    /// Those that become due in it, however long they take.
    WhenDue,
}

/// The mean of many times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RunningMean {
    sum: u64,
    count: u64,
}

impl RunningMean {
    pub fn add(&mut self, time: u64) {
        self.sum += time;
        self.count += 1;
    }

    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

/// Counts and times of some requests in the measured time: those of one kind, or of one stage.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GroupStats {
    requests: u64,
    bytes: u64,
    failures: u64,
    response: Histogram,
}

impl GroupStats {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.failures += other.failures;
        self.response.merge(&other.response);
    }

    pub(crate) fn figures(&self) -> GroupFigures {
        let &Self { requests, bytes, failures: failed_requests, ref response } = self;
        GroupFigures { requests, bytes, failed_requests, response: latency_summary(response) }
    }
}

/// Counts and times of the measured time, and of connections all the time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RequestStats {
    /// Connections that were made, and requests that were sent a second time.
    pub(crate) connections: u64,
    pub(crate) resent: u64,
    /// What HTTP/2 did all the time; nothing where HTTP/1.1 is spoken.
    pub(crate) http2: Option<Http2Figures>,
    /// Requests that waited for a free connection, and those that became due and were never sent.
    pub(crate) delayed: u64,
    pub(crate) unsent: u64,
    /// How often the thread was woken up for nothing.
    pub(crate) futile_wakeups: u64,
    /// How long answers that had come were not read: from when they came, and of that from when the loop was awake. That a sleeping
    /// thread is woken up late is no lack of CPU time, and no part of a response time.
    pub(crate) read_delay: RunningMean,
    pub(crate) queue_delay: RunningMean,
    /// How long requests took to leave.
    pub(crate) departure_delay: RunningMean,
    pub(crate) window: Range<u64>,
    rule: CountingRule,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Bytes of bodies that were read in the measured time.
    received: u64,
    pub(crate) errors: RequestErrors,
    /// When the first of them was over.
    first_error: Option<u64>,
    pub(crate) response: Histogram,
    pub(crate) service: Histogram,
    pub(crate) lateness: Histogram,
    /// What the generator itself added to response times.
    pub(crate) generator_delay: Histogram,
    /// Each kind of a mix, or each stage; none of a load that has neither.
    pub(crate) groups: Vec<GroupStats>,
    /// When each stage ends; none of a load that has no stages.
    pub(crate) stage_ends: Vec<u64>,
    /// Requests that became due.
    pub(crate) due: u64,
    /// When the last right answer that counts was whole, and after what response time the first one could be.
    last_answer: u64,
    min_response: u64,
    /// Nanoseconds in flight of all requests together.
    in_flight_time: u64,
    /// Requests that were in flight at the end.
    in_flight: Vec<RequestTimestamps>,
    /// When the last bytes of an answer came, and the times without any that may be stalls, in order.
    last_arrival: u64,
    gaps: Vec<Range<u64>>,
    /// How many seconds are over, those of them that were not taken yet, and the one that is not over.
    ended_seconds: u64,
    seconds: Vec<SecondStats>,
    second: SecondStats,
}

impl RequestStats {
    pub(crate) fn new(window: Range<u64>, rule: CountingRule, groups: usize) -> Self {
        let groups = (0..groups).map(|_| GroupStats::default()).collect();
        Self { window, rule, groups, min_response: u64::MAX, ..Self::default() }
    }

    /// Those of a load before its first request.
    pub(crate) fn of_load(setup: &LoadSetup) -> Self {
        let rule = if setup.demand.is_open_loop() { CountingRule::WhenDue } else { CountingRule::WhenEnded };
        let http2 = setup.http2_streams.map(|streams| Http2Figures { streams, ..Http2Figures::default() });
        Self { http2, ..Self::new(0..0, rule, setup.group_count()) }
    }

    /// A request was sent, by the generator's own doing so late.
    pub(crate) fn add_sent(&mut self, times: RequestTimestamps) {
        if self.window.contains(&times.due) {
            self.due += 1;
            self.lateness.record(times.generator_delay);
        }
    }

    /// This many bytes of a body were read, also of an answer that fails later.
    pub(crate) fn add_received(&mut self, time: u64, bytes: u64) {
        self.record_arrival(time);
        if self.window.contains(&time) {
            self.received += bytes;
        }
    }

    /// A right answer with a body of this many bytes.
    pub(crate) fn add_answer(&mut self, times: RequestTimestamps, bytes: u64) {
        self.add_in_flight(times);
        if self.window.contains(&times.end) {
            self.end_seconds(times.end);
            self.second.add_answer(bytes, times.end - times.due);
        }
        if self.is_counted(times) {
            self.requests += 1;
            self.bytes += bytes;
            self.last_answer = self.last_answer.max(times.end);
            self.min_response = self.min_response.min(times.end - times.due);
            self.response.record(times.end - times.due);
            self.service.record(times.end - times.sent);
            self.generator_delay.record(times.generator_delay);
            if let Some(group) = self.group(times) {
                group.requests += 1;
                group.bytes += bytes;
                group.response.record(times.end - times.due);
            }
        }
    }

    /// A request without a right answer, and the reason.
    pub fn add_failure(&mut self, times: RequestTimestamps, failure: RequestFailure, reason: impl FnOnce() -> String) {
        self.add_in_flight(times);
        if !self.is_counted(times) {
            return;
        }
        if let Some(group) = self.group(times) {
            group.failures += 1;
        }
        let errors = &mut self.errors;
        match failure {
            RequestFailure::Connect => errors.connect += 1,
            RequestFailure::NoPort => errors.no_port += 1,
            RequestFailure::Closed => errors.closed += 1,
            RequestFailure::Reset => errors.reset += 1,
            RequestFailure::TimedOut => errors.timed_out += 1,
            RequestFailure::Truncated => errors.short += 1,
            RequestFailure::Malformed => errors.malformed += 1,
            RequestFailure::WrongBody => errors.wrong += 1,
            RequestFailure::Status(status) => *errors.status.entry(status).or_default() += 1,
        }
        if errors.first.is_none() {
            errors.first = Some(reason());
            self.first_error = Some(times.end);
        }
        if self.window.contains(&times.end) {
            self.end_seconds(times.end);
            self.second.errors += 1;
        }
    }

    /// A request that is in flight when the measurement ends.
    pub(crate) fn add_unfinished(&mut self, times: RequestTimestamps) {
        self.add_in_flight(times);
        self.add_wait(times);
        self.in_flight.push(times);
    }

    /// A request that became due and was never sent.
    pub(crate) fn add_unsent(&mut self, due: u64, now: u64) {
        if self.window.contains(&due) {
            self.unsent += 1;
            self.add_wait(RequestTimestamps { due, sent: now, end: now, generator_delay: 0, kind: u32::MAX });
        }
    }

    /// How many requests have no answer at the end, sent or not.
    pub(crate) fn unanswered(&self) -> u64 {
        self.in_flight.iter().filter(|times| self.is_unanswered(**times)).count() as u64 + self.unsent
    }

    /// Whether a request that is in flight at the end counts as one without an answer. Each user has one in flight at any time: that of a
    /// closed loop counts where it was for nearly all of the measured time, or for far longer than any answer took.
    fn is_unanswered(&self, times: RequestTimestamps) -> bool {
        match self.rule {
            CountingRule::WhenEnded => {
                let wait = (times.end - times.sent) as f64;
                let is_long = self.service.max().is_none_or(|longest| wait > STUCK_FACTOR * longest);
                is_long || times.sent <= self.window.start + self.window_length() / 10
            }
            CountingRule::WhenDue => self.window.contains(&times.due),
        }
    }

    /// A request whose answer was not waited for, or that was never sent: an open loop counts how long it had waited.
    fn add_wait(&mut self, times: RequestTimestamps) {
        if self.rule == CountingRule::WhenDue && self.is_counted(times) {
            self.response.record(times.end - times.due);
            if let Some(group) = self.group(times) {
                group.failures += 1;
                group.response.record(times.end - times.due);
            }
        }
    }

    /// The measured time is over, maybe before it should be.
    pub(crate) fn close(&mut self, now: u64) {
        self.window.end = self.window.end.min(now.max(self.window.start));
        self.end_seconds(self.window.end);
        self.record_arrival(self.window.end);
    }

    /// Adds what another thread counted in the same measured time, after both were closed.
    pub(crate) fn merge(&mut self, other: Self) {
        // Threads that are stopped before the end stop one after the other, within microseconds.
        self.window.end = self.window.end.min(other.window.end);
        self.merge_counts(&other);
        for (mean, other) in [
            (&mut self.read_delay, other.read_delay),
            (&mut self.queue_delay, other.queue_delay),
            (&mut self.departure_delay, other.departure_delay),
        ] {
            mean.merge(other);
        }
        for (times, other) in [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.lateness, &other.lateness),
            (&mut self.generator_delay, &other.generator_delay),
        ] {
            times.merge(other);
        }
        for (group, other) in self.groups.iter_mut().zip(&other.groups) {
            group.merge(other);
        }
        self.last_answer = self.last_answer.max(other.last_answer);
        self.min_response = self.min_response.min(other.min_response);
        self.last_arrival = self.last_arrival.max(other.last_arrival);
        self.gaps = common_gaps(&self.gaps, &other.gaps);
        self.in_flight.extend(other.in_flight);
    }

    fn merge_counts(&mut self, other: &Self) {
        for (count, other) in [
            (&mut self.connections, other.connections),
            (&mut self.resent, other.resent),
            (&mut self.delayed, other.delayed),
            (&mut self.unsent, other.unsent),
            (&mut self.futile_wakeups, other.futile_wakeups),
            (&mut self.requests, other.requests),
            (&mut self.bytes, other.bytes),
            (&mut self.received, other.received),
            (&mut self.due, other.due),
            (&mut self.in_flight_time, other.in_flight_time),
        ] {
            *count += other;
        }
        if let (Some(http2), Some(other)) = (&mut self.http2, &other.http2) {
            http2.merge(other);
        }
        let is_other_first = other.first_error.is_some_and(|time| self.first_error.is_none_or(|first| time < first));
        if is_other_first {
            self.first_error = other.first_error;
        }
        self.errors.merge(&other.errors, is_other_first);
    }

    /// The figures, but for each second.
    pub(crate) fn summary(&self) -> LoadResult {
        LoadResult {
            seconds: self.seconds(),
            answer_seconds: self.answering_seconds(),
            requests: self.requests,
            bytes: self.bytes,
            received: self.received,
            response: latency_summary(&self.response),
            service: latency_summary(&self.service),
            errors: self.errors.clone(),
            in_flight: (self.in_flight_time > 0).then(|| self.in_flight_time as f64 / self.window_length() as f64),
            stalls: self.stalls(),
            connections: self.connections,
            resent: self.resent,
            http2: self.http2,
            ..LoadResult::empty("")
        }
    }

    fn window_length(&self) -> u64 {
        self.window.end - self.window.start
    }

    /// Seconds that were measured.
    pub(crate) fn seconds(&self) -> f64 {
        self.window_length() as f64 / NANOSECONDS_PER_SECOND as f64
    }

    /// Seconds in which the right answers came that count. Those of an open loop come as long after their requests as an answer takes
    /// at least; a server that is slower than what is asked of it still has some to give when the measured time is over. In a time
    /// shorter than an answer takes nothing was answered.
    pub(crate) fn answering_seconds(&self) -> f64 {
        let min_response = Some(self.min_response).filter(|&time| time < self.window_length()).unwrap_or(0);
        let overrun = self.last_answer.saturating_sub(self.window.end).saturating_sub(min_response);
        self.seconds() + overrun as f64 / NANOSECONDS_PER_SECOND as f64
    }

    /// Records bytes that came, and the gap before them.
    fn record_arrival(&mut self, time: u64) {
        let gap = self.last_arrival.max(self.window.start)..time.min(self.window.end);
        if is_long(&gap) {
            self.gaps.push(gap);
        }
        self.last_arrival = self.last_arrival.max(time);
    }

    /// The gaps that are too long to be chance.
    fn stalls(&self) -> Stalls {
        let answers = self.requests + self.errors.count();
        let mean = self.seconds() * NANOSECONDS_PER_SECOND as f64 / answers.max(1) as f64;
        let min_stall = (Stalls::MIN_MEAN_INTERVALS * mean)
            .max(Stalls::MIN_MEDIAN_RESPONSES * self.response.quantile(0.5).unwrap_or(0.0));
        let gaps = self.gaps.iter().map(|gap| gap.end - gap.start);
        let stalls: Vec<u64> = gaps.filter(|&gap| gap as f64 >= min_stall).collect();
        Stalls {
            count: stalls.len() as u64,
            seconds: stalls.iter().sum::<u64>() as f64 / NANOSECONDS_PER_SECOND as f64,
        }
    }

    /// What counts the request of a kind, or of a stage.
    fn group(&mut self, times: RequestTimestamps) -> Option<&mut GroupStats> {
        if self.stage_ends.is_empty() {
            return self.groups.get_mut(times.kind as usize);
        }
        let time = self.deciding_time(times);
        let stage = self.stage_ends.partition_point(|&end| end <= time);
        self.groups.get_mut(stage)
    }

    /// When a request happened, as far as it decides whether it counts.
    fn deciding_time(&self, times: RequestTimestamps) -> u64 {
        match self.rule {
            CountingRule::WhenEnded => times.end,
            CountingRule::WhenDue => times.due,
        }
    }

    fn is_counted(&self, times: RequestTimestamps) -> bool {
        self.window.contains(&self.deciding_time(times))
    }

    fn add_in_flight(&mut self, times: RequestTimestamps) {
        // Also of an answer without a body.
        if self.window.contains(&times.end) {
            self.record_arrival(times.end);
        }
        let (start, end) = (times.sent.max(self.window.start), times.end.min(self.window.end));
        self.in_flight_time += end.saturating_sub(start);
    }

    /// Ends the seconds that are over.
    pub(crate) fn end_seconds(&mut self, now: u64) {
        while now >= self.window.start + (self.ended_seconds + 1) * NANOSECONDS_PER_SECOND {
            self.ended_seconds += 1;
            self.seconds.push(std::mem::take(&mut self.second));
        }
    }

    /// Takes the seconds that are over and were not taken before.
    pub(crate) fn take_seconds(&mut self) -> Vec<SecondStats> {
        std::mem::take(&mut self.seconds)
    }
}

/// Whether a time without any byte of an answer may be a stall.
fn is_long(gap: &Range<u64>) -> bool {
    gap.end.saturating_sub(gap.start) >= Stalls::MIN_NANOSECONDS
}

/// The times in which neither of two threads got a byte, those that may be stalls. Each list is in order.
fn common_gaps(first: &[Range<u64>], second: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    let mut common = Vec::new();
    while let (Some(a), Some(b)) = (first.peek(), second.peek()) {
        common.push(a.start.max(b.start)..a.end.min(b.end));
        if a.end <= b.end {
            first.next()
        } else {
            second.next()
        };
    }
    common.retain(is_long);
    common
}

/// The figures of a histogram.
pub(crate) fn latency_summary(times: &Histogram) -> LatencySummary {
    let value = |share| times.quantile(share).unwrap_or(0.0);
    LatencySummary {
        count: times.count(),
        mean: times.mean().unwrap_or(0.0),
        p50: value(0.5),
        p90: value(0.9),
        p95: value(0.95),
        p99: value(0.99),
        p999: value(0.999),
        p9999: value(0.9999),
        max: times.max().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(due: u64, sent: u64, end: u64) -> RequestTimestamps {
        RequestTimestamps {
            due: due * NANOSECONDS_PER_SECOND,
            sent: sent * NANOSECONDS_PER_SECOND,
            end: end * NANOSECONDS_PER_SECOND,
            generator_delay: (sent - due) * NANOSECONDS_PER_SECOND,
            kind: 0,
        }
    }

    fn stats(belongs: CountingRule) -> RequestStats {
        RequestStats::new(10 * NANOSECONDS_PER_SECOND..20 * NANOSECONDS_PER_SECOND, belongs, 0)
    }

    #[test]
    fn closed_loop_counts_requests_ended_in_window() {
        let mut tally = stats(CountingRule::WhenEnded);
        tally.add_answer(times(8, 8, 9), 1);
        tally.add_answer(times(8, 9, 11), 10);
        tally.add_answer(times(19, 19, 21), 100);
        assert_eq!((tally.requests, tally.bytes, tally.response.count()), (1, 10, 1));
        // One second of the second, one of the third.
        assert!((tally.summary().in_flight.unwrap() - 0.2).abs() < 1e-9);
        assert!((latency_summary(&tally.response).max / 3e9 - 1.0).abs() < 0.001);
        assert!((latency_summary(&tally.service).max / 2e9 - 1.0).abs() < 0.001);
    }

    #[test]
    fn open_loop_counts_requests_due_in_window() {
        let mut tally = stats(CountingRule::WhenDue);
        tally.add_sent(times(9, 9, 0));
        tally.add_answer(times(9, 9, 11), 1);
        tally.add_sent(times(19, 19, 0));
        tally.add_answer(times(19, 19, 21), 1);
        tally.add_unsent(15 * NANOSECONDS_PER_SECOND, 22 * NANOSECONDS_PER_SECOND);
        assert_eq!((tally.requests, tally.due, tally.response.count()), (1, 1, 2));
        assert!((latency_summary(&tally.response).max / 7e9 - 1.0).abs() < 0.001);
    }

    #[test]
    fn late_answers_do_not_raise_rate() {
        let mut constant_delay = stats(CountingRule::WhenDue);
        let mut growing_delay = stats(CountingRule::WhenDue);
        for due in 10..20 {
            constant_delay.add_answer(times(due, due, due + 2), 1);
            growing_delay.add_answer(times(due, due, due + (due - 9)), 1);
        }
        assert_eq!(
            [constant_delay.summary(), growing_delay.summary()].map(|load| (load.requests, load.bytes)),
            [(10, 10); 2]
        );
        assert!((constant_delay.summary().rate() - 1.0).abs() < 1e-9);
        // The first after 1 s, the last 9 s after the end.
        assert!((growing_delay.summary().rate() - 10.0 / 18.0).abs() < 1e-9, "{}", growing_delay.summary().rate());
        let mut short_window =
            RequestStats::new(NANOSECONDS_PER_SECOND..NANOSECONDS_PER_SECOND + 1, CountingRule::WhenDue, 0);
        short_window.add_answer(times(1, 1, 3), 1);
        let load = short_window.summary();
        assert!(
            load.requests == 1 && (load.rate() - 0.5).abs() < 1e-6,
            "no answer came within a nanosecond: {}",
            load.rate()
        );
    }

    #[test]
    fn stuck_request_counts_as_unanswered() {
        let mut open = stats(CountingRule::WhenDue);
        [9, 10, 19].into_iter().for_each(|due| open.add_unfinished(times(due, due, 22)));
        open.add_unsent(19 * NANOSECONDS_PER_SECOND, 22 * NANOSECONDS_PER_SECOND);
        open.add_unsent(20 * NANOSECONDS_PER_SECOND, 22 * NANOSECONDS_PER_SECOND);
        assert_eq!((open.unanswered(), open.unsent, open.response.count()), (3, 1, 3));
        let mut closed = stats(CountingRule::WhenEnded);
        // Where nothing was answered, nothing that was asked was.
        assert!(closed.is_unanswered(times(19, 19, 22)));
        closed.add_answer(times(10, 10, 11), 1);
        assert_eq!(
            [1, 10, 11, 12, 19].map(|sent| closed.is_unanswered(times(sent, sent, 22))),
            [true, true, true, false, false]
        );
        // A server that stopped: answers took a tenth of a second, then none came for seven.
        let mut stalled = stats(CountingRule::WhenEnded);
        let [due, end] = [12 * NANOSECONDS_PER_SECOND, 12 * NANOSECONDS_PER_SECOND + NANOSECONDS_PER_SECOND / 10];
        stalled.add_answer(RequestTimestamps { due, sent: due, end, generator_delay: 0, kind: 0 }, 1);
        assert_eq!([13, 21].map(|sent| stalled.is_unanswered(times(sent, sent, 22))), [true, false]);
    }

    #[test]
    fn only_improbable_silence_counts_as_stall() {
        // An answer each millisecond, but for 300 ms of each second.
        let stalls_with_pause = |is_silent: fn(u64) -> bool| {
            let mut tally = stats(CountingRule::WhenEnded);
            for millisecond in (0..10_000).filter(|millisecond| !is_silent(millisecond % 1000)) {
                let end = 10 * NANOSECONDS_PER_SECOND + millisecond * 1_000_000;
                tally.add_answer(
                    RequestTimestamps { due: end - 900_000, sent: end - 900_000, end, generator_delay: 0, kind: 0 },
                    1,
                );
            }
            tally.close(20 * NANOSECONDS_PER_SECOND);
            tally.summary().stalls
        };
        let stalls = stalls_with_pause(|millisecond| millisecond < 300);
        assert_eq!(stalls.count, 10);
        assert!((stalls.seconds - 3.0).abs() < 0.02, "{stalls:?}");
        // At the end of each second, the last of which is over with the measured time.
        assert_eq!(stalls_with_pause(|millisecond| millisecond >= 700).count, 10);
        // Twenty mean times between answers, or ten response times, are no stall yet.
        assert_eq!(stalls_with_pause(|millisecond| millisecond < 15), Stalls::default());
        assert_eq!(stalls_with_pause(|_| false), Stalls::default());
        // Of a request each 300 ms nothing is known.
        assert_eq!(stalls_with_pause(|millisecond| millisecond % 300 != 0), Stalls::default());
    }

    /// Requests of all kinds, of which each thread has every n-th: the sum is what one thread counts.
    #[test]
    fn merged_threads_count_as_one() {
        let mut random = kelvin_stats::Random::new(3);
        let requests: Vec<RequestTimestamps> = (0..3000u64)
            .map(|number| {
                let due = 9 * NANOSECONDS_PER_SECOND + number * 4_000_000;
                let sent = due + random.index_below(900_000) as u64;
                // Time goes on by less than the next request, so that each thread records in order.
                let end = sent + 1 + random.index_below(3_000_000) as u64;
                RequestTimestamps { due, sent, end, generator_delay: sent - due, kind: 0 }
            })
            .collect();
        let record = |tally: &mut RequestStats, number: u64, times: RequestTimestamps| {
            tally.add_sent(times);
            match number % 10 {
                // Half a second in each three without any answer.
                _ if number % 750 < 125 => {}
                8 => tally.add_failure(times, RequestFailure::Status(500 + (number % 3) as u16), || number.to_string()),
                9 => tally.add_unfinished(times),
                _ => tally.add_answer(times, number),
            }
        };
        for rule in [CountingRule::WhenEnded, CountingRule::WhenDue] {
            for threads in [1, 2, 3, 8] {
                let (mut single, mut parts) = (stats(rule), Vec::new());
                parts.resize_with(threads, || stats(rule));
                for (number, &times) in requests.iter().enumerate() {
                    record(&mut single, number as u64, times);
                    record(&mut parts[number % threads], number as u64, times);
                }
                let end = 21 * NANOSECONDS_PER_SECOND;
                single.close(end);
                parts.iter_mut().for_each(|part| part.close(end));
                let mut series = crate::load::series::SecondSeries::new(threads as u32);
                for (number, part) in parts.iter_mut().enumerate() {
                    series.add(number as u32, part.take_seconds());
                }
                let mut single_series = crate::load::series::SecondSeries::new(1);
                single_series.add(0, single.take_seconds());
                assert_eq!(series.complete(), single_series.complete(), "{threads}");
                let mut merged = parts.remove(0);
                parts.into_iter().for_each(|part| merged.merge(part));
                merged.in_flight.sort_by_key(|times| times.due);
                let is_equal = merged.response == single.response && merged.service == single.service;
                assert!(is_equal && single.response.count() > 1000, "{rule:?} {threads}");
                assert_eq!(merged.summary(), single.summary(), "{rule:?} {threads}");
                assert_eq!(merged.unanswered(), single.unanswered());
                assert!(single.errors.first.is_some() && single.stalls().count > 0, "{:?}", single.stalls());
                assert_eq!(merged, single, "{rule:?} {threads}");
            }
        }
    }

    /// How long a request waits is judged by the answers of all threads: one thread may have none.
    #[test]
    fn thread_without_answers_is_judged_by_others() {
        let (mut answered, mut silent) = (stats(CountingRule::WhenEnded), stats(CountingRule::WhenEnded));
        answered.add_answer(times(10, 10, 11), 1);
        silent.add_unfinished(times(19, 19, 22));
        [&mut answered, &mut silent].into_iter().for_each(|part| part.close(22 * NANOSECONDS_PER_SECOND));
        assert_eq!(silent.unanswered(), 1);
        answered.merge(silent);
        assert_eq!((answered.requests, answered.unanswered()), (1, 0));
    }

    #[test]
    fn stall_is_silence_of_all_threads() {
        const MS: u64 = 1_000_000;
        let gaps = |ranges: &[(u64, u64)]| -> Vec<Range<u64>> {
            ranges.iter().map(|&(start, end)| start * MS..end * MS).collect()
        };
        let first = gaps(&[(0, 20), (30, 60), (70, 80)]);
        let second = gaps(&[(10, 40), (44, 48), (50, 90)]);
        // Those from 30 to 40, from 50 to 60 and from 70 to 80; from 44 to 48 is too short.
        assert_eq!(common_gaps(&first, &second), gaps(&[(10, 20), (30, 40), (50, 60), (70, 80)]));
        assert_eq!(common_gaps(&first, &[]), []);
        assert_eq!(common_gaps(&first, &first), first);
    }

    #[test]
    fn slow_answer_is_no_stall() {
        let mut tally = stats(CountingRule::WhenEnded);
        for index in 0..1000 {
            tally.add_received(10 * NANOSECONDS_PER_SECOND + index * 10_000_000, 1);
        }
        tally.add_answer(times(10, 10, 19), 1000);
        tally.close(20 * NANOSECONDS_PER_SECOND);
        assert_eq!(tally.summary().stalls, Stalls::default());
    }

    #[test]
    fn bytes_count_when_read() {
        let mut tally = stats(CountingRule::WhenDue);
        for (time, bytes) in [
            (10 * NANOSECONDS_PER_SECOND - 1, 1),
            (10 * NANOSECONDS_PER_SECOND, 10),
            (20 * NANOSECONDS_PER_SECOND - 1, 100),
            (20 * NANOSECONDS_PER_SECOND, 1000),
        ] {
            tally.add_received(time, bytes);
        }
        assert_eq!((tally.received, tally.bytes), (110, 0));
    }

    #[test]
    fn failures_are_not_counted_as_requests() {
        let mut tally = stats(CountingRule::WhenEnded);
        let kinds = [
            RequestFailure::Connect,
            RequestFailure::NoPort,
            RequestFailure::Closed,
            RequestFailure::Reset,
            RequestFailure::TimedOut,
            RequestFailure::Truncated,
            RequestFailure::Malformed,
            RequestFailure::WrongBody,
            RequestFailure::Status(503),
        ];
        for failure in kinds {
            tally.add_failure(times(11, 11, 12), failure, || format!("{failure:?}"));
        }
        tally.add_failure(times(1, 1, 2), RequestFailure::WrongBody, || unreachable!());
        assert_eq!((tally.errors.count(), tally.requests, tally.response.count()), (9, 0, 0));
        assert_eq!(tally.errors.status[&503], 1);
        assert_eq!(tally.errors.first.as_deref(), Some("Connect"));
    }

    #[test]
    fn every_second_has_its_own_counts() {
        let mut tally = stats(CountingRule::WhenEnded);
        tally.add_answer(times(10, 10, 10), 5);
        tally.add_answer(times(10, 10, 13), 7);
        tally.add_failure(times(13, 13, 13), RequestFailure::Closed, String::new);
        tally.close(15 * NANOSECONDS_PER_SECOND);
        let seconds = tally.take_seconds();
        let counts: Vec<_> = seconds.iter().map(|second| (second.requests, second.bytes, second.errors)).collect();
        assert_eq!(counts, [(1, 5, 0), (0, 0, 0), (0, 0, 0), (1, 7, 1), (0, 0, 0)]);
        assert_eq!(tally.take_seconds(), []);
        assert!((tally.seconds() - 5.0).abs() < 1e-9);
    }
}
