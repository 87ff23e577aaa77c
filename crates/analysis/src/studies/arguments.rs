//! Arguments of a function call: whether they are free, or each costs the same.

use kelvin_core::DependenceQuestion;
use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};

use super::dependence::TimeDependence;
use crate::evidence::Evidence;
use crate::result::Study;

/// Conclusions from the metric `cpu.call.args`, by the kind of call.
pub(crate) fn arguments(evidence: &Evidence<'_>) -> Option<Study> {
    let amount = |count: u64| if count == 0 { "none".to_owned() } else { count.to_string() };
    let of_kind = |&kind: &CallKind| {
        let points = evidence.all_cases(&CALL_ARGS).iter().filter(|one| CallKind::of(one.case) == Some(kind));
        let dependence = TimeDependence::from_points(DependenceQuestion::Arguments, ARGUMENTS, points)?;
        let call = match kind {
            CallKind::Indirect => "an indirect call",
            CallKind::Plt => "a call through a PLT",
            CallKind::Direct => "a direct call",
        };
        let most = *dependence.positions.last()?;
        let constant = dependence.constant(&format!("up to {most} arguments are free in {call}"), amount)?;
        if constant.holds == Some(true) {
            return Some(vec![constant]);
        }
        let claim = format!("each argument costs the same in {call}");
        Some(std::iter::once(constant).chain(dependence.linear(&claim, amount, 1.0)).collect())
    };
    let conclusions = CallKind::ALL.iter().filter_map(of_kind).flatten().collect();
    let design = "Calls with different numbers of integer arguments were timed in several rounds. Arguments are free where each call takes \
                  as long as one without, and cost the same each where a straight line over their number gives every time.";
    Study::new(CALL_ARGS.id, design, conclusions)
}
