//! Outcomes, warnings, predictions, cycles: each rule on a run built for it.

use kelvin_analysis::testing::{self, add_measurement, add_rounds, add_scalars, round_with_outcome};
use kelvin_analysis::{
    Analysis, Headlines, Importance, IntervalKind, MetricResult, ModeUnit, Outcome, RangeVerdict, Summary, Warning,
    WarningKind, analyse,
};
use kelvin_core::{
    AmountShare, AmountUnit, Axis, AxisScale, Better, Bound, BoundRecord, Case, CauseResult, CauseVerdict,
    EXPLANATION_FORMAT, Estimate, ExplainedPart, Explanation, Fact, Hazard, Metric, Name, NoPrediction, PartKind,
    Prediction, PredictionBasis, PredictionRecord, RoundOutcome, Run, RunStatus, Severity, SkipReason, SpreadHistory,
    Unit,
};
use kelvin_stats::Random;

const CALL: Metric = Metric::duration("test.call", "One call");
const BYTES: Axis = Axis::new("bytes", "bytes", AxisScale::Bytes);
const VALUE: Metric = Metric::duration("test.value", "A value").bounds(None, None);

fn scalars(values: &[f64]) -> Run {
    let mut run = testing::empty_run(&[VALUE]);
    add_scalars(&mut run, &VALUE, Case::new(), values);
    run
}

fn only_result(analysis: &Analysis) -> &MetricResult {
    assert_eq!(analysis.results.len(), 1);
    &analysis.results[0]
}

fn summary(run: &Run) -> Summary {
    only_result(&analyse(run)).outcome.summary().unwrap().clone()
}

fn noise(random: &mut Random, n: usize, level: f64, std: f64) -> Vec<f64> {
    (0..n).map(|_| level + std * random.normal()).collect()
}

#[test]
fn unmeasured_metric_has_reason() {
    let mut run = testing::empty_run(&[CALL]);
    let failed = |reason: &str| RoundOutcome::Failed(reason.into());
    add_measurement(&mut run, &CALL, Case::new().with_number("a", 1), vec![]);
    run.measurements[0].skipped = Some(SkipReason::new("needs root"));
    let skipped = RoundOutcome::Skipped(SkipReason::new("no such device"));
    add_measurement(&mut run, &CALL, Case::new().with_number("a", 2), vec![round_with_outcome(0, skipped)]);
    let attempts = [failed("late"), failed("signal 11"), failed("signal 11")];
    let rounds = attempts.into_iter().enumerate().map(|(i, a)| round_with_outcome(i, a)).collect();
    add_measurement(&mut run, &CALL, Case::new().with_number("a", 3), rounds);
    add_measurement(&mut run, &CALL, Case::new().with_number("a", 4), vec![]);
    add_measurement(&mut run, &CALL, Case::new().with_number("a", 5), vec![testing::round(0, vec![])]);
    let outcomes: Vec<Outcome> = analyse(&run).results.into_iter().map(|result| result.outcome).collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Skipped(SkipReason::new("needs root")),
            Outcome::Skipped(SkipReason::new("no such device")),
            Outcome::Failed("signal 11".into()),
            Outcome::NotReached,
            Outcome::Skipped(SkipReason::new("its 1 rounds gave no sample of this metric at this case")),
        ]
    );
}

#[test]
fn failed_round_is_excluded_alone() {
    let mut run = scalars(&[10.0, 10.1, 9.9, 10.0]);
    run.measurements[0].rounds.push(round_with_outcome(4, RoundOutcome::Failed("killed".into())));
    let analysis = analyse(&run);
    let summary = only_result(&analysis).outcome.summary().unwrap();
    assert_eq!((summary.rounds, summary.failed_rounds), (4, 1));
    let failed = Warning::new(WarningKind::FailedRounds, "1 of 5 rounds failed".into());
    assert!(only_result(&analysis).warnings.contains(&failed), "{:?}", only_result(&analysis).warnings);
}

#[test]
fn few_rounds_give_range_one_gives_none() {
    assert_eq!(summary(&scalars(&[10.0])).interval, None);
    let range = summary(&scalars(&[10.0, 12.0, 11.0])).interval.unwrap();
    assert_eq!((range.kind, range.level), (IntervalKind::Range, 1.0));
    // And what runs may differ by, which is little compared with it.
    assert!((9.99..10.0).contains(&range.lower) && (12.0..12.01).contains(&range.upper), "{range:?}");
    let interval = summary(&scalars(&[10.0, 12.0, 11.0, 11.5])).interval.unwrap();
    assert_eq!((interval.kind, interval.level), (IntervalKind::Confidence, 0.95));
    assert!(interval.lower < 11.25 && interval.upper > 11.25);
}

#[test]
fn history_widens_interval() {
    let mut run = scalars(&[10.0, 10.01, 9.99, 10.0, 10.01, 9.99]);
    let without_history = summary(&run);
    let headlines = vec![9.5, 10.5, 10.0, 9.8, 10.3];
    run.header.spread_history = vec![SpreadHistory {
        metric: VALUE.id,
        case: Case::new(),
        headlines,
        within_variances: vec![without_history.within_variance; 5],
    }];
    let with_history = summary(&run);
    assert_eq!((without_history.learned_runs, with_history.learned_runs), (0, 5));
    let (plain_width, history_width) =
        (without_history.interval.unwrap().half_width(), with_history.interval.unwrap().half_width());
    // Alone it is 2.3 of 0.5 % for the clock, and hardly more.
    assert!(
        (0.11..0.12).contains(&plain_width) && (0.8..1.5).contains(&history_width),
        "{plain_width} {history_width}"
    );
    run.header.spread_history[0].case = Case::new().with_number("size", 1);
    assert_eq!(summary(&run).learned_runs, 0, "another case teaches nothing");
}

#[test]
fn modes_suppress_wide_interval_warning() {
    let mut random = Random::new(1);
    let mut run = testing::empty_run(&[CALL]);
    let rounds: Vec<Vec<f64>> = (0..6)
        .map(|_| {
            let share = 0.4 + 0.2 * random.uniform();
            (0..150).map(|_| random.normal() + if random.uniform() < share { 100.0 } else { 130.0 }).collect()
        })
        .collect();
    add_rounds(&mut run, &CALL, Case::new(), &rounds);
    let analysis = analyse(&run);
    let result = only_result(&analysis);
    let modes = &result.outcome.summary().unwrap().modes;
    assert_eq!(modes.len(), 2, "{modes:?}");
    assert!(modes[0].share >= modes[1].share && modes[1].share > 0.3);
    let mut centers: Vec<f64> = modes.iter().map(|mode| mode.center.round()).collect();
    centers.sort_by(f64::total_cmp);
    assert_eq!(centers, [100.0, 130.0]);
    assert!(
        matches!(&result.warnings[0], Warning { kind: WarningKind::Modes, text, .. } if text.contains("2 modes from one operation to the next")),
        "{:?}",
        result.warnings
    );
    assert!(
        !result
            .warnings
            .iter()
            .any(|warning| matches!(warning, Warning { kind: WarningKind::WideInterval { .. }, .. }))
    );
}

#[test]
fn persistent_modes_warn_alternating_do_not() {
    let rounds = |is_slow: fn(usize) -> bool| -> Vec<Vec<f64>> {
        let mut random = Random::new(5);
        let mut value = |index: usize| if is_slow(index) { 130.0 } else { 100.0 } + 0.3 * random.normal();
        (0..8).map(|_| (0..150).map(&mut value).collect()).collect()
    };
    let summary_of = |is_slow: fn(usize) -> bool| {
        let mut run = testing::empty_run(&[CALL]);
        add_rounds(&mut run, &CALL, Case::new(), &rounds(is_slow));
        let result = only_result(&analyse(&run)).clone();
        let summary = result.outcome.summary().unwrap();
        (summary.mode_unit, summary.modes.len(), result.warnings)
    };
    // Every third operation, and the same number in stretches of twenty.
    let (unit, modes, warnings) = summary_of(|index| index % 3 == 0);
    assert_eq!((unit, modes), (ModeUnit::Samples, 2));
    assert!(
        !warnings.iter().any(|warning| matches!(warning, Warning { kind: WarningKind::Modes, .. })),
        "{warnings:?}"
    );
    let (unit, modes, warnings) = summary_of(|index| index % 60 < 20);
    assert_eq!((unit, modes), (ModeUnit::Periods, 2));
    assert!(
        matches!(&warnings[0], Warning { kind: WarningKind::Modes, text, .. } if text.contains("in stretches")),
        "{warnings:?}"
    );
}

#[test]
fn bimodal_rounds_give_two_modes() {
    let analysis = analyse(&scalars(&[12.1, 118.0, 11.9, 12.4, 121.0, 12.0]));
    let result = only_result(&analysis);
    let summary = result.outcome.summary().unwrap();
    let modes: Vec<(f64, f64)> = summary.modes.iter().map(|mode| (mode.center, mode.share)).collect();
    assert_eq!(summary.mode_unit, ModeUnit::Rounds);
    assert_eq!(modes, [(12.05, 4.0 / 6.0), (119.5, 2.0 / 6.0)]);
    // The headline is of the dominant mode, and so is its interval, which reaches to nothing between the two.
    assert_eq!(summary.headline, 12.05);
    let interval = summary.interval.unwrap();
    assert!(interval.lower > 11.0 && interval.upper < 13.0, "{interval:?}");
    assert_eq!(summary.round_headlines.len(), 6);
    let [Warning { kind: WarningKind::Modes, text, .. }] = &result.warnings[..] else {
        panic!("{:?}", result.warnings)
    };
    assert_eq!(
        text,
        "bimodal from round to round: 12.1 ns (67 %) and 120 ns (33 %) of the rounds; the headline is the first"
    );
}

#[test]
fn bimodal_runs_give_two_modes() {
    let mut run = scalars(&[12.1, 12.0, 11.9, 12.4, 12.2, 12.0]);
    let headlines = vec![12.0, 119.0, 12.1, 121.0, 11.9];
    let variances = vec![0.01; headlines.len()];
    let metric = VALUE.id;
    run.header.spread_history.push(SpreadHistory { metric, case: Case::new(), headlines, within_variances: variances });
    let analysis = analyse(&run);
    let result = only_result(&analysis);
    let summary = result.outcome.summary().unwrap();
    assert_eq!(summary.mode_unit, ModeUnit::Runs);
    let shares: Vec<f64> = summary.modes.iter().map(|mode| mode.share).collect();
    assert_eq!(shares, [4.0 / 6.0, 2.0 / 6.0]);
    // The distance between the modes is no error of either.
    assert!(summary.headline > 11.9 && summary.interval.unwrap().half_width() < 1.0, "{summary:?}");
    assert!(
        matches!(&result.warnings[0], Warning { kind: WarningKind::Modes, text, .. } if text.contains("from run to run"))
    );
}

#[test]
fn drift_warns_and_suppresses_wide_interval() {
    let rising_values: Vec<f64> = (0..6).map(|i| 100.0 + 2.0 * f64::from(i)).collect();
    let analysis = analyse(&scalars(&rising_values));
    let [Warning { kind: WarningKind::Drift, text, .. }] = &only_result(&analysis).warnings[..] else {
        panic!("{:?}", only_result(&analysis).warnings)
    };
    assert_eq!(text, "the value rose by 9.5 % over the run (p = 0.003, Mann-Kendall test over 6 rounds)");
    let slight_rise: Vec<f64> = rising_values.iter().map(|value| 100.0 + value / 100.0).collect();
    assert_eq!(
        only_result(&analyse(&scalars(&slight_rise))).warnings,
        [],
        "a drift that does not matter is not reported"
    );
}

#[test]
fn unexplained_wide_interval_warns() {
    let analysis = analyse(&scalars(&[100.0, 110.0, 95.0, 104.0, 91.0, 108.0]));
    let [Warning { kind: WarningKind::WideInterval { .. }, text, .. }] = &only_result(&analysis).warnings[..] else {
        panic!("{:?}", only_result(&analysis).warnings)
    };
    assert!(text.contains("the target of 2.0 % was not reached"), "{text}");
    assert_eq!(only_result(&analyse(&scalars(&[100.0, 100.1, 99.9, 100.2, 99.8, 100.0]))).warnings, []);
}

#[test]
fn differing_halves_warn() {
    let analysis = analyse(&scalars(&[100.1, 100.0, 99.9, 100.2, 105.0, 105.2, 104.9, 105.1]));
    let halves = |warning: &Warning| matches!(warning, Warning { kind: WarningKind::HalvesDiffer, text, .. } if text.contains("4.9 % higher"));
    assert!(only_result(&analysis).warnings.iter().any(halves), "{:?}", only_result(&analysis).warnings);
}

#[test]
fn correlated_samples_warn_of_few_effective() {
    let mut run = testing::empty_run(&[CALL]);
    let rounds: Vec<Vec<f64>> =
        (0..4).map(|_| (0..200).map(|i| if i < 100 { 100.0 } else { 101.0 }).collect()).collect();
    add_rounds(&mut run, &CALL, Case::new(), &rounds);
    let analysis = analyse(&run);
    let summary = only_result(&analysis).outcome.summary().unwrap();
    assert!(summary.effective_samples < 20.0, "{}", summary.effective_samples);
    let is_few_effective =
        |warning: &Warning| matches!(warning, Warning { kind: WarningKind::FewEffectiveSamples, .. });
    assert!(only_result(&analysis).warnings.iter().any(is_few_effective));
    let mut random = Random::new(2);
    let mut run = testing::empty_run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), &[(); 4].map(|()| noise(&mut random, 200, 100.0, 0.1)));
    assert_eq!(only_result(&analyse(&run)).warnings, []);
}

#[test]
fn impossible_values_are_invalid() {
    let copy = Metric::rate("test.copy", "Bytes copied per second").bounds(Some(0.0), Some(50e9));
    let mut run = testing::empty_run(&[copy, CALL]);
    add_scalars(&mut run, &copy, Case::new(), &[80e9; 4]);
    add_scalars(&mut run, &CALL, Case::new(), &[-1.0; 4]);
    let analysis = analyse(&run);
    let Outcome::Invalid(ceiling) = &analysis.results[0].outcome else { panic!() };
    assert_eq!((ceiling.value, ceiling.bound), (80e9, 50e9));
    assert!(ceiling.likely_cause.contains("cache"));
    let Outcome::Invalid(floor) = &analysis.results[1].outcome else { panic!() };
    assert_eq!((floor.value, floor.bound), (-1.0, 0.0));
    assert!(floor.likely_cause.contains("subtracted"));
    assert_eq!(Headlines::from_run(&run).get("test.copy", &Case::new()), None);
    assert!(analysis.verdict.iter().any(|line| line.contains("impossible")), "{:?}", analysis.verdict);
}

/// A hardware bound of one machine at one case.
#[test]
fn value_above_hardware_bound_is_invalid() {
    let rate = Metric::rate("test.rate", "Bytes that arrive").bounds(Some(0.0), None).with_axes([BYTES]);
    let mut run = testing::empty_run(&[rate]);
    let case_at = |bytes: u64| Case::new().with_number("bytes", bytes);
    for bytes in [1, 2] {
        add_scalars(&mut run, &rate, case_at(bytes), &[130e6; 4]);
    }
    let bound = Bound {
        limit: 119e6,
        inputs: Vec::new(),
        derivation: "eth0 carries 125 MB/s".into(),
        likely_cause: "the bytes did not all go by eth0".into(),
    };
    run.header.bounds = vec![BoundRecord { metric: rate.id, case: case_at(1), bound }];
    let analysis = analyse(&run);
    let Outcome::Invalid(ceiling) = &analysis.results[0].outcome else { panic!("{:?}", analysis.results[0]) };
    assert_eq!((ceiling.value, ceiling.bound), (130e6, 119e6));
    assert_eq!(ceiling.derivation.as_deref(), Some("eth0 carries 125 MB/s"));
    assert!(analysis.results[1].outcome.summary().is_some(), "another case has no such bound");
    assert_eq!(Headlines::from_run(&run).get("test.rate", &case_at(1)), None);
    assert!(Headlines::from_run(&run).get("test.rate", &case_at(2)).is_some());
    let kelvin_core::MissingInput::NoFigure(reason) = Headlines::from_run(&run).missing_input("test.rate", &case_at(1))
    else {
        panic!("there is something to go by")
    };
    assert_eq!(reason, "came out at 130 MB/s, beyond what is possible (119 MB/s)");
    let finding = analysis.findings.iter().find(|finding| finding.text.contains("impossible")).unwrap();
    assert!(finding.text.ends_with("which is impossible: the bytes did not all go by eth0."), "{finding:?}");
    assert_eq!(finding.reason, "the bound is 119 MB/s: eth0 carries 125 MB/s");
    // At the bound it is possible.
    run.header.bounds[0].bound.limit = 130e6;
    assert!(analyse(&run).results[0].outcome.summary().is_some());
}

#[test]
fn cycles_use_measured_frequency_or_chain() {
    let frequency = Metric::duration("cpu.frequency", "Core frequency").unit(Unit::Hertz, Better::Higher);
    let mut run = testing::empty_run(&[CALL, frequency]);
    add_rounds(&mut run, &CALL, Case::new(), &vec![vec![10.0; 20]; 4]);
    let cycles = |run: &Run| analyse(run).results[0].cycles.unwrap();
    assert!((cycles(&run) - 41.28).abs() < 1e-6, "{}", cycles(&run));
    add_scalars(
        &mut run,
        &frequency,
        Case::new().with_word(kelvin_core::AxisWord::from_names("load", "all")),
        &[3.0e9; 4],
    );
    assert!((cycles(&run) - 41.28).abs() < 1e-6, "the frequency under full load is not that of one CPU");
    add_scalars(
        &mut run,
        &frequency,
        Case::new().with_word(kelvin_core::AxisWord::from_names("load", "one")),
        &[4.2e9; 4],
    );
    assert!((cycles(&run) - 42.0).abs() < 1e-6);
    run.header.metrics[0] = CALL.not_in_cycles();
    assert_eq!(analyse(&run).results[0].cycles, None);
}

#[test]
fn call_below_one_cycle_is_implausible() {
    let mut run = testing::empty_run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), &vec![vec![0.1; 20]; 4]);
    let analysis = analyse(&run);
    let [Warning { kind: WarningKind::Implausible, text, .. }] = &only_result(&analysis).warnings[..] else {
        panic!("{:?}", only_result(&analysis).warnings)
    };
    assert!(text.starts_with("0.41 core cycles"), "{text}");
}

fn predict(run: &mut Run, value: f64, low: f64, high: f64) {
    let prediction = Prediction {
        value,
        low,
        high,
        basis: PredictionBasis::Published,
        formula: "published".into(),
        inputs: Vec::new(),
        derivation: "50 ns published".into(),
        sources: vec!["a table".into()],
        calibration: None,
        formula_name: "a test".into(),
        ceiling: None,
    };
    let record =
        PredictionRecord { metric: VALUE.id, case: Case::new(), prediction: Some(prediction), missing_reason: None };
    run.predictions = vec![record];
}

/// What an experiment shows of a figure: each cause that is shown takes 40 % of it, and so much of it is left.
fn explanation_of(
    metric: &Metric,
    figure: f64,
    verdicts: &[(&'static str, CauseVerdict)],
    remaining: f64,
) -> Explanation {
    let interval_around = |value: f64| Estimate { value, low: value * 0.95, high: value * 1.05, is_range: false };
    let share = |value: f64| AmountShare { amount: interval_around(value * figure), share: interval_around(value) };
    let cause = |(id, verdict): &(&'static str, CauseVerdict)| CauseResult {
        id: Name::new(id),
        summary: Name::new(id),
        remedy: Name::new("nothing"),
        verdict: verdict.clone(),
        share: None,
        host_share: None,
        evidence: Vec::new(),
        by_formula: None,
    };
    let shown_causes = verdicts.iter().filter(|entry| entry.1 == CauseVerdict::Shown);
    Explanation {
        why_format: EXPLANATION_FORMAT,
        kelvin: "0.1.0".into(),
        probe: metric.id,
        metric: *metric,
        case: Case::new(),
        passes: 8,
        counters: Vec::new(),
        seconds: 1.0,
        figure: interval_around(figure),
        amounts: AmountUnit::Operation,
        whole: interval_around(figure),
        predicted: None,
        no_prediction_reason: None,
        predicted_without: None,
        parts: shown_causes
            .map(|entry| ExplainedPart { kind: PartKind::Cause(Name::new(entry.0)), share: share(0.4) })
            .collect(),
        not_explained: AmountShare { amount: interval_around(remaining), share: interval_around(remaining / figure) },
        is_explained: remaining == 0.0,
        causes: verdicts.iter().map(cause).collect(),
    }
}

fn hazard(id: &'static str, severity: Severity, affects: &[&'static str]) -> Hazard {
    Hazard {
        id: Name::new(id),
        severity,
        summary: format!("{id} is in force"),
        effect: "slows system calls".into(),
        affects: affects.iter().map(|prefix| Name::new(prefix)).collect(),
        remedy: None,
        remedy_is_command: false,
        source: "test".into(),
    }
}

#[test]
fn verdict_uses_measured_interval() {
    let mut run = scalars(&[95.0, 95.5, 94.5, 95.2, 94.8, 95.0]);
    run.header.hazards = vec![
        hazard("mitigations", Severity::Note, &["test."]),
        hazard("elsewhere", Severity::Serious, &["net."]),
        hazard("virtual_machine", Severity::Warning, &[]),
    ];
    let verdict = |run: &Run| only_result(&analyse(run)).verdict;
    assert_eq!(verdict(&run), RangeVerdict::NotPredicted);
    predict(&mut run, 50.0, 40.0, 70.0);
    let analysis = analyse(&run);
    let result = only_result(&analysis);
    assert_eq!((result.verdict, result.ratio), (RangeVerdict::Above, Some(1.9)));
    let hazard_ids: Vec<&str> = result.explained_by.iter().map(|id| id.as_str()).collect();
    assert_eq!(hazard_ids, ["mitigations", "virtual_machine"], "hazards of just this first, others not at all");
    let line = "test.value: 95.0 ns, slower than predicted: 1.90 times the predicted 50.0 ns; no cause was tried (kelvin why \
                test.value).";
    assert!(analysis.verdict.iter().any(|text| text == line), "{:#?}", analysis.verdict);
    // Once its causes were tried, their result is reported instead.
    let assert_line = |explanation: Explanation, reason: &str| {
        let run = Run { explanations: vec![explanation], ..run.clone() };
        let line = format!("test.value: 95.0 ns, slower than predicted: 1.90 times the predicted 50.0 ns; {reason}.");
        let verdict = analyse(&run).verdict;
        assert!(verdict.contains(&line), "{verdict:#?}");
    };
    let explanation_with =
        |verdicts: &[(&'static str, CauseVerdict)], remaining: f64| explanation_of(&VALUE, 95.0, verdicts, remaining);
    let shown_verdicts = [("waking", CauseVerdict::Shown), ("weather", CauseVerdict::RuledOut)];
    assert_line(explanation_with(&shown_verdicts, 20.0), "waking takes 38 to 42 % of it; 20 to 22 % is not explained");
    assert_line(explanation_with(&shown_verdicts, 0.0), "waking takes 38 to 42 % of it");
    let undecided_verdicts = [("waking", CauseVerdict::Undecided), ("weather", CauseVerdict::RuledOut)];
    assert_line(explanation_with(&undecided_verdicts, 0.0), "not explained; ruled out: weather; not decided: waking");
    assert_line(explanation_with(&[], 0.0), "not explained: no cause could be tried on this machine");
    predict(&mut run, 200.0, 150.0, 250.0);
    assert_eq!(verdict(&run), RangeVerdict::Below);
    predict(&mut run, 90.0, 85.0, 94.9);
    assert_eq!(verdict(&run), RangeVerdict::AsPredicted, "the interval touches the range");
    assert!(only_result(&analyse(&run)).explained_by.is_empty());
    run.measurements[0].rounds.clear();
    assert_eq!(verdict(&run), RangeVerdict::NotMeasured);
}

#[test]
fn no_prediction_reason_is_kept() {
    let mut run = scalars(&[1.0, 1.0]);
    let missing_reason = Some(NoPrediction::new("this CPU is in no table"));
    run.predictions = vec![PredictionRecord { metric: VALUE.id, case: Case::new(), prediction: None, missing_reason }];
    assert_eq!(only_result(&analyse(&run)).no_prediction_reason.as_deref(), Some("this CPU is in no table"));
}

#[test]
fn verdict_has_machine_and_five_findings() {
    let metrics: Vec<Metric> = (0..30)
        .map(|i| Metric { id: Name::intern(&format!("test.m{i}")), ..CALL.bounds(Some(0.0), Some(1.0)) })
        .collect();
    let mut run = testing::empty_run(&metrics);
    metrics.iter().for_each(|metric| add_scalars(&mut run, metric, Case::new(), &[5.0; 4]));
    let machine = &mut run.header.machine;
    machine.cpu.model_name = Fact::known("AMD EPYC 9R45".into(), "cpuid");
    machine.cpu.microarchitecture = Fact::known("Zen 5".into(), "cpuid");
    machine.topology.online = Fact::known(vec![0, 1, 2, 3], "sysfs");
    machine.topology.allowed = Fact::known(vec![0, 1], "affinity");
    machine.memory.total_bytes = Fact::known(24 << 30, "meminfo");
    machine.kernel.release = Fact::known("6.18.0".into(), "uname");
    machine.platform.hypervisor = Fact::known(Some("KVM".into()), "cpuid");
    let analysis = analyse(&run);
    assert_eq!(analysis.verdict.len(), 6);
    let machine = "AMD EPYC 9R45 (Zen 5), 2 of 4 CPUs allowed, 24 GiB of memory, Linux 6.18.0, under KVM.";
    assert_eq!(analysis.verdict[0], machine);
    assert_eq!(analyse(&scalars(&[1.0, 1.0, 1.0, 1.0])).verdict[1..], ["Nothing odd was found.".to_owned()]);
}

#[test]
fn changed_clock_and_partial_run_are_findings() {
    let mut run = scalars(&[1.0, 1.0, 1.0, 1.0]);
    run.header.clock.source_after = Some("hpet".into());
    run.status = RunStatus::Partial("interrupted".into());
    let verdict = analyse(&run).verdict;
    assert!(verdict[1].contains("clock source changed"), "{verdict:?}");
    assert!(verdict[2].contains("partial (interrupted)"), "{verdict:?}");
}

#[test]
fn analysis_round_trips_json() {
    let mut random = Random::new(3);
    let mut run = testing::empty_run(&[CALL]);
    add_rounds(&mut run, &CALL, Case::new(), &[(); 6].map(|()| noise(&mut random, 50, 100.0, 1.0)));
    let analysis = analyse(&run);
    let json = serde_json::to_string(&analysis).unwrap();
    assert_eq!(serde_json::from_str::<Analysis>(&json).unwrap(), analysis);
}

#[test]
fn chance_level_drift_is_detail() {
    let drifting = |figures: u64, drift_count: u64| {
        let mut run = testing::empty_run(&[VALUE]);
        for case in 0..figures {
            let rising_values: Vec<f64> =
                (0..6).map(|i| 100.0 + f64::from(if case < drift_count { 2 * i } else { i % 2 })).collect();
            add_scalars(&mut run, &VALUE, Case::new().with_number("size", case), &rising_values);
        }
        // What was not measured cannot drift by chance.
        let skipped = RoundOutcome::Skipped(SkipReason::new("left out"));
        add_measurement(
            &mut run,
            &VALUE,
            Case::new().with_number("size", figures),
            vec![round_with_outcome(0, skipped)],
        );
        let findings = analyse(&run).findings;
        findings.into_iter().find(|finding| finding.text.contains("drifted over the run")).unwrap()
    };
    assert_eq!(drifting(1, 1).importance, Importance::Notable);
    let detail = drifting(150, 2);
    assert_eq!(detail.importance, Importance::Detail);
    assert!(detail.text.ends_with("chance alone gives up to about 1.50 among 150."), "{}", detail.text);
    assert_eq!(drifting(150, 20).importance, Importance::Notable);
}

#[test]
fn verdict_has_serious_hazards_and_failures() {
    let mut run = scalars(&[1.0, 1.0, 1.0, 1.0]);
    run.header.hazards = vec![hazard("battery", Severity::Serious, &[]), hazard("smt", Severity::Warning, &[])];
    add_measurement(
        &mut run,
        &VALUE,
        Case::new().with_number("size", 1),
        vec![round_with_outcome(0, RoundOutcome::Failed("late".into()))],
    );
    let analysis = analyse(&run);
    assert_eq!(analysis.verdict[1..], ["Battery is in force: slows system calls.", "1 of 2 figures failed."]);
    assert_eq!(analysis.findings[0].metrics, [VALUE.id]);
    assert_eq!(analysis.findings[1].reason, "first: test.value (size=1): late");
}

#[test]
fn busy_machine_is_one_finding() {
    let mut run = scalars(&[1.0, 1.0, 1.0, 1.0]);
    let busy = ["load", "pressure_cpu", "other_work"];
    run.header.hazards = busy.map(|id| hazard(id, Severity::Serious, &[])).to_vec();
    let analysis = analyse(&run);
    assert_eq!(analysis.verdict[1..], ["Other work kept this machine busy: other_work is in force."]);
    assert!(busy.iter().all(|id| analysis.findings[0].reason.contains(id)), "{}", analysis.findings[0].reason);
}

#[test]
fn other_work_differs_only_by_severity() {
    let differences_of = |severities: [Severity; 2]| {
        let sides = [(severities[0], "8.55"), (severities[1], "8.91")].map(|(severity, amount)| {
            let mut run = scalars(&[1.0, 1.0, 1.0, 1.0]);
            let load = Hazard { summary: format!("the load average is {amount}"), ..hazard("load", severity, &[]) };
            run.header.hazards = vec![load];
            run.header
        });
        kelvin_analysis::fact_differences(&sides[0], &sides[1])
    };
    assert_eq!(differences_of([Severity::Serious, Severity::Serious]), []);
    let [load] = &differences_of([Severity::Warning, Severity::Serious])[..] else { panic!("one difference") };
    assert_eq!((load.base.as_deref(), load.other.as_deref()), (Some("warning"), Some("serious")));
}
