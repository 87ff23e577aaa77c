//! CPUs kept from going idle by threads that run only when nothing else wants the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use kelvin_model::Reason;
use kelvin_sys::{cpu, kernels};

/// Iterations between two looks at whether to stop: some microseconds.
const TURN: u64 = 4096;

/// A thread of priority SCHED_IDLE that spins on each of some CPUs, until dropped. Threads end with their process, however that ends.
pub(crate) struct Awake {
    stop: Arc<AtomicBool>,
    spinners: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts them; all spin when it returns.
    pub(crate) fn on(cpus: &[u32]) -> Result<Self, Reason> {
        let mut awake = Self { stop: Arc::default(), spinners: Vec::new() };
        let (ready, started) = channel();
        for &cpu in cpus {
            let (stop, ready) = (Arc::clone(&awake.stop), ready.clone());
            let spinner =
                std::thread::Builder::new().name(format!("awake-{cpu}")).spawn(move || spin(cpu, &stop, &ready));
            awake.spinners.push(spinner.map_err(|error| Reason::new(format!("cannot start a spinner: {error}")))?);
        }
        drop(ready);
        for outcome in started.iter().take(cpus.len()) {
            outcome.map_err(|error| Reason::new(format!("cannot keep a CPU awake: {error}")))?;
        }
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in self.spinners.drain(..) {
            // It cannot panic, and if it did it is gone all the same.
            let _ = spinner.join();
        }
    }
}

/// Not the processor's pause instruction: a hypervisor takes many of them for a lock that waits, and takes the CPU away.
fn spin(cpu: u32, stop: &AtomicBool, ready: &Sender<kelvin_sys::Result<()>>) {
    let prepared = cpu::pin(&[cpu]).and_then(|()| cpu::run_when_idle());
    let is_prepared = prepared.is_ok();
    let _ = ready.send(prepared);
    while is_prepared && !stop.load(Ordering::Relaxed) {
        kernels::counted_loop(TURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policies of this process's threads that spin: field 41 of /proc/PID/stat.
    fn spinners() -> Vec<String> {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        stats.filter(|stat| stat.contains("(awake-")).map(|stat| stat.split(' ').nth(40).unwrap().to_owned()).collect()
    }

    #[test]
    fn they_spin_at_the_lowest_priority_until_dropped() {
        let cpus = cpu::allowed().unwrap();
        let awake = Awake::on(&cpus).unwrap();
        assert_eq!(spinners(), vec![libc_sched_idle(); cpus.len()]);
        drop(awake);
        assert!(spinners().is_empty());
        assert!(Awake::on(&[8000]).is_err());
        assert!(spinners().is_empty());
    }

    /// SCHED_IDLE, as sched(7) numbers it.
    fn libc_sched_idle() -> String {
        "5".to_owned()
    }
}
