//! A second task for experiments between two: a forked process or a thread, on a chosen CPU.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::process::{Child, ExitKind, fork_worker};
use crate::shared_memory::{FutexScope, Shared, Zeroed, futex_wait, futex_wake};
use crate::thread_spawn::ThreadBuilder;
use crate::usage::{UsageScope, read_usage};
use crate::{Error, Result, cpu};

/// What a partner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartnerKind {
    /// A process of its own: another address space.
    Process,
    /// A thread of this process.
    Thread,
}

impl PartnerKind {
    /// Who shares the channels between this task and its partner.
    pub const fn scope(self) -> FutexScope {
        match self {
            Self::Process => FutexScope::Processes,
            Self::Thread => FutexScope::Threads,
        }
    }
}

/// Messages between partners and the task that started them, in shared memory.
#[derive(Debug, Default)]
pub struct PartnerStatus {
    stop: AtomicU32,
    error_number: AtomicI32,
    arrivals: AtomicU32,
    switches: AtomicU64,
    work: AtomicU64,
    completed_work: AtomicU64,
}

// SAFETY: zeros of atomic integers.
unsafe impl Zeroed for PartnerStatus {}

impl PartnerStatus {
    /// No report yet.
    pub fn new() -> Result<Arc<Shared<Self>>> {
        Shared::new().map(Arc::new)
    }

    /// Asks the partners to stop. They see it when they next have the token.
    pub fn stop(&self) {
        self.stop.store(1, Ordering::Release);
    }

    /// Whether the partners are asked to stop.
    #[inline(always)]
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) != 0
    }

    /// Records that a partner has failed, and why.
    #[cold]
    pub fn fail(&self, error: &Error) {
        self.error_number.store(error.raw_os_error().unwrap_or(libc::EIO), Ordering::Release);
    }

    /// The error of a failed partner.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        match self.error_number.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Error::from_raw_os_error(code)),
        }
    }

    /// Context switches of the partners that have ended, since their start.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Acquire)
    }

    /// Sets the partner's next amount of work.
    #[inline(always)]
    pub fn set_work(&self, amount: u64) {
        self.work.store(amount, Ordering::Release);
    }

    /// The amount of work ordered.
    #[inline(always)]
    pub fn work(&self) -> u64 {
        self.work.load(Ordering::Acquire)
    }

    /// Reports an amount of work as done.
    #[inline(always)]
    pub fn report_done(&self, amount: u64) {
        self.completed_work.store(amount, Ordering::Release);
    }

    /// The amount of work last reported as done.
    #[inline(always)]
    pub fn done_work(&self) -> u64 {
        self.completed_work.load(Ordering::Acquire)
    }
}

/// A partner and its status. Dropped, a process is killed and reaped; a thread is joined, so it must have been asked to stop.
#[derive(Debug)]
pub struct PartnerTask {
    running: Option<Running>,
    status: Arc<Shared<PartnerStatus>>,
}

#[derive(Debug)]
enum Running {
    Process(Child),
    Thread(JoinHandle<()>),
}

impl PartnerTask {
    /// Starts a partner pinned to a CPU, which runs `work` and reports its end and its context switches in its status.
    /// Returns when it is on its CPU. A process dies with the thread that started it.
    ///
    /// # Errors
    /// A failed fork or thread, a CPU that is not allowed.
    pub fn start(
        task: PartnerKind,
        cpu: u32,
        work: impl FnOnce(&PartnerStatus) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        Self::start_with_status(task, cpu, &PartnerStatus::new()?, work)
    }

    /// Like `start`, with a status that it shares with other partners.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn start_with_status(
        task: PartnerKind,
        cpu: u32,
        status: &Arc<Shared<PartnerStatus>>,
        work: impl FnOnce(&PartnerStatus) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let before = status.arrivals.load(Ordering::Acquire);
        let shared = Arc::clone(status);
        let run = move || run_partner(cpu, &shared, work);
        let running = match task {
            PartnerKind::Process => Running::Process(fork_worker(|| {
                run();
                0
            })?),
            PartnerKind::Thread => Running::Thread(ThreadBuilder::named("partner").start(run)?),
        };
        let partner = Self { running: Some(running), status: Arc::clone(status) };
        while status.arrivals.load(Ordering::Acquire) == before {
            futex_wait(&status.arrivals, before, FutexScope::Processes)?;
        }
        status.check()?;
        Ok(partner)
    }

    /// Waits for the end of a partner that was asked to stop.
    ///
    /// # Errors
    /// The error that it ended with, or that it crashed.
    pub fn join(&mut self) -> Result<()> {
        match self.running.take() {
            Some(Running::Process(child)) => {
                let end = child.wait()?;
                if end != ExitKind::Exited(0) {
                    return Err(Error::other(format!("the partner process crashed ({end:?})")));
                }
            }
            Some(Running::Thread(thread)) => {
                thread.join().map_err(|_| Error::other("the partner thread panicked"))?;
            }
            None => {}
        }
        self.status.check()
    }

    /// Whether its end has not been waited for.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl Deref for PartnerTask {
    type Target = PartnerStatus;

    #[inline(always)]
    fn deref(&self) -> &PartnerStatus {
        &self.status
    }
}

impl Drop for PartnerTask {
    fn drop(&mut self) {
        match self.running.take() {
            Some(Running::Process(child)) => child.kill(),
            Some(Running::Thread(thread)) => drop(thread.join()),
            None => {}
        }
    }
}

/// A partner from its start to its report.
fn run_partner(cpu: u32, status: &PartnerStatus, work: impl FnOnce(&PartnerStatus) -> Result<()>) {
    let pin_result = cpu::pin(&[cpu]);
    if let Err(error) = &pin_result {
        status.fail(error);
    }
    let before = read_usage(UsageScope::Thread);
    status.arrivals.fetch_add(1, Ordering::AcqRel);
    let _ = futex_wake(&status.arrivals, FutexScope::Processes);
    if pin_result.is_err() {
        return;
    }
    match catch_unwind(AssertUnwindSafe(|| work(status))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => status.fail(&error),
        Err(_) => status.fail(&Error::from_raw_os_error(libc::ENOTRECOVERABLE)),
    }
    let after = read_usage(UsageScope::Thread);
    let switches =
        after.voluntary_switches + after.involuntary_switches - before.voluntary_switches - before.involuntary_switches;
    status.switches.fetch_add(switches, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::{HandoffChannel, HandoffMethod, HandoffSide};

    fn current_cpu() -> u32 {
        *cpu::affinity().unwrap().last().unwrap()
    }

    #[test]
    fn partner_runs_until_stopped() {
        // On one CPU the partner waits for each token: it cannot come while the partner runs.
        crate::cpu::pin(&[current_cpu()]).unwrap();
        for task in [PartnerKind::Process, PartnerKind::Thread] {
            let channel = Arc::new(HandoffChannel::new(HandoffMethod::Pipe, task.scope()).unwrap());
            let partner_channel = Arc::clone(&channel);
            let mut partner = PartnerTask::start(task, current_cpu(), move |board| {
                loop {
                    partner_channel.wait_for_turn(HandoffSide::Far)?;
                    if board.is_stopping() {
                        return Ok(());
                    }
                    board.report_done(board.work() + 1);
                    partner_channel.hand_over(HandoffSide::Far)?;
                }
            })
            .unwrap();
            for trip in 0..100 {
                partner.set_work(trip);
                channel.hand_over(HandoffSide::Near).unwrap();
                channel.wait_for_turn(HandoffSide::Near).unwrap();
                assert_eq!(partner.done_work(), trip + 1);
            }
            partner.stop();
            channel.hand_over(HandoffSide::Near).unwrap();
            partner.join().unwrap();
            assert!(partner.switches() >= 100, "{task:?}: {} switches", partner.switches());
        }
    }

    #[test]
    fn partner_failure_is_reported() {
        for task in [PartnerKind::Process, PartnerKind::Thread] {
            // It may fail before or after it was seen to arrive: the error is the same.
            let failing_work = |_: &PartnerStatus| Err(Error::from_raw_os_error(libc::ENOSPC));
            let outcome = PartnerTask::start(task, current_cpu(), failing_work).and_then(|mut partner| partner.join());
            assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        }
    }

    #[test]
    fn missing_cpu_is_an_error() {
        for task in [PartnerKind::Process, PartnerKind::Thread] {
            assert!(PartnerTask::start(task, 8000, |_| Ok(())).is_err());
        }
    }

    #[test]
    fn dropped_process_is_reaped() {
        let channel = HandoffChannel::new(HandoffMethod::Pipe, FutexScope::Processes).unwrap();
        let partner =
            PartnerTask::start(PartnerKind::Process, current_cpu(), move |_| channel.wait_for_turn(HandoffSide::Far))
                .unwrap();
        let Some(Running::Process(child)) = &partner.running else { unreachable!("it is a process") };
        let child = child.id();
        drop(partner);
        // SAFETY: signal 0 only asks whether the process exists.
        assert_eq!(unsafe { libc::kill(child, 0) }, -1);
    }
}
