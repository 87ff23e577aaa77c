//! The clients of a thread that serves many, by number, and how connections come to it.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::serve::shared_state::{Inbox, SWEEP_INTERVAL, SharedState};
use crate::serve::worker_context::WorkerContext;

/// The clients of one of several threads. The number of one that has gone is used again.
#[derive(Debug)]
pub struct ClientTable<C> {
    /// The number of the thread.
    thread_index: usize,
    shared: Arc<SharedState>,
    slots: Vec<Option<C>>,
    free: Vec<usize>,
    last_sweep: Instant,
}

impl<C> ClientTable<C> {
    /// None yet.
    pub fn new(own: usize, house: Arc<SharedState>) -> Self {
        Self { thread_index: own, shared: house, slots: Vec::new(), free: Vec::new(), last_sweep: Instant::now() }
    }

    /// Where others leave connections for this thread.
    pub fn inbox(&self) -> &Inbox {
        &self.shared.inboxes[self.thread_index]
    }

    /// Enters the client that is made for a number, which it gets.
    pub fn insert(&mut self, make: impl FnOnce(usize) -> C) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[number] = Some(make(number));
        number
    }

    /// The client of this number, if there is one.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&C> {
        self.slots.get(number)?.as_ref()
    }

    /// The same, to be served.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut C> {
        self.slots.get_mut(number)?.as_mut()
    }

    /// Lets a client go, if it is still there.
    pub fn remove(&mut self, number: usize) -> Option<C> {
        let client = self.slots.get_mut(number)?.take()?;
        self.free.push(number);
        self.inbox().load.fetch_sub(1, Ordering::Relaxed);
        Some(client)
    }

    /// All numbers, some of which nobody may have.
    pub fn indices(&self) -> Range<usize> {
        0..self.slots.len()
    }

    /// Whether the thread may go, once it accepts nobody: nobody is left, or there is no more time.
    pub fn is_drained(&self, now: Instant) -> bool {
        self.shared.is_past_deadline(now) || (self.slots.iter().all(Option::is_none) && self.inbox().try_close())
    }

    /// Whether it is time again to look whose time is over.
    pub fn is_sweep_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.last_sweep) >= SWEEP_INTERVAL;
        if is_due {
            self.last_sweep = now;
        }
        is_due
    }
}

/// A thread that serves many clients, as connections come to it.
pub trait EventLoop {
    /// A client.
    type Client;

    /// Its clients, and what it serves them with.
    fn clients_and_context(&mut self) -> (&ClientTable<Self::Client>, &mut WorkerContext);

    /// Serves a connection from now on.
    fn add_client(&mut self, socket: OwnedFd);

    /// Gives a connection that this thread has accepted to the one that is to serve it.
    fn dispatch(&mut self, socket: OwnedFd) {
        let (clients, hall) = self.clients_and_context();
        if let Some(socket) = clients.shared.dispatch(socket, (clients.thread_index, hall)) {
            self.add_client(socket);
        }
    }

    /// Takes what others have left for it.
    fn drain_inbox(&mut self) {
        self.clients_and_context().0.inbox().take_all().into_iter().for_each(|socket| self.add_client(socket));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn clients() -> ClientTable<&'static str> {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        ClientTable::new(0, Arc::new(SharedState::new(listener, 1, 9).unwrap()))
    }

    #[test]
    fn freed_slot_is_reused() {
        let mut clients = clients();
        clients.inbox().load.store(3, Ordering::Relaxed);
        assert_eq!(["a", "b", "c"].map(|name| clients.insert(|_| name)), [0, 1, 2]);
        assert_eq!((clients.remove(1), clients.remove(1), clients.remove(9)), (Some("b"), None, None));
        assert_eq!(clients.inbox().load.load(Ordering::Relaxed), 2, "nobody goes twice");
        assert_eq!((clients.insert(|number| if number == 1 { "d" } else { "" }), clients.indices()), (1, 0..3));
        assert_eq!((clients.get(1), clients.get(3)), (Some(&"d"), None));
        assert_eq!(clients.get_mut(2), Some(&mut "c"));
    }

    #[test]
    fn drained_without_clients_or_after_deadline() {
        let now = Instant::now();
        let mut clients = clients();
        clients.shared.begin_shutdown(now + Duration::from_secs(60));
        let number = clients.insert(|_| "a");
        clients.inbox().load.store(1, Ordering::Relaxed);
        assert!(!clients.is_drained(now) && clients.is_drained(now + Duration::from_secs(60)));
        clients.remove(number);
        assert!(clients.is_drained(now));
    }

    #[test]
    fn sweep_is_due_once_per_interval() {
        let mut clients = clients();
        let later = clients.last_sweep + SWEEP_INTERVAL;
        assert!(!clients.is_sweep_due(later - Duration::from_nanos(1)));
        assert!(clients.is_sweep_due(later) && !clients.is_sweep_due(later));
    }
}
