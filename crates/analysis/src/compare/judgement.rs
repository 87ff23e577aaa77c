//! What the figures of two sides are weighed by: their errors, with what differs from run to run and what the core's frequency explains.

use std::collections::HashMap;

use super::ComparisonRequest;
use super::cause_of_change::{self, ControlChange};
use super::series::{self, FigurePair, FigureRuns, SideSeries, not_compared, runs_as_found};
use super::verdicts::{PendingFigure, judge_together};
use crate::prelude::*;

/// What figures are judged by.
pub(super) struct ComparisonJudge<'a> {
    request: &'a ComparisonRequest<'a>,
    is_same_machine: bool,
    /// Whether a side is published values.
    is_published: bool,
    /// Logarithm of the core frequency of the other over that of the base.
    clock: f64,
    learned: HashMap<(Name, &'a Case), &'a SpreadHistory>,
    /// Spread of headlines over the chain canary.
    learned_in_cycles: HashMap<(Name, &'a Case), &'a SpreadHistory>,
}

impl<'a> ComparisonJudge<'a> {
    pub fn new(request: &'a ComparisonRequest<'a>, clocks: Option<[f64; 2]>) -> Self {
        let by_case = |known: &'a [SpreadHistory]| {
            known.iter().map(|learned| ((learned.metric, &learned.case), learned)).collect()
        };
        Self {
            request,
            is_same_machine: request.is_same_machine(),
            is_published: request.subjects().iter().any(|subject| subject.published().is_some()),
            clock: clocks.map_or(0.0, |[base, other]| (other / base).ln()),
            learned: by_case(request.learned),
            learned_in_cycles: by_case(request.learned_in_cycles),
        }
    }

    /// The verdicts, the most consequential first, and how much wider errors were made.
    pub fn judge(
        &self,
        series: &[SideSeries<'_>; 2],
        pairs: &[(MetricCase, FigurePair<'_, '_>)],
        apart: &mut Vec<NotCompared>,
    ) -> (Vec<ComparedFigure>, f64) {
        let (positive, others): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(_, pair)| pair.iter().all(|side| side.value() > 0.0));
        apart.extend(others.iter().map(|(key, pair)| not_compared(key, &pair[0].metric, NotComparedReason::NoRatio)));
        let histories: Vec<Option<BetweenRunVariance>> =
            positive.iter().map(|(key, pair)| self.between_run_variance(key, *pair)).collect();
        let learned: Vec<BetweenRunVariance> = histories.iter().copied().flatten().collect();
        let usual = usual_between_run_std(&learned);
        let with_history = positive.iter().zip(histories);
        let mut figures: Vec<PendingFigure> =
            with_history.map(|((key, pair), history)| self.to_pending(key, *pair, (history, usual))).collect();
        let strangeness: Vec<f64> = figures.iter().filter_map(PendingFigure::standardised_distance).collect();
        let inflation = inflation_factor(&strangeness);
        for figure in &mut figures {
            figure.error = figure.error.map(|error| error.widened(inflation));
            figure.side_errors = figure.side_errors.map(|sides| sides.map(|side| side.widened(inflation)));
        }
        cause_of_change::find_causes(&mut figures, self.request.threshold, |figures, figure, key| {
            let pair = series::figure_pair(series, key)?;
            match pair[0].metric.headline.is_comparable_with(figure.figure.metric.headline) {
                true => Ok(figures.iter().find(|figure| figure.is_at(key)).and_then(ControlChange::from_figure)),
                false => self.as_found_control(figure, key, inflation),
            }
        });
        (judge_together(figures, self.request.threshold), inflation)
    }

    /// A control whose headline is of undisturbed samples, of a figure as found: what disturbs both must not look like the cause. What
    /// earlier runs show of that headline says nothing of it as found.
    fn as_found_control(
        &self,
        figure: &PendingFigure,
        key: &MetricCase,
        inflation: f64,
    ) -> Result<Option<ControlChange>, NotComparedReason> {
        if figure.figure.metric.headline != HeadlineSamples::AsFound {
            return Err(NotComparedReason::Definition);
        }
        let [base, other] = self.request.subjects().map(|subject| runs_as_found(subject.runs(), key));
        let figures = base.zip(other).map(|(base, other)| self.to_pending(key, [&base, &other], (None, None)));
        Ok(figures
            .as_ref()
            .and_then(ControlChange::from_figure)
            .map(|control| ControlChange { error: control.error.widened(inflation), ..control }))
    }

    fn to_pending(
        &self,
        key: &MetricCase,
        pair: FigurePair<'_, '_>,
        (history, usual): (Option<BetweenRunVariance>, Option<f64>),
    ) -> PendingFigure {
        // Among few figures none is usual: each is taken for what it is.
        let learned = |history: BetweenRunVariance| BetweenRunPrior::Learned {
            history,
            usual: usual.unwrap_or(history.between.sqrt()),
        };
        let [base, other] = pair;
        let assumed = assumed_between_run_std(&base.metric, &key.case).max(ASSUMED_BETWEEN_RUN_STD);
        let between = history.map_or(BetweenRunPrior::Assumed(assumed), learned);
        let is_whole = pair.iter().all(|side| side.figures.len() == side.headlines.len());
        let error = ratio_of_runs(&base.figures, &other.figures, &between).filter(|_| is_whole && !self.is_published);
        let side_errors = error.and_then(|_| medians_of_runs(&base.figures, &other.figures, &between));
        let of_clock = match base.metric.unit {
            _ if base.is_at_one_frequency => 0.0,
            Unit::Nanoseconds => -self.clock,
            Unit::Hertz | Unit::BytesPerSecond | Unit::PerSecond => self.clock,
            Unit::Cycles | Unit::Bytes | Unit::Ratio | Unit::Count => 0.0,
        };
        let spread_source = match between {
            BetweenRunPrior::Learned { history, .. } => SpreadSource::Runs(history.runs),
            BetweenRunPrior::Assumed(deviation) => SpreadSource::Assumed(deviation),
        };
        // The range of what was seen.
        let [[base_low, base_high], [low, high]] = pair.map(|side| {
            let ends = min_max(side.rounds.iter().flatten().copied()).filter(|(low, _)| *low > 0.0);
            ends.map_or([side.value(); 2], <[f64; 2]>::from)
        });
        let side =
            |side: &FigureRuns<'_>| SideFigure { interval: None, rounds: side.rounds.clone(), modes: Vec::new() };
        let metric = if base.rounds.is_empty() { other.metric } else { base.metric };
        let values = pair.map(FigureRuns::value);
        let mut pending = PendingFigure::new(metric, &key.case, values, pair.map(side), spread_source);
        let ends = (low / base_high, high / base_low);
        pending.figure.ratio = Estimate { is_range: true, ..Estimate::new(values[1] / values[0], ends) };
        if self.is_published {
            pending.figure.verdict = ChangeVerdict::NotKnown(UndecidedReason::Published);
        }
        PendingFigure { error, side_errors, clock_effect: [of_clock.min(0.0), of_clock.max(0.0)], ..pending }
    }

    /// The spread from run to run: by other runs than those compared, else by the most earlier runs that one of these knew of; of two
    /// machines the larger.
    fn between_run_variance(&self, key: &MetricCase, pair: FigurePair<'_, '_>) -> Option<BetweenRunVariance> {
        let learn = |learned: &SpreadHistory| {
            BetweenRunVariance::learn_logarithm(EarlierRuns {
                headlines: &learned.headlines,
                within_run: &learned.within_variances,
            })
        };
        let learned = if pair[0].is_at_one_frequency { &self.learned_in_cycles } else { &self.learned };
        let given = learned.get(&(key.metric, &key.case)).copied().and_then(learn);
        let own = pair.iter().filter_map(|side: &&FigureRuns<'_>| side.learned).filter_map(learn);
        match given {
            Some(given) if self.is_same_machine => Some(given),
            None if self.is_same_machine => own.max_by_key(|history| history.runs),
            given => given.into_iter().chain(own).max_by(|a, b| a.between.total_cmp(&b.between)),
        }
    }
}
