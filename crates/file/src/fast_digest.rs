//! The digest of a file as fast as the machine can read it: the fastest way is found while reading.
//!
//! XOR does not depend on the order of its words, so each trial is a part of the work. Threads read one piece of the file after
//! another, first in each way and then in the best.

use std::io::{ErrorKind, Read};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

use kelvin_sys::clock::monotonic;
use kelvin_sys::lock;
use kelvin_sys::stop_signals;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::access::Access;
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};
use crate::cache;
use crate::digest::Digest;
use crate::engine::{Engine, ReadOptions, Reader};
use crate::error::check_stop_signal;
use crate::method_search::{MethodSearch, PieceAssignment, TrialRounds};
use crate::observer::Observer;
use crate::target::Target;
use crate::{PagePolicy, Result};

/// A way to read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMethod {
    /// How blocks are read.
    pub engine: Engine,
    /// Through the page cache or past it.
    pub access: Access,
    /// Bytes of a block.
    pub block: usize,
}

impl ReadMethod {
    const fn buffered(engine: Engine, block: usize) -> Self {
        Self { engine, access: Access::Buffered, block }
    }

    /// Whether the device reads more than requested: the kernel's read-ahead.
    fn has_read_ahead(self) -> bool {
        self.access == Access::Buffered
    }
}

/// How a file is read: the result of a search, which can be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSetting {
    /// The way.
    pub method: ReadMethod,
    /// Threads.
    pub threads: u32,
}

/// Where most of a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// From memory: at least half of it is there.
    Memory,
    /// From its device.
    Device,
}

/// A block that stays in the L2 cache from its copy to its digest, and is large compared with the cost of a call.
const CACHED_BLOCK: usize = 256 << 10;
/// A block read in place: the guard of the mapping is checked after each.
const MMAP_BLOCK: usize = 1 << 20;
/// A block that the kernel's read-ahead can be far ahead of.
const READ_AHEAD_BLOCK: usize = 1 << 20;
/// Queue depth past the page cache and the bytes of each request: 4 MiB, what a device of 4 GB/s moves in a millisecond.
const DIRECT_DEPTH: u32 = 8;
const DIRECT_BLOCK: usize = 512 << 10;

/// Ways to read what is in memory. Which one is faster depends on the pages that hold the file: a mapping maps large ones
/// cheaply and small ones at a high cost.
const CACHED_METHODS: [ReadMethod; 2] =
    [ReadMethod::buffered(Engine::Pread, CACHED_BLOCK), ReadMethod::buffered(Engine::MmapInPlace, MMAP_BLOCK)];
/// Ways to read what is not.
const UNCACHED_METHODS: [ReadMethod; 2] = [
    ReadMethod {
        engine: Engine::Uring { depth: DIRECT_DEPTH, registered: false },
        access: Access::Direct,
        block: DIRECT_BLOCK,
    },
    ReadMethod::buffered(Engine::Pread, READ_AHEAD_BLOCK),
];

/// Share of a file in memory from which on it is read as one that is.
const MIN_CACHED_SHARE: f64 = 0.5;
/// Most threads: memory and devices are saturated by then, and all share one guard of 256 mappings.
const MAX_THREADS: u32 = 128;
/// Bytes between two reports of progress.
const PROGRESS_STEP: u64 = 2 << 20;

impl DataSource {
    /// The ways to read it.
    pub fn methods(self) -> &'static [ReadMethod] {
        self.tuning().methods
    }

    /// Its name, as it is remembered.
    pub fn name(self) -> &'static str {
        self.tuning().name
    }

    fn tuning(self) -> SourceTuning {
        match self {
            Self::Memory => SourceTuning {
                name: "memory",
                methods: &CACHED_METHODS,
                // A fifth of a millisecond, often enough to tolerate one interrupted piece.
                trial_bytes: 4 << 20,
                rounds: TrialRounds { warm_up: 1, measurements: 3 },
                // A mapping unmaps as much at a time, while its page structures are still in the cache.
                piece_bytes: 8 << 20,
            },
            Self::Device => SourceTuning {
                name: "device",
                methods: &UNCACHED_METHODS,
                // Many times the bytes in flight; once, for a piece there is long.
                trial_bytes: 16 << 20,
                rounds: TrialRounds { warm_up: 0, measurements: 1 },
                // Past the page cache the queue drains between pieces, which must be rare.
                piece_bytes: 32 << 20,
            },
        }
    }
}

/// How a source is searched and read.
struct SourceTuning {
    name: &'static str,
    /// The ways to read it.
    methods: &'static [ReadMethod],
    /// Bytes of a trial.
    trial_bytes: u64,
    /// How often each way is tried.
    rounds: TrialRounds,
    /// Bytes that a thread takes at a time once the search is over.
    piece_bytes: u64,
}

/// The digest, and how it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DigestResult {
    /// The digest of the whole file.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// The elapsed time, trials included.
    pub nanoseconds: u64,
    /// Where most of it came from.
    pub source: DataSource,
    /// How most of it was read.
    pub setting: ReadSetting,
    /// Whether the setting is the result of a completed search, and not only its start.
    pub is_search_complete: bool,
    /// The approximate share of it that was in memory before.
    pub cached_share: f64,
}

impl DigestResult {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }
}

/// How a file may be read.
#[derive(Clone, Copy)]
pub struct DigestOptions<'a> {
    /// Most threads.
    pub max_threads: u32,
    /// The remembered setting for such a file, if any: where the search begins.
    pub remembered: &'a dyn Fn(DataSource) -> Option<ReadSetting>,
    /// Receives the bytes done, now and then.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// The digest of a file.
///
/// # Errors
/// A file that cannot be read, or that changes meanwhile; a signal.
pub fn digest_file(target: &Target, plan: DigestOptions<'_>) -> Result<DigestResult> {
    let start = monotonic();
    if target.bytes() == 0 {
        return digest_to_end(target, start);
    }
    let cached_share = cache::sample_residency(target)?;
    let source = if cached_share >= MIN_CACHED_SHARE { DataSource::Memory } else { DataSource::Device };
    let (digest, search) = DigestWork::new(target, source, &plan).read_all()?;
    let nanoseconds = monotonic() - start;
    target.check_unchanged()?;
    target.check_end()?;
    let setting = ReadSetting { method: source.methods()[search.best], threads: search.threads };
    let (bytes, is_search_complete) = (target.bytes(), search.is_conclusive);
    Ok(DigestResult { digest, bytes, nanoseconds, source, setting, is_search_complete, cached_share })
}

/// The digest of a file that states no bytes. It may have some all the same, as those of /proc have, and is read until its end.
fn digest_to_end(target: &Target, start: u64) -> Result<DigestResult> {
    let (method, mut digest, mut bytes) = (CACHED_METHODS[0], Digest::default(), 0);
    let (mut file, mut block) = (target.open(Access::Buffered)?, vec![0; method.block]);
    loop {
        check_stop_signal()?;
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                digest.add(bytes, &block[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(target.read_error(bytes, method.block, error)),
        }
    }
    let (nanoseconds, setting) = (monotonic() - start, ReadSetting { method, threads: 1 });
    let (source, is_search_complete, cached_share) = (DataSource::Memory, false, 1.0);
    Ok(DigestResult { digest, bytes, nanoseconds, source, setting, is_search_complete, cached_share })
}

/// A file, and the state its threads share.
struct DigestWork<'a> {
    target: &'a Target,
    source: DataSource,
    progress: &'a (dyn Fn(u64) + Sync),
    queue: Mutex<DigestQueue>,
    read_bytes: AtomicU64,
    has_failed: AtomicBool,
    outcome: Mutex<Result<Digest>>,
}

/// The next piece, and how to read it.
struct DigestQueue {
    search: MethodSearch,
    /// The rest of the file: pieces are taken from its beginning, or from its end.
    remaining: Range<u64>,
    /// Threads started.
    started_threads: u32,
}

impl DigestQueue {
    fn remaining_bytes(&self) -> u64 {
        self.remaining.end - self.remaining.start
    }
}

/// A part of the file for one thread.
struct Piece {
    range: Range<u64>,
    turn: PieceAssignment,
}

impl<'a> DigestWork<'a> {
    fn new(target: &'a Target, source: DataSource, plan: &DigestOptions<'a>) -> Self {
        let methods = source.methods();
        let remembered = (plan.remembered)(source);
        let start_setting = remembered
            .and_then(|setting| Some((methods.iter().position(|method| *method == setting.method)?, setting.threads)));
        let (method, threads) = start_setting.unwrap_or((0, 1));
        let limit = plan.max_threads.clamp(1, MAX_THREADS);
        // No more threads than there is work for.
        let threads = u64::from(threads).min(target.bytes() / source.tuning().trial_bytes).max(1) as u32;
        let mut search = MethodSearch::new(methods.len(), source.tuning().rounds, (method, threads.min(limit)), limit);
        // How to read a device is searched for once; in memory it also depends on the pages that hold the file.
        let is_known = source == DataSource::Device && start_setting.is_some();
        if is_known || !has_enough_left(target.bytes(), source, search.stage_pieces(search.threads)) {
            search.skip();
        }
        Self {
            target,
            source,
            progress: plan.progress,
            queue: Mutex::new(DigestQueue { search, remaining: 0..target.bytes(), started_threads: 1 }),
            read_bytes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            outcome: Mutex::new(Ok(Digest::default())),
        }
    }

    /// Reads all of it: its digest, and the search for a setting as it ended.
    fn read_all(self) -> Result<(Digest, MethodSearch)> {
        std::thread::scope(|scope| self.start_thread(scope, 0));
        let digest = self.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        Ok((digest, self.queue.into_inner().unwrap_or_else(PoisonError::into_inner).search))
    }

    /// One thread: pieces until there are none left, or one thread fewer is wanted.
    fn start_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u32) {
        let result = self.read_pieces(scope, number);
        self.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
        let mut outcome = lock(&self.outcome);
        match (&mut *outcome, result) {
            (Ok(total), Ok(part)) => total.merge(part),
            (total @ Ok(_), Err(error)) => *total = Err(error),
            // The first error is that of all.
            (Err(_), _) => {}
        }
    }

    fn read_pieces<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u32) -> Result<Digest> {
        let mut readers: Vec<Option<Reader>> = self.source.methods().iter().map(|_| None).collect();
        let mut observer = PieceObserver { digest: Digest::default(), reported: 0, work: self };
        while let Some(piece) = self.take_piece(scope, number) {
            let start = monotonic();
            let method = self.read_piece(&piece, &mut readers, &mut observer)?;
            let nanoseconds = (monotonic() - start).max(1);
            if method == piece.turn.method {
                let rate = (piece.range.end - piece.range.start) as f64 / nanoseconds as f64;
                let mut queue = lock(&self.queue);
                let remaining = queue.remaining_bytes();
                queue
                    .search
                    .record_piece(number, piece.turn, rate, |pieces| has_enough_left(remaining, self.source, pieces));
            }
        }
        observer.report_progress();
        Ok(observer.digest)
    }

    /// The next piece, if this thread is still wanted; starts further threads if they are.
    fn take_piece<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u32) -> Option<Piece> {
        if self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let mut queue = lock(&self.queue);
        let turn = queue.search.next_piece(number)?;
        let range = self.cut_range(&mut queue, turn)?;
        let new_threads = queue.started_threads..queue.search.threads.max(queue.started_threads);
        queue.started_threads = new_threads.end;
        drop(queue);
        for thread_number in new_threads {
            // Where a limit forbids more, those that are there read all of it.
            if ThreadBuilder::named("digest").start_in(scope, move || self.start_thread(scope, thread_number)).is_err()
            {
                lock(&self.queue).search.limit_threads(thread_number);
                break;
            }
        }
        Some(Piece { range, turn })
    }

    /// Cuts the next piece off the rest. A way with read-ahead is tried at the end of the rest, where nothing is left to read
    /// ahead. Elsewhere another way would go on, and read the same again.
    fn cut_range(&self, queue: &mut DigestQueue, turn: PieceAssignment) -> Option<Range<u64>> {
        let SourceTuning { trial_bytes, piece_bytes, .. } = self.source.tuning();
        let longest = if turn.is_trial { trial_bytes } else { piece_bytes };
        // Smaller ones near the end, so that all threads end at about the same time.
        let share = queue.remaining_bytes() / (2 * u64::from(queue.search.threads));
        let length = share.next_multiple_of(READ_AHEAD_BLOCK as u64).clamp(READ_AHEAD_BLOCK as u64, longest);
        let Range { start, end } = queue.remaining;
        let is_at_end =
            turn.is_trial && self.source == DataSource::Device && self.source.methods()[turn.method].has_read_ahead();
        let range = if is_at_end {
            end.saturating_sub(length).next_multiple_of(READ_AHEAD_BLOCK as u64).clamp(start, end)..end
        } else {
            start..start.saturating_add(length).min(end)
        };
        queue.remaining = if is_at_end { start..range.start } else { range.end..end };
        (!range.is_empty()).then_some(range)
    }

    /// Reads a piece in its way or, where that is unavailable, in the best of the others; which one it was.
    fn read_piece(
        &self,
        piece: &Piece,
        readers: &mut [Option<Reader>],
        observer: &mut PieceObserver<'_>,
    ) -> Result<usize> {
        let mut index = piece.turn.method;
        let (method, mut reader) = loop {
            let method = self.source.methods()[index];
            match readers[index].take().map_or_else(|| self.open_reader(method), Ok) {
                Ok(reader) => break (method, reader),
                Err(error) if error.is_unsupported() => {
                    let mut queue = lock(&self.queue);
                    if !queue.search.drop_method(index) {
                        return Err(error);
                    }
                    index = queue.search.best;
                }
                Err(error) => return Err(error),
            }
        };
        reader.read(&mut BlockRequests::new(piece.range.clone(), method.block, BlockOrder::Sequential), observer)?;
        check_stop_signal()?;
        reader.unmap_pages()?;
        readers[index] = Some(reader);
        Ok(index)
    }

    fn open_reader(&self, method: ReadMethod) -> Result<Reader> {
        let ReadMethod { engine, access, block } = method;
        let pages = PagePolicy::for_buffer(block);
        engine.open(self.target, ReadOptions { access, pages, ..ReadOptions::sequential(block) })
    }
}

/// Whether a file, or the rest of it, is worth a search of this many pieces: they are half of it at most.
fn has_enough_left(bytes: u64, source: DataSource, pieces: u64) -> bool {
    bytes / 2 >= pieces * source.tuning().trial_bytes
}

/// Adds up one thread's blocks.
struct PieceObserver<'a> {
    digest: Digest,
    /// Bytes done and not yet reported.
    reported: u64,
    work: &'a DigestWork<'a>,
}

impl PieceObserver<'_> {
    fn report_progress(&mut self) {
        let bytes = std::mem::take(&mut self.reported);
        (self.work.progress)(self.work.read_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }
}

impl Observer for PieceObserver<'_> {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: BlockRequest, data: &[u8]) -> ControlFlow<()> {
        self.digest.add(request.offset, data);
        self.reported += data.len() as u64;
        if self.reported >= PROGRESS_STEP {
            self.report_progress();
        }
        // An interrupted thread ends with an error: part of a file has no digest.
        match stop_signals::stop_signal().is_some() || self.work.has_failed.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn expected(content: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest.add(0, content);
        digest
    }

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 9) as u8).collect()
    }

    /// The digest of a file by this many threads at most, with nothing remembered.
    fn digest_with_threads(target: &Target, max_threads: u32, progress: &(dyn Fn(u64) + Sync)) -> DigestResult {
        digest_file(target, DigestOptions { max_threads, remembered: &|_| None, progress }).unwrap()
    }

    #[test]
    fn small_file_digests_are_correct() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bytes in [
            0,
            1,
            2,
            3,
            4,
            5,
            4095,
            4096,
            4097,
            CACHED_BLOCK - 1,
            CACHED_BLOCK,
            CACHED_BLOCK + 3,
            3 * READ_AHEAD_BLOCK + 1,
        ] {
            let content = content(bytes);
            std::fs::write(file.path(), &content).unwrap();
            let result = digest_with_threads(&Target::find(file.path()).unwrap(), 4, &|_| {});
            assert_eq!((result.digest, result.bytes), (expected(&content), bytes as u64), "{bytes} bytes");
            assert!(!result.is_search_complete);
        }
    }

    #[test]
    fn all_methods_and_threads_agree() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let content = content(20_000_001);
        std::fs::write(file.path(), &content).unwrap();
        file.as_file().sync_all().unwrap();
        let target = Target::find(file.path()).unwrap();
        for source in [DataSource::Memory, DataSource::Device] {
            for method in source.methods() {
                for threads in [1, 2, 100] {
                    let remembered = |_| Some(ReadSetting { method: *method, threads });
                    let max_progress = AtomicU64::new(0);
                    let progress = |bytes| {
                        max_progress.fetch_max(bytes, Ordering::Relaxed);
                    };
                    let plan = DigestOptions { max_threads: 4, remembered: &remembered, progress: &progress };
                    let (digest, search) = DigestWork::new(&target, source, &plan).read_all().unwrap();
                    assert_eq!((digest, max_progress.into_inner()), (expected(&content), 20_000_001), "{method:?}");
                    assert_eq!(search.threads, threads.min(4).min(20_000_001 / source.tuning().trial_bytes as u32));
                }
            }
        }
    }

    #[test]
    fn trials_do_not_reread_read_ahead() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let bytes = (1 << 30) + 5;
        file.as_file().set_len(bytes).unwrap();
        let target = Target::find(file.path()).unwrap();
        let plan = DigestOptions { max_threads: 1, remembered: &|_| None, progress: &|_| {} };
        let work = DigestWork::new(&target, DataSource::Device, &plan);
        let mut pieces = Vec::new();
        std::thread::scope(|scope| {
            while let Some(piece) = work.take_piece(scope, 0) {
                let method = DataSource::Device.methods()[piece.turn.method];
                let remaining = lock(&work.queue).remaining.clone();
                assert!(
                    !piece.turn.is_trial || !method.has_read_ahead() || piece.range.start == remaining.end,
                    "{:?}",
                    piece.range
                );
                assert!(method.has_read_ahead() || piece.range.start % DIRECT_BLOCK as u64 == 0);
                lock(&work.queue).search.record_piece(
                    0,
                    piece.turn,
                    if method.has_read_ahead() { 1.0 } else { 2.0 },
                    |_| true,
                );
                pieces.push((piece.turn.is_trial, piece.range));
            }
        });
        assert_eq!(pieces.iter().filter(|(trial, _)| *trial).count(), 2);
        assert!(pieces.contains(&(true, (bytes - 5 - (15 << 20))..bytes)), "{pieces:?}");
        // Every byte is in one piece.
        pieces.sort_unstable_by_key(|(_, range)| range.start);
        assert!(pieces.windows(2).all(|pair| pair[0].1.end == pair[1].1.start) && pieces[0].1.start == 0);
        assert_eq!(pieces[pieces.len() - 1].1.end, bytes);
    }

    #[test]
    fn large_file_is_searched_and_holes_are_zero() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len((1 << 30) + 5).unwrap();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1, 2, 3, 4], (1 << 29) + 16).unwrap();
        let (max_progress, reports) = (AtomicU64::new(0), AtomicU64::new(0));
        let target = Target::find(file.path()).unwrap();
        let four_threads_result = digest_with_threads(&target, 4, &|bytes| {
            max_progress.fetch_max(bytes, Ordering::Relaxed);
            reports.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(four_threads_result.digest.to_string(), "04030201");
        assert!((1..=4).contains(&four_threads_result.setting.threads), "{four_threads_result:?}");
        assert!(four_threads_result.source.methods().contains(&four_threads_result.setting.method));
        assert_eq!(max_progress.into_inner(), target.bytes());
        assert!(reports.into_inner() > 100);
        // Of several threads one may wait for a CPU until the rest is read; a single one makes every trial.
        let single_thread_result = digest_with_threads(&target, 1, &|_| {});
        assert!(
            single_thread_result.is_search_complete
                && single_thread_result.setting.threads == 1
                && single_thread_result.digest == four_threads_result.digest,
            "{single_thread_result:?}"
        );
    }

    #[test]
    fn truncated_file_fails_every_thread() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        std::fs::write(file.path(), content(20_000_001)).unwrap();
        let target = Target::find(file.path()).unwrap();
        file.as_file().set_len(10_000_000).unwrap();
        for source in [DataSource::Memory, DataSource::Device] {
            for method in source.methods() {
                let remembered = |_| Some(ReadSetting { method: *method, threads: 4 });
                let plan = DigestOptions { max_threads: 4, remembered: &remembered, progress: &|_| {} };
                let error = DigestWork::new(&target, source, &plan).read_all().unwrap_err();
                assert!(matches!(error, Error::Truncated { .. }), "{method:?}: {error}");
            }
        }
    }
}
