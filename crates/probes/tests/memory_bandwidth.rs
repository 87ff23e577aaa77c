//! The bandwidth probes run once for real: all kernels are tried, and all bytes counted, injected ones included.

mod common;

use common::{measure_if_possible, notes, reading_of};
use kelvin_core::catalogue::mem::MemoryNodes;
use kelvin_core::{Case, Readings, RoundOutcome};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 12;
const METRICS: [&str; 7] = ["read", "write", "copy", "fill", "zero", "ntwrite", "triad"];

fn case(bytes: u64, cpus: &'static str) -> Case {
    Case::new().with_number("bytes", bytes).with_word(kelvin_core::AxisWord::from_names("cpus", cpus))
}

#[test]
fn kernels_are_tried_in_cache_and_memory() {
    let inner = common::measure("mem.bandwidth", &case(16 << 10, "one"), SLICE);
    assert!(inner.iter().all(|reading| reading.metric != *"mem.bandwidth.core_to_core"), "one CPU has no other");
    let outer = common::measure("mem.bandwidth", &case(256 << 20, "one"), SLICE);
    for metric in METRICS {
        for readings in [&inner, &outer] {
            let Readings::Batches(batches) = &reading_of(readings, &format!("mem.bandwidth.{metric}")).readings else {
                panic!("{metric} has no batches")
            };
            assert!(batches.work_per_iteration > 0.0, "{metric} moves nothing");
        }
    }
    // Non-temporal variants are tried in memory, and not where the set stays cached.
    let cached_notes = notes(&inner);
    assert!(!cached_notes.contains("non-temporal"), "{cached_notes}");
    let notes = notes(&outer);
    assert!(notes.contains("non-temporal "), "{notes}");
    assert!(notes.contains("bytes requested; by smaps "), "{notes}");
    let trials = "median of 3 trials of each, of those close to the fastest 7: ";
    assert_eq!(notes.matches(trials).count(), METRICS.len(), "{notes}");
    let simd_name = if cfg!(target_arch = "x86_64") { "sse2 " } else { "neon " };
    assert!(notes.matches(simd_name).count() >= METRICS.len(), "{notes}");
    assert!(notes.contains("each byte copied counts twice"), "{notes}");
}

#[test]
fn all_cpus_rate_is_sum() {
    let bytes = 16 << 10;
    let Some(readings) = measure_if_possible("mem.bandwidth", &case(bytes, "all"), SLICE) else { return };
    let Readings::Batches(read) = &readings[0].readings else { panic!("{readings:?}") };
    let cpus = kelvin_sys::cpu::affinity().unwrap().len() as u64;
    assert_eq!(read.work_per_iteration, (bytes * cpus) as f64);
    // Core-to-core latency: before each operation and after the last.
    let Readings::Scalars(latencies) = &reading_of(&readings, "mem.bandwidth.core_to_core").readings else {
        panic!("{readings:?}")
    };
    assert_eq!(latencies.len(), METRICS.len() + 1);
}

/// CPUs that start and end each batch together would wait for each other as long as they work, and see each other in their canaries.
#[test]
fn more_than_two_cpus_work_in_windows_without_canaries() {
    let cpus: Vec<u32> = kelvin_sys::cpu::affinity().unwrap().into_iter().cycle().take(3).collect();
    let outcome = common::run_probe_on(&cpus, "mem.bandwidth", &case(16 << 10, "all"), SLICE);
    let RoundOutcome::Measured(readings) = outcome else { panic!("{outcome:?}") };
    for metric in METRICS {
        let reading = reading_of(&readings, &format!("mem.bandwidth.{metric}"));
        let Readings::Scalars(rates) = &reading.readings else { panic!("{reading:?}") };
        assert!(rates.len() == 1 && rates[0] > 0.0, "{reading:?}");
        assert!(reading.notes.iter().any(|note| note.contains("by each CPU ")), "{reading:?}");
    }
}

#[test]
fn rates_of_several_cpus_are_counted_in_windows() {
    let cpus = kelvin_sys::cpu::affinity().unwrap().len() as u64;
    let case = |cpus: u64| {
        let case = Case::new().with_word(MemoryNodes::All).with_number("bytes", 256 << 20);
        case.with_number("cpus", cpus)
    };
    for count in [1, cpus] {
        let readings = common::measure("mem.scaling", &case(count), SLICE);
        for metric in ["read", "write", "copy", "triad"] {
            let reading = reading_of(&readings, &format!("mem.scaling.{metric}"));
            let Readings::Scalars(rates) = &reading.readings else { panic!("{reading:?}") };
            assert!(rates.len() == 1 && rates[0] > 0.0, "{rates:?}");
            assert!(reading.notes.iter().any(|note| note.contains("trials: ")), "{reading:?}");
        }
        let Readings::Scalars(latencies) = &reading_of(&readings, "mem.scaling.latency").readings else {
            panic!("{readings:?}")
        };
        assert!(latencies.len() == 1 && latencies[0] > 0.0, "{latencies:?}");
        let notes = notes(&readings);
        assert!(notes.contains(" in huge pages by smaps"), "{notes}");
        let each = kelvin_core::units::bytes((256 << 20) / count);
        assert!(notes.contains(&format!("{each} of memory each")), "{notes}");
    }
    let attempt = common::run_probe("mem.scaling", &case(cpus + 1), SLICE);
    let reason = format!("needs {} CPUs; this process may use {cpus}", cpus + 1);
    assert!(matches!(&attempt, RoundOutcome::Skipped(skipped) if skipped.0.contains(&reason)), "{attempt:?}");
}

#[test]
fn unknown_case_fails_with_reason() {
    let attempt = common::run_probe("mem.bandwidth", &case(16 << 10, "some"), SLICE);
    assert_eq!(attempt, RoundOutcome::Failed("the case needs cpus=one or cpus=all, not bytes=16384 cpus=some".into()));
    let attempt = common::run_probe("mem.bandwidth.loaded", &Case::new().with_number("load", 101), SLICE);
    assert_eq!(attempt, RoundOutcome::Failed("the case needs an injection of 0 to 100 %".into()));
}

#[test]
fn injection_adds_memory_traffic() {
    for load in [0, 25, 100] {
        let case = Case::new().with_number("injection", load).with_number("bytes", 256 << 20);
        let Some(readings) = measure_if_possible("mem.bandwidth.loaded", &case, SLICE) else { return };
        let ids: Vec<&str> = readings.iter().map(|reading| reading.metric.as_str()).collect();
        assert_eq!(ids, ["mem.loaded.latency", "mem.loaded.bandwidth"]);
        let Readings::Scalars(bandwidths) = &reading_of(&readings, "mem.loaded.bandwidth").readings else {
            panic!("{readings:?}")
        };
        let Readings::Batches(loads) = &reading_of(&readings, "mem.loaded.latency").readings else {
            panic!("{readings:?}")
        };
        let load_times = loads.nanoseconds.iter().zip(&loads.iterations).map(|(&time, &loads)| time / loads as f64);
        let load_bandwidth = 64.0 / load_times.fold(f64::INFINITY, f64::min) * 1e9;
        // A line for each load is at most what the fastest batch moves; the loads before the first one may be a little faster.
        assert!(load > 0 || bandwidths[0] <= 1.2 * load_bandwidth, "{load} %: {bandwidths:?} of {load_bandwidth}");
        assert!(bandwidths.len() == 1 && bandwidths[0] > 0.0, "{bandwidths:?}");
        let notes = notes(&readings);
        assert!(notes.contains(&format!("{load} % of full injection requested")), "{notes}");
        assert!(notes.contains("injectors on CPUs "), "{notes}");
        assert_eq!(notes.contains("flushed from the caches before"), load > 0, "{notes}");
    }
}
