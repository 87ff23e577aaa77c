//! The places of a receiver: so many for connections before the handshake is over, and so many for senders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Places, of which each can be taken once.
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
    use super::*;

    #[test]
    fn a_place_is_taken_once_and_given_back() {
        let seats = Seats::new(2);
        let (one, _two) = (seats.take().unwrap(), seats.take().unwrap());
        assert!(seats.take().is_none() && seats.clone().take().is_none());
        drop(one);
        assert!(seats.take().is_some());
    }
}
