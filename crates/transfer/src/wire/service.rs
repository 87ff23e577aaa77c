//! The agent's side of each test.

mod accept;
mod counted_streams;
mod file_server;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kelvin_sys::poll::wait_readable;
use kelvin_sys::usage::{UsageScope, read_usage};

use crate::wire::address::{is_same_host, with_port};
use crate::wire::admission::{PoolSlot, SlotPool};
use crate::wire::control_channel::ControlChannel;
use crate::wire::deadline::Deadline;
use crate::wire::error::is_timeout;
use crate::wire::file_server::StartFileServer;
use crate::wire::interface::Interface;
use crate::wire::limits::AgentLimits;
use crate::wire::message::{AgentRequest, AgentResponse, Cookie, TestReport, Transport};
use crate::wire::secret::new_nonce;
use crate::wire::{Error, Result};

/// Messages between two checks of the clock: a check costs some tens of nanoseconds, a message microseconds.
const MESSAGES_PER_CLOCK_CHECK: u64 = 256;
/// Most bytes of a datagram over IPv4.
const MAX_DATAGRAM_BYTES: u32 = 65_507;

/// What an agent serves with.
pub struct ServiceContext<'a> {
    pub limits: &'a AgentLimits,
    /// Tests being served.
    pub running_tests: &'a SlotPool,
    /// Starts servers of files, if it may.
    pub start_file_server: Option<&'a StartFileServer>,
}

/// Serves one test, and returns its account.
pub fn serve_test(
    request: &AgentRequest,
    channel: &mut ControlChannel,
    context: &ServiceContext<'_>,
) -> Result<TestReport> {
    let ServiceContext { limits, running_tests: tests, start_file_server: files } = context;
    let served = TestGuard::begin(tests)?;
    let before = read_usage(UsageScope::Thread);
    let mut report = match *request {
        AgentRequest::Echo { transport, bytes } => {
            check_size(transport, bytes, limits)?;
            let mut message = vec![0; bytes as usize];
            let arrived = match transport {
                Transport::Tcp => echo_stream(channel, &mut message, limits, &served)?,
                Transport::Udp => echo_datagrams(channel, &mut message, limits, &served)?,
            };
            TestReport { arrived, ..TestReport::default() }
        }
        AgentRequest::Streams { direction, count, ref sockets } => {
            counted_streams::serve_streams(channel, (direction, count), sockets, limits, &served)?
        }
        AgentRequest::ReceiveDatagrams { bytes } => {
            check_size(Transport::Udp, bytes, limits)?;
            counted_streams::serve_datagrams(channel, bytes, limits, &served)?
        }
        AgentRequest::Accept => {
            TestReport { arrived: accept::accept_all(channel, limits, &served)?, ..TestReport::default() }
        }
        AgentRequest::ServeFiles(ref design) => {
            file_server::serve_files(channel, design, *files, limits)?;
            TestReport::default()
        }
        AgentRequest::Names { .. }
        | AgentRequest::ReadFromDisk
        | AgentRequest::SetCacheState { .. }
        | AgentRequest::KeepAlive => {
            return Err(Error::Refused("no server of files is running".into()));
        }
        AgentRequest::Count | AgentRequest::End => return Err(Error::Refused("no test is running".into())),
    };
    let used = read_usage(UsageScope::Thread).since(before);
    report.cpu_nanoseconds = [report.cpu_nanoseconds[0] + used.user, report.cpu_nanoseconds[1] + used.system];
    served.update_max();
    Ok(TestReport {
        max_concurrent_tests: served.max_running.get() as u32,
        interface: Interface::with_address(local_addr(channel)?),
        ..report
    })
}

fn check_size(transport: Transport, bytes: u32, limits: &AgentLimits) -> Result<()> {
    let most = match transport {
        Transport::Tcp => limits.max_message_bytes,
        Transport::Udp => limits.max_message_bytes.min(MAX_DATAGRAM_BYTES),
    };
    match bytes {
        0 => Err(Error::Refused("a message must have at least one byte".into())),
        bytes if bytes > most => Err(Error::Refused(format!("a message may have at most {most} bytes"))),
        _ => Ok(()),
    }
}

/// A test, counted while it lasts.
struct TestGuard {
    slot: PoolSlot,
    max_running: Cell<usize>,
}

impl TestGuard {
    fn begin(tests: &SlotPool) -> Result<Self> {
        let slot = tests.acquire().ok_or_else(|| Error::Refused("it serves as many tests as it may".into()))?;
        Ok(Self { max_running: Cell::new(slot.taken()), slot })
    }

    /// Records how many there are now.
    fn update_max(&self) {
        self.max_running.set(self.max_running.get().max(self.slot.taken()));
    }
}

/// The address that the client sees.
fn local_addr(channel: &ControlChannel) -> Result<SocketAddr> {
    channel.stream().local_addr().map_err(Error::call("see the address"))
}

/// The address of the client.
fn peer_addr(channel: &ControlChannel) -> Result<SocketAddr> {
    channel.stream().peer_addr().map_err(Error::call("see the address"))
}

/// A test's own address: that of the control connection, with a port that the system chooses.
fn test_address(channel: &ControlChannel) -> Result<SocketAddr> {
    Ok(with_port(local_addr(channel)?, 0))
}

/// Tells the client where the test is.
fn send_ready(channel: &mut ControlChannel, address: SocketAddr, limits: &AgentLimits) -> Result<Cookie> {
    let mut cookie = Cookie::default();
    let unforeseen = new_nonce()?;
    cookie.copy_from_slice(&unforeseen[..size_of::<Cookie>()]);
    channel.send(&AgentResponse::Ready { port: address.port(), cookie }, limits.handshake_timeout)?;
    Ok(cookie)
}

/// Waits for so many connections of the client; others that find the port are rejected.
fn accept_streams(
    listener: &TcpListener,
    count: u32,
    channel: &mut ControlChannel,
    limits: &AgentLimits,
) -> Result<Vec<TcpStream>> {
    const DOING: &str = "connect for the test";
    let address = listener.local_addr().map_err(Error::call("see the address"))?;
    let cookie = send_ready(channel, address, limits)?;
    let client = peer_addr(channel)?;
    let deadline = Deadline::within(limits.handshake_timeout);
    let mut streams = Vec::new();
    while streams.len() < count as usize {
        if !wait_readable(listener.as_fd(), deadline.remaining(DOING)?).map_err(Error::call(DOING))? {
            continue;
        }
        let (mut stream, from) = listener.accept().map_err(Error::call(DOING))?;
        let mut said = Cookie::default();
        if is_same_host(from, client)
            && deadline.read_full(&mut stream, &mut said, DOING).is_ok()
            && cookies_match(&said, &cookie)
        {
            configure_stream(&stream, limits).map_err(Error::call("set up the test"))?;
            streams.push(stream);
        }
    }
    Ok(streams)
}

fn configure_stream(stream: &TcpStream, limits: &AgentLimits) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limits.idle_timeout))?;
    stream.set_write_timeout(Some(limits.idle_timeout))
}

fn listen_for_test(channel: &ControlChannel) -> Result<TcpListener> {
    TcpListener::bind(test_address(channel)?).map_err(Error::call("listen for the test"))
}

/// Silence after which the control connection is checked.
const SILENCE_BEFORE_CHECK: Duration = Duration::from_millis(20);

/// Whether the client has ended the test.
fn has_client_ended(channel: &mut ControlChannel, limits: &AgentLimits) -> Result<bool> {
    if !wait_readable(channel.stream().as_fd(), Duration::ZERO).map_err(Error::call("wait"))? {
        return Ok(false);
    }
    match channel.receive(limits.handshake_timeout)? {
        AgentRequest::End => Ok(true),
        _ => Err(Error::Refused("one test must end before the next one begins".into())),
    }
}

/// In constant time.
fn cookies_match(one: &Cookie, other: &Cookie) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other))) == 0
}

/// Returns what arrives over a connection, until the client ends it.
fn echo_stream(
    channel: &mut ControlChannel,
    message: &mut [u8],
    limits: &AgentLimits,
    served: &TestGuard,
) -> Result<u64> {
    let mut stream = accept_streams(&listen_for_test(channel)?, 1, channel, limits)?.remove(0);
    let begun = Instant::now();
    for messages in 0.. {
        if messages % MESSAGES_PER_CLOCK_CHECK == 0 {
            served.update_max();
            check_time(begun, limits)?;
        }
        match stream.read(message) {
            Ok(0) => return Ok(messages),
            Ok(count) => stream.read_exact(&mut message[count..]).map_err(stream_error(limits))?,
            Err(error) => return Err(stream_error(limits)(error)),
        }
        stream.write_all(message).map_err(stream_error(limits))?;
    }
    Ok(0)
}

/// A socket for datagrams of the client and of nobody else: it identifies itself by one with the cookie, which is returned. So
/// an address is known to be an authenticated client's before anything else is sent to it.
fn introduced_socket(channel: &mut ControlChannel, limits: &AgentLimits) -> Result<(UdpSocket, Cookie)> {
    const DOING: &str = "send the first datagram";
    let socket = UdpSocket::bind(test_address(channel)?).map_err(Error::call("open a socket for the test"))?;
    let address = socket.local_addr().map_err(Error::call("see the address"))?;
    let cookie = send_ready(channel, address, limits)?;
    let client = peer_addr(channel)?;
    let deadline = Deadline::within(limits.handshake_timeout);
    loop {
        socket.set_read_timeout(Some(deadline.remaining(DOING)?)).map_err(Error::call("set up the test"))?;
        let mut said = Cookie::default();
        match socket.recv_from(&mut said) {
            Ok((count, from)) if is_same_host(from, client) && count == said.len() && cookies_match(&said, &cookie) => {
                socket.connect(from).map_err(Error::call("set up the test"))?;
                socket.send(&said).map_err(Error::call("answer the first datagram"))?;
                return Ok((socket, cookie));
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(Error::call(DOING)(error)),
        }
    }
}

/// Returns datagrams from the client, until the control connection has a message, or ends. A datagram of another size is the first one again, whose answer was lost: it is answered, and not counted.
fn echo_datagrams(
    channel: &mut ControlChannel,
    message: &mut [u8],
    limits: &AgentLimits,
    served: &TestGuard,
) -> Result<u64> {
    let (socket, _) = introduced_socket(channel, limits)?;
    socket.set_read_timeout(Some(SILENCE_BEFORE_CHECK)).map_err(Error::call("set up the test"))?;
    let begun = Instant::now();
    let (mut messages, mut answered, mut last) = (0, 0_u64, (begun, 0));
    loop {
        match socket.recv(message) {
            Ok(count) => {
                socket.send(&message[..count]).map_err(stream_error(limits))?;
                messages += u64::from(count == message.len());
                answered += 1;
                if answered % MESSAGES_PER_CLOCK_CHECK == 0 {
                    served.update_max();
                    check_time(begun, limits)?;
                }
            }
            Err(error) if is_timeout(&error) => {
                if has_client_ended(channel, limits)? {
                    return Ok(messages);
                }
                if last.1 != answered {
                    last = (Instant::now(), answered);
                } else if last.0.elapsed() > limits.idle_timeout {
                    return Err(timed_out(limits));
                }
            }
            Err(error) => return Err(stream_error(limits)(error)),
        }
    }
}

fn check_time(begun: Instant, limits: &AgentLimits) -> Result<()> {
    if begun.elapsed() <= limits.test_timeout {
        return Ok(());
    }
    Err(Error::TimedOut { doing: "end the test", seconds: limits.test_timeout.as_secs_f64() })
}

fn timed_out(limits: &AgentLimits) -> Error {
    Error::TimedOut { doing: "continue the test", seconds: limits.idle_timeout.as_secs_f64() }
}

fn stream_error(limits: &AgentLimits) -> impl Fn(std::io::Error) -> Error {
    move |error| if is_timeout(&error) { timed_out(limits) } else { Error::call("continue the test")(error) }
}
