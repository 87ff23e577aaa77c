//! Other work on the same CPUs: programs that run meanwhile take turns with the one that is measured.

use kelvin_core::catalogue::file::NEW_FILE;
use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD,
    BANDWIDTH_WRITE, BANDWIDTH_ZERO, FAULT_MINOR, LATENCY, LATENCY_STRIDE,
};
use kelvin_core::catalogue::os::{
    NullCall, PROCESS_EXEC, PROCESS_FORK, PROCESS_FORK_RSS, PROCESS_SHELL, PROCESS_SPAWN, SYSCALL_NULL, THREAD_CREATE,
};
use kelvin_core::{Case, MetricCase, SkipReason};

use crate::causes::cause::{
    AffectedMetric, AffectedMetrics, AmountSource, Cause, CauseContext, Intervention, Mechanism, RoundConditions,
};

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
        AffectedMetric::at_all_cases(&PROCESS_FORK),
        AffectedMetric::at_all_cases(&PROCESS_FORK_RSS),
        AffectedMetric::at_all_cases(&PROCESS_SPAWN),
        AffectedMetric::at_all_cases(&PROCESS_EXEC),
        AffectedMetric::at_all_cases(&PROCESS_SHELL),
        AffectedMetric::at_all_cases(&THREAD_CREATE),
        AffectedMetric::at_all_cases(&NEW_FILE),
        AffectedMetric::at_all_cases(&LATENCY),
        AffectedMetric::at_all_cases(&LATENCY_STRIDE),
        AffectedMetric::at_all_cases(&FAULT_MINOR),
        AffectedMetric::at_all_cases(&BANDWIDTH_READ),
        AffectedMetric::at_all_cases(&BANDWIDTH_WRITE),
        AffectedMetric::at_all_cases(&BANDWIDTH_COPY),
        AffectedMetric::at_all_cases(&BANDWIDTH_MEMCPY),
        AffectedMetric::at_all_cases(&BANDWIDTH_FILL),
        AffectedMetric::at_all_cases(&BANDWIDTH_ZERO),
        AffectedMetric::at_all_cases(&BANDWIDTH_NTWRITE),
        AffectedMetric::at_all_cases(&BANDWIDTH_TRIAD),
    ]),
    mechanisms: &[Mechanism::new(
        "at real-time priority",
        AmountSource::Without(Intervention { id: "realtime", apply }),
    )],
    negative_control: |_| MetricCase { metric: SYSCALL_NULL.id, case: Case::new().with_word(NullCall::Getppid) },
    size: |_| None,
};

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    if scene.setup.realtime {
        return Err(SkipReason::new("the figure is measured at real-time priority already"));
    }
    if scene.cpu_quota().is_some() {
        return Err(SkipReason::new("real-time priority would lift the CPU quota as well"));
    }
    conditions.setup.realtime = true;
    Ok(())
}
