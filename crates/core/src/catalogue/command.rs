//! What a command of the user's takes: `kelvin ab` measures two, interleaved. No probe measures these, and no run has them.

use crate::{Better, Metric, SampleTags, Unit};

use crate::catalogue::metric_list::{duration, metrics};

/// Counts as measured with any disturbance: nothing is read between the commands of another program.
const fn as_found_metric(metric: Metric) -> Metric {
    metric.unguarded().contaminants(SampleTags::NONE)
}

metrics! {
    /// The metrics of this area, in the order of reports.
    pub const ALL = [
        /// Time from the start of a command to its end
        TIME = as_found_metric(duration("command.time")),
        /// CPU time of a command and its children in user mode
        CPU_USER = as_found_metric(duration("command.cpu.user")),
        /// CPU time of a command and its children in the kernel
        CPU_SYSTEM = as_found_metric(duration("command.cpu.system")),
        /// Largest resident set of any process of a command
        PEAK_MEMORY = as_found_metric(duration("command.memory.peak").unit(Unit::Bytes, Better::Lower)),
        /// Minor page faults of a command and its children
        MINOR_FAULTS = as_found_metric(duration("command.faults.minor").unit(Unit::Count, Better::Lower)),
        /// Context switches of a command and its children, voluntary or not
        CONTEXT_SWITCHES = as_found_metric(duration("command.switches").unit(Unit::Count, Better::Lower)),
    ];
}
