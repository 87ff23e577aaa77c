//! Latency of dependent loads at a constant backward stride, over a set that no cache holds, and over smaller ones.
//!
//! The curve shows how well prefetchers hide a regular pattern. It must not be used as memory latency, for the same
//! reason.

use kelvin_core::catalogue::cpu::LATENCY_LOAD;
use kelvin_core::catalogue::mem::{BANDWIDTH_READ, BYTES, LATENCY, LATENCY_STRIDE, STRIDE};
use kelvin_sys::memory::{LINE_BYTES, PagePolicy, PointerRing};

use super::axes::{check_pages, number, skip_if_out_of_memory};
use super::{bandwidth, latency, memory_budget};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Latency of dependent loads by backward stride, 16 B to 4 KiB, and by size of the set",
    method: include_str!("stride.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&LATENCY_STRIDE])
};

const STRIDES: [u64; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const QUICK_STRIDES: [u64; 3] = [16, 64, 1024];
const DEFAULT_STRIDES: [u64; 6] = [16, 32, 64, 256, 1024, 4096];
/// Set in bytes that fits every first-level cache, and has two of the largest stride.
const MIN_SET: u64 = 8 << 10;
/// Minimum large set in bytes, memory permitting.
const MIN_LARGE_SET: u64 = 64 << 20;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let strides = by_effort(effort, [&QUICK_STRIDES[..], &DEFAULT_STRIDES, &STRIDES]);
    let mut sets = vec![large_set(machine)];
    if effort == Effort::Thorough {
        sets.extend(smaller_sets(machine));
    }
    numbers(BYTES, &sets).numbers(STRIDE, strides)
}

/// The sets of a surface next to the largest: powers of two, of which `mem.latency` has each.
fn smaller_sets(machine: &Machine) -> Vec<u64> {
    let sizes = (MIN_SET.ilog2()..=latency::largest_latency_set(machine).ilog2()).map(|power| 1 << power);
    sizes.filter(|&bytes| bytes < large_set(machine)).collect()
}

/// Twice the last-level cache and at least 64 MiB, memory permitting, in multiples of the largest stride.
fn large_set(machine: &Machine) -> u64 {
    let largest_stride = STRIDES[STRIDES.len() - 1];
    let bytes = (2 * memory_budget::last_level_bytes(machine))
        .max(MIN_LARGE_SET)
        .min(memory_budget::largest_working_set(machine, 1));
    (bytes / largest_stride).max(2) * largest_stride
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (bytes, stride) = (number(case, BYTES)?, number(case, STRIDE)?);
    let mut ring = skip_if_out_of_memory(bytes, PointerRing::descending(bytes, stride, PagePolicy::Base))?;
    bench.note(check_pages(ring.arena(), PagePolicy::Base)?);
    ring.evict_end(usize::MAX);
    bench.time(&LATENCY_STRIDE, infallible(|loads| ring.chase(loads)))
}

/// Bytes of a page, beyond which most prefetchers do not follow.
const PAGE_BYTES: u64 = 4096;
/// Tolerance of the bounds, as a share.
const TOLERANCE: f64 = 0.1;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (stride, bytes) = (required_number(STRIDE, case)?, required_number(BYTES, case)?);
    let load = measured(facts, &LATENCY_LOAD, &Case::new())?;
    if bytes < large_set(facts.machine()) {
        // Of a set that caches may hold: from an L1 hit to a random access for each new line, expected at the former.
        let random = measured(facts, &LATENCY, &latency::base_page_case(bytes))?;
        let share = (stride as f64).min(LINE_BYTES as f64) / LINE_BYTES as f64;
        return Ok(predict_between(load.clone(), load, random, share, "load from L1"));
    }
    // Of a set in base pages, or of the largest.
    let random = measured(facts, &LATENCY, &latency::base_page_case(bytes));
    let random = random.or_else(|_| measured(facts, &LATENCY, &latency::memory_case(facts.machine())))?;
    if stride == LINE_BYTES as u64 {
        // Each load a line further: all of them prefetched.
        let bandwidth = bandwidth::in_memory(facts, &BANDWIDTH_READ)?;
        let expected = load.clone() + bytes_of("line", LINE_BYTES as u64) / bandwidth;
        return Ok(predict_between(expected, load, random, 1.0, "load and a line"));
    }
    let line_case = Case::new().with_number(BYTES, bytes).with_number(STRIDE, LINE_BYTES as u64);
    let line = measured(facts, &LATENCY_STRIDE, &line_case)?;
    if stride < LINE_BYTES as u64 {
        // Some loads reach a new line, as a stride of a line always does, and the others are in L1.
        let share = stride as f64 / LINE_BYTES as f64;
        let new_lines = quantity("share of new lines", share, Unit::Ratio);
        let expected = new_lines.clone() * line + (1.0 - new_lines) * load.clone();
        return Ok(predict_between(expected, load, random, share, "share of new lines"));
    }
    // Between the next line and one at random.
    let name = if stride < PAGE_BYTES { "lines of a page" } else { "lines of pages" };
    Ok(predict_between(line.geometric_mean(random.clone()), load, random, 1.0, name))
}

/// In a range from an L1 hit to a new line at random for this share of the loads.
fn predict_between(expected: Expr, load: Expr, random: Expr, share: f64, name: &str) -> Prediction {
    let maximum = load.clone() + quantity("share of new lines", share, Unit::Ratio) * random;
    let (low, high) = (load.min(expected.clone()), maximum.max(expected.clone()));
    expected.with_bounds(&low, &high).widen_by_share(TOLERANCE).derived(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_harness::MeasuredValue;

    #[test]
    fn large_set_exceeds_caches() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        assert_eq!(large_set(&machine), 128 << 20);
        machine.memory.available_bytes = Fact::known((64 << 20) + 4097, "a test");
        assert_eq!(large_set(&machine), 32 << 20);
    }

    #[test]
    fn lower_effort_has_subset_of_strides() {
        assert!(DEFAULT_STRIDES.iter().all(|stride| STRIDES.contains(stride)));
        assert!(QUICK_STRIDES.iter().all(|stride| DEFAULT_STRIDES.contains(stride)));
    }

    #[test]
    fn study_sets_have_random_latency() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        let surface = cases(&machine, Effort::Thorough);
        // 8 KiB to 64 MiB by twos, and the set of a run.
        assert_eq!(surface.len(), (14 + 1) * STRIDES.len());
        let latency: Vec<Case> = (latency::PROBE.cases)(&machine, Effort::Thorough);
        for bytes in smaller_sets(&machine) {
            assert!(latency.contains(&latency::base_page_case(bytes)), "{bytes}");
        }
        assert_eq!(cases(&machine, Effort::Default).len(), DEFAULT_STRIDES.len(), "a run has one set");
    }

    #[test]
    fn cached_set_is_between_hit_and_random() {
        let machine = testing::machine();
        let measured = |id: &str, _: &Case| {
            let value = if *id == *LATENCY_LOAD.id { 1.0 } else { 8.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |stride: u64| {
            predict(&facts, &LATENCY_STRIDE, &Case::new().with_number(BYTES, 1 << 20).with_number(STRIDE, stride))
                .unwrap()
        };
        let (short_stride, long_stride) = (predicted(16), predicted(1024));
        assert_eq!((short_stride.value, long_stride.value), (1.0, 1.0));
        // A quarter of a line is new at each load, or all of it.
        assert!(
            (short_stride.high - 1.1 * (1.0 + 2.0)).abs() < 1e-9 && (long_stride.high - 1.1 * (1.0 + 8.0)).abs() < 1e-9
        );
    }

    #[test]
    fn memory_strides_follow_from_latencies() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        let measured = |id: &str, _: &Case| {
            let value = match id {
                id if *id == *LATENCY_LOAD.id => 1.0,
                id if *id == *BANDWIDTH_READ.id => 16e9,
                id if *id == *LATENCY_STRIDE.id => 9.0,
                _ => 144.0,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |stride: u64| {
            let case = Case::new().with_number(BYTES, large_set(&machine)).with_number(STRIDE, stride);
            predict(&facts, &LATENCY_STRIDE, &case).unwrap()
        };
        assert_eq!([16, 32, 64, 256, 4096].map(|stride| predicted(stride).value), [3.0, 5.0, 5.0, 36.0, 36.0]);
        let (short_stride, long_stride) = (predicted(16), predicted(4096));
        assert!(
            (short_stride.low - 0.9).abs() < 1e-9 && (short_stride.high - 1.1 * 37.0).abs() < 1e-9,
            "{short_stride:?}"
        );
        assert!((long_stride.high - 1.1 * 145.0).abs() < 1e-9, "{long_stride:?}");
    }
}
