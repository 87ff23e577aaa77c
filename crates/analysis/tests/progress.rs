//! How far the cases of a run have come: which rounds count, and which intervals more rounds narrow.

use kelvin_analysis::RunProgress;
use kelvin_analysis::testing::{
    self, BLOCK_NANOSECONDS, add_measurement, add_rounds, add_scalars, batches, reading, round,
};
use kelvin_core::{Canary, Case, CaseStatus, HeadlineSamples, Metric, Name, Readings, Run, SkipReason, SpreadHistory};
use kelvin_stats::Random;

const CALL: Metric = Metric::duration("test.call", "One call");
const AS_FOUND: Metric = Metric::duration("test.as_found", "One call as found").headline(HeadlineSamples::AsFound);

/// The status of the only case of a run.
fn only_case_status(run: &Run, metric: &Metric) -> CaseStatus {
    RunProgress::default().update(run)[&(metric.id, Case::new())]
}

fn status_of_rounds(rounds: &[Vec<f64>]) -> CaseStatus {
    let mut run = testing::empty_run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), rounds);
    only_case_status(&run, &CALL)
}

/// This many rounds of this many samples around a level, which may differ from round to round and from sample to sample.
fn rounds(level: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let mut random = Random::new(7);
    let mut sample = |round, index| level(round, index) * (1.0 + 0.003 * random.normal());
    (0..8).map(|round| (0..60).map(|index| sample(round, index)).collect()).collect()
}

/// A run whose rounds are undisturbed but for these.
fn disturbed_run(metric: &Metric, disturbed: &[usize]) -> Run {
    let mut run = testing::empty_run(&[*metric]);
    let measured_round = |(index, values): (usize, Vec<f64>)| {
        let mut batches = batches(&values);
        if disturbed.contains(&index) {
            batches.canaries.insert(Canary::Block, vec![1.3 * BLOCK_NANOSECONDS; values.len() + 1]);
        }
        round(index, vec![reading(metric, Readings::Batches(batches))])
    };
    let measured_rounds = rounds(|_, _| 100.0).into_iter().enumerate().map(measured_round).collect();
    add_measurement(&mut run, metric, Case::new(), measured_rounds);
    run
}

#[test]
fn undisturbed_headline_counts_undisturbed_rounds() {
    assert_eq!(only_case_status(&disturbed_run(&CALL, &[]), &CALL).counted_rounds, 8);
    assert_eq!(only_case_status(&disturbed_run(&CALL, &[0, 3, 4]), &CALL).counted_rounds, 5);
    assert_eq!(only_case_status(&disturbed_run(&AS_FOUND, &[0, 3, 4]), &AS_FOUND).counted_rounds, 8);
}

#[test]
fn old_case_rejudged_after_eighth_growth() {
    let case = |n: u64| Case::new().with_number("n", n);
    let block_round = |index: usize, block: f32| {
        let mut batches = batches(&[100.0; 60]);
        batches.canaries.insert(Canary::Block, vec![block; 61]);
        round(index, vec![reading(&CALL, Readings::Batches(batches))])
    };
    let mut run = testing::empty_run(&[CALL]);
    add_measurement(
        &mut run,
        &CALL,
        case(1),
        (0..16).map(|index| block_round(index, 1.3 * BLOCK_NANOSECONDS)).collect(),
    );
    add_measurement(&mut run, &CALL, case(2), Vec::new());
    let mut progress = RunProgress::default();
    let mut counting = |run: &Run| {
        let statuses = progress.update(run);
        [1, 2].map(|n| statuses[&(CALL.id, case(n))].counted_rounds)
    };
    assert_eq!(counting(&run)[0], 16);
    // The first case had a neighbour throughout, as the block of the second shows.
    run.measurements[1].rounds.push(block_round(0, BLOCK_NANOSECONDS));
    assert_eq!(counting(&run), [16, 0], "17 rounds of 16: by the steady states of the first look");
    run.measurements[1].rounds.push(block_round(1, BLOCK_NANOSECONDS));
    assert_eq!(counting(&run), [0, 2], "18 rounds: all anew");
}

#[test]
fn only_wide_interval_is_narrowable() {
    let steady = status_of_rounds(&rounds(|_, _| 100.0));
    assert!(steady.half_width.unwrap() < 0.012 && steady.narrowable.is_none(), "{steady:?}");
    let levels = [100.0, 109.0, 94.0, 103.0, 98.0, 107.0, 92.0, 105.0];
    let scattered = status_of_rounds(&rounds(|round, _| levels[round]));
    assert!(scattered.half_width.unwrap() > 0.03 && scattered.narrowable.unwrap() > 0.03, "{scattered:?}");
    // More rounds of this run do not narrow what differs from run to run.
    let mut run = testing::empty_run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), &rounds(|_, _| 100.0));
    let headlines = vec![90.0, 110.0, 95.0, 105.0];
    run.header.spread_history =
        vec![SpreadHistory { metric: CALL.id, case: Case::new(), within_variances: vec![0.01; 4], headlines }];
    let between_runs = only_case_status(&run, &CALL);
    assert!(between_runs.half_width.unwrap() > 0.1 && between_runs.narrowable.is_none(), "{between_runs:?}");
}

#[test]
fn modes_and_drift_are_not_narrowable() {
    let bimodal = status_of_rounds(&rounds(|round, index| {
        if round % 3 == 0 { 300.0 } else { 100.0 + 3.0 * (index % 7) as f64 + 9.0 * (round % 2) as f64 }
    }));
    let drifting = status_of_rounds(&rounds(|round, _| 100.0 + 8.0 * round as f64));
    let changing_modes =
        status_of_rounds(&rounds(
            |round, index| if (index + 11 * round) % 60 < 25 + 2 * round { 130.0 } else { 100.0 },
        ));
    for status in [bimodal, drifting, changing_modes] {
        assert!(status.half_width.unwrap() > 0.02 && status.narrowable.is_none(), "{status:?}");
    }
}

#[test]
fn dropped_case_needs_nothing() {
    let mut run = testing::empty_run(&[AS_FOUND]);
    add_scalars(&mut run, &AS_FOUND, Case::new(), &[100.0]);
    let status = only_case_status(&run, &AS_FOUND);
    assert_eq!((status.counted_rounds, status.half_width), (1, None));
    run.measurements[0].skipped = Some(SkipReason::new("no time for it"));
    assert_eq!(only_case_status(&run, &AS_FOUND).counted_rounds, u32::MAX);
    let results = kelvin_analysis::analyse(&run).results;
    assert_eq!(results[0].outcome, kelvin_analysis::Outcome::Skipped(SkipReason::new("no time for it")));
    assert_eq!(results[0].metric.id, Name::new("test.as_found"));
}
