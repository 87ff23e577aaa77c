//! The ratio of a figure in other runs to the same figure in base runs, with what differs from run to run as part of its error.
//!
//! Rounds show how precise the figure of one run is, not how far the next run of an unchanged machine lies from it. That is learned
//! from earlier runs, or from several runs of each side, or else assumed. `tests/comparison.rs` of `analysis` simulates what of a whole
//! report comes out.

use crate::between_run_variance::{BetweenRunVariance, MedianConstants, within_run_variance};
use crate::uncertain_value::{MIN_INTERVAL_ROUNDS, UncertainValue, logarithms};
use crate::variance_estimate::{VarianceEstimate, pooled_variance};
use crate::{mean, median};

/// Maximum degrees of freedom of what differs from run to run: it has heavier tails than the normal distribution, however many runs it
/// was learned from. Observed: in 91 comparisons of 14 quick runs of one machine 1 figure in 1000 was 4.4 errors away, 1 in 10 000 6.7.
const MAX_BETWEEN_RUN_DEGREES: f64 = 8.0;
/// Degrees of freedom of a spread that is assumed: how much a figure differs from run to run is itself different from metric to metric.
const ASSUMED_VARIANCE_DEGREES: f64 = 2.5;
/// Degrees of freedom for each earlier run that a spread was learned from, in addition to one. Simulated in `tests/compare.rs` of `analysis`: with
/// more of them, a few runs that agree by chance make a report cry wolf.
const DEGREES_PER_EARLIER_RUN: f64 = 0.5;
/// Least standard deviation from run to run of the logarithm of a figure: what agreed exactly so far may be a matter of rounding.
const MIN_BETWEEN_RUN_STD: f64 = 0.0005;
/// Minimum figures whose distances show what they have in common.
const MIN_COMMON_FIGURES: usize = 20;

/// A figure of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunFigure {
    /// Its logarithm.
    pub logarithm: f64,
    /// Variance of that which the run's own rounds explain.
    pub within_run: VarianceEstimate,
    /// Number of rounds.
    pub rounds: usize,
}

impl RunFigure {
    /// The median of rounds; `None` with fewer than two, or unless all are positive.
    pub fn from_rounds(rounds: &[f64]) -> Option<Self> {
        let logarithms = logarithms(rounds)?;
        let within_run = within_run_variance(&logarithms)?;
        Some(Self { logarithm: median(rounds).ln(), within_run, rounds: rounds.len() })
    }
}

/// What is known of the spread of the logarithm of a figure from run to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BetweenRunPrior {
    /// Learned from earlier runs.
    Learned {
        /// What they show of this figure, by [`BetweenRunVariance::learn_logarithm`].
        history: BetweenRunVariance,
        /// The standard deviation that is usual among the figures of the machine: a few runs may agree by chance.
        typical_std: f64,
    },
    /// Assumed: its standard deviation.
    Assumed(f64),
}

impl BetweenRunPrior {
    /// The spread of the figure of one run whose rounds explain so much of it.
    fn run_variance(&self, within_run: VarianceEstimate) -> VarianceEstimate {
        let assumed_estimate = |deviation: &f64| VarianceEstimate::new(deviation.powi(2), ASSUMED_VARIANCE_DEGREES);
        let (spread, max_degrees) = match self {
            Self::Learned { history, typical_std: usual } => {
                let pooled = history.pooled_within_run(within_run);
                let max_degrees = (1.0 + DEGREES_PER_EARLIER_RUN * history.runs as f64).min(MAX_BETWEEN_RUN_DEGREES);
                (pooled.plus(pool_variances(assumed_estimate(usual), Some(history.component_estimate()))), max_degrees)
            }
            Self::Assumed(deviation) => (within_run.plus(assumed_estimate(deviation)), MAX_BETWEEN_RUN_DEGREES),
        };
        VarianceEstimate::new(spread.variance.max(MIN_BETWEEN_RUN_STD.powi(2)), spread.degrees.min(max_degrees))
    }
}

/// The typical standard deviation of figures from run to run: the median of theirs. `None` with too few figures.
pub fn typical_between_run_std(histories: &[BetweenRunVariance]) -> Option<f64> {
    let deviations: Vec<f64> = histories.iter().map(|history| history.between.sqrt()).collect();
    (histories.len() >= MIN_COMMON_FIGURES).then(|| median(&deviations))
}

/// The ratio of the medians of the runs of two sides, other over base, as a logarithm; `None` where a side has no run, or all of its
/// runs together have fewer than [`MIN_INTERVAL_ROUNDS`] rounds.
///
/// Where a side has several runs, their own spread is pooled with what is known of it beforehand.
pub fn ratio_of_runs(base: &[RunFigure], other: &[RunFigure], prior: &BetweenRunPrior) -> Option<UncertainValue> {
    let [(base, base_spread), (other, other_spread)] = medians([base, other], prior)?;
    // What is known of the spread from run to run is the same knowledge for both: it counts once.
    let variance = base_spread.variance + other_spread.variance;
    let spread = VarianceEstimate::new(variance, base_spread.degrees.max(other_spread.degrees));
    Some(UncertainValue::from_variance(other - base, spread))
}

/// The medians of the runs of two sides by themselves, as logarithms; `None` where they have no ratio.
pub fn medians_of_runs(
    base: &[RunFigure],
    other: &[RunFigure],
    prior: &BetweenRunPrior,
) -> Option<[UncertainValue; 2]> {
    Some(medians([base, other], prior)?.map(|(logarithm, spread)| UncertainValue::from_variance(logarithm, spread)))
}

/// The median of the runs of each side, and its spread.
fn medians(sides: [&[RunFigure]; 2], prior: &BetweenRunPrior) -> Option<[(f64, VarianceEstimate); 2]> {
    if sides.iter().any(|side| side.iter().map(|run| run.rounds).sum::<usize>() < MIN_INTERVAL_ROUNDS) {
        return None;
    }
    let logarithms = |side: &[RunFigure]| side.iter().map(|run| run.logarithm).collect::<Vec<f64>>();
    // The spread of the runs of both sides around their own side.
    let observed = pooled_variance(sides.map(logarithms));
    let observed = (observed.degrees > 0.0).then_some(observed);
    Some(sides.map(|side| {
        let variances: Vec<f64> = side.iter().map(|run| run.within_run.variance).collect();
        let degrees = side.iter().map(|run| run.within_run.degrees).sum();
        let run = pool_variances(prior.run_variance(VarianceEstimate::new(mean(&variances), degrees)), observed);
        let median_factor = MedianConstants::for_count(side.len()).map_or(1.0, |constants| constants.median_variance);
        (median(&logarithms(side)), VarianceEstimate { variance: run.variance * median_factor, ..run })
    }))
}

/// What was known beforehand and what was seen, each by its degrees of freedom (Smyth 2004).
fn pool_variances(prior: VarianceEstimate, observed: Option<VarianceEstimate>) -> VarianceEstimate {
    let Some(observed) = observed else { return prior };
    let degrees = prior.degrees + observed.degrees;
    VarianceEstimate::new((prior.degrees * prior.variance + observed.degrees * observed.variance) / degrees, degrees)
}

/// How many times too small the errors of many figures are, of which at least half did not change: the median of how strange each is,
/// 1 at least (Devlin and Roeder 1999). What all figures have in common, the state of the machine, makes it larger. 1 with too few
/// figures.
pub fn inflation_factor(statistics: &[f64]) -> f64 {
    if statistics.len() < MIN_COMMON_FIGURES { 1.0 } else { median(statistics).max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::between_run_variance::EarlierRuns;

    const ROUNDS: [f64; 8] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1];

    fn run(factor: f64) -> RunFigure {
        RunFigure::from_rounds(&ROUNDS.map(|round| round * factor)).unwrap()
    }

    fn learned_prior(headlines: &[f64]) -> BetweenRunPrior {
        let variances = vec![0.04; headlines.len()];
        let history = BetweenRunVariance::learn_logarithm(EarlierRuns { headlines, within_run: &variances }).unwrap();
        BetweenRunPrior::Learned { history, typical_std: 0.003 }
    }

    #[test]
    fn known_run_variance_is_no_change() {
        let stable_prior = learned_prior(&[100.0, 100.4, 99.7, 100.1, 99.8, 100.2, 100.3, 99.9]);
        let shifted_prior = learned_prior(&[100.0, 100.4, 99.7, 100.1, 109.8, 110.2, 110.3, 109.9]);
        let ratio = |prior| ratio_of_runs(&[run(1.0)], &[run(1.1)], &prior).unwrap();
        assert!((ratio(stable_prior).value - 1.1f64.ln()).abs() < 1e-12);
        assert!(ratio(stable_prior).p_value(0.0) < 1e-4, "{:?}", ratio(stable_prior));
        assert!(ratio(shifted_prior).p_value(0.0) > 0.1, "{:?}", ratio(shifted_prior));
        // Nothing known: it must be much.
        assert!(ratio(BetweenRunPrior::Assumed(0.025)).p_value(0.0) > 0.01);
    }

    #[test]
    fn side_is_more_certain_than_ratio() {
        let prior = BetweenRunPrior::Assumed(0.025);
        let [base, other] = medians_of_runs(&[run(1.0)], &[run(1.1)], &prior).unwrap();
        let ratio = ratio_of_runs(&[run(1.0)], &[run(1.1)], &prior).unwrap();
        assert_eq!((base.value, other.value - base.value), (100.05f64.ln(), ratio.value));
        let width = |figure: UncertainValue| figure.interval(0.95).1 - figure.interval(0.95).0;
        // Both have the same error, and so the ratio has that times the root of two.
        assert!((width(base) - width(other)).abs() < 1e-12 && (width(ratio) / width(base) - 2f64.sqrt()).abs() < 1e-9);
        assert_eq!(medians_of_runs(&[], &[run(1.0)], &prior), None);
    }

    #[test]
    fn several_runs_per_side_show_variance() {
        let runs = |factors: &[f64]| factors.iter().map(|&factor| run(factor)).collect::<Vec<_>>();
        let prior = BetweenRunPrior::Assumed(0.025);
        let ratio = |base: &[f64], other: &[f64]| ratio_of_runs(&runs(base), &runs(other), &prior).unwrap();
        let single_run = ratio(&[1.0], &[1.1]);
        let stable_ratio = ratio(&[1.0, 1.001, 0.999, 1.0], &[1.1, 1.101, 1.099, 1.1]);
        let unstable = ratio(&[1.0, 1.2, 0.8, 1.0], &[1.1, 1.4, 0.9, 1.1]);
        assert!(stable_ratio.p_value(0.0) < 0.1 * single_run.p_value(0.0), "{stable_ratio:?} {single_run:?}");
        assert!(unstable.p_value(0.0) > 0.2, "{unstable:?}");
    }

    #[test]
    fn unknowable_ratio_is_none() {
        assert_eq!(RunFigure::from_rounds(&[1.0, 0.0, 1.0, 1.0]), None);
        assert_eq!(RunFigure::from_rounds(&[1.0]), None);
        let three_rounds = RunFigure::from_rounds(&[1.0, 1.1, 1.2]).unwrap();
        let prior = BetweenRunPrior::Assumed(0.025);
        assert_eq!(ratio_of_runs(&[three_rounds], &[run(1.0)], &prior), None);
        assert!(ratio_of_runs(&[three_rounds, three_rounds], &[run(1.0)], &prior).is_some());
        assert_eq!(ratio_of_runs(&[], &[run(1.0)], &prior), None);
        assert_eq!(inflation_factor(&[9.0; 19]), 1.0);
        assert_eq!(inflation_factor(&[9.0; 20]), 9.0);
        assert_eq!(inflation_factor(&[0.1; 20]), 1.0);
    }

    #[test]
    fn detectable_effect_found_at_stated_power() {
        let figure = UncertainValue::from_variance(0.0, VarianceEstimate { variance: 1.0, degrees: 1e9 });
        // 1.96 + 0.8416: the usual sum of a test at 5 % and a power of 80 %.
        assert!((figure.detectable_effect(0.05, 0.8) - 2.8016).abs() < 1e-3, "{}", figure.detectable_effect(0.05, 0.8));
        // Twice as far as the error at this level reaches is a quarter of the work.
        let borderline = UncertainValue::from_variance(0.98, VarianceEstimate { variance: 1.0, degrees: 1e9 });
        assert!((borderline.times_to_decide(0.05, &[0.0]) - 4.0).abs() < 1e-3);
    }
}
