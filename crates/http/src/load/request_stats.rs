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
    pub(crate) end: u64,
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
    pub(crate) lateness: Histogram,
    /// What the generator itself added to response times.
    pub(crate) generator_delay: Histogram,
    /// Requests that became due.
    pub(crate) due: u64,
    /// When the last right answer that counts was whole, and after what response time the first one could be.
    last_answer: u64,
    min_response: u64,
    /// Nanoseconds in flight of all requests together.
    in_flight_time: u64,
    /// When the last bytes of an answer came, and the times without any that may be stalls.
    last_arrival: u64,
    gaps: Vec<u64>,
    pub(crate) series: Vec<SecondResult>,
    second: SecondResult,
    times: Histogram,
}

impl RequestStats {
    pub(crate) fn new(window: Range<u64>, rule: CountingRule) -> Self {
        Self { window, rule, min_response: u64::MAX, ..Self::default() }
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
            self.second.requests += 1;
            self.second.bytes += bytes;
            self.times.record(times.end - times.due);
        }
        if self.is_counted(times) {
            self.requests += 1;
            self.bytes += bytes;
            self.last_answer = self.last_answer.max(times.end);
            self.min_response = self.min_response.min(times.end - times.due);
            self.response.record(times.end - times.due);
            self.service.record(times.end - times.sent);
            self.generator_delay.record(times.generator_delay);
        }
    }

    /// A request without a right answer, and the reason.
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
        if self.window.contains(&times.end) {
            self.end_seconds(times.end);
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
                let wait = (times.end - times.sent) as f64;
                let is_long = self.service.max().is_none_or(|longest| wait > STUCK_FACTOR * longest);
                is_long || times.sent <= self.window.start + self.window_length() / 10
            }
            CountingRule::WhenDue => self.window.contains(&times.due),
        }
    }

    /// A request whose answer was not waited for, or that was never sent: an open loop counts how long it had waited.
    pub(crate) fn add_wait(&mut self, times: RequestTimestamps) {
        if self.rule == CountingRule::WhenDue && self.is_counted(times) {
            self.response.record(times.end - times.due);
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
            in_flight: (self.in_flight_time > 0).then(|| self.in_flight_time as f64 / self.window_length() as f64),
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
        let min_response = Some(self.min_response).filter(|&time| time < self.window_length()).unwrap_or(0);
        let overrun = self.last_answer.saturating_sub(self.window.end).saturating_sub(min_response);
        self.seconds() + overrun as f64 / NANOSECONDS_PER_SECOND as f64
    }

    /// Records bytes that came, and the gap before them.
    fn record_arrival(&mut self, time: u64) {
        let gap = time.min(self.window.end).saturating_sub(self.last_arrival.max(self.window.start));
        if gap >= Stalls::MIN_NANOSECONDS {
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
        let last = self.window.end.saturating_sub(self.last_arrival.max(self.window.start));
        let gaps = self.gaps.iter().copied().chain(Some(last).filter(|&gap| gap >= Stalls::MIN_NANOSECONDS));
        let stalls: Vec<u64> = gaps.filter(|&gap| gap as f64 >= min_stall).collect();
        Stalls {
            count: stalls.len() as u64,
            seconds: stalls.iter().sum::<u64>() as f64 / NANOSECONDS_PER_SECOND as f64,
        }
    }

    fn is_counted(&self, times: RequestTimestamps) -> bool {
        self.window.contains(match self.rule {
            CountingRule::WhenEnded => &times.end,
            CountingRule::WhenDue => &times.due,
        })
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

    fn times(due: u64, sent: u64, end: u64) -> RequestTimestamps {
        RequestTimestamps {
            due: due * NANOSECONDS_PER_SECOND,
            sent: sent * NANOSECONDS_PER_SECOND,
            end: end * NANOSECONDS_PER_SECOND,
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
            RequestStats::new(NANOSECONDS_PER_SECOND..NANOSECONDS_PER_SECOND + 1, CountingRule::WhenDue);
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
        let mut stalled = stats(CountingRule::WhenEnded);
        let [due, end] = [12 * NANOSECONDS_PER_SECOND, 12 * NANOSECONDS_PER_SECOND + NANOSECONDS_PER_SECOND / 10];
        stalled.add_answer(RequestTimestamps { due, sent: due, end, generator_delay: 0 }, 1);
        assert_eq!([13, 21].map(|sent| stalled.add_unanswered(times(sent, sent, 22))), [true, false]);
    }

    #[test]
    fn only_improbable_silence_counts_as_stall() {
        // An answer each millisecond, but for 300 ms of each second.
        let stalls_with_pause = |is_silent: fn(u64) -> bool| {
            let mut tally = stats(CountingRule::WhenEnded);
            for millisecond in (0..10_000).filter(|millisecond| !is_silent(millisecond % 1000)) {
                let end = 10 * NANOSECONDS_PER_SECOND + millisecond * 1_000_000;
                tally.add_answer(
                    RequestTimestamps { due: end - 900_000, sent: end - 900_000, end, generator_delay: 0 },
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
        let counts: Vec<_> = tally.series.iter().map(|second| (second.requests, second.bytes, second.errors)).collect();
        assert_eq!(counts, [(1, 5, 0), (0, 0, 0), (0, 0, 0), (1, 7, 1), (0, 0, 0)]);
        assert!((tally.seconds() - 5.0).abs() < 1e-9);
    }
}
