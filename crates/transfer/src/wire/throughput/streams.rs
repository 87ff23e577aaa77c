//! One end of all streams of a test: a thread for each, which sends or receives, and counts.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use kelvin_sys::clock::{monotonic, realtime};
use kelvin_sys::memory::Arena;
use kelvin_sys::net::rx_timestamp;
use kelvin_sys::net::socket_queues::{send_counters, tcp_info};
use kelvin_sys::random::split_mix;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::{UsageScope, read_usage};
use kelvin_sys::{lock, net};

use super::datagram::{DatagramTracker, write_header};
use super::{DatagramCounts, EndCounts, Pacer, StreamCounts, TcpSendCounts, ThroughputSpec};
use crate::error::is_timeout;
use crate::wire::cpu_usage::{CpuUsageMeter, ThreadClocks};
use crate::wire::message::Cookie;
use crate::wire::test_socket::TcpEndInfo;
use crate::wire::{Error, Result};

/// Bytes of a call that receives: larger ones are no faster, and these stay in a cache.
const RECEIVE_BYTES: usize = 128 << 10;
/// Bytes requested for the buffers of a socket of datagrams, so that they fit while the receiving thread waits for a CPU. The kernel may
/// grant less.
const DATAGRAM_BUFFER_BYTES: u32 = 4 << 20;
/// A call that waits longer checks for the end of the test.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Arrears of a paced stream that are made up for: what a loaded machine takes away at once.
const MAX_BACKLOG_NANOSECONDS: f64 = 100e6;
/// Where the sender has stopped, the last datagram has arrived once none did for this time.
const LAST_DATAGRAM_QUIET: Duration = Duration::from_millis(200);
/// How long an end waits for what was sent to it, less than the other end waits for an answer; and for how long nothing may arrive.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(30);
const MAX_DRAIN_SILENCE: Duration = Duration::from_secs(5);
/// How often the end of all threads is looked for.
const END_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// By how much the kernel's pacing is faster than the rate that was asked for. Timed sends keep that rate; the kernel spreads each over
/// its time, and must not add up a backlog.
const PACING_FACTOR: f64 = 1.1;
/// Stack of a thread: little is on it.
const STACK_BYTES: usize = 256 << 10;
/// Linux's error where its own queue has no room: the datagram was not sent.
const ENOBUFS: i32 = 105;

/// What this end of a stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRole {
    /// It sends until it is stopped.
    Sends,
    /// It receives until the other end stops.
    Receives,
}

/// The socket of a stream.
#[derive(Debug)]
pub enum StreamSocket {
    /// A connection.
    Tcp(TcpStream),
    /// Datagrams with one other address, which begins by this cookie.
    Udp(UdpSocket, Cookie),
}

/// One end of all streams of a test.
#[derive(Debug)]
pub struct StreamGroup<'a> {
    spec: &'a ThroughputSpec,
    streams: Vec<Stream>,
    /// What senders send. Whole pages are copied faster than what begins within one.
    content: Arena,
    start: Instant,
    /// Bytes that senders may still send, of all together.
    budget: Option<AtomicU64>,
    /// Senders stop.
    is_sending_over: AtomicBool,
    /// Receivers of datagrams stop once nothing arrives.
    is_arrival_over: AtomicBool,
    /// All stop at once.
    is_over: AtomicBool,
    threads: ThreadClocks,
    /// The first fault of a stream.
    fault: Mutex<Option<Error>>,
}

/// One end of a stream, and its counts. One thread writes them.
#[derive(Debug)]
struct Stream {
    role: StreamRole,
    socket: StreamSocket,
    bytes: AtomicU64,
    /// Nanoseconds since the start, and one more; 0 before its end.
    ended: AtomicU64,
    /// Of datagrams: how many, the highest number, reordered, and jitter in nanoseconds.
    datagrams: [AtomicU64; 4],
}

impl<'a> StreamGroup<'a> {
    /// Of these sockets, with what each does; they are set up for the test.
    ///
    /// # Errors
    /// A failed system call.
    pub fn new(spec: &'a ThroughputSpec, sockets: Vec<(StreamRole, StreamSocket)>) -> Result<Self> {
        let streams: Vec<Stream> = sockets.into_iter().map(|(role, socket)| Stream::new(role, socket)).collect();
        for stream in &streams {
            stream.set_up(spec).map_err(Error::call("set up the test"))?;
        }
        let mut content = Arena::io_buffer(spec.message as usize).map_err(Error::call("set up the test"))?;
        let mut state = u64::from(spec.message);
        for word in content.as_mut_slice().chunks_mut(size_of::<u64>()) {
            word.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..word.len()]);
        }
        let flag = || AtomicBool::new(false);
        Ok(Self {
            spec,
            streams,
            content,
            start: Instant::now(),
            budget: spec.bytes.map(AtomicU64::new),
            is_sending_over: flag(),
            is_arrival_over: flag(),
            is_over: flag(),
            threads: ThreadClocks::default(),
            fault: Mutex::default(),
        })
    }

    /// The counts of an end that has not begun.
    pub fn initial_counts(&self) -> EndCounts {
        EndCounts { streams: vec![StreamCounts::default(); self.streams.len()], ..EndCounts::default() }
    }

    /// Runs all streams while the caller does this; they have ended when it returns. Also returns their CPU time in nanoseconds: in user
    /// mode, and in the kernel.
    ///
    /// # Errors
    /// A thread that could not be started, the caller's error, or the first fault of a stream.
    pub fn run<T>(mut self, body: impl FnOnce(&mut RunningStreams<'_, '_>) -> Result<T>) -> Result<(T, [u64; 2])> {
        self.start = Instant::now();
        let group = &self;
        std::thread::scope(|scope| {
            let begin = |stream| {
                ThreadBuilder::named("stream")
                    .stack_bytes(STACK_BYTES)
                    .start_in(scope, move || group.move_bytes(stream))
            };
            let threads = group.streams.iter().map(begin).collect::<std::io::Result<Vec<_>>>();
            let threads = threads.inspect_err(|_| group.stop()).map_err(Error::Thread)?;
            let mut running = RunningStreams { group, meter: CpuUsageMeter::start(&group.threads), threads };
            let outcome = body(&mut running);
            group.stop();
            let panic_error = |_| Error::Thread(std::io::Error::other("a thread of a stream panicked"));
            let ends = running.threads.into_iter().map(|thread| thread.join().map_err(panic_error));
            let ends = ends.collect::<Result<Vec<[u64; 2]>>>()?;
            let cpu = ends.iter().fold([0; 2], |sum, end| [sum[0] + end[0], sum[1] + end[1]]);
            let outcome = outcome?;
            lock(&group.fault).take().map_or(Ok((outcome, cpu)), Err)
        })
    }

    /// Has all threads end, whatever is on its way.
    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            if let StreamSocket::Tcp(socket) = &stream.socket {
                // One that is closed already needs no shutdown. It ends a blocked call, too.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_sending_over(&self) -> bool {
        self.is_sending_over.load(Ordering::Relaxed) || self.is_over()
    }

    /// Moves bytes until the end; the CPU time that it cost. A fault is kept.
    fn move_bytes(&self, stream: &Stream) -> [u64; 2] {
        self.threads.register();
        let usage_before = read_usage(UsageScope::Thread);
        let outcome = match (stream.role, &stream.socket) {
            (StreamRole::Sends, StreamSocket::Tcp(socket)) => self.send_stream(stream, socket),
            (StreamRole::Receives, StreamSocket::Tcp(socket)) => self.receive_stream(stream, socket),
            (StreamRole::Sends, StreamSocket::Udp(socket, _)) => self.send_datagrams(stream, socket),
            (StreamRole::Receives, StreamSocket::Udp(socket, cookie)) => self.receive_datagrams(stream, socket, cookie),
        };
        if stream.ended.load(Ordering::Relaxed) == 0 {
            stream.record_end(self.start);
        }
        if let Err(error) = outcome
            && !self.is_over()
        {
            lock(&self.fault).get_or_insert(Error::call("continue the test")(error));
        }
        let usage = read_usage(UsageScope::Thread).since(usage_before);
        [usage.user, usage.system]
    }

    fn send_stream(&self, stream: &Stream, mut socket: &TcpStream) -> std::io::Result<()> {
        let mut turns = Turns::new(self);
        while let Some(length) = turns.next_message() {
            let mut rest = &self.content.as_slice()[..length];
            while !rest.is_empty() && !self.is_sending_over() {
                match socket.write(rest) {
                    Ok(count) => {
                        stream.bytes.fetch_add(count as u64, Ordering::Relaxed);
                        rest = &rest[count..];
                    }
                    Err(error) if may_repeat(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        stream.record_end(self.start);
        socket.shutdown(Shutdown::Write)
    }

    fn receive_stream(&self, stream: &Stream, mut socket: &TcpStream) -> std::io::Result<()> {
        let mut buffer = Arena::io_buffer(RECEIVE_BYTES)?;
        while !self.is_over() {
            match socket.read(buffer.as_mut_slice()) {
                Ok(0) => break,
                Ok(count) => drop(stream.bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(error) if may_repeat(&error) => {}
                Err(error) => return Err(error),
            }
        }
        stream.record_end(self.start);
        Ok(())
    }

    fn send_datagrams(&self, stream: &Stream, socket: &UdpSocket) -> std::io::Result<()> {
        let mut datagram = self.content.as_slice()[..self.spec.message as usize].to_vec();
        let (mut turns, mut number) = (Turns::new(self), 0);
        while let Some(length) = turns.next_message() {
            write_header(&mut datagram, number + 1, monotonic());
            match socket.send(&datagram) {
                Ok(count) => {
                    number += 1;
                    stream.bytes.fetch_add(count as u64, Ordering::Relaxed);
                    stream.datagrams[0].store(number, Ordering::Relaxed);
                }
                Err(error) if may_repeat(&error) || error.raw_os_error() == Some(ENOBUFS) => turns.take_back(length),
                Err(error) => return Err(error),
            }
        }
        stream.record_end(self.start);
        Ok(())
    }

    /// Counts datagrams of the test's size. Only the first one is answered, should its answer have been lost.
    fn receive_datagrams(&self, stream: &Stream, socket: &UdpSocket, cookie: &Cookie) -> std::io::Result<()> {
        let bytes = self.spec.message as usize;
        // One byte more than expected shows a datagram that is longer.
        let mut datagram = Vec::with_capacity(bytes + 1);
        let mut tracker = DatagramTracker::default();
        let (mut last_arrival, mut over_since) = (self.start, None);
        while !self.is_over() {
            datagram.clear();
            match rx_timestamp::append(socket, &mut datagram) {
                Ok(read) if read.length == bytes => {
                    tracker.record(&datagram, read.arrival.unwrap_or_else(realtime));
                    last_arrival = Instant::now();
                    stream.record_datagrams(bytes, &tracker);
                }
                Ok(_) if datagram == *cookie => drop(socket.send(cookie)),
                Ok(_) => {}
                Err(error) if may_repeat(&error) => {
                    if self.is_arrival_over.load(Ordering::Relaxed) {
                        let since: Instant = *over_since.get_or_insert_with(Instant::now);
                        if since.max(last_arrival).elapsed() >= LAST_DATAGRAM_QUIET {
                            break;
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        stream.record_end_at(last_arrival - self.start);
        Ok(())
    }
}

/// Whether the same call can be made again.
fn may_repeat(error: &std::io::Error) -> bool {
    is_timeout(error) || error.kind() == ErrorKind::Interrupted
}

impl Stream {
    fn new(role: StreamRole, socket: StreamSocket) -> Self {
        Self { role, socket, bytes: AtomicU64::new(0), ended: AtomicU64::new(0), datagrams: Default::default() }
    }

    fn set_up(&self, spec: &ThroughputSpec) -> std::io::Result<()> {
        match &self.socket {
            StreamSocket::Tcp(socket) => {
                socket.set_nodelay(spec.no_delay)?;
                socket.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
                socket.set_write_timeout(Some(STOP_CHECK_INTERVAL))?;
                // What the option cannot express needs no pacing.
                let pacing = spec.bits_per_second.map(|bits| bits as f64 / 8.0 * PACING_FACTOR);
                match pacing.filter(|&rate| self.role == StreamRole::Sends && rate < f64::from(u32::MAX)) {
                    Some(rate) => net::set_max_pacing_rate(socket, rate as u32),
                    None => Ok(()),
                }
            }
            StreamSocket::Udp(socket, _) => {
                socket.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
                socket.set_write_timeout(Some(STOP_CHECK_INTERVAL))?;
                net::set_buffers(socket, spec.sockets.buffers.unwrap_or(DATAGRAM_BUFFER_BYTES))?;
                if self.role == StreamRole::Receives { rx_timestamp::enable(socket) } else { Ok(()) }
            }
        }
    }

    fn record_end(&self, start: Instant) {
        self.record_end_at(start.elapsed());
    }

    fn record_end_at(&self, time: Duration) {
        self.ended.store(time.as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    /// Counts a datagram of this many bytes.
    fn record_datagrams(&self, bytes: usize, tracker: &DatagramTracker) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let numbers = tracker.numbers;
        let values = [numbers.arrived, numbers.latest, numbers.reordered, tracker.jitter as u64];
        for (counter, value) in self.datagrams.iter().zip(values) {
            counter.store(value, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> std::io::Result<StreamCounts> {
        let counts = StreamCounts {
            bytes: self.bytes.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed).checked_sub(1),
            ..StreamCounts::default()
        };
        Ok(match &self.socket {
            StreamSocket::Tcp(socket) if self.role == StreamRole::Sends => {
                StreamCounts { tcp: Some(tcp_send_counts(socket)?), ..counts }
            }
            StreamSocket::Tcp(_) => counts,
            StreamSocket::Udp(socket, _) => {
                let [count, latest, reordered, jitter] =
                    self.datagrams.each_ref().map(|counter| counter.load(Ordering::Relaxed));
                // A kernel without this count leaves what was lost here among what was lost in transit.
                let dropped = net::dropped_datagrams(socket).unwrap_or(0).into();
                StreamCounts { datagrams: Some(DatagramCounts { count, latest, reordered, dropped, jitter }), ..counts }
            }
        })
    }
}

fn tcp_send_counts(socket: &impl AsFd) -> std::io::Result<TcpSendCounts> {
    let (info, counters) = (tcp_info(socket)?, send_counters(socket)?);
    Ok(TcpSendCounts {
        round_trip: info.round_trip,
        retransmits: info.retransmits.into(),
        congestion_window: u64::from(info.congestion_window) * u64::from(info.segment),
        window: counters.window.into(),
        busy: counters.busy,
        window_limited: counters.limited.by_window,
        buffer_limited: counters.limited.by_buffer,
    })
}

/// When a sender sends its next message.
struct Turns<'a> {
    group: &'a StreamGroup<'a>,
    pacer: Option<Pacer>,
    due: u64,
}

impl<'a> Turns<'a> {
    fn new(group: &'a StreamGroup<'a>) -> Self {
        let ThroughputSpec { message, bits_per_second, .. } = group.spec;
        let gap = bits_per_second.map(|bits| f64::from(*message) * 8e9 / bits as f64);
        let pacer = gap.map(|gap| Pacer::new(gap, MAX_BACKLOG_NANOSECONDS, monotonic()));
        Self { group, pacer, due: 0 }
    }

    /// Waits until the next message is due, and returns its bytes; none once all are sent, or the test is over.
    fn next_message(&mut self) -> Option<usize> {
        if let Some(pacer) = &mut self.pacer {
            while self.due == 0 && !self.group.is_sending_over() {
                self.due = pacer.take_due(monotonic());
                if self.due == 0 {
                    std::thread::sleep(pacer.time_to_next(monotonic()).min(STOP_CHECK_INTERVAL));
                }
            }
            self.due = self.due.saturating_sub(1);
        }
        if self.group.is_sending_over() {
            return None;
        }
        let message = u64::from(self.group.spec.message);
        let Some(budget) = &self.group.budget else { return Some(message as usize) };
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(message));
        let left = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(left.min(message) as usize)
    }

    /// A message of this many bytes was not sent.
    fn take_back(&self, length: usize) {
        if let Some(budget) = &self.group.budget {
            budget.fetch_add(length as u64, Ordering::Relaxed);
        }
    }
}

/// Streams while their threads run.
#[derive(Debug)]
pub struct RunningStreams<'scope, 'a> {
    group: &'a StreamGroup<'a>,
    meter: CpuUsageMeter<'a>,
    threads: Vec<ScopedJoinHandle<'scope, [u64; 2]>>,
}

impl RunningStreams<'_, '_> {
    /// The counts of this end now.
    ///
    /// # Errors
    /// The first fault of a stream, or a failed system call.
    pub fn counts(&mut self) -> Result<EndCounts> {
        if let Some(error) = lock(&self.group.fault).take() {
            return Err(error);
        }
        let streams = self.group.streams.iter().map(Stream::counts).collect::<std::io::Result<_>>();
        Ok(EndCounts {
            nanoseconds: self.group.start.elapsed().as_nanos() as u64,
            busy: self.meter.sample(),
            streams: streams.map_err(Error::call("count what was carried"))?,
        })
    }

    /// How many streams this end receives.
    pub fn received_streams(&self) -> usize {
        self.group.streams.iter().filter(|stream| stream.role == StreamRole::Receives).count()
    }

    /// The kernel's report on the first connection; none of datagrams.
    pub fn first_connection(&self) -> Option<TcpEndInfo> {
        self.group.streams.iter().find_map(|stream| match &stream.socket {
            StreamSocket::Tcp(socket) => TcpEndInfo::of_socket(socket).ok(),
            StreamSocket::Udp(..) => None,
        })
    }

    /// Has this end's senders stop.
    pub fn stop_sending(&self) {
        self.group.is_sending_over.store(true, Ordering::Relaxed);
    }

    /// Whether all streams of this role have ended.
    pub fn have_ended(&self, role: StreamRole) -> bool {
        let pairs = self.group.streams.iter().zip(&self.threads);
        pairs.filter(|(stream, _)| stream.role == role).all(|(_, thread)| thread.is_finished())
    }

    /// Waits until all streams have ended, whose senders at both ends have been stopped, as long as something arrives, up to a limit.
    pub fn wait_for_end(&self) {
        self.group.is_arrival_over.store(true, Ordering::Relaxed);
        let moved_bytes =
            || self.group.streams.iter().map(|stream| stream.bytes.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
        let start = Instant::now();
        let (mut last_move, mut moved) = (start, moved_bytes());
        while !self.threads.iter().all(ScopedJoinHandle::is_finished)
            && start.elapsed() < MAX_DRAIN_TIME
            && last_move.elapsed() < MAX_DRAIN_SILENCE
        {
            std::thread::sleep(END_POLL_INTERVAL);
            if moved != moved_bytes() {
                (last_move, moved) = (Instant::now(), moved_bytes());
            }
        }
    }
}
