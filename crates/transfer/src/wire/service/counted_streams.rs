//! Bytes from a client or to it, by streams or datagrams: moved by a thread each, and counted. Received bytes are dropped, sent
//! ones are filler.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use kelvin_sys::cpu;
use kelvin_sys::net::{self, socket_queues::received_bytes};
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::{UsageScope, read_usage};

use super::{LastProgress, SILENCE_BEFORE_CHECK, TestSession, overlapping_test_error, refusal, stream_error};
use crate::error::is_timeout;
use crate::wire::admission::AgentLimits;
use crate::wire::cpu_usage::{CpuUsageMeter, ThreadClocks};
use crate::wire::message::{
    AgentRequest, AgentResponse, Cookie, SequenceCounts, StreamPlacement, TestCounts, TestDirection, TestReport,
};
use crate::wire::stream_spread::StreamSpreadMeter;
use crate::wire::test_socket::{TcpEndInfo, TestSocketOptions};
use crate::wire::{Error, Result};

/// Bytes of a call: larger ones are no faster, and these stay in a cache.
const BUFFER_BYTES: usize = 128 << 10;
/// Bytes requested for the buffer of a socket of datagrams, so that they fit while the receiving thread waits for a CPU. The
/// kernel may grant less.
const DATAGRAM_BUFFER_BYTES: u32 = 4 << 20;
/// Up to this many CPUs the scheduler places all threads: one of them also processes the packets, and only it can keep a thread clear of
/// that one.
const MAX_SHARED_CPUS: usize = 2;

impl TestSession<'_> {
    /// Receives or sends this many streams until the client ends the test, and reports counts on request.
    pub(super) fn serve_streams(
        &mut self,
        direction: TestDirection,
        count: u32,
        placement: StreamPlacement,
        options: &TestSocketOptions,
    ) -> Result<TestReport> {
        let max_streams = self.limits.max_streams;
        if count == 0 || count > max_streams {
            return Err(refusal(format!("a test has from 1 to {max_streams} connections")));
        }
        options.check(self.limits)?;
        let listener = self.listen()?;
        let grant_error = |error| refusal(format!("the kernel of the agent's host does not grant{options}: {error}"));
        options.apply(&listener).map_err(grant_error)?;
        let streams = self.accept_streams(&listener, count)?;
        drop(listener);
        for stream in &streams {
            // The kernel gathers what is sent into packets, and drops what was not received at the end. A client that does not read leaves
            // nothing behind.
            let set_up = stream.set_nodelay(false).and_then(|()| net::reset_on_close(stream));
            set_up.map_err(Error::call("set up the test"))?;
        }
        let cpus = self.own_cpus(placement, streams.len());
        self.serve_counted(streams.into_iter().map(|stream| TestSocket::Stream(direction, stream)).collect(), &cpus)
    }

    /// A CPU for each of this many streams; none where the scheduler is to place them: there are too few, or another test has its threads
    /// on the same ones.
    fn own_cpus(&self, placement: StreamPlacement, streams: usize) -> Vec<u32> {
        let has_enough = self.cpus.len() > MAX_SHARED_CPUS && self.cpus.len() >= streams;
        let is_granted = placement == StreamPlacement::OwnCpus && has_enough && self.slot.used_slots() == 1;
        if is_granted { self.cpus[..streams].to_vec() } else { Vec::new() }
    }

    /// Receives numbered datagrams of this many bytes.
    pub(super) fn serve_datagrams(&mut self, bytes: u32) -> Result<TestReport> {
        if bytes as usize <= size_of::<Cookie>() {
            let min_bytes = size_of::<Cookie>() + 1;
            return Err(refusal(format!("a counted datagram must have at least {min_bytes} bytes")));
        }
        let (socket, cookie) = self.introduced_socket()?;
        net::set_buffers(&socket, DATAGRAM_BUFFER_BYTES).map_err(Error::call("set up the test"))?;
        self.serve_counted(vec![TestSocket::Datagrams { socket, cookie, bytes: bytes as usize }], &[])
    }

    /// Moves the bytes of each socket by a thread, on the CPU of the same place among these, if there is one.
    fn serve_counted(&mut self, sockets: Vec<TestSocket>, cpus: &[u32]) -> Result<TestReport> {
        self.start = Instant::now();
        let test = CountedTest {
            sockets,
            limits: self.limits,
            start: self.start,
            bytes: AtomicU64::new(0),
            numbers: Default::default(),
            threads: ThreadClocks::default(),
            is_over: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            let test = &test;
            let begin = |(number, socket): (usize, _)| {
                let cpu = cpus.get(number).copied();
                let work = move || {
                    cpu.map_or(Ok(()), |cpu| cpu::pin(&[cpu])).map_err(Error::call("use a CPU for a stream"))?;
                    test.move_bytes(socket)
                };
                ThreadBuilder::named("moves").start_in(scope, work)
            };
            // Those that were started wait for the client.
            let threads = test.sockets.iter().enumerate().map(begin).collect::<std::io::Result<Vec<_>>>();
            let threads = threads.inspect_err(|_| test.stop()).map_err(Error::Thread)?;
            let outcome = self.answer_counts(test, &threads);
            let streams = || test.sockets.iter().filter_map(TestSocket::stream);
            let stream = streams().next().and_then(|first| TcpEndInfo::of_socket(first).ok());
            let retransmits = streams().filter_map(|stream| net::tcp_info(stream).ok());
            let retransmits = retransmits.map(|info| u64::from(info.retransmits)).sum();
            test.stop();
            let panic_error = |_| refusal("a thread of the agent panicked");
            let ends = threads.into_iter().map(|thread| thread.join().map_err(panic_error).flatten());
            let ends = ends.collect::<Result<Vec<[u64; 2]>>>()?;
            outcome?;
            let cpu_nanoseconds = ends.iter().fold([0; 2], |sum, end| [sum[0] + end[0], sum[1] + end[1]]);
            let arrived = test.bytes.load(Ordering::Relaxed);
            let had_own_cpus = !cpus.is_empty();
            Ok(TestReport { arrived, stream, retransmits, had_own_cpus, cpu_nanoseconds, ..TestReport::default() })
        })
    }

    /// Answers the client's requests meanwhile.
    fn answer_counts(&mut self, test: &CountedTest<'_>, threads: &[MoverThread<'_>]) -> Result<()> {
        let mut meter = CpuUsageMeter::start(&test.threads);
        let mut spreads = StreamSpreadMeter::start(test.received()?);
        loop {
            let request: AgentRequest = self.channel.receive(self.limits.idle_timeout)?;
            self.check_time()?;
            match request {
                // A stream that ended early has reported why, or was closed.
                AgentRequest::Count if threads.iter().any(ScopedJoinHandle::is_finished) => return Err(Error::Closed),
                AgentRequest::Count => {
                    let (received, counts) = test.counts()?;
                    let counts = TestCounts { busy: meter.sample(), spread: spreads.sample(received), ..counts };
                    self.send(&AgentResponse::Counted(counts))?;
                }
                AgentRequest::End => return Ok(()),
                _ => return Err(overlapping_test_error()),
            }
        }
    }
}

/// Where bytes come from, or go to.
enum TestSocket {
    Stream(TestDirection, TcpStream),
    Datagrams { socket: UdpSocket, cookie: Cookie, bytes: usize },
}

/// What is moved, and how much of it so far.
struct CountedTest<'a> {
    sockets: Vec<TestSocket>,
    limits: &'a AgentLimits,
    start: Instant,
    bytes: AtomicU64,
    /// Of datagrams: arrived, the highest number, reordered. One thread writes them.
    numbers: [AtomicU64; 3],
    threads: ThreadClocks,
    is_over: AtomicBool,
}

impl TestSocket {
    fn stream(&self) -> Option<&TcpStream> {
        if let Self::Stream(_, stream) = self { Some(stream) } else { None }
    }
}

type MoverThread<'scope> = ScopedJoinHandle<'scope, Result<[u64; 2]>>;

impl CountedTest<'_> {
    /// Has all threads end.
    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stream in self.sockets.iter().filter_map(TestSocket::stream) {
            // One that is closed already needs no shutdown. It ends a blocked call, too.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Bytes of each stream that is taken. They have arrived when the kernel has them. Threads that wait for a CPU and then read what has
    /// gathered would show more than the network carries.
    fn received(&self) -> Result<Vec<u64>> {
        let received = self.sockets.iter().filter_map(|socket| match socket {
            // Each began with its cookie.
            TestSocket::Stream(TestDirection::ToAgent, stream) => {
                Some(received_bytes(stream).map(|bytes| bytes.saturating_sub(size_of::<Cookie>() as u64)))
            }
            _ => None,
        });
        received.collect::<kelvin_sys::Result<_>>().map_err(Error::call("count what arrived"))
    }

    /// The bytes of each stream that is taken, and all counts so far.
    fn counts(&self) -> Result<(Vec<u64>, TestCounts)> {
        let received = self.received()?;
        let bytes = if received.is_empty() { self.bytes.load(Ordering::Relaxed) } else { received.iter().sum() };
        let nanoseconds = self.start.elapsed().as_nanos() as u64;
        let [arrived, latest, reordered] = self.numbers.each_ref().map(|count| count.load(Ordering::Relaxed));
        let dropped = self.sockets.iter().map(|source| match source {
            TestSocket::Stream(..) => 0,
            // A kernel without this count leaves what was lost here among what was lost in transit.
            TestSocket::Datagrams { socket, .. } => net::dropped_datagrams(socket).unwrap_or(0).into(),
        });
        let numbers = SequenceCounts { arrived, latest, reordered };
        let counts = TestCounts { bytes, nanoseconds, numbers, dropped: dropped.sum(), ..TestCounts::default() };
        Ok((received, counts))
    }

    /// Moves bytes until the end; the CPU time that it cost.
    fn move_bytes(&self, source: &TestSocket) -> Result<[u64; 2]> {
        self.threads.register();
        let usage_before = read_usage(UsageScope::Thread);
        match source {
            TestSocket::Stream(TestDirection::ToAgent, stream) => {
                let mut buffer = vec![0; BUFFER_BYTES];
                self.move_stream(|| (&*stream).read(&mut buffer))?;
            }
            TestSocket::Stream(TestDirection::FromAgent, stream) => {
                let filler = vec![0x5a; BUFFER_BYTES];
                let is_over = || self.is_over.load(Ordering::Relaxed);
                self.move_stream(|| if is_over() { Ok(0) } else { (&*stream).write(&filler) })?;
            }
            TestSocket::Datagrams { socket, cookie, bytes } => self.receive_datagrams(socket, cookie, *bytes)?,
        }
        let usage = read_usage(UsageScope::Thread).since(usage_before);
        Ok([usage.user, usage.system])
    }

    /// Moves bytes of a stream by a call until it moves none: what has arrived at the end of a test is still received. A client that does
    /// not read makes the call end after the time that a test may stand still.
    fn move_stream(&self, mut call: impl FnMut() -> std::io::Result<usize>) -> Result<()> {
        loop {
            match call() {
                Ok(0) => return Ok(()),
                Ok(count) => drop(self.bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(stream_error(self.limits)(error)),
            }
        }
    }

    /// Counts datagrams of this size. Only the first one is answered, should its answer have been lost.
    fn receive_datagrams(&self, socket: &UdpSocket, cookie: &Cookie, bytes: usize) -> Result<()> {
        socket.set_read_timeout(Some(SILENCE_BEFORE_CHECK)).map_err(Error::call("set up the test"))?;
        // One byte more than expected shows a datagram that is longer.
        let mut buffer = vec![0; bytes + 1];
        let (mut numbers, mut last) = (SequenceCounts::default(), LastProgress::start());
        while !self.is_over.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(count) if count == bytes => {
                    let number = buffer.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
                    numbers.record(number);
                    self.bytes.fetch_add(count as u64, Ordering::Relaxed);
                    let values = [numbers.arrived, numbers.latest, numbers.reordered];
                    self.numbers
                        .iter()
                        .zip(values)
                        .for_each(|(counter, value)| counter.store(value, Ordering::Relaxed));
                }
                Ok(count) if buffer[..count] == cookie[..] => {
                    socket.send(cookie).map_err(stream_error(self.limits))?;
                }
                Ok(_) => {}
                Err(error) if is_timeout(&error) => last.check(numbers.arrived, self.limits)?,
                Err(error) => return Err(stream_error(self.limits)(error)),
            }
        }
        Ok(())
    }
}
