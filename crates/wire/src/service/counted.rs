//! Bytes from a client or to it, by streams or datagrams: moved by a thread each, and counted. Received bytes are dropped, sent
//! ones are filler.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use kelvin_sys::net;
use kelvin_sys::spawn::Thread;

use super::{QUIET, Served, accept, broken, cpu_time, introduced, is_in_time, late, listen};
use crate::busy::{Threads, Watch};
use crate::channel::Channel;
use crate::error::is_late;
use crate::limits::Limits;
use crate::message::{Answer, Ask, Cookie, Counted, Direction, Seen};
use crate::numbered::Numbered;
use crate::sockets::{Sockets, TcpEnd};
use crate::{Error, Result};

/// Bytes of a call: larger ones are no faster, and these stay in a cache.
const BUFFER: usize = 128 << 10;
/// Bytes requested for the buffer of a socket of datagrams, so that they fit while the receiving thread waits for a CPU. The
/// kernel may grant less.
const ROOM: u32 = 4 << 20;

/// Receives or sends so many streams until the client ends the test, and reports counts on request.
pub fn streams(
    channel: &mut Channel,
    (direction, count): (Direction, u32),
    sockets: &Sockets,
    limits: &Limits,
    served: &Served<'_>,
) -> Result<Seen> {
    if count == 0 || count > limits.streams {
        return Err(Error::Refused(format!("a test has from 1 to {} connections", limits.streams)));
    }
    sockets.check(limits)?;
    let listener = listen(channel)?;
    let refused = |error| Error::Refused(format!("the kernel of the agent's host does not grant{sockets}: {error}"));
    sockets.prepare(&listener).map_err(refused)?;
    let moved = match direction {
        Direction::ToAgent => Moved::Taken,
        Direction::FromAgent => Moved::Given,
    };
    let streams = accept(&listener, count, channel, limits)?;
    drop(listener);
    streams.iter().try_for_each(as_stream).map_err(Error::call("set up the test"))?;
    Counting::new(streams.into_iter().map(moved).collect()).serve(channel, limits, served)
}

/// Lets the kernel gather what is sent into packets, and drop what was not received at the end: a client that does not read
/// leaves nothing behind.
fn as_stream(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(false)?;
    net::reset_on_close(stream)
}

/// The same for numbered datagrams of so many bytes.
pub fn datagrams(channel: &mut Channel, bytes: u32, limits: &Limits, served: &Served<'_>) -> Result<Seen> {
    if bytes as usize <= size_of::<Cookie>() {
        let least = size_of::<Cookie>() + 1;
        return Err(Error::Refused(format!("a counted datagram must have at least {least} bytes")));
    }
    let (socket, cookie) = introduced(channel, limits)?;
    net::set_buffers(&socket, ROOM).map_err(Error::call("set up the test"))?;
    let datagrams = Moved::Datagrams { socket, cookie, bytes: bytes as usize };
    Counting::new(vec![datagrams]).serve(channel, limits, served)
}

/// Where bytes come from, or go to.
enum Moved {
    Taken(TcpStream),
    Given(TcpStream),
    Datagrams { socket: UdpSocket, cookie: Cookie, bytes: usize },
}

/// What is moved, and how much of it so far.
struct Counting {
    sources: Vec<Moved>,
    begun: Instant,
    bytes: AtomicU64,
    /// Of datagrams: arrived, the highest number, reordered. One thread writes them.
    numbers: [AtomicU64; 3],
    threads: Threads,
    is_over: AtomicBool,
}

impl Moved {
    fn stream(&self) -> Option<&TcpStream> {
        match self {
            Self::Taken(stream) | Self::Given(stream) => Some(stream),
            Self::Datagrams { .. } => None,
        }
    }

    /// The stream that is received from, if it is one.
    fn taken(&self) -> Option<&TcpStream> {
        if let Self::Taken(stream) = self { Some(stream) } else { None }
    }
}

type Moving<'scope> = ScopedJoinHandle<'scope, Result<[u64; 2]>>;

impl Counting {
    fn new(sources: Vec<Moved>) -> Self {
        Self {
            sources,
            begun: Instant::now(),
            bytes: AtomicU64::new(0),
            numbers: Default::default(),
            threads: Threads::default(),
            is_over: AtomicBool::new(false),
        }
    }

    fn serve(&self, channel: &mut Channel, limits: &Limits, served: &Served<'_>) -> Result<Seen> {
        std::thread::scope(|scope| {
            let begin = |source| Thread::named("moves").start_in(scope, move || self.count(source, limits));
            // Those that were started wait for the client.
            let threads = self.sources.iter().map(begin).collect::<std::io::Result<Vec<_>>>();
            let threads = threads.inspect_err(|_| self.end()).map_err(Error::Thread)?;
            let outcome = self.answer(channel, &threads, limits, served);
            let stream = self.sources.iter().find_map(Moved::stream).and_then(|first| TcpEnd::of(first).ok());
            self.end();
            let ends: Vec<[u64; 2]> = threads.into_iter().map(end).collect::<Result<_>>()?;
            outcome?;
            let mut seen = Seen { arrived: self.bytes.load(Ordering::Relaxed), stream, ..Seen::default() };
            for end in ends {
                seen.cpu_nanoseconds.iter_mut().zip(end).for_each(|(all, one)| *all += one);
            }
            Ok(seen)
        })
    }

    /// Has all threads end.
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stream in self.sources.iter().filter_map(Moved::stream) {
            // One that is closed already needs no shutdown. It ends a blocked call, too.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Answers the client's requests meanwhile.
    fn answer(
        &self,
        channel: &mut Channel,
        threads: &[Moving<'_>],
        limits: &Limits,
        served: &Served<'_>,
    ) -> Result<()> {
        let mut watch = Watch::begin(&self.threads);
        loop {
            let ask: Ask = channel.receive(limits.idle)?;
            served.look();
            is_in_time(self.begun, limits)?;
            match ask {
                // A stream that ended early has reported why, or was closed.
                Ask::Count if threads.iter().any(ScopedJoinHandle::is_finished) => return Err(Error::Gone),
                Ask::Count => {
                    let counted = Counted { busy: watch.look(), ..self.counted()? };
                    channel.send(&Answer::Counted(counted), limits.idle)?;
                }
                Ask::End => return Ok(()),
                _ => return Err(Error::Refused("one test must end before the next one begins".into())),
            }
        }
    }

    /// The counts so far. Bytes of a stream that is taken have arrived when the kernel has them: threads that wait for a CPU and then read
    /// what has gathered would show more than the network carries.
    fn counted(&self) -> Result<Counted> {
        // Each began with its cookie.
        let of = |stream| Ok(net::waiting::received(stream)?.saturating_sub(size_of::<Cookie>() as u64));
        let received = self.sources.iter().filter_map(Moved::taken).map(of).sum::<kelvin_sys::Result<u64>>();
        let received = received.map_err(Error::call("count what arrived"))?;
        let is_taken = self.sources.iter().any(|source| source.taken().is_some());
        let bytes = if is_taken { received } else { self.bytes.load(Ordering::Relaxed) };
        let at = self.begun.elapsed().as_nanos() as u64;
        let [arrived, latest, reordered] = self.numbers.each_ref().map(|one| one.load(Ordering::Relaxed));
        let dropped = self.sources.iter().map(|source| match source {
            Moved::Taken(_) | Moved::Given(_) => 0,
            // A kernel without this count leaves what was lost here among what was lost in transit.
            Moved::Datagrams { socket, .. } => net::dropped(socket).unwrap_or(0).into(),
        });
        let numbers = Numbered { arrived, latest, reordered };
        Ok(Counted { bytes, at, numbers, dropped: dropped.sum(), ..Counted::default() })
    }

    /// Moves bytes until the end; the CPU time that it cost.
    fn count(&self, source: &Moved, limits: &Limits) -> Result<[u64; 2]> {
        self.threads.enter();
        let before = cpu_time();
        match source {
            Moved::Taken(stream) => self.take_stream(stream, limits)?,
            Moved::Given(stream) => self.give_stream(stream, limits)?,
            Moved::Datagrams { socket, cookie, bytes } => self.take_datagrams(socket, cookie, *bytes, limits)?,
        }
        let after = cpu_time();
        Ok([after[0] - before[0], after[1] - before[1]])
    }

    fn take_stream(&self, mut stream: &TcpStream, limits: &Limits) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => drop(self.bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(broken(limits)(error)),
            }
        }
    }

    /// A client that does not read makes the call end after the time that a test may stand still.
    fn give_stream(&self, mut stream: &TcpStream, limits: &Limits) -> Result<()> {
        let filler = vec![0x5a; BUFFER];
        while !self.is_over.load(Ordering::Relaxed) {
            match stream.write(&filler) {
                Ok(count) => drop(self.bytes.fetch_add(count as u64, Ordering::Relaxed)),
                Err(_) if self.is_over.load(Ordering::Relaxed) => return Ok(()),
                Err(error) => return Err(broken(limits)(error)),
            }
        }
        Ok(())
    }

    /// Counts datagrams of this size. Only the first one is answered, should its answer have been lost.
    fn take_datagrams(&self, socket: &UdpSocket, cookie: &Cookie, bytes: usize, limits: &Limits) -> Result<()> {
        socket.set_read_timeout(Some(QUIET)).map_err(Error::call("set up the test"))?;
        // One byte more than expected shows a datagram that is longer.
        let mut buffer = vec![0; bytes + 1];
        let (mut numbers, mut last) = (Numbered::default(), (Instant::now(), 0));
        while !self.is_over.load(Ordering::Relaxed) {
            match socket.recv(&mut buffer) {
                Ok(count) if count == bytes => {
                    let number = buffer.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
                    numbers.take(number);
                    self.bytes.fetch_add(count as u64, Ordering::Relaxed);
                    let all = [numbers.arrived, numbers.latest, numbers.reordered];
                    self.numbers.iter().zip(all).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
                }
                Ok(count) if buffer[..count] == cookie[..] => {
                    socket.send(cookie).map_err(broken(limits))?;
                }
                Ok(_) => {}
                Err(error) if is_late(&error) => {
                    if last.1 != numbers.arrived {
                        last = (Instant::now(), numbers.arrived);
                    } else if last.0.elapsed() > limits.idle {
                        return Err(late(limits));
                    }
                }
                Err(error) => return Err(broken(limits)(error)),
            }
        }
        Ok(())
    }
}

fn end(thread: Moving<'_>) -> Result<[u64; 2]> {
    let panicked = |_| Error::Refused("a thread of the agent panicked".into());
    thread.join().map_err(panicked).and_then(|outcome| outcome)
}
