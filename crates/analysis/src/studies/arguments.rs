//! Arguments of a function call: whether they are free, or each costs the same.

use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_core::{Conclusion, DependenceQuestion};

use super::dependence::TimeDependence;
use crate::evidence::{Evidence, RoundHeadlines};
use crate::result::Study;

/// Conclusions from the metric `cpu.call.args`, by the kind of call.
pub(crate) fn arguments(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all_cases(&CALL_ARGS);
    let of_kind = |&via: &CallKind| {
        let points: Vec<RoundHeadlines<'_>> =
            all.iter().filter(|one| CallKind::of(one.case) == Some(via)).cloned().collect();
        TimeDependence::from_points(DependenceQuestion::Arguments, ARGUMENTS, points)
            .map(|along| along.conclusions())
            .unwrap_or_default()
    };
    let conclusions: Vec<Conclusion> = CallKind::ALL.iter().flat_map(of_kind).collect();
    let design = "Calls with different numbers of integer arguments were timed in several rounds. Arguments are free where each call takes \
                  as long as one without, and cost the same each where a straight line over their number gives every time.";
    Study::new(CALL_ARGS.id, design, conclusions)
}
