//! A file copied to a new one by one method, and the result.
//!
//! In the end the new file exists whole, or not at all; see [`run`].

mod expected_rate;
mod extents;
mod method;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::usage::RunQueueWait;
use rustix::io::Errno;

use self::extents::DataRanges;
use self::method::{Copier, CopyTiming, MethodError, MethodResult};
use crate::access::Access;
use crate::access::PageCacheState;
use crate::atomic_file::{AtomicFile, PinnedPath};
use crate::cache::{self, Residency};
use crate::device::{Device, DeviceTraffic};
use crate::error::check_stop_signal;
use crate::io_result::{IoResult, UsageStart};
use crate::reader_threads::ThreadResult;
use crate::target::{Target, may_overstate};
use crate::write_job::SyncMode;
use crate::{Error, Result};

pub use self::expected_rate::{CopyCosts, RateRange};
pub use self::extents::Holes;
pub use self::method::{CopyMethod, MethodChoice};

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
    pub method: MethodChoice,
    /// Bytes of a block: most that a call is asked to move. A reflink is one call for all of it.
    pub block: usize,
    /// When it counts as written; not [`SyncMode::Direct`].
    pub sync: SyncMode,
    /// How much of the source is to be in memory before; not [`PageCacheState::Direct`].
    pub state: PageCacheState,
    /// Whether both files are read afterwards and compared.
    pub verify: bool,
    /// The clock that times each block, and its ticks per second; none if latencies are not wanted.
    pub latencies: Option<(Clock, f64)>,
}

/// System calls of a copy, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyscallCounts {
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

impl SyscallCounts {
    /// Those that were made, by name.
    pub fn nonzero(&self) -> Vec<(&'static str, u64)> {
        let counts = [
            ("pread", self.read),
            ("pwrite", self.write),
            ("copy_file_range", self.copy_file_range),
            ("sendfile", self.sendfile),
            ("ioctl", self.ioctl),
            ("lseek", self.lseek),
            ("fsync", self.fsync),
            ("ftruncate", self.ftruncate),
        ];
        counts.into_iter().filter(|&(_, count)| count > 0).collect()
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.nonzero().iter().map(|&(_, count)| count).sum()
    }
}

/// What the time of a copy was spent on, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBreakdown {
    /// All of it, flushing included.
    pub total: u64,
    /// CPU time of the process.
    pub cpu: u64,
    /// Ready to run, and without a CPU; `None` where the kernel does not count it.
    pub run_queue: Option<u64>,
    /// Flushing at the end.
    pub flush: u64,
    /// In calls that read the source, where these are apart from those that write, and were timed.
    pub reading: Option<u64>,
    /// In calls that write the target, likewise.
    pub writing: Option<u64>,
}

/// What limited a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyBottleneck {
    /// Copying bytes in the kernel.
    Cpu,
    /// Other work had the CPU.
    OtherWork,
    /// It waited for the source.
    Source,
    /// It waited for the target, before the flush.
    Target,
    /// It waited until all was on the device.
    Flush,
}

/// The share of the time from which on something is named as what limited a copy.
pub const MIN_BOTTLENECK_SHARE: f64 = 0.6;

impl TimeBreakdown {
    /// A part as a share of the whole time, 0 to 1.
    pub fn share(&self, part: u64) -> f64 {
        (part as f64 / self.total.max(1) as f64).min(1.0)
    }

    /// Nanoseconds that it neither ran, nor flushed, nor is known to have waited for a CPU. It waited for a device, or for who serves a
    /// file.
    pub fn waiting(&self) -> u64 {
        self.total.saturating_sub(self.cpu).saturating_sub(self.run_queue.unwrap_or(0)).saturating_sub(self.flush)
    }

    /// What took most of the time, and its share. `is_cached` states whether the source was in memory before.
    pub fn bottleneck(&self, is_cached: bool) -> (CopyBottleneck, f64) {
        let waited_for = match (self.reading, self.writing) {
            (Some(reading), Some(writing)) if writing > reading => CopyBottleneck::Target,
            (Some(_), Some(_)) => CopyBottleneck::Source,
            _ if is_cached => CopyBottleneck::Target,
            _ => CopyBottleneck::Source,
        };
        // The CPU time of a flush is little, and counts twice.
        let parts = [
            (CopyBottleneck::Cpu, self.cpu),
            (CopyBottleneck::OtherWork, self.run_queue.unwrap_or(0)),
            (CopyBottleneck::Flush, self.flush),
            (waited_for, self.waiting()),
        ];
        let top = parts.into_iter().fold((CopyBottleneck::Cpu, 0), |top, part| if part.1 > top.1 { part } else { top });
        (top.0, self.share(top.1))
    }
}

/// How a copy was compared with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifiedFrom {
    /// As it is in memory.
    InMemory,
    /// As its device returns it: it was flushed, and dropped from memory.
    FromDevice,
}

/// The result of copying.
#[derive(Clone, Debug)]
pub struct CopyResult {
    /// The work. The time includes the flush of the sync policy, and the device is the target's.
    pub io: IoResult,
    /// What the source's device counted meanwhile.
    pub source_device: std::result::Result<(String, DeviceTraffic), String>,
    /// The method by which it was copied.
    pub method: CopyMethod,
    /// Why others could not, that were tried before.
    pub refusals: Vec<String>,
    /// System calls.
    pub calls: SyscallCounts,
    /// What the time was spent on.
    pub breakdown: TimeBreakdown,
    /// Holes of the source.
    pub holes: Holes,
    /// Pages of the target that were still dirty when the time ended; `None` where the kernel does not report it.
    pub dirty_pages: Option<u64>,
    /// Whether it is known what was in memory of the source: not where its file system has no mappings, as that of /sys.
    pub is_residency_known: bool,
    /// How it was compared with its source, if it was.
    pub verified: Option<VerifiedFrom>,
    /// What it should have come to, or why that is not known.
    pub expected: std::result::Result<RateRange, String>,
}

impl CopyResult {
    /// What took most of the time, and its share of it.
    pub fn bottleneck(&self) -> (CopyBottleneck, f64) {
        self.breakdown.bottleneck(self.is_residency_known && self.io.before.is_complete())
    }
}

/// Copies a file: to another name in the same directory, and renamed when it is whole. On an error, and on a signal, it is removed; after a
/// killed process, when the next one makes a file there. An existing file is replaced only if that is allowed, once the new one is
/// whole and flushed. The new one then has its owner and permissions, and else the permissions of the source, less the umask.
/// Owner, times and extended attributes of the source are not copied. `progress` receives now and then how many bytes are done.
///
/// # Errors
/// A source that cannot be read to its end, a target that cannot be made or written, both the same file; a method that cannot copy
/// between them; a copy that differs from its source; a signal.
pub fn run(job: &CopyJob, progress: &dyn Fn(u64)) -> Result<CopyResult> {
    for (name, is_wrong, why) in [
        ("block", job.block == 0, "must be at least 1"),
        ("sync", job.sync == SyncMode::Direct, "a copy goes through the page cache: none, fsync or dsync, not direct"),
        (
            "cache",
            job.state == PageCacheState::Direct,
            "a copy goes through the page cache: as-found, cached or uncached, not direct",
        ),
    ] {
        if is_wrong {
            return Err(Error::setting(name, why));
        }
    }
    let place = Arc::new(PinnedPath::open(&job.path)?);
    if place.lookup()?.is_some_and(|metadata| job.source.is_file(&metadata)) {
        let why = format!("and {} are the same file: there is nothing to copy", job.path.display());
        return Err(Error::unusable(job.source.path(), why));
    }
    let mut file = AtomicFile::create(&place, job.replace)?;
    let empty = file.target().map_err(|error| error.with_path(&job.path))?;
    let source_file = job.source.open(Access::Buffered)?;
    file.copy_mode(source_file.metadata().map_err(|error| Error::call("look at", job.source.path(), error))?.mode());
    file.check_size(job.source.bytes())?;
    let before = known_residency(cache::set_cache_state(&job.source, job.state), job.state)?;
    let target_file =
        empty.open_to_write(Access::Buffered, job.sync.flags()).map_err(|error| error.with_path(&job.path))?;
    let mut result = CopyRun { job, source_file: &source_file, target_file: &target_file, file: &file, progress }
        .execute(&empty, before)?;
    // Closed first, so that nobody else has it open: what could not be stored is an error.
    kelvin_sys::fs::close(target_file).map_err(|error| Error::call("close", &job.path, error))?;
    if job.verify {
        result.verified = Some(verify_copy(job, &empty, &file)?);
    }
    file.commit()?;
    if job.sync != SyncMode::None {
        place.flush_name()?;
    }
    result.io.notes.extend(job.source.check_unchanged().err().map(|changed| changed.to_string()));
    result.expected =
        expected_rate::expected_rate(&job.source, &place, (result.method, job.block, result.io.total.bytes));
    Ok(result)
}

/// A copy that is being made: its job, and both files, open.
struct CopyRun<'a> {
    job: &'a CopyJob,
    source_file: &'a File,
    target_file: &'a File,
    file: &'a AtomicFile,
    progress: &'a dyn Fn(u64),
}

impl CopyRun<'_> {
    /// Copies all of it by the first method that can, and flushes it.
    fn execute(&self, empty: &Target, before: Option<Residency>) -> Result<CopyResult> {
        let job = self.job;
        let source_usage = UsageStart::now(Device::of_file(&job.source));
        let target_usage = UsageStart::now(Device::of_file(empty));
        let mut run_queue = RunQueueWait::of_thread();
        let (waited_before, start) = (run_queue.nanoseconds(), monotonic());
        let (stop, mut refusals, mut copied) = (AtomicBool::new(false), Vec::new(), None);
        for method in job.method.methods(job.source.bytes()) {
            match self.copy_with(method, &stop) {
                Ok(work) => {
                    copied = Some(work);
                    break;
                }
                Err(MethodError::Failed(error)) => return Err(error),
                Err(MethodError::Unsupported(why)) => refusals.push(why),
            }
        }
        let Some((mut copier, holes)) = copied else {
            let why = refusals.pop().unwrap_or_default();
            return Err(Error::setting("method", format!("{why}; --method auto takes one that can")));
        };
        let (method, last_copied) = (copier.method, monotonic());
        copier.observer.record_second(last_copied);
        // O_DSYNC does nothing for what no write brought there.
        let is_flushed = job.sync == SyncMode::Fsync || job.sync == SyncMode::Dsync && method == CopyMethod::Reflink;
        let flush = is_flushed.then(|| cache::timed_flush(self.target_file, &job.path)).transpose()?;
        copier.calls.fsync += u64::from(is_flushed);
        let end = monotonic();
        let target_usage = target_usage.finish();
        let ready = run_queue.nanoseconds().zip(waited_before).map(|(now, before)| now.saturating_sub(before));
        let source_device = source_usage.finish().device;
        let dirty_pages = cache::dirty_pages(self.target_file, &job.path)?;
        let after = known_residency(cache::residency(&job.source), PageCacheState::AsFound)?;
        let split = copier.timing.as_ref().filter(|_| method == CopyMethod::ReadWrite).map(CopyTiming::split);
        let thread = ThreadResult {
            tally: copier.observer.tally,
            start,
            end,
            passes: 1,
            digest: None,
            latencies: copier.timing.map(|timing| timing.histogram),
            series: copier.observer.bytes_per_second,
            achieved_depth: None,
            notes: Vec::new(),
        };
        let residency = (before.unwrap_or(NO_PAGES), after.unwrap_or(NO_PAGES));
        let io = IoResult::from_threads(vec![thread], target_usage, residency);
        let breakdown = TimeBreakdown {
            total: io.nanoseconds,
            cpu: io.cpu_usage.user + io.cpu_usage.system,
            run_queue: ready,
            flush: flush.unwrap_or(0),
            reading: split.map(|(reading, _)| reading),
            writing: split.map(|(_, writing)| writing),
        };
        // It has as many bytes as were copied and left out as holes.
        let size = self.target_file.metadata().map_err(|error| Error::call("look at", &job.path, error))?.len();
        let expected = io.total.bytes + if method == CopyMethod::Reflink { 0 } else { holes.bytes };
        if size != expected {
            let change = format!("it has {size} bytes, and {expected} were copied");
            return Err(Error::Changed { path: job.path.clone(), change });
        }
        Ok(CopyResult {
            io,
            source_device,
            method,
            refusals,
            calls: copier.calls,
            breakdown,
            holes,
            dirty_pages,
            verified: None,
            is_residency_known: before.is_some() && after.is_some(),
            expected: Err("it was not asked for".into()),
        })
    }

    /// Copies all of it by one method, and returns what became of the holes.
    fn copy_with<'a>(&'a self, method: CopyMethod, stop: &'a AtomicBool) -> MethodResult<(Copier<'a>, Holes)> {
        let source = &self.job.source;
        if method != CopyMethod::ReadWrite {
            // Calls that do not pass through memory copy what a file states, and some files state less than they have.
            source.check_end().map_err(|error| match error {
                Error::SizeUnderstated { path, bytes } => MethodError::Unsupported(format!(
                    "{} copies as much as a file states, and {} has more than the {bytes} bytes that it states",
                    method.name(),
                    path.display()
                )),
                error => error.into(),
            })?;
        }
        let layout_file = source.open(Access::Buffered)?;
        let mut layout = DataRanges::new(source, &layout_file)?;
        if method != CopyMethod::Reflink {
            // Of a file that compresses where it is, or has holes, more may be needed than its bytes on the device, or less.
            let on_device = layout_file.metadata().map_or(u64::MAX, |metadata| metadata.blocks().saturating_mul(512));
            self.file.check_free_space(source.bytes().min(on_device), false)?;
        }
        let mut copier = Copier::new(self, method, stop)?;
        match method {
            CopyMethod::Reflink => copier.copy_range(0..source.bytes()).map(drop)?,
            _ => self.copy_data_ranges(&mut layout, &mut copier)?,
        }
        // Its memory goes within the time of the copy.
        copier.buffer = None;
        copier.calls.lseek += layout.seeks;
        if layout.ends_in_hole {
            self.target_file.set_len(source.bytes()).map_err(|error| Error::call("lengthen", &self.job.path, error))?;
            copier.calls.ftruncate += 1;
        }
        Ok((copier, layout.holes))
    }

    /// Copies what is no hole, and what is behind the end that the source states.
    fn copy_data_ranges(&self, layout: &mut DataRanges<'_>, copier: &mut Copier<'_>) -> MethodResult<()> {
        let source = &self.job.source;
        while let Some(part) = layout.next_range()? {
            let range_end = part.end;
            let end = copier.copy_range(part)?;
            if end < range_end {
                // As the files of /sys, which state a page; every other one became shorter.
                return if may_overstate(source.path()) { Ok(()) } else { Err(source.truncated_error(end).into()) };
            }
        }
        if copier.method == CopyMethod::ReadWrite && !layout.ends_in_hole {
            // It sees the bytes, and so the end of a file that states another size than it has.
            copier.copy_range(source.bytes()..u64::MAX)?;
        }
        Ok(())
    }
}

/// Of a file without pages.
const NO_PAGES: Residency = Residency { pages: 0, mincore: 0, cachestat: None };

/// What is in memory; none where that is not known, and no state was asked for that must be proven.
fn known_residency(residency: Result<Residency>, state: PageCacheState) -> Result<Option<Residency>> {
    match residency {
        Err(Error::Syscall { source, .. })
            if state == PageCacheState::AsFound && source.raw_os_error() == Some(Errno::NODEV.raw_os_error()) =>
        {
            Ok(None)
        }
        residency => residency.map(Some),
    }
}

/// Bytes of a block by which two files are compared.
const COMPARE_BLOCK: usize = 1 << 20;

/// Compares all bytes of the copy with those of its source; from the device, where it was flushed and can be dropped from memory.
fn verify_copy(job: &CopyJob, empty: &Target, file: &AtomicFile) -> Result<VerifiedFrom> {
    let copy = Target::find(empty.path()).map_err(|error| error.with_path(&job.path))?;
    let is_dropped = job.sync != SyncMode::None && cache::set_cache_state(&copy, PageCacheState::Uncached).is_ok();
    let source = job.source.open(Access::Buffered)?;
    let mut blocks = [vec![0; COMPARE_BLOCK], vec![0; COMPARE_BLOCK]];
    let mut offset = 0;
    loop {
        check_stop_signal()?;
        let [source_block, copy_block] = &mut blocks;
        let read = read_full_block(&source, source_block, offset)
            .map_err(|error| job.source.read_error(offset, COMPARE_BLOCK, error))?;
        let copied = read_full_block(file.file(), copy_block, offset)
            .map_err(|error| Error::call(format!("read {COMPARE_BLOCK} bytes at {offset} of"), &job.path, error))?;
        if let Some(difference) = first_difference(&source_block[..read], &copy_block[..copied]) {
            let difference = offset + difference as u64;
            let original = job.source.path().display();
            let why = format!("differs from {original} from byte {difference} on, and was removed");
            return Err(Error::unusable(&job.path, why));
        }
        if read == 0 {
            return Ok(if is_dropped { VerifiedFrom::FromDevice } else { VerifiedFrom::InMemory });
        }
        offset += read as u64;
    }
}

/// The first byte at which two texts differ, or at which one of them ends.
fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    // Comparing all at once is much faster, and they seldom differ.
    (left != right).then(|| left.iter().zip(right).take_while(|(left, right)| left == right).count())
}

/// Reads until a block is full or the file ends.
fn read_full_block(file: &File, block: &mut [u8], offset: u64) -> std::io::Result<usize> {
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
    struct CopyFixture {
        directory: tempfile::TempDir,
        content: Vec<u8>,
    }

    impl CopyFixture {
        fn new(bytes: usize) -> Self {
            let directory = tempfile::tempdir_in(".").unwrap();
            let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
            std::fs::write(directory.path().join("source"), &content).unwrap();
            Self { directory, content }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn job(&self, choice: MethodChoice) -> CopyJob {
            CopyJob {
                source: Target::find(&self.path("source")).unwrap(),
                path: self.path("copy"),
                replace: true,
                method: choice,
                block: 4096,
                sync: SyncMode::None,
                state: PageCacheState::AsFound,
                verify: true,
                latencies: Some((Clock::MonotonicRaw, 1e9)),
            }
        }

        fn names(&self) -> usize {
            std::fs::read_dir(self.directory.path()).unwrap().count()
        }
    }

    fn run_copy(job: &CopyJob) -> CopyResult {
        run(job, &|_| ()).unwrap_or_else(|error| panic!("{job:?}: {error}"))
    }

    fn run_error(job: &CopyJob) -> String {
        run(job, &|_| ()).unwrap_err().to_string()
    }

    /// Every method; one that shares blocks only where the file system can.
    fn choices(bench: &CopyFixture) -> Vec<MethodChoice> {
        let can_share = run(&bench.job(MethodChoice::Only(CopyMethod::Reflink)), &|_| ()).is_ok();
        let methods = CopyMethod::ALL.into_iter().filter(|&method| method != CopyMethod::Reflink || can_share);
        methods.map(MethodChoice::Only).chain([MethodChoice::Auto]).collect()
    }

    #[test]
    fn all_methods_and_policies_copy_all_bytes() {
        let bench = CopyFixture::new(1_000_003);
        for choice in choices(&bench) {
            for (sync, block) in [(SyncMode::None, 4096), (SyncMode::Fsync, 777), (SyncMode::Dsync, 1 << 20)] {
                let job = CopyJob { sync, block, ..bench.job(choice) };
                let result = run_copy(&job);
                assert!(std::fs::read(bench.path("copy")).unwrap() == bench.content, "{job:?}");
                let total = result.io.total;
                assert_eq!(
                    (total.bytes, result.io.bytes_per_second.iter().sum::<u64>()),
                    (1_000_003, 1_000_003),
                    "{job:?}"
                );
                assert_eq!(result.io.latencies.as_ref().unwrap().count(), total.requests, "{job:?}");
                assert_eq!(result.breakdown.flush > 0, sync == SyncMode::Fsync, "{result:?}");
                assert!(result.calls.total() >= total.requests && result.verified.is_some(), "{result:?}");
                match result.method {
                    CopyMethod::ReadWrite => {
                        // One read more finds the end.
                        assert_eq!((result.calls.read, result.calls.write), (total.requests + 1, total.requests));
                        assert_eq!(total.requests, 1_000_003u64.div_ceil(block as u64));
                        assert!(result.breakdown.reading.is_some() && result.breakdown.writing.is_some());
                    }
                    _ => assert!(result.calls.read == 0 && result.breakdown.reading.is_none()),
                }
            }
        }
        assert_eq!(bench.names(), 2);
    }

    #[test]
    fn holes_are_preserved() {
        const MIB: u64 = 1 << 20;
        let bench = CopyFixture::new(0);
        // A hole, data, a hole, data that ends within a block, a hole.
        let source = File::options().write(true).open(bench.path("source")).unwrap();
        source.set_len(64 * MIB).unwrap();
        source.write_all_at(&[1; 10_000], 8 * MIB).unwrap();
        source.write_all_at(&[2; 5], 40 * MIB + 4096).unwrap();
        source.sync_all().unwrap();
        for choice in choices(&bench) {
            let result = run_copy(&bench.job(choice));
            let copy = bench.path("copy").metadata().unwrap();
            assert_eq!(copy.len(), 64 * MIB, "{choice:?}");
            assert!(copy.blocks() * 512 < MIB, "{choice:?}: {} blocks", copy.blocks());
            if result.method != CopyMethod::Reflink {
                assert_eq!((result.holes.count, result.holes.is_layout_unknown), (3, false), "{choice:?}");
                assert_eq!(result.io.total.bytes + result.holes.bytes, 64 * MIB, "{choice:?}");
            }
        }
    }

    #[test]
    fn empty_and_all_hole_files_are_copied() {
        let bench = CopyFixture::new(0);
        for choice in
            [MethodChoice::Auto, MethodChoice::Only(CopyMethod::ReadWrite), MethodChoice::Only(CopyMethod::Sendfile)]
        {
            let empty = run_copy(&bench.job(choice));
            assert_eq!((empty.io.total.bytes, bench.path("copy").metadata().unwrap().len()), (0, 0));
            assert!(empty.expected.is_err() && empty.refusals.is_empty());
        }
        File::options().write(true).open(bench.path("source")).unwrap().set_len(1 << 20).unwrap();
        let hole = run_copy(&bench.job(MethodChoice::Only(CopyMethod::ReadWrite)));
        assert_eq!((hole.io.total.bytes, hole.holes.bytes), (0, 1 << 20));
        assert_eq!(bench.path("copy").metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn proc_file_is_copied_or_refused() {
        let bench = CopyFixture::new(0);
        let proc_job = |choice| CopyJob {
            source: Target::find(Path::new("/proc/version")).unwrap(),
            verify: false,
            ..bench.job(choice)
        };
        let version = std::fs::read("/proc/version").unwrap();
        for choice in [MethodChoice::Auto, MethodChoice::Only(CopyMethod::ReadWrite)] {
            let result = run_copy(&CopyJob { block: 7, ..proc_job(choice) });
            assert_eq!((result.method, result.io.total.bytes), (CopyMethod::ReadWrite, version.len() as u64));
            assert!(std::fs::read(bench.path("copy")).unwrap() == version);
            std::fs::remove_file(bench.path("copy")).unwrap();
        }
        for method in [CopyMethod::Sendfile, CopyMethod::CopyFileRange, CopyMethod::Reflink] {
            let why = run_error(&proc_job(MethodChoice::Only(method)));
            assert!(why.starts_with("method: ") && why.contains("more than the 0 bytes"), "{why}");
        }
        assert_eq!(bench.names(), 1);
    }

    #[test]
    fn failed_copy_leaves_no_file() {
        let bench = CopyFixture::new(100_000);
        std::fs::hard_link(bench.path("source"), bench.path("linked")).unwrap();
        std::fs::write(bench.path("there"), "the user's").unwrap();
        let rw = || bench.job(MethodChoice::Only(CopyMethod::ReadWrite));
        for name in ["source", "linked"] {
            assert!(run_error(&CopyJob { path: bench.path(name), ..rw() }).contains("are the same file"), "{name}");
        }
        let job = CopyJob { path: bench.path("there"), replace: false, ..rw() };
        assert!(run_error(&job).contains("there exists"));
        assert!(run_error(&CopyJob { block: 0, ..rw() }).contains("block: must be at least 1"));
        assert!(run_error(&CopyJob { sync: SyncMode::Direct, ..rw() }).contains("sync: "));
        assert!(run_error(&CopyJob { state: PageCacheState::Direct, ..rw() }).contains("cache: "));
        assert!(run_error(&CopyJob { path: bench.path("none/copy"), ..rw() }).contains("there is no directory"));
        assert!(run_error(&CopyJob { path: bench.directory.path().to_owned(), ..rw() }).contains("is a directory"));
        assert_eq!((bench.names(), std::fs::read_to_string(bench.path("there")).unwrap().as_str()), (3, "the user's"));
        // Nothing is known that could be copied: the file became shorter after it was found.
        let stale = rw();
        File::options().write(true).open(bench.path("source")).unwrap().set_len(50_000).unwrap();
        assert!(run_error(&stale).contains("became shorter"));
        assert_eq!(bench.names(), 3);
    }

    #[test]
    fn copy_has_source_mode_less_umask() {
        let bench = CopyFixture::new(10);
        std::fs::write(bench.path("usual"), "").unwrap();
        let mode = |name: &str| bench.path(name).metadata().unwrap().permissions().mode() & 0o7777;
        let default_mode = mode("usual");
        for (original, allowed) in [
            (0o600, default_mode),
            (0o444, default_mode),
            (0o755, default_mode | (default_mode & 0o444) >> 2),
            (0o4644, default_mode),
        ] {
            let _ = std::fs::remove_file(bench.path("copy"));
            std::fs::set_permissions(bench.path("source"), std::fs::Permissions::from_mode(original)).unwrap();
            run_copy(&bench.job(MethodChoice::Auto));
            assert_eq!(mode("copy"), original & allowed & 0o777, "{original:o}");
        }
        // What is replaced keeps its own.
        std::fs::set_permissions(bench.path("copy"), std::fs::Permissions::from_mode(0o640)).unwrap();
        run_copy(&bench.job(MethodChoice::Auto));
        assert_eq!(mode("copy"), 0o640);
    }

    #[test]
    fn cross_device_copy_falls_back_only_for_auto() {
        let Some(shm) = kelvin_testing::memory_dir("copying from one file system to another") else { return };
        let memory_directory = tempfile::tempdir_in(shm).unwrap();
        let bench = CopyFixture::new(300_000);
        let cross_device_job = |choice| CopyJob { path: memory_directory.path().join("copy"), ..bench.job(choice) };
        let result = run_copy(&cross_device_job(MethodChoice::Auto));
        assert_eq!((result.method, result.refusals.len()), (CopyMethod::ReadWrite, 2), "{:?}", result.refusals);
        assert!(
            result.refusals[0].starts_with("reflink ") && result.refusals[1].starts_with("copy_file_range does not go")
        );
        assert!(std::fs::read(memory_directory.path().join("copy")).unwrap() == bench.content);
        std::fs::remove_file(memory_directory.path().join("copy")).unwrap();
        for (method, word) in [(CopyMethod::Reflink, "reflink shares"), (CopyMethod::CopyFileRange, "does not go from")]
        {
            let why = run_error(&cross_device_job(MethodChoice::Only(method)));
            assert!(why.starts_with("method: ") && why.contains(word) && why.contains("--method auto"), "{why}");
        }
        let sendfile_result = run_copy(&cross_device_job(MethodChoice::Only(CopyMethod::Sendfile)));
        assert_eq!(
            (sendfile_result.method, sendfile_result.calls.sendfile),
            (CopyMethod::Sendfile, 300_000u64.div_ceil(4096))
        );
    }

    #[test]
    fn the_first_difference_is_found() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"ab"), Some(2));
        assert_eq!(first_difference(b"", b"a"), Some(0));
    }

    #[test]
    fn large_copy_reports_progress() {
        let bench = CopyFixture::new(20 << 20);
        let reports = std::cell::RefCell::new(Vec::new());
        run(&CopyJob { block: 1 << 20, ..bench.job(MethodChoice::Auto) }, &|bytes| reports.borrow_mut().push(bytes))
            .unwrap();
        let reports = reports.into_inner();
        assert!(!reports.is_empty() && reports.windows(2).all(|pair| pair[0] < pair[1]), "{reports:?}");
    }

    const CPU_BOUND: TimeBreakdown =
        TimeBreakdown { total: 1000, cpu: 950, run_queue: Some(20), flush: 0, reading: Some(300), writing: Some(690) };

    #[test]
    fn largest_share_is_the_bottleneck() {
        assert_eq!(CPU_BOUND.bottleneck(true), (CopyBottleneck::Cpu, 0.95));
        assert_eq!(TimeBreakdown { cpu: 200, flush: 700, ..CPU_BOUND }.bottleneck(true), (CopyBottleneck::Flush, 0.7));
        assert_eq!(
            TimeBreakdown { cpu: 300, run_queue: Some(650), ..CPU_BOUND }.bottleneck(true),
            (CopyBottleneck::OtherWork, 0.65)
        );
        assert_eq!(
            TimeBreakdown { cpu: 200, reading: Some(800), writing: Some(190), ..CPU_BOUND }.bottleneck(false),
            (CopyBottleneck::Source, 0.78)
        );
        assert_eq!(
            TimeBreakdown { cpu: 200, reading: Some(100), writing: Some(890), ..CPU_BOUND }.bottleneck(false),
            (CopyBottleneck::Target, 0.78)
        );
    }

    #[test]
    fn unsplit_wait_is_source_unless_cached() {
        let together = TimeBreakdown { cpu: 100, reading: None, writing: None, ..CPU_BOUND };
        assert_eq!(together.bottleneck(false).0, CopyBottleneck::Source);
        assert_eq!(together.bottleneck(true).0, CopyBottleneck::Target);
    }

    #[test]
    fn zero_time_has_valid_shares() {
        let none = TimeBreakdown::default();
        assert_eq!((none.bottleneck(true), none.waiting()), ((CopyBottleneck::Cpu, 0.0), 0));
        let excess = TimeBreakdown { total: 10, cpu: 30, run_queue: Some(u64::MAX), ..none };
        assert_eq!((excess.bottleneck(true).1, excess.waiting()), (1.0, 0));
    }
}
