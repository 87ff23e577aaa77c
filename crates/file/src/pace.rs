//! Counts what is done, and checks the clock now and then: when to end, and the bytes of each second.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_sys::clock::monotonic;
use kelvin_sys::interrupt;

use crate::observe::{Observer, Tally};
use crate::requests::Request;

/// When a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many passes over the file.
    Passes(u64),
    /// After so many requests of all threads together, from the beginning again at the end of the file.
    Requests(u64),
    /// After so long, from the beginning again at the end of the file.
    Time(Duration),
}

/// Nanoseconds from one check of the clock to the next.
const LOOK: u64 = 5_000_000;
/// Most requests from one check to the next: fast ones may be followed by slow ones, when memory is full of dirty pages or the
/// cached part ends. A check costs less than a nanosecond for each of them.
const MOST_STRIDE: u64 = 128;
const SECOND: u64 = 1_000_000_000;

/// Counts, and checks the clock now and then: whether it is time to end, and the bytes of each second.
pub(crate) struct Paced<'a> {
    /// Bytes and requests so far.
    pub(crate) tally: Tally,
    /// When it began, in nanoseconds of the monotonic clock.
    pub(crate) begun: u64,
    deadline: u64,
    stop: &'a AtomicBool,
    /// Requests from one check to the next, and until the next.
    stride: u64,
    left: u64,
    looked: u64,
    noted: u64,
    /// Bytes of each second.
    pub(crate) series: Vec<u64>,
}

impl<'a> Paced<'a> {
    /// Begins now; `stop` ends it from outside.
    pub(crate) fn new(until: Until, stop: &'a AtomicBool) -> Self {
        let begun = monotonic();
        let deadline = match until {
            Until::Time(time) => begun.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            _ => u64::MAX,
        };
        Self {
            tally: Tally::default(),
            begun,
            deadline,
            stop,
            stride: 1,
            left: 1,
            looked: begun,
            noted: 0,
            series: Vec::new(),
        }
    }

    /// Adds what was done since the last check to the second of now.
    pub(crate) fn note(&mut self, now: u64) {
        let second = ((now - self.begun) / SECOND) as usize;
        self.series.resize(self.series.len().max(second + 1), 0);
        self.series[second] += self.tally.bytes - self.noted;
        self.noted = self.tally.bytes;
    }

    #[cold]
    fn look(&mut self) -> ControlFlow<()> {
        let now = monotonic();
        self.note(now);
        // As many requests as fit between two checks, but at most twice as many as before: the first ones may have been slow.
        let wanted = (self.stride as f64 * LOOK as f64 / (now - self.looked).max(1) as f64) as u64;
        self.stride = wanted.clamp(1, (2 * self.stride).min(MOST_STRIDE));
        self.left = self.stride;
        self.looked = now;
        let over = now >= self.deadline || self.stop.load(Ordering::Relaxed) || interrupt::requested().is_some();
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for Paced<'_> {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: Request, _: &[u8]) -> ControlFlow<()> {
        self.tally.bytes += request.bytes as u64;
        self.tally.requests += 1;
        self.left -= 1;
        if self.left == 0 || interrupt::requested().is_some() { self.look() } else { ControlFlow::Continue(()) }
    }
}
