//! The cost of one request for the next bytes of a cached file by each way of reading, from one byte to a mebibyte.
//!
//! The flat left of a curve is the cost of a request, its slope on the right the cost of copying. Where two curves
//! cross, the other way becomes the faster. It must not be used for files that are not in memory, where the device
//! decides, nor for requests in random order.

use kelvin_core::catalogue::file::{ENGINES, ReadEngine};

use super::cases::read_engine;
use super::engine_model;
use super::prelude::*;
use crate::program::note_c_library;

pub(crate) static PROBE: Probe = Probe {
    summary: "Reading a cached file by every method, by request size",
    method: include_str!("engines.md"),
    cases,
    run,
    predict: engine_model::predict,
    ..Probe::measure(&[&ENGINES])
};

/// Those of the older study, which every run measures at each of its sizes.
const PUBLISHED_ENGINES: [ReadEngine; 3] = [ReadEngine::Read, ReadEngine::Fread, ReadEngine::Mmap];
/// Sizes of a request, in bytes: those of the older study, and powers of two up to a mebibyte.
const REQUEST_SIZES: [u64; 9] = [1, 10, 100, 1000, 4096, 10_000, 64 << 10, 256 << 10, 1 << 20];
/// The size at which a usual run measures every way: neither the call nor the copy is all.
const DEFAULT_SIZE: u64 = 10_000;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let is_selected = |engine: ReadEngine, block: u64| {
        let is_published = PUBLISHED_ENGINES.contains(&engine);
        match effort {
            Effort::Quick => is_published && [1, DEFAULT_SIZE].contains(&block),
            Effort::Default => {
                is_published && [1, 100, DEFAULT_SIZE, 1 << 20].contains(&block) || block == DEFAULT_SIZE
            }
            Effort::Thorough => true,
        }
    };
    let cases_of = |&engine: &ReadEngine| {
        let sizes: Vec<u64> = REQUEST_SIZES.into_iter().filter(|&block| is_selected(engine, block)).collect();
        words(&[engine]).numbers(BLOCK, &sizes)
    };
    ReadEngine::ALL.iter().flat_map(cases_of).collect()
}

/// Bytes of the trial at most, and requests.
const TRIAL_BYTES: u64 = 4 << 20;
const TRIAL_REQUESTS: u64 = 4096;
/// Bytes of the older study's file.
const PUBLISHED_FILE_BYTES: f64 = 100e6;

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (engine, block) = (required(ReadEngine::of(case), case)?, required_number(BLOCK, case)?);
    let cached_file = CachedFile::open(bench, SHARED_BYTES)?;
    let mut passes = RepeatedPasses::open(&cached_file.target, read_engine(engine), block)?;
    let requests = (TRIAL_BYTES / block).clamp(1, TRIAL_REQUESTS);
    // Untimed, so that buffers are touched and lazy loading is done.
    passes.read(bench.clock(), requests)?;
    let ticks = passes.read(bench.clock(), requests)?;
    let file_time = bench.nanoseconds(ticks) / requests as f64 * PUBLISHED_FILE_BYTES / block as f64;
    let depth =
        passes.blocks.reader.achieved_depth().map_or_else(String::new, |depth| format!("queue depth {depth:.1};"));
    bench.note(format!("{}; {depth}in a trial, 100 MB took {:.4} s", cached_file.proof, file_time / 1e9));
    if engine == ReadEngine::Fread {
        note_c_library(bench);
    }
    passes.blocks.reader.notes().into_iter().for_each(|note| bench.note(note));
    bench.time_parts([&ENGINES], |clock, requests| Ok([passes.read(clock, requests)? as f64]))?;
    cached_file.check_resident()
}

/// A file read from its beginning to its end repeatedly.
struct RepeatedPasses {
    blocks: BlockReader,
    /// Requests of a pass, and those left of this one.
    requests: u64,
    remaining_in_pass: u64,
}

impl RepeatedPasses {
    fn open(target: &Target, engine: Engine, block: u64) -> ProbeResult<Self> {
        let order = BlockOrder::Sequential;
        let bytes =
            usize::try_from(block).map_err(|_| ProbeError::fail(format!("a block of {block} bytes is too large")))?;
        let options =
            ReadOptions { access: Access::Buffered, block: bytes, order, pages: PagePolicy::for_buffer(bytes) };
        let mut blocks = BlockReader::open(target, engine, options)?;
        // Whole requests only: a rest would count as one.
        let requests = target.bytes() / block.max(1);
        blocks.requests = BlockRequests::new(0..requests * block, bytes, order).endless();
        Ok(Self { blocks, requests, remaining_in_pass: requests })
    }

    /// Makes this many requests; their ticks, without the work between passes.
    fn read(&mut self, clock: Clock, requests: u64) -> ProbeResult<u64> {
        let (mut ticks, mut remaining) = (0, requests);
        while remaining > 0 {
            let part = remaining.min(self.remaining_in_pass);
            ticks += self.blocks.time_next(clock, part)?;
            remaining -= part;
            self.remaining_in_pass -= part;
            if self.remaining_in_pass == 0 {
                self.remaining_in_pass = self.requests;
                self.blocks.reader.unmap_pages().map_err(probe_error)?;
            }
        }
        Ok(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_sys::usage::{UsageScope, read_usage};

    #[test]
    fn cases_include_published_sizes_and_engines() {
        let thorough_cases = cases(&machine(), Effort::Thorough);
        for engine in PUBLISHED_ENGINES {
            for block in [1, 10, 100, 1000, 10_000] {
                assert!(
                    thorough_cases.contains(&Case::new().with_word(engine).with_number(BLOCK, block)),
                    "{engine:?} {block}"
                );
            }
        }
        assert_eq!(cases(&machine(), Effort::Quick).len(), 6);
        assert_eq!(cases(&machine(), Effort::Default).len(), 12 + 10);
    }

    #[test]
    fn each_mmap_pass_faults_again() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let bytes = 4 << 20;
        std::fs::write(file.path(), vec![1; bytes]).unwrap();
        let target = Target::find(file.path()).unwrap();
        let block = 10_000;
        for (engine, has_faults) in [(Engine::Mmap, true), (Engine::Read, false)] {
            let mut passes = RepeatedPasses::open(&target, engine, block).unwrap();
            let pass_requests = bytes as u64 / block;
            // The first pass also touches what the engine itself needs.
            passes.read(Clock::MonotonicRaw, pass_requests).unwrap();
            let faults: Vec<u64> = (0..4)
                .map(|_| {
                    let before = read_usage(UsageScope::Thread).minor_faults;
                    assert!(passes.read(Clock::MonotonicRaw, pass_requests).unwrap() > 0);
                    read_usage(UsageScope::Thread).minor_faults - before
                })
                .collect();
            // 64 windows of 64 KiB; far fewer where large folios are mapped at once, but never none. A pass without a mapping can fault too, by
            // what the kernel or an emulator does to the test's own pages, but not every pass.
            let fewest = *faults.iter().min().unwrap();
            assert_eq!(fewest > 0, has_faults, "{engine}: {faults:?} faults");
            // From the middle of one pass into the next.
            passes.read(Clock::MonotonicRaw, pass_requests + pass_requests / 2).unwrap();
            assert_eq!(passes.remaining_in_pass, pass_requests - pass_requests / 2);
        }
    }
}
