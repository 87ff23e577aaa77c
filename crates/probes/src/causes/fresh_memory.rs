//! Memory that nobody had in use just before: no cache has it, and a host may have taken it back.

use kelvin_core::catalogue::mem::{FIRST_TOUCH, REPEATED_FIRST_TOUCH};
use kelvin_core::{FigureDifference, MetricCase, SkipReason};
use kelvin_sys::mapping::{self, page_bytes};
use kelvin_sys::memory::{Arena, PagePolicy};

use super::cause::{AffectedMetrics, AmountSource, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_all_cases(&[&FIRST_TOUCH])]),
    mechanisms: &[
        Mechanism::without("memory_at_hand", "of memory given back just before", apply),
        Mechanism::new("less the same memory, touched again", AmountSource::Difference(first_touch_difference)),
    ],
    ..Cause::new("fresh_memory", "memory that was not in use just before", include_str!("fresh_memory.md"))
};

/// Bytes that are touched and given back: twice those of the figure, of which others take some meanwhile.
const TOUCHED_BYTES: usize = 256 << 20;

fn apply(_: &CauseContext<'_>, _: &mut RoundConditions) -> Result<(), SkipReason> {
    let to_skip_reason = |error: kelvin_sys::Error| SkipReason::new(format!("no memory can be had for it: {error}"));
    let mut arena = Arena::map(TOUCHED_BYTES, PagePolicy::Base).map_err(to_skip_reason)?;
    mapping::write_pages(&mut arena, page_bytes(), TOUCHED_BYTES / page_bytes());
    Ok(())
}

fn first_touch_difference(context: &CauseContext<'_>) -> Option<FigureDifference> {
    let figure = |metric| MetricCase { metric, case: context.case.clone() };
    Some(FigureDifference { minuend: figure(FIRST_TOUCH.id), subtrahend: figure(REPEATED_FIRST_TOUCH.id), factor: 1.0 })
}
