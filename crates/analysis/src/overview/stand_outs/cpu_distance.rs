//! Whether the distance between the machine's CPUs changes.

use kelvin_core::catalogue::mem::BANDWIDTH_CORE_TO_CORE;

use super::*;

pub(super) fn answer(seen: &StandOutContext<'_>) -> Option<StandOutAnswer> {
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
