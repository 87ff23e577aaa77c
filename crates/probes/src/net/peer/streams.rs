//! Streams to or from the agent's host, a thread each: what arrives, and how busy both hosts are.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_catalogue::net::SendMethod;
use kelvin_harness::{Bench, Stop};
use kelvin_stats::Burst;
use kelvin_sys::spawn::Thread;
use kelvin_sys::{cpu, net};
use kelvin_wire::address::Shown;
use kelvin_wire::busy::Busy;
use kelvin_wire::client::{Client, Test};
use kelvin_wire::message::Direction;
use kelvin_wire::sockets::Sockets;

use super::watched::{Moving, Sustained, Watched, Window, burst_words, busy, busy_words, rates};
use super::{client, over, stopped, told};
use crate::net::bandwidth::{asked, cpus};
use crate::net::link::Link;
use crate::net::sender::Sender;

/// Bytes of a call where the measure does not vary them: many packets, and a part of a cache.
pub(super) const MESSAGE: usize = 128 << 10;

/// What is to be streamed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub direction: Direction,
    pub streams: u32,
    /// How this host sends, and the bytes of each call. The agent uses the plain call, 128 KiB each.
    pub way: SendMethod,
    pub message: usize,
    /// Fewest windows of a round.
    pub windows: u32,
}

/// The outcome.
pub(super) struct Streamed {
    pub windows: Vec<Window>,
    /// What came before their rate held, beyond it.
    pub burst: Option<Burst>,
    /// How busy this host was, and the agent's.
    pub busy: [Busy; 2],
    pub notes: Vec<String>,
}

impl Streamed {
    /// Bytes a second that arrived, window by window.
    pub(super) fn rates(&self) -> Vec<f64> {
        rates(&self.windows)
    }
}

/// Streams for the length of the slice, or somewhat longer: some windows are needed.
pub(super) fn stream(bench: &Bench<'_>, wanted: Wanted) -> Result<Streamed, Stop> {
    let mut client = client(bench)?;
    let own = client.own();
    let mut test = open(&mut client, wanted.direction, wanted.streams, bench)?;
    let links = links(&mut test)?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let moving = Moving::default();
    let cpus = cpus(bench);
    let mut known = String::new();
    let (Sustained { windows, burst }, mut notes) = std::thread::scope(|scope| {
        let place = |(number, link)| {
            let (cpu, moving) = (cpus[number % cpus.len()], &moving);
            let work = move || {
                cpu::pin(&[cpu])?;
                moved(link, &wanted, moving)
            };
            // Those that were started wait for the other host.
            Thread::named("stream").start_in(scope, work).inspect_err(|_| end(moving, &links, wanted.direction))
        };
        let threads = links.iter().enumerate().map(place).collect::<std::io::Result<Vec<_>>>()?;
        let windows = Watched::begin(&mut test, &moving, wanted.direction, &links).windows(slice, wanted.windows);
        known = links[0].describe()?;
        end(&moving, &links, wanted.direction);
        let ends = threads.into_iter().map(|thread| thread.join().map_err(|_| Stop::fail("a thread panicked"))?);
        let ends = ends.collect::<Result<Vec<_>, Stop>>();
        // The agent's reason for the end of a test says more than a broken connection.
        Ok::<_, Stop>((windows?, ends?.into_iter().flatten().collect::<Vec<String>>()))
    })?;
    let seen = test.finish().map_err(stopped)?;
    let busy = busy(&windows).ok_or_else(|| Stop::fail("nothing was counted"))?;
    notes.dedup();
    notes.insert(0, format!("{}; here {known}", asked(bench.sockets(), "the congestion control of either system")));
    if let Some(stream) = &seen.stream {
        notes.push(format!("at the agent {stream}"));
    }
    notes.extend([told(&seen, 1), over(own, &seen), busy_words(&busy)]);
    notes.extend(burst.as_ref().map(burst_words));
    Ok(Streamed { windows, burst, busy, notes })
}

/// The connections of a test, with the requested socket options.
pub(super) fn open<'a>(
    client: &'a mut Client,
    direction: Direction,
    streams: u32,
    bench: &Bench<'_>,
) -> Result<Test<'a, Vec<TcpStream>>, Stop> {
    let asked = bench.sockets();
    let sockets = Sockets { congestion_control: asked.congestion_control.clone(), buffers: asked.buffers };
    let agent = Shown(client.agent());
    client.streams(direction, streams, &sockets).map_err(|error| Stop::fail(format!("{agent}: {error}")))
}

/// Duplicates of the connections.
pub(super) fn links(test: &mut Test<'_, Vec<TcpStream>>) -> Result<Vec<Link>, Stop> {
    let links = test.socket().iter().map(|stream| stream.try_clone().map(Link::Tcp));
    Ok(links.collect::<std::io::Result<_>>()?)
}

/// Stops the threads that move bytes. What is still in the buffers may be seconds of a slow link: it is dropped when the
/// connections are closed.
pub(super) fn end(moving: &Moving, links: &[Link], direction: Direction) {
    moving.is_over.store(true, Ordering::Relaxed);
    for link in links {
        let Link::Tcp(stream) = link else { continue };
        // A connection that is gone already is no error.
        let _ = net::reset_on_close(stream);
        if direction == Direction::ToAgent {
            // A sender that waits for room sees it. A receiver sees the end at the next bytes, for the agent sends until the
            // test is over.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Sends or receives until stopped; what was achieved, where that may differ from what was asked.
pub(super) fn moved(link: &Link, wanted: &Wanted, moving: &Moving) -> Result<Option<String>, Stop> {
    moving.threads.enter();
    match wanted.direction {
        Direction::ToAgent => send(link, wanted, moving),
        Direction::FromAgent => receive(link, moving).map(|()| None),
    }
}

fn send(link: &Link, wanted: &Wanted, moving: &Moving) -> Result<Option<String>, Stop> {
    let failed = |error| Stop::fail(format!("cannot send to the agent: {error}"));
    let mut sender = Sender::new(wanted.way, link, wanted.message).map_err(failed)?;
    while !moving.is_over.load(Ordering::Relaxed) {
        match sender.send(link) {
            Ok(()) => moving.add(wanted.message),
            Err(_) if moving.is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    sender.achieved(link).map_err(failed)
}

fn receive(link: &Link, moving: &Moving) -> Result<(), Stop> {
    let Link::Tcp(stream) = link else { return Err(Stop::fail("the agent sends over TCP")) };
    let mut buffer = vec![0; MESSAGE];
    while !moving.is_over.load(Ordering::Relaxed) {
        match { stream }.read(&mut buffer) {
            Ok(0) => return Err(Stop::fail("the agent ended a stream")),
            Ok(_) => {}
            Err(_) if moving.is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(Stop::fail(format!("cannot receive from the agent: {error}"))),
        }
    }
    Ok(())
}
