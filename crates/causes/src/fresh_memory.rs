//! Memory that nobody had in use just before: no cache has it, and a host may have taken it back.

use kelvin_catalogue::mem::{FIRST_TOUCH, FIRST_TOUCH_AGAIN};
use kelvin_catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_model::{Case, Difference, MetricAt, Reason};
use kelvin_sys::mapping::{self, page_bytes};
use kelvin_sys::memory::{Arena, Pages};

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

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
    helps: "keep memory that is needed again rather than give it back, or touch it before it is needed (MAP_POPULATE); in a virtual machine, \
            switch off free page reporting where memory is the machine's own",
    touches: Touches::These(&[Touch::always(&FIRST_TOUCH)]),
    mechanisms: &[
        Mechanism::new("of memory given back just before", Means::Without(Control { id: "memory_at_hand", apply })),
        Mechanism::new("less the same memory, touched again", Means::Difference(beyond_the_same)),
    ],
    bystander: |_| MetricAt { metric: SYSCALL_NULL.id, case: Case::new().at(NullCall::Getppid) },
    size: |_| None,
};

/// Bytes that are touched and given back: twice those of the figure, of which others take some meanwhile.
const BYTES: usize = 256 << 20;

fn apply(_: &Scene<'_>, _: &mut Conditions) -> Result<(), Reason> {
    let cannot = |error: kelvin_sys::Error| Reason::new(format!("no memory can be had for it: {error}"));
    let mut arena = Arena::map(BYTES, Pages::Base).map_err(cannot)?;
    mapping::write(&mut arena, page_bytes(), BYTES / page_bytes());
    Ok(())
}

fn beyond_the_same(scene: &Scene<'_>) -> Option<Difference> {
    let of = |metric| MetricAt { metric, case: scene.case.clone() };
    Some(Difference { of: of(FIRST_TOUCH.id), less: of(FIRST_TOUCH_AGAIN.id), times: 1.0 })
}
