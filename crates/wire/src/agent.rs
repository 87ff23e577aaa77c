//! The agent: listens, authenticates clients, and serves each in its own thread.
//!
//! The cost of unauthenticated clients is bounded: in connections, in connections from one network ([`places`](crate::places)),
//! and in time for each. One thread waits for all of them; it waits for no single one, and for no log.

mod crowd;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::address::is_loopback;
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::files::Start;
use crate::limits::Limits;
use crate::message::{Answer, Ask, PROTOCOL};
use crate::noise::Handshake;
use crate::secret::Secret;
use crate::service::{self, Means};
use crate::{Error, Result};
use crowd::{Crowd, Newcomer};
use kelvin_sys::spawn::Thread;

/// How often the agent checks whether it is to stop while no connection arrives.
const LOOK: Duration = Duration::from_millis(200);
/// The pause after a connection could not be accepted, as when no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections accepted in a row before earlier ones are heard.
const AT_ONCE: usize = 64;
/// Backlog of the listening socket; the kernel limits it to net.core.somaxconn.
const QUEUE: u32 = 4096;
/// Stack of a thread: little is on it.
const STACK: usize = 256 << 10;

/// Receives events, for a log: the client, and what happened.
pub type Log = dyn Fn(SocketAddr, &Event) + Send + Sync;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// A client was authenticated.
    Came,
    /// A client requested a test.
    Asked(Ask),
    /// A client left, with all its requests done.
    Left,
    /// A fault ended a client's connection.
    Fault(Error),
    /// An unauthenticated client was refused, or left.
    TurnedAway(Error),
}

/// A listening agent.
pub struct Agent {
    listener: TcpListener,
    house: Arc<House>,
}

/// Shared by all threads.
struct House {
    secret: Secret,
    limits: Limits,
    log: Box<Log>,
    clients: AtomicU32,
    /// Tests being served.
    tests: AtomicU32,
    /// Starts servers of files, if there are any.
    files: OnceLock<Box<Start>>,
}

impl Agent {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::Open`] for an address that other hosts can reach, without a secret; an unavailable address.
    pub fn listen(address: SocketAddr, secret: Secret, limits: Limits, log: Box<Log>) -> Result<Self> {
        if !secret.is_some() && !is_loopback(address) {
            return Err(Error::Open { address });
        }
        let listener = TcpListener::bind(address).map_err(Error::call("listen"))?;
        kelvin_sys::net::set_queue(&listener, QUEUE).map_err(Error::call("listen"))?;
        // A connection that is gone before it is accepted must not block the loop.
        listener.set_nonblocking(true).map_err(Error::call("listen"))?;
        let (clients, tests, files) = (AtomicU32::new(0), AtomicU32::new(0), OnceLock::new());
        let house = House { secret, limits, log, clients, tests, files };
        Ok(Self { listener, house: Arc::new(house) })
    }

    /// Lets clients have files served, each by one server at a time, which this starts.
    #[must_use]
    pub fn with_files(self, start: Box<Start>) -> Self {
        self.house.files.get_or_init(|| start);
        self
    }

    /// Where it listens: the port too, if the system chose it.
    ///
    /// # Errors
    /// A failed system call.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::call("see the address"))
    }

    /// Serves until it is to stop. Clients then lose their connections when the process ends.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let mut crowd = Crowd::new(Arc::clone(&self.house));
        while !is_over() {
            let is_called = crowd.wait(self.listener.as_fd(), LOOK)?;
            crowd.hear();
            if is_called {
                self.accept(&mut crowd);
            }
        }
        Ok(())
    }

    /// Accepts waiting connections.
    fn accept(&self, crowd: &mut Crowd) {
        let mut failed = 0;
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, from)) => crowd.admit(stream, from),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // One that is gone again; the next one may be there.
                Err(_) => failed += 1,
            }
        }
        if failed == AT_ONCE {
            std::thread::sleep(PAUSE);
        }
    }
}

impl House {
    /// The handshake of a connection that must be over by then.
    fn handshake(&self, deadline: Deadline) -> Handshake<'_> {
        Handshake { protocol: &PROTOCOL, secret: &self.secret, deadline }
    }

    /// Answers a new client's greeting, and has a thread serve it if it knows the secret. It waits for no one: the answer is
    /// short, and fits the socket buffer.
    fn meet(self: &Arc<Self>, newcomer: Newcomer) {
        let Newcomer { mut stream, from, greeted, greeting, deadline, .. } = newcomer;
        let shaken = self.handshake(deadline).answer(&mut stream, (&greeted, &greeting), || Seat::take(self));
        let shaken = shaken.and_then(|(halves, seat)| {
            stream.set_nonblocking(false).map_err(Error::call("set up the connection"))?;
            Ok((Channel::new(stream, halves), seat))
        });
        let (channel, seat) = match shaken {
            Ok(client) => client,
            // Only authenticated clients learn the reason.
            Err(error @ Error::Busy { .. }) => return (self.log)(from, &Event::Fault(error)),
            Err(error) => return self.turn_away(from, error),
        };
        (self.log)(from, &Event::Came);
        let serve = move || {
            match seat.0.serve(channel, from) {
                Ok(()) => (seat.0.log)(from, &Event::Left),
                Err(error) => (seat.0.log)(from, &Event::Fault(error)),
            }
            drop(seat);
        };
        // Without a thread the connection ends, and the client sees that.
        if let Err(error) = Thread::named("client").stack_bytes(STACK).start(serve) {
            (self.log)(from, &Event::Fault(Error::Thread(error)));
        }
    }

    /// Logs a client that was refused.
    fn turn_away(&self, from: SocketAddr, why: Error) {
        (self.log)(from, &Event::TurnedAway(why));
    }

    /// Serves a client's requests, one after the other, until it leaves.
    fn serve(&self, mut channel: Channel, from: SocketAddr) -> Result<()> {
        loop {
            let ask: Ask = match channel.receive(self.limits.idle) {
                Ok(ask) => ask,
                Err(Error::Gone) => return Ok(()),
                // A malformed message is the client's own fault, and the next one may be well-formed.
                Err(error @ Error::NotUnderstood(_)) => {
                    channel.send(&Answer::failed(error), self.limits.idle)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // It crossed the answer that its test had ended.
            if matches!(ask, Ask::Count | Ask::End) {
                continue;
            }
            (self.log)(from, &Event::Asked(ask.clone()));
            let means = Means { limits: &self.limits, tests: &self.tests, files: self.files.get().map(Box::as_ref) };
            let answer = match service::serve(&ask, &mut channel, &means) {
                Ok(seen) => Answer::Done(seen),
                // The client itself reports that it was refused.
                Err(Error::Refused(why)) => Answer::failed(why),
                Err(error) => Answer::failed(error),
            };
            channel.send(&answer, self.limits.idle)?;
        }
    }
}

/// One of few places for clients, returned on drop.
struct Seat(Arc<House>);

impl Seat {
    fn take(house: &Arc<House>) -> Option<Self> {
        let one_more = |taken: u32| (taken < house.limits.clients).then_some(taken + 1);
        let took = house.clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        took.is_ok().then(|| Self(Arc::clone(house)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}
