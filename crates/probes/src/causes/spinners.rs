//! Threads that keep CPUs busy: so that they do not go idle, or so that no other program has a turn on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_core::SkipReason;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::{cpu, kernels};

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

/// A thread that spins on each of some CPUs, until dropped. Threads end with their process, however that ends.
pub(crate) struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    /// Starts them; all spin when it returns.
    pub(crate) fn start(cpus: &[u32], purpose: SpinPurpose) -> Result<Self, SkipReason> {
        let mut spinners = Self { stop: Arc::default(), threads: Vec::new() };
        let (ready, outcomes) = channel();
        for &cpu in cpus {
            let (stop, ready) = (Arc::clone(&spinners.stop), ready.clone());
            let name = format!("spinner-{cpu}");
            let thread = ThreadBuilder::named(&name).start(move || spin(cpu, purpose, &stop, &ready));
            spinners.threads.push(thread.map_err(|error| SkipReason::new(error.to_string()))?);
        }
        drop(ready);
        for outcome in outcomes.iter().take(cpus.len()) {
            outcome.map_err(|error| match purpose {
                SpinPurpose::KeepAwake => SkipReason::new(format!("cannot keep a CPU awake: {error}")),
                SpinPurpose::HoldCpu => SkipReason::new(format!(
                    "needs CAP_SYS_NICE, to hold the other CPUs at real-time priority: {error}"
                )),
            })?;
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot panic, and if it did it is gone all the same.
            let _ = thread.join();
        }
    }
}

/// Not the processor's pause instruction: a hypervisor takes many of them for a lock that waits, and takes the CPU away.
fn spin(cpu: u32, purpose: SpinPurpose, stop: &AtomicBool, ready: &Sender<kelvin_sys::Result<()>>) {
    let outcome = cpu::pin(&[cpu]).and_then(|()| match purpose {
        SpinPurpose::KeepAwake => cpu::set_idle_priority(),
        SpinPurpose::HoldCpu => cpu::set_realtime_thread(),
    });
    let is_prepared = outcome.is_ok();
    let _ = ready.send(outcome);
    let mut hold_start = Instant::now();
    while is_prepared && !stop.load(Ordering::Relaxed) {
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
        assert_eq!(policies(), vec![SCHED_IDLE; cpus.len()]);
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
                assert_eq!(policies(), [SCHED_FIFO]);
                drop(spinners);
            }
            Err(reason) => assert!(reason.0.starts_with("needs CAP_SYS_NICE"), "{}", reason.0),
        }
        assert!(have_spinners_stopped());
    }
}
