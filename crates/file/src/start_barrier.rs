//! Where threads wait for each other before their work, and which opens too if one of them cannot be started.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A line of this many threads. Unlike with `std::sync::Barrier`, those that came do not wait for ever for one that was not started.
#[derive(Debug)]
pub struct StartBarrier {
    state: Mutex<BarrierState>,
    changed: Condvar,
}

#[derive(Debug)]
struct BarrierState {
    missing: usize,
    is_cancelled: bool,
}

impl StartBarrier {
    /// A line of this many threads.
    pub const fn new(threads: usize) -> Self {
        Self { state: Mutex::new(BarrierState { missing: threads, is_cancelled: false }), changed: Condvar::new() }
    }

    /// Waits until all have come; false if that will never be.
    #[must_use]
    pub fn wait(&self) -> bool {
        let mut state = self.state();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            self.changed.notify_all();
        }
        while state.missing > 0 && !state.is_cancelled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_cancelled
    }

    /// Sends all of them away, those that wait and those that will come.
    pub fn cancel(&self) {
        self.state().is_cancelled = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, BarrierState> {
        kelvin_sys::lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_sys::thread_spawn::ThreadBuilder;

    #[test]
    fn barrier_opens_when_all_arrive() {
        let barrier = StartBarrier::new(3);
        let all_opened = std::thread::scope(|scope| {
            let threads = [0, 1].map(|_| ThreadBuilder::named("waits").start_in(scope, || barrier.wait()).unwrap());
            [barrier.wait()].into_iter().chain(threads.map(|thread| thread.join().unwrap())).all(|opened| opened)
        });
        assert!(all_opened);
    }

    #[test]
    fn cancelled_barrier_releases_all_waiters() {
        let barrier = StartBarrier::new(3);
        let outcomes = std::thread::scope(|scope| {
            let waits = ThreadBuilder::named("waits").start_in(scope, || barrier.wait()).unwrap();
            barrier.cancel();
            [barrier.wait(), waits.join().unwrap()]
        });
        assert_eq!(outcomes, [false, false]);
    }
}
