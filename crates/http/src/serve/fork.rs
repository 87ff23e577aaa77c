//! A process for each connection: one process accepts and forks, and each of its children serves one client, with calls that wait.
//!
//! The process that forks is forked itself at the beginning, from a process of one thread, and starts none: so no child has a copy
//! of a lock that another thread held, whatever threads the program starts later. Each of them is killed when its parent ends.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::child_set::ChildSet;
use kelvin_sys::clock::monotonic;
use kelvin_sys::process::{Child, ExitKind, fork_worker};
use kelvin_sys::shared_memory::Shared;
use kelvin_sys::{fork_image, terminate};

use crate::serve::accept::{Acceptor, limit_unsent};
use crate::serve::blocking::serve_connection;
use crate::serve::connection_counters::CounterSlot;
use crate::serve::error::{Error, Result};
use crate::serve::fd_passing::{FdSender, fd_channel};
use crate::serve::listing::ListingCache;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::send_strategy::bulk_method::BulkStats;
use crate::serve::server::{DescriptorHolders, SHUTDOWN_POLL_INTERVAL, Server, ServerTotals, Service, ServingModel};
use crate::serve::worker_context::WorkerContext;

/// How often it is looked at the end whether the last children have ended.
const REAP_INTERVAL: Duration = Duration::from_millis(2);

/// [`ServerModel::Fork`](crate::serve::ServerModel::Fork).
pub struct ForkModel;

impl ServingModel for ForkModel {
    fn descriptor_holders(&self) -> DescriptorHolders {
        DescriptorHolders::Processes
    }

    fn prepare(&self, server: &mut Server) -> Result<()> {
        let lists = ListingCache::for_processes().map_err(Error::call("make a file in memory"))?;
        server.service.site.listings = Arc::new(lists);
        let channel = server.service.sampler.as_ref().map(|_| fd_channel()).transpose()?;
        let (sender, receiver) = channel.unzip();
        server.fork_server = Some(ForkServer::start(&server.service, sender)?);
        server.fd_receiver = receiver;
        Ok(())
    }

    fn serve(&self, server: Server, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
        server.fork_server.map_or(Ok(ServerTotals::default()), |processes| processes.serve(is_over))
    }
}

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
    fn start(service: &Service, fd_sender: Option<FdSender>) -> Result<Self> {
        let threads = fork_image::thread_count().map_err(Error::call("count threads"))?;
        if threads != 1 {
            return Err(Error::ForkWithThreads(threads));
        }
        let status = ForkStatus::new()?;
        let accept = || ForkAcceptor::new(service, fd_sender, &status).map_or(1, ForkAcceptor::run);
        let child = fork_worker(accept).map_err(Error::call("fork"))?;
        Ok(Self { child: Some(child), status })
    }

    /// What it shares with this process.
    pub fn status(&self) -> ForkStatus {
        self.status.clone()
    }

    /// Waits until it is to end, and until it has.
    ///
    /// # Errors
    /// That it ended otherwise.
    fn serve(mut self, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
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
struct ForkAcceptor<'s> {
    service: &'s Service,
    /// Where it passes connections, if they are tracked.
    fd_sender: Option<FdSender>,
    status: &'s ForkStatus,
    children: ChildSet,
    /// The slots of those children whose connections are tracked.
    slots: HashMap<i32, CounterSlot>,
}

impl<'s> ForkAcceptor<'s> {
    fn new(service: &'s Service, fd_sender: Option<FdSender>, status: &'s ForkStatus) -> kelvin_sys::Result<Self> {
        terminate::install_handler()?;
        Ok(Self { service, fd_sender, status, children: ChildSet::new()?, slots: HashMap::new() })
    }

    /// Serves until it is to end: its exit status.
    fn run(mut self) -> u8 {
        let (service, status) = (self.service, self.status);
        let mut context = service.new_context();
        let is_over = || status.is_shutting_down() || terminate::shutdown_flag().load(Ordering::Acquire);
        if self.accept_until(is_over, &service.listener, &mut context).is_err() {
            return 1;
        }
        // All clients that wait for a request end, and who is left after the time for the others is dropped.
        let until = Instant::now() + service.site.limits.drain_timeout;
        self.children.terminate_all();
        while self.reap() > 0 && Instant::now() < until {
            std::thread::sleep(REAP_INTERVAL);
        }
        status.add_stats(context.take_stats());
        0
    }

    /// Says that a connection is gone. What a child has not counted to its end, because it was killed, ends now.
    fn release_slot(&self, slot: &CounterSlot) {
        slot.release(monotonic());
        if let Some((sampler, sender)) = self.service.sampler.as_ref().zip(self.fd_sender.as_ref()) {
            let _ = sender.send_close(slot.number());
            sampler.free_slot(slot.number());
        }
    }

    /// Reaps children that have ended, and says how many are left.
    fn reap(&mut self) -> usize {
        let mut ended = Vec::new();
        let left = self.children.reap(|child| ended.push(child));
        for child in ended {
            if let Some(slot) = self.slots.remove(&child) {
                self.release_slot(&slot);
            }
        }
        left
    }
}

impl Acceptor for ForkAcceptor<'_> {
    /// Has a child serve a connection.
    fn dispatch(&mut self, socket: OwnedFd, context: &mut WorkerContext) -> Option<OwnedFd> {
        let connections = self.reap();
        let (service, status) = (self.service, self.status);
        if connections >= service.max_connections() as usize {
            return Some(socket);
        }
        limit_unsent(&socket, connections);
        let slot = service.sampler.as_ref().and_then(|sampler| sampler.take_slot());
        if let Some((slot, sender)) = slot.as_ref().zip(self.fd_sender.as_ref()) {
            let _ = sender.send_open(slot.number(), &socket);
        }
        let socket = Arc::new(socket);
        let forked = self.children.fork(|| {
            // Copies of what belongs to others.
            context.close_all_lingering();
            let mut context = service.new_context();
            let receiving = terminate::InterruptibleSocket::new(&socket);
            let tracker = slot.clone().map(|slot| RequestTracker::new(slot, Arc::clone(&socket), None));
            serve_connection(&socket, tracker, &mut context, terminate::shutdown_flag());
            drop(receiving);
            status.add_stats(context.take_stats());
            0
        });
        if let Ok(child) = forked {
            context.stats.connections += 1;
            slot.and_then(|slot| self.slots.insert(child, slot));
            return None;
        }
        slot.iter().for_each(|slot| self.release_slot(slot));
        Arc::into_inner(socket)
    }

    fn poll(&mut self) {
        self.reap();
        if self.status.take_reopen_request() {
            // The parent has told whether its own could be opened.
            let _ = self.service.root.reopen();
        }
    }
}
