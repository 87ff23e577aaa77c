//! What of a load is counted: answers and failures of the measured time, their times, and each second.

use std::ops::Range;

use kelvin_model::load::{Errors, Latency, Load, Second, Stalls};
use kelvin_stats::Histogram;

/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// How many times as long as the longest answer a request waits that gets none.
const FAR_LONGER: f64 = 10.0;

/// When one request was due, was sent, and was over; nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) due: u64,
    pub(crate) sent: u64,
    pub(crate) over: u64,
    /// How long of that the generator itself kept it waiting.
    pub(crate) own: u64,
}

/// Why a request brought no right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Connect,
    NoPort,
    Closed,
    TimedOut,
    Short,
    Malformed,
    Wrong,
    Status(u16),
}

/// Which requests belong to the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// Those that are over in it: in a closed loop a request that takes long keeps others from being asked.
    WhenOver,
    /// Those that become due in it, however long they take.
    WhenDue,
}

/// Counts and times of the measured time.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) window: Range<u64>,
    belongs: Belongs,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Bytes of bodies that were read in the measured time.
    received: u64,
    pub(crate) errors: Errors,
    pub(crate) response: Histogram,
    pub(crate) service: Histogram,
    pub(crate) late: Histogram,
    /// What the generator itself added to response times.
    pub(crate) own: Histogram,
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
    pub(crate) series: Vec<Second>,
    second: Second,
    times: Histogram,
}

impl Tally {
    pub(crate) fn new(window: Range<u64>, belongs: Belongs) -> Self {
        Self {
            window,
            belongs,
            requests: 0,
            bytes: 0,
            received: 0,
            errors: Errors::default(),
            response: Histogram::new(),
            service: Histogram::new(),
            late: Histogram::new(),
            own: Histogram::new(),
            due: 0,
            last: 0,
            shortest: u64::MAX,
            in_flight: 0,
            came: 0,
            quiet: Vec::new(),
            series: Vec::new(),
            second: Second::default(),
            times: Histogram::new(),
        }
    }

    /// A request was sent, by the generator's own doing so late.
    pub(crate) fn sent(&mut self, times: Times) {
        if self.window.contains(&times.due) {
            self.due += 1;
            self.late.record(times.own);
        }
    }

    /// So many bytes of a body were read, whatever becomes of its answer.
    pub(crate) fn came(&mut self, at: u64, bytes: u64) {
        self.quiet_until(at);
        if self.window.contains(&at) {
            self.received += bytes;
        }
    }

    /// A right answer with a body of so many bytes.
    pub(crate) fn answer(&mut self, times: Times, bytes: u64) {
        self.flew(times);
        if self.window.contains(&times.over) {
            self.roll(times.over);
            self.second.requests += 1;
            self.second.bytes += bytes;
            self.times.record(times.over - times.due);
        }
        if self.is_counted(times) {
            self.requests += 1;
            self.bytes += bytes;
            self.last = self.last.max(times.over);
            self.shortest = self.shortest.min(times.over - times.due);
            self.response.record(times.over - times.due);
            self.service.record(times.over - times.sent);
            self.own.record(times.own);
        }
    }

    /// No right answer, and what it said.
    pub(crate) fn failure(&mut self, times: Times, failure: Failure, said: impl FnOnce() -> String) {
        self.flew(times);
        if !self.is_counted(times) {
            return;
        }
        let errors = &mut self.errors;
        match failure {
            Failure::Connect => errors.connect += 1,
            Failure::NoPort => errors.no_port += 1,
            Failure::Closed => errors.closed += 1,
            Failure::TimedOut => errors.timed_out += 1,
            Failure::Short => errors.short += 1,
            Failure::Malformed => errors.malformed += 1,
            Failure::Wrong => errors.wrong += 1,
            Failure::Status(status) => *errors.status.entry(status).or_default() += 1,
        }
        errors.first.get_or_insert_with(said);
        if self.window.contains(&times.over) {
            self.roll(times.over);
            self.second.errors += 1;
        }
    }

    /// A request that is in flight when the measurement ends; whether it counts as one without an answer. Each user has one in flight
    /// at any time: that of a closed loop counts where it was for nearly all of the measured time, or for far longer than any answer
    /// took.
    pub(crate) fn unanswered(&mut self, times: Times) -> bool {
        self.flew(times);
        self.waited(times);
        match self.belongs {
            Belongs::WhenOver => {
                let waited = (times.over - times.sent) as f64;
                let is_long = self.service.longest().is_none_or(|longest| waited > FAR_LONGER * longest);
                is_long || times.sent <= self.window.start + (self.window.end - self.window.start) / 10
            }
            Belongs::WhenDue => self.window.contains(&times.due),
        }
    }

    /// A request whose answer was not waited for, or that was never sent: an open loop counts how long it had waited.
    pub(crate) fn waited(&mut self, times: Times) {
        if self.belongs == Belongs::WhenDue && self.is_counted(times) {
            self.response.record(times.over - times.due);
        }
    }

    /// The measured time is over, maybe before it should be.
    pub(crate) fn end(&mut self, now: u64) {
        self.window.end = self.window.end.min(now.max(self.window.start));
        self.roll(self.window.end);
    }

    /// The figures so far.
    pub(crate) fn figures(&self) -> Load {
        Load {
            seconds: self.seconds(),
            answering: self.answering(),
            requests: self.requests,
            bytes: self.bytes,
            received: self.received,
            response: latency(&self.response),
            service: latency(&self.service),
            errors: self.errors.clone(),
            in_flight: self.in_flight(),
            stalls: self.stalls(),
            series: self.series.clone(),
            ..Load::empty("")
        }
    }

    /// Seconds that were measured.
    pub(crate) fn seconds(&self) -> f64 {
        (self.window.end - self.window.start) as f64 / SECOND as f64
    }

    /// Seconds in which the right answers came that count. Those of an open loop come as long after their requests as an answer takes
    /// at least; a server that is slower than what is asked of it still has some to give when the measured time is over. In a time
    /// shorter than an answer takes nothing was answered.
    pub(crate) fn answering(&self) -> f64 {
        let takes = Some(self.shortest).filter(|&takes| takes < self.window.end - self.window.start).unwrap_or(0);
        let behind = self.last.saturating_sub(self.window.end).saturating_sub(takes);
        self.seconds() + behind as f64 / SECOND as f64
    }

    /// Requests in flight, averaged over the measured time, if any was.
    pub(crate) fn in_flight(&self) -> Option<f64> {
        (self.in_flight > 0).then(|| self.in_flight as f64 / (self.window.end - self.window.start) as f64)
    }

    /// Something came: a time without anything is over.
    fn quiet_until(&mut self, at: u64) {
        let quiet = at.min(self.window.end).saturating_sub(self.came.max(self.window.start));
        if quiet >= Stalls::LEAST {
            self.quiet.push(quiet);
        }
        self.came = self.came.max(at);
    }

    /// The times without anything that no chance makes so long.
    fn stalls(&self) -> Stalls {
        let answers = self.requests + self.errors.count();
        let mean = self.seconds() * SECOND as f64 / answers.max(1) as f64;
        let least = (Stalls::MEANS * mean).max(Stalls::RESPONSES * self.response.quantile(0.5).unwrap_or(0.0));
        let last = self.window.end.saturating_sub(self.came.max(self.window.start));
        let all = self.quiet.iter().copied().chain(Some(last).filter(|&quiet| quiet >= Stalls::LEAST));
        let stalls: Vec<u64> = all.filter(|&quiet| quiet as f64 >= least).collect();
        Stalls { count: stalls.len() as u64, seconds: stalls.iter().sum::<u64>() as f64 / SECOND as f64 }
    }

    fn is_counted(&self, times: Times) -> bool {
        self.window.contains(match self.belongs {
            Belongs::WhenOver => &times.over,
            Belongs::WhenDue => &times.due,
        })
    }

    fn flew(&mut self, times: Times) {
        // Also of an answer without a body.
        if self.window.contains(&times.over) {
            self.quiet_until(times.over);
        }
        let (from, to) = (times.sent.max(self.window.start), times.over.min(self.window.end));
        self.in_flight += to.saturating_sub(from);
    }

    /// So much time has passed.
    pub(crate) fn pass(&mut self, now: u64) {
        self.roll(now.min(self.window.end));
    }

    /// Ends the seconds that are over.
    fn roll(&mut self, now: u64) {
        while now >= self.window.start + (self.series.len() as u64 + 1) * SECOND {
            let at = |share| self.times.quantile(share);
            self.series.push(Second { p50: at(0.5), p99: at(0.99), max: at(1.0), ..self.second });
            self.second = Second::default();
            self.times.clear();
        }
    }
}

/// The figures of a histogram.
pub(crate) fn latency(times: &Histogram) -> Latency {
    let at = |share| times.quantile(share).unwrap_or(0.0);
    Latency {
        count: times.count(),
        mean: times.mean().unwrap_or(0.0),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: times.longest().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(due: u64, sent: u64, over: u64) -> Times {
        Times { due: due * SECOND, sent: sent * SECOND, over: over * SECOND, own: (sent - due) * SECOND }
    }

    fn tally(belongs: Belongs) -> Tally {
        Tally::new(10 * SECOND..20 * SECOND, belongs)
    }

    #[test]
    fn a_closed_loop_counts_what_is_over_in_the_measured_time() {
        let mut tally = tally(Belongs::WhenOver);
        tally.answer(times(8, 8, 9), 1);
        tally.answer(times(8, 9, 11), 10);
        tally.answer(times(19, 19, 21), 100);
        assert_eq!((tally.requests, tally.bytes, tally.response.count()), (1, 10, 1));
        // One second of the second, one of the third.
        assert!((tally.in_flight().unwrap() - 0.2).abs() < 1e-9);
        assert!((latency(&tally.response).max / 3e9 - 1.0).abs() < 0.001);
        assert!((latency(&tally.service).max / 2e9 - 1.0).abs() < 0.001);
    }

    #[test]
    fn an_open_loop_counts_what_was_due_in_the_measured_time_and_how_long_the_rest_had_waited() {
        let mut tally = tally(Belongs::WhenDue);
        tally.sent(times(9, 9, 0));
        tally.answer(times(9, 9, 11), 1);
        tally.sent(times(19, 19, 0));
        tally.answer(times(19, 19, 21), 1);
        tally.waited(times(15, 22, 22));
        assert_eq!((tally.requests, tally.due, tally.response.count()), (1, 1, 2));
        assert!((latency(&tally.response).max / 7e9 - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_server_that_lags_behind_a_rate_is_no_faster_for_what_it_answers_afterwards() {
        let mut kept = tally(Belongs::WhenDue);
        let mut lagging = tally(Belongs::WhenDue);
        for due in 10..20 {
            kept.answer(times(due, due, due + 2), 1);
            lagging.answer(times(due, due, due + (due - 9)), 1);
        }
        assert_eq!([kept.figures(), lagging.figures()].map(|load| (load.requests, load.bytes)), [(10, 10); 2]);
        assert!((kept.figures().rate() - 1.0).abs() < 1e-9);
        // The first after 1 s, the last 9 s after the end.
        assert!((lagging.figures().rate() - 10.0 / 18.0).abs() < 1e-9, "{}", lagging.figures().rate());
        let mut short = Tally::new(SECOND..SECOND + 1, Belongs::WhenDue);
        short.answer(times(1, 1, 3), 1);
        let load = short.figures();
        assert!(
            load.requests == 1 && (load.rate() - 0.5).abs() < 1e-6,
            "no answer came within a nanosecond: {}",
            load.rate()
        );
    }

    #[test]
    fn a_request_in_flight_at_the_end_has_no_answer_where_it_was_due_or_had_long_been_sent() {
        let mut open = tally(Belongs::WhenDue);
        assert_eq!([9, 10, 19].map(|due| open.unanswered(times(due, due, 22))), [false, true, true]);
        let mut closed = tally(Belongs::WhenOver);
        // Where nothing was answered, nothing that was asked was.
        assert!(closed.unanswered(times(19, 19, 22)));
        closed.answer(times(10, 10, 11), 1);
        assert_eq!(
            [1, 10, 11, 12, 19].map(|sent| closed.unanswered(times(sent, sent, 22))),
            [true, true, true, false, false]
        );
        // A server that stopped: answers took a tenth of a second, then none came for seven.
        let mut stopped = tally(Belongs::WhenOver);
        let [due, over] = [12 * SECOND, 12 * SECOND + SECOND / 10];
        stopped.answer(Times { due, sent: due, over, own: 0 }, 1);
        assert_eq!([13, 21].map(|sent| stopped.unanswered(times(sent, sent, 22))), [true, false]);
    }

    #[test]
    fn stalls_are_times_without_a_byte_that_chance_does_not_make() {
        // An answer each millisecond, but for 300 ms of each second.
        let answered = |is_silent: fn(u64) -> bool| {
            let mut tally = tally(Belongs::WhenOver);
            for at in (0..10_000).filter(|at| !is_silent(at % 1000)) {
                let over = 10 * SECOND + at * 1_000_000;
                tally.answer(Times { due: over - 900_000, sent: over - 900_000, over, own: 0 }, 1);
            }
            tally.end(20 * SECOND);
            tally.figures().stalls
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
        let mut tally = tally(Belongs::WhenOver);
        for at in 0..1000 {
            tally.came(10 * SECOND + at * 10_000_000, 1);
        }
        tally.answer(times(10, 10, 19), 1000);
        tally.end(20 * SECOND);
        assert_eq!(tally.figures().stalls, Stalls::default());
    }

    #[test]
    fn bytes_count_when_they_are_read_whenever_their_answer_began_or_ends() {
        let mut tally = tally(Belongs::WhenDue);
        for (at, bytes) in [(10 * SECOND - 1, 1), (10 * SECOND, 10), (20 * SECOND - 1, 100), (20 * SECOND, 1000)] {
            tally.came(at, bytes);
        }
        assert_eq!((tally.received, tally.bytes), (110, 0));
    }

    #[test]
    fn failures_are_apart_and_never_among_the_requests() {
        let mut tally = tally(Belongs::WhenOver);
        let kinds = [
            Failure::Connect,
            Failure::NoPort,
            Failure::Closed,
            Failure::TimedOut,
            Failure::Short,
            Failure::Malformed,
            Failure::Wrong,
            Failure::Status(503),
        ];
        for failure in kinds {
            tally.failure(times(11, 11, 12), failure, || format!("{failure:?}"));
        }
        tally.failure(times(1, 1, 2), Failure::Wrong, || unreachable!());
        assert_eq!((tally.errors.count(), tally.requests, tally.response.count()), (8, 0, 0));
        assert_eq!(tally.errors.status[&503], 1);
        assert_eq!(tally.errors.first.as_deref(), Some("Connect"));
    }

    #[test]
    fn every_second_has_its_own_counts() {
        let mut tally = tally(Belongs::WhenOver);
        tally.answer(times(10, 10, 10), 5);
        tally.answer(times(10, 10, 13), 7);
        tally.failure(times(13, 13, 13), Failure::Closed, String::new);
        tally.end(15 * SECOND);
        let counted: Vec<_> =
            tally.series.iter().map(|second| (second.requests, second.bytes, second.errors)).collect();
        assert_eq!(counted, [(1, 5, 0), (0, 0, 0), (0, 0, 0), (1, 7, 1), (0, 0, 0)]);
        assert!((tally.seconds() - 5.0).abs() < 1e-9);
    }
}
