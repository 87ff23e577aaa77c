//! A file written by many threads at once, and the result.
//!
//! The file is new: each write also allocates blocks. In the end it exists whole, or not at all; see [`run`].

use std::path::PathBuf;
use std::sync::Arc;

use kelvin_sys::clock::{Clock, monotonic};

use crate::PagePolicy;
use crate::atomic_file::{AtomicFile, PinnedPath};
use crate::block_requests::BlockOrder;
use crate::cache;
use crate::device::Device;
use crate::end_condition::EndCondition;
use crate::io_result::{IoResult, UsageStart};
use crate::reader_threads::{self, Division, RecordSpec, SharedRange, ThreadRequests};
use crate::target::{Access, Target};
pub use crate::write_engine::{Pattern, SyncMode, WriteEngine};
use crate::write_engine::{WriteOptions, Writer};
use crate::{Error, Result};

/// What to write, and how.
#[derive(Clone, Debug)]
pub struct WriteJob {
    /// The file.
    pub path: PathBuf,
    /// Whether it may replace an existing one.
    pub replace: bool,
    /// The way.
    pub engine: WriteEngine,
    /// When it counts as written.
    pub sync: SyncMode,
    /// Bytes of a block. Each thread writes its part of the file block by block in order.
    pub block: usize,
    /// Threads, each with a file descriptor of its own.
    pub threads: u32,
    /// Size of the file, in bytes. An incomplete block at its end is a shorter block; past the page cache it is padded with
    /// zeros to the device's alignment, and the file then truncated to its size, which leaves its last page in memory.
    pub bytes: u64,
    /// What is written.
    pub pattern: Pattern,
    /// The pages of the buffers that it is written from.
    pub pages: PagePolicy,
    /// Whether the digest is wanted.
    pub digest: bool,
    /// The clock that times each request, and its ticks per second; none if latencies are not wanted.
    pub latencies: Option<(Clock, f64)>,
}

/// The result of writing.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// The work of the threads. The time includes the sync policy's flush, and the digest is that of what was written.
    pub io: IoResult,
    /// Nanoseconds of the flush at the end, which are part of the time; `None` where the policy has none.
    pub flush: Option<u64>,
    /// Pages still dirty when the time ended; `None` where the kernel does not say.
    pub dirty_pages: Option<u64>,
}

/// Writes a file: beside its place, under another name, and renamed when it is whole. On an error, and on a signal, it is
/// removed; after a killed process, when the next one makes a file there. A file to be replaced stays as it was until the new
/// one is flushed, outside of the time. The new one has owner and permissions of the old one; other hard links to that one
/// still lead to it.
///
/// # Errors
/// A file that cannot be made or written, or become so large; an existing one that may not be replaced; settings that do not go
/// together; a signal.
pub fn run(job: &WriteJob) -> Result<WriteResult> {
    let asked = thread_requests(job)?;
    let place = Arc::new(PinnedPath::open(&job.path)?);
    let file = AtomicFile::create(&place, job.replace)?;
    file.check_size(job.bytes)?;
    file.check_free_space(job.bytes, matches!(job.pattern, Pattern::Noise { .. }))?;
    // Its temporary name means nothing to the user.
    let written =
        file.target().and_then(|empty| write_blocks(job, asked, &empty)).map_err(|error| error.with_path(&job.path))?;
    file.commit()?;
    if matches!(job.sync, SyncMode::Fsync | SyncMode::Dsync) {
        // What is to survive a loss of power must do so under its name.
        place.flush_name()?;
    }
    Ok(written)
}

fn thread_requests(job: &WriteJob) -> Result<Vec<ThreadRequests>> {
    if i64::try_from(job.bytes).is_err() {
        return Err(Error::setting("size", format!("no file has {} bytes: at most 2^63 - 1 are possible", job.bytes)));
    }
    let (order, division, until) = (BlockOrder::Sequential, Division::Parts, EndCondition::Passes(1));
    SharedRange { threads: job.threads, block: job.block, range: 0..job.bytes, order, division, until }
        .split_among_threads()
}

/// Writes all of an empty file.
fn write_blocks(job: &WriteJob, asked: Vec<ThreadRequests>, empty: &Target) -> Result<WriteResult> {
    let before = cache::residency(empty)?;
    let watched = UsageStart::now(Device::of_file(empty));
    let wanted = RecordSpec { until: EndCondition::Passes(1), digest: job.digest, latencies: job.latencies };
    let how =
        WriteOptions { engine: job.engine, sync: job.sync, block: job.block, pattern: job.pattern, pages: job.pages };
    let members = reader_threads::run_threads(wanted, asked, || Writer::open(empty, how))?;
    let completed = flush_file(job, empty)?;
    let watched = watched.finish();
    let unwritten = cache::dirty_pages(&empty.open(Access::Buffered)?, empty.path())?;
    let whole = Target::find(empty.path())?;
    if whole.bytes() != job.bytes {
        let what = format!("it has {} bytes, and {} were written", whole.bytes(), job.bytes);
        return Err(Error::Changed { path: job.path.clone(), what });
    }
    let after = cache::residency(&whole)?;
    let begun = members.iter().map(|member| member.begun).min();
    let mut done = IoResult::from_threads(wanted, &members, watched, (before, after));
    if let (Some(begun), Some(ended)) = (begun, completed.finished) {
        done.nanoseconds = ended - begun;
    }
    Ok(WriteResult { io: done, flush: completed.flush, dirty_pages: unwritten })
}

/// The work after the last write.
struct FlushResult {
    /// Nanoseconds of the flush.
    flush: Option<u64>,
    /// When it was done, in nanoseconds of the monotonic clock; `None` if there was nothing to do.
    finished: Option<u64>,
}

/// The sync policy's work after the last write.
fn flush_file(job: &WriteJob, target: &Target) -> Result<FlushResult> {
    let overhang = job.sync == SyncMode::Direct && !job.bytes.is_multiple_of(target.alignment()?);
    if job.sync != SyncMode::Fsync && !overhang {
        return Ok(FlushResult { flush: None, finished: None });
    }
    let file = target.open_to_write(Access::Buffered, 0)?;
    if overhang {
        file.set_len(job.bytes).map_err(|error| Error::call("truncate", target.path(), error))?;
        return Ok(FlushResult { flush: None, finished: Some(monotonic()) });
    }
    let took = cache::timed_flush(&file, target.path())?;
    Ok(FlushResult { flush: Some(took), finished: Some(monotonic()) })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Digest;
    use crate::random_data::RandomData;

    fn job(path: &Path) -> WriteJob {
        WriteJob {
            path: path.to_owned(),
            replace: true,
            engine: WriteEngine::Pwrite,
            sync: SyncMode::None,
            block: 4096,
            threads: 1,
            bytes: 100_003,
            pattern: Pattern::Noise { seed: 3 },
            pages: PagePolicy::Base,
            digest: true,
            latencies: Some((Clock::MonotonicRaw, 1e9)),
        }
    }

    fn expected(pattern: Pattern, bytes: u64) -> Vec<u8> {
        let mut content = vec![0; bytes as usize];
        match pattern {
            Pattern::Noise { seed } => RandomData::fill_at(seed, 0, &mut content),
            Pattern::Byte(byte) => content.fill(byte),
        }
        content
    }

    /// Runs a job; `None`, with the reason printed, where it needs something unavailable.
    fn written(job: &WriteJob) -> Option<WriteResult> {
        match run(job) {
            Ok(written) => Some(written),
            Err(error) if error.is_unsupported() => {
                kelvin_testing::MissingRequirement::from_message(error)
                    .report_skip(format!("writing by {} with {:?}", job.engine, job.sync));
                None
            }
            Err(error) => panic!("{job:?}: {error}"),
        }
    }

    #[test]
    fn all_engines_and_policies_write_all_bytes() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        let deep = [3, 32].map(|depth| WriteEngine::Uring { depth, registered: depth == 3 });
        for engine in WriteEngine::ALL.into_iter().chain(deep) {
            for sync in SyncMode::ALL {
                for (bytes, block, threads) in [(1, 4096, 1), (100_003, 4096, 3), (1_000_000, 1 << 16, 2)] {
                    for pattern in [Pattern::Noise { seed: bytes }, Pattern::Byte(0xa5)] {
                        let job = WriteJob { engine, sync, block, threads, bytes, pattern, ..job(&path) };
                        let Some(found) = written(&job) else { continue };
                        let content = expected(pattern, bytes);
                        assert!(std::fs::read(&path).unwrap() == content, "{job:?}");
                        let mut digest = Digest::default();
                        digest.add(0, &content);
                        assert_eq!(found.io.digest, Some(digest), "{job:?}");
                        let requests = bytes.div_ceil(block as u64);
                        assert_eq!((found.io.total.bytes, found.io.total.requests), (bytes, requests));
                        assert_eq!(found.io.latencies.unwrap().count(), requests);
                        assert_eq!(found.io.bytes_per_second.iter().sum::<u64>(), bytes);
                        assert_eq!(found.flush.is_some(), sync == SyncMode::Fsync);
                    }
                }
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn odd_block_sizes_write_same_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for engine in [WriteEngine::Write, WriteEngine::Uring { depth: 5, registered: false }] {
            let Some(found) = written(&WriteJob { engine, block: 777, threads: 4, ..job(&path) }) else { continue };
            assert!(std::fs::read(&path).unwrap() == expected(Pattern::Noise { seed: 3 }, 100_003));
            assert_eq!(found.io.total.requests, 129);
        }
    }

    #[test]
    fn flush_is_timed_and_leaves_no_dirty_pages() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let flushed = run(&WriteJob { sync: SyncMode::Fsync, ..job(&directory.path().join("file")) }).unwrap();
        let writing = flushed.io.threads[0].1;
        assert!(flushed.io.nanoseconds >= writing + flushed.flush.unwrap(), "{flushed:?}");
        assert!(matches!(flushed.dirty_pages, None | Some(0)), "{flushed:?}");
        assert!(flushed.io.before.pages == 0 && flushed.io.after.is_complete(), "{flushed:?}");
    }

    #[test]
    fn inconsistent_settings_leave_no_file() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("file");
        let says = |job: WriteJob| run(&job).unwrap_err().to_string();
        assert!(says(WriteJob { threads: 26, ..job(&path) }).contains("there are 25 blocks"));
        assert!(says(WriteJob { block: 0, ..job(&path) }).contains("block: must be at least 1"));
        assert!(says(WriteJob { bytes: u64::MAX, ..job(&path) }).contains("2^63"));
        let deep = WriteEngine::Uring { depth: 100_000, registered: false };
        assert!(says(WriteJob { engine: deep, ..job(&path) }).contains("100000"));
        assert!(says(WriteJob { sync: SyncMode::Direct, block: 1000, ..job(&path) }).contains("past the page cache"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        std::fs::write(&path, "the user's").unwrap();
        assert!(says(WriteJob { replace: false, ..job(&path) }).contains("file exists"));
        // An error beside a file names the file, and leaves it as it was.
        let error = says(WriteJob { sync: SyncMode::Direct, block: 1000, ..job(&path) });
        assert!(!error.contains(".partial"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "the user's");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn tmpfs_refuses_direct_writes() {
        let Some(shm) = kelvin_testing::memory_dir("direct writes to what lives in memory") else { return };
        let directory = tempfile::tempdir_in(shm).unwrap();
        let error = run(&WriteJob { sync: SyncMode::Direct, ..job(&directory.path().join("file")) }).unwrap_err();
        assert!(matches!(&error, Error::DirectUnsupported { path, .. } if path.ends_with("file")), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
