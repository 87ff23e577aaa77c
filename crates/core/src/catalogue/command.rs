//! What a command of the user's takes: `kelvin ab` measures two in turn. No probe measures these, and no run has them.

use crate::{Better, Canaries, HeadlineSamples, Metric, SampleTags, Unit};

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] = &[&TIME, &CPU_USER, &CPU_SYSTEM, &PEAK_MEMORY, &MINOR_FAULTS, &CONTEXT_SWITCHES];

/// Counts as measured, whatever disturbs it: nothing is read between the commands of another program.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound).canaries(Canaries::NONE).contaminants(SampleTags::NONE)
}

/// Wall time.
pub static TIME: Metric =
    as_found_metric(Metric::duration("command.time", "Time from the start of a command to its end"));

/// CPU time in user mode.
pub static CPU_USER: Metric =
    as_found_metric(Metric::duration("command.cpu.user", "CPU time of a command and its children in user mode"));

/// CPU time in the kernel.
pub static CPU_SYSTEM: Metric =
    as_found_metric(Metric::duration("command.cpu.system", "CPU time of a command and its children in the kernel"));

/// Peak memory.
pub static PEAK_MEMORY: Metric = as_found_metric(
    Metric::duration("command.memory.peak", "Largest resident set of any process of a command")
        .unit(Unit::Bytes, Better::Lower),
);

/// Page faults without I/O.
pub static MINOR_FAULTS: Metric = as_found_metric(
    Metric::duration("command.faults.minor", "Minor page faults of a command and its children")
        .unit(Unit::Count, Better::Lower),
);

/// Context switches.
pub static CONTEXT_SWITCHES: Metric = as_found_metric(
    Metric::duration("command.switches", "Context switches of a command and its children, voluntary or not")
        .unit(Unit::Count, Better::Lower),
);
