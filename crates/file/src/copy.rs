//! A file copied to a new one by one method, and the result.
//!
//! In the end the new file exists whole, or not at all; see [`run`].

mod expected;
mod layout;
mod limit;
mod method;

use std::fs::File;
use std::io::ErrorKind;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kelvin_stats::Histogram;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::interrupt;
use kelvin_sys::mapping::unwritten_pages;
use kelvin_sys::usage::RunQueueWait;
use rustix::io::Errno;

use self::layout::Layout;
use self::method::{Copier, Ends, Refused};
use crate::cache::{self, Residency, State};
use crate::crew::{Member, Wanted};
use crate::device::{Device, Moved};
use crate::digest::Digest;
use crate::done::{Done, Watched};
use crate::observe::Observer;
use crate::pace::{Paced, Until};
use crate::requests::Request;
use crate::target::{Access, Target, may_overstate};
use crate::unfinished::{Place, Unfinished};
use crate::writer::Sync;
use crate::{Error, Result};

pub use self::expected::{Costs, Expected};
pub use self::layout::Holes;
pub use self::limit::{LIMITING, Limit, Spent};
pub use self::method::{CopyMethod, Wish};

/// What to copy, and how.
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// The source.
    pub source: Target,
    /// The new file.
    pub path: PathBuf,
    /// Whether it may replace an existing one.
    pub replace: bool,
    /// The method.
    pub wish: Wish,
    /// Bytes of a block: most that a call is asked to move. A reflink is one call for all of it.
    pub block: usize,
    /// When it counts as written; not [`Sync::Direct`].
    pub sync: Sync,
    /// How much of the source is to be in memory before; not [`State::Direct`].
    pub state: State,
    /// Whether both files are read afterwards and compared.
    pub verify: bool,
    /// The clock that times each block, and its ticks per second; none if latencies are not wanted.
    pub latencies: Option<(Clock, f64)>,
}

/// System calls of a copy, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// pread(2).
    pub read: u64,
    /// pwrite(2).
    pub write: u64,
    /// copy_file_range(2).
    pub copy_file_range: u64,
    /// sendfile(2).
    pub sendfile: u64,
    /// ioctl(2), FICLONE.
    pub ioctl: u64,
    /// lseek(2), to find holes and to skip them.
    pub lseek: u64,
    /// fsync(2).
    pub fsync: u64,
    /// ftruncate(2), to give a file that ends in a hole its size.
    pub ftruncate: u64,
}

impl Calls {
    /// Those that were made, by name.
    pub fn made(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("pread", self.read),
            ("pwrite", self.write),
            ("copy_file_range", self.copy_file_range),
            ("sendfile", self.sendfile),
            ("ioctl", self.ioctl),
            ("lseek", self.lseek),
            ("fsync", self.fsync),
            ("ftruncate", self.ftruncate),
        ];
        all.into_iter().filter(|&(_, count)| count > 0).collect()
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.made().iter().map(|&(_, count)| count).sum()
    }
}

/// How a copy was compared with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// As it is in memory.
    InMemory,
    /// As its device returns it: it was flushed, and dropped from memory.
    FromDevice,
}

/// The result of copying.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The work. The time includes the flush of the sync policy, and the device is the target's.
    pub done: Done,
    /// What the source's device counted meanwhile.
    pub source_device: std::result::Result<(String, Moved), String>,
    /// The method by which it was copied.
    pub method: CopyMethod,
    /// Why others could not, that were tried before.
    pub refused: Vec<String>,
    /// System calls.
    pub calls: Calls,
    /// What the time was spent on.
    pub spent: Spent,
    /// Holes of the source.
    pub holes: Holes,
    /// Pages of the target that were still dirty when the time ended; `None` where the kernel does not say.
    pub unwritten: Option<u64>,
    /// Whether it is known what was in memory of the source: not where its file system has no mappings, as that of /sys.
    pub is_memory_known: bool,
    /// How it was compared with its source, if it was.
    pub compared: Option<Compared>,
    /// What it should have come to, or why that is not known.
    pub expected: std::result::Result<Expected, String>,
}

impl Copied {
    /// What took most of the time, and its share of it.
    pub fn limit(&self) -> (Limit, f64) {
        self.spent.limit(self.is_memory_known && self.done.before.is_whole())
    }
}

/// Copies a file: to another name beside its place, and renamed when it is whole. On an error, and on a signal, it is removed; after a
/// killed process, when the next one makes a file there. An existing file is replaced only if that is allowed, once the new one is
/// whole and flushed; the new one then has its owner and permissions, and else the permissions of the source, less the umask.
/// Owner, times and extended attributes of the source are not copied. `progress` is told now and then how many bytes are done.
///
/// # Errors
/// A source that cannot be read to its end, a target that cannot be made or written, both the same file; a method that cannot copy
/// between them; a copy that differs from its source; a signal.
pub fn run(job: &CopyJob, progress: &dyn Fn(u64)) -> Result<Copied> {
    check(job)?;
    let place = Arc::new(Place::of(&job.path)?);
    if place.look()?.is_some_and(|found| job.source.is_file(&found)) {
        return Err(Error::Same { path: job.path.clone(), other: job.source.path().to_owned() });
    }
    let mut file = Unfinished::make(&place, job.replace)?;
    let empty = file.target().map_err(|error| error.naming(&job.path))?;
    let from = job.source.open(Access::Buffered)?;
    file.set_mode_of(from.metadata().map_err(|error| Error::call("look at", job.source.path(), error))?.mode());
    file.check_size(job.source.bytes())?;
    let before = in_memory(cache::bring(&job.source, job.state), job.state)?;
    let to = empty.open_to_write(Access::Buffered, job.sync.flags()).map_err(|error| error.naming(&job.path))?;
    let ends = Ends { source: &job.source, from: &from, to: &to, path: &job.path };
    let mut copied = Copying { job, ends: &ends, file: &file, progress }.all(&empty, before)?;
    // Closed first, so that nobody else has it open: what could not be stored is an error.
    kelvin_sys::fs::close(to).map_err(|error| Error::call("close", &job.path, error))?;
    if job.verify {
        copied.compared = Some(compare(job, &empty, &file)?);
    }
    file.finish()?;
    if job.sync != Sync::None {
        place.flush_name()?;
    }
    copied.done.notes.extend(job.source.check_unchanged().err().map(|changed| changed.to_string()));
    copied.expected = expected::expected(&job.source, &place, (copied.method, job.block, copied.done.total.bytes));
    Ok(copied)
}

fn check(job: &CopyJob) -> Result<()> {
    if job.block == 0 {
        return Err(Error::setting("block", "must be at least 1"));
    }
    if job.sync == Sync::Direct {
        return Err(Error::setting("sync", "a copy goes through the page cache: none, fsync or dsync, not direct"));
    }
    if job.state == State::Direct {
        return Err(Error::setting(
            "cache",
            "a copy goes through the page cache: as-found, cached or uncached, not direct",
        ));
    }
    Ok(())
}

/// The time of blocks, and of reading within them.
struct Timing {
    clock: Clock,
    /// Nanoseconds of a tick.
    scale: f64,
    histogram: Histogram,
    reading: u64,
    all: u64,
}

impl Timing {
    fn nanoseconds(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.scale) as u64
    }
}

/// A copy that is being made.
struct Copying<'a> {
    job: &'a CopyJob,
    ends: &'a Ends<'a>,
    file: &'a Unfinished,
    progress: &'a dyn Fn(u64),
}

/// What one method did.
struct Work {
    calls: Calls,
    holes: Holes,
    timing: Option<Timing>,
    member: Member,
}

impl Copying<'_> {
    /// Copies all of it by the first method that can, and flushes it.
    fn all(&self, empty: &Target, before: Option<Residency>) -> Result<Copied> {
        let below_source = Watched::begin(Device::below(&self.job.source));
        let watched = Watched::begin(Device::below(empty));
        let (waiting, begun) = (Waiting::begin(), monotonic());
        let (method, refused, mut work) = self.by_methods()?;
        let flush = self.flush(method)?;
        work.calls.fsync += u64::from(flush.is_some());
        (work.member.begun, work.member.ended) = (begun, monotonic());
        let watched = watched.end();
        let ready = waiting.end();
        let source_device = below_source.end().device;
        let unwritten =
            unwritten(self.ends.to).map_err(|error| Error::call("find what is in memory of", &self.job.path, error))?;
        let after = in_memory(cache::residency(&self.job.source), State::AsFound)?;
        let wanted = Wanted { until: Until::Passes(1), digest: false, latencies: self.job.latencies };
        let done = Done::of(wanted, &[work.member], watched, (before.unwrap_or(NOTHING), after.unwrap_or(NOTHING)));
        let split = work.timing.filter(|_| method == CopyMethod::ReadWrite);
        let spent = Spent {
            all: done.nanoseconds,
            cpu: done.used.user + done.used.system,
            ready,
            flush: flush.unwrap_or(0),
            reading: split.as_ref().map(|timing| timing.nanoseconds(timing.reading)),
            writing: split.as_ref().map(|timing| timing.nanoseconds(timing.all - timing.reading)),
        };
        let copied = Copied {
            done,
            source_device,
            method,
            refused,
            calls: work.calls,
            spent,
            holes: work.holes,
            unwritten,
            compared: None,
            is_memory_known: before.is_some() && after.is_some(),
            expected: Err("it was not asked for".into()),
        };
        self.check_whole(&copied).map(|()| copied)
    }

    fn by_methods(&self) -> Result<(CopyMethod, Vec<String>, Work)> {
        let mut refused = Vec::new();
        for method in self.job.wish.methods(self.job.source.bytes()) {
            match self.by(method) {
                Ok(work) => return Ok((method, refused, work)),
                Err(Refused::Copy(error)) => return Err(error),
                Err(Refused::Method(why)) => refused.push(why),
            }
        }
        let why = refused.pop().unwrap_or_default();
        Err(Error::setting("method", format!("{why}; --method auto takes one that can")))
    }

    /// Copies all of it by one method.
    fn by(&self, method: CopyMethod) -> std::result::Result<Work, Refused> {
        let source = self.job.source.clone();
        if method != CopyMethod::ReadWrite {
            self.check_stated(method)?;
        }
        let seeking = source.open(Access::Buffered)?;
        let mut layout = Layout::of(&source, &seeking)?;
        if method != CopyMethod::Reflink {
            // Of a file that compresses where it is, or has holes, more may be needed than its bytes on the device, or less.
            let on_device = seeking.metadata().map_or(u64::MAX, |found| found.blocks().saturating_mul(512));
            self.file.check_room(source.bytes().min(on_device), false)?;
        }
        let block = if method == CopyMethod::Reflink { usize::MAX } else { self.job.block };
        let mut timing = self.job.latencies.map(|(clock, hertz)| Timing {
            clock,
            scale: 1e9 / hertz,
            histogram: Histogram::new(),
            reading: 0,
            all: 0,
        });
        let mut copier = Copier::new(self.ends, method, block)?;
        let stop = AtomicBool::new(false);
        let mut paced = Paced::new(Until::Passes(1), &stop);
        let mut parts =
            Parts { copier: &mut copier, paced: &mut paced, timing: &mut timing, progress: self.progress, shown: 0 };
        match method {
            CopyMethod::Reflink => parts.copy(0..source.bytes(), block).map(drop)?,
            _ => self.data(&mut layout, &mut parts, block)?,
        }
        let mut calls = Calls { lseek: copier.calls.lseek + layout.seeks, ..copier.calls };
        if layout.ends_in_hole {
            self.ends.to.set_len(source.bytes()).map_err(|error| Error::call("lengthen", &self.job.path, error))?;
            calls.ftruncate += 1;
        }
        let ended = monotonic();
        paced.note(ended);
        let (tally, begun, series) = (paced.tally, paced.begun, std::mem::take(&mut paced.series));
        let latencies = timing.as_ref().map(|timing| timing.histogram.clone());
        let (digest, achieved_depth, notes) = (Digest::default(), None, Vec::new());
        let member = Member { tally, begun, ended, passes: 1, digest, latencies, series, achieved_depth, notes };
        Ok(Work { calls, holes: layout.holes, timing, member })
    }

    /// Copies what is no hole, and what is behind the end that the source states.
    fn data(
        &self,
        layout: &mut Layout<'_>,
        parts: &mut Parts<'_, '_>,
        block: usize,
    ) -> std::result::Result<(), Refused> {
        while let Some(part) = layout.next()? {
            let wanted = part.end;
            let end = parts.copy(part, block)?;
            if end < wanted {
                return self.ended_early(end);
            }
        }
        if parts.copier.is_through_memory() && !layout.ends_in_hole {
            parts.copy(self.job.source.bytes()..u64::MAX, block)?;
        }
        Ok(())
    }

    /// A source that has less than it states: as the files of /sys, which state a page; every other one became shorter.
    fn ended_early(&self, end: u64) -> std::result::Result<(), Refused> {
        let source = &self.job.source;
        if may_overstate(source.path()) { Ok(()) } else { Err(source.truncated(end).into()) }
    }

    /// Calls that do not pass through memory copy what a file states, and some files state less than they have.
    fn check_stated(&self, method: CopyMethod) -> std::result::Result<(), Refused> {
        match self.job.source.check_end() {
            Err(Error::Unstated { path, bytes }) => Err(Refused::Method(format!(
                "{} copies as much as a file states, and {} has more than the {bytes} bytes that it states",
                method.name(),
                path.display()
            ))),
            checked => Ok(checked?),
        }
    }

    /// Flushes it, if that was asked for. O_DSYNC says nothing of what no write brought there.
    fn flush(&self, method: CopyMethod) -> Result<Option<u64>> {
        let is_wanted = self.job.sync == Sync::Fsync || self.job.sync == Sync::Dsync && method == CopyMethod::Reflink;
        if !is_wanted {
            return Ok(None);
        }
        let begun = monotonic();
        self.ends.to.sync_all().map_err(|error| Error::call("flush", &self.job.path, error))?;
        let took = monotonic() - begun;
        // A signal does not cut it short.
        interrupt::requested().map_or(Ok(Some(took)), |signal| Err(Error::Interrupted(signal)))
    }

    /// That the target has as many bytes as were copied and left out as holes.
    fn check_whole(&self, copied: &Copied) -> Result<()> {
        let found = self.ends.to.metadata().map_err(|error| Error::call("look at", &self.job.path, error))?;
        let holes = if copied.method == CopyMethod::Reflink { 0 } else { copied.holes.bytes };
        let expected = copied.done.total.bytes + holes;
        if found.len() == expected {
            return Ok(());
        }
        let what = format!("it has {} bytes, and {expected} were copied", found.len());
        Err(Error::Changed { path: self.job.path.clone(), what })
    }
}

/// How often progress is told, in bytes.
const SHOWN: u64 = 8 << 20;

/// Copies parts of a file, counting and timing.
struct Parts<'p, 'e> {
    copier: &'p mut Copier<'e>,
    paced: &'p mut Paced<'e>,
    timing: &'p mut Option<Timing>,
    progress: &'p dyn Fn(u64),
    shown: u64,
}

impl Parts<'_, '_> {
    /// Copies a part in blocks, as far as there is something; returns where that ended.
    fn copy(&mut self, part: Range<u64>, block: usize) -> std::result::Result<u64, Refused> {
        let mut offset = part.start;
        while offset < part.end {
            let bytes = block.min(usize::try_from(part.end - offset).unwrap_or(usize::MAX));
            let moved = self.block(Request { offset, bytes })?;
            if moved == 0 {
                break;
            }
            offset += moved as u64;
            if self.paced.end((), Request { offset, bytes: moved }, &[]) == ControlFlow::Break(())
                && let Some(signal) = interrupt::requested()
            {
                return Err(Error::Interrupted(signal).into());
            }
            if self.paced.tally.bytes - self.shown >= SHOWN {
                self.shown = self.paced.tally.bytes;
                (self.progress)(self.shown);
            }
        }
        Ok(offset)
    }

    #[inline]
    fn block(&mut self, wanted: Request) -> std::result::Result<usize, Refused> {
        let Some(timing) = &mut self.timing else { return self.copier.copy(wanted, || ()) };
        let clock = timing.clock;
        let begun = clock.start();
        let mut between = begun;
        let moved = self.copier.copy(wanted, || between = clock.stop())?;
        let ticks = clock.stop().wrapping_sub(begun);
        // What finds the end is no request.
        if moved > 0 {
            timing.histogram.record(timing.nanoseconds(ticks));
            timing.all += ticks;
            timing.reading += between.wrapping_sub(begun);
        }
        Ok(moved)
    }
}

/// How long this thread was ready to run without a CPU.
struct Waiting {
    waited: RunQueueWait,
    before: Option<u64>,
}

impl Waiting {
    fn begin() -> Self {
        let mut waited = RunQueueWait::of_thread();
        Self { before: waited.nanoseconds(), waited }
    }

    /// Nanoseconds since, where the kernel counts it.
    fn end(mut self) -> Option<u64> {
        Some(self.waited.nanoseconds()?.saturating_sub(self.before?))
    }
}

/// Of a file without pages.
const NOTHING: Residency = Residency { pages: 0, mincore: 0, cachestat: None };

/// What is in memory; none where that is not known, and no state was asked for that must be proven.
fn in_memory(found: Result<Residency>, state: State) -> Result<Option<Residency>> {
    match found {
        Err(Error::Call { source, .. })
            if state == State::AsFound && source.raw_os_error() == Some(Errno::NODEV.raw_os_error()) =>
        {
            Ok(None)
        }
        found => found.map(Some),
    }
}

fn unwritten(to: &File) -> std::io::Result<Option<u64>> {
    // To the end of the file, wherever that is now.
    unwritten_pages(to, 0)
}

/// Bytes of a block by which two files are compared.
const COMPARED: usize = 1 << 20;

/// Compares all bytes of the copy with those of its source; from the device, where it was flushed and can be dropped from memory.
fn compare(job: &CopyJob, empty: &Target, file: &Unfinished) -> Result<Compared> {
    let copy = Target::find(empty.path()).map_err(|error| error.naming(&job.path))?;
    let is_dropped = job.sync != Sync::None && cache::bring(&copy, State::Uncached).is_ok();
    let source = job.source.open(Access::Buffered)?;
    let mut blocks = [vec![0; COMPARED], vec![0; COMPARED]];
    let mut offset = 0;
    loop {
        if let Some(signal) = interrupt::requested() {
            return Err(Error::Interrupted(signal));
        }
        let [one, other] = &mut blocks;
        let read = fill(&source, one, offset).map_err(|error| job.source.read_error(offset, COMPARED, error))?;
        let copied = fill(file.file(), other, offset)
            .map_err(|error| Error::call(format!("read {COMPARED} bytes at {offset} of"), &job.path, error))?;
        if let Some(at) = first_difference(&one[..read], &other[..copied]) {
            let at = offset + at as u64;
            return Err(Error::Differs { path: job.path.clone(), original: job.source.path().to_owned(), at });
        }
        if read == 0 {
            return Ok(if is_dropped { Compared::FromDevice } else { Compared::InMemory });
        }
        offset += read as u64;
    }
}

/// The first byte in which two blocks differ; one that ends is different there.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    Some(same)
}

/// Reads as much as there is for a block.
fn fill(file: &File, block: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read_at(&mut block[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    /// A source of bytes that depend on their place, in a directory of the test's own.
    struct Bench {
        directory: tempfile::TempDir,
        content: Vec<u8>,
    }

    impl Bench {
        fn new(bytes: usize) -> Self {
            let directory = tempfile::tempdir_in(".").unwrap();
            let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
            std::fs::write(directory.path().join("source"), &content).unwrap();
            Self { directory, content }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn job(&self, wish: Wish) -> CopyJob {
            CopyJob {
                source: Target::find(&self.path("source")).unwrap(),
                path: self.path("copy"),
                replace: true,
                wish,
                block: 4096,
                sync: Sync::None,
                state: State::AsFound,
                verify: true,
                latencies: Some((Clock::MonotonicRaw, 1e9)),
            }
        }

        fn names(&self) -> usize {
            std::fs::read_dir(self.directory.path()).unwrap().count()
        }
    }

    fn copied(job: &CopyJob) -> Copied {
        run(job, &|_| ()).unwrap_or_else(|error| panic!("{job:?}: {error}"))
    }

    fn refused(job: &CopyJob) -> String {
        run(job, &|_| ()).unwrap_err().to_string()
    }

    /// Every method; one that shares blocks only where the file system can.
    fn wishes(bench: &Bench) -> Vec<Wish> {
        let can_share = run(&bench.job(Wish::Only(CopyMethod::Reflink)), &|_| ()).is_ok();
        let only = CopyMethod::ALL.into_iter().filter(|&method| method != CopyMethod::Reflink || can_share);
        only.map(Wish::Only).chain([Wish::Auto]).collect()
    }

    #[test]
    fn every_method_copies_every_byte_under_every_policy() {
        let bench = Bench::new(1_000_003);
        for wish in wishes(&bench) {
            for (sync, block) in [(Sync::None, 4096), (Sync::Fsync, 777), (Sync::Dsync, 1 << 20)] {
                let job = CopyJob { sync, block, ..bench.job(wish) };
                let found = copied(&job);
                assert!(std::fs::read(bench.path("copy")).unwrap() == bench.content, "{job:?}");
                let total = found.done.total;
                assert_eq!((total.bytes, found.done.series.iter().sum::<u64>()), (1_000_003, 1_000_003), "{job:?}");
                assert_eq!(found.done.latencies.as_ref().unwrap().count(), total.requests, "{job:?}");
                assert_eq!(found.spent.flush > 0, sync == Sync::Fsync, "{found:?}");
                assert!(found.calls.total() >= total.requests && found.compared.is_some(), "{found:?}");
                match found.method {
                    CopyMethod::ReadWrite => {
                        // One read more finds the end.
                        assert_eq!((found.calls.read, found.calls.write), (total.requests + 1, total.requests));
                        assert_eq!(total.requests, 1_000_003u64.div_ceil(block as u64));
                        assert!(found.spent.reading.is_some() && found.spent.writing.is_some());
                    }
                    _ => assert!(found.calls.read == 0 && found.spent.reading.is_none()),
                }
            }
        }
        assert_eq!(bench.names(), 2);
    }

    #[test]
    fn holes_stay_holes_wherever_they_are() {
        const MIB: u64 = 1 << 20;
        let bench = Bench::new(0);
        // A hole, data, a hole, data that ends within a block, a hole.
        let source = File::options().write(true).open(bench.path("source")).unwrap();
        source.set_len(64 * MIB).unwrap();
        source.write_all_at(&[1; 10_000], 8 * MIB).unwrap();
        source.write_all_at(&[2; 5], 40 * MIB + 4096).unwrap();
        source.sync_all().unwrap();
        for wish in wishes(&bench) {
            let found = copied(&bench.job(wish));
            let copy = bench.path("copy").metadata().unwrap();
            assert_eq!(copy.len(), 64 * MIB, "{wish:?}");
            assert!(copy.blocks() * 512 < MIB, "{wish:?}: {} blocks", copy.blocks());
            if found.method != CopyMethod::Reflink {
                assert_eq!((found.holes.count, found.holes.none_shown), (3, false), "{wish:?}");
                assert_eq!(found.done.total.bytes + found.holes.bytes, 64 * MIB, "{wish:?}");
            }
        }
    }

    #[test]
    fn an_empty_file_and_one_that_is_all_hole_are_copied() {
        let bench = Bench::new(0);
        for wish in [Wish::Auto, Wish::Only(CopyMethod::ReadWrite), Wish::Only(CopyMethod::Sendfile)] {
            let empty = copied(&bench.job(wish));
            assert_eq!((empty.done.total.bytes, bench.path("copy").metadata().unwrap().len()), (0, 0));
            assert!(empty.expected.is_err() && empty.refused.is_empty());
        }
        File::options().write(true).open(bench.path("source")).unwrap().set_len(1 << 20).unwrap();
        let hole = copied(&bench.job(Wish::Only(CopyMethod::ReadWrite)));
        assert_eq!((hole.done.total.bytes, hole.holes.bytes), (0, 1 << 20));
        assert_eq!(bench.path("copy").metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_file_that_states_no_size_is_copied_to_its_end_or_refused() {
        let bench = Bench::new(0);
        let of_proc = |wish| CopyJob {
            source: Target::find(Path::new("/proc/version")).unwrap(),
            verify: false,
            ..bench.job(wish)
        };
        let version = std::fs::read("/proc/version").unwrap();
        for wish in [Wish::Auto, Wish::Only(CopyMethod::ReadWrite)] {
            let found = copied(&CopyJob { block: 7, ..of_proc(wish) });
            assert_eq!((found.method, found.done.total.bytes), (CopyMethod::ReadWrite, version.len() as u64));
            assert!(std::fs::read(bench.path("copy")).unwrap() == version);
            std::fs::remove_file(bench.path("copy")).unwrap();
        }
        for method in [CopyMethod::Sendfile, CopyMethod::CopyFileRange, CopyMethod::Reflink] {
            let why = refused(&of_proc(Wish::Only(method)));
            assert!(why.starts_with("method: ") && why.contains("more than the 0 bytes"), "{why}");
        }
        assert_eq!(bench.names(), 1);
    }

    #[test]
    fn what_cannot_be_copied_is_refused_and_leaves_nothing_behind() {
        let bench = Bench::new(100_000);
        std::fs::hard_link(bench.path("source"), bench.path("linked")).unwrap();
        std::fs::write(bench.path("there"), "the user's").unwrap();
        let rw = || bench.job(Wish::Only(CopyMethod::ReadWrite));
        for same in ["source", "linked"] {
            assert!(refused(&CopyJob { path: bench.path(same), ..rw() }).contains("are the same file"), "{same}");
        }
        let kept = CopyJob { path: bench.path("there"), replace: false, ..rw() };
        assert!(refused(&kept).contains("there exists"));
        assert!(refused(&CopyJob { block: 0, ..rw() }).contains("block: must be at least 1"));
        assert!(refused(&CopyJob { sync: Sync::Direct, ..rw() }).contains("sync: "));
        assert!(refused(&CopyJob { state: State::Direct, ..rw() }).contains("cache: "));
        assert!(refused(&CopyJob { path: bench.path("none/copy"), ..rw() }).contains("there is no directory"));
        assert!(refused(&CopyJob { path: bench.directory.path().to_owned(), ..rw() }).contains("is a directory"));
        assert_eq!((bench.names(), std::fs::read_to_string(bench.path("there")).unwrap().as_str()), (3, "the user's"));
        // Nothing is known that could be copied: the file became shorter after it was found.
        let stale = rw();
        File::options().write(true).open(bench.path("source")).unwrap().set_len(50_000).unwrap();
        assert!(refused(&stale).contains("became shorter"));
        assert_eq!(bench.names(), 3);
    }

    #[test]
    fn a_copy_has_the_permissions_of_its_source_less_the_umask() {
        let bench = Bench::new(10);
        std::fs::write(bench.path("usual"), "").unwrap();
        let mode = |name: &str| bench.path(name).metadata().unwrap().permissions().mode() & 0o7777;
        let usual = mode("usual");
        for (original, allowed) in
            [(0o600, usual), (0o444, usual), (0o755, usual | (usual & 0o444) >> 2), (0o4644, usual)]
        {
            let _ = std::fs::remove_file(bench.path("copy"));
            std::fs::set_permissions(bench.path("source"), std::fs::Permissions::from_mode(original)).unwrap();
            copied(&bench.job(Wish::Auto));
            assert_eq!(mode("copy"), original & allowed & 0o777, "{original:o}");
        }
        // What is replaced keeps its own.
        std::fs::set_permissions(bench.path("copy"), std::fs::Permissions::from_mode(0o640)).unwrap();
        copied(&bench.job(Wish::Auto));
        assert_eq!(mode("copy"), 0o640);
    }

    #[test]
    fn between_two_file_systems_auto_goes_on_and_says_why_and_others_are_refused() {
        let Some(shm) = kelvin_testing::in_memory("copying from one file system to another") else { return };
        let there = tempfile::tempdir_in(shm).unwrap();
        let bench = Bench::new(300_000);
        let across = |wish| CopyJob { path: there.path().join("copy"), ..bench.job(wish) };
        let found = copied(&across(Wish::Auto));
        assert_eq!((found.method, found.refused.len()), (CopyMethod::ReadWrite, 2), "{:?}", found.refused);
        assert!(
            found.refused[0].starts_with("reflink ") && found.refused[1].starts_with("copy_file_range does not go")
        );
        assert!(std::fs::read(there.path().join("copy")).unwrap() == bench.content);
        std::fs::remove_file(there.path().join("copy")).unwrap();
        for (method, word) in [(CopyMethod::Reflink, "reflink shares"), (CopyMethod::CopyFileRange, "does not go from")]
        {
            let why = refused(&across(Wish::Only(method)));
            assert!(why.starts_with("method: ") && why.contains(word) && why.contains("--method auto"), "{why}");
        }
        let sent = copied(&across(Wish::Only(CopyMethod::Sendfile)));
        assert_eq!((sent.method, sent.calls.sendfile), (CopyMethod::Sendfile, 300_000u64.div_ceil(4096)));
    }

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"ab"), Some(2));
        assert_eq!(first_difference(b"", b"a"), Some(0));
    }

    #[test]
    fn progress_is_told_of_a_large_file() {
        let bench = Bench::new(20 << 20);
        let told = std::cell::RefCell::new(Vec::new());
        run(&CopyJob { block: 1 << 20, ..bench.job(Wish::Auto) }, &|bytes| told.borrow_mut().push(bytes)).unwrap();
        let told = told.into_inner();
        assert!(!told.is_empty() && told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    }
}
