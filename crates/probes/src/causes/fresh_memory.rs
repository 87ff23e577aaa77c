//! Memory that nobody had in use just before: no cache has it, and a host may have taken it back.

use kelvin_core::catalogue::mem::{FIRST_TOUCH, REPEATED_FIRST_TOUCH};
use kelvin_core::{FigureDifference, MetricCase, SkipReason};
use kelvin_sys::mapping::{self, page_bytes};
use kelvin_sys::memory::{Arena, PagePolicy};

use super::cause::{
    AffectedMetrics, AmountSource, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, null_call,
};

pub(crate) static CAUSE: Cause = Cause {
    id: "fresh_memory",
    what: "memory that was not in use just before",
    how: "Whoever touches a page first waits until it is found and cleared. Of memory that was in use just before, the caches still have \
          what describes it; the memory of a virtual machine that was free for some seconds may be the host's again, which then has to \
          supply it. Shown in two ways: by the same touch after kelvin has touched more memory and given it back; and by the figure \
          less that of the same memory, given back by the process itself and touched again. As much counts as both show.",
    cost: "256 MiB more of memory, for a moment before a round.",
    pitfalls: &[
        "Which free memory the kernel hands out is its own choice: it need not be what was given back last.",
        "On a machine that was busy until now most free memory was in use just before: then there is nothing to take away.",
    ],
    remedy: "keep memory that is needed again rather than give it back, or touch it before it is needed (MAP_POPULATE); in a virtual machine, \
            switch off free page reporting where memory is the machine's own",
    affected: AffectedMetrics::Listed(&[at_all_cases(&FIRST_TOUCH)]),
    mechanisms: &[
        Mechanism::without("memory_at_hand", "of memory given back just before", apply),
        Mechanism::new("less the same memory, touched again", AmountSource::Difference(first_touch_difference)),
    ],
    negative_control: null_call,
    size: |_| None,
};

/// Bytes that are touched and given back: twice those of the figure, of which others take some meanwhile.
const TOUCHED_BYTES: usize = 256 << 20;

fn apply(_: &CauseContext<'_>, _: &mut RoundConditions) -> Result<(), SkipReason> {
    let cannot = |error: kelvin_sys::Error| SkipReason::new(format!("no memory can be had for it: {error}"));
    let mut arena = Arena::map(TOUCHED_BYTES, PagePolicy::Base).map_err(cannot)?;
    mapping::write_pages(&mut arena, page_bytes(), TOUCHED_BYTES / page_bytes());
    Ok(())
}

fn first_touch_difference(scene: &CauseContext<'_>) -> Option<FigureDifference> {
    let figure = |metric| MetricCase { metric, case: scene.case.clone() };
    Some(FigureDifference { minuend: figure(FIRST_TOUCH.id), subtrahend: figure(REPEATED_FIRST_TOUCH.id), factor: 1.0 })
}
