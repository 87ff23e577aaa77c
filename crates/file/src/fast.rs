//! The digest of a file as fast as the machine can read it: the way is found while it reads.
//!
//! The exclusive or does not care for the order of its words, so each trial is a part of the work: the first parts of the
//! file are read by one way each, and the rest by the fastest.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelvin_sys::clock::monotonic;
use kelvin_sys::interrupt;

use crate::cache;
use crate::digest::{Digest, Digesting};
use crate::engine::{Engine, How};
use crate::observe::Tally;
use crate::requests::{Order, Requests};
use crate::target::{Access, Target};
use crate::{Error, Result};

/// A way to read a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// How blocks are read.
    pub engine: Engine,
    /// Through the page cache or past it.
    pub access: Access,
    /// Bytes of a block.
    pub block: usize,
    /// Threads.
    pub threads: u32,
}

impl Way {
    const fn buffered(engine: Engine, block: usize) -> Self {
        Self { engine, access: Access::Buffered, block, threads: 1 }
    }
}

/// A block that, with what was there before, stays in the second-level cache from its copy to its digest.
const SMALL: usize = 128 << 10;
/// A block that the kernel's read-ahead can be far ahead of.
const LARGE: usize = 1 << 20;
/// Requests under way past the page cache: enough for any one device, at this size of block.
const DEPTH: u32 = 16;

/// Ways to read what is in memory.
const CACHED: [Way; 2] = [Way::buffered(Engine::Pread, SMALL), Way::buffered(Engine::MmapInPlace, SMALL)];
/// Ways to read what is not.
const UNCACHED: [Way; 2] = [
    Way::buffered(Engine::Pread, LARGE),
    Way { engine: Engine::Uring { depth: DEPTH, registered: false }, access: Access::Direct, block: LARGE, threads: 1 },
];

/// What a thread takes at a time: it is looked at between two of these whether to go on.
const PIECE: u64 = 8 << 20;
/// What each way is tried on, twice: a sixty-fourth of the file within these bounds. A file in memory gives it in
/// milliseconds.
const TRIALS: (u64, u64) = (16 << 20, 64 << 20);
/// Files that are smaller are read without a trial.
const WORTH_TRIALS: u64 = 256 << 20;
/// How much faster twice as many threads must be to be worth it.
const WORTH_THREADS: f64 = 1.05;
/// Share of a file in memory from which on it is read as one that is.
const MOSTLY: f64 = 0.5;

/// What was read, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digested {
    /// The digest of the whole file.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// The time it took, trials included.
    pub nanoseconds: u64,
    /// The way that most of it was read by.
    pub way: Way,
    /// About which share of it was in memory before.
    pub cached: f64,
}

impl Digested {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }
}

/// The digest of a file. `progress` is told now and then how many bytes are done.
///
/// # Errors
/// A file that cannot be read, or that changes meanwhile; a signal.
pub fn digest(target: &Target, most_threads: u32, progress: &(dyn Fn(u64) + Sync)) -> Result<Digested> {
    let begun = monotonic();
    let cached = cache::glance(target)?;
    let mut work = Work { target, digest: Digest::default(), done: 0, progress };
    let candidates = if cached >= MOSTLY { &CACHED } else { &UNCACHED };
    let way = work.best(candidates, most_threads.max(1))?;
    work.read(way, target.bytes() - work.done)?;
    let nanoseconds = monotonic() - begun;
    target.check_unchanged()?;
    Ok(Digested { digest: work.digest, bytes: target.bytes(), nanoseconds, way, cached })
}

/// A file of which the beginning is done.
struct Work<'a> {
    target: &'a Target,
    digest: Digest,
    done: u64,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Work<'_> {
    /// The fastest of some ways, found by reading with each; the first one, where the file is too small for trials.
    fn best(&mut self, candidates: &[Way], most_threads: u32) -> Result<Way> {
        if self.target.bytes() < WORTH_TRIALS {
            return Ok(candidates[0]);
        }
        let mut best = (candidates[0], 0.0);
        // Each twice, in turn, for the first one finds everything cold.
        for &way in [candidates, candidates].concat().iter() {
            match self.trial(way) {
                Ok(rate) if rate > best.1 => best = (way, rate),
                Ok(_) => {}
                Err(error) if error.is_absence() => {}
                Err(error) => return Err(error),
            }
        }
        let mut threads = 2;
        while threads <= most_threads && self.target.bytes() - self.done >= WORTH_TRIALS / 2 {
            let way = Way { threads, ..best.0 };
            let rate = self.trial(way)?.max(self.trial(way)?);
            if rate < WORTH_THREADS * best.1 {
                break;
            }
            best = (way, rate);
            threads *= 2;
        }
        Ok(best.0)
    }

    /// Reads the next part in one way; bytes a nanosecond.
    fn trial(&mut self, way: Way) -> Result<f64> {
        let (before, begun) = (self.done, monotonic());
        let bytes = (self.target.bytes() / 64).clamp(TRIALS.0, TRIALS.1);
        self.read(way, bytes * u64::from(way.threads))?;
        Ok((self.done - before) as f64 / (monotonic() - begun).max(1) as f64)
    }

    /// Reads the next `bytes`, or to the end of the file.
    fn read(&mut self, way: Way, bytes: u64) -> Result<()> {
        let part = self.done..self.done.saturating_add(bytes).min(self.target.bytes());
        let piece = PIECE.min(((part.end - part.start) / u64::from(way.threads)).max(way.block as u64));
        let shared = Shared {
            next: AtomicU64::new(part.start),
            done: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            digest: Mutex::new(Digest::default()),
        };
        let piece = piece / way.block as u64 * way.block as u64;
        let thread = || {
            let result = self.pieces(way, piece, &part, &shared);
            shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..way.threads).map(|_| scope.spawn(thread)).collect();
            let own = thread();
            let joined = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            joined.fold(own, Result::and)
        })?;
        self.digest.merge(shared.digest.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.done = part.end;
        Ok(())
    }

    /// One thread's work: pieces until there are none left.
    fn pieces(&self, way: Way, piece: u64, part: &Range<u64>, shared: &Shared) -> Result<()> {
        let order = Order::Sequential;
        let mut reader = way.engine.open(self.target, How { access: way.access, block: way.block, order })?;
        let mut observer = Digesting::<Tally>::default();
        loop {
            let start = shared.next.fetch_add(piece, Ordering::Relaxed);
            if start >= part.end || shared.failed.load(Ordering::Relaxed) {
                break;
            }
            if let Some(signal) = interrupt::requested() {
                return Err(Error::Interrupted(signal));
            }
            let end = (start + piece).min(part.end);
            reader.read(&mut Requests::new(start..end, way.block, order), &mut observer)?;
            let done = shared.done.fetch_add(end - start, Ordering::Relaxed) + end - start;
            (self.progress)(self.done + done);
        }
        let digest = &mut shared.digest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        digest.merge(observer.digest);
        Ok(())
    }
}

/// What the threads of a part share.
struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    failed: AtomicBool,
    digest: Mutex<Digest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(content: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest.add(0, content);
        digest
    }

    #[test]
    fn small_files_of_every_length_have_the_digest_of_their_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for bytes in [0, 1, 2, 3, 4, 5, 4095, 4096, 4097, SMALL - 1, SMALL, SMALL + 3, 3 * LARGE + 1] {
            let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 9) as u8).collect();
            std::fs::write(file.path(), &content).unwrap();
            let found = digest(&Target::find(file.path()).unwrap(), 4, &|_| {}).unwrap();
            assert_eq!((found.digest, found.bytes), (expected(&content), bytes as u64), "{bytes} bytes");
        }
    }

    #[test]
    fn every_way_with_any_number_of_threads_gives_the_same_digest() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let content: Vec<u8> = (0..20_000_001u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 9) as u8).collect();
        std::fs::write(file.path(), &content).unwrap();
        file.as_file().sync_all().unwrap();
        let target = Target::find(file.path()).unwrap();
        for way in CACHED.into_iter().chain(UNCACHED) {
            for threads in [1, 3] {
                let mut work = Work { target: &target, digest: Digest::default(), done: 0, progress: &|_| {} };
                match work.read(Way { threads, ..way }, 7 << 20).and_then(|()| work.read(way, u64::MAX)) {
                    Ok(()) => assert_eq!((work.digest, work.done), (expected(&content), 20_000_001), "{way:?}"),
                    Err(error) => assert!(error.is_absence(), "{error}"),
                }
            }
        }
    }

    #[test]
    fn a_large_file_is_tried_and_a_sparse_one_reads_as_zeros() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len(WORTH_TRIALS + (64 << 20) + 5).unwrap();
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[1, 2, 3, 4], WORTH_TRIALS + 16).unwrap();
        let most = AtomicU64::new(0);
        let target = Target::find(file.path()).unwrap();
        let found = digest(&target, 4, &|done| {
            most.fetch_max(done, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(found.digest.to_string(), "04030201");
        assert_eq!(most.into_inner(), target.bytes());
    }
}
