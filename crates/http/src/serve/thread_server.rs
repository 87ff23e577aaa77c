//! Clients served with calls that wait, by a thread for each connection, by a fixed number of threads that take one connection after another,
//! or by a process of its own.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use kelvin_sys::thread_spawn::ThreadBuilder;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::lock;
use crate::serve::accept::{Acceptor, limit_unsent};
use crate::serve::connection::NextIo;
use crate::serve::error::{Error, Result};
use crate::serve::limits::ServerLimits;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::server::{ServerTotals, Service};
use crate::serve::worker_context::{ClientState, LINGER_TIMEOUT, SendProgress, WorkerContext};

/// A thread that serves connections; a request needs a few KiB of its stack.
const WORKER_THREAD: ThreadBuilder<'static> = ThreadBuilder::named("serve").stack_bytes(256 << 10);
/// Most of what ended threads have left that is kept: buffers and open files.
const MAX_SPARE_CONTEXTS: usize = 64;

/// Connections that are here, what they are served with, and what was done so far.
struct ConnectionTable {
    service: Service,
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
    /// Serves a connection, and lets it out.
    fn serve_client(&self, number: u64) {
        let mut state = lock(&self.state);
        let client = state.clients.get_mut(&number).map(|client| (Arc::clone(&client.socket), client.tracker.take()));
        let spare = state.spare_contexts.pop();
        drop(state);
        let mut context = spare.unwrap_or_else(|| WorkerContext::new(&self.service));
        if let Some((socket, tracker)) = client {
            serve_connection(&socket, tracker, &mut context, &self.shutdown);
        }
        let mut state = lock(&self.state);
        state.clients.remove(&number);
        state.stats = state.stats + context.take_stats();
        if state.spare_contexts.len() < MAX_SPARE_CONTEXTS {
            state.spare_contexts.push(context);
        }
        self.changed.notify_all();
    }

    /// Has all that wait for a request end, and waits for the others, as long as they may take.
    fn drain(&self) -> ServerTotals {
        let state = lock(&self.state);
        for ActiveClient { socket, .. } in state.clients.values() {
            // What was received is still answered; what waits for more has come to its end.
            let _ = shutdown(socket, Shutdown::Read);
        }
        let within = self.service.site.limits.drain_timeout;
        let waited = self.changed.wait_timeout_while(state, within, |state| !state.clients.is_empty());
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        for ActiveClient { socket, .. } in state.clients.values() {
            // Their time is over, and no thread stays for them.
            let _ = shutdown(socket, Shutdown::Both);
        }
        state.stats
    }
}

/// Accepts connections, and has each served by a thread.
pub(crate) struct ThreadServer {
    table: Arc<ConnectionTable>,
    /// Where the threads of a pool take connections; none where each connection gets one of its own.
    queue: Option<Sender<u64>>,
}

impl ThreadServer {
    /// A thread for each connection.
    pub fn new(service: Service) -> Self {
        let (state, changed, shutdown) = Default::default();
        Self { table: Arc::new(ConnectionTable { service, state, changed, shutdown }), queue: None }
    }

    /// As many threads as the service states, which take connections from a queue.
    ///
    /// # Errors
    /// What kept them from being started.
    pub fn with_pool(service: Service) -> Result<Self> {
        let (queue, waiting) = channel();
        let server = Self { queue: Some(queue), ..Self::new(service) };
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..server.table.service.threads {
            let table = Arc::clone(&server.table);
            let waiting: Arc<Mutex<Receiver<u64>>> = Arc::clone(&waiting);
            let next = move || lock(&waiting).recv();
            let work = move || {
                while let Ok(number) = next() {
                    table.serve_client(number);
                }
            };
            WORKER_THREAD.start(work).map_err(Error::SpawnThread)?;
        }
        Ok(server)
    }

    /// Serves until it is to end.
    ///
    /// # Errors
    /// That it cannot be waited for connections.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let table = Arc::clone(&self.table);
        let mut context = WorkerContext::new(&table.service);
        let is_shutting_down = || {
            let is_over = is_over();
            table.shutdown.fetch_or(is_over, Ordering::Release);
            is_over
        };
        self.accept_until(is_shutting_down, &table.service.listener, &mut context)?;
        Ok(table.drain() + context.stats)
    }
}

impl Acceptor for ThreadServer {
    fn dispatch(&mut self, socket: OwnedFd, _: &mut WorkerContext) -> Option<OwnedFd> {
        let service = &self.table.service;
        let mut state = lock(&self.table.state);
        if state.clients.len() >= service.site.limits.connections as usize {
            // Of clients who ask for statistics the oldest is not about to get an answer.
            if service.site.stats.is_none() {
                return Some(socket);
            }
            if let Some((_, oldest)) = state.clients.pop_first() {
                let _ = shutdown(&oldest.socket, Shutdown::Both);
            }
        }
        limit_unsent(&socket, state.clients.len());
        let socket = Arc::new(socket);
        let tracker = service.sampler.as_ref().and_then(|sampler| sampler.register(&socket));
        state.next += 1;
        state.stats.connections += 1;
        let number = state.next;
        state.clients.insert(number, ActiveClient { socket: Arc::clone(&socket), tracker });
        drop(state);
        let is_taken = match &self.queue {
            Some(queue) => queue.send(number).is_ok(),
            None => {
                let table = Arc::clone(&self.table);
                WORKER_THREAD.start(move || table.serve_client(number)).is_ok()
            }
        };
        if is_taken {
            return None;
        }
        lock(&self.table.state).clients.remove(&number);
        Arc::into_inner(socket)
    }
}

/// Most calls that read and drop that.
const MAX_DISCARD_READS: usize = 64;
/// The shortest time-out of a socket: zero would be for ever.
const MIN_SOCKET_TIMEOUT: Duration = Duration::from_millis(1);

/// Serves a client until its end; once the server is to end, with one more answer. A call that waits longer than a limit ends it.
pub fn serve_connection(
    socket: &OwnedFd,
    tracker: Option<RequestTracker>,
    context: &mut WorkerContext,
    shutdown: &AtomicBool,
) {
    let mut state = context.new_client(socket, tracker, Instant::now());
    let mut buffers = std::mem::take(&mut context.buffers);
    state.connection.attach_buffers(&mut buffers);
    let limits = context.site.limits();
    let send_timeout = limits.idle_timeout.min(limits.min_progress.within).max(MIN_SOCKET_TIMEOUT);
    let is_ready = set_socket_timeout(socket, Timeout::Recv, Some(limits.idle_timeout))
        .and_then(|()| set_socket_timeout(socket, Timeout::Send, Some(send_timeout)));
    let (partial_request, is_sending) = (None, false);
    let mut client = BlockingClient { socket, state, shutdown, partial_request, is_sending, send_timeout };
    if is_ready.is_ok() {
        // Whatever it is, it is the end.
        let _ = client.run(context);
    }
    client.state.connection.detach_buffers(&mut buffers);
    context.buffers = buffers;
}

struct BlockingClient<'a> {
    socket: &'a OwnedFd,
    state: ClientState,
    shutdown: &'a AtomicBool,
    partial_request: Option<PartialRequest>,
    /// Whether a part of an answer was sent.
    is_sending: bool,
    /// How long a call that sends waits at most.
    send_timeout: Duration,
}

/// When a request began to arrive that is not whole, and how many were answered before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartialRequest {
    started_at: Instant,
    answered_before: u64,
}

impl PartialRequest {
    /// The one that was known, if it is of the same request: each has its own time, also where one arrives with a part of the next.
    fn start_or_continue(known: Option<Self>, after: u64, now: Instant) -> Self {
        known.filter(|known| known.answered_before == after).unwrap_or(Self { started_at: now, answered_before: after })
    }
}

impl BlockingClient<'_> {
    fn run(&mut self, context: &mut WorkerContext) -> rustix::io::Result<()> {
        loop {
            let goes_on = match self.state.connection.next_io() {
                NextIo::Send => self.send(context)?,
                NextIo::Advance => {
                    context.site.tick(Instant::now());
                    context.site.is_draining = self.shutdown.load(Ordering::Acquire);
                    self.state.connection.advance(&mut context.site);
                    true
                }
                NextIo::Receive => self.receive(context)?,
                NextIo::End => return self.linger(),
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Sends some; `false` if its client takes too little of an answer, of which more is to be sent. The call waits no longer than
    /// until that is known.
    fn send(&mut self, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        let ServerLimits { idle_timeout, min_progress, .. } = *context.site.limits();
        let Self { state, .. } = self;
        let patience = if self.is_sending {
            let now = Instant::now();
            state.progress.time_left(now, min_progress).min(idle_timeout.saturating_sub(now - state.last_active))
        } else {
            // The answer was made just now.
            state.last_active = context.site.now();
            state.progress = SendProgress::start(state.last_active, state.connection.bytes_sent);
            idle_timeout.min(min_progress.within)
        };
        let patience = patience.max(MIN_SOCKET_TIMEOUT);
        // The call waits no longer.
        if patience != self.send_timeout {
            set_socket_timeout(self.socket, Timeout::Send, Some(patience))?;
            self.send_timeout = patience;
        }
        let sent = match context.sender.send_some(&mut state.connection, self.socket) {
            Ok(sent) => sent,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        context.stats.bytes += sent as u64;
        self.is_sending = state.connection.next_io() == NextIo::Send;
        if !self.is_sending {
            return Ok(true);
        }
        let now = Instant::now();
        if sent > 0 {
            state.last_active = now;
        }
        let is_slow = state.progress.is_too_slow((now, state.connection.bytes_sent), min_progress);
        Ok(!is_slow && now - state.last_active < idle_timeout)
    }

    /// Receives what comes; `false` at the end.
    fn receive(&mut self, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        if !self.is_in_time(context)? {
            self.state.connection.refuse(StatusCode::REQUEST_TIMEOUT, &context.site);
            return Ok(true);
        }
        match context.receive(&mut self.state.connection, self.socket) {
            Ok(received) => Ok(received > 0),
            Err(Errno::INTR) => Ok(true),
            // The time of a request that has begun is over, which is said; of one that has not, nothing is.
            Err(Errno::AGAIN) if self.partial_request.is_some() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether a request that has begun to arrive may go on arriving. Then no call waits longer than that.
    fn is_in_time(&mut self, context: &WorkerContext) -> rustix::io::Result<bool> {
        let limits = context.site.limits();
        if !self.state.connection.has_partial_request() {
            if self.partial_request.take().is_some() {
                set_socket_timeout(self.socket, Timeout::Recv, Some(limits.idle_timeout))?;
            }
            return Ok(true);
        }
        let answered = self.state.connection.answered;
        let begun = PartialRequest::start_or_continue(self.partial_request, answered, Instant::now());
        self.partial_request = Some(begun);
        let left = limits.request_timeout.saturating_sub(begun.started_at.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        set_socket_timeout(self.socket, Timeout::Recv, Some(left.max(MIN_SOCKET_TIMEOUT)))?;
        Ok(true)
    }

    /// Sends no more, and drops what still comes.
    fn linger(&mut self) -> rustix::io::Result<()> {
        shutdown(self.socket, Shutdown::Write)?;
        let until = Instant::now() + LINGER_TIMEOUT;
        set_socket_timeout(self.socket, Timeout::Recv, Some(LINGER_TIMEOUT))?;
        let mut nothing = [0; 4096];
        for _ in 0..MAX_DISCARD_READS {
            if Instant::now() >= until || recv(self.socket, &mut nothing, RecvFlags::empty())?.1 == 0 {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_own_deadline() {
        let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        let begun = PartialRequest::start_or_continue(None, 0, first);
        assert_eq!(PartialRequest::start_or_continue(Some(begun), 0, later).started_at, first);
        assert_eq!(PartialRequest::start_or_continue(Some(begun), 1, later).started_at, later);
    }
}
