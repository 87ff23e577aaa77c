//! Latency of dependent loads at a constant backward stride, over a set that no cache holds, and over smaller ones.
//!
//! The curve shows how well prefetchers hide a regular pattern. It must not be used as memory latency, for the same
//! reason.

use kelvin_catalogue::cpu::FREQUENCY;
use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_READ, BYTES, LATENCY, LATENCY_STRIDE, STRIDE};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::memory::{LINE, Pages, Ring};

use super::axes::{check_pages, number, obtained};
use super::{allowance, bandwidth, latency};
use crate::predict::Predicting;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: LATENCY_STRIDE.id.as_str(),
    summary: "Latency of dependent loads by backward stride, 16 B to 4 KiB, and by size of the set",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Pointers a stride apart, each to the one before it in memory, chased by a chain of loads in assembly. \
              With a stride of more than a line the set is passed over several times, each pass one line further on, \
              so that every line is used and none is still cached when revisited. The set is twice the last-level \
              cache, at least 64 MiB, in base pages, memory permitting; it is flushed from the caches first. Its size \
              and pages are noted. `kelvin study mem.latency.stride` has smaller sets too, from 8 KiB on: stride and \
              set make a surface, whose steps along the sets are the caches, and along the strides the line and the \
              prefetchers.",
        prediction: "Perfect prefetching: the new bytes per load (a line, or the stride if smaller) over the measured \
                     read bandwidth of such a set on one CPU, and at least an L1 hit. Predicted range: from there to \
                     no prefetching, each new line at random-access latency. The metric shows where between the two a \
                     core lies; no core's prefetcher is published in enough detail to predict it. Of a smaller set: from an \
                     L1 hit, where all is prefetched or in the first cache, to each new line at the random-access \
                     latency of a set of that size.",
        not_for: "Memory latency: that is mem.latency, which no prefetcher can predict.",
        pitfalls: &[
            "A stride below the line size shares each line's miss among several loads: the rise to 64 B is the line.",
            "At large strides the few touched lines of a large set fit a cache: here all lines are touched.",
            "Prefetchers stop at the end of a page (4 KiB, or what the core treats as one).",
        ],
        sources: &["lmbench lat_mem_rd, which walks backwards by a constant stride"],
    },
    metrics: &[&LATENCY_STRIDE],
    inputs: &[FREQUENCY.id.as_str(), LATENCY.id.as_str(), BANDWIDTH.as_str()],
    cases,
    run,
    predict,
};

const STRIDES: [u64; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const QUICK: [u64; 3] = [16, 64, 1024];
const USUAL: [u64; 6] = [16, 32, 64, 256, 1024, 4096];
/// Set in bytes that fits every first-level cache, and has two of the largest stride.
const SMALLEST: u64 = 8 << 10;
/// Minimum large set in bytes, memory permitting.
const LEAST: u64 = 64 << 20;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let strides: &[u64] = match effort {
        Effort::Quick => &QUICK,
        Effort::Default => &USUAL,
        Effort::Thorough => &STRIDES,
    };
    let mut sets = vec![set(machine)];
    if effort == Effort::Thorough {
        sets.extend(smaller(machine));
    }
    let of = |bytes: u64| strides.iter().map(move |&stride| Case::new().with(BYTES, bytes).with(STRIDE, stride));
    sets.into_iter().flat_map(of).collect()
}

/// The sets of a surface beside the largest: powers of two, of which `mem.latency` has each.
fn smaller(machine: &Machine) -> Vec<u64> {
    let sizes = (SMALLEST.ilog2()..=latency::largest(machine).ilog2()).map(|power| 1 << power);
    sizes.filter(|&bytes| bytes < set(machine)).collect()
}

/// Twice the last-level cache and at least 64 MiB, memory permitting, in multiples of the largest stride.
fn set(machine: &Machine) -> u64 {
    let largest_stride = STRIDES[STRIDES.len() - 1];
    let wanted = (2 * allowance::last_level(machine)).max(LEAST).min(allowance::largest(machine, 1));
    (wanted / largest_stride).max(2) * largest_stride
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (bytes, stride) = (number(case, BYTES)?, number(case, STRIDE)?);
    let mut ring = obtained(bytes, Ring::backwards(bytes, stride, Pages::Base))?;
    bench.note(check_pages(ring.arena(), Pages::Base)?);
    ring.evict_end(usize::MAX);
    bench.time(&LATENCY_STRIDE, |loads| {
        ring.chase(loads);
        Ok(())
    })
}

/// Tolerance of the bounds, as a share.
const TOLERANCE: f64 = 0.1;

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let stride = STRIDE.of(case).ok_or_else(|| NoPrediction::because("the case has no stride"))? as f64;
    if let Some(bytes) = BYTES.of(case).filter(|&bytes| bytes < set(facts.machine())) {
        return of_smaller(facts, bytes, stride);
    }
    let line = LINE as f64;
    let core = published::core(facts)?;
    let frequency = published::frequency(facts)?;
    let bandwidth = facts.measured(&BANDWIDTH_READ, &bandwidth::in_memory(facts.machine()))?;
    let random = facts.measured(&LATENCY, &latency::in_memory(facts.machine()))?;
    let load = core.load * 1e9 / frequency.value;
    let fresh = stride.min(line);
    let moved = fresh / bandwidth.value * 1e9;
    let value = moved.max(load);
    let most = load + random.value * fresh / line;
    let (low, high) = (load * (1.0 - TOLERANCE), most.max(value) * (1.0 + TOLERANCE));
    Ok(Predicting::between(Basis::Derived, value, low, high)
        .formula("the larger of min(stride, line) / read bandwidth, and load / core frequency")
        .input(published::cycles("load", core.load, core.source))
        .input(frequency)
        .input(bandwidth.clone())
        .input(random.clone())
        .constant("line", line, Unit::Bytes, "machine facts")
        .source(core.source)
        .derived_as(format!(
            "{fresh} B / {:.2} GB/s = {moved:.2} ns against {load:.2} ns; without prefetching {load:.2} + {:.1} ns x \
             {fresh}/{line} = {most:.1} ns",
            bandwidth.value / 1e9,
            random.value
        )))
}

/// Of a set that caches may hold: from an L1 hit to a random access for each new line, expected at the former.
fn of_smaller(facts: &Facts<'_>, bytes: u64, stride: f64) -> Result<Prediction, NoPrediction> {
    let (line, core, frequency) = (LINE as f64, published::core(facts)?, published::frequency(facts)?);
    let random = facts.measured(&LATENCY, &latency::in_base_pages(bytes))?;
    let load = core.load * 1e9 / frequency.value;
    let fresh = stride.min(line);
    let most = load + random.value * fresh / line;
    Ok(Predicting::between(Basis::Derived, load, load * (1.0 - TOLERANCE), most * (1.0 + TOLERANCE))
        .formula("load / core frequency, and at most that + random access x min(stride, line) / line")
        .input(published::cycles("load", core.load, core.source))
        .input(frequency)
        .input(random.clone())
        .constant("line", line, Unit::Bytes, "machine facts")
        .source(core.source)
        .derived_as(format!(
            "{load:.2} ns; without prefetching {load:.2} + {:.1} ns x {fresh}/{line} = {most:.1} ns",
            random.value
        )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_harness::MeasuredValue;
    use kelvin_model::Fact;

    #[test]
    fn the_set_is_beyond_the_caches_where_memory_permits() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        assert_eq!(set(&machine), 128 << 20);
        machine.memory.available_bytes = Fact::known((64 << 20) + 4097, "a test");
        assert_eq!(set(&machine), 32 << 20);
    }

    #[test]
    fn less_effort_has_fewer_of_the_same_strides() {
        assert!(USUAL.iter().all(|stride| STRIDES.contains(stride)));
        assert!(QUICK.iter().all(|stride| USUAL.contains(stride)));
    }

    #[test]
    fn a_study_is_a_surface_whose_sets_have_a_random_latency() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        let surface = cases(&machine, Effort::Thorough);
        // 8 KiB to 64 MiB by twos, and the set of a run.
        assert_eq!(surface.len(), (14 + 1) * STRIDES.len());
        let latency: Vec<Case> = (latency::PROBE.cases)(&machine, Effort::Thorough);
        for bytes in smaller(&machine) {
            assert!(latency.contains(&latency::in_base_pages(bytes)), "{bytes}");
        }
        assert_eq!(cases(&machine, Effort::Default).len(), USUAL.len(), "a run has one set");
    }

    #[test]
    fn a_set_in_a_cache_lies_between_a_hit_and_its_random_latency() {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        let measured = |id: &str, _: &Case| {
            let value = if *id == *FREQUENCY.id { 4e9 } else { 8.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = Facts::new(&machine, &measured);
        let of = |stride: u64| {
            predict(&facts, &LATENCY_STRIDE, &Case::new().with(BYTES, 1 << 20).with(STRIDE, stride)).unwrap()
        };
        let load = published::core(&facts).unwrap().load / 4.0;
        let (short, long) = (of(16), of(1024));
        assert!((short.value - load).abs() < 1e-9 && (long.value - load).abs() < 1e-9);
        // A quarter of a line is new at each load, or all of it.
        assert!((short.high - 1.1 * (load + 2.0)).abs() < 1e-9 && (long.high - 1.1 * (load + 8.0)).abs() < 1e-9);
    }
}
