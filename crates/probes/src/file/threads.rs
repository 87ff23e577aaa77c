//! Bytes per second that several threads read together, by block size, from memory, through an empty cache, and past it.
//!
//! It shows how many threads a reader should have. It must not be taken for threads that also process what they read.

use std::time::Duration;

use kelvin_catalogue::file::{BLOCK, CacheState, DEVICE, PAGE_READ, READ_AHEAD, THREAD_COUNT, THREADS};
use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_COPY, BANDWIDTH_READ, LATENCY};
use kelvin_file::Engine;
use kelvin_file::cache::State;
use kelvin_file::job::{self, Division, Job, Until};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::cpu;

use super::ahead::Ahead;
use super::cached;
use super::cases::{known, predictable, state};
use super::data::{self, KIB, MIB, SHARED_BYTES};
use super::expected::{self, Expected, Transfer, per_second, time};
use super::proof::Counters;
use crate::memory::{allowance, bandwidth};
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: THREADS.id.as_str(),
    summary: "Reading one file by 1 to 32 threads, by block size",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The threads read a file of 64 MiB by pread, each into its own buffer. They may run on all allowed CPUs, \
              and begin together. cached: all of it is in memory by mincore and cachestat; a thread that has read a \
              mebibyte takes the next one, from the beginning again at the end, for the round's time: nothing is read \
              again before all the rest is, for any number of threads. uncached: it is dropped by posix_fadvise until \
              mincore and cachestat find no page, and divided into one part per thread, read in order, once, so that \
              the kernel reads ahead for each; an untimed pass precedes it, so that the memory for its pages has been \
              touched. Where the device would take more than 2 s for them, 4 MiB take their place, which is \
              noted. direct: they read past the page cache (O_DIRECT) for the round's time, at least 60 ms, each its \
              part from the beginning again at the end; only `kelvin study file.threads` has these. The rate is the bytes of all over the time from the first start to the last end. A note gives \
              Jain's fairness index. The device's own counters must show 95 % of uncached and direct reads.",
        prediction: "direct: the rate of one thread (file.device.mean_latency, and what the block has beyond 4 KiB at \
                     file.device.read) times the threads, and at most file.device.read, or, of blocks of 4 KiB, that \
                     many a second as file.device.requests. cached: the rate of one thread (a call that finds a page, \
                     and a copy) times the threads, or the CPUs if those are fewer, and of several at most the rate \
                     at which all CPUs together read or copy in memory. \
                     uncached: the file over the longest of a thread's part by itself (allocating its pages, and the \
                     longer of copy and device, as in file.blocksize.read), of the work of all on the CPUs, and of all \
                     of it at file.device.read. Interference between threads is in no formula. Predicted range: a \
                     factor of two either way. The universal scalability law drawn over the figures in a report is \
                     fitted to them, and no prediction.",
        not_for: "Threads that process what they read; random access.",
        pitfalls: &[
            "Threads pinned to one CPU: here they may use all allowed ones.",
            "Two hardware threads of one core count as two CPUs in the prediction.",
            "Parts that fit a processor's caches: divided among 16 threads, 64 MiB are 4 MiB each, which a thread with \
             a CPU for some milliseconds reads several times, later from a cache. So cached threads share pieces.",
            "Free memory that a virtual machine returned to its host: whoever fills it first waits for the host.",
            "Threads that read the same blocks find them in a cache: no two read the same in one pass.",
        ],
        sources: &["Gunther: Guerrilla Capacity Planning, 2007 (bounds of linear scaling)", "fio --numjobs"],
    },
    metrics: &[&THREADS],
    inputs: &[BANDWIDTH.as_str(), LATENCY.id.as_str(), DEVICE.as_str(), PAGE_READ.id.as_str(), READ_AHEAD.id.as_str()],
    cases,
    run,
    predict,
};

/// Bytes that a thread takes at a time from memory: many requests, and a small part of the file.
const PIECE: u64 = MIB;
/// Nanoseconds of a round past the page cache at least: a few reads by each of many threads.
const LEAST: f64 = 60e6;
/// Nanoseconds of a pass through an empty page cache beyond which it is not repeated: touching memory is then the least of it.
const PATIENCE: u64 = 1_000_000_000;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let (threads, blocks): (&[u64], &[u64]) = match effort {
        Effort::Quick => (&[1, 4], &[64 * KIB]),
        Effort::Default => (&[1, 2, 4, 16], &[4 * KIB, 64 * KIB]),
        Effort::Thorough => (&[1, 2, 4, 8, 16, 32], &[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]),
    };
    let all = |cache: CacheState, blocks: &[u64]| -> Vec<Case> {
        let of_block = |&block: &u64| {
            threads.iter().map(move |&count| Case::new().with(THREAD_COUNT, count).with(BLOCK, block).at(cache))
        };
        blocks.iter().flat_map(of_block).collect()
    };
    // A pass through an empty cache takes long: as many blocks of those only where there is time.
    let (uncached, direct) = if effort == Effort::Thorough { (blocks, blocks) } else { (&[64 * KIB][..], &[][..]) };
    [all(CacheState::Cached, blocks), all(CacheState::Uncached, uncached), all(CacheState::Direct, direct)].concat()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let state = state(case)?;
    let (target, division, until) = match state {
        State::Cached => {
            let time = Duration::from_nanos(bench.slice() as u64);
            (data::file(bench, SHARED_BYTES)?, Division::Pieces(PIECE), Until::Time(time))
        }
        State::Direct => {
            let time = Duration::from_nanos(bench.slice().max(LEAST) as u64);
            (data::file(bench, SHARED_BYTES)?, Division::Parts, Until::Time(time))
        }
        _ => (data::on_device(bench, SHARED_BYTES)?, Division::Parts, Until::Passes(1)),
    };
    let (threads, block) = (known(THREAD_COUNT.of(case), case)? as u32, known(BLOCK.of(case), case)? as usize);
    if state == State::Direct {
        data::can_be_direct(&target, block as u64)?;
    }
    let job = Job { state, threads, division, until, ..data::job(&target, Engine::Pread, block) };
    // This process is pinned to one CPU, and is about to end.
    cpu::pin(bench.allowed_cpus())?;
    let read = || {
        let counters = Counters::look(&target);
        job::run(&job).map(|done| (done, counters)).map_err(data::stopped)
    };
    let (mut done, mut counters) = read()?;
    if state == State::Uncached && done.nanoseconds < PATIENCE {
        // In the same way again: its pages are then allocated from the memory of the pass before.
        (done, counters) = read()?;
    }
    match state {
        State::Cached => bench.note(format!("before, {}; {}", done.before, cached::still(done.after)?)),
        _ => bench.note(format!("before, {}; {}", done.before, counters.have_read(done.total.bytes)?)),
    }
    bench.note(format!("fairness among the threads, by Jain's index: {:.3}", done.fairness()));
    bench.record(&THREADS, vec![done.rate()]);
    Ok(())
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let (threads, block) = (predictable(THREAD_COUNT.of(case), case)?, predictable(BLOCK.of(case), case)?);
    let workers = threads.min(allowance::allowed(facts.machine()));
    match CacheState::of(case) {
        Some(CacheState::Cached) => cached(facts, workers, block),
        Some(CacheState::Uncached) => uncached(facts, threads, workers, block),
        Some(CacheState::Direct) => direct(facts, threads, block),
        None => predictable(None, case),
    }
}

/// Past the page cache: the longer of a thread's own read, and of a read by each at the rate of the device.
fn direct(facts: &Facts<'_>, threads: u64, block: u64) -> Result<Prediction, NoPrediction> {
    let alone = expected::direct(facts, block, Transfer::Read)?;
    let one = expected::one_of_many(facts, block)?;
    Ok(expected::slower(alone, expected::times(threads, one)).into_rate_of(threads * block, "a block for each thread"))
}

/// Through an empty page cache: the longest of a thread's own part, the work of all on the CPUs, and the device's transfer of
/// all.
fn uncached(facts: &Facts<'_>, threads: u64, workers: u64, block: u64) -> Result<Prediction, NoPrediction> {
    let part = Ahead::of(facts, SHARED_BYTES / threads, block)?;
    let work = expected::times(threads.div_ceil(workers), part.of_cpu());
    let all = expected::slower(
        expected::slower(part.whole(), work),
        expected::streamed(facts, SHARED_BYTES, Transfer::Read)?,
    );
    Ok(all.into_rate_of(SHARED_BYTES, "file"))
}

/// From memory: the rate of one thread times the CPUs that read at the same time.
fn cached(facts: &Facts<'_>, workers: u64, block: u64) -> Result<Prediction, NoPrediction> {
    let one = expected::cached(facts, block)?;
    // One thread does not reach what memory gives all.
    let bound = if workers > 1 { memory(facts, &one)? } else { None };
    let linear = workers as f64 * block as f64 * 1e9 / one.nanoseconds;
    let value = bound.as_ref().map_or(linear, |bound| linear.min(bound.rate));
    let Expected { nanoseconds, name, formula, derivation, inputs } = one;
    let name = match bound {
        None if workers > 1 => format!("CPUs x ({name})"),
        None => name,
        Some(_) => format!("CPUs x ({name}) or memory"),
    };
    let and = bound.as_ref().map_or_else(String::new, |bound| format!(" and {}", bound.input.name));
    let words = bound.as_ref().map_or_else(String::new, |bound| format!(", {}", bound.words));
    let predicting = Predicting::within_factor(Basis::Derived, value, expected::FACTOR)
        .formula(name, format!("the least of min(threads, CPUs) x block / ({formula}){and}"));
    let inputs = inputs.into_iter().chain(bound.map(|bound| bound.input));
    Ok(predicting.inputs(inputs).derived_as(format!(
        "{workers} x {} / ({derivation} = {}) = {}{words}; the least is {}",
        kelvin_model::units::bytes(block),
        time(nanoseconds),
        per_second(linear),
        per_second(value)
    )))
}

/// A rate that cannot be exceeded, and where it comes from.
struct Bound {
    rate: f64,
    input: Input,
    words: String,
}

/// The rate at which all CPUs together read in memory, or copy, as one of them does; `None` where there is only one.
fn memory(facts: &Facts<'_>, one: &Expected) -> Result<Option<Bound>, NoPrediction> {
    let Some(case) = bandwidth::in_memory_of_all(facts.machine()) else { return Ok(None) };
    // Of a copy the bytes count twice.
    let copied = one.inputs.iter().any(|input| input.name.starts_with(BANDWIDTH_COPY.id.as_str()));
    let (metric, share) = if copied { (&BANDWIDTH_COPY, 0.5) } else { (&BANDWIDTH_READ, 1.0) };
    let input = facts.measured(metric, &case)?;
    let rate = share * input.value;
    Ok(Some(Bound { rate, words: format!("{} of memory", per_second(rate)), input }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REQUESTS};
    use kelvin_harness::MeasuredValue;
    use kelvin_model::Fact;

    fn predicted(cpus: u32, threads: u64, cache: CacheState) -> f64 {
        predicted_of(cpus, threads, 1000, cache)
    }

    fn predicted_of(cpus: u32, threads: u64, block: u64, cache: CacheState) -> f64 {
        let mut machine = machine();
        machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        let measured = |id: &str, case: &Case| {
            let known = [
                (&BANDWIDTH_COPY, if *case == bandwidth::in_memory(&machine) { 20e9 } else { 50e9 }),
                (&DEVICE_READ, 1e9),
                (&DEVICE_REQUESTS, 50_000.0),
                (&DEVICE_MEAN_LATENCY, 80_000.0),
                (&READ_AHEAD, 4_194_304.0),
                (&PAGE_READ, if CacheState::of(case) == Some(CacheState::Cached) { 300.0 } else { 800.0 }),
            ];
            let value = known.iter().find(|(metric, _)| metric.id == *id)?.1;
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let case = Case::new().with(THREAD_COUNT, threads).with(BLOCK, block).at(cache);
        predict(&Facts::new(&machine, &measured), &THREADS, &case).unwrap().value
    }

    #[test]
    fn threads_add_up_to_the_cpus_the_memory_or_the_device() {
        // 300 ns of call, and 1000 bytes at 10 a nanosecond: 2.5 GB/s a thread.
        let about = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-9;
        assert!(about(predicted(4, 1, CacheState::Cached), 2.5e9));
        assert!(about(predicted(4, 3, CacheState::Cached), 7.5e9));
        assert!(about(predicted(4, 32, CacheState::Cached), 10e9));
        assert!(about(predicted(16, 32, CacheState::Cached), 25e9));
        assert!(about(predicted(1, 32, CacheState::Cached), 2.5e9));
        // 16384 pages of 500 ns; then 22 windows of 80 us and the rest at a byte a nanosecond, which is more than calls and
        // copies.
        let time = 16_384.0 * 500.0 + 22.0 * 80_000.0 + (SHARED_BYTES - 22 * 4096) as f64;
        assert!(about(predicted(1, 1, CacheState::Uncached), SHARED_BYTES as f64 * 1e9 / time));
        // Of many, those of others overlap.
        assert!(about(predicted(8, 32, CacheState::Uncached), 1e9));
    }

    #[test]
    fn one_thread_needs_no_rate_of_all_cpus() {
        let mut machine = machine();
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        let measured = |id: &str, case: &Case| {
            let one = BANDWIDTH_COPY.id == *id && *case == bandwidth::in_memory(&machine);
            let value = if one { 20e9 } else { (PAGE_READ.id == *id).then_some(300.0)? };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = Facts::new(&machine, &measured);
        let of = |threads: u64| {
            let case = Case::new().with(THREAD_COUNT, threads).with(BLOCK, 1000).at(CacheState::Cached);
            predict(&facts, &THREADS, &case)
        };
        assert!((of(1).unwrap().value / 2.5e9 - 1.0).abs() < 1e-9);
        assert!(of(2).is_err());
    }

    #[test]
    fn past_the_cache_threads_add_up_to_what_the_device_serves() {
        let about = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
        let small = |threads| predicted_of(1, threads, 4 * KIB, CacheState::Direct);
        // A read of 4 KiB takes 80 us alone; the device serves four at a time.
        for (threads, rate) in [(1, 51.2e6), (4, 204.8e6), (5, 204.8e6), (32, 204.8e6)] {
            about(small(threads), rate);
        }
        let large = |threads| predicted_of(1, threads, 4 * KIB + 80_000, CacheState::Direct);
        // 80 us, and 80 000 bytes at a byte a nanosecond.
        about(large(1), (4096.0 + 80_000.0) / 160_000.0 * 1e9);
        about(large(2), 1e9);
        about(large(32), 1e9);
    }

    #[test]
    fn only_a_study_reads_past_the_cache() {
        let direct = |effort| {
            let cases = cases(&machine(), effort).into_iter();
            cases.filter(|case| CacheState::of(case) == Some(CacheState::Direct)).count()
        };
        assert_eq!([Effort::Quick, Effort::Default, Effort::Thorough].map(direct), [0, 0, 30]);
    }
}
