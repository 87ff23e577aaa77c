//! The figures of a side by metric and case, and those that both sides have.

use std::collections::{BTreeMap, HashMap};

use kelvin_model::units::case;
use kelvin_model::{
    Canary, Case, Learned, Measurement, Metric, Name, NotCompared, NotComparedBecause, Outline, Reference, Run,
    Treatment,
};
use kelvin_stats::{RunFigure, headline, median};

use super::Subject;
use crate::bounds::broken_bound;
use crate::canaries::References;
use crate::gather::{Gathered, not_measured};
use crate::headlines::{Desk, Settled, core_hertz, metrics_of};
use crate::reference::{Standing, standing};
use crate::result::Outcome;

/// A metric at a case.
type At = (Name, Case);

/// The figures of a side.
#[derive(Debug)]
pub(super) struct Series<'a> {
    /// Those there are, by the order in which they were measured.
    figures: Vec<(At, Found<'a>)>,
    places: HashMap<At, usize>,
    /// Core frequency: the median of its runs.
    pub hertz: Option<f64>,
    /// How much longer work took on average than on the core left alone, a logarithm: the median of its runs.
    pub slowed: Option<f64>,
    /// The chain canary in its steady state, in nanoseconds: the median of its runs, if all of them have it.
    chain: Option<f64>,
}

/// What a side has of a metric at a case.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    pub metric: Metric,
    /// The headline of each run that has one.
    pub headlines: Vec<f64>,
    /// The same with their errors, as logarithms; fewer where one is not above zero, or is of a single round.
    pub figures: Vec<RunFigure>,
    /// The rounds of each of those runs.
    pub rounds: Vec<Vec<f64>>,
    /// The chain canary in its steady state in each of them in which it was read, in nanoseconds.
    chains: Vec<f64>,
    /// Whether it is told at the frequency of both sides' base.
    pub is_at_one_frequency: bool,
    /// What its runs knew of earlier runs: the most that one did.
    pub learned: Option<&'a Learned>,
    /// Why a run has no headline.
    missing: Option<String>,
    /// Why a published value is only shown.
    shown_only: Option<String>,
}

impl<'a> Series<'a> {
    pub fn of_side(side: Subject<'a>) -> Self {
        match side {
            Subject::Runs(runs) => Self::of_runs(runs),
            Subject::Published(reference) | Subject::Foreign(_, reference) => Self::of_reference(reference),
        }
    }

    /// Nothing of a side but its core frequency.
    fn of_clock(hertz: Option<f64>) -> Self {
        Self { figures: Vec::new(), places: HashMap::new(), hertz, slowed: None, chain: None }
    }

    fn of_runs(runs: &'a [Run]) -> Self {
        let mut series = Self::of_clock(None);
        let (mut hertz, mut slowed, mut chains) = (Vec::new(), Vec::new(), Vec::new());
        for run in runs {
            let desk = Desk::of(run);
            hertz.extend(core_hertz(run, &desk));
            slowed.extend(desk.references.slowed);
            chains.extend(desk.references.get(Canary::Chain).map(|chain| chain.nanoseconds));
            series.add_run(run, &desk);
        }
        let chains = if chains.len() == runs.len() { chains } else { Vec::new() };
        [series.hertz, series.slowed, series.chain] =
            [hertz, slowed, chains].map(|of_runs| (!of_runs.is_empty()).then(|| median(&of_runs)));
        series
    }

    fn add_run(&mut self, run: &'a Run, desk: &Desk<'a>) {
        let chain = desk.references.get(Canary::Chain).map(|chain| chain.nanoseconds);
        // What was measured only as an input, briefly, is compared with nothing.
        for measurement in run.measurements.iter().filter(|measurement| !measurement.planned.only_input) {
            let at_case = &measurement.planned.case;
            for metric in metrics_of(run, measurement) {
                let gathered = Gathered::of(measurement, &metric, &desk.references);
                let settled = Settled::headline(&gathered, None);
                let rounds = settled
                    .map(|settled| settled.round_headlines)
                    .filter(|rounds| broken_bound(&metric, run.bound(&metric.id, at_case), headline(rounds)).is_none());
                let found = self.found((metric.id, at_case.clone()), metric);
                match rounds {
                    Some(rounds) => found.add(rounds, chain),
                    None => found.missing = Some(why_missing(&gathered, || not_measured(measurement))),
                }
                let learned = desk.learned(metric.id, at_case);
                let known = |learned: Option<&Learned>| learned.map_or(0, |learned| learned.headlines.len());
                if known(learned) > known(found.learned) {
                    found.learned = learned;
                }
            }
        }
    }

    fn of_reference(reference: &'a Reference) -> Self {
        let mut series = Self::of_clock(reference.frequency_hz);
        // Its values carry no definition: that of the other side stands in, once it is known.
        for value in &reference.values {
            let metric = Metric { unit: value.unit, ..Metric::duration("published", "A published value") };
            let metric = Metric { id: value.metric, ..metric };
            let found = series.found((value.metric, value.case.clone()), metric);
            found.headlines.push(value.value);
            let as_measured = Metric { id: value.metric, unit: value.unit, ..metric };
            if let Standing::ShownOnly(why) = standing(value, &as_measured) {
                found.shown_only = Some(why);
            }
        }
        series
    }

    fn found(&mut self, at: At, metric: Metric) -> &mut Found<'a> {
        let place = *self.places.entry(at.clone()).or_insert_with(|| {
            self.figures.push((at, Found::nothing(metric)));
            self.figures.len() - 1
        });
        &mut self.figures[place].1
    }

    fn get(&self, at: &At) -> Option<&Found<'a>> {
        self.places.get(at).map(|&place| &self.figures[place].1)
    }
}

impl Found<'_> {
    fn nothing(metric: Metric) -> Self {
        Self {
            metric,
            headlines: Vec::new(),
            figures: Vec::new(),
            rounds: Vec::new(),
            chains: Vec::new(),
            is_at_one_frequency: false,
            learned: None,
            missing: None,
            shown_only: None,
        }
    }

    fn add(&mut self, rounds: Vec<f64>, chain: Option<f64>) {
        self.headlines.push(headline(&rounds));
        self.figures.extend(RunFigure::of_rounds(&rounds));
        self.rounds.push(rounds);
        self.chains.extend(chain);
    }

    /// The same with a core on which the chain takes so long in every run: it was read in all.
    fn at_chain(&mut self, nanoseconds: f64) {
        let of_runs = std::mem::take(&mut self.rounds).into_iter().zip(std::mem::take(&mut self.chains));
        (self.headlines, self.figures) = Default::default();
        for (rounds, chain) in of_runs.collect::<Vec<_>>() {
            self.add(rounds.into_iter().map(|value| value * (nanoseconds / chain)).collect(), Some(nanoseconds));
        }
        self.is_at_one_frequency = true;
    }

    /// Rounds of all runs.
    pub fn round_count(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.headlines.is_empty()
    }

    /// Its figure: the median of its runs.
    pub fn value(&self) -> f64 {
        median(&self.headlines)
    }

    /// What is said where it has none.
    fn missing(&self) -> String {
        self.missing.clone().unwrap_or_else(|| "not measured".into())
    }
}

/// Why there is no headline.
fn why_missing(gathered: &Gathered, outcome: impl FnOnce() -> Outcome) -> String {
    if gathered.found() > 0 {
        return match Settled::headline(gathered, None) {
            Some(_) => "beyond what is possible".into(),
            None => gathered.why_too_few(),
        };
    }
    match outcome() {
        Outcome::Skipped(reason) => format!("skipped: {reason}"),
        Outcome::Failed(reason) => format!("failed: {reason}"),
        _ => "not reached".into(),
    }
}

/// Tells what is a fixed number of core cycles at the frequency of the base, where the canaries show that of every run; and how many times
/// as high that of the other is.
pub(super) fn at_one_frequency([base, other]: &mut [Series<'_>; 2]) -> Option<f64> {
    let (of_base, of_other) = base.chain.zip(other.chain)?;
    for (at, here) in base.figures.iter_mut().filter(|(_, found)| found.metric.is_of_core_cycles()) {
        let there = other.places.get(at).map(|&place| &mut other.figures[place].1);
        if let Some(there) = there.filter(|found| found.metric.is_of_core_cycles()) {
            here.at_chain(of_base);
            there.at_chain(of_base);
        }
    }
    Some(of_base / of_other)
}

/// A figure that both sides have: base and other.
pub(super) type Pair<'s, 'a> = [&'s Found<'a>; 2];

/// The figures that both sides have, and what is not compared.
pub(super) fn pairs<'s, 'a>(series: &'s [Series<'a>; 2]) -> (Vec<(At, Pair<'s, 'a>)>, Vec<NotCompared>) {
    let [base, other] = series;
    let (mut pairs, mut apart) = (Vec::new(), Vec::new());
    let only_other = other.figures.iter().filter(|(at, _)| base.get(at).is_none_or(Found::is_empty));
    let of_base = base.figures.iter().filter(|(_, found)| !found.is_empty());
    for (at, found) in of_base.chain(only_other.filter(|(_, found)| !found.is_empty())) {
        match pair(series, at) {
            Ok(pair) => pairs.push((at.clone(), pair)),
            Err(why) => apart.push(left_out(at, &found.metric, why)),
        }
    }
    (pairs, apart)
}

/// A figure of both sides, or why they have none to compare.
pub(super) fn pair<'s, 'a>([base, other]: &'s [Series<'a>; 2], at: &At) -> Result<Pair<'s, 'a>, NotComparedBecause> {
    let missing = |series: &Series<'_>| series.get(at).map_or_else(|| "not measured".into(), Found::missing);
    let [base_found, other_found] = [base, other].map(|series| series.get(at).filter(|found| !found.is_empty()));
    match (base_found, other_found) {
        (Some(here), Some(there)) => incomparable(here, there).map_or(Ok([here, there]), Err),
        (Some(_), None) => Err(NotComparedBecause::OnlyBase(missing(other))),
        (None, Some(_)) => Err(NotComparedBecause::OnlyOther(missing(base))),
        (None, None) => Err(NotComparedBecause::Neither(missing(base))),
    }
}

/// A figure of runs as found, whatever its headline is made of; `None` where one of them has no such figure.
pub(super) fn as_found<'a>(runs: &'a [Run], (metric, at_case): &At) -> Option<Found<'a>> {
    let mut found = None;
    for run in runs {
        let is_of = |one: &&Measurement| one.planned.case == *at_case && one.readings(metric).next().is_some();
        let (measurement, metric) = (run.measurements.iter().find(is_of)?, run.metric(metric)?);
        let gathered = Gathered::of(measurement, metric, &References::default());
        let rounds = Settled::of(&gathered, Treatment::AsFound, None)?.round_headlines;
        found.get_or_insert_with(|| Found::nothing(metric.at(at_case))).add(rounds, None);
    }
    found
}

pub(super) fn left_out(at: &At, metric: &Metric, why: NotComparedBecause) -> NotCompared {
    NotCompared { metric: at.0, case: case(metric, &at.1), why }
}

/// Why two figures of one name are not the same quantity.
fn incomparable(base: &Found<'_>, other: &Found<'_>) -> Option<NotComparedBecause> {
    if let Some(why) = base.shown_only.as_ref().or(other.shown_only.as_ref()) {
        return Some(NotComparedBecause::ShownOnly(why.clone()));
    }
    let is_published = |found: &Found<'_>| found.rounds.is_empty();
    if is_published(base) || is_published(other) {
        return (base.metric.unit != other.metric.unit).then_some(NotComparedBecause::Definition);
    }
    if base.metric.version != other.metric.version {
        return Some(NotComparedBecause::MethodVersion([base.metric.version, other.metric.version]));
    }
    let is_defined_alike = base.metric.unit == other.metric.unit
        && base.metric.better == other.metric.better
        && base.metric.headline.is_of_the_same_as(other.metric.headline);
    (!is_defined_alike).then_some(NotComparedBecause::Definition)
}

/// Metrics whose method has another version on each side, each with both versions.
pub(super) fn versions(outlines: [&[&Outline]; 2]) -> BTreeMap<Name, [u32; 2]> {
    let of = |outlines: &[&Outline]| -> BTreeMap<Name, u32> {
        let metrics = outlines.iter().flat_map(|outline| &outline.metrics);
        metrics.map(|metric| (metric.id, metric.version)).collect()
    };
    let [base, other] = outlines.map(of);
    let differing = |(id, version): (Name, u32)| {
        let there = *other.get(&id)?;
        (there != version).then_some((id, [version, there]))
    };
    base.into_iter().filter_map(differing).collect()
}
