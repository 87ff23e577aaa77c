//! How far the cases of a run have come: which rounds count, and which intervals more rounds narrow.

use kelvin_analysis::Standings;
use kelvin_analysis::testing::{self, BLOCK, add, add_rounds, add_scalars, batches, reading, round};
use kelvin_model::{Canary, Case, Learned, Metric, Name, Readings, Reason, Run, Standing, Treatment};
use kelvin_stats::Random;

const CALL: Metric = Metric::duration("test.call", "One call");
const AS_FOUND: Metric = Metric::duration("test.as_found", "One call as found").headline(Treatment::AsFound);

/// The standing of the only case of a run.
fn standing(run: &Run, metric: &Metric) -> Standing {
    Standings::default().of(run)[&(metric.id, Case::new())]
}

fn of_rounds(rounds: &[Vec<f64>]) -> Standing {
    let mut run = testing::run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), rounds);
    standing(&run, &CALL)
}

/// So many rounds of so many samples around a level, which may differ from round to round and from sample to sample.
fn rounds(level: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
    let mut random = Random::new(7);
    let mut sample = |round, at| level(round, at) * (1.0 + 0.003 * random.normal());
    (0..8).map(|round| (0..60).map(|at| sample(round, at)).collect()).collect()
}

/// A run whose rounds are undisturbed but for these.
fn disturbed(metric: &Metric, disturbed: &[usize]) -> Run {
    let mut run = testing::run(&[*metric]);
    let one = |(index, values): (usize, Vec<f64>)| {
        let mut batches = batches(&values);
        if disturbed.contains(&index) {
            batches.canaries.insert(Canary::Block, vec![1.3 * BLOCK; values.len() + 1]);
        }
        round(index, vec![reading(metric, Readings::Batches(batches))])
    };
    let all = rounds(|_, _| 100.0).into_iter().enumerate().map(one).collect();
    add(&mut run, metric, Case::new(), all);
    run
}

#[test]
fn only_undisturbed_rounds_count_for_an_undisturbed_headline() {
    assert_eq!(standing(&disturbed(&CALL, &[]), &CALL).counting, 8);
    assert_eq!(standing(&disturbed(&CALL, &[0, 3, 4]), &CALL).counting, 5);
    assert_eq!(standing(&disturbed(&AS_FOUND, &[0, 3, 4]), &AS_FOUND).counting, 8);
}

#[test]
fn a_case_without_new_rounds_is_judged_anew_once_the_run_has_grown_by_an_eighth() {
    let case = |n: u64| Case::new().with("n", n);
    let of_block = |index: usize, block: f32| {
        let mut batches = batches(&[100.0; 60]);
        batches.canaries.insert(Canary::Block, vec![block; 61]);
        round(index, vec![reading(&CALL, Readings::Batches(batches))])
    };
    let mut run = testing::run(&[CALL]);
    add(&mut run, &CALL, case(1), (0..16).map(|index| of_block(index, 1.3 * BLOCK)).collect());
    add(&mut run, &CALL, case(2), Vec::new());
    let mut standings = Standings::default();
    let mut counting = |run: &Run| {
        let standings = standings.of(run);
        [1, 2].map(|n| standings[&(CALL.id, case(n))].counting)
    };
    assert_eq!(counting(&run)[0], 16);
    // The first case was beside a neighbour all along, as the block of the second tells.
    run.measurements[1].rounds.push(of_block(0, BLOCK));
    assert_eq!(counting(&run), [16, 0], "17 rounds of 16: by the steady states of the first look");
    run.measurements[1].rounds.push(of_block(1, BLOCK));
    assert_eq!(counting(&run), [0, 2], "18 rounds: all anew");
}

#[test]
fn a_narrow_interval_is_not_to_be_narrowed_and_a_wide_one_is() {
    let narrow = of_rounds(&rounds(|_, _| 100.0));
    assert!(narrow.half_width.unwrap() < 0.012 && narrow.narrowable.is_none(), "{narrow:?}");
    let levels = [100.0, 109.0, 94.0, 103.0, 98.0, 107.0, 92.0, 105.0];
    let wide = of_rounds(&rounds(|round, _| levels[round]));
    assert!(wide.half_width.unwrap() > 0.03 && wide.narrowable.unwrap() > 0.03, "{wide:?}");
    // More rounds of this run do not narrow what differs from run to run.
    let mut run = testing::run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), &rounds(|_, _| 100.0));
    let headlines = vec![90.0, 110.0, 95.0, 105.0];
    run.outline.learned = vec![Learned { metric: CALL.id, case: Case::new(), within: vec![0.01; 4], headlines }];
    let apart = standing(&run, &CALL);
    assert!(apart.half_width.unwrap() > 0.1 && apart.narrowable.is_none(), "{apart:?}");
}

#[test]
fn neither_two_modes_nor_stretches_nor_drift_are_narrowed() {
    let settled = of_rounds(&rounds(|round, at| {
        if round % 3 == 0 { 300.0 } else { 100.0 + 3.0 * (at % 7) as f64 + 9.0 * (round % 2) as f64 }
    }));
    let drifting = of_rounds(&rounds(|round, _| 100.0 + 8.0 * round as f64));
    let changing = of_rounds(&rounds(|round, at| if (at + 11 * round) % 60 < 25 + 2 * round { 130.0 } else { 100.0 }));
    for standing in [settled, drifting, changing] {
        assert!(standing.half_width.unwrap() > 0.02 && standing.narrowable.is_none(), "{standing:?}");
    }
}

#[test]
fn what_was_left_out_needs_nothing_and_is_no_result() {
    let mut run = testing::run(&[AS_FOUND]);
    add_scalars(&mut run, &AS_FOUND, Case::new(), &[100.0]);
    let one = standing(&run, &AS_FOUND);
    assert_eq!((one.counting, one.half_width), (1, None));
    run.measurements[0].skipped = Some(Reason::new("no time for it"));
    assert_eq!(standing(&run, &AS_FOUND).counting, u32::MAX);
    let results = kelvin_analysis::analyse(&run).results;
    assert_eq!(results[0].outcome, kelvin_analysis::Outcome::Skipped(Reason::new("no time for it")));
    assert_eq!(results[0].metric.id, Name::new("test.as_found"));
}
