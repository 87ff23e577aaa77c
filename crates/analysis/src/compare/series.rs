//! The figures of a side by metric and case, and those that both sides have.

use std::collections::HashMap;

use kelvin_core::units::case;

use super::ComparisonSubject;
use crate::prelude::*;
use kelvin_reference::published::{Comparability, comparability};

/// The figures of a side.
#[derive(Debug, Default)]
pub(super) struct SideSeries<'a> {
    /// Those there are, by the order in which they were measured.
    figures: Vec<(MetricCase, FigureRuns<'a>)>,
    positions: HashMap<MetricCase, usize>,
    /// Core frequency: the median of its runs.
    pub hertz: Option<f64>,
    /// How much longer work took on average than on the core left alone, a logarithm: the median of its runs.
    pub log_slowdown: Option<f64>,
    /// The chain canary in its steady state, in nanoseconds: the median of its runs, if all of them have it.
    chain_nanoseconds: Option<f64>,
}

/// What a side has of a metric at a case.
#[derive(Clone, Debug)]
pub(super) struct FigureRuns<'a> {
    pub metric: Metric,
    /// The headline of each run that has one.
    pub headlines: Vec<f64>,
    /// The headlines with their errors, as logarithms; fewer where one is not above zero, or is of a single round.
    pub figures: Vec<RunFigure>,
    /// The rounds of each of those runs.
    pub rounds: Vec<Vec<f64>>,
    /// The chain canary in its steady state in each of them in which it was read, in nanoseconds.
    chains: Vec<f64>,
    /// Whether it is scaled to the frequency of the base.
    pub is_at_one_frequency: bool,
    /// What its runs knew of earlier runs: the most that one did.
    pub spread_history: Option<&'a SpreadHistory>,
    /// Why a run has no headline.
    missing_reason: Option<String>,
    /// Why a published value is only shown.
    shown_only_reason: Option<String>,
}

impl<'a> SideSeries<'a> {
    pub fn from_side(side: ComparisonSubject<'a>) -> Self {
        match side {
            ComparisonSubject::Runs(runs) => Self::from_runs(runs),
            ComparisonSubject::Published(reference) | ComparisonSubject::Foreign(_, reference) => {
                Self::from_reference(reference)
            }
        }
    }

    fn from_runs(runs: &'a [Run]) -> Self {
        let mut series = Self::default();
        let (mut hertz, mut slowdowns, mut chains) = (Vec::new(), Vec::new(), Vec::new());
        for run in runs {
            let baselines = Baselines::from_run(run);
            hertz.extend(core_hertz(run, &baselines));
            slowdowns.extend(baselines.references.log_slowdown);
            chains.extend(baselines.references.get(Canary::Chain).map(|chain| chain.nanoseconds));
            series.add_run(run, &baselines);
        }
        let chains = if chains.len() == runs.len() { chains } else { Vec::new() };
        [series.hertz, series.log_slowdown, series.chain_nanoseconds] =
            [hertz, slowdowns, chains].map(|values| (!values.is_empty()).then(|| median(&values)));
        series
    }

    fn add_run(&mut self, run: &'a Run, baselines: &Baselines<'a>) {
        let chain = baselines.references.get(Canary::Chain).map(|chain| chain.nanoseconds);
        // What was measured only as an input, briefly, is compared with nothing.
        for (measurement, metric) in measured_metrics(run).filter(|(measurement, _)| !measurement.planned.only_input) {
            let case = &measurement.planned.case;
            let samples = SampleSet::from_measurement(measurement, &metric, &baselines.references);
            let computed = ComputedHeadline::from_samples(&samples, None).map(|computed| computed.round_headlines);
            let is_impossible =
                |rounds: &[f64]| exceeded_bound(&metric, run.bound(&metric.id, case), headline(rounds)).is_some();
            let figure = self.entry(MetricCase { metric: metric.id, case: case.clone() }, metric);
            match computed {
                Some(rounds) if is_impossible(&rounds) => {
                    figure.missing_reason = Some("beyond what is possible".into())
                }
                Some(rounds) => figure.add_run(rounds, chain),
                None if samples.found_count() == 0 => figure.missing_reason = Some(missing_text(measurement)),
                None => figure.missing_reason = Some(samples.shortage_reason()),
            }
            let history = baselines.spread_history(metric.id, case);
            let run_count = |candidate: Option<&SpreadHistory>| candidate.map_or(0, |spread| spread.headlines.len());
            if run_count(history) > run_count(figure.spread_history) {
                figure.spread_history = history;
            }
        }
    }

    fn from_reference(reference: &'a Reference) -> Self {
        let mut series = Self { hertz: reference.frequency_hz, ..Self::default() };
        // Its values carry no definition: that of the other side stands in, once it is known.
        for value in &reference.values {
            let published = Metric::duration("published", "A published value");
            let metric = Metric { id: value.metric, unit: value.unit, ..published };
            let figure = series.entry(MetricCase { metric: value.metric, case: value.case.clone() }, metric);
            figure.headlines.push(value.value);
            if let Comparability::ShownOnly(reason) = comparability(value, &metric) {
                figure.shown_only_reason = Some(reason);
            }
        }
        series
    }

    fn entry(&mut self, key: MetricCase, metric: Metric) -> &mut FigureRuns<'a> {
        let place = *self.positions.entry(key.clone()).or_insert_with(|| {
            self.figures.push((key, FigureRuns::empty(metric)));
            self.figures.len() - 1
        });
        &mut self.figures[place].1
    }

    fn get(&self, key: &MetricCase) -> Option<&FigureRuns<'a>> {
        self.positions.get(key).map(|&place| &self.figures[place].1)
    }
}

impl FigureRuns<'_> {
    fn empty(metric: Metric) -> Self {
        Self {
            metric,
            headlines: Vec::new(),
            figures: Vec::new(),
            rounds: Vec::new(),
            chains: Vec::new(),
            is_at_one_frequency: false,
            spread_history: None,
            missing_reason: None,
            shown_only_reason: None,
        }
    }

    fn add_run(&mut self, rounds: Vec<f64>, chain: Option<f64>) {
        self.headlines.push(headline(&rounds));
        self.figures.extend(RunFigure::from_rounds(&rounds));
        self.rounds.push(rounds);
        self.chains.extend(chain);
    }

    /// Scales all runs to a core on which the chain takes this long; it was read in all.
    fn rescale_to_chain(&mut self, nanoseconds: f64) {
        let runs = std::mem::take(&mut self.rounds).into_iter().zip(std::mem::take(&mut self.chains));
        (self.headlines, self.figures) = Default::default();
        for (rounds, chain) in runs.collect::<Vec<_>>() {
            self.add_run(rounds.into_iter().map(|value| value * (nanoseconds / chain)).collect(), Some(nanoseconds));
        }
        self.is_at_one_frequency = true;
    }

    fn is_empty(&self) -> bool {
        self.headlines.is_empty()
    }

    /// Its figure: the median of its runs.
    pub fn value(&self) -> f64 {
        median(&self.headlines)
    }
}

/// Rescales what is a fixed number of core cycles to the frequency of the base, where the canaries show that of every run. Returns how
/// many times as high that of the other is.
pub(super) fn rescale_to_base_frequency([base, other]: &mut [SideSeries<'_>; 2]) -> Option<f64> {
    let (base_chain, other_chain) = base.chain_nanoseconds.zip(other.chain_nanoseconds)?;
    for (key, base_figure) in base.figures.iter_mut().filter(|(_, figure)| figure.metric.is_core_cycle_time()) {
        let other_figure = other.positions.get(key).map(|&place| &mut other.figures[place].1);
        if let Some(other_figure) = other_figure.filter(|figure| figure.metric.is_core_cycle_time()) {
            base_figure.rescale_to_chain(base_chain);
            other_figure.rescale_to_chain(base_chain);
        }
    }
    Some(base_chain / other_chain)
}

/// A figure that both sides have: base and other.
pub(super) type FigurePair<'s, 'a> = [&'s FigureRuns<'a>; 2];

/// The figures that both sides have, and what is not compared.
pub(super) fn figure_pairs<'s, 'a>(
    series: &'s [SideSeries<'a>; 2],
) -> (Vec<(MetricCase, FigurePair<'s, 'a>)>, Vec<NotCompared>) {
    let [base, other] = series;
    let (mut pairs, mut exclusions) = (Vec::new(), Vec::new());
    let other_only = other.figures.iter().filter(|(key, _)| base.get(key).is_none_or(FigureRuns::is_empty));
    let base_figures = base.figures.iter().filter(|(_, figure)| !figure.is_empty());
    for (key, figure) in base_figures.chain(other_only.filter(|(_, figure)| !figure.is_empty())) {
        match figure_pair(series, key) {
            Ok(pair) => pairs.push((key.clone(), pair)),
            Err(reason) => exclusions.push(not_compared(key, &figure.metric, reason)),
        }
    }
    (pairs, exclusions)
}

/// A figure of both sides, or why they have none to compare.
pub(super) fn figure_pair<'s, 'a>(
    [base, other]: &'s [SideSeries<'a>; 2],
    key: &MetricCase,
) -> Result<FigurePair<'s, 'a>, NotComparedReason> {
    let missing_reason = |series: &SideSeries<'_>| {
        series.get(key).and_then(|figure| figure.missing_reason.clone()).unwrap_or_else(|| "not measured".into())
    };
    let [base_figure, other_figure] = [base, other].map(|series| series.get(key).filter(|figure| !figure.is_empty()));
    match (base_figure, other_figure) {
        (Some(base_figure), Some(other_figure)) => {
            incomparable_reason(base_figure, other_figure).map_or(Ok([base_figure, other_figure]), Err)
        }
        (Some(_), None) => Err(NotComparedReason::OnlyBase(missing_reason(other))),
        (None, Some(_)) => Err(NotComparedReason::OnlyOther(missing_reason(base))),
        (None, None) => Err(NotComparedReason::Neither(missing_reason(base))),
    }
}

/// A figure of runs as found, with any kind of headline; `None` where one of them has no such figure.
pub(super) fn runs_as_found<'a>(runs: &'a [Run], key: &MetricCase) -> Option<FigureRuns<'a>> {
    let mut figure = None;
    for run in runs {
        let has_figure = |measurement: &&Measurement| {
            measurement.planned.case == key.case && measurement.readings(&key.metric).next().is_some()
        };
        let (measurement, metric) = (run.measurements.iter().find(has_figure)?, run.metric(&key.metric)?);
        let samples = SampleSet::from_measurement(measurement, metric, &CanaryReferences::default());
        let rounds = ComputedHeadline::from_treatment(&samples, HeadlineSamples::AsFound, None)?.round_headlines;
        figure.get_or_insert_with(|| FigureRuns::empty(metric.for_case(&key.case))).add_run(rounds, None);
    }
    figure
}

pub(super) fn not_compared(key: &MetricCase, metric: &Metric, reason: NotComparedReason) -> NotCompared {
    NotCompared { metric: key.metric, case: case(metric, &key.case), reason }
}

/// Why two figures of one name are not the same quantity.
fn incomparable_reason(base: &FigureRuns<'_>, other: &FigureRuns<'_>) -> Option<NotComparedReason> {
    if let Some(reason) = base.shown_only_reason.as_ref().or(other.shown_only_reason.as_ref()) {
        return Some(NotComparedReason::NotEqual(reason.clone()));
    }
    let is_published = |figure: &FigureRuns<'_>| figure.rounds.is_empty();
    if is_published(base) || is_published(other) {
        return (base.metric.unit != other.metric.unit).then_some(NotComparedReason::Definition);
    }
    if base.metric.version != other.metric.version {
        return Some(NotComparedReason::MethodVersion([base.metric.version, other.metric.version]));
    }
    let is_defined_alike = base.metric.unit == other.metric.unit
        && base.metric.better == other.metric.better
        && base.metric.headline.is_comparable_with(other.metric.headline);
    (!is_defined_alike).then_some(NotComparedReason::Definition)
}
