//! Another host for real: three network namespaces in a row, of which the one in the middle passes packets on, and its shaper drops
//! what is too much. So it is known how much can arrive, and that the rest is lost. What comes back is shaped where the agent is.

mod common;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use common::Directories;
use kelvin_catalogue::net::{
    MESSAGE, OFFERED, PEER_BANDWIDTH, PEER_BANDWIDTH_BUSY_HERE, PEER_BANDWIDTH_BUSY_THERE, PEER_BANDWIDTH_MESSAGE,
    PEER_BANDWIDTH_UDP, PEER_BANDWIDTH_UDP_LOST, PEER_BANDWIDTH_UDP_SENT, PEER_CLOSE, PEER_CONNECT, PEER_CRR,
    PEER_OFFERED, PEER_OFFERED_LOST, PEER_OFFERED_OVERTAKEN, PEER_OFFERED_SENT, STREAMS, SendMethod, StreamDirection,
};
use kelvin_model::{Attempt, Case, Metric, Reading};
use kelvin_sys::net::namespace::Namespace;
use kelvin_wire::agent::{Agent, Limits};
use kelvin_wire::secret::Secret;

/// Bits a second that the shaper lets through, and bytes of the program among them: 1472 of the 1514 that it counts.
const RATE: f64 = 50e6;
const EXPECTED: f64 = RATE / 8.0 * 1472.0 / 1514.0;
/// Bytes that it may save up, and seconds of a round.
const SAVED: f64 = 131_072.0;
const SECONDS: f64 = 2.0;

/// Where the agent listens.
const AGENT: &str = "10.83.81.2:27315";

/// Runs ip or tc in the namespace that this thread is in.
fn configure(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command.args(words).output().map_err(|error| format!("{line}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The near one, the one in the middle, the far one; the calling thread is in the first.
fn three_hosts() -> Result<[Namespace; 3], String> {
    let new = || Namespace::enter_new().map_err(|error| format!("a network namespace: {error}"));
    let (far, middle, near) = (new()?, new()?, new()?);
    let enter = |host: &Namespace| host.enter().map_err(|error| error.to_string());
    configure(&format!("ip link add near type veth peer name left netns {}", middle.path()))?;
    configure("ip address add 10.83.80.1/30 dev near")?;
    configure("ip link set near up")?;
    enter(&middle)?;
    configure("ip address add 10.83.80.2/30 dev left")?;
    configure("ip link set left up")?;
    configure(&format!("ip link add right type veth peer name far netns {}", far.path()))?;
    configure("ip address add 10.83.81.1/30 dev right")?;
    configure("ip link set right up")?;
    configure(&format!("tc qdisc add dev right root tbf rate {RATE}bit burst 128kb latency 20ms"))?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(|error| format!("to pass packets on: {error}"))?;
    enter(&far)?;
    configure("ip address add 10.83.81.2/30 dev far")?;
    configure("ip link set far up")?;
    configure(&format!("tc qdisc add dev far root tbf rate {RATE}bit burst 128kb latency 20ms"))?;
    configure("ip route add 10.83.80.0/30 via 10.83.81.1")?;
    enter(&near)?;
    configure("ip route add 10.83.81.0/30 via 10.83.80.2")?;
    Ok([near, middle, far])
}

/// Runs something in the near namespace, with an agent in the far one; prints why where that cannot be.
#[allow(clippy::print_stderr)]
fn with_an_agent_far_away(look: impl FnOnce(&Directories)) {
    let [near, _middle, far] = match three_hosts() {
        Ok(hosts) => hosts,
        Err(why) => {
            eprintln!("skipped: needs network namespaces, veth and tc tbf: {why}");
            return;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "a secret of sixteen bytes, or more").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let address: SocketAddr = AGENT.parse().unwrap();
    let (secret, is_over) = (Secret::read(Path::new(&token)).unwrap(), AtomicBool::new(false));
    far.enter().unwrap();
    let agent = Agent::listen(address, secret, Limits::default(), Box::new(|_, _| {})).unwrap();
    std::thread::scope(|scope| {
        // Threads begin where the thread is that starts them.
        scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        near.enter().unwrap();
        let directories = Directories { agent: Some((address, token)), ..Directories::scratch(directory.path()) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&directories)));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The figure of a metric.
fn figure(readings: &[Reading], metric: &Metric) -> f64 {
    let found = readings.iter().find(|reading| reading.metric == metric.id);
    common::median(found.unwrap_or_else(|| panic!("no {} in {readings:?}", metric.id)))
}

#[test]
fn what_a_shaper_on_the_way_drops_is_lost_and_not_claimed() {
    with_an_agent_far_away(|directories| {
        let slice = (SECONDS * 1000.0) as u64;
        // Twice as much as gets through.
        let case = Case::new().with(OFFERED, (2.0 * RATE) as u64);
        let readings = common::measure_at(directories, &PEER_OFFERED.id, &case, slice);
        let of = |metric| figure(&readings, metric);
        let (arrived, sent, lost) = (of(&PEER_OFFERED), of(&PEER_OFFERED_SENT), of(&PEER_OFFERED_LOST));
        assert!(arrived < EXPECTED * 1.05 + SAVED / SECONDS, "{arrived} bytes a second through {EXPECTED}");
        // A busy machine offers less, and lets less through.
        assert!(arrived > EXPECTED * 0.5 && sent <= 2.02 * RATE / 8.0, "{arrived} of {sent}");
        assert!((lost - (1.0 - arrived / sent)).abs() < 0.1, "{lost} lost, {arrived} of {sent} arrived");
        assert_eq!(of(&PEER_OFFERED_OVERTAKEN), 0.0, "a way has one queue");
        let notes = readings[0].notes.join("\n");
        assert!(notes.contains("0 datagrams found no room at the agent"), "{notes}");
        assert_eq!(notes.matches("driver veth").count(), 2, "{notes}");
        // As fast as possible: none of it is claimed that did not arrive.
        let case = Case::new().with(MESSAGE, 1472);
        let readings = common::measure_at(directories, &PEER_BANDWIDTH_UDP.id, &case, slice);
        let of = |metric| figure(&readings, metric);
        let (arrived, sent) = (of(&PEER_BANDWIDTH_UDP), of(&PEER_BANDWIDTH_UDP_SENT));
        assert!(arrived < EXPECTED * 1.05 + SAVED / SECONDS && sent > arrived, "{readings:?}");
        assert!(of(&PEER_BANDWIDTH_UDP_LOST) > 0.3, "{readings:?}");
    });
}

/// Bytes a second of streams that the shapers let through: 1448 of the 1514 that they count.
const STREAMED: f64 = RATE / 8.0 * 1448.0 / 1514.0;
/// Rounds of a measure at most, of which one must be right: a busy machine gives a shaper its turns late.
const ROUNDS: usize = 8;

/// Measures rounds until one gives what a link of this rate carries, within two percent; the readings of that one.
fn until_right(directories: &Directories, metric: &Metric, case: &Case) -> Vec<Reading> {
    let mut found = Vec::new();
    while found.len() < ROUNDS {
        let readings = common::measure_at(directories, &metric.id, case, (SECONDS * 1000.0) as u64);
        let share = figure(&readings, metric) / STREAMED;
        assert!(share < 1.02 + SAVED / SECONDS / STREAMED, "{share} of what gets through: {case}");
        if (share - 1.0).abs() < 0.02 {
            return readings;
        }
        found.push(share);
    }
    panic!("{found:?} of what gets through: {} {case}", metric.id);
}

#[test]
fn streams_end_where_the_shaper_ends_in_both_directions_and_both_ends_are_described() {
    with_an_agent_far_away(|directories| {
        use StreamDirection::{FromAgent, ToAgent};
        for (direction, streams) in [(ToAgent, 2), (FromAgent, 2), (FromAgent, 1)] {
            let case = Case::new().with(STREAMS, streams).at(direction);
            let readings = until_right(directories, &PEER_BANDWIDTH, &case);
            for metric in [&PEER_BANDWIDTH_BUSY_HERE, &PEER_BANDWIDTH_BUSY_THERE] {
                assert!((0.0..1.5).contains(&figure(&readings, metric)), "{readings:?}");
            }
            let notes = readings[0].notes.join("\n");
            assert_eq!(notes.matches("TCP_INFO").count(), 2, "of both ends: {notes}");
            for words in ["congestion control", "MTU 1500", "here its busiest thread took", "% of a CPU"] {
                assert!(notes.contains(words), "{words:?} is not in {notes}");
            }
        }
    });
}

#[test]
fn every_message_and_way_of_sending_fills_the_link() {
    with_an_agent_far_away(|directories| {
        use SendMethod::{Send, Sendfile, Splice, ZeroCopy};
        for (method, message) in
            [(Send, 4096), (Sendfile, 65_536), (Splice, 65_536), (ZeroCopy, 65_536), (Send, 1 << 20)]
        {
            let case = Case::new().with(MESSAGE, message).at(method);
            let readings = until_right(directories, &PEER_BANDWIDTH_MESSAGE, &case);
            let notes = readings[0].notes.join("\n");
            assert_eq!(notes.contains("completed as copied"), method == ZeroCopy, "{notes}");
            assert_eq!(notes.contains("a pipe of "), method == Splice, "{notes}");
            // The link is slow: whoever sends waits for it, and does not spin.
            let busy = notes.split("here its busiest thread took ").nth(1).and_then(|rest| rest.split(' ').next());
            assert!(busy.is_some_and(|percent| percent.parse::<f64>().unwrap() < 50.0), "{notes}");
        }
    });
}

#[test]
fn connections_are_closed_and_transactions_made_without_a_port_left_behind() {
    with_an_agent_far_away(|directories| {
        let readings = common::measure_at(directories, &PEER_CONNECT.id, &Case::new(), 100);
        let (connect, close) = (figure(&readings, &PEER_CONNECT), figure(&readings, &PEER_CLOSE));
        assert!(connect > 1000.0 && close > 500.0, "{connect} {close}");
        let notes = readings.last().unwrap().notes.join("\n");
        assert!(notes.contains("0 of them still hold a port"), "{notes}");
        let readings = common::measure_at(directories, &PEER_CRR.id, &Case::new(), 100);
        // Two round trips at least, a close, and whom to wake.
        let transaction = figure(&readings, &PEER_CRR);
        assert!(transaction > connect + close, "{transaction} {connect} {close}");
        let notes = readings[0].notes.join("\n");
        assert!(notes.contains(" transactions") && notes.contains("0 of them still hold a port"), "{notes}");
    });
}

#[test]
fn what_sockets_are_asked_for_reaches_both_ends() {
    with_an_agent_far_away(|directories| {
        let ask = |control: &str, direction| {
            let sockets =
                kelvin_harness::SocketOptions { congestion_control: Some(control.to_owned()), buffers: Some(64 << 10) };
            let case = Case::new().with(STREAMS, 1).at(direction);
            common::run_probe_asking(directories, sockets, &PEER_BANDWIDTH.id, &case, 100)
        };
        for &direction in StreamDirection::ALL {
            let Attempt::Measured(readings) = ask("reno", direction) else { panic!("not measured: {direction:?}") };
            let notes = readings[0].notes.join("\n");
            assert!(notes.contains("asked for: reno, buffers of 64 KiB"), "{notes}");
            let obtained = "congestion control reno; socket buffers of 128 KiB to send, 128 KiB to receive";
            assert_eq!(notes.matches(obtained).count(), 2, "at both ends: {notes}");
        }
        let refused = format!("{:?}", ask("nosuch", StreamDirection::FromAgent));
        let words =
            format!("{AGENT}: the agent refused: the kernel of the agent's host has no congestion control nosuch");
        assert!(refused.contains(&words), "{refused}");
    });
}
