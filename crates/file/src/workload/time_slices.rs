//! What a job did in equal parts of its time, so that its figures have intervals.

use kelvin_stats::Histogram;
use kelvin_sys::uring::IoDirection;

use super::ByDirection;

/// Nanoseconds of a part at first. It doubles whenever there would be too many parts.
const FIRST_LENGTH: u64 = 10_000_000;
/// Parts at most: then two and two become one, so that a long job has 16 to 32.
const MAX_SLICES: usize = 32;

/// A part of the time.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Bytes moved in it.
    pub bytes: u64,
    /// Requests that were done in it.
    pub requests: u64,
    /// Their latencies, to 1 %.
    pub latencies: Option<Histogram>,
}

impl Slice {
    fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.requests += other.requests;
        if let Some(latencies) = &other.latencies {
            self.latencies.get_or_insert_with(Histogram::coarse).merge(latencies);
        }
    }
}

/// The parts of the time of a job, or of several that began together.
#[derive(Clone, Debug)]
pub struct TimeSlices {
    start: u64,
    length: u64,
    slices: Vec<ByDirection<Slice>>,
}

impl TimeSlices {
    /// From this moment on, in nanoseconds.
    pub(super) fn new(start: u64) -> Self {
        Self { start, length: FIRST_LENGTH, slices: Vec::new() }
    }

    /// Counts a request that was done now.
    #[inline]
    pub(super) fn record(&mut self, now: u64, direction: IoDirection, bytes: usize, latency: u64) {
        let mut index = (now.saturating_sub(self.start) / self.length) as usize;
        while index >= MAX_SLICES {
            self.coarsen();
            index /= 2;
        }
        if index >= self.slices.len() {
            self.slices.resize(index + 1, ByDirection::default());
        }
        let slice = self.slices[index].of_mut(direction);
        slice.bytes += bytes as u64;
        slice.requests += 1;
        slice.latencies.get_or_insert_with(Histogram::coarse).record(latency);
    }

    /// Two and two become one.
    fn coarsen(&mut self) {
        self.length *= 2;
        let pairs = self.slices.chunks(2).map(|pair| {
            let mut merged = pair[0].clone();
            for second in &pair[1..] {
                merged.read.merge(&second.read);
                merged.write.merge(&second.write);
            }
            merged
        });
        self.slices = pairs.collect();
    }

    /// Adds another job's, which began at the same moment.
    pub(super) fn merge(&mut self, mut other: Self) {
        while self.length < other.length {
            self.coarsen();
        }
        while other.length < self.length {
            other.coarsen();
        }
        let count = self.slices.len().max(other.slices.len());
        self.slices.resize(count, ByDirection::default());
        for (own, other) in self.slices.iter_mut().zip(&other.slices) {
            own.read.merge(&other.read);
            own.write.merge(&other.write);
        }
    }

    /// The parts that lie wholly within a time, and the seconds of each.
    pub(super) fn within(&self, window: &std::ops::Range<u64>) -> (Vec<&ByDirection<Slice>>, f64) {
        let begin = |index: usize| self.start + index as u64 * self.length;
        let is_inside = |index: usize| begin(index) >= window.start && begin(index + 1) <= window.end;
        let inside = self.slices.iter().enumerate().filter(|&(index, _)| is_inside(index)).map(|(_, slice)| slice);
        (inside.collect(), self.length as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn long_jobs_keep_few_slices_and_all_requests() {
        let mut slices = TimeSlices::new(7);
        for number in 0..1000 {
            slices.record(7 + number * 5 * MILLISECOND, IoDirection::Read, 100, 1000);
        }
        let (parts, seconds) = slices.within(&(7..7 + 5000 * MILLISECOND));
        // The last one ends after the time.
        assert_eq!((parts.len(), seconds), (31, 0.16));
        assert_eq!(slices.slices.iter().map(|slice| slice.read.requests).sum::<u64>(), 1000);
        assert!(parts.iter().all(|slice| slice.read.bytes == 3200 && slice.write.requests == 0));
    }

    #[test]
    fn merged_slices_lie_at_the_same_times() {
        let mut long = TimeSlices::new(0);
        long.record(400 * MILLISECOND, IoDirection::Write, 1, 10);
        let mut short = TimeSlices::new(0);
        short.record(15 * MILLISECOND, IoDirection::Write, 1, 10);
        short.merge(long);
        let (parts, seconds) = short.within(&(0..500 * MILLISECOND));
        assert_eq!((parts[0].write.requests, parts[20].write.requests, seconds), (1, 1, 0.02));
        // What is only partly inside of the time is left out.
        assert_eq!(short.within(&(1..500 * MILLISECOND)).0.len(), parts.len() - 1);
    }
}
