//! A file read by many threads at once, and the result.

use std::ops::Range;

use kelvin_sys::clock::Clock;

use crate::access::PageCacheState;
use crate::block_requests::BlockOrder;
use crate::cache;
use crate::device::Device;
use crate::engine::{Engine, ReadOptions};
use crate::io_result::UsageStart;
pub use crate::io_result::{IoResult, jain_fairness};
pub use crate::observer::EndCondition;
pub use crate::reader_threads::Division;
use crate::reader_threads::{self, ThreadPlan};
use crate::target::Target;
use crate::{Error, PagePolicy, Result};

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct ReadJob {
    /// The file.
    pub target: Target,
    /// The way.
    pub engine: Engine,
    /// Bytes of a block.
    pub block: usize,
    /// In which order.
    pub order: BlockOrder,
    /// How much of it is to be in memory before.
    pub state: PageCacheState,
    /// Threads, each with a file descriptor of its own.
    pub threads: u32,
    /// How they divide it among them.
    pub division: Division,
    /// The pages of the buffers that it is read into.
    pub pages: PagePolicy,
    /// The part of the file that is read, in bytes.
    pub range: Range<u64>,
    /// When to end.
    pub until: EndCondition,
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
pub fn run(job: &ReadJob) -> Result<IoResult> {
    let &ReadJob { ref target, ref range, threads, block, order, division, until, digest, latencies, .. } = job;
    if range.start > range.end || range.end > target.bytes() {
        let (path, bytes) = (target.path().display(), target.bytes());
        let why = format!("{path} has {bytes} bytes, not those from {} to {}", range.start, range.end);
        return Err(Error::setting("size", why));
    }
    let plan = ThreadPlan { threads, block, range: range.clone(), order, division, until, digest, latencies };
    let asked = plan.split_among_threads()?;
    target.check_end()?;
    let before = cache::set_cache_state(target, job.state)?;
    let watched = UsageStart::now(Device::of_file(target));
    let how = ReadOptions { access: job.state.access(), block, order, pages: job.pages };
    let members = reader_threads::run_threads(&plan, asked, || job.engine.open(target, how))?;
    let watched = watched.finish();
    let after = cache::residency(target)?;
    let mut done = IoResult::from_threads(members, watched, (before, after));
    done.notes.extend(target.check_unchanged().err().map(|changed| changed.to_string()));
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::IoTally;

    fn file(bytes: usize) -> (tempfile::NamedTempFile, Target) {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        std::fs::write(file.path(), content).unwrap();
        let target = Target::find(file.path()).unwrap();
        (file, target)
    }

    fn job(target: &Target) -> ReadJob {
        ReadJob {
            target: target.clone(),
            engine: Engine::Pread,
            block: 4096,
            order: BlockOrder::Sequential,
            state: PageCacheState::AsFound,
            threads: 1,
            division: Division::Parts,
            pages: PagePolicy::Base,
            range: 0..target.bytes(),
            until: EndCondition::Passes(1),
            digest: true,
            latencies: None,
        }
    }

    #[test]
    fn threads_together_read_file_once() {
        let (_file, target) = file(1_000_003);
        let alone = run(&job(&target)).unwrap();
        assert_eq!((alone.total, alone.passes), (IoTally { bytes: 1_000_003, requests: 245 }, 1));
        for threads in [2, 3, 7] {
            for order in [BlockOrder::Sequential, BlockOrder::Random { seed: 1 }] {
                let latencies = Some((Clock::MonotonicRaw, 1e9));
                let done =
                    run(&ReadJob { threads, order, latencies, state: PageCacheState::Cached, ..job(&target) }).unwrap();
                assert_eq!((done.total, done.digest), (alone.total, alone.digest));
                assert_eq!(done.threads.len(), threads as usize);
                assert_eq!(done.bytes_per_second.iter().sum::<u64>(), 1_000_003);
                assert_eq!(done.latencies.unwrap().count(), 245);
                assert!(done.before.is_complete());
            }
        }
    }

    #[test]
    fn pieces_are_read_once_per_pass() {
        let (_file, target) = file(1_000_003);
        let alone = run(&job(&target)).unwrap();
        for threads in [1, 3, 7] {
            for order in [BlockOrder::Sequential, BlockOrder::Random { seed: 1 }] {
                for engine in [Engine::Pread, Engine::Read, Engine::Mmap, Engine::MmapPopulate] {
                    let division = Division::Pieces(30_000);
                    let passes = run(&ReadJob { threads, order, engine, division, ..job(&target) }).unwrap();
                    assert_eq!((passes.total, passes.digest, passes.passes), (alone.total, alone.digest, 1));
                }
            }
        }
        // It ends also where every request is the last one of a piece.
        for bytes in [1, 4 * 4096, 30_000] {
            let (division, until) = (Division::Pieces(bytes), EndCondition::Time(Duration::from_millis(20)));
            let timed = run(&ReadJob { threads: 3, division, until, ..job(&target) }).unwrap();
            assert!(timed.nanoseconds >= 20_000_000, "{timed:?}");
            // Of the last pass some pieces are missing, and each thread has read of one that it did not finish.
            let most = 1_000_003 + 3 * bytes.max(4096);
            assert!(timed.total.bytes.abs_diff(timed.passes * 1_000_003) <= most, "{timed:?}");
        }
    }

    #[test]
    fn job_ends_at_request_or_time_limit() {
        let (_file, target) = file(100_000);
        let counted = run(&ReadJob { until: EndCondition::Requests(1001), threads: 2, ..job(&target) }).unwrap();
        assert_eq!((counted.total.requests, counted.passes), (1001, 38));
        let time = Duration::from_millis(50);
        let timed = run(&ReadJob { until: EndCondition::Time(time), ..job(&target) }).unwrap();
        assert!(timed.nanoseconds >= 50_000_000 && timed.total.requests > 0, "{timed:?}");
        assert!(timed.fairness() == 1.0);
    }

    #[test]
    fn inconsistent_settings_are_refused() {
        let (_file, target) = file(10_000);
        let says = |job: ReadJob| run(&job).unwrap_err().to_string();
        assert!(says(ReadJob { threads: 4, ..job(&target) }).contains("there are 3 blocks"));
        assert!(says(ReadJob { range: 0..10_001, ..job(&target) }).contains("has 10000 bytes"));
        assert!(says(ReadJob { block: 0, ..job(&target) }).contains("block: must be at least 1"));
        let direct = ReadJob { block: 1000, state: PageCacheState::Direct, ..job(&target) };
        assert!(says(direct).contains("past the page cache"));
    }

    #[test]
    fn fairness_is_jain_index() {
        let (_file, target) = file(10_000);
        let mut done = run(&job(&target)).unwrap();
        let of = |bytes| (IoTally { bytes, requests: 1 }, 1000);
        done.threads = vec![of(10), of(0)];
        assert_eq!(done.fairness(), 0.5);
        done.threads = vec![of(7), of(7), of(7)];
        assert!((done.fairness() - 1.0).abs() < 1e-12);
    }
}
