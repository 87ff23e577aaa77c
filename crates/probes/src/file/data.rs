//! The files that probes share: written once a run, of noise, in the scratch directory.

use std::ops::Range;
use std::path::{Path, PathBuf};

use kelvin_file::cache::{self, State};
use kelvin_file::job::{self, Division, Job, Until};
use kelvin_file::{Access, Engine, How, Order, Pages, Target, noise};
use kelvin_harness::{Bench, Stop};
use kelvin_model::units;
use kelvin_sys::clock::monotonic;
use kelvin_sys::fs::kind;
use kelvin_sys::mapping::{page_bytes, unwritten_pages};

/// Name of the file that is read, in the scratch directory, before its size.
const NAME: &str = "kelvin-data";
/// Name of the file that is written over, before its size.
const SCRAP: &str = "kelvin-scrap";
/// Name of the file that is written over in memory, before its size.
const AFLOAT: &str = "kelvin-afloat";
/// Name of the file that is one hole, before its size.
const HOLE: &str = "kelvin-hole";
/// Seeds of their contents.
const SEED: u64 = 1;
const SCRAP_SEED: u64 = 2;
const AFLOAT_SEED: u64 = 3;
const SEVERAL_SEED: u64 = 1000;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// Size of the file that most probes share, in bytes: more than most processor caches hold, and little to write.
pub(super) const SHARED_BYTES: u64 = 64 * MIB;
/// Size of the file that is read where a pass over a larger one takes longer than so many nanoseconds. Spinning disks are
/// faster than that.
pub(super) const SMALL_BYTES: u64 = 4 * MIB;
const LONGEST_PASS: f64 = 2e9;
/// Trials of how long the small file takes, of which the fastest counts: something else may use the device.
const TRIALS: usize = 3;
/// What is kept beside a file: bytes per second of the first pass over it, and nanoseconds that it took into the page cache.
const FIRST_PASS: &str = ".first-pass";
const READ_IN: &str = ".read-in";
/// Free space that the scratch directory must have, as a multiple of a file to be written.
const ROOM: u64 = 2;

/// A file of so many bytes of noise, on its device, shared by all rounds of the run. The first round writes it, and reads it
/// once past the page cache: see [`first_pass`].
pub(super) fn file(bench: &Bench<'_>, bytes: u64) -> Result<Target, Stop> {
    let path = bench.scratch().join(format!("{NAME}-{bytes}"));
    if !path.exists() {
        let target = shared(bench, &path, bytes, SEED)?;
        if let Some(rate) = pass(&target)? {
            std::fs::write(with_end(&path, FIRST_PASS), rate.to_string())?;
        }
        return Ok(target);
    }
    Target::find(&path).map_err(stopped)
}

/// The file for reads that reach the device: the shared one of so many bytes, or a small one where the device is slow. A pass
/// then takes no longer than it should, and what was dropped for it need not be read again for what is measured in memory.
pub(super) fn on_device(bench: &mut Bench<'_>, bytes: u64) -> Result<Target, Stop> {
    let small = file(bench, SMALL_BYTES)?;
    if !read_in(&small)?.is_some_and(|took| is_slow(took, bytes)) {
        return file(bench, bytes);
    }
    let [small_one, usual] = [SMALL_BYTES, bytes].map(units::bytes);
    bench.note(format!("on a file of {small_one}, since one of {usual} takes too long on this device"));
    Ok(small)
}

/// Whether a file of so many bytes takes too long, if the small one took so many nanoseconds.
fn is_slow(took: u64, bytes: u64) -> bool {
    took as f64 * (bytes as f64 / SMALL_BYTES as f64) > LONGEST_PASS
}

/// Nanoseconds that a file takes from its device into an empty page cache, found once a run; `None` where it cannot be dropped from
/// there or kept in it.
fn read_in(target: &Target) -> Result<Option<u64>, Stop> {
    let kept = with_end(target.path(), READ_IN);
    if let Some(known) = number_in(&kept)? {
        return Ok(Some(known as u64));
    }
    let mut least = u64::MAX;
    for _ in 0..TRIALS {
        match time_into_cache(target) {
            Err(kelvin_file::Error::Cache { .. }) => return Ok(None),
            took => least = least.min(took.map_err(stopped)?),
        }
        if !is_slow(least, SHARED_BYTES) {
            break;
        }
    }
    std::fs::write(&kept, least.to_string())?;
    Ok(Some(least))
}

fn time_into_cache(target: &Target) -> kelvin_file::Result<u64> {
    cache::bring(target, State::Uncached)?;
    let begun = monotonic();
    cache::bring(target, State::Cached)?;
    Ok(monotonic() - begun)
}

/// The shared file for probes that need several: that of this number, counted from 0, which is [`file`].
pub(super) fn one_of_several(bench: &Bench<'_>, bytes: u64, number: u64) -> Result<Target, Stop> {
    if number == 0 {
        return file(bench, bytes);
    }
    let path = bench.scratch().join(format!("{NAME}-{bytes}-{number}"));
    if path.exists() {
        return Target::find(&path).map_err(stopped);
    }
    shared(bench, &path, bytes, SEVERAL_SEED + number)
}

/// A file of so many bytes on its device, shared by all rounds of the run and written over.
pub(super) fn scrap(bench: &Bench<'_>, bytes: u64) -> Result<Target, Stop> {
    let path = bench.scratch().join(format!("{SCRAP}-{bytes}"));
    if path.exists() { Target::find(&path).map_err(stopped) } else { shared(bench, &path, bytes, SCRAP_SEED) }
}

/// A file of so many bytes shared by all rounds of the run and written over in memory: it is never flushed, and reaches the
/// device by write-back, if at all.
pub(super) fn afloat(bench: &Bench<'_>, bytes: u64) -> Result<Target, Stop> {
    let path = bench.scratch().join(format!("{AFLOAT}-{bytes}"));
    if path.metadata().is_ok_and(|found| found.len() == bytes) {
        let target = Target::find(&path).map_err(stopped)?;
        // The kernel writes back what was dirty for 30 seconds, and will do so again with what this round makes dirty.
        bench.may_write(written_back(&target)?)?;
        return Ok(target);
    }
    has_room(bench, bytes)?;
    bench.may_write(bytes)?;
    noise::afloat(&path, bytes, AFLOAT_SEED).map_err(|error| cannot("write", &path, &error))?;
    Target::find(&path).map_err(stopped)
}

/// Bytes of a file that are on its device; all, where the kernel does not say.
pub(super) fn written_back(target: &Target) -> Result<u64, Stop> {
    let file = target.open(Access::Buffered).map_err(stopped)?;
    let unwritten = unwritten_pages(&file, target.bytes() as usize)?.unwrap_or(0) * page_bytes() as u64;
    Ok(target.bytes().saturating_sub(unwritten))
}

/// A sparse file of so many bytes, one hole, on a file system that reads it as any other file.
pub(super) fn hole(bench: &Bench<'_>, bytes: u64) -> Result<Target, Stop> {
    let kind = kind(bench.scratch())?;
    if kind.is_served() || kind.lives_in_memory() {
        return Err(Stop::skip(format!(
            "needs a local file system on a disk, to make a sparse file, and the scratch directory is on {}; choose \
             another by --dir",
            kind.name()
        )));
    }
    let path = bench.scratch().join(format!("{HOLE}-{bytes}"));
    // Another round may be making it as well: both make the same.
    let made = std::fs::File::options().write(true).create(true).truncate(false).open(&path);
    made.and_then(|file| file.set_len(bytes)).map_err(|error| cannot("write", &path, &error))?;
    Target::find(&path).map_err(stopped)
}

/// Bytes per second of the first pass over a file past the page cache after it was written: below the kernel it may have been
/// in no cache yet. `None` where the file cannot be read so.
pub(super) fn first_pass(target: &Target) -> Result<Option<f64>, Stop> {
    number_in(&with_end(target.path(), FIRST_PASS))
}

/// The number that a file holds, if it is there.
fn number_in(path: &Path) -> Result<Option<f64>, Stop> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path)?;
    let number = text.parse().map_err(|_| Stop::fail(format!("{} does not hold a number: {text}", path.display())))?;
    Ok(Some(number))
}

/// A path with a longer name.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn shared(bench: &Bench<'_>, path: &Path, bytes: u64, seed: u64) -> Result<Target, Stop> {
    has_room(bench, bytes)?;
    bench.may_write(bytes)?;
    noise::file(path, bytes, seed).map_err(|error| cannot("write", path, &error))?;
    Target::find(path).map_err(stopped)
}

/// The failure to do something with a file.
#[cold]
pub(super) fn cannot(doing: &str, path: &Path, error: &std::io::Error) -> Stop {
    Stop::fail(format!("cannot {doing} {}: {error}", path.display()))
}

/// Bytes per second of one pass past the page cache; `None` where direct I/O is impossible.
fn pass(target: &Target) -> Result<Option<f64>, Stop> {
    if can_be_direct(target, MIB).is_err() {
        return Ok(None);
    }
    let job = wide(target, WIDTH)?.job(target, MIB as usize, 0..target.bytes());
    job::run(&job).map(|done| Some(done.rate())).map_err(stopped)
}

/// Requests in flight for a device's best rate.
pub(super) const WIDTH: u32 = 16;

/// A way of keeping so many requests in flight past the page cache.
#[derive(Debug)]
pub(super) struct Wide {
    pub engine: Engine,
    pub threads: u32,
    /// What it is, and why it is not another, in words.
    pub words: String,
}

impl Wide {
    /// One pass over a range of a file in order, past the page cache, in blocks of so many bytes.
    pub fn job(&self, target: &Target, block: usize, range: Range<u64>) -> Job {
        Job { threads: self.threads, range, ..job(target, self.engine, block) }
    }
}

/// One pass over a file in order, past the page cache, by one thread, in blocks of so many bytes.
pub(super) fn job(target: &Target, engine: Engine, block: usize) -> Job {
    Job {
        target: target.clone(),
        engine,
        block,
        order: Order::Sequential,
        state: State::Direct,
        threads: 1,
        division: Division::Parts,
        pages: Pages::Base,
        range: 0..target.bytes(),
        until: Until::Passes(1),
        digest: false,
        latencies: None,
    }
}

/// The fastest way for a device with `depth` requests in flight: one thread and io_uring; where that is unavailable, as many
/// threads, with the reason.
pub(super) fn wide(target: &Target, depth: u32) -> Result<Wide, Stop> {
    let ring = Engine::Uring { depth, registered: false };
    let how = How { access: Access::Buffered, block: 1, order: Order::Sequential, pages: Pages::Base };
    match ring.open(target, how) {
        Ok(_) => Ok(Wide { engine: ring, threads: 1, words: format!("io_uring, queue depth {depth}") }),
        Err(error @ kelvin_file::Error::NoRing(_)) => Ok(Wide {
            engine: Engine::Pread,
            threads: depth,
            words: format!("{depth} threads of pread, because {error}"),
        }),
        Err(error) => Err(stopped(error)),
    }
}

/// That the scratch directory has room for a file of so many bytes, and as many again.
pub(super) fn has_room(bench: &Bench<'_>, bytes: u64) -> Result<(), Stop> {
    crate::room::has_room(bench.scratch(), ROOM * bytes)
}

/// That a file can be read and written past the page cache in blocks of so many bytes.
pub(super) fn can_be_direct(target: &Target, block: u64) -> Result<(), Stop> {
    let alignment = target.alignment().map_err(stopped)?;
    if block.is_multiple_of(alignment) {
        return Ok(());
    }
    Err(Stop::skip(format!(
        "needs direct I/O in blocks of {}, and here they must be multiples of {}; choose another directory by --dir",
        units::bytes(block),
        units::bytes(alignment)
    )))
}

/// The outcome of a file that cannot be measured: what is unavailable here is skipped, anything else has failed.
pub(super) fn stopped(error: kelvin_file::Error) -> Stop {
    use kelvin_file::Error;
    match error {
        Error::Cache { wanted: State::Cached, ref path, .. } => match keeps_out_of_memory(path) {
            Some(file_system) => Stop::skip(format!(
                "needs files that stay in the page cache: another program or machine serves this file system ({file_system}), and keeps \
                 them out of it, or has them dropped whenever they are opened (mount.fuse(8): kernel_cache); choose another \
                 directory by --dir"
            )),
            // One that does not stay in memory now may do so in the next round.
            None => Stop::fail(error.to_string()),
        },
        Error::NoDirect { .. } | Error::Cache { .. } => {
            Stop::skip(format!("needs a directory on a disk, chosen by --dir, and enough memory: {error}"))
        }
        absent if absent.is_absence() => Stop::skip(absent.to_string()),
        failed => Stop::fail(failed.to_string()),
    }
}

/// The file system of a file that was just read and of which no page is in memory, if another program or machine serves it.
fn keeps_out_of_memory(path: &Path) -> Option<String> {
    let served = kind(path).ok().filter(|kind| kind.is_served())?;
    let found = Target::find(path).and_then(|target| cache::residency(&target)).ok()?;
    found.is_none().then(|| served.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_of_two_seconds_is_the_longest() {
        // 4 MiB in 125 ms are 34 MB/s: 64 MiB take two seconds.
        assert!(!is_slow(125_000_000, SHARED_BYTES) && is_slow(126_000_000, SHARED_BYTES));
        // At 7.3 MB/s.
        assert!(is_slow(575_000_000, 16 * MIB) && !is_slow(575_000_000, SMALL_BYTES));
    }

    #[test]
    fn what_is_kept_beside_a_file_is_a_number_or_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_end(&directory.path().join("file"), READ_IN);
        assert_eq!(number_in(&path).unwrap(), None);
        std::fs::write(&path, "575").unwrap();
        assert_eq!(number_in(&path).unwrap(), Some(575.0));
        std::fs::write(&path, "").unwrap();
        assert!(number_in(&path).is_err());
    }
}
