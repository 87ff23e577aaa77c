//! A test counted on both hosts: what was sent, what arrived, how busy either host was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kelvin_harness::ProbeError;
use kelvin_stats::{Burst, burst, sustained_start};
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::socket_queues;
use kelvin_transfer::wire::client::RunningTest;
use kelvin_transfer::wire::cpu_usage::{CpuUsage, CpuUsageMeter, ThreadClocks};
use kelvin_transfer::wire::message::{TestCounts, TestDirection};
use kelvin_transfer::wire::stream_spread::{StreamSpread, StreamSpreadMeter};

use super::probe_error;
use crate::net::link::Link;
use crate::net::steady_state::{StreamTotals, wait_for_level};
use crate::reasons::ProbeResult;

/// Shortest time between two counts of a figure: the burst that a shaper saves up while its sender waits for a CPU, some 10 ms
/// of bytes, is a small share of it.
const MIN_WINDOW: Duration = Duration::from_millis(200);
/// Bytes of each stream that a window holds at least, and the time that it may take for them. What arrived before the
/// window behind a lost segment counts in it once that one is there. That is up to what the queue before the link
/// holds, most often a tenth of a megabyte.
const MIN_STREAM_BYTES: f64 = 1e6;
const MAX_WINDOW: Duration = Duration::from_secs(1);
/// A window while the rate still rises or falls, and the most of these.
const SETTLE_WINDOW: Duration = Duration::from_millis(50);
const MAX_SETTLE_WINDOWS: u32 = 10;
/// Fewest windows of a round, which is made longer for them, where no other number is given.
pub(super) const MIN_WINDOWS: u32 = 2;
/// Windows that a fall of the rate must last, so that it is none of a single window.
const MIN_WINDOWS_AFTER_FALL: usize = 2;
/// Windows that are added at most, where the rate falls: two seconds, within which most buckets of shapers are empty.
const MAX_ADDED_WINDOWS: usize = 10;

/// What moves between this host and the agent: shared by the threads that send or receive and the one that watches.
pub(super) struct Transfer {
    pub direction: TestDirection,
    /// The streams, of which there are none where datagrams are sent. Their bytes have arrived here when the kernel has them: a thread that
    /// waits for a CPU and then reads what has gathered would show more than the network carries.
    pub links: Vec<Link>,
    /// That the threads are to end.
    pub is_over: AtomicBool,
    /// Bytes handed to the kernel.
    pub bytes: AtomicU64,
    /// The threads.
    pub threads: ThreadClocks,
}

impl Transfer {
    /// None has begun yet.
    pub(super) fn new(direction: TestDirection, links: Vec<Link>) -> Self {
        let (is_over, bytes, threads) = (AtomicBool::new(false), AtomicU64::new(0), ThreadClocks::default());
        Self { direction, links, is_over, bytes, threads }
    }
}

/// What was known at the end of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateWindow {
    /// What had been moved since the test began.
    pub totals: StreamTotals,
    /// Datagrams that had found the agent's socket full.
    pub dropped: u64,
    /// How busy this host was in this window, and the agent's.
    pub busy: [CpuUsage; 2],
    /// What the slowest and the fastest stream carried in it, counted where they arrive.
    pub spread: Option<StreamSpread>,
}

/// A running test.
pub(super) struct RateWatch<'a, 'client, S> {
    test: &'a mut RunningTest<'client, S>,
    transfer: &'a Transfer,
    meter: CpuUsageMeter<'a>,
    spreads: StreamSpreadMeter,
    /// When it began, by the clock of the end that counts.
    start: u64,
}

/// The windows over which the rate was sustained, the first of which ends where they begin.
#[derive(Debug)]
pub(super) struct SustainedWindows {
    pub windows: Vec<RateWindow>,
    /// What came before, beyond that rate: the burst of a token bucket.
    pub burst: Option<Burst>,
}

impl SustainedWindows {
    /// Of windows of a test that began at this time.
    fn from_windows(mut windows: Vec<RateWindow>, start: u64) -> Self {
        windows.drain(..sustained_start(&rates(&windows)));
        let burst = windows.first().zip(windows.last()).and_then(|(first, last)| {
            let seconds = first.totals.time.saturating_sub(start) as f64 / 1e9;
            burst(first.totals.bytes as f64, seconds, last.totals.rate_since(&first.totals))
        });
        Self { windows, burst }
    }
}

/// The length of a window of this many streams at this rate of all of them.
fn window_length(streams: usize, rate: f64) -> Duration {
    // One stream alone waits for what it lost and then has all of it.
    let needed = if streams > 1 { streams as f64 * MIN_STREAM_BYTES / rate.max(1.0) } else { 0.0 };
    Duration::from_secs_f64(needed.min(MAX_WINDOW.as_secs_f64())).max(MIN_WINDOW)
}

/// Bytes a second that arrived, window by window.
pub(super) fn rates(windows: &[RateWindow]) -> Vec<f64> {
    windows.windows(2).map(|pair| pair[1].totals.rate_since(&pair[0].totals)).collect()
}

/// Whether these rates are enough, this many of which are wanted: all of one level, or enough after a fall.
fn has_enough_windows(rates: &[f64], count: usize) -> bool {
    let level_start = sustained_start(rates);
    let needed = if level_start > 0 { count.max(MIN_WINDOWS_AFTER_FALL) } else { count };
    rates.len() >= level_start + needed || rates.len() >= count + MAX_ADDED_WINDOWS
}

/// A burst in words.
pub(super) fn describe_burst(burst: &Burst) -> String {
    format!(
        "a burst of {:.2} MB came first, at {:.1} MB/s on average: a token bucket, of that size if it was full",
        burst.size / 1e6,
        burst.rate / 1e6
    )
}

impl<'a, 'client, S> RateWatch<'a, 'client, S> {
    /// Begins now.
    pub(super) fn start(test: &'a mut RunningTest<'client, S>, transfer: &'a Transfer) -> Self {
        // The agent counts from the beginning of the test.
        let start = if transfer.direction == TestDirection::ToAgent { 0 } else { monotonic() };
        let (meter, spreads) = (CpuUsageMeter::start(&transfer.threads), StreamSpreadMeter::start(Vec::new()));
        Self { test, transfer, meter, spreads, start }
    }

    /// The counts by now.
    pub(super) fn count_window(&mut self) -> ProbeResult<RateWindow> {
        let TestCounts { bytes, nanoseconds, numbers, dropped, busy, spread } =
            self.test.counts().map_err(probe_error)?;
        let (sent, bytes, time, spread) = match self.transfer.direction {
            TestDirection::ToAgent => (self.transfer.bytes.load(Ordering::Relaxed), bytes, nanoseconds, spread),
            TestDirection::FromAgent => {
                let (received, time) = (received_bytes(&self.transfer.links)?, monotonic());
                (bytes, received.iter().sum(), time, self.spreads.sample(received))
            }
        };
        let totals = StreamTotals { time, bytes, sent, numbers };
        Ok(RateWindow { totals, dropped, busy: [self.meter.sample(), busy], spread })
    }

    /// Waits until the rate neither rises nor falls; the counts by then.
    pub(super) fn settle(&mut self) -> ProbeResult<RateWindow> {
        Ok(self.settle_with_rate()?.0)
    }

    /// Like `settle`, with the rate by then.
    fn settle_with_rate(&mut self) -> ProbeResult<(RateWindow, f64)> {
        let (mut last, mut rate) = (self.count_window()?, 0.0);
        wait_for_level(MAX_SETTLE_WINDOWS, || {
            std::thread::sleep(SETTLE_WINDOW);
            let before = std::mem::replace(&mut last, self.count_window()?);
            rate = last.totals.rate_since(&before.totals);
            Ok(rate)
        })?;
        Ok((last, rate))
    }

    /// The counts when the rate had settled, and at the end of each window after that, of which there are this many at least. Where the
    /// rate falls in between, only those after the fall: what came before was the burst of a token bucket.
    pub(super) fn measure_windows(&mut self, slice: Duration, min_windows: u32) -> ProbeResult<SustainedWindows> {
        let count = ((slice.as_secs_f64() / MIN_WINDOW.as_secs_f64()) as usize).max(min_windows as usize);
        let (first, rate) = self.settle_with_rate()?;
        let (mut windows, length) = (vec![first], window_length(self.transfer.links.len(), rate));
        while !has_enough_windows(&rates(&windows), count) {
            std::thread::sleep(length);
            windows.push(self.count_window()?);
        }
        Ok(SustainedWindows::from_windows(windows, self.start))
    }
}

/// Bytes that have arrived by each stream.
fn received_bytes(streams: &[Link]) -> ProbeResult<Vec<u64>> {
    let link_bytes = |link: &Link| match link {
        Link::Tcp(stream) => socket_queues::received_bytes(stream).map_err(|error| ProbeError::fail(error.to_string())),
        _ => Err(ProbeError::fail("the agent sends over TCP")),
    };
    streams.iter().map(link_bytes).collect()
}

/// How evenly streams share the rate in the windows after the first one: what the slowest carries of the fastest, the median.
pub(super) fn evenness(windows: &[RateWindow]) -> Option<f64> {
    let spreads = windows.get(1..)?.iter().filter_map(|window| window.spread?.evenness());
    let mut shares: Vec<f64> = spreads.collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied()
}

/// How busy either host was in the windows after the first one: this one, and the agent's.
pub(super) fn host_busy_shares(windows: &[RateWindow]) -> Option<[CpuUsage; 2]> {
    let later_windows = windows.get(1..)?;
    let median =
        |host: usize| CpuUsage::median(&later_windows.iter().map(|window| window.busy[host]).collect::<Vec<_>>());
    Some([median(0)?, median(1)?])
}

/// `host_busy_shares` in words, which name a limit.
pub(super) fn describe_busy([local, agent]: &[CpuUsage; 2]) -> String {
    let limit = match (local.is_cpu_bound(), agent.is_cpu_bound()) {
        (false, false) => "",
        (true, false) => ": CPU-limited by this host",
        (false, true) => ": CPU-limited by the agent's host",
        (true, true) => ": CPU-limited by both hosts",
    };
    format!("here {local}; at the agent {agent}{limit}")
}

#[cfg(test)]
mod tests {
    use kelvin_transfer::wire::cpu_usage::BusiestCpu;

    use super::*;

    fn cpu_usage(busiest_thread: f64, share: f64) -> CpuUsage {
        CpuUsage {
            busiest_thread,
            threads: busiest_thread,
            cpu: Some(BusiestCpu { number: 1, share, interrupts: 0.0 }),
        }
    }

    /// What was known when this much had arrived and had been sent.
    fn window(bytes: u64, sent: u64, time: u64) -> RateWindow {
        let totals = StreamTotals { time, bytes, sent, ..StreamTotals::default() };
        RateWindow { totals, dropped: 0, busy: [CpuUsage::default(); 2], spread: None }
    }

    #[test]
    fn rate_uses_receiver_clock() {
        let (from, to) = (window(1000, 1500, 5).totals, window(3000, 5500, 1_000_000_005).totals);
        assert_eq!((to.rate_since(&from), to.sent_since(&from)), (2000.0, 4000.0));
    }

    #[test]
    fn windows_before_fall_are_a_burst() {
        // Of 4 MB beyond 5 MB/s, at 25 MB/s: 0.2 s; windows of 0.1 s by a clock that was at 7 when it began.
        let window_at = |tenths: u64| {
            let bytes = if tenths <= 2 { tenths * 2_500_000 } else { 4_000_000 + tenths * 500_000 };
            window(bytes, 0, 7 + tenths * 100_000_000)
        };
        let bucket = SustainedWindows::from_windows((0..=6).map(window_at).collect(), 7);
        assert_eq!((bucket.windows.len(), bucket.windows[0].totals.time), (5, 200_000_007));
        let burst = bucket.burst.unwrap();
        assert!((burst.size - 4e6).abs() < 1.0 && (burst.rate - 25e6).abs() < 1.0, "{burst:?}");
        assert!(describe_burst(&burst).starts_with("a burst of 4.00 MB came first, at 25.0 MB/s on average"));
        let after_burst = SustainedWindows::from_windows((3..=6).map(window_at).collect(), 0);
        assert_eq!(after_burst.windows.len(), 4);
        let steady = SustainedWindows::from_windows((0..=2).map(window_at).collect(), 7);
        assert!(steady.windows.len() == 3 && steady.burst.is_none(), "{steady:?}");
        assert!(SustainedWindows::from_windows(Vec::new(), 0).burst.is_none());
    }

    #[test]
    fn window_holds_megabyte_per_stream() {
        assert_eq!(window_length(4, 4.4e6), Duration::from_secs_f64(4.0 / 4.4));
        assert_eq!([window_length(1, 4.4e6), window_length(4, 50e6), window_length(0, 0.0)], [MIN_WINDOW; 3]);
        assert_eq!([window_length(4, 1e6), window_length(2, 0.0)], [MAX_WINDOW; 2]);
    }

    #[test]
    fn windows_extend_until_fall_is_certain() {
        assert!(has_enough_windows(&[10.0, 10.0], 2) && !has_enough_windows(&[10.0], 2));
        assert!(!has_enough_windows(&[50.0, 10.0], 2) && has_enough_windows(&[50.0, 10.0, 10.0], 2));
        assert!(has_enough_windows(&[10.0], 1) && !has_enough_windows(&[50.0, 10.0], 1), "one window is no level");
        assert!(has_enough_windows(&[10.0, 7.0, 10.0], 2), "a dip");
        let falling_rates: Vec<f64> = (0..12).map(|power| 0.5_f64.powi(power)).collect();
        assert!(
            has_enough_windows(&falling_rates, 2) && !has_enough_windows(&falling_rates[..11], 2),
            "no level at all"
        );
    }

    #[test]
    fn limiting_host_is_named() {
        let (idle_usage, saturated_usage) = (cpu_usage(0.2, 0.3), cpu_usage(0.99, 1.0));
        assert_eq!(
            describe_busy(&[idle_usage, saturated_usage]),
            "here its busiest thread took 20 % of a CPU and CPU 1 was 30 % busy; at the agent its busiest thread took 99 % of \
             a CPU and CPU 1 was 100 % busy: CPU-limited by the agent's host"
        );
        assert!(describe_busy(&[saturated_usage, idle_usage]).ends_with(": CPU-limited by this host"));
        assert!(describe_busy(&[saturated_usage, saturated_usage]).ends_with(": CPU-limited by both hosts"));
        assert!(!describe_busy(&[idle_usage, idle_usage]).contains("limited"));
    }

    #[test]
    fn evenness_is_median_of_later_windows() {
        let spread_window =
            |slowest, fastest| RateWindow { spread: Some(StreamSpread { slowest, fastest }), ..window(0, 0, 0) };
        let windows =
            [spread_window(0, 9), spread_window(9, 10), spread_window(1, 2), spread_window(6, 8), window(0, 0, 0)];
        assert_eq!(evenness(&windows), Some(0.75));
        assert_eq!((evenness(&windows[..1]), evenness(&windows[4..]), evenness(&[])), (None, None, None));
    }

    #[test]
    fn first_window_ends_the_rise() {
        let busy_window =
            |local, agent| RateWindow { busy: [cpu_usage(local, local), cpu_usage(agent, agent)], ..window(0, 0, 0) };
        let windows = [busy_window(1.0, 1.0), busy_window(0.2, 0.5), busy_window(0.3, 0.6), busy_window(0.4, 0.7)];
        assert_eq!(host_busy_shares(&windows), Some([cpu_usage(0.3, 0.3), cpu_usage(0.6, 0.6)]));
        assert_eq!((host_busy_shares(&windows[..1]), host_busy_shares(&[])), (None, None));
    }
}
