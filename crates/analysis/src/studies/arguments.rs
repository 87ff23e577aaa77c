//! Arguments of a function call: whether they are free, or each costs the same.

use kelvin_catalogue::cpu::{ARGUMENTS, CALL_ARGS, Via};
use kelvin_model::{AlongQuestion, Conclusion};

use super::along::Along;
use crate::evidence::{Evidence, Rounds};
use crate::result::Study;

/// Conclusions from the metric `cpu.call.args`, by the kind of call.
pub(crate) fn arguments(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all(&CALL_ARGS);
    let of_kind = |&via: &Via| {
        let points: Vec<Rounds<'_>> = all.iter().filter(|one| Via::of(one.case) == Some(via)).cloned().collect();
        Along::of(AlongQuestion::Arguments, ARGUMENTS, points).map(|along| along.laws()).unwrap_or_default()
    };
    let conclusions: Vec<Conclusion> = Via::ALL.iter().flat_map(of_kind).collect();
    let design = "Calls with different numbers of integer arguments were timed in several rounds. Arguments are free where each call takes \
                  as long as one without, and cost the same each where a straight line over their number gives every time.";
    Study::new(CALL_ARGS.id, design, conclusions)
}
