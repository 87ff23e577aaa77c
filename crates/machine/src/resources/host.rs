//! The host's CPUs and memory, and for how long its tasks waited.

use crate::counters::{self, StallKind, cpu_throttling};
use crate::file_page_bytes;
use crate::limits::{ProcessCgroups, cpu_quota};
use crate::memory::{MEMINFO, kibibytes};
use crate::root::{FileRoot, value_of_key};
use kelvin_core::resources::{CpuStats, MemoryStats, PressureStall};
use kelvin_sys::procfs::{CpuStat, CpuTicks};
use kelvin_sys::usage::ticks_to_nanoseconds;

/// The CPUs, and what a process in these groups that may run on these CPUs may use of them.
pub(crate) fn cpu(root: FileRoot<'_>, groups: Option<&ProcessCgroups<'_>>, allowed_cpus: &[u32]) -> CpuStats {
    let text = root.text("/proc/stat").unwrap_or_default();
    let stat = CpuStat::parse(&text).unwrap_or_default();
    let known_quota = groups.and_then(|groups| cpu_quota(groups).get().copied());
    let quota = known_quota.flatten();
    let throttling = groups.and_then(cpu_throttling);
    let cpus = stat.cpus.len() as u32;
    let allowed_count = if allowed_cpus.is_empty() { f64::from(cpus) } else { allowed_cpus.len() as f64 };
    let allowed_ticks = stat.cpus.iter().filter(|(cpu, _)| allowed_cpus.is_empty() || allowed_cpus.contains(cpu));
    let allowed_ticks = allowed_ticks.map(|(_, ticks)| *ticks).reduce(CpuTicks::plus);
    CpuStats {
        user: ticks_to_nanoseconds(stat.all_cpus.user),
        system: ticks_to_nanoseconds(stat.all_cpus.system),
        steal: ticks_to_nanoseconds(stat.all_cpus.steal),
        idle: ticks_to_nanoseconds(stat.all_cpus.idle),
        cpus,
        allowed: quota.unwrap_or(allowed_count).min(allowed_count),
        allowed_busy: allowed_ticks.map(|ticks| ticks_to_nanoseconds(ticks.busy().saturating_add(ticks.steal))),
        allowed_idle: allowed_ticks.map(|ticks| ticks_to_nanoseconds(ticks.idle)),
        quota,
        is_quota_known: known_quota.is_some(),
        throttling: throttling.map(|throttling| throttling.microseconds as f64 * 1e3),
        throttled_periods: throttling.map(|throttling| throttling.throttled_periods),
        periods: throttling.map(|throttling| throttling.periods),
        running: value_of_key(&text, "procs_running", ' ').and_then(|value| value.parse().ok()).unwrap_or(0),
    }
}

/// Memory.
pub(crate) fn memory(root: FileRoot<'_>) -> MemoryStats {
    let [meminfo, vmstat] = [MEMINFO, "/proc/vmstat"].map(|file| root.text(file).unwrap_or_default());
    let counter = |key: &str| value_of_key(&vmstat, key, ' ').and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    MemoryStats {
        available: kibibytes(&meminfo, "MemAvailable").unwrap_or(0),
        file_cache: file_page_bytes(&meminfo).unwrap_or(0),
        // In KiB, for any size of a page.
        paged_in: counter("pgpgin").saturating_mul(1024),
        major_faults: counter("pgmajfault"),
        refaults: value_of_key(&vmstat, "workingset_refault_file", ' ').and_then(|value| value.parse().ok()),
    }
}

/// For how long tasks waited.
pub(crate) fn pressure(root: FileRoot<'_>) -> PressureStall {
    let nanoseconds = |resource, stall_kind| {
        counters::pressure(root, resource, stall_kind).map(|pressure| pressure.total_microseconds as f64 * 1e3)
    };
    PressureStall {
        cpu: nanoseconds("cpu", StallKind::Some),
        io: nanoseconds("io", StallKind::Some),
        io_full: nanoseconds("io", StallKind::Full),
        memory: nanoseconds("memory", StallKind::Some),
        memory_full: nanoseconds("memory", StallKind::Full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::FixtureTree;

    const STAT: &str =
        "cpu  10 1 5 80 4 0 2 3 9 9\ncpu0 10 1 5 40 4 0 2 3 9 9\ncpu1 0 0 0 40 0 0 0 0 0 0\nintr 1\nprocs_running 3\n";

    fn cpu_stats(tree: &FixtureTree, allowed_cpus: &[u32]) -> CpuStats {
        let root = FileRoot::new(tree.path());
        cpu(root, ProcessCgroups::of_process(root, "7").ok().as_ref(), allowed_cpus)
    }

    #[test]
    fn quota_limits_usable_cpus() {
        let tree = FixtureTree::default();
        tree.fill("proc/stat", STAT);
        let host = CpuStats {
            user: ticks_to_nanoseconds(11),
            system: ticks_to_nanoseconds(7),
            steal: ticks_to_nanoseconds(3),
            idle: ticks_to_nanoseconds(84),
            cpus: 2,
            allowed: 2.0,
            allowed_busy: Some(ticks_to_nanoseconds(21)),
            allowed_idle: Some(ticks_to_nanoseconds(84)),
            running: 3,
            ..CpuStats::default()
        };
        assert_eq!(cpu_stats(&tree, &[]), host);
        let (allowed_busy, allowed_idle) = (Some(0.0), Some(ticks_to_nanoseconds(40)));
        assert_eq!(cpu_stats(&tree, &[1]), CpuStats { allowed: 1.0, allowed_busy, allowed_idle, ..host.clone() });
        tree.fill("proc/7/cgroup", "0::/a/b\n");
        tree.fill("proc/self/mountinfo", "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        tree.fill("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
        tree.fill("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        tree.fill("sys/fs/cgroup/a/cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_usec 250\n");
        let limited = CpuStats {
            allowed: 0.5,
            quota: Some(0.5),
            is_quota_known: true,
            throttling: Some(250_000.0),
            throttled_periods: Some(4),
            periods: Some(9),
            ..host
        };
        assert_eq!(cpu_stats(&tree, &[0, 1]), limited);
    }

    #[test]
    fn hidden_group_leaves_quota_unknown() {
        let tree = FixtureTree::default();
        tree.fill("proc/stat", STAT);
        tree.fill("proc/7/cgroup", "0::/a/b\n");
        // `ip netns exec` mounts a new /sys, without the tree of groups.
        tree.fill("proc/self/mountinfo", "30 29 0:26 / /sys rw - sysfs sysfs rw\n");
        let stats = cpu_stats(&tree, &[0, 1]);
        assert_eq!((stats.quota, stats.is_quota_known, stats.throttled_periods), (None, false, None));
        tree.fill("proc/self/mountinfo", "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        tree.fill("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        let visible_stats = cpu_stats(&tree, &[0, 1]);
        assert_eq!((visible_stats.quota, visible_stats.is_quota_known), (None, true));
    }

    #[test]
    fn memory_and_pressure_are_in_bytes_and_nanoseconds() {
        let tree = FixtureTree::default();
        tree.fill("proc/meminfo", "MemAvailable: 100 kB\nActive(file): 3 kB\nInactive(file): 4 kB\n");
        tree.fill("proc/vmstat", "nr_free_pages 5\npgpgin 8\npgpgout 9\npgmajfault 6\nworkingset_refault_file 5\n");
        tree.fill(
            "proc/pressure/io",
            "some avg10=1.00 avg60=0 avg300=0 total=7\nfull avg10=0 avg60=0 avg300=0 total=1\n",
        );
        let root = FileRoot::new(tree.path());
        let expected = MemoryStats {
            available: 100 << 10,
            file_cache: 7 << 10,
            paged_in: 8 << 10,
            major_faults: 6,
            refaults: Some(5),
        };
        assert_eq!(memory(root), expected);
        assert_eq!(
            pressure(root),
            PressureStall { io: Some(7000.0), io_full: Some(1000.0), ..PressureStall::default() }
        );
    }
}
