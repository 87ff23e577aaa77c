//! Files in the page cache: brought to a state before a measurement, proven to be in it afterwards, and read block by block.

use kelvin_file::Reader;
use kelvin_file::cache::{self, Residency};

use super::prelude::*;
use super::test_files::shared_file;

/// Brings a file into a state of the page cache; what was found in memory then.
pub(super) fn set_cache_state(target: &Target, state: PageCacheState) -> ProbeResult<Residency> {
    cache::set_cache_state(target, state).map_err(probe_error)
}

/// How much of a file is in memory.
pub(super) fn residency(target: &Target) -> ProbeResult<Residency> {
    cache::residency(target).map_err(probe_error)
}

/// Share of the pages that may be gone afterwards: at most as many batches waited for a device, which does not move their
/// median.
const MAX_RECLAIMED_SHARE: f64 = 0.01;

/// A file that was wholly in the page cache when it was opened.
pub(super) struct CachedFile {
    pub target: Target,
    /// What was found in memory before, in words.
    pub proof: String,
}

impl CachedFile {
    /// The shared file of this many bytes, read until all of it is in memory.
    pub(super) fn open(bench: &Bench<'_>, bytes: u64) -> ProbeResult<Self> {
        let target = shared_file(bench, bytes)?;
        let before = set_cache_state(&target, PageCacheState::Cached)?;
        Ok(Self { target, proof: format!("before: {before}") })
    }

    /// Pages of it that are no longer in memory.
    pub(super) fn missing_pages(&self) -> ProbeResult<u64> {
        let resident = residency(&self.target)?;
        Ok(resident.pages.saturating_sub(resident.mincore))
    }

    /// That it still is in memory: see [`prove_resident`].
    pub(super) fn check_resident(&self) -> ProbeResult {
        prove_resident(&self.target).map(drop)
    }
}

/// That a file still is in memory, in words, but for a page here and there that the kernel reclaimed: else some of what was
/// timed came from the device, and the round is lost.
pub(super) fn describe_residency(residency: Residency) -> ProbeResult<String> {
    let missing = residency.pages.saturating_sub(residency.mincore);
    let reason = format!(
        "the kernel dropped a part of the file while it was read: afterwards, {residency}; free some memory, or switch off \
         proactive reclaim"
    );
    fail_if(missing as f64 > MAX_RECLAIMED_SHARE * residency.pages as f64, reason)?;
    Ok(format!("afterwards, {residency}"))
}

/// Like `describe_residency`, of a file as it is now.
pub(super) fn prove_resident(target: &Target) -> ProbeResult<String> {
    describe_residency(residency(target)?)
}

/// A file that is read block by block, from the beginning again at its end.
pub(super) struct BlockReader {
    pub reader: Reader,
    pub requests: BlockRequests,
    /// What [`BlockReader::read`] has read.
    pub tally: IoTally,
}

impl BlockReader {
    /// Opens a file.
    pub(super) fn open(target: &Target, engine: Engine, options: ReadOptions) -> ProbeResult<Self> {
        let reader = engine.open(target, options).map_err(probe_error)?;
        let requests = BlockRequests::new(0..target.bytes(), options.block, options.order).endless();
        Ok(Self { reader, requests, tally: IoTally::default() })
    }

    /// Reads as many blocks as its requests allow.
    #[inline]
    pub(super) fn read(&mut self) -> ProbeResult {
        self.reader.read(&mut self.requests, &mut self.tally).map_err(probe_error)
    }

    /// Reads this many blocks.
    #[inline]
    pub(super) fn read_next(&mut self, blocks: u64) -> ProbeResult {
        self.requests.extend_limit(blocks);
        self.read()
    }

    /// The ticks of reading the next blocks, each of which must be whole.
    pub(super) fn time_next(&mut self, clock: Clock, blocks: u64) -> ProbeResult<u64> {
        self.requests.extend_limit(blocks);
        let mut tally = IoTally::default();
        let (ticks, outcome) = clock.time(|| self.reader.read(&mut self.requests, &mut tally));
        outcome.map_err(probe_error)?;
        let bytes = blocks * self.requests.block() as u64;
        if tally == (IoTally { bytes, requests: blocks }) {
            return Ok(ticks);
        }
        Err(ProbeError::fail(format!("{blocks} requests for {bytes} bytes came to {tally:?}")))
    }
}
