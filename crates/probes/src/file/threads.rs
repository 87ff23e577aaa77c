//! How many bytes a second several threads read together, in blocks of each size, from memory and through an empty cache.
//!
//! It shows how many threads a reader should have. It must not be taken for what threads do that also work on what they
//! read.

use std::time::Duration;

use kelvin_file::cache::State;
use kelvin_file::job::{self, Job, Until};
use kelvin_file::{Engine, Order};
use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::cpu;

use super::axes::{BLOCK, CACHE, THREADS, number, state};
use super::cached;
use super::data::{self, KIB, MIB};
use super::device::{self, of_disk};
use super::expected::{self, Expected, Way, per_second, time};
use super::proof::Counters;
use crate::memory::bandwidth;
use crate::os::syscall_null;
use crate::predict::Predicting;

pub(super) static METRIC: Metric =
    of_disk(Metric::rate("file.threads", "Bytes read per second by all threads together, each its part of one file"))
        .over([Some(THREADS), Some(BLOCK), Some(CACHE)])
        .seed();

pub(super) static PROBE: Probe = Probe {
    id: "file.threads",
    summary: "Reading one file by 1 to 32 threads, each its part, in blocks of each size",
    kind: Kind::Measure,
    method: Method {
        how: "A file of 64 MiB is divided among so many threads, each of which reads its part by pread in order into a buffer \
              of its own. They may run on all CPUs that are allowed, and begin together. cached: all of it is in memory by \
              mincore and cachestat; they read again and again for the time of the round. uncached: it is dropped by \
              posix_fadvise until mincore and cachestat find no page, and read once. The rate is the bytes of all over the \
              time from the first start to the last end. A note says how evenly they were served, by Jain's index. Of \
              uncached reads the device's own counters must show 95 %.",
        prediction: "cached: as many times the rate of one thread (a null system call and a copy) as \
                     there are threads, or CPUs if those are fewer, and no more than all CPUs together read or copy in \
                     memory. uncached: the same, and no more than file.device.read. Threads that hinder one another are in \
                     no formula. Unremarkable within a factor of two. The universal scalability law that a report draws over \
                     the figures is fitted to them, and no prediction.",
        not_for: "Threads that work on what they read; random access.",
        pitfalls: &[
            "Threads pinned to one CPU: here they may use all that are allowed.",
            "Two threads on the two halves of one core count as two CPUs in the prediction.",
            "A part that a processor's caches hold: the more threads, the smaller the parts, and a thread that has a CPU for \
             some milliseconds reads a part of 4 MiB several times, the later times out of a cache. With more threads than \
             CPUs cached rates may rise for that reason alone, beyond what memory gives.",
            "Threads that read the same blocks find in memory what others read: each has its own part.",
        ],
        sources: &["Gunther: Guerrilla Capacity Planning, 2007 (bounds of linear scaling)", "fio --numjobs"],
    },
    metrics: &[&METRIC],
    inputs: &[syscall_null::ID, bandwidth::ID, device::ID],
    cases,
    run,
    predict,
};

const BYTES: u64 = 64 * MIB;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let (threads, blocks): (&[u64], &[u64]) = match effort {
        Effort::Quick => (&[1, 4], &[64 * KIB]),
        Effort::Default => (&[1, 2, 4, 16], &[4 * KIB, 64 * KIB]),
        Effort::Thorough => (&[1, 2, 4, 8, 16, 32], &[4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB]),
    };
    let case = |cache: &'static str, block: u64, threads: u64| {
        Case::new().with(&THREADS.name, threads).with(&BLOCK.name, block).with_word(&CACHE.name, cache)
    };
    let all = |cache, blocks: &[u64]| -> Vec<Case> {
        blocks.iter().flat_map(|&block| threads.iter().map(move |&count| case(cache, block, count))).collect()
    };
    // A pass through an empty cache takes long: of those as many blocks only where there is time.
    let uncached = if effort == Effort::Thorough { blocks } else { &[64 * KIB] };
    [all("cached", blocks), all("uncached", uncached)].concat()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let state = state(case)?;
    let target = data::file(bench, BYTES)?;
    let until = match state {
        State::Cached => Until::Time(Duration::from_nanos(bench.slice() as u64)),
        _ => Until::Passes(1),
    };
    let job = Job {
        target: target.clone(),
        engine: Engine::Pread,
        block: number(case, &BLOCK)? as usize,
        order: Order::Sequential,
        state,
        threads: number(case, &THREADS)? as u32,
        range: 0..BYTES,
        until,
        digest: false,
        latencies: None,
    };
    // This process is pinned to one CPU, and is about to end.
    cpu::pin(bench.allowed_cpus())?;
    let counters = Counters::look(&target);
    let done = job::run(&job).map_err(data::stopped)?;
    match state {
        State::Cached => bench.note(format!("before, {}; {}", done.before, cached::still(done.after)?)),
        _ => bench.note(format!("before, {}; {}", done.before, counters.have_read(done.total.bytes)?)),
    }
    bench.note(format!("fairness among the threads, by Jain's index: {:.3}", done.fairness()));
    bench.record(&METRIC, vec![done.rate()]);
    Ok(())
}

/// A rate that cannot be passed, and where it comes from.
struct Bound {
    rate: f64,
    input: Input,
    words: String,
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let (Some(threads), Some(block)) = (case.integer(&THREADS.name), case.integer(&BLOCK.name)) else {
        return Err(NoPrediction::because("the case names no threads or no block"));
    };
    let cpus = bandwidth::allowed(facts.machine());
    let one = expected::cached(facts, block, Way::Read)?;
    let mut bounds: Vec<Bound> = memory(facts, &one)?.into_iter().collect();
    if case.word(&CACHE.name) == Some("uncached") {
        let input = facts.measured(&device::READ, &Case::new())?;
        bounds.push(Bound { rate: input.value, words: format!("{} of the device", per_second(input.value)), input });
    }
    let workers = threads.min(cpus);
    let linear = workers as f64 * block as f64 * 1e9 / one.nanoseconds;
    let value = bounds.iter().map(|bound| bound.rate).fold(linear, f64::min);
    let Expected { nanoseconds, formula, derivation, inputs } = one;
    let names: Vec<&str> = bounds.iter().map(|bound| bound.input.name.as_str()).collect();
    let limits: Vec<&str> = bounds.iter().map(|bound| bound.words.as_str()).collect();
    let predicting = Predicting::within_factor(Basis::Derived, value, expected::FACTOR).formula(format!(
        "the least of min(threads, CPUs) x block / ({formula}){}{}",
        if names.is_empty() { "" } else { " and " },
        names.join(" and ")
    ));
    let predicting = inputs.into_iter().fold(predicting, Predicting::input);
    let words = format!(
        "{workers} x {} / ({derivation} = {}) = {}{}{}; the least is {}",
        expected::bytes(block),
        time(nanoseconds),
        per_second(linear),
        if limits.is_empty() { "" } else { ", " },
        limits.join(", "),
        per_second(value)
    );
    Ok(bounds.into_iter().map(|bound| bound.input).fold(predicting, Predicting::input).derived_as(words))
}

/// What all CPUs together read in memory, or copy, as one of them does; `None` where there is only one.
fn memory(facts: &Facts<'_>, one: &Expected) -> Result<Option<Bound>, NoPrediction> {
    let Some(case) = bandwidth::in_memory_of_all(facts.machine()) else { return Ok(None) };
    // Of a copy the bytes count twice.
    let copied = one.inputs.iter().any(|input| input.name.starts_with(bandwidth::COPY.id.as_str()));
    let (metric, share) = if copied { (&bandwidth::COPY, 0.5) } else { (&bandwidth::READ, 1.0) };
    let input = facts.measured(metric, &case)?;
    let rate = share * input.value;
    Ok(Some(Bound { rate, words: format!("{} of memory", per_second(rate)), input }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_harness::MeasuredValue;
    use kelvin_model::Fact;

    fn predicted(cpus: u32, threads: u64, cache: &'static str) -> f64 {
        let mut machine = machine();
        machine.topology.allowed = Fact::known((0..cpus).collect(), "a test");
        let measured = |id: &str, case: &Case| {
            let value = match (id, case.word("cpus")) {
                ("os.syscall.null", _) => 100.0,
                ("mem.bandwidth.copy", Some("one")) => 20e9,
                ("mem.bandwidth.copy", _) => 50e9,
                ("file.device.read", _) => 1e9,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let case = Case::new().with("threads", threads).with("block", 1000).with_word("cache", cache);
        predict(&Facts::new(&machine, &measured), &METRIC, &case).unwrap().value
    }

    #[test]
    fn threads_add_up_to_the_cpus_the_memory_or_the_device() {
        // 100 ns of call, and 1000 bytes at 10 a nanosecond: 5 GB/s a thread.
        let about = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-9;
        assert!(about(predicted(4, 1, "cached"), 5e9));
        assert!(about(predicted(4, 3, "cached"), 15e9));
        assert!(about(predicted(4, 32, "cached"), 20e9));
        assert!(about(predicted(8, 32, "cached"), 25e9));
        assert!(about(predicted(1, 32, "cached"), 5e9));
        assert!(about(predicted(8, 32, "uncached"), 1e9));
    }
}
