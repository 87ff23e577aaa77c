//! Disturbances of a probe's thread while it is timed: preemption, migration, stolen time, throttling, major faults.

use kelvin_core::SampleTags;
use kelvin_sys::clock::monotonic;
use kelvin_sys::cpu;
use kelvin_sys::procfs::{CpuThrottling, CpuTicks};
use kelvin_sys::usage::{CounterFile, Usage, UsageScope, read_usage};

/// Nanoseconds between two checks of the counters that cost a file read.
const FILE_CHECK_PERIOD: u64 = 5_000_000;

/// Counters before a batch, compared with those after it.
pub(crate) struct InterferenceMonitor {
    cpu: u32,
    last_usage: Usage,
    stat: Option<CounterFile>,
    stolen_ticks: u64,
    throttle: Option<CounterFile>,
    throttled_periods: u64,
    last_file_check: u64,
}

impl InterferenceMonitor {
    pub(crate) fn new(cpu: u32, stat_file: &str, throttle_file: Option<&str>) -> Self {
        let mut monitor = Self {
            cpu,
            last_usage: read_usage(UsageScope::Thread),
            stat: CounterFile::open(stat_file).ok(),
            stolen_ticks: 0,
            throttle: throttle_file.and_then(|path| CounterFile::open(path).ok()),
            throttled_periods: 0,
            last_file_check: monotonic(),
        };
        monitor.take_file_tags();
        monitor
    }

    /// Starts afresh.
    pub(crate) fn reset(&mut self) {
        self.last_usage = read_usage(UsageScope::Thread);
    }

    /// What happened to the thread since `begin` or the last check.
    pub(crate) fn take_thread_tags(&mut self) -> SampleTags {
        let now = read_usage(UsageScope::Thread);
        let mut tags = SampleTags::NONE;
        if now.involuntary_switches > self.last_usage.involuntary_switches {
            tags |= SampleTags::PREEMPTED;
        }
        if now.major_faults > self.last_usage.major_faults {
            tags |= SampleTags::MAJOR_FAULT;
        }
        if cpu::current() != self.cpu {
            tags |= SampleTags::MIGRATED;
        }
        self.last_usage = now;
        tags
    }

    /// Whether it is time to check the counters that cost a file read.
    pub(crate) fn is_file_check_due(&self) -> bool {
        monotonic() - self.last_file_check >= FILE_CHECK_PERIOD
    }

    /// What the files show since the last check: all samples since then are suspect.
    pub(crate) fn take_file_tags(&mut self) -> SampleTags {
        let mut tags = SampleTags::NONE;
        let stolen = self.stat.as_mut().and_then(|file| stolen_ticks(file.read().ok()?, self.cpu)).unwrap_or(0);
        if stolen > self.stolen_ticks {
            tags |= SampleTags::STOLEN;
        }
        let throttling = self.throttle.as_mut().and_then(|file| CpuThrottling::parse(file.read().ok()?));
        let throttled_periods = throttling.map_or(0, |throttling| throttling.throttled_periods);
        if throttled_periods > self.throttled_periods {
            tags |= SampleTags::THROTTLED;
        }
        (self.stolen_ticks, self.throttled_periods, self.last_file_check) = (stolen, throttled_periods, monotonic());
        tags
    }
}

/// Ticks stolen from a CPU so far: the eighth figure of its line in /proc/stat.
fn stolen_ticks(stat: &str, cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    CpuTicks::parse_line(line).map(|(_, ticks)| ticks.steal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_of_last_cpu_is_parsed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        let write = |stolen: u64| {
            let line = |cpu: u32| format!("cpu{cpu} 123456 0 234567 345678901 4567 0 5678 {stolen} 0 0\n");
            let lines: String = (0..512).map(line).collect();
            std::fs::write(&path, format!("cpu  1 2 3 4 5 6 7 8 9 10\n{lines}intr 1 2 3\n")).unwrap();
        };
        write(7);
        let mut monitor = InterferenceMonitor::new(511, path.to_str().unwrap(), None);
        assert!(!monitor.take_file_tags().intersects(SampleTags::STOLEN));
        write(8);
        assert!(monitor.take_file_tags().intersects(SampleTags::STOLEN));
    }

    #[test]
    fn stolen_ticks_are_of_own_cpu() {
        let stat = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu1 1 2 3 4 5 6 7 8 9 10\ncpu10 1 2 3 4 5 6 7 99 9 10\n";
        assert_eq!(stolen_ticks(stat, 1), Some(8));
        assert_eq!(stolen_ticks(stat, 10), Some(99));
        assert_eq!(stolen_ticks(stat, 2), None);
    }
}
