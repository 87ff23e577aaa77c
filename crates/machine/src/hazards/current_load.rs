//! Hazards of the machine's current state: load, pressure, memory, swap.

use kelvin_core::{Hazard, Severity};

use super::{HazardBuilder, HazardContext, STOP_OTHER_WORK, hazard, percent, severity_at};
use crate::counters;
use crate::memory::kibibytes;
use crate::root::parse_number;

/// Runnable tasks per allowed CPU.
pub(super) fn load(look: &HazardContext<'_>) -> Option<Hazard> {
    const FILE: &str = "/proc/loadavg";
    let text = look.root.text(FILE)?;
    let load = parse_number(text.split_ascii_whitespace().next()?)?;
    let topology = &look.machine.topology;
    let cpus = topology.online.get().or(topology.allowed.get()).map_or(1, Vec::len);
    let severity = severity_at(load / cpus as f64, &[(1.0, Severity::Serious), (0.5, Severity::Warning)])?;
    let summary = format!("the load average of the last minute is {load:.2} on {cpus} CPUs");
    let effect = "other work competes for CPU time, caches and memory bandwidth";
    Some(hazard("load", severity, summary, effect).remedy_advice(STOP_OTHER_WORK).with_source(FILE))
}

/// A kind of pressure, its thresholds in percent for a warning and for serious, and the affected metrics.
pub(crate) struct PressureRule {
    id: &'static str,
    /// The hazard of a run during which tasks waited.
    pub(crate) id_during: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) waiting_for: &'static str,
    warning: f64,
    serious: f64,
    effect: &'static str,
    pub(crate) affected_metrics: &'static [&'static str],
}

/// Waiting for memory is rarer and worse than waiting for a CPU or a disk, so its thresholds are lower.
pub(crate) static PRESSURE_RULES: [PressureRule; 3] = [
    PressureRule {
        id: "pressure_cpu",
        id_during: "pressure_cpu_during",
        resource: "cpu",
        waiting_for: "a CPU",
        warning: 5.0,
        serious: 25.0,
        effect: "tasks wait for a CPU: probes are preempted or delayed",
        affected_metrics: &[],
    },
    PressureRule {
        id: "pressure_io",
        id_during: "pressure_io_during",
        resource: "io",
        waiting_for: "I/O",
        warning: 5.0,
        serious: 25.0,
        effect: "tasks wait for the disk: probes share its bandwidth",
        affected_metrics: &["file.", "mem.fault"],
    },
    PressureRule {
        id: "pressure_memory",
        id_during: "pressure_memory_during",
        resource: "memory",
        waiting_for: "memory",
        warning: 1.0,
        serious: 10.0,
        effect: "memory is reclaimed during measurements: faults, lost file cache",
        affected_metrics: &["mem.", "file.", "os."],
    },
];

pub(super) fn pressure(look: &HazardContext<'_>, kind: &PressureRule) -> Option<Hazard> {
    let share = counters::pressure(look.root, kind.resource)?.average_10;
    let severity = severity_at(share, &[(kind.serious, Severity::Serious), (kind.warning, Severity::Warning)])?;
    let summary = format!("tasks waited for {} during {share:.1} % of the last 10 s", kind.waiting_for);
    Some(
        hazard(kind.id, severity, summary, kind.effect)
            .affecting(kind.affected_metrics)
            .with_source(format!("/proc/pressure/{}", kind.resource)),
    )
}

pub(super) fn memory(look: &HazardContext<'_>) -> Option<Hazard> {
    let memory = &look.machine.memory;
    let (available, total) = (*memory.available_bytes.get()?, *memory.total_bytes.get()?);
    let share = counters::ratio(available, total);
    let severity = match share {
        share if share < 0.05 => Severity::Serious,
        share if share < 0.10 => Severity::Warning,
        _ => return None,
    };
    let effect = "allocations wait for reclaim, and files do not stay cached";
    Some(
        hazard("memory_pressure", severity, format!("only {} of memory is available", percent(share)), effect)
            .affecting(&["mem.", "file.", "os."])
            .remedy_advice("find what uses the memory (top, key M), and stop it")
            .with_source(memory.available_bytes.source_or_reason()),
    )
}

pub(super) fn swap(look: &HazardContext<'_>) -> Option<Hazard> {
    const FILE: &str = "/proc/meminfo";
    let text = look.root.text(FILE)?;
    let used = kibibytes(&text, "SwapTotal")?.checked_sub(kibibytes(&text, "SwapFree")?).filter(|used| *used > 0)?;
    let total = kibibytes(&text, "MemTotal").unwrap_or(0);
    // A little idle memory swapped out long ago does no harm.
    let severity = if counters::ratio(used, total) > 0.01 { Severity::Warning } else { Severity::Note };
    let effect = "memory may be on disk: touching it costs a disk access";
    Some(
        hazard("swap", severity, format!("{} MiB are swapped out", used >> 20), effect)
            .affecting(&["mem.", "os.", "file."])
            .remedy_command("sudo swapoff -a && sudo swapon -a")
            .with_source(FILE),
    )
}
