//! Other work on the same CPUs: programs that run meanwhile take turns with the one that is measured.

use kelvin_catalogue::file::NEW;
use kelvin_catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD,
    BANDWIDTH_WRITE, BANDWIDTH_ZERO, FAULT_MINOR, LATENCY, LATENCY_STRIDE,
};
use kelvin_catalogue::os::{
    NullCall, PROCESS_EXEC, PROCESS_FORK, PROCESS_FORK_RSS, PROCESS_SHELL, PROCESS_SPAWN, SYSCALL_NULL, THREAD_CREATE,
};
use kelvin_model::{Case, MetricAt, Reason};

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

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
    helps: "run it alone, or pin what else runs to other CPUs",
    touches: Touches::These(&[
        Touch::always(&PROCESS_FORK),
        Touch::always(&PROCESS_FORK_RSS),
        Touch::always(&PROCESS_SPAWN),
        Touch::always(&PROCESS_EXEC),
        Touch::always(&PROCESS_SHELL),
        Touch::always(&THREAD_CREATE),
        Touch::always(&NEW),
        Touch::always(&LATENCY),
        Touch::always(&LATENCY_STRIDE),
        Touch::always(&FAULT_MINOR),
        Touch::always(&BANDWIDTH_READ),
        Touch::always(&BANDWIDTH_WRITE),
        Touch::always(&BANDWIDTH_COPY),
        Touch::always(&BANDWIDTH_MEMCPY),
        Touch::always(&BANDWIDTH_FILL),
        Touch::always(&BANDWIDTH_ZERO),
        Touch::always(&BANDWIDTH_NTWRITE),
        Touch::always(&BANDWIDTH_TRIAD),
    ]),
    mechanisms: &[Mechanism::new("at real-time priority", Means::Without(Control { id: "realtime", apply }))],
    bystander: |_| MetricAt { metric: SYSCALL_NULL.id, case: Case::new().at(NullCall::Getppid) },
    size: |_| None,
};

fn apply(scene: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    if scene.setup.realtime {
        return Err(Reason::new("the figure is measured at real-time priority already"));
    }
    if scene.cpu_quota().is_some() {
        return Err(Reason::new("real-time priority would lift the CPU quota as well"));
    }
    conditions.setup.realtime = true;
    Ok(())
}
