//! What the figures of two sides are weighed by: their errors, with what differs from run to run and what the core's frequency explains.

use std::collections::HashMap;

use kelvin_model::{
    Case, ChangeVerdict, ComparedFigure, Estimate, FigureOfSide, KnownFrom, Learned, MetricAt, Name, NotCompared,
    NotComparedBecause, NotKnownBecause, Run, Treatment, Unit,
};
use kelvin_stats::{
    ASSUMED_BETWEEN_RUNS, BetweenRuns, Earlier, RunToRun, figures_of_runs, inflation, ratio_of_runs, usual_between_runs,
};

use crate::gather::assumed_between_runs;

use super::causes::{self, Changed};
use super::series::{self, Found, Pair, Series, as_found, left_out};
use super::verdicts::{Weighed, together};
use super::{Compare, Subject};

/// What figures are judged by.
pub(super) struct Judge<'a> {
    threshold: f64,
    /// Logarithm of the core frequency of the other over that of the base.
    clock: f64,
    is_published: bool,
    is_one_machine: bool,
    runs: [&'a [Run]; 2],
    learned: HashMap<(Name, &'a Case), &'a Learned>,
    /// The same of headlines over the chain canary.
    learned_in_cycles: HashMap<(Name, &'a Case), &'a Learned>,
}

impl<'a> Judge<'a> {
    pub fn new(ask: &'a Compare<'a>, clocks: Option<[f64; 2]>) -> Self {
        let sides = [ask.base.of, ask.other.of];
        let by_case =
            |all: &'a [Learned]| all.iter().map(|learned| ((learned.metric, &learned.case), learned)).collect();
        Self {
            threshold: ask.threshold,
            clock: clocks.map_or(0.0, |[base, other]| (other / base).ln()),
            is_published: sides.iter().any(|side| side.published().is_some()),
            runs: sides.map(Subject::runs),
            is_one_machine: ask.is_of_one_machine(),
            learned: by_case(ask.learned),
            learned_in_cycles: by_case(ask.learned_in_cycles),
        }
    }

    /// The verdicts, the most consequential first, and how much wider errors were made.
    pub fn judge(
        &self,
        series: &[Series<'_>; 2],
        pairs: &[((Name, Case), Pair<'_, '_>)],
        apart: &mut Vec<NotCompared>,
    ) -> (Vec<ComparedFigure>, f64) {
        let (positive, others): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(_, pair)| pair.iter().all(|side| side.value() > 0.0));
        apart.extend(others.iter().map(|(at, pair)| left_out(at, &pair[0].metric, NotComparedBecause::NoRatio)));
        let histories: Vec<Option<RunToRun>> = positive.iter().map(|(at, pair)| self.history(at, *pair)).collect();
        let learned: Vec<RunToRun> = histories.iter().copied().flatten().collect();
        let usual = usual_between_runs(&learned);
        let with_history = positive.iter().zip(histories);
        let mut weighed: Vec<Weighed> =
            with_history.map(|((at, pair), history)| self.weigh(at, *pair, (history, usual))).collect();
        let strangeness: Vec<f64> = weighed.iter().filter_map(Weighed::strangeness).collect();
        let inflation = inflation(&strangeness);
        for one in &mut weighed {
            one.error = one.error.map(|error| error.wider(inflation));
            one.alone = one.alone.map(|sides| sides.map(|side| side.wider(inflation)));
        }
        causes::find(&mut weighed, self.threshold, |weighed, figure, at| {
            let pair = series::pair(series, &(at.metric, at.case.clone()))?;
            match pair[0].metric.headline.is_of_the_same_as(figure.figure.metric.headline) {
                true => Ok(weighed.iter().find(|one| one.is_at(at)).and_then(Changed::of)),
                false => self.as_found(figure, at, inflation),
            }
        });
        (together(weighed, self.threshold), inflation)
    }

    /// A control whose headline is of undisturbed samples, of a figure as found: what disturbs both must not look like the cause. What
    /// earlier runs tell of that headline says nothing of it as found.
    fn as_found(&self, figure: &Weighed, at: &MetricAt, inflation: f64) -> Result<Option<Changed>, NotComparedBecause> {
        if figure.figure.metric.headline != Treatment::AsFound {
            return Err(NotComparedBecause::Definition);
        }
        let at = (at.metric, at.case.clone());
        let [base, other] = self.runs.map(|runs| as_found(runs, &at));
        let weighed = base.zip(other).map(|(base, other)| self.weigh(&at, [&base, &other], (None, None)));
        Ok(weighed.as_ref().and_then(Changed::of).map(|one| Changed { error: one.error.wider(inflation), ..one }))
    }

    fn weigh(
        &self,
        at: &(Name, Case),
        pair: Pair<'_, '_>,
        (history, usual): (Option<RunToRun>, Option<f64>),
    ) -> Weighed {
        // Among few figures none is usual: each is taken for what it is.
        let learned =
            |history: RunToRun| BetweenRuns::Learned { history, usual: usual.unwrap_or(history.between.sqrt()) };
        let [base, other] = pair;
        let assumed = assumed_between_runs(&base.metric, &at.1).max(ASSUMED_BETWEEN_RUNS);
        let between = history.map_or(BetweenRuns::Assumed(assumed), learned);
        let is_whole = pair.iter().all(|side| side.figures.len() == side.headlines.len());
        let error = ratio_of_runs(&base.figures, &other.figures, &between).filter(|_| is_whole && !self.is_published);
        let alone = error.and_then(|_| figures_of_runs(&base.figures, &other.figures, &between));
        let of_clock = match base.metric.unit {
            _ if base.is_at_one_frequency => 0.0,
            Unit::Nanoseconds => -self.clock,
            Unit::Hertz | Unit::BytesPerSecond | Unit::PerSecond => self.clock,
            Unit::Cycles | Unit::Bytes | Unit::Ratio | Unit::Count => 0.0,
        };
        let between = match between {
            BetweenRuns::Learned { history, .. } => KnownFrom::Runs(history.runs),
            BetweenRuns::Assumed(deviation) => KnownFrom::Assumed(deviation),
        };
        let figure = self.figure(at, pair, between);
        Weighed { figure, error, alone, of_clock: [of_clock.min(0.0), of_clock.max(0.0)] }
    }

    /// What is known of a figure without its error.
    fn figure(&self, at: &(Name, Case), [base, other]: Pair<'_, '_>, between: KnownFrom) -> ComparedFigure {
        let because = if self.is_published { NotKnownBecause::Published } else { NotKnownBecause::TooFewRounds };
        ComparedFigure {
            metric: if base.rounds.is_empty() { other.metric } else { base.metric },
            case: at.1.clone(),
            base: base.value(),
            other: other.value(),
            rounds: [base, other].map(Found::round_count),
            sides: [base, other].map(|side| FigureOfSide {
                interval: None,
                rounds: side.rounds.clone(),
                modes: Vec::new(),
            }),
            ratio_of: None,
            ratio: range([base, other]),
            between,
            verdict: ChangeVerdict::NotKnown(because),
            differs: None,
            same: None,
            least_seen: None,
            times_to_decide: None,
            cause: None,
        }
    }

    /// The spread from run to run: by other runs than those compared, else by the most earlier runs that one of these knew of; of two
    /// machines the larger.
    fn history(&self, at: &(Name, Case), pair: Pair<'_, '_>) -> Option<RunToRun> {
        let learn = |learned: &Learned| {
            RunToRun::learn_logarithm(Earlier { headlines: &learned.headlines, within: &learned.within })
        };
        let learned = if pair[0].is_at_one_frequency { &self.learned_in_cycles } else { &self.learned };
        let given = learned.get(&(at.0, &at.1)).copied().and_then(learn);
        let own = pair.iter().filter_map(|side: &&Found<'_>| side.learned).filter_map(learn);
        match given {
            Some(given) if self.is_one_machine => Some(given),
            None if self.is_one_machine => own.max_by_key(|history| history.runs),
            given => given.into_iter().chain(own).max_by(|one, other| one.between.total_cmp(&other.between)),
        }
    }
}

/// The ratio with the range of what was seen.
fn range(pair: Pair<'_, '_>) -> Estimate {
    let [[base_low, base_high], [low, high]] = pair.map(|side| {
        let seen = || side.rounds.iter().flatten().copied();
        let ends = seen().reduce(f64::min).zip(seen().reduce(f64::max)).filter(|(low, _)| *low > 0.0);
        ends.map_or([side.value(); 2], <[f64; 2]>::from)
    });
    let value = pair[1].value() / pair[0].value();
    Estimate { value, low: low / base_high, high: high / base_low, is_range: true }
}
