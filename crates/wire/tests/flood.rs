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
use kelvin_sys::ready::readable;
use kelvin_testing::Missing;
use kelvin_wire::agent::Agent;
use kelvin_wire::client::{Client, shake};
use kelvin_wire::limits::Limits;
use kelvin_wire::message::PROTOCOL;
use kelvin_wire::places::Room;
use kelvin_wire::secret::Secret;

/// Longer than any of these tests.
const LONG: Duration = Duration::from_secs(60);
const PORT: u16 = 27_315;
/// Connections a second, and how many of them are open at a time: more than there are places.
const RATE: u32 = 1000;
const OPEN: usize = 1500;
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
fn apart(test: impl FnOnce() -> Result<(), String> + Send) {
    kelvin_sys::process::raise_open_files().unwrap();
    let outcome = std::thread::scope(|scope| scope.spawn(test).join());
    match outcome {
        Ok(Err(why)) => Missing::right(format!("network namespaces (root), ip and /dev/net/tun: {why}"))
            .skips("a flood of an agent"),
        Ok(Ok(())) => {}
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs an agent in this thread's namespace, and something beside it.
fn beside(limits: Limits, body: impl FnOnce()) {
    let everywhere = SocketAddr::from(([0; 4], PORT));
    let agent = Agent::listen(everywhere, secret(), limits, Box::new(|_, _| {})).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Opens a connection, and waits until the agent has greeted it, or closed it.
fn call(address: &str) -> (TcpStream, bool) {
    let stream = TcpStream::connect((address, PORT)).unwrap();
    let is_greeted = matches!(stream.peek(&mut [0]), Ok(1));
    (stream, is_greeted)
}

/// Whether a greeted connection gets in with the secret.
fn gets_in(stream: TcpStream) -> bool {
    shake(stream, &secret(), LONG).is_ok()
}

/// Any number of connections at any rate: none of this depends on time.
#[test]
fn a_handshake_in_progress_is_not_ended_by_newcomers() {
    apart(|| {
        new_namespace()?;
        // Every address of it is one of this host, and connections to one come from it.
        ip("route add local 10.1.0.0/16 dev lo")?;
        let unauthenticated = Room { undisturbed: LONG, ..Room::default() };
        let limits = Limits { handshake: LONG, unauthenticated, ..Limits::default() };
        beside(limits, || {
            let [mine, neighbour] = ["10.1.0.1", "10.1.0.1"].map(call);
            assert!(mine.1 && neighbour.1);
            // From one address more than there are places; each of them is greeted, as those before it are evicted.
            let flood: Vec<_> = (0..2 * unauthenticated.all).map(|_| call("10.1.0.2")).collect();
            assert!(flood.iter().all(|(_, is_greeted)| *is_greeted));
            assert!(gets_in(mine.0));
            // From so many addresses that no place is left.
            let other = call("10.1.0.3");
            let flood: Vec<_> = (0..1000_u32).map(|n| call(&format!("10.1.{}.{}", 1 + n / 200, n % 200))).collect();
            assert!(flood[0].1 && flood.iter().any(|(_, is_greeted)| !is_greeted));
            assert!(gets_in(other.0) && gets_in(neighbour.0));
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
enum Manner {
    Silent,
    Trickling,
    /// The greeting of a client, with another secret.
    Wrong,
}

/// Connects to these addresses in turn until it is over, at most so many times a second, and keeps the last of the connections
/// open.
fn flood(addresses: &[SocketAddr], manner: Manner, is_over: &AtomicBool, called: &AtomicU32) {
    let greeting = [&PROTOCOL.magic[..], &PROTOCOL.version.to_le_bytes(), &[9; 48]].concat();
    let (begun, mut open) = (Instant::now(), VecDeque::new());
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep((begun + Duration::from_secs(1) * number / RATE).saturating_duration_since(Instant::now()));
        let Ok(mut stream) = TcpStream::connect(addresses[number as usize % addresses.len()]) else { continue };
        called.fetch_add(1, Ordering::Relaxed);
        match manner {
            Manner::Silent => {}
            Manner::Trickling => open.iter_mut().rev().take(5).enumerate().for_each(|(byte, one)| trickle(one, byte)),
            Manner::Wrong => drop(stream.write_all(&greeting)),
        }
        open.push_back(stream);
        if open.len() > OPEN {
            open.pop_front();
        }
    }
}

/// Forwards frames, each after a delay, until it is over.
fn relay(from: &Tap, to: &Tap, is_over: &AtomicBool) {
    let (mut frame, mut kept) = ([0; 2048], VecDeque::<(Instant, Vec<u8>)>::new());
    while !is_over.load(Ordering::Relaxed) {
        let until = kept.front().map_or(DELAY, |(due, _)| due.saturating_duration_since(Instant::now()));
        if readable(from.as_fd(), until).unwrap() {
            let length = from.receive(&mut frame).unwrap();
            kept.push_back((Instant::now() + DELAY, frame[..length].to_vec()));
        }
        while let Some((_, frame)) = kept.pop_front_if(|(due, _)| *due <= Instant::now()) {
            to.send(&frame).unwrap();
        }
    }
}

/// A namespace for the client, behind the relay, and one for the flood, beside the agent's, which is the calling thread's. The
/// flood reaches the agent at 10.3.0.1 to 10.3.0.16, each from its own address.
fn three_hosts() -> Result<([Namespace; 3], [Tap; 2]), String> {
    let tap = |name: &str| Tap::new(name).map_err(|error| format!("a tap interface: {error}"));
    let client = new_namespace()?;
    let far = tap("far")?;
    ip("address add 10.2.0.2/24 dev far")?;
    ip("link set far up")?;
    let flood = new_namespace()?;
    let agent = new_namespace()?;
    let near = tap("near")?;
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
    Ok(([client, flood, agent], [near, far]))
}

/// Tries from behind the relay, while the flood comes from so many addresses in this manner, and has lasted for longer than
/// there are places.
fn while_flooded(addresses: u8, manner: Manner, attempt: fn()) {
    apart(|| {
        let ([client, flooding, _agent], [near, far]) = three_hosts()?;
        let addresses: Vec<SocketAddr> = (1..=addresses).map(|number| ([10, 3, 0, number], PORT).into()).collect();
        let (is_over, called) = (AtomicBool::new(false), AtomicU32::new(0));
        // Those who got in stay connected for a while.
        let limits = Limits { clients: 64, ..Limits::default() };
        beside(limits, || {
            std::thread::scope(|scope| {
                scope.spawn(|| relay(&near, &far, &is_over));
                scope.spawn(|| relay(&far, &near, &is_over));
                scope.spawn(|| {
                    flooding.enter().unwrap();
                    flood(&addresses, manner, &is_over, &called);
                });
                let trying = scope.spawn(|| {
                    client.enter().unwrap();
                    while called.load(Ordering::Relaxed) < OPEN as u32 {
                        std::thread::sleep(DELAY);
                    }
                    let before = called.load(Ordering::Relaxed);
                    attempt();
                    called.load(Ordering::Relaxed) - before
                });
                let outcome = trying.join();
                is_over.store(true, Ordering::Relaxed);
                assert!(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) > 0, "the flood had ended");
            });
        });
        Ok(())
    });
}

/// Each of ten connections gets in at its first try: the flood has places of its own.
fn gets_in_at_once() {
    for _ in 0..10 {
        let stream = TcpStream::connect(("10.2.0.1", PORT)).unwrap();
        let mut channel = shake(stream, &secret(), LONG).unwrap();
        channel.send(&kelvin_wire::message::Ask::Accept, LONG).unwrap();
        assert!(matches!(channel.receive(LONG).unwrap(), kelvin_wire::message::Answer::Ready { .. }));
    }
}

#[test]
fn a_silent_flood_from_one_host_keeps_no_one_else_out() {
    while_flooded(1, Manner::Silent, gets_in_at_once);
}

#[test]
fn a_flood_of_slow_senders_keeps_no_one_else_out() {
    while_flooded(1, Manner::Trickling, gets_in_at_once);
}

#[test]
fn a_flood_of_greetings_with_another_secret_keeps_no_one_else_out() {
    while_flooded(1, Manner::Wrong, gets_in_at_once);
}

#[test]
fn a_flood_from_a_few_hosts_keeps_no_one_else_out() {
    while_flooded(6, Manner::Silent, gets_in_at_once);
}

/// Sixteen hosts can take all places. About half of the newcomers then get one, 512 of 1,000 each second: that all of twenty
/// tries fail happens one time in a million.
#[test]
fn a_client_that_retries_gets_in_despite_a_flood_from_many_hosts() {
    while_flooded(16, Manner::Silent, || {
        for _ in 0..5 {
            let mut client = Client::connect(&[SocketAddr::from(([10, 2, 0, 1], PORT))], &secret()).unwrap();
            let mut test = client.echo_tcp(3).unwrap();
            test.socket().write_all(b"abc").unwrap();
            let mut answer = [0; 3];
            test.socket().read_exact(&mut answer).unwrap();
            assert_eq!((&answer, test.finish().unwrap().arrived), (b"abc", 1));
        }
    });
}
