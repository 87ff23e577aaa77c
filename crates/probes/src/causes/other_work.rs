//! Other work on the same CPUs: programs that run meanwhile take turns with the one that is measured.

use kelvin_core::SkipReason;
use kelvin_core::catalogue::file::NEW_FILE;
use kelvin_core::catalogue::mem::{BANDWIDTH_MEMCPY, FAULT_MINOR, LATENCY, LATENCY_STRIDE};
use kelvin_core::catalogue::os::{
    PROCESS_EXEC, PROCESS_FORK, PROCESS_FORK_RSS, PROCESS_SHELL, PROCESS_SPAWN, THREAD_CREATE,
};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases};
use crate::memory::bandwidth::OPERATION_METRICS;
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[
        at_all_cases(&[
            &PROCESS_FORK,
            &PROCESS_FORK_RSS,
            &PROCESS_SPAWN,
            &PROCESS_EXEC,
            &PROCESS_SHELL,
            &THREAD_CREATE,
        ]),
        at_all_cases(&[&NEW_FILE, &LATENCY, &LATENCY_STRIDE, &FAULT_MINOR, &BANDWIDTH_MEMCPY]),
        at_all_cases(OPERATION_METRICS),
    ]),
    mechanisms: &[Mechanism::without("realtime", "at real-time priority", apply)],
    ..Cause::new("other_work", "other work on its CPUs", include_str!("other_work.md"))
};

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    refuse_if(context.setup.realtime, "the figure is measured at real-time priority already")?;
    refuse_if(context.cpu_quota().is_some(), "real-time priority would lift the CPU quota as well")?;
    conditions.setup.realtime = true;
    Ok(())
}
