//! Other work on the same CPUs: programs that run meanwhile take turns with the one that is measured.

use kelvin_core::SkipReason;
use kelvin_core::catalogue::file::NEW_FILE;
use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD,
    BANDWIDTH_WRITE, BANDWIDTH_ZERO, FAULT_MINOR, LATENCY, LATENCY_STRIDE,
};
use kelvin_core::catalogue::os::{
    PROCESS_EXEC, PROCESS_FORK, PROCESS_FORK_RSS, PROCESS_SHELL, PROCESS_SPAWN, THREAD_CREATE,
};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, null_call};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    id: "other_work",
    what: "other work on its CPUs",
    how: "A CPU that other programs want as well gives each its turn, of some milliseconds. Shown by the same at real-time priority \
          (SCHED_FIFO), where programs of usual priority have no turn.",
    cost: "Needs CAP_SYS_NICE. Other programs wait for the CPUs of a round while it runs; a bound keeps a round from locking one up.",
    pitfalls: &[
        "It does not touch the median of operations that are much shorter than a turn: few of them meet one.",
        "It takes away turns on a CPU, and not what others do to shared caches and memory.",
    ],
    remedy: "run it alone, or pin what else runs to other CPUs",
    affected: AffectedMetrics::Listed(&[
        at_all_cases(&PROCESS_FORK),
        at_all_cases(&PROCESS_FORK_RSS),
        at_all_cases(&PROCESS_SPAWN),
        at_all_cases(&PROCESS_EXEC),
        at_all_cases(&PROCESS_SHELL),
        at_all_cases(&THREAD_CREATE),
        at_all_cases(&NEW_FILE),
        at_all_cases(&LATENCY),
        at_all_cases(&LATENCY_STRIDE),
        at_all_cases(&FAULT_MINOR),
        at_all_cases(&BANDWIDTH_READ),
        at_all_cases(&BANDWIDTH_WRITE),
        at_all_cases(&BANDWIDTH_COPY),
        at_all_cases(&BANDWIDTH_MEMCPY),
        at_all_cases(&BANDWIDTH_FILL),
        at_all_cases(&BANDWIDTH_ZERO),
        at_all_cases(&BANDWIDTH_NTWRITE),
        at_all_cases(&BANDWIDTH_TRIAD),
    ]),
    mechanisms: &[Mechanism::without("realtime", "at real-time priority", apply)],
    negative_control: null_call,
    size: |_| None,
};

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    refuse_if(scene.setup.realtime, "the figure is measured at real-time priority already")?;
    refuse_if(scene.cpu_quota().is_some(), "real-time priority would lift the CPU quota as well")?;
    conditions.setup.realtime = true;
    Ok(())
}
