//! Hazards of the machine's current state: load, pressure, memory, swap.

use kelvin_core::{Hazard, Severity};

use super::{HazardContext, hazard, percent, severity_at, severity_below};
use crate::counters::{self, StallKind};
use crate::memory::{MEMINFO, kibibytes};
use crate::root::parse_number;

/// Runnable tasks per allowed CPU.
pub(super) fn load(context: &HazardContext<'_>) -> Option<Hazard> {
    const FILE: &str = "/proc/loadavg";
    let text = context.root.text(FILE)?;
    let load = parse_number(text.split_ascii_whitespace().next()?)?;
    let topology = &context.machine.topology;
    let cpus = topology.online.get().or(topology.allowed.get()).map_or(1, Vec::len);
    let severity = severity_at(load / cpus as f64, &[(1.0, Severity::Serious), (0.5, Severity::Warning)])?;
    let summary = format!("the load average of the last minute is {load:.2} on {cpus} CPUs");
    Some(hazard("load", severity, summary, FILE))
}

/// A kind of pressure, and its thresholds in percent for a warning and for serious.
pub(crate) struct PressureRule {
    pub(crate) resource: &'static str,
    pub(crate) waiting_for: &'static str,
    warning: f64,
    serious: f64,
}

/// Waiting for memory is rarer and worse than waiting for a CPU or a disk, so its thresholds are lower.
pub(crate) static PRESSURE_RULES: [PressureRule; 3] = [
    PressureRule { resource: "cpu", waiting_for: "a CPU", warning: 5.0, serious: 25.0 },
    PressureRule { resource: "io", waiting_for: "I/O", warning: 5.0, serious: 25.0 },
    PressureRule { resource: "memory", waiting_for: "memory", warning: 1.0, serious: 10.0 },
];

pub(super) fn pressure(context: &HazardContext<'_>, rule: &PressureRule) -> Option<Hazard> {
    let PressureRule { resource, waiting_for, warning, serious } = *rule;
    let share = counters::pressure(context.root, resource, StallKind::Some)?.average_10;
    let severity = severity_at(share, &[(serious, Severity::Serious), (warning, Severity::Warning)])?;
    let summary = format!("tasks waited for {waiting_for} during {share:.1} % of the last 10 s");
    Some(hazard(&format!("pressure_{resource}"), severity, summary, format!("/proc/pressure/{resource}")))
}

pub(super) fn memory(context: &HazardContext<'_>) -> Option<Hazard> {
    let memory = &context.machine.memory;
    let (available, total) = (*memory.available_bytes.get()?, *memory.total_bytes.get()?);
    let share = counters::ratio(available, total);
    let severity = severity_below(share, &[(0.05, Severity::Serious), (0.10, Severity::Warning)])?;
    let summary = format!("only {} of memory is available", percent(share));
    Some(hazard("memory_pressure", severity, summary, memory.available_bytes.source_or_reason()))
}

pub(super) fn swap(context: &HazardContext<'_>) -> Option<Hazard> {
    let text = context.root.text(MEMINFO)?;
    let swapped_bytes =
        kibibytes(&text, "SwapTotal")?.checked_sub(kibibytes(&text, "SwapFree")?).filter(|bytes| *bytes > 0)?;
    let total = kibibytes(&text, "MemTotal").unwrap_or(0);
    // A little idle memory swapped out long ago does no harm.
    let severity = if counters::ratio(swapped_bytes, total) > 0.01 { Severity::Warning } else { Severity::Note };
    Some(hazard("swap", severity, format!("{} MiB are swapped out", swapped_bytes >> 20), MEMINFO))
}
