//! Threads that work in step: one start, one finish, each on its own CPU.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kelvin_model::Canary;
use kelvin_sys::cpu;

use crate::canary::Canaries;
use crate::stop::Stop;

/// A crew of threads that do the same work in step. They spin while they wait, so that no wake-up is timed.
pub(crate) struct Crew {
    size: usize,
    /// Number of the round that may start; [`DISMISSED`] ends the crew.
    round: AtomicU64,
    iterations: AtomicU64,
    finished: AtomicUsize,
    failure: Mutex<Option<String>>,
    watch: Mutex<Watched>,
}

/// The combined canary readings of some workers.
struct Watched {
    wanted: kelvin_model::Canaries,
    /// The worker whose turn it is.
    turn: usize,
    /// The first worker of the next reading.
    next: usize,
    /// The longest reading of each, in nanoseconds.
    longest: BTreeMap<Canary, f32>,
}

const DISMISSED: u64 = u64::MAX;
/// The iteration count that means a reading of the canaries.
const CANARIES: u64 = u64::MAX;
/// Maximum workers per canary reading; the next reading continues with the ones after.
const MOST_WATCHED: usize = 7;

impl Crew {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            round: AtomicU64::new(0),
            iterations: AtomicU64::new(0),
            finished: AtomicUsize::new(0),
            failure: Mutex::new(None),
            watch: Mutex::new(Watched {
                wanted: kelvin_model::Canaries::NONE,
                turn: 0,
                next: 0,
                longest: BTreeMap::new(),
            }),
        }
    }

    /// The loop of one worker, numbered from 0, with its own canaries.
    pub(crate) fn work(&self, member: usize, cpu: u32, canaries: Canaries, operation: &(impl Fn(u64) + Sync)) {
        if let Err(error) = cpu::pin(&[cpu]) {
            *lock(&self.failure) = Some(format!("cannot pin a thread to CPU {cpu}: {error}"));
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
            match self.iterations.load(Ordering::Relaxed) {
                CANARIES => self.watch(member, canaries),
                iterations => operation(iterations),
            }
            self.finished.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Starts a round, does the caller's `own` part, and waits until every worker has finished.
    pub(crate) fn round(&self, iterations: u64, own: impl FnOnce()) -> Result<(), Stop> {
        self.iterations.store(iterations, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
        own();
        while self.finished.load(Ordering::Acquire) < self.size {
            std::thread::yield_now();
        }
        lock(&self.failure).clone().map_or(Ok(()), |reason| Err(Stop::fail(reason)))
    }

    /// Times the canaries of the calling thread and of the workers, and appends the longest reading of each to its
    /// column: joint work is disturbed if any worker is. One after the other, since two may share a core and would
    /// disturb each other.
    pub(crate) fn read_canaries(
        &self,
        own: Canaries,
        wanted: kelvin_model::Canaries,
        columns: &mut BTreeMap<Canary, Vec<f32>>,
    ) -> Result<(), Stop> {
        if !own.are_read() || wanted == kelvin_model::Canaries::NONE {
            return Ok(());
        }
        let mut longest = BTreeMap::new();
        own.read_each(wanted, |canary, nanoseconds| keep_longest(&mut longest, canary, nanoseconds));
        let first = {
            let mut watched = lock(&self.watch);
            watched.wanted = wanted;
            watched.longest = longest;
            watched.next
        };
        let watched = self.size.min(MOST_WATCHED);
        for place in 0..watched {
            lock(&self.watch).turn = (first + place) % self.size;
            self.round(CANARIES, || {})?;
        }
        let mut watch = lock(&self.watch);
        watch.next = (first + watched) % self.size.max(1);
        for (&canary, &nanoseconds) in &watch.longest {
            columns.entry(canary).or_default().push(nanoseconds);
        }
        Ok(())
    }

    /// One worker's part in a reading: none unless it is its turn.
    fn watch(&self, member: usize, canaries: Canaries) {
        let wanted = {
            let watched = lock(&self.watch);
            if watched.turn != member {
                return;
            }
            watched.wanted
        };
        canaries.read_each(wanted, |canary, nanoseconds| {
            keep_longest(&mut lock(&self.watch).longest, canary, nanoseconds);
        });
    }

    /// Stops the workers.
    pub(crate) fn dismiss(&self) {
        self.round.store(DISMISSED, Ordering::Release);
    }
}

fn keep_longest(longest: &mut BTreeMap<Canary, f32>, canary: Canary, nanoseconds: f32) {
    let known = longest.entry(canary).or_insert(nanoseconds);
    *known = known.max(nanoseconds);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_sys::clock::{Clock, Script};

    /// Canaries of which every reading lasts so many nanoseconds.
    fn scripted(step: u64, enabled: bool) -> Canaries {
        Canaries::new(Clock::Scripted(Script::leak(step)), 1.0, enabled)
    }

    fn canaries(enabled: bool) -> Canaries {
        scripted(1, enabled)
    }

    #[test]
    fn the_canaries_of_all_workers_count_as_one_reading() {
        let crew = Crew::new(1);
        let here = cpu::allowed().unwrap()[0];
        // A clock that advances by a microsecond per reading, on the other CPU: its readings are the longer ones.
        let slow = scripted(1000, true);
        let mut columns = BTreeMap::new();
        std::thread::scope(|scope| {
            scope.spawn(|| crew.work(0, here, slow, &|_| panic!("canaries are no work")));
            for _ in 0..3 {
                crew.read_canaries(canaries(true), kelvin_model::Canaries::CORE, &mut columns).unwrap();
            }
            crew.read_canaries(canaries(true), kelvin_model::Canaries::NONE, &mut columns).unwrap();
            crew.read_canaries(canaries(false), kelvin_model::Canaries::CORE, &mut columns).unwrap();
            crew.dismiss();
        });
        assert_eq!(columns.keys().copied().collect::<Vec<_>>(), [Canary::Chain, Canary::Block]);
        for readings in columns.values() {
            assert_eq!(readings, &[1000.0; 3]);
        }
    }

    #[test]
    fn of_many_workers_each_reading_takes_the_next_ones() {
        let crew = Crew::new(MOST_WATCHED + 2);
        let here = cpu::allowed().unwrap()[0];
        // Only the last worker's readings are long.
        let of = |member| scripted(if member > MOST_WATCHED { 1000 } else { 1 }, true);
        let mut columns = BTreeMap::new();
        std::thread::scope(|scope| {
            for member in 0..MOST_WATCHED + 2 {
                let crew = &crew;
                scope.spawn(move || crew.work(member, here, of(member), &|_| {}));
            }
            for _ in 0..2 {
                crew.read_canaries(canaries(true), kelvin_model::Canaries::of(&[Canary::Chain]), &mut columns).unwrap();
            }
            crew.dismiss();
        });
        assert_eq!(columns[&Canary::Chain], [1.0, 1000.0]);
    }

    #[test]
    fn every_worker_does_every_round() {
        let crew = Crew::new(3);
        let (done, own) = (AtomicU64::new(0), std::cell::Cell::new(false));
        let here = cpu::allowed().unwrap()[0];
        std::thread::scope(|scope| {
            for member in 0..3 {
                let (crew, done) = (&crew, &done);
                scope.spawn(move || {
                    crew.work(member, here, canaries(true), &|iterations| {
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
    fn a_worker_that_cannot_be_pinned_fails_the_round() {
        let crew = Crew::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| crew.work(0, 8000, canaries(true), &|_| {}));
            assert!(matches!(crew.round(1, || {}), Err(Stop::Fail(_))));
            crew.dismiss();
        });
    }
}
