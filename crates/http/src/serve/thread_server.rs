//! Clients served with calls that wait, by a thread for each connection, by a fixed number of threads that take one connection after another,
//! or by a process of its own.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kelvin_sys::thread_spawn::ThreadBuilder;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::serve::accept::{Acceptor, limit_unsent};
use crate::serve::connection::NextIo;
use crate::serve::error::{Error, Result};
use crate::serve::request_tracker::RequestTracker;
use crate::serve::tls::TlsTransport;
use crate::serve::transport::{ClientTransport, PlainTransport};
use crate::serve::worker_context::{ClientState, ClientStep, LINGER_TIMEOUT, ServerTotals, Service, WorkerContext};
use kelvin_sys::lock;

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
        let spare_context = state.spare_contexts.pop();
        drop(state);
        let mut context = spare_context.unwrap_or_else(|| WorkerContext::new(&self.service));
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
        let timeout = self.service.site.limits.drain_timeout;
        let wait_result = self.changed.wait_timeout_while(state, timeout, |state| !state.clients.is_empty());
        let state = wait_result.unwrap_or_else(PoisonError::into_inner).0;
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
        let (queue, receiver) = channel();
        let server = Self { queue: Some(queue), ..Self::new(service) };
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..server.table.service.threads {
            let table = Arc::clone(&server.table);
            let receiver: Arc<Mutex<Receiver<u64>>> = Arc::clone(&receiver);
            let next = move || lock(&receiver).recv();
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
        let tracker = service.sampler.as_ref().and_then(|sampler| RequestTracker::register(sampler, &socket));
        state.next += 1;
        state.stats.connections += 1;
        let number = state.next;
        state.clients.insert(number, ActiveClient { socket: Arc::clone(&socket), tracker });
        drop(state);
        let is_dispatched = match &self.queue {
            Some(queue) => queue.send(number).is_ok(),
            None => {
                let table = Arc::clone(&self.table);
                WORKER_THREAD.start(move || table.serve_client(number)).is_ok()
            }
        };
        if is_dispatched {
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
    match context.tls {
        None => serve_over::<PlainTransport>(socket, tracker, context, shutdown),
        Some(_) => serve_over::<TlsTransport>(socket, tracker, context, shutdown),
    }
}

fn serve_over<T: ClientTransport>(
    socket: &OwnedFd,
    tracker: Option<RequestTracker>,
    context: &mut WorkerContext,
    shutdown: &AtomicBool,
) {
    let mut state = context.new_client::<T>(socket, tracker, Instant::now());
    let mut buffers = std::mem::take(&mut context.buffers);
    state.connection.attach_buffers(&mut buffers);
    let mut client = BlockingClient { socket, state, shutdown, timeouts: [Duration::ZERO; 2] };
    // Any error is the end.
    let _ = client.run(context);
    client.state.connection.detach_buffers(&mut buffers);
    context.buffers = buffers;
}

struct BlockingClient<'a, T> {
    socket: &'a OwnedFd,
    state: ClientState<T>,
    shutdown: &'a AtomicBool,
    /// How long a call that receives and one that sends wait at most, once that was set.
    timeouts: [Duration; 2],
}

impl<T: ClientTransport> BlockingClient<'_, T> {
    fn run(&mut self, context: &mut WorkerContext) -> rustix::io::Result<()> {
        loop {
            let can_continue = match self.state.next_io() {
                NextIo::Send => self.send(context).is_ok(),
                NextIo::Advance => {
                    context.site.is_draining = self.shutdown.load(Ordering::Acquire);
                    self.state.connection.advance(&mut context.site);
                    if self.state.connection.next_io() == NextIo::Send {
                        self.state.last_active = context.site.now();
                    }
                    continue;
                }
                NextIo::Receive => self.receive(context)?,
                NextIo::End => return self.linger(),
            };
            if !can_continue || self.state.check_deadlines(&context.site, false) == ClientStep::Gone {
                return Ok(());
            }
        }
    }

    /// Has a call wait no longer than until a limit is over.
    fn limit_wait(&mut self, direction: Timeout, context: &WorkerContext) -> rustix::io::Result<()> {
        let remaining_time = self.state.remaining_time(&context.site).max(MIN_SOCKET_TIMEOUT);
        let timeout = &mut self.timeouts[usize::from(direction == Timeout::Send)];
        if *timeout != remaining_time {
            set_socket_timeout(self.socket, direction, Some(remaining_time))?;
            *timeout = remaining_time;
        }
        Ok(())
    }

    /// Sends some.
    fn send(&mut self, context: &mut WorkerContext) -> rustix::io::Result<()> {
        self.limit_wait(Timeout::Send, context)?;
        let sent = match self.state.transport.send_some(&mut self.state.connection, self.socket, context) {
            Ok(sent) => sent,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(error) => return Err(error),
        };
        context.stats.bytes += sent as u64;
        // The call may have waited. Between two requests the next call to receive shows how long.
        let connection = &self.state.connection;
        if !matches!(connection.next_io(), NextIo::Receive | NextIo::End) || connection.has_partial_request() {
            context.site.tick(Instant::now());
        }
        if sent > 0 {
            self.state.mark_active(context.site.now());
        }
        Ok(())
    }

    /// Receives what comes; `false` at the end.
    fn receive(&mut self, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        self.limit_wait(Timeout::Recv, context)?;
        let had_begun = self.state.connection.has_partial_request();
        let received = self.state.transport.receive(&mut self.state.connection, self.socket, context);
        context.site.tick(Instant::now());
        match received {
            Ok(received) => {
                if !had_begun {
                    self.state.last_active = context.site.now();
                }
                Ok(received > 0)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sends no more, and drops what still comes.
    fn linger(&mut self) -> rustix::io::Result<()> {
        self.state.transport.close(self.socket);
        shutdown(self.socket, Shutdown::Write)?;
        let until = Instant::now() + LINGER_TIMEOUT;
        set_socket_timeout(self.socket, Timeout::Recv, Some(LINGER_TIMEOUT))?;
        let mut buffer = [0; 4096];
        for _ in 0..MAX_DISCARD_READS {
            if Instant::now() >= until || recv(self.socket, &mut buffer, RecvFlags::empty())?.1 == 0 {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::serve::server::{Server, ServerAccess, ServerSetup};

    #[test]
    fn each_request_has_own_deadline() {
        const REQUEST: &str = "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let root = tempfile::tempdir().unwrap();
        let mut setup = ServerSetup::with_threads(1);
        setup.limits.request_timeout = Duration::from_millis(600);
        let server =
            Server::listen("127.0.0.1:0".parse().unwrap(), root.path(), setup, ServerAccess::default()).unwrap();
        let mut client = TcpStream::connect(server.address().unwrap()).unwrap();
        server.service.listener.set_nonblocking(false).unwrap();
        let socket = OwnedFd::from(server.service.listener.accept().unwrap().0);
        let mut context = WorkerContext::new(&server.service);
        let thread = std::thread::spawn(move || {
            serve_connection(&socket, None, &mut context, &AtomicBool::new(false));
            context.take_stats().requests
        });
        let (begin, end) = REQUEST.split_at(20);
        client.write_all(begin.as_bytes()).unwrap();
        // Each arrives with the begin of the next one, and all of them take longer than one may.
        for _ in 0..4 {
            std::thread::sleep(setup.limits.request_timeout / 3);
            client.write_all(format!("{end}{begin}").as_bytes()).unwrap();
        }
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        let statuses: Vec<&str> =
            answers.match_indices("HTTP/1.1 ").map(|(index, _)| &answers[index + 9..index + 12]).collect();
        assert_eq!((statuses, thread.join().unwrap()), (vec!["404", "404", "404", "404", "408"], 4));
    }
}
