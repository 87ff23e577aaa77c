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
    let requests = plan.split_among_threads()?;
    target.check_end()?;
    let before = cache::set_cache_state(target, job.state)?;
    let resources = UsageStart::now(Device::of_file(target));
    let options = ReadOptions { access: job.state.access(), block, order, pages: job.pages };
    let results = reader_threads::run_threads(&plan, requests, || job.engine.open(target, options))?;
    let resources = resources.finish();
    let after = cache::residency(target)?;
    let mut result = IoResult::from_threads(results, resources, (before, after));
    result.notes.extend(target.check_unchanged().err().map(|changed| changed.to_string()));
    Ok(result)
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
        let single_thread = run(&job(&target)).unwrap();
        assert_eq!((single_thread.total, single_thread.passes), (IoTally { bytes: 1_000_003, requests: 245 }, 1));
        for threads in [2, 3, 7] {
            for order in [BlockOrder::Sequential, BlockOrder::Random { seed: 1 }] {
                let latencies = Some((Clock::MonotonicRaw, 1e9));
                let result =
                    run(&ReadJob { threads, order, latencies, state: PageCacheState::Cached, ..job(&target) }).unwrap();
                assert_eq!((result.total, result.digest), (single_thread.total, single_thread.digest));
                assert_eq!(result.threads.len(), threads as usize);
                assert_eq!(result.bytes_per_second.iter().sum::<u64>(), 1_000_003);
                assert_eq!(result.latencies.unwrap().count(), 245);
                assert!(result.before.is_complete());
            }
        }
    }

    #[test]
    fn pieces_are_read_once_per_pass() {
        let (_file, target) = file(1_000_003);
        let single_thread = run(&job(&target)).unwrap();
        for threads in [1, 3, 7] {
            for order in [BlockOrder::Sequential, BlockOrder::Random { seed: 1 }] {
                for engine in [Engine::Pread, Engine::Read, Engine::Mmap, Engine::MmapPopulate] {
                    let division = Division::Pieces(30_000);
                    let passes = run(&ReadJob { threads, order, engine, division, ..job(&target) }).unwrap();
                    assert_eq!(
                        (passes.total, passes.digest, passes.passes),
                        (single_thread.total, single_thread.digest, 1)
                    );
                }
            }
        }
        // It ends also where every request is the last one of a piece.
        for bytes in [1, 4 * 4096, 30_000] {
            let (division, until) = (Division::Pieces(bytes), EndCondition::Time(Duration::from_millis(20)));
            let timed = run(&ReadJob { threads: 3, division, until, ..job(&target) }).unwrap();
            assert!(timed.nanoseconds >= 20_000_000, "{timed:?}");
            // Of the last pass some pieces are missing, and each thread has read of one that it did not finish.
            let max_difference = 1_000_003 + 3 * bytes.max(4096);
            assert!(timed.total.bytes.abs_diff(timed.passes * 1_000_003) <= max_difference, "{timed:?}");
        }
    }

    #[test]
    fn job_ends_at_request_or_time_limit() {
        let (_file, target) = file(100_000);
        let request_limited =
            run(&ReadJob { until: EndCondition::Requests(1001), threads: 2, ..job(&target) }).unwrap();
        assert_eq!((request_limited.total.requests, request_limited.passes), (1001, 38));
        let time = Duration::from_millis(50);
        let timed = run(&ReadJob { until: EndCondition::Time(time), ..job(&target) }).unwrap();
        assert!(timed.nanoseconds >= 50_000_000 && timed.total.requests > 0, "{timed:?}");
        assert!(timed.fairness() == 1.0);
    }

    #[test]
    fn inconsistent_settings_are_refused() {
        let (_file, target) = file(10_000);
        let error_text = |job: ReadJob| run(&job).unwrap_err().to_string();
        assert!(error_text(ReadJob { threads: 4, ..job(&target) }).contains("there are 3 blocks"));
        assert!(error_text(ReadJob { range: 0..10_001, ..job(&target) }).contains("has 10000 bytes"));
        assert!(error_text(ReadJob { block: 0, ..job(&target) }).contains("block: must be at least 1"));
        let direct = ReadJob { block: 1000, state: PageCacheState::Direct, ..job(&target) };
        assert!(error_text(direct).contains("past the page cache"));
    }

    #[test]
    fn fairness_is_jain_index() {
        let (_file, target) = file(10_000);
        let mut result = run(&job(&target)).unwrap();
        let thread_tally = |bytes| (IoTally { bytes, requests: 1 }, 1000);
        result.threads = vec![thread_tally(10), thread_tally(0)];
        assert_eq!(result.fairness(), 0.5);
        result.threads = vec![thread_tally(7), thread_tally(7), thread_tally(7)];
        assert!((result.fairness() - 1.0).abs() < 1e-12);
    }
}
