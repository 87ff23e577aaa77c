//! The agent: listens, lets in who knows the secret, and serves each client by a thread of its own.
//!
//! What strangers can cost is bounded: so many connections that have not said the secret yet, each for so long, and the oldest
//! of them goes when one more comes. So no number of connections that say nothing keeps anybody else out.

use std::collections::VecDeque;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::channel::Channel;
use crate::message::{Answer, Ask};
use crate::secret::Secret;
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
    strangers: Mutex<VecDeque<(u64, TcpStream)>>,
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
        let house = House {
            secret,
            limits,
            log,
            clients: AtomicU32::new(0),
            strangers: Mutex::default(),
            tests: AtomicU32::new(0),
        };
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
        for number in 0.. {
            let connection = loop {
                if is_over() {
                    return Ok(());
                }
                if kelvin_sys::ready::readable(self.listener.as_fd(), LOOK).map_err(Error::call("wait"))? {
                    break self.listener.accept();
                }
            };
            match connection {
                Ok((stream, from)) => self.house.greet(number, stream, from),
                // It was gone again, or there are too many open files: a moment later there may be fewer.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        Ok(())
    }
}

/// Whether only this host can reach an address.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl House {
    /// Has a thread talk to somebody new.
    fn greet(self: &Arc<Self>, number: u64, stream: TcpStream, from: SocketAddr) {
        let Ok(handle) = stream.try_clone() else { return };
        self.make_room(number, handle);
        let house = Arc::clone(self);
        let talk = move || {
            let outcome = house.talk(number, stream, from);
            house.forget(number);
            match outcome {
                Ok(()) => (house.log)(from, &Event::Left),
                Err(error) => (house.log)(from, &Event::Fault(error)),
            }
        };
        if std::thread::Builder::new().name("client".into()).stack_size(STACK).spawn(talk).is_err() {
            self.forget(number);
        }
    }

    /// Puts one more among the strangers; the oldest goes if they are too many.
    fn make_room(&self, number: u64, handle: TcpStream) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if strangers.len() >= self.limits.strangers
            && let Some((_, oldest)) = strangers.pop_front()
        {
            // Its thread sees the end of it; one that is closed already needs none.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        strangers.push_back((number, handle));
    }

    /// Whether it was one of the strangers; it is none any more.
    fn forget(&self, number: u64) -> bool {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = strangers.iter().position(|(one, _)| *one == number);
        place.and_then(|place| strangers.remove(place)).is_some()
    }

    fn talk(&self, number: u64, stream: TcpStream, from: SocketAddr) -> Result<()> {
        stream.set_nonblocking(false).map_err(Error::call("set up the connection"))?;
        stream.set_nodelay(true).map_err(Error::call("set up the connection"))?;
        let admit = || match self.forget(number) {
            true => Seat::take(&self.clients, self.limits.clients),
            false => Err("too many others came meanwhile".into()),
        };
        let (channel, _seat) = handshake::agent(stream, &self.secret, self.limits.handshake, admit)?;
        (self.log)(from, &Event::Came);
        self.serve(channel, from)
    }

    /// Does what a client asks for, one after the other, until it goes.
    fn serve(&self, mut channel: Channel, from: SocketAddr) -> Result<()> {
        loop {
            let ask: Ask = match channel.receive(self.limits.idle) {
                Ok(ask) => ask,
                Err(Error::Gone) => return Ok(()),
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
                Err(Error::Refused(why)) => Answer::Failed { why },
                Err(error) => Answer::Failed { why: error.to_string() },
            };
            channel.send(&answer, self.limits.idle)?;
        }
    }
}

/// A place among few, given back by drop.
struct Seat<'a>(&'a AtomicU32);

impl<'a> Seat<'a> {
    fn take(taken: &'a AtomicU32, most: u32) -> std::result::Result<Self, String> {
        let one_more = |taken: u32| (taken < most).then_some(taken + 1);
        match taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Self(taken)),
            Err(_) => Err(format!("it serves {most} others, and no more at one time")),
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
