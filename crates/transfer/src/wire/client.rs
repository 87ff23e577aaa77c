//! The client: finds an agent, and has it serve tests.

pub mod throughput;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use kelvin_sys::net;

use crate::error::is_timeout;
use crate::wire::address::{is_loopback, with_port};
use crate::wire::connect::connect_first;
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::file_server::{DiskRateReport, FileCacheState, FileServerInfo, FileServerOptions, MAX_FILES};
use crate::wire::handshake::Handshake;
use crate::wire::message::{
    AgentRequest, AgentResponse, Cookie, PROTOCOL, StreamPlacement, TestCounts, TestDirection, TestReport, Transport,
};
use crate::wire::secret::{Secret, new_nonce};
use crate::wire::test_socket::TestSocketOptions;
use crate::wire::{Error, Result, control_channel::ControlChannel};

/// Time to connect and to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to connect while connections end before the handshake, and the time between two of them, up to twice that. They
/// must not be in step with other load on the agent.
const MAX_CONNECT_TRIES: u32 = 20;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Time for an answer: longer than the agent's own patience, so that its reason arrives.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);
/// Time limit of a call on a test's socket: an agent that is gone must not block the measurement.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the answer to the first datagram of a test, which may be lost; and how often it is sent.
const FIRST_DATAGRAM_TIMEOUT: Duration = Duration::from_millis(300);
const MAX_FIRST_DATAGRAMS: u32 = 10;

/// A connection to an agent.
#[derive(Debug)]
pub struct AgentClient {
    pub(in crate::wire) channel: ControlChannel,
    /// The address of the agent.
    pub agent_addr: SocketAddr,
    /// The local address.
    pub local_addr: SocketAddr,
    /// The agent's last counts of the running test.
    last_counts: TestCounts,
}

impl AgentClient {
    /// Connects to the first of these addresses that answers, and shakes hands. An agent with too many unauthenticated
    /// connections may have no place for another one, and closes it: so it is retried for a while.
    ///
    /// # Errors
    /// No answer, or an agent of another version or secret, or one that is busy.
    pub fn connect(addresses: &[SocketAddr], secret: &Secret) -> Result<Self> {
        for _ in 0..MAX_CONNECT_TRIES {
            match Self::connect_once(addresses, secret) {
                Err(Error::Closed) => std::thread::sleep(RETRY_PAUSE + RETRY_PAUSE * u32::from(new_nonce()?[0]) / 256),
                outcome => return outcome,
            }
        }
        Err(Error::HungUp(MAX_CONNECT_TRIES))
    }

    fn connect_once(addresses: &[SocketAddr], secret: &Secret) -> Result<Self> {
        let connect = |agent| Ok((TcpStream::connect_timeout(&agent, HANDSHAKE_TIMEOUT)?, agent));
        let (stream, agent_addr) = connect_first(addresses, "connect to the agent", connect)?;
        stream.set_nodelay(true).map_err(Error::call("set up the connection"))?;
        let local_addr = stream.local_addr().map_err(Error::call("read the address"))?;
        // Any agent there has one: without it nobody would know who answers.
        if !secret.is_some() && !is_loopback(agent_addr) {
            return Err(Error::SecretRequired(PROTOCOL.listener.role));
        }
        let channel = client_handshake(stream, secret, HANDSHAKE_TIMEOUT)?;
        Ok(Self { channel, agent_addr, local_addr, last_counts: TestCounts::default() })
    }

    /// Has every message of this many bytes returned over a TCP connection, with `TCP_NODELAY` on both sides.
    ///
    /// # Errors
    /// An agent that refuses, or cannot be reached at the port that it names.
    pub fn echo_tcp(&mut self, bytes: u32) -> Result<RunningTest<'_, TcpStream>> {
        let (address, cookie) = self.request_test(&AgentRequest::Echo { transport: Transport::Tcp, bytes })?;
        let socket = connect_stream(address, &cookie, &TestSocketOptions::default())?;
        Ok(RunningTest { client: self, socket, ends_by_closing: true })
    }

    /// Has every datagram of this many bytes returned.
    ///
    /// # Errors
    /// An agent that refuses, or a path that drops all datagrams.
    pub fn echo_udp(&mut self, bytes: u32) -> Result<RunningTest<'_, UdpSocket>> {
        let socket = self.introduced_socket(&AgentRequest::Echo { transport: Transport::Udp, bytes })?;
        Ok(RunningTest { client: self, socket, ends_by_closing: false })
    }

    /// Has the agent receive datagrams of this many bytes and count them; each must begin with its number, from 1 on, see
    /// [`crate::wire::message::SequenceCounts`].
    ///
    /// # Errors
    /// An agent that refuses, or a path that drops all datagrams.
    pub fn count_datagrams(&mut self, bytes: u32) -> Result<RunningTest<'_, UdpSocket>> {
        let socket = self.introduced_socket(&AgentRequest::ReceiveDatagrams { bytes })?;
        Ok(RunningTest { client: self, socket, ends_by_closing: false })
    }

    /// A socket for the datagrams of a test, registered with the agent.
    fn introduced_socket(&mut self, request: &AgentRequest) -> Result<UdpSocket> {
        let (address, cookie) = self.request_test(request)?;
        let open = || {
            let socket = UdpSocket::bind(with_port(self.local_addr, 0))?;
            socket.connect(address).map(|()| socket)
        };
        let socket = open().map_err(Error::call("open a socket for the test"))?;
        introduce(&socket, &cookie)?;
        Ok(socket)
    }

    /// Opens this many connections for bytes in one direction, with the requested socket options on both sides. The agent
    /// receives all that arrives, or sends until it is asked to stop, and counts.
    ///
    /// # Errors
    /// An agent that refuses, or cannot be reached at the port that it names; socket options that this kernel refuses.
    pub fn open_streams(
        &mut self,
        direction: TestDirection,
        count: u32,
        placement: StreamPlacement,
        sockets: &TestSocketOptions,
    ) -> Result<RunningTest<'_, Vec<TcpStream>>> {
        let request = AgentRequest::Streams { direction, count, placement, sockets: sockets.clone() };
        let (address, cookie) = self.request_test(&request)?;
        let open = |_| {
            let stream = connect_stream(address, &cookie, sockets)?;
            stream.set_nodelay(false).map_err(Error::call("set up the test"))?;
            Ok(stream)
        };
        let socket = (0..count).map(open).collect::<Result<_>>()?;
        Ok(RunningTest { client: self, socket, ends_by_closing: false })
    }

    /// Has the agent accept connections one after the other, answer on each, and reset those that were closed.
    ///
    /// # Errors
    /// An agent that refuses.
    pub fn accept_connections(&mut self) -> Result<RunningTest<'_, AcceptTarget>> {
        let (address, cookie) = self.request_test(&AgentRequest::Accept)?;
        Ok(RunningTest { client: self, socket: AcceptTarget { address, cookie }, ends_by_closing: false })
    }

    /// Has the agent serve its files. It goes on as long as something is asked of it at least every 30 s.
    ///
    /// # Errors
    /// An agent that refuses, or reports what cannot be.
    pub fn serve_files(mut self, design: &FileServerOptions) -> Result<RemoteFileServer> {
        let request = AgentRequest::ServeFiles(design.clone());
        let AgentResponse::Serving(info) = self.request(&request)? else { return Err(unexpected_response()) };
        match info.files {
            1..=MAX_FILES => Ok(RemoteFileServer { client: self, info }),
            files => Err(Error::malformed(format!("{files} files, where 1 to {MAX_FILES} are possible"))),
        }
    }

    /// The next answer, but for a refusal.
    fn answer(&mut self) -> Result<AgentResponse> {
        match self.channel.receive(RESPONSE_TIMEOUT)? {
            AgentResponse::Failed { why } => Err(Error::RefusedByAgent(why)),
            answer => Ok(answer),
        }
    }

    /// The answer to a request, but for a refusal.
    fn request(&mut self, request: &AgentRequest) -> Result<AgentResponse> {
        self.channel.send(request, RESPONSE_TIMEOUT)?;
        self.answer()
    }

    /// Requests a test, and returns where it is.
    fn request_test(&mut self, request: &AgentRequest) -> Result<(SocketAddr, Cookie)> {
        self.last_counts = TestCounts::default();
        let AgentResponse::Ready { port, cookie } = self.request(request)? else { return Err(unexpected_response()) };
        Ok((with_port(self.agent_addr, port), cookie))
    }

    fn end_test(&mut self) -> Result<TestReport> {
        self.channel.send(&AgentRequest::End, RESPONSE_TIMEOUT)?;
        self.report()
    }

    fn report(&mut self) -> Result<TestReport> {
        if let AgentResponse::Done(report) = self.answer()? { Ok(report) } else { Err(unexpected_response()) }
    }
}

/// Shakes hands with an agent.
///
/// # Errors
/// Another side that is no agent, has another version or secret, or is busy.
pub fn client_handshake<S: TimedStream>(
    mut stream: S,
    secret: &Secret,
    timeout: Duration,
) -> Result<ControlChannel<S>> {
    let handshake = Handshake { protocol: &PROTOCOL, secret, deadline: Deadline::within(timeout) };
    let halves = handshake.connect(&mut stream)?;
    Ok(ControlChannel::new(stream, halves))
}

fn unexpected_response() -> Error {
    Error::violation(PROTOCOL.listener.program, "its answer does not match the request")
}

/// A connection of a test.
fn connect_stream(address: SocketAddr, cookie: &Cookie, sockets: &TestSocketOptions) -> Result<TcpStream> {
    let option_error = |error| std::io::Error::other(format!("this host's kernel does not grant{sockets}: {error}"));
    let prepare = |socket: &TcpStream| sockets.apply(socket).map_err(option_error);
    let stream = net::connect_prepared(address, HANDSHAKE_TIMEOUT, prepare);
    let mut stream = stream.map_err(Error::call("connect for the test"))?;
    stream.set_nodelay(true).map_err(Error::call("set up the test"))?;
    Deadline::within(HANDSHAKE_TIMEOUT).write_full(&mut stream, cookie, "read the cookie")?;
    stream.set_io_timeout(SOCKET_TIMEOUT).map_err(Error::call("set up the test"))?;
    Ok(stream)
}

/// Sends the cookie until it comes back.
fn introduce(socket: &UdpSocket, cookie: &Cookie) -> Result<()> {
    let to_error = Error::call("set up the test");
    socket.set_read_timeout(Some(FIRST_DATAGRAM_TIMEOUT)).map_err(to_error)?;
    for _ in 0..MAX_FIRST_DATAGRAMS {
        socket.send(cookie).map_err(to_error)?;
        let mut answer = Cookie::default();
        if matches!(socket.recv(&mut answer), Ok(count) if count == cookie.len() && answer == *cookie) {
            return socket.set_read_timeout(Some(SOCKET_TIMEOUT)).map_err(to_error);
        }
    }
    let seconds = (FIRST_DATAGRAM_TIMEOUT * MAX_FIRST_DATAGRAMS).as_secs_f64();
    Err(Error::TimedOut { doing: "send a datagram back (does a firewall drop them?)", seconds })
}

/// A running test, and the socket (or sockets, or the address to connect to) of its messages.
#[derive(Debug)]
pub struct RunningTest<'a, S> {
    client: &'a mut AgentClient,
    /// The socket.
    pub socket: S,
    /// Whether the agent sees the end of the test by its connection, and not by a message.
    ends_by_closing: bool,
}

/// Where an agent accepts connections, and its answer on each.
#[derive(Clone, Copy, Debug)]
pub struct AcceptTarget {
    /// The address at which it accepts them.
    pub address: SocketAddr,
    cookie: Cookie,
}

impl AcceptTarget {
    /// Connects: the calls socket and connect, and nothing else. The agent's kernel answers.
    ///
    /// # Errors
    /// A failed call.
    #[inline(always)]
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.address)
    }

    /// Sends a request over a connection and receives the answer, each as long as a cookie: then it is accepted.
    ///
    /// # Errors
    /// No answer, or a wrong one.
    #[inline(always)]
    pub fn exchange(&self, connection: &mut TcpStream) -> Result<()> {
        const DOING: &str = "answer a request";
        let mut answer = Cookie::default();
        connection.set_read_timeout(Some(SOCKET_TIMEOUT)).map_err(Error::call("set up the test"))?;
        connection.write_all(&self.cookie).map_err(Error::call("send a request"))?;
        connection.read_exact(&mut answer).map_err(|error| match is_timeout(&error) {
            true => Error::TimedOut { doing: DOING, seconds: SOCKET_TIMEOUT.as_secs_f64() },
            false => Error::call("receive an answer")(error),
        })?;
        match answer == self.cookie {
            true => Ok(()),
            false => Err(Error::violation(PROTOCOL.listener.program, "it gave a wrong answer")),
        }
    }
}

impl<S> RunningTest<'_, S> {
    /// Ends it, and returns the agent's account: nothing of what was still in flight.
    ///
    /// # Errors
    /// A fault that the agent saw, or an agent that is gone.
    pub fn finish(self) -> Result<TestReport> {
        if !self.ends_by_closing {
            return self.client.end_test();
        }
        drop(self.socket);
        self.client.report()
    }

    /// What the agent has received or sent so far, in its own time: only of streams, and of datagrams that it counts.
    ///
    /// # Errors
    /// A lost connection, or an agent that is gone.
    pub fn counts(&mut self) -> Result<TestCounts> {
        let response = self.client.request(&AgentRequest::Count)?;
        let AgentResponse::Counted(counts) = response else { return Err(unexpected_response()) };
        if !counts.can_follow(&self.client.last_counts) {
            return Err(Error::malformed("it has counted what cannot be"));
        }
        self.client.last_counts = counts;
        Ok(counts)
    }
}

/// A server of an agent's files, which runs until this is dropped.
#[derive(Debug)]
pub struct RemoteFileServer {
    client: AgentClient,
    /// What the agent reports of it.
    pub info: FileServerInfo,
}

impl RemoteFileServer {
    /// Where it serves files over HTTP, and where it reports what it uses.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.info.files_port, self.info.stats_port].map(|port| with_port(self.client.agent_addr, port))
    }

    /// Names of all files.
    ///
    /// # Errors
    /// Other names than those of files in a directory, or more or fewer than it announced.
    pub fn file_names(&mut self) -> Result<Vec<String>> {
        let files = self.info.files as usize;
        let mut names = Vec::new();
        while names.len() < files {
            let response = self.client.request(&AgentRequest::Names { from: names.len() as u32 })?;
            let AgentResponse::Names(batch) = response else { return Err(unexpected_response()) };
            if batch.is_empty() || names.len() + batch.len() > files {
                return Err(Error::malformed("it names more or fewer files than it has"));
            }
            names.extend(batch);
        }
        Ok(names)
    }

    /// Has files read past the page cache for some seconds: how fast the disk gave them.
    ///
    /// # Errors
    /// Files that cannot be read, or are always in memory.
    pub fn disk_rate(&mut self) -> Result<DiskRateReport> {
        let response = self.client.request(&AgentRequest::ReadFromDisk)?;
        if let AgentResponse::Read(rate) = response { Ok(rate) } else { Err(unexpected_response()) }
    }

    /// Has all files in memory, or none; asks after each part whether to go on.
    ///
    /// # Errors
    /// Files that cannot be brought there; [`Error::Closed`] if it is not to go on.
    pub fn set_cache_state(&mut self, cache: FileCacheState, mut should_continue: impl FnMut() -> bool) -> Result<()> {
        let mut first_file = 0;
        while first_file < self.info.files {
            match self.client.request(&AgentRequest::SetCacheState { cache, from: first_file })? {
                AgentResponse::CacheStateSet(next) if first_file < next && should_continue() => first_file = next,
                AgentResponse::CacheStateSet(next) if first_file < next => return Err(Error::Closed),
                _ => return Err(unexpected_response()),
            }
        }
        Ok(())
    }

    /// Reports that this client is there.
    ///
    /// # Errors
    /// An agent that is gone.
    pub fn keep_alive(&mut self) -> Result<()> {
        let response = self.client.request(&AgentRequest::KeepAlive)?;
        if let AgentResponse::Alive = response { Ok(()) } else { Err(unexpected_response()) }
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// An agent that is gone.
    pub fn stop(mut self) -> Result<AgentClient> {
        self.client.end_test()?;
        Ok(self.client)
    }
}
