//! What of a load is counted: answers and failures of the measured time, their times, and each second.

use std::ops::Range;

use kelvin_core::load::{LatencySummary, LoadResult, RequestErrors, SecondResult, Stalls};
use kelvin_stats::Histogram;

/// Nanoseconds of a second.
pub(crate) const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// How many times as long as the longest answer a request waits that gets none.
const STUCK_FACTOR: f64 = 10.0;

/// When one request was due, was sent, and was over; nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTimestamps {
    pub(crate) due: u64,
    pub(crate) sent: u64,
    pub(crate) ended: u64,
    /// How long of that the generator itself kept it waiting.
    pub(crate) generator_delay: u64,
}

/// Why a request brought no right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    Connect,
    NoPort,
    Closed,
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
#[derive(Debug, Default)]
pub(crate) struct RunningMean {
    sum: u64,
    count: u64,
}

impl RunningMean {
    pub fn add(&mut self, time: u64) {
        self.sum += time;
        self.count += 1;
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

/// Counts and times of the measured time, and of connections all the time.
#[derive(Debug, Default)]
pub(crate) struct RequestStats {
    /// Connections that were made, and requests that were sent a second time.
    pub(crate) connections: u64,
    pub(crate) resent: u64,
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
    pub(crate) response: Histogram,
    pub(crate) service: Histogram,
    pub(crate) late: Histogram,
    /// What the generator itself added to response times.
    pub(crate) generator_delay: Histogram,
    /// Requests that became due.
    pub(crate) due: u64,
    /// When the last right answer that counts was whole, and after what response time the first one could be.
    last: u64,
    shortest: u64,
    /// Nanoseconds in flight of all requests together.
    in_flight: u64,
    /// Until when bytes of answers are known to have come, and the times without any that may be stalls.
    came: u64,
    quiet: Vec<u64>,
    pub(crate) series: Vec<SecondResult>,
    second: SecondResult,
    times: Histogram,
}

impl RequestStats {
    pub(crate) fn new(window: Range<u64>, rule: CountingRule) -> Self {
        Self { window, rule, shortest: u64::MAX, ..Self::default() }
    }

    /// A request was sent, by the generator's own doing so late.
    pub(crate) fn add_sent(&mut self, times: RequestTimestamps) {
        if self.window.contains(&times.due) {
            self.due += 1;
            self.late.record(times.generator_delay);
        }
    }

    /// This many bytes of a body were read, also of an answer that fails later.
    pub(crate) fn add_received(&mut self, time: u64, bytes: u64) {
        self.quiet_until(time);
        if self.window.contains(&time) {
            self.received += bytes;
        }
    }

    /// A right answer with a body of this many bytes.
    pub(crate) fn add_answer(&mut self, times: RequestTimestamps, bytes: u64) {
        self.add_in_flight(times);
        if self.window.contains(&times.ended) {
            self.end_seconds(times.ended);
            self.second.requests += 1;
            self.second.bytes += bytes;
            self.times.record(times.ended - times.due);
        }
        if self.is_counted(times) {
            self.requests += 1;
            self.bytes += bytes;
            self.last = self.last.max(times.ended);
            self.shortest = self.shortest.min(times.ended - times.due);
            self.response.record(times.ended - times.due);
            self.service.record(times.ended - times.sent);
            self.generator_delay.record(times.generator_delay);
        }
    }

    /// No right answer, and what it said.
    pub fn add_failure(&mut self, times: RequestTimestamps, failure: RequestFailure, reason: impl FnOnce() -> String) {
        self.add_in_flight(times);
        if !self.is_counted(times) {
            return;
        }
        let errors = &mut self.errors;
        match failure {
            RequestFailure::Connect => errors.connect += 1,
            RequestFailure::NoPort => errors.no_port += 1,
            RequestFailure::Closed => errors.closed += 1,
            RequestFailure::TimedOut => errors.timed_out += 1,
            RequestFailure::Truncated => errors.short += 1,
            RequestFailure::Malformed => errors.malformed += 1,
            RequestFailure::WrongBody => errors.wrong += 1,
            RequestFailure::Status(status) => *errors.status.entry(status).or_default() += 1,
        }
        errors.first.get_or_insert_with(reason);
        if self.window.contains(&times.ended) {
            self.end_seconds(times.ended);
            self.second.errors += 1;
        }
    }

    /// A request that is in flight when the measurement ends; whether it counts as one without an answer. Each user has one in flight
    /// at any time: that of a closed loop counts where it was for nearly all of the measured time, or for far longer than any answer
    /// took.
    pub(crate) fn add_unanswered(&mut self, times: RequestTimestamps) -> bool {
        self.add_in_flight(times);
        self.add_wait(times);
        match self.rule {
            CountingRule::WhenEnded => {
                let waited = (times.ended - times.sent) as f64;
                let is_long = self.service.max().is_none_or(|longest| waited > STUCK_FACTOR * longest);
                is_long || times.sent <= self.window.start + self.window_length() / 10
            }
            CountingRule::WhenDue => self.window.contains(&times.due),
        }
    }

    /// A request whose answer was not waited for, or that was never sent: an open loop counts how long it had waited.
    pub(crate) fn add_wait(&mut self, times: RequestTimestamps) {
        if self.rule == CountingRule::WhenDue && self.is_counted(times) {
            self.response.record(times.ended - times.due);
        }
    }

    /// The measured time is over, maybe before it should be.
    pub(crate) fn close(&mut self, now: u64) {
        self.window.end = self.window.end.min(now.max(self.window.start));
        self.end_seconds(self.window.end);
    }

    /// The figures so far.
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
            in_flight: (self.in_flight > 0).then(|| self.in_flight as f64 / self.window_length() as f64),
            stalls: self.stalls(),
            series: self.series.clone(),
            connections: self.connections,
            resent: self.resent,
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
        let takes = Some(self.shortest).filter(|&takes| takes < self.window_length()).unwrap_or(0);
        let behind = self.last.saturating_sub(self.window.end).saturating_sub(takes);
        self.seconds() + behind as f64 / NANOSECONDS_PER_SECOND as f64
    }

    /// Something came: a time without anything is over.
    fn quiet_until(&mut self, time: u64) {
        let quiet = time.min(self.window.end).saturating_sub(self.came.max(self.window.start));
        if quiet >= Stalls::LEAST {
            self.quiet.push(quiet);
        }
        self.came = self.came.max(time);
    }

    /// The times without anything that no chance makes so long.
    fn stalls(&self) -> Stalls {
        let answers = self.requests + self.errors.count();
        let mean = self.seconds() * NANOSECONDS_PER_SECOND as f64 / answers.max(1) as f64;
        let min_stall = (Stalls::MEANS * mean).max(Stalls::RESPONSES * self.response.quantile(0.5).unwrap_or(0.0));
        let last = self.window.end.saturating_sub(self.came.max(self.window.start));
        let quiet_times = self.quiet.iter().copied().chain(Some(last).filter(|&quiet| quiet >= Stalls::LEAST));
        let stalls: Vec<u64> = quiet_times.filter(|&quiet| quiet as f64 >= min_stall).collect();
        Stalls {
            count: stalls.len() as u64,
            seconds: stalls.iter().sum::<u64>() as f64 / NANOSECONDS_PER_SECOND as f64,
        }
    }

    fn is_counted(&self, times: RequestTimestamps) -> bool {
        self.window.contains(match self.rule {
            CountingRule::WhenEnded => &times.ended,
            CountingRule::WhenDue => &times.due,
        })
    }

    fn add_in_flight(&mut self, times: RequestTimestamps) {
        // Also of an answer without a body.
        if self.window.contains(&times.ended) {
            self.quiet_until(times.ended);
        }
        let (from, to) = (times.sent.max(self.window.start), times.ended.min(self.window.end));
        self.in_flight += to.saturating_sub(from);
    }

    /// Ends the seconds that are over.
    pub(crate) fn end_seconds(&mut self, now: u64) {
        while now >= self.window.start + (self.series.len() as u64 + 1) * NANOSECONDS_PER_SECOND {
            let value = |share| self.times.quantile(share);
            self.series.push(SecondResult { p50: value(0.5), p99: value(0.99), max: value(1.0), ..self.second });
            self.second = SecondResult::default();
            self.times.clear();
        }
    }
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

    fn times(due: u64, sent: u64, over: u64) -> RequestTimestamps {
        RequestTimestamps {
            due: due * NANOSECONDS_PER_SECOND,
            sent: sent * NANOSECONDS_PER_SECOND,
            ended: over * NANOSECONDS_PER_SECOND,
            generator_delay: (sent - due) * NANOSECONDS_PER_SECOND,
        }
    }

    fn stats(belongs: CountingRule) -> RequestStats {
        RequestStats::new(10 * NANOSECONDS_PER_SECOND..20 * NANOSECONDS_PER_SECOND, belongs)
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
        tally.add_wait(times(15, 22, 22));
        assert_eq!((tally.requests, tally.due, tally.response.count()), (1, 1, 2));
        assert!((latency_summary(&tally.response).max / 7e9 - 1.0).abs() < 0.001);
    }

    #[test]
    fn late_answers_do_not_raise_rate() {
        let mut kept = stats(CountingRule::WhenDue);
        let mut lagging = stats(CountingRule::WhenDue);
        for due in 10..20 {
            kept.add_answer(times(due, due, due + 2), 1);
            lagging.add_answer(times(due, due, due + (due - 9)), 1);
        }
        assert_eq!([kept.summary(), lagging.summary()].map(|load| (load.requests, load.bytes)), [(10, 10); 2]);
        assert!((kept.summary().rate() - 1.0).abs() < 1e-9);
        // The first after 1 s, the last 9 s after the end.
        assert!((lagging.summary().rate() - 10.0 / 18.0).abs() < 1e-9, "{}", lagging.summary().rate());
        let mut short = RequestStats::new(NANOSECONDS_PER_SECOND..NANOSECONDS_PER_SECOND + 1, CountingRule::WhenDue);
        short.add_answer(times(1, 1, 3), 1);
        let load = short.summary();
        assert!(
            load.requests == 1 && (load.rate() - 0.5).abs() < 1e-6,
            "no answer came within a nanosecond: {}",
            load.rate()
        );
    }

    #[test]
    fn stuck_request_counts_as_unanswered() {
        let mut open = stats(CountingRule::WhenDue);
        assert_eq!([9, 10, 19].map(|due| open.add_unanswered(times(due, due, 22))), [false, true, true]);
        let mut closed = stats(CountingRule::WhenEnded);
        // Where nothing was answered, nothing that was asked was.
        assert!(closed.add_unanswered(times(19, 19, 22)));
        closed.add_answer(times(10, 10, 11), 1);
        assert_eq!(
            [1, 10, 11, 12, 19].map(|sent| closed.add_unanswered(times(sent, sent, 22))),
            [true, true, true, false, false]
        );
        // A server that stopped: answers took a tenth of a second, then none came for seven.
        let mut stopped = stats(CountingRule::WhenEnded);
        let [due, over] = [12 * NANOSECONDS_PER_SECOND, 12 * NANOSECONDS_PER_SECOND + NANOSECONDS_PER_SECOND / 10];
        stopped.add_answer(RequestTimestamps { due, sent: due, ended: over, generator_delay: 0 }, 1);
        assert_eq!([13, 21].map(|sent| stopped.add_unanswered(times(sent, sent, 22))), [true, false]);
    }

    #[test]
    fn stalls_are_times_without_a_byte_that_chance_does_not_make() {
        // An answer each millisecond, but for 300 ms of each second.
        let answered = |is_silent: fn(u64) -> bool| {
            let mut tally = stats(CountingRule::WhenEnded);
            for at in (0..10_000).filter(|at| !is_silent(at % 1000)) {
                let over = 10 * NANOSECONDS_PER_SECOND + at * 1_000_000;
                tally.add_answer(
                    RequestTimestamps { due: over - 900_000, sent: over - 900_000, ended: over, generator_delay: 0 },
                    1,
                );
            }
            tally.close(20 * NANOSECONDS_PER_SECOND);
            tally.summary().stalls
        };
        let stalls = answered(|at| at < 300);
        assert_eq!(stalls.count, 10);
        assert!((stalls.seconds - 3.0).abs() < 0.02, "{stalls:?}");
        // At the end of each second, the last of which is over with the measured time.
        assert_eq!(answered(|at| at >= 700).count, 10);
        // Twenty mean times between answers, or ten response times, are no stall yet.
        assert_eq!(answered(|at| at < 15), Stalls::default());
        assert_eq!(answered(|_| false), Stalls::default());
        // Of a request each 300 ms nothing is known.
        assert_eq!(answered(|at| at % 300 != 0), Stalls::default());
    }

    #[test]
    fn an_answer_that_comes_slowly_is_no_stall() {
        let mut tally = stats(CountingRule::WhenEnded);
        for at in 0..1000 {
            tally.add_received(10 * NANOSECONDS_PER_SECOND + at * 10_000_000, 1);
        }
        tally.add_answer(times(10, 10, 19), 1000);
        tally.close(20 * NANOSECONDS_PER_SECOND);
        assert_eq!(tally.summary().stalls, Stalls::default());
    }

    #[test]
    fn bytes_count_when_read() {
        let mut tally = stats(CountingRule::WhenDue);
        for (at, bytes) in [
            (10 * NANOSECONDS_PER_SECOND - 1, 1),
            (10 * NANOSECONDS_PER_SECOND, 10),
            (20 * NANOSECONDS_PER_SECOND - 1, 100),
            (20 * NANOSECONDS_PER_SECOND, 1000),
        ] {
            tally.add_received(at, bytes);
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
        assert_eq!((tally.errors.count(), tally.requests, tally.response.count()), (8, 0, 0));
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
        let counted: Vec<_> =
            tally.series.iter().map(|second| (second.requests, second.bytes, second.errors)).collect();
        assert_eq!(counted, [(1, 5, 0), (0, 0, 0), (0, 0, 0), (1, 7, 1), (0, 0, 0)]);
        assert!((tally.seconds() - 5.0).abs() < 1e-9);
    }
}
