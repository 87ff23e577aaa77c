//! An empty page cache: what is not in memory has to come from the device, or from whatever stands for one.

use kelvin_core::catalogue::file::{BLOCKSIZE_READ, CacheState, READ_ORDER, THREADS};

use super::cause::{AffectedMetrics, Cause, Mechanism, at_word, null_call};

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
    remedy: "read ahead of need (larger blocks, POSIX_FADV_WILLNEED, several requests in flight), or keep the file in memory",
    affected: AffectedMetrics::Listed(&[
        at_word(&READ_ORDER, UNCACHED_READ),
        at_word(&READ_ORDER, DIRECT_READ),
        at_word(&BLOCKSIZE_READ, UNCACHED_READ),
        at_word(&BLOCKSIZE_READ, DIRECT_READ),
        at_word(&THREADS, UNCACHED_READ),
        at_word(&THREADS, DIRECT_READ),
    ]),
    mechanisms: &[Mechanism::without("cached", "with all of it in the page cache", |_, conditions| {
        conditions.replace_word(CacheState::Cached);
        Ok(())
    })],
    negative_control: null_call,
    size: |_| None,
};

const UNCACHED_READ: kelvin_core::AxisWord = CacheState::Uncached.point();
const DIRECT_READ: kelvin_core::AxisWord = CacheState::Direct.point();
