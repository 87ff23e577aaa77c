//! The rate that a copy should have had: from what reading and writing a part of it again cost, each apart.
//!
//! After the copy parts of the source, now in memory, are read in the same blocks. Parts as long are written to a new file next to
//! the target, which is removed. No part is read or written twice: what was just used is in a CPU's caches, which a copy does not find it in.
//! Of both the CPU time counts. Devices are not in it: what they take away is the difference.

use std::io;
use std::os::unix::fs::FileExt;

use kelvin_sys::cpu_usage::ThreadClock;
use kelvin_sys::fs::kind;
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::stop_signals;
use serde::Serialize;

use super::CopyMethod;
use crate::Error;
use crate::access::Access;
use crate::atomic_file::{PRIVATE_MODE, PinnedPath};
use crate::target::Target;
use crate::temporary_files::TemporaryFiles;

/// Bytes of a part at most: enough to be timed to a few percent, in some 10 ms.
const MAX_SAMPLE_BYTES: u64 = 16 << 20;
/// Fewest bytes of a copy that is predicted: fewer take less than a millisecond, and the first pages of a file most of that.
pub const MIN_PREDICTED_BYTES: u64 = 1 << 20;
/// Parts, of which the median counts.
const SAMPLE_COUNT: u64 = 3;
/// How far off a prediction may be, as one of transfers: stages that follow each other meet colder caches than the same one repeated.
const SLOWER_FACTOR: f64 = 1.5;
const FASTER_FACTOR: f64 = 1.2;

/// Nanoseconds of CPU time for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopyCosts {
    /// Reading it from memory, in blocks as asked for.
    #[serde(rename = "reading_cost")]
    pub reading: f64,
    /// Writing it to a new file in memory, likewise.
    #[serde(rename = "writing_cost")]
    pub writing: f64,
}

/// Bytes a second that were to be expected, from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateRange {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// Where from.
    #[serde(flatten)]
    pub costs: CopyCosts,
}

impl RateRange {
    /// By a method. Through a buffer each byte is read and written. Within the kernel it is written from the pages of the source, which
    /// takes no more than both, and no less than writing alone.
    pub fn from_costs(costs: CopyCosts, method: CopyMethod) -> Option<Self> {
        let CopyCosts { reading, writing } = costs;
        let total = reading + writing;
        let lowest = match method {
            CopyMethod::ReadWrite => total,
            CopyMethod::CopyFileRange | CopyMethod::Sendfile => writing,
            CopyMethod::Reflink => return None,
        };
        let rate = |cost: f64, factor: f64| 1e9 / cost * factor;
        (lowest > 0.0).then(|| Self { low: rate(total, 1.0 / SLOWER_FACTOR), high: rate(lowest, FASTER_FACTOR), costs })
    }
}

/// File systems on which copy_file_range may share blocks, or have a server copy, instead of moving bytes here.
const MAY_SHARE_BLOCKS: [&str; 6] = ["btrfs", "xfs", "bcachefs", "zfs", "nfs", "overlay"];

/// What a copy by this method should have come to; a reason, where that cannot be computed.
pub(super) fn expected_rate(
    source: &Target,
    place: &PinnedPath,
    (method, block, bytes): (CopyMethod, usize, u64),
) -> Result<RateRange, String> {
    if method == CopyMethod::Reflink {
        return Err("no byte is moved, and the time is that of the list of blocks".into());
    }
    if bytes < MIN_PREDICTED_BYTES {
        return Err(format!("less than {} KiB were copied", MIN_PREDICTED_BYTES >> 10));
    }
    for directory in [source.path(), &place.directory()] {
        let kind = kind(directory).map_err(|error| error.to_string())?;
        if kind.is_served() {
            return Err(format!("another program or machine serves {}, and its part is not known", kind.name()));
        }
        if method == CopyMethod::CopyFileRange && MAY_SHARE_BLOCKS.contains(&kind.name().as_str()) {
            return Err(format!("{} may share the blocks instead of copying them", kind.name()));
        }
    }
    let costs = measure_costs(source, place, block, (bytes / SAMPLE_COUNT).min(MAX_SAMPLE_BYTES))
        .map_err(|error| error.to_string())?;
    RateRange::from_costs(costs, method).ok_or_else(|| "to read and write a part again took no time".into())
}

/// What it costs to read and write parts of this many bytes.
fn measure_costs(source: &Target, place: &PinnedPath, block: usize, part: u64) -> crate::Result<CopyCosts> {
    let buffer = Arena::populated(block, PagePolicy::Base);
    let mut buffer = buffer.map_err(|error| Error::call("make a buffer to copy", source.path(), error))?;
    let source_file = source.open(Access::Buffered)?;
    let reading = median_cost(part, block, |offset, bytes| {
        source_file.read_at(&mut buffer.as_mut_slice()[..bytes], offset).map(drop)
    });
    let reading = reading.map_err(|error| Error::call("read", source.path(), error))?;
    let scrap = TemporaryFiles::in_directory(&place.directory())
        .create(PRIVATE_MODE)
        .map_err(|error| Error::call("make a file next to", place.path(), error))?;
    let writing =
        median_cost(part, block, |offset, bytes| scrap.as_file().write_all_at(&buffer.as_slice()[..bytes], offset));
    let writing = writing.map_err(|error| Error::call("write", place.path(), error))?;
    Ok(CopyCosts { reading, writing })
}

/// CPU time for a byte: the median of some parts, each moved block by block.
fn median_cost(part: u64, block: usize, mut move_block: impl FnMut(u64, usize) -> io::Result<()>) -> io::Result<f64> {
    let mut sample_cost = |number: u64| {
        let clock = ThreadClock::current()?;
        let start_time = clock.cpu_time()?;
        for offset in (0..part).step_by(block) {
            if let Some(signal) = stop_signals::stop_signal() {
                return Err(io::Error::other(format!("interrupted by {signal}")));
            }
            move_block(number * part + offset, block.min((part - offset) as usize))?;
        }
        Ok(clock.cpu_time()?.saturating_sub(start_time).as_nanos() as f64 / part as f64)
    };
    let costs = (0..SAMPLE_COUNT).map(&mut sample_cost).collect::<io::Result<Vec<f64>>>()?;
    Ok(kelvin_stats::median(&costs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: CopyCosts = CopyCosts { reading: 0.1, writing: 0.4 };

    #[test]
    fn expected_rate_depends_on_method() {
        let rate_range =
            |method| RateRange::from_costs(COSTS, method).map(|expected| (expected.low.round(), expected.high.round()));
        // 0.5 ns a byte are 2 GB/s, 0.4 ns 2.5 GB/s.
        assert_eq!(rate_range(CopyMethod::ReadWrite), Some((1_333_333_333.0, 2_400_000_000.0)));
        assert_eq!(rate_range(CopyMethod::CopyFileRange), Some((1_333_333_333.0, 3_000_000_000.0)));
        assert_eq!(rate_range(CopyMethod::Sendfile), rate_range(CopyMethod::CopyFileRange));
        assert_eq!(rate_range(CopyMethod::Reflink), None);
        assert_eq!(RateRange::from_costs(CopyCosts { reading: 0.0, writing: 0.0 }, CopyMethod::ReadWrite), None);
    }

    /// 4096 calls for what one moves make the difference, on any machine.
    #[test]
    fn small_blocks_cost_more() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 6 << 20]).unwrap();
        let source = Target::find(&path).unwrap();
        let place = PinnedPath::open(&directory.path().join("new")).unwrap();
        let cost_of_block = |block| measure_costs(&source, &place, block, 2 << 20).unwrap();
        let (small, large) = (cost_of_block(512), cost_of_block(1 << 20));
        assert!(small.reading > large.reading && small.writing > large.writing, "{small:?} {large:?}");
        assert!(large.reading > 0.0 && large.writing > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn unpredictable_copy_has_reason() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "some words").unwrap();
        let source = Target::find(&path).unwrap();
        let place = PinnedPath::open(&directory.path().join("new")).unwrap();
        let error_text = |method, bytes| expected_rate(&source, &place, (method, 4096, bytes)).unwrap_err();
        assert!(error_text(CopyMethod::ReadWrite, MIN_PREDICTED_BYTES - 1).contains("less than 1024 KiB"));
        assert!(error_text(CopyMethod::Reflink, MIN_PREDICTED_BYTES).contains("no byte is moved"));
    }
}
