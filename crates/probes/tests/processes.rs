//! The probes of processes, threads and tasks, each run once for real.

mod common;

use common::{measure, median, notes, of};
use kelvin_model::{Case, Reading};

/// Milliseconds of the timed part.
const SLICE: u64 = 15;

fn value(readings: &[Reading], metric: &str) -> f64 {
    median(of(readings, metric))
}

#[test]
fn a_fork_is_timed_until_it_returns_until_its_child_runs_and_until_that_has_ended() {
    let readings = measure("os.process.fork", &Case::new(), SLICE);
    let ids: Vec<&str> = readings.iter().map(|reading| reading.metric.as_str()).collect();
    assert_eq!(ids, ["os.process.fork", "os.process.fork.child", "os.process.fork.life"]);
    assert!(notes(&readings).contains("each fork copies"), "{}", notes(&readings));
}

#[test]
fn every_kind_of_process_succeeds() {
    for probe in ["os.process.vfork", "os.process.spawn", "os.process.exec", "os.process.shell"] {
        of(&measure(probe, &Case::new(), SLICE), probe);
    }
}

#[test]
fn what_a_fork_copies_is_resident() {
    for bytes in [1u64 << 20, 64 << 20] {
        let case = Case::new().with("resident", bytes).at(kelvin_model::Point::named("pages", "base"));
        let notes = notes(&measure("os.process.fork_rss", &case, SLICE));
        assert!(
            notes.contains(&format!("{bytes} bytes requested; by smaps {bytes} resident, 0 in huge pages")),
            "{notes}"
        );
    }
}

#[test]
fn a_thread_runs_between_its_creation_and_its_end() {
    let readings = measure("os.thread.create", &Case::new(), SLICE);
    let [create, run, join] =
        ["os.thread.create", "os.thread.create.run", "os.thread.create.join"].map(|metric| value(&readings, metric));
    // Times of the same threads by one clock: ordered for each thread, and so for their medians.
    assert!(create < join && run < join, "{create} {run} {join}");
}

#[test]
fn shared_work_is_accounted_for_however_it_is_shared() {
    for kind in ["threads", "processes"] {
        let case = Case::new().with("tasks", 2).at(kelvin_model::Point::named("kind", kind));
        let readings = measure("os.tasks", &case, SLICE);
        for metric in ["elapsed", "user", "efficiency"] {
            assert!(value(&readings, &format!("os.tasks.{metric}")) > 0.0, "{kind}: {readings:?}");
        }
        assert!(value(&readings, "os.tasks.invisible") >= 0.0, "{kind}: {readings:?}");
        assert!(notes(&readings).contains("as time shows it: real"), "{}", notes(&readings));
    }
}
