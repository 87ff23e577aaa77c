//! Each second of a load: what one thread counted in it, and the seconds of all threads merged.

use std::collections::VecDeque;

use kelvin_core::load::SecondResult;
use kelvin_stats::Histogram;

/// What one thread, or all of them, counted in one second of the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SecondStats {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Response times; none as long as nothing was answered, since a histogram takes memory.
    times: Option<Histogram>,
}

impl SecondStats {
    /// Counts a right answer with a body of this many bytes, after this many nanoseconds.
    pub(crate) fn add_answer(&mut self, bytes: u64, response: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.times.get_or_insert_default().record(response);
    }

    /// Adds what another thread counted.
    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        match (&mut self.times, other.times) {
            (Some(times), Some(other)) => times.merge(&other),
            (times @ None, other) => *times = other,
            (Some(_), None) => {}
        }
    }

    fn summary(&self) -> SecondResult {
        let value = |share| self.times.as_ref().and_then(|times| times.quantile(share));
        let &Self { requests, bytes, errors, .. } = self;
        SecondResult { requests, bytes, errors, p50: value(0.5), p99: value(0.99), max: value(1.0) }
    }
}

/// The seconds of a load. A second is complete when every thread has reported it.
#[derive(Debug)]
pub(crate) struct SecondSeries {
    /// How many seconds each thread has reported.
    reported: Vec<usize>,
    /// What some threads have reported of the seconds after the complete ones.
    pending: VecDeque<SecondStats>,
    complete: Vec<SecondResult>,
}

impl SecondSeries {
    /// Of this many threads.
    pub(crate) fn new(threads: u32) -> Self {
        Self { reported: vec![0; threads as usize], pending: VecDeque::new(), complete: Vec::new() }
    }

    /// Adds the next seconds of a thread, in their order.
    pub(crate) fn add(&mut self, thread: u32, seconds: Vec<SecondStats>) {
        for second in seconds {
            let index = self.reported[thread as usize] - self.complete.len();
            self.reported[thread as usize] += 1;
            match self.pending.get_mut(index) {
                Some(pending) => pending.merge(second),
                None => self.pending.push_back(second),
            }
            if self.reported.iter().all(|&count| count > self.complete.len()) {
                self.complete.extend(self.pending.pop_front().map(|second| second.summary()));
            }
        }
    }

    /// The seconds that are over for all threads.
    pub(crate) fn complete(&self) -> &[SecondResult] {
        &self.complete
    }

    /// The same, at the end: of a load that was stopped, a second that is over for some threads is left out.
    pub(crate) fn into_complete(self) -> Vec<SecondResult> {
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(times: impl IntoIterator<Item = u64>) -> SecondStats {
        let mut stats = SecondStats::default();
        times.into_iter().for_each(|time| stats.add_answer(1, time));
        stats
    }

    #[test]
    fn second_of_threads_equals_second_of_one() {
        let times =
            |thread: u64, number: u64| (0..500).filter(move |i| i % 3 == thread).map(move |i| i * i * 7 + number);
        let (mut merged, mut single) = (SecondSeries::new(3), SecondSeries::new(1));
        for number in 0..2 {
            single.add(0, vec![second((0..3).flat_map(|thread| times(thread, number)))]);
        }
        // Threads report at other times, some several seconds at once.
        merged.add(2, (0..2).map(|number| second(times(2, number))).collect());
        merged.add(0, vec![second(times(0, 0))]);
        assert_eq!(merged.complete(), []);
        merged.add(1, vec![second(times(1, 0))]);
        assert_eq!(merged.complete(), &single.complete()[..1]);
        merged.add(1, vec![second(times(1, 1))]);
        merged.add(0, vec![second(times(0, 1))]);
        assert_eq!(merged.complete(), single.complete());
        merged.add(0, vec![SecondStats::default()]);
        assert_eq!(merged.into_complete().len(), 2, "the third is not over for all");
    }

    #[test]
    fn errors_of_threads_are_summed() {
        let mut series = SecondSeries::new(2);
        series.add(0, vec![SecondStats { errors: 2, ..second([5]) }]);
        series.add(1, vec![SecondStats { errors: 3, ..SecondStats::default() }]);
        let expected =
            SecondResult { requests: 1, bytes: 1, errors: 5, p50: Some(5.0), p99: Some(5.0), max: Some(5.0) };
        assert_eq!(series.complete(), [expected]);
    }
}
