//! Counts what is done, and checks the clock now and then: when to end, and the bytes of each second.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_sys::clock::monotonic;
use kelvin_sys::stop_signals;

use crate::block_requests::BlockRequest;
use crate::observer::{IoTally, Observer};

/// When a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// After so many passes over the file.
    Passes(u64),
    /// After so many requests of all threads together, from the beginning again at the end of the file.
    Requests(u64),
    /// After so long, from the beginning again at the end of the file.
    Time(Duration),
}

/// Nanoseconds from one check of the clock to the next.
const CLOCK_CHECK_INTERVAL: u64 = 5_000_000;
/// Most requests from one check to the next: fast ones may be followed by slow ones, when memory is full of dirty pages or the
/// cached part ends. A check costs less than a nanosecond for each of them.
const MAX_CHECK_STRIDE: u64 = 128;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Counts, and checks the clock now and then: whether it is time to end, and the bytes of each second.
pub(crate) struct DeadlineObserver<'a> {
    /// Bytes and requests so far.
    pub(crate) tally: IoTally,
    /// When it began, in nanoseconds of the monotonic clock.
    pub(crate) begun: u64,
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
        let begun = monotonic();
        let deadline = match until {
            EndCondition::Time(time) => begun.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            _ => u64::MAX,
        };
        Self {
            tally: IoTally::default(),
            begun,
            deadline,
            stop,
            stride: 1,
            until_check: 1,
            last_check: begun,
            recorded_bytes: 0,
            bytes_per_second: Vec::new(),
        }
    }

    /// Adds what was done since the last check to the second of now.
    pub(crate) fn record_second(&mut self, now: u64) {
        let second = ((now - self.begun) / NANOSECONDS_PER_SECOND) as usize;
        self.bytes_per_second.resize(self.bytes_per_second.len().max(second + 1), 0);
        self.bytes_per_second[second] += self.tally.bytes - self.recorded_bytes;
        self.recorded_bytes = self.tally.bytes;
    }

    #[cold]
    fn check_clock(&mut self) -> ControlFlow<()> {
        let now = monotonic();
        self.record_second(now);
        // As many requests as fit between two checks, but at most twice as many as before: the first ones may have been slow.
        let wanted = (self.stride as f64 * CLOCK_CHECK_INTERVAL as f64 / (now - self.last_check).max(1) as f64) as u64;
        self.stride = wanted.clamp(1, (2 * self.stride).min(MAX_CHECK_STRIDE));
        self.until_check = self.stride;
        self.last_check = now;
        let over = now >= self.deadline || self.stop.load(Ordering::Relaxed) || stop_signals::stop_signal().is_some();
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
