//! Every measure of switching and of local communication runs once for real, and its figures agree with one another.

mod common;

use kelvin_catalogue::Placement;
use kelvin_catalogue::os::*;
use kelvin_model::{Attempt, Case, Metric, Point, Reading, Readings};
use kelvin_sys::cpu;

/// Milliseconds of the timed part: enough to warm up and to take some samples.
const SLICE: u64 = 6;

fn of<'a>(readings: &'a [Reading], metric: &Metric) -> &'a Reading {
    let reading = readings.iter().find(|reading| reading.metric == metric.id);
    reading.unwrap_or_else(|| panic!("{} was not measured", metric.id))
}

#[test]
fn a_switch_is_half_a_round_trip_less_the_calls() {
    for metrics in [
        [&SWITCH_PROCESS_PIPE, &SWITCH_PROCESS_PIPE_ROUND_TRIP, &SWITCH_PROCESS_PIPE_OWN],
        [&SWITCH_THREAD_PIPE, &SWITCH_THREAD_PIPE_ROUND_TRIP, &SWITCH_THREAD_PIPE_OWN],
        [&SWITCH_PROCESS_FUTEX, &SWITCH_PROCESS_FUTEX_ROUND_TRIP, &SWITCH_PROCESS_FUTEX_OWN],
        [&SWITCH_THREAD_FUTEX, &SWITCH_THREAD_FUTEX_ROUND_TRIP, &SWITCH_THREAD_FUTEX_OWN],
        [&SWITCH_PROCESS_EVENTFD, &SWITCH_PROCESS_EVENTFD_ROUND_TRIP, &SWITCH_PROCESS_EVENTFD_OWN],
        [&SWITCH_THREAD_EVENTFD, &SWITCH_THREAD_EVENTFD_ROUND_TRIP, &SWITCH_THREAD_EVENTFD_OWN],
        [&SWITCH_PROCESS_CONDVAR, &SWITCH_PROCESS_CONDVAR_ROUND_TRIP, &SWITCH_PROCESS_CONDVAR_OWN],
        [&SWITCH_THREAD_CONDVAR, &SWITCH_THREAD_CONDVAR_ROUND_TRIP, &SWITCH_THREAD_CONDVAR_OWN],
    ] {
        let id = metrics[0].id;
        let readings = common::measure(&id, &Case::new(), SLICE);
        assert_eq!(readings.len(), 3);
        let [switch, round_trip, own] = metrics.map(|metric| match &of(&readings, metric).readings {
            Readings::Batches(batches) => &batches.nanoseconds,
            other => panic!("{}: {other:?}", metric.id),
        });
        for batch in 0..switch.len() {
            let expected = round_trip[batch] / 2.0 - own[batch];
            assert!((switch[batch] - expected).abs() < 1.0, "{id}: {} and {expected}", switch[batch]);
        }
        let note = &of(&readings, metrics[0]).notes[0];
        assert!(note.contains("context switches of this task per round trip"), "{note}");
    }
}

#[test]
fn a_yield_that_hands_over_is_one_switch() {
    for metrics in [
        [&SWITCH_PROCESS_YIELD, &SWITCH_PROCESS_YIELD_ROUND_TRIP],
        [&SWITCH_THREAD_YIELD, &SWITCH_THREAD_YIELD_ROUND_TRIP],
    ] {
        let readings = common::measure(&metrics[0].id, &Case::new(), SLICE);
        let [switch, round_trip] = metrics.map(|metric| common::median(of(&readings, metric)));
        assert!((switch * 2.0 - round_trip).abs() < 0.01 * round_trip, "{switch} ns, {round_trip} ns");
        assert!(readings[0].notes[0].contains("calls of sched_yield"), "{:?}", readings[0].notes);
    }
}

#[test]
fn a_ring_hands_over_with_at_least_a_switch_each() {
    let case = Case::new().with(PROCESSES, 5).with(WORKING_SET, 4096);
    let readings = common::measure(&SWITCH_RING.id, &case, SLICE);
    let Readings::Scalars(switches) = &of(&readings, &SWITCH_RING_SWITCHES).readings else {
        panic!("switches are a count")
    };
    assert!(switches.len() == 1 && switches[0] >= 0.98 && switches[0] < 4.0, "{switches:?}");
    assert!(common::median(of(&readings, &SWITCH_RING_OWN)) > 0.0);
}

/// What needs a second CPU is measured where there is one, and skipped with the reason where there is none.
fn measured_or_skipped(metric: &Metric, case: &Case) {
    let id = metric.id;
    match common::run_probe(&id, case, SLICE) {
        Attempt::Measured(readings) => assert!(common::median(&readings[0]) > 0.0, "{id} {case}"),
        Attempt::Skipped(reason) => {
            assert!(cpu::allowed().unwrap().len() < 2, "{id} {case}: {reason:?}");
        }
        other => panic!("{id} {case}: {other:?}"),
    }
}

#[test]
fn another_cpu_is_woken() {
    for &means in TokenMeans::ALL {
        measured_or_skipped(&SWITCH_CROSS_CPU, &Case::new().at(means));
    }
}

#[test]
fn tokens_and_bytes_pass_between_processes_wherever_they_run() {
    for (latency, bandwidth) in [
        (&IPC_PIPE_LATENCY, &IPC_PIPE_BANDWIDTH),
        (&IPC_UNIX_LATENCY, &IPC_UNIX_BANDWIDTH),
        (&IPC_FUTEX_LATENCY, &IPC_FUTEX_BANDWIDTH),
    ] {
        for &placement in Placement::ALL {
            let case = Case::new().at(placement);
            measured_or_skipped(latency, &case);
            measured_or_skipped(bandwidth, &case.with(MESSAGE, 64 << 10));
        }
    }
}

#[test]
fn a_case_that_makes_no_sense_is_refused_by_name() {
    let refused = |metric: &Metric, case: Case| match common::run_probe(&metric.id, &case, SLICE) {
        Attempt::Failed(reason) => reason,
        other => panic!("{}: {other:?}", metric.id),
    };
    let case = Case::new().at(Point::new(Placement::AXIS, "elsewhere"));
    assert!(refused(&IPC_PIPE_LATENCY, case).contains("placement=same_cpu or placement=two_cpus"));
    let case = Case::new().at(Placement::SameCpu).with(MESSAGE, 1000);
    assert!(refused(&IPC_PIPE_BANDWIDTH, case).contains("a power of two"));
}
