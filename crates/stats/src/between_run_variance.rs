//! The variance of a headline: within a run from its rounds, and between runs from earlier runs.

use serde::{Deserialize, Serialize};

use crate::change_points::MIN_LEVEL_VALUES;
use crate::modes::two_states;
use crate::ranks::rank_change_points;
use crate::samples::sorted;
use crate::{MAD_TO_STD, VarianceEstimate, mad, mean, median, variance};

/// Level of all intervals of headlines.
pub const CONFIDENCE_LEVEL: f64 = 0.95;

/// Rounds from which their Winsorised variance is used: that of five has too few degrees of freedom.
const MIN_WINSORISED_ROUNDS: usize = 6;

/// Maximum earlier runs considered: a machine changes over time.
pub const MAX_HISTORY_RUNS: usize = 20;

/// Minimum earlier runs to learn from: two figures hardly determine a variance.
pub const MIN_HISTORY_RUNS: usize = 3;

/// Maximum degrees of freedom that earlier runs contribute to the variance within a run of few rounds.
const MAX_HISTORY_DEGREES: f64 = 24.0;

/// Degrees of freedom of what rounds explain, as a guess of the variance among runs. Where runs differ by more, rounds miss something, and the
/// guess counts for less, by the square of the part that they explain. Of 20 runs of 560 figures on an idle guest the variance among runs is
/// one to two times what rounds explain for nearly all; with these the intervals of that series hold its median in 94.5 %, and are narrower by
/// 6 to 7 % than where what rounds do not explain is added to what they do.
const BETWEEN_RUN_PRIOR_DEGREES: f64 = 8.0;

/// A variance this many times the usual one is different: about the 97.5 % point of F with 3 degrees of freedom against
/// many, 1 % with 5.
const NOISIER_VARIANCE_RATIO: f64 = 3.5;

/// The variance of the headline that the spread between the run's own rounds explains; `None` below two rounds. From
/// six on it is that of the Winsorised rounds, which an outlier cannot inflate; which one it is never depends on
/// the rounds themselves.
pub fn within_run_variance(rounds: &[f64]) -> Option<VarianceEstimate> {
    let constants = MedianConstants::for_count(rounds.len())?;
    let sample_estimate =
        VarianceEstimate::new(variance(rounds) * constants.median_variance, rounds.len() as f64 - 1.0);
    if rounds.len() < MIN_WINSORISED_ROUNDS {
        return Some(sample_estimate);
    }
    let variance = winsorised_variance(rounds) * constants.winsorised_to_variance * constants.median_variance;
    // A Winsorised variance of zero is the tie of the middle rounds, not the absence of noise.
    let winsorised = VarianceEstimate::new(variance, constants.winsorised_degrees);
    Some(if variance > 0.0 { winsorised } else { sample_estimate })
}

/// Headlines of earlier runs, oldest first, and the variance of each that its own rounds explained.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EarlierRuns<'a> {
    /// The headlines.
    pub headlines: &'a [f64],
    /// The variances.
    pub within_run: &'a [f64],
}

impl<'a> EarlierRuns<'a> {
    /// The newest runs.
    fn take_newest(self, runs: usize) -> Self {
        let newest = |values: &'a [f64]| &values[values.len().saturating_sub(runs)..];
        Self { headlines: newest(self.headlines), within_run: newest(self.within_run) }
    }
}

/// The spread from run to run, learned from earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BetweenRunVariance {
    /// Variance of a headline between runs that the rounds within a run do not explain; 0 if they explain all.
    pub component: f64,
    /// Variance of the earlier headlines.
    pub between: f64,
    /// Mean variance of those headlines that their own rounds explained.
    pub within: f64,
    /// Number of earlier runs used.
    pub runs: usize,
}

impl BetweenRunVariance {
    /// Learns from earlier headlines, oldest first, and the variances that their own rounds explained.
    ///
    /// Of at most [`MAX_HISTORY_RUNS`] runs those before the last level shift are excluded, and so is a single outlier; with
    /// fewer than [`MIN_HISTORY_RUNS`] left nothing is learned.
    pub fn learn(headlines: &[f64], within_run: &[f64]) -> Option<Self> {
        let is_usable = |pair: &(f64, f64)| pair.0.is_finite() && pair.1.is_finite() && pair.1 >= 0.0;
        let mut runs: Vec<(f64, f64)> =
            headlines.iter().copied().zip(within_run.iter().copied()).filter(is_usable).collect();
        runs.drain(..runs.len().saturating_sub(MAX_HISTORY_RUNS));
        let values: Vec<f64> = runs.iter().map(|run| run.0).collect();
        if let Some(shift) = rank_change_points(&values, MIN_LEVEL_VALUES).last() {
            runs.drain(..shift.index);
        }
        let mut runs = without_outlier_runs(runs);
        // An outlier's own variance would hide the component of all others: none counts more than four times the usual.
        let cap = 4.0 * median(&runs.iter().map(|run| run.1).collect::<Vec<f64>>());
        runs.iter_mut().for_each(|run| run.1 = run.1.min(cap));
        Self::from_runs(runs)
    }

    /// The spread of the logarithm of a figure from run to run, from all earlier runs that are considered: what happened once, between
    /// runs or between rounds, may happen in the next two. Nothing with fewer than [`MIN_HISTORY_RUNS`].
    pub fn learn_logarithm(history: EarlierRuns<'_>) -> Option<Self> {
        let log_pair = |(&headline, &variance): (&f64, &f64)| {
            let pair = (headline.ln(), variance / headline.powi(2));
            (headline > 0.0 && pair.0.is_finite() && pair.1.is_finite() && pair.1 >= 0.0).then_some(pair)
        };
        let history = history.take_newest(MAX_HISTORY_RUNS);
        Self::from_runs(history.headlines.iter().zip(history.within_run).filter_map(log_pair).collect())
    }

    /// From headlines, each with the variance that its own rounds explain.
    fn from_runs(runs: Vec<(f64, f64)>) -> Option<Self> {
        if runs.len() < MIN_HISTORY_RUNS {
            return None;
        }
        let (headlines, within): (Vec<f64>, Vec<f64>) = runs.into_iter().unzip();
        let within = mean(&within);
        let between = variance(&headlines);
        // Cut off at zero, the difference of two uncertain variances would on average find a component where there is
        // none; half a standard deviation of the first is taken off for that.
        let margin = 0.5 * (2.0 / (headlines.len() as f64 - 1.0)).sqrt();
        let component = (between - within * (1.0 + margin)).max(0.0);
        Some(Self { component, between, within, runs: headlines.len() })
    }

    /// Learns the spread of the logarithm of a ratio, other over base, of two headlines of the same runs: what differs from run to
    /// run alike in both cancels. Nothing where the ratio is bimodal from run to run.
    pub fn learn_ratio(base: EarlierRuns<'_>, other: EarlierRuns<'_>) -> Option<Self> {
        let runs = base.headlines.len().min(other.headlines.len());
        let [base, other] = [base, other].map(|earlier| earlier.take_newest(runs));
        let pairs = base.headlines.iter().zip(other.headlines);
        let ratios: Vec<f64> = pairs.clone().map(|(base, other)| (other / base).ln()).collect();
        let pairs = pairs.zip(base.within_run.iter().zip(other.within_run));
        let relative = |headline: &f64, variance: &f64| variance / headline.powi(2);
        let relative_variances: Vec<f64> = pairs
            .map(|((base, other), (base_variance, other_variance))| {
                relative(base, base_variance) + relative(other, other_variance)
            })
            .collect();
        let is_bimodal = two_states(&ratios.iter().map(|ratio| ratio.exp()).collect::<Vec<f64>>()).is_some();
        if is_bimodal { None } else { Self::learn(&ratios, &relative_variances) }
    }

    /// This spread for headlines times a factor.
    pub fn scaled(self, factor: f64) -> Self {
        let [component, between, within] =
            [self.component, self.between, self.within].map(|variance| variance * factor.powi(2));
        Self { component, between, within, ..self }
    }

    /// Whether the rounds of a run scatter clearly more than those of the earlier ones.
    fn is_noisier(&self, estimate: VarianceEstimate) -> bool {
        estimate.variance > NOISIER_VARIANCE_RATIO * self.within
    }

    /// The component with its degrees of freedom.
    pub(crate) fn component_estimate(&self) -> VarianceEstimate {
        VarianceEstimate::new(self.component, self.runs as f64 - 1.0)
    }

    /// What the rounds of this run explain of its headline's variance, pooled with that of earlier runs, which count no more than the
    /// run itself or than 24 degrees of freedom, and not at all if this run is clearly noisier.
    pub(crate) fn pooled_within_run(&self, estimate: VarianceEstimate) -> VarianceEstimate {
        // Earlier runs had about as many rounds as this one.
        let history_degrees = estimate.degrees * self.runs as f64;
        let added_degrees = if self.is_noisier(estimate) {
            0.0
        } else {
            estimate.degrees.max(MAX_HISTORY_DEGREES).min(history_degrees)
        };
        let share = estimate.degrees / (estimate.degrees + added_degrees);
        VarianceEstimate::new(share * estimate.variance + (1.0 - share) * self.within, estimate.degrees + added_degrees)
    }

    /// The variance of this run's headline.
    ///
    /// How much the headlines of earlier runs differ is what is asked for; what rounds explain is a guess of it that counts in addition, as in
    /// moderated tests (Smyth 2004), and the less the more runs differ by what no round shows. A run that is clearly noisier has its own
    /// rounds' variance, and in addition what those of earlier ones do not explain.
    pub fn headline_variance(&self, estimate: VarianceEstimate) -> VarianceEstimate {
        let rounds = self.pooled_within_run(estimate);
        if self.is_noisier(estimate) {
            return rounds.plus(self.component_estimate());
        }
        let degrees = self.runs as f64 - 1.0;
        let explained_share = if self.between > rounds.variance { rounds.variance / self.between } else { 1.0 };
        let prior_degrees = BETWEEN_RUN_PRIOR_DEGREES * explained_share.powi(2);
        let total_degrees = prior_degrees + degrees;
        VarianceEstimate::new((prior_degrees * rounds.variance + degrees * self.between) / total_degrees, total_degrees)
    }
}

/// Excludes outliers, runs too far from the median of all to be part of the spread: at most a quarter of them. The
/// limit in robust standard deviations widens for few runs, whose scale is uncertain.
fn without_outlier_runs(runs: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let headlines: Vec<f64> = runs.iter().map(|run| run.0).collect();
    let center = median(&headlines);
    let limit = (3.5 + 28.0 / headlines.len().max(1) as f64) * MAD_TO_STD * mad(&headlines);
    let is_outlier = |run: &(f64, f64)| (run.0 - center).abs() > limit;
    let count = runs.iter().filter(|run| is_outlier(run)).count();
    if limit == 0.0 || count * 4 > runs.len() {
        return runs;
    }
    runs.into_iter().filter(|run| !is_outlier(run)).collect()
}

/// Variance after the lowest and highest fifth (rounded down) are moved to their nearest neighbour inside.
fn winsorised_variance(values: &[f64]) -> f64 {
    let mut sorted = sorted(values);
    let clamped_count = values.len() / 5;
    let (low, high) = (sorted[clamped_count], sorted[values.len() - 1 - clamped_count]);
    for value in &mut sorted {
        *value = value.clamp(low, high);
    }
    variance(&sorted)
}

/// Properties of the median and the Winsorised variance of `n` normal values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MedianConstants {
    /// Variance of the median of standard normal values.
    pub median_variance: f64,
    /// Factor from the Winsorised variance to an estimate of the variance.
    winsorised_to_variance: f64,
    /// Degrees of freedom of the Winsorised variance, from its coefficient of variation.
    winsorised_degrees: f64,
}

/// [`MedianConstants`] for 2 to 30 values, each from a million simulated samples (a test repeats it, coarsely).
const SIMULATED_CONSTANTS: [(f64, f64, f64); 29] = [
    (0.5000, 1.000, 1.00),
    (0.4493, 1.000, 2.00),
    (0.2990, 1.000, 3.00),
    (0.2865, 2.890, 1.60),
    (0.2148, 2.230, 2.50),
    (0.2106, 1.908, 3.42),
    (0.1682, 1.718, 4.37),
    (0.1661, 1.596, 5.33),
    (0.1387, 2.608, 4.00),
    (0.1370, 2.312, 4.89),
    (0.1173, 2.107, 5.82),
    (0.1167, 1.957, 6.73),
    (0.1023, 1.842, 7.67),
    (0.1016, 2.537, 6.34),
    (0.0903, 2.348, 7.27),
    (0.0901, 2.195, 8.19),
    (0.0812, 2.074, 9.10),
    (0.0807, 1.975, 10.04),
    (0.0734, 2.508, 8.72),
    (0.0731, 2.365, 9.64),
    (0.0672, 2.246, 10.56),
    (0.0670, 2.146, 11.50),
    (0.0618, 2.060, 12.39),
    (0.0618, 2.490, 11.12),
    (0.0574, 2.378, 12.01),
    (0.0573, 2.278, 12.93),
    (0.0534, 2.192, 13.86),
    (0.0534, 2.116, 14.80),
    (0.0500, 2.482, 13.52),
];

impl MedianConstants {
    /// The constants for `n` values, `None` below 2. Above the table: the limits for many values, the variance of the
    /// median as pi / (2 n + pi - 2); all within 3 % of a simulation with 50 and 100 values.
    pub fn for_count(n: usize) -> Option<Self> {
        let index = n.checked_sub(2)?;
        let pi = std::f64::consts::PI;
        let count = n as f64;
        let &(median_variance, winsorised_to_variance, winsorised_degrees) =
            SIMULATED_CONSTANTS.get(index).unwrap_or(&(pi / (2.0 * count + pi - 2.0), 2.45, 0.465 * count));
        Some(Self { median_variance, winsorised_to_variance, winsorised_degrees })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn between_run_component_matches_moments() {
        let history = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[1.0; 5]).unwrap();
        assert_eq!((history.between, history.within, history.runs), (10.0, 1.0, 5));
        let component = 10.0 - (1.0 + 0.5 * 0.5f64.sqrt());
        assert!((history.component - component).abs() < 1e-12);
        let quiet_history = BetweenRunVariance::learn(&[100.0, 101.0, 99.0], &[4.0; 3]).unwrap();
        assert_eq!(quiet_history.component, 0.0);
        assert_eq!(
            quiet_history.pooled_within_run(VarianceEstimate { variance: 4.0, degrees: 5.0 }),
            VarianceEstimate { variance: 4.0, degrees: 20.0 }
        );
    }

    #[test]
    fn within_and_between_variance_are_pooled() {
        let assert_estimate = |estimate: VarianceEstimate, variance: f64, degrees: f64| {
            assert!((estimate.variance - variance).abs() < 1e-12 && estimate.degrees == degrees, "{estimate:?}");
        };
        // Four degrees of freedom of five runs, and eight of rounds where they explain it all; where a tenth, a hundredth of that.
        let differ = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[1.0; 5]).unwrap();
        assert_estimate(
            differ.headline_variance(VarianceEstimate { variance: 1.0, degrees: 5.0 }),
            (4.0 * 10.0 + 0.08) / 4.08,
            4.08,
        );
        let agree = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[25.0; 5]).unwrap();
        assert_estimate(
            agree.headline_variance(VarianceEstimate { variance: 25.0, degrees: 5.0 }),
            (4.0 * 10.0 + 8.0 * 25.0) / 12.0,
            12.0,
        );
        let equal = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[10.0; 5]).unwrap();
        assert_estimate(equal.headline_variance(VarianceEstimate { variance: 10.0, degrees: 5.0 }), 10.0, 12.0);
    }

    #[test]
    fn common_run_differences_cancel_in_ratio() {
        let (machine, noise) = ([1.0, 1.4, 0.8, 1.2, 1.1, 0.7], [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]);
        let base = machine.map(|state| 100.0 * state);
        let other: Vec<f64> = base.iter().zip(noise).map(|(base, noise)| 3.0 * base * noise).collect();
        let [base, other] = [&base[..], &other].map(|headlines| EarlierRuns { headlines, within_run: &[1e-6; 6] });
        let ratio_spread = BetweenRunVariance::learn_ratio(base, other).unwrap();
        assert!(ratio_spread.between < 3e-4 && ratio_spread.runs == 6, "{ratio_spread:?}");
        let base_spread = BetweenRunVariance::learn(base.headlines, base.within_run).unwrap();
        assert!(base_spread.between / 1e4 > 0.05, "{base_spread:?}");
        // Of different numbers of runs the newest are the same ones.
        let fewer = EarlierRuns { headlines: &base.headlines[1..], within_run: &base.within_run[1..] };
        assert_eq!(BetweenRunVariance::learn_ratio(fewer, other).unwrap().runs, 5);
        assert_eq!(BetweenRunVariance::learn_ratio(base, EarlierRuns::default()), None);
    }

    #[test]
    fn history_ignores_outlier_run_and_old_shift() {
        let mut headlines: Vec<f64> = (0..19).map(|i| 100.0 + f64::from(i * 7 % 5)).collect();
        let clean_history = BetweenRunVariance::learn(&headlines, &[1.0; 19]).unwrap();
        headlines.insert(9, 500.0);
        let with_outlier = BetweenRunVariance::learn(&headlines, &[1.0; 20]).unwrap();
        assert_eq!((with_outlier.runs, with_outlier.between), (19, clean_history.between));
        let shifted: Vec<f64> = (0..20).map(|i| f64::from(if i < 10 { 200 } else { 100 } + i * 7 % 5)).collect();
        let shifted_history = BetweenRunVariance::learn(&shifted, &[1.0; 20]).unwrap();
        assert_eq!(shifted_history.runs, 10);
        assert!(shifted_history.between < 4.0, "{}", shifted_history.between);
    }

    #[test]
    fn noisier_run_keeps_own_variance() {
        let history = BetweenRunVariance { component: 0.0, between: 1.0, within: 1.0, runs: 20 };
        let noisy = VarianceEstimate { variance: 9.0, degrees: 5.0 };
        assert_eq!(history.headline_variance(noisy), noisy);
    }

    #[test]
    fn insufficient_or_invalid_history_gives_none() {
        assert_eq!(BetweenRunVariance::learn(&[], &[]), None);
        assert_eq!(BetweenRunVariance::learn(&[1.0, 2.0], &[0.1, 0.1]), None);
        assert_eq!(BetweenRunVariance::learn(&[1.0, f64::NAN, 2.0], &[0.1, 0.1, 0.1]), None);
    }

    #[test]
    fn constants_match_simulated_normal_values() {
        let mut random = Random::new(5);
        for n in [3, 5, 6, 10, 20, 50] {
            let draws = if n > 20 { 5_000 } else { 20_000 };
            let samples: Vec<Vec<f64>> = (0..draws).map(|_| (0..n).map(|_| random.normal()).collect()).collect();
            let constants = MedianConstants::for_count(n).unwrap();
            let medians: Vec<f64> = samples.iter().map(|values| median(values)).collect();
            let winsorised: Vec<f64> = samples.iter().map(|values| winsorised_variance(values)).collect();
            let degrees = 2.0 * mean(&winsorised).powi(2) / variance(&winsorised);
            assert!((variance(&medians) / constants.median_variance - 1.0).abs() < 0.08, "{n}");
            assert!((mean(&winsorised) * constants.winsorised_to_variance - 1.0).abs() < 0.06, "{n}");
            assert!((degrees / constants.winsorised_degrees - 1.0).abs() < 0.12, "{n} {degrees}");
        }
    }
}
