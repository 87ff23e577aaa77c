//! Which streams have something to be taken: the protocol wakes them while a connection is looked at, and they are looked at after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// The streams of one thread that were woken up. The lock is never waited for: the protocol wants wakers that any thread may call.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadyList(Arc<Mutex<Vec<u32>>>);

impl ReadyList {
    /// What adds this slot.
    pub(super) fn waker(&self, slot: u32) -> Waker {
        Waker::from(Arc::new(SlotWaker { slot, list: self.clone() }))
    }

    /// Exchanges the list for another one: an empty one that has room.
    pub(super) fn exchange(&self, other: &mut Vec<u32>) {
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), other);
    }
}

#[derive(Debug)]
struct SlotWaker {
    slot: u32,
    list: ReadyList,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.list.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
    }
}
