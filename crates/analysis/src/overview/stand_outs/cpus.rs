//! What stands out between CPUs: the cost of waking one, and whether their distance changes.

use kelvin_core::catalogue::mem::BANDWIDTH_CORE_TO_CORE;
use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask, SWITCH_COST, SWITCH_CROSS_CPU};

use super::*;

/// Times a switch from which on it stands out: a wake-up that only sends an interrupt and switches there costs a few.
const MIN_WAKE_UP_RATIO: f64 = 3.0;

/// What waking an idle CPU costs compared with a switch on one.
pub(super) fn wake_up(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [switch, wake] =
        [&SWITCH_COST, &SWITCH_CROSS_CPU].map(|metric| select(metric).with_word(HandoffMechanism::Pipe.point()));
    let ratio = context.figure_ratio(&switch.with_word(HandoffTask::Process.point()), &wake);
    let ratio = ratio.filter(|candidate| candidate.is_above(MIN_WAKE_UP_RATIO))?;
    let (time, times) = (time_text(ratio.other), times_text(ratio.ratio.value));
    let text = format!(
        "Waking an idle CPU takes {time}, {times} times a context switch: work that moves between CPUs pays it each time."
    );
    Some(ratio.into_answer(Consequence::OfThisMachine, StandOutQuestion::WakeUp, text))
}

/// Whether the distance between the machine's CPUs changes.
pub(super) fn cpu_distance(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let moved_cpus = context.analysis.findings.iter().find_map(|finding| match &finding.data {
        FindingData::CpusMoved(moved_cpus) => Some(moved_cpus),
        _ => None,
    })?;
    let result =
        context.analysis.result_at(&MetricCase { metric: BANDWIDTH_CORE_TO_CORE.id, case: moved_cpus.case.clone() })?;
    let [first, second] = result.outcome.summary()?.states() else { return None };
    let (near_latency, far_latency) = (first.center.min(second.center), first.center.max(second.center));
    let [from, to] = [near_latency, far_latency].map(|time| value_text(time, Unit::Nanoseconds));
    let from = match (from.split_once(' '), to.split_once(' ')) {
        (Some((value, unit)), Some((_, other_unit))) if unit == other_unit => value,
        _ => &from,
    };
    let text = format!("Core-to-core latency alternates between {from} and {to}: what two CPUs share varies with it.");
    let sides = vec![context.result_rounds(result)?.metric_value()];
    Some(
        StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::CpuDistance, sides, text)
            .with_factor(far_latency / near_latency),
    )
}
