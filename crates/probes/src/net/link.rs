//! Two connected sockets, over TCP, UDP or Unix sockets, and what the kernel reports of one.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::prelude::*;
use kelvin_core::catalogue::net::{
    RTT_TCP, RTT_UDP, RTT_UNIX, STACK_TCP, STACK_UDP, STACK_UNIX, STREAM_TCP, STREAM_TCP_RECEIVE, STREAM_UDP,
    STREAM_UDP_RECEIVE, STREAM_UNIX, STREAM_UNIX_RECEIVE,
};
use kelvin_sys::{Error, Result, net};
use kelvin_transfer::wire::test_socket::TcpEndInfo;

/// The protocol of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Unix,
}

/// What is measured over a protocol.
pub(super) struct ProtocolMetrics {
    /// A message sent and received by one process.
    pub stack: &'static Metric,
    /// Sender's and receiver's cost of a message of a stream.
    pub send: &'static Metric,
    pub receive: &'static Metric,
    /// A message to another process and back.
    pub round_trip: &'static Metric,
}

impl Protocol {
    /// Its metrics.
    pub(super) fn metrics(self) -> ProtocolMetrics {
        let [stack, send, receive, round_trip] = match self {
            Self::Tcp => [&STACK_TCP, &STREAM_TCP, &STREAM_TCP_RECEIVE, &RTT_TCP],
            Self::Udp => [&STACK_UDP, &STREAM_UDP, &STREAM_UDP_RECEIVE, &RTT_UDP],
            Self::Unix => [&STACK_UNIX, &STREAM_UNIX, &STREAM_UNIX_RECEIVE, &RTT_UNIX],
        };
        ProtocolMetrics { stack, send, receive, round_trip }
    }
}

/// A protocol as a type, of which probes that are the same over each protocol are made.
pub(super) trait ProtocolType {
    const PROTOCOL: Protocol;
}

pub(super) struct Tcp;
pub(super) struct Udp;
pub(super) struct Unix;

impl ProtocolType for Tcp {
    const PROTOCOL: Protocol = Protocol::Tcp;
}

impl ProtocolType for Udp {
    const PROTOCOL: Protocol = Protocol::Udp;
}

impl ProtocolType for Unix {
    const PROTOCOL: Protocol = Protocol::Unix;
}

/// Largest payload of a UDP datagram over IPv4: 65535 less the headers of IP and UDP.
pub(crate) const LARGEST_DATAGRAM: u64 = 65_535 - 20 - 8;
/// Message sizes of a round trip: the least, a small one, and up to the most that a datagram holds; of a quick run the small one.
pub(super) fn round_trip_messages(protocol: Protocol, effort: Effort) -> Vec<u64> {
    match effort {
        Effort::Quick => vec![SMALL_MESSAGE],
        _ => vec![1, SMALL_MESSAGE, 1 << 10, MEDIUM_MESSAGE, largest_message(protocol)],
    }
}

/// A small message, whose bytes themselves cost next to nothing.
pub(super) const SMALL_MESSAGE: u64 = 64;

/// One whose bytes cost about as much as all else, and fit the nearest cache on their way.
pub(super) const MEDIUM_MESSAGE: u64 = 16 << 10;

/// The largest of a protocol's round trips.
pub(super) fn largest_message(protocol: Protocol) -> u64 {
    if protocol == Protocol::Udp { LARGEST_DATAGRAM } else { 64 << 10 }
}

/// Bytes that are sent at a time at most.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// The bytes of a case's message.
pub(super) fn message_bytes(case: &Case) -> ProbeResult<usize> {
    match MESSAGE.number_in(case) {
        Some(bytes @ 1..=MAX_MESSAGE_BYTES) => Ok(bytes as usize),
        _ => Err(ProbeError::fail(format!("the case needs a message of at least 1 byte, not {case}"))),
    }
}

/// A datagram that is not answered within this time counts as lost.
pub(crate) const DATAGRAM_TIMEOUT: Duration = Duration::from_millis(500);
/// A link that receives nothing, or cannot send, for this time is stuck: no process is kept off its CPU as long.
pub(crate) const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes requested for each buffer of a process that holds both ends: eight times the 128 KiB that it has in flight at most,
/// because the kernel also counts its own book-keeping.
const SINGLE_PROCESS_BUFFER: u32 = 1 << 20;
/// Congestion controls for TCP connections, the first that the kernel has and lets this user choose: the system's own may pace
/// itself and halve a local link (BBR). Reno is part of every kernel, and everybody may choose it.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];
/// `CONGESTION_CONTROLS` in words.
pub(super) const DEFAULT_CONTROL_TEXT: &str = "cubic where the kernel grants it, else reno";

/// One end of a connection.
pub(crate) enum Link {
    Tcp(TcpStream),
    Udp(UdpSocket),
    Unix(UnixStream),
}

/// A call of the socket that a link has.
macro_rules! of_socket {
    ($link:expr, $socket:ident => $call:expr) => {
        match $link {
            Link::Tcp($socket) => $call,
            Link::Udp($socket) => $call,
            Link::Unix($socket) => $call,
        }
    };
}
pub(super) use of_socket;

impl Link {
    /// Both ends of a connection on this machine: IP over the loopback device, without Nagle's delay.
    pub(crate) fn pair(protocol: Protocol) -> Result<(Self, Self)> {
        match protocol {
            Protocol::Tcp => Self::local_tcp_pair(prefer_congestion_control),
            Protocol::Udp => {
                let [client, server] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
                let (client, server) = (client?, server?);
                client.connect(server.local_addr()?)?;
                server.connect(client.local_addr()?)?;
                Ok((Self::Udp(client), Self::Udp(server)))
            }
            Protocol::Unix => UnixStream::pair().map(|(client, server)| (Self::Unix(client), Self::Unix(server))),
        }
    }

    /// Like `pair`, for one process that holds both ends and receives only what it has sent: it must fit, and must not be waited
    /// for.
    pub(super) fn single_process_pair(protocol: Protocol) -> Result<(Self, Self)> {
        let (client, server) = Self::pair(protocol)?;
        for end in [&client, &server] {
            net::set_buffers(end, SINGLE_PROCESS_BUFFER)?;
            end.set_receive_timeout(LINK_TIMEOUT)?;
        }
        Ok((client, server))
    }

    /// Both ends of a TCP connection over loopback, whose sockets are prepared before it is made; without Nagle's delay.
    pub(crate) fn local_tcp_pair(prepare: impl Fn(BorrowedFd<'_>) -> Result<()>) -> Result<(Self, Self)> {
        Self::tcp_pair(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, prepare)
    }

    /// Both ends of a TCP connection to a local listener, whose sockets are prepared before it is made; without Nagle's delay.
    pub(crate) fn tcp_pair(
        listener: &TcpListener,
        prepare: impl Fn(BorrowedFd<'_>) -> Result<()>,
    ) -> Result<(Self, Self)> {
        let (client, server) = net::connect_local_pair(listener, prepare)?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        Ok((Self::Tcp(client), Self::Tcp(server)))
    }

    /// Its protocol.
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Tcp(_) => Protocol::Tcp,
            Self::Udp(_) => Protocol::Udp,
            Self::Unix(_) => Protocol::Unix,
        }
    }

    /// Sends a whole message.
    ///
    /// # Errors
    /// A failed system call; a datagram sent in part.
    #[inline(always)]
    pub(crate) fn send(&self, message: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => { stream }.write_all(message),
            Self::Unix(stream) => { stream }.write_all(message),
            Self::Udp(socket) => match socket.send(message)? {
                sent if sent == message.len() => Ok(()),
                sent => Err(Error::other(format!("{sent} bytes of a datagram of {} were sent", message.len()))),
            },
        }
    }

    /// Sends a whole message, and lets the kernel hold it back to fill a packet; where each message is a packet, it goes at
    /// once.
    ///
    /// # Errors
    /// As for [`Link::send`].
    #[inline(always)]
    pub(crate) fn send_more(&self, message: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => net::socket_send::send_with_more(stream, message),
            Self::Udp(_) | Self::Unix(_) => self.send(message),
        }
    }

    /// Waits for a message of exactly the size of the buffer.
    ///
    /// # Errors
    /// A failed system call; the end of the stream, a datagram of another size.
    #[inline(always)]
    pub(crate) fn receive(&self, message: &mut [u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => { stream }.read_exact(message),
            Self::Unix(stream) => { stream }.read_exact(message),
            Self::Udp(socket) => match socket.recv(message)? {
                received if received == message.len() => Ok(()),
                received => {
                    Err(Error::other(format!("a datagram of {received} bytes arrived, not of {}", message.len())))
                }
            },
        }
    }

    /// Makes a `receive` that waits longer than this fail; see [`is_timeout`].
    pub(crate) fn set_receive_timeout(&self, limit: Duration) -> Result<()> {
        of_socket!(self, socket => socket.set_read_timeout(Some(limit)))
    }

    /// What the kernel reports of this socket, in words.
    pub(crate) fn describe(&self) -> Result<String> {
        if let Self::Tcp(stream) = self {
            return Ok(TcpEndInfo::of_socket(stream)?.to_string());
        }
        let net::SocketBufferSizes { send, receive } = net::buffers(self)?;
        Ok(format!("socket buffers of {} KiB to send, {} KiB to receive", send >> 10, receive >> 10))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        of_socket!(self, socket => socket.as_fd())
    }
}

/// Whether an error reports that nothing arrived within the limit of [`Link::set_receive_timeout`].
pub(crate) fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Requests the congestion control for local links. The one obtained is stated with each result.
pub(crate) fn prefer_congestion_control(socket: BorrowedFd<'_>) -> Result<()> {
    first_accepted(&CONGESTION_CONTROLS, |name| net::set_congestion_control(&socket, name))
}

/// Requests one after the other until one is granted.
///
/// # Errors
/// The refusal of the last one; at once, any error but that it is not there or not for this user.
fn first_accepted(names: &[&str], mut set_control: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let mut outcome = Ok(());
    for name in names {
        outcome = set_control(name);
        match &outcome {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            _ => break,
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Unix];

    #[test]
    fn messages_arrive_complete() {
        for protocol in ALL {
            let (client, server) = Link::pair(protocol).unwrap();
            for size in [1, 1024, 16 << 10] {
                let (message, mut received) = (vec![size as u8 ^ 0x5a; size], vec![0; size]);
                client.send(&message).unwrap();
                server.receive(&mut received).unwrap();
                assert_eq!(received, message, "{protocol:?}");
                server.send(&message).unwrap();
                client.receive(&mut received).unwrap();
            }
        }
    }

    #[test]
    fn missing_message_times_out() {
        for protocol in ALL {
            let (client, _server) = Link::pair(protocol).unwrap();
            client.set_receive_timeout(Duration::from_millis(5)).unwrap();
            assert!(is_timeout(&client.receive(&mut [0; 8]).unwrap_err()), "{protocol:?}");
        }
    }

    #[test]
    fn refused_control_falls_back_to_next() {
        // The answer to each, the outcome, and how many are not requested.
        let request_controls = |answers: [Option<ErrorKind>; 2]| {
            let mut remaining_answers = answers.iter();
            let answer = |_: &str| remaining_answers.next().copied().flatten().map_or(Ok(()), |kind| Err(kind.into()));
            let refusal = first_accepted(&["a", "b"], answer).err().map(|error| error.kind());
            (refusal, remaining_answers.len())
        };
        let (denied, missing, invalid) = (ErrorKind::PermissionDenied, ErrorKind::NotFound, ErrorKind::InvalidInput);
        assert_eq!(request_controls([None, None]), (None, 1));
        assert_eq!(request_controls([Some(denied), None]), (None, 0));
        assert_eq!(request_controls([Some(missing), Some(denied)]), (Some(denied), 0));
        assert_eq!(request_controls([Some(invalid), None]), (Some(invalid), 1));
    }

    #[test]
    fn datagram_of_wrong_size_is_error() {
        let (client, server) = Link::pair(Protocol::Udp).unwrap();
        client.send(&[1; 10]).unwrap();
        let error = server.receive(&mut [0; 20]).unwrap_err().to_string();
        assert_eq!(error, "a datagram of 10 bytes arrived, not of 20");
    }

    #[test]
    fn link_description_names_kernel_state() {
        let words = |protocol| Link::pair(protocol).unwrap().0.describe().unwrap();
        assert!(words(Protocol::Tcp).contains("congestion control "), "{}", words(Protocol::Tcp));
        assert!(words(Protocol::Udp).starts_with("socket buffers of "));
        assert!(words(Protocol::Unix).starts_with("socket buffers of "));
    }
}
