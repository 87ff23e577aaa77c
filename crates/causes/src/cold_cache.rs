//! An empty page cache: what is not in memory has to come from the device, or from whatever stands for one.

use kelvin_catalogue::file::{BLOCKSIZE_READ, CacheState, SEQRAND, THREADS};
use kelvin_catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_model::{Case, MetricAt, Reason};

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

pub(crate) static CAUSE: Cause = Cause {
    id: "cold_cache",
    what: "going to the device",
    how: "A read of what the page cache does not hold waits for the device, and one by O_DIRECT always does; the call, and a copy of as \
          many bytes, are little of it. Shown by the same reads of the same file once all of it is in memory.",
    cost: "The file of the probe in the page cache while rounds are made.",
    pitfalls: &[
        "In a virtual machine the host may hold the file in a cache of its own: this is what the device takes as the guest sees it.",
        "An uncached read also allocates the pages that it fills, which a cached one finds: that is part of what is shown.",
    ],
    helps: "read ahead of need (larger blocks, POSIX_FADV_WILLNEED, several requests in flight), or keep the file in memory",
    touches: Touches::These(&[
        Touch::at(&SEQRAND, UNCACHED),
        Touch::at(&SEQRAND, DIRECT),
        Touch::at(&BLOCKSIZE_READ, UNCACHED),
        Touch::at(&BLOCKSIZE_READ, DIRECT),
        Touch::at(&THREADS, UNCACHED),
        Touch::at(&THREADS, DIRECT),
    ]),
    mechanisms: &[Mechanism::new("with all of it in the page cache", Means::Without(Control { id: "cached", apply }))],
    bystander: |_| MetricAt { metric: SYSCALL_NULL.id, case: Case::new().at(NullCall::Getppid) },
    size: |_| None,
};

const UNCACHED: kelvin_model::Point = CacheState::Uncached.point();
const DIRECT: kelvin_model::Point = CacheState::Direct.point();

fn apply(_: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    if CacheState::of(&conditions.case).is_some() {
        conditions.case = conditions.case.clone().at(CacheState::Cached);
    }
    Ok(())
}
