//! The probes of processes, threads and tasks, each run once for real.

mod common;

use common::{measure, median};
use kelvin_model::{Case, Reading};

fn value(readings: &[Reading], metric: &str) -> f64 {
    let reading = readings.iter().find(|reading| reading.metric == *metric);
    median(reading.unwrap_or_else(|| panic!("no reading of {metric}")))
}

fn notes(readings: &[Reading]) -> String {
    readings.iter().flat_map(|reading| &reading.notes).cloned().collect::<Vec<_>>().join("; ")
}

#[test]
fn a_fork_returns_before_its_child_has_lived() {
    let readings = measure("os.process.fork", &Case::new(), 30);
    let [fork, child, life] =
        ["os.process.fork", "os.process.fork.child", "os.process.fork.life"].map(|metric| value(&readings, metric));
    assert!(fork > 1_000.0 && fork < life && child < 2.0 * life, "{fork} {child} {life}");
    assert!(notes(&readings).contains("each fork copies"), "{}", notes(&readings));
}

#[test]
fn every_way_to_a_process_ends_well() {
    for probe in ["os.process.vfork", "os.process.spawn", "os.process.exec", "os.process.shell"] {
        let life = value(&measure(probe, &Case::new(), 10), probe);
        assert!(life > 1_000.0 && life < 1e9, "{probe}: {life} ns");
    }
}

#[test]
fn fork_grows_with_resident_memory() {
    let fork = |mebibytes: u64, pages| {
        let case = Case::new().with("resident", mebibytes << 20).with_word("pages", pages);
        value(&measure("os.process.fork_rss", &case, 10), "os.process.fork_rss")
    };
    let (small, large) = (fork(1, "base"), fork(64, "base"));
    assert!(large > 2.0 * small, "1 MiB {small} ns, 64 MiB {large} ns");
}

#[test]
fn a_thread_runs_between_its_creation_and_its_end() {
    let readings = measure("os.thread.create", &Case::new(), 15);
    let [create, run, join] =
        ["os.thread.create", "os.thread.create.run", "os.thread.create.join"].map(|metric| value(&readings, metric));
    assert!(create > 500.0 && create < join && run < join, "{create} {run} {join}");
}

#[test]
fn shared_work_takes_the_same_cpu_time_however_it_is_shared() {
    for kind in ["threads", "processes"] {
        let case = Case::new().with("tasks", 2).with_word("kind", kind);
        let readings = measure("os.tasks", &case, 10);
        let figure = |name| value(&readings, name);
        let (elapsed, user) = (figure("os.tasks.elapsed"), figure("os.tasks.user"));
        // 614.4 million cycles take between 60 ms (10 GHz) and 6 s (0.1 GHz), on however many CPUs.
        assert!(user > 60e6 && user < 6e9, "{kind}: user {user} ns");
        assert!(elapsed > user / 4.0, "{kind}: elapsed {elapsed} ns, user {user} ns");
        assert!(figure("os.tasks.efficiency") > 0.0 && figure("os.tasks.invisible") >= 0.0);
        assert!(notes(&readings).contains("as time shows it: real"), "{}", notes(&readings));
    }
}
