//! Another host for real: three network namespaces in a row, of which the middle one forwards packets, and its shaper drops the
//! excess. So it is known how much can arrive, and that the rest is lost. The other direction is shaped on the agent's side.

mod common;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::TestDirectories;
use kelvin_core::{Case, MetricReadings, RoundOutcome};
use kelvin_sys::net::namespace::Namespace;
use kelvin_testing::MissingRequirement;
use kelvin_transfer::wire::admission::AgentLimits;
use kelvin_transfer::wire::agent::Agent;
use kelvin_transfer::wire::secret::Secret;

/// Bits per second that the shaper lets through, and bytes of payload among them: 1472 of the 1514 that it counts.
const SHAPED_RATE: f64 = 50e6;
const EXPECTED_UDP_RATE: f64 = SHAPED_RATE / 8.0 * 1472.0 / 1514.0;
/// How much more than the shaper's rate may seem to arrive in a round: its burst, and the time between counting bytes and
/// reading the clock on a busy machine.
const MAX_RATE_RATIO: f64 = 1.5;
/// Milliseconds of a round.
const SLICE: u64 = 400;

/// Where the agent listens.
const AGENT: &str = "10.83.81.2:27315";

/// Runs ip or tc in the namespace that this thread is in.
fn configure(line: &str) -> Result<(), MissingRequirement> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command.args(words).output().map_err(|error| MissingRequirement::program(line, "iproute2", &error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(MissingRequirement::privilege(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

/// The near, the middle and the far one; the calling thread is in the first.
fn create_three_hosts() -> Result<[Namespace; 3], MissingRequirement> {
    let new = || {
        Namespace::enter_new()
            .map_err(|error| MissingRequirement::privilege(format!("a network namespace (root): {error}")))
    };
    let (far, middle, near) = (new()?, new()?, new()?);
    let enter = |host: &Namespace| host.enter().map_err(MissingRequirement::privilege);
    configure(&format!("ip link add near type veth peer name left netns {}", middle.path()))?;
    configure("ip address add 10.83.80.1/30 dev near")?;
    configure("ip link set near up")?;
    enter(&middle)?;
    configure("ip address add 10.83.80.2/30 dev left")?;
    configure("ip link set left up")?;
    configure(&format!("ip link add right type veth peer name far netns {}", far.path()))?;
    configure("ip address add 10.83.81.1/30 dev right")?;
    configure("ip link set right up")?;
    configure(&format!("tc qdisc add dev right root tbf rate {SHAPED_RATE}bit burst 128kb latency 20ms"))?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .map_err(|error| MissingRequirement::privilege(format!("to pass packets on: {error}")))?;
    enter(&far)?;
    configure("ip address add 10.83.81.2/30 dev far")?;
    configure("ip link set far up")?;
    configure(&format!("tc qdisc add dev far root tbf rate {SHAPED_RATE}bit burst 128kb latency 20ms"))?;
    configure("ip route add 10.83.80.0/30 via 10.83.81.1")?;
    enter(&near)?;
    configure("ip route add 10.83.81.0/30 via 10.83.80.2")?;
    Ok([near, middle, far])
}

/// Runs something in the near namespace, with an agent in the far one; prints why where that is impossible.
fn with_remote_agent(f: impl FnOnce(&TestDirectories)) {
    let [near, _middle, far] = match create_three_hosts() {
        Ok(hosts) => hosts,
        Err(requirement) => {
            return requirement.report_skip("the network to another host, which is a network namespace");
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "a secret of sixteen bytes, or more").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let address: SocketAddr = AGENT.parse().unwrap();
    let (secret, is_over) = (Secret::read(Path::new(&token)).unwrap(), AtomicBool::new(false));
    far.enter().unwrap();
    let agent = Agent::listen(address, secret, AgentLimits::default(), Box::new(|_, _| {})).unwrap();
    std::thread::scope(|scope| {
        // Threads begin in the namespace of the thread that starts them.
        scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        near.enter().unwrap();
        let directories =
            TestDirectories { agent: Some((address, token)), ..TestDirectories::with_scratch(directory.path()) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&directories)));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The figure of a metric.
fn figure(readings: &[MetricReadings], metric: &str) -> f64 {
    common::median(common::reading_of(readings, metric))
}

#[test]
fn shaper_drops_count_as_lost() {
    with_remote_agent(|directories| {
        // Twice as much as gets through.
        let case = Case::new().with_number("offered", (2.0 * SHAPED_RATE) as u64);
        let readings = common::measure_at(directories, "net.peer.offered", &case, SLICE);
        let value_of = |suffix: &str| figure(&readings, &format!("net.peer.offered{suffix}"));
        assert!(
            value_of("") < EXPECTED_UDP_RATE * MAX_RATE_RATIO,
            "{} bytes a second through {EXPECTED_UDP_RATE}",
            value_of("")
        );
        assert!((0.0..=1.0).contains(&value_of(".lost")), "{readings:?}");
        assert_eq!(value_of(".reordered"), 0.0, "the path has one queue");
        let notes = readings[0].notes.join("\n");
        assert!(notes.contains("0 datagrams found the agent's socket full"), "{notes}");
        assert_eq!(notes.matches("driver veth").count(), 2, "{notes}");
        // As fast as possible: only what arrived is claimed.
        let case = Case::new().with_number("message", 1472);
        let readings = common::measure_at(directories, "net.peer.bandwidth.udp", &case, SLICE);
        let value_of = |suffix: &str| figure(&readings, &format!("net.peer.bandwidth.udp{suffix}"));
        assert!(
            value_of("") < EXPECTED_UDP_RATE * MAX_RATE_RATIO && (0.0..=1.0).contains(&value_of(".lost")),
            "{readings:?}"
        );
        value_of(".sent");
    });
}

/// Bytes a second of streams that the shapers let through: 1448 of the 1514 that they count.
const EXPECTED_TCP_RATE: f64 = SHAPED_RATE / 8.0 * 1448.0 / 1514.0;

/// Measures a round, which gives no more than a link of this rate carries.
fn measure_within_link(directories: &TestDirectories, metric: &str, case: &Case) -> Vec<MetricReadings> {
    let readings = common::measure_at(directories, metric, case, SLICE);
    let rate = figure(&readings, metric);
    assert!(
        rate > 0.0 && rate < EXPECTED_TCP_RATE * MAX_RATE_RATIO,
        "{case}: {rate} bytes a second through {EXPECTED_TCP_RATE}"
    );
    readings
}

#[test]
fn shaped_streams_in_both_directions() {
    with_remote_agent(|directories| {
        for (direction, streams) in [("to_agent", 2), ("from_agent", 2), ("from_agent", 1), ("to_agent", 16)] {
            let case = Case::new()
                .with_number("streams", streams)
                .with_word(kelvin_core::AxisWord::from_names("direction", direction));
            let readings = measure_within_link(directories, "net.peer.bandwidth", &case);
            for metric in ["net.peer.bandwidth.busy_here", "net.peer.bandwidth.busy_there"] {
                figure(&readings, metric);
            }
            let notes = readings[0].notes.join("\n");
            assert_eq!(notes.matches("TCP_INFO").count(), 2, "of both hosts: {notes}");
            for words in ["congestion control", "MTU 1500", "here its busiest thread took", "% of a CPU"] {
                assert!(notes.contains(words), "{words:?} is not in {notes}");
            }
            let sharing = [format!("{streams} streams on CPUs "), " of the fastest; ".into(), "were sent again".into()];
            for words in sharing {
                assert_eq!(notes.contains(&words), streams > 1, "{words:?} in {notes}");
            }
        }
    });
}

#[test]
fn all_messages_and_methods_are_shaped() {
    with_remote_agent(|directories| {
        for (method, message) in
            [("send", 4096), ("sendfile", 65_536), ("splice", 65_536), ("zerocopy", 65_536), ("send", 1 << 20)]
        {
            let case =
                Case::new().with_number("message", message).with_word(kelvin_core::AxisWord::from_names("way", method));
            let readings = measure_within_link(directories, "net.peer.bandwidth.message", &case);
            let notes = readings[0].notes.join("\n");
            assert_eq!(notes.contains("completed as copied"), method == "zerocopy", "{notes}");
            assert_eq!(notes.contains("a pipe of "), method == "splice", "{notes}");
        }
    });
}

#[test]
fn connections_leave_no_held_ports() {
    with_remote_agent(|directories| {
        let readings = common::measure_at(directories, "net.peer.connect", &Case::new(), 100);
        for metric in ["net.peer.connect", "net.peer.close"] {
            figure(&readings, metric);
        }
        let notes = readings.last().unwrap().notes.join("\n");
        assert!(notes.contains("0 of them still hold a port"), "{notes}");
        let readings = common::measure_at(directories, "net.peer.crr", &Case::new(), 100);
        figure(&readings, "net.peer.crr");
        let notes = readings[0].notes.join("\n");
        assert!(notes.contains(" transactions") && notes.contains("0 of them still hold a port"), "{notes}");
    });
}

#[test]
fn socket_options_reach_both_sides() {
    with_remote_agent(|directories| {
        let attempt = |control: &str, direction| {
            let sockets = kelvin_harness::TcpOptions {
                congestion_control: Some(control.to_owned()),
                buffers: Some(64 << 10),
                ..kelvin_harness::TcpOptions::default()
            };
            let case = Case::new()
                .with_number("streams", 1)
                .with_word(kelvin_core::AxisWord::from_names("direction", direction));
            common::run_probe_with(directories, sockets, "net.peer.bandwidth", &case, 100)
        };
        for direction in ["to_agent", "from_agent"] {
            let RoundOutcome::Measured(readings) = attempt("reno", direction) else {
                panic!("not measured: {direction}")
            };
            let notes = readings[0].notes.join("\n");
            assert!(notes.contains("requested: reno, buffers of 64 KiB"), "{notes}");
            let expected = "congestion control reno; socket buffers of 128 KiB to send, 128 KiB to receive";
            assert_eq!(notes.matches(expected).count(), 2, "on both hosts: {notes}");
        }
        let refusal = format!("{:?}", attempt("nosuch", "from_agent"));
        let words =
            format!("{AGENT}: the agent refused: the kernel of the agent's host has no congestion control nosuch");
        assert!(refusal.contains(&words), "{refusal}");
    });
}
