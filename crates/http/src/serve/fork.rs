//! A process for each connection: one process accepts and forks, and each of its children serves one client, with calls that wait.
//!
//! The process that forks is forked itself at the beginning, from a process of one thread, and starts none: so no child has a copy
//! of a lock that another thread held, whatever threads the program starts later. Each of them is killed when its parent ends.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::child_set::ChildSet;
use kelvin_sys::clock::monotonic;
use kelvin_sys::process::{Child, ExitKind, fork_worker};
use kelvin_sys::shared_memory::Shared;
use kelvin_sys::{fork_image, poll, terminate};

use crate::serve::accept::{accept_batch, limit_unsent};
use crate::serve::blocking::serve_connection;
use crate::serve::connection_counters::CounterSlot;
use crate::serve::document_root::DocumentRoot;
use crate::serve::error::{Error, Result};
use crate::serve::fd_passing::FdSender;
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::send_strategy::bulk_method::BulkStats;
use crate::serve::server::{FINAL_ACCEPTS, SHUTDOWN_POLL_INTERVAL, ServerTotals, close_listener};
use crate::serve::worker_context::WorkerContext;

/// How often it is looked at the end whether the last children have ended.
const REAP_INTERVAL: Duration = Duration::from_millis(2);

/// What the processes tell each other.
#[derive(Clone, Debug)]
pub struct ForkStatus(Arc<Shared<[AtomicU64; 6 + BulkStats::WORDS]>>);

impl ForkStatus {
    fn new() -> Result<Self> {
        Shared::new().map(|shared| Self(Arc::new(shared))).map_err(Error::call("share memory with children"))
    }

    fn request_shutdown(&self) {
        self.0[4].store(1, Ordering::Release);
    }

    fn is_shutting_down(&self) -> bool {
        self.0[4].load(Ordering::Acquire) != 0
    }

    /// Has the process that forks open the directory anew.
    pub fn request_reopen(&self) {
        self.0[5].store(1, Ordering::Release);
    }

    fn take_reopen_request(&self) -> bool {
        self.0[5].swap(0, Ordering::AcqRel) != 0
    }

    /// Adds what a process has done.
    fn add_stats(&self, served: ServerTotals) {
        let ServerTotals { requests, bytes, connections, refused, bulk: choices } = served;
        let cells = self
            .0
            .iter()
            .zip([requests, bytes, connections, refused])
            .chain(self.0[6..].iter().zip(choices.to_words()));
        for (cell, more) in cells {
            cell.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn stats(&self) -> ServerTotals {
        let cells = self.0.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        let [requests, bytes, connections, refused, ..] = cells;
        let choices = BulkStats::from_words(std::array::from_fn(|word| cells[6 + word]));
        ServerTotals { requests, bytes, connections, refused, bulk: choices }
    }
}

/// What the process that forks needs.
pub struct ForkConfig<H> {
    /// Makes what a child needs.
    pub make_context: H,
    /// The directory that is served.
    pub root: Arc<DocumentRoot>,
    /// The socket that listens, without waiting.
    pub listener: Arc<TcpListener>,
    /// Most connections at one time.
    pub max_connections: u32,
    /// Time for them to end.
    pub drain_timeout: Duration,
    /// Where they are registered, if they are watched, and where that is told.
    pub tracking: Option<(Arc<InFlightSampler>, FdSender)>,
}

/// The process that forks, as its parent sees it.
#[derive(Debug)]
pub struct ForkServer {
    child: Option<Child>,
    status: ForkStatus,
}

impl ForkServer {
    /// Starts it: it accepts from now on.
    ///
    /// # Errors
    /// A process that has other threads; those of fork.
    pub fn start<H: Fn() -> WorkerContext>(house: ForkConfig<H>) -> Result<Self> {
        let threads = fork_image::thread_count().map_err(Error::call("count threads"))?;
        if threads != 1 {
            return Err(Error::ForkWithThreads(threads));
        }
        let board = ForkStatus::new()?;
        let own = board.clone();
        let child =
            fork_worker(|| ForkAcceptor::new(house, own).map_or(1, ForkAcceptor::run)).map_err(Error::call("fork"))?;
        Ok(Self { child: Some(child), status: board })
    }

    /// What it shares with this process.
    pub fn status(&self) -> ForkStatus {
        self.status.clone()
    }

    /// Waits until it is to end, and until it has.
    ///
    /// # Errors
    /// That it ended otherwise.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        while !is_over() && self.child.as_ref().is_some_and(|child| !child.has_ended()) {
            std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
        self.status.request_shutdown();
        let ended = self.child.take().map(Child::wait).transpose().map_err(Error::call("wait for a child"))?;
        match ended {
            None | Some(ExitKind::Exited(0)) => Ok(self.status.stats()),
            Some(ExitKind::Exited(_)) => Err(Error::ForkServerEnded("failed".into())),
            Some(ExitKind::Signalled(signal)) => Err(Error::ForkServerEnded(format!("was ended by signal {signal}"))),
        }
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // Its own children end with it.
        self.child.iter().for_each(Child::kill);
    }
}

/// The process that forks.
struct ForkAcceptor<H> {
    config: ForkConfig<H>,
    status: ForkStatus,
    children: ChildSet,
    /// The slots of those children whose connections are watched.
    slots: HashMap<i32, CounterSlot>,
}

impl<H: Fn() -> WorkerContext> ForkAcceptor<H> {
    fn new(house: ForkConfig<H>, board: ForkStatus) -> kelvin_sys::Result<Self> {
        terminate::install_handler()?;
        Ok(Self { config: house, status: board, children: ChildSet::new()?, slots: HashMap::new() })
    }

    /// Serves until it is to end: its exit status.
    fn run(mut self) -> u8 {
        let mut door = (self.config.make_context)();
        while !self.is_shutting_down() {
            match poll::wait_readable(self.config.listener.as_fd(), SHUTDOWN_POLL_INTERVAL) {
                Ok(true) => drop(self.accept_pending(&mut door)),
                Ok(false) => {}
                Err(_) => return 1,
            }
            self.reap();
            if self.status.take_reopen_request() {
                // The parent has told whether its own could be opened.
                let _ = self.config.root.reopen();
            }
            door.close_lingering(Instant::now());
        }
        for _ in 0..FINAL_ACCEPTS {
            if !self.accept_pending(&mut door) {
                break;
            }
        }
        close_listener(&self.config.listener);
        self.drain();
        self.status.add_stats(door.take_stats());
        0
    }

    fn is_shutting_down(&self) -> bool {
        self.status.is_shutting_down() || terminate::shutdown_flag().load(Ordering::Acquire)
    }

    fn accept_pending(&mut self, door: &mut WorkerContext) -> bool {
        let listener = Arc::clone(&self.config.listener);
        accept_batch(&listener, door, |socket, door| self.fork_child(socket, door))
    }

    /// Has a child serve a connection; it comes back if none can.
    fn fork_child(&mut self, socket: OwnedFd, door: &mut WorkerContext) -> Option<OwnedFd> {
        let connections = self.reap();
        if connections >= self.config.max_connections as usize {
            return Some(socket);
        }
        limit_unsent(&socket, connections);
        let (slot, socket) = (self.register(&socket), Arc::new(socket));
        let Self { config: house, status: board, children, .. } = self;
        let forked = children.fork(|| {
            // Copies of what belongs to others.
            door.close_all_lingering();
            serve_in_child((&socket, slot.clone()), (house.make_context)(), board)
        });
        if let Ok(child) = forked {
            door.stats.connections += 1;
            slot.and_then(|slot| self.slots.insert(child, slot));
            return None;
        }
        slot.iter().for_each(|slot| self.release_slot(slot));
        Arc::into_inner(socket)
    }

    /// Registers a connection, if they are watched.
    fn register(&self, socket: &OwnedFd) -> Option<CounterSlot> {
        let (watch, teller) = self.config.tracking.as_ref()?;
        let slot = watch.take_slot()?;
        let _ = teller.send_open(slot.number(), socket);
        Some(slot)
    }

    /// Says that a connection is gone. What a child has not counted to its end, because it was killed, ends now.
    fn release_slot(&self, slot: &CounterSlot) {
        slot.release(monotonic());
        if let Some((watch, teller)) = &self.config.tracking {
            let _ = teller.send_close(slot.number());
            watch.free_slot(slot.number());
        }
    }

    /// Reaps children that have ended, and says how many are left.
    fn reap(&mut self) -> usize {
        let mut ended = Vec::new();
        let left = self.children.reap(|child| ended.push(child));
        let slots: Vec<CounterSlot> = ended.iter().filter_map(|child| self.slots.remove(child)).collect();
        slots.iter().for_each(|slot| self.release_slot(slot));
        left
    }

    /// Has all clients that wait for a request end, and waits for the others, at the longest so long; who is left then is dropped.
    fn drain(&mut self) {
        let until = Instant::now() + self.config.drain_timeout;
        self.children.terminate_all();
        while self.reap() > 0 && Instant::now() < until {
            std::thread::sleep(REAP_INTERVAL);
        }
    }
}

/// Serves a client, in a process of its own: its exit status.
fn serve_in_child(
    (socket, slot): (&Arc<OwnedFd>, Option<CounterSlot>),
    mut hall: WorkerContext,
    board: &ForkStatus,
) -> u8 {
    let receiving = terminate::InterruptibleSocket::new(socket);
    let registered = slot.map(|slot| RequestTracker::new(slot, Arc::clone(socket), None));
    serve_connection((socket, registered), &mut hall, terminate::shutdown_flag());
    drop(receiving);
    board.add_stats(hall.take_stats());
    0
}
