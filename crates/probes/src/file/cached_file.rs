//! The shared file in the page cache: brought there before a measurement, and proven to be there after it.

use kelvin_file::Target;
use kelvin_file::cache::{self, PageCacheState, Residency};
use kelvin_harness::{Bench, ProbeError};

use super::test_files;

/// Share of the pages that may be gone afterwards: at most as many batches waited for a device, which does not move their
/// median.
const MAX_RECLAIMED_SHARE: f64 = 0.01;

/// A file that was wholly in the page cache when it was opened.
pub(super) struct CachedFile {
    target: Target,
    proof: String,
}

impl CachedFile {
    /// The shared file of so many bytes, read until all of it is in memory.
    pub(super) fn open(bench: &Bench<'_>, bytes: u64) -> Result<Self, ProbeError> {
        let target = test_files::shared_file(bench, bytes)?;
        let found = cache::set_cache_state(&target, PageCacheState::Cached).map_err(test_files::probe_error)?;
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
    pub(super) fn missing_pages(&self) -> Result<u64, ProbeError> {
        let found = cache::residency(&self.target).map_err(test_files::probe_error)?;
        Ok(found.pages.saturating_sub(found.mincore))
    }

    /// That it still is in memory: see [`describe_residency`].
    pub(super) fn check_resident(&self) -> Result<(), ProbeError> {
        describe_residency(cache::residency(&self.target).map_err(test_files::probe_error)?).map(drop)
    }
}

/// That a file still is in memory, in words, but for a page here and there that the kernel reclaimed: else some of what was
/// timed came from the device, and the round is lost.
pub(super) fn describe_residency(found: Residency) -> Result<String, ProbeError> {
    let missing = found.pages.saturating_sub(found.mincore);
    if missing as f64 <= MAX_RECLAIMED_SHARE * found.pages as f64 {
        return Ok(format!("afterwards, {found}"));
    }
    Err(ProbeError::fail(format!(
        "the kernel dropped a part of the file while it was read: afterwards, {found}; free some memory, or switch off \
         proactive reclaim"
    )))
}
