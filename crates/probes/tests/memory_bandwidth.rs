//! The bandwidth probes run once for real: levels are in order, all kernels are tried, and injected bytes are counted.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kelvin_model::{Attempt, Case, Reading, Readings};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 12;
const METRICS: [&str; 7] = ["read", "write", "copy", "fill", "zero", "ntwrite", "triad"];

/// One test at a time: what another one moves meanwhile would be missing here.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn case(bytes: u64, cpus: &'static str) -> Case {
    Case::new().with("bytes", bytes).at(kelvin_model::Point::named("cpus", cpus))
}

/// Bytes per nanosecond of one metric: the median over its batches.
fn rate(readings: &[Reading], metric: &str) -> f64 {
    let id = format!("mem.bandwidth.{metric}");
    let reading = readings.iter().find(|reading| reading.metric == *id).unwrap_or_else(|| panic!("no {id}"));
    let Readings::Batches(batches) = &reading.readings else { panic!("{id} has no batches") };
    assert!(batches.work_per_iteration > 0.0, "{id} moves nothing");
    batches.work_per_iteration / common::median(reading)
}

fn notes(readings: &[Reading]) -> String {
    readings.iter().flat_map(|reading| reading.notes.clone()).collect::<Vec<_>>().join("\n")
}

#[test]
fn caches_are_faster_than_memory_and_every_kernel_is_tried() {
    let _alone = alone();
    let inner = common::measure("mem.bandwidth", &case(16 << 10, "one"), SLICE);
    assert!(inner.iter().all(|reading| reading.metric != *"mem.bandwidth.handover"), "one CPU has no other");
    let outer = common::measure("mem.bandwidth", &case(256 << 20, "one"), SLICE);
    for metric in METRICS {
        for (place, rate) in [("cache", rate(&inner, metric)), ("memory", rate(&outer, metric))] {
            assert!((0.05..5000.0).contains(&rate), "{metric} in {place}: {rate} GB/s");
        }
    }
    for metric in ["read", "write", "copy", "triad"] {
        let (near, far) = (rate(&inner, metric), rate(&outer, metric));
        assert!(near > far, "{metric}: {near} GB/s in the first level, {far} GB/s in memory");
    }
    // What passes the caches by is a means in memory, and none where the set stays cached.
    let cached = notes(&inner);
    assert!(!cached.contains("non-temporal"), "{cached}");
    let notes = notes(&outer);
    assert!(notes.contains("non-temporal "), "{notes}");
    assert!(notes.contains("huge pages asked for"), "{notes}");
    let trials = "median of 3 trials of each, of those close to the fastest 7: ";
    assert_eq!(notes.matches(trials).count(), METRICS.len(), "{notes}");
    let plain = if cfg!(target_arch = "x86_64") { "sse2 " } else { "neon " };
    assert!(notes.matches(plain).count() >= METRICS.len(), "{notes}");
    assert!(notes.contains("each byte copied counts twice"), "{notes}");
}

#[test]
fn all_cpus_move_what_each_of_them_moves() {
    let _alone = alone();
    let bytes = 16 << 10;
    match common::run_probe("mem.bandwidth", &case(bytes, "all"), SLICE) {
        Attempt::Skipped(reason) => assert!(reason.0.contains("two CPUs"), "{reason}"),
        Attempt::Measured(readings) => {
            let Readings::Batches(read) = &readings[0].readings else { panic!("{readings:?}") };
            let cpus = kelvin_sys::cpu::allowed().unwrap().len() as u64;
            assert_eq!(read.work_per_iteration, (bytes * cpus) as f64);
            // How far apart they stood: before each operation and after the last.
            let handover = readings.iter().find(|reading| reading.metric == *"mem.bandwidth.handover");
            let Readings::Scalars(ways) = &handover.unwrap().readings else { panic!("{handover:?}") };
            assert_eq!(ways.len(), METRICS.len() + 1);
            assert!(ways.iter().all(|way| (1.0..100_000.0).contains(way)), "{ways:?} ns");
        }
        Attempt::Failed(reason) => panic!("{reason}"),
    }
}

#[test]
fn an_unknown_case_fails_with_a_reason() {
    let attempt = common::run_probe("mem.bandwidth", &case(16 << 10, "some"), SLICE);
    assert_eq!(attempt, Attempt::Failed("the case has cpus Some(\"some\"); one and all are known".into()));
    let attempt = common::run_probe("mem.bandwidth.loaded", &Case::new().with("load", 101), SLICE);
    assert_eq!(attempt, Attempt::Failed("the case needs a load of 0 to 100 %".into()));
}

#[test]
fn load_is_injected_and_counted() {
    let _alone = alone();
    let at = |load: u64| {
        let case = Case::new().with("load", load).with("bytes", 64 << 20);
        match common::run_probe("mem.bandwidth.loaded", &case, SLICE) {
            Attempt::Measured(readings) => Some(readings),
            Attempt::Skipped(reason) => {
                assert!(reason.0.contains("two CPUs"), "{reason}");
                None
            }
            Attempt::Failed(reason) => panic!("{reason}"),
        }
    };
    let values = |readings: &[Reading]| {
        assert_eq!(readings[0].metric.as_str(), "mem.loaded.latency");
        assert_eq!(readings[1].metric.as_str(), "mem.loaded.bandwidth");
        (common::median(&readings[0]), common::median(&readings[1]))
    };
    let Some(idle) = at(0) else { return };
    let (alone, quiet) = values(&idle);
    assert!((5.0..5000.0).contains(&alone), "{alone} ns");
    // Without injection only the lines of the chase move: one of 64 bytes in each latency.
    assert!(quiet < 1.5 * 64e9 / alone, "{quiet} bytes per second beside {alone} ns");
    // Another program may have an injector's CPU for the whole of a round: the best of a few is what was injected.
    let most = |load| (0..4).filter_map(|_| at(load)).map(|readings| values(&readings).1).fold(0.0, f64::max);
    let (quarter, full) = (most(25), most(100));
    assert!(2.0 * quiet < quarter && 1.5 * quarter < full, "{quiet} {quarter} {full} bytes per second");
    assert!(notes(&idle).contains("full injection"), "{}", notes(&idle));
}
