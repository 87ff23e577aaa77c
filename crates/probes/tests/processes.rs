//! The probes of processes, threads and tasks, each run once for real.

mod common;

use common::{measure, median, notes, reading_of, run_probe};
use kelvin_core::catalogue::os::{KernelService, SCALING_EFFICIENCY, SCALING_RATE, TaskKind, WORKING_CPUS};
use kelvin_core::{Case, MetricReadings, RoundOutcome};

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

#[test]
fn every_service_is_counted_on_every_cpu() {
    let cpus = kelvin_sys::cpu::affinity().unwrap().len().min(2) as u64;
    for &service in KernelService::ALL {
        for &kind in TaskKind::ALL {
            let case = Case::new().with_word(service).with_word(kind).with_number(WORKING_CPUS, cpus);
            let readings = match run_probe("os.scaling", &case, SLICE) {
                RoundOutcome::Measured(readings) => readings,
                // Other work may have had the CPUs all the time.
                RoundOutcome::Failed(reason) if reason.contains("busy with other work") => continue,
                other => panic!("{case}: {other:?}"),
            };
            for metric in [&SCALING_RATE, &SCALING_EFFICIENCY] {
                assert!(value(&readings, &metric.id) > 0.0, "{case}: {readings:?}");
            }
            let notes = notes(&readings);
            let faults = [KernelService::MmapMunmap, KernelService::PageFault].contains(&service);
            assert!(notes.contains(" operations on CPUs ") && notes.contains("alone, the task on CPU "), "{notes}");
            assert!(!faults || notes.contains("by getrusage 1.0"), "{case}: {notes}");
        }
    }
}

#[test]
fn more_cpus_than_allowed_are_skipped() {
    let cpus = kelvin_sys::cpu::affinity().unwrap().len() as u64;
    let case = Case::new().with_word(KernelService::NullCall).with_word(TaskKind::Threads);
    let outcome = run_probe("os.scaling", &case.with_number(WORKING_CPUS, cpus + 1), SLICE);
    let RoundOutcome::Skipped(reason) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason.to_string(), format!("needs {} CPUs; this process may use {cpus}", cpus + 1));
}
