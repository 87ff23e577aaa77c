//! A thread for each connection, or a fixed number of threads that take one connection after another: calls that wait, and nothing
//! else to be told apart.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kelvin_sys::thread_spawn::ThreadBuilder;
use rustix::net::{Shutdown, shutdown};

use crate::serve::accept::{Acceptor, limit_unsent};
use crate::serve::blocking::serve_connection;
use crate::serve::error::{Error, Result};
use crate::serve::request_tracker::RequestTracker;
use crate::serve::server::{DescriptorHolders, Overload, Server, ServerTotals, Service, ServingModel};
use crate::serve::worker_context::WorkerContext;

/// A thread that serves connections; a request needs a few KiB of its stack.
const WORKER_THREAD: ThreadBuilder<'static> = ThreadBuilder::named("serve").stack_bytes(256 << 10);
/// Most of what ended threads have left that is kept: buffers and open files.
const MAX_SPARE_CONTEXTS: usize = 64;

/// [`ServerModel::Thread`](crate::serve::ServerModel::Thread).
pub struct ThreadModel;

impl ServingModel for ThreadModel {
    fn descriptor_holders(&self) -> DescriptorHolders {
        DescriptorHolders::Threads
    }

    fn serve(&self, server: Server, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
        ThreadServer::new(server.service).serve(is_over)
    }
}

/// [`ServerModel::Pool`](crate::serve::ServerModel::Pool).
pub struct PoolModel;

impl ServingModel for PoolModel {
    fn serve(&self, server: Server, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
        let mut threads = ThreadServer::new(server.service);
        threads.start_pool()?;
        threads.serve(is_over)
    }
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
    /// By their numbers, the oldest first.
    clients: BTreeMap<u64, ActiveClient>,
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

    /// Serves a connection, and lets it out.
    fn serve_client(&self, number: u64, service: &Service) {
        let mut state = self.state();
        let client = state.clients.get_mut(&number).map(|client| (Arc::clone(&client.socket), client.tracker.take()));
        let spare = state.spare_contexts.pop();
        drop(state);
        let mut context = spare.unwrap_or_else(|| service.new_context());
        if let Some((socket, tracker)) = client {
            serve_connection(&socket, tracker, &mut context, &self.shutdown);
        }
        let mut state = self.state();
        state.clients.remove(&number);
        state.stats = state.stats + context.take_stats();
        if state.spare_contexts.len() < MAX_SPARE_CONTEXTS {
            state.spare_contexts.push(context);
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

/// Accepts connections, and has each served by a thread.
pub(crate) struct ThreadServer {
    service: Arc<Service>,
    table: Arc<ConnectionTable>,
    /// Where the threads of a pool take connections; none where each connection gets one of its own.
    queue: Option<Sender<u64>>,
}

impl ThreadServer {
    /// A thread for each connection.
    pub fn new(service: Service) -> Self {
        Self { service: Arc::new(service), table: Arc::default(), queue: None }
    }

    /// Starts threads that take connections from a queue.
    fn start_pool(&mut self) -> Result<()> {
        let (queue, waiting) = channel();
        let waiting: Arc<Mutex<Receiver<u64>>> = Arc::new(Mutex::new(waiting));
        for _ in 0..self.service.threads {
            let (table, service, waiting) = (Arc::clone(&self.table), Arc::clone(&self.service), Arc::clone(&waiting));
            let next = move || waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let work = move || {
                while let Ok(number) = next() {
                    table.serve_client(number, &service);
                }
            };
            WORKER_THREAD.start(work).map_err(Error::SpawnThread)?;
        }
        self.queue = Some(queue);
        Ok(())
    }

    /// Serves until it is to end.
    ///
    /// # Errors
    /// That it cannot be waited for connections.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let (service, table) = (Arc::clone(&self.service), Arc::clone(&self.table));
        let mut context = service.new_context();
        let is_shutting_down = || {
            let is_over = is_over();
            table.shutdown.fetch_or(is_over, Ordering::Release);
            is_over
        };
        self.accept_until(is_shutting_down, &service.listener, &mut context)?;
        Ok(table.drain(service.site.limits.drain_timeout) + context.stats)
    }
}

impl Acceptor for ThreadServer {
    fn dispatch(&mut self, socket: OwnedFd, _: &mut WorkerContext) -> Option<OwnedFd> {
        let mut state = self.table.state();
        if state.clients.len() >= self.service.max_connections() as usize {
            if self.service.overload == Overload::Reject {
                return Some(socket);
            }
            if let Some((_, oldest)) = state.clients.pop_first() {
                let _ = shutdown(&oldest.socket, Shutdown::Both);
            }
        }
        limit_unsent(&socket, state.clients.len());
        let socket = Arc::new(socket);
        let tracker = self.service.sampler.as_ref().and_then(|sampler| sampler.register(&socket));
        state.next += 1;
        state.stats.connections += 1;
        let number = state.next;
        state.clients.insert(number, ActiveClient { socket: Arc::clone(&socket), tracker });
        drop(state);
        let is_taken = match &self.queue {
            Some(queue) => queue.send(number).is_ok(),
            None => {
                let (table, service) = (Arc::clone(&self.table), Arc::clone(&self.service));
                WORKER_THREAD.start(move || table.serve_client(number, &service)).is_ok()
            }
        };
        if is_taken {
            return None;
        }
        self.table.state().clients.remove(&number);
        Arc::into_inner(socket)
    }
}
