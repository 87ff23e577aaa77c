//! The page cache state of one file: established, and proven.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kelvin_sys::clock::monotonic;
use kelvin_sys::mapping::{FileMapping, cached_pages, drop_cached, is_unmappable, page_bytes, unwritten_pages};
use serde::Serialize;

use crate::access::Access;
pub use crate::access::PageCacheState;
use crate::block_requests::{BlockOrder, BlockRequests};
use crate::engine::{Engine, ReadOptions};
use crate::error::check_stop_signal;
use crate::observer::{DeadlineObserver, EndCondition};
use crate::target::Target;
use crate::{Error, Result};

/// How much of a file is in memory, by each of two calls.
///
/// Neither is right everywhere. The call mincore(2) reports the whole file as present to those who neither own it nor may write it;
/// cachestat(2) reports nothing of a file on overlayfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// Pages of the file.
    pub pages: u64,
    /// Pages in memory, by mincore.
    pub mincore: u64,
    /// Pages in memory, by cachestat, where the kernel has it.
    pub cachestat: Option<u64>,
}

impl Residency {
    /// The share in memory, 0 to 1, where both calls agree or there is only one; `None` where they do not.
    pub fn share(&self) -> Option<f64> {
        let share = |pages: u64| if self.pages == 0 { 1.0 } else { pages as f64 / self.pages as f64 };
        match self.cachestat {
            None => Some(share(self.mincore)),
            Some(cachestat) => {
                let difference = cachestat.abs_diff(self.mincore);
                (difference as f64 <= MAX_DISAGREEMENT * self.pages as f64).then(|| share(cachestat.min(self.mincore)))
            }
        }
    }

    /// Whether all pages are in memory, by every call available.
    pub fn is_complete(&self) -> bool {
        // On overlayfs cachestat reports 0 of a file that is all there.
        self.mincore >= self.pages && self.cachestat.is_none_or(|pages| pages >= self.pages || pages == 0)
    }

    /// Whether no page is in memory, by every call available.
    pub fn is_absent(&self) -> bool {
        self.mincore == 0 && self.cachestat.unwrap_or(0) == 0
    }
}

/// By how much of all pages the two calls may differ: they are made at different moments.
const MAX_DISAGREEMENT: f64 = 0.01;

impl fmt::Display for Residency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {} pages in memory by mincore", self.mincore, self.pages)?;
        match self.cachestat {
            Some(pages) => write!(out, ", {pages} by cachestat"),
            None => out.write_str(", cachestat is unavailable"),
        }
    }
}

/// Bytes of a file that are mapped at a time for mincore.
const MINCORE_WINDOW: u64 = 1 << 30;

/// How much of a file is in memory now: nothing of one that cannot be mapped.
///
/// # Errors
/// A file that cannot be opened.
pub fn residency(target: &Target) -> Result<Residency> {
    let file = target.open(Access::Buffered)?;
    let failed = |error| Error::call("find what is in memory of", target.path(), error);
    let page = page_bytes() as u64;
    let mut mincore = 0;
    for start in (0..target.bytes()).step_by(MINCORE_WINDOW as usize) {
        let bytes = (target.bytes() - start).min(MINCORE_WINDOW);
        let mapping = match FileMapping::range(&file, start, bytes as usize) {
            Err(error) if is_unmappable(&error) => break,
            mapping => mapping.map_err(failed)?,
        };
        mincore += mapping.resident(0, bytes as usize).map_err(failed)?.iter().filter(|&&page| page).count() as u64;
    }
    let cachestat = match target.bytes() {
        // A length of 0 means to the end for cachestat.
        0 => Some(0),
        bytes => cached_pages(&file, bytes as usize).map_err(failed)?,
    };
    Ok(Residency { pages: target.bytes().div_ceil(page), mincore, cachestat })
}

/// Pages of a file that are dirty or being written; `None` where the kernel does not report it.
pub(crate) fn dirty_pages(file: &File, path: &Path) -> Result<Option<u64>> {
    unwritten_pages(file, 0).map_err(|error| Error::call("find what is in memory of", path, error))
}

/// Flushes a file; nanoseconds that it took.
pub(crate) fn timed_flush(file: &File, path: &Path) -> Result<u64> {
    let start = monotonic();
    file.sync_all().map_err(|error| Error::call("flush", path, error))?;
    let took = monotonic() - start;
    check_stop_signal().map(|()| took)
}

/// Places that [`sample_residency`] looks at.
const SAMPLE_COUNT: usize = 64;
const SAMPLE_BYTES: usize = 256 << 10;

/// The approximate share of a file in memory, 0 to 1, from a few places of it. That is enough to choose a way to read it, and much
/// faster than [`residency`]. Nothing of a file that cannot be mapped.
///
/// # Errors
/// A file that cannot be opened, or is too large to be mapped.
pub fn sample_residency(target: &Target) -> Result<f64> {
    let file = target.open(Access::Buffered)?;
    let failed = |error| Error::call("find what is in memory of", target.path(), error);
    let file_bytes = usize::try_from(target.bytes()).map_err(|_| failed(std::io::ErrorKind::FileTooLarge.into()))?;
    if file_bytes == 0 {
        return Ok(1.0);
    }
    let mapping = match FileMapping::whole(&file, file_bytes) {
        Err(error) if is_unmappable(&error) => return Ok(0.0),
        mapping => mapping.map_err(failed)?,
    };
    let step = (file_bytes / SAMPLE_COUNT).max(SAMPLE_BYTES).next_multiple_of(SAMPLE_BYTES);
    let (mut sampled_pages, mut resident_pages) = (0, 0);
    for start in (0..file_bytes).step_by(step) {
        let pages = mapping.resident(start, SAMPLE_BYTES.min(file_bytes - start)).map_err(failed)?;
        sampled_pages += pages.len();
        resident_pages += pages.iter().filter(|&&page| page).count();
    }
    Ok(resident_pages as f64 / sampled_pages as f64)
}

/// Attempts to drop a file from the page cache, and the pause after the first. Pages still being read ahead or written, or sent by a
/// socket, are not dropped. A socket may wait long for a CPU, so that each pause is longer than the one before: 2.4 s in all.
const MAX_DROP_ATTEMPTS: u32 = 20;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(5);
const RETRY_PAUSE_GROWTH: f64 = 1.3;
/// Times that a file is read to have all of it in memory. Its first pages may be dropped while the rest is read, and proactive
/// reclaim may take a page at any moment.
const MAX_FILL_ATTEMPTS: u32 = 5;
/// Bytes of a block by which a file is brought into memory.
const FILL_BLOCK: usize = 1 << 20;

/// Establishes a state, and proves it.
///
/// # Errors
/// A state that cannot be reached: memory too small for the file, a file system in memory, pages that are pinned.
pub fn set_cache_state(target: &Target, state: PageCacheState) -> Result<Residency> {
    match state {
        PageCacheState::AsFound => residency(target),
        PageCacheState::Cached => fill_cache(target),
        PageCacheState::Uncached | PageCacheState::Direct => evict(target, state),
    }
}

/// Reads the pages missing in memory.
fn fill_cache(target: &Target) -> Result<Residency> {
    let read = |_| {
        let mut requests = BlockRequests::new(0..target.bytes(), FILL_BLOCK, BlockOrder::Sequential);
        Engine::Pread
            .open(target, ReadOptions::sequential(FILL_BLOCK))?
            .read(&mut requests, &mut DeadlineObserver::new(EndCondition::Passes(1), &AtomicBool::new(false)))?;
        check_stop_signal()
    };
    retry_until(target, PageCacheState::Cached, MAX_FILL_ATTEMPTS, read, |residency| {
        let why = match kelvin_sys::fs::kind(target.path()) {
            Ok(kind) if kind.is_served() => format!(
                "another program or machine serves this file system ({}), and may keep it out of memory, or have it dropped \
                 whenever it is opened (mount.fuse(8): kernel_cache)",
                kind.name()
            ),
            _ => "is there enough memory for it?".into(),
        };
        format!("after it was read, {residency}; {why}")
    })
}

/// Drops the file from the page cache.
fn evict(target: &Target, state: PageCacheState) -> Result<Residency> {
    let file = target.open(Access::Buffered)?;
    let failed = |error| Error::call("drop from memory", target.path(), error);
    let in_memory = kelvin_sys::fs::kind(target.path()).ok().filter(|kind| kind.is_in_memory());
    let drop = |attempt: u32| {
        if attempt == 0 {
            // Dirty pages cannot be dropped.
            file.sync_all().map_err(failed)?;
        } else {
            std::thread::sleep(FIRST_RETRY_PAUSE.mul_f64(RETRY_PAUSE_GROWTH.powi(attempt as i32 - 1)));
        }
        drop_cached(&file, target.bytes() as usize).map_err(failed)
    };
    // No pause drops what lives in memory.
    let attempts = if in_memory.is_some() { 1 } else { MAX_DROP_ATTEMPTS };
    retry_until(target, state, attempts, drop, |residency| {
        let why = in_memory.map_or_else(String::new, |kind| format!(": {} lives in memory", kind.name()));
        format!("after it was dropped, {residency}{why}")
    })
}

/// What is in memory once the state is reached; what is wrong, if it is not after this many attempts.
fn retry_until(
    target: &Target,
    state: PageCacheState,
    attempts: u32,
    attempt: impl Fn(u32) -> Result<()>,
    problem: impl FnOnce(Residency) -> String,
) -> Result<Residency> {
    let mut number = 0;
    loop {
        let current = residency(target)?;
        let is_reached = if state == PageCacheState::Cached { current.is_complete() } else { current.is_absent() };
        if is_reached {
            return Ok(current);
        }
        if number == attempts {
            let (path, reason) = (target.path().to_owned(), problem(current));
            return Err(Error::CacheStateNotReached { path, state, reason });
        }
        attempt(number)?;
        number += 1;
    }
}

/// The switch by which the kernel drops what it caches (Documentation/admin-guide/sysctl/vm.rst).
pub const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Drops the machine's caches of clean data, of every file: 1 stands for pages of files, 2 for dentries and inodes, 3 for both.
/// Without the second, names and attributes would still be found in memory.
///
/// The file itself is written to its device before, so that its pages are clean.
///
/// # Errors
/// Missing rights: only root may.
pub fn drop_all_caches(target: &Target) -> Result<()> {
    let file = target.open(Access::Buffered)?;
    file.sync_all().map_err(|error| Error::call("write back", target.path(), error))?;
    write_drop_caches(Path::new(DROP_CACHES))
}

fn write_drop_caches(switch: &Path) -> Result<()> {
    let written = std::fs::File::options().write(true).open(switch).and_then(|mut file| file.write_all(b"3\n"));
    written.map_err(|error| Error::call("drop the machine's caches (root only) by", switch, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: usize) -> (tempfile::NamedTempFile, Target) {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        std::fs::write(file.path(), vec![3; bytes]).unwrap();
        let target = Target::find(file.path()).unwrap();
        (file, target)
    }

    #[test]
    fn file_is_evicted_and_cached_again() {
        let (_file, target) = file(5_000_001);
        let pages = 5_000_001u64.div_ceil(page_bytes() as u64);
        for _ in 0..3 {
            let empty_residency = set_cache_state(&target, PageCacheState::Uncached).unwrap();
            assert_eq!(sample_residency(&target).unwrap(), 0.0);
            assert!(
                empty_residency.is_absent() && empty_residency.pages == pages && empty_residency.share() == Some(0.0),
                "{empty_residency}"
            );
            let full_residency = set_cache_state(&target, PageCacheState::Cached).unwrap();
            assert!(
                full_residency.is_complete() && full_residency.mincore == pages && full_residency.share() == Some(1.0),
                "{full_residency}"
            );
            assert_eq!(sample_residency(&target).unwrap(), 1.0);
        }
    }

    #[test]
    fn empty_file_has_any_cache_state() {
        let (_file, target) = file(0);
        for state in [PageCacheState::Cached, PageCacheState::Uncached] {
            assert_eq!(set_cache_state(&target, state).unwrap().pages, 0);
        }
    }

    #[test]
    fn tmpfs_file_is_not_evicted() {
        let Some(shm) = kelvin_testing::memory_dir("dropping what lives in memory") else { return };
        let file = tempfile::NamedTempFile::new_in(shm).unwrap();
        std::fs::write(file.path(), [1; 10_000]).unwrap();
        let error =
            set_cache_state(&Target::find(file.path()).unwrap(), PageCacheState::Uncached).unwrap_err().to_string();
        assert!(error.contains("is not uncached") && error.contains("tmpfs lives in memory"), "{error}");
    }

    #[test]
    fn drop_all_caches_writes_three() {
        // The real switch would slow down all that is running.
        let switch = tempfile::NamedTempFile::new().unwrap();
        write_drop_caches(switch.path()).unwrap();
        assert_eq!(std::fs::read_to_string(switch.path()).unwrap(), "3\n");
        let error = write_drop_caches(&switch.path().join("none")).unwrap_err().to_string();
        assert!(error.starts_with("cannot drop the machine's caches (root only) by /"), "{error}");
    }

    #[test]
    fn disagreeing_counts_have_no_share() {
        let with_counts = |mincore, cachestat| Residency { pages: 1000, mincore, cachestat };
        assert_eq!(with_counts(1000, Some(995)).share(), Some(0.995));
        assert_eq!(with_counts(1000, Some(0)).share(), None);
        assert_eq!(with_counts(250, None).share(), Some(0.25));
        // As on overlayfs: all there, though cachestat reports nothing.
        assert!(with_counts(1000, Some(0)).is_complete() && !with_counts(1000, Some(0)).is_absent());
        assert!(
            !with_counts(1000, Some(500)).is_complete()
                && !with_counts(999, None).is_complete()
                && with_counts(0, None).is_absent()
        );
    }
}
