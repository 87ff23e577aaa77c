//! What observers see of each request, and what they make of it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_stats::Histogram;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::stop_signals;

use crate::block_requests::BlockRequest;

/// Observes each request; one type for each result that can be wanted, so that nothing is paid for unwanted ones.
pub trait Observer {
    /// What it keeps of a request in flight.
    type Stamp: Copy + Default;

    /// A request is about to be made.
    fn begin(&mut self) -> Self::Stamp;

    /// A request is done, and this is what was read or written. No further request is made after a `Break`.
    fn end(&mut self, stamp: Self::Stamp, request: BlockRequest, data: &[u8]) -> ControlFlow<()>;
}

/// Counts bytes and requests, and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTally {
    /// Bytes moved.
    pub bytes: u64,
    /// Requests made.
    pub requests: u64,
}

impl Observer for IoTally {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        self.bytes += request.bytes as u64;
        self.requests += 1;
        ControlFlow::Continue(())
    }
}

/// Adds the latency of each request to another observer.
#[derive(Debug)]
pub struct LatencyObserver<O> {
    /// The other one.
    pub inner: O,
    /// Times from a request to its end, in nanoseconds.
    pub histogram: Histogram,
    clock: Clock,
    /// Nanoseconds of a tick, as a fixed-point number of 32 bits behind the point.
    scale: u64,
}

impl<O> LatencyObserver<O> {
    /// Latencies by a clock of this many ticks a second.
    pub fn new(inner: O, clock: Clock, hertz: f64) -> Self {
        Self { inner, histogram: Histogram::new(), clock, scale: (1e9 / hertz * 2f64.powi(32)) as u64 }
    }
}

impl<O: Observer> Observer for LatencyObserver<O> {
    type Stamp = (u64, O::Stamp);

    #[inline(always)]
    fn begin(&mut self) -> Self::Stamp {
        let inner = self.inner.begin();
        (self.clock.start(), inner)
    }

    #[inline(always)]
    fn end(&mut self, (start, inner): Self::Stamp, request: BlockRequest, data: &[u8]) -> ControlFlow<()> {
        let ticks = self.clock.stop().wrapping_sub(start);
        self.histogram.record(((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64);
        self.inner.end(inner, request, data)
    }
}

/// When a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// After this many passes over the file.
    Passes(u64),
    /// After this many requests of all threads together, from the beginning again at the end of the file.
    Requests(u64),
    /// After this time, from the beginning again at the end of the file.
    Time(Duration),
}

/// Nanoseconds from one check of the clock to the next.
const CLOCK_CHECK_INTERVAL: u64 = 5_000_000;
/// Most requests from one check to the next. Fast ones may be followed by slow ones, when memory is full of dirty pages or the
/// cached part ends. A check costs less than a nanosecond for each of them.
const MAX_CHECK_STRIDE: u64 = 128;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Counts, and checks the clock now and then: whether it is time to end, and the bytes of each second.
pub(crate) struct DeadlineObserver<'a> {
    /// Bytes and requests so far.
    pub(crate) tally: IoTally,
    /// When it began, in nanoseconds of the monotonic clock.
    pub(crate) start: u64,
    deadline: u64,
    stop: &'a AtomicBool,
    /// Requests from one check to the next, and until the next.
    stride: u64,
    until_check: u64,
    last_check: u64,
    recorded_bytes: u64,
    /// Bytes of each second.
    pub(crate) bytes_per_second: Vec<u64>,
}

impl<'a> DeadlineObserver<'a> {
    /// Begins now; `stop` ends it from outside.
    pub(crate) fn new(until: EndCondition, stop: &'a AtomicBool) -> Self {
        let start = monotonic();
        let deadline = match until {
            EndCondition::Time(time) => start.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            _ => u64::MAX,
        };
        Self {
            tally: IoTally::default(),
            start,
            deadline,
            stop,
            stride: 1,
            until_check: 1,
            last_check: start,
            recorded_bytes: 0,
            bytes_per_second: Vec::new(),
        }
    }

    /// Adds what was done since the last check to the second of now.
    pub(crate) fn record_second(&mut self, now: u64) {
        let second = ((now - self.start) / NANOSECONDS_PER_SECOND) as usize;
        self.bytes_per_second.resize(self.bytes_per_second.len().max(second + 1), 0);
        self.bytes_per_second[second] += self.tally.bytes - self.recorded_bytes;
        self.recorded_bytes = self.tally.bytes;
    }

    #[cold]
    fn check_clock(&mut self) -> ControlFlow<()> {
        let now = monotonic();
        self.record_second(now);
        // As many requests as fit between two checks, but at most twice as many as before: the first ones may have been slow.
        let stride = (self.stride as f64 * CLOCK_CHECK_INTERVAL as f64 / (now - self.last_check).max(1) as f64) as u64;
        self.stride = stride.clamp(1, (2 * self.stride).min(MAX_CHECK_STRIDE));
        self.until_check = self.stride;
        self.last_check = now;
        let is_over =
            now >= self.deadline || self.stop.load(Ordering::Relaxed) || stop_signals::stop_signal().is_some();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for DeadlineObserver<'_> {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        let _ = self.tally.end((), request, &[]);
        self.until_check -= 1;
        if self.until_check == 0 || stop_signals::stop_signal().is_some() {
            self.check_clock()
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The cost of timing and counting one request, in nanoseconds: that much of each latency and of each request's time is not the
/// file's.
pub fn recording_cost(clock: Clock, hertz: f64) -> f64 {
    const REQUESTS: u64 = 1 << 14;
    const REPEATS: usize = 9;
    let request = BlockRequest { offset: 0, bytes: 1 };
    let costs: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let mut observer = LatencyObserver::new(IoTally::default(), clock, hertz);
            let start = clock.start();
            for _ in 0..REQUESTS {
                let stamp = observer.begin();
                let _ = std::hint::black_box(observer.end(stamp, request, &[]));
            }
            clock.stop().wrapping_sub(start) as f64 * 1e9 / hertz / REQUESTS as f64
        })
        .collect();
    kelvin_stats::median(&costs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_sys::clock::ScriptedClock;

    #[test]
    fn latencies_follow_scripted_clock() {
        let script = ScriptedClock::leak(0);
        // Two ticks a nanosecond.
        let mut observer = LatencyObserver::new(IoTally::default(), Clock::Scripted(script), 2e9);
        for time in [200, 400, 600] {
            let stamp = observer.begin();
            script.advance(time);
            assert!(observer.end(stamp, BlockRequest { offset: 0, bytes: 10 }, &[0; 10]).is_continue());
        }
        assert_eq!(observer.inner, IoTally { bytes: 30, requests: 3 });
        assert_eq!(observer.histogram.count(), 3);
        assert_eq!([0.3, 0.6, 0.9].map(|share| observer.histogram.quantile(share)), [100.0, 200.0, 300.0].map(Some));
    }
}
