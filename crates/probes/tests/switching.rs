//! Every probe of switches and local communication runs once for real, and counters verify it.

mod common;

use common::{measure, measure_if_possible, reading_of};
use kelvin_core::{AxisWord, Case, Readings, RoundOutcome};

/// Milliseconds of the timed part: enough for warm-up and some samples.
const SLICE: u64 = 6;

/// The number in a note before these words.
fn number_before(note: &str, words: &str) -> f64 {
    let before = note.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {note}")).0;
    before.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in {before}"))
}

/// Asserts that each round trip switched this task out: else the token passed without a switch.
fn check_switch_each_way(note: &str) {
    assert!(number_before(note, " context switches of this task per round trip") >= 0.98, "{note}");
}

fn word_case(axis: &'static str, word: &'static str) -> Case {
    Case::new().with_word(AxisWord::from_names(axis, word))
}

fn switch_case(task: &'static str, mechanism: &'static str) -> Case {
    word_case("task", task).with_word(AxisWord::from_names("mechanism", mechanism))
}

#[test]
fn awaited_token_switches_each_way() {
    for task in ["process", "thread"] {
        for mechanism in ["pipe", "futex", "eventfd", "condvar"] {
            let readings = measure("os.switch.cost", &switch_case(task, mechanism), SLICE);
            assert_eq!(readings.len(), 3);
            let ids = ["os.switch.cost", "os.switch.round_trip", "os.switch.channel_calls"];
            let columns = ids.map(|id| match &reading_of(&readings, id).readings {
                Readings::Batches(batches) => batches.iterations.clone(),
                other => panic!("{id}: {other:?}"),
            });
            let are_equal = columns.iter().all(|column| *column == columns[0]);
            assert!(are_equal, "{task} {mechanism}: three figures per batch: {columns:?}");
            check_switch_each_way(&reading_of(&readings, "os.switch.cost").notes[0]);
        }
    }
}

#[test]
fn yielded_token_switches_each_way() {
    for task in ["process", "thread"] {
        let readings = measure("os.switch.cost", &switch_case(task, "yield"), SLICE);
        let ids: Vec<&str> = readings.iter().map(|reading| reading.metric.as_str()).collect();
        assert_eq!(ids, ["os.switch.cost", "os.switch.round_trip"]);
        let note = &reading_of(&readings, "os.switch.cost").notes[0];
        check_switch_each_way(note);
        assert!(number_before(note, " calls of sched_yield") >= 0.98, "{note}");
    }
}

#[test]
fn ring_passes_switch_at_least_once() {
    let case = Case::new().with_number("processes", 5).with_number("working_set", 4096);
    let readings = measure("os.switch.ring", &case, SLICE);
    let Readings::Scalars(switches) = &reading_of(&readings, "os.switch.ring.switches").readings else {
        panic!("switches are a count")
    };
    assert!(switches.len() == 1 && switches[0] >= 0.98, "{switches:?}");
    reading_of(&readings, "os.switch.ring.channel_calls");
}

/// Samples between two readings of the canaries.
fn between_canaries(id: &str, case: &Case) -> Option<usize> {
    let readings = measure_if_possible(id, case, SLICE)?;
    let Readings::Batches(batches) = &readings[0].readings else { panic!("{id} has no batches") };
    Some(batches.canary_stride)
}

#[test]
fn wake_time_is_independent_of_canaries() {
    // A partner that waits notices a canary before every few wake-ups: it is asleep for longer. In all of these this many samples follow
    // each other that next to none has one before it.
    let Some(trips) = between_canaries("net.rtt.tcp", &word_case("placement", "two_cpus").with_number("message", 64))
    else {
        return;
    };
    assert!(trips >= 100, "{trips}");
    for mechanism in ["pipe", "futex"] {
        let strides = between_canaries("os.switch.cross_cpu", &word_case("mechanism", mechanism));
        assert_eq!(strides, Some(trips), "{mechanism}");
    }
    for one_way_case in [switch_case("process", "pipe"), switch_case("thread", "futex")] {
        for placement in ["same_cpu", "two_cpus"] {
            let case = one_way_case.clone().with_word(AxisWord::from_names("placement", placement));
            assert_eq!(between_canaries("os.switch.one_way", &case), Some(trips), "{case}");
        }
    }
}

#[test]
fn ipc_works_at_all_placements() {
    for mechanism in ["pipe", "unix", "futex"] {
        for placement in ["same_cpu", "two_cpus"] {
            let case = word_case("mechanism", mechanism).with_word(AxisWord::from_names("placement", placement));
            measure_if_possible("os.ipc.latency", &case, SLICE);
            measure_if_possible("os.ipc.bandwidth", &case.with_number("message", 64 << 10), SLICE);
        }
    }
}

#[test]
fn invalid_case_is_refused_by_name() {
    let refusal_of = |id: &str, case: Case| match common::run_probe(id, &case, SLICE) {
        RoundOutcome::Failed(reason) => reason,
        other => panic!("{id}: {other:?}"),
    };
    let pipe = |placement| word_case("mechanism", "pipe").with_word(AxisWord::from_names("placement", placement));
    let refusal = refusal_of("os.ipc.latency", pipe("elsewhere"));
    assert!(refusal.contains("placement=same_cpu or placement=two_cpus"), "{refusal}");
    let refusal = refusal_of("os.ipc.bandwidth", pipe("same_cpu").with_number("message", 1000));
    assert!(refusal.contains("a power of two"), "{refusal}");
    let refusal = refusal_of(
        "os.ipc.latency",
        word_case("mechanism", "yield").with_word(AxisWord::from_names("placement", "same_cpu")),
    );
    assert!(refusal.contains("mechanism=pipe, mechanism=unix or mechanism=futex"), "{refusal}");
}
