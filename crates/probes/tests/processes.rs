//! The probes of processes, threads and tasks, each run once for real.

mod common;

use common::{measure, median};
use kelvin_catalogue::mem::PageSize;
use kelvin_catalogue::os::{
    PROCESS_EXEC, PROCESS_FORK, PROCESS_FORK_CHILD, PROCESS_FORK_LIFE, PROCESS_FORK_RSS, PROCESS_SHELL, PROCESS_SPAWN,
    PROCESS_VFORK, RESIDENT, TASK_COUNT, TASKS, TASKS_EFFICIENCY, TASKS_ELAPSED, TASKS_INVISIBLE, TASKS_USER,
    THREAD_CREATE, THREAD_CREATE_JOIN, THREAD_CREATE_RUN, TaskKind,
};
use kelvin_model::{Case, Metric, Reading};

fn value(readings: &[Reading], metric: &Metric) -> f64 {
    let reading = readings.iter().find(|reading| reading.metric == metric.id);
    median(reading.unwrap_or_else(|| panic!("no reading of {}", metric.id)))
}

fn notes(readings: &[Reading]) -> String {
    readings.iter().flat_map(|reading| &reading.notes).cloned().collect::<Vec<_>>().join("; ")
}

#[test]
fn a_fork_returns_before_its_child_has_lived() {
    let readings = measure(&PROCESS_FORK.id, &Case::new(), 30);
    let [fork, child, life] =
        [&PROCESS_FORK, &PROCESS_FORK_CHILD, &PROCESS_FORK_LIFE].map(|metric| value(&readings, metric));
    assert!(fork > 1_000.0 && fork < life && child < 2.0 * life, "{fork} {child} {life}");
    assert!(notes(&readings).contains("each fork copies"), "{}", notes(&readings));
}

#[test]
fn every_way_to_a_process_ends_well() {
    for metric in [&PROCESS_VFORK, &PROCESS_SPAWN, &PROCESS_EXEC, &PROCESS_SHELL] {
        let life = value(&measure(&metric.id, &Case::new(), 10), metric);
        assert!(life > 1_000.0 && life < 1e9, "{}: {life} ns", metric.id);
    }
}

#[test]
fn fork_grows_with_resident_memory() {
    let fork = |mebibytes: u64| {
        let case = Case::new().with(RESIDENT, mebibytes << 20).at(PageSize::Base);
        value(&measure(&PROCESS_FORK_RSS.id, &case, 10), &PROCESS_FORK_RSS)
    };
    let (small, large) = (fork(1), fork(64));
    assert!(large > 2.0 * small, "1 MiB {small} ns, 64 MiB {large} ns");
}

#[test]
fn a_thread_runs_between_its_creation_and_its_end() {
    let readings = measure(&THREAD_CREATE.id, &Case::new(), 15);
    let [create, run, join] =
        [&THREAD_CREATE, &THREAD_CREATE_RUN, &THREAD_CREATE_JOIN].map(|metric| value(&readings, metric));
    assert!(create > 500.0 && create < join && run < join, "{create} {run} {join}");
}

#[test]
fn shared_work_takes_the_same_cpu_time_however_it_is_shared() {
    for &kind in TaskKind::ALL {
        let case = Case::new().with(TASK_COUNT, 2).at(kind);
        let readings = measure(&TASKS, &case, 10);
        let figure = |metric| value(&readings, metric);
        let (elapsed, user) = (figure(&TASKS_ELAPSED), figure(&TASKS_USER));
        // 614.4 million cycles take between 60 ms (10 GHz) and 6 s (0.1 GHz), on however many CPUs.
        assert!(user > 60e6 && user < 6e9, "{kind:?}: user {user} ns");
        assert!(elapsed > user / 4.0, "{kind:?}: elapsed {elapsed} ns, user {user} ns");
        assert!(figure(&TASKS_EFFICIENCY) > 0.0 && figure(&TASKS_INVISIBLE) >= 0.0);
        assert!(notes(&readings).contains("as time shows it: real"), "{}", notes(&readings));
    }
}
