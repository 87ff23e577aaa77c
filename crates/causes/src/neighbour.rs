//! Other programs on the other CPUs: they use the caches and the memory that all CPUs share.

use kelvin_catalogue::cpu::LATENCY_ADD;
use kelvin_catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD,
    BANDWIDTH_WRITE, BANDWIDTH_ZERO, Cpus, LATENCY, LATENCY_STRIDE, TLB, TLB_PACKED,
};
use kelvin_model::{Case, MetricAt, Reason};

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};
use crate::controls::{Purpose, Spinners};

pub(crate) static CAUSE: Cause = Cause {
    id: "neighbour",
    what: "other programs on the other CPUs",
    how: "CPUs share the last cache, the channels to memory and often a core. What programs on the others move through them is missing \
          here. Shown by the same while a loop that moves nothing holds each of the other CPUs at real-time priority (SCHED_FIFO), where \
          programs of usual priority have no turn.",
    cost: "Needs CAP_SYS_NICE. Other programs wait while a round runs; a bound keeps the loops from locking up a CPU.",
    pitfalls: &[
        "It takes away what runs on the CPUs of this machine. What another virtual machine does on the same host is not in its hands.",
        "Where the other CPU is the second thread of the same core, the loop itself takes a little of that core.",
    ],
    helps: "run it alone, or keep what else runs to CPUs of another socket or another part of the last cache",
    touches: Touches::These(&[
        Touch::always(&LATENCY),
        Touch::always(&LATENCY_STRIDE),
        Touch::always(&TLB),
        Touch::always(&TLB_PACKED),
        Touch::at(&BANDWIDTH_READ, ALONE),
        Touch::at(&BANDWIDTH_WRITE, ALONE),
        Touch::at(&BANDWIDTH_COPY, ALONE),
        Touch::always(&BANDWIDTH_MEMCPY),
        Touch::at(&BANDWIDTH_FILL, ALONE),
        Touch::at(&BANDWIDTH_ZERO, ALONE),
        Touch::at(&BANDWIDTH_NTWRITE, ALONE),
        Touch::at(&BANDWIDTH_TRIAD, ALONE),
    ]),
    mechanisms: &[Mechanism::new(
        "with the other CPUs held by a loop that moves nothing",
        Means::Without(Control { id: "others_held", apply }),
    )],
    // A chain of single adds leaves a second thread of its core nothing to take away.
    bystander: |_| MetricAt { metric: LATENCY_ADD.id, case: Case::new() },
    size: |_| None,
};

const ALONE: kelvin_model::Point = Cpus::One.point();

fn apply(scene: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    let placement = &scene.setup.placement;
    let others: Vec<u32> = placement.allowed.iter().copied().filter(|&cpu| cpu != placement.cpu).collect();
    if others.is_empty() {
        return Err(Reason::new("this process may use one CPU, and hold no other"));
    }
    if scene.cpu_quota().is_some() {
        return Err(Reason::new("a loop on the other CPUs would use up the CPU quota of this control group"));
    }
    conditions.hold(Spinners::on(&others, Purpose::Hold)?);
    Ok(())
}
