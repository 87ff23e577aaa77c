//! Kernel counters of a thread, a process, or its children: switches, faults, CPU time.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;

use crate::Result;
use crate::procfs::SchedStat;

/// Counters of getrusage(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds in user mode.
    pub user: u64,
    /// Nanoseconds in the kernel.
    pub system: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Bytes read from block devices.
    pub read_from_device: u64,
    /// Largest resident set so far, in bytes.
    pub peak_resident: u64,
}

/// Bytes of a block of ru_inblock (Linux accounts bytes, and shifts them by 9).
const BLOCK_BYTES: u64 = 512;

impl Usage {
    /// Nanoseconds of CPU time.
    pub fn cpu(self) -> u64 {
        self.user + self.system
    }

    pub(crate) fn of_raw(raw: &libc::rusage) -> Self {
        let nanoseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            user: nanoseconds(raw.ru_utime),
            system: nanoseconds(raw.ru_stime),
            voluntary_switches: raw.ru_nvcsw as u64,
            involuntary_switches: raw.ru_nivcsw as u64,
            minor_faults: raw.ru_minflt as u64,
            major_faults: raw.ru_majflt as u64,
            read_from_device: raw.ru_inblock as u64 * BLOCK_BYTES,
            peak_resident: raw.ru_maxrss as u64 * 1024,
        }
    }

    /// The difference from an earlier reading; the peak is the current one.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
            read_from_device: self.read_from_device - earlier.read_from_device,
            peak_resident: self.peak_resident,
        }
    }
}

/// Whose counters.
#[derive(Clone, Copy, Debug)]
pub enum UsageScope {
    /// The calling thread.
    Thread,
    /// The calling process.
    Process,
    /// Its reaped children.
    Children,
}

/// Reads the counters.
pub fn read_usage(scope: UsageScope) -> Usage {
    let who = match scope {
        UsageScope::Thread => libc::RUSAGE_THREAD,
        UsageScope::Process => libc::RUSAGE_SELF,
        UsageScope::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: an all-zero rusage is valid, and the call fills it; it cannot fail for these constants.
    let raw = unsafe {
        let mut raw: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut raw);
        raw
    };
    Usage::of_raw(&raw)
}

/// A kernel file that is read repeatedly without reopening, however long it becomes.
#[derive(Debug)]
pub struct CounterFile {
    file: File,
    buffer: Vec<u8>,
}

impl CounterFile {
    /// Opens it.
    pub fn open(path: &str) -> Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: vec![0; 4096] })
    }

    /// Its whole text now.
    ///
    /// # Errors
    /// Those of the system call; `InvalidData` where it is no text, or longer than any such file.
    pub fn read(&mut self) -> Result<&str> {
        let invalid = |message: &str| Error::new(ErrorKind::InvalidData, message);
        loop {
            // In one call: the kernel makes the text anew for each, with other figures.
            let length = self.file.read_at(&mut self.buffer, 0)?;
            if length < self.buffer.len() {
                return std::str::from_utf8(&self.buffer[..length]).map_err(|_| invalid("it is no text"));
            }
            if length >= MAX_FILE_BYTES {
                return Err(invalid("it is longer than any file of counters"));
            }
            self.buffer.resize(2 * length, 0);
        }
    }
}

/// Bytes of the longest file of counters: /proc/stat of 8192 CPUs has less than 1 MiB, and its line of interrupts as much again.
const MAX_FILE_BYTES: usize = 16 << 20;

/// How long a thread was runnable without a CPU (Documentation/scheduler/sched-stats.rst), where the kernel counts that.
#[derive(Debug)]
pub struct RunQueueWait(Option<CounterFile>);

impl RunQueueWait {
    /// Of the calling thread.
    pub fn of_thread() -> Self {
        Self(CounterFile::open("/proc/thread-self/schedstat").ok())
    }

    /// Nanoseconds so far.
    pub fn nanoseconds(&mut self) -> Option<u64> {
        SchedStat::parse(self.0.as_mut()?.read().ok()?).map(|stat| stat.run_queue_wait)
    }
}

/// Nanoseconds of ticks as /proc counts them, of which the kernel shows 100 a second.
pub fn ticks_to_nanoseconds(ticks: u64) -> f64 {
    ticks as f64 * (1e9 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of 8192 CPUs is longer than the buffer at the beginning, and may be shorter at the next look.
    #[test]
    fn counter_file_is_read_completely() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        let text = |cpus: u32| (0..cpus).map(|cpu| format!("cpu{cpu} 1 2 3 4 5 6 7 8 9 10\n")).collect::<String>();
        std::fs::write(&path, "").unwrap();
        let mut file = CounterFile::open(path.to_str().unwrap()).unwrap();
        for cpus in [1, 57, 8192, 2] {
            std::fs::write(&path, text(cpus)).unwrap();
            assert_eq!(file.read().unwrap(), text(cpus), "{cpus}");
        }
        let content = "x".repeat(file.buffer.len());
        std::fs::write(&path, &content).unwrap();
        assert_eq!(file.read().unwrap(), content);
        std::fs::write(&path, [0xff]).unwrap();
        assert!(file.read().is_err());
    }

    #[test]
    fn usage_counters_increase() {
        let before = read_usage(UsageScope::Thread);
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        let after = read_usage(UsageScope::Thread);
        assert!(after.voluntary_switches >= before.voluntary_switches + 5);
    }
}
