//! Disturbances of a probe's thread while it is timed: preemption, migration, stolen time, throttling, major faults.

use kelvin_model::Tags;
use kelvin_sys::clock::monotonic;
use kelvin_sys::cpu;
use kelvin_sys::usage::{CounterFile, Usage, Who, usage};

/// Nanoseconds between two checks of the counters that cost a file read.
const FILE_PERIOD: u64 = 5_000_000;

/// Counters before a batch, compared with those after it.
pub(crate) struct Watch {
    cpu: u32,
    last: Usage,
    stat: Option<CounterFile>,
    stolen: u64,
    throttle: Option<CounterFile>,
    throttled: u64,
    looked: u64,
}

impl Watch {
    pub(crate) fn new(cpu: u32, throttle_file: Option<&str>) -> Self {
        Self::of(cpu, "/proc/stat", throttle_file)
    }

    fn of(cpu: u32, stat_file: &str, throttle_file: Option<&str>) -> Self {
        let mut watch = Self {
            cpu,
            last: usage(Who::Thread),
            stat: CounterFile::open(stat_file).ok(),
            stolen: 0,
            throttle: throttle_file.and_then(|path| CounterFile::open(path).ok()),
            throttled: 0,
            looked: monotonic(),
        };
        watch.files();
        watch
    }

    /// Starts afresh.
    pub(crate) fn begin(&mut self) {
        self.last = usage(Who::Thread);
    }

    /// What happened to the thread since `begin` or the last check.
    pub(crate) fn batch(&mut self) -> Tags {
        let now = usage(Who::Thread);
        let mut tags = Tags::NONE;
        if now.involuntary_switches > self.last.involuntary_switches {
            tags |= Tags::PREEMPTED;
        }
        if now.major_faults > self.last.major_faults {
            tags |= Tags::MAJOR_FAULT;
        }
        if cpu::current() != self.cpu {
            tags |= Tags::MIGRATED;
        }
        self.last = now;
        tags
    }

    /// Whether it is time to check the counters that cost a file read.
    pub(crate) fn due(&self) -> bool {
        monotonic() - self.looked >= FILE_PERIOD
    }

    /// What the files show since the last check: all samples since then are suspect.
    pub(crate) fn files(&mut self) -> Tags {
        let mut tags = Tags::NONE;
        let stolen = self.stat.as_mut().and_then(|file| stolen_ticks(file.read().ok()?, self.cpu)).unwrap_or(0);
        if stolen > self.stolen {
            tags |= Tags::STOLEN;
        }
        let throttled = self.throttle.as_mut().and_then(|file| throttled(file.read().ok()?)).unwrap_or(0);
        if throttled > self.throttled {
            tags |= Tags::THROTTLED;
        }
        (self.stolen, self.throttled, self.looked) = (stolen, throttled, monotonic());
        tags
    }
}

/// Ticks stolen from a CPU so far: the eighth figure of its line in /proc/stat.
fn stolen_ticks(stat: &str, cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

/// Periods in which the quota ran out so far.
fn throttled(cpu_stat: &str) -> Option<u64> {
    cpu_stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stolen_from_the_last_of_many_cpus_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        let write = |stolen: u64| {
            let line = |cpu: u32| format!("cpu{cpu} 123456 0 234567 345678901 4567 0 5678 {stolen} 0 0\n");
            let lines: String = (0..512).map(line).collect();
            std::fs::write(&path, format!("cpu  1 2 3 4 5 6 7 8 9 10\n{lines}intr 1 2 3\n")).unwrap();
        };
        write(7);
        let mut watch = Watch::of(511, path.to_str().unwrap(), None);
        assert!(!watch.files().any(Tags::STOLEN));
        write(8);
        assert!(watch.files().any(Tags::STOLEN));
    }

    #[test]
    fn counters_are_found_in_their_files() {
        let stat = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu1 1 2 3 4 5 6 7 8 9 10\ncpu10 1 2 3 4 5 6 7 99 9 10\n";
        assert_eq!(stolen_ticks(stat, 1), Some(8));
        assert_eq!(stolen_ticks(stat, 10), Some(99));
        assert_eq!(stolen_ticks(stat, 2), None);
        assert_eq!(throttled("nr_periods 5\nnr_throttled 3\nthrottled_time 12\n"), Some(3));
    }
}
