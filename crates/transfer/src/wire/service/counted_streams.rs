//! Bytes from a client or to it, by streams or datagrams: moved by a thread each, and counted. Received bytes are dropped, sent
//! ones are filler.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use kelvin_sys::net;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::{UsageScope, read_usage};

use super::{
    SILENCE_BEFORE_CHECK, TestGuard, accept_streams, check_time, introduced_socket, listen_for_test, stream_error,
    timed_out,
};
use crate::wire::control_channel::ControlChannel;
use crate::wire::cpu_usage::{CpuUsageMeter, ThreadClocks};
use crate::wire::error::is_timeout;
use crate::wire::limits::AgentLimits;
use crate::wire::message::{AgentRequest, AgentResponse, Cookie, TestCounts, TestDirection, TestReport};
use crate::wire::sequence::SequenceCounts;
use crate::wire::socket_options::{TcpEndInfo, TestSocketOptions};
use crate::wire::{Error, Result};

/// Bytes of a call: larger ones are no faster, and these stay in a cache.
const BUFFER_BYTES: usize = 128 << 10;
/// Bytes requested for the buffer of a socket of datagrams, so that they fit while the receiving thread waits for a CPU. The
/// kernel may grant less.
const DATAGRAM_BUFFER_BYTES: u32 = 4 << 20;

/// Receives or sends so many streams until the client ends the test, and reports counts on request.
pub fn serve_streams(
    channel: &mut ControlChannel,
    (direction, count): (TestDirection, u32),
    sockets: &TestSocketOptions,
    limits: &AgentLimits,
    served: &TestGuard,
) -> Result<TestReport> {
    if count == 0 || count > limits.max_streams {
        return Err(Error::Refused(format!("a test has from 1 to {} connections", limits.max_streams)));
    }
    sockets.check(limits)?;
    let listener = listen_for_test(channel)?;
    let refused = |error| Error::Refused(format!("the kernel of the agent's host does not grant{sockets}: {error}"));
    sockets.apply(&listener).map_err(refused)?;
    let moved = match direction {
        TestDirection::ToAgent => TestSocket::Receiving,
        TestDirection::FromAgent => TestSocket::Sending,
    };
    let streams = accept_streams(&listener, count, channel, limits)?;
    drop(listener);
    streams.iter().try_for_each(configure_bulk_stream).map_err(Error::call("set up the test"))?;
    CountedTest::new(streams.into_iter().map(moved).collect()).serve(channel, limits, served)
}

/// Lets the kernel gather what is sent into packets, and drop what was not received at the end: a client that does not read
/// leaves nothing behind.
fn configure_bulk_stream(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(false)?;
    net::reset_on_close(stream)
}

/// The same for numbered datagrams of so many bytes.
pub fn serve_datagrams(
    channel: &mut ControlChannel,
    bytes: u32,
    limits: &AgentLimits,
    served: &TestGuard,
) -> Result<TestReport> {
    if bytes as usize <= size_of::<Cookie>() {
        let least = size_of::<Cookie>() + 1;
        return Err(Error::Refused(format!("a counted datagram must have at least {least} bytes")));
    }
    let (socket, cookie) = introduced_socket(channel, limits)?;
    net::set_buffers(&socket, DATAGRAM_BUFFER_BYTES).map_err(Error::call("set up the test"))?;
    let datagrams = TestSocket::Datagrams { socket, cookie, bytes: bytes as usize };
    CountedTest::new(vec![datagrams]).serve(channel, limits, served)
}

/// Where bytes come from, or go to.
enum TestSocket {
    Receiving(TcpStream),
    Sending(TcpStream),
    Datagrams { socket: UdpSocket, cookie: Cookie, bytes: usize },
}

/// What is moved, and how much of it so far.
struct CountedTest {
    sockets: Vec<TestSocket>,
    begun: Instant,
    bytes: AtomicU64,
    /// Of datagrams: arrived, the highest number, reordered. One thread writes them.
    numbers: [AtomicU64; 3],
    threads: ThreadClocks,
    is_over: AtomicBool,
}

impl TestSocket {
    fn stream(&self) -> Option<&TcpStream> {
        match self {
            Self::Receiving(stream) | Self::Sending(stream) => Some(stream),
            Self::Datagrams { .. } => None,
        }
    }

    /// The stream that is received from, if it is one.
    fn receiving(&self) -> Option<&TcpStream> {
        if let Self::Receiving(stream) = self { Some(stream) } else { None }
    }
}

type MoverThread<'scope> = ScopedJoinHandle<'scope, Result<[u64; 2]>>;

impl CountedTest {
    fn new(sources: Vec<TestSocket>) -> Self {
        Self {
            sockets: sources,
            begun: Instant::now(),
            bytes: AtomicU64::new(0),
            numbers: Default::default(),
            threads: ThreadClocks::default(),
            is_over: AtomicBool::new(false),
        }
    }

    fn serve(&self, channel: &mut ControlChannel, limits: &AgentLimits, served: &TestGuard) -> Result<TestReport> {
        std::thread::scope(|scope| {
            let begin = |source| ThreadBuilder::named("moves").start_in(scope, move || self.move_bytes(source, limits));
            // Those that were started wait for the client.
            let threads = self.sockets.iter().map(begin).collect::<std::io::Result<Vec<_>>>();
            let threads = threads.inspect_err(|_| self.stop()).map_err(Error::Thread)?;
            let outcome = self.answer_requests(channel, &threads, limits, served);
            let stream =
                self.sockets.iter().find_map(TestSocket::stream).and_then(|first| TcpEndInfo::of_socket(first).ok());
            self.stop();
            let panicked = |_| Error::Refused("a thread of the agent panicked".into());
            let ends = threads.into_iter().map(|thread| thread.join().map_err(panicked).and_then(|ended| ended));
            let ends: Vec<[u64; 2]> = ends.collect::<Result<_>>()?;
            outcome?;
            let mut seen = TestReport { arrived: self.bytes.load(Ordering::Relaxed), stream, ..TestReport::default() };
            for end in ends {
                seen.cpu_nanoseconds.iter_mut().zip(end).for_each(|(all, one)| *all += one);
            }
            Ok(seen)
        })
    }

    /// Has all threads end.
    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stream in self.sockets.iter().filter_map(TestSocket::stream) {
            // One that is closed already needs no shutdown. It ends a blocked call, too.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Answers the client's requests meanwhile.
    fn answer_requests(
        &self,
        channel: &mut ControlChannel,
        threads: &[MoverThread<'_>],
        limits: &AgentLimits,
        served: &TestGuard,
    ) -> Result<()> {
        let mut watch = CpuUsageMeter::start(&self.threads);
        loop {
            let ask: AgentRequest = channel.receive(limits.idle_timeout)?;
            served.update_max();
            check_time(self.begun, limits)?;
            match ask {
                // A stream that ended early has reported why, or was closed.
                AgentRequest::Count if threads.iter().any(ScopedJoinHandle::is_finished) => return Err(Error::Closed),
                AgentRequest::Count => {
                    let counted = TestCounts { busy: watch.sample(), ..self.counts()? };
                    channel.send(&AgentResponse::Counted(counted), limits.idle_timeout)?;
                }
                AgentRequest::End => return Ok(()),
                _ => return Err(Error::Refused("one test must end before the next one begins".into())),
            }
        }
    }

    /// The counts so far. Bytes of a stream that is taken have arrived when the kernel has them: threads that wait for a CPU and then read
    /// what has gathered would show more than the network carries.
    fn counts(&self) -> Result<TestCounts> {
        // Each began with its cookie.
        let of = |stream| Ok(net::socket_queues::received_bytes(stream)?.saturating_sub(size_of::<Cookie>() as u64));
        let received = self.sockets.iter().filter_map(TestSocket::receiving).map(of).sum::<kelvin_sys::Result<u64>>();
        let received = received.map_err(Error::call("count what arrived"))?;
        let is_taken = self.sockets.iter().any(|source| source.receiving().is_some());
        let bytes = if is_taken { received } else { self.bytes.load(Ordering::Relaxed) };
        let nanoseconds = self.begun.elapsed().as_nanos() as u64;
        let [arrived, latest, reordered] = self.numbers.each_ref().map(|one| one.load(Ordering::Relaxed));
        let dropped = self.sockets.iter().map(|source| match source {
            TestSocket::Receiving(_) | TestSocket::Sending(_) => 0,
            // A kernel without this count leaves what was lost here among what was lost in transit.
            TestSocket::Datagrams { socket, .. } => net::dropped_datagrams(socket).unwrap_or(0).into(),
        });
        let numbers = SequenceCounts { arrived, latest, reordered };
        Ok(TestCounts { bytes, nanoseconds, numbers, dropped: dropped.sum(), ..TestCounts::default() })
    }

    /// Moves bytes until the end; the CPU time that it cost.
    fn move_bytes(&self, source: &TestSocket, limits: &AgentLimits) -> Result<[u64; 2]> {
        self.threads.register();
        let before = read_usage(UsageScope::Thread);
        match source {
            TestSocket::Receiving(stream) => self.receive_stream(stream, limits)?,
            TestSocket::Sending(stream) => self.send_stream(stream, limits)?,
            TestSocket::Datagrams { socket, cookie, bytes } => {
                self.receive_datagrams(socket, cookie, *bytes, limits)?
            }
        }
        let used = read_usage(UsageScope::Thread).since(before);
        Ok([used.user, used.system])
    }

    fn receive_stream(&self, mut stream: &TcpStream, limits: &AgentLimits) -> Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => drop(self.bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(stream_error(limits)(error)),
            }
        }
    }

    /// A client that does not read makes the call end after the time that a test may stand still.
    fn send_stream(&self, mut stream: &TcpStream, limits: &AgentLimits) -> Result<()> {
        let filler = vec![0x5a; BUFFER_BYTES];
        while !self.is_over.load(Ordering::Relaxed) {
            match stream.write(&filler) {
                Ok(count) => drop(self.bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(stream_error(limits)(error)),
            }
        }
        Ok(())
    }

    /// Counts datagrams of this size. Only the first one is answered, should its answer have been lost.
    fn receive_datagrams(&self, socket: &UdpSocket, cookie: &Cookie, bytes: usize, limits: &AgentLimits) -> Result<()> {
        socket.set_read_timeout(Some(SILENCE_BEFORE_CHECK)).map_err(Error::call("set up the test"))?;
        // One byte more than expected shows a datagram that is longer.
        let mut buffer = vec![0; bytes + 1];
        let (mut numbers, mut last) = (SequenceCounts::default(), (Instant::now(), 0));
        while !self.is_over.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(count) if count == bytes => {
                    let number = buffer.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
                    numbers.record(number);
                    self.bytes.fetch_add(count as u64, Ordering::Relaxed);
                    let all = [numbers.arrived, numbers.latest, numbers.reordered];
                    self.numbers.iter().zip(all).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
                }
                Ok(count) if buffer[..count] == cookie[..] => {
                    socket.send(cookie).map_err(stream_error(limits))?;
                }
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {
                    if last.1 != numbers.arrived {
                        last = (Instant::now(), numbers.arrived);
                    } else if last.0.elapsed() > limits.idle_timeout {
                        return Err(timed_out(limits));
                    }
                }
                Err(error) => return Err(stream_error(limits)(error)),
            }
        }
        Ok(())
    }
}
