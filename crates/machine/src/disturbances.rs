//! Disturbances of the machine during a run: steal, other work, throttling, pressure, a changed clock source.

use std::path::Path;

use kelvin_core::{Hazard, IndirectSort, Severity, cpu_ranges};

use crate::limits::ProcessCgroups;
use kelvin_sys::procfs::{CpuStat, CpuThrottling};

use crate::counters::{self, StallKind, THERMAL_THROTTLE_FILES, busy_share, ratio, steal_share};
use crate::hazards::{PRESSURE_RULES, PressureRule, hazard, percent, severity_at};
use crate::kernel::CLOCK_SOURCE_FILE;
use crate::root::FileRoot;

/// Share of one CPU's time above which it is listed as busy.
const BUSY_CPU_SHARE: f64 = 0.10;

/// The counters of a machine at the beginning of a run; those not reported are `None`.
#[derive(Clone, Debug)]
pub struct DisturbanceMonitor {
    stat: Option<CpuStat>,
    own_ticks: Option<u64>,
    throttling: Option<CpuThrottling>,
    clock_source: Option<String>,
    thermal: Option<u64>,
    pressures: [Option<u64>; 3],
}

impl DisturbanceMonitor {
    /// Reads the counters at the beginning of a run; takes well under a millisecond and changes nothing.
    pub fn start(root: &Path) -> Self {
        let root = FileRoot::new(root);
        Self {
            stat: counters::cpu_stat(root),
            own_ticks: counters::own_cpu_ticks(root),
            throttling: ProcessCgroups::read(root).ok().and_then(|groups| counters::cpu_throttling(&groups)),
            clock_source: root.text(CLOCK_SOURCE_FILE),
            thermal: counters::thermal_throttles(root),
            pressures: std::array::from_fn(|index| {
                counters::pressure(root, PRESSURE_RULES[index].resource, StallKind::Some)
                    .map(|pressure| pressure.total_microseconds)
            }),
        }
    }

    /// The hazards since the beginning, the worst first. May be called more than once during a run.
    ///
    /// Other work is all CPU time less that of this process and its reaped children: call it when no child runs, or the
    /// child counts as other work.
    pub fn hazards(&self, root: &Path) -> Vec<Hazard> {
        let interval = CounterInterval { start: self, end: &Self::start(root) };
        let mut hazards: Vec<Hazard> = [
            interval.clock_source(),
            interval.throttling(),
            interval.steal(),
            interval.other_work(),
            interval.thermal(),
        ]
        .into_iter()
        .flatten()
        .collect();
        hazards.extend((0..PRESSURE_RULES.len()).filter_map(|index| interval.pressure(index)));
        hazards.indirect_sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
        hazards
    }
}

/// Two readings.
struct CounterInterval<'a> {
    start: &'a DisturbanceMonitor,
    end: &'a DisturbanceMonitor,
}

impl CounterInterval<'_> {
    /// The CPU times between them.
    fn cpu_stat(&self) -> Option<CpuStat> {
        Some(self.end.stat.as_ref()?.since(self.start.stat.as_ref()?))
    }

    fn clock_source(&self) -> Option<Hazard> {
        let (before, after) = (self.start.clock_source.as_ref()?, self.end.clock_source.as_ref()?);
        let summary = format!("the kernel's clock source changed from '{before}' to '{after}' during the run");
        (before != after).then(|| hazard("clock_source_changed", Severity::Serious, summary, CLOCK_SOURCE_FILE))
    }

    fn throttling(&self) -> Option<Hazard> {
        let (before, after) = (self.start.throttling?, self.end.throttling?);
        let times = after.throttled_periods.saturating_sub(before.throttled_periods);
        let milliseconds = after.microseconds.saturating_sub(before.microseconds) as f64 / 1e3;
        let summary = format!("the CPU quota throttled the control group {times} times, {milliseconds:.0} ms in all");
        (times > 0).then(|| hazard("throttled", Severity::Serious, summary, "cpu.stat of the control group"))
    }

    fn steal(&self) -> Option<Hazard> {
        let share = Some(steal_share(self.cpu_stat()?.all_cpus)).filter(|share| *share > 0.0)?;
        let thresholds = [(0.05, Severity::Serious), (0.005, Severity::Warning), (0.0, Severity::Note)];
        let severity = severity_at(share, &thresholds)?;
        let summary = format!("the hypervisor stole {:.2} % of the CPU time during the run", share * 100.0);
        Some(hazard("steal_during", severity, summary, "/proc/stat"))
    }

    fn other_work(&self) -> Option<Hazard> {
        let stat = self.cpu_stat()?;
        let own_ticks = self.end.own_ticks?.saturating_sub(self.start.own_ticks?);
        let share = ratio(stat.all_cpus.busy().saturating_sub(own_ticks), stat.all_cpus.total());
        let thresholds = [(0.25, Severity::Serious), (0.05, Severity::Warning), (0.01, Severity::Note)];
        let severity = severity_at(share, &thresholds)?;
        let cpus = share * stat.cpus.len().max(1) as f64;
        let busy = stat.cpus.iter().filter(|(_, ticks)| busy_share(**ticks) > BUSY_CPU_SHARE);
        let busy: Vec<u32> = busy.map(|(cpu, _)| *cpu).collect();
        let location = if busy.is_empty() { "no CPU for long".into() } else { cpu_ranges(&busy) };
        let summary = format!(
            "other processes and the kernel used {} of the CPU time, as much as {cpus:.2} CPUs (busy CPUs, all work: \
             {location})",
            percent(share)
        );
        Some(hazard("other_work", severity, summary, "/proc/stat less /proc/self/stat"))
    }

    fn thermal(&self) -> Option<Hazard> {
        let times = self.end.thermal?.checked_sub(self.start.thermal?).filter(|times| *times > 0)?;
        let summary = format!("the processor was thermally throttled {times} times during the run");
        Some(hazard("thermal_throttling_during", Severity::Serious, summary, THERMAL_THROTTLE_FILES))
    }

    /// Pressure as a share of the run, whose length is the ticks of one CPU: Linux shows programs 100 per second on
    /// every architecture.
    fn pressure(&self, index: usize) -> Option<Hazard> {
        const TICK_MICROSECONDS: u64 = 10_000;
        let PressureRule { resource, waiting_for, .. } = PRESSURE_RULES[index];
        let stat = self.cpu_stat()?;
        let length = stat.cpus.values().map(|ticks| ticks.total()).max()?.saturating_mul(TICK_MICROSECONDS);
        let wait_time = self.end.pressures[index]?.saturating_sub(self.start.pressures[index]?);
        let share = ratio(wait_time, length).min(1.0);
        // kelvin's own tasks wait too, so this shows less than other work: only large values are reported.
        let severity = severity_at(share, &[(0.25, Severity::Warning), (0.05, Severity::Note)])?;
        let summary =
            format!("tasks, including kelvin's, waited for {waiting_for} during {} of the run", percent(share));
        Some(hazard(&format!("pressure_{resource}_during"), severity, summary, format!("/proc/pressure/{resource}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        write(root, "proc/stat", "cpu  100 0 0 900 0 0 0 0\ncpu0 50 0 0 450 0 0 0 0\ncpu1 50 0 0 450 0 0 0 0\n");
        write(root, "proc/self/stat", "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 40 10 0 0 20 0 1 0 5");
        write(root, CLOCK_SOURCE_FILE.trim_start_matches('/'), "tsc\n");
        write(root, "proc/self/cgroup", "0::/\n");
        write(root, "proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write(root, "sys/fs/cgroup/cpu.stat", "nr_throttled 1\nthrottled_usec 500\n");
        write(root, "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n");
        write(root, "proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n");
        directory
    }

    #[test]
    fn idle_run_has_no_hazards() {
        let tree = tree();
        let monitor = DisturbanceMonitor::start(tree.path());
        assert_eq!(monitor.hazards(tree.path()), []);
    }

    #[test]
    fn own_cpu_time_is_excluded() {
        let tree = tree();
        let monitor = DisturbanceMonitor::start(tree.path());
        write(
            tree.path(),
            "proc/stat",
            "cpu  200 0 0 1800 0 0 0 0\ncpu0 150 0 0 900 0 0 0 0\ncpu1 50 0 0 900 0 0 0 0\n",
        );
        write(tree.path(), "proc/self/stat", "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 60 20 50 20 20 0 1 0 5");
        assert_eq!(monitor.hazards(tree.path()), []);
    }

    #[test]
    fn all_disturbances_are_reported() {
        let tree = tree();
        let monitor = DisturbanceMonitor::start(tree.path());
        let root = tree.path();
        write(root, "proc/stat", "cpu  500 0 0 1400 0 0 0 100\ncpu0 450 0 0 500 0 0 0 50\ncpu1 50 0 0 900 0 0 0 50\n");
        write(root, CLOCK_SOURCE_FILE.trim_start_matches('/'), "hpet\n");
        write(root, "sys/fs/cgroup/cpu.stat", "nr_throttled 5\nthrottled_usec 80500\n");
        write(root, "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4\n");
        write(root, "proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2001000\n");
        let hazards = monitor.hazards(root);
        let hazard_with_id = |id: &str| hazards.iter().find(|hazard| hazard.id == *id).unwrap();
        // 100 stolen of 400 busy + 500 idle + 100 stolen ticks.
        assert!(
            hazard_with_id("steal_during").summary.contains("10.00 %"),
            "{}",
            hazard_with_id("steal_during").summary
        );
        assert!(
            hazard_with_id("other_work").summary.contains("40 % of the CPU time, as much as 0.80 CPUs"),
            "{}",
            hazard_with_id("other_work").summary
        );
        assert!(hazard_with_id("other_work").summary.ends_with("work: 0)"));
        // As that of the load before the run: it is reported once.
        assert_eq!(hazard_with_id("other_work").remedy, hazard("load", Severity::Note, "", "").remedy);
        assert!(hazard_with_id("throttled").summary.contains("4 times, 80 ms"));
        assert!(hazard_with_id("clock_source_changed").summary.contains("'tsc' to 'hpet'"));
        assert!(hazard_with_id("thermal_throttling_during").summary.contains("1 times"));
        // 2 s of the 5 s that 500 ticks of a CPU are.
        assert!(
            hazard_with_id("pressure_io_during").summary.contains("40 %"),
            "{}",
            hazard_with_id("pressure_io_during").summary
        );
        assert_eq!(hazards.len(), 6);
        assert!(hazards.is_sorted_by_key(|hazard| std::cmp::Reverse(hazard.severity)));
    }

    #[test]
    fn missing_counters_give_no_hazards() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(DisturbanceMonitor::start(empty.path()).hazards(empty.path()), []);
    }
}
