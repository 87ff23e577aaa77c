//! The probes of the processor, of system calls, signals and timers run once for real, and their figures are possible.

mod common;

use kelvin_model::{Attempt, Case, Reading, Readings, Tags};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 10;

/// Runs a probe once, and wants each of these metrics, a figure of it within the bounds.
fn possible(probe: &str, case: &Case, wanted: &[(&str, f64, f64)]) -> Vec<Reading> {
    let readings = common::measure(probe, case, SLICE);
    for &(metric, low, high) in wanted {
        let reading = readings.iter().find(|reading| reading.metric == *metric);
        let value = common::median(reading.unwrap_or_else(|| panic!("{probe} {case} has no reading of {metric}")));
        assert!(value >= low && value <= high, "{metric} {case}: {value} ns is not between {low} and {high}");
    }
    assert_eq!(readings.len(), wanted.len(), "{probe} {case}");
    readings
}

#[test]
fn clocks_are_read() {
    let pair = possible(
        "cpu.clock.pair",
        &Case::new(),
        &[("cpu.clock.pair", 1.0, 20_000.0), ("cpu.clock.pair.shown", 0.5, 20_000.0)],
    );
    assert!(pair[0].notes[0].starts_with("pair: "), "{:?}", pair[0].notes);
    for clock in ["monotonic", "monotonic_raw", "monotonic_coarse", "thread_cpu"] {
        let case = Case::new().with_word("clock", clock);
        let readings = possible("cpu.clock.gettime", &case, &[("cpu.clock.gettime", 0.5, 50_000.0)]);
        let entered = readings[0].notes[0].starts_with("by a system call");
        // CPU time is the kernel's alone to tell.
        assert!(entered || clock != "thread_cpu", "{:?}", readings[0].notes);
    }
}

#[test]
fn an_unknown_case_fails_with_a_reason() {
    let attempt = common::run_probe("cpu.clock.gettime", &Case::new().with_word("clock", "sundial"), SLICE);
    assert_eq!(attempt, Attempt::Failed("there is no clock for the case clock=sundial".into()));
}

#[test]
fn the_core_runs_at_a_possible_frequency() {
    for load in ["one", "all"] {
        let case = Case::new().with_word("load", load);
        match common::run_probe("cpu.frequency", &case, SLICE) {
            Attempt::Measured(readings) => {
                let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
                let cycles = batches.work_per_iteration;
                assert!(cycles >= 64.0 && cycles % 64.0 == 0.0, "{cycles}");
                let hertz = cycles * 1e9 / common::median(&readings[0]);
                assert!((1e8..1e10).contains(&hertz), "{hertz}");
            }
            Attempt::Skipped(reason) => assert!(load == "all" && reason.0.contains("two CPUs"), "{reason}"),
            // A busy machine can blur the cross-check; anything else is ours.
            Attempt::Failed(reason) => assert!(reason.starts_with("a multiply takes"), "{reason}"),
        }
    }
}

#[test]
fn chains_and_loops_take_cycles() {
    let all = [("cpu.latency.add", 0.1, 50.0), ("cpu.latency.multiply", 0.1, 200.0), ("cpu.latency.load", 0.1, 200.0)];
    possible("cpu.latency", &Case::new(), &all);
    possible("cpu.loop", &Case::new(), &[("cpu.loop", 0.05, 50.0)]);
}

#[test]
fn calls_are_made_in_every_way() {
    for via in ["direct", "indirect", "plt"] {
        for arguments in [0, 7] {
            let case = Case::new().with("arguments", arguments).with_word("via", via);
            possible("cpu.call.args", &case, &[("cpu.call.args", 0.2, 200.0)]);
        }
    }
}

#[test]
fn the_kernel_is_entered() {
    for call in ["getppid", "gettid", "libc_getppid", "libc_getpid"] {
        let case = Case::new().with_word("call", call);
        let low = if call == "libc_getpid" { 0.1 } else { 10.0 };
        possible("os.syscall.null", &case, &[("os.syscall.null", low, 100_000.0)]);
    }
    for probe in ["read", "write", "stat", "fstat", "open_close", "mmap_munmap"] {
        let id = format!("os.syscall.{probe}");
        possible(&id, &Case::new(), &[(&id, 10.0, 1e6)]);
    }
    for descriptors in [10, 100] {
        let case = Case::new().with("descriptors", descriptors);
        possible("os.syscall.select", &case, &[("os.syscall.select", 10.0, 1e6)]);
    }
}

#[test]
fn signals_arrive() {
    possible("os.signal.install", &Case::new(), &[("os.signal.install", 10.0, 1e6)]);
    possible("os.signal.deliver", &Case::new(), &[("os.signal.deliver", 20.0, 1e6)]);
}

#[test]
fn sleeps_end_late_and_never_early() {
    for slack in [50_000, 1] {
        let case = Case::new().with("slack", slack);
        let readings = possible("os.timer.wakeup", &case, &[("os.timer.wakeup", 0.0, 1e9)]);
        let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
        assert!(batches.iterations.iter().all(|&one| one == 1), "sleeps are timed one by one");
        assert!(batches.tags.iter().any(|tags| !tags.any(Tags::WARM_UP)));
    }
}
