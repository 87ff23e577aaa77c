//! The places of a receiver: so many for connections before the handshake is over, by network, and so many for senders.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kelvin_wire::Error;
use kelvin_wire::places::{Places, Room};

/// Places for connections whose handshake is not over.
#[derive(Clone, Debug)]
pub(crate) struct Newcomers {
    places: Arc<Mutex<Places<Arc<TcpStream>>>>,
    most: usize,
}

impl Newcomers {
    pub(crate) fn new(room: Room) -> Self {
        // Threads of connections that have lost their places may not have ended yet: as many again.
        Self { places: Arc::new(Mutex::new(Places::new(room))), most: 2 * room.all }
    }

    /// A place for this connection, if there is one. Whoever has to leave for it is disconnected.
    pub(crate) fn take(&self, stream: &TcpStream, from: SocketAddr) -> Option<Newcomer> {
        if Arc::strong_count(&self.places) > self.most {
            return None;
        }
        let stream = Arc::new(stream.try_clone().ok()?);
        let mut places = taken(&self.places);
        let (place, evicted) = places.vacate(from)?;
        if let Some(evicted) = evicted {
            // One that is gone already needs no more.
            let _ = evicted.shutdown(Shutdown::Both);
        }
        places.give(place, Arc::clone(&stream));
        Some(Newcomer { places: Arc::clone(&self.places), stream })
    }
}

/// A connection with a place, which it leaves when dropped.
#[derive(Debug)]
pub(crate) struct Newcomer {
    places: Arc<Mutex<Places<Arc<TcpStream>>>>,
    stream: Arc<TcpStream>,
}

impl Newcomer {
    /// Why its handshake failed: if it lost its place, because of that.
    pub(crate) fn why(&self, error: Error) -> Error {
        let is_here = taken(&self.places).iter().any(|stream| Arc::ptr_eq(stream, &self.stream));
        if is_here { error } else { Error::Crowded }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        taken(&self.places).sift(|stream| (!Arc::ptr_eq(&stream, &self.stream)).then_some(stream));
    }
}

fn taken(places: &Mutex<Places<Arc<TcpStream>>>) -> MutexGuard<'_, Places<Arc<TcpStream>>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places for senders, of which each can be taken once.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    taken: Arc<AtomicUsize>,
    all: usize,
}

impl Seats {
    pub(crate) fn new(all: usize) -> Self {
        Self { taken: Arc::default(), all }
    }

    /// One of them, if one is free; given back when dropped.
    pub(crate) fn take(&self) -> Option<Seat> {
        let one_more = |taken: usize| (taken < self.all).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        took.is_ok().then(|| Seat(Arc::clone(&self.taken)))
    }
}

/// A taken place.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_place_is_taken_once_and_given_back() {
        let seats = Seats::new(2);
        let (one, _two) = (seats.take().unwrap(), seats.take().unwrap());
        assert!(seats.take().is_none() && seats.clone().take().is_none());
        drop(one);
        assert!(seats.take().is_some());
    }

    #[test]
    fn the_oldest_newcomer_of_a_network_is_disconnected_for_the_next_and_learns_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
        let newcomers = Newcomers::new(Room { all: 3, of_one_network: 2, ..Room::default() });
        let from = |address: &str| format!("{address}:1").parse().unwrap();
        let (mut near, far) = connect();
        let first = newcomers.take(&far, from("10.0.0.1")).unwrap();
        let second = newcomers.take(&connect().1, from("10.0.0.1")).unwrap();
        let _third = newcomers.take(&connect().1, from("10.0.0.1")).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        assert!(matches!((first.why(Error::Gone), second.why(Error::Gone)), (Error::Crowded, Error::Gone)));
        let _fourth = newcomers.take(&connect().1, from("10.0.0.2")).unwrap();
        assert!(newcomers.take(&connect().1, from("10.0.0.3")).is_none(), "all places are taken");
        drop((first, second));
        assert!(newcomers.take(&connect().1, from("10.0.0.3")).is_some());
    }

    #[test]
    fn those_that_lost_their_places_and_are_still_there_are_no_more_than_there_are_places() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let newcomers = Newcomers::new(Room { all: 3, of_one_network: 2, ..Room::default() });
        let from = "10.0.0.1:1".parse().unwrap();
        let there: Vec<_> = std::iter::from_fn(|| newcomers.take(&stream, from)).take(100).collect();
        assert_eq!(there.len(), 6);
    }
}
