//! Hazards of the machine's current state: load, pressure, memory, swap.

use kelvin_model::{Hazard, Severity};

use super::{Look, STOP_OTHER_WORK, With, hazard, percent};
use crate::counters;
use crate::memory::kibibytes;
use crate::text::number;

pub(super) fn hazards(look: &Look<'_>) -> Vec<Hazard> {
    let mut found: Vec<Hazard> = [load(look), memory(look), swap(look)].into_iter().flatten().collect();
    found.extend(PRESSURES.iter().filter_map(|kind| pressure(look, kind)));
    found
}

/// Runnable tasks per allowed CPU.
fn load(look: &Look<'_>) -> Option<Hazard> {
    const FILE: &str = "/proc/loadavg";
    let text = look.root.text(FILE)?;
    let load = number(text.split_ascii_whitespace().next()?)?;
    let topology = &look.machine.topology;
    let cpus = topology.online.get().or(topology.allowed.get()).map_or(1, Vec::len);
    let severity = match load / cpus as f64 {
        share if share >= 1.0 => Severity::Serious,
        share if share >= 0.5 => Severity::Warning,
        _ => return None,
    };
    let summary = format!("the load average of the last minute is {load:.2} on {cpus} CPUs");
    let effect = "other work competes for CPU time, caches and memory bandwidth";
    Some(hazard("load", severity, summary, effect).advice(STOP_OTHER_WORK).read_in(FILE))
}

/// A kind of pressure, its thresholds in percent for a warning and for serious, and the affected metrics.
struct PressureKind {
    id: &'static str,
    resource: &'static str,
    /// The resource, as people call it.
    what: &'static str,
    warning: f64,
    serious: f64,
    effect: &'static str,
    touches: &'static [&'static str],
}

/// Waiting for memory is rarer and worse than waiting for a CPU or a disk, so its thresholds are lower.
const PRESSURES: [PressureKind; 3] = [
    PressureKind {
        id: "pressure_cpu",
        resource: "cpu",
        what: "a CPU",
        warning: 5.0,
        serious: 25.0,
        effect: "tasks wait for a CPU: probes are preempted or delayed",
        touches: &[],
    },
    PressureKind {
        id: "pressure_io",
        resource: "io",
        what: "I/O",
        warning: 5.0,
        serious: 25.0,
        effect: "tasks wait for the disk: probes share its bandwidth",
        touches: &["file.", "mem.fault"],
    },
    PressureKind {
        id: "pressure_memory",
        resource: "memory",
        what: "memory",
        warning: 1.0,
        serious: 10.0,
        effect: "memory is reclaimed during measurements: faults, lost file cache",
        touches: &["mem.", "file.", "os."],
    },
];

fn pressure(look: &Look<'_>, kind: &PressureKind) -> Option<Hazard> {
    let share = counters::pressure(look.root, kind.resource)?.average_10;
    let severity = match share {
        share if share >= kind.serious => Severity::Serious,
        share if share >= kind.warning => Severity::Warning,
        _ => return None,
    };
    let summary = format!("tasks waited for {} during {share:.1} % of the last 10 s", kind.what);
    Some(
        hazard(kind.id, severity, summary, kind.effect)
            .touching(kind.touches)
            .read_in(format!("/proc/pressure/{}", kind.resource)),
    )
}

fn memory(look: &Look<'_>) -> Option<Hazard> {
    let memory = &look.machine.memory;
    let (available, total) = (*memory.available_bytes.get()?, *memory.total_bytes.get()?);
    let share = counters::share(available, total);
    let severity = match share {
        share if share < 0.05 => Severity::Serious,
        share if share < 0.10 => Severity::Warning,
        _ => return None,
    };
    let effect = "allocations wait for reclaim, and files do not stay cached";
    Some(
        hazard("memory_pressure", severity, format!("only {} of memory is available", percent(share)), effect)
            .touching(&["mem.", "file.", "os."])
            .advice("find what uses the memory (top, key M), and stop it")
            .read_in(memory.available_bytes.source_or_reason()),
    )
}

fn swap(look: &Look<'_>) -> Option<Hazard> {
    const FILE: &str = "/proc/meminfo";
    let text = look.root.text(FILE)?;
    let used = kibibytes(&text, "SwapTotal")?.checked_sub(kibibytes(&text, "SwapFree")?).filter(|used| *used > 0)?;
    let total = kibibytes(&text, "MemTotal").unwrap_or(0);
    // A little idle memory swapped out long ago does no harm.
    let severity = if counters::share(used, total) > 0.01 { Severity::Warning } else { Severity::Note };
    let effect = "memory may be on disk: touching it costs a disk access";
    Some(
        hazard("swap", severity, format!("{} MiB are swapped out", used >> 20), effect)
            .touching(&["mem.", "os.", "file."])
            .command("sudo swapoff -a && sudo swapon -a")
            .read_in(FILE),
    )
}
