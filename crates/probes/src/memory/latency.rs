//! Latency of a dependent load by working set: the curve that shows the levels of the memory hierarchy.
//!
//! Each point is the latency of a load that no prefetcher can predict. It must not be used as the cost of independent
//! loads, of which a core has many in flight.

use kelvin_catalogue::cpu::FREQUENCY;
use kelvin_catalogue::mem::{BYTES, LATENCY, PageSize};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Input, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::memory::Ring;

use super::axes::{check_pages, number, obtained, page_sizes, pages};
use super::{allowance, published as hierarchy};
use crate::predict::Predicting;
use crate::published;

/// Id of the probe and of its metric.
pub(crate) static PROBE: Probe = Probe {
    id: LATENCY.id.as_str(),
    summary: "Latency of dependent loads by working set, in random order, with 4 KiB and with huge pages",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One pointer in each 64-byte line of the working set, linked into one random cycle (Sattolo's algorithm) \
              and chased by a chain of loads in assembly; time over loads. The page size is requested explicitly, and \
              the resident size and pages are read from /proc/self/smaps and noted. A set up to 64 MiB is traversed \
              once untimed; a larger one is flushed from the caches after it is built, as a whole pass would have \
              evicted it.",
        prediction: "Published cycles of the levels at the measured frequency, by the reported cache sizes: each level \
                     serves the share of the working set that it can hold. Predicted range: 5 % below that to 5 % \
                     above the figure with nothing left in the inner levels, as under LRU replacement; base pages add \
                     a TLB miss of up to 9 cycles beyond 64 KiB, and up to one more memory access beyond the caches. \
                     Memory latency is the published idle latency of this microarchitecture's servers, or the span of \
                     all in the table: wide, as it depends on modules and controller.",
        not_for: "Throughput of independent loads; latency under load (that is mem.bandwidth.loaded).",
        pitfalls: &[
            "Prefetchers predict a constant stride: 3 ns where memory takes 170 ns.",
            "With base pages a large set also misses the TLB: the huge-page points show memory latency without that.",
            "Physical pages are random: a working set near the size of a cache conflicts in some cache sets, \
             differently in each process; each round is a new process.",
            "In a virtual machine the guest's huge pages may lie on base pages of the host.",
        ],
        sources: &[
            "lmbench lat_mem_rd",
            "google/multichase",
            "Sattolo, An algorithm to generate a random cyclic permutation, Information Processing Letters 22 (1986)",
        ],
    },
    metrics: &[&LATENCY],
    inputs: &[FREQUENCY.id.as_str()],
    cases,
    run,
    predict,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The smallest working set.
const SMALLEST: u64 = 4 * KIB;
/// Up to this there is one point per octave: every L1 holds it, or ends at a power of two.
const COARSE: u64 = 16 * KIB;
/// Beyond this and twice the last-level cache there is one point per octave again: there are no more levels.
const FINE: u64 = 4 * MIB;
/// The smallest working set with (2 MiB) huge pages; one point per four octaves shows the cost of TLB misses.
const SMALLEST_HUGE: u64 = 2 * MIB;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let case = |pages: PageSize, bytes: u64| Case::new().at(pages).with(BYTES, bytes);
    let base = base_sizes(machine, effort).into_iter().map(|bytes| case(PageSize::Base, bytes));
    let huge = if page_sizes(machine).contains(&PageSize::Huge) { huge_sizes(machine, effort) } else { Vec::new() };
    base.chain(huge.into_iter().map(|bytes| case(PageSize::Huge, bytes))).collect()
}

/// The largest working set: the allowance, less the sixteenth needed to build the ring, as a power of two.
pub(super) fn largest(machine: &Machine) -> u64 {
    let most = allowance::largest(machine, 1).min(allowance::allowance(machine) / 17 * 16);
    1 << most.max(SMALLEST).ilog2()
}

/// The case of memory: the largest working set in base pages, part of every run.
pub(super) fn in_memory(machine: &Machine) -> Case {
    in_base_pages(largest(machine))
}

/// The case of a set of so many bytes in base pages.
pub(super) fn in_base_pages(bytes: u64) -> Case {
    Case::new().at(PageSize::Base).with(BYTES, bytes)
}

/// Powers of two, and from 16 KiB to twice the last-level cache 1.5 times them; in a quick run powers of two, the large
/// ones only every other. More effort includes every point of less.
fn base_sizes(machine: &Machine, effort: Effort) -> Vec<u64> {
    let last_level = allowance::last_level(machine);
    let largest = largest(machine);
    let fine = FINE.max(2 * last_level);
    let powers = (SMALLEST.ilog2()..=largest.ilog2()).map(|power| 1u64 << power);
    let wanted = |bytes: u64| match effort {
        Effort::Quick => bytes <= MIB || bytes == largest || (largest.ilog2() - bytes.ilog2()).is_multiple_of(2),
        _ => true,
    };
    let between = |bytes: u64| effort > Effort::Quick && bytes >= COARSE && bytes + bytes / 2 <= fine.min(largest);
    powers
        .flat_map(|bytes| [wanted(bytes).then_some(bytes), between(bytes).then_some(bytes + bytes / 2)])
        .flatten()
        .collect()
}

/// The largest working set, and smaller ones in steps of four octaves (thorough: one).
fn huge_sizes(machine: &Machine, effort: Effort) -> Vec<u64> {
    let step = if effort == Effort::Thorough { 1 } else { 4 };
    let largest = largest(machine);
    if largest < SMALLEST_HUGE {
        return Vec::new();
    }
    let least = SMALLEST_HUGE.ilog2();
    let mut sizes: Vec<u64> = (least..=largest.ilog2()).rev().step_by(step).map(|power| 1 << power).collect();
    sizes.truncate(if effort == Effort::Quick { 1 } else { sizes.len() });
    sizes.reverse();
    sizes
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let bytes = number(case, BYTES)?;
    let pages = pages(case)?;
    let mut ring = obtained(bytes + bytes / 16, Ring::new(bytes, pages, bench.seed()))?;
    bench.note(check_pages(ring.arena(), pages)?);
    settle(&mut ring);
    bench.time(&LATENCY, |loads| {
        ring.chase(loads);
        Ok(())
    })
}

/// Sets up to this size are traversed once: some 0.1 s at memory latency.
const PASSED: usize = 64 << 20;

/// Brings the caches to the state that long chasing of the ring would.
fn settle(ring: &mut Ring) {
    if ring.arena().len() <= PASSED {
        ring.chase(ring.lines() as u64);
    } else {
        ring.evict_end(usize::MAX);
    }
}

/// Predicted range around the published latencies, as a share.
const TOLERANCE: f64 = 0.05;
/// Working sets up to this size fit the L1 TLB for base pages of every core in the tables (16 entries).
const TRANSLATED: u64 = 64 * KIB;
/// Core cycles, lowest and highest published, that a hit in the L2 TLB adds.
pub(super) const SECOND_TLB: [f64; 2] = [7.0, 9.0];
pub(super) const SECOND_TLB_SOURCE: &str = "Lam, Chips and Cheese: Goldmont Plus (9 cycles on Skylake, 8 on Goldmont \
                                            Plus, 7 on Zen 2) and Lion Cove: Intel's P-Core Roars (7 on Lion Cove and \
                                            Zen 5)";

/// A level as it serves a working set.
struct Served {
    name: &'static str,
    /// Its capacity; memory holds any working set.
    bytes: u64,
    /// Nanoseconds of a load: the lowest, usual and highest published.
    nanoseconds: [f64; 3],
    /// The usual one, in words.
    published: String,
    inputs: Vec<Input>,
    source: &'static str,
}

impl Served {
    /// A cache with published lowest and highest core cycles.
    fn cache(name: &'static str, bytes: u64, [least, most]: [f64; 2], source: &'static str, frequency: &Input) -> Self {
        let cycles = (least + most) / 2.0;
        let nanoseconds = |cycles: f64| cycles * 1e9 / frequency.value;
        let size = Input {
            name: format!("{name} size"),
            value: bytes as f64,
            unit: Unit::Bytes,
            source: "machine facts".into(),
        };
        Self {
            name,
            bytes,
            nanoseconds: [nanoseconds(least), nanoseconds(cycles), nanoseconds(most)],
            published: format!("{cycles} cycles / {:.3} GHz", frequency.value / 1e9),
            inputs: vec![published::cycles(name, cycles, source), size],
            source,
        }
    }

    fn main_memory(facts: &Facts<'_>) -> Self {
        let ([least, most], source) = hierarchy::main_memory(facts.machine());
        let usual = (least * most).sqrt();
        let input =
            |name: &str, value| Input { name: name.into(), value, unit: Unit::Nanoseconds, source: source.into() };
        Self {
            name: "main memory",
            bytes: u64::MAX,
            nanoseconds: [least, usual, most],
            published: format!("{usual:.0} ns"),
            inputs: vec![input("main memory, lowest", least), input("main memory, highest", most)],
            source,
        }
    }
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let bytes = BYTES.of(case).ok_or_else(|| NoPrediction::because("the case has no bytes"))?;
    let frequency = published::frequency(facts)?;
    let levels = levels(facts, bytes, &frequency)?;
    let shares = shares(&levels, bytes);
    let of = |which: usize| -> f64 {
        levels.iter().zip(&shares).map(|(level, share)| level.nanoseconds[which] * share).sum()
    };
    let (least, value) = (of(0), of(1));
    let farthest = levels.last().map_or(value, |level| level.nanoseconds[2]);
    let base = PageSize::of(case) == Some(PageSize::Base);
    let in_memory = levels.last().is_some_and(|level| level.bytes == u64::MAX);
    // Beyond the caches page-table entries may have to come from memory: one more access.
    let translation = match (base, in_memory) {
        (false, _) => 0.0,
        (true, true) => farthest,
        (true, false) if bytes > TRANSLATED => SECOND_TLB[1] * 1e9 / frequency.value,
        (true, false) => 0.0,
    };
    let (low, high) = (least * (1.0 - TOLERANCE), (farthest + translation) * (1.0 + TOLERANCE));
    let mut predicting = Predicting::between(Basis::Published, value, low, high)
        .formula("sum over levels of the share of the set that the level holds x its published latency");
    let mut terms = Vec::new();
    for (level, share) in levels.into_iter().zip(&shares) {
        terms.push(format!("{share:.2} x {} {}", level.published, level.name));
        predicting = level.inputs.into_iter().fold(predicting, Predicting::input).source(level.source);
    }
    if translation > 0.0 && !in_memory {
        predicting = predicting
            .constant("L1 TLB miss, at most", SECOND_TLB[1], Unit::Cycles, SECOND_TLB_SOURCE)
            .source(SECOND_TLB_SOURCE);
    }
    Ok(predicting.input(frequency).derived_as(format!("{} = {value:.2} ns", terms.join(" + "))))
}

/// The levels that a working set reaches, innermost first; an error if one has no published latency.
fn levels(facts: &Facts<'_>, bytes: u64, frequency: &Input) -> Result<Vec<Served>, NoPrediction> {
    let size = |level, name: &str| {
        hierarchy::cache_bytes(facts.machine(), level)
            .ok_or_else(|| NoPrediction::because(format!("the machine reports no size of its {name} cache")))
    };
    let core = published::core(facts)?;
    let mut levels = vec![Served::cache("L1", size(1, "L1")?, [core.load; 2], core.source, frequency)];
    if bytes <= levels[0].bytes {
        return Ok(levels);
    }
    let row = hierarchy::hierarchy(facts)?;
    let second = row.second.ok_or_else(|| NoPrediction::because("no L2 latency is published"))?;
    levels.push(Served::cache("L2", size(2, "L2")?, [second; 2], row.source, frequency));
    if bytes <= levels[1].bytes {
        return Ok(levels);
    }
    let third = row.third.ok_or_else(|| NoPrediction::because("no L3 latency is published"))?;
    levels.push(Served::cache("L3", size(3, "L3")?, third, row.source, frequency));
    if bytes > levels[2].bytes {
        levels.push(Served::main_memory(facts));
    }
    Ok(levels)
}

/// The share of a working set that each level holds beyond what the levels before it hold.
fn shares(levels: &[Served], bytes: u64) -> Vec<f64> {
    let mut held = 0;
    levels
        .iter()
        .map(|level| {
            let until = level.bytes.min(bytes);
            let share = until.saturating_sub(held) as f64 / bytes as f64;
            held = held.max(until);
            share
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_harness::MeasuredValue;
    use kelvin_model::{Cache, CacheKind, Fact};

    fn machine(sizes: &[(u32, u64)]) -> Machine {
        let mut machine = testing::machine();
        let cache = |&(level, bytes): &(u32, u64)| Cache {
            level,
            kind: CacheKind::Unified,
            bytes,
            ways: None,
            line_bytes: Some(64),
            shared_by: vec![0],
        };
        machine.topology.caches = Fact::known(sizes.iter().map(cache).collect(), "a test");
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        machine
    }

    fn zen2() -> Machine {
        let mut machine = machine(&[(1, 32 * KIB), (2, 512 * KIB), (3, 16 * MIB)]);
        machine.cpu.microarchitecture = Fact::known("Zen 2".into(), "a test");
        machine
    }

    #[test]
    fn the_ring_stays_within_the_allowance() {
        for limit in [64u64, 96, 130, 200, 272, 400, 512, 600, 1024, 8192].map(|mib| mib << 20) {
            let mut machine = machine(&[(3, 32 * MIB)]);
            machine.limits.memory_bytes = Fact::known(Some(limit), "a test");
            let largest = largest(&machine);
            assert!(largest + largest / 16 <= limit / 2, "{largest} of {limit}");
            // And no smaller than needed.
            assert!(largest >= (limit / 16).min(256 * MIB), "{largest} of {limit}");
        }
    }

    #[test]
    fn levels_serve_the_shares_that_they_hold() {
        let machine = zen2();
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 4e9, half_width: 0.0 });
        let facts = Facts::new(&machine, &measured);
        let at = |bytes, pages: PageSize| predict(&facts, &LATENCY, &Case::new().with(BYTES, bytes).at(pages));
        assert_eq!(at(16 * KIB, PageSize::Base).unwrap().value, 1.0);
        // Half of 64 KiB in L1: (4 + 12) / 2 cycles at 4 GHz.
        let half = at(64 * KIB, PageSize::Base).unwrap();
        assert_eq!(half.value, 2.0);
        assert_eq!(half.derivation, "0.50 x 4 cycles / 4.000 GHz L1 + 0.50 x 12 cycles / 4.000 GHz L2 = 2.00 ns");
        assert!((half.high - 3.15).abs() < 1e-9, "{}", half.high);
        // 1/32 in L1, 15/32 in L2, half in L3.
        let third = at(MIB, PageSize::Huge).unwrap();
        assert!((third.value - (4.0 / 32.0 + 12.0 * 15.0 / 32.0 + 40.0 / 2.0) / 4.0).abs() < 1e-12);
        assert!((third.high - 10.5).abs() < 1e-9);
        assert!((at(MIB, PageSize::Base).unwrap().high - 49.0 / 4.0 * 1.05).abs() < 1e-9);
        // Three quarters in main memory, 113 to 134 ns; base pages add at most one access.
        let memory = at(64 * MIB, PageSize::Huge).unwrap();
        assert!((memory.value - (0.75 * (113.0f64 * 134.0).sqrt() + 2.5)).abs() < 0.3, "{memory:?}");
        assert!((memory.high - 134.0 * 1.05).abs() < 1e-9 && memory.low > 0.7 * 113.0, "{memory:?}");
        assert!((at(64 * MIB, PageSize::Base).unwrap().high - 268.0 * 1.05).abs() < 1e-9);
    }

    #[test]
    fn points_are_two_per_octave_and_less_effort_has_fewer_of_the_same() {
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
        let mut small = machine(&[(3, 32 * MIB)]);
        small.memory.available_bytes = Fact::known(64 * MIB, "a test");
        let sizes = base_sizes(&small, Effort::Thorough);
        assert_eq!(sizes.last(), Some(&(16 * MIB)));
        assert!(sizes.iter().all(|bytes| bytes + bytes / 16 <= 32 * MIB));
        assert_eq!(sizes[0], SMALLEST);
    }
}
