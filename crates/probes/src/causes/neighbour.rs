//! Other programs on the other CPUs: they use the caches and the memory that all CPUs share.

use kelvin_core::catalogue::cpu::LATENCY_ADD;
use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_MEMCPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD,
    BANDWIDTH_WRITE, BANDWIDTH_ZERO, LATENCY, LATENCY_STRIDE, MemoryCpus, TLB, TLB_PACKED,
};
use kelvin_core::{Case, MetricCase, SkipReason};

use crate::causes::cause::{
    AffectedMetric, AffectedMetrics, AmountSource, Cause, CauseContext, Intervention, Mechanism, RoundConditions,
};
use crate::causes::interventions::{SpinPurpose, Spinners};

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
        AffectedMetric::at_all_cases(&LATENCY),
        AffectedMetric::at_all_cases(&LATENCY_STRIDE),
        AffectedMetric::at_all_cases(&TLB),
        AffectedMetric::at_all_cases(&TLB_PACKED),
        AffectedMetric::at_word(&BANDWIDTH_READ, ONE_CPU),
        AffectedMetric::at_word(&BANDWIDTH_WRITE, ONE_CPU),
        AffectedMetric::at_word(&BANDWIDTH_COPY, ONE_CPU),
        AffectedMetric::at_all_cases(&BANDWIDTH_MEMCPY),
        AffectedMetric::at_word(&BANDWIDTH_FILL, ONE_CPU),
        AffectedMetric::at_word(&BANDWIDTH_ZERO, ONE_CPU),
        AffectedMetric::at_word(&BANDWIDTH_NTWRITE, ONE_CPU),
        AffectedMetric::at_word(&BANDWIDTH_TRIAD, ONE_CPU),
    ]),
    mechanisms: &[Mechanism::new(
        "with the other CPUs held by a loop that moves nothing",
        AmountSource::Without(Intervention { id: "others_held", apply }),
    )],
    // A chain of single adds leaves a second thread of its core nothing to take away.
    negative_control: |_| MetricCase { metric: LATENCY_ADD.id, case: Case::new() },
    size: |_| None,
};

const ONE_CPU: kelvin_core::AxisWord = MemoryCpus::One.point();

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let placement = &scene.setup.placement;
    let others: Vec<u32> = placement.allowed.iter().copied().filter(|&cpu| cpu != placement.cpu).collect();
    if others.is_empty() {
        return Err(SkipReason::new("this process may use one CPU, and hold no other"));
    }
    if scene.cpu_quota().is_some() {
        return Err(SkipReason::new("a loop on the other CPUs would use up the CPU quota of this control group"));
    }
    conditions.keep_for_round(Spinners::start(&others, SpinPurpose::HoldCpu)?);
    Ok(())
}
