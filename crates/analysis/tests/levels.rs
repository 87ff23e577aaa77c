//! Levels of the memory hierarchy, found on published curves of other machines and on curves without any.

use kelvin_analysis::testing::{add_scalars, empty_run};
use kelvin_analysis::{CurvePoint, MemoryLevels, Warning, WarningKind, analyse, levels};
use kelvin_core::{Axis, AxisScale, Cache, CacheKind, Canaries, Case, Fact, HeadlineSamples, Metric, Run, Tlb};
use kelvin_stats::Random;
use serde::Deserialize;

#[derive(Deserialize)]
struct PublishedCurve {
    machine: String,
    source: String,
    reported: Vec<ReportedCache>,
    expected: Vec<ExpectedLevel>,
    curve: Vec<(u64, f64)>,
}

#[derive(Deserialize)]
struct ReportedCache {
    level: u32,
    bytes: u64,
}

/// A level that must be found: bounds of its latency, and the size that its capacity must include.
#[derive(Deserialize)]
struct ExpectedLevel {
    name: String,
    least: f64,
    most: f64,
    bytes: Option<u64>,
}

fn published_curves() -> Vec<PublishedCurve> {
    serde_json::from_str(include_str!("data/latency-curves.json")).unwrap()
}

fn caches(reported: &[ReportedCache]) -> Vec<Cache> {
    reported.iter().map(|cache| unified(cache.level, cache.bytes)).collect()
}

fn unified(level: u32, bytes: u64) -> Cache {
    let kind = if level == 1 { CacheKind::Data } else { CacheKind::Unified };
    Cache { level, kind, bytes, ways: None, line_bytes: None, shared_by: vec![0] }
}

fn exact_point(bytes: u64, latency: f64) -> CurvePoint {
    CurvePoint { bytes, latency, lower: latency, upper: latency, is_known: true, was_flushed: false }
}

fn points(curve: &[(u64, f64)]) -> Vec<CurvePoint> {
    curve.iter().map(|&(bytes, latency)| exact_point(bytes, latency)).collect()
}

fn names(memory_levels: &MemoryLevels) -> Vec<&str> {
    memory_levels.levels.iter().map(|level| level.name.as_str()).collect()
}

fn levels_of(published: &PublishedCurve) -> MemoryLevels {
    levels(&points(&published.curve), &caches(&published.reported)).unwrap()
}

#[test]
fn published_machine_levels_are_found() {
    let curves = published_curves();
    assert!(curves.len() >= 5);
    for published in curves {
        let memory_levels = levels_of(&published);
        let machine = format!("{} ({}): {memory_levels:#?}", published.machine, published.source);
        let expected: Vec<&str> = published.expected.iter().map(|level| level.name.as_str()).collect();
        assert_eq!(names(&memory_levels), expected, "{machine}");
        for (level, expected) in memory_levels.levels.iter().zip(&published.expected) {
            assert!((expected.least..=expected.most).contains(&level.latency), "{} of {machine}", level.name);
            if let Some(bytes) = expected.bytes {
                let ends = level.capacity.unwrap();
                assert!((ends.low..=ends.high).contains(&bytes), "{} of {machine}", level.name);
                // Points are an octave apart, and a cache serves sets near its size in part: two octaves at most.
                assert!(ends.high <= 4 * ends.low, "{} of {machine}", level.name);
                assert_ne!(level.matches_reported, Some(false), "{} of {machine}", level.name);
            }
        }
    }
}

#[test]
fn slice_of_shared_cache_is_distinguished() {
    let vm = published_curves().into_iter().find(|published| published.machine.starts_with("Hetzner")).unwrap();
    let memory_levels = levels_of(&vm);
    let third = &memory_levels.levels[2];
    let ends = third.capacity.unwrap();
    assert_eq!((ends.low, ends.high), (4 << 20, 8 << 20));
    assert_eq!((third.reported_bytes, third.matches_reported), (Some(32 << 20), Some(false)));
    let conclusion = &memory_levels.conclusions[2];
    assert_eq!(conclusion.holds, Some(false));
    assert!(conclusion.text.starts_with("L3 has the size that the machine reports, 32 MiB: "), "{}", conclusion.text);
    assert!(
        conclusion.text.contains("ending between 4 MiB and 8 MiB, less, as with a shared or partitioned cache"),
        "{}",
        conclusion.text
    );
}

#[test]
fn long_ramp_is_no_level() {
    // As on a guest of an AMD Zen 4 server that shares its L3: from 512 KiB to 1 MiB ever more loads leave the L2.
    let latencies = [
        (4, 1.08),
        (6, 1.08),
        (8, 1.08),
        (12, 1.08),
        (16, 1.08),
        (24, 1.08),
        (32, 1.08),
        (48, 3.80),
        (64, 3.80),
        (96, 3.80),
        (128, 3.80),
        (192, 3.80),
        (256, 3.80),
        (384, 4.40),
        (512, 5.03),
        (768, 6.43),
        (1 << 10, 8.39),
        (1536, 12.48),
        (2 << 10, 13.90),
        (3 << 10, 15.15),
        (4 << 10, 16.40),
        (6 << 10, 85.6),
        (8 << 10, 135.6),
        (12 << 10, 148.7),
        (16 << 10, 143.0),
        (24 << 10, 154.0),
        (32 << 10, 169.0),
        (48 << 10, 166.8),
        (64 << 10, 164.6),
        (128 << 10, 188.8),
        (256 << 10, 219.5),
    ];
    let curve: Vec<CurvePoint> = latencies.iter().map(|&(kib, latency)| exact_point(kib << 10, latency)).collect();
    let memory_levels = levels(&curve, &[unified(1, 32 << 10), unified(2, 1 << 20), unified(3, 32 << 20)]).unwrap();
    assert_eq!(names(&memory_levels), ["L1", "L2", "L3", "DRAM"], "{memory_levels:#?}");
    let ends: Vec<(u64, u64)> = memory_levels
        .levels
        .iter()
        .filter_map(|level| Some((level.capacity?.low >> 10, level.capacity?.high >> 10)))
        .collect();
    assert_eq!(ends, [(32, 48), (512, 1536), (4 << 10, 6 << 10)]);
    assert!((12.0..17.0).contains(&memory_levels.levels[2].latency), "{memory_levels:#?}");
    assert_eq!(memory_levels.levels[1].matches_reported, Some(true));
}

#[test]
fn memory_with_tlb_misses_is_no_cache() {
    // As on a virtual machine: the page tables of two address spaces no longer fit from 32 MiB up.
    let curve: Vec<CurvePoint> = curve_sizes()
        .into_iter()
        .map(|bytes| {
            let latency = match bytes {
                0..=0xC000 => 1.1,
                0xC001..=0x10_0000 => 3.8,
                0x10_0001..=0x40_0000 => 15.0,
                0x40_0001..=0x200_0000 => 151.0,
                _ => 321.0,
            };
            exact_point(bytes, latency)
        })
        .collect();
    let memory_levels = levels(&curve, &[unified(1, 48 << 10), unified(2, 1 << 20), unified(3, 32 << 20)]).unwrap();
    assert_eq!(names(&memory_levels), ["L1", "L2", "L3", "DRAM", "DRAM, TLB misses"]);
    assert_eq!(memory_levels.levels[3].matches_reported, None);
    assert!(
        memory_levels.conclusions[3].text.contains("address translation takes longer"),
        "{}",
        memory_levels.conclusions[3].text
    );
    // Without reported caches a plateau is a level like any other.
    assert_eq!(names(&levels(&curve, &[]).unwrap()), ["L1", "L2", "L3", "L4", "DRAM"]);
}

/// A default run on a guest of a 300 MiB cache with busy neighbours: in KiB and ns, `false` where only as found, and how far the
/// interval reaches then, as a share.
const NEIGHBOURED_CURVE: [(u64, f64, bool, f64); 31] = [
    (4, 1.79, true, 0.0),
    (8, 1.85, false, 0.09),
    (12, 1.83, false, 0.1),
    (16, 1.79, true, 0.0),
    (24, 1.79, true, 0.0),
    (32, 2.31, false, 0.28),
    (48, 1.88, true, 0.0),
    (64, 5.69, true, 0.0),
    (96, 5.93, false, 0.05),
    (128, 5.72, true, 0.0),
    (192, 6.23, false, 0.11),
    (256, 5.72, true, 0.0),
    (384, 5.72, true, 0.0),
    (512, 6.36, true, 0.0),
    (768, 7.45, false, 0.16),
    (1 << 10, 15.0, true, 0.5),
    (1536, 9.85, true, 0.1),
    (2 << 10, 42.4, false, 0.13),
    (3 << 10, 41.9, true, 0.02),
    (4 << 10, 47.3, true, 0.4),
    (6 << 10, 61.6, false, 5.9),
    (8 << 10, 78.7, true, 0.06),
    (12 << 10, 116.0, true, 0.05),
    (16 << 10, 138.3, true, 0.01),
    (24 << 10, 148.1, true, 0.05),
    (32 << 10, 142.9, true, 0.12),
    (48 << 10, 149.0, true, 0.03),
    (64 << 10, 162.4, true, 0.2),
    (96 << 10, 163.7, true, 0.27),
    (128 << 10, 173.3, true, 0.01),
    (256 << 10, 201.5, true, 0.01),
];

fn neighboured_levels(is_kept: impl Fn(&CurvePoint) -> bool) -> MemoryLevels {
    let curve_points = NEIGHBOURED_CURVE.map(|(kib, latency, is_known, spread)| {
        let (lower, upper) = (latency * (1.0 - spread), latency * (1.0 + spread));
        CurvePoint { bytes: kib << 10, latency, lower, upper, is_known, was_flushed: false }
    });
    let curve: Vec<CurvePoint> = curve_points.into_iter().filter(is_kept).collect();
    levels(&curve, &[unified(1, 48 << 10), unified(2, 2 << 20), unified(3, 300 << 20)]).unwrap()
}

#[test]
fn as_found_points_separate_levels_only() {
    let memory_levels = neighboured_levels(|_| true);
    assert_eq!(names(&memory_levels), ["L1", "L2", "L3", "DRAM"], "{memory_levels:#?}");
    let latencies: Vec<f64> = memory_levels.levels.iter().map(|level| (level.latency * 10.0).round() / 10.0).collect();
    assert_eq!(latencies, [1.8, 5.7, 44.6, 149.0]);
    // 6 MiB may be anything.
    let ends: Vec<(u64, u64)> = memory_levels
        .levels
        .iter()
        .filter_map(|level| Some((level.capacity?.low >> 10, level.capacity?.high >> 10)))
        .collect();
    assert_eq!(ends, [(48, 64), (768, 1 << 10), (4 << 10, 12 << 10)]);
}

#[test]
fn flushed_set_does_not_bound_capacity() {
    // A cache of 300 MiB, and sets above 64 MiB that were flushed from it.
    let latency_at = |bytes: u64| match bytes {
        0..=0xC000 => 1.5,
        0xC001..=0x20_0000 => 5.0,
        0x20_0001..=0x400_0000 => 40.0,
        _ => 110.0,
    };
    let third_level = |was_flushed: fn(u64) -> bool| {
        let point =
            |bytes: u64| CurvePoint { was_flushed: was_flushed(bytes), ..exact_point(bytes, latency_at(bytes)) };
        let curve: Vec<CurvePoint> = curve_sizes().into_iter().map(point).collect();
        let memory_levels =
            levels(&curve, &[unified(1, 48 << 10), unified(2, 2 << 20), unified(3, 300 << 20)]).unwrap();
        let third = memory_levels.levels.iter().find(|level| level.name == "L3").unwrap();
        (third.capacity.is_some(), third.matches_reported)
    };
    assert_eq!(third_level(|bytes| bytes > 64 << 20), (false, None), "64 MiB is only what was tried");
    assert_eq!(third_level(|_| false), (true, Some(false)), "it ends there, as the sets that it could hold show");
}

#[test]
fn latency_above_any_cache_is_memory() {
    let memory_levels = neighboured_levels(|point| point.is_known);
    assert_eq!(names(&memory_levels), ["L1", "L2", "DRAM"], "{memory_levels:#?}");
    let last = memory_levels.conclusions.last().unwrap();
    assert_eq!(
        last.text,
        "L3, 300 MiB by what the machine reports, has a plateau of its own in the curve: none is seen"
    );
    assert_eq!(last.holds, Some(false));
    // A slow machine may have a slow cache: its size shows that it is one.
    let slow_latency_at = |bytes: u64| match bytes {
        0..=0xC000 => 10.0,
        0xC001..=0x20_0000 => 30.0,
        0x20_0001..=0x200_0000 => 120.0,
        _ => 400.0,
    };
    let curve: Vec<CurvePoint> =
        curve_sizes().into_iter().map(|bytes| exact_point(bytes, slow_latency_at(bytes))).collect();
    let memory_levels = levels(&curve, &[unified(1, 48 << 10), unified(2, 2 << 20), unified(3, 32 << 20)]).unwrap();
    assert_eq!(names(&memory_levels), ["L1", "L2", "L3", "DRAM"]);
}

#[test]
fn levels_found_without_reported_caches() {
    for published in published_curves() {
        let memory_levels = levels(&points(&published.curve), &[]).unwrap();
        let latencies: Vec<f64> = memory_levels.levels.iter().map(|level| level.latency).collect();
        let with_caches: Vec<f64> = levels_of(&published).levels.iter().map(|level| level.latency).collect();
        assert_eq!(latencies, with_caches, "reported caches must not change the levels found: {}", published.machine);
        assert_eq!(names(&memory_levels)[0], "L1");
        assert_eq!(*names(&memory_levels).last().unwrap(), "DRAM", "{}", published.machine);
        assert!(memory_levels.levels.iter().all(|level| level.matches_reported.is_none()));
    }
}

#[test]
fn sparsely_measured_cache_is_unknown() {
    let n100 = published_curves().into_iter().find(|published| published.machine.starts_with("Intel N100")).unwrap();
    let memory_levels = levels_of(&n100);
    let last = memory_levels.conclusions.last().unwrap();
    // Of its sizes one alone was measured: half an octave shows no plateau, and refutes none.
    let reason = "has a plateau of its own in the curve: too few working sets of its size were measured";
    assert_eq!(last.text, format!("L3, 6 MiB by what the machine reports, {reason}"));
    assert_eq!(last.holds, None);
}

/// Sizes from 4 KiB to 256 MiB, two an octave.
fn curve_sizes() -> Vec<u64> {
    (12..=28).flat_map(|power| [1u64 << power, 3 << (power - 1)]).collect()
}

#[test]
fn flat_curve_has_no_level() {
    let flat: Vec<CurvePoint> = curve_sizes().into_iter().map(|bytes| exact_point(bytes, 5.0)).collect();
    let memory_levels = levels(&flat, &[unified(1, 32 << 10), unified(2, 1 << 20)]).unwrap();
    assert_eq!(memory_levels.levels.len(), 1);
    assert_eq!(memory_levels.conclusions.len(), 1);
    assert!(memory_levels.conclusions[0].text.starts_with("the curve is flat from 4 KiB to 384 MiB, at 5.00 ns"));
    assert_eq!(memory_levels.conclusions[0].holds, None);
    assert!(levels(&flat[..5], &[]).is_none());
}

#[test]
fn noise_makes_no_level() {
    let mut random = Random::new(11);
    for noise in [0.02, 0.1, 0.3, 0.6] {
        let phantoms = (0..200)
            .filter(|_| {
                let noisy_point = |bytes| exact_point(bytes, 80.0 * (noise * random.normal()).exp());
                let curve: Vec<CurvePoint> = curve_sizes().into_iter().map(noisy_point).collect();
                levels(&curve, &[]).unwrap().levels.len() > 1
            })
            .count();
        assert!(phantoms <= 1, "{phantoms} of 200 flat curves with noise {noise} show a level");
    }
}

#[test]
fn level_found_despite_noise_and_outlier() {
    let mut random = Random::new(5);
    let mut correct_count = 0;
    for _ in 0..100 {
        let mut curve: Vec<CurvePoint> = curve_sizes()
            .into_iter()
            .map(|bytes| {
                let latency = match bytes {
                    0..=0xC000 => 1.0,
                    0xC001..=0x10_0000 => 3.4,
                    0x10_0001..=0x200_0000 => 12.0,
                    _ => 110.0,
                };
                exact_point(bytes, latency * (0.05 * random.normal()).exp())
            })
            .collect();
        let outlier = random.index_below(curve.len());
        curve[outlier].latency *= 1.5;
        let memory_levels = levels(&curve, &[unified(1, 48 << 10), unified(2, 1 << 20), unified(3, 32 << 20)]).unwrap();
        correct_count += usize::from(names(&memory_levels) == ["L1", "L2", "L3", "DRAM"]);
    }
    assert!(correct_count >= 95, "{correct_count} of 100");
}

static METRIC: Metric = Metric::duration("mem.latency", "A load at the address just loaded")
    .with_axes([
        Axis::new("pages", "page size", AxisScale::Category),
        Axis::new("bytes", "working set", AxisScale::Bytes),
    ])
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE);

#[test]
fn modes_are_named_by_level() {
    let mut run = empty_run(&[METRIC]);
    run.header.machine.topology.caches = Fact::known(vec![unified(1, 32 << 10), unified(2, 4 << 20)], "a test");
    for bytes in (12..=27).map(|power| 1u64 << power) {
        let case =
            Case::new().with_word(kelvin_core::AxisWord::from_names("pages", "base")).with_number("bytes", bytes);
        let rounds = match bytes {
            0..=0x8000 => [1.0; 6],
            // Held by the second level in some rounds, by memory in others.
            0x40_0000 => [5.0, 98.0, 5.1, 102.0, 4.9, 5.0],
            0x8001..=0x3F_FFFF => [5.0; 6],
            _ => [100.0; 6],
        };
        add_scalars(&mut run, &METRIC, case, &rounds);
    }
    let analysis = analyse(&run);
    assert_eq!(names(analysis.levels.as_ref().unwrap()), ["L1", "L2", "DRAM"]);
    let result_at = |bytes| {
        analysis
            .results
            .iter()
            .find(|result| kelvin_core::catalogue::mem::BYTES.number_in(&result.case) == Some(bytes))
            .unwrap()
    };
    let boundary = result_at(4 << 20);
    let modes = &boundary.outcome.summary().unwrap().modes;
    let mode_levels: Vec<Option<&str>> = modes.iter().map(|mode| mode.level.as_deref()).collect();
    assert_eq!(mode_levels, [Some("L2"), Some("DRAM")]);
    let [Warning { kind: WarningKind::Modes, text, .. }] = &boundary.warnings[..] else {
        panic!("{:?}", boundary.warnings)
    };
    assert!(text.contains("5.00 ns (67 %, L2) and 100 ns (33 %, DRAM) of the rounds"), "{text}");
    assert!(result_at(2 << 20).outcome.summary().unwrap().modes.is_empty());
}

/// A machine with two caches and 1024 translations, whose memory takes 100 ns a load with base pages, and this many at 32 MiB with huge ones.
fn with_huge_pages(huge: f64) -> Run {
    let mut run = empty_run(&[METRIC]);
    run.header.machine.topology.caches = Fact::known(vec![unified(1, 32 << 10), unified(2, 1 << 20)], "a test");
    let tlb = Tlb { level: 2, kind: CacheKind::Unified, page_bytes: 4096, entries: 1024, ways: 8 };
    run.header.machine.cpu.tlbs = Fact::known(vec![tlb], "a test");
    let latency = |bytes: u64| match bytes {
        0..=0x8000 => 1.0,
        0x8001..=0x10_0000 => 4.0,
        _ => 100.0,
    };
    let mut add = |pages, bytes: u64, latency: f64| {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("pages", pages)).with_number("bytes", bytes);
        add_scalars(&mut run, &METRIC, case, &[0.99 * latency, latency, 1.01 * latency, latency]);
    };
    for bytes in (12..=25).map(|power| 1u64 << power) {
        add("base", bytes, latency(bytes));
    }
    add("huge", 4 << 20, 97.0);
    add("huge", 32 << 20, huge);
    run
}

#[test]
fn small_base_page_cost_is_reported() {
    let memory_levels = analyse(&with_huge_pages(95.0)).levels.unwrap();
    let last = memory_levels.conclusions.last().unwrap();
    assert_eq!((last.holds, memory_levels.translation.unwrap().visible_from), (Some(true), None));
    let text = "base pages cost 5.00 ns more per load than huge pages at 32 MiB (5.3 %), hardly noticeable; the reported TLB reach is 4 MiB";
    assert_eq!(last.text, text);
    // Where they are alike nothing is claimed.
    assert_eq!(analyse(&with_huge_pages(100.0)).levels.unwrap().conclusions.last().unwrap().holds, None);
}

#[test]
fn run_reports_levels_and_base_page_cost() {
    let analysis = analyse(&with_huge_pages(80.0));
    let memory_levels = analysis.levels.unwrap();
    assert_eq!(names(&memory_levels), ["L1", "L2", "DRAM"]);
    let ends: Vec<(u64, u64)> =
        memory_levels.levels.iter().filter_map(|level| Some((level.capacity?.low, level.capacity?.high))).collect();
    assert_eq!(ends, [(32 << 10, 64 << 10), (1 << 20, 2 << 20)]);
    assert!(memory_levels.levels[0].interval.lower < 1.0 && memory_levels.levels[0].interval.upper > 1.0);
    let translation = memory_levels.translation.unwrap();
    assert_eq!((translation.bytes, translation.base, translation.huge), (32 << 20, 100.0, 80.0));
    assert_eq!((translation.disjoint, translation.visible_from), (true, Some(32 << 20)));
    let last = memory_levels.conclusions.last().unwrap();
    assert_eq!(last.holds, Some(true));
    assert_eq!(
        last.text,
        "base pages cost 20.0 ns more per load than huge pages at 32 MiB (25 %), noticeable from 32 MiB up; the \
         reported TLB reach is 4 MiB"
    );
    let line = "Latency by working set: L1 1.00 ns up to 32 KiB-64 KiB, L2 4.00 ns up to 1 MiB-2 MiB, DRAM 100 ns.";
    assert!(analysis.verdict.iter().any(|verdict_line| verdict_line == line), "{:#?}", analysis.verdict);
}
