//! The clients of a thread that serves many, by number, and how connections come to it.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::hall::Hall;
use crate::house::{Desk, House, SWEEP};

/// The clients of one of several threads. The number of one that has gone is used again.
#[derive(Debug)]
pub struct Clients<C> {
    /// The number of the thread.
    own: usize,
    house: Arc<House>,
    places: Vec<Option<C>>,
    free: Vec<usize>,
    swept: Instant,
}

impl<C> Clients<C> {
    /// None yet.
    pub fn none(own: usize, house: Arc<House>) -> Self {
        Self { own, house, places: Vec::new(), free: Vec::new(), swept: Instant::now() }
    }

    /// Where others leave connections for this thread.
    pub fn desk(&self) -> &Desk {
        &self.house.desks[self.own]
    }

    /// Enters the client that is made for a number, which it gets.
    pub fn enter(&mut self, make: impl FnOnce(usize) -> C) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[number] = Some(make(number));
        number
    }

    /// The client of this number, if there is one.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&C> {
        self.places.get(number)?.as_ref()
    }

    /// The same, to be served.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut C> {
        self.places.get_mut(number)?.as_mut()
    }

    /// Lets a client go, if it is still there.
    pub fn remove(&mut self, number: usize) -> Option<C> {
        let client = self.places.get_mut(number)?.take()?;
        self.free.push(number);
        self.desk().load.fetch_sub(1, Ordering::Relaxed);
        Some(client)
    }

    /// All numbers, some of which nobody may have.
    pub fn numbers(&self) -> Range<usize> {
        0..self.places.len()
    }

    /// Whether the thread may go, once it accepts nobody: nobody is left, or there is no more time.
    pub fn are_done(&self, now: Instant) -> bool {
        self.house.is_late(now) || (self.places.iter().all(Option::is_none) && self.desk().close())
    }

    /// Whether it is time again to look whose time is over.
    pub fn are_to_be_swept(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.swept) >= SWEEP;
        if is_due {
            self.swept = now;
        }
        is_due
    }
}

/// A thread that serves many clients, as connections come to it.
pub trait Serves {
    /// A client.
    type Client;

    /// Its clients, and what it serves them with.
    fn parts(&mut self) -> (&Clients<Self::Client>, &mut Hall);

    /// Serves a connection from now on.
    fn enter(&mut self, socket: OwnedFd);

    /// Gives a connection that this thread has accepted to the one that is to serve it.
    fn place(&mut self, socket: OwnedFd) {
        let (clients, hall) = self.parts();
        if let Some(socket) = clients.house.place(socket, (clients.own, hall)) {
            self.enter(socket);
        }
    }

    /// Takes what others have left for it.
    fn admit(&mut self) {
        self.parts().0.desk().take().into_iter().for_each(|socket| self.enter(socket));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn clients() -> Clients<&'static str> {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        Clients::none(0, Arc::new(House::new(listener, 1, 9).unwrap()))
    }

    #[test]
    fn numbers_of_those_who_have_gone_are_used_again() {
        let mut clients = clients();
        clients.desk().load.store(3, Ordering::Relaxed);
        assert_eq!(["a", "b", "c"].map(|name| clients.enter(|_| name)), [0, 1, 2]);
        assert_eq!((clients.remove(1), clients.remove(1), clients.remove(9)), (Some("b"), None, None));
        assert_eq!(clients.desk().load.load(Ordering::Relaxed), 2, "nobody goes twice");
        assert_eq!((clients.enter(|number| if number == 1 { "d" } else { "" }), clients.numbers()), (1, 0..3));
        assert_eq!((clients.get(1), clients.get(3)), (Some(&"d"), None));
        assert_eq!(clients.get_mut(2), Some(&mut "c"));
    }

    #[test]
    fn a_thread_may_go_when_nobody_is_left_or_no_time() {
        let now = Instant::now();
        let mut clients = clients();
        clients.house.end(now + Duration::from_secs(60));
        let number = clients.enter(|_| "a");
        clients.desk().load.store(1, Ordering::Relaxed);
        assert!(!clients.are_done(now) && clients.are_done(now + Duration::from_secs(60)));
        clients.remove(number);
        assert!(clients.are_done(now));
    }

    #[test]
    fn clients_are_swept_once_in_a_while() {
        let mut clients = clients();
        let later = clients.swept + SWEEP;
        assert!(!clients.are_to_be_swept(later - Duration::from_nanos(1)));
        assert!(clients.are_to_be_swept(later) && !clients.are_to_be_swept(later));
    }
}
