//! A comparison of two sides: its reports on runs of an unchanged machine, the planted changes that it finds, the facts that it names.

use std::slice;

use kelvin_analysis::testing::{add_scalars, empty_run, guest};
use kelvin_analysis::{ComparisonRequest, ComparisonSubject, SideInput, analyse, references};
use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::cpu::FREQUENCY;
use kelvin_core::catalogue::mem::{BYTES, HUGE_PAGE, LATENCY, PageSize};
use kelvin_core::catalogue::net::{MESSAGE, RTT_TCP};
use kelvin_core::catalogue::os::{HandoffMechanism, PROCESS_FORK, SWITCH_CROSS_CPU, SWITCH_ROUND_TRIP};
use kelvin_core::{
    Better, Case, CauseFinding, ChangeVerdict, ComparedFigure, ComparedRung, Comparison, Estimate, Fact,
    HeadlineSamples, Metric, Name, NotComparedReason, Run, SpreadHistory, SpreadSource, UndecidedReason, Unit,
    worse_by,
};
use kelvin_stats::{Random, RunFigure};

const METRIC_COUNT: usize = 300;
/// Pairs of runs that are simulated.
const SIMULATED_PAIRS: usize = 500;

static TIME: Metric = Metric::duration("test.time", "A time of a test").headline(HeadlineSamples::AsFound);
static RATE: Metric = Metric::rate("test.rate", "A rate of a test").headline(HeadlineSamples::AsFound);

fn case(number: usize) -> Case {
    Case::new().with_number("number", number as u64)
}

fn side<'a>(name: &str, runs: &'a [Run]) -> SideInput<'a> {
    SideInput { name: name.into(), subject: ComparisonSubject::Runs(runs) }
}

fn compare_runs(base: &[Run], other: &[Run]) -> Comparison {
    ComparisonRequest {
        base: side("A", base),
        other: side("B", other),
        spread_histories: &[],
        cycle_spread_histories: &[],
        threshold: 0.01,
    }
    .compare()
}

fn is_change(verdict: &ChangeVerdict) -> bool {
    !matches!(verdict, ChangeVerdict::Same | ChangeVerdict::NotKnown(_))
}

/// How a figure of a machine scatters.
struct FigureNoise {
    value: f64,
    /// Deviation of a round from its run, and of a run from the machine, as shares.
    round_deviation: f64,
    run_deviation: f64,
    rounds: usize,
}

impl FigureNoise {
    fn draw(random: &mut Random) -> Self {
        let lognormal = |middle: f64, spread: f64, random: &mut Random| middle * (spread * random.normal()).exp();
        Self {
            value: lognormal(1e4, 3.0, random),
            round_deviation: lognormal(0.01, 0.7, random),
            run_deviation: lognormal(0.007, 0.8, random),
            rounds: 3 + random.index_below(6),
        }
    }

    /// The rounds of a run: one in twenty is far away, and so is one run in fifty.
    fn run(&self, random: &mut Random) -> Vec<f64> {
        let outlier_factor = |share: f64, random: &mut Random| if random.uniform() < share { 4.0 } else { 1.0 };
        let run = self.run_deviation * outlier_factor(0.02, random) * random.normal();
        let round = |random: &mut Random| {
            self.value * (run + self.round_deviation * outlier_factor(0.05, random) * random.normal()).exp()
        };
        (0..self.rounds).map(|_| round(random)).collect()
    }
}

/// A machine: its figures, each with its metric and case.
struct SimulatedMachine(Vec<(&'static Metric, Case, FigureNoise)>);

impl SimulatedMachine {
    fn new(random: &mut Random) -> Self {
        Self((0..METRIC_COUNT).map(|number| (&TIME, case(number), FigureNoise::draw(random))).collect())
    }

    fn run(&self, histories: &[SpreadHistory], random: &mut Random) -> Run {
        let mut run = empty_run(&[TIME, LATENCY]);
        run.header.spread_history = histories.to_vec();
        self.0
            .iter()
            .for_each(|(metric, case, figure)| add_scalars(&mut run, metric, case.clone(), &figure.run(random)));
        run
    }

    /// What a run knows of this many earlier ones.
    fn spread_histories(&self, runs: usize, random: &mut Random) -> Vec<SpreadHistory> {
        let history = |(metric, case, figure): &(&'static Metric, Case, FigureNoise)| {
            let earlier: Vec<RunFigure> =
                (0..runs).map(|_| RunFigure::from_rounds(&figure.run(random)).unwrap()).collect();
            let headlines: Vec<f64> = earlier.iter().map(|run| run.logarithm.exp()).collect();
            let variances =
                earlier.iter().zip(&headlines).map(|(run, headline)| run.within_run.variance * headline.powi(2));
            SpreadHistory { metric: metric.id, case: case.clone(), within_variances: variances.collect(), headlines }
        };
        self.0.iter().map(history).collect()
    }
}

/// Of pairs of runs of a machine that nobody changed, how many reports have a change.
fn false_reports(earlier: usize, pairs: usize) -> usize {
    let mut random = Random::new(earlier as u64 + 1);
    let mut reports = 0;
    for _ in 0..pairs {
        let machine = SimulatedMachine::new(&mut random);
        let histories = machine.spread_histories(earlier, &mut random);
        let [base, other] = [(), ()].map(|()| [machine.run(&histories, &mut random)]);
        let comparison = compare_runs(&base, &other);
        assert_eq!(comparison.figures.len(), METRIC_COUNT);
        reports += usize::from(comparison.with_verdict(is_change).next().is_some());
    }
    reports
}

#[test]
fn unchanged_machine_rarely_reports_change() {
    for (earlier, pairs) in
        [(0, SIMULATED_PAIRS / 5), (3, SIMULATED_PAIRS / 5), (8, SIMULATED_PAIRS), (20, SIMULATED_PAIRS / 5)]
    {
        let reports = false_reports(earlier, pairs);
        assert!(reports as f64 <= 0.08 * pairs as f64, "{earlier} earlier runs: {reports} of {pairs} reports");
    }
}

#[test]
fn detectable_change_found_with_stated_power() {
    let mut random = Random::new(7);
    let (mut hits, mut trials) = (0.0, 0.0);
    for _ in 0..SIMULATED_PAIRS / 3 {
        let machine = SimulatedMachine::new(&mut random);
        let histories = machine.spread_histories(8, &mut random);
        let [base, other] = [(), ()].map(|()| machine.run(&histories, &mut random));
        let unchanged = compare_runs(slice::from_ref(&base), slice::from_ref(&other));
        let candidates: Vec<&ComparedFigure> =
            unchanged.figures.iter().filter(|figure| figure.detectable_change.is_some()).collect();
        let figure = candidates[random.index_below(candidates.len())];
        let factor = 1.0 + figure.detectable_change.unwrap();
        let mut slowed_run = other;
        let number =
            slowed_run.measurements.iter().position(|measurement| measurement.planned.case == figure.case).unwrap();
        // The change of which the report spoke, in addition to the scatter of the pair: this is why it is found or not.
        let rounds: Vec<f64> =
            slowed_run.measurements[number].readings(&TIME.id).map(|(_, reading)| scalar(reading) * factor).collect();
        let mut planted = kelvin_analysis::testing::empty_run(&[TIME]);
        add_scalars(&mut planted, &TIME, figure.case.clone(), &rounds);
        slowed_run.measurements[number] = planted.measurements.remove(0);
        let after = compare_runs(&[base], &[slowed_run]);
        let verdict = &after.figures.iter().find(|candidate| candidate.case == figure.case).unwrap().verdict;
        hits += f64::from(u8::from(*verdict == ChangeVerdict::Worse));
        trials += 1.0;
    }
    let share = hits / trials;
    assert!((0.74..0.88).contains(&share), "{share}");
}

fn scalar(reading: &kelvin_core::MetricReadings) -> f64 {
    match &reading.readings {
        kelvin_core::Readings::Scalars(values) => values[0],
        kelvin_core::Readings::Batches(_) => panic!("these runs have scalars"),
    }
}

/// Rounds around a value, a hundredth of it apart.
fn rounds_around(value: f64) -> Vec<f64> {
    [0.0, 0.5, -0.5, 0.2, -0.2, 0.1, -0.1, 0.3].iter().map(|share| value * (1.0 + 0.01 * share)).collect()
}

/// A run of one figure that earlier runs knew to within a thousandth.
fn single_figure_run(metric: &Metric, value: f64) -> Run {
    let mut run = empty_run(&[*metric]);
    add_scalars(&mut run, metric, Case::new(), &rounds_around(value));
    let headlines: Vec<f64> = [0.0, 1.0, -1.0, 0.5, -0.5, 0.7, -0.7, 0.2].map(|share| 100.0 + 0.1 * share).to_vec();
    let variances = vec![0.01; headlines.len()];
    run.header.spread_history =
        vec![SpreadHistory { metric: metric.id, case: Case::new(), headlines, within_variances: variances }];
    run
}

fn verdict(metric: &Metric, values: [f64; 2]) -> ChangeVerdict {
    let [base, other] = values.map(|value| [single_figure_run(metric, value)]);
    let comparison = compare_runs(&base, &other);
    assert!(comparison.not_compared.is_empty());
    assert!(matches!(comparison.figures[0].spread_source, SpreadSource::Runs(8)));
    comparison.figures[0].verdict.clone()
}

#[test]
fn verdict_follows_metric_direction() {
    let fact = Metric { better: Better::Neither, ..TIME };
    assert_eq!(verdict(&TIME, [100.0, 110.0]), ChangeVerdict::Worse);
    assert_eq!(verdict(&TIME, [110.0, 100.0]), ChangeVerdict::Better);
    assert_eq!(verdict(&RATE, [100.0, 110.0]), ChangeVerdict::Better);
    assert_eq!(verdict(&RATE, [110.0, 100.0]), ChangeVerdict::Worse);
    assert_eq!(verdict(&fact, [100.0, 110.0]), ChangeVerdict::Higher);
    assert_eq!(verdict(&fact, [110.0, 100.0]), ChangeVerdict::Lower);
    assert_eq!(verdict(&TIME, [100.0, 100.02]), ChangeVerdict::Same);
    // Neither clearly within a hundredth nor clearly beyond it.
    assert_eq!(verdict(&TIME, [100.0, 101.0]), ChangeVerdict::NotKnown(UndecidedReason::Undecided));
    assert!(
        (worse_by(1.25, Better::Lower) - 0.25).abs() < 1e-12 && (worse_by(0.75, Better::Higher) - 0.25).abs() < 1e-12
    );
}

#[test]
fn frequency_difference_is_no_change() {
    let with_clock = |value: f64, hertz: f64| {
        let mut run = single_figure_run(&TIME, value);
        run.header.metrics.push(FREQUENCY);
        add_scalars(&mut run, &FREQUENCY, Case::new(), &[hertz; 6]);
        [run]
    };
    let verdict_at = |base: f64, other: f64, hertz: f64| {
        let comparison = compare_runs(&with_clock(base, 4e9), &with_clock(other, hertz));
        comparison.figures.iter().find(|figure| figure.metric.id == TIME.id).unwrap().verdict.clone()
    };
    assert_eq!(verdict_at(100.0, 110.0, 4e9), ChangeVerdict::Worse);
    assert_eq!(verdict_at(100.0, 110.0, 3.6e9), ChangeVerdict::NotKnown(UndecidedReason::CoreFrequency));
    assert_eq!(verdict_at(100.0, 100.0, 3.6e9), ChangeVerdict::Same);
    // More than it explains, or the other way.
    assert_eq!(verdict_at(100.0, 130.0, 3.6e9), ChangeVerdict::Worse);
    assert_eq!(verdict_at(100.0, 90.0, 3.6e9), ChangeVerdict::Better);
}

#[test]
fn too_few_rounds_give_undecided_range() {
    let run_of = |values: &[f64]| {
        let mut run = empty_run(&[TIME]);
        add_scalars(&mut run, &TIME, Case::new(), values);
        run
    };
    let comparison = compare_runs(&[run_of(&[1.0, 1.1, 1.2])], &[run_of(&[9.0, 9.0, 9.0, 9.0])]);
    let figure = &comparison.figures[0];
    assert_eq!(figure.verdict, ChangeVerdict::NotKnown(UndecidedReason::TooFewRounds));
    assert!(figure.ratio.is_range && figure.difference.is_none() && figure.detectable_change.is_none());
    assert!((figure.ratio.low - 7.5).abs() < 1e-9 && (figure.ratio.high - 9.0).abs() < 1e-9);
    // Two runs of each are as many rounds as one of six.
    let pair =
        |value: f64| vec![run_of(&[value, 1.01 * value, 0.99 * value]), run_of(&[value, 1.01 * value, 0.99 * value])];
    let comparison = compare_runs(&pair(1.0), &pair(9.0));
    assert_eq!(comparison.figures[0].verdict, ChangeVerdict::Worse);
    assert_eq!(comparison.figures[0].rounds, [6, 6]);
}

#[test]
fn incomparable_figures_have_reasons() {
    const TWO: Metric = Metric::duration("test.two", "Another time of a test").headline(HeadlineSamples::AsFound);
    const THREE: Metric = Metric::duration("test.three", "A third time of a test").headline(HeadlineSamples::AsFound);
    const FOUR: Metric = Metric::duration("test.four", "A fourth time of a test").headline(HeadlineSamples::AsFound);
    let run_with = |metrics: &[Metric]| {
        let mut run = empty_run(metrics);
        metrics.iter().for_each(|metric| add_scalars(&mut run, metric, Case::new(), &rounds_around(100.0)));
        run
    };
    let mut base = run_with(&[TIME, TWO, THREE]);
    let mut other = run_with(&[TIME, TWO.version(2), THREE.unit(Unit::Cycles, Better::Lower), FOUR]);
    add_scalars(&mut base, &TIME, case(1), &rounds_around(1.0));
    add_scalars(&mut other, &TIME, case(2), &[0.0; 8]);
    add_scalars(&mut base, &TIME, case(2), &rounds_around(1.0));
    base.measurements.push(kelvin_core::Measurement {
        planned: kelvin_core::PlannedMeasurement {
            probe: FOUR.id,
            metrics: vec![FOUR.id],
            case: Case::new(),
            only_input: false,
        },
        rounds: Vec::new(),
        skipped: Some(kelvin_core::SkipReason::new("needs a second CPU")),
    });
    base.header.metrics.push(FOUR);
    let comparison = compare_runs(&[base], &[other]);
    let reason_for = |metric: &str, case: &str| {
        let entry =
            comparison.not_compared.iter().find(|candidate| candidate.metric == *metric && candidate.case == case);
        entry.unwrap_or_else(|| panic!("{metric} {case} is not named: {:?}", comparison.not_compared)).reason.clone()
    };
    assert_eq!(reason_for("test.two", ""), NotComparedReason::MethodVersion([1, 2]));
    assert_eq!(reason_for("test.three", ""), NotComparedReason::Definition);
    assert_eq!(reason_for("test.time", "number=1"), NotComparedReason::OnlyBase("not measured".into()));
    assert_eq!(reason_for("test.time", "number=2"), NotComparedReason::NoRatio);
    assert_eq!(reason_for("test.four", ""), NotComparedReason::OnlyOther("skipped: needs a second CPU".into()));
    assert_eq!(comparison.figures.len(), 1);
    assert_eq!(comparison.not_compared.len(), 5);
    let methods = comparison.differences.iter().find(|fact| fact.group == "Methods").unwrap();
    assert_eq!((methods.label.as_str(), methods.other.as_deref()), ("test.two", Some("version 2")));
}

#[test]
fn fact_differences_are_listed() {
    let base = single_figure_run(&TIME, 100.0);
    let mut other = base.clone();
    assert_eq!(compare_runs(slice::from_ref(&base), slice::from_ref(&other)).differences, []);
    other.header.machine.kernel.release = Fact::known("7.1.0".into(), "uname");
    other.header.machine.memory.available_bytes = Fact::known(17, "/proc/meminfo");
    other.header.settings.mode = Name::new("quick");
    let lines: Vec<String> = compare_runs(&[base], &[other])
        .differences
        .iter()
        .map(|fact| format!("{} {}: {:?} {:?}", fact.group, fact.label, fact.base, fact.other))
        .collect();
    assert_eq!(lines, [r#"Kernel Release: None Some("7.1.0")"#, r#"Run Mode: Some("default") Some("quick")"#]);
}

#[test]
fn published_machine_has_ratios_without_verdicts() {
    let zenbook = references().iter().find(|reference| reference.id == *"zenbook-2011").unwrap();
    let value = zenbook.values.iter().find(|value| value.range.is_none() && value.unit == Unit::Nanoseconds).unwrap();
    let metric = Metric { id: value.metric, ..TIME };
    let mut other = empty_run(&[metric]);
    add_scalars(&mut other, &metric, value.case.clone(), &[2.0 * value.value; 8]);
    let published = SideInput { name: "zenbook-2011".into(), subject: ComparisonSubject::Published(zenbook) };
    let comparison = ComparisonRequest {
        base: published,
        other: side("B", &[other]),
        spread_histories: &[],
        cycle_spread_histories: &[],
        threshold: 0.01,
    }
    .compare();
    let figure = &comparison.figures[0];
    assert!((figure.ratio.value - 2.0).abs() < 1e-9, "{figure:?}");
    assert_eq!(figure.verdict, ChangeVerdict::NotKnown(UndecidedReason::Published));
    assert!(comparison.not_compared.iter().any(|entry| matches!(entry.reason, NotComparedReason::OnlyBase(_))));
}

/// Working sets in base and in huge pages, of which one cause can be known: what a load in base pages takes beyond one in huge pages.
const WORKING_SETS: usize = 24;
/// How many of them change where a change is planted.
const CHANGED_SETS: usize = 4;
/// Pairs of runs that are simulated of each change.
const PLANTED_PAIRS: usize = 200;

fn set(pages: PageSize, number: usize) -> Case {
    Case::new().with_word(pages).with_number(BYTES, HUGE_PAGE * (number as u64 + 1))
}

/// A change of a figure: its ratio, and the share of it that is one of the cost of the cause.
#[derive(Clone, Copy)]
struct PlantedChange {
    ratio: f64,
    share: f64,
}

/// A machine of pairs of figures, the second of which is the control of the first.
struct ControlledMachine(Vec<[FigureNoise; 2]>);

impl ControlledMachine {
    /// The control is a third to a half of the figure.
    fn new(random: &mut Random) -> Self {
        let pair = |random: &mut Random| {
            let (figure, control) = (FigureNoise::draw(random), FigureNoise::draw(random));
            let value = figure.value * (1.0 / 3.0 + random.uniform() / 6.0);
            // Fewer rounds are reported as too few.
            let with_min_rounds = |figure: FigureNoise| FigureNoise { rounds: figure.rounds.max(4), ..figure };
            [with_min_rounds(figure), FigureNoise { value, ..with_min_rounds(control) }]
        };
        Self((0..WORKING_SETS).map(|_| pair(random)).collect())
    }

    /// The machine with a change of the first few.
    fn changed(&self, planted: impl Fn(&[FigureNoise; 2]) -> PlantedChange) -> SimulatedMachine {
        let planted_figures = |(number, pair): (usize, &[FigureNoise; 2])| {
            let (plant, [figure, control]) = (planted(pair), pair);
            let change = if number < CHANGED_SETS { (plant.ratio - 1.0) * figure.value } else { 0.0 };
            let values = [figure.value + change, control.value + (1.0 - plant.share) * change];
            let [figure, control] =
                [(figure, values[0]), (control, values[1])].map(|(noise, value)| FigureNoise { value, ..*noise });
            [(&LATENCY, set(PageSize::Base, number), figure), (&LATENCY, set(PageSize::Huge, number), control)]
        };
        SimulatedMachine(self.0.iter().enumerate().flat_map(planted_figures).collect())
    }
}

/// The shares that are reported in a comparison of a machine before and after a change: each with the number of its working set.
fn reported_shares(
    planted: impl Fn(&[FigureNoise; 2]) -> PlantedChange,
    random: &mut Random,
) -> Vec<(usize, Estimate)> {
    let machine = ControlledMachine::new(random);
    let before = machine.changed(|_| PlantedChange { ratio: 1.0, share: 0.0 });
    let histories = before.spread_histories(20, random);
    let (base, other) = (before.run(&histories, random), machine.changed(planted).run(&histories, random));
    let share = |figure: &ComparedFigure| match &figure.cause.as_ref()?.finding {
        CauseFinding::Explains { share, .. } => {
            Some(((BYTES.number_in(&figure.case)? / HUGE_PAGE) as usize - 1, *share))
        }
        CauseFinding::NoControl(reason) => panic!("{reason:?}"),
    };
    compare_runs(&[base], &[other]).figures.iter().filter_map(share).collect()
}

#[test]
fn planted_cause_share_is_covered() {
    let mut random = Random::new(3);
    let (mut total_hits, mut total_count) = (0.0, 0.0);
    // Of a share of 0.7 the control became slower by almost the same factor: it is reported less often, and is as accurate.
    for (ratio, share, min_share) in [(1.5, 0.7, 0.3), (1.4, 0.9, 0.8), (1.5, 1.0, 0.9), (0.7, 0.9, 0.8)] {
        let (mut hits, mut count) = (0.0, 0.0);
        for _ in 0..PLANTED_PAIRS {
            let shares = reported_shares(|_| PlantedChange { ratio, share }, &mut random);
            let shares: Vec<Estimate> =
                shares.into_iter().filter(|(set, _)| *set < CHANGED_SETS).map(|(_, share)| share).collect();
            hits += shares.iter().filter(|estimate| estimate.low <= share && share <= estimate.high).count() as f64;
            count += shares.len() as f64;
        }
        assert!(hits >= 0.93 * count, "{ratio} {share}: {hits} of {count}");
        assert!(count >= min_share * (CHANGED_SETS * PLANTED_PAIRS) as f64, "{ratio} {share}: {count} are said");
        (total_hits, total_count) = (total_hits + hits, total_count + count);
    }
    let covered = total_hits / total_count;
    assert!((0.93..=0.98).contains(&covered), "{covered}");
}

#[test]
fn no_cause_without_change() {
    let mut random = Random::new(4);
    // Nothing changed; the control changed by as much; both became slower by one factor.
    let kinds: [fn(&[FigureNoise; 2]) -> PlantedChange; 3] = [
        |_| PlantedChange { ratio: 1.0, share: 0.0 },
        |_| PlantedChange { ratio: 1.3, share: 0.0 },
        |[figure, control]| PlantedChange { ratio: 1.3, share: 1.0 - control.value / figure.value },
    ];
    for (number, planted) in kinds.into_iter().enumerate() {
        let reports = (0..PLANTED_PAIRS).filter(|_| !reported_shares(planted, &mut random).is_empty()).count();
        assert!(reports * 20 <= PLANTED_PAIRS, "{number}: {reports} of {PLANTED_PAIRS} reports");
    }
}

/// A run with figures around these values, of each with as many earlier runs that agreed to within a thousandth.
fn multi_figure_run(figures: &[(&Metric, Case, f64)]) -> Run {
    let metrics: Vec<Metric> = figures.iter().map(|(metric, ..)| **metric).collect();
    let mut run = empty_run(&metrics);
    for (metric, case, value) in figures {
        add_scalars(&mut run, metric, case.clone(), &rounds_around(*value));
        let headlines = [0.0, 1.0, -1.0, 0.5, -0.5, 0.7, -0.7, 0.2].map(|share| value * (1.0 + 0.001 * share)).to_vec();
        let variances = headlines.iter().map(|headline| (0.001 * headline).powi(2)).collect();
        run.header.spread_history.push(SpreadHistory {
            metric: metric.id,
            case: case.clone(),
            headlines,
            within_variances: variances,
        });
    }
    run
}

fn cause_of(comparison: &Comparison, metric: &Metric) -> Option<CauseFinding> {
    let has_cause = |figure: &&ComparedFigure| figure.metric.id == metric.id && figure.cause.is_some();
    Some(comparison.figures.iter().find(has_cause)?.cause.as_ref()?.finding.clone())
}

fn share_of(comparison: &Comparison, metric: &Metric) -> Option<f64> {
    match cause_of(comparison, metric)? {
        CauseFinding::Explains { share, .. } => Some(share.value),
        CauseFinding::NoControl(reason) => panic!("{reason:?}"),
    }
}

#[test]
fn wake_up_change_split_by_one_cpu_control() {
    let pipe = || Case::new().with_word(HandoffMechanism::Pipe);
    let runs = |wake: f64, round_trip: f64| {
        [multi_figure_run(&[
            (&SWITCH_CROSS_CPU, pipe(), wake),
            (&SWITCH_ROUND_TRIP, HandoffMechanism::Pipe.between_processes(), round_trip),
        ])]
    };
    // 5 of 50 more are those of half a round trip on one CPU.
    let comparison = compare_runs(&runs(100.0, 60.0), &runs(150.0, 70.0));
    assert_eq!(
        comparison.figures.iter().find(|figure| figure.metric.id == SWITCH_CROSS_CPU.id).unwrap().verdict,
        ChangeVerdict::Worse
    );
    assert!((share_of(&comparison, &SWITCH_CROSS_CPU).unwrap() - 0.9).abs() < 0.01);
    // All by the same factor, and the switch alone.
    assert_eq!(cause_of(&compare_runs(&runs(100.0, 120.0), &runs(150.0, 180.0)), &SWITCH_CROSS_CPU), None);
    assert_eq!(cause_of(&compare_runs(&runs(100.0, 100.0), &runs(150.0, 200.0)), &SWITCH_CROSS_CPU), None);
}

#[test]
fn missing_or_different_control_is_reported() {
    let case_at = |placement: PairPlacement| Case::new().with_word(placement).with_number(MESSAGE, 1);
    let with_control = |value: f64, metric: &Metric| {
        multi_figure_run(&[
            (&RTT_TCP, case_at(PairPlacement::TwoCpus), value),
            (metric, case_at(PairPlacement::SameCpu), 10.0),
        ])
    };
    let without_control = |value: f64| multi_figure_run(&[(&RTT_TCP, case_at(PairPlacement::TwoCpus), value)]);
    let missing_reason = |base: Run, other: Run| match cause_of(&compare_runs(&[base], &[other]), &RTT_TCP) {
        Some(CauseFinding::NoControl(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        missing_reason(with_control(50.0, &RTT_TCP), without_control(80.0)),
        NotComparedReason::OnlyBase("not measured".into())
    );
    assert_eq!(
        missing_reason(without_control(50.0), with_control(80.0, &RTT_TCP)),
        NotComparedReason::OnlyOther("not measured".into())
    );
    assert_eq!(
        missing_reason(without_control(50.0), without_control(80.0)),
        NotComparedReason::Neither("not measured".into())
    );
}

#[test]
fn control_of_other_version_is_ignored() {
    let mut base =
        multi_figure_run(&[(&LATENCY, set(PageSize::Base, 1), 50.0), (&LATENCY, set(PageSize::Huge, 1), 20.0)]);
    let other = multi_figure_run(&[(&LATENCY, set(PageSize::Base, 1), 80.0), (&LATENCY, set(PageSize::Huge, 1), 20.0)]);
    assert!(
        (share_of(&compare_runs(slice::from_ref(&base), slice::from_ref(&other)), &LATENCY).unwrap() - 1.0).abs()
            < 0.01
    );
    base.header.metrics.iter_mut().for_each(|metric| metric.version += 1);
    let comparison = compare_runs(&[base], &[other]);
    assert_eq!((comparison.figures.len(), comparison.not_compared.len()), (0, 2));
}

#[test]
fn sides_keep_rounds_and_own_intervals() {
    let runs = |value: f64| [single_figure_run(&TIME, value), single_figure_run(&TIME, 1.01 * value)];
    let figure = compare_runs(&runs(100.0), &runs(120.0)).figures.remove(0);
    for (side, value) in figure.sides.iter().zip([figure.base, figure.other]) {
        assert_eq!(side.rounds.iter().map(Vec::len).collect::<Vec<usize>>(), [8, 8]);
        let [low, high] = side.interval.unwrap();
        assert!(low < value && value < high, "{side:?}");
    }
    assert_eq!(figure.sides[0].rounds[0], rounds_around(100.0));
    let mut short_run = empty_run(&[TIME]);
    add_scalars(&mut short_run, &TIME, Case::new(), &[1.0, 1.1, 1.2]);
    let figure = compare_runs(&[short_run.clone()], &[single_figure_run(&TIME, 1.0)]).figures.remove(0);
    assert!(figure.sides.iter().all(|side| side.interval.is_none()), "there is no interval where the ratio has none");
}

fn ladder(base: SideInput<'_>, other: SideInput<'_>) -> (Comparison, Vec<ComparedRung>) {
    let request =
        ComparisonRequest { base, other, spread_histories: &[], cycle_spread_histories: &[], threshold: 0.01 };
    let comparison = request.compare();
    let ladder = request.ladder(&comparison);
    (comparison, ladder)
}

#[test]
fn ladders_match_overview_rungs() {
    let base = guest::guest_run();
    let mut other = base.clone();
    let fork = |run: &Run| {
        let results = analyse(run).results;
        results.into_iter().find(|result| result.metric.id == PROCESS_FORK.id).unwrap()
    };
    let before = fork(&base).outcome.summary().unwrap().headline;
    guest::replace(&mut other, &PROCESS_FORK, &fork(&base).case, 3.0 * before);
    let (comparison, rungs) = ladder(side("A", slice::from_ref(&base)), side("B", slice::from_ref(&other)));
    let screen = analyse(&base).overview.unwrap();
    let is_known = |rung: &&kelvin_core::Rung| rung.figure.measured.is_some();
    let expected: Vec<&str> = screen.rungs.iter().filter(is_known).map(|rung| rung.label.as_str()).collect();
    assert_eq!(rungs.iter().map(|rung| rung.label.as_str()).collect::<Vec<&str>>(), expected);
    for rung in &rungs {
        let [base, other] = rung.seconds.map(Option::unwrap);
        let shift = if rung.label == "fork" { 3.0 } else { 1.0 };
        assert!((other / base - shift).abs() < 0.02, "{rung:?}");
        let figure = &comparison.figures[rung.figure.unwrap()];
        assert_eq!(figure.metric.id == PROCESS_FORK.id, rung.label == "fork", "{rung:?}");
    }
    // A side that is no picture of its machine has no ladder.
    assert_eq!(ladder(side("A", slice::from_ref(&base)), side("B", &[single_figure_run(&TIME, 1.0)])).1, []);
}

#[test]
fn rung_of_one_side_keeps_position() {
    let base = guest::guest_run();
    let mut other = base.clone();
    other.measurements.retain(|measurement| !measurement.planned.metrics.contains(&PROCESS_FORK.id));
    let names = |rungs: &[ComparedRung]| rungs.iter().map(|rung| rung.label.clone()).collect::<Vec<String>>();
    let (_, complete) = ladder(side("A", slice::from_ref(&base)), side("B", slice::from_ref(&base)));
    for (sides, missing_side) in [([&base, &other], 1), ([&other, &base], 0)] {
        let [a, b] = sides.map(slice::from_ref);
        let (_, rungs) = ladder(side("A", a), side("B", b));
        assert_eq!(names(&rungs), names(&complete));
        let fork = rungs.iter().find(|rung| rung.label == "fork").unwrap();
        assert_eq!((fork.seconds[missing_side], fork.figure), (None, None));
        assert!(fork.seconds[1 - missing_side].is_some());
    }
}

#[test]
fn published_machine_has_ladder() {
    let zenbook = references().iter().find(|reference| reference.id == *"zenbook-2011").unwrap();
    let published = SideInput { name: "zenbook-2011".into(), subject: ComparisonSubject::Published(zenbook) };
    let run = guest::guest_run();
    let (comparison, rungs) = ladder(published, side("B", slice::from_ref(&run)));
    let shared: Vec<&ComparedRung> = rungs.iter().filter(|rung| rung.seconds[0].is_some()).collect();
    assert!(shared.len() >= 3 && rungs.iter().all(|rung| rung.seconds[1].is_some()), "{rungs:?}");
    for rung in shared {
        let base_value = comparison.figures[rung.figure.unwrap()].base;
        assert!(zenbook.values.iter().any(|value| value.value == base_value), "{rung:?}");
    }
}

/// Two quick runs of one machine, of which no earlier run shows how much they differ.
#[test]
fn all_undecided_reports_undetectable_change() {
    use kelvin_analysis::wording::compare::{remarks, verdict_counts};
    let comparison = compare_runs(&[guest::guest_run()], &[guest::guest_run()]);
    let is_known = |figure: &ComparedFigure| !matches!(figure.verdict, ChangeVerdict::NotKnown(_));
    assert!(!comparison.figures.iter().any(is_known), "the assumed spread is wider than that");
    let text = verdict_counts(&comparison);
    assert!(text.starts_with("Nothing is known to differ: a change of less than "), "{text}");
    assert!(text.contains(" cannot be seen in any figure between these runs") && !text.contains("0 worse"), "{text}");
    assert!(remarks(&comparison).iter().all(|remark| !remark.contains("would have shown")), "it is said once");
    // One that is seen is counted as ever.
    let mut worse = guest::guest_run();
    guest::replace(&mut worse, &PROCESS_FORK, &Case::new(), 250_000.0);
    let text = verdict_counts(&compare_runs(&[guest::guest_run()], &[worse]));
    assert!(text.contains(": 1 worse, 0 better, "), "{text}");
}
