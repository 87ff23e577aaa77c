//! An end that waits for many bytes is woken when the last of them come, however many were there before.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::channel;

use kelvin_sys::net::namespace::Namespace;
use kelvin_testing::MissingRequirement;

use super::{ScriptedStream, connected_halves, content};
use crate::message::SenderMessage;
use crate::secure_channel::{PART_BYTES, SecureChannel, TransferStream};
use crate::wire::cipher::TAG_BYTES;

/// Sizes below, at and above the fewest and the most bytes that are waited for, and what was left of a block when an end slept.
const SIZES: [usize; 9] = [
    1448,
    PART_BYTES / 2 - 1,
    PART_BYTES / 2,
    PART_BYTES / 2 + 1,
    65_322,
    PART_BYTES - 1,
    PART_BYTES,
    PART_BYTES + 1,
    3 * PART_BYTES,
];

/// Both ends of a connection.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A channel that hands over what it sends, the connection into which that goes, and the channel at the end of it.
struct ChannelPair {
    sealing: SecureChannel<ScriptedStream>,
    sealed: ScriptedStream,
    client: TcpStream,
    receiver: SecureChannel,
    /// Of the receiver's socket.
    handle: TcpStream,
}

impl ChannelPair {
    fn new(plain: bool) -> Self {
        let (sender, receiver) = connected_halves();
        let sealed = ScriptedStream::default();
        let (client, server) = connection();
        let handle = server.try_clone().unwrap();
        let mut sealing = SecureChannel::new(sealed.clone(), sender).unwrap();
        let mut receiver = SecureChannel::new(server, receiver).unwrap();
        sealing.plain = plain;
        receiver.plain = plain;
        Self { sealing, sealed, client, receiver, handle }
    }

    /// Has the kernel widen the window, without which nothing waits for many bytes.
    fn widen(&mut self) {
        let (data, mut received) = (content(PART_BYTES, 1), vec![0; PART_BYTES + TAG_BYTES]);
        for _ in 0..1000 {
            if self.handle.receive_window().unwrap() >= 4 * PART_BYTES {
                return;
            }
            self.deliver(&data, (0, &mut received));
        }
        panic!("the window stays narrow");
    }

    /// Has bytes come, this many of them before they are waited for and the others when the receiver sleeps.
    fn deliver(&mut self, data: &[u8], (early_bytes, received): (usize, &mut Vec<u8>)) {
        self.sealing.send_data(data).unwrap();
        let frames = self.sealed.received.take();
        let (first, rest) = frames.split_at(early_bytes);
        let Self { client, receiver, .. } = self;
        client.write_all(first).unwrap();
        std::thread::scope(|scope| {
            let (path_sender, path_receiver) = channel();
            let receiving = scope.spawn(move || {
                path_sender.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
                receiver.receive_data(received, data.len()).unwrap();
                assert!(received[..data.len()] == *data);
            });
            let stat = std::path::Path::new("/proc").join(path_receiver.recv().unwrap()).join("stat");
            let is_sleeping = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
            while early_bytes > 0 && !is_sleeping() && !receiving.is_finished() {
                std::thread::yield_now();
            }
            client.write_all(rest).unwrap();
        });
    }
}

#[test]
fn last_bytes_wake_reader() {
    for plain in [false, true] {
        let mut ends = ChannelPair::new(plain);
        ends.widen();
        for bytes in SIZES {
            let (data, mut received) = (content(bytes, 1), vec![0; bytes + TAG_BYTES]);
            for early_bytes in [1, 1448, bytes / 2, bytes - 1] {
                ends.deliver(&data, (early_bytes, &mut received));
                assert_eq!(ends.receiver.missed_wakeups, 0, "{early_bytes} of {bytes} bytes, plain: {plain}");
            }
        }
    }
}

/// A loopback device alone, which carries 100 Mbit/s in segments of a network.
fn shaped_loopback() -> Result<Namespace, MissingRequirement> {
    let run_program = |program: &str, package, line: &str| {
        let output = Command::new(program).args(line.split(' ')).output();
        let output = output.map_err(|error| MissingRequirement::program(program, package, &error))?;
        let message = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(())
        } else {
            Err(MissingRequirement::privilege(format!("{program} {line} (root may): {message}")))
        }
    };
    let namespace = Namespace::enter_new().map_err(MissingRequirement::privilege)?;
    run_program("ip", "iproute2", "link set lo mtu 1500 up")?;
    run_program("tc", "iproute2", "qdisc add dev lo root tbf rate 100mbit burst 16kb latency 100ms")?;
    Ok(namespace)
}

#[test]
fn no_wakeup_is_missed_over_link() {
    // A thread of its own: the others stay in their network.
    let thread = std::thread::spawn(|| match shaped_loopback() {
        Ok(namespace) => {
            pass_over_link();
            drop(namespace);
        }
        Err(missing) => missing.report_skip("waits for what comes over a link"),
    });
    thread.join().unwrap();
}

/// Sends one size after the other, each when the one before has arrived.
fn pass_over_link() {
    for plain in [false, true] {
        let (sender, receiver) = connected_halves();
        let (client, server) = connection();
        let (mut sender, mut receiver) =
            (SecureChannel::new(client, sender).unwrap(), SecureChannel::new(server, receiver).unwrap());
        sender.plain = plain;
        receiver.plain = plain;
        let sizes = || [PART_BYTES; 40].into_iter().chain(SIZES).chain(SIZES);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for bytes in sizes() {
                    sender.send_data(&content(bytes, 1)).unwrap();
                    sender.receive::<SenderMessage>().unwrap();
                }
            });
            for bytes in sizes() {
                let mut received = vec![0; bytes + TAG_BYTES];
                receiver.receive_data(&mut received, bytes).unwrap();
                assert!(received[..bytes] == content(bytes, 1));
                receiver.send(&SenderMessage::End).unwrap();
            }
        });
        assert_eq!(receiver.missed_wakeups, 0, "plain: {plain}");
    }
}
