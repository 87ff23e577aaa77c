//! Counters of machine activity: /proc/stat, pressure, throttling.

use std::collections::BTreeMap;

use crate::cgroups::ProcessCgroups;
use crate::root::{FileRoot, parse_number, value_of_key};

/// Ticks that one CPU, or all together, spent in each way since boot (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// In user mode: user and nice, of which guest time is already part.
    pub user: u64,
    /// In the kernel: system and interrupts.
    pub system: u64,
    /// Idle or waiting for input and output.
    pub idle: u64,
    /// Wanted by us and given to others by the hypervisor.
    pub steal: u64,
}

impl CpuTicks {
    /// Running.
    pub(crate) fn busy(self) -> u64 {
        self.user.saturating_add(self.system)
    }

    pub(crate) fn total(self) -> u64 {
        self.busy().saturating_add(self.idle).saturating_add(self.steal)
    }

    /// The difference from an earlier reading; idle time can step back.
    pub(crate) fn difference(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    pub(crate) fn steal_share(self) -> f64 {
        ratio(self.steal, self.total())
    }

    pub(crate) fn busy_share(self) -> f64 {
        ratio(self.busy(), self.total())
    }
}

/// A part of a whole, 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The CPU times of /proc/stat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Of all CPUs together.
    pub all: CpuTicks,
    /// Of each.
    pub cpus: BTreeMap<u32, CpuTicks>,
}

impl CpuStat {
    pub(crate) fn read(root: FileRoot<'_>) -> Option<Self> {
        parse_stat(&root.text("/proc/stat")?)
    }
}

/// The CPU times in the text of /proc/stat.
pub fn parse_stat(text: &str) -> Option<CpuStat> {
    let mut stat = CpuStat::default();
    let mut found = false;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let Some(suffix) = name.strip_prefix("cpu") else { continue };
        let Some(ticks) = ticks(rest) else { continue };
        if suffix.is_empty() {
            stat.all = ticks;
            found = true;
        } else if let Ok(cpu) = suffix.parse() {
            stat.cpus.insert(cpu, ticks);
        }
    }
    found.then_some(stat)
}

fn ticks(text: &str) -> Option<CpuTicks> {
    let fields: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, ref rest @ ..] = fields[..] else { return None };
    let rest = |index: usize| rest.get(index).copied().unwrap_or(0);
    let system = system.saturating_add(rest(1)).saturating_add(rest(2));
    Some(CpuTicks { user: user.saturating_add(nice), system, idle: idle.saturating_add(rest(0)), steal: rest(3) })
}

/// What proc_pid_stat(5) says of a process, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// In user mode (field 14).
    pub user: u64,
    /// In the kernel (field 15).
    pub system: u64,
    /// In user mode, of its reaped children (field 16).
    pub children_user: u64,
    /// In the kernel, of its reaped children (field 17).
    pub children_system: u64,
    /// Its threads now (field 20).
    pub threads: u64,
}

/// The text of /proc/PID/stat.
pub fn parse_process_stat(text: &str) -> Option<ProcessStat> {
    // The name in parentheses may hold anything, spaces and parentheses included. The third field follows it.
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse().ok();
    let [user, system, children_user, children_system] = [next()?, next()?, next()?, next()?];
    Some(ProcessStat { user, system, children_user, children_system, threads: fields.nth(2)?.parse().ok()? })
}

/// Ticks of this process and its reaped children.
pub(crate) fn own_cpu_ticks(root: FileRoot<'_>) -> Option<u64> {
    let stat = parse_process_stat(&root.text("/proc/self/stat")?)?;
    let ticks = [stat.user, stat.system, stat.children_user, stat.children_system];
    Some(ticks.into_iter().fold(0, u64::saturating_add))
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// Share of the last ten seconds in which tasks waited, in percent.
    pub(crate) average_10: f64,
    /// Microseconds since boot in which tasks waited.
    pub total_microseconds: u64,
}

/// Who waits in a line of a pressure file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// At least one task.
    Some,
    /// All tasks that have work.
    Full,
}

/// The line `some` of /proc/pressure/cpu, io or memory.
pub fn pressure(root: FileRoot<'_>, resource: &str) -> Option<Pressure> {
    pressure_of(root, resource, StallKind::Some)
}

/// A line of /proc/pressure/cpu, io or memory.
pub fn pressure_of(root: FileRoot<'_>, resource: &str, waiting: StallKind) -> Option<Pressure> {
    parse_pressure(&root.text(&format!("/proc/pressure/{resource}"))?, waiting)
}

pub(crate) fn parse_pressure(text: &str, waiting: StallKind) -> Option<Pressure> {
    let kind = if waiting == StallKind::Some { "some " } else { "full " };
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let field = |key: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Some(Pressure { average_10: parse_number(field("avg10")?)?, total_microseconds: field("total")?.parse().ok()? })
}

/// How often and for how long its quota throttled a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuThrottling {
    /// Periods in which it ran; 0 without a quota.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// For how long.
    pub microseconds: u64,
}

/// Throttling of a process's group and the groups above it, added up.
pub fn cpu_throttling(groups: &ProcessCgroups<'_>) -> Option<CpuThrottling> {
    let place = groups.controller_path("cpu").ok()??;
    let texts = groups.read_with_ancestors(&place, "cpu.stat");
    texts.iter().filter_map(|(_, text)| parse_cpu_throttling(text)).reduce(|a, b| CpuThrottling {
        periods: a.periods.saturating_add(b.periods),
        throttled_periods: a.throttled_periods.saturating_add(b.throttled_periods),
        microseconds: a.microseconds.saturating_add(b.microseconds),
    })
}

/// Reads that a process's control group has asked a device for, given as `major:minor`; `None` in the group that is above all others
/// here, to which whatever has no group of its own belongs.
pub fn device_reads(groups: &ProcessCgroups<'_>, device: &str) -> Option<u64> {
    let of_version_1 = groups.membership("blkio").map(|_| ("blkio", "blkio.throttle.io_serviced"));
    let (controller, file) = of_version_1.unwrap_or(("io", "io.stat"));
    let place = groups.controller_path(controller).ok()??;
    let (_, text) = groups.read_with_ancestors(&place, file).into_iter().next().filter(|_| !place.is_top())?;
    Some(parse_device_reads(&text, device))
}

/// `254:0 Read 12`, or `254:0 rbytes=4096 wbytes=0 rios=12 ...`. A device that was never used is not listed.
fn parse_device_reads(text: &str, device: &str) -> u64 {
    let of_device = text.lines().filter_map(|line| line.strip_prefix(device)?.strip_prefix(' '));
    let count = |line: &str| match line.strip_prefix("Read ") {
        Some(reads) => reads.trim().parse().ok(),
        None => line.split_ascii_whitespace().find_map(|field| field.strip_prefix("rios=")?.parse().ok()),
    };
    of_device.filter_map(count).next().unwrap_or(0)
}

/// The file that counts how often this process's control group, or its nearest ancestor that counts, was throttled;
/// `None` where there is none.
pub(crate) fn throttle_file(root: FileRoot<'_>) -> Option<String> {
    let groups = ProcessCgroups::read(root).ok()?;
    let place = groups.controller_path("cpu").ok()??;
    groups
        .read_with_ancestors(&place, "cpu.stat")
        .into_iter()
        .find(|(_, text)| parse_cpu_throttling(text).is_some())
        .map(|(path, _)| path)
}

pub(crate) fn parse_cpu_throttling(text: &str) -> Option<CpuThrottling> {
    let figure = |key: &str| value_of_key(text, key, ' ').and_then(|value| value.parse::<u64>().ok());
    // Version 2 counts microseconds, version 1 nanoseconds.
    let microseconds = figure("throttled_usec").or_else(|| figure("throttled_time").map(|time| time / 1000));
    let periods = figure("nr_periods").unwrap_or(0);
    Some(CpuThrottling { periods, throttled_periods: figure("nr_throttled")?, microseconds: microseconds? })
}

/// Thermal throttling events, summed over all cores; `None` if not reported.
pub(crate) fn thermal_throttles(root: FileRoot<'_>) -> Option<u64> {
    const CPUS: &str = "/sys/devices/system/cpu";
    let cpus = root.names(CPUS).into_iter().filter(|name| name.starts_with("cpu"));
    let counts = cpus.filter_map(|cpu| {
        root.text(&format!("{CPUS}/{cpu}/thermal_throttle/core_throttle_count"))?.parse::<u64>().ok()
    });
    counts.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_reads_parse_both_cgroup_versions() {
        let v1 = "254:0 Read 12\n254:0 Write 8\n254:0 Total 20\n254:16 Read 5\nTotal 25\n";
        let v2 = "254:0 rbytes=4096 wbytes=8 rios=12 wios=1 dbytes=0 dios=0\n254:16 rbytes=5 wbytes=0 rios=5 wios=0\n";
        for text in [v1, v2] {
            let reads = ["254:0", "254:16", "254:1", "25"].map(|device| parse_device_reads(text, device));
            assert_eq!(reads, [12, 5, 0, 0], "{text}");
        }
    }

    #[test]
    fn stat_has_total_and_per_cpu_ticks() {
        let stat = parse_stat("cpu  10 1 5 80 4 0 2 3 9 9\ncpu0 10 1 5 80 4 0 2 3 9 9\nintr 1\n").unwrap();
        assert_eq!(stat.all, CpuTicks { user: 11, system: 7, idle: 84, steal: 3 });
        assert_eq!(stat.all.busy(), 18);
        assert_eq!(stat.cpus[&0].total(), 105);
        assert_eq!(parse_stat("cpu0 1 2 3 4\n"), None);
        assert_eq!(parse_stat("cpu  1 2 3 4\n").unwrap().all, CpuTicks { user: 3, system: 3, idle: 4, steal: 0 });
    }

    #[test]
    fn process_name_may_contain_parentheses() {
        let after = "S 1 1 1 0 -1 4194560 100 200 3 4 50 60 7 8 20 0 9 0 12345 1000 5";
        for name in ["serve", "a) S 1 (b", "", "0 0 0"] {
            let stat = parse_process_stat(&format!("17 ({name}) {after}")).unwrap();
            let expected = ProcessStat { user: 50, system: 60, children_user: 7, children_system: 8, threads: 9 };
            assert_eq!(stat, expected, "{name}");
        }
        assert_eq!(parse_process_stat("17 (serve) S 1 1 1 0 -1 4194560 100 200 3 4 50 60 7"), None);
    }

    #[test]
    fn pressure_and_throttling_are_parsed() {
        let text = "some avg10=11.58 avg60=3.53 avg300=2.00 total=44884980\nfull avg10=0.00 avg60=0 avg300=0 total=7";
        let some = parse_pressure(text, StallKind::Some);
        assert_eq!(some, Some(Pressure { average_10: 11.58, total_microseconds: 44_884_980 }));
        let full = parse_pressure(text, StallKind::Full);
        assert_eq!(full, Some(Pressure { average_10: 0.0, total_microseconds: 7 }));
        let v2 = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250\n";
        assert_eq!(
            parse_cpu_throttling(v2),
            Some(CpuThrottling { periods: 9, throttled_periods: 4, microseconds: 250 })
        );
        let v1 = "nr_periods 9\nnr_throttled 4\nthrottled_time 250000\n";
        assert_eq!(
            parse_cpu_throttling(v1),
            Some(CpuThrottling { periods: 9, throttled_periods: 4, microseconds: 250 })
        );
        assert_eq!(parse_cpu_throttling("usage_usec 5\n"), None);
    }
}
