//! Conclusions of the tasks study.

use kelvin_analysis::StatedConclusion;
use kelvin_analysis::analyse;
use kelvin_analysis::testing::{self, add_scalars};
use kelvin_core::{Better, Case, Fact, HeadlineSamples, Metric, Run, Unit};

const fn metric(id: &'static str) -> Metric {
    Metric::duration(id, "A time of the tasks study").headline(HeadlineSamples::AsFound)
}

const ELAPSED: Metric = metric("os.tasks.elapsed");
const UNACCOUNTED: Metric = metric("os.tasks.unaccounted");
const EFFICIENCY: Metric = metric("os.tasks.efficiency").unit(Unit::Ratio, Better::Higher);

/// A machine of four CPUs: elapsed seconds by kind and number of tasks, each in six rounds with 0.2 % of noise.
fn run(elapsed: &[(&'static str, u64, f64)], unaccounted_share: f64) -> Run {
    let mut run = testing::empty_run(&[ELAPSED, UNACCOUNTED, EFFICIENCY]);
    run.header.machine.topology.allowed = Fact::known(vec![0, 1, 2, 3], "affinity");
    for &(kind, tasks, seconds) in elapsed {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("kind", kind)).with_number("tasks", tasks);
        let rounds: Vec<f64> = (0..6).map(|i| seconds * 1e9 * (1.0 + 0.001 * f64::from(i * 5 % 6 - 2))).collect();
        let unaccounted: Vec<f64> = rounds.iter().map(|elapsed| unaccounted_share * 4.0 * elapsed).collect();
        add_scalars(&mut run, &ELAPSED, case.clone(), &rounds);
        add_scalars(&mut run, &UNACCOUNTED, case.clone(), &unaccounted);
        let efficiency: Vec<f64> = rounds.iter().map(|elapsed| 8e9 / (elapsed * tasks.min(4) as f64)).collect();
        add_scalars(&mut run, &EFFICIENCY, case, &efficiency);
    }
    run
}

fn conclusion_with<'a>(conclusions: &'a [StatedConclusion], words: &str) -> &'a StatedConclusion {
    let matching = conclusions.iter().find(|conclusion| conclusion.text.contains(words));
    matching.unwrap_or_else(|| panic!("no conclusion about {words:?} in {conclusions:#?}"))
}

#[test]
fn speed_up_efficiency_and_unaccounted_time_reported() {
    let elapsed = [
        ("threads", 1, 8.0),
        ("threads", 4, 2.1),
        ("threads", 8, 2.1),
        ("processes", 1, 8.0),
        ("processes", 4, 2.5),
        ("processes", 8, 3.0),
    ];
    let study = testing::study(&run(&elapsed, 0.05), "os.tasks").unwrap();
    assert_eq!(study.id, *"os.tasks");
    let conclusions = &study.conclusions;
    let speed_up = conclusion_with(conclusions, "4 threads finish the work earlier than one: 3.81 times as fast");
    assert_eq!(speed_up.holds, Some(true));
    assert_eq!(conclusion_with(conclusions, "4 threads use the CPUs").holds, Some(true));
    assert_eq!(conclusion_with(conclusions, "4 processes use the CPUs").holds, Some(false), "80 % is less than 90 %");
    assert_eq!(conclusion_with(conclusions, "more threads than CPUs").holds, None);
    let processes = conclusion_with(conclusions, "more processes than CPUs");
    assert_eq!(processes.holds, Some(false));
    assert!(processes.text.contains("20 % later"), "{}", processes.text);
    let difference = conclusion_with(conclusions, "threads and processes differ");
    assert_eq!(difference.holds, Some(true));
    assert!(difference.text.contains("4 processes take 1.19 times as long"), "{}", difference.text);
    assert_eq!(conclusion_with(conclusions, "4 threads, more than 1.0 %").holds, Some(true));
    assert!(conclusion_with(conclusions, "4 threads, more than 1.0 %").text.contains("processes): 5.0 %"));
}

#[test]
fn equal_threads_and_processes_are_undecided() {
    let elapsed = [("threads", 1, 8.0), ("threads", 4, 2.0), ("processes", 4, 2.0)];
    let study = testing::study(&run(&elapsed, 0.0), "os.tasks").unwrap();
    assert_eq!(conclusion_with(&study.conclusions, "threads and processes differ").holds, None);
    assert_eq!(conclusion_with(&study.conclusions, "4 threads, more than 1.0 %").holds, Some(false));
}

#[test]
fn no_task_metrics_give_no_study() {
    assert_eq!(testing::study(&testing::empty_run(&[]), "os.tasks"), None);
    assert_eq!(testing::study(&run(&[("threads", 2, 4.0)], 0.0), "os.tasks"), None);
    let complete = run(&[("threads", 1, 8.0), ("threads", 4, 2.0)], 0.0);
    let analysis = analyse(&complete);
    assert_eq!(analysis.studies, kelvin_analysis::studies(&complete));
    assert_eq!(analysis.studies.len(), 1);
}

/// The times of one task and of four are of other rounds than those in which both were held against each other.
#[test]
fn conclusion_efficiency_matches_table() {
    let mut run = run(&[("threads", 1, 8.0), ("threads", 4, 3.2)], 0.0);
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("kind", "threads")).with_number("tasks", 4);
    run.measurements.retain(|measurement| measurement.planned.metrics != [EFFICIENCY.id]);
    let measured = [0.570, 0.575, 0.573, 0.571, 0.576, 0.574];
    add_scalars(&mut run, &EFFICIENCY, case, &measured);
    let study = testing::study(&run, "os.tasks").unwrap();
    let efficiency =
        conclusion_with(&study.conclusions, "4 threads use the CPUs with an efficiency of at least 90 %: 57 %");
    assert_eq!(efficiency.holds, Some(false));
    assert!(efficiency.test.contains("over one task alone, just before in the same process"), "{}", efficiency.test);
    let speed_up =
        conclusion_with(&study.conclusions, "4 threads finish the work earlier than one: 2.29 times as fast");
    assert_eq!(speed_up.holds, Some(true));
}
