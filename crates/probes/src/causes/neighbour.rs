//! Other programs on the other CPUs: they use the caches and the memory that all CPUs share.

use kelvin_core::catalogue::cpu::LATENCY_ADD;
use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD,
    BANDWIDTH_WRITE, BANDWIDTH_ZERO, LATENCY, LATENCY_STRIDE, MemoryCpus, TLB, TLB_PACKED,
};
use kelvin_core::{Case, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, at_word};
use super::spinners::{SpinPurpose, Spinners};
use crate::reasons::refuse_if;

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
    remedy: "run it alone, or keep what else runs to CPUs of another socket or another part of the last cache",
    affected: AffectedMetrics::Listed(&[
        at_all_cases(&LATENCY),
        at_all_cases(&LATENCY_STRIDE),
        at_all_cases(&TLB),
        at_all_cases(&TLB_PACKED),
        at_word(&BANDWIDTH_READ, ONE_CPU),
        at_word(&BANDWIDTH_WRITE, ONE_CPU),
        at_word(&BANDWIDTH_COPY, ONE_CPU),
        at_all_cases(&BANDWIDTH_MEMCPY),
        at_word(&BANDWIDTH_FILL, ONE_CPU),
        at_word(&BANDWIDTH_ZERO, ONE_CPU),
        at_word(&BANDWIDTH_NTWRITE, ONE_CPU),
        at_word(&BANDWIDTH_TRIAD, ONE_CPU),
    ]),
    mechanisms: &[Mechanism::without("others_held", "with the other CPUs held by a loop that moves nothing", apply)],
    // A chain of single adds leaves a second thread of its core nothing to take away.
    negative_control: |_| MetricCase { metric: LATENCY_ADD.id, case: Case::new() },
    size: |_| None,
};

const ONE_CPU: kelvin_core::AxisWord = MemoryCpus::One.point();

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let placement = &scene.setup.placement;
    let others: Vec<u32> = placement.allowed.iter().copied().filter(|&cpu| cpu != placement.cpu).collect();
    refuse_if(others.is_empty(), "this process may use one CPU, and hold no other")?;
    let reason = "a loop on the other CPUs would use up the CPU quota of this control group";
    refuse_if(scene.cpu_quota().is_some(), reason)?;
    conditions.keep_for_round(Spinners::start(&others, SpinPurpose::HoldCpu)?);
    Ok(())
}
