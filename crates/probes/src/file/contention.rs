//! The time of a read when several threads read from one device at the same time.
//!
//! It shows whether a device is shared evenly, and whether many readers slow it down altogether. It must not be used for cached
//! files, which share processors and memory instead.

use kelvin_core::catalogue::file::{CONTENTION, FileSharing, THREAD_COUNT};
use kelvin_file::read_job;
use kelvin_file::start_barrier::StartBarrier;
use kelvin_sys::cpu;
use kelvin_sys::thread_spawn::ThreadBuilder;

use super::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "Reads past the page cache by 1 to 16 threads, each in its own file or all in one, by block",
    method: include_str!("contention.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CONTENTION])
};

/// A file for each thread in a run: small, for there are many.
const OWN_FILE_BYTES: u64 = 16 * MIB;
/// Blocks that a study reads: those of the older study, where requests count, and large ones, where bytes do.
const BLOCKS: [u64; 2] = [4 * KIB, MIB];
/// Threads of the older study.
const MAX_THREADS: u64 = 16;
/// Nanoseconds of a round at least: a few reads by each of many threads.
const MIN_ROUND_NANOSECONDS: f64 = 60e6;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let run_cases = |threads: &[u64], files: FileSharing, bytes: u64| {
        numbers(THREAD_COUNT, threads).words(&[files]).numbers(BLOCK, &[MIB]).numbers(BYTES, &[bytes])
    };
    let thread_counts: &[u64] = if effort == Effort::Quick { &[1, 4] } else { &[1, 2, 4, 8, 16] };
    let own_file_cases = run_cases(thread_counts, FileSharing::Own, OWN_FILE_BYTES);
    match effort {
        Effort::Quick => own_file_cases,
        Effort::Default => [own_file_cases, run_cases(&[4, 16], FileSharing::Shared, SHARED_BYTES)].concat(),
        Effort::Thorough => {
            let threads: Vec<u64> = (1..=MAX_THREADS).collect();
            let published = numbers(BLOCK, &BLOCKS).words(FileSharing::ALL).numbers(THREAD_COUNT, &threads);
            [own_file_cases, published.numbers(BYTES, &[SHARED_BYTES])].concat()
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (threads, block) = (required_number(THREAD_COUNT, case)?, required_number(BLOCK, case)?);
    let bytes = required_number(BYTES, case)?;
    let parts = match required(FileSharing::of(case), case)? {
        FileSharing::Own => (0..threads)
            .map(|thread| {
                Ok(ThreadRange { target: test_files::numbered_file(bench, bytes, thread)?, range: 0..bytes, block })
            })
            .collect::<ProbeResult<Vec<ThreadRange>>>()?,
        FileSharing::Shared => split_file(test_files::shared_file(bench, bytes)?, threads, block),
    };
    for part in &parts {
        test_files::check_direct_io(&part.target, block)?;
    }
    // This process is pinned to one CPU, and is about to end.
    cpu::pin(bench.allowed_cpus())?;
    let counters = DeviceCounters::now(&parts[0].target);
    let results = read_in_threads(&parts, bench.slice().max(MIN_ROUND_NANOSECONDS) as u64)?;
    let bytes = results.iter().map(|(tally, _)| tally.bytes).sum();
    bench.note(counters.prove_read(bytes)?);
    let rates: Vec<f64> = results.iter().map(|(tally, time)| tally.bytes as f64 / (*time).max(1) as f64).collect();
    bench.note(format!("fairness among {threads} threads, by Jain's index: {:.3}", read_job::jain_fairness(&rates)));
    bench.record(&CONTENTION, vec![mean_read_time(&results)]);
    Ok(())
}

/// The mean time of a read over all threads, in nanoseconds.
fn mean_read_time(results: &[(IoTally, u64)]) -> f64 {
    let (reads, time) =
        results.iter().fold((0, 0), |(reads, time), (tally, thread_time)| (reads + tally.requests, time + thread_time));
    time as f64 / reads.max(1) as f64
}

/// What one thread reads.
struct ThreadRange {
    target: Target,
    range: std::ops::Range<u64>,
    block: u64,
}

/// The parts of one file, whole blocks each.
fn split_file(target: Target, threads: u64, block: u64) -> Vec<ThreadRange> {
    let blocks = target.bytes() / block;
    let start = |thread| thread * blocks / threads * block;
    let range = |thread| start(thread)..start(thread + 1);
    (0..threads).map(|thread| ThreadRange { target: target.clone(), range: range(thread), block }).collect()
}

/// Has threads read a part each for this many nanoseconds: the bytes of each, and its time.
fn read_in_threads(parts: &[ThreadRange], nanoseconds: u64) -> ProbeResult<Vec<(IoTally, u64)>> {
    let barrier = StartBarrier::new(parts.len());
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let start = |part| {
            let thread = ThreadBuilder::named("reader").start_in(scope, move || read_range(part, nanoseconds, barrier));
            thread.inspect_err(|_| barrier.cancel())
        };
        let handles = parts.iter().map(start).collect::<std::io::Result<Vec<_>>>()?;
        let thread_panic = || Err(ProbeError::fail("a reading thread panicked"));
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| thread_panic())).collect()
    })
}

fn read_range(part: &ThreadRange, nanoseconds: u64, barrier: &StartBarrier) -> ProbeResult<(IoTally, u64)> {
    let order = BlockOrder::Sequential;
    let block = part.block as usize;
    let options = ReadOptions { access: Access::Direct, block, order, pages: PagePolicy::Base };
    let blocks = BlockReader::open(&part.target, Engine::Pread, options);
    // A thread that cannot read must come to the barrier too, or the others would wait for ever.
    fail_if(!barrier.wait(), "another thread could not be started")?;
    let mut blocks = blocks?;
    blocks.requests = BlockRequests::new(part.range.clone(), block, order).endless();
    let start_time = monotonic();
    while monotonic() - start_time < nanoseconds {
        blocks.read_next(1)?;
    }
    Ok((blocks.tally, monotonic() - start_time))
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (threads, block) = (required_number(THREAD_COUNT, case)?, required_number(BLOCK, case)?);
    let request_time = derived_time::direct_request(facts, block, IoDirection::Read)?;
    let queued_time = count_of("threads", threads) * derived_time::queued_read(facts, block)?;
    Ok(derived_time::predict_from_parts(request_time.max(queued_time)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REQUESTS};

    #[test]
    fn device_rate_is_shared_equally() {
        let values = [
            (DEVICE_READ.id.as_str(), Some(1048.576e6)),
            (DEVICE_MEAN_LATENCY.id.as_str(), Some(500_000.0)),
            (DEVICE_REQUESTS.id.as_str(), Some(10_000.0)),
        ];
        with_facts(&values, |facts| {
            let time = |threads, block| {
                predict(facts, &CONTENTION, &Case::new().with_number(THREAD_COUNT, threads).with_number(BLOCK, block))
                    .unwrap()
                    .value
            };
            // A millisecond for a mebibyte; alone, half of one more, less 4 KiB.
            assert!((time(1, MIB) - 1_496_093.75).abs() < 1e-6);
            assert_eq!((time(2, MIB), time(16, MIB)), (2e6, 16e6));
            // A small read takes 500 us, of which the device serves five at a time.
            assert_eq!([1, 5, 6, 16].map(|threads| time(threads, 4 * KIB)), [5e5, 5e5, 6e5, 16e5]);
        });
    }

    #[test]
    fn study_has_published_cases() {
        let machine = crate::testing::machine();
        let thorough_cases = cases(&machine, Effort::Thorough);
        for threads in 1..=16 {
            for &files in FileSharing::ALL {
                for block in [4 * KIB, MIB] {
                    let case =
                        Case::new().with_number(THREAD_COUNT, threads).with_word(files).with_number(BLOCK, block);
                    assert!(thorough_cases.contains(&case.clone().with_number(BYTES, 64 * MIB)), "{case}");
                }
            }
        }
        let default_cases = cases(&machine, Effort::Default);
        let is_large = |case: &&Case| {
            FileSharing::of(case) == Some(FileSharing::Own) && BYTES.number_in(case) != Some(OWN_FILE_BYTES)
        };
        assert_eq!((default_cases.len(), default_cases.iter().find(is_large)), (7, None));
    }

    #[test]
    fn file_is_divided_completely() {
        let path = std::env::current_dir().unwrap().join(format!("kelvin-shared-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(7 * MIB).unwrap();
        let parts = split_file(Target::find(&path).unwrap(), 3, MIB);
        std::fs::remove_file(&path).unwrap();
        let ranges: Vec<_> = parts.into_iter().map(|part| part.range.start / MIB..part.range.end / MIB).collect();
        assert_eq!(ranges, [0..2, 2..4, 4..7]);
    }

    #[test]
    fn mean_is_over_reads() {
        let result = |requests| (IoTally { bytes: 0, requests }, 900);
        assert_eq!(mean_read_time(&[result(1), result(8)]), 200.0);
    }
}
