//! The ratio of a figure in other runs to the same figure in base runs, with what differs from run to run as part of its error.
//!
//! Rounds tell how precise the figure of one run is, not how far the next run of an unchanged machine lies from it. That is learned
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
/// Degrees of freedom for each earlier run that a spread was learned from, beside one. Simulated in `tests/compare.rs` of `analysis`: with
/// more of them, a few runs that agree by chance make a report cry wolf.
const DEGREES_PER_EARLIER_RUN: f64 = 0.5;
/// Least standard deviation from run to run of the logarithm of a figure: what agreed exactly so far may be a matter of rounding.
const MIN_BETWEEN_RUN_STD: f64 = 0.0005;
/// Fewest figures whose distances tell of what they have in common.
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
        let within = within_run_variance(&logarithms)?;
        Some(Self { logarithm: median(rounds).ln(), within_run: within, rounds: rounds.len() })
    }
}

/// What is known of the spread of the logarithm of a figure from run to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BetweenRunPrior {
    /// Learned from earlier runs.
    Learned {
        /// What they tell of this figure, by [`BetweenRunVariance::learn_logarithm`].
        history: BetweenRunVariance,
        /// The standard deviation that is usual among the figures of the machine: a few runs may agree by chance.
        usual: f64,
    },
    /// Assumed: its standard deviation.
    Assumed(f64),
}

impl BetweenRunPrior {
    /// The spread of the figure of one run whose rounds explain so much of it.
    fn run_variance(&self, within: VarianceEstimate) -> VarianceEstimate {
        let assumed = |deviation: &f64| VarianceEstimate::new(deviation.powi(2), ASSUMED_VARIANCE_DEGREES);
        let (spread, max_degrees) = match self {
            Self::Learned { history, usual } => {
                let of_rounds = history.pooled_within_run(within);
                let max_degrees = (1.0 + DEGREES_PER_EARLIER_RUN * history.runs as f64).min(MAX_BETWEEN_RUN_DEGREES);
                (of_rounds.plus(pool_variances(assumed(usual), Some(history.component_estimate()))), max_degrees)
            }
            Self::Assumed(deviation) => (within.plus(assumed(deviation)), MAX_BETWEEN_RUN_DEGREES),
        };
        VarianceEstimate::new(spread.variance.max(MIN_BETWEEN_RUN_STD.powi(2)), spread.degrees.min(max_degrees))
    }
}

/// The standard deviation from run to run that is usual among figures: the median of theirs. `None` with too few figures to tell.
pub fn usual_between_run_std(histories: &[BetweenRunVariance]) -> Option<f64> {
    let deviations: Vec<f64> = histories.iter().map(|history| history.between.sqrt()).collect();
    (histories.len() >= MIN_COMMON_FIGURES).then(|| median(&deviations))
}

/// The ratio of the medians of the runs of two sides, other over base, as a logarithm; `None` where a side has no run, or all of its
/// runs together have fewer than [`MIN_INTERVAL_ROUNDS`] rounds.
///
/// Where a side has several runs, their own spread is pooled with what is known of it beforehand.
pub fn ratio_of_runs(base: &[RunFigure], other: &[RunFigure], between: &BetweenRunPrior) -> Option<UncertainValue> {
    let [(base, of_base), (other, of_other)] = medians([base, other], between)?;
    // What is known of the spread from run to run is the same knowledge for both: it counts once.
    let variance = of_base.variance + of_other.variance;
    let spread = VarianceEstimate::new(variance, of_base.degrees.max(of_other.degrees));
    Some(UncertainValue::from_variance(other - base, spread))
}

/// The medians of the runs of two sides by themselves, as logarithms; `None` where they have no ratio.
pub fn medians_of_runs(
    base: &[RunFigure],
    other: &[RunFigure],
    between: &BetweenRunPrior,
) -> Option<[UncertainValue; 2]> {
    Some(medians([base, other], between)?.map(|(logarithm, spread)| UncertainValue::from_variance(logarithm, spread)))
}

/// The median of the runs of each side, and its spread.
fn medians(sides: [&[RunFigure]; 2], between: &BetweenRunPrior) -> Option<[(f64, VarianceEstimate); 2]> {
    if sides.iter().any(|side| side.iter().map(|run| run.rounds).sum::<usize>() < MIN_INTERVAL_ROUNDS) {
        return None;
    }
    let logarithms = |side: &[RunFigure]| side.iter().map(|run| run.logarithm).collect::<Vec<f64>>();
    // The spread of the runs of both sides around their own side.
    let seen = pooled_variance(sides.map(logarithms));
    let seen = (seen.degrees > 0.0).then_some(seen);
    Some(sides.map(|side| {
        let variances: Vec<f64> = side.iter().map(|run| run.within_run.variance).collect();
        let degrees = side.iter().map(|run| run.within_run.degrees).sum();
        let run = pool_variances(between.run_variance(VarianceEstimate::new(mean(&variances), degrees)), seen);
        let of_median = MedianConstants::for_count(side.len()).map_or(1.0, |constants| constants.median_variance);
        (median(&logarithms(side)), VarianceEstimate { variance: run.variance * of_median, ..run })
    }))
}

/// What was known beforehand and what was seen, each by its degrees of freedom (Smyth 2004).
fn pool_variances(known: VarianceEstimate, seen: Option<VarianceEstimate>) -> VarianceEstimate {
    let Some(seen) = seen else { return known };
    let degrees = known.degrees + seen.degrees;
    VarianceEstimate::new((known.degrees * known.variance + seen.degrees * seen.variance) / degrees, degrees)
}

/// How many times too small the errors of many figures are, of which at least half did not change: the median of how strange each is,
/// 1 at least (Devlin and Roeder 1999). What all figures have in common, the state of the machine, makes it larger. 1 with too few
/// figures to tell.
pub fn inflation_factor(strangeness: &[f64]) -> f64 {
    if strangeness.len() < MIN_COMMON_FIGURES { 1.0 } else { median(strangeness).max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::between_run_variance::EarlierRuns;

    const ROUNDS: [f64; 8] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1];

    fn run(factor: f64) -> RunFigure {
        RunFigure::from_rounds(&ROUNDS.map(|round| round * factor)).unwrap()
    }

    fn learned(headlines: &[f64]) -> BetweenRunPrior {
        let within = vec![0.04; headlines.len()];
        let history = BetweenRunVariance::learn_logarithm(EarlierRuns { headlines, within_run: &within }).unwrap();
        BetweenRunPrior::Learned { history, usual: 0.003 }
    }

    #[test]
    fn known_run_variance_is_no_change() {
        let steady = learned(&[100.0, 100.4, 99.7, 100.1, 99.8, 100.2, 100.3, 99.9]);
        let shifting = learned(&[100.0, 100.4, 99.7, 100.1, 109.8, 110.2, 110.3, 109.9]);
        let ratio = |between| ratio_of_runs(&[run(1.0)], &[run(1.1)], &between).unwrap();
        assert!((ratio(steady).value - 1.1f64.ln()).abs() < 1e-12);
        assert!(ratio(steady).p_value(0.0) < 1e-4, "{:?}", ratio(steady));
        assert!(ratio(shifting).p_value(0.0) > 0.1, "{:?}", ratio(shifting));
        // Nothing known: it must be much.
        assert!(ratio(BetweenRunPrior::Assumed(0.025)).p_value(0.0) > 0.01);
    }

    #[test]
    fn one_side_is_more_certain_than_ratio() {
        let between = BetweenRunPrior::Assumed(0.025);
        let [base, other] = medians_of_runs(&[run(1.0)], &[run(1.1)], &between).unwrap();
        let ratio = ratio_of_runs(&[run(1.0)], &[run(1.1)], &between).unwrap();
        assert_eq!((base.value, other.value - base.value), (100.05f64.ln(), ratio.value));
        let width = |one: UncertainValue| one.interval(0.95).1 - one.interval(0.95).0;
        // Both have the same error, and so the ratio has that times the root of two.
        assert!((width(base) - width(other)).abs() < 1e-12 && (width(ratio) / width(base) - 2f64.sqrt()).abs() < 1e-9);
        assert_eq!(medians_of_runs(&[], &[run(1.0)], &between), None);
    }

    #[test]
    fn several_runs_per_side_show_variance() {
        let of = |factors: &[f64]| factors.iter().map(|&factor| run(factor)).collect::<Vec<_>>();
        let between = BetweenRunPrior::Assumed(0.025);
        let ratio = |base: &[f64], other: &[f64]| ratio_of_runs(&of(base), &of(other), &between).unwrap();
        let alone = ratio(&[1.0], &[1.1]);
        let steady = ratio(&[1.0, 1.001, 0.999, 1.0], &[1.1, 1.101, 1.099, 1.1]);
        let wild = ratio(&[1.0, 1.2, 0.8, 1.0], &[1.1, 1.4, 0.9, 1.1]);
        assert!(steady.p_value(0.0) < 0.1 * alone.p_value(0.0), "{steady:?} {alone:?}");
        assert!(wild.p_value(0.0) > 0.2, "{wild:?}");
    }

    #[test]
    fn unknowable_ratio_is_none() {
        assert_eq!(RunFigure::from_rounds(&[1.0, 0.0, 1.0, 1.0]), None);
        assert_eq!(RunFigure::from_rounds(&[1.0]), None);
        let few = RunFigure::from_rounds(&[1.0, 1.1, 1.2]).unwrap();
        let between = BetweenRunPrior::Assumed(0.025);
        assert_eq!(ratio_of_runs(&[few], &[run(1.0)], &between), None);
        assert!(ratio_of_runs(&[few, few], &[run(1.0)], &between).is_some());
        assert_eq!(ratio_of_runs(&[], &[run(1.0)], &between), None);
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
        let near = UncertainValue::from_variance(0.98, VarianceEstimate { variance: 1.0, degrees: 1e9 });
        assert!((near.times_to_decide(0.05, &[0.0]) - 4.0).abs() < 1e-3);
    }
}
