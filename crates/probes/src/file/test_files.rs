//! The files that probes share: written once a run, of noise, in the scratch directory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_core::units;
use kelvin_file::cache;
use kelvin_file::random_data;
use kelvin_file::read_job::{self, Division, IoResult};
use kelvin_sys::fs::kind;
use kelvin_sys::mapping::{page_bytes, unwritten_pages};

use super::prelude::*;
use crate::room::has_room;

/// Name of the file that is read, in the scratch directory, before its size.
const READ_FILE: &str = "kelvin-data";
/// Name of the file that is written over, before its size.
const OVERWRITE_FILE: &str = "kelvin-scrap";
/// Name of the file that is written over in memory, before its size.
const CACHED_OVERWRITE_FILE: &str = "kelvin-afloat";
/// Name of the file that is one hole, before its size.
const SPARSE_FILE: &str = "kelvin-hole";
/// Seeds of their contents.
const READ_SEED: u64 = 1;
const OVERWRITE_SEED: u64 = 2;
const CACHED_OVERWRITE_SEED: u64 = 3;
const NUMBERED_FILE_SEED: u64 = 1000;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// Size of the file that most probes share, in bytes: more than most processor caches hold, and little to write.
pub(super) const SHARED_BYTES: u64 = 64 * MIB;
/// Size of the file that is read where a pass over a larger one takes longer than this many nanoseconds. Spinning disks are
/// faster than that.
pub(super) const SMALL_BYTES: u64 = 4 * MIB;
const MAX_PASS_NANOSECONDS: f64 = 2e9;
/// Trials of how long the small file takes, of which the fastest counts: something else may use the device.
const CACHE_FILL_TRIALS: usize = 3;
/// What is kept next to a file: bytes per second of the first pass over it, and nanoseconds that it took into the page cache.
const FIRST_PASS: &str = ".first-pass";
const CACHE_FILL_TIME: &str = ".read-in";
/// Free space that the scratch directory must have, as a multiple of a file to be written.
const FREE_SPACE_FACTOR: u64 = 2;

/// A file of this many bytes of noise, on its device, shared by all rounds of the run. The first round writes it, and reads it
/// once past the page cache: see [`first_pass_rate`].
pub(super) fn shared_file(bench: &Bench<'_>, bytes: u64) -> ProbeResult<Target> {
    let name = format!("{READ_FILE}-{bytes}");
    let is_new = !bench.scratch().join(&name).exists();
    let target = scratch_file(bench, &name, bytes, READ_SEED)?;
    if is_new && check_direct_io(&target, MIB).is_ok() {
        let job = queued_reads(&target, FULL_QUEUE_DEPTH)?.job(&target, MIB as usize, 0..bytes);
        std::fs::write(with_suffix(target.path(), FIRST_PASS), run_job(&job)?.rate().to_string())?;
    }
    Ok(target)
}

/// The file for reads that reach the device: the shared one of this many bytes, or a small one where the device is slow. A pass
/// then takes no longer than it should, and what was dropped for it need not be read again for what is measured in memory.
pub(super) fn device_file(bench: &mut Bench<'_>, bytes: u64) -> ProbeResult<Target> {
    let small_file = shared_file(bench, SMALL_BYTES)?;
    if !cache_fill_time(&small_file)?.is_some_and(|nanoseconds| is_slow(nanoseconds, bytes)) {
        return shared_file(bench, bytes);
    }
    let [small_size, requested_size] = [SMALL_BYTES, bytes].map(units::bytes);
    bench.note(format!("on a file of {small_size}, since one of {requested_size} takes too long on this device"));
    Ok(small_file)
}

/// Whether a file of this many bytes takes too long, if the small one took this many nanoseconds.
fn is_slow(nanoseconds: u64, bytes: u64) -> bool {
    nanoseconds as f64 * (bytes as f64 / SMALL_BYTES as f64) > MAX_PASS_NANOSECONDS
}

/// Nanoseconds that a file takes from its device into an empty page cache, found once a run; `None` where it cannot be dropped from
/// there or kept in it.
fn cache_fill_time(target: &Target) -> ProbeResult<Option<u64>> {
    let record = with_suffix(target.path(), CACHE_FILL_TIME);
    if let Some(nanoseconds) = read_number(&record)? {
        return Ok(Some(nanoseconds as u64));
    }
    let mut fastest = u64::MAX;
    for _ in 0..CACHE_FILL_TRIALS {
        match measure_cache_fill(target) {
            Err(kelvin_file::Error::CacheStateNotReached { .. }) => return Ok(None),
            outcome => fastest = fastest.min(outcome.map_err(probe_error)?),
        }
        if !is_slow(fastest, SHARED_BYTES) {
            break;
        }
    }
    std::fs::write(&record, fastest.to_string())?;
    Ok(Some(fastest))
}

fn measure_cache_fill(target: &Target) -> kelvin_file::Result<u64> {
    cache::set_cache_state(target, PageCacheState::Uncached)?;
    let start = monotonic();
    cache::set_cache_state(target, PageCacheState::Cached)?;
    Ok(monotonic() - start)
}

/// The shared file for probes that need several: that of this number, counted from 0, which is [`shared_file`].
pub(super) fn numbered_file(bench: &Bench<'_>, bytes: u64, number: u64) -> ProbeResult<Target> {
    if number == 0 {
        return shared_file(bench, bytes);
    }
    scratch_file(bench, &format!("{READ_FILE}-{bytes}-{number}"), bytes, NUMBERED_FILE_SEED + number)
}

/// A file of this many bytes on its device, shared by all rounds of the run and written over.
pub(super) fn overwrite_file(bench: &Bench<'_>, bytes: u64) -> ProbeResult<Target> {
    scratch_file(bench, &format!("{OVERWRITE_FILE}-{bytes}"), bytes, OVERWRITE_SEED)
}

/// A file of this many bytes shared by all rounds of the run and written over in memory: it is never flushed, and reaches the
/// device by write-back, if at all.
pub(super) fn cached_overwrite_file(bench: &Bench<'_>, bytes: u64) -> ProbeResult<Target> {
    let path = bench.scratch().join(format!("{CACHED_OVERWRITE_FILE}-{bytes}"));
    if path.metadata().is_ok_and(|metadata| metadata.len() == bytes) {
        let target = Target::find(&path).map_err(probe_error)?;
        // The kernel writes back what was dirty for 30 seconds, and will do so again with what this round makes dirty.
        bench.reserve_write(written_back_bytes(&target)?)?;
        return Ok(target);
    }
    check_free_space(bench, bytes)?;
    bench.reserve_write(bytes)?;
    random_data::write_unflushed_file(&path, bytes, CACHED_OVERWRITE_SEED).or_file_failure("write", &path)?;
    Target::find(&path).map_err(probe_error)
}

/// Bytes of a file that are on its device; all, where the kernel does not report them.
pub(crate) fn written_back_bytes(target: &Target) -> ProbeResult<u64> {
    let file = target.open(Access::Buffered).map_err(probe_error)?;
    let unwritten = unwritten_pages(&file, target.bytes() as usize)?.unwrap_or(0) * page_bytes() as u64;
    Ok(target.bytes().saturating_sub(unwritten))
}

/// A sparse file of this many bytes, one hole, on a file system that reads it as any other file.
pub(super) fn sparse_file(bench: &Bench<'_>, bytes: u64) -> ProbeResult<Target> {
    let kind = kind(bench.scratch())?;
    let reason = format!(
        "needs a local file system on a disk, to make a sparse file, and the scratch directory is on {}; choose \
             another by --dir",
        kind.name()
    );
    skip_if(kind.is_served() || kind.is_in_memory(), reason)?;
    let path = bench.scratch().join(format!("{SPARSE_FILE}-{bytes}"));
    // Another round may be making it as well: both make the same.
    let outcome = std::fs::File::options().write(true).create(true).truncate(false).open(&path);
    outcome.and_then(|file| file.set_len(bytes)).or_file_failure("write", &path)?;
    Target::find(&path).map_err(probe_error)
}

/// Bytes per second of the first pass over a file past the page cache after it was written: below the kernel it may have been
/// in no cache yet. `None` where the file cannot be read so.
pub(super) fn first_pass_rate(target: &Target) -> ProbeResult<Option<f64>> {
    read_number(&with_suffix(target.path(), FIRST_PASS))
}

/// The number that a file holds, if it is there.
pub(super) fn read_number(path: &Path) -> ProbeResult<Option<f64>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path)?;
    let number = text.parse().map(Some);
    number.map_err(|_| ProbeError::fail(format!("{} does not hold a number: {text}", path.display())))
}

/// A path with a longer name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The file of this name, which the first round that needs it writes.
pub(super) fn scratch_file(bench: &Bench<'_>, name: &str, bytes: u64, seed: u64) -> ProbeResult<Target> {
    let path = bench.scratch().join(name);
    if !path.exists() {
        check_free_space(bench, bytes)?;
        bench.reserve_write(bytes)?;
        random_data::write_file(&path, bytes, seed).or_file_failure("write", &path)?;
    }
    Target::find(&path).map_err(probe_error)
}

/// Runs a job.
pub(super) fn run_job(job: &ReadJob) -> ProbeResult<IoResult> {
    read_job::run(job).map_err(probe_error)
}

/// That a job goes on for this many nanoseconds.
pub(super) fn time_limit(nanoseconds: f64) -> EndCondition {
    EndCondition::Time(Duration::from_nanos(nanoseconds as u64))
}

/// Requests in flight for a device's best rate.
pub(super) const FULL_QUEUE_DEPTH: u32 = 16;

/// A way of keeping this many requests in flight past the page cache.
pub(super) struct QueuedReads {
    pub engine: Engine,
    pub threads: u32,
    /// What it is, and why it is not another, in words.
    pub description: String,
}

impl QueuedReads {
    /// One pass over a range of a file in order, past the page cache, in blocks of this many bytes.
    pub fn job(&self, target: &Target, block: usize, range: Range<u64>) -> ReadJob {
        ReadJob { threads: self.threads, range, ..direct_read_job(target, self.engine, block) }
    }
}

/// One pass over a file in order, past the page cache, by one thread, in blocks of this many bytes.
pub(super) fn direct_read_job(target: &Target, engine: Engine, block: usize) -> ReadJob {
    ReadJob {
        target: target.clone(),
        engine,
        block,
        order: BlockOrder::Sequential,
        state: PageCacheState::Direct,
        threads: 1,
        division: Division::Parts,
        pages: PagePolicy::Base,
        range: 0..target.bytes(),
        until: EndCondition::Passes(1),
        digest: false,
        latencies: None,
    }
}

/// The fastest way for a device with `depth` requests in flight: one thread and io_uring; where that is unavailable, as many
/// threads, with the reason.
pub(super) fn queued_reads(target: &Target, depth: u32) -> ProbeResult<QueuedReads> {
    let ring = Engine::Uring { depth, registered: false };
    let options =
        ReadOptions { access: Access::Buffered, block: 1, order: BlockOrder::Sequential, pages: PagePolicy::Base };
    match ring.open(target, options) {
        Ok(_) => Ok(QueuedReads { engine: ring, threads: 1, description: format!("io_uring, queue depth {depth}") }),
        Err(error @ kelvin_file::Error::UringUnavailable(_)) => Ok(QueuedReads {
            engine: Engine::Pread,
            threads: depth,
            description: format!("{depth} threads of pread, because {error}"),
        }),
        Err(error) => Err(probe_error(error)),
    }
}

/// That the scratch directory has room for a file of this many bytes, and as many again.
pub(super) fn check_free_space(bench: &Bench<'_>, bytes: u64) -> ProbeResult {
    has_room(bench.scratch(), FREE_SPACE_FACTOR * bytes)
}

/// That a file can be read in blocks of this many bytes with the page cache in this state.
pub(super) fn check_block(target: &Target, state: PageCacheState, block: u64) -> ProbeResult {
    if state == PageCacheState::Direct { check_direct_io(target, block) } else { Ok(()) }
}

/// That a file can be read and written past the page cache in blocks of this many bytes.
pub(super) fn check_direct_io(target: &Target, block: u64) -> ProbeResult {
    let alignment = target.alignment().map_err(probe_error)?;
    let [needed, required] = [block, alignment].map(units::bytes);
    let directory = target.path().parent().unwrap_or(target.path()).display();
    let reason = format!(
        "needs direct I/O in blocks of {needed}, and {directory} requires multiples of {required}; choose another directory"
    );
    skip_if(!block.is_multiple_of(alignment), reason)
}

/// The outcome of a file that cannot be measured: what is unavailable here is skipped, anything else has failed.
pub(crate) fn probe_error(error: kelvin_file::Error) -> ProbeError {
    use kelvin_file::Error;
    match error {
        Error::CacheStateNotReached { state: PageCacheState::Cached, ref path, .. } => {
            match uncacheable_file_system(path) {
                Some(file_system) => ProbeError::skip(format!(
                    "needs files that stay in the page cache: another program or machine serves this file system ({file_system}), and keeps \
                 them out of it, or has them dropped whenever they are opened (mount.fuse(8): kernel_cache); choose another \
                 directory by --dir"
                )),
                // One that does not stay in memory now may do so in the next round.
                None => ProbeError::fail(error.to_string()),
            }
        }
        Error::DirectUnsupported { .. } | Error::CacheStateNotReached { .. } => {
            ProbeError::skip(format!("needs a directory on a disk, chosen by --dir, and enough memory: {error}"))
        }
        unsupported if unsupported.is_unsupported() => ProbeError::skip(unsupported.to_string()),
        failure => ProbeError::fail(failure.to_string()),
    }
}

/// The file system of a file that was just read and of which no page is in memory, if another program or machine serves it.
fn uncacheable_file_system(path: &Path) -> Option<String> {
    let file_system = kind(path).ok().filter(|kind| kind.is_served())?;
    let residency = Target::find(path).and_then(|target| cache::residency(&target)).ok()?;
    residency.is_absent().then(|| file_system.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_device_uses_small_file() {
        // 4 MiB in 125 ms are 34 MB/s: 64 MiB take two seconds.
        assert!(!is_slow(125_000_000, SHARED_BYTES) && is_slow(126_000_000, SHARED_BYTES));
        // At 7.3 MB/s.
        assert!(is_slow(575_000_000, 16 * MIB) && !is_slow(575_000_000, SMALL_BYTES));
    }

    #[test]
    fn stored_number_is_parsed_or_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_suffix(&directory.path().join("file"), CACHE_FILL_TIME);
        assert_eq!(read_number(&path).unwrap(), None);
        std::fs::write(&path, "575").unwrap();
        assert_eq!(read_number(&path).unwrap(), Some(575.0));
        std::fs::write(&path, "").unwrap();
        assert!(read_number(&path).is_err());
    }
}
