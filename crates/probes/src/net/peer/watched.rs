//! A test counted on both hosts: what was sent, what arrived, how busy either host was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kelvin_harness::Stop;
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::waiting;
use kelvin_wire::busy::{Busy, Threads, Watch};
use kelvin_wire::client::{IsCounted, Test};
use kelvin_wire::message::{Counted, Direction};

use super::stopped;
use crate::net::link::Link;
use crate::net::settle::{per_second, settle};

/// Shortest time between two counts of a figure: the burst that a shaper saves up while its sender waits for a CPU, some 10 ms
/// of bytes, is a small share of it.
const WINDOW: Duration = Duration::from_millis(200);
/// The same while the rate still rises, and the most of these.
const SETTLING: Duration = Duration::from_millis(50);
const MOST_SETTLING: u32 = 10;
/// Fewest windows of a round, which is made longer for them, where no other number is given.
pub(super) const FEWEST: u32 = 2;

/// Shared by the threads that send or receive and the one that watches.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// That they are to end.
    pub is_over: AtomicBool,
    /// Bytes handed to the kernel.
    pub bytes: AtomicU64,
    /// The threads.
    pub threads: Threads,
}

impl Moving {
    /// Counts bytes.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// What was known at the end of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The agent's counts, and how busy its host was in this window.
    pub counted: Counted,
    /// Bytes sent by then, by the sender's count.
    pub sent: u64,
    /// Bytes that arrived by then, by the receiver's count, and the nanoseconds of its clock.
    pub arrived: u64,
    pub at: u64,
    /// How busy this host was in this window.
    pub here: Busy,
}

impl Window {
    /// Bytes per second that arrived since an earlier one.
    pub(super) fn rate_since(&self, earlier: &Self) -> f64 {
        per_second(self.arrived - earlier.arrived, self.at - earlier.at)
    }

    /// Bytes per second that were sent since an earlier one.
    pub(super) fn sent_since(&self, earlier: &Self) -> f64 {
        per_second(self.sent - earlier.sent, self.at - earlier.at)
    }
}

/// A running test.
pub(super) struct Watched<'a, 'client, S> {
    test: &'a mut Test<'client, S>,
    moving: &'a Moving,
    direction: Direction,
    /// The streams, whose bytes have arrived here when the kernel has them: a thread that waits for a CPU and then reads what has gathered
    /// would show more than the network carries.
    streams: &'a [Link],
    watch: Watch<'a>,
}

impl<'a, 'client, S: IsCounted> Watched<'a, 'client, S> {
    /// Begins now.
    pub(super) fn begin(
        test: &'a mut Test<'client, S>,
        moving: &'a Moving,
        direction: Direction,
        streams: &'a [Link],
    ) -> Self {
        Self { test, moving, direction, streams, watch: Watch::begin(&moving.threads) }
    }

    /// The counts by now.
    pub(super) fn look(&mut self) -> Result<Window, Stop> {
        let counted = self.test.counted().map_err(stopped)?;
        let (sent, arrived, at) = match self.direction {
            Direction::ToAgent => (self.moving.bytes.load(Ordering::Relaxed), counted.bytes, counted.at),
            Direction::FromAgent => (counted.bytes, received(self.streams)?, monotonic()),
        };
        Ok(Window { counted, sent, arrived, at, here: self.watch.look() })
    }

    /// Waits until the rate no longer rises; the counts by then.
    pub(super) fn settle(&mut self) -> Result<Window, Stop> {
        let mut last = self.look()?;
        settle(MOST_SETTLING, || {
            std::thread::sleep(SETTLING);
            let before = std::mem::replace(&mut last, self.look()?);
            Ok(last.rate_since(&before))
        })?;
        Ok(last)
    }

    /// The counts when the rate no longer rose, and at the end of each window after that, of which there are so many at least.
    pub(super) fn windows(&mut self, slice: Duration, fewest: u32) -> Result<Vec<Window>, Stop> {
        let wanted = (slice.as_secs_f64() / WINDOW.as_secs_f64()) as u32;
        let mut windows = vec![self.settle()?];
        for _ in 0..wanted.max(fewest) {
            std::thread::sleep(WINDOW);
            windows.push(self.look()?);
        }
        Ok(windows)
    }
}

/// Bytes that have arrived by streams.
fn received(streams: &[Link]) -> Result<u64, Stop> {
    let of = |link: &Link| match link {
        Link::Tcp(stream) => waiting::received(stream).map_err(|error| Stop::fail(error.to_string())),
        _ => Err(Stop::fail("the agent sends over TCP")),
    };
    streams.iter().map(of).sum()
}

/// How busy either host was in the windows after the first one: here, and at the agent.
pub(super) fn busy(windows: &[Window]) -> Option<[Busy; 2]> {
    let after = windows.get(1..)?;
    let here: Vec<Busy> = after.iter().map(|window| window.here).collect();
    let there: Vec<Busy> = after.iter().map(|window| window.counted.busy).collect();
    Some([Busy::middle(&here)?, Busy::middle(&there)?])
}

/// The same in words, which name a limit.
pub(super) fn busy_words([here, there]: &[Busy; 2]) -> String {
    let limit = match (here.is_limit(), there.is_limit()) {
        (false, false) => "",
        (true, false) => ": CPU-limited by this host",
        (false, true) => ": CPU-limited by the agent's host",
        (true, true) => ": CPU-limited by both hosts",
    };
    format!("here {here}; at the agent {there}{limit}")
}

#[cfg(test)]
mod tests {
    use kelvin_wire::busy::BusyCpu;

    use super::*;

    fn busy_by(busiest: f64, share: f64) -> Busy {
        Busy { busiest, threads: busiest, cpu: Some(BusyCpu { number: 1, share, interrupts: 0.0 }) }
    }

    #[test]
    fn a_rate_is_that_of_the_time_of_the_end_that_counts() {
        let of = |arrived, sent, at| Window { arrived, at, sent, counted: Counted::default(), here: Busy::default() };
        let (from, to) = (of(1000, 1500, 5), of(3000, 5500, 1_000_000_005));
        assert_eq!((to.rate_since(&from), to.sent_since(&from)), (2000.0, 4000.0));
    }

    #[test]
    fn the_end_that_is_the_limit_is_named() {
        let (idle, full) = (busy_by(0.2, 0.3), busy_by(0.99, 1.0));
        assert_eq!(
            busy_words(&[idle, full]),
            "here its busiest thread took 20 % of a CPU and CPU 1 was 30 % busy; at the agent its busiest thread took 99 % of \
             a CPU and CPU 1 was 100 % busy: CPU-limited by the agent's host"
        );
        assert!(busy_words(&[full, idle]).ends_with(": CPU-limited by this host"));
        assert!(busy_words(&[full, full]).ends_with(": CPU-limited by both hosts"));
        assert!(!busy_words(&[idle, idle]).contains("limited"));
    }

    #[test]
    fn the_first_window_is_that_in_which_the_rate_still_rose() {
        let of = |here, there| Window {
            counted: Counted { busy: busy_by(there, there), ..Counted::default() },
            sent: 0,
            arrived: 0,
            at: 0,
            here: busy_by(here, here),
        };
        let windows = [of(1.0, 1.0), of(0.2, 0.5), of(0.3, 0.6), of(0.4, 0.7)];
        assert_eq!(busy(&windows), Some([busy_by(0.3, 0.3), busy_by(0.6, 0.6)]));
        assert_eq!((busy(&windows[..1]), busy(&[])), (None, None));
    }
}
