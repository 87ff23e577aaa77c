//! The shared file in the page cache: brought there before a measurement, and proven to be there after it.

use kelvin_file::Target;
use kelvin_file::cache::{self, Residency, State};
use kelvin_harness::{Bench, Stop};

use super::data;

/// Share of the pages that may be gone afterwards: at most as many batches waited for a device, which does not move their
/// median.
const RECLAIMED: f64 = 0.01;

/// A file that was wholly in the page cache when it was opened.
pub(super) struct Cached {
    target: Target,
    proof: String,
}

impl Cached {
    /// The shared file of so many bytes, read until all of it is in memory.
    pub(super) fn open(bench: &Bench<'_>, bytes: u64) -> Result<Self, Stop> {
        let target = data::file(bench, bytes)?;
        let found = cache::bring(&target, State::Cached).map_err(data::stopped)?;
        Ok(Self { target, proof: format!("before: {found}") })
    }

    /// The file.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// What was found in memory before, in words.
    pub(super) fn proof(&self) -> &str {
        &self.proof
    }

    /// Pages of it that are no longer in memory.
    pub(super) fn missing(&self) -> Result<u64, Stop> {
        let found = cache::residency(&self.target).map_err(data::stopped)?;
        Ok(found.pages.saturating_sub(found.mincore))
    }

    /// That it still is in memory: see [`still`].
    pub(super) fn check(&self) -> Result<(), Stop> {
        still(cache::residency(&self.target).map_err(data::stopped)?).map(drop)
    }
}

/// That a file still is in memory, in words, but for a page here and there that the kernel reclaimed: else some of what was
/// timed came from the device, and the round is lost.
pub(super) fn still(found: Residency) -> Result<String, Stop> {
    let missing = found.pages.saturating_sub(found.mincore);
    if missing as f64 <= RECLAIMED * found.pages as f64 {
        return Ok(format!("afterwards, {found}"));
    }
    Err(Stop::fail(format!(
        "the kernel dropped a part of the file while it was read: afterwards, {found}; free some memory, or switch off \
         proactive reclaim"
    )))
}
