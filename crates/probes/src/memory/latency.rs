//! Latency of a dependent load by working set: the curve that shows the levels of the memory hierarchy.
//!
//! Each point is the latency of a load that no prefetcher can predict. It must not be used as the cost of independent
//! loads, of which a core has many in flight.

pub(super) mod model;

use kelvin_core::catalogue::mem::{BYTES, LATENCY, LATENCY_FLUSHED_BYTES, PageSize};
use kelvin_sys::cpu;
use kelvin_sys::memory::{PagePolicy, PointerRing};

use super::axes::{check_pages, number, page_kind, page_sizes, skip_if_out_of_memory};
use super::memory_budget;
use crate::prelude::*;

/// Id of the probe and of its metric.
pub(crate) static PROBE: Probe = Probe {
    summary: "Latency of dependent loads by working set, in random order, with 4 KiB and with huge pages",
    method: include_str!("latency.md"),
    cases,
    run,
    predict: model::predict,
    ..Probe::measure(&[&LATENCY])
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The smallest working set.
const MIN_SET: u64 = 4 * KIB;
/// Up to this there is one point per octave: every L1 holds it, or ends at a power of two.
const MAX_COARSE_SET: u64 = 16 * KIB;
/// Beyond this and twice the last-level cache there is one point per octave again: there are no more levels.
const MIN_FINE_LIMIT: u64 = 4 * MIB;
/// The smallest working set with (2 MiB) huge pages; one point per four octaves shows the cost of TLB misses.
const MIN_HUGE_SET: u64 = 2 * MIB;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let base_cases = words(&[PageSize::Base]).numbers(BYTES, &base_sizes(machine, effort));
    let huge = if page_sizes(machine).contains(&PageSize::Huge) { huge_sizes(machine, effort) } else { Vec::new() };
    [base_cases, words(&[PageSize::Huge]).numbers(BYTES, &huge)].concat()
}

/// The largest working set, as a power of two: at least what memory is measured with, as far as the allowance goes, less the sixteenth
/// needed to build the ring.
pub(super) fn largest_latency_set(machine: &Machine) -> u64 {
    let budget = memory_budget::memory_budget(machine) / 17 * 16;
    let bytes = memory_budget::largest_working_set(machine, 1).max(MIN_SET).next_power_of_two();
    bytes.min(1 << budget.max(MIN_SET).ilog2())
}

/// The case of memory: the largest working set in base pages, part of every run.
pub(crate) fn memory_case(machine: &Machine) -> Case {
    largest_case(machine, PageSize::Base)
}

/// The case of a set of this many bytes in base pages.
pub(super) fn base_page_case(bytes: u64) -> Case {
    Case::new().with_word(PageSize::Base).with_number(BYTES, bytes)
}

/// The case of the largest working set in such pages.
pub(super) fn largest_case(machine: &Machine, pages: PageSize) -> Case {
    Case::new().with_word(pages).with_number(BYTES, largest_latency_set(machine))
}

/// The case of the largest working set with the fewest misses of the TLB: in huge pages where the kernel may provide them.
pub(super) fn fewest_tlb_misses_case(machine: &Machine) -> Case {
    let has_huge_pages = page_sizes(machine).contains(&PageSize::Huge);
    largest_case(machine, if has_huge_pages { PageSize::Huge } else { PageSize::Base })
}

/// Octaves by which a stored run may have larger sets than today's: another version of kelvin believed more of a virtual machine's cache.
const MAX_EXTRA_OCTAVES: u32 = 4;
/// Octaves from one set in huge pages to the next.
const HUGE_STEP_OCTAVES: u32 = 4;

/// The latency of the largest working set with the fewest misses of the TLB. Where a stored run has larger sets, it is
/// interpolated by the logarithm of the size between the sets before and after it in such pages. Both lie in memory,
/// and only translation by the host grows.
///
/// # Errors
/// None of them was measured.
pub(super) fn untranslated_latency(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let largest = largest_latency_set(facts.machine());
    large_set_latency(facts, largest).or_else(|error| {
        let larger = (1..=MAX_EXTRA_OCTAVES)
            .find_map(|octaves| Some((octaves, large_set_latency(facts, largest << octaves).ok()?)));
        // Earlier versions took the power of two below four times the last-level cache.
        let Some((octaves, upper)) = larger else { return large_set_latency(facts, largest >> 1).map_err(|_| error) };
        let Ok(lower) = large_set_latency(facts, (largest << octaves) >> HUGE_STEP_OCTAVES) else { return Ok(upper) };
        let share = 1.0 - f64::from(octaves) / f64::from(HUGE_STEP_OCTAVES);
        Ok(lower.clone() + quantity("part of the way", share, Unit::Ratio) * (upper - lower))
    })
}

/// Like `untranslated_latency`, for a set of this many bytes, which may be larger than that.
///
/// # Errors
/// None was measured.
pub(super) fn untranslated_latency_at(facts: &PredictionInputs<'_>, bytes: u64) -> Predicted<Expr> {
    let size = bytes.next_power_of_two();
    let larger_latency =
        (size > largest_latency_set(facts.machine())).then(|| large_set_latency(facts, size).ok()).flatten();
    larger_latency.map_or_else(|| untranslated_latency(facts), Ok)
}

/// The latency of a large set with the fewest misses of the TLB.
fn large_set_latency(facts: &PredictionInputs<'_>, bytes: u64) -> Predicted<Expr> {
    measured(facts, &LATENCY, &fewest_tlb_misses_case(facts.machine()).with_number(BYTES, bytes))
}

/// The latency of memory with the fewest misses of the TLB that were measured: in huge pages, else in base pages.
pub(crate) fn memory_latency(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    untranslated_latency(facts).or_else(|_| measured(facts, &LATENCY, &memory_case(facts.machine())))
}

/// Powers of two, and from 16 KiB to twice the last-level cache 1.5 times them; in a quick run powers of two, the large
/// ones only every other and that of L3. More effort includes every point of less.
fn base_sizes(machine: &Machine, effort: Effort) -> Vec<u64> {
    let last_level = memory_budget::last_level_bytes(machine);
    let largest = largest_latency_set(machine);
    let fine_limit = MIN_FINE_LIMIT.max(2 * last_level);
    let outer_cases = model::outer_cache_cases(machine);
    let powers = (MIN_SET.ilog2()..=largest.ilog2()).map(|power| 1u64 << power);
    let is_measured = |bytes: u64| {
        effort > Effort::Quick
            || bytes <= MIB
            || bytes == largest
            || outer_cases.as_ref().is_some_and(|[_, third]| *third == base_page_case(bytes))
            || (largest.ilog2() - bytes.ilog2()).is_multiple_of(2)
    };
    let has_midpoint =
        |bytes: u64| effort > Effort::Quick && bytes >= MAX_COARSE_SET && bytes + bytes / 2 <= fine_limit.min(largest);
    powers
        .flat_map(|bytes| [is_measured(bytes).then_some(bytes), has_midpoint(bytes).then_some(bytes + bytes / 2)])
        .flatten()
        .collect()
}

/// The largest working set, and smaller ones in steps of four octaves (thorough: one).
fn huge_sizes(machine: &Machine, effort: Effort) -> Vec<u64> {
    let step = if effort == Effort::Thorough { 1 } else { HUGE_STEP_OCTAVES as usize };
    let largest = largest_latency_set(machine);
    if largest < MIN_HUGE_SET {
        return Vec::new();
    }
    let smallest = MIN_HUGE_SET.ilog2();
    let mut sizes: Vec<u64> = (smallest..=largest.ilog2()).rev().step_by(step).map(|power| 1 << power).collect();
    sizes.truncate(if effort == Effort::Quick { 1 } else { sizes.len() });
    sizes.reverse();
    sizes
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let bytes = number(case, BYTES)?;
    let pages = page_kind(case)?;
    if is_beyond_caches(bytes as u64, cpu::last_level_cache(bench.cpu()).and_then(|cache| cache.bytes)) {
        return measure_sparse(bench, bytes, pages);
    }
    let mut ring = skip_if_out_of_memory(bytes + bytes / 16, PointerRing::new(bytes, pages, bench.seed()))?;
    bench.note(check_pages(ring.arena(), pages)?);
    let (clock, lines) = (bench.clock(), ring.lines() as u64);
    warm_caches(bytes, lines, |step| match step {
        WarmUpStep::Chase(loads) => clock.time(|| ring.chase(loads)).0,
        WarmUpStep::Flush => clock.time(|| ring.evict_end(usize::MAX)).0,
    });
    bench.time(&LATENCY, infallible(|loads| ring.chase(loads)))
}

/// From this size on a set that is four times the last-level cache has no more lines than [`SPARSE_LINES`].
const MIN_SPARSE_BYTES: u64 = 512 << 20;
/// Enough lines that no round follows them all, and two for each base page of the smallest such set: the TLB and the memory's pages see what they
/// would of all lines, and the ring is built in a few hundred milliseconds rather than in seconds.
const SPARSE_LINES: usize = 1 << 20;

/// Whether no load of a long chase of a set would find its line in a cache of this size: the largest set of such a machine.
fn is_beyond_caches(bytes: u64, last_level: Option<u64>) -> bool {
    let is_largest = |cache: u64| (cache..2 * cache).contains(&(bytes / memory_budget::LAST_LEVEL_MULTIPLE));
    bytes >= MIN_SPARSE_BYTES && last_level.is_some_and(is_largest)
}

/// Loads of a few lines of the set, spread over all of it, after they were flushed.
fn measure_sparse(bench: &mut Bench<'_>, bytes: usize, pages: PagePolicy) -> ProbeResult {
    let piece = bytes / SPARSE_LINES;
    let mut ring = skip_if_out_of_memory(bytes, PointerRing::line_per_piece(bytes, piece, pages, bench.seed()))?;
    bench.note(check_pages(ring.arena(), pages)?);
    bench.note(format!("one line in each {piece} bytes, all flushed from the caches"));
    bench.time_parts([&LATENCY], |clock, loads| Ok([ring.chase_uncached(clock, loads) as f64]))
}

/// Sets up to this size are traversed once: some 0.1 s at memory latency.
const MAX_TRAVERSED_BYTES: usize = LATENCY_FLUSHED_BYTES as usize;
/// Loads of a sample of a larger set, a few pages' worth of each cache; and the number of samples, of which the median
/// counts.
const SAMPLE_LOADS: u64 = 2000;
const SAMPLE_COUNT: usize = 5;
/// The caches hold a good part of a set whose loads are faster by this factor than when nothing of it is in them. A
/// cache of half its size or more is detected in this way. One of a quarter serves only a fiftieth of the loads of a
/// pass that repeats in the same order.
const MAX_CACHED_RATIO: f64 = 0.85;

/// What is done with a set before it is timed.
enum WarmUpStep {
    /// Following this many pointers.
    Chase(u64),
    /// Flushing all of it from the caches.
    Flush,
}

/// Brings the caches to the state that long chasing of a set would. A step returns the ticks that it took.
fn warm_caches(bytes: usize, lines: u64, mut step: impl FnMut(WarmUpStep) -> u64) {
    if bytes > MAX_TRAVERSED_BYTES {
        let initial_ticks = sample_ticks(&mut step);
        step(WarmUpStep::Flush);
        if initial_ticks >= MAX_CACHED_RATIO * sample_ticks(&mut step) {
            return;
        }
    }
    step(WarmUpStep::Chase(lines));
}

/// Ticks of a sample of loads.
fn sample_ticks(step: &mut impl FnMut(WarmUpStep) -> u64) -> f64 {
    let mut samples: [u64; SAMPLE_COUNT] = std::array::from_fn(|_| step(WarmUpStep::Chase(SAMPLE_LOADS)));
    samples.sort_unstable();
    samples[SAMPLE_COUNT / 2] as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;

    fn machine(sizes: &[(u32, u64)]) -> Machine {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(sizes);
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        machine
    }

    /// A set in front of a cache that keeps what was touched last, and serves a load in 4 ticks; memory takes 10.
    struct Simulated {
        bytes: usize,
        cache: usize,
        /// Bytes of the set that are in the cache.
        cached_bytes: usize,
        chased_loads: u64,
    }

    impl Simulated {
        fn lines(&self) -> u64 {
            self.bytes as u64 / 64
        }

        fn step(&mut self, step: WarmUpStep) -> u64 {
            let WarmUpStep::Chase(loads) = step else {
                self.cached_bytes = 0;
                return 0;
            };
            self.chased_loads += loads;
            let hits = self.cached_bytes as f64 / self.bytes as f64;
            self.cached_bytes = (self.cached_bytes + loads as usize * 64).min(self.cache.min(self.bytes));
            (loads as f64 * (10.0 - 6.0 * hits)) as u64
        }
    }

    #[test]
    fn only_sets_of_four_large_caches_are_sparse() {
        const GIB: u64 = 1 << 30;
        assert!(is_beyond_caches(2 * GIB, Some(480 * MIB)));
        assert!(!is_beyond_caches(GIB, Some(480 * MIB)), "a part of it stays in the cache");
        assert!(!is_beyond_caches(256 * MIB, Some(32 * MIB)), "all of it is linked in a moment");
        assert!(!is_beyond_caches(2 * GIB, None));
        assert!(!is_beyond_caches(64 << 40, Some(480 * MIB)), "no set of this machine");
    }

    #[test]
    fn large_uncached_set_is_flushed() {
        const MIB: usize = 1 << 20;
        let simulate = |bytes: usize, cache: usize| {
            let mut set = Simulated { bytes, cache, cached_bytes: cache.min(bytes), chased_loads: 0 };
            warm_caches(set.bytes, set.lines(), |step| set.step(step));
            (set.chased_loads >= set.lines(), set.cached_bytes)
        };
        assert_eq!(simulate(48 * MIB, 8 * MIB), (true, 8 * MIB), "a small one is traversed anyway");
        let (is_traversed, cached_bytes) = simulate(256 * MIB, 10 * MIB);
        assert!(!is_traversed && cached_bytes < 2 * MIB, "{cached_bytes}");
        // A cache of 300 MiB holds sets of 128 and 256 MiB, and most of one of 400.
        for bytes in [128, 256, 400].map(|mib| mib * MIB) {
            assert_eq!(simulate(bytes, 300 * MIB), (true, bytes.min(300 * MIB)));
        }
        assert!(!simulate(2048 * MIB, 300 * MIB).0);
    }

    #[test]
    fn memory_set_is_four_times_last_level() {
        let largest_set = |last_level: u64, available: u64| {
            let mut machine = machine(&[(3, last_level * MIB)]);
            machine.memory.available_bytes = Fact::known(available, "a test");
            largest_latency_set(&machine) / MIB
        };
        assert_eq!(
            [largest_set(32, 8 << 30), largest_set(64, 8 << 30), largest_set(96, 8 << 30), largest_set(504, 64 << 30)],
            [256, 256, 512, 2048]
        );
        assert_eq!(largest_set(96, 1 << 30), 256, "half of the memory and what building takes");
    }

    #[test]
    fn ring_stays_within_memory_budget() {
        for limit in [64u64, 96, 130, 200, 272, 400, 512, 600, 1024, 8192].map(|mib| mib << 20) {
            let mut machine = machine(&[(3, 32 * MIB)]);
            machine.limits.memory_bytes = Fact::known(Some(limit), "a test");
            let largest = largest_latency_set(&machine);
            assert!(largest + largest / 16 <= limit / 2, "{largest} of {limit}");
            // And no smaller than needed.
            assert!(largest >= (limit / 16).min(256 * MIB), "{largest} of {limit}");
        }
    }

    #[test]
    fn lower_effort_has_subset_of_points() {
        let machine = machine(&[(3, 32 * MIB)]);
        let sizes = base_sizes(&machine, Effort::Default);
        assert_eq!(sizes[..5], [4 * KIB, 8 * KIB, 16 * KIB, 24 * KIB, 32 * KIB]);
        assert_eq!(sizes[sizes.len() - 5..], [32 * MIB, 48 * MIB, 64 * MIB, 128 * MIB, 256 * MIB]);
        let quick = base_sizes(&machine, Effort::Quick);
        assert!(quick.len() * 2 < sizes.len() && quick.iter().all(|bytes| sizes.contains(bytes)), "{quick:?}");
        assert_eq!(huge_sizes(&machine, Effort::Default), [16 * MIB, 256 * MIB]);
        assert_eq!(huge_sizes(&machine, Effort::Quick), [256 * MIB]);
    }

    #[test]
    fn small_machines_have_small_sets() {
        let mut small_machine = machine(&[(3, 32 * MIB)]);
        small_machine.memory.available_bytes = Fact::known(64 * MIB, "a test");
        let sizes = base_sizes(&small_machine, Effort::Thorough);
        assert_eq!(sizes.last(), Some(&(16 * MIB)));
        assert!(sizes.iter().all(|bytes| bytes + bytes / 16 <= 32 * MIB));
        assert_eq!(sizes[0], MIN_SET);
    }
}
