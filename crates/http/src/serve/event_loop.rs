//! Threads that each serve many clients: what they have in common, however they wait and send, and what they share: the listening socket, and
//! for each of them an inbox where the others leave connections.
//!
//! All threads wait for the one listening socket, and the kernel wakes one of them for a new connection. That thread gives it to
//! the one that has fewest: with a socket for each thread the kernel would choose by a hash of addresses, and of eight
//! connections one thread would often have six.
//!
//! Of clients on this host those of one CPU go to one thread, as far as the threads stay about equally loaded. A thread of a client
//! that has its connections with one thread of the server wakes no other, and the scheduler keeps the two where they wake each other
//! cheapest; with connections to all of them each request may find its thread asleep on another CPU.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_sys::thread_spawn::ThreadBuilder;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SocketFlags, sockopt};
use slab::Slab;

use crate::serve::accept::{BatchEnd, SHUTDOWN_POLL_INTERVAL, accept_batch, accept_final, limit_unsent};
use crate::serve::error::{Error, Result};
use crate::serve::transport::ClientTransport;
use crate::serve::worker_context::{ClientState, ClientStep, ServerTotals, Service, WorkerContext, is_local};
use kelvin_sys::lock;

/// How often connections are looked at whose time may be over.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What events are about: the listener, another thread, or the client of this number.
pub const LISTENER_TOKEN: u64 = u64::MAX;
pub const WAKER_TOKEN: u64 = u64::MAX - 1;

/// One of several threads.
#[derive(Debug)]
pub struct WorkerCore<C> {
    /// The number of the thread.
    thread_index: usize,
    pub shared: Arc<SharedState>,
    pub context: WorkerContext,
    /// The clients by number. The number of one that has gone is used again.
    pub clients: Slab<C>,
    /// Whether it is to end, and has ended what is idle.
    pub has_drained: bool,
    last_sweep: Instant,
}

impl<C> WorkerCore<C> {
    /// A thread that has no client yet.
    pub fn new(thread_index: usize, shared: Arc<SharedState>, context: WorkerContext) -> Self {
        let (clients, last_sweep) = (Slab::new(), Instant::now());
        Self { thread_index, shared, context, clients, has_drained: false, last_sweep }
    }

    /// Where others leave connections for this thread.
    pub fn inbox(&self) -> &Inbox {
        &self.shared.inboxes[self.thread_index]
    }

    /// Lets a client go, if it is still there.
    pub fn remove(&mut self, number: usize) -> Option<C> {
        let client = self.clients.try_remove(number)?;
        self.inbox().load.fetch_sub(1, Ordering::Relaxed);
        Some(client)
    }

    /// Whether the thread may go, once it accepts nobody: nobody is left, or there is no more time.
    pub fn is_done(&self) -> bool {
        let is_empty = || self.clients.is_empty() && self.inbox().try_close();
        let is_late = || self.shared.deadline.get().is_none_or(|deadline| self.context.site.now() >= *deadline);
        self.has_drained && (is_late() || is_empty())
    }

    /// Whether it is time again to look whose time is over.
    fn is_sweep_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.last_sweep) >= SWEEP_INTERVAL;
        if is_due {
            self.last_sweep = now;
        }
        is_due
    }
}

/// How such a thread waits and sends.
pub trait EventLoop: Sized {
    type Client;
    type Transport: ClientTransport;

    /// How connections are accepted at the end.
    const SOCKET_FLAGS: SocketFlags;

    /// A thread that accepts connections, made by itself.
    ///
    /// # Errors
    /// Those of the calls that it waits by.
    fn new(core: WorkerCore<Self::Client>) -> Result<Self>;

    fn core(&mut self) -> &mut WorkerCore<Self::Client>;

    /// What is known of a client, and whether an operation of it is not done, for which it waits.
    fn client_state(client: &mut Self::Client) -> (&mut ClientState<Self::Transport>, bool);

    /// Waits for events, and does what they ask for.
    fn turn(&mut self);

    /// Has connections accepted, unless they are already.
    fn accept(&mut self);

    /// Has none accepted any more.
    fn stop_accepting(&mut self);

    /// Serves a connection from now on.
    fn add_client(&mut self, socket: OwnedFd);

    /// Does for a client what can be done now.
    fn drive_client(&mut self, number: usize);

    fn remove_client(&mut self, number: usize);

    /// Ends clients that are between two requests.
    fn end_idle(&mut self);

    /// Serves until all is to end.
    fn run(mut self) -> ServerTotals {
        while !self.core().is_done() {
            self.turn();
            self.sweep();
        }
        self.core().context.take_stats()
    }

    /// Gives a connection that this thread has accepted to the one that is to serve it.
    fn dispatch(&mut self, socket: OwnedFd) {
        let core = self.core();
        if let Some(socket) = core.shared.dispatch(socket, (core.thread_index, &mut core.context)) {
            self.add_client(socket);
        }
    }

    /// Takes what others have left for it.
    fn drain_inbox(&mut self) {
        self.core().inbox().take_all().into_iter().for_each(|socket| self.add_client(socket));
    }

    /// Accepts some connections.
    fn accept_pending(&mut self) -> BatchEnd {
        let listener = Arc::clone(&self.core().shared.listener);
        accept_batch(&listener, Self::SOCKET_FLAGS, |socket| self.dispatch(socket))
    }

    /// Once it is to end, takes the connections that wait, accepts no further ones, and ends those that are between two requests.
    /// From then on every answer is the last one of its connection.
    fn drain_on_shutdown(&mut self) {
        let core = self.core();
        if core.has_drained || !core.shared.shutdown.load(Ordering::Acquire) {
            return;
        }
        self.stop_accepting();
        let core = self.core();
        let (listener, is_shared) = (Arc::clone(&core.shared.listener), core.context.shares_listener);
        let _ = listener.set_nonblocking(true);
        accept_final(&listener, is_shared, || self.accept_pending());
        self.drain_inbox();
        let core = self.core();
        (core.context.site.is_draining, core.has_drained) = (true, true);
        self.end_idle();
    }

    /// Ends connections whose time is over, and accepts again if it was paused.
    fn sweep(&mut self) {
        let core = self.core();
        let now = core.context.site.now();
        if !core.is_sweep_due(now) {
            return;
        }
        core.context.close_lingering(now);
        for number in 0..core.clients.capacity() {
            let core = self.core();
            let Some(client) = core.clients.get_mut(number) else { continue };
            let (state, is_busy) = Self::client_state(client);
            match state.check_deadlines(&core.context.site, is_busy) {
                ClientStep::Wait => {}
                ClientStep::Requeue => self.drive_client(number),
                ClientStep::Gone => self.remove_client(number),
            }
        }
        if !self.core().has_drained {
            self.accept();
        }
    }
}

/// Serves by threads of one kind until it is to end.
///
/// # Errors
/// What kept them from being started.
pub(crate) fn serve_with_workers<W: EventLoop>(service: &Service, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
    let shared = SharedState::new(Arc::clone(&service.listener), service.threads, service.site.limits.connections)?;
    let shared = Arc::new(shared);
    let start = |number| {
        let (shared, context) = (Arc::clone(&shared), WorkerContext::new(service));
        ThreadBuilder::named("serve").start(move || W::new(WorkerCore::new(number, shared, context)).map(W::run))
    };
    let threads: std::io::Result<Vec<_>> = (0..service.threads).map(start).collect();
    let are_running = |threads: &Vec<JoinHandle<_>>| !threads.iter().any(JoinHandle::is_finished);
    while threads.as_ref().is_ok_and(are_running) && !is_over() {
        std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
    }
    shared.begin_shutdown(Instant::now() + service.site.limits.drain_timeout);
    let threads = threads.map_err(Error::SpawnThread)?;
    let mut results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(ServerTotals::default())));
    results.try_fold(ServerTotals::default(), |sum, totals| Ok(sum + totals?))
}

/// Connections that a thread may have more than another one, because their clients are on one CPU: a client that has no more than
/// these is not worth two threads.
const AFFINITY_SLACK: u32 = 4;

/// What the threads share.
#[derive(Debug)]
pub struct SharedState {
    /// The socket that listens.
    pub listener: Arc<TcpListener>,
    /// One for each thread.
    pub inboxes: Vec<Inbox>,
    /// Whether all threads are to end.
    pub shutdown: AtomicBool,
    /// Most connections of all.
    max_connections: u32,
    /// CPUs that the threads may run on; none if there is only one thread.
    cpus: Vec<u32>,
    deadline: OnceLock<Instant>,
}

/// Where connections are left for a thread.
#[derive(Debug)]
pub struct Inbox {
    /// Ready to be read when somebody was left, or the threads are to end.
    pub waker: Arc<OwnedFd>,
    /// Connections that it has or is about to have.
    pub load: AtomicU32,
    /// Who waits there; nothing once the thread has gone.
    queue: Mutex<Option<Vec<OwnedFd>>>,
}

impl SharedState {
    /// For this many threads and connections.
    ///
    /// # Errors
    /// Those of eventfd.
    pub fn new(listener: Arc<TcpListener>, threads: usize, max_connections: u32) -> Result<Self> {
        let inbox = |_| {
            let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Inbox { waker: Arc::new(waker), load: AtomicU32::new(0), queue: Mutex::new(Some(Vec::new())) })
        };
        let inboxes =
            (0..threads).map(inbox).collect::<rustix::io::Result<_>>().map_err(Error::call("wake threads"))?;
        // Without them nothing distinguishes clients.
        let cpus = if threads > 1 { kelvin_sys::cpu::affinity().unwrap_or_default() } else { Vec::new() };
        let (shutdown, deadline) = Default::default();
        Ok(Self { listener, inboxes, shutdown, max_connections, cpus, deadline })
    }

    /// Has all threads end, at the latest at this time.
    pub fn begin_shutdown(&self, deadline: Instant) {
        let _ = self.deadline.set(deadline);
        self.shutdown.store(true, Ordering::Release);
        self.inboxes.iter().for_each(Inbox::wake);
    }

    /// Gives a connection that this thread has accepted to the one that is to serve it. It comes back if that is this one.
    pub fn dispatch(&self, socket: OwnedFd, (own, context): (usize, &mut WorkerContext)) -> Option<OwnedFd> {
        let load = self.connection_count();
        if load >= self.max_connections {
            context.reject(socket, context.site.now());
            return None;
        }
        limit_unsent(&socket, load as usize);
        context.stats.connections += 1;
        let number = self.choose_thread(own, self.affinity_thread(&socket));
        let socket = if number == own { Some(socket) } else { self.inboxes[number].push(socket) };
        if socket.is_some() {
            self.inboxes[own].load.fetch_add(1, Ordering::Relaxed);
        }
        socket
    }

    /// Connections of all threads.
    pub fn connection_count(&self) -> u32 {
        self.inboxes.iter().map(|inbox| inbox.load.load(Ordering::Relaxed)).sum()
    }

    /// The thread that has fewest connections, this one if it has as few as any; before it the one that affinity names, if it has not
    /// many more.
    fn choose_thread(&self, current: usize, affinity: Option<usize>) -> usize {
        let load = |number: usize| self.inboxes[number].load.load(Ordering::Relaxed);
        let least_loaded = (0..self.inboxes.len()).min_by_key(|&number| load(number)).unwrap_or(current);
        match affinity {
            Some(number) if load(number) < load(least_loaded) + AFFINITY_SLACK => number,
            _ if load(current) <= load(least_loaded) => current,
            _ => least_loaded,
        }
    }

    /// The thread for the connections of a client on this host that are on the same CPU. A CPU that the threads may not use
    /// is none where a client and its thread could meet.
    fn affinity_thread(&self, socket: impl AsFd) -> Option<usize> {
        if self.cpus.is_empty() || !is_local(&socket).unwrap_or(false) {
            return None;
        }
        let cpu = sockopt::socket_incoming_cpu(&socket).ok()?;
        let index = self.cpus.iter().position(|&allowed_cpu| allowed_cpu == cpu)?;
        Some(index % self.inboxes.len())
    }
}

impl Inbox {
    fn wake(&self) {
        // A counter that is full has woken the thread already.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    /// Leaves a connection, which comes back if the thread has gone.
    fn push(&self, socket: OwnedFd) -> Option<OwnedFd> {
        let mut queue = lock(&self.queue);
        let Some(sockets) = queue.as_mut() else { return Some(socket) };
        self.load.fetch_add(1, Ordering::Relaxed);
        sockets.push(socket);
        drop(queue);
        self.wake();
        None
    }

    /// Takes who was left there.
    pub fn take_all(&self) -> Vec<OwnedFd> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker, &mut count);
        lock(&self.queue).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes nothing any more, unless somebody waits there: whether it could be closed.
    pub fn try_close(&self) -> bool {
        let mut queue = lock(&self.queue);
        let is_empty = queue.as_ref().is_none_or(Vec::is_empty);
        if is_empty {
            *queue = None;
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::thread;

    use super::*;
    use crate::serve::server::{Server, ServerAccess, ServerSetup};

    fn core() -> (tempfile::TempDir, WorkerCore<&'static str>) {
        let root = tempfile::tempdir().unwrap();
        let server = Server::listen(
            "127.0.0.1:0".parse().unwrap(),
            root.path(),
            ServerSetup::with_threads(1),
            ServerAccess::default(),
        )
        .unwrap();
        let shared = SharedState::new(Arc::clone(&server.service.listener), 1, 9).unwrap();
        (root, WorkerCore::new(0, Arc::new(shared), WorkerContext::new(&server.service)))
    }

    #[test]
    fn freed_slot_is_reused() {
        let (_root, mut core) = core();
        core.inbox().load.store(3, Ordering::Relaxed);
        assert_eq!(["a", "b", "c"].map(|name| core.clients.insert(name)), [0, 1, 2]);
        assert_eq!((core.remove(1), core.remove(1), core.remove(9)), (Some("b"), None, None));
        assert_eq!(core.inbox().load.load(Ordering::Relaxed), 2, "nobody goes twice");
        let clients = &mut core.clients;
        assert_eq!((clients.insert("d"), clients.len()), (1, 3));
        assert_eq!((clients.get_mut(1).copied(), clients.get_mut(3)), (Some("d"), None));
        assert_eq!(clients.get_mut(2), Some(&mut "c"));
    }

    #[test]
    fn drained_without_clients_or_after_deadline() {
        let (_root, mut core) = core();
        let now = core.context.site.now();
        core.shared.begin_shutdown(now + Duration::from_secs(60));
        let number = core.clients.insert("a");
        core.inbox().load.store(1, Ordering::Relaxed);
        assert!(!core.is_done());
        core.has_drained = true;
        assert!(!core.is_done());
        core.context.site.tick(now + Duration::from_secs(60));
        assert!(core.is_done());
        core.context.site.tick(now);
        core.remove(number);
        assert!(core.is_done());
    }

    #[test]
    fn sweep_is_due_once_per_interval() {
        let (_root, mut core) = core();
        let due_time = core.last_sweep + SWEEP_INTERVAL;
        assert!(!core.is_sweep_due(due_time - Duration::from_nanos(1)));
        assert!(core.is_sweep_due(due_time) && !core.is_sweep_due(due_time));
    }

    fn shared_state(threads: usize) -> SharedState {
        SharedState::new(Arc::new(TcpListener::bind("127.0.0.1:0").unwrap()), threads, 99).unwrap()
    }

    #[test]
    fn dispatch_prefers_affinity_then_least_loaded() {
        let shared = shared_state(3);
        for (loads, current, affinity, expected) in [
            ([0, 0, 0], 1, None, 1),
            ([2, 1, 1], 0, None, 1),
            ([2, 1, 1], 2, None, 2),
            ([0, 0, 0], 1, Some(2), 2),
            ([0, 5, 3], 0, Some(2), 2),
            ([0, 5, 4], 1, Some(2), 0),
            ([9, 9, 12], 0, Some(2), 2),
            ([9, 9, 13], 1, Some(2), 1),
        ] {
            shared.inboxes.iter().zip(loads).for_each(|(inbox, load)| inbox.load.store(load, Ordering::Relaxed));
            assert_eq!(shared.choose_thread(current, affinity), expected, "{loads:?} {current} {affinity:?}");
        }
    }

    #[test]
    fn local_connections_follow_client_cpu() {
        let cpus = kelvin_sys::cpu::affinity().unwrap();
        let shared = shared_state(cpus.len() + 1);
        let address = shared.listener.local_addr().unwrap();
        for (index, &cpu) in cpus.iter().enumerate() {
            let client = thread::spawn(move || {
                kelvin_sys::cpu::pin(&[cpu]).unwrap();
                TcpStream::connect(address).unwrap()
            });
            let (socket, _) = shared.listener.accept().unwrap();
            assert_eq!(shared.affinity_thread(&socket), Some(index));
            drop(client.join().unwrap());
        }
        let confined_state = SharedState { cpus: vec![u32::MAX], ..self::shared_state(2) };
        let _client = TcpStream::connect(confined_state.listener.local_addr().unwrap()).unwrap();
        let (socket, _) = confined_state.listener.accept().unwrap();
        assert_eq!(confined_state.affinity_thread(&socket), None, "of a client on a CPU that the threads may not use");
        assert!(self::shared_state(1).cpus.is_empty(), "a single thread accepts from all CPUs");
    }
}
