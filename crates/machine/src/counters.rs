//! Counters of machine activity: /proc/stat, pressure, throttling.

use std::path::Path;

use kelvin_sys::procfs::{CpuStat, CpuThrottling, CpuTicks, ProcessStat, cgroup_device_reads};

use crate::limits::ProcessCgroups;
use crate::root::{FileRoot, parse_number};

/// The share of the time of CPUs that the hypervisor took.
pub(crate) fn steal_share(ticks: CpuTicks) -> f64 {
    ratio(ticks.steal, ticks.total())
}

/// The share in which they were busy.
pub(crate) fn busy_share(ticks: CpuTicks) -> f64 {
    ratio(ticks.busy(), ticks.total())
}

/// A part of a whole, 0 of nothing.
pub(crate) fn ratio(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// The CPU times of /proc/stat.
pub(crate) fn cpu_stat(root: FileRoot<'_>) -> Option<CpuStat> {
    CpuStat::parse(&root.text("/proc/stat")?)
}

/// Ticks of this process and its reaped children.
pub(crate) fn own_cpu_ticks(root: FileRoot<'_>) -> Option<u64> {
    ProcessStat::parse(&root.text("/proc/self/stat")?).map(ProcessStat::ticks)
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

/// A line of /proc/pressure/cpu, io or memory.
pub(crate) fn pressure(root: FileRoot<'_>, resource: &str, stall_kind: StallKind) -> Option<Pressure> {
    parse_pressure(&root.text(&format!("/proc/pressure/{resource}"))?, stall_kind)
}

pub(crate) fn parse_pressure(text: &str, stall_kind: StallKind) -> Option<Pressure> {
    let kind = if stall_kind == StallKind::Some { "some " } else { "full " };
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let field = |key: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Some(Pressure { average_10: parse_number(field("avg10")?)?, total_microseconds: field("total")?.parse().ok()? })
}

/// Throttling of a process's group and the groups above it, added up.
pub fn cpu_throttling(groups: &ProcessCgroups<'_>) -> Option<CpuThrottling> {
    throttling_by_group(groups)?.map(|(_, throttling)| throttling).reduce(CpuThrottling::plus)
}

/// Throttling of a process's group and of each group above it that counts it, with the file.
fn throttling_by_group(groups: &ProcessCgroups<'_>) -> Option<impl Iterator<Item = (String, CpuThrottling)>> {
    let texts = groups.read_with_ancestors(&groups.controller_path("cpu").ok()??, "cpu.stat").into_iter();
    Some(texts.filter_map(|(file, text)| Some((file, CpuThrottling::parse(&text)?))))
}

/// Reads that a process's control group has asked a device for, given as `major:minor`; `None` in the group that is above all others
/// here, to which every process without a group of its own belongs.
pub fn device_reads(groups: &ProcessCgroups<'_>, device: &str) -> Option<u64> {
    let group_path = groups.controller_path("blkio").ok()??;
    let file = if group_path.version == 1 { "blkio.throttle.io_serviced" } else { "io.stat" };
    let (_, text) =
        groups.read_with_ancestors(&group_path, file).into_iter().next().filter(|_| !group_path.parts.is_empty())?;
    Some(cgroup_device_reads(&text, device, "rios"))
}

/// The file in which the kernel counts how often the CPU quota throttled this process's control group, or its nearest ancestor that
/// counts, as a path on this machine.
pub fn throttle_file(root: &Path) -> Option<String> {
    let groups = ProcessCgroups::read(FileRoot::new(root)).ok()?;
    throttling_by_group(&groups)?.next().map(|(file, _)| file)
}

/// Where they are counted.
pub(crate) const THERMAL_THROTTLE_FILES: &str = "/sys/devices/system/cpu/cpu*/thermal_throttle";

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
    fn pressure_is_parsed() {
        let text = "some avg10=11.58 avg60=3.53 avg300=2.00 total=44884980\nfull avg10=0.00 avg60=0 avg300=0 total=7";
        let some = parse_pressure(text, StallKind::Some);
        assert_eq!(some, Some(Pressure { average_10: 11.58, total_microseconds: 44_884_980 }));
        let full = parse_pressure(text, StallKind::Full);
        assert_eq!(full, Some(Pressure { average_10: 0.0, total_microseconds: 7 }));
    }
}
