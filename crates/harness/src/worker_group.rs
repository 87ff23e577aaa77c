//! Threads that work in step: one start, one finish, each on its own CPU.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use kelvin_core::Canary;
use kelvin_sys::clock::monotonic;
use kelvin_sys::{cpu, lock};

use crate::canary::CanaryReader;
use crate::probe_error::ProbeError;

/// A group of threads that do the same work in step. They spin while they wait, so that no wake-up is timed and their cores keep their
/// frequency; those that wait for long sleep, since on a virtual machine with fewer CPUs than it shows they hold up the others.
#[derive(Default)]
pub(crate) struct WorkerGroup {
    workers: Vec<Worker>,
    iterations: AtomicU64,
    finished: AtomicUsize,
    failure: Mutex<Option<String>>,
    combined_canaries: Mutex<CombinedCanaries>,
}

/// One of the threads, in cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Worker {
    /// Number of the round that it may start; [`STOP_ROUND`] ends it.
    round: AtomicU64,
    /// Wakes it.
    thread: OnceLock<Thread>,
}

impl Worker {
    /// Waits for a round, and returns the number of the one that may start.
    fn wait_for(&self, round: u64) -> u64 {
        let mut spin_end = monotonic() + MAX_SPIN_NANOSECONDS;
        loop {
            let next = self.round.load(Ordering::Acquire);
            if next >= round {
                return next;
            }
            if monotonic() < spin_end {
                std::hint::spin_loop();
            } else {
                // It returns at once if the round was set since.
                std::thread::park();
                spin_end = monotonic() + MAX_SPIN_NANOSECONDS;
            }
        }
    }

    /// Sets its round by a function of the last one.
    fn start(&self, next: impl Fn(u64) -> u64) {
        let _ = self.round.fetch_update(Ordering::AcqRel, Ordering::Acquire, |round| Some(next(round)));
        self.thread.get().iter().for_each(|thread| thread.unpark());
    }
}

/// The combined canary readings of some workers.
#[derive(Default)]
struct CombinedCanaries {
    requested: kelvin_core::Canaries,
    /// The first worker of the next reading.
    next_first_worker: usize,
    /// The longest reading of each, in nanoseconds.
    max_readings: BTreeMap<Canary, f32>,
}

/// Nanoseconds for which a worker spins at most: longer than what is done between two rounds.
const MAX_SPIN_NANOSECONDS: u64 = 5_000_000;
const STOP_ROUND: u64 = u64::MAX;
/// The iteration count that means a reading of the canaries.
const CANARY_ITERATIONS: u64 = u64::MAX;
/// Maximum workers per canary reading; the next reading continues with the ones after.
const MAX_WORKERS_PER_READING: usize = 7;

impl WorkerGroup {
    pub(crate) fn new(size: usize) -> Self {
        Self { workers: (0..size).map(|_| Worker::default()).collect(), ..Self::default() }
    }

    /// The loop of one worker, numbered from 0, with its own canaries.
    pub(crate) fn run_worker(
        &self,
        member: usize,
        cpu: u32,
        canaries: CanaryReader,
        operation: &(impl Fn(u64) + Sync),
    ) {
        let worker = &self.workers[member];
        let _ = worker.thread.set(std::thread::current());
        if let Err(error) = cpu::pin(&[cpu]) {
            *lock(&self.failure) = Some(format!("cannot pin a thread to CPU {cpu}: {error}"));
        }
        for round in 1.. {
            if worker.wait_for(round) == STOP_ROUND {
                return;
            }
            match self.iterations.load(Ordering::Relaxed) {
                CANARY_ITERATIONS => self.read_worker_canaries(canaries),
                iterations => operation(iterations),
            }
            self.finished.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Starts a round, does the caller's `own_work`, and waits until every worker has finished.
    pub(crate) fn run_round(&self, iterations: u64, own_work: impl FnOnce()) -> Result<(), ProbeError> {
        self.run_round_of(0..self.workers.len(), iterations, own_work)
    }

    /// A round of some workers, while the others wait.
    fn run_round_of(&self, members: Range<usize>, iterations: u64, own_work: impl FnOnce()) -> Result<(), ProbeError> {
        self.iterations.store(iterations, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        self.workers[members.clone()].iter().for_each(|worker| worker.start(|round| round + 1));
        own_work();
        while self.finished.load(Ordering::Acquire) < members.len() {
            std::thread::yield_now();
        }
        lock(&self.failure).clone().map_or(Ok(()), |reason| Err(ProbeError::fail(reason)))
    }

    /// Times the canaries of the calling thread and of the workers, and appends the longest reading of each to its
    /// column: joint work is disturbed if any worker is. One after the other, since two may share a core and would
    /// disturb each other.
    pub(crate) fn read_canaries(
        &self,
        own_reader: CanaryReader,
        canaries: kelvin_core::Canaries,
        columns: &mut BTreeMap<Canary, Vec<f32>>,
    ) -> Result<(), ProbeError> {
        if !own_reader.is_enabled || canaries == kelvin_core::Canaries::NONE {
            return Ok(());
        }
        let mut max_readings = BTreeMap::new();
        own_reader.read_each(canaries, |canary, nanoseconds| record_max(&mut max_readings, canary, nanoseconds));
        let first = {
            let mut combined_canaries = lock(&self.combined_canaries);
            combined_canaries.requested = canaries;
            combined_canaries.max_readings = max_readings;
            combined_canaries.next_first_worker
        };
        let size = self.workers.len();
        let worker_count = size.min(MAX_WORKERS_PER_READING);
        for offset in 0..worker_count {
            let member = (first + offset) % size;
            self.run_round_of(member..member + 1, CANARY_ITERATIONS, || {})?;
        }
        let mut combined_canaries = lock(&self.combined_canaries);
        combined_canaries.next_first_worker = (first + worker_count) % size.max(1);
        for (&canary, &nanoseconds) in &combined_canaries.max_readings {
            columns.entry(canary).or_default().push(nanoseconds);
        }
        Ok(())
    }

    /// One worker's part in a reading.
    fn read_worker_canaries(&self, canaries: CanaryReader) {
        let requested = lock(&self.combined_canaries).requested;
        canaries.read_each(requested, |canary, nanoseconds| {
            record_max(&mut lock(&self.combined_canaries).max_readings, canary, nanoseconds);
        });
    }

    /// Stops the workers.
    pub(crate) fn stop_workers(&self) {
        self.workers.iter().for_each(|worker| worker.start(|_| STOP_ROUND));
    }
}

fn record_max(max_readings: &mut BTreeMap<Canary, f32>, canary: Canary, nanoseconds: f32) {
    let maximum = max_readings.entry(canary).or_insert(nanoseconds);
    *maximum = maximum.max(nanoseconds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_sys::clock::{Clock, ScriptedClock};

    /// Canaries of which every reading lasts this many nanoseconds.
    fn scripted(step: u64, is_enabled: bool) -> CanaryReader {
        CanaryReader::new(Clock::Scripted(ScriptedClock::leak(step)), 1.0, is_enabled)
    }

    fn canaries(is_enabled: bool) -> CanaryReader {
        scripted(1, is_enabled)
    }

    #[test]
    fn worker_canaries_are_one_reading() {
        let group = WorkerGroup::new(1);
        let cpu_number = cpu::affinity().unwrap()[0];
        // A clock that advances by a microsecond per reading, on the other CPU: its readings are the longer ones.
        let slow_reader = scripted(1000, true);
        let mut columns = BTreeMap::new();
        std::thread::scope(|scope| {
            scope.spawn(|| group.run_worker(0, cpu_number, slow_reader, &|_| panic!("canaries are no work")));
            for _ in 0..3 {
                group.read_canaries(canaries(true), kelvin_core::Canaries::CORE, &mut columns).unwrap();
            }
            group.read_canaries(canaries(true), kelvin_core::Canaries::NONE, &mut columns).unwrap();
            group.read_canaries(canaries(false), kelvin_core::Canaries::CORE, &mut columns).unwrap();
            group.stop_workers();
        });
        assert_eq!(columns.keys().copied().collect::<Vec<_>>(), [Canary::Chain, Canary::Block]);
        for readings in columns.values() {
            assert_eq!(readings, &[1000.0; 3]);
        }
    }

    #[test]
    fn canary_readings_rotate_over_workers() {
        let group = WorkerGroup::new(MAX_WORKERS_PER_READING + 2);
        let cpu_number = cpu::affinity().unwrap()[0];
        // Only the last worker's readings are long.
        let reader = |member| scripted(if member > MAX_WORKERS_PER_READING { 1000 } else { 1 }, true);
        let mut columns = BTreeMap::new();
        std::thread::scope(|scope| {
            for member in 0..MAX_WORKERS_PER_READING + 2 {
                let group = &group;
                scope.spawn(move || group.run_worker(member, cpu_number, reader(member), &|_| {}));
            }
            for _ in 0..2 {
                group
                    .read_canaries(canaries(true), kelvin_core::Canaries::from_canaries(&[Canary::Chain]), &mut columns)
                    .unwrap();
            }
            group.stop_workers();
        });
        assert_eq!(columns[&Canary::Chain], [1.0, 1000.0]);
    }

    #[test]
    fn every_worker_does_every_round() {
        let group = WorkerGroup::new(3);
        let (iteration_count, caller_ran) = (AtomicU64::new(0), std::cell::Cell::new(false));
        let cpu_number = cpu::affinity().unwrap()[0];
        std::thread::scope(|scope| {
            for member in 0..3 {
                let (group, iteration_count) = (&group, &iteration_count);
                scope.spawn(move || {
                    group.run_worker(member, cpu_number, canaries(true), &|iterations| {
                        iteration_count.fetch_add(iterations, Ordering::Relaxed);
                    })
                });
            }
            group.run_round(5, || {}).unwrap();
            group.run_round(7, || caller_ran.set(true)).unwrap();
            group.stop_workers();
        });
        assert_eq!(iteration_count.load(Ordering::Relaxed), 36);
        assert!(caller_ran.get());
    }

    #[test]
    fn sleeping_workers_start_with_the_round() {
        let group = WorkerGroup::new(2);
        let iteration_count = AtomicU64::new(0);
        let cpu_number = cpu::affinity().unwrap()[0];
        std::thread::scope(|scope| {
            for member in 0..2 {
                let (group, iteration_count) = (&group, &iteration_count);
                scope.spawn(move || {
                    group.run_worker(member, cpu_number, canaries(true), &|iterations| {
                        iteration_count.fetch_add(iterations, Ordering::Relaxed);
                    })
                });
            }
            for _ in 0..3 {
                std::thread::sleep(std::time::Duration::from_nanos(4 * MAX_SPIN_NANOSECONDS));
                group.run_round(5, || {}).unwrap();
                // A reading of one leaves the other asleep.
                group.run_round_of(1..2, 2, || {}).unwrap();
            }
            group.stop_workers();
        });
        assert_eq!(iteration_count.load(Ordering::Relaxed), 3 * (2 * 5 + 2));
    }

    #[test]
    fn unpinnable_worker_fails_round() {
        let group = WorkerGroup::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| group.run_worker(0, 8000, canaries(true), &|_| {}));
            assert!(matches!(group.run_round(1, || {}), Err(ProbeError::Fail(_))));
            group.stop_workers();
        });
    }
}
