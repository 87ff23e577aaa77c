//! What stands out between CPUs: the cost of waking one, and whether their distance changes.

use kelvin_core::catalogue::mem::BANDWIDTH_CORE_TO_CORE;
use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask, SWITCH_COST, SWITCH_CROSS_CPU};

use super::*;

/// Times a switch from which on it stands out: a wake-up that only sends an interrupt and switches there costs a few.
const MIN_WAKE_UP_RATIO: f64 = 3.0;

/// What waking an idle CPU costs compared with a switch on one.
pub(super) fn wake_up(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let [switch, wake] =
        [&SWITCH_COST, &SWITCH_CROSS_CPU].map(|metric| select(metric).with_word(HandoffMechanism::Pipe.point()));
    let compared = seen.figure_ratio(&switch.with_word(HandoffTask::Process.point()), &wake);
    let compared = compared.filter(|compared| compared.is_above(MIN_WAKE_UP_RATIO))?;
    let (time, times) = (time_text(compared.other), times_text(compared.ratio.value));
    let text = format!(
        "Waking an idle CPU takes {time}, {times} times a context switch: work that moves between CPUs pays it each time."
    );
    Some(compared.into_answer(Consequence::OfThisMachine, StandOutQuestion::WakeUp, text))
}

/// Whether the distance between the machine's CPUs changes.
pub(super) fn cpu_distance(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let moved = seen.analysis.findings.iter().find_map(|finding| match &finding.data {
        FindingData::CpusMoved(moved) => Some(moved),
        _ => None,
    })?;
    let result =
        seen.analysis.result_at(&MetricCase { metric: BANDWIDTH_CORE_TO_CORE.id, case: moved.case.clone() })?;
    let [one, other] = result.outcome.summary()?.states() else { return None };
    let (near, far) = (one.center.min(other.center), one.center.max(other.center));
    let [from, to] = [near, far].map(|time| value_text(time, Unit::Nanoseconds));
    let from = match (from.split_once(' '), to.split_once(' ')) {
        (Some((value, unit)), Some((_, same))) if unit == same => value,
        _ => &from,
    };
    let text = format!("Core-to-core latency alternates between {from} and {to}: what two CPUs share varies with it.");
    let sides = vec![seen.result_rounds(result)?.metric_value()];
    Some(
        StandOutAnswer::new(Consequence::OfThisMachine, StandOutQuestion::CpuDistance, sides, text)
            .with_factor(far / near),
    )
}
