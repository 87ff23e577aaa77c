//! An agent flooded by unauthenticated clients: whoever knows the secret still gets in.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::net::namespace::Namespace;
use kelvin_sys::net::tap::Tap;
use kelvin_sys::poll::wait_readable;
use kelvin_testing::MissingRequirement;
use kelvin_transfer::wire::admission::AdmissionLimits;
use kelvin_transfer::wire::admission::AgentLimits;
use kelvin_transfer::wire::agent::Agent;
use kelvin_transfer::wire::client::{AgentClient, client_handshake};
use kelvin_transfer::wire::message::PROTOCOL;
use kelvin_transfer::wire::secret::Secret;

/// Longer than any of these tests.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
const PORT: u16 = 27_315;
/// Connections a second, and how many of them are open at a time: more than there are places.
const CONNECTIONS_PER_SECOND: u32 = 1000;
const OPEN_CONNECTIONS: usize = 1500;
/// The delay of a frame, in each direction.
const DELAY: Duration = Duration::from_millis(20);

fn secret() -> Secret {
    Secret::new(b"an agent of the tests").unwrap()
}

/// Runs ip in this thread's namespace.
fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

fn new_namespace() -> Result<Namespace, String> {
    let namespace = Namespace::enter_new().map_err(|error| format!("a network namespace: {error}"))?;
    ip("link set lo up")?;
    Ok(namespace)
}

/// Runs something in its own thread, which may enter any namespace; prints why where that is impossible.
fn in_own_thread(test: impl FnOnce() -> Result<(), String> + Send) {
    kelvin_sys::process::raise_open_file_limit().unwrap();
    let outcome = std::thread::scope(|scope| scope.spawn(test).join());
    match outcome {
        Ok(Err(why)) => MissingRequirement::privilege(format!("network namespaces (root), ip and /dev/net/tun: {why}"))
            .report_skip("a flood of an agent"),
        Ok(Ok(())) => {}
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs an agent in this thread's namespace, and something at the same time.
fn with_agent(limits: AgentLimits, body: impl FnOnce()) {
    let address = SocketAddr::from(([0; 4], PORT));
    let agent = Agent::listen(address, secret(), limits, Box::new(|_, _| {})).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Opens a connection, and waits until the agent has greeted it, or closed it.
fn connect_and_read_hello(address: &str) -> (TcpStream, bool) {
    let stream = TcpStream::connect((address, PORT)).unwrap();
    let is_greeted = matches!(stream.peek(&mut [0]), Ok(1));
    (stream, is_greeted)
}

/// Whether a greeted connection gets in with the secret.
fn is_admitted(stream: TcpStream) -> bool {
    client_handshake(stream, &secret(), LONG_TIMEOUT).is_ok()
}

/// Any number of connections at any rate: none of this depends on time.
#[test]
fn newcomers_do_not_end_pending_handshake() {
    in_own_thread(|| {
        new_namespace()?;
        // Every address of it is one of this host, and connections to one come from it.
        ip("route add local 10.1.0.0/16 dev lo")?;
        let unauthenticated = AdmissionLimits { grace_period: LONG_TIMEOUT, ..AdmissionLimits::default() };
        let limits = AgentLimits { handshake_timeout: LONG_TIMEOUT, unauthenticated, ..AgentLimits::default() };
        with_agent(limits, || {
            let [client, neighbour] = ["10.1.0.1", "10.1.0.1"].map(connect_and_read_hello);
            assert!(client.1 && neighbour.1);
            // From one address more than there are places; each of them is greeted, as those before it are evicted.
            let flood: Vec<_> = (0..2 * unauthenticated.total).map(|_| connect_and_read_hello("10.1.0.2")).collect();
            assert!(flood.iter().all(|(_, is_greeted)| *is_greeted));
            assert!(is_admitted(client.0));
            // From this many addresses that no place is left.
            let newcomer = connect_and_read_hello("10.1.0.3");
            let flood: Vec<_> =
                (0..1000_u32).map(|n| connect_and_read_hello(&format!("10.1.{}.{}", 1 + n / 200, n % 200))).collect();
            assert!(flood[0].1 && flood.iter().any(|(_, is_greeted)| !is_greeted));
            assert!(is_admitted(newcomer.0) && is_admitted(neighbour.0));
        });
        Ok(())
    });
}

/// A byte now and then, of which the first begin a greeting.
fn trickle(stream: &mut TcpStream, byte: usize) {
    // A connection closed by the agent is no error.
    let _ = stream.write_all(&PROTOCOL.magic[byte..=byte]);
}

/// The kinds of unauthenticated clients.
#[derive(Clone, Copy, Debug)]
enum FloodKind {
    Silent,
    Trickling,
    /// The greeting of a client, with another secret.
    Wrong,
}

/// Connects to these addresses one after another until it is over, at most this many times a second. Keeps the last of the connections
/// open.
fn flood(addresses: &[SocketAddr], kind: FloodKind, is_over: &AtomicBool, connection_count: &AtomicU32) {
    let greeting = [&PROTOCOL.magic[..], &PROTOCOL.version.to_le_bytes(), &[9; 48]].concat();
    let (start, mut streams) = (Instant::now(), VecDeque::new());
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(
            (start + Duration::from_secs(1) * number / CONNECTIONS_PER_SECOND)
                .saturating_duration_since(Instant::now()),
        );
        let Ok(mut stream) = TcpStream::connect(addresses[number as usize % addresses.len()]) else { continue };
        connection_count.fetch_add(1, Ordering::Relaxed);
        match kind {
            FloodKind::Silent => {}
            FloodKind::Trickling => {
                streams.iter_mut().rev().take(5).enumerate().for_each(|(byte, open_stream)| trickle(open_stream, byte))
            }
            FloodKind::Wrong => drop(stream.write_all(&greeting)),
        }
        streams.push_back(stream);
        if streams.len() > OPEN_CONNECTIONS {
            streams.pop_front();
        }
    }
}

/// Forwards frames, each after a delay, until it is over.
fn relay(source: &Tap, target: &Tap, is_over: &AtomicBool) {
    let (mut frame, mut delayed_frames) = ([0; 2048], VecDeque::<(Instant, Vec<u8>)>::new());
    while !is_over.load(Ordering::Relaxed) {
        let timeout = delayed_frames.front().map_or(DELAY, |(due, _)| due.saturating_duration_since(Instant::now()));
        if wait_readable(source.as_fd(), timeout).unwrap() {
            let length = source.receive(&mut frame).unwrap();
            delayed_frames.push_back((Instant::now() + DELAY, frame[..length].to_vec()));
        }
        while delayed_frames.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            target.send(&delayed_frames.pop_front().unwrap().1).unwrap();
        }
    }
}

/// A namespace for the client, behind the relay, and one for the flood, in addition to the agent's, which is the calling thread's. The
/// flood reaches the agent at 10.3.0.1 to 10.3.0.16, each from its own address.
fn three_hosts() -> Result<([Namespace; 3], [Tap; 2]), String> {
    let tap = |name: &str| Tap::new(name).map_err(|error| format!("a tap interface: {error}"));
    let client = new_namespace()?;
    let client_tap = tap("far")?;
    ip("address add 10.2.0.2/24 dev far")?;
    ip("link set far up")?;
    let flood = new_namespace()?;
    let agent = new_namespace()?;
    let agent_tap = tap("near")?;
    ip("address add 10.2.0.1/24 dev near")?;
    ip("link set near up")?;
    ip(&format!("link add left type veth peer name right netns {}", flood.path()))?;
    ip("address add 10.4.0.1/24 dev left")?;
    ip("link set left up")?;
    ip("route add local 10.3.0.0/24 dev lo")?;
    flood.enter().map_err(|error| error.to_string())?;
    ip("link set right up")?;
    for number in 2..18 {
        ip(&format!("address add 10.4.0.{number}/24 dev right"))?;
        ip(&format!("route add 10.3.0.{}/32 via 10.4.0.1 src 10.4.0.{number}", number - 1))?;
    }
    agent.enter().map_err(|error| error.to_string())?;
    Ok(([client, flood, agent], [agent_tap, client_tap]))
}

/// Tries from behind the relay, while the flood comes from this many addresses in this manner, and has lasted for longer than
/// there are places.
fn while_flooded(addresses: u8, kind: FloodKind, attempt: fn()) {
    in_own_thread(|| {
        let ([client, flood_namespace, _agent], [agent_tap, client_tap]) = three_hosts()?;
        let addresses: Vec<SocketAddr> = (1..=addresses).map(|number| ([10, 3, 0, number], PORT).into()).collect();
        let (is_over, connection_count) = (AtomicBool::new(false), AtomicU32::new(0));
        // Those who got in stay connected for a while.
        let limits = AgentLimits { max_clients: 64, ..AgentLimits::default() };
        with_agent(limits, || {
            std::thread::scope(|scope| {
                scope.spawn(|| relay(&agent_tap, &client_tap, &is_over));
                scope.spawn(|| relay(&client_tap, &agent_tap, &is_over));
                scope.spawn(|| {
                    flood_namespace.enter().unwrap();
                    flood(&addresses, kind, &is_over, &connection_count);
                });
                let client_thread = scope.spawn(|| {
                    client.enter().unwrap();
                    while connection_count.load(Ordering::Relaxed) < OPEN_CONNECTIONS as u32 {
                        std::thread::sleep(DELAY);
                    }
                    let before = connection_count.load(Ordering::Relaxed);
                    attempt();
                    connection_count.load(Ordering::Relaxed) - before
                });
                let outcome = client_thread.join();
                is_over.store(true, Ordering::Relaxed);
                assert!(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) > 0, "the flood had ended");
            });
        });
        Ok(())
    });
}

/// Each of ten connections gets in at its first try: the flood has places of its own.
fn assert_admitted_at_first_try() {
    for _ in 0..10 {
        let stream = TcpStream::connect(("10.2.0.1", PORT)).unwrap();
        let mut channel = client_handshake(stream, &secret(), LONG_TIMEOUT).unwrap();
        channel.send(&kelvin_transfer::wire::message::AgentRequest::Accept, LONG_TIMEOUT).unwrap();
        assert!(matches!(
            channel.receive(LONG_TIMEOUT).unwrap(),
            kelvin_transfer::wire::message::AgentResponse::Ready { .. }
        ));
    }
}

#[test]
fn silent_flood_blocks_no_other_host() {
    while_flooded(1, FloodKind::Silent, assert_admitted_at_first_try);
}

#[test]
fn slow_sender_flood_blocks_no_other_host() {
    while_flooded(1, FloodKind::Trickling, assert_admitted_at_first_try);
}

#[test]
fn wrong_secret_flood_blocks_no_other_host() {
    while_flooded(1, FloodKind::Wrong, assert_admitted_at_first_try);
}

#[test]
fn flood_from_few_hosts_blocks_no_other() {
    while_flooded(6, FloodKind::Silent, assert_admitted_at_first_try);
}

/// Sixteen hosts can take all places. About half of the newcomers then get one, 512 of 1,000 each second: that all of twenty
/// tries fail happens one time in a million.
#[test]
fn retrying_client_gets_in_despite_flood() {
    while_flooded(16, FloodKind::Silent, || {
        for _ in 0..5 {
            let mut client = AgentClient::connect(&[SocketAddr::from(([10, 2, 0, 1], PORT))], &secret()).unwrap();
            let mut test = client.echo_tcp(3).unwrap();
            test.socket.write_all(b"abc").unwrap();
            let mut answer = [0; 3];
            test.socket.read_exact(&mut answer).unwrap();
            assert_eq!((&answer, test.finish().unwrap().arrived), (b"abc", 1));
        }
    });
}
