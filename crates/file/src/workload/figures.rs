//! The result of jobs: rates and latencies, each with its interval, and what their threads' time was spent on.

use std::ops::Range;

use kelvin_stats::{CONFIDENCE_LEVEL, Histogram, MIN_INTERVAL_ROUNDS, UncertainValue, effective_samples};
use kelvin_sys::uring::IoDirection;

use super::time_slices::{Slice, TimeSlices};
use super::{ByDirection, verify_pass};
use crate::observer::IoTally;

/// A figure with its 95 % interval, from the equal parts of the time that it was measured in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure of all requests.
    pub value: f64,
    /// Its interval; `None` of too few requests or too short a time.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// A mean of the parts, such as a rate.
    fn of_mean(value: f64, parts: &[f64]) -> Self {
        let mean = (parts.len() >= MIN_INTERVAL_ROUNDS).then(|| UncertainValue::mean(parts)).flatten();
        Self::new(value, mean, parts)
    }

    /// A figure that most parts have, such as a quantile: a stall in one of them does not move it.
    fn of_median(value: f64, parts: &[f64]) -> Self {
        Self::new(value, UncertainValue::median(parts, None), parts)
    }

    /// With the error of the parts, wider where neighbours are alike. The interval holds the figure itself.
    fn new(value: f64, parts_figure: Option<UncertainValue>, parts: &[f64]) -> Self {
        let interval = parts_figure.map(|figure| {
            let dependence = parts.len() as f64 / effective_samples(&[parts]).max(1.0);
            let (low, high) = figure.widened(dependence.max(1.0).sqrt()).interval(CONFIDENCE_LEVEL);
            (low.max(0.0).min(value), high.max(value))
        });
        Self { value, interval }
    }
}

/// What a job did in one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Bytes and requests that counted.
    pub tally: IoTally,
    /// Nanoseconds from the call to the end of each request.
    pub latencies: Histogram,
    /// Nanoseconds from when each was due to its end, of a job with a rate.
    pub responses: Option<Histogram>,
}

impl DirectionResult {
    fn merge(&mut self, other: &Self) {
        match (self.tally.requests, other.tally.requests, &mut self.responses, &other.responses) {
            (_, 0, ..) => {}
            (0, ..) => self.responses.clone_from(&other.responses),
            (.., Some(own), Some(responses)) => own.merge(responses),
            // Some requests were due at times, and others were not.
            _ => self.responses = None,
        }
        self.tally.bytes += other.tally.bytes;
        self.tally.requests += other.tally.requests;
        self.latencies.merge(&other.latencies);
    }
}

/// What a check of blocks found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Blocks that were checked.
    pub blocks: u64,
    /// Blocks that were not what was written.
    pub mismatches: u64,
    /// The first of them: where they are, and what is there.
    pub first: Vec<String>,
}

impl Verification {
    pub(super) fn record(&mut self, offset: u64, outcome: Result<(), String>) {
        self.blocks += 1;
        if let Err(what) = outcome {
            self.mismatches += 1;
            if self.first.len() < verify_pass::MAX_NAMED_MISMATCHES {
                self.first.push(format!("offset {offset}: {what}"));
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.mismatches += other.mismatches;
        self.first.extend(other.first.iter().cloned());
        self.first.truncate(verify_pass::MAX_NAMED_MISMATCHES);
    }
}

/// The result of a job, or of several together.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// Threads.
    pub threads: u32,
    /// When it counted, in nanoseconds of the monotonic clock.
    pub window: Range<u64>,
    /// Reads and writes.
    pub directions: ByDirection<DirectionResult>,
    /// Parts of the time.
    pub slices: TimeSlices,
    /// Nanoseconds of each flush.
    pub flushes: Histogram,
    /// Nanoseconds of the flush at the end, which are part of the time.
    pub end_flush: Option<u64>,
    /// Nanoseconds of all threads together: those that counted.
    pub thread_time: u64,
    /// Nanoseconds of CPU time of all threads.
    pub cpu_time: u64,
    /// Nanoseconds that they were ready and without a CPU; `None` where the kernel does not count it.
    pub run_queue: Option<u64>,
    /// Mean requests in flight, of all threads together.
    pub achieved_depth: f64,
    /// The check of blocks, if there was one.
    pub verification: Option<Verification>,
    /// The share of the file that was in memory before, 0 to 1, where that matters and is known.
    pub cached_share: Option<f64>,
}

impl JobResult {
    /// Seconds that counted.
    pub fn seconds(&self) -> f64 {
        (self.window.end - self.window.start) as f64 / 1e9
    }

    /// Bytes and requests of both directions.
    pub fn total(&self) -> IoTally {
        let ByDirection { read, write } = &self.directions;
        IoTally { bytes: read.tally.bytes + write.tally.bytes, requests: read.tally.requests + write.tally.requests }
    }

    /// Bytes a second in a direction.
    pub fn bytes_per_second(&self, direction: IoDirection) -> Estimate {
        let bytes = self.directions.of(direction).tally.bytes;
        self.rate(bytes, |slice| slice.of(direction).bytes)
    }

    /// Requests a second in a direction.
    pub fn requests_per_second(&self, direction: IoDirection) -> Estimate {
        let requests = self.directions.of(direction).tally.requests;
        self.rate(requests, |slice| slice.of(direction).requests)
    }

    fn rate(&self, amount: u64, of_slice: impl Fn(&ByDirection<Slice>) -> u64) -> Estimate {
        let (slices, seconds) = self.slices.within(&self.window);
        let parts: Vec<f64> = slices.into_iter().map(|slice| of_slice(slice) as f64 / seconds).collect();
        Estimate::of_mean(amount as f64 / self.seconds().max(1e-9), &parts)
    }

    /// The quantile of latencies of a direction, in nanoseconds; `None` without requests.
    pub fn latency(&self, direction: IoDirection, share: f64) -> Option<Estimate> {
        /// Requests beyond the quantile in each part, on average, from which on its own quantile is one.
        const MIN_BEYOND: f64 = 5.0;
        let value = self.directions.of(direction).latencies.quantile(share)?;
        let (slices, _) = self.slices.within(&self.window);
        let quantile = |slice: &&ByDirection<Slice>| slice.of(direction).latencies.as_ref()?.quantile(share);
        let parts: Vec<f64> = slices.iter().filter_map(quantile).collect();
        let requests = self.directions.of(direction).tally.requests as f64;
        let is_known = requests * (1.0 - share) >= MIN_BEYOND * parts.len() as f64;
        Some(Estimate::of_median(value, if is_known { &parts } else { &[] }))
    }

    /// The mean of all latencies, in nanoseconds.
    pub fn mean_latency(&self) -> Option<f64> {
        let mut all = self.directions.read.latencies.clone();
        all.merge(&self.directions.write.latencies);
        all.mean()
    }

    /// Adds another job's, of the same stage.
    pub fn merge(&mut self, other: Self) {
        self.threads += other.threads;
        self.window = self.window.start.min(other.window.start)..self.window.end.max(other.window.end);
        self.directions.read.merge(&other.directions.read);
        self.directions.write.merge(&other.directions.write);
        self.slices.merge(other.slices);
        self.flushes.merge(&other.flushes);
        self.end_flush = self.end_flush.max(other.end_flush);
        self.thread_time += other.thread_time;
        self.cpu_time += other.cpu_time;
        self.run_queue = self.run_queue.zip(other.run_queue).map(|(own, other)| own + other);
        self.achieved_depth += other.achieved_depth;
        self.cached_share = self.cached_share.zip(other.cached_share).map(|(own, other)| own.max(other));
        if let Some(other) = &other.verification {
            self.verification.get_or_insert_default().merge(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_follow_from_parts_and_hold_the_figure() {
        // The mean of 1 to 5 has a standard error of sqrt(0.5), and t of 4 degrees of freedom is 2.776.
        let estimate = Estimate::of_mean(3.0, &[3.0, 1.0, 5.0, 2.0, 4.0]);
        let (low, high) = estimate.interval.unwrap();
        assert!((low - (3.0 - 2.776 * 0.5_f64.sqrt())).abs() < 1e-3 && (high - 4.963).abs() < 1e-3, "{low} {high}");
        // A stall moves the mean, and not the median.
        let parts = [10.0, 11.0, 10.0, 11.0, 10.0, 11.0, 10.0, 1000.0];
        assert!(
            Estimate::of_median(10.5, &parts).interval.unwrap().1
                < Estimate::of_mean(134.0, &parts).interval.unwrap().1
        );
        assert_eq!(Estimate::of_median(99.0, &[1.0; 8]).interval, Some((1.0, 99.0)));
        assert_eq!(Estimate::of_mean(3.0, &[3.0, 1.0, 5.0]).interval, None);
    }
}
