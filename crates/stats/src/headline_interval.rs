//! The interval of a run's headline: it predicts a repeat of the whole run, from its rounds and earlier runs.
//!
//! The headline of a run is the **median of its rounds' headlines**, each round being a fresh process. Against the mean
//! and the interquartile mean it was chosen by simulation (`examples/coverage.rs` prints the figures): with normal
//! rounds the interquartile mean repeats up to a tenth better, but with one outlier in seven rounds the median repeats
//! a quarter better with 6 rounds, and two outliers of 6 do not move it.
//!
//! Its interval is that of [`UncertainValue::median`]. Where earlier runs are known, it is made of the variance of their headlines, beside which
//! what rounds explain (their Winsorised variance, which an outlier cannot inflate, Tukey and McLaughlin 1963, pooled with that of earlier
//! runs) counts as a guess of it. What rounds do not explain (method of moments of the one-way random model) is added to those of a run that
//! is noisier than the earlier ones, with degrees of freedom after Satterthwaite (1946).

use serde::{Deserialize, Serialize};

use crate::change_points::MIN_LEVEL_VALUES;
use crate::modes::two_states;
use crate::ranks::rank_change_points;
use crate::uncertain_value::UncertainValue;
use crate::{MAD_TO_STD, mad, mean, median, t_quantile, variance};

/// Level of all intervals of headlines.
pub const CONFIDENCE_LEVEL: f64 = 0.95;

/// Rounds from which their Winsorised variance is used: that of five has too few degrees of freedom.
const MIN_WINSORISED_ROUNDS: usize = 6;

/// Maximum earlier runs considered: a machine changes over time.
pub const MAX_HISTORY_RUNS: usize = 20;

/// Minimum earlier runs to learn from: two figures say next to nothing about a variance.
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

/// Half-width of an interval where states of the machine outlast several rounds, over that where none does: as if there were half as
/// many rounds.
const LASTING_STATE_WIDENING: f64 = std::f64::consts::SQRT_2;

/// Standard deviation from run to run of what keeps whole CPUs busy, as a part of the figure, that is assumed until earlier runs show
/// it: the clock of a core on a shared host, the memory that a run gets and what else the host does differ more from run to run than
/// within one. Observed: of 90 kinds of transfers, in three runs within three hours on one machine whose clock was 3.75, 3.86 and
/// 3.92 GHz, an interval held another run's time in 97 % and its CPU time in 98 %; with 1.5 % assumed, in 82 and 90 %.
pub const ASSUMED_BETWEEN_RUN_STD: f64 = 0.025;

/// Like `ASSUMED_BETWEEN_RUN_STD`, of what is timed in short pieces, of which only the clock of the core and what else lasts for a whole run differ between runs.
/// Observed on guests of shared hosts: loops of known cycles differ by 0.4 % (AMD Zen 4) and 0.8 % (Zen 5) from run to run, within a run
/// by less than 0.1 %.
pub const ASSUMED_CLOCK_STD: f64 = 0.005;

/// Like `ASSUMED_CLOCK_STD`, of what is told as found, beside programs on the sibling thread of the core, as a part of how much longer work takes for them on
/// average over a run: a neighbour that works in one run may rest in the next. Observed on a guest of a shared host, whose canary took 23 to
/// 57 % longer on average over a run: from run to run that differed by 12 to 24 % of itself, what is told as found by two thirds of it in the
/// median, and single figures by more.
pub const ASSUMED_NEIGHBOUR_STD: f64 = 0.25;

/// An estimate of a variance and the degrees of freedom behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VarianceEstimate {
    /// The variance.
    pub variance: f64,
    /// Degrees of freedom; need not be whole.
    pub degrees: f64,
}

impl VarianceEstimate {
    /// No spread at all.
    const NONE: Self = Self { variance: 0.0, degrees: f64::INFINITY };

    /// Half-width of the interval at `level` around an estimate with this variance.
    pub fn half_width(&self, level: f64) -> f64 {
        if self.variance == 0.0 {
            return 0.0;
        }
        t_quantile(0.5 + level / 2.0, self.degrees) * self.variance.sqrt()
    }

    /// The spread of a sum or difference of two independent estimates.
    pub fn plus(self, other: Self) -> Self {
        let variance = self.variance + other.variance;
        let degrees = match variance {
            0.0 => self.degrees + other.degrees,
            sum => sum.powi(2) / (self.variance.powi(2) / self.degrees + other.variance.powi(2) / other.degrees),
        };
        Self { variance, degrees }
    }
}

/// What an interval is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadlineIntervalKind {
    /// It covers the headline of a repeated run, at [`CONFIDENCE_LEVEL`].
    Confidence,
    /// Lowest to highest round, and to either side as much as runs are known to differ.
    Range,
}

/// An interval of a headline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadlineInterval {
    /// What it is.
    pub kind: HeadlineIntervalKind,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

/// The headline of a run: the median of its rounds' headlines. 0 for no rounds.
pub fn headline(rounds: &[f64]) -> f64 {
    median(rounds)
}

/// The variance of the headline that the spread between the run's own rounds explains; `None` below two rounds. From
/// six on it is that of the Winsorised rounds, which an outlier cannot inflate; which one it is never depends on
/// the rounds themselves.
pub fn within_run_variance(rounds: &[f64]) -> Option<VarianceEstimate> {
    let constants = MedianConstants::for_count(rounds.len())?;
    let plain =
        VarianceEstimate { variance: variance(rounds) * constants.median_variance, degrees: rounds.len() as f64 - 1.0 };
    if rounds.len() < MIN_WINSORISED_ROUNDS {
        return Some(plain);
    }
    let variance = winsorised_variance(rounds) * constants.winsorised_to_variance * constants.median_variance;
    // A Winsorised variance of zero is the tie of the middle rounds, not the absence of noise.
    let winsorised = VarianceEstimate { variance, degrees: constants.winsorised_degrees };
    Some(if variance > 0.0 { winsorised } else { plain })
}

/// What a run's own rounds do not show of how much runs differ: standard deviations, as parts of the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnobservedVariance {
    /// Assumed until earlier runs show it: [`ASSUMED_CLOCK_STD`], [`ASSUMED_BETWEEN_RUN_STD`], and [`ASSUMED_NEIGHBOUR_STD`], or 0 of what is
    /// counted.
    pub assumed: f64,
    /// Of the frequency of a core that moved during this run: what moves within a run lasts in another one. It counts as far as earlier runs
    /// do not show it, and the less the more of them there are.
    pub frequency: f64,
}

/// How many runs a frequency that moved during one counts as beside earlier ones that agree. Observed on a guest whose core moved by 2 to 5 %
/// within runs: five runs in a row agreed within 0.1 %, the next seven were 7 to 11 % slower.
const MOVED_FREQUENCY_RUNS: f64 = MAX_HISTORY_RUNS as f64;

/// Degrees of freedom of what is assumed of the spread between runs: it is known from a few machines, and not of this figure.
const UNOBSERVED_DEGREES: f64 = 8.0;

impl UnobservedVariance {
    /// What is assumed until earlier runs show it, of a core that keeps its frequency.
    pub fn from_assumed(assumed: f64) -> Self {
        Self { assumed, frequency: 0.0 }
    }

    /// What of it earlier runs do not tell, as the error of this value.
    fn unlearned_variance(self, value: f64, history: Option<&BetweenRunVariance>) -> VarianceEstimate {
        let variance = match history {
            None => (self.frequency.powi(2) + self.assumed.powi(2)) * value.powi(2),
            Some(history) => {
                let left = MOVED_FREQUENCY_RUNS / (MOVED_FREQUENCY_RUNS + history.runs as f64);
                (left * (self.frequency * value).powi(2) - history.component).max(0.0)
            }
        };
        VarianceEstimate { variance, degrees: UNOBSERVED_DEGREES }
    }
}

/// The interval of the headline of these rounds, see [`UncertainValue::median`], and what they do not show; with fewer than [`crate::MIN_INTERVAL_ROUNDS`] their
/// range, with as much to either side as runs are known to differ; `None` with fewer than two.
pub fn headline_interval(
    rounds: &[f64],
    history: Option<&BetweenRunVariance>,
    unseen: UnobservedVariance,
) -> Option<HeadlineInterval> {
    if let Some(figure) = UncertainValue::median(rounds, history) {
        let (lower, upper) =
            figure.with_error(unseen.unlearned_variance(figure.value, history)).interval(CONFIDENCE_LEVEL);
        return Some(HeadlineInterval { kind: HeadlineIntervalKind::Confidence, lower, upper });
    }
    let middle = headline(rounds);
    let between = history.map_or(VarianceEstimate::NONE, |history| VarianceEstimate {
        variance: history.component,
        degrees: history.runs as f64 - 1.0,
    });
    let beyond = between.plus(unseen.unlearned_variance(middle, history)).half_width(CONFIDENCE_LEVEL);
    let lower = middle - (middle - rounds.iter().copied().fold(f64::INFINITY, f64::min)).hypot(beyond);
    let upper = middle + (rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max) - middle).hypot(beyond);
    (rounds.len() > 1).then_some(HeadlineInterval { kind: HeadlineIntervalKind::Range, lower, upper })
}

/// The interval that holds the headline of a repeat of the run, where states of the machine outlast several rounds and so make
/// neighbours alike: [`headline_interval`] widened for both; for the first until earlier runs show the spread between runs. A range stays
/// what it is there.
pub fn repeat_interval(
    rounds: &[f64],
    history: Option<&BetweenRunVariance>,
    unseen: UnobservedVariance,
) -> Option<HeadlineInterval> {
    let Some(figure) = UncertainValue::median(rounds, history) else {
        return headline_interval(rounds, history, unseen);
    };
    let figure = if history.is_some() { figure } else { figure.widened(LASTING_STATE_WIDENING) };
    let figure = figure.with_error(unseen.unlearned_variance(figure.value, history));
    let (lower, upper) = figure.next_run().interval(CONFIDENCE_LEVEL);
    Some(HeadlineInterval { kind: HeadlineIntervalKind::Confidence, lower, upper })
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
    pub fn learn(headlines: &[f64], within: &[f64]) -> Option<Self> {
        let usable = |pair: &(f64, f64)| pair.0.is_finite() && pair.1.is_finite() && pair.1 >= 0.0;
        let mut runs: Vec<(f64, f64)> = headlines.iter().copied().zip(within.iter().copied()).filter(usable).collect();
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
    pub fn learn_logarithm(earlier: EarlierRuns<'_>) -> Option<Self> {
        let usable = |(&headline, &within): (&f64, &f64)| {
            let pair = (headline.ln(), within / headline.powi(2));
            (headline > 0.0 && pair.0.is_finite() && pair.1.is_finite() && pair.1 >= 0.0).then_some(pair)
        };
        let earlier = earlier.take_newest(MAX_HISTORY_RUNS);
        Self::from_runs(earlier.headlines.iter().zip(earlier.within_run).filter_map(usable).collect())
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
        let relative = |headline: &f64, within: &f64| within / headline.powi(2);
        let within: Vec<f64> = pairs
            .map(|((base, other), (of_base, of_other))| relative(base, of_base) + relative(other, of_other))
            .collect();
        let is_bimodal = two_states(&ratios.iter().map(|ratio| ratio.exp()).collect::<Vec<f64>>()).is_some();
        if is_bimodal { None } else { Self::learn(&ratios, &within) }
    }

    /// This spread for headlines times a factor.
    pub fn scaled(self, factor: f64) -> Self {
        let [component, between, within] = [self.component, self.between, self.within].map(|one| one * factor.powi(2));
        Self { component, between, within, ..self }
    }

    /// Whether the rounds of a run scatter clearly more than those of the earlier ones.
    fn is_noisier(&self, own: VarianceEstimate) -> bool {
        own.variance > NOISIER_VARIANCE_RATIO * self.within
    }

    /// What the rounds of this run explain of its headline's variance, pooled with that of earlier runs, which count no more than the
    /// run itself or than 24 degrees of freedom, and not at all if this run is clearly noisier.
    pub(crate) fn pooled_within_run(&self, own: VarianceEstimate) -> VarianceEstimate {
        // Earlier runs had about as many rounds as this one.
        let known = own.degrees * self.runs as f64;
        let lent = if self.is_noisier(own) { 0.0 } else { own.degrees.max(MAX_HISTORY_DEGREES).min(known) };
        let share = own.degrees / (own.degrees + lent);
        VarianceEstimate { variance: share * own.variance + (1.0 - share) * self.within, degrees: own.degrees + lent }
    }

    /// The variance of this run's headline.
    ///
    /// How much the headlines of earlier runs differ is what is asked for; what rounds explain is a guess of it that counts beside it, as in
    /// moderated tests (Smyth 2004), and the less the more runs differ by what no round shows. A run that is clearly noisier has its own
    /// rounds' variance, and beside it what those of earlier ones do not explain.
    pub fn headline_variance(&self, own: VarianceEstimate) -> VarianceEstimate {
        let rounds = self.pooled_within_run(own);
        let degrees = self.runs as f64 - 1.0;
        if self.is_noisier(own) {
            return rounds.plus(VarianceEstimate { variance: self.component, degrees });
        }
        let explained = if self.between > rounds.variance { rounds.variance / self.between } else { 1.0 };
        let guess = BETWEEN_RUN_PRIOR_DEGREES * explained.powi(2);
        let whole = guess + degrees;
        VarianceEstimate { variance: (guess * rounds.variance + degrees * self.between) / whole, degrees: whole }
    }
}

/// Excludes outliers, runs too far from the median of all to be part of the spread: at most a quarter of them. The
/// limit in robust standard deviations widens for few runs, whose scale is uncertain.
fn without_outlier_runs(runs: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let headlines: Vec<f64> = runs.iter().map(|run| run.0).collect();
    let center = median(&headlines);
    let limit = (3.5 + 28.0 / headlines.len().max(1) as f64) * MAD_TO_STD * mad(&headlines);
    let odd = |run: &(f64, f64)| (run.0 - center).abs() > limit;
    let count = runs.iter().filter(|run| odd(run)).count();
    if limit == 0.0 || count * 4 > runs.len() {
        return runs;
    }
    runs.into_iter().filter(|run| !odd(run)).collect()
}

/// Variance after the lowest and highest fifth (rounded down) are moved to their nearest neighbour inside.
fn winsorised_variance(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let moved = values.len() / 5;
    let (low, high) = (sorted[moved], sorted[values.len() - 1 - moved]);
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
        let many = n as f64;
        let &(median_variance, winsorised_to_variance, winsorised_degrees) =
            SIMULATED_CONSTANTS.get(index).unwrap_or(&(pi / (2.0 * many + pi - 2.0), 2.45, 0.465 * many));
        Some(Self { median_variance, winsorised_to_variance, winsorised_degrees })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn few_rounds_give_a_range_or_nothing() {
        assert_eq!(headline_interval(&[], None, UnobservedVariance::default()), None);
        assert_eq!(headline_interval(&[5.0], None, UnobservedVariance::default()), None);
        let range = headline_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::default()).unwrap();
        assert_eq!(range, HeadlineInterval { kind: HeadlineIntervalKind::Range, lower: 5.0, upper: 9.0 });
        // Runs that agree as their rounds let expect add nothing, others what they differ by.
        let history = |within| BetweenRunVariance::learn(&[6.0, 6.2, 5.9, 6.1], &[within; 4]).unwrap();
        let beside =
            |history: &BetweenRunVariance, unseen| headline_interval(&[5.0, 9.0, 6.0], Some(history), unseen).unwrap();
        assert_eq!(beside(&history(0.1), UnobservedVariance::from_assumed(0.1)), range);
        let history = history(0.0);
        let error = 3.182_446 * history.component.sqrt();
        let wider = beside(&history, UnobservedVariance::default());
        assert!((wider.lower - (6.0 - 1.0_f64.hypot(error))).abs() < 1e-6, "{wider:?}");
        assert!((wider.upper - (6.0 + 3.0_f64.hypot(error))).abs() < 1e-6, "{wider:?}");
        let assumed = headline_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::from_assumed(0.1)).unwrap();
        assert!((assumed.upper - (6.0 + 3.0_f64.hypot(2.306_004 * 0.6))).abs() < 1e-6, "{assumed:?}");
        assert_eq!((wider.kind, assumed.kind), (HeadlineIntervalKind::Range, HeadlineIntervalKind::Range));
        assert_eq!(headline_interval(&[5.0], Some(&history), UnobservedVariance::default()), None);
    }

    #[test]
    fn repeat_interval_is_wider_range_is_not() {
        let rounds = [4.0, 1.0, 3.0, 2.0];
        let both = |history| {
            [headline_interval, repeat_interval]
                .map(|interval| interval(&rounds, history, UnobservedVariance::default()).unwrap())
        };
        let [truth, repeat] = both(None);
        let width = |interval: HeadlineInterval| interval.upper - interval.lower;
        assert!((width(repeat) / width(truth) - 2.0).abs() < 1e-12);
        assert!((repeat.upper + repeat.lower - 5.0).abs() < 1e-12);
        let history = BetweenRunVariance::learn(&[2.0, 3.0, 2.5, 2.4], &[0.1; 4]).unwrap();
        let learned = both(Some(&history));
        assert!((width(learned[1]) / width(learned[0]) - std::f64::consts::SQRT_2).abs() < 1e-12);
        assert_eq!(
            repeat_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::from_assumed(0.1)),
            headline_interval(&[5.0, 9.0, 6.0], None, UnobservedVariance::from_assumed(0.1))
        );
        assert_eq!(repeat_interval(&[5.0], None, UnobservedVariance::from_assumed(0.1)), None);
    }

    #[test]
    fn between_run_variance_assumed_without_history() {
        // Rounds that differ by next to nothing, so that the degrees of freedom of what is assumed are those of the whole.
        let rounds: Vec<f64> = (0..20).map(|round| 100.0 + 1e-9 * f64::from(round)).collect();
        let half_width = |interval: HeadlineInterval| (interval.upper - interval.lower) / 2.0;
        let assumed = repeat_interval(&rounds, None, UnobservedVariance::from_assumed(0.015)).unwrap();
        let normal = 2.306_004 * 1.5;
        assert!((half_width(assumed) / (normal * std::f64::consts::SQRT_2) - 1.0).abs() < 1e-5, "{assumed:?}");
        let of_the_truth = headline_interval(&rounds, None, UnobservedVariance::from_assumed(0.015)).unwrap();
        assert!((half_width(of_the_truth) / normal - 1.0).abs() < 1e-5, "{of_the_truth:?}");
        let history = BetweenRunVariance::learn(&[100.0, 100.1, 99.9, 100.05], &[1e-18; 4]).unwrap();
        for interval in [headline_interval, repeat_interval] {
            let with = |unseen: UnobservedVariance| interval(&rounds, Some(&history), unseen).unwrap();
            assert_eq!(with(UnobservedVariance::from_assumed(0.015)), with(UnobservedVariance::default()));
            // What the next run's frequency will be four of them hardly show, until they differ by as much.
            let moving = UnobservedVariance { assumed: 0.015, frequency: 0.05 };
            let left = 0.05 * (20.0_f64 / 24.0).sqrt() * rounds[0];
            assert!(half_width(with(moving)) > 2.3 * left, "{:?}", with(moving));
            let apart = BetweenRunVariance { component: 25.0, between: 25.0, ..history };
            assert_eq!(
                interval(&rounds, Some(&apart), moving),
                interval(&rounds, Some(&apart), UnobservedVariance::default())
            );
        }
    }

    #[test]
    fn equal_rounds_give_zero_width_interval() {
        let interval = headline_interval(&[3.0; 6], None, UnobservedVariance::default()).unwrap();
        assert_eq!((interval.lower, interval.upper), (3.0, 3.0));
    }

    #[test]
    fn between_run_component_matches_moments() {
        let history = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[1.0; 5]).unwrap();
        assert_eq!((history.between, history.within, history.runs), (10.0, 1.0, 5));
        let component = 10.0 - (1.0 + 0.5 * 0.5f64.sqrt());
        assert!((history.component - component).abs() < 1e-12);
        let explained = BetweenRunVariance::learn(&[100.0, 101.0, 99.0], &[4.0; 3]).unwrap();
        assert_eq!(explained.component, 0.0);
        assert_eq!(
            explained.pooled_within_run(VarianceEstimate { variance: 4.0, degrees: 5.0 }),
            VarianceEstimate { variance: 4.0, degrees: 20.0 }
        );
    }

    #[test]
    fn within_and_between_variance_are_pooled() {
        let is = |found: VarianceEstimate, variance: f64, degrees: f64| {
            assert!((found.variance - variance).abs() < 1e-12 && found.degrees == degrees, "{found:?}");
        };
        // Four degrees of freedom of five runs, and eight of rounds where they explain it all; where a tenth, a hundredth of that.
        let differ = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[1.0; 5]).unwrap();
        is(
            differ.headline_variance(VarianceEstimate { variance: 1.0, degrees: 5.0 }),
            (4.0 * 10.0 + 0.08) / 4.08,
            4.08,
        );
        let agree = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[25.0; 5]).unwrap();
        is(
            agree.headline_variance(VarianceEstimate { variance: 25.0, degrees: 5.0 }),
            (4.0 * 10.0 + 8.0 * 25.0) / 12.0,
            12.0,
        );
        let alike = BetweenRunVariance::learn(&[100.0, 104.0, 96.0, 102.0, 98.0], &[10.0; 5]).unwrap();
        is(alike.headline_variance(VarianceEstimate { variance: 10.0, degrees: 5.0 }), 10.0, 12.0);
    }

    #[test]
    fn common_run_differences_cancel_in_ratio() {
        let (machine, own) = ([1.0, 1.4, 0.8, 1.2, 1.1, 0.7], [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]);
        let base = machine.map(|state| 100.0 * state);
        let other: Vec<f64> = base.iter().zip(own).map(|(base, own)| 3.0 * base * own).collect();
        let [base, other] = [&base[..], &other].map(|headlines| EarlierRuns { headlines, within_run: &[1e-6; 6] });
        let learned = BetweenRunVariance::learn_ratio(base, other).unwrap();
        assert!(learned.between < 3e-4 && learned.runs == 6, "{learned:?}");
        let apart = BetweenRunVariance::learn(base.headlines, base.within_run).unwrap();
        assert!(apart.between / 1e4 > 0.05, "{apart:?}");
        // Of different numbers of runs the newest are the same ones.
        let fewer = EarlierRuns { headlines: &base.headlines[1..], within_run: &base.within_run[1..] };
        assert_eq!(BetweenRunVariance::learn_ratio(fewer, other).unwrap().runs, 5);
        assert_eq!(BetweenRunVariance::learn_ratio(base, EarlierRuns::default()), None);
    }

    #[test]
    fn history_ignores_outlier_run_and_old_shift() {
        let mut headlines: Vec<f64> = (0..19).map(|i| 100.0 + f64::from(i * 7 % 5)).collect();
        let clean = BetweenRunVariance::learn(&headlines, &[1.0; 19]).unwrap();
        headlines.insert(9, 500.0);
        let odd = BetweenRunVariance::learn(&headlines, &[1.0; 20]).unwrap();
        assert_eq!((odd.runs, odd.between), (19, clean.between));
        let shifted: Vec<f64> = (0..20).map(|i| f64::from(if i < 10 { 200 } else { 100 } + i * 7 % 5)).collect();
        let after = BetweenRunVariance::learn(&shifted, &[1.0; 20]).unwrap();
        assert_eq!(after.runs, 10);
        assert!(after.between < 4.0, "{}", after.between);
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
