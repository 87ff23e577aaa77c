//! From raw batches to samples and headlines: arithmetic, warm-up, contamination, disturbance, normalising.

use std::slice;

use kelvin_analysis::testing::{
    self, BATCH_ITERATIONS, BLOCK_NANOSECONDS, CHAIN_NANOSECONDS, CLOCK_PAIR_NANOSECONDS, LOOP_NANOSECONDS,
};
use kelvin_analysis::{
    Analysis, ComparisonRequest, ComparisonSubject, Headlines, Outcome, SideInput, Summary, Warning, WarningKind,
    analyse,
};
use kelvin_core::{
    Axis, AxisScale, Batches, Better, Canaries, Canary, Case, Comparison, HeadlineSamples, Metric, MissingInput,
    Overhead, Readings, RoundOutcome, Run, SampleTags, SkipReason, SpreadHistory, SpreadSource, Unit,
};
use kelvin_stats::Random;

const CALL: Metric = Metric::duration("test.call", "One call");
const STEADY_CALL: Metric = Metric::duration("test.quiet", "Another one");
const GUARDED: Metric = Metric::duration("test.guarded", "Guarded by three canaries")
    .canaries(Canaries::from_canaries(&[Canary::Chain, Canary::Block]));

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= 1e-9 * expected.abs()
}

/// Five rounds of the same batches of one metric.
fn run_of(metric: &Metric, batches: &Batches) -> Run {
    let mut run = testing::empty_run(&[*metric]);
    let rounds = (0..5).map(|i| testing::round(i, vec![testing::reading(metric, Readings::Batches(batches.clone()))]));
    testing::add_measurement(&mut run, metric, Case::new(), rounds.collect());
    run
}

fn summary(analysis: &Analysis) -> &Summary {
    match &analysis.results[0].outcome {
        Outcome::Measured(summary) | Outcome::NotKnown(summary) => summary,
        other => panic!("{other:?}"),
    }
}

fn compare_runs(
    [base, other]: [&Run; 2],
    spread_histories: &[SpreadHistory],
    cycle_spread_histories: &[SpreadHistory],
) -> Comparison {
    let side = |run| SideInput { name: "a run".into(), subject: ComparisonSubject::Runs(slice::from_ref(run)) };
    ComparisonRequest {
        base: side(base),
        other: side(other),
        spread_histories,
        cycle_spread_histories,
        threshold: 0.01,
    }
    .compare()
}

fn headline_of(metric: &Metric, batches: &Batches) -> f64 {
    let analysis = analyse(&run_of(metric, batches));
    summary(&analysis).headline
}

#[test]
fn metric_overhead_is_subtracted() {
    let batches = testing::batches(&[95.0; 10]);
    assert!(is_near(headline_of(&CALL, &batches), 95.0));
    let with_loop = CALL.overhead(Overhead::ClockPairAndLoop);
    assert!(is_near(headline_of(&with_loop, &batches), 95.0 - LOOP_NANOSECONDS));
    let raw = CALL.overhead(Overhead::None);
    assert!(is_near(headline_of(&raw, &batches), 95.0 + CLOCK_PAIR_NANOSECONDS / BATCH_ITERATIONS as f64));
}

#[test]
fn rates_are_work_over_time() {
    let mut batches = testing::batches(&[100.0; 10]);
    batches.work_per_iteration = 4096.0;
    let bytes = Metric::rate("test.copy", "Bytes copied per second");
    assert!(is_near(headline_of(&bytes, &batches), 40.96e9));
    let calls = CALL.unit(Unit::PerSecond, Better::Higher);
    assert!(is_near(headline_of(&calls, &batches), 40.96e9));
    batches.work_per_iteration = 0.0;
    assert!(is_near(headline_of(&calls, &batches), 1e7), "without stated work one operation counts");
}

#[test]
fn zero_time_rate_is_counted_and_reported() {
    let mut batches = testing::batches(&[100.0; 10]);
    batches.work_per_iteration = 1.0;
    batches.nanoseconds[3] = CLOCK_PAIR_NANOSECONDS / 2.0;
    let analysis = analyse(&run_of(&Metric::rate("test.copy", "Bytes copied per second"), &batches));
    assert_eq!(summary(&analysis).distribution.n, 45);
    assert_eq!(summary(&analysis).notes, ["5 samples took no longer than the overhead subtracted, and gave no rate"]);
}

#[test]
fn warm_up_is_excluded_contamination_disturbs() {
    let mut batches = testing::batches(&[500.0, 100.0, 100.0, 900.0, 100.0, 100.0, 100.0, 100.0]);
    batches.tags[0] = SampleTags::WARM_UP;
    batches.tags[3] = SampleTags::PREEMPTED;
    let analysis = analyse(&run_of(&CALL, &batches));
    let call_summary = summary(&analysis);
    assert_eq!((call_summary.as_found.n, call_summary.undisturbed.unwrap().n), (35, 30));
    assert_eq!(call_summary.distribution.max, 100.0);
    assert!(is_near(call_summary.undisturbed_share, 30.0 / 35.0));
    let tags: Vec<(&str, u64)> = call_summary.tags.iter().map(|count| (count.tag.as_str(), count.count)).collect();
    assert_eq!(tags, [("warm-up", 5), ("preempted", 5)]);
    assert_eq!(analysis.undisturbed_share, Some(30.0 / 35.0));
    let unpreempted = CALL.contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED);
    assert_eq!(summary(&analyse(&run_of(&unpreempted, &batches))).undisturbed_share, 1.0);
}

#[test]
fn canaries_alone_decide_disturbance() {
    // Batch 2 is slow by itself and stays; batches 4 and 5 are on either side of an odd canary and go, fast or slow.
    let mut batches = testing::batches(&[100.0, 100.0, 700.0, 100.0, 80.0, 300.0, 100.0, 100.0, 100.0]);
    batches.canaries.get_mut(&Canary::Block).unwrap()[5] = 1.8 * BLOCK_NANOSECONDS;
    let analysis = analyse(&run_of(&CALL, &batches));
    let call_summary = summary(&analysis);
    assert_eq!(
        (call_summary.distribution.min, call_summary.distribution.max, call_summary.distribution.n),
        (100.0, 700.0, 35)
    );
    assert_eq!(call_summary.as_found.n, 45);
    // A metric guarded by another canary is unaffected.
    let chain_only = CALL.canaries(Canaries::from_canaries(&[Canary::Chain]));
    assert_eq!(summary(&analyse(&run_of(&chain_only, &batches))).undisturbed_share, 1.0);
}

#[test]
fn own_frequency_work_is_steady_there() {
    // Wide vector units: the core is 7 % slower during all of it, and a sibling thread disturbs one batch. Another metric shows the
    // frequency of the run.
    let steady = testing::batches(&[100.0; 40]);
    let mut slowed = testing::batches(&[100.0; 6]);
    for column in slowed.canaries.values_mut() {
        column.iter_mut().skip(1).for_each(|reading| *reading *= 1.07);
    }
    slowed.canaries.get_mut(&Canary::Block).unwrap()[6] *= 1.6;
    let reference_metric = Metric::duration("test.other", "Another metric");
    let undisturbed_share = |metric: Metric| {
        let mut run = testing::empty_run(&[metric, reference_metric]);
        for (metric, batches) in [(&metric, &slowed), (&reference_metric, &steady)] {
            let round = |i| testing::round(i, vec![testing::reading(metric, Readings::Batches(batches.clone()))]);
            testing::add_measurement(&mut run, metric, Case::new(), (0..6).map(round).collect());
        }
        let analysis = analyse(&run);
        assert_eq!(analysis.results[0].metric.id, metric.id);
        summary(&analysis).undisturbed_share
    };
    assert_eq!(undisturbed_share(CALL), 0.0);
    // The first batch follows a reading at the other frequency, and the last one comes before the sibling's.
    assert!(is_near(undisturbed_share(CALL.own_frequency()), 4.0 / 6.0));
}

#[test]
fn sparse_canary_judges_batches_between() {
    let mut batches = testing::batches(&[100.0; 12]);
    batches.canary_stride = 3;
    for (canary, steady) in [(Canary::Chain, CHAIN_NANOSECONDS), (Canary::Block, BLOCK_NANOSECONDS)] {
        batches.canaries.insert(canary, vec![steady; 5]);
    }
    batches.canaries.get_mut(&Canary::Chain).unwrap()[0] = 1.2 * CHAIN_NANOSECONDS;
    assert!(is_near(summary(&analyse(&run_of(&CALL, &batches))).undisturbed_share, 9.0 / 12.0));
}

#[test]
fn awaited_samples_are_undisturbed_not_found() {
    // Six samples with a busy sibling, then a disturbed and four undisturbed ones beyond the round's time.
    let mut batches = testing::batches(&[160.0, 160.0, 160.0, 160.0, 160.0, 160.0, 160.0, 100.0, 100.0, 100.0, 100.0]);
    for index in 0..7 {
        batches.canaries.get_mut(&Canary::Block).unwrap()[index] = 1.6 * BLOCK_NANOSECONDS;
    }
    batches.tags[6..].iter_mut().for_each(|tags| *tags = SampleTags::AWAITED);
    let analysis = analyse(&run_of(&CALL, &batches));
    let call_summary = summary(&analysis);
    assert_eq!((call_summary.as_found.n, call_summary.as_found.value), (30, 160.0));
    assert_eq!((call_summary.undisturbed.unwrap().n, call_summary.headline), (20, 100.0));
    assert_eq!((call_summary.undisturbed_share, analysis.undisturbed_share), (0.0, Some(0.0)));
    let history = analysis.canaries.iter().find(|history| history.canary == Canary::Block).unwrap();
    assert_eq!((history.points.len(), history.steady_share), (35, 0.0));
}

#[test]
fn too_few_undisturbed_give_no_headline() {
    let mut noisy = testing::batches(&[100.0; 40]);
    for index in 0..38 {
        noisy.canaries.get_mut(&Canary::Chain).unwrap()[index] = CHAIN_NANOSECONDS * (1.1 + index as f32 / 20.0);
    }
    let rounds = |disturbed: usize| {
        let mut run = testing::empty_run(&[CALL]);
        let reading = |i| if i < disturbed { noisy.clone() } else { testing::batches(&[100.0; 40]) };
        let round = |i| testing::round(i, vec![testing::reading(&CALL, Readings::Batches(reading(i)))]);
        testing::add_measurement(&mut run, &CALL, Case::new(), (0..6).map(round).collect());
        analyse(&run)
    };
    let decidable = rounds(4);
    assert!(
        matches!(&decidable.results[0].outcome, Outcome::Measured(s) if s.round_headlines.len() == 2 && s.rounds == 6)
    );
    let undecidable = rounds(5);
    let Outcome::NotKnown(unknown_summary) = &undecidable.results[0].outcome else {
        panic!("{:?}", undecidable.results[0].outcome)
    };
    assert_eq!((unknown_summary.treatment, unknown_summary.undisturbed), (HeadlineSamples::AsFound, None));
    assert_eq!(unknown_summary.headline, unknown_summary.as_found.value);
    assert!(
        matches!(&undecidable.results[0].warnings[..], [Warning { kind: WarningKind::Disturbed, text, .. }] if text.contains("never quiet"))
    );
    assert_eq!(undecidable.results[0].cycles, None);
}

#[test]
fn as_found_case_ignores_canaries() {
    const PLACEMENT: Axis = Axis::new("placement", "placement", AxisScale::Category);
    let metric = CALL.with_axes([PLACEMENT]).as_found_where(kelvin_core::AxisWord::new(PLACEMENT, "two_cpus"));
    let mut noisy = testing::batches(&[100.0; 40]);
    noisy.canaries.get_mut(&Canary::Chain).unwrap().iter_mut().skip(1).step_by(2).for_each(|chain| *chain *= 1.5);
    let mut run = testing::empty_run(&[metric]);
    for placement in ["same_cpu", "two_cpus"] {
        let round = |i| testing::round(i, vec![testing::reading(&metric, Readings::Batches(noisy.clone()))]);
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("placement", placement));
        testing::add_measurement(&mut run, &metric, case, (0..5).map(round).collect());
    }
    let analysis = analyse(&run);
    let [guarded, as_found] = [0, 1].map(|index| &analysis.results[index]);
    assert!(matches!(guarded.outcome, Outcome::NotKnown(_)), "{:?}", guarded.outcome);
    assert_eq!((guarded.metric.headline, guarded.metric.canaries), (HeadlineSamples::Undisturbed, Canaries::CORE));
    assert!(
        matches!(&as_found.outcome, Outcome::Measured(summary) if summary.treatment == HeadlineSamples::AsFound && summary.undisturbed.is_none()),
        "{:?}",
        as_found.outcome
    );
    assert_eq!((as_found.metric.headline, as_found.metric.canaries), (HeadlineSamples::AsFound, Canaries::NONE));
}

#[test]
fn missing_headline_has_exact_reason() {
    let shaken_batches = |chains: std::ops::Range<usize>| {
        let mut batches = testing::batches(&(100..141).map(f64::from).collect::<Vec<f64>>());
        for index in chains {
            batches.canaries.get_mut(&Canary::Chain).unwrap()[index] = CHAIN_NANOSECONDS * (1.1 + index as f32 / 20.0);
        }
        batches
    };
    let input_of = |noisy: &Batches| {
        let mut run = testing::empty_run(&[CALL, STEADY_CALL]);
        let steady_round = |i| {
            testing::round(i, vec![testing::reading(&STEADY_CALL, Readings::Batches(testing::batches(&[1.0; 40])))])
        };
        let noisy_round = |i| testing::round(i, vec![testing::reading(&CALL, Readings::Batches(noisy.clone()))]);
        // The other metric shows what the canaries read on a quiet machine.
        testing::add_measurement(&mut run, &STEADY_CALL, Case::new(), (0..6).map(steady_round).collect());
        testing::add_measurement(&mut run, &CALL, Case::new(), (0..6).map(noisy_round).collect());
        let headlines = Headlines::from_run(&run);
        assert!(headlines.get("test.call", &Case::new()).is_none());
        headlines.missing_input("test.call", &Case::new())
    };
    let MissingInput::AsFound(figure) = input_of(&shaken_batches(0..42)) else { panic!("it was measured") };
    assert_eq!((figure.value, figure.reason.as_str()), (120.0, "never undisturbed"));
    assert_eq!((figure.low, figure.high), (102.0, 138.0), "nine in ten of 100 to 140");
    // The last of 41 batches of each round alone has calm on either side.
    let MissingInput::AsFound(figure) = input_of(&shaken_batches(0..40)) else { panic!("it was measured") };
    assert_eq!(
        figure.reason,
        "undisturbed in 2.4 % of its samples, enough of them in 0 of 6 rounds where 2 are needed"
    );

    let input_of_outcome = |outcome: RoundOutcome| {
        let mut run = testing::empty_run(&[CALL]);
        testing::add_measurement(&mut run, &CALL, Case::new(), vec![testing::round_with_outcome(0, outcome)]);
        Headlines::from_run(&run).missing_input("test.call", &Case::new())
    };
    let no_figure = |reason: &str| MissingInput::NoFigure(reason.into());
    assert_eq!(input_of_outcome(RoundOutcome::Failed("no memory".into())), no_figure("failed: no memory"));
    assert_eq!(input_of_outcome(RoundOutcome::Skipped(SkipReason::new("no disk"))), no_figure("was skipped: no disk"));
    let run = run_of(&Metric { floor: Some(200.0), ..CALL }, &testing::batches(&[95.0; 10]));
    let impossible = Headlines::from_run(&run).missing_input("test.call", &Case::new());
    assert_eq!(impossible, no_figure("came out at 95.0 ns, beyond what is possible (200 ns)"));
    assert_eq!(
        Headlines::from_run(&run).missing_input("test.other", &Case::new()),
        no_figure("this run did not measure")
    );
}

#[test]
fn metric_chooses_headline_of_both_figures() {
    let mut batches =
        testing::batches(&[100.0, 100.0, 100.0, 100.0, 100.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0, 300.0]);
    for index in 6..=12 {
        batches.canaries.get_mut(&Canary::Block).unwrap()[index] = BLOCK_NANOSECONDS * (1.3 + index as f32 / 10.0);
    }
    for (metric, headline) in [(CALL, 100.0), (CALL.headline(HeadlineSamples::AsFound), 300.0)] {
        let analysis = analyse(&run_of(&metric, &batches));
        let call_summary = summary(&analysis);
        assert_eq!((call_summary.headline, call_summary.treatment), (headline, metric.headline));
        assert_eq!((call_summary.as_found.value, call_summary.undisturbed.unwrap().value), (300.0, 100.0));
    }
}

#[test]
fn cycles_normalised_to_reference_frequency() {
    // Half of the time the core runs a tenth slower; all canaries and the metric follow it.
    let is_slow: Vec<bool> = (0..40).map(|batch| batch >= 24).collect();
    let mut batches = testing::batches(
        &is_slow.iter().map(|&is_slow_batch| if is_slow_batch { 110.0 } else { 100.0 }).collect::<Vec<_>>(),
    );
    for (canary, steady) in [(Canary::Chain, CHAIN_NANOSECONDS), (Canary::Block, BLOCK_NANOSECONDS)] {
        for index in 25..=40 {
            batches.canaries.get_mut(&canary).unwrap()[index] = 1.1 * steady;
        }
    }
    let metric = CALL.headline(HeadlineSamples::CycleNormalised);
    let analysis = analyse(&run_of(&metric, &batches));
    let call_summary = summary(&analysis);
    // The batch at the step lies between two frequencies and is set apart; all others are worth 100 ns.
    assert_eq!(call_summary.distribution.n, 5 * 39);
    assert!(
        (call_summary.distribution.min - 100.0).abs() < 1e-4 && (call_summary.distribution.max - 100.0).abs() < 1e-4
    );
    // A sibling that halves the throughput is still seen.
    batches.canaries.get_mut(&Canary::Block).unwrap()[30] = 2.0 * BLOCK_NANOSECONDS;
    assert_eq!(summary(&analyse(&run_of(&metric, &batches))).distribution.n, 5 * 37);
    // The same metric without normalising loses all of the slow half.
    assert_eq!(summary(&analyse(&run_of(&CALL, &batches))).distribution.n, 5 * 24);
}

#[test]
fn moving_frequency_widens_interval() {
    // Steps of 3.5 %, which all canaries and the metric follow, each for ten batches: `at_first` of a hundred at the first.
    let moved_and_half_width = |first_count: usize, metric: &Metric| {
        let slowness = |batch: usize| match batch {
            batch if batch < first_count => 1.0,
            batch if batch < 50 + first_count / 2 => 1.035,
            _ => 1.07,
        };
        let mut batches = testing::batches(&(0..100).map(|batch| 100.0 * slowness(batch)).collect::<Vec<f64>>());
        for (canary, steady) in [(Canary::Chain, CHAIN_NANOSECONDS), (Canary::Block, BLOCK_NANOSECONDS)] {
            let column = batches.canaries.get_mut(&canary).unwrap();
            column
                .iter_mut()
                .enumerate()
                .for_each(|(index, reading)| *reading = steady * slowness(index.min(99)) as f32);
        }
        let analysis = analyse(&run_of(metric, &batches));
        let interval = summary(&analysis).interval.unwrap();
        let is_reported =
            analysis.findings.iter().any(|finding| finding.text.contains("frequency kept moving, by 3.1 %"));
        assert_eq!(is_reported, analysis.frequency_moved.is_some());
        (analysis.frequency_moved, (interval.upper - interval.lower) / 2.0 / summary(&analysis).headline)
    };
    let half_width = |first_count, metric: &Metric| moved_and_half_width(first_count, metric).1;
    let cycles = CALL.headline(HeadlineSamples::CycleNormalised);
    let deviation_of = |first_count| moved_and_half_width(first_count, &cycles).0;
    assert_eq!(deviation_of(100), None);
    // 15 of 101 readings were 3.5 % slower, 16 were 7 %.
    let expected = ((15.0 * 0.035_f64.powi(2) + 16.0 * 0.07_f64.powi(2)) / 101.0).sqrt();
    assert!(
        deviation_of(70).is_some_and(|deviation| (deviation / expected - 1.0).abs() < 0.01),
        "{:?}",
        deviation_of(70)
    );
    assert!(half_width(100, &cycles) < 0.015, "{}", half_width(100, &cycles));
    for metric in [&cycles, &CALL] {
        let width = half_width(70, metric);
        assert!((width / (2.306 * expected.hypot(0.005)) - 1.0).abs() < 0.01, "{width}");
    }
    // What the work itself does to the frequency is none of the core's.
    assert_eq!(moved_and_half_width(70, &CALL.own_frequency()).0, None);
    // A headline as found shows by itself how it moved.
    assert!(half_width(70, &CALL.headline(HeadlineSamples::AsFound)) < 0.015);
}

#[test]
fn cycle_metrics_compared_at_one_frequency() {
    // A core 7 % slower, on which the same takes 5 % more cycles.
    let run = |metric: &Metric, slowness: f64, cycles: f64| {
        let mut batches = testing::batches(&[100.0 * cycles * slowness; 100]);
        batches.canaries.values_mut().flatten().for_each(|reading| *reading *= slowness as f32);
        run_of(metric, &batches)
    };
    let compare_pair = |[base, other]: [Run; 2]| compare_runs([&base, &other], &[], &[]);
    let compare_same_machine = |metric: &Metric| compare_pair([run(metric, 1.0, 1.0), run(metric, 1.07, 1.05)]);
    let is_close = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-3;
    let comparison = compare_same_machine(&CALL.headline(HeadlineSamples::CycleNormalised));
    assert!(is_close(comparison.frequency.unwrap(), 1.0 / 1.07), "{:?}", comparison.frequency);
    let figure = &comparison.figures[0];
    assert!(is_close(figure.ratio.value, 1.05) && is_close(figure.other / figure.base, 1.05), "{figure:?}");
    assert!(is_close(figure.sides[1].rounds[0][0], figure.other), "{figure:?}");
    // Of another machine its frequency is what makes it slower.
    let other_machine = |mut run: Run| {
        run.header.machine.identity = "another".into();
        run
    };
    let metric = CALL.headline(HeadlineSamples::CycleNormalised);
    let comparison = compare_pair([run(&metric, 1.0, 1.0), other_machine(run(&metric, 1.07, 1.05))]);
    assert_eq!(comparison.frequency, None);
    assert!(is_close(comparison.figures[0].ratio.value, 1.07 * 1.05), "{comparison:?}");
    // A metric that is none is not rescaled.
    let figure = &compare_same_machine(&CALL.headline(HeadlineSamples::AsFound)).figures[0];
    assert!(is_close(figure.ratio.value, 1.07 * 1.05), "{figure:?}");
}

#[test]
fn cycle_history_excludes_frequency() {
    let metric = CALL.headline(HeadlineSamples::CycleNormalised);
    let base = run_of(&metric, &testing::batches(&[100.0; 100]));
    let other = run_of(&metric, &testing::batches(&[103.0; 100]));
    let history = |headlines: [f64; 8]| {
        [SpreadHistory {
            metric: metric.id,
            case: Case::new(),
            headlines: headlines.to_vec(),
            within_variances: vec![0.0; 8],
        }]
    };
    let moving_history = history([100.0, 107.0, 100.0, 107.0, 93.0, 107.0, 100.0, 93.0]);
    let steady_history = history([1.0, 1.001, 1.0, 0.999, 1.0, 1.001, 0.999, 1.0]);
    let half_width = |histories: &[SpreadHistory], cycle_histories: &[SpreadHistory]| {
        let figure = compare_runs([&base, &other], histories, cycle_histories).figures.remove(0);
        assert!(matches!(figure.spread_source, SpreadSource::Runs(8) | SpreadSource::Assumed(_)), "{figure:?}");
        (figure.ratio.high / figure.ratio.low).ln() / 2.0
    };
    assert!(half_width(&moving_history, &steady_history) < 0.005, "{}", half_width(&moving_history, &steady_history));
    assert!(half_width(&steady_history, &[]) > 0.05, "what is in time says nothing of cycles");
}

#[test]
fn neighbours_widen_as_found_interval() {
    // In six of ten readings the block takes half as long again; the samples are no different, so that their own spread is none.
    let slowed_batches = |slower: f32| {
        let mut batches = testing::batches(&[100.0; 100]);
        let block = batches.canaries.get_mut(&Canary::Block).unwrap();
        block.iter_mut().take(60).for_each(|reading| *reading *= slower);
        batches
    };
    let analysis_of = |metric: &Metric, slower: f32| analyse(&run_of(metric, &slowed_batches(slower)));
    let half_width = |metric: &Metric, slower: f32| {
        let analysis = analysis_of(metric, slower);
        let interval = summary(&analysis).interval.unwrap();
        (interval.upper - interval.lower) / 2.0 / summary(&analysis).headline
    };
    let as_found = CALL.headline(HeadlineSamples::AsFound);
    let logarithm = 60.0 / 101.0 * 1.5_f64.ln();
    let slowed = |slower| analysis_of(&as_found, slower).slowdown.unwrap();
    assert!((slowed(1.5) - (logarithm.exp() - 1.0)).abs() < 1e-4, "{}", slowed(1.5));
    assert_eq!(slowed(1.0), 0.0);
    // An interruption of a thousand times is one, and no neighbour.
    assert!((slowed(1000.0).ln_1p() - 60.0 / 101.0).abs() < 1e-4);
    let width = half_width(&as_found, 1.5);
    let neighbour_facts = |slower: [f32; 2]| {
        let [base, other] = slower.map(|slower| run_of(&as_found, &slowed_batches(slower)));
        let differences = compare_runs([&base, &other], &[], &[]).differences;
        differences.into_iter().find(|fact| fact.group == "Neighbours").map(|fact| [fact.base, fact.other])
    };
    assert_eq!(neighbour_facts([1.0, 1.5]), Some([Some("0 %".into()), Some("27 %".into())]));
    assert_eq!(neighbour_facts([1.45, 1.5]), None);
    assert!((width / (2.306 * (0.25 * logarithm).hypot(0.005)) - 1.0).abs() < 0.01, "{width}");
    assert!(half_width(&as_found, 1.0) < 0.015);
    // What neighbours disturb does not count for the other.
    assert!(half_width(&CALL, 1.5) < 0.015);
    let count_metric = CALL.unit(Unit::Count, Better::Neither).headline(HeadlineSamples::AsFound);
    assert_eq!(half_width(&count_metric, 1.5), 0.0);
}

#[test]
fn tags_judge_without_canaries() {
    let mut batches = testing::batches(&[100.0; 20]);
    batches.canaries.clear();
    let analysis = analyse(&run_of(&CALL, &batches));
    let call_summary = summary(&analysis);
    assert_eq!((call_summary.undisturbed_share, call_summary.undisturbed, call_summary.headline), (1.0, None, 100.0));
    assert_eq!((analysis.undisturbed_share, analysis.canaries.len()), (None, 0));
    assert!(
        matches!(&analysis.results[0].warnings[..], [Warning { kind: WarningKind::Disturbed, text, .. }] if text.contains("not read"))
    );
}

#[test]
fn reference_is_dominant_steady_state() {
    // A third of the readings are a passing boost, an eighth is disturbed, the rest is steady.
    let mut batches = testing::batches(&vec![100.0; 2399]);
    for (index, reading) in batches.canaries.get_mut(&Canary::Chain).unwrap().iter_mut().enumerate() {
        *reading = match index % 24 {
            0..8 => 0.9 * CHAIN_NANOSECONDS,
            8..11 => CHAIN_NANOSECONDS * (1.2 + index as f32 / 2000.0),
            _ => CHAIN_NANOSECONDS * (1.0 + 0.0005 * ((index * 7 % 5) as f32 - 2.0)),
        };
    }
    let analysis = analyse(&run_of(&CALL, &batches));
    let chain = analysis.canaries.iter().find(|history| history.canary == Canary::Chain).unwrap();
    assert!((chain.reference / f64::from(CHAIN_NANOSECONDS) - 1.0).abs() < 1e-3, "{}", chain.reference);
    assert_eq!(chain.tolerance, 0.015);
    assert!((chain.steady_share - 13.0 / 24.0).abs() < 1e-6, "{}", chain.steady_share);
    assert!(chain.points.len() <= 2000 && chain.points.len() > 1500, "{}", chain.points.len());
    assert!(chain.points.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
    let highest = chain.points.iter().map(|point| point.nanoseconds).fold(0.0, f64::max);
    let max_reading = batches.canaries[&Canary::Chain].iter().copied().fold(0.0f32, f32::max);
    assert_eq!(highest, f64::from(max_reading), "thinning keeps extremes");
}

#[test]
fn headlines_match_analysis() {
    let run = run_of(&CALL, &testing::batches(&[95.0; 10]));
    let headlines = Headlines::from_run(&run);
    let headline = headlines.get("test.call", &Case::new()).unwrap();
    // What the clock may differ by in the next run is none of this one's.
    assert!(is_near(headline.value, 95.0) && headline.half_width == 0.0, "{headline:?}");
    assert_eq!(headlines.get("test.call", &Case::new().with_number("size", 1)), None);
    assert_eq!(headlines.get("test.other", &Case::new()), None);
    assert!(is_near(headlines.core_hertz().unwrap(), 4.128e9));
}

#[test]
fn tolerance_follows_steady_state_spread() {
    let tolerance = |spread: f64| {
        let mut random = kelvin_stats::Random::new(5);
        let mut batches = testing::batches(&vec![100.0; 3000]);
        for reading in batches.canaries.get_mut(&Canary::Chain).unwrap() {
            *reading = CHAIN_NANOSECONDS * (1.0 + spread * random.normal()) as f32;
        }
        analyse(&run_of(&CALL, &batches)).canaries[0].tolerance
    };
    assert_eq!(tolerance(0.001), 0.015, "no narrower than the clock's grain allows");
    assert!((0.024..0.036).contains(&tolerance(0.01)), "{}", tolerance(0.01));
    assert_eq!(tolerance(0.04), 0.05, "no wider than a change of frequency");
}

#[test]
fn block_tolerance_is_four_percent() {
    let undisturbed_share = |deviation: f32| {
        let mut batches = testing::batches(&[100.0; 400]);
        // Every fourth reading is off: half of the batches have one on a side.
        let column = (0..=400).map(|index| BLOCK_NANOSECONDS * if index % 4 == 2 { 1.0 + deviation } else { 1.0 });
        batches.canaries.insert(Canary::Block, column.collect());
        summary(&analyse(&run_of(&CALL, &batches))).undisturbed_share
    };
    assert_eq!(undisturbed_share(0.03), 1.0);
    assert_eq!(undisturbed_share(0.045), 0.5);
}

#[test]
fn frequent_neighbour_is_not_reference() {
    // In four fifths of the batches a sibling thread is busy: everything but the chain is slower, by no fixed amount.
    let mut random = Random::new(11);
    let slowness: Vec<f64> = (0..400).map(|i| if i % 100 < 20 { 1.0 } else { 1.25 + 0.2 * random.uniform() }).collect();
    let values: Vec<f64> = slowness.iter().map(|slowness| 100.0 * slowness).collect();
    let mut batches = testing::batches(&values);
    let column = (0..=400).map(|index| {
        (f64::from(BLOCK_NANOSECONDS) * slowness[index.min(399)] * (1.0 + 0.003 * random.normal())) as f32
    });
    batches.canaries.insert(Canary::Block, column.collect());
    let analysis = analyse(&run_of(&GUARDED, &batches));
    let guarded_summary = summary(&analysis);
    assert!((guarded_summary.headline - 100.0).abs() < 1.0, "{}", guarded_summary.headline);
    assert!((0.17..0.2).contains(&guarded_summary.undisturbed_share), "{}", guarded_summary.undisturbed_share);
    assert!(guarded_summary.as_found.value > 125.0);
}

#[test]
fn always_shared_core_known_by_history() {
    let batches = |slowness: f32| {
        let mut batches = testing::batches(&[100.0; 400]);
        batches.canaries.insert(Canary::Chain, vec![CHAIN_NANOSECONDS; 401]);
        batches.canaries.insert(Canary::Block, vec![BLOCK_NANOSECONDS * slowness; 401]);
        batches
    };
    let unshared = analyse(&run_of(&GUARDED, &batches(1.0)));
    let unshared_ratio = f64::from(BLOCK_NANOSECONDS / CHAIN_NANOSECONDS);
    assert!((unshared.block_over_chain.unwrap() / unshared_ratio - 1.0).abs() < 1e-6);
    let analysis_after = |earlier: Vec<f64>, slowness: f32| {
        let mut run = run_of(&GUARDED, &batches(slowness));
        run.header.core_ratio_history = earlier;
        analyse(&run)
    };
    // Two earlier runs had the core unshared; one still faster run is an accident.
    let shared = analysis_after(vec![0.5 * unshared_ratio, unshared_ratio, 1.3 * unshared_ratio, unshared_ratio], 1.25);
    assert!((shared.core_sharing_ratio.unwrap() - 1.25).abs() < 1e-6, "{:?}", shared.core_sharing_ratio);
    assert!(matches!(shared.results[0].outcome, Outcome::NotKnown(_)), "{:?}", shared.results[0].outcome);
    assert!(shared.verdict.iter().any(|line| line.contains("during the whole run")), "{:?}", shared.verdict);
    // As unshared as before, and a run that no two earlier ones contradict.
    for (earlier, slowness) in [
        (vec![unshared_ratio; 3], 1.03),
        (vec![unshared_ratio], 1.25),
        (vec![unshared_ratio, 1.25 * unshared_ratio], 1.25),
    ] {
        let analysis = analysis_after(earlier, slowness);
        assert_eq!(analysis.core_sharing_ratio, None);
        assert!(matches!(analysis.results[0].outcome, Outcome::Measured(_)));
    }
    // Two runs of long ago are forgotten.
    let mut old_ratios = vec![unshared_ratio; 2];
    old_ratios.extend([1.25 * unshared_ratio; 10]);
    assert_eq!(analysis_after(old_ratios, 1.25).core_sharing_ratio, None);
}

#[test]
fn canary_correlation_is_reported() {
    static METRIC: Metric =
        Metric::duration("os.test", "A test").canaries(Canaries::from_canaries(&[Canary::Chain, Canary::Block]));
    let mut run = testing::empty_run(&[METRIC]);
    // Sample and chain rise together; the block does not move, so that no correlation with it exists.
    let values: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i)).collect();
    let mut batches = testing::batches(&values);
    batches.canaries.insert(Canary::Chain, (0..41).map(|i| CHAIN_NANOSECONDS + i as f32).collect());
    testing::add_measurement(
        &mut run,
        &METRIC,
        Case::new(),
        vec![testing::round(0, vec![testing::reading(&METRIC, Readings::Batches(batches))])],
    );
    let analysis = analyse(&run);
    let (Outcome::Measured(summary) | Outcome::NotKnown(summary)) = &analysis.results[0].outcome else {
        panic!("{:?}", analysis.results[0].outcome)
    };
    let correlations: Vec<_> =
        summary.canary_correlations.iter().map(|correlation| (correlation.canary, correlation.correlation)).collect();
    assert_eq!(correlations, [(Canary::Chain, 1.0)]);
}
