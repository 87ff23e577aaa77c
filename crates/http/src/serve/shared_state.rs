//! What threads share that each serve many connections: the listening socket, and for each of them an inbox where the others leave
//! connections.
//!
//! All threads wait for the one listening socket, and the kernel wakes one of them for a new connection. That thread gives it to
//! the one that has fewest: with a socket for each thread the kernel would choose by a hash of addresses, and of eight
//! connections one thread would often have six.
//!
//! Of clients on this host those of one CPU go to one thread, as far as the threads stay about equally loaded. A thread of a client
//! that has its connections with one thread of the server wakes no other, and the scheduler keeps the two where they wake each other
//! cheapest; with connections to all of them each request may find its thread asleep on another CPU.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{getpeername, getsockname, sockopt};

use crate::serve::accept::limit_unsent;
use crate::serve::error::{Error, Result};
use crate::serve::worker_context::WorkerContext;

/// Connections that a thread may have more than another one, because their clients are on one CPU: a client that has no more than so
/// many is not worth two threads.
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
    /// For so many threads and connections.
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
        // Without them clients are told apart by nothing.
        let cpus = if threads > 1 { kelvin_sys::cpu::allowed().unwrap_or_default() } else { Vec::new() };
        Ok(Self {
            listener,
            inboxes,
            shutdown: AtomicBool::new(false),
            max_connections,
            cpus,
            deadline: OnceLock::new(),
        })
    }

    /// Has all threads end, at the latest at this time.
    pub fn begin_shutdown(&self, deadline: Instant) {
        let _ = self.deadline.set(deadline);
        self.shutdown.store(true, Ordering::Release);
        self.inboxes.iter().for_each(Inbox::wake);
    }

    /// Whether the time of those is over that have not ended by themselves.
    pub fn is_past_deadline(&self, now: Instant) -> bool {
        self.deadline.get().is_none_or(|deadline| now >= *deadline)
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

    /// The thread that has fewest connections, this one if it has as few as any; before it the one that affinity such connections, if
    /// it has not many more.
    fn choose_thread(&self, own: usize, affinity: Option<usize>) -> usize {
        let load = |number: usize| self.inboxes[number].load.load(Ordering::Relaxed);
        let least = (0..self.inboxes.len()).min_by_key(|&number| load(number)).unwrap_or(own);
        match affinity {
            Some(one) if load(one) < load(least) + AFFINITY_SLACK => one,
            _ if load(own) <= load(least) => own,
            _ => least,
        }
    }

    /// The thread that affinity the connections of a client on this host that are on the same CPU. A CPU that the threads may not use
    /// is none where a client and its thread could meet.
    fn affinity_thread(&self, socket: impl AsFd) -> Option<usize> {
        if self.cpus.is_empty() || !is_local(&socket).unwrap_or(false) {
            return None;
        }
        let cpu = sockopt::socket_incoming_cpu(&socket).ok()?;
        let place = self.cpus.iter().position(|&one| one == cpu)?;
        Some(place % self.inboxes.len())
    }
}

/// Whether both ends of a connection are on this host: then what arrives comes from the CPU of the client.
///
/// # Errors
/// Those of getsockname and getpeername.
pub fn is_local(socket: impl AsFd) -> rustix::io::Result<bool> {
    let own: SocketAddr = getsockname(&socket)?.try_into()?;
    let peer: SocketAddr = getpeername(&socket)?.ok_or(rustix::io::Errno::NOTCONN)?.try_into()?;
    Ok(own.ip() == peer.ip() || peer.ip().to_canonical().is_loopback())
}

impl Inbox {
    fn wake(&self) {
        // A counter that is full has woken the thread already.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    fn lock_queue(&self) -> MutexGuard<'_, Option<Vec<OwnedFd>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a connection, which comes back if the thread has gone.
    fn push(&self, socket: OwnedFd) -> Option<OwnedFd> {
        match &mut *self.lock_queue() {
            Some(left) => {
                self.load.fetch_add(1, Ordering::Relaxed);
                left.push(socket);
            }
            None => return Some(socket),
        }
        self.wake();
        None
    }

    /// Takes who was left there.
    pub fn take_all(&self) -> Vec<OwnedFd> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker, &mut count);
        self.lock_queue().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes nothing any more, unless somebody waits there: whether it could be closed.
    pub fn try_close(&self) -> bool {
        let mut left = self.lock_queue();
        let is_empty = left.as_ref().is_none_or(Vec::is_empty);
        if is_empty {
            *left = None;
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::thread;

    use super::*;

    fn shared_state(threads: usize) -> SharedState {
        SharedState::new(Arc::new(TcpListener::bind("127.0.0.1:0").unwrap()), threads, 99).unwrap()
    }

    #[test]
    fn dispatch_prefers_affinity_then_least_loaded() {
        let shared = shared_state(3);
        for (loads, own, affinity, chosen) in [
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
            assert_eq!(shared.choose_thread(own, affinity), chosen, "{loads:?} {own} {affinity:?}");
        }
    }

    #[test]
    fn local_connections_follow_client_cpu() {
        let cpus = kelvin_sys::cpu::allowed().unwrap();
        let shared = shared_state(cpus.len() + 1);
        let address = shared.listener.local_addr().unwrap();
        for (place, &cpu) in cpus.iter().enumerate() {
            let client = thread::spawn(move || {
                kelvin_sys::cpu::pin(&[cpu]).unwrap();
                TcpStream::connect(address).unwrap()
            });
            let (socket, _) = shared.listener.accept().unwrap();
            assert_eq!(shared.affinity_thread(&socket), Some(place));
            drop(client.join().unwrap());
        }
        let confined = SharedState { cpus: vec![u32::MAX], ..self::shared_state(2) };
        let _client = TcpStream::connect(confined.listener.local_addr().unwrap()).unwrap();
        let (socket, _) = confined.listener.accept().unwrap();
        assert_eq!(confined.affinity_thread(&socket), None, "of a client on a CPU that the threads may not use");
        assert!(self::shared_state(1).cpus.is_empty(), "one thread affinity all");
    }
}
