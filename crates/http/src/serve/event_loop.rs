//! Threads that each serve many clients: what they have in common, however they wait and send.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_sys::thread_spawn::ThreadBuilder;
use rustix::net::SocketFlags;
use slab::Slab;

use crate::serve::accept::{BatchEnd, FINAL_BATCHES, accept_batch};
use crate::serve::error::{Error, Result};
use crate::serve::server::{SHUTDOWN_POLL_INTERVAL, ServerTotals, Service, close_listener};
use crate::serve::shared_state::{Inbox, SharedState};
use crate::serve::worker_context::{ClientState, Overdue, WorkerContext};

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
    /// Whether it was told to end, and has ended what is idle.
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
        self.has_drained && (self.shared.is_past_deadline(self.context.site.now()) || is_empty())
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

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// It waits for an event.
    Wait,
    /// It goes on when others have had their turn.
    Requeue,
    /// It is gone.
    Gone,
}

/// A client of such a thread.
pub trait EventClient {
    fn state(&mut self) -> &mut ClientState;

    /// Whether an operation of it is not done, for which it waits.
    fn is_busy(&self) -> bool {
        false
    }
}

/// How such a thread waits and sends.
pub trait EventLoop: Sized {
    type Client: EventClient;

    /// How connections are accepted at the end.
    const SOCKET_FLAGS: SocketFlags;

    /// A thread that accepts connections, made by itself.
    ///
    /// # Errors
    /// Those of the calls that it waits by.
    fn new(core: WorkerCore<Self::Client>) -> Result<Self>;

    fn core(&mut self) -> &mut WorkerCore<Self::Client>;

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

    /// Once it was told to end, takes whoever has connected, accepts nobody further, and ends connections that are between two requests.
    /// From then on every answer is the last one of its connection.
    fn drain_on_shutdown(&mut self) {
        let core = self.core();
        if core.has_drained || !core.shared.shutdown.load(Ordering::Acquire) {
            return;
        }
        self.stop_accepting();
        let listener = Arc::clone(&self.core().shared.listener);
        let _ = listener.set_nonblocking(true);
        for _ in 0..FINAL_BATCHES {
            if self.accept_pending() != BatchEnd::Full {
                break;
            }
        }
        close_listener(&listener);
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
            let is_busy = client.is_busy();
            match client.state().check_deadlines(&core.context.site, is_busy) {
                Overdue::Nothing => {}
                Overdue::Request => self.drive_client(number),
                Overdue::Connection => self.remove_client(number),
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
    let shared = SharedState::new(Arc::clone(&service.listener), service.threads, service.max_connections())?;
    let shared = Arc::new(shared);
    let start = |number| {
        let (shared, context) = (Arc::clone(&shared), service.new_context());
        ThreadBuilder::named("serve").start(move || W::new(WorkerCore::new(number, shared, context)).map(W::run))
    };
    let threads: std::io::Result<Vec<_>> = (0..service.threads).map(start).collect();
    let goes_on = |threads: &Vec<JoinHandle<_>>| !threads.iter().any(JoinHandle::is_finished);
    while threads.as_ref().is_ok_and(goes_on) && !is_over() {
        std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
    }
    shared.begin_shutdown(Instant::now() + service.site.limits.drain_timeout);
    let threads = threads.map_err(Error::SpawnThread)?;
    let mut served = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(ServerTotals::default())));
    served.try_fold(ServerTotals::default(), |sum, served| Ok(sum + served?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::server::{Server, ServerSetup};

    fn core() -> (tempfile::TempDir, WorkerCore<&'static str>) {
        let top = tempfile::tempdir().unwrap();
        let server = Server::listen("127.0.0.1:0".parse().unwrap(), top.path(), ServerSetup::with_threads(1)).unwrap();
        let shared = SharedState::new(Arc::clone(&server.service.listener), 1, 9).unwrap();
        (top, WorkerCore::new(0, Arc::new(shared), server.service.new_context()))
    }

    #[test]
    fn freed_slot_is_reused() {
        let (_top, mut core) = core();
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
        let (_top, mut core) = core();
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
        let (_top, mut core) = core();
        let later = core.last_sweep + SWEEP_INTERVAL;
        assert!(!core.is_sweep_due(later - Duration::from_nanos(1)));
        assert!(core.is_sweep_due(later) && !core.is_sweep_due(later));
    }
}
