//! The probes of processes, threads and tasks, each run once for real.

mod common;

use common::{measure, median, notes, reading_of};
use kelvin_core::{Case, MetricReadings};

/// Milliseconds of the timed part.
const SLICE: u64 = 15;

fn value(readings: &[MetricReadings], metric: &str) -> f64 {
    median(reading_of(readings, metric))
}

#[test]
fn fork_times_return_child_and_end() {
    let readings = measure("os.process.fork", &Case::new(), SLICE);
    let ids: Vec<&str> = readings.iter().map(|reading| reading.metric.as_str()).collect();
    assert_eq!(ids, ["os.process.fork", "os.process.fork.child", "os.process.fork_exit_wait"]);
    assert!(notes(&readings).contains("each fork copies"), "{}", notes(&readings));
}

#[test]
fn every_kind_of_process_succeeds() {
    for probe in ["os.process.vfork", "os.process.spawn", "os.process.exec", "os.process.shell"] {
        reading_of(&measure(probe, &Case::new(), SLICE), probe);
    }
}

#[test]
fn forked_memory_is_resident() {
    for bytes in [1u64 << 20, 64 << 20] {
        let case =
            Case::new().with_number("resident", bytes).with_word(kelvin_core::AxisWord::from_names("pages", "base"));
        let notes = notes(&measure("os.process.fork_rss", &case, SLICE));
        assert!(
            notes.contains(&format!("{bytes} bytes requested; by smaps {bytes} resident, 0 in huge pages")),
            "{notes}"
        );
    }
}

#[test]
fn thread_runs_between_create_and_join() {
    let readings = measure("os.thread.create", &Case::new(), SLICE);
    let [create, run, join] =
        ["os.thread.create", "os.thread.create.run", "os.thread.create.join"].map(|metric| value(&readings, metric));
    // Times of the same threads by one clock: ordered for each thread, and so for their medians.
    assert!(create < join && run < join, "{create} {run} {join}");
}

#[test]
fn task_times_add_up_for_all_splits() {
    for kind in ["threads", "processes"] {
        let case = Case::new().with_number("tasks", 2).with_word(kelvin_core::AxisWord::from_names("kind", kind));
        let readings = measure("os.tasks", &case, SLICE);
        for metric in ["elapsed", "user", "efficiency"] {
            assert!(value(&readings, &format!("os.tasks.{metric}")) > 0.0, "{kind}: {readings:?}");
        }
        assert!(value(&readings, "os.tasks.unaccounted") >= 0.0, "{kind}: {readings:?}");
        assert!(notes(&readings).contains("as time shows it: real"), "{}", notes(&readings));
    }
}
