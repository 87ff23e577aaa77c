//! The places of a receiver: so many for connections before the handshake is over, by network, and so many for senders.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wire::Error;
use crate::wire::admission::{AdmissionLimits, AdmissionTable};

/// Places for connections whose handshake is not over.
#[derive(Clone, Debug)]
pub(crate) struct PendingConnections {
    table: Arc<Mutex<AdmissionTable<Arc<TcpStream>>>>,
    capacity: usize,
}

impl PendingConnections {
    pub(crate) fn new(room: AdmissionLimits) -> Self {
        // Threads of connections that have lost their places may not have ended yet: as many again.
        Self { table: Arc::new(Mutex::new(AdmissionTable::new(room))), capacity: 2 * room.total }
    }

    /// A place for this connection, if there is one. Whoever has to leave for it is disconnected.
    pub(crate) fn admit(&self, stream: &TcpStream, from: SocketAddr) -> Option<PendingConnection> {
        if Arc::strong_count(&self.table) > self.capacity {
            return None;
        }
        let stream = Arc::new(stream.try_clone().ok()?);
        let mut places = lock_table(&self.table);
        let (place, evicted) = places.reserve(from)?;
        if let Some(evicted) = evicted {
            // One that is gone already needs no more.
            let _ = evicted.shutdown(Shutdown::Both);
        }
        places.occupy(place, Arc::clone(&stream));
        Some(PendingConnection { table: Arc::clone(&self.table), stream })
    }
}

/// A connection with a place, which it leaves when dropped.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    table: Arc<Mutex<AdmissionTable<Arc<TcpStream>>>>,
    stream: Arc<TcpStream>,
}

impl PendingConnection {
    /// Why its handshake failed: if it lost its place, because of that.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let is_here = lock_table(&self.table).iter().any(|stream| Arc::ptr_eq(stream, &self.stream));
        if is_here { error } else { Error::TooManyPending }
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        lock_table(&self.table).retain(|stream| (!Arc::ptr_eq(&stream, &self.stream)).then_some(stream));
    }
}

fn lock_table(places: &Mutex<AdmissionTable<Arc<TcpStream>>>) -> MutexGuard<'_, AdmissionTable<Arc<TcpStream>>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places for senders, of which each can be taken once.
#[derive(Clone, Debug)]
pub(crate) struct SlotPool {
    taken: Arc<AtomicUsize>,
    capacity: usize,
}

impl SlotPool {
    pub(crate) fn new(all: usize) -> Self {
        Self { taken: Arc::default(), capacity: all }
    }

    /// One of them, if one is free; given back when dropped.
    pub(crate) fn acquire(&self) -> Option<PoolSlot> {
        let one_more = |taken: usize| (taken < self.capacity).then_some(taken + 1);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        took.is_ok().then(|| PoolSlot(Arc::clone(&self.taken)))
    }
}

/// A taken place.
#[derive(Debug)]
pub(crate) struct PoolSlot(Arc<AtomicUsize>);

impl Drop for PoolSlot {
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
    fn slot_is_taken_once_and_released() {
        let seats = SlotPool::new(2);
        let (one, _two) = (seats.acquire().unwrap(), seats.acquire().unwrap());
        assert!(seats.acquire().is_none() && seats.clone().acquire().is_none());
        drop(one);
        assert!(seats.acquire().is_some());
    }

    #[test]
    fn oldest_pending_of_network_is_evicted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0);
        let newcomers =
            PendingConnections::new(AdmissionLimits { total: 3, per_network: 2, ..AdmissionLimits::default() });
        let from = |address: &str| format!("{address}:1").parse().unwrap();
        let (mut near, far) = connect();
        let first = newcomers.admit(&far, from("10.0.0.1")).unwrap();
        let second = newcomers.admit(&connect().1, from("10.0.0.1")).unwrap();
        let _third = newcomers.admit(&connect().1, from("10.0.0.1")).unwrap();
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        assert!(matches!(
            (first.explain(Error::Closed), second.explain(Error::Closed)),
            (Error::TooManyPending, Error::Closed)
        ));
        let _fourth = newcomers.admit(&connect().1, from("10.0.0.2")).unwrap();
        assert!(newcomers.admit(&connect().1, from("10.0.0.3")).is_none(), "all places are taken");
        drop((first, second));
        assert!(newcomers.admit(&connect().1, from("10.0.0.3")).is_some());
    }

    #[test]
    fn evicted_but_open_connections_are_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let newcomers =
            PendingConnections::new(AdmissionLimits { total: 3, per_network: 2, ..AdmissionLimits::default() });
        let from = "10.0.0.1:1".parse().unwrap();
        let there: Vec<_> = std::iter::from_fn(|| newcomers.admit(&stream, from)).take(100).collect();
        assert_eq!(there.len(), 6);
    }
}
