//! A file read by many threads at once, and the result.

use std::ops::Range;

use kelvin_sys::clock::Clock;

use crate::cache::{self, State};
pub use crate::crew::Division;
use crate::crew::{self, Asked, Share, Wanted};
use crate::device::Device;
use crate::done::Watched;
pub use crate::done::{Done, fairness};
use crate::engine::{Engine, How};
pub use crate::pace::Until;
use crate::requests::Order;
use crate::target::Target;
use crate::{Error, Pages, Result};

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file.
    pub target: Target,
    /// The way.
    pub engine: Engine,
    /// Bytes of a block.
    pub block: usize,
    /// In which order.
    pub order: Order,
    /// How much of it is to be in memory before.
    pub state: State,
    /// Threads, each with a file descriptor of its own.
    pub threads: u32,
    /// How they divide it among them.
    pub division: Division,
    /// The pages of the buffers that it is read into.
    pub pages: Pages,
    /// The part of the file that is read, in bytes.
    pub range: Range<u64>,
    /// When to end.
    pub until: Until,
    /// Whether the digest is wanted.
    pub digest: bool,
    /// The clock that times each request, and its ticks per second; none if latencies are not wanted.
    pub latencies: Option<(Clock, f64)>,
}

/// Reads.
///
/// # Errors
/// A file that cannot be read so, or not to its end, or that has another one than it states; a state of the page cache that cannot be
/// reached; a signal.
pub fn run(job: &Job) -> Result<Done> {
    let asked = asked(job)?;
    job.target.check_end()?;
    let before = cache::bring(&job.target, job.state)?;
    let watched = Watched::begin(Device::below(&job.target));
    let wanted = Wanted { until: job.until, digest: job.digest, latencies: job.latencies };
    let how = How { access: job.state.access(), block: job.block, order: job.order, pages: job.pages };
    let members = crew::together(wanted, asked, || job.engine.open(&job.target, how))?;
    let watched = watched.end();
    let after = cache::residency(&job.target)?;
    let mut done = Done::of(wanted, &members, watched, (before, after));
    done.notes.extend(job.target.check_unchanged().err().map(|changed| changed.to_string()));
    Ok(done)
}

fn asked(job: &Job) -> Result<Vec<Asked>> {
    let &Job { ref target, ref range, threads, block, order, division, until, .. } = job;
    if range.start > range.end || range.end > target.bytes() {
        let (path, bytes) = (target.path().display(), target.bytes());
        let why = format!("{path} has {bytes} bytes, not those from {} to {}", range.start, range.end);
        return Err(Error::setting("size", why));
    }
    Share { threads, block, range: range.clone(), order, division, until }.among_threads()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Tally;

    fn file(bytes: usize) -> (tempfile::NamedTempFile, Target) {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        std::fs::write(file.path(), content).unwrap();
        let target = Target::find(file.path()).unwrap();
        (file, target)
    }

    fn job(target: &Target) -> Job {
        Job {
            target: target.clone(),
            engine: Engine::Pread,
            block: 4096,
            order: Order::Sequential,
            state: State::AsFound,
            threads: 1,
            division: Division::Parts,
            pages: Pages::Base,
            range: 0..target.bytes(),
            until: Until::Passes(1),
            digest: true,
            latencies: None,
        }
    }

    #[test]
    fn any_number_of_threads_reads_the_file_once() {
        let (_file, target) = file(1_000_003);
        let alone = run(&job(&target)).unwrap();
        assert_eq!((alone.total, alone.passes), (Tally { bytes: 1_000_003, requests: 245 }, 1));
        for threads in [2, 3, 7] {
            for order in [Order::Sequential, Order::Random { seed: 1 }] {
                let latencies = Some((Clock::MonotonicRaw, 1e9));
                let done = run(&Job { threads, order, latencies, state: State::Cached, ..job(&target) }).unwrap();
                assert_eq!((done.total, done.digest), (alone.total, alone.digest));
                assert_eq!(done.threads.len(), threads as usize);
                assert_eq!(done.series.iter().sum::<u64>(), 1_000_003);
                assert_eq!(done.latencies.unwrap().count(), 245);
                assert!(done.before.is_whole());
            }
        }
    }

    #[test]
    fn pieces_are_read_once_in_a_pass_by_whoever_is_free() {
        let (_file, target) = file(1_000_003);
        let alone = run(&job(&target)).unwrap();
        for threads in [1, 3, 7] {
            for order in [Order::Sequential, Order::Random { seed: 1 }] {
                for engine in [Engine::Pread, Engine::Read, Engine::Mmap, Engine::MmapPopulate] {
                    let division = Division::Pieces(30_000);
                    let passes = run(&Job { threads, order, engine, division, ..job(&target) }).unwrap();
                    assert_eq!((passes.total, passes.digest, passes.passes), (alone.total, alone.digest, 1));
                }
            }
        }
        // It ends also where every request is the last one of a piece.
        for bytes in [1, 4 * 4096, 30_000] {
            let (division, until) = (Division::Pieces(bytes), Until::Time(Duration::from_millis(20)));
            let timed = run(&Job { threads: 3, division, until, ..job(&target) }).unwrap();
            assert!(timed.nanoseconds >= 20_000_000, "{timed:?}");
            // Of the last pass some pieces are missing, and each thread has read of one that it did not finish.
            let most = 1_000_003 + 3 * bytes.max(4096);
            assert!(timed.total.bytes.abs_diff(timed.passes * 1_000_003) <= most, "{timed:?}");
        }
    }

    #[test]
    fn it_ends_after_so_many_requests_or_so_long() {
        let (_file, target) = file(100_000);
        let counted = run(&Job { until: Until::Requests(1001), threads: 2, ..job(&target) }).unwrap();
        assert_eq!((counted.total.requests, counted.passes), (1001, 38));
        let time = Duration::from_millis(50);
        let timed = run(&Job { until: Until::Time(time), ..job(&target) }).unwrap();
        assert!(timed.nanoseconds >= 50_000_000 && timed.total.requests > 0, "{timed:?}");
        assert!(timed.fairness() == 1.0);
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        let (_file, target) = file(10_000);
        let says = |job: Job| run(&job).unwrap_err().to_string();
        assert!(says(Job { threads: 4, ..job(&target) }).contains("there are 3 blocks"));
        assert!(says(Job { range: 0..10_001, ..job(&target) }).contains("has 10000 bytes"));
        assert!(says(Job { block: 0, ..job(&target) }).contains("block: must be at least 1"));
        let direct = Job { block: 1000, state: State::Direct, ..job(&target) };
        assert!(says(direct).contains("past the page cache"));
    }

    #[test]
    fn fairness_is_jains_index() {
        let (_file, target) = file(10_000);
        let mut done = run(&job(&target)).unwrap();
        let of = |bytes| (Tally { bytes, requests: 1 }, 1000);
        done.threads = vec![of(10), of(0)];
        assert_eq!(done.fairness(), 0.5);
        done.threads = vec![of(7), of(7), of(7)];
        assert!((done.fairness() - 1.0).abs() < 1e-12);
    }
}
