//! The agent's side of each test.

mod counted_streams;
mod throughput;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kelvin_sys::net;
use kelvin_sys::poll::wait_readable;
use kelvin_sys::usage::{UsageScope, read_usage};

use crate::error::is_timeout;
use crate::wire::address::{is_same_host, with_port};
use crate::wire::admission::{AgentLimits, PoolSlot, SlotPool};
use crate::wire::control_channel::ControlChannel;
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::file_server::{FileHost, FileServerOptions, NAMES_PER_MESSAGE, StartFileServer};
use crate::wire::message::{AgentRequest, AgentResponse, Cookie, TestReport, Transport};
use crate::wire::secret::new_nonce;
use crate::wire::test_socket::Interface;
use crate::wire::{Error, Result};

/// Messages between two checks of the clock: a check costs some tens of nanoseconds, a message microseconds.
const MESSAGES_PER_CLOCK_CHECK: u64 = 256;
/// Most bytes of a datagram over IPv4.
const MAX_DATAGRAM_BYTES: u32 = 65_507;
/// Silence after which the control connection is checked.
const SILENCE_BEFORE_CHECK: Duration = Duration::from_millis(20);

/// A test while it is served.
pub struct TestSession<'a> {
    channel: &'a mut ControlChannel,
    limits: &'a AgentLimits,
    /// The agent's CPUs, in the order in which streams are put on them.
    cpus: Vec<u32>,
    slot: PoolSlot,
    /// Most tests that were served at one time.
    max_running: usize,
    start: Instant,
    /// The test ends after this time.
    time_limit: Duration,
}

impl<'a> TestSession<'a> {
    /// Takes a slot for a test.
    ///
    /// # Errors
    /// That none is free.
    pub fn begin(
        channel: &'a mut ControlChannel,
        limits: &'a AgentLimits,
        cpus: Vec<u32>,
        running: &SlotPool,
    ) -> Result<Self> {
        let slot = running.acquire().ok_or_else(|| refusal("it serves as many tests as it may"))?;
        let (max_running, time_limit) = (slot.used_slots(), limits.test_timeout);
        Ok(Self { channel, limits, cpus, max_running, slot, start: Instant::now(), time_limit })
    }

    /// Serves the test, and returns its account.
    ///
    /// # Errors
    /// A request that is refused; a client that is gone, silent or breaks the protocol.
    pub fn serve(mut self, request: &AgentRequest, files: Option<&StartFileServer>) -> Result<TestReport> {
        let usage_before = read_usage(UsageScope::Thread);
        let mut report = TestReport::default();
        match request {
            &AgentRequest::Echo { transport, bytes } => {
                self.check_size(transport, bytes)?;
                let mut message = vec![0; bytes as usize];
                report.arrived = match transport {
                    Transport::Tcp => self.echo_stream(&mut message)?,
                    Transport::Udp => self.echo_datagrams(&mut message)?,
                };
            }
            AgentRequest::Streams { direction, count, placement, sockets } => {
                report = self.serve_streams(*direction, *count, *placement, sockets)?;
            }
            AgentRequest::Throughput(spec) => report = self.serve_throughput(spec)?,
            &AgentRequest::ReceiveDatagrams { bytes } => {
                self.check_size(Transport::Udp, bytes)?;
                report = self.serve_datagrams(bytes)?;
            }
            AgentRequest::Accept => report.arrived = self.accept_connections()?,
            AgentRequest::ServeFiles(options) => self.serve_files(options, files)?,
            AgentRequest::Count | AgentRequest::StopSending | AgentRequest::End => {
                return Err(refusal("no test is running"));
            }
            AgentRequest::Names { .. }
            | AgentRequest::ReadFromDisk
            | AgentRequest::SetCacheState { .. }
            | AgentRequest::KeepAlive => return Err(refusal("no server of files is running")),
        }
        let usage = read_usage(UsageScope::Thread).since(usage_before);
        report.cpu_nanoseconds = [report.cpu_nanoseconds[0] + usage.user, report.cpu_nanoseconds[1] + usage.system];
        self.update_max();
        report.max_concurrent_tests = self.max_running as u32;
        report.cpus = self.cpus.len() as u32;
        report.interface = Interface::with_address(self.test_address()?);
        Ok(report)
    }

    fn check_size(&self, transport: Transport, bytes: u32) -> Result<()> {
        let max_bytes = match transport {
            Transport::Tcp => self.limits.max_message_bytes,
            Transport::Udp => self.limits.max_message_bytes.min(MAX_DATAGRAM_BYTES),
        };
        match bytes {
            0 => Err(refusal("a message must have at least one byte")),
            _ if bytes > max_bytes => Err(refusal(format!("a message may have at most {max_bytes} bytes"))),
            _ => Ok(()),
        }
    }

    /// Records how many tests there are now.
    fn update_max(&mut self) {
        self.max_running = self.max_running.max(self.slot.used_slots());
    }

    /// Records how many tests there are now, and whether the time of this one is over.
    fn check_time(&mut self) -> Result<()> {
        self.update_max();
        if self.start.elapsed() <= self.time_limit {
            return Ok(());
        }
        Err(Error::TimedOut { doing: "end the test", seconds: self.time_limit.as_secs_f64() })
    }

    /// Sends an answer.
    fn send(&mut self, answer: &AgentResponse) -> Result<()> {
        self.channel.send(answer, self.limits.idle_timeout)
    }

    /// The address of the client.
    fn client(&self) -> Result<SocketAddr> {
        self.channel.stream.peer_addr().map_err(Error::call("read the address"))
    }

    /// A test's own address: that of the control connection, with a port that the system chooses.
    fn test_address(&self) -> Result<SocketAddr> {
        Ok(with_port(self.channel.stream.local_addr().map_err(Error::call("read the address"))?, 0))
    }

    fn listen(&self) -> Result<TcpListener> {
        TcpListener::bind(self.test_address()?).map_err(Error::call("listen for the test"))
    }

    /// Sends the client where the test is.
    fn send_ready(&mut self, address: std::io::Result<SocketAddr>) -> Result<Cookie> {
        let port = address.map_err(Error::call("read the address"))?.port();
        let mut cookie = Cookie::default();
        cookie.copy_from_slice(&new_nonce()?[..size_of::<Cookie>()]);
        self.channel.send(&AgentResponse::Ready { port, cookie }, self.limits.handshake_timeout)?;
        Ok(cookie)
    }

    /// Whether the client has ended the test.
    fn has_client_ended(&mut self) -> Result<bool> {
        if !wait_readable(self.channel.stream.as_fd(), Duration::ZERO).map_err(Error::call("wait"))? {
            return Ok(false);
        }
        match self.channel.receive(self.limits.handshake_timeout)? {
            AgentRequest::End => Ok(true),
            _ => Err(overlapping_test_error()),
        }
    }

    /// Waits for this many connections of the client; others that find the port are rejected. The client connects one after the other, each
    /// in the time for a handshake.
    fn accept_streams(&mut self, listener: &TcpListener, count: u32) -> Result<Vec<TcpStream>> {
        const DOING: &str = "connect for the test";
        let cookie = self.send_ready(listener.local_addr())?;
        let client = self.client()?;
        let mut deadline = Deadline::within(self.limits.handshake_timeout);
        let mut streams = Vec::new();
        while streams.len() < count as usize {
            self.check_time()?;
            if !wait_readable(listener.as_fd(), deadline.remaining(DOING)?).map_err(Error::call(DOING))? {
                continue;
            }
            let (mut stream, peer) = listener.accept().map_err(Error::call(DOING))?;
            let mut received = Cookie::default();
            if is_same_host(peer, client)
                && deadline.read_full(&mut stream, &mut received, DOING).is_ok()
                && cookies_match(&received, &cookie)
            {
                let set_up = stream.set_nodelay(true).and_then(|()| stream.set_io_timeout(self.limits.idle_timeout));
                set_up.map_err(Error::call("set up the test"))?;
                streams.push(stream);
                deadline = Deadline::within(self.limits.handshake_timeout);
            }
        }
        Ok(streams)
    }

    /// Returns what arrives over a connection, until the client ends it.
    fn echo_stream(&mut self, message: &mut [u8]) -> Result<u64> {
        let mut stream = self.accept_streams(&self.listen()?, 1)?.remove(0);
        self.start = Instant::now();
        let to_error = stream_error(self.limits);
        let mut messages = 0;
        loop {
            if messages % MESSAGES_PER_CLOCK_CHECK == 0 {
                self.check_time()?;
            }
            match stream.read(message).map_err(&to_error)? {
                0 => return Ok(messages),
                count => stream.read_exact(&mut message[count..]).map_err(&to_error)?,
            }
            stream.write_all(message).map_err(&to_error)?;
            messages += 1;
        }
    }

    /// A socket for datagrams of the client and of nobody else: it identifies itself by one with the cookie, which is returned. So
    /// an address is known to be an authenticated client's before anything else is sent to it.
    fn introduced_socket(&mut self) -> Result<(UdpSocket, Cookie)> {
        const DOING: &str = "send the first datagram";
        let socket = UdpSocket::bind(self.test_address()?).map_err(Error::call("open a socket for the test"))?;
        let cookie = self.send_ready(socket.local_addr())?;
        let client = self.client()?;
        let deadline = Deadline::within(self.limits.handshake_timeout);
        loop {
            socket.set_read_timeout(Some(deadline.remaining(DOING)?)).map_err(Error::call("set up the test"))?;
            let mut received = Cookie::default();
            match socket.recv_from(&mut received) {
                Ok((count, peer)) => {
                    let is_whole = is_same_host(peer, client) && count == received.len();
                    if is_whole && cookies_match(&received, &cookie) {
                        socket.connect(peer).map_err(Error::call("set up the test"))?;
                        socket.send(&cookie).map_err(Error::call("answer the first datagram"))?;
                        return Ok((socket, cookie));
                    }
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(Error::call(DOING)(error)),
            }
        }
    }

    /// Returns datagrams from the client, until the control connection has a message, or ends. A datagram of another size is the first one
    /// again, whose answer was lost: it is answered, and not counted.
    fn echo_datagrams(&mut self, message: &mut [u8]) -> Result<u64> {
        let (socket, _) = self.introduced_socket()?;
        socket.set_read_timeout(Some(SILENCE_BEFORE_CHECK)).map_err(Error::call("set up the test"))?;
        self.start = Instant::now();
        let to_error = stream_error(self.limits);
        let (mut messages, mut answer_count, mut last) = (0, 0, LastProgress::start());
        loop {
            match socket.recv(message) {
                Ok(count) => {
                    socket.send(&message[..count]).map_err(&to_error)?;
                    messages += u64::from(count == message.len());
                    answer_count += 1;
                    if answer_count % MESSAGES_PER_CLOCK_CHECK == 0 {
                        self.check_time()?;
                    }
                }
                Err(error) if is_timeout(&error) => {
                    if self.has_client_ended()? {
                        return Ok(messages);
                    }
                    last.check(answer_count, self.limits)?;
                }
                Err(error) => return Err(to_error(error)),
            }
        }
    }

    /// Accepts connections that the client opens and closes one after the other, and answers each once, until it ends the test; how many
    /// there were.
    fn accept_connections(&mut self) -> Result<u64> {
        let listener = self.listen()?;
        listener.set_nonblocking(true).map_err(Error::call("listen for the test"))?;
        let cookie = self.send_ready(listener.local_addr())?;
        let client = self.client()?;
        self.start = Instant::now();
        let (mut answer_count, mut accept_count, mut last, mut last_check) = (0, 0, LastProgress::start(), self.start);
        loop {
            // One that was gone before it was accepted is none.
            if wait_readable(listener.as_fd(), SILENCE_BEFORE_CHECK).map_err(Error::call("wait"))?
                && let Ok((mut stream, peer)) = listener.accept()
                && is_same_host(peer, client)
            {
                let deadline = Deadline::within(self.limits.handshake_timeout);
                // One without the cookie is no part of the test, and costs it no more than this time.
                answer_count += u64::from(return_cookie(&mut stream, &cookie, &deadline).is_ok());
                accept_count += 1;
            }
            // However many others connect.
            if last_check.elapsed() >= SILENCE_BEFORE_CHECK {
                if self.has_client_ended()? {
                    return Ok(answer_count);
                }
                last.check(accept_count, self.limits)?;
                self.check_time()?;
                last_check = Instant::now();
            }
        }
    }

    /// Starts a server of files, and answers what is asked of it until the client ends it or sends nothing for too long. There is never
    /// another one of this client.
    fn serve_files(&mut self, options: &FileServerOptions, start: Option<&StartFileServer>) -> Result<()> {
        let start = start.ok_or_else(|| refusal("it serves no files: start it with --serve DIR"))?;
        let host: Box<dyn FileHost> = start(options, self.test_address()?).map_err(Error::RefusedByAgent)?;
        self.send(&AgentResponse::Serving(host.info()))?;
        loop {
            let answer = match self.channel.receive(self.limits.idle_timeout)? {
                AgentRequest::Names { from } => {
                    let names = host.file_names().iter().skip(from as usize).take(NAMES_PER_MESSAGE);
                    Ok(AgentResponse::Names(names.cloned().collect()))
                }
                AgentRequest::ReadFromDisk => host.disk_rate().map(AgentResponse::Read),
                AgentRequest::SetCacheState { cache, from } => {
                    host.set_cache_state(cache, from).map(AgentResponse::CacheStateSet)
                }
                AgentRequest::KeepAlive => Ok(AgentResponse::Alive),
                AgentRequest::End => return Ok(()),
                _ => return Err(overlapping_test_error()),
            };
            // One that cannot be given does not end the server.
            self.send(&answer.unwrap_or_else(AgentResponse::failed))?;
        }
    }
}

/// Since when nothing more has come.
struct LastProgress {
    since: Instant,
    count: u64,
}

impl LastProgress {
    fn start() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// An error if no more than before has come for too long.
    fn check(&mut self, count: u64, limits: &AgentLimits) -> Result<()> {
        if self.count != count {
            *self = Self { since: Instant::now(), count };
        } else if self.since.elapsed() > limits.idle_timeout {
            return Err(timed_out(limits));
        }
        Ok(())
    }
}

/// In constant time.
fn cookies_match(first: &Cookie, second: &Cookie) -> bool {
    std::hint::black_box(first.iter().zip(second).fold(0, |differs, (first, second)| differs | (first ^ second))) == 0
}

/// Returns the cookie, and resets the connection once the client has closed it, which frees the client's port at once instead
/// of after a minute.
fn return_cookie(stream: &mut TcpStream, cookie: &Cookie, deadline: &Deadline) -> Result<()> {
    let set_up = net::reset_on_close(stream).and_then(|()| stream.set_nodelay(true));
    set_up.map_err(Error::call("set up the test"))?;
    let mut received = Cookie::default();
    deadline.read_full(stream, &mut received, "begin with the cookie")?;
    if !cookies_match(&received, cookie) {
        return Err(refusal("another cookie"));
    }
    deadline.write_full(stream, cookie, "read the cookie")?;
    match deadline.read_full(stream, &mut [0], "close the connection") {
        Err(Error::Closed) => Ok(()),
        Ok(()) => Err(refusal("more than the cookie")),
        Err(error) => Err(error),
    }
}

fn refusal(why: impl Into<String>) -> Error {
    Error::RefusedByAgent(why.into())
}

fn overlapping_test_error() -> Error {
    refusal("one test must end before the next one begins")
}

fn timed_out(limits: &AgentLimits) -> Error {
    Error::TimedOut { doing: "continue the test", seconds: limits.idle_timeout.as_secs_f64() }
}

fn stream_error(limits: &AgentLimits) -> impl Fn(std::io::Error) -> Error {
    move |error| if is_timeout(&error) { timed_out(limits) } else { Error::call("continue the test")(error) }
}
