//! What a disk gives when whole files are read from it, in the order in which a server is asked for them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelvin_file::Target;
use kelvin_file::cache::{State, bring};
use kelvin_resources::Watched;
use kelvin_stats::Random;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::listed::Listed;

/// Files that are read at the same time: more than one, since a disk may serve requests in parallel, and some can wait in it.
const AT_ONCE: usize = 8;
/// Bytes of a read, as a server that copies through its own memory makes them; the kernel reads ahead of it.
const BLOCK: usize = 256 << 10;
/// Seed of the order.
const SEED: u64 = 77;

/// What a disk gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskRate {
    /// Bytes a second of files.
    pub bytes_per_second: f64,
    /// Bytes a second that were read from the device for them, read ahead or not, by the kernel's count for this process.
    pub read_per_second: Option<f64>,
}

impl DiskRate {
    /// Bytes a second that the device gave: those that were counted there, or, where nothing is counted for what comes over a network or
    /// out of holes, those of the files.
    pub(crate) fn of_device(self) -> Option<f64> {
        [self.read_per_second, Some(self.bytes_per_second)].into_iter().flatten().find(|rate| *rate > 0.0)
    }
}

/// Reads whole files of a directory in random order for so long, each out of the page cache before, and says how fast the disk gave
/// them: of those that a [`Hosted`](crate::Hosted) server would name.
///
/// # Errors
/// A file that cannot be read or dropped from the page cache.
pub fn disk_rate(directory: &Path, time: Duration) -> Result<DiskRate> {
    rate_of(&Listed::of(directory)?.paths(directory), time)
}

fn rate_of(paths: &[PathBuf], time: Duration) -> Result<DiskRate> {
    let failed = |error: &dyn std::fmt::Display| Error::Disk(error.to_string());
    let targets: Vec<Target> =
        paths.iter().map(|path| Target::find(path).map_err(|error| failed(&error))).collect::<Result<_>>()?;
    if targets.is_empty() {
        return Err(Error::Disk("there is no file to read".into()));
    }
    let (is_over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, begun) = (read_from_devices(), Instant::now());
    let read: Result<Vec<()>> = std::thread::scope(|scope| {
        // Each has files of its own: one that another reads cannot be dropped.
        let own = targets.chunks(targets.len().div_ceil(AT_ONCE)).zip(SEED..);
        let (is_over, bytes) = (&is_over, &bytes);
        let readers: Vec<_> =
            own.map(|(own, seed)| scope.spawn(move || read_files(own, seed, is_over, bytes))).collect();
        while begun.elapsed() < time && kelvin_sys::interrupt::requested().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        let ends = readers.into_iter().map(|reader| reader.join());
        ends.map(|end| end.unwrap_or_else(|_| Err(Error::Disk("a reader panicked".into())))).collect()
    });
    read?;
    let seconds = begun.elapsed().as_secs_f64();
    let read = before.zip(read_from_devices()).map(|(before, after)| after.saturating_sub(before) as f64 / seconds);
    Ok(DiskRate { bytes_per_second: bytes.into_inner() as f64 / seconds, read_per_second: read })
}

/// Bytes that this process has had read from devices.
fn read_from_devices() -> Option<u64> {
    Watched::own(None).alone().look().ok()?.process.read_bytes
}

/// Reads random files until it is over, counting as it goes.
fn read_files(targets: &[Target], seed: u64, is_over: &AtomicBool, bytes: &AtomicU64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut block = vec![0; BLOCK];
    while !is_over.load(Ordering::Relaxed) {
        let target = &targets[random.below(targets.len())];
        bring(target, State::Uncached).map_err(|error| Error::Disk(error.to_string()))?;
        let mut file = File::open(target.path()).map_err(|error| Error::Disk(error.to_string()))?;
        while !is_over.load(Ordering::Relaxed) {
            let read = file.read(&mut block).map_err(|error| Error::Disk(error.to_string()))?;
            if read == 0 {
                break;
            }
            bytes.fetch_add(read as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::{FileSet, Wanted};

    #[test]
    fn what_no_device_counts_is_counted_by_the_bytes_of_files() {
        let of = |bytes_per_second, read_per_second| DiskRate { bytes_per_second, read_per_second }.of_device();
        assert_eq!((of(5.0, Some(7.0)), of(5.0, Some(0.0)), of(5.0, None)), (Some(7.0), Some(5.0), Some(5.0)));
        assert_eq!(of(0.0, None), None);
    }

    #[test]
    fn files_are_read_and_counted() {
        // Not in memory, where nothing can be dropped.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        FileSet::make(directory.path(), Wanted { count: 4, bytes: 300_000, limit: 1 << 30 }).unwrap();
        let rate = disk_rate(directory.path(), Duration::from_millis(50)).unwrap();
        assert!(rate.bytes_per_second > 0.0 && rate.read_per_second.is_none_or(|read| read >= 0.0));
        assert!(matches!(rate_of(&[], Duration::ZERO), Err(Error::Disk(_))));
    }
}
