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
use kelvin_core::{Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_harness::{Bench, Effort, PredictionInputs, Probe, ProbeError, ProbeKind};
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::net::namespace::Namespace;
use kelvin_sys::net::tap::Tap;
use kelvin_sys::poll::wait_readable;
use kelvin_sys::thread_spawn::ThreadBuilder;

use super::link::configure;
use crate::net::echo::EchoClient;
use crate::net::link::{Link, is_timeout};

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
    id: DELAY.id.as_str(),
    summary: "Round trips between two network namespaces through a delaying relay",
    kind: ProbeKind::Truth,
    method: super::method(
        "Two network namespaces have a tap interface each. A thread for each direction reads the frames of one, holds \
         them for the delay, writes them to the other, and logs the actual delay. Datagrams of 64 bytes are echoed as \
         in net.rtt.udp: first without the delay, then with it, while an idle-class thread keeps the CPU awake. The \
         figure is the difference of the two medians; a second metric is its ratio to the same difference in the \
         relay's log. Needs root, ip and /dev/net/tun.",
    ),
    metrics: &[&DELAY, &DELAY_LOGGED_RATIO],
    cases: |_: &Machine, effort: Effort| {
        let delays = if effort == Effort::Quick { &DELAYS[1..2] } else { &DELAYS };
        delays.iter().map(|&delay| Case::new().with_number(RELAY_DELAY, delay)).collect()
    },
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), ProbeError> {
    let delay = RELAY_DELAY.number_in(case).filter(|delay| (1..=100_000_000).contains(delay));
    let delay = delay.ok_or_else(|| ProbeError::fail(format!("the case needs a delay of up to 100 ms, not {case}")))?;
    let mut path = RelayedPath::open()?;
    let clock = bench.clock();
    let nanoseconds = |ticks: u64| bench.nanoseconds(ticks);
    let without = nanoseconds(path.round_trip(clock)?);
    path.delay.store(delay, Ordering::Relaxed);
    let with = nanoseconds(path.round_trip(clock)?);
    let noted = path.close()?;
    let of =
        |wanted: u64| measured_delay(&noted, wanted).ok_or_else(|| ProbeError::fail("the relay forwarded no message"));
    let (added, relayed) = (with - without, of(delay)? - of(0)?);
    bench.note(format!(
        "{:.1} us without and {:.1} us with the relay's delay; it held a message {:.1} us longer each way",
        without / 1e3,
        with / 1e3,
        relayed / 2e3
    ));
    bench.record(&DELAY, vec![added]);
    bench.record(&DELAY_LOGGED_RATIO, vec![added / relayed]);
    Ok(())
}

/// Median round-trip delay in the relay's log at a given setting, in nanoseconds.
fn measured_delay(noted: &[Vec<RelayedDelay>; 2], wanted: u64) -> Option<f64> {
    let one_way = |noted: &Vec<RelayedDelay>| {
        let all = noted.iter().filter(|kept| kept.wanted == wanted).map(|kept| kept.really);
        super::median(all).map(|median| median as f64)
    };
    Some(one_way(&noted[0])? + one_way(&noted[1])?)
}

/// The requested and the actual delay of a frame, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RelayedDelay {
    wanted: u64,
    really: u64,
}

/// Both ends, and the relay between them.
struct RelayedPath {
    echo: EchoClient,
    delay: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    relays: Vec<JoinHandle<kelvin_sys::Result<Vec<RelayedDelay>>>>,
    far: JoinHandle<kelvin_sys::Result<()>>,
    awake: JoinHandle<kelvin_sys::Result<()>>,
}

impl RelayedPath {
    fn open() -> Result<Self, ProbeError> {
        let [here, there] = [Ipv4Addr::new(10, 83, 78, 1), Ipv4Addr::new(10, 83, 78, 2)];
        let (far_tap, far) = tap_end("far", there)?;
        let (near_tap, near) = tap_end("near", here)?;
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
    ) -> Result<Self, ProbeError> {
        let (near_tap, far_tap) = (Arc::new(near_tap), Arc::new(far_tap));
        let mut relays = Vec::new();
        for (from, to) in [(&near_tap, &far_tap), (&far_tap, &near_tap)] {
            let (from, to, delay, is_over) =
                (Arc::clone(from), Arc::clone(to), Arc::clone(&delay), Arc::clone(is_over));
            relays.push(ThreadBuilder::named("relay").start(move || relay(&from, &to, &delay, &is_over))?);
        }
        let stop = Arc::clone(is_over);
        let far = ThreadBuilder::named("far").start(move || echo_loop(&far, &stop))?;
        let stop = Arc::clone(is_over);
        let awake = ThreadBuilder::named("awake").start(move || keep_cpu_awake(&stop))?;
        let echo = EchoClient::over_link(Link::Udp(near), MESSAGE_BYTES)?;
        Ok(Self { echo, delay, is_over: Arc::clone(is_over), relays, far, awake })
    }

    /// The median round trip, in ticks.
    fn round_trip(&mut self, clock: Clock) -> Result<u64, ProbeError> {
        let all = (0..WARM_UP_TRIPS + ROUND_TRIPS)
            .map(|_| self.echo.time_round_trip(clock))
            .collect::<Result<Vec<u64>, ProbeError>>()?;
        super::median(all.into_iter().skip(WARM_UP_TRIPS)).ok_or_else(|| ProbeError::fail("no round trip was made"))
    }

    /// Ends it; returns the relay's log of messages, in both directions.
    fn close(self) -> Result<[Vec<RelayedDelay>; 2], ProbeError> {
        self.is_over.store(true, Ordering::Relaxed);
        let panicked = |_| ProbeError::fail("a thread of the path panicked");
        self.far.join().map_err(panicked)??;
        self.awake.join().map_err(panicked)??;
        let mut noted = Vec::new();
        for relay in self.relays {
            noted.push(relay.join().map_err(panicked)??);
        }
        noted.try_into().map_err(|_| ProbeError::fail("a path has two directions"))
    }
}

/// A new network namespace with a tap interface of this address, and a socket in it; the calling thread stays in it.
fn tap_end(name: &str, address: Ipv4Addr) -> Result<(Tap, UdpSocket), ProbeError> {
    let forbidden = |error| ProbeError::skip(format!("needs the right to make a network namespace (root): {error}"));
    Namespace::enter_new().map_err(forbidden)?;
    let tap =
        Tap::new(name).map_err(|error| ProbeError::skip(format!("needs /dev/net/tun and CAP_NET_ADMIN: {error}")))?;
    // Neighbour discovery would send other frames, which delay messages; a kernel without IPv6 has none.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    configure("ip", &["address", "add", &format!("{address}/30"), "dev", name])?;
    configure("ip", &["link", "set", name, "up"])?;
    Ok((tap, UdpSocket::bind((address, 0))?))
}

/// Forwards frames, each after the delay; returns the actual delay of each message.
fn relay(from: &Tap, to: &Tap, delay: &AtomicU64, is_over: &AtomicBool) -> kelvin_sys::Result<Vec<RelayedDelay>> {
    let (mut frame, mut noted) = ([0; MAX_FRAME_BYTES], Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        if !wait_readable(from.as_fd(), STOP_CHECK_INTERVAL)? {
            continue;
        }
        let length = from.receive(&mut frame)?;
        let (came, wanted) = (monotonic(), delay.load(Ordering::Relaxed));
        if wanted > 0 {
            std::thread::sleep(Duration::from_nanos(wanted));
        }
        let really = monotonic() - came;
        to.send(&frame[..length])?;
        if length == FRAME_BYTES {
            noted.push(RelayedDelay { wanted, really });
        }
    }
    Ok(noted)
}

/// Keeps the CPU that all these threads share from going idle while a frame is held: its wake-up would take longer than
/// without a delay, and not be logged.
fn keep_cpu_awake(is_over: &AtomicBool) -> kelvin_sys::Result<()> {
    kelvin_sys::cpu::set_idle_priority()?;
    while !is_over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
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

fn predict(_: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if *metric == DELAY {
        return Err(NoPrediction::new(
            "the relay wakes late, and logs it: the known value is its log, truth.delay.ratio_to_log",
        ));
    }
    let added = 2.0 * RELAY_DELAY.number_in(case).unwrap_or_default() as f64;
    let share = MAX_ERROR_NANOSECONDS / added;
    Ok(super::known_prediction(1.0, share, Unit::Ratio, &format!("{:.0} us are added", added / 1e3)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn delays_are_grouped_by_request() {
        let of = |wanted, really| RelayedDelay { wanted, really };
        let noted = [vec![of(0, 5), of(7, 100), of(7, 300), of(7, 120)], vec![of(0, 6), of(7, 110), of(7, 90)]];
        assert_eq!(
            (measured_delay(&noted, 7), measured_delay(&noted, 0), measured_delay(&noted, 8)),
            (Some(230.0), Some(11.0), None)
        );
    }

    #[test]
    fn five_ms_path_adds_ten_ms_rtt() {
        with_facts(&[], |facts| {
            let of = |metric| predict(facts, metric, &Case::new().with_number(RELAY_DELAY, 5_000_000));
            let ratio = of(&DELAY_LOGGED_RATIO).unwrap();
            assert!(of(&DELAY).is_err());
            assert_eq!((ratio.value, ratio.low, ratio.high), (1.0, 0.98, 1.02));
        });
    }
}
