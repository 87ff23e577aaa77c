//! A path of known delay: two network namespaces joined by a relay that delays each frame and logs the actual delay.
//!
//! The namespaces and interfaces belong to this process and end with it. Nothing is sent anywhere else.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_core::catalogue::truth::{DELAY, DELAY_LOGGED_RATIO, RELAY_DELAY};
use kelvin_stats::median;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::net::tap::Tap;
use kelvin_sys::poll::wait_readable;
use kelvin_sys::thread_spawn::ThreadBuilder;

use super::link::{bring_up, enter_namespace};
use crate::net::echo::EchoClient;
use crate::net::link::{Link, is_timeout};
use crate::prelude::*;
use crate::spinners::{SpinGuard, SpinPurpose, Spinners};

/// Nanoseconds of delay per frame, each way.
const DELAYS: [u64; 3] = [1_000_000, 5_000_000, 20_000_000];
/// Accuracy of the construction, in nanoseconds of a round trip: a relay that sleeps longer between frames wakes later.
const MAX_ERROR_NANOSECONDS: f64 = 200_000.0;
/// Bytes of a message, and of its frame: headers of Ethernet, IP and UDP.
const MESSAGE_BYTES: usize = 64;
const FRAME_BYTES: usize = 14 + 20 + 8 + MESSAGE_BYTES;
/// Maximum bytes of a frame.
const MAX_FRAME_BYTES: usize = 2048;
/// Round trips per median, and untimed ones before them.
const ROUND_TRIPS: usize = 15;
const WARM_UP_TRIPS: usize = 5;
/// How often a waiting thread checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

pub(super) static PROBE: Probe = Probe {
    summary: "Round trips between two network namespaces through a delaying relay",
    method: include_str!("delay.md"),
    cases: |_, effort| numbers(RELAY_DELAY, if effort == Effort::Quick { &DELAYS[1..2] } else { &DELAYS }),
    run,
    predict,
    ..Probe::truth(&[&DELAY, &DELAY_LOGGED_RATIO])
};

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let delay = RELAY_DELAY.number_in(case).filter(|delay| (1..=100_000_000).contains(delay));
    let delay = delay.or_fail(format!("the case needs a delay of up to 100 ms, not {case}"))?;
    let mut path = RelayedPath::open()?;
    let clock = bench.clock();
    let undelayed = path.round_trips(clock)?;
    path.delay.store(delay, Ordering::Relaxed);
    let delayed = path.round_trips(clock)?;
    let log = path.close()?;
    let pair = |trips: Vec<u64>, requested| {
        let trips = trips.into_iter().map(|ticks| bench.nanoseconds(ticks)).collect();
        RelayedTrip::pair(trips, &log, requested)
            .or_fail("the relay's log has another number of messages than were sent")
    };
    let (undelayed, delayed) = (pair(undelayed, 0)?, pair(delayed, delay)?);
    let median_of =
        |trips: &[RelayedTrip], value: fn(&RelayedTrip) -> f64| median(&trips.iter().map(value).collect::<Vec<_>>());
    let (base_median, delayed_median) =
        (median_of(&undelayed, |trip| trip.total), median_of(&delayed, |trip| trip.total));
    let base_overhead = median_of(&undelayed, |trip| trip.total - trip.relay_time);
    bench.note(format!(
        "{:.1} us without and {:.1} us with the relay's delay; it held a message {:.1} us each way",
        base_median / 1e3,
        delayed_median / 1e3,
        median_of(&delayed, |trip| trip.relay_time) / 2e3
    ));
    bench.record(&DELAY, vec![delayed_median - base_median]);
    let ratios: Vec<f64> = delayed.iter().map(|trip| (trip.total - base_overhead) / trip.relay_time).collect();
    bench.record(&DELAY_LOGGED_RATIO, vec![median(&ratios)]);
    Ok(())
}

/// A round trip, and how long the relay held its two messages, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RelayedTrip {
    total: f64,
    relay_time: f64,
}

impl RelayedTrip {
    /// The round trips at a setting, each with its own two entries of the relay's log: a sleep that ends late is in both.
    /// Without the first ones, which warm up; `None` where their number is another than the log's.
    fn pair(trips: Vec<f64>, log: &[Vec<RelayedDelay>; 2], requested: u64) -> Option<Vec<Self>> {
        let [forward, backward] =
            log.each_ref().map(|log| log.iter().filter(|entry| entry.requested == requested).collect::<Vec<_>>());
        let is_complete =
            trips.len() > WARM_UP_TRIPS && [&forward, &backward].iter().all(|log| log.len() == trips.len());
        let relay_times =
            forward.iter().zip(&backward).map(|(forward, backward)| (forward.actual + backward.actual) as f64);
        is_complete.then(|| {
            trips
                .into_iter()
                .zip(relay_times)
                .skip(WARM_UP_TRIPS)
                .map(|(total, relay_time)| Self { total, relay_time })
                .collect()
        })
    }
}

/// The requested and the actual delay of a frame, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RelayedDelay {
    requested: u64,
    actual: u64,
}

/// Both ends, and the relay between them.
struct RelayedPath {
    echo: EchoClient,
    delay: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    /// One of each direction.
    relays: [JoinHandle<kelvin_sys::Result<Vec<RelayedDelay>>>; 2],
    far: JoinHandle<kelvin_sys::Result<()>>,
    /// The CPU that all these threads share does not go idle while a frame is held: its wake-up would take longer than without a delay, and
    /// not be logged.
    _awake: (SpinGuard, Spinners),
}

impl RelayedPath {
    fn open() -> ProbeResult<Self> {
        let [near_address, far_address] = [Ipv4Addr::new(10, 83, 78, 1), Ipv4Addr::new(10, 83, 78, 2)];
        let (far_tap, far) = tap_end("far", far_address)?;
        let (near_tap, near) = tap_end("near", near_address)?;
        near.connect(far.local_addr()?)?;
        far.connect(near.local_addr()?)?;
        let (delay, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        // Those that were started would go on for ever, but for that.
        Self::start([near, far], [near_tap, far_tap], delay, &is_over)
            .inspect_err(|_| is_over.store(true, Ordering::Relaxed))
    }

    fn start(
        [near, far]: [UdpSocket; 2],
        [near_tap, far_tap]: [Tap; 2],
        delay: Arc<AtomicU64>,
        is_over: &Arc<AtomicBool>,
    ) -> ProbeResult<Self> {
        let (near_tap, far_tap) = (Arc::new(near_tap), Arc::new(far_tap));
        let start_relay = |from: &Arc<Tap>, to: &Arc<Tap>| {
            let (from, to, delay, stop) = (Arc::clone(from), Arc::clone(to), Arc::clone(&delay), Arc::clone(is_over));
            ThreadBuilder::named("relay").start(move || relay(&from, &to, &delay, &stop))
        };
        let relays = [start_relay(&near_tap, &far_tap)?, start_relay(&far_tap, &near_tap)?];
        let stop = Arc::clone(is_over);
        let far = ThreadBuilder::named("far").start(move || echo_loop(&far, &stop))?;
        let spinners =
            Spinners::start(&kelvin_sys::cpu::affinity()?, SpinPurpose::KeepAwake).map_err(ProbeError::Skip)?;
        let echo = EchoClient::over_link(Link::Udp(near), MESSAGE_BYTES)?;
        Ok(Self { echo, delay, is_over: Arc::clone(is_over), relays, far, _awake: (spinners.spin(), spinners) })
    }

    /// Round trips one after another, in ticks; the first ones warm up.
    fn round_trips(&mut self, clock: Clock) -> ProbeResult<Vec<u64>> {
        (0..WARM_UP_TRIPS + ROUND_TRIPS).map(|_| self.echo.time_round_trip(clock)).collect()
    }

    /// Ends it; returns the relay's log of messages, in both directions.
    fn close(self) -> ProbeResult<[Vec<RelayedDelay>; 2]> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread_panic = |_| ProbeError::fail("a thread of the path panicked");
        self.far.join().map_err(thread_panic)??;
        let [forward, backward] = self.relays.map(|relay| relay.join().map_err(thread_panic));
        Ok([forward??, backward??])
    }
}

/// A new network namespace with a tap interface of this address, and a socket in it; the calling thread stays in it.
fn tap_end(name: &str, address: Ipv4Addr) -> ProbeResult<(Tap, UdpSocket)> {
    enter_namespace()?;
    let tap = Tap::new(name).or_skip("needs /dev/net/tun and CAP_NET_ADMIN")?;
    // Neighbour discovery would send other frames, which delay messages; a kernel without IPv6 has none.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    bring_up(name, address)?;
    Ok((tap, UdpSocket::bind((address, 0))?))
}

/// Forwards frames, each after the delay; returns the actual delay of each message.
fn relay(from: &Tap, to: &Tap, delay: &AtomicU64, is_over: &AtomicBool) -> kelvin_sys::Result<Vec<RelayedDelay>> {
    let (mut frame, mut delays) = ([0; MAX_FRAME_BYTES], Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        if !wait_readable(from.as_fd(), STOP_CHECK_INTERVAL)? {
            continue;
        }
        let length = from.receive(&mut frame)?;
        let (arrival, requested) = (monotonic(), delay.load(Ordering::Relaxed));
        if requested > 0 {
            std::thread::sleep(Duration::from_nanos(requested));
        }
        let actual = monotonic() - arrival;
        to.send(&frame[..length])?;
        if length == FRAME_BYTES {
            delays.push(RelayedDelay { requested, actual });
        }
    }
    Ok(delays)
}

/// The loop of the echo thread.
fn echo_loop(socket: &UdpSocket, is_over: &AtomicBool) -> kelvin_sys::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    socket.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
    while !is_over.load(Ordering::Relaxed) {
        match socket.recv(&mut message) {
            Ok(count) => drop(socket.send(&message[..count])?),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn predict(_: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let reason = "the relay wakes late, and logs it: the known value is its log, truth.delay.ratio_to_log";
    unpredicted_if(*metric == DELAY, reason)?;
    let added_delay = 2.0 * RELAY_DELAY.number_in(case).unwrap_or_default() as f64;
    let share = MAX_ERROR_NANOSECONDS / added_delay;
    Ok(super::known_prediction(1.0, share, Unit::Ratio, &format!("{:.0} us are added", added_delay / 1e3)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn round_trip_has_its_own_entries_of_log() {
        let entry = |requested, actual| RelayedDelay { requested, actual };
        let log_of = |delays: &[u64]| delays.iter().map(|&actual| entry(7, actual)).collect::<Vec<_>>();
        // The warm-up, and a sleep that ended late on the way there, and one on the way back.
        let mut log = [log_of(&[9, 9, 9, 9, 9, 10, 90]), log_of(&[9, 9, 9, 9, 9, 40, 10])];
        log[0].insert(0, entry(0, 1));
        let trips = vec![25.0, 25.0, 25.0, 25.0, 25.0, 57.0, 107.0];
        let trip = |total, relay_time| RelayedTrip { total, relay_time };
        assert_eq!(RelayedTrip::pair(trips.clone(), &log, 7), Some(vec![trip(57.0, 50.0), trip(107.0, 100.0)]));
        assert_eq!(RelayedTrip::pair(trips[1..].to_vec(), &log, 7), None);
        assert_eq!(RelayedTrip::pair(vec![1.0], &log, 0), None);
    }

    #[test]
    fn five_ms_path_adds_ten_ms_rtt() {
        with_facts(&[], |facts| {
            let predicted = |metric| predict(facts, metric, &Case::new().with_number(RELAY_DELAY, 5_000_000));
            let ratio = predicted(&DELAY_LOGGED_RATIO).unwrap();
            assert!(predicted(&DELAY).is_err());
            assert_eq!((ratio.value, ratio.low, ratio.high), (1.0, 0.98, 1.02));
        });
    }
}
