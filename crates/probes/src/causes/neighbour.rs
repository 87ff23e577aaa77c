//! Other programs on the other CPUs: they use the caches and the memory that all CPUs share.

use kelvin_core::catalogue::cpu::LATENCY_ADD;
use kelvin_core::catalogue::mem::{BANDWIDTH_MEMCPY, LATENCY, LATENCY_STRIDE, MemoryCpus, TLB, TLB_PACKED};
use kelvin_core::{Case, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, at_word};
use crate::memory::bandwidth::OPERATION_METRICS;
use crate::reasons::refuse_if;
use crate::spinners::{SpinPurpose, Spinners};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[
        at_all_cases(&[&LATENCY, &LATENCY_STRIDE, &TLB, &TLB_PACKED, &BANDWIDTH_MEMCPY]),
        at_word(OPERATION_METRICS, MemoryCpus::One.point()),
    ]),
    mechanisms: &[Mechanism::without("others_held", "with the other CPUs held by a loop that moves nothing", apply)],
    // A chain of single adds leaves a second thread of its core nothing to take away.
    negative_control: |_| MetricCase { metric: LATENCY_ADD.id, case: Case::new() },
    ..Cause::new("neighbour", "other programs on the other CPUs", include_str!("neighbour.md"))
};

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let placement = &context.setup.placement;
    let other_cpus: Vec<u32> = placement.allowed.iter().copied().filter(|&cpu| cpu != placement.cpu).collect();
    refuse_if(other_cpus.is_empty(), "this process may use one CPU, and hold no other")?;
    let reason = "a loop on the other CPUs would use up the CPU quota of this control group";
    refuse_if(context.cpu_quota().is_some(), reason)?;
    let spinners = conditions.keep_for_experiment(CAUSE.id, || Spinners::start(&other_cpus, SpinPurpose::HoldCpu))?;
    conditions.keep_for_round(spinners.spin());
    Ok(())
}
