//! A process for each connection: one process accepts and forks, and each of its children serves one client, with calls that wait.
//!
//! The process that forks is forked itself at the beginning, from a process of one thread, and starts none: so no child has a copy
//! of a lock that another thread held, even if the program starts threads later. Each of them is killed when its parent ends.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::child_set::ChildSet;
use kelvin_sys::clock::monotonic;
use kelvin_sys::process::{Child, ExitKind, fork_worker};
use kelvin_sys::shared_memory::Shared;
use kelvin_sys::{fork_image, terminate};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::serve::accept::{Acceptor, SHUTDOWN_POLL_INTERVAL, limit_unsent};
use crate::serve::counter_slot::CounterSlot;
use crate::serve::error::{Error, Result};
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::listing::ListingCache;
use crate::serve::request_tracker::RequestTracker;
use crate::serve::thread_server::serve_connection;
use crate::serve::worker_context::{ServerTotals, Service, WorkerContext};

/// How often it is looked at the end whether the last children have ended.
const REAP_INTERVAL: Duration = Duration::from_millis(2);

/// What the processes share: what was done, and in the words behind that, what is to be done.
#[derive(Clone, Debug)]
pub struct ForkStatus(Arc<Shared<[AtomicU64; ServerTotals::WORDS + 2]>>);

const SHUTDOWN_WORD: usize = ServerTotals::WORDS;
const REOPEN_WORD: usize = ServerTotals::WORDS + 1;

impl ForkStatus {
    /// Has the process that forks open the directory anew.
    pub fn request_reopen(&self) {
        self.0[REOPEN_WORD].store(1, Ordering::Release);
    }

    /// Adds what a process has done.
    fn add_stats(&self, mut totals: ServerTotals) {
        for (word, amount) in self.0.iter().zip(totals.words()) {
            word.fetch_add(*amount, Ordering::Relaxed);
        }
    }

    fn stats(&self) -> ServerTotals {
        let mut totals = ServerTotals::default();
        totals.words().zip(self.0.iter()).for_each(|(total, word)| *total = word.load(Ordering::Relaxed));
        totals
    }
}

/// The process that forks, as its parent sees it.
#[derive(Debug)]
pub struct ForkServer {
    child: Option<Child>,
    /// What it shares with this process.
    pub status: ForkStatus,
    /// Where it passes its connections, if they are tracked.
    pub fd_receiver: Option<FdReceiver>,
    /// Where it passes lines of the access log, if there is one.
    pub log_receiver: Option<OwnedFd>,
}

impl ForkServer {
    /// Starts it: it accepts from now on.
    ///
    /// # Errors
    /// A process that has other threads; those of fork.
    pub fn start(service: &mut Service) -> Result<Self> {
        let lists = ListingCache::for_processes().map_err(Error::call("make a file in memory"))?;
        service.site.listings = Arc::new(lists);
        let (fd_sender, fd_receiver) = service.sampler.as_ref().map(|_| fd_channel()).transpose()?.unzip();
        let log_channel = service.access_log.as_ref().map(|log| log.forwarding()).transpose()?;
        let (forwarding_log, log_receiver) = log_channel.unzip();
        let access_log = std::mem::replace(&mut service.access_log, forwarding_log.map(Arc::new));
        let threads = fork_image::thread_count().map_err(Error::call("count threads"))?;
        if threads != 1 {
            return Err(Error::ForkWithThreads(threads));
        }
        let shared = Shared::new().map_err(Error::call("share memory with children"))?;
        let status = ForkStatus(Arc::new(shared));
        let accept = || ForkAcceptor::new(service, fd_sender, &status).map_or(1, ForkAcceptor::run);
        let child = fork_worker(accept).map_err(Error::call("fork"))?;
        // Its processes alone hold the other end, so that their last line is followed by the end.
        service.access_log = access_log;
        Ok(Self { child: Some(child), status, fd_receiver, log_receiver })
    }

    /// Waits until it is to end, and until it has.
    ///
    /// # Errors
    /// That it ended otherwise.
    pub fn serve(mut self, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
        while !is_over() && self.child.as_ref().is_some_and(|child| !child.has_ended()) {
            std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
        self.status.0[SHUTDOWN_WORD].store(1, Ordering::Release);
        let exit = self.child.take().map(Child::wait).transpose().map_err(Error::call("wait for a child"))?;
        match exit {
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
        let mut context = WorkerContext::new(service);
        let is_shutting_down = || status.0[SHUTDOWN_WORD].load(Ordering::Acquire) != 0;
        let is_over = || is_shutting_down() || terminate::shutdown_flag().load(Ordering::Acquire);
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

    /// Reports that a connection is gone. What a child has not counted to its end, because it was killed, ends now.
    fn release_slot(&self, slot: &CounterSlot) {
        slot.release(monotonic());
        if let Some((sampler, sender)) = self.service.sampler.as_ref().zip(self.fd_sender.as_ref()) {
            let _ = sender.send(slot.number, None);
            sampler.free_slot(slot.number);
        }
    }

    /// Reaps children that have ended, and returns how many are left.
    fn reap(&mut self) -> usize {
        let mut freed_slots = Vec::new();
        let remaining = self.children.reap(|child| freed_slots.extend(self.slots.remove(&child)));
        freed_slots.iter().for_each(|slot| self.release_slot(slot));
        remaining
    }
}

impl Acceptor for ForkAcceptor<'_> {
    /// Has a child serve a connection.
    fn dispatch(&mut self, socket: OwnedFd, context: &mut WorkerContext) -> Option<OwnedFd> {
        let connections = self.reap();
        let (service, status) = (self.service, self.status);
        if connections >= service.site.limits.connections as usize {
            return Some(socket);
        }
        limit_unsent(&socket, connections);
        let slot = service.sampler.as_ref().and_then(|sampler| sampler.take_slot());
        if let Some((slot, sender)) = slot.as_ref().zip(self.fd_sender.as_ref()) {
            let _ = sender.send(slot.number, Some(&socket));
        }
        let socket = Arc::new(socket);
        let forked = self.children.fork(|| {
            // Copies of what belongs to others.
            context.close_all_lingering();
            let mut context = WorkerContext::new(service);
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
        if self.status.0[REOPEN_WORD].swap(0, Ordering::AcqRel) != 0 {
            // The parent has reported whether its own could be opened.
            let _ = self.service.root.reopen();
            self.service.tls.iter().for_each(|tls| drop(tls.reload()));
        }
    }
}

/// Where the process that accepts passes connections, and reports which have ended.
#[derive(Debug)]
pub struct FdSender(OwnedFd);

/// Where the process that watches is receiver.
#[derive(Debug)]
pub struct FdReceiver(OwnedFd);

/// Both ends.
///
/// # Errors
/// Those of socketpair.
pub fn fd_channel() -> Result<(FdSender, FdReceiver)> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (sender_socket, receiver_socket) = pair.map_err(Error::call("report connections"))?;
    Ok((FdSender(sender_socket), FdReceiver(receiver_socket)))
}

impl FdSender {
    /// Reports a connection that has come and has this slot, by its socket; without one, that the connection of the slot is gone.
    ///
    /// # Errors
    /// Those of sendmsg: the other one has gone.
    pub fn send(&self, slot: usize, socket: Option<&OwnedFd>) -> rustix::io::Result<()> {
        let sockets = socket.map(OwnedFd::as_fd);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let is_attached = sockets.is_none() || ancillary.push(SendAncillaryMessage::ScmRights(sockets.as_slice()));
        debug_assert!(is_attached, "there is room for one descriptor");
        sendmsg(&self.0, &[IoSlice::new(&slot.to_ne_bytes())], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }
}

impl FdReceiver {
    /// Has the connections watched that it receives, until it is over or the other end is closed.
    pub fn run(&self, sampler: &InFlightSampler, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            let is_ready = kelvin_sys::poll::wait_readable(self.0.as_fd(), SHUTDOWN_POLL_INTERVAL);
            match is_ready.map(|is_ready| is_ready.then(|| self.next_message())) {
                Ok(None | Some(Err(Errno::INTR))) => {}
                Ok(Some(Ok(Some((slot, Some(socket)))))) => sampler.track(slot, Arc::new(socket)),
                Ok(Some(Ok(Some((slot, None))))) => sampler.untrack(slot),
                Ok(Some(Ok(None) | Err(_))) | Err(_) => return,
            }
        }
    }

    /// The slot of the next message, with the socket of a connection that has come; nothing at the end. Without a descriptor for it
    /// there is no socket, and the connection is not watched.
    fn next_message(&self) -> rustix::io::Result<Option<(usize, Option<OwnedFd>)>> {
        let mut slot = [0; size_of::<usize>()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut slot)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let sockets = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let socket = sockets.flatten().next();
        Ok((received.bytes == slot.len()).then_some((usize::from_ne_bytes(slot), socket)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn passed_connection_is_tracked_until_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sampler = InFlightSampler::new(&listener, 3).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        std::io::Write::write_all(&mut client, b"GET").unwrap();
        let server: OwnedFd = listener.accept().unwrap().0.into();
        rustix::net::recv(&server, &mut [0], RecvFlags::PEEK).unwrap();
        let (sender, receiver) = fd_channel().unwrap();
        let slot = sampler.take_slot().unwrap().number;
        sender.send(slot, Some(&server)).unwrap();
        drop(sender);
        receiver.run(&sampler, &AtomicBool::new(false));
        assert_eq!(sampler.snapshot(&listener).in_flight_now, 1, "its request waits to be read");
        let (sender, receiver) = fd_channel().unwrap();
        sender.send(slot, None).unwrap();
        drop(sender);
        receiver.run(&sampler, &AtomicBool::new(false));
        assert_eq!(sampler.snapshot(&listener).in_flight_now, 0);
    }
}
