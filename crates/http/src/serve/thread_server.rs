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

use crate::serve::accept::{accept_batch, limit_unsent};
use crate::serve::blocking::serve_connection;
use crate::serve::error::{Error, Result};
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::server::{FINAL_ACCEPTS, SHUTDOWN_POLL_INTERVAL, ServerTotals, close_listener};
use crate::serve::worker_context::WorkerContext;
use kelvin_sys::thread_spawn::ThreadBuilder;

/// Bytes of a thread's stack: a request needs a few KiB.
const STACK_BYTES: usize = 256 << 10;
/// Most of what ended threads have left that is kept: buffers and open files.
const MAX_SPARE_CONTEXTS: usize = 64;

/// How connections get their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadMode {
    /// Each gets one of its own.
    PerConnection,
    /// So many serve them all, each one at a time; who is left waits.
    Pool(usize),
}

/// What the threads share.
pub struct ThreadServer<H> {
    /// Makes what a thread needs.
    pub make_context: H,
    /// The socket that listens, without waiting.
    pub listener: Arc<TcpListener>,
    /// Most connections at one time.
    pub max_connections: u32,
    /// Time for them to end.
    pub drain_timeout: Duration,
    /// Where they are registered, if they are watched.
    pub sampler: Option<Arc<InFlightSampler>>,
}

/// Connections that are here, and what was done so far.
#[derive(Default)]
struct ConnectionTable {
    state: Mutex<TableState>,
    changed: Condvar,
    shutdown: AtomicBool,
}

#[derive(Default)]
struct TableState {
    next: u64,
    clients: HashMap<u64, ActiveClient>,
    /// What threads need that have ended, as far as it is kept for those that come.
    spare_contexts: Vec<WorkerContext>,
    stats: ServerTotals,
}

/// A client that is here.
struct ActiveClient {
    socket: Arc<OwnedFd>,
    /// Taken by the thread that serves it.
    tracker: Option<RequestTracker>,
}

impl ConnectionTable {
    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in: its number.
    fn insert(&self, client: ActiveClient) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.stats.connections += 1;
        let number = state.next;
        state.clients.insert(number, client);
        number
    }

    /// Serves it, and lets it out.
    fn serve_client(&self, number: u64, make: impl Fn() -> WorkerContext) {
        let (client, hall) = {
            let mut state = self.state();
            let client = state.clients.get_mut(&number);
            (client.map(|client| (Arc::clone(&client.socket), client.tracker.take())), state.spare_contexts.pop())
        };
        let mut hall = hall.unwrap_or_else(make);
        if let Some((socket, registered)) = client {
            serve_connection((&socket, registered), &mut hall, &self.shutdown);
        }
        let mut state = self.state();
        state.clients.remove(&number);
        state.stats = state.stats + hall.take_stats();
        if state.spare_contexts.len() < MAX_SPARE_CONTEXTS {
            state.spare_contexts.push(hall);
        }
        self.changed.notify_all();
    }

    /// Has all that wait for a request end, and waits for the others, at the longest so long.
    fn drain(&self, within: Duration) -> ServerTotals {
        let until = Instant::now() + within;
        let mut state = self.state();
        for ActiveClient { socket, .. } in state.clients.values() {
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
        for ActiveClient { socket, .. } in state.clients.values() {
            // Their time is over, and no thread stays for them.
            let _ = shutdown(socket, Shutdown::Both);
        }
        state.stats
    }
}

impl<H: Fn() -> WorkerContext + Send + Sync + Clone + 'static> ThreadServer<H> {
    /// Serves until it is to end.
    ///
    /// # Errors
    /// What kept the threads of a pool from being started; that it cannot be waited for connections.
    pub fn serve(self, threads: ThreadMode, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let present = Arc::new(ConnectionTable::default());
        let queue = match threads {
            ThreadMode::PerConnection => None,
            ThreadMode::Pool(size) => Some(self.start_pool(size, &present)?),
        };
        let mut door = (self.make_context)();
        while !is_over() {
            let is_ready = kelvin_sys::poll::wait_readable(self.listener.as_fd(), SHUTDOWN_POLL_INTERVAL);
            if is_ready.map_err(Error::call("wait for connections"))? {
                self.accept_pending(&present, queue.as_ref(), &mut door);
            }
            door.close_lingering(Instant::now());
        }
        present.shutdown.store(true, Ordering::Release);
        for _ in 0..FINAL_ACCEPTS {
            if !self.accept_pending(&present, queue.as_ref(), &mut door) {
                break;
            }
        }
        close_listener(&self.listener);
        Ok(present.drain(self.drain_timeout) + door.stats)
    }

    fn accept_pending(
        &self,
        present: &Arc<ConnectionTable>,
        queue: Option<&Sender<u64>>,
        door: &mut WorkerContext,
    ) -> bool {
        accept_batch(&self.listener, door, |socket, _| self.dispatch(present, queue, socket))
    }

    /// Gives a connection to a thread; it comes back if there is no place for it.
    fn dispatch(
        &self,
        present: &Arc<ConnectionTable>,
        queue: Option<&Sender<u64>>,
        socket: OwnedFd,
    ) -> Option<OwnedFd> {
        let connections = present.state().clients.len();
        if connections >= self.max_connections as usize {
            return Some(socket);
        }
        limit_unsent(&socket, connections);
        let socket = Arc::new(socket);
        let registered = self.sampler.as_ref().and_then(|watch| watch.register(&socket));
        let number = present.insert(ActiveClient { socket: Arc::clone(&socket), tracker: registered });
        let is_taken = match queue {
            Some(queue) => queue.send(number).is_ok(),
            None => self.spawn_thread(present, number),
        };
        if is_taken {
            return None;
        }
        present.state().clients.remove(&number);
        Arc::into_inner(socket)
    }

    /// Starts a thread for a connection.
    fn spawn_thread(&self, present: &Arc<ConnectionTable>, number: u64) -> bool {
        let (present, make) = (Arc::clone(present), self.make_context.clone());
        WORKER_THREAD.start(move || present.serve_client(number, make)).is_ok()
    }

    /// Starts threads that take connections from a queue.
    fn start_pool(&self, size: usize, present: &Arc<ConnectionTable>) -> Result<Sender<u64>> {
        let (queue, taken) = channel();
        let taken: Arc<Mutex<Receiver<u64>>> = Arc::new(Mutex::new(taken));
        for _ in 0..size {
            let (present, make, taken) = (Arc::clone(present), self.make_context.clone(), Arc::clone(&taken));
            let next = move || taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let work =
                move || std::iter::from_fn(|| next().ok()).for_each(|number| present.serve_client(number, &make));
            WORKER_THREAD.start(work).map_err(Error::SpawnThread)?;
        }
        Ok(queue)
    }
}

/// A thread that serves connections.
const WORKER_THREAD: ThreadBuilder<'static> = ThreadBuilder::named("serve").stack_bytes(STACK_BYTES);
