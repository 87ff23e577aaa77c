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
    spread_histories: HashMap<(Name, &'a Case), &'a SpreadHistory>,
    /// Spread of headlines over the chain canary.
    cycle_spread_histories: HashMap<(Name, &'a Case), &'a SpreadHistory>,
}

impl<'a> ComparisonJudge<'a> {
    pub fn new(request: &'a ComparisonRequest<'a>, clocks: Option<[f64; 2]>) -> Self {
        let index_by_case = |histories: &'a [SpreadHistory]| {
            histories.iter().map(|history| ((history.metric, &history.case), history)).collect()
        };
        Self {
            request,
            is_same_machine: request.is_same_machine(),
            is_published: request.subjects().iter().any(|subject| subject.published().is_some()),
            clock: clocks.map_or(0.0, |[base, other]| (other / base).ln()),
            spread_histories: index_by_case(request.spread_histories),
            cycle_spread_histories: index_by_case(request.cycle_spread_histories),
        }
    }

    /// The verdicts, the most consequential first, and how much wider errors were made.
    pub fn judge(
        &self,
        series: &[SideSeries<'_>; 2],
        pairs: &[(MetricCase, FigurePair<'_, '_>)],
        exclusions: &mut Vec<NotCompared>,
    ) -> (Vec<ComparedFigure>, f64) {
        let (positive, non_positive): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(_, pair)| pair.iter().all(|side| side.value() > 0.0));
        exclusions.extend(
            non_positive.iter().map(|(key, pair)| not_compared(key, &pair[0].metric, NotComparedReason::NoRatio)),
        );
        let histories: Vec<Option<BetweenRunVariance>> =
            positive.iter().map(|(key, pair)| self.between_run_variance(key, *pair)).collect();
        let variances: Vec<BetweenRunVariance> = histories.iter().copied().flatten().collect();
        let usual_std = typical_between_run_std(&variances);
        let with_history = positive.iter().zip(histories);
        let mut figures: Vec<PendingFigure> =
            with_history.map(|((key, pair), history)| self.to_pending(key, *pair, (history, usual_std))).collect();
        let distances: Vec<f64> = figures.iter().filter_map(PendingFigure::standardised_distance).collect();
        let inflation = inflation_factor(&distances);
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

    /// A control whose headline is of undisturbed samples, of a figure as found: what disturbs both must not look like the cause. The
    /// spread of that headline in earlier runs is not that of the figure as found.
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
        (history, usual_std): (Option<BetweenRunVariance>, Option<f64>),
    ) -> PendingFigure {
        // Among few figures none is usual: each is taken for what it is.
        let learned_prior = |history: BetweenRunVariance| BetweenRunPrior::Learned {
            history,
            typical_std: usual_std.unwrap_or(history.between.sqrt()),
        };
        let [base, other] = pair;
        let assumed_std = assumed_between_run_std(&base.metric, &key.case).max(ASSUMED_BETWEEN_RUN_STD);
        let prior = history.map_or(BetweenRunPrior::Assumed(assumed_std), learned_prior);
        let is_whole = pair.iter().all(|side| side.figures.len() == side.headlines.len());
        let error = ratio_of_runs(&base.figures, &other.figures, &prior).filter(|_| is_whole && !self.is_published);
        let side_errors = error.and_then(|_| medians_of_runs(&base.figures, &other.figures, &prior));
        let clock_change = match base.metric.unit {
            _ if base.is_at_one_frequency => 0.0,
            Unit::Nanoseconds => -self.clock,
            Unit::Hertz | Unit::BytesPerSecond | Unit::PerSecond => self.clock,
            Unit::Cycles | Unit::Bytes | Unit::Ratio | Unit::Count => 0.0,
        };
        let spread_source = match prior {
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
        PendingFigure { error, side_errors, clock_effect: [clock_change.min(0.0), clock_change.max(0.0)], ..pending }
    }

    /// The spread from run to run: by other runs than those compared, else by the most earlier runs that one of these knew of; of two
    /// machines the larger.
    fn between_run_variance(&self, key: &MetricCase, pair: FigurePair<'_, '_>) -> Option<BetweenRunVariance> {
        let learn_variance = |history: &SpreadHistory| {
            BetweenRunVariance::learn_logarithm(EarlierRuns {
                headlines: &history.headlines,
                within_run: &history.within_variances,
            })
        };
        let histories = if pair[0].is_at_one_frequency { &self.cycle_spread_histories } else { &self.spread_histories };
        let external_variance = histories.get(&(key.metric, &key.case)).copied().and_then(learn_variance);
        let own_variances =
            pair.iter().filter_map(|side: &&FigureRuns<'_>| side.spread_history).filter_map(learn_variance);
        match external_variance {
            Some(variance) if self.is_same_machine => Some(variance),
            None if self.is_same_machine => own_variances.max_by_key(|history| history.runs),
            variance => variance.into_iter().chain(own_variances).max_by(|a, b| a.between.total_cmp(&b.between)),
        }
    }
}
