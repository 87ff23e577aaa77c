//! The agent: listens, lets in who knows the secret, and serves each client by a thread of its own.
//!
//! What strangers can cost is bounded: so many connections that have not said the secret yet, each for so long, and the oldest
//! of them goes when one more comes. So no number of connections that say nothing keeps anybody else out. One thread waits for all of
//! them; it waits for none of them alone.

use std::collections::VecDeque;
use std::iter;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::frame::Partial;
use crate::message::{Answer, Ask};
use crate::secret::{Nonce, Secret};
use crate::{Error, Result, handshake, service};

/// What the agent gives at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at one time.
    pub clients: u32,
    /// Connections at one time that are not clients yet.
    pub strangers: usize,
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time in which a client must ask for something, and in which a test must go on.
    pub idle: Duration,
    /// Time of one test.
    pub test: Duration,
    /// Bytes of a message.
    pub message: u32,
    /// Connections of one test.
    pub streams: u32,
    /// Bytes that each buffer of a socket may be asked to have.
    pub buffers: u32,
}

impl Default for Limits {
    /// Enough for a run of all there is by a few clients; a thread of 256 KiB and a message of memory for each of their connections.
    fn default() -> Self {
        Self {
            clients: 4,
            strangers: 32,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            test: Duration::from_secs(120),
            message: 1 << 20,
            streams: 16,
            buffers: 64 << 20,
        }
    }
}

/// How long the agent waits for a connection before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(200);
/// How long it waits after a connection that it could not accept, as when no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(50);
/// Stack of a thread: little is on it.
const STACK: usize = 256 << 10;

/// Tells of what happens, for a log: who, and what became of them.
pub type Log = dyn Fn(SocketAddr, &Event) + Send + Sync;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// Somebody was let in.
    Came,
    /// A client asked for a test.
    Asked(Ask),
    /// A client went away, having asked for all that it wanted.
    Left,
    /// It ended by a fault: a stranger, or a client.
    Fault(Error),
}

/// A listening agent.
pub struct Agent {
    listener: TcpListener,
    house: Arc<House>,
}

/// What all threads share.
struct House {
    secret: Secret,
    limits: Limits,
    log: Box<Log>,
    clients: AtomicU32,
    /// Tests that are served.
    tests: AtomicU32,
}

impl Agent {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::Open`] for an address that other hosts can reach, without a secret; an address that is not to be had.
    pub fn listen(address: SocketAddr, secret: Secret, limits: Limits, log: Box<Log>) -> Result<Self> {
        if !secret.is_some() && !is_loopback(address.ip()) {
            return Err(Error::Open { address });
        }
        let listener = TcpListener::bind(address).map_err(Error::call("listen"))?;
        // A connection that is gone again before it is accepted must not hold up the loop.
        listener.set_nonblocking(true).map_err(Error::call("listen"))?;
        let house = House { secret, limits, log, clients: AtomicU32::new(0), tests: AtomicU32::new(0) };
        Ok(Self { listener, house: Arc::new(house) })
    }

    /// Where it listens: the port too, if the system chose it.
    ///
    /// # Errors
    /// What the system call says.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::call("see the address"))
    }

    /// Serves until it is to stop. Clients that are served then lose their connections when the process ends.
    ///
    /// # Errors
    /// A listener that does not work any more.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let mut strangers = VecDeque::new();
        while !is_over() {
            let all = strangers.iter().map(|stranger: &Stranger| stranger.stream.as_fd());
            let all: Vec<BorrowedFd<'_>> = iter::once(self.listener.as_fd()).chain(all).collect();
            let ready = kelvin_sys::ready::readable_of(&all, LOOK).map_err(Error::call("wait"))?;
            strangers = self.hear(strangers, &ready[1..]);
            if !ready[0] {
                continue;
            }
            match self.listener.accept() {
                Ok((stream, from)) => self.greet(&mut strangers, stream, from),
                // It was gone again, or there are too many open files: a moment later there may be fewer.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Says hello to somebody new, who is among the strangers then; the oldest of them goes if they are too many.
    fn greet(&self, strangers: &mut VecDeque<Stranger>, stream: TcpStream, from: SocketAddr) {
        match Stranger::greeted(stream, from, &self.house) {
            Ok(stranger) => strangers.push_back(stranger),
            Err(error) => self.house.lose(from, error),
        }
        if strangers.len() > self.house.limits.strangers
            && let Some(oldest) = strangers.pop_front()
        {
            self.house.lose(oldest.from, Error::Refused("too many others came meanwhile".into()));
        }
    }

    /// Hears those of the strangers who have said something; those who are still strangers then.
    fn hear(&self, strangers: VecDeque<Stranger>, ready: &[bool]) -> VecDeque<Stranger> {
        let mut left = VecDeque::new();
        for (mut stranger, &is_ready) in strangers.into_iter().zip(ready) {
            let heard = if is_ready { stranger.said.take(&mut stranger.stream) } else { Ok(None) };
            let in_time = || stranger.deadline.left(handshake::DOING).map(|_| None);
            match heard.and_then(|said| said.map_or_else(in_time, |said| Ok(Some(said)))) {
                Ok(None) => left.push_back(stranger),
                Ok(Some(said)) => self.house.meet(stranger, &said),
                Err(error) => self.house.lose(stranger.from, error),
            }
        }
        left
    }
}

/// Somebody who has not said the secret yet.
struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    /// The number that was said to him.
    nonce: Nonce,
    /// What he has said by now.
    said: Partial,
    deadline: Deadline,
}

impl Stranger {
    fn greeted(mut stream: TcpStream, from: SocketAddr, house: &House) -> Result<Self> {
        let deadline = Deadline::within(house.limits.handshake);
        stream.set_nodelay(true).map_err(Error::call("set up the connection"))?;
        let nonce = handshake::greet(&mut stream, &house.secret, deadline)?;
        stream.set_nonblocking(true).map_err(Error::call("set up the connection"))?;
        Ok(Self { stream, from, nonce, said: Partial::new(handshake::LONGEST), deadline })
    }
}

/// Whether only this host can reach an address.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl House {
    /// Answers a stranger who has said something, and has a thread serve him if it was the secret.
    fn meet(self: &Arc<Self>, stranger: Stranger, said: &[u8]) {
        let Stranger { stream, from, nonce, deadline, .. } = stranger;
        let admit = || Seat::take(self);
        let shaken = stream.set_nonblocking(false).map_err(Error::call("set up the connection"));
        let shaken = shaken.and_then(|()| handshake::agent(stream, &self.secret, (nonce, said), deadline, admit));
        let (channel, seat) = match shaken {
            Ok(client) => client,
            Err(error) => return self.lose(from, error),
        };
        (self.log)(from, &Event::Came);
        let serve = move || {
            match seat.0.serve(channel, from) {
                Ok(()) => (seat.0.log)(from, &Event::Left),
                Err(error) => seat.0.lose(from, error),
            }
            drop(seat);
        };
        // Without a thread his connection ends, and he sees that.
        if let Err(source) = std::thread::Builder::new().name("client".into()).stack_size(STACK).spawn(serve) {
            self.lose(from, Error::Call { doing: "start a thread", source });
        }
    }

    /// Tells of somebody who ended by a fault.
    fn lose(&self, from: SocketAddr, error: Error) {
        (self.log)(from, &Event::Fault(error));
    }

    /// Does what a client asks for, one after the other, until it goes.
    fn serve(&self, mut channel: Channel, from: SocketAddr) -> Result<()> {
        loop {
            let ask: Ask = match channel.receive(self.limits.idle) {
                Ok(ask) => ask,
                Err(Error::Gone) => return Ok(()),
                // It is the client's own word, and the next one may be understood.
                Err(error @ Error::NotUnderstood(_)) => {
                    channel.send(&Answer::failed(error), self.limits.idle)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // It crossed with the news that its test had ended, which was its answer.
            if matches!(ask, Ask::Count | Ask::End) {
                continue;
            }
            (self.log)(from, &Event::Asked(ask.clone()));
            let answer = match service::serve(&ask, &mut channel, &self.limits, &self.tests) {
                Ok(seen) => Answer::Done(seen),
                // The client says itself that it was refused.
                Err(Error::Refused(why)) => Answer::failed(why),
                Err(error) => Answer::failed(error),
            };
            channel.send(&answer, self.limits.idle)?;
        }
    }
}

/// A place among few clients, given back by drop.
struct Seat(Arc<House>);

impl Seat {
    fn take(house: &Arc<House>) -> std::result::Result<Self, String> {
        let most = house.limits.clients;
        let one_more = |taken: u32| (taken < most).then_some(taken + 1);
        match house.clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Self(Arc::clone(house))),
            Err(_) => Err(format!("it serves {most} others, and no more at one time")),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}
