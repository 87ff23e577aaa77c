//! What an end did while files moved, and what kept it from doing more.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use kelvin_sys::cpu_usage::ThreadClock;
use kelvin_sys::usage::RunQueueWait;
use serde::{Deserialize, Serialize};

use crate::wire::Hasher;

/// Nanoseconds that one end spent in its stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Reading or writing files.
    pub file: u64,
    /// Of these, in calls that took longer than a processor takes: they waited for a disk, or for whoever serves the file.
    pub file_wait: u64,
    /// Hashing.
    pub verify: u64,
    /// Compressing or decompressing.
    pub compress: u64,
    /// Encrypting or decrypting.
    pub cipher: u64,
    /// Sending or receiving, waiting included.
    pub connection: u64,
    /// Flushing to the device.
    pub sync: u64,
    /// Waiting so that a limit is kept.
    pub limit: u64,
}

/// A call for a file that takes longer has waited for more than a processor, in nanoseconds. To copy 64 KiB from or to memory
/// takes 5 to 50 us, a disk's answer at least 50 to 100.
const WAIT_THRESHOLD: u64 = 100_000;

impl StageTimes {
    /// Adds those of another connection.
    pub(crate) fn add(&mut self, other: &Self) {
        self.file = self.file.saturating_add(other.file);
        self.file_wait = self.file_wait.saturating_add(other.file_wait);
        self.verify = self.verify.saturating_add(other.verify);
        self.compress = self.compress.saturating_add(other.compress);
        self.cipher = self.cipher.saturating_add(other.cipher);
        self.connection = self.connection.saturating_add(other.connection);
        self.sync = self.sync.saturating_add(other.sync);
        self.limit = self.limit.saturating_add(other.limit);
    }

    /// Does something with a file, and adds the time that it took.
    pub(crate) fn time_file<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let output = work();
        self.add_file_time(start);
        output
    }

    /// Adds the time that something with a file took which has just ended; returns when that was.
    pub(crate) fn add_file_time(&mut self, start: Instant) -> Instant {
        let end = Instant::now();
        let elapsed = end.duration_since(start).as_nanos() as u64;
        self.file = self.file.saturating_add(elapsed);
        if elapsed >= WAIT_THRESHOLD {
            self.file_wait = self.file_wait.saturating_add(elapsed);
        }
        end
    }
}

/// Does something, and adds the time that it took.
pub(crate) fn add_elapsed<T>(sum: &mut u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let output = work();
    *sum = sum.saturating_add(start.elapsed().as_nanos() as u64);
    output
}

/// Hashes some bytes, and adds the time that it took.
pub(crate) fn hash_timed(hasher: &mut Hasher, bytes: &[u8], sum: &mut u64) {
    add_elapsed(sum, || hasher.update(bytes));
}

/// What lies under the files of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageKind {
    /// A disk.
    #[default]
    Disk,
    /// Memory alone.
    Memory,
    /// Another program or machine, which serves the file system.
    Served,
    /// A pipe or a terminal.
    Pipe,
    /// Nothing: what arrives is dropped.
    Nothing,
}

impl StorageKind {
    /// That of a path; a disk where it is unknown.
    pub(crate) fn of_path(path: &Path) -> Self {
        match kelvin_sys::fs::kind(path) {
            Ok(kind) if kind.is_in_memory() => Self::Memory,
            Ok(kind) if kind.is_served() => Self::Served,
            _ => Self::Disk,
        }
    }
}

/// What one end did, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndLoad {
    /// Its stages.
    pub times: StageTimes,
    /// CPU time.
    pub cpu: u64,
    /// Ready to run, and not running.
    pub ready: u64,
    /// For how long a quota of CPU time kept its control group from running, summed over processors.
    pub throttled: u64,
    /// What lies under its files.
    pub storage: StorageKind,
}

/// The counters of the calling thread when it began: nanoseconds since then, or since boot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadMeter {
    cpu: u64,
    ready: u64,
    throttled: u64,
}

/// Where the throttling of this process's control group is counted, if it is: looked for once, since it means reading all mounts.
static CPU_STAT_PATH: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| kelvin_machine::throttle_file(Path::new("/")).map(PathBuf::from));

impl LoadMeter {
    pub(crate) fn start() -> Self {
        let cpu = ThreadClock::current().and_then(|clock| clock.cpu_time()).unwrap_or_default();
        let throttled = CPU_STAT_PATH.as_deref().and_then(kelvin_machine::throttled_time).unwrap_or_default();
        Self {
            cpu: cpu.as_nanos() as u64,
            ready: RunQueueWait::of_thread().nanoseconds().unwrap_or_default(),
            throttled: throttled.as_nanos() as u64,
        }
    }

    /// What the thread did since, in these stages.
    pub(crate) fn finish(&self, times: StageTimes, storage: StorageKind) -> EndLoad {
        let now = Self::start();
        let cpu = now.cpu.saturating_sub(self.cpu);
        let ready = now.ready.saturating_sub(self.ready);
        EndLoad { times, cpu, ready, throttled: now.throttled.saturating_sub(self.throttled), storage }
    }
}

#[cfg(test)]
mod tests {
    use kelvin_sys::usage::{UsageScope, read_usage};

    use super::*;

    #[test]
    fn waiting_calls_are_counted_apart() {
        let mut times = StageTimes::default();
        assert_eq!(times.time_file(|| 5), 5);
        assert_eq!(times.file_wait, 0);
        let file_time = times.file;
        times.time_file(|| std::thread::sleep(std::time::Duration::from_nanos(2 * WAIT_THRESHOLD)));
        assert!(times.file_wait >= 2 * WAIT_THRESHOLD && times.file == file_time + times.file_wait, "{times:?}");
    }

    #[test]
    fn work_counts_as_cpu_and_sleep_not() {
        let meter = LoadMeter::start();
        let start = Instant::now();
        while read_usage(UsageScope::Thread).user + read_usage(UsageScope::Thread).system < 20_000_000 {
            std::hint::spin_loop();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let load = meter.finish(StageTimes::default(), StorageKind::of_path(Path::new("/proc")));
        let elapsed = start.elapsed().as_nanos() as u64;
        assert!(load.cpu > 0 && load.cpu + 20_000_000 <= elapsed + 4_000_000, "{load:?} of {elapsed}");
        assert_eq!(load.storage, StorageKind::Memory);
    }
}
