//! The size of the file cache, found by reading: the size from which on a file just read is no longer in memory.
//!
//! A file of some size is dropped from memory, read once from its beginning to its end, and then once more, block by block. The
//! kernel evicts the least recently used pages. Of a file slightly larger than the cache those are the ones needed next: each
//! block read evicts the one needed soonest. So the second pass finds nothing at all, not just the little that was too
//! much. The time of a block therefore jumps between two close sizes, and the cache ends between them.
//!
//! Times alone prove nothing: a busy neighbour makes a jump too. So the pages of each size are counted before and after the
//! second pass. A jump counts only where the file was in memory at every size before it, and whole at none after it.

use std::fmt;
use std::ops::{ControlFlow, Range};

use kelvin_stats::{RankChangePoint, median, rank_change_points};
use kelvin_sys::clock::monotonic;
use kelvin_sys::mapping::page_bytes;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::access::PageCacheState;
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};
use crate::cache;
use crate::engine::{Engine, ReadOptions};
use crate::observer::{IoTally, Observer};
use crate::target::Target;

/// Bytes of a block: large enough for a request to a device, small enough that a file has thousands of them.
pub const BLOCK: usize = 64 << 10;
/// Bytes of a block of the first, untimed pass.
const FIRST_BLOCK: usize = 1 << 20;
/// Parts of a file whose blocks are timed together: each gives one value, so that a jump rests on several.
pub const TIMED_PARTS: usize = 6;
/// The first and the last size, as shares of the limit to be found.
const MIN_SIZE_SHARE: f64 = 0.25;
const MAX_SIZE_SHARE: f64 = 1.7;
/// How much larger each size is than the one before: four steps are a factor of two.
const SIZE_GROWTH: f64 = 1.189_207_115_002_721;
/// Sizes between the last that stayed and the first that did not. With the growth above they are 3 % apart.
const REFINED_SIZES: u64 = 5;
/// Least ratio of two levels that counts as a jump. Where a file leaves the processor's caches, or a neighbour begins to use
/// the memory, copying a block takes up to about twice as long. A device request, at 50 us and more, at least five times as
/// long. Times cannot show the limit where a device is faster than that.
const MIN_JUMP_RATIO: f64 = 4.0;
/// Least share of a file that is in memory where it stays. A system that reclaims idle memory takes some even of a file just
/// read. A cache smaller than a file by as much is found within the distance of two sizes.
const MIN_RESIDENT_SHARE: f64 = 0.97;
/// The smallest limit that can be found, in bytes: below it, the reading process itself is a large part of what is limited.
pub const MIN_LIMIT: u64 = 64 << 20;
/// By how much of the limit the size found may differ from it.
pub const SIZE_TOLERANCE: f64 = 0.1;

/// A file of one size, read twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeSample {
    /// Its size.
    pub bytes: u64,
    /// Nanoseconds of a block in each part of it in the second pass: the median of the part.
    pub block_nanoseconds: Vec<f64>,
    /// Bytes of it that were in memory, by mincore(2): before or after the second pass, whichever is less.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
}

impl SizeSample {
    /// Whether it was in memory, but for a few pages.
    pub fn is_resident(&self) -> bool {
        self.resident as f64 >= MIN_RESIDENT_SHARE * self.bytes as f64
    }
}

/// Where the file cache ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageCacheSize {
    /// The jump of the time of a block: from the largest file that stayed in memory to the smallest that did not.
    pub jump: LatencyJump,
    /// How much of larger files was in memory, in bytes: another way to the same size.
    pub resident: u64,
}

impl PageCacheSize {
    /// The size in the middle, in bytes.
    pub fn bytes(&self) -> u64 {
        self.jump.largest_before.midpoint(self.jump.smallest_after)
    }

    /// By how much of a limit it lies above it (or below, if negative).
    pub fn error(&self, limit: u64) -> f64 {
        self.bytes() as f64 / limit as f64 - 1.0
    }

    /// Whether it is the limit, to the precision of the sizes.
    pub fn agrees(&self, limit: u64) -> bool {
        self.error(limit).abs() <= SIZE_TOLERANCE
    }
}

/// Why no end of the file cache was found. None of these is a size.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PageCacheSizeError {
    /// Times do not jump.
    #[error(
        "the time of a block does not jump anywhere between files of {} and {}: {}",
        mebibytes(range.0), mebibytes(range.1),
        if *all_stayed { "all of them stayed in memory" } else { "the device is about as fast as memory" }
    )]
    NoJump {
        /// The smallest and the largest file.
        range: (u64, u64),
        /// Whether all were in memory in the second pass.
        all_stayed: bool,
    },
    /// They jump more than once, so that something else took part.
    #[error("the time of a block jumps more than once: {}", jumps.iter().map(LatencyJump::to_string).collect::<Vec<_>>().join("; "))]
    SeveralJumps {
        /// Each of them.
        jumps: Vec<LatencyJump>,
    },
    /// They jump down.
    #[error("larger files are read faster: {0}")]
    FallingJump(LatencyJump),
    /// They jump, but not because the file was no longer in memory.
    #[error(
        "the time of a block jumps {jump}, but that is not the end of the cache: of a file of {}, {} were in memory",
        mebibytes(*bytes), mebibytes(*resident)
    )]
    ResidencyMismatch {
        /// The jump.
        jump: LatencyJump,
        /// The size of a file that contradicts it.
        bytes: u64,
        /// How much of that was in memory.
        resident: u64,
    },
}

impl PageCacheSizeError {
    /// Whether other load on the machine can be the cause, so that another try may find it. Without any jump another try will
    /// not find one.
    pub fn is_disturbance(&self) -> bool {
        !matches!(self, Self::NoJump { .. })
    }
}

/// A jump of the time of a block between two sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyJump {
    /// The last size before it.
    pub largest_before: u64,
    /// The first size after it.
    pub smallest_after: u64,
    /// Nanoseconds of a block before.
    pub before: f64,
    /// Nanoseconds of a block after.
    pub after: f64,
    /// Probability of such a jump in a sequence without one.
    pub p: f64,
}

impl LatencyJump {
    fn is_rising(&self) -> bool {
        self.after > self.before
    }
}

impl fmt::Display for LatencyJump {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { largest_before, smallest_after, before, after, .. } = self;
        let (largest_before, smallest_after) = (mebibytes(*largest_before), mebibytes(*smallest_after));
        write!(out, "from {before:.0} to {after:.0} ns between {largest_before} and {smallest_after}")
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Sizes of files to begin with, in bytes, growing: from a quarter of a limit to well above it.
pub fn initial_sizes(limit: u64) -> Vec<u64> {
    let shares = std::iter::successors(Some(MIN_SIZE_SHARE), |share| Some(share * SIZE_GROWTH));
    shares.take_while(|share| *share <= MAX_SIZE_SHARE).map(|share| round_up_to_parts(share * limit as f64)).collect()
}

/// The size of the largest of them.
pub fn largest_size(limit: u64) -> u64 {
    initial_sizes(limit).last().copied().unwrap_or(0)
}

/// Upper bound of the bytes read to find a limit: each size twice, and the finer ones as if all were the largest.
pub fn max_bytes_read(limit: u64) -> u64 {
    2 * (initial_sizes(limit).iter().sum::<u64>() + REFINED_SIZES * largest_size(limit))
}

/// More sizes, between the last one that stayed and the first one that did not; none where there is no such place.
pub fn refined_sizes(samples: &[SizeSample]) -> Vec<u64> {
    let Ok(PageCacheSize { jump, .. }) = find_page_cache_size(samples) else { return Vec::new() };
    let LatencyJump { largest_before, smallest_after, .. } = jump;
    let step = (smallest_after - largest_before) as f64 / (REFINED_SIZES + 1) as f64;
    let candidates = (1..=REFINED_SIZES).map(|number| round_up_to_parts(largest_before as f64 + number as f64 * step));
    let mut sizes: Vec<u64> = candidates.filter(|bytes| (largest_before + 1..smallest_after).contains(bytes)).collect();
    sizes.dedup();
    sizes
}

/// The next size of whole blocks in each part.
fn round_up_to_parts(bytes: f64) -> u64 {
    let unit = (BLOCK * TIMED_PARTS) as f64;
    (bytes / unit).round().max(1.0) as u64 * unit as u64
}

/// Reads the first `bytes` of a file twice, after it was dropped from memory.
///
/// # Errors
/// A file that cannot be dropped or read.
pub fn measure_size(target: &Target, bytes: u64) -> Result<SizeSample> {
    // Pages that are there already belong to whoever read them first, and are not charged to this process's limit.
    cache::set_cache_state(target, PageCacheState::Uncached)?;
    // Opened for random order, so that the kernel does not read ahead. Up to many MiB beyond the last block would evict pages
    // that are to stay. A missing block would cost a share of a large request.
    let open = |block| {
        let order = BlockOrder::Random { seed: 0 };
        Engine::Pread.open(target, ReadOptions { order, ..ReadOptions::sequential(block) })
    };
    open(FIRST_BLOCK)?
        .read(&mut BlockRequests::new(0..bytes, FIRST_BLOCK, BlockOrder::Sequential), &mut IoTally::default())?;
    let first_resident = resident_bytes(target)?;
    let mut reader = open(BLOCK)?;
    let part = bytes / TIMED_PARTS as u64;
    let parts = (0..TIMED_PARTS as u64).map(|number| number * part..(number + 1) * part);
    let block_nanoseconds = parts.map(|part| {
        let mut times = BlockTimes::default();
        reader.read(&mut BlockRequests::new(part, BLOCK, BlockOrder::Sequential), &mut times)?;
        // All of them are missing or none is, and one during which the thread was preempted shows nothing.
        Ok(median(&times.0))
    });
    let block_nanoseconds = block_nanoseconds.collect::<Result<_>>()?;
    Ok(SizeSample { bytes, block_nanoseconds, resident: first_resident.min(resident_bytes(target)?).min(bytes) })
}

/// Bytes of a file that are in memory.
fn resident_bytes(target: &Target) -> Result<u64> {
    Ok(cache::residency(target)?.mincore * page_bytes() as u64)
}

/// The nanoseconds of each block.
#[derive(Default)]
struct BlockTimes(Vec<f64>);

impl Observer for BlockTimes {
    type Stamp = u64;

    fn begin(&mut self) -> u64 {
        monotonic()
    }

    fn end(&mut self, start: u64, _: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        self.0.push((monotonic() - start) as f64);
        ControlFlow::Continue(())
    }
}

/// Where the file cache ends, from samples in any order.
///
/// # Errors
/// Why they do not show it.
pub fn find_page_cache_size(samples: &[SizeSample]) -> std::result::Result<PageCacheSize, PageCacheSizeError> {
    let mut samples: Vec<&SizeSample> = samples.iter().collect();
    samples.sort_by_key(|sample| sample.bytes);
    let is_large = |jump: &LatencyJump| jump.after.max(jump.before) >= MIN_JUMP_RATIO * jump.after.min(jump.before);
    let jumps: Vec<LatencyJump> = find_jumps(&samples).into_iter().filter(is_large).collect();
    let jump = match jumps.as_slice() {
        [] => {
            return Err(PageCacheSizeError::NoJump {
                range: (
                    samples.first().map_or(0, |sample| sample.bytes),
                    samples.last().map_or(0, |sample| sample.bytes),
                ),
                all_stayed: samples.iter().all(|sample| sample.is_resident()),
            });
        }
        [jump] if !jump.is_rising() => return Err(PageCacheSizeError::FallingJump(*jump)),
        [jump] => without_edge(*jump, &samples),
        _ => return Err(PageCacheSizeError::SeveralJumps { jumps }),
    };
    // Sizes inside a jump are of neither side.
    let contradicts = |sample: &&&SizeSample| {
        sample.bytes <= jump.largest_before && !sample.is_resident()
            // To the last page, as a file that is too large cannot be.
            || sample.bytes >= jump.smallest_after && sample.resident >= sample.bytes
    };
    if let Some(sample) = samples.iter().find(contradicts) {
        return Err(PageCacheSizeError::ResidencyMismatch { jump, bytes: sample.bytes, resident: sample.resident });
    }
    let resident_sizes: Vec<f64> = samples
        .iter()
        .filter(|sample| sample.bytes >= jump.smallest_after)
        .map(|sample| sample.resident as f64)
        .collect();
    Ok(PageCacheSize { jump, resident: median(&resident_sizes) as u64 })
}

/// A jump with the size before it left to neither side, where that one lost a part of its pages. A file of the size of the
/// cache stays in some of its parts and not in others, so that its times are of both levels.
fn without_edge(jump: LatencyJump, samples: &[&SizeSample]) -> LatencyJump {
    let smaller_samples: Vec<&&SizeSample> =
        samples.iter().filter(|sample| sample.bytes <= jump.largest_before).collect();
    match smaller_samples.as_slice() {
        [.., last, edge] if !edge.is_resident() && last.is_resident() => {
            LatencyJump { largest_before: last.bytes, ..jump }
        }
        _ => jump,
    }
}

/// All changes of level along growing sizes. Two in the same direction with one size between them are one: a file at the edge
/// may be in part in memory.
fn find_jumps(samples: &[&SizeSample]) -> Vec<LatencyJump> {
    let values: Vec<f64> = samples.iter().flat_map(|sample| sample.block_nanoseconds.iter().copied()).collect();
    let owner = |(number, sample): (usize, &&SizeSample)| vec![number; sample.block_nanoseconds.len()];
    let owners: Vec<usize> = samples.iter().enumerate().flat_map(owner).collect();
    let changes = rank_change_points(&values, TIMED_PARTS);
    let mut jumps: Vec<(LatencyJump, usize)> = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        let range_start = number.checked_sub(1).map_or(0, |before| changes[before].index);
        let range_end = changes.get(number + 1).map_or(values.len(), |after| after.index);
        let index = edge_index(&values, change, range_start..range_end);
        // A change inside a file leaves that one between the sides.
        let (last, first) = match (owners[index - 1], owners[index]) {
            (last, first) if last == first => (last.saturating_sub(1), (first + 1).min(samples.len() - 1)),
            sides => sides,
        };
        let jump = LatencyJump {
            largest_before: samples[last].bytes,
            smallest_after: samples[first].bytes,
            before: change.before,
            after: change.after,
            p: change.p,
        };
        match jumps.last_mut() {
            Some((earlier, last_index))
                if index.saturating_sub(*last_index) <= TIMED_PARTS && earlier.is_rising() == jump.is_rising() =>
            {
                *earlier = LatencyJump {
                    smallest_after: jump.smallest_after,
                    after: jump.after,
                    p: earlier.p.max(jump.p),
                    ..*earlier
                };
                *last_index = index;
            }
            _ => jumps.push((jump, index)),
        }
    }
    jumps.into_iter().map(|(jump, _)| jump).collect()
}

/// Where a change is, among the values of both its levels. Ranks show that there is one, but are biased towards the middle in
/// placing it. It is where fewest values are on the wrong side of the middle between the levels.
fn edge_index(values: &[f64], change: &RankChangePoint, range: Range<usize>) -> usize {
    let middle = (change.before * change.after).sqrt();
    let is_rising = change.after > change.before;
    let is_late = |value: f64| (value > middle) == is_rising;
    let misplaced_count = |index: usize| {
        let early = values[range.start..index].iter().filter(|&&value| is_late(value)).count();
        early + values[index..range.end].iter().filter(|&&value| !is_late(value)).count()
    };
    let indexes = range.start + 1..range.end;
    indexes.min_by_key(|&index| (misplaced_count(index), index.abs_diff(change.index))).unwrap_or(change.index)
}

#[cfg(test)]
mod tests;
