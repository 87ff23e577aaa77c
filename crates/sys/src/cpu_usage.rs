//! Utilisation of threads and CPUs, seen from another thread: CPU time of a thread, idle time of each CPU.

use std::time::Duration;

use crate::procfs::CpuStat;
use crate::usage::CounterFile;
use crate::{Result, check, check_code};

unsafe extern "C" {
    /// pthread_getcpuclockid(3), which the crate `libc` does not declare for Linux.
    fn pthread_getcpuclockid(thread: libc::pthread_t, clock: *mut libc::clockid_t) -> libc::c_int;
}

/// The clock of a thread's CPU time, which all threads of the process can read while it lives.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// That of the calling thread.
    ///
    /// # Errors
    /// `ENOENT` of a system without such clocks.
    pub fn current() -> Result<Self> {
        let mut clock = 0;
        // SAFETY: the calling thread lives, and the pointer is valid to be written.
        check_code(unsafe { pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) })?;
        Ok(Self(clock))
    }

    /// CPU time that the thread has used.
    ///
    /// # Errors
    /// `EINVAL` of a thread that has ended.
    pub fn cpu_time(self) -> Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is valid to be written.
        check(unsafe { libc::clock_gettime(self.0, &raw mut time) })?;
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// Reads /proc/stat again and again; the kernel's resolution is 10 ms.
#[derive(Debug)]
pub struct CpuStatReader(CounterFile);

impl CpuStatReader {
    /// Opens the file.
    ///
    /// # Errors
    /// `NotFound` where it is not shown, as in some containers.
    pub fn open() -> Result<Self> {
        CounterFile::open("/proc/stat").map(Self)
    }

    /// The current times; `None` where it cannot be read, or does not list all CPUs together.
    pub fn read(&mut self) -> Option<CpuStat> {
        CpuStat::parse(self.0.read().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn thread_time_is_readable_until_it_ends() {
        let (sender, receiver) = channel();
        let (release, wait) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let thread_clock = ThreadClock::current().unwrap();
            while thread_clock.cpu_time().unwrap() < Duration::from_millis(5) {
                std::hint::spin_loop();
            }
            sender.send((thread_clock, thread_clock.cpu_time().unwrap())).unwrap();
            wait.recv().unwrap_err();
            thread_clock.cpu_time().unwrap()
        });
        let (clock, reported_time) = receiver.recv().unwrap();
        let measured_time = clock.cpu_time().unwrap();
        assert!(
            measured_time >= reported_time && reported_time >= Duration::from_millis(5),
            "{measured_time:?} {reported_time:?}"
        );
        drop(release);
        let final_time = thread.join().unwrap();
        assert!(measured_time <= final_time, "{measured_time:?} {final_time:?}");
    }

    #[test]
    fn every_cpu_is_listed() {
        let stat = CpuStatReader::open().unwrap().read().unwrap();
        let cpus = crate::cpu::affinity().unwrap();
        assert!(stat.sum(&cpus).is_some(), "{stat:?}");
    }
}
