//! Threads that keep CPUs busy: so that they do not go idle, or so that no other program has a turn on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_core::SkipReason;
use kelvin_sys::cpu::{self, ThreadId};
use kelvin_sys::kernels;
use kelvin_sys::thread_spawn::ThreadBuilder;

/// Iterations between two looks at whether to stop: some microseconds.
const STOP_CHECK_ITERATIONS: u64 = 4096;
/// How long a CPU is held, and how long it is then released to others, such as the kernel's own threads.
const HOLD_PERIOD: Duration = Duration::from_millis(95);
const RELEASE_PERIOD: Duration = Duration::from_millis(1);

/// What spinners are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpinPurpose {
    /// Their CPUs do not go idle: they run at priority SCHED_IDLE, only when nothing else wants the CPU.
    KeepAwake,
    /// No program of usual priority has a turn on their CPUs: they run at real-time priority.
    HoldCpu,
}

/// A thread for each of some CPUs, which spins there while [`Spinners::spin`] has it do so and sleeps otherwise, until dropped.
/// Threads end with their process, however that ends.
///
/// Nobody waits for a thread of priority SCHED_IDLE: on CPUs that others use it has a turn of some milliseconds once in seconds.
pub(crate) struct Spinners {
    purpose: SpinPurpose,
    state: Arc<SharedState>,
    threads: Vec<(ThreadId, JoinHandle<()>)>,
}

/// What all threads of some spinners do, or will once they have a turn.
struct SharedState(AtomicU8);

impl SharedState {
    const SLEEPING: u8 = 0;
    const SPINNING: u8 = 1;
    const ENDED: u8 = 2;

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// Spinners spin until it is dropped.
pub(crate) struct SpinGuard(Arc<SharedState>);

impl Drop for SpinGuard {
    /// One that has no turn now goes to sleep as soon as it has one.
    fn drop(&mut self) {
        self.0.set(SharedState::SLEEPING);
    }
}

impl Spinners {
    /// Starts them; all sleep.
    pub(crate) fn start(cpus: &[u32], purpose: SpinPurpose) -> Result<Self, SkipReason> {
        let state = Arc::new(SharedState(AtomicU8::new(SharedState::SLEEPING)));
        let mut spinners = Self { purpose, state, threads: Vec::new() };
        for &cpu in cpus {
            let (state, (ready, outcome)) = (Arc::clone(&spinners.state), channel());
            let name = format!("spinner-{cpu}");
            let thread = ThreadBuilder::named(&name).start(move || run_spinner((cpu, purpose), &state, &ready));
            let thread = thread.map_err(|error| SkipReason::new(error.to_string()))?;
            let id = outcome.recv().expect("a spinner reports how it began").map_err(|error| match purpose {
                SpinPurpose::KeepAwake => SkipReason::new(format!("cannot keep a CPU awake: {error}")),
                SpinPurpose::HoldCpu => SkipReason::new(format!(
                    "needs CAP_SYS_NICE, to hold the other CPUs at real-time priority: {error}"
                )),
            })?;
            spinners.threads.push((id, thread));
        }
        Ok(spinners)
    }

    /// Has them spin from now on.
    pub(crate) fn spin(&self) -> SpinGuard {
        self.state.set(SharedState::SPINNING);
        self.wake();
        SpinGuard(Arc::clone(&self.state))
    }

    fn wake(&self) {
        self.threads.iter().for_each(|(_, thread)| thread.thread().unpark());
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        let has_turns = |(id, _): &(ThreadId, JoinHandle<()>)| {
            self.purpose == SpinPurpose::HoldCpu || cpu::set_usual_priority(*id).is_ok()
        };
        let have_turns = self.threads.iter().all(has_turns);
        self.state.set(SharedState::ENDED);
        self.wake();
        if have_turns {
            for (_, thread) in self.threads.drain(..) {
                // It cannot panic, and if it did it is gone all the same.
                let _ = thread.join();
            }
        }
    }
}

/// Spins and sleeps as the state says.
fn run_spinner((cpu, purpose): (u32, SpinPurpose), state: &SharedState, ready: &Sender<kelvin_sys::Result<ThreadId>>) {
    let outcome = cpu::pin(&[cpu]).and_then(|()| match purpose {
        SpinPurpose::KeepAwake => cpu::set_idle_priority(),
        SpinPurpose::HoldCpu => cpu::set_realtime_thread(),
    });
    let is_prepared = outcome.is_ok();
    let _ = ready.send(outcome.map(|()| ThreadId::current()));
    while is_prepared && !state.is(SharedState::ENDED) {
        spin(purpose, state);
        std::thread::park();
    }
}

/// Spins as long as the state says so. Not by the processor's pause instruction: a hypervisor takes many of them for a lock that waits,
/// and takes the CPU away.
fn spin(purpose: SpinPurpose, state: &SharedState) {
    let mut hold_start = Instant::now();
    while state.is(SharedState::SPINNING) {
        kernels::counted_loop(STOP_CHECK_ITERATIONS);
        if purpose == SpinPurpose::HoldCpu && hold_start.elapsed() > HOLD_PERIOD {
            std::thread::sleep(RELEASE_PERIOD);
            hold_start = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Tests that count this process's spinners, one at a time.
    static SERIAL_TESTS: Mutex<()> = Mutex::new(());
    /// Policies as sched(7) numbers them.
    const SCHED_FIFO: &str = "1";
    const SCHED_IDLE: &str = "5";

    /// Policies of this process's threads that spin: field 41 of /proc/PID/stat.
    fn policies() -> Vec<String> {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        stats
            .filter(|stat| stat.contains("(spinner-"))
            .map(|stat| stat.split(' ').nth(40).unwrap().to_owned())
            .collect()
    }

    /// Whether none spins any more: a thread that was joined may be listed for a moment longer.
    fn have_spinners_stopped() -> bool {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match policies().is_empty() {
                true => return true,
                false if Instant::now() > deadline => return false,
                false => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn spinners_use_sched_idle_until_dropped() {
        let _guard = SERIAL_TESTS.lock().unwrap();
        let cpus = cpu::affinity().unwrap();
        let spinners = Spinners::start(&cpus, SpinPurpose::KeepAwake).unwrap();
        // They are there from round to round: one that has no turn would keep a round from its end.
        for _ in 0..3 {
            let spinning = spinners.spin();
            assert_eq!(policies(), vec![SCHED_IDLE; cpus.len()]);
            drop(spinning);
            assert!(spinners.threads.iter().all(|(_, thread)| !thread.is_finished()));
        }
        drop(spinners);
        assert!(have_spinners_stopped());
        assert!(Spinners::start(&[8000], SpinPurpose::KeepAwake).is_err());
        assert!(have_spinners_stopped());
    }

    /// On one of the CPUs only: this test needs one itself.
    #[test]
    fn spinners_hold_cpu_at_realtime_or_explain() {
        let _guard = SERIAL_TESTS.lock().unwrap();
        let last = *cpu::affinity().unwrap().last().unwrap();
        match Spinners::start(&[last], SpinPurpose::HoldCpu) {
            Ok(spinners) => {
                let _spinning = spinners.spin();
                assert_eq!(policies(), [SCHED_FIFO]);
                drop(spinners);
            }
            Err(reason) => assert!(reason.0.starts_with("needs CAP_SYS_NICE"), "{}", reason.0),
        }
        assert!(have_spinners_stopped());
    }
}
