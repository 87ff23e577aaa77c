//! Histories: what counts over many series, what is news, and what else changed.

use kelvin_analysis::{
    HistoryInput, HistoryInputRun, HistoryInputSeries, MIN_RANKED_MACHINES, annotate_changes, new_changes,
};
use kelvin_core::{
    Better, Case, FactDifference, HeadlineSamples, History, HistoryChange, HistoryChangeKind, HistoryPoint, Metric,
    Unit,
};
use kelvin_stats::Random;

static TIME: Metric = Metric::duration("test.time", "of a test");
static CYCLES: Metric = Metric::duration("test.cycles", "of a test").headline(HeadlineSamples::CycleNormalised);
static RATE: Metric = Metric::rate("test.rate", "of a test");
static COUNT: Metric = Metric::duration("test.count", "of a test").unit(Unit::Count, Better::Neither);

const RUNS: usize = 30;

fn input_series(metric: Metric, n: u64, values: impl IntoIterator<Item = f64>) -> HistoryInputSeries {
    let points = values.into_iter().enumerate().map(|(run, value)| HistoryPoint { run, value }).collect();
    HistoryInputSeries {
        metric,
        case: Case::new().with_number("n", n),
        versions: vec![(1, points)],
        peer_values: Vec::new(),
    }
}

fn history_input(series: Vec<HistoryInputSeries>) -> HistoryInput {
    let run = |run| HistoryInputRun { id: format!("run-{run}"), started: "2026-10-01T10:00:00Z".into(), chain: None };
    HistoryInput {
        machine: "m".into(),
        cpu_model: None,
        mode: "default".into(),
        runs: (0..RUNS).map(run).collect(),
        has_older: false,
        other_modes: Vec::new(),
        series,
    }
}

/// Values around 100 with a spread of 1 %, times what comes from a run on.
fn step(random: &mut Random, from: usize, times: f64) -> Vec<f64> {
    (0..RUNS).map(|run| 100.0 * (1.0 + 0.01 * random.normal()) * if run < from { 1.0 } else { times }).collect()
}

/// A small step that is reported on its own, and satisfies a condition.
fn small_step(random: &mut Random, condition: impl Fn(&HistoryChange) -> bool) -> HistoryInputSeries {
    let is_reported = |series: &HistoryInputSeries| {
        history_input(vec![series.clone()]).history().series[0].last_change().is_some_and(&condition)
    };
    (0..1000).map(|_| input_series(TIME, 0, step(random, 15, 1.013))).find(is_reported).expect("one of a thousand")
}

#[test]
fn worst_series_is_first() {
    let mut random = Random::new(1);
    let mut series_with = |metric, n, times| input_series(metric, n, step(&mut random, 20, times));
    let series = vec![
        series_with(TIME, 1, 1.0),
        series_with(COUNT, 2, 1.5),
        series_with(TIME, 3, 0.8),
        series_with(RATE, 4, 0.8),
        series_with(TIME, 5, 1.5),
        series_with(RATE, 6, 1.2),
    ];
    let history = history_input(series).history();
    let order: Vec<u64> = history.series.iter().map(|series| case_number(&series.case)).collect();
    // Worse by half, and by a fifth; better by a fifth, twice, the larger ratio first; neither; nothing.
    assert_eq!(order, [5, 4, 3, 6, 2, 1]);
    assert_eq!(history.series[0].last_change().unwrap().kind, HistoryChangeKind::Step);
    assert_eq!(history.series[4].last_change().unwrap().is_worse(COUNT.better), None);
    assert!((history.series[1].last_change().unwrap().worse_by(RATE.better).unwrap() - 0.2).abs() < 0.02);
}

fn case_number(case: &Case) -> u64 {
    case.get("n").unwrap().to_string().parse().unwrap()
}

#[test]
fn many_series_require_smaller_p_value() {
    let mut random = Random::new(3);
    // Alone it counts: its chance is below one in a hundred, and above one in a thousand.
    let small = small_step(&mut random, |change| change.p_value.raw > 1e-3);
    let steady: Vec<HistoryInputSeries> = (1..300).map(|n| input_series(TIME, n, step(&mut random, 0, 1.0))).collect();
    let large = input_series(TIME, 300, step(&mut random, 26, 1.1));
    let history = history_input([small, large].into_iter().chain(steady).collect()).history();
    let changed_numbers: Vec<u64> = history
        .series
        .iter()
        .filter(|series| series.last_change().is_some())
        .map(|series| case_number(&series.case))
        .collect();
    assert_eq!(changed_numbers, [300]);
}

#[test]
fn method_versions_are_separate() {
    let mut random = Random::new(4);
    let values = step(&mut random, 15, 1.3);
    let mut versioned = input_series(TIME, 1, []);
    let points: Vec<HistoryPoint> =
        values.iter().enumerate().map(|(run, &value)| HistoryPoint { run, value }).collect();
    versioned.versions = vec![(1, points[..15].to_vec()), (2, points[15..].to_vec())];
    let history = history_input(vec![versioned.clone()]).history();
    let series = &history.series[0];
    assert!(series.versions.iter().all(|version| version.changes.is_empty()) && series.versions.len() == 2);
    assert!((series.since_first().unwrap() - 1.0).abs() < 0.05, "of the same version");
    // Before its first run the newer one is not there; from the middle of it on, the older one is not.
    assert_eq!(history_input(vec![versioned.clone()]).before_run(15).history().series[0].newest().version, 1);
    let later_input = history_input(vec![versioned]).since_run(20);
    assert_eq!((later_input.runs.len(), later_input.series[0].versions.len(), later_input.has_older), (10, 1, true));
    assert_eq!(later_input.series[0].versions[0].1[0].run, 0);
}

#[test]
fn fact_differences_searched_at_then_around_change() {
    let mut random = Random::new(5);
    let small = small_step(&mut random, |change| change.run_interval[1] > change.run_interval[0]);
    let history = || history_input(vec![small.clone()]).history();
    let fact = FactDifference { group: "Kernel".into(), label: "Release".into(), base: None, other: None };
    let mut annotated = history();
    let mut queried = Vec::new();
    annotate_changes(&mut annotated, |runs| {
        queried.push(runs);
        Ok::<_, ()>(vec![fact.clone()])
    })
    .unwrap();
    let change = annotated.series[0].last_change().unwrap();
    assert_eq!((queried.as_slice(), change.differences.len()), (&[[change.run - 1, change.run]][..], 1));
    let mut widened = history();
    annotate_changes(&mut widened, |[base, other]| {
        Ok::<_, ()>(if other - base > 1 { vec![fact.clone()] } else { Vec::new() })
    })
    .unwrap();
    let change = widened.series[0].last_change().unwrap();
    assert_eq!((change.runs, change.differences.len()), ([change.run_interval[0] - 1, change.run_interval[1]], 1));
    assert_eq!(annotate_changes(&mut widened, |_| Err("gone")), Err("gone"));
}

#[test]
fn change_is_reported_once() {
    let mut random = Random::new(6);
    let records = history_input(vec![
        input_series(TIME, 1, step(&mut random, 20, 1.2)),
        input_series(RATE, 2, step(&mut random, 20, 1.2)),
    ]);
    let history_at = |runs: usize| -> History { records.before_run(runs).history() };
    let news_with =
        |runs: usize, min_share: f64| new_changes(&history_at(runs), &history_at(runs - 1), min_share).len();
    let news_runs: Vec<usize> = (2..=RUNS).filter(|&runs| news_with(runs, 0.01) > 0).collect();
    assert_eq!(news_runs, [23], "the third run after it, and of the series that is worse");
    assert_eq!((news_with(23, 0.15), news_with(23, 0.25)), (1, 0));
    assert_eq!(new_changes(&history_at(RUNS), &history_at(18), 0.01).len(), 1, "of a month as of a run");
}

#[test]
fn ranking_needs_five_machines() {
    let mut ranked = input_series(TIME, 1, [10.0]);
    ranked.peer_values = vec![9.0, 10.0, 11.0];
    let ranking = |series: &HistoryInputSeries| history_input(vec![series.clone()]).history().series[0].ranking;
    assert_eq!((ranked.peer_values.len() + 2, ranking(&ranked)), (MIN_RANKED_MACHINES, None));
    ranked.peer_values.push(12.0);
    assert_eq!(ranking(&ranked).unwrap().better, 1.5 / 4.0);
    ranked.metric = RATE;
    assert_eq!(ranking(&ranked).unwrap().better, 2.5 / 4.0);
}

/// What is a number of core cycles: where the host lets its cores be slower, only metrics of time change.
#[test]
fn cycle_metrics_use_usual_frequency() {
    let mut random = Random::new(7);
    let frequency = |run: usize| if run < 20 { 1.0 } else { 0.5 };
    let mut values = || step(&mut random, 20, 2.0);
    let mut records = history_input(vec![input_series(TIME, 1, values()), input_series(CYCLES, 2, values())]);
    let raw_points = records.series[1].versions[0].1.clone();
    let changes = |records: &HistoryInput, number: u64| {
        let history = records.history();
        let series = history.series.iter().find(|series| case_number(&series.case) == number).unwrap();
        series.newest().changes.iter().map(|change| change.run).collect::<Vec<usize>>()
    };
    assert_eq!((changes(&records, 1), changes(&records, 2)), (vec![20], vec![20]), "no run kept its frequency");
    for (number, run) in records.runs.iter_mut().enumerate() {
        run.chain = Some(2000.0 / frequency(number));
    }
    assert_eq!((changes(&records, 1), changes(&records, 2)), (vec![20], vec![]));
    // A run that did not keep it stays as it was measured.
    records.runs[25].chain = None;
    let history = records.history();
    assert_eq!([3, 25, 26].map(|run| history.runs[run].frequency), [Some(1.0), None, Some(0.5)]);
    let scaled = history.series.iter().find(|series| series.metric.id == CYCLES.id).unwrap();
    for (point, measured) in scaled.newest().points.iter().zip(&raw_points) {
        assert_eq!(point.value, measured.value * history.runs[point.run].frequency.unwrap_or(1.0));
    }
    // What somebody else wrote into a store may be anything.
    records.runs[26].chain = Some(0.0);
    records.runs[27].chain = Some(f64::MIN_POSITIVE);
    assert_eq!([26, 27].map(|run| records.history().runs[run].frequency), [None, None]);
    // The usual one is that of the runs that are looked at.
    assert_eq!(records.clone().since_run(20).history().runs[0].frequency, Some(1.0));
}
