//! Every measure of switching and of local communication runs once for real, and its figures agree with one another.

mod common;

use kelvin_model::{Attempt, Case, Reading, Readings};
use kelvin_sys::cpu;

/// Milliseconds of the timed part: enough to warm up and to take some samples.
const SLICE: u64 = 6;

fn named<'a>(readings: &'a [Reading], id: &str) -> &'a Reading {
    readings.iter().find(|reading| reading.metric == *id).unwrap_or_else(|| panic!("{id} was not measured"))
}

#[test]
fn a_switch_is_half_a_round_trip_less_the_calls() {
    for task in ["process", "thread"] {
        for means in ["pipe", "futex", "eventfd", "condvar"] {
            let id = format!("os.switch.{task}.{means}");
            let readings = common::measure(&id, &Case::new(), SLICE);
            assert_eq!(readings.len(), 3);
            let columns = [id.clone(), format!("{id}.round_trip"), format!("{id}.own")].map(|id| {
                match &named(&readings, &id).readings {
                    Readings::Batches(batches) => batches.nanoseconds.clone(),
                    other => panic!("{id}: {other:?}"),
                }
            });
            let [switch, round_trip, own] = &columns;
            for batch in 0..switch.len() {
                let expected = round_trip[batch] / 2.0 - own[batch];
                assert!((switch[batch] - expected).abs() < 1.0, "{id}: {} and {expected}", switch[batch]);
            }
            let note = &named(&readings, &id).notes[0];
            assert!(note.contains("context switches of this task per round trip"), "{note}");
        }
    }
}

#[test]
fn a_yield_that_hands_over_is_one_switch() {
    for task in ["process", "thread"] {
        let id = format!("os.switch.{task}.yield");
        let readings = common::measure(&id, &Case::new(), SLICE);
        let switch = common::median(named(&readings, &id));
        let round_trip = common::median(named(&readings, &format!("{id}.round_trip")));
        assert!((switch * 2.0 - round_trip).abs() < 0.01 * round_trip, "{switch} ns, {round_trip} ns");
        assert!(readings[0].notes[0].contains("calls of sched_yield"), "{:?}", readings[0].notes);
    }
}

#[test]
fn a_ring_hands_over_with_at_least_a_switch_each() {
    let case = Case::new().with("processes", 5).with("working_set", 4096);
    let readings = common::measure("os.switch.ring", &case, SLICE);
    let Readings::Scalars(switches) = &named(&readings, "os.switch.ring.switches").readings else {
        panic!("switches are a count")
    };
    assert!(switches.len() == 1 && switches[0] >= 0.98 && switches[0] < 4.0, "{switches:?}");
    assert!(common::median(named(&readings, "os.switch.ring.own")) > 0.0);
}

/// What needs a second CPU is measured where there is one, and skipped with the reason where there is none.
fn measured_or_skipped(id: &str, case: &Case) {
    match common::run_probe(id, case, SLICE) {
        Attempt::Measured(readings) => assert!(common::median(&readings[0]) > 0.0, "{id} {case}"),
        Attempt::Skipped(reason) => {
            assert!(cpu::allowed().unwrap().len() < 2, "{id} {case}: {reason:?}");
        }
        other => panic!("{id} {case}: {other:?}"),
    }
}

#[test]
fn another_cpu_is_woken() {
    for means in ["pipe", "futex"] {
        measured_or_skipped("os.switch.cross_cpu", &Case::new().with_word("means", means));
    }
}

#[test]
fn tokens_and_bytes_pass_between_processes_wherever_they_run() {
    for means in ["pipe", "unix", "futex"] {
        for placement in ["same_cpu", "two_cpus"] {
            let case = Case::new().with_word("placement", placement);
            measured_or_skipped(&format!("os.ipc.{means}.latency"), &case);
            measured_or_skipped(&format!("os.ipc.{means}.bandwidth"), &case.with("message", 64 << 10));
        }
    }
}

#[test]
fn a_case_that_makes_no_sense_is_refused_by_name() {
    let refused = |id: &str, case: Case| match common::run_probe(id, &case, SLICE) {
        Attempt::Failed(reason) => reason,
        other => panic!("{id}: {other:?}"),
    };
    let case = Case::new().with_word("placement", "elsewhere");
    assert!(refused("os.ipc.pipe.latency", case).contains("placement=same_cpu or placement=two_cpus"));
    let case = Case::new().with_word("placement", "same_cpu").with("message", 1000);
    assert!(refused("os.ipc.pipe.bandwidth", case).contains("a power of two"));
}
