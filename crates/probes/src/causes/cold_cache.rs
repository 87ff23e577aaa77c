//! An empty page cache: what is not in memory has to come from the device, or from what stands for one.

use kelvin_core::catalogue::file::{BLOCKSIZE_READ, CacheState, READ_ORDER, THREADS};

use super::cause::{AffectedMetrics, Cause, Mechanism, at_word};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[
        at_word(&[&READ_ORDER, &BLOCKSIZE_READ, &THREADS], CacheState::Uncached.point()),
        at_word(&[&READ_ORDER, &BLOCKSIZE_READ, &THREADS], CacheState::Direct.point()),
    ]),
    mechanisms: &[Mechanism::without("cached", "with all of it in the page cache", |_, conditions| {
        conditions.replace_word(CacheState::Cached);
        Ok(())
    })],
    ..Cause::new("cold_cache", "going to the device", include_str!("cold_cache.md"))
};
