//! The rate that a copy should have had: from what reading and writing a part of it again cost, each apart.
//!
//! After the copy parts of the source, now in memory, are read in the same blocks, and parts as long are written to a new file beside
//! the target, which is removed. No part is read or written twice: what was just used is in a CPU's caches, which a copy does not find it in.
//! Of both the CPU time counts. Devices are not in it: what they take away is the difference.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kelvin_sys::busy::ThreadClock;
use kelvin_sys::fs::kind;
use kelvin_sys::interrupt;
use kelvin_sys::memory::{Arena, Pages};

use super::CopyMethod;
use crate::target::{Access, Target};
use crate::temporary;
use crate::unfinished::Place;

/// Bytes of a part at most: enough to be timed to a few percent, in some 10 ms.
const PART: u64 = 16 << 20;
/// Fewest bytes of a copy that is predicted: fewer take less than a millisecond, and the first pages of a file most of that.
pub const LEAST: u64 = 1 << 20;
/// Parts, of which the median counts.
const PARTS: u64 = 3;
/// Permissions of the file that is written again.
const PRIVATE: u32 = 0o600;
/// How far off a prediction may be, as one of transfers: stages that follow each other meet colder caches than the same one repeated.
const SLOWER: f64 = 1.5;
const FASTER: f64 = 1.2;

/// Nanoseconds of CPU time for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Reading it from memory, in blocks as asked for.
    pub reading: f64,
    /// Writing it to a new file in memory, likewise.
    pub writing: f64,
}

/// Bytes a second that were to be expected, from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// Where from.
    pub costs: Costs,
}

impl Expected {
    /// By a method: through a buffer each byte is read and written; within the kernel it is written from the pages of the source, which
    /// takes no more than both, and no less than writing alone.
    pub fn of(costs: Costs, method: CopyMethod) -> Option<Self> {
        let Costs { reading, writing } = costs;
        let both = reading + writing;
        let least = match method {
            CopyMethod::ReadWrite => both,
            CopyMethod::CopyFileRange | CopyMethod::Sendfile => writing,
            CopyMethod::Reflink => return None,
        };
        let rate = |cost: f64, factor: f64| 1e9 / cost * factor;
        (least > 0.0).then(|| Self { low: rate(both, 1.0 / SLOWER), high: rate(least, FASTER), costs })
    }
}

/// File systems on which copy_file_range may share blocks, or have a server copy, instead of moving bytes here.
const MAY_SHARE: [&str; 6] = ["btrfs", "xfs", "bcachefs", "zfs", "nfs", "overlay"];

/// What a copy by this method should have come to; a reason, where that cannot be said.
pub(super) fn expected(
    source: &Target,
    place: &Place,
    (method, block, bytes): (CopyMethod, usize, u64),
) -> Result<Expected, String> {
    if method == CopyMethod::Reflink {
        return Err("no byte is moved, and the time is that of the list of blocks".into());
    }
    if bytes < LEAST {
        return Err(format!("less than {} KiB were copied", LEAST >> 10));
    }
    for directory in [source.path(), &place.directory()] {
        let kind = kind(directory).map_err(|error| error.to_string())?;
        if kind.is_served() {
            return Err(format!("another program or machine serves {}, and its part is not known", kind.name()));
        }
        if method == CopyMethod::CopyFileRange && MAY_SHARE.contains(&kind.name().as_str()) {
            return Err(format!("{} may share the blocks instead of copying them", kind.name()));
        }
    }
    let costs = costs(source, place, block, (bytes / PARTS).min(PART)).map_err(|error| error.to_string())?;
    Expected::of(costs, method).ok_or_else(|| "to read and write a part again took no time".into())
}

/// What it costs to read and write parts of so many bytes.
fn costs(source: &Target, place: &Place, block: usize, part: u64) -> crate::Result<Costs> {
    let failed = |doing: &'static str, path: &Path| {
        let path = path.to_owned();
        move |error| crate::Error::call(doing, &path, error)
    };
    let mut buffer = Arena::populated(block, Pages::Base).map_err(failed("make a buffer to copy", source.path()))?;
    let from = source.open(Access::Buffered)?;
    // One may find pages that were dropped meanwhile.
    let reading = median(|begin| read(&from, buffer.as_mut_slice(), begin * part, part));
    let reading = reading.map_err(failed("read", source.path()))?;
    let scrap = temporary::file(&place.directory(), PRIVATE).map_err(failed("make a file beside", place.path()))?;
    let writing = median(|begin| write(scrap.as_file(), buffer.as_slice(), begin * part, part));
    let writing = writing.map_err(failed("write", place.path()))?;
    Ok(Costs { reading: reading / part as f64, writing: writing / part as f64 })
}

/// The median of all parts, by their numbers.
fn median(once: impl FnMut(u64) -> std::io::Result<f64>) -> std::io::Result<f64> {
    let times = (0..PARTS).map(once).collect::<std::io::Result<Vec<f64>>>()?;
    Ok(kelvin_stats::median(&times))
}

/// Nanoseconds of CPU time to read so many bytes of a file from there on.
fn read(file: &File, block: &mut [u8], begin: u64, bytes: u64) -> std::io::Result<f64> {
    timed(bytes, block.len(), |offset, length| file.read_at(&mut block[..length], begin + offset).map(|_| ()))
}

/// Nanoseconds of CPU time to write so many bytes behind what a file has.
fn write(file: &File, block: &[u8], begin: u64, bytes: u64) -> std::io::Result<f64> {
    timed(bytes, block.len(), |offset, length| file.write_all_at(&block[..length], begin + offset))
}

fn timed(bytes: u64, block: usize, mut each: impl FnMut(u64, usize) -> std::io::Result<()>) -> std::io::Result<f64> {
    let clock = ThreadClock::own()?;
    let before = clock.used()?;
    for offset in (0..bytes).step_by(block) {
        if let Some(signal) = interrupt::requested() {
            return Err(std::io::Error::other(format!("interrupted by {signal}")));
        }
        each(offset, block.min((bytes - offset) as usize))?;
    }
    Ok(clock.used()?.saturating_sub(before).as_nanos() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { reading: 0.1, writing: 0.4 };

    #[test]
    fn a_buffer_costs_both_and_the_kernel_between_writing_and_both() {
        let of = |method| Expected::of(COSTS, method).map(|expected| (expected.low.round(), expected.high.round()));
        // 0.5 ns a byte are 2 GB/s, 0.4 ns 2.5 GB/s.
        assert_eq!(of(CopyMethod::ReadWrite), Some((1_333_333_333.0, 2_400_000_000.0)));
        assert_eq!(of(CopyMethod::CopyFileRange), Some((1_333_333_333.0, 3_000_000_000.0)));
        assert_eq!(of(CopyMethod::Sendfile), of(CopyMethod::CopyFileRange));
        assert_eq!(of(CopyMethod::Reflink), None);
        assert_eq!(Expected::of(Costs { reading: 0.0, writing: 0.0 }, CopyMethod::ReadWrite), None);
    }

    /// 4096 calls for what one moves make the difference, whatever the machine.
    #[test]
    fn a_part_is_read_and_written_again_and_small_blocks_cost_more() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 6 << 20]).unwrap();
        let source = Target::find(&path).unwrap();
        let place = Place::of(&directory.path().join("new")).unwrap();
        let of = |block| costs(&source, &place, block, 2 << 20).unwrap();
        let (small, large) = (of(512), of(1 << 20));
        assert!(small.reading > large.reading && small.writing > large.writing, "{small:?} {large:?}");
        assert!(large.reading > 0.0 && large.writing > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_predicted_says_why() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "some words").unwrap();
        let source = Target::find(&path).unwrap();
        let place = Place::of(&directory.path().join("new")).unwrap();
        let says = |method, bytes| expected(&source, &place, (method, 4096, bytes)).unwrap_err();
        assert!(says(CopyMethod::ReadWrite, LEAST - 1).contains("less than 1024 KiB"));
        assert!(says(CopyMethod::Reflink, LEAST).contains("no byte is moved"));
    }
}
