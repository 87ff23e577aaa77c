//! The probes of the processor, of system calls, signals and timers run once for real, and their figures are possible.

mod common;

use kelvin_catalogue::cpu::{
    ARGUMENTS, BusyCpus, CALL_ARGS, CLOCK_GETTIME, CLOCK_PAIR, CLOCK_PAIR_SHOWN, FREQUENCY, KernelClock, LATENCY,
    LATENCY_ADD, LATENCY_LOAD, LATENCY_MULTIPLY, LOOP, Via,
};
use kelvin_catalogue::os::{
    DESCRIPTORS, NullCall, SIGNAL_DELIVER, SIGNAL_INSTALL, SYSCALL_FSTAT, SYSCALL_MMAP_MUNMAP, SYSCALL_NULL,
    SYSCALL_OPEN_CLOSE, SYSCALL_READ, SYSCALL_SELECT, SYSCALL_STAT, SYSCALL_WRITE, TIMER_SLACK, TIMER_WAKEUP,
};
use kelvin_model::{Attempt, Case, Metric, Point, Reading, Readings, Tags};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 10;

/// Runs a probe once, and wants each of these metrics, a figure of it within the bounds.
fn possible(probe: &str, case: &Case, wanted: &[(&Metric, f64, f64)]) -> Vec<Reading> {
    let readings = common::measure(probe, case, SLICE);
    for &(metric, low, high) in wanted {
        let metric = metric.id;
        let reading = readings.iter().find(|reading| reading.metric == metric);
        let value = common::median(reading.unwrap_or_else(|| panic!("{probe} {case} has no reading of {metric}")));
        assert!(value >= low && value <= high, "{metric} {case}: {value} ns is not between {low} and {high}");
    }
    assert_eq!(readings.len(), wanted.len(), "{probe} {case}");
    readings
}

#[test]
fn clocks_are_read() {
    let pair =
        possible(&CLOCK_PAIR.id, &Case::new(), &[(&CLOCK_PAIR, 1.0, 20_000.0), (&CLOCK_PAIR_SHOWN, 0.5, 20_000.0)]);
    assert!(pair[0].notes[0].starts_with("pair: "), "{:?}", pair[0].notes);
    for &clock in KernelClock::ALL {
        let readings = possible(&CLOCK_GETTIME.id, &Case::new().at(clock), &[(&CLOCK_GETTIME, 0.5, 50_000.0)]);
        let entered = readings[0].notes[0].starts_with("by a system call");
        // CPU time is the kernel's alone to tell.
        assert!(entered || clock != KernelClock::ThreadCpu, "{:?}", readings[0].notes);
    }
}

#[test]
fn an_unknown_case_fails_with_a_reason() {
    let attempt =
        common::run_probe(&CLOCK_GETTIME.id, &Case::new().at(Point::new(KernelClock::AXIS, "sundial")), SLICE);
    assert_eq!(attempt, Attempt::Failed("there is no clock for the case clock=sundial".into()));
}

#[test]
fn the_core_runs_at_a_possible_frequency() {
    for &busy in BusyCpus::ALL {
        match common::run_probe(&FREQUENCY.id, &Case::new().at(busy), SLICE) {
            Attempt::Measured(readings) => {
                let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
                let cycles = batches.work_per_iteration;
                assert!(cycles >= 64.0 && cycles % 64.0 == 0.0, "{cycles}");
                let hertz = cycles * 1e9 / common::median(&readings[0]);
                assert!((1e8..1e10).contains(&hertz), "{hertz}");
            }
            Attempt::Skipped(reason) => assert!(busy == BusyCpus::All && reason.0.contains("two CPUs"), "{reason}"),
            // A busy machine can blur the cross-check; anything else is ours.
            Attempt::Failed(reason) => assert!(reason.starts_with("a multiply takes"), "{reason}"),
        }
    }
}

#[test]
fn chains_and_loops_take_cycles() {
    let all = [(&LATENCY_ADD, 0.1, 50.0), (&LATENCY_MULTIPLY, 0.1, 200.0), (&LATENCY_LOAD, 0.1, 200.0)];
    possible(&LATENCY, &Case::new(), &all);
    possible(&LOOP.id, &Case::new(), &[(&LOOP, 0.05, 50.0)]);
}

#[test]
fn calls_are_made_in_every_way() {
    for &via in Via::ALL {
        for arguments in [0, 7] {
            let case = Case::new().with(ARGUMENTS, arguments).at(via);
            possible(&CALL_ARGS.id, &case, &[(&CALL_ARGS, 0.2, 200.0)]);
        }
    }
}

#[test]
fn the_kernel_is_entered() {
    for &call in NullCall::ALL {
        let low = if call == NullCall::LibraryGetpid { 0.1 } else { 10.0 };
        possible(&SYSCALL_NULL.id, &Case::new().at(call), &[(&SYSCALL_NULL, low, 100_000.0)]);
    }
    for metric in
        [&SYSCALL_READ, &SYSCALL_WRITE, &SYSCALL_STAT, &SYSCALL_FSTAT, &SYSCALL_OPEN_CLOSE, &SYSCALL_MMAP_MUNMAP]
    {
        possible(&metric.id, &Case::new(), &[(metric, 10.0, 1e6)]);
    }
    for descriptors in [10, 100] {
        let case = Case::new().with(DESCRIPTORS, descriptors);
        possible(&SYSCALL_SELECT.id, &case, &[(&SYSCALL_SELECT, 10.0, 1e6)]);
    }
}

#[test]
fn signals_arrive() {
    possible(&SIGNAL_INSTALL.id, &Case::new(), &[(&SIGNAL_INSTALL, 10.0, 1e6)]);
    possible(&SIGNAL_DELIVER.id, &Case::new(), &[(&SIGNAL_DELIVER, 20.0, 1e6)]);
}

#[test]
fn sleeps_end_late_and_never_early() {
    for slack in [50_000, 1] {
        let case = Case::new().with(TIMER_SLACK, slack);
        let readings = possible(&TIMER_WAKEUP.id, &case, &[(&TIMER_WAKEUP, 0.0, 1e9)]);
        let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
        assert!(batches.iterations.iter().all(|&one| one == 1), "sleeps are timed one by one");
        assert!(batches.tags.iter().any(|tags| !tags.any(Tags::WARM_UP)));
    }
}
