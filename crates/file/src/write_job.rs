//! A file written by many threads at once, and the result.
//!
//! The file is new: each write also allocates blocks. In the end it exists whole, or not at all; see [`run`].

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::uring::IoDirection;

use crate::access::Access;
use crate::atomic_file::{AtomicFile, PinnedPath};
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};
use crate::cache;
use crate::device::Device;
use crate::engine::syscalls::{IoCall, SyscallEngine};
use crate::engine::uring::UringEngine;
use crate::engine::{BlockEngine, BlockFile, Flow, IoWorker, named};
use crate::io_result::{IoResult, UsageStart};
use crate::observer::{EndCondition, Observer};
use crate::random_data::RandomData;
use crate::reader_threads::{self, Division, ThreadPlan, ThreadRequests};
use crate::target::Target;
use crate::{Error, PagePolicy, Result};

/// A way of writing blocks of memory to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEngine {
    /// write(2), with lseek(2) before it where a thread's part begins.
    Write,
    /// pwrite(2).
    Pwrite,
    /// io_uring, at this queue depth.
    Uring {
        /// Queue depth.
        depth: u32,
        /// Whether file and buffers are registered beforehand.
        registered: bool,
    },
}

impl WriteEngine {
    /// Every one, io_uring at depth 1.
    pub const ALL: [Self; 4] = [
        Self::Write,
        Self::Pwrite,
        Self::Uring { depth: 1, registered: false },
        Self::Uring { depth: 1, registered: true },
    ];

    /// Its name on the command line and in reports, without the depth.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Pwrite => "pwrite",
            Self::Uring { registered: false, .. } => "io_uring",
            Self::Uring { registered: true, .. } => "io_uring-fixed",
        }
    }
}

named!(WriteEngine, "writing");

/// When data counts as written. It is part of what a figure of writing is: each is another quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// When the kernel has it in memory; a loss of power may lose it.
    None,
    /// When all of it was flushed to the device, once at the end (fsync).
    Fsync,
    /// When the device reports it durable, block by block (O_DSYNC).
    Dsync,
    /// When the device has accepted it, block by block, past the page cache (O_DIRECT). The device's own cache is not flushed.
    Direct,
}

impl SyncMode {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::None, Self::Fsync, Self::Dsync, Self::Direct];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fsync => "fsync",
            Self::Dsync => "dsync",
            Self::Direct => "direct",
        }
    }

    /// Flags of open(2) besides that of direct I/O.
    pub(crate) fn flags(self) -> i32 {
        if self == Self::Dsync { kelvin_sys::direct_io::O_DSYNC } else { 0 }
    }
}

impl FromStr for SyncMode {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let unknown_mode = || "the sync policy is one of: none, fsync, dsync, direct".to_owned();
        Self::ALL.into_iter().find(|sync| sync.name() == name).ok_or_else(unknown_mode)
    }
}

/// The content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Numbers that neither compress nor repeat: the same file for the same seed, in blocks of any size.
    Random {
        /// Chooses them.
        seed: u64,
    },
    /// One byte repeated: a drive or a file system that compresses need hardly write it.
    Byte(u8),
}

impl Pattern {
    /// Fills the buffer of a request, before its time begins. It holds the byte of a [`Pattern::Byte`] from the beginning.
    #[inline]
    fn fill_block(self, request: BlockRequest, buffer: &mut [u8]) {
        let (block, padding) = buffer.split_at_mut(request.bytes);
        if let Self::Random { seed } = self {
            RandomData::fill_at(seed, request.offset, block);
        }
        // Only the last block of a file is ever padded, and no other one is written after it from the same buffer.
        padding.fill(0);
    }

    /// The cost of making a block of it, in nanoseconds. That much of a request's time is not the file's, though it is not part
    /// of its latency.
    pub fn fill_cost(self, block: usize) -> f64 {
        const REPEATS: usize = 9;
        /// Fewest bytes of a repetition, so that the clock is no part of the figure.
        const MIN_COST_BYTES: usize = 1 << 20;
        let mut buffer = vec![0; block];
        let request = BlockRequest { offset: 0, bytes: block };
        let blocks = MIN_COST_BYTES.div_ceil(block.max(1));
        let costs: Vec<f64> = (0..REPEATS)
            .map(|_| {
                let start = monotonic();
                for _ in 0..blocks {
                    self.fill_block(request, std::hint::black_box(&mut buffer));
                }
                (monotonic() - start) as f64 / blocks as f64
            })
            .collect();
        kelvin_stats::median(&costs)
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// `random`, with seed 0, or a byte.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "random" {
            return Ok(Self::Random { seed: 0 });
        }
        let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        // A sign would be taken for a part of the number.
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, radix).ok().filter(|_| is_number);
        byte.map(Self::Byte).ok_or_else(|| "a pattern is `random`, or a byte from 0 to 255 or 0x00 to 0xff".into())
    }
}

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
    /// Size of the file, in bytes. An incomplete block at its end is a shorter block. Past the page cache it is padded with
    /// zeros to the device's alignment, and the file then truncated to its size. That leaves its last page in memory.
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
    /// Pages still dirty when the time ended; `None` where the kernel does not report it.
    pub dirty_pages: Option<u64>,
}

/// Writes a file: in the same directory, under another name, and renamed when it is whole. On an error, and on a signal, it is
/// removed; after a killed process, when the next one makes a file there. A file to be replaced stays as it was until the new
/// one is flushed, outside of the time. The new one has owner and permissions of the old one; other hard links to that one
/// still lead to it.
///
/// # Errors
/// A file that cannot be made or written, or become so large; an existing one that may not be replaced; settings that do not go
/// together; a signal.
pub fn run(job: &WriteJob) -> Result<WriteResult> {
    if i64::try_from(job.bytes).is_err() {
        return Err(Error::setting("size", format!("no file has {} bytes: at most 2^63 - 1 are possible", job.bytes)));
    }
    let &WriteJob { threads, block, digest, latencies, .. } = job;
    let (order, division, until) = (BlockOrder::Sequential, Division::Parts, EndCondition::Passes(1));
    let plan = ThreadPlan { threads, block, range: 0..job.bytes, order, division, until, digest, latencies };
    let requests = plan.split_among_threads()?;
    let place = Arc::new(PinnedPath::open(&job.path)?);
    let file = AtomicFile::create(&place, job.replace)?;
    file.check_size(job.bytes)?;
    file.check_free_space(job.bytes, matches!(job.pattern, Pattern::Random { .. }))?;
    // Its temporary name means nothing to the user.
    let written = file
        .target()
        .and_then(|empty| write_blocks(job, &plan, requests, &empty))
        .map_err(|error| error.with_path(&job.path))?;
    file.commit()?;
    if matches!(job.sync, SyncMode::Fsync | SyncMode::Dsync) {
        // What is to survive a loss of power must do so under its name.
        place.flush_name()?;
    }
    Ok(written)
}

/// A file that is open to be written in one way.
struct Writer {
    target: Target,
    pattern: Pattern,
    engine: BlockEngine,
}

impl Writer {
    /// Opens an empty file to be written.
    fn open(target: &Target, job: &WriteJob) -> Result<Self> {
        let access = if job.sync == SyncMode::Direct { Access::Direct } else { Access::Buffered };
        let file = target.open_to_write(access, job.sync.flags())?;
        let file = BlockFile { target: target.clone(), file, block: job.block, access, pages: job.pages };
        let mut engine = match job.engine {
            WriteEngine::Write => SyscallEngine::open(IoCall::Write, file)?,
            WriteEngine::Pwrite => SyscallEngine::open(IoCall::Pwrite, file)?,
            WriteEngine::Uring { depth, registered } => {
                UringEngine::open(IoDirection::Write, (depth, registered), file)?
            }
        };
        match (job.pattern, &mut engine) {
            (Pattern::Byte(byte), BlockEngine::Syscall(engine)) => engine.buffer.as_mut_slice().fill(byte),
            (Pattern::Byte(byte), BlockEngine::Uring(engine)) => engine.each_buffer(|buffer| buffer.fill(byte)),
            _ => {}
        }
        Ok(Self { target: target.clone(), pattern: job.pattern, engine })
    }
}

impl IoWorker for Writer {
    fn run_requests<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Flow {
        let pattern = self.pattern;
        self.engine.run_requests(requests, observer, |request, buffer| pattern.fill_block(request, buffer))
    }

    fn engine(&self) -> &BlockEngine {
        &self.engine
    }

    fn finish(&self) -> Result<()> {
        let file = match &self.engine {
            BlockEngine::Syscall(engine) => &engine.file,
            BlockEngine::Uring(engine) => engine.ring.file(),
            _ => return Ok(()),
        };
        // That of a duplicate reports what that of the file would.
        let closed = file.try_clone().and_then(kelvin_sys::fs::close);
        closed.map_err(|error| Error::call("close", self.target.path(), error))
    }
}

/// Writes all of an empty file.
fn write_blocks(
    job: &WriteJob,
    plan: &ThreadPlan,
    requests: Vec<ThreadRequests>,
    empty: &Target,
) -> Result<WriteResult> {
    let before = cache::residency(empty)?;
    let resources = UsageStart::now(Device::of_file(empty));
    let results = reader_threads::run_threads(plan, requests, || Writer::open(empty, job))?;
    let (flush, flush_end) = flush_file(job, empty)?;
    let resources = resources.finish();
    let dirty_pages = cache::dirty_pages(&empty.open(Access::Buffered)?, empty.path())?;
    let written = Target::find(empty.path())?;
    if written.bytes() != job.bytes {
        let change = format!("it has {} bytes, and {} were written", written.bytes(), job.bytes);
        return Err(Error::Changed { path: job.path.clone(), change });
    }
    let after = cache::residency(&written)?;
    let start = results.iter().map(|member| member.start).min();
    let mut io = IoResult::from_threads(results, resources, (before, after));
    if let (Some(start), Some(flush_end)) = (start, flush_end) {
        io.nanoseconds = flush_end - start;
    }
    Ok(WriteResult { io, flush, dirty_pages })
}

/// The sync policy's work after the last write: nanoseconds of the flush, and when it was done, in nanoseconds of the monotonic
/// clock. `None` if there was nothing to do.
fn flush_file(job: &WriteJob, target: &Target) -> Result<(Option<u64>, Option<u64>)> {
    let overhang = job.sync == SyncMode::Direct && !job.bytes.is_multiple_of(target.alignment()?);
    if job.sync != SyncMode::Fsync && !overhang {
        return Ok((None, None));
    }
    let file = target.open_to_write(Access::Buffered, 0)?;
    if overhang {
        file.set_len(job.bytes).map_err(|error| Error::call("truncate", target.path(), error))?;
        return Ok((None, Some(monotonic())));
    }
    let took = cache::timed_flush(&file, target.path())?;
    Ok((Some(took), Some(monotonic())))
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
            pattern: Pattern::Random { seed: 3 },
            pages: PagePolicy::Base,
            digest: true,
            latencies: Some((Clock::MonotonicRaw, 1e9)),
        }
    }

    fn expected(pattern: Pattern, bytes: u64) -> Vec<u8> {
        let mut content = vec![0; bytes as usize];
        match pattern {
            Pattern::Random { seed } => RandomData::fill_at(seed, 0, &mut content),
            Pattern::Byte(byte) => content.fill(byte),
        }
        content
    }

    /// Runs a job; `None`, with the reason printed, where it needs something unavailable.
    fn run_if_supported(job: &WriteJob) -> Option<WriteResult> {
        match run(job) {
            Ok(result) => Some(result),
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
        let uring_engines = [3, 32].map(|depth| WriteEngine::Uring { depth, registered: depth == 3 });
        for engine in WriteEngine::ALL.into_iter().chain(uring_engines) {
            for sync in SyncMode::ALL {
                for (bytes, block, threads) in [(1, 4096, 1), (100_003, 4096, 3), (1_000_000, 1 << 16, 2)] {
                    for pattern in [Pattern::Random { seed: bytes }, Pattern::Byte(0xa5)] {
                        let job = WriteJob { engine, sync, block, threads, bytes, pattern, ..job(&path) };
                        let Some(result) = run_if_supported(&job) else { continue };
                        let content = expected(pattern, bytes);
                        assert!(std::fs::read(&path).unwrap() == content, "{job:?}");
                        let mut digest = Digest::default();
                        digest.add(0, &content);
                        assert_eq!(result.io.digest, Some(digest), "{job:?}");
                        let requests = bytes.div_ceil(block as u64);
                        assert_eq!((result.io.total.bytes, result.io.total.requests), (bytes, requests));
                        assert_eq!(result.io.latencies.unwrap().count(), requests);
                        assert_eq!(result.io.bytes_per_second.iter().sum::<u64>(), bytes);
                        assert_eq!(result.flush.is_some(), sync == SyncMode::Fsync);
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
            let Some(result) = run_if_supported(&WriteJob { engine, block: 777, threads: 4, ..job(&path) }) else {
                continue;
            };
            assert!(std::fs::read(&path).unwrap() == expected(Pattern::Random { seed: 3 }, 100_003));
            assert_eq!(result.io.total.requests, 129);
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
        let error_text = |job: WriteJob| run(&job).unwrap_err().to_string();
        assert!(error_text(WriteJob { threads: 26, ..job(&path) }).contains("there are 25 blocks"));
        assert!(error_text(WriteJob { block: 0, ..job(&path) }).contains("block: must be at least 1"));
        assert!(error_text(WriteJob { bytes: u64::MAX, ..job(&path) }).contains("2^63"));
        let engine = WriteEngine::Uring { depth: 100_000, registered: false };
        assert!(error_text(WriteJob { engine, ..job(&path) }).contains("100000"));
        assert!(
            error_text(WriteJob { sync: SyncMode::Direct, block: 1000, ..job(&path) }).contains("past the page cache")
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        std::fs::write(&path, "the user's").unwrap();
        assert!(error_text(WriteJob { replace: false, ..job(&path) }).contains("file exists"));
        // An error next to a file names the file, and leaves it as it was.
        let error = error_text(WriteJob { sync: SyncMode::Direct, block: 1000, ..job(&path) });
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

    #[test]
    fn write_names_round_trip() {
        for engine in WriteEngine::ALL {
            assert_eq!(engine.name().parse(), Ok(engine));
        }
        for sync in SyncMode::ALL {
            assert_eq!(sync.name().parse(), Ok(sync));
        }
        assert!("mmap".parse::<WriteEngine>().unwrap_err().contains("pwrite"));
        assert!("later".parse::<SyncMode>().unwrap_err().contains("dsync"));
        assert!(WriteEngine::Pwrite.with_depth(2).is_err());
        let uring_engine = WriteEngine::Uring { depth: 1, registered: true }.with_depth(8).unwrap();
        assert_eq!((uring_engine.to_string().as_str(), uring_engine.depth()), ("io_uring-fixed depth 8", 8));
    }

    #[test]
    fn pattern_parses_random_or_byte() {
        for (text, expected) in [("0", 0), ("255", 255), ("0x00", 0), ("0xA5", 0xa5), ("007", 7)] {
            assert_eq!(text.parse(), Ok(Pattern::Byte(expected)), "{text}");
        }
        assert_eq!("random".parse(), Ok(Pattern::Random { seed: 0 }));
        for invalid_text in ["", "256", "-1", "+1", "0x", "0x+1", "0x100", "a5", "zero", "1.0"] {
            let error = invalid_text.parse::<Pattern>().unwrap_err();
            assert!(error.contains("0x00 to 0xff"), "{invalid_text}");
        }
    }

    #[test]
    fn pattern_fill_has_cost() {
        for pattern in [Pattern::Random { seed: 1 }, Pattern::Byte(1)] {
            assert!(pattern.fill_cost(65536) >= 0.0, "{pattern:?}");
        }
    }
}
