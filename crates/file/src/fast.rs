//! The digest of a file as fast as the machine can read it: the fastest way is found while reading.
//!
//! XOR does not depend on the order of its words, so each trial is a part of the work: threads read one piece of the file after
//! another, first in each way and then in the best.

use std::io::{ErrorKind, Read};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use kelvin_sys::clock::monotonic;
use kelvin_sys::interrupt;
use kelvin_sys::spawn::Thread;

use crate::cache;
use crate::digest::Digest;
use crate::engine::{Engine, How, Reader};
use crate::observe::Observer;
use crate::requests::{Order, Request, Requests};
use crate::search::{Rounds, Search, Turn};
use crate::target::{Access, Target};
use crate::{Error, Pages, Result};

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
    fn reads_ahead(self) -> bool {
        self.access == Access::Buffered
    }
}

/// How a file is read: the result of a search, which can be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The way.
    pub way: ReadMethod,
    /// Threads.
    pub threads: u32,
}

/// Where most of a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From memory: at least half of it is there.
    Memory,
    /// From its device.
    Device,
}

/// A block that stays in the L2 cache from its copy to its digest, and is large beside the cost of a call.
const COPIED: usize = 256 << 10;
/// A block read in place: the guard of the mapping is checked after each.
const IN_PLACE: usize = 1 << 20;
/// A block that the kernel's read-ahead can be far ahead of.
const AHEAD: usize = 1 << 20;
/// Queue depth past the page cache and the bytes of each request: 4 MiB, what a device of 4 GB/s moves in a millisecond.
const DEPTH: u32 = 8;
const PAST: usize = 512 << 10;

/// Ways to read what is in memory. Which one is faster depends on the pages that hold the file: a mapping maps large ones
/// cheaply and small ones at a high cost.
const CACHED: [ReadMethod; 2] =
    [ReadMethod::buffered(Engine::Pread, COPIED), ReadMethod::buffered(Engine::MmapInPlace, IN_PLACE)];
/// Ways to read what is not.
const UNCACHED: [ReadMethod; 2] = [
    ReadMethod { engine: Engine::Uring { depth: DEPTH, registered: false }, access: Access::Direct, block: PAST },
    ReadMethod::buffered(Engine::Pread, AHEAD),
];

/// Share of a file in memory from which on it is read as one that is.
const MOSTLY: f64 = 0.5;
/// Most threads: memory and devices are saturated by then, and all share one guard of 256 mappings.
const MOST_THREADS: u32 = 128;
/// Bytes between two reports of progress.
const NOTED: u64 = 2 << 20;

impl Source {
    /// The ways to read it.
    pub fn ways(self) -> &'static [ReadMethod] {
        match self {
            Self::Memory => &CACHED,
            Self::Device => &UNCACHED,
        }
    }

    /// Its name, as it is remembered.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Device => "device",
        }
    }

    /// Bytes of a trial. From memory it is a fifth of a millisecond; from a device it must be many times the bytes in flight.
    fn trial(self) -> u64 {
        match self {
            Self::Memory => 4 << 20,
            Self::Device => 16 << 20,
        }
    }

    /// How often each way is tried: in memory often enough to tolerate one interrupted piece; from a device once, for a piece
    /// there is long.
    fn rounds(self) -> Rounds {
        match self {
            Self::Memory => Rounds { warm_up: 1, counted: 3 },
            Self::Device => Rounds { warm_up: 0, counted: 1 },
        }
    }

    /// Bytes that a thread takes at a time once the search is over. In memory a mapping unmaps as much at a time, while its
    /// page structures are still in the cache; past the page cache the queue drains between pieces, which must be rare.
    fn piece(self) -> u64 {
        match self {
            Self::Memory => 8 << 20,
            Self::Device => 32 << 20,
        }
    }
}

/// The digest, and how it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digested {
    /// The digest of the whole file.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// The elapsed time, trials included.
    pub nanoseconds: u64,
    /// Where most of it came from.
    pub source: Source,
    /// How most of it was read.
    pub setting: Setting,
    /// Whether the setting is the result of a completed search, and not only its start.
    pub found: bool,
    /// The approximate share of it that was in memory before.
    pub cached: f64,
}

impl Digested {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }
}

/// How a file may be read.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// Most threads.
    pub most_threads: u32,
    /// The remembered setting for such a file, if any: where the search begins.
    pub remembered: &'a dyn Fn(Source) -> Option<Setting>,
    /// Receives the bytes done, now and then.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// The digest of a file.
///
/// # Errors
/// A file that cannot be read, or that changes meanwhile; a signal.
pub fn digest(target: &Target, plan: Plan<'_>) -> Result<Digested> {
    let begun = monotonic();
    if target.bytes() == 0 {
        return to_its_end(target, begun);
    }
    let cached = cache::glance(target)?;
    let source = if cached >= MOSTLY { Source::Memory } else { Source::Device };
    let work = Work::new(target, source, &plan);
    work.read()?;
    let nanoseconds = monotonic() - begun;
    target.check_unchanged()?;
    target.check_end()?;
    let (digest, setting, found) = work.result();
    Ok(Digested { digest, bytes: target.bytes(), nanoseconds, source, setting, found, cached })
}

/// The digest of a file that states no bytes: it may have some all the same, as those of /proc have, and is read until its end.
fn to_its_end(target: &Target, begun: u64) -> Result<Digested> {
    let (way, mut digest, mut bytes) = (CACHED[0], Digest::default(), 0);
    let (mut file, mut block) = (target.open(Access::Buffered)?, vec![0; way.block]);
    loop {
        if let Some(signal) = interrupt::requested() {
            return Err(Error::Interrupted(signal));
        }
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                digest.add(bytes, &block[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(target.read_error(bytes, way.block, error)),
        }
    }
    let (nanoseconds, setting) = (monotonic() - begun, Setting { way, threads: 1 });
    Ok(Digested { digest, bytes, nanoseconds, source: Source::Memory, setting, found: false, cached: 1.0 })
}

/// A file, and the state its threads share.
struct Work<'a> {
    target: &'a Target,
    source: Source,
    progress: &'a (dyn Fn(u64) + Sync),
    queue: Mutex<Queue>,
    done: AtomicU64,
    failed: AtomicBool,
    outcome: Mutex<Result<Digest>>,
}

/// The next piece, and how to read it.
struct Queue {
    search: Search,
    /// The rest of the file: pieces are taken from its beginning, or from its end.
    left: Range<u64>,
    /// Threads started.
    started: u32,
}

impl Queue {
    fn bytes_left(&self) -> u64 {
        self.left.end - self.left.start
    }
}

/// A part of the file for one thread.
struct Piece {
    range: Range<u64>,
    turn: Turn,
}

impl<'a> Work<'a> {
    fn new(target: &'a Target, source: Source, plan: &Plan<'a>) -> Self {
        let ways = source.ways();
        let remembered = (plan.remembered)(source);
        let known = remembered.and_then(|known| Some((ways.iter().position(|way| *way == known.way)?, known.threads)));
        let (way, threads) = known.unwrap_or((0, 1));
        let most = plan.most_threads.clamp(1, MOST_THREADS);
        // No more threads than there is work for.
        let threads = u64::from(threads).min(target.bytes() / source.trial()).max(1) as u32;
        let mut search = Search::new(ways.len(), source.rounds(), (way, threads.min(most)), most);
        // How to read a device is searched for once; in memory it also depends on the pages that hold the file.
        let settled = source == Source::Device && known.is_some();
        if settled || !has_room(target.bytes(), source, search.pieces(search.threads())) {
            search.settle();
        }
        Self {
            target,
            source,
            progress: plan.progress,
            queue: Mutex::new(Queue { search, left: 0..target.bytes(), started: 1 }),
            done: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            outcome: Mutex::new(Ok(Digest::default())),
        }
    }

    /// Reads all of it.
    fn read(&self) -> Result<()> {
        std::thread::scope(|scope| self.thread(scope, 0));
        match &mut *lock(&self.outcome) {
            Ok(_) => Ok(()),
            failed => std::mem::replace(failed, Ok(Digest::default())).map(drop),
        }
    }

    fn result(self) -> (Digest, Setting, bool) {
        let Queue { search, .. } = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        let digest = self.outcome.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
        let setting = Setting { way: self.source.ways()[search.best()], threads: search.threads() };
        (digest, setting, search.found())
    }

    /// One thread: pieces until there are none left, or one thread fewer is wanted.
    fn thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u32) {
        let result = self.pieces(scope, number);
        self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        let mut outcome = lock(&self.outcome);
        match (&mut *outcome, result) {
            (Ok(all), Ok(part)) => all.merge(part),
            (all @ Ok(_), Err(error)) => *all = Err(error),
            // The first error is that of all.
            (Err(_), _) => {}
        }
    }

    fn pieces<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u32) -> Result<Digest> {
        let mut readers: Vec<Option<Reader>> = self.source.ways().iter().map(|_| None).collect();
        let mut observer = Adding { digest: Digest::default(), noted: 0, work: self };
        while let Some(piece) = self.take(scope, number) {
            let begun = monotonic();
            let way = self.read_piece(&piece, &mut readers, &mut observer)?;
            let nanoseconds = (monotonic() - begun).max(1);
            if way == piece.turn.way {
                let rate = (piece.range.end - piece.range.start) as f64 / nanoseconds as f64;
                let mut queue = lock(&self.queue);
                let left = queue.bytes_left();
                queue.search.done(number, piece.turn, rate, |pieces| has_room(left, self.source, pieces));
            }
        }
        observer.note();
        Ok(observer.digest)
    }

    /// The next piece, if this thread is still wanted; starts further threads if they are.
    fn take<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, number: u32) -> Option<Piece> {
        if self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let mut queue = lock(&self.queue);
        let turn = queue.search.next(number)?;
        let range = self.cut(&mut queue, turn)?;
        let new = queue.started..queue.search.threads().max(queue.started);
        queue.started = new.end;
        drop(queue);
        for other in new {
            // Where a limit forbids more, those that are there read all of it.
            if Thread::named("digest").start_in(scope, move || self.thread(scope, other)).is_err() {
                lock(&self.queue).search.limit_threads(other);
                break;
            }
        }
        Some(Piece { range, turn })
    }

    /// Cuts the next piece off the rest. A way with read-ahead is tried at the end of the rest, where nothing is left to read
    /// ahead: elsewhere another way would go on, and read the same again.
    fn cut(&self, queue: &mut Queue, turn: Turn) -> Option<Range<u64>> {
        let length = self.length(queue, turn);
        let Range { start, end } = queue.left;
        let at_end = turn.trial && self.source == Source::Device && self.source.ways()[turn.way].reads_ahead();
        let range = if at_end {
            end.saturating_sub(length).next_multiple_of(AHEAD as u64).clamp(start, end)..end
        } else {
            start..start.saturating_add(length).min(end)
        };
        queue.left = if at_end { start..range.start } else { range.end..end };
        (!range.is_empty()).then_some(range)
    }

    /// Bytes of the next piece: smaller ones near the end, so that all threads end at about the same time.
    fn length(&self, queue: &Queue, turn: Turn) -> u64 {
        let longest = if turn.trial { self.source.trial() } else { self.source.piece() };
        let share = queue.bytes_left() / (2 * u64::from(queue.search.threads()));
        share.next_multiple_of(AHEAD as u64).clamp(AHEAD as u64, longest)
    }

    /// Reads a piece in its way or, where that is unavailable, in the best of the others; which one it was.
    fn read_piece(&self, piece: &Piece, readers: &mut [Option<Reader>], observer: &mut Adding<'_>) -> Result<usize> {
        let mut place = piece.turn.way;
        let (way, mut reader) = loop {
            let way = self.source.ways()[place];
            match readers[place].take().map_or_else(|| self.open(way), Ok) {
                Ok(reader) => break (way, reader),
                Err(error) if error.is_absence() => {
                    let mut queue = lock(&self.queue);
                    if !queue.search.leave_out(place) {
                        return Err(error);
                    }
                    place = queue.search.best();
                }
                Err(error) => return Err(error),
            }
        };
        reader.read(&mut Requests::new(piece.range.clone(), way.block, Order::Sequential), observer)?;
        if let Some(signal) = interrupt::requested() {
            return Err(Error::Interrupted(signal));
        }
        reader.forget()?;
        readers[place] = Some(reader);
        Ok(place)
    }

    fn open(&self, way: ReadMethod) -> Result<Reader> {
        way.engine.open(
            self.target,
            How { access: way.access, block: way.block, order: Order::Sequential, pages: Pages::of_buffer(way.block) },
        )
    }
}

/// Whether a file, or the rest of it, is worth a search of so many pieces: they are half of it at most.
fn has_room(bytes: u64, source: Source, pieces: u64) -> bool {
    bytes / 2 >= pieces * source.trial()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds up one thread's blocks.
struct Adding<'a> {
    digest: Digest,
    /// Bytes done and not yet reported.
    noted: u64,
    work: &'a Work<'a>,
}

impl Adding<'_> {
    fn note(&mut self) {
        let bytes = std::mem::take(&mut self.noted);
        (self.work.progress)(self.work.done.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }
}

impl Observer for Adding<'_> {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: Request, data: &[u8]) -> ControlFlow<()> {
        self.digest.add(request.offset, data);
        self.noted += data.len() as u64;
        if self.noted >= NOTED {
            self.note();
        }
        // An interrupted thread ends with an error: part of a file has no digest.
        match interrupt::requested().is_some() || self.work.failed.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(content: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest.add(0, content);
        digest
    }

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 9) as u8).collect()
    }

    /// The digest of a file by so many threads at most, with nothing remembered.
    fn found(target: &Target, most_threads: u32, progress: &(dyn Fn(u64) + Sync)) -> Digested {
        digest(target, Plan { most_threads, remembered: &|_| None, progress }).unwrap()
    }

    #[test]
    fn small_files_of_every_length_have_the_digest_of_their_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bytes in [0, 1, 2, 3, 4, 5, 4095, 4096, 4097, COPIED - 1, COPIED, COPIED + 3, 3 * AHEAD + 1] {
            let content = content(bytes);
            std::fs::write(file.path(), &content).unwrap();
            let found = found(&Target::find(file.path()).unwrap(), 4, &|_| {});
            assert_eq!((found.digest, found.bytes), (expected(&content), bytes as u64), "{bytes} bytes");
            assert!(!found.found);
        }
    }

    #[test]
    fn every_way_with_any_number_of_threads_gives_the_same_digest() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let content = content(20_000_001);
        std::fs::write(file.path(), &content).unwrap();
        file.as_file().sync_all().unwrap();
        let target = Target::find(file.path()).unwrap();
        for source in [Source::Memory, Source::Device] {
            for way in source.ways() {
                for threads in [1, 2, 100] {
                    let remembered = |_| Some(Setting { way: *way, threads });
                    let plan = Plan { most_threads: 4, remembered: &remembered, progress: &|_| {} };
                    let work = Work::new(&target, source, &plan);
                    work.read().unwrap();
                    let done = work.done.load(Ordering::Relaxed);
                    let (digest, setting, _) = work.result();
                    assert_eq!((digest, done), (expected(&content), 20_000_001), "{way:?}");
                    assert_eq!(setting.threads, threads.min(4).min(20_000_001 / source.trial() as u32));
                }
            }
        }
    }

    #[test]
    fn what_a_way_may_read_ahead_of_its_trial_is_not_read_again_by_another() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let bytes = (1 << 30) + 5;
        file.as_file().set_len(bytes).unwrap();
        let target = Target::find(file.path()).unwrap();
        let plan = Plan { most_threads: 1, remembered: &|_| None, progress: &|_| {} };
        let work = Work::new(&target, Source::Device, &plan);
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            while let Some(piece) = work.take(scope, 0) {
                let way = Source::Device.ways()[piece.turn.way];
                let after = lock(&work.queue).left.clone();
                assert!(!piece.turn.trial || !way.reads_ahead() || piece.range.start == after.end, "{:?}", piece.range);
                assert!(way.reads_ahead() || piece.range.start % PAST as u64 == 0);
                lock(&work.queue).search.done(0, piece.turn, if way.reads_ahead() { 1.0 } else { 2.0 }, |_| true);
                all.push((piece.turn.trial, piece.range));
            }
        });
        assert_eq!(all.iter().filter(|(trial, _)| *trial).count(), 2);
        assert!(all.contains(&(true, (bytes - 5 - (15 << 20))..bytes)), "{all:?}");
        // Every byte is in one piece.
        all.sort_unstable_by_key(|(_, range)| range.start);
        assert!(all.windows(2).all(|two| two[0].1.end == two[1].1.start) && all[0].1.start == 0);
        assert_eq!(all[all.len() - 1].1.end, bytes);
    }

    #[test]
    fn a_large_file_is_searched_and_a_sparse_one_reads_as_zeros() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len((1 << 30) + 5).unwrap();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1, 2, 3, 4], (1 << 29) + 16).unwrap();
        let (most, reports) = (AtomicU64::new(0), AtomicU64::new(0));
        let target = Target::find(file.path()).unwrap();
        let by_four = found(&target, 4, &|done| {
            most.fetch_max(done, Ordering::Relaxed);
            reports.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(by_four.digest.to_string(), "04030201");
        assert!((1..=4).contains(&by_four.setting.threads), "{by_four:?}");
        assert!(by_four.source.ways().contains(&by_four.setting.way));
        assert_eq!(most.into_inner(), target.bytes());
        assert!(reports.into_inner() > 100);
        // Of several threads one may wait for a CPU until the rest is read; a single one makes every trial.
        let by_one = found(&target, 1, &|_| {});
        assert!(by_one.found && by_one.setting.threads == 1 && by_one.digest == by_four.digest, "{by_one:?}");
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error_of_every_thread() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        std::fs::write(file.path(), content(20_000_001)).unwrap();
        let target = Target::find(file.path()).unwrap();
        file.as_file().set_len(10_000_000).unwrap();
        for source in [Source::Memory, Source::Device] {
            for way in source.ways() {
                let remembered = |_| Some(Setting { way: *way, threads: 4 });
                let plan = Plan { most_threads: 4, remembered: &remembered, progress: &|_| {} };
                let error = Work::new(&target, source, &plan).read().unwrap_err();
                assert!(matches!(error, Error::Truncated { .. }), "{way:?}: {error}");
            }
        }
    }
}
