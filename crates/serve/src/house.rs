//! What threads share that each serve many connections: the listening socket, and for each of them a desk where the others leave
//! connections.
//!
//! All threads wait for the one listening socket, and the kernel wakes one of them for a new connection. That thread gives it to
//! the one that has fewest: with a socket for each thread the kernel would choose by a hash of addresses, and of eight
//! connections one thread would often have six.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::accepting::moderate;
use crate::error::{Error, Result};
use crate::hall::Hall;

/// How often connections are looked at whose time may be over.
pub const SWEEP: Duration = Duration::from_secs(1);

/// What the threads share.
#[derive(Debug)]
pub struct House {
    /// The socket that listens.
    pub listener: Arc<TcpListener>,
    /// One for each thread.
    pub desks: Vec<Desk>,
    /// Whether all threads are to end.
    pub is_over: AtomicBool,
    /// Most connections of all.
    most: u32,
    deadline: OnceLock<Instant>,
}

/// Where connections are left for a thread.
#[derive(Debug)]
pub struct Desk {
    /// Ready to be read when somebody was left, or the threads are to end.
    pub waker: Arc<OwnedFd>,
    /// Connections that it has or is about to have.
    pub load: AtomicU32,
    /// Who waits there; nothing once the thread has gone.
    left: Mutex<Option<Vec<OwnedFd>>>,
}

impl House {
    /// For so many threads and connections.
    ///
    /// # Errors
    /// Those of eventfd.
    pub fn new(listener: Arc<TcpListener>, threads: usize, most: u32) -> Result<Self> {
        let desk = |_| {
            let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Desk { waker: Arc::new(waker), load: AtomicU32::new(0), left: Mutex::new(Some(Vec::new())) })
        };
        let desks = (0..threads).map(desk).collect::<rustix::io::Result<_>>().map_err(Error::call("wake threads"))?;
        Ok(Self { listener, desks, is_over: AtomicBool::new(false), most, deadline: OnceLock::new() })
    }

    /// Has all threads end, at the latest at this time.
    pub fn end(&self, deadline: Instant) {
        let _ = self.deadline.set(deadline);
        self.is_over.store(true, Ordering::Release);
        self.desks.iter().for_each(Desk::wake);
    }

    /// Whether the time of those is over that have not ended by themselves.
    pub fn is_late(&self, now: Instant) -> bool {
        self.deadline.get().is_none_or(|deadline| now >= *deadline)
    }

    /// Gives a connection that this thread has accepted to the one that has fewest. It comes back if that is this one.
    pub fn place(&self, socket: OwnedFd, (own, hall): (usize, &mut Hall)) -> Option<OwnedFd> {
        let load = self.load();
        if load >= self.most {
            hall.turn_away(socket, hall.site.now());
            return None;
        }
        moderate(&socket, load as usize);
        hall.served.connections += 1;
        let number = self.least_loaded(own);
        let socket = if number == own { Some(socket) } else { self.desks[number].leave(socket) };
        if socket.is_some() {
            self.desks[own].load.fetch_add(1, Ordering::Relaxed);
        }
        socket
    }

    /// Connections of all threads.
    pub fn load(&self) -> u32 {
        self.desks.iter().map(|desk| desk.load.load(Ordering::Relaxed)).sum()
    }

    /// The thread that has fewest connections; this one if it has as few as any.
    fn least_loaded(&self, own: usize) -> usize {
        let load = |number: &usize| self.desks[*number].load.load(Ordering::Relaxed);
        let least = (0..self.desks.len()).min_by_key(load).unwrap_or(own);
        if load(&own) <= load(&least) { own } else { least }
    }
}

impl Desk {
    fn wake(&self) {
        // A counter that is full has woken the thread already.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    fn left(&self) -> MutexGuard<'_, Option<Vec<OwnedFd>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a connection, which comes back if the thread has gone.
    fn leave(&self, socket: OwnedFd) -> Option<OwnedFd> {
        match &mut *self.left() {
            Some(left) => {
                self.load.fetch_add(1, Ordering::Relaxed);
                left.push(socket);
            }
            None => return Some(socket),
        }
        self.wake();
        None
    }

    /// Takes who was left there.
    pub fn take(&self) -> Vec<OwnedFd> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker, &mut count);
        self.left().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes nothing any more, unless somebody waits there: whether it could be closed.
    pub fn close(&self) -> bool {
        let mut left = self.left();
        let is_empty = left.as_ref().is_none_or(Vec::is_empty);
        if is_empty {
            *left = None;
        }
        is_empty
    }
}
