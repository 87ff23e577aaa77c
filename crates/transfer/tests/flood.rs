//! A receiver flooded by connections that do not know its secret: whoever does still gets in.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kelvin_sys::net::connect_prepared;
use kelvin_transfer::PROTOCOL;
use kelvin_transfer::offer_policy::Destination;
use kelvin_transfer::receive::{Receiver, ReceiverOptions};
use kelvin_transfer::wire::Error;
use kelvin_transfer::wire::deadline::Deadline;
use kelvin_transfer::wire::handshake::Handshake;
use kelvin_transfer::wire::secret::Secret;

/// Longer than any of these tests.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections of the flood that are open at a time: more than one network has places.
const OPEN_CONNECTIONS: usize = 200;
/// Two hosts: each address of 127.0.0.0/8 is one of this host, and for the receiver a network of its own.
const CLIENT_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
const FLOOD_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);

fn secret() -> Secret {
    Secret::new(b"a receiver of the tests").unwrap()
}

/// Runs a receiver that keeps nothing, and something at the same time.
fn with_receiver(body: impl FnOnce(SocketAddr)) {
    kelvin_sys::process::raise_open_file_limit().unwrap();
    let (bind_address, options) = ("127.0.0.1:0".parse().unwrap(), ReceiverOptions::default());
    let receiver =
        Receiver::listen(bind_address, Destination::Nothing, secret(), options, Box::new(|_, _| {})).unwrap();
    let (address, is_over) = (receiver.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| receiver.serve(|| is_over.load(Ordering::Relaxed)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address)));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn connect(source: Ipv4Addr, target: SocketAddr) -> TcpStream {
    let bind = |stream: &TcpStream| Ok(rustix::net::bind(stream, &SocketAddr::from((source, 0)))?);
    connect_prepared(target, LONG_TIMEOUT, bind).unwrap()
}

/// Opens a connection, and waits until the receiver has greeted it, or closed it.
fn connect_and_read_hello(source: Ipv4Addr, target: SocketAddr) -> (TcpStream, bool) {
    let stream = connect(source, target);
    let is_greeted = matches!(stream.peek(&mut [0]), Ok(1));
    (stream, is_greeted)
}

/// Shakes hands with the secret.
fn complete_handshake(stream: &mut TcpStream) -> Result<(), Error> {
    let secret = secret();
    Handshake { protocol: &PROTOCOL, secret: &secret, deadline: Deadline::within(LONG_TIMEOUT) }
        .connect(stream)
        .map(drop)
}

#[test]
fn newcomers_do_not_end_pending_handshake() {
    with_receiver(|address| {
        let (mut client, is_greeted) = connect_and_read_hello(CLIENT_ADDRESS, address);
        // More than it has places: each of them is greeted, as those before it are evicted.
        let flood: Vec<_> = (0..OPEN_CONNECTIONS).map(|_| connect_and_read_hello(FLOOD_ADDRESS, address)).collect();
        assert!(is_greeted && flood.iter().all(|(_, is_greeted)| *is_greeted));
        complete_handshake(&mut client).unwrap();
    });
}

/// Connects until it is over, sends this each time, and keeps the last of the connections open.
fn flood(address: SocketAddr, payload: &[u8], is_over: &AtomicBool, connection_count: &AtomicU32) {
    let mut streams = VecDeque::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = connect(FLOOD_ADDRESS, address);
        // Closed by the receiver already, it is no less one of the flood.
        let _ = stream.write_all(payload);
        streams.push_back(stream);
        if streams.len() > OPEN_CONNECTIONS {
            streams.pop_front();
        }
        connection_count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each of ten connections gets in at its first try, while another host connects as fast as it can.
fn while_flooded(payload: &[u8]) {
    with_receiver(|address| {
        let (is_over, connection_count) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| flood(address, payload, &is_over, &connection_count));
            let client = scope.spawn(|| {
                while connection_count.load(Ordering::Relaxed) < OPEN_CONNECTIONS as u32 {
                    std::thread::yield_now();
                }
                for _ in 0..10 {
                    // Those that are gone may still have the places of senders.
                    while let Err(error) = complete_handshake(&mut connect(CLIENT_ADDRESS, address)) {
                        assert!(matches!(error, Error::ServerFull(_)), "{error}");
                    }
                }
            });
            let outcome = client.join();
            is_over.store(true, Ordering::Relaxed);
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    });
}

#[test]
fn silent_flood_blocks_no_other_host() {
    while_flooded(b"");
}

#[test]
fn wrong_secret_flood_blocks_no_other_host() {
    while_flooded(&[&PROTOCOL.magic[..], &PROTOCOL.version.to_le_bytes(), &[9; 48]].concat());
}
