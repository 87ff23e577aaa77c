//! A test counted on both hosts: what was sent, what arrived, how busy either host was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kelvin_harness::Stop;
use kelvin_stats::{Burst, burst, fallen_from};
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::waiting;
use kelvin_wire::busy::{Busy, Threads, Watch};
use kelvin_wire::client::{IsCounted, Test};
use kelvin_wire::message::{Counted, Direction};

use super::stopped;
use crate::net::link::Link;
use crate::net::settle::{level, per_second};

/// Shortest time between two counts of a figure: the burst that a shaper saves up while its sender waits for a CPU, some 10 ms
/// of bytes, is a small share of it.
const WINDOW: Duration = Duration::from_millis(200);
/// Bytes of each stream that a window holds at least, for up to so long: what arrived before the window behind a segment that was lost counts
/// in it once that one is there, which is up to what the queue before the link holds, most often a tenth of a megabyte.
const LEAST_OF_STREAM: f64 = 1e6;
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
/// The same while the rate still rises or falls, and the most of these.
const SETTLING: Duration = Duration::from_millis(50);
const MOST_SETTLING: u32 = 10;
/// Fewest windows of a round, which is made longer for them, where no other number is given.
pub(super) const FEWEST: u32 = 2;
/// Windows that a fall of the rate must last, so that it is none of a single window.
const FEWEST_AFTER_A_FALL: usize = 2;
/// Windows that are added at most, where the rate falls: two seconds, within which most buckets of shapers are empty.
const MOST_ADDED: usize = 10;

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
    /// When it began, by the clock of the end that counts.
    begun: u64,
}

/// The windows over which the rate was sustained, the first of which ends where they begin.
#[derive(Debug)]
pub(super) struct Sustained {
    pub windows: Vec<Window>,
    /// What came before, beyond that rate: the burst of a token bucket.
    pub burst: Option<Burst>,
}

impl Sustained {
    /// Of windows of a test that began at this time.
    fn of(mut windows: Vec<Window>, begun: u64) -> Self {
        windows.drain(..fallen_from(&rates(&windows)));
        let burst = windows.first().zip(windows.last()).and_then(|(first, last)| {
            let seconds = first.at.saturating_sub(begun) as f64 / 1e9;
            burst(first.arrived as f64, seconds, last.rate_since(first))
        });
        Self { windows, burst }
    }
}

/// The length of a window of so many streams at this rate of all of them.
fn window(streams: usize, rate: f64) -> Duration {
    // One stream alone waits for what it lost and then has all of it.
    let needed = if streams > 1 { streams as f64 * LEAST_OF_STREAM / rate.max(1.0) } else { 0.0 };
    Duration::from_secs_f64(needed.min(LONGEST_WINDOW.as_secs_f64())).max(WINDOW)
}

/// Bytes a second that arrived, window by window.
pub(super) fn rates(windows: &[Window]) -> Vec<f64> {
    windows.windows(2).map(|pair| pair[1].rate_since(&pair[0])).collect()
}

/// Whether these rates are enough, so many of which are wanted: all of one level, or enough after a fall.
fn are_enough(rates: &[f64], wanted: usize) -> bool {
    let fallen = fallen_from(rates);
    let needed = if fallen > 0 { wanted.max(FEWEST_AFTER_A_FALL) } else { wanted };
    rates.len() >= fallen + needed || rates.len() >= wanted + MOST_ADDED
}

/// A burst in words.
pub(super) fn burst_words(burst: &Burst) -> String {
    format!(
        "a burst of {:.2} MB came first, at {:.1} MB/s on average: a token bucket, of that size if it was full",
        burst.size / 1e6,
        burst.rate / 1e6
    )
}

impl<'a, 'client, S: IsCounted> Watched<'a, 'client, S> {
    /// Begins now.
    pub(super) fn begin(
        test: &'a mut Test<'client, S>,
        moving: &'a Moving,
        direction: Direction,
        streams: &'a [Link],
    ) -> Self {
        // The agent counts from the beginning of the test.
        let begun = match direction {
            Direction::ToAgent => 0,
            Direction::FromAgent => monotonic(),
        };
        Self { test, moving, direction, streams, watch: Watch::begin(&moving.threads), begun }
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

    /// Waits until the rate neither rises nor falls; the counts by then.
    pub(super) fn settle(&mut self) -> Result<Window, Stop> {
        Ok(self.settled()?.0)
    }

    /// The same with the rate by then.
    fn settled(&mut self) -> Result<(Window, f64), Stop> {
        let (mut last, mut rate) = (self.look()?, 0.0);
        level(MOST_SETTLING, || {
            std::thread::sleep(SETTLING);
            let before = std::mem::replace(&mut last, self.look()?);
            rate = last.rate_since(&before);
            Ok(rate)
        })?;
        Ok((last, rate))
    }

    /// The counts when the rate had settled, and at the end of each window after that, of which there are so many at least. Where the
    /// rate falls in between, only those after the fall: what came before was the burst of a token bucket.
    pub(super) fn windows(&mut self, slice: Duration, fewest: u32) -> Result<Sustained, Stop> {
        let wanted = ((slice.as_secs_f64() / WINDOW.as_secs_f64()) as usize).max(fewest as usize);
        let (first, rate) = self.settled()?;
        let (mut windows, length) = (vec![first], window(self.streams.len(), rate));
        while !are_enough(&rates(&windows), wanted) {
            std::thread::sleep(length);
            windows.push(self.look()?);
        }
        Ok(Sustained::of(windows, self.begun))
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
    fn what_came_before_a_fall_is_a_burst() {
        // Of 4 MB beyond 5 MB/s, at 25 MB/s: 0.2 s; windows of 0.1 s by a clock that was at 7 when it began.
        let of = |tenths: u64| Window {
            arrived: if tenths <= 2 { tenths * 2_500_000 } else { 4_000_000 + tenths * 500_000 },
            at: 7 + tenths * 100_000_000,
            sent: 0,
            counted: Counted::default(),
            here: Busy::default(),
        };
        let bucket = Sustained::of((0..=6).map(of).collect(), 7);
        assert_eq!((bucket.windows.len(), bucket.windows[0].at), (5, 200_000_007));
        let burst = bucket.burst.unwrap();
        assert!((burst.size - 4e6).abs() < 1.0 && (burst.rate - 25e6).abs() < 1.0, "{burst:?}");
        assert!(burst_words(&burst).starts_with("a burst of 4.00 MB came first, at 25.0 MB/s on average"));
        let after = Sustained::of((3..=6).map(of).collect(), 0);
        assert_eq!(after.windows.len(), 4);
        let even = Sustained::of((0..=2).map(of).collect(), 7);
        assert!(even.windows.len() == 3 && even.burst.is_none(), "{even:?}");
        assert!(Sustained::of(Vec::new(), 0).burst.is_none());
    }

    #[test]
    fn a_window_holds_a_megabyte_of_each_of_several_streams() {
        assert_eq!(window(4, 4.4e6), Duration::from_secs_f64(4.0 / 4.4));
        assert_eq!([window(1, 4.4e6), window(4, 50e6), window(0, 0.0)], [WINDOW; 3]);
        assert_eq!([window(4, 1e6), window(2, 0.0)], [LONGEST_WINDOW; 2]);
    }

    #[test]
    fn windows_are_added_until_a_fall_is_certain() {
        assert!(are_enough(&[10.0, 10.0], 2) && !are_enough(&[10.0], 2));
        assert!(!are_enough(&[50.0, 10.0], 2) && are_enough(&[50.0, 10.0, 10.0], 2));
        assert!(are_enough(&[10.0], 1) && !are_enough(&[50.0, 10.0], 1), "one window is no level");
        assert!(are_enough(&[10.0, 7.0, 10.0], 2), "a dip");
        let ever_less: Vec<f64> = (0..12).map(|power| 0.5_f64.powi(power)).collect();
        assert!(are_enough(&ever_less, 2) && !are_enough(&ever_less[..11], 2), "no level at all");
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
