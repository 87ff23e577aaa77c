//! Threads or processes, one on each of some CPUs, that work at once in windows of time.
//!
//! Between windows they sleep, as the task that leads them does while they work: a thread that spins would receive the interrupts by which
//! others of its process take back pages.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::Clock;
use crate::partner::{PartnerKind, PartnerStatus, PartnerTask};
use crate::shared_memory::{FutexScope, Shared, SharedSlice, Zeroed, futex_wait, futex_wake};
use crate::usage::{UsageScope, read_usage};
use crate::{Error, Result};

/// What a task does in windows.
pub trait WindowWork {
    /// Operations between two readings of the clock: few enough that a window ends when it should, so many that the cost of a
    /// reading is small.
    fn stride(&self) -> u64;

    /// Makes ready for a window, before it begins.
    ///
    /// # Errors
    /// What keeps it from that.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// Does this many operations.
    ///
    /// # Errors
    /// That of an operation: every one is checked, as a failing one is fast and looks like a record.
    fn repeat(&mut self, operations: u64) -> Result<()>;
}

/// The times of a window, in ticks of the clock.
#[derive(Clone, Copy, Debug)]
pub struct WindowTimes {
    /// From when the tasks are woken until it begins: all must be awake by then.
    pub lead: u64,
    /// How long it is.
    pub length: u64,
}

/// What a task did in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkedWindow {
    /// Operations.
    pub operations: u64,
    /// Ticks from the beginning of the window until after its last operation: a task that was late lost that time.
    pub ticks: u64,
    /// Minor page faults of the task.
    pub minor_faults: u64,
    /// Context switches that it did not ask for.
    pub involuntary_switches: u64,
}

impl WorkedWindow {
    /// Operations in a tick.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.ticks.max(1) as f64
    }
}

/// What a task and its leader exchange, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct TaskSlot {
    /// Whose turn it is: [`LEADER`]'s or [`TASK`]'s; or [`ENDED`].
    turn: AtomicU32,
    begin: AtomicU64,
    end: AtomicU64,
    operations: AtomicU64,
    ticks: AtomicU64,
    minor_faults: AtomicU64,
    involuntary_switches: AtomicU64,
}

// SAFETY: zeros of atomic integers.
unsafe impl Zeroed for TaskSlot {}

const LEADER: u32 = 0;
const TASK: u32 = 1;
/// The task has ended: it takes no turn any more.
const ENDED: u32 = 2;

impl TaskSlot {
    /// Passes the turn from one side to the other, unless the task has ended.
    fn pass(&self, from: u32, to: u32) -> Result<()> {
        if self.turn.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Ok(());
        }
        futex_wake(&self.turn, FutexScope::Processes)
    }

    fn end(&self) {
        self.turn.store(ENDED, Ordering::Release);
        let _ = futex_wake(&self.turn, FutexScope::Processes);
    }

    fn wait_while(&self, side: u32) -> Result<()> {
        while self.turn.load(Ordering::Acquire) == side {
            futex_wait(&self.turn, side, FutexScope::Processes)?;
        }
        Ok(())
    }

    /// One task's windows, until it is asked to stop.
    fn work(&self, status: &PartnerStatus, clock: Clock, work: &mut impl WindowWork) -> Result<()> {
        loop {
            self.wait_while(LEADER)?;
            if status.is_stopping() {
                return Ok(());
            }
            work.prepare()?;
            self.work_window(clock, work)?;
            self.pass(TASK, LEADER)?;
        }
    }

    fn work_window(&self, clock: Clock, work: &mut impl WindowWork) -> Result<()> {
        let [begin, end] = [&self.begin, &self.end].map(|time| time.load(Ordering::Acquire));
        while clock.stop() < begin {
            std::hint::spin_loop();
        }
        let (stride, mut operations) = (work.stride(), 0);
        let before = read_usage(UsageScope::Thread);
        let mut now = clock.stop();
        while now < end {
            work.repeat(stride)?;
            operations += stride;
            now = clock.stop();
        }
        let used = read_usage(UsageScope::Thread).since(before);
        for (figure, value) in [
            (&self.operations, operations),
            (&self.ticks, now - begin),
            (&self.minor_faults, used.minor_faults),
            (&self.involuntary_switches, used.involuntary_switches),
        ] {
            figure.store(value, Ordering::Release);
        }
        Ok(())
    }

    fn worked(&self) -> WorkedWindow {
        let [operations, ticks, minor_faults, involuntary_switches] =
            [&self.operations, &self.ticks, &self.minor_faults, &self.involuntary_switches]
                .map(|figure| figure.load(Ordering::Acquire));
        WorkedWindow { operations, ticks, minor_faults, involuntary_switches }
    }
}

/// Ends a task's turns, also where it panics: its leader may be waiting, and must see the failure rather than hang.
struct EndOnDrop<'s>(&'s TaskSlot);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Tasks that work in windows. Dropped, they end.
#[derive(Debug)]
pub struct TaskGroup {
    clock: Clock,
    status: Arc<Shared<PartnerStatus>>,
    slots: Arc<SharedSlice<TaskSlot>>,
    tasks: Vec<PartnerTask>,
}

impl TaskGroup {
    /// Starts a task on each of these CPUs, which makes its work from its number.
    ///
    /// # Errors
    /// Those of starting a task; no CPU; that of making a task's work, where it fails before its start is seen. Later ones are those
    /// of the first window.
    pub fn start<W: WindowWork>(
        kind: PartnerKind,
        cpus: &[u32],
        clock: Clock,
        make_work: impl Fn(usize) -> Result<W> + Clone + Send + 'static,
    ) -> Result<Self> {
        let (status, slots) = (PartnerStatus::new()?, Arc::new(SharedSlice::new(cpus.len())?));
        let mut group = Self { clock, status, slots, tasks: Vec::with_capacity(cpus.len()) };
        for (number, &cpu) in cpus.iter().enumerate() {
            let (make_work, slots) = (make_work.clone(), Arc::clone(&group.slots));
            let run = move |status: &PartnerStatus| {
                let slot: &TaskSlot = &slots[number];
                let _end = EndOnDrop(slot);
                // What went wrong is known before the leader wakes.
                make_work(number)
                    .and_then(|mut work| slot.work(status, clock, &mut work))
                    .inspect_err(|error| status.fail(error))
            };
            group.tasks.push(PartnerTask::start_with_status(kind, cpu, &group.status, run)?);
        }
        Ok(group)
    }

    /// Lets some of the tasks work in a window, while the others sleep, and returns what each of them did.
    ///
    /// # Errors
    /// That of a task, here or in an earlier window; tasks that there are not.
    pub fn run_window(&self, tasks: Range<usize>, times: WindowTimes) -> Result<Vec<WorkedWindow>> {
        let working = self.slots.get(tasks).filter(|working| working.len() <= self.tasks.len());
        let working = working.ok_or_else(|| Error::other("the group has no such tasks"))?;
        let begin = self.clock.start() + times.lead;
        // The first one may share the CPU of its leader, and would delay it.
        for slot in working.iter().rev() {
            slot.begin.store(begin, Ordering::Release);
            slot.end.store(begin + times.length, Ordering::Release);
            slot.pass(LEADER, TASK)?;
        }
        for slot in working {
            slot.wait_while(TASK)?;
        }
        self.status.check()?;
        let is_over = |slot: &TaskSlot| slot.turn.load(Ordering::Acquire) == ENDED;
        match working.iter().any(is_over) {
            // A panic, which the status shows later.
            true => Err(Error::from_raw_os_error(libc::ENOTRECOVERABLE)),
            false => Ok(working.iter().map(TaskSlot::worked).collect()),
        }
    }

    /// Ends all of them.
    ///
    /// # Errors
    /// That of a task.
    pub fn finish(mut self) -> Result<()> {
        self.stop();
        self.tasks.iter_mut().try_for_each(PartnerTask::join)
    }

    fn stop(&self) {
        self.status.stop();
        for slot in self.slots.iter() {
            let _ = slot.pass(LEADER, TASK);
        }
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu;

    struct Counter {
        prepared: u64,
        number: usize,
    }

    impl WindowWork for Counter {
        fn stride(&self) -> u64 {
            self.number as u64 + 1
        }

        fn prepare(&mut self) -> Result<()> {
            self.prepared += 1;
            if self.prepared > 2 { Err(Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
        }

        fn repeat(&mut self, operations: u64) -> Result<()> {
            assert_eq!(operations, self.stride());
            Ok(())
        }
    }

    const TIMES: WindowTimes = WindowTimes { lead: 1_000_000, length: 2_000_000 };

    fn group(kind: PartnerKind) -> TaskGroup {
        let cpu = cpu::affinity().unwrap()[0];
        TaskGroup::start(kind, &[cpu; 3], Clock::MonotonicRaw, |number| Ok(Counter { prepared: 0, number })).unwrap()
    }

    #[test]
    fn only_chosen_tasks_work_until_the_end() {
        for kind in [PartnerKind::Thread, PartnerKind::Process] {
            let group = group(kind);
            let all = group.run_window(0..3, TIMES).unwrap();
            assert_eq!(all.len(), 3);
            for (number, done) in all.iter().enumerate() {
                assert!(done.operations.is_multiple_of(number as u64 + 1), "{done:?}");
            }
            assert!(all.iter().all(|done| done.ticks >= TIMES.length), "{all:?}");
            assert_eq!(group.run_window(1..2, TIMES).unwrap().len(), 1);
            assert!(group.run_window(2..4, TIMES).is_err());
            group.finish().unwrap();
        }
    }

    #[test]
    fn failure_of_a_task_is_reported_and_ends_all() {
        for kind in [PartnerKind::Thread, PartnerKind::Process] {
            let group = group(kind);
            for _ in 0..2 {
                group.run_window(0..1, TIMES).unwrap();
            }
            let error = group.run_window(0..1, TIMES).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{kind:?}");
        }
        let cpu = cpu::affinity().unwrap()[0];
        let refused = |_| Err::<Counter, _>(Error::from_raw_os_error(libc::EMFILE));
        // The task may fail before its leader looks whether it has started.
        let group = TaskGroup::start(PartnerKind::Thread, &[cpu], Clock::MonotonicRaw, refused);
        let error = group.and_then(|group| group.run_window(0..1, TIMES)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    }
}
