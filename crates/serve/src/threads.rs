//! A thread for each connection, or a fixed number of threads that take one connection after another: calls that wait, and nothing
//! else to be told apart.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

use crate::accepting::{accept_some, moderate};
use crate::blocking::attend;
use crate::error::{Error, Result};
use crate::hall::Hall;
use crate::registered::Registered;
use crate::server::{LAST, LOOK, Served, close};
use crate::watch::Watch;
use kelvin_sys::spawn::Thread;

/// Bytes of a thread's stack: a request needs a few KiB.
const STACK: usize = 256 << 10;
/// Most of what ended threads have left that is kept: buffers and open files.
const KEPT: usize = 64;

/// How connections get their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Each gets one of its own.
    Each,
    /// So many serve them all, each one at a time; who is left waits.
    Pool(usize),
}

/// What the threads share.
pub struct House<H> {
    /// Makes what a thread needs.
    pub hall: H,
    /// The socket that listens, without waiting.
    pub listener: Arc<TcpListener>,
    /// Most connections at one time.
    pub most: u32,
    /// Time for them to end.
    pub drain: Duration,
    /// Where they are registered, if they are watched.
    pub watch: Option<Arc<Watch>>,
}

/// Connections that are here, and what was done so far.
#[derive(Default)]
struct Present {
    state: Mutex<State>,
    changed: Condvar,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    next: u64,
    clients: HashMap<u64, Client>,
    /// What threads need that have ended, as far as it is kept for those that come.
    halls: Vec<Hall>,
    served: Served,
}

/// A client that is here.
struct Client {
    socket: Arc<OwnedFd>,
    /// Taken by the thread that serves it.
    registered: Option<Registered>,
}

impl Present {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in: its number.
    fn enter(&self, client: Client) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.served.connections += 1;
        let number = state.next;
        state.clients.insert(number, client);
        number
    }

    /// Serves it, and lets it out.
    fn attend(&self, number: u64, make: impl Fn() -> Hall) {
        let (client, hall) = {
            let mut state = self.state();
            let client = state.clients.get_mut(&number);
            (client.map(|client| (Arc::clone(&client.socket), client.registered.take())), state.halls.pop())
        };
        let mut hall = hall.unwrap_or_else(make);
        if let Some((socket, registered)) = client {
            attend((&socket, registered), &mut hall, &self.is_over);
        }
        let mut state = self.state();
        state.clients.remove(&number);
        state.served = state.served + hall.take_served();
        if state.halls.len() < KEPT {
            state.halls.push(hall);
        }
        self.changed.notify_all();
    }

    /// Has all that wait for a request end, and waits for the others, at the longest so long.
    fn leave(&self, within: Duration) -> Served {
        let until = Instant::now() + within;
        let mut state = self.state();
        for Client { socket, .. } in state.clients.values() {
            // What was received is still answered; what waits for more has come to its end.
            let _ = shutdown(socket, Shutdown::Read);
        }
        while !state.clients.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        for Client { socket, .. } in state.clients.values() {
            // Their time is over, and no thread stays for them.
            let _ = shutdown(socket, Shutdown::Both);
        }
        state.served
    }
}

impl<H: Fn() -> Hall + Send + Sync + Clone + 'static> House<H> {
    /// Serves until it is to end.
    ///
    /// # Errors
    /// What kept the threads of a pool from being started; that it cannot be waited for connections.
    pub fn serve(self, threads: Threads, is_over: impl Fn() -> bool) -> Result<Served> {
        let present = Arc::new(Present::default());
        let queue = match threads {
            Threads::Each => None,
            Threads::Pool(size) => Some(self.pool(size, &present)?),
        };
        let mut door = (self.hall)();
        while !is_over() {
            let is_ready = kelvin_sys::ready::readable(self.listener.as_fd(), LOOK);
            if is_ready.map_err(Error::call("wait for connections"))? {
                self.accept(&present, queue.as_ref(), &mut door);
            }
            door.let_go(Instant::now());
        }
        present.is_over.store(true, Ordering::Release);
        for _ in 0..LAST {
            if !self.accept(&present, queue.as_ref(), &mut door) {
                break;
            }
        }
        close(&self.listener);
        Ok(present.leave(self.drain) + door.served)
    }

    fn accept(&self, present: &Arc<Present>, queue: Option<&Sender<u64>>, door: &mut Hall) -> bool {
        accept_some(&self.listener, door, |socket, _| self.place(present, queue, socket))
    }

    /// Gives a connection to a thread; it comes back if there is no place for it.
    fn place(&self, present: &Arc<Present>, queue: Option<&Sender<u64>>, socket: OwnedFd) -> Option<OwnedFd> {
        let connections = present.state().clients.len();
        if connections >= self.most as usize {
            return Some(socket);
        }
        moderate(&socket, connections);
        let socket = Arc::new(socket);
        let registered = self.watch.as_ref().and_then(|watch| watch.register(&socket));
        let number = present.enter(Client { socket: Arc::clone(&socket), registered });
        let is_taken = match queue {
            Some(queue) => queue.send(number).is_ok(),
            None => self.start(present, number),
        };
        if is_taken {
            return None;
        }
        present.state().clients.remove(&number);
        Arc::into_inner(socket)
    }

    /// Starts a thread for a connection.
    fn start(&self, present: &Arc<Present>, number: u64) -> bool {
        let (present, make) = (Arc::clone(present), self.hall.clone());
        SERVING.start(move || present.attend(number, make)).is_ok()
    }

    /// Starts threads that take connections from a queue.
    fn pool(&self, size: usize, present: &Arc<Present>) -> Result<Sender<u64>> {
        let (queue, taken) = channel();
        let taken: Arc<Mutex<Receiver<u64>>> = Arc::new(Mutex::new(taken));
        for _ in 0..size {
            let (present, make, taken) = (Arc::clone(present), self.hall.clone(), Arc::clone(&taken));
            let next = move || taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let work = move || std::iter::from_fn(|| next().ok()).for_each(|number| present.attend(number, &make));
            SERVING.start(work).map_err(Error::Thread)?;
        }
        Ok(queue)
    }
}

/// A thread that serves connections.
const SERVING: Thread<'static> = Thread::named("serve").stack_bytes(STACK);
