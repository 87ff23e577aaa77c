//! Bytes per second that several threads read together, by block size, from memory, through an empty cache, and past it.
//!
//! It shows how many threads a reader should have. It must not be taken for threads that also process what they read.

use kelvin_core::catalogue::file::{THREAD_COUNT, THREADS};
use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ};
use kelvin_file::read_job::Division;
use kelvin_sys::cpu;

use super::prelude::*;
use super::read_ahead_model::ReadAheadCost;

pub(super) static PROBE: Probe = Probe {
    summary: "Reading one file by 1 to 32 threads, by block size",
    method: include_str!("threads.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&THREADS])
};

/// Bytes that a thread takes at a time from memory: many requests, and a small part of the file.
const PIECE_BYTES: u64 = MIB;
/// Nanoseconds of a round past the page cache at least: a few reads by each of many threads.
const MIN_ROUND_NANOSECONDS: f64 = 60e6;
/// Nanoseconds of a pass through an empty page cache beyond which it is not repeated: touching memory is then the least of it.
const MAX_PASS_NANOSECONDS: u64 = 1_000_000_000;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let (threads, blocks): (&[u64], &[u64]) = match effort {
        Effort::Quick => (&[1, 4], &[64 * KIB]),
        Effort::Default => (&[1, 2, 4, 16], &[4 * KIB, 64 * KIB]),
        Effort::Thorough => (&[1, 2, 4, 8, 16, 32], &[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]),
    };
    // A pass through an empty cache takes long: as many blocks of those only where there is time.
    let (uncached, direct) = if effort == Effort::Thorough { (blocks, blocks) } else { (&[64 * KIB][..], &[][..]) };
    let states = [(CacheState::Cached, blocks), (CacheState::Uncached, uncached), (CacheState::Direct, direct)];
    let cases = |(cache, blocks)| words(&[cache]).numbers(BLOCK, blocks).numbers(THREAD_COUNT, threads);
    states.into_iter().flat_map(cases).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let state = cache_state(case)?;
    let (target, division, until) = match state {
        PageCacheState::Cached => {
            let target = test_files::shared_file(bench, SHARED_BYTES)?;
            (target, Division::Pieces(PIECE_BYTES), test_files::time_limit(bench.slice()))
        }
        PageCacheState::Direct => {
            let time = test_files::time_limit(bench.slice().max(MIN_ROUND_NANOSECONDS));
            (test_files::shared_file(bench, SHARED_BYTES)?, Division::Parts, time)
        }
        _ => (test_files::device_file(bench, SHARED_BYTES)?, Division::Parts, EndCondition::Passes(1)),
    };
    let threads = required_number(THREAD_COUNT, case)? as u32;
    let block = required_number(BLOCK, case)? as usize;
    test_files::check_block(&target, state, block as u64)?;
    let job = ReadJob { state, threads, division, until, ..test_files::direct_read_job(&target, Engine::Pread, block) };
    // This process is pinned to one CPU, and is about to end.
    cpu::pin(bench.allowed_cpus())?;
    let read = || {
        let counters = DeviceCounters::now(&target);
        Ok::<_, ProbeError>((test_files::run_job(&job)?, counters))
    };
    let (mut result, mut counters) = read()?;
    if state == PageCacheState::Uncached && result.nanoseconds < MAX_PASS_NANOSECONDS {
        // In the same way again: its pages are then allocated from the memory of the pass before.
        (result, counters) = read()?;
    }
    let proof = match state {
        PageCacheState::Cached => describe_residency(result.after)?,
        _ => counters.prove_read(result.total.bytes)?,
    };
    bench.note(format!("before, {}; {proof}", result.before));
    bench.note(format!("fairness among the threads, by Jain's index: {:.3}", result.fairness()));
    bench.record(&THREADS, vec![result.rate()]);
    Ok(())
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (threads, block) = (required_number(THREAD_COUNT, case)?, required_number(BLOCK, case)?);
    let workers = threads.min(memory_budget::allowed_cpu_count(facts.machine()));
    let rate = match required(CacheState::of(case), case)? {
        CacheState::Cached => cached_rate(facts, workers, block)?,
        // The longest of a thread's own part, the work of all on the CPUs, and the device's transfer of all.
        CacheState::Uncached => {
            let part = ReadAheadCost::new(facts, SHARED_BYTES / threads, block)?;
            let work = count_of("threads of a CPU", threads.div_ceil(workers)) * part.cpu_time();
            let stream_time = derived_time::streamed_block(facts, SHARED_BYTES, IoDirection::Read)?;
            bytes_of("file", SHARED_BYTES) / part.single_thread_time().max(work).max(stream_time)
        }
        // The longer of a thread's own read, and of a read by each at the rate of the device.
        CacheState::Direct => {
            let count = count_of("threads", threads);
            let request_time = derived_time::direct_request(facts, block, IoDirection::Read)?;
            let time = request_time.max(count.clone() * derived_time::queued_read(facts, block)?);
            count * bytes_of("block", block) / time
        }
    };
    Ok(derived_time::predict_from_parts(rate))
}

/// From memory: the rate of one thread times the CPUs that read at the same time. It is no more than all CPUs together
/// read in memory, or copy, as one of them does.
fn cached_rate(facts: &PredictionInputs<'_>, workers: u64, block: u64) -> Predicted<Expr> {
    let single = bytes_of("block", block) / derived_time::cached_read(facts, block)?;
    if workers == 1 {
        // One thread does not reach what memory gives all.
        return Ok(single);
    }
    let mut rate = count_of("CPUs", workers).variant("CPUs") * single;
    if let Some(case) = bandwidth::all_cpus_memory_case(facts.machine()) {
        let memory = match derived_time::buffer_stays_in_cache(facts, block) {
            true => measured(facts, &BANDWIDTH_READ, &case)?,
            // Of a copy the bytes count twice.
            false => measured(facts, &BANDWIDTH_COPY, &case)? / 2.0,
        };
        rate = rate.min(memory.variant("memory"));
    }
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_core::Fact;
    use kelvin_core::catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REQUESTS, PAGE_READ, READ_AHEAD};
    use kelvin_harness::MeasuredValue;

    fn predicted(cpus: u32, threads: u64, cache: CacheState) -> f64 {
        predicted_at_block(cpus, threads, 1000, cache)
    }

    fn predicted_at_block(cpus: u32, threads: u64, block: u64, cache: CacheState) -> f64 {
        let mut machine = machine();
        machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        let measured = |id: &str, case: &Case| {
            let values = [
                (&BANDWIDTH_COPY, if *case == bandwidth::memory_case(&machine) { 20e9 } else { 50e9 }),
                (&DEVICE_READ, 1e9),
                (&DEVICE_REQUESTS, 50_000.0),
                (&DEVICE_MEAN_LATENCY, 80_000.0),
                (&READ_AHEAD, 4_194_304.0),
                (&PAGE_READ, if CacheState::of(case) == Some(CacheState::Cached) { 300.0 } else { 800.0 }),
            ];
            let value = values.iter().find(|(metric, _)| metric.id == *id)?.1;
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let case = Case::new().with_number(THREAD_COUNT, threads).with_number(BLOCK, block).with_word(cache);
        predict(&PredictionInputs::new(&machine, &measured), &THREADS, &case).unwrap().value
    }

    #[test]
    fn thread_rate_is_bounded_by_resources() {
        // 300 ns of call, and 1000 bytes at 10 a nanosecond: 2.5 GB/s a thread.
        let is_close = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-9;
        assert!(is_close(predicted(4, 1, CacheState::Cached), 2.5e9));
        assert!(is_close(predicted(4, 3, CacheState::Cached), 7.5e9));
        assert!(is_close(predicted(4, 32, CacheState::Cached), 10e9));
        assert!(is_close(predicted(16, 32, CacheState::Cached), 25e9));
        assert!(is_close(predicted(1, 32, CacheState::Cached), 2.5e9));
        // 16384 pages of 500 ns; then 22 windows of 80 us and the rest at a byte a nanosecond, which is more than calls and
        // copies.
        let time = 16_384.0 * 500.0 + 22.0 * 80_000.0 + (SHARED_BYTES - 22 * 4096) as f64;
        assert!(is_close(predicted(1, 1, CacheState::Uncached), SHARED_BYTES as f64 * 1e9 / time));
        // Of many, those of others overlap.
        assert!(is_close(predicted(8, 32, CacheState::Uncached), 1e9));
    }

    #[test]
    fn single_thread_has_no_memory_bound() {
        let mut machine = machine();
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        let measured = |id: &str, case: &Case| {
            let is_single_copy = BANDWIDTH_COPY.id == *id && *case == bandwidth::memory_case(&machine);
            let value = if is_single_copy { 20e9 } else { (PAGE_READ.id == *id).then_some(300.0)? };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let prediction_at = |threads: u64| {
            let case =
                Case::new().with_number(THREAD_COUNT, threads).with_number(BLOCK, 1000).with_word(CacheState::Cached);
            predict(&facts, &THREADS, &case)
        };
        assert!((prediction_at(1).unwrap().value / 2.5e9 - 1.0).abs() < 1e-9);
        assert!(prediction_at(2).is_err());
    }

    #[test]
    fn direct_threads_reach_device_rate() {
        let assert_close =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
        let small_read_rate = |threads| predicted_at_block(1, threads, 4 * KIB, CacheState::Direct);
        // A read of 4 KiB takes 80 us alone; the device serves four at a time.
        for (threads, rate) in [(1, 51.2e6), (4, 204.8e6), (5, 204.8e6), (32, 204.8e6)] {
            assert_close(small_read_rate(threads), rate);
        }
        let large_read_rate = |threads| predicted_at_block(1, threads, 4 * KIB + 80_000, CacheState::Direct);
        // 80 us, and 80 000 bytes at a byte a nanosecond.
        assert_close(large_read_rate(1), (4096.0 + 80_000.0) / 160_000.0 * 1e9);
        assert_close(large_read_rate(2), 1e9);
        assert_close(large_read_rate(32), 1e9);
    }

    #[test]
    fn direct_cases_are_study_only() {
        let direct = |effort| {
            let cases = cases(&machine(), effort).into_iter();
            cases.filter(|case| CacheState::of(case) == Some(CacheState::Direct)).count()
        };
        assert_eq!([Effort::Quick, Effort::Default, Effort::Thorough].map(direct), [0, 0, 30]);
    }
}
