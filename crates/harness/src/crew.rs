//! Threads that work at the same time: one start line, one finish line, each thread on its own CPU.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kelvin_sys::cpu;

use crate::probe::Stop;

/// A crew of threads that do the same work in step. They spin at the lines, so that waking up is not part of the time.
pub(crate) struct Crew {
    size: usize,
    /// Number of the round that may start; [`DISMISSED`] ends the crew.
    round: AtomicU64,
    iterations: AtomicU64,
    finished: AtomicUsize,
    failure: Mutex<Option<String>>,
}

const DISMISSED: u64 = u64::MAX;

impl Crew {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            round: AtomicU64::new(0),
            iterations: AtomicU64::new(0),
            finished: AtomicUsize::new(0),
            failure: Mutex::new(None),
        }
    }

    /// The life of one member.
    pub(crate) fn work(&self, cpu: u32, operation: &(impl Fn(u64) + Sync)) {
        if let Err(error) = cpu::pin(&[cpu]) {
            let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *failure = Some(format!("cannot pin a thread to CPU {cpu}: {error}"));
        }
        for round in 1.. {
            let mut next = self.round.load(Ordering::Acquire);
            while next < round {
                std::hint::spin_loop();
                next = self.round.load(Ordering::Acquire);
            }
            if next == DISMISSED {
                return;
            }
            operation(self.iterations.load(Ordering::Relaxed));
            self.finished.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Starts a round, does the caller's `own` part of it, and waits until every member has finished.
    pub(crate) fn round(&self, iterations: u64, own: impl FnOnce()) -> Result<(), Stop> {
        self.iterations.store(iterations, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
        own();
        while self.finished.load(Ordering::Acquire) < self.size {
            std::thread::yield_now();
        }
        let failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.clone().map_or(Ok(()), |reason| Err(Stop::fail(reason)))
    }

    /// Sends the members home.
    pub(crate) fn dismiss(&self) {
        self.round.store(DISMISSED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_does_every_round() {
        let crew = Crew::new(3);
        let (done, own) = (AtomicU64::new(0), std::cell::Cell::new(false));
        let here = cpu::allowed().unwrap()[0];
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    crew.work(here, &|iterations| {
                        done.fetch_add(iterations, Ordering::Relaxed);
                    })
                });
            }
            crew.round(5, || {}).unwrap();
            crew.round(7, || own.set(true)).unwrap();
            crew.dismiss();
        });
        assert_eq!(done.load(Ordering::Relaxed), 36);
        assert!(own.get());
    }

    #[test]
    fn a_member_that_cannot_be_placed_fails_the_round() {
        let crew = Crew::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| crew.work(8000, &|_| {}));
            assert!(matches!(crew.round(1, || {}), Err(Stop::Fail(_))));
            crew.dismiss();
        });
    }
}
