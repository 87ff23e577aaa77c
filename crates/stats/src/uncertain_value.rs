//! A figure with its error: the one way from rounds to intervals, differences, ratios and tests.
//!
//! The interval of a median lies between order statistics of the rounds, interpolated to 95 % (Hettmansperger and Sheather 1986). It
//! assumes nothing of their distribution, no outlier moves it where there are eight rounds or more, and with normal rounds it is
//! as narrow as Student's of the same rounds. Each of its sides over a quantile of t is a standard error; differences add the
//! squares of the sides that face each other (Zou and Donner 2008), and tests read the distance to a limit in the error of the
//! side that faces it. `examples/coverage.rs` prints what all of this covers.

use crate::between_run_variance::{BetweenRunVariance, CONFIDENCE_LEVEL, within_run_variance};
use crate::samples::sorted;
use crate::variance_estimate::VarianceEstimate;
use crate::{mean, median, t_quantile, t_upper_tail, variance};

/// Fewest rounds whose median has an error: those of two or three have a range.
pub const MIN_INTERVAL_ROUNDS: usize = 4;

/// The order statistics of fewer than six rounds cover less than 95 %: the range of four (87.5 %) and of five (93.75 %), times this
/// around the median. Simulated with normal, skewed and heavy-tailed rounds.
const RANGE_WIDENING: [f64; 2] = [1.6, 1.12];
/// From this many rounds on the places of the order statistics are those of the normal approximation of the binomial distribution.
const NORMAL_APPROXIMATION_ROUNDS: usize = 200;
/// Part of the mean of both sides in each of them: a side of few rounds may be short by chance alone. Simulated: without it, a
/// chance of 1 in 1000 is one in 200; with much more of it skewed rounds and two modes are covered less.
const SIDE_SHRINKAGE: f64 = 0.3;
/// Degrees of freedom for each round, at least and at most. Simulated: with these a chance of 1 in 100 and of 1 in 1000 is about that,
/// of one median and of the difference of two alike.
const DEGREES_PER_ROUND: f64 = 0.6;
const MIN_DEGREES: f64 = 2.5;
const MAX_DEGREES: f64 = 10.0;

/// A figure with its error, which may differ towards lower and higher values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UncertainValue {
    /// The figure.
    pub value: f64,
    /// Standard error towards lower values.
    lower_error: f64,
    /// Standard error towards higher values.
    upper_error: f64,
    /// Degrees of freedom; need not be whole.
    degrees: f64,
}

impl UncertainValue {
    /// The median of rounds; `None` with fewer than [`MIN_INTERVAL_ROUNDS`]. With history, the variance between runs that the rounds do not
    /// explain is part of the error, and rounds of earlier runs show their spread.
    pub fn median(rounds: &[f64], history: Option<&BetweenRunVariance>) -> Option<Self> {
        if rounds.len() < MIN_INTERVAL_ROUNDS {
            return None;
        }
        let value = median(rounds);
        if let Some(history) = history {
            return Some(Self::from_variance(value, history.headline_variance(within_run_variance(rounds)?)));
        }
        let distances = interval_distances(rounds, value);
        if distances == [0.0, 0.0] {
            // The tie of the middle rounds is not the absence of noise.
            return Some(Self::from_variance(value, within_run_variance(rounds)?));
        }
        let degrees = (DEGREES_PER_ROUND * rounds.len() as f64).clamp(MIN_DEGREES, MAX_DEGREES);
        let mean_distance = SIDE_SHRINKAGE * f64::midpoint(distances[0], distances[1]);
        let error = |side: f64| {
            (mean_distance + (1.0 - SIDE_SHRINKAGE) * side) / t_quantile(0.5 + CONFIDENCE_LEVEL / 2.0, degrees)
        };
        Some(Self { value, lower_error: error(distances[0]), upper_error: error(distances[1]), degrees })
    }

    /// The median of positive rounds, as a logarithm: differences of it are ratios.
    fn log_median(rounds: &[f64]) -> Option<Self> {
        let logarithms = logarithms(rounds)?;
        Some(Self { value: median(rounds).ln(), ..Self::median(&logarithms, None)? })
    }

    /// The mean of values, with Student's error; `None` with fewer than two.
    pub fn mean(values: &[f64]) -> Option<Self> {
        let degrees = values.len().checked_sub(1).filter(|&degrees| degrees > 0)? as f64;
        let spread = VarianceEstimate::new(variance(values) / values.len() as f64, degrees);
        Some(Self::from_variance(mean(values), spread))
    }

    /// A figure with an error that is the same towards both sides.
    pub fn from_variance(value: f64, spread: VarianceEstimate) -> Self {
        let error = spread.variance.sqrt();
        Self { value, lower_error: error, upper_error: error, degrees: spread.degrees }
    }

    /// The mean of both sides.
    pub(crate) fn mean_variance(self) -> VarianceEstimate {
        VarianceEstimate::new(f64::midpoint(self.lower_error.powi(2), self.upper_error.powi(2)), self.degrees)
    }

    /// The figure less another that was measured apart from it.
    pub fn minus(self, other: Self) -> Self {
        let add = |first: f64, other: f64| first.hypot(other);
        let VarianceEstimate { degrees, .. } = self.mean_variance().plus(other.mean_variance());
        Self {
            value: self.value - other.value,
            lower_error: add(self.lower_error, other.upper_error),
            upper_error: add(self.upper_error, other.lower_error),
            degrees,
        }
    }

    /// The figure, and its error, times a positive factor.
    pub fn times(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            lower_error: self.lower_error * factor,
            upper_error: self.upper_error * factor,
            ..self
        }
    }

    /// The figure, and its error, times any factor: one below zero swaps the sides.
    pub fn scaled(self, factor: f64) -> Self {
        let size = self.times(factor.abs());
        if factor < 0.0 {
            Self { value: -size.value, lower_error: size.upper_error, upper_error: size.lower_error, ..size }
        } else {
            size
        }
    }

    /// By how much the other exceeds the base, in their unit: this is the logarithm of the ratio of these two. Both are taken for
    /// equally uncertain shares of themselves.
    pub fn to_difference(self, [base, other]: [f64; 2]) -> Self {
        Self { value: other - base, ..self.times((f64::midpoint(base.powi(2), other.powi(2))).sqrt()) }
    }

    /// What another run as uncertain as this one will measure.
    pub fn next_run(self) -> Self {
        self.widened(std::f64::consts::SQRT_2)
    }

    /// What one more value will be, next to this many of which this is the mean.
    pub fn next_value(self, values: usize) -> Self {
        self.widened((values as f64 + 1.0).sqrt())
    }

    /// With an error of another source too.
    pub(crate) fn with_error(self, error: VarianceEstimate) -> Self {
        let VarianceEstimate { degrees, .. } = self.mean_variance().plus(error);
        let error = error.variance.sqrt();
        Self { lower_error: self.lower_error.hypot(error), upper_error: self.upper_error.hypot(error), degrees, ..self }
    }

    /// With this many times the error.
    pub fn widened(self, times: f64) -> Self {
        Self { lower_error: self.lower_error * times, upper_error: self.upper_error * times, ..self }
    }

    /// Its interval at a level.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        let quantile = t_quantile(0.5 + level / 2.0, self.degrees);
        let side = |error: f64| if error == 0.0 { 0.0 } else { quantile * error };
        (self.value - side(self.lower_error), self.value + side(self.upper_error))
    }

    /// Chance of a figure as far from a limit, to either side, if the truth is the limit.
    pub fn p_value(&self, limit: f64) -> f64 {
        let distance = self.value - limit;
        if distance == 0.0 { 1.0 } else { 2.0 * self.tail_probability(distance) }
    }

    /// Chance of a figure as far inside these bounds if the truth lies outside: the larger of two one-sided tests (Schuirmann 1987).
    pub fn equivalence_p_value(&self, low: f64, high: f64) -> f64 {
        if self.value <= low || self.value >= high {
            return 1.0;
        }
        self.tail_probability(self.value - low).max(self.tail_probability(self.value - high))
    }

    /// The distance of the figure from a limit that has this chance to be found, by a test that finds what has at most the other
    /// chance by accident. The error is taken as it came out: how likely it was to come out so is not part of it.
    pub fn detectable_effect(&self, alpha: f64, power: f64) -> f64 {
        let error = self.mean_variance().variance.sqrt();
        error * (t_quantile(1.0 - alpha / 2.0, self.degrees) + t_quantile(power, self.degrees).max(0.0))
    }

    /// How many times the work would separate the figure from limits that it lies beyond, or between: the errors fall with its root.
    pub fn times_to_decide(&self, alpha: f64, limits: &[f64]) -> f64 {
        let ends = self.interval(1.0 - alpha);
        let times = |limit: &f64| {
            let distance = self.value - limit;
            let half = if distance > 0.0 { self.value - ends.0 } else { ends.1 - self.value };
            (half / distance).powi(2)
        };
        limits.iter().map(times).fold(1.0, f64::max)
    }

    /// The distance from a limit in errors of the side that faces it, over the one that half of all figures exceed where the truth is
    /// the limit; `None` where there is no error.
    pub fn standardised_distance(&self, limit: f64) -> Option<f64> {
        let distance = self.value - limit;
        let error = if distance > 0.0 { self.lower_error } else { self.upper_error };
        (error > 0.0).then(|| distance.abs() / error / t_quantile(0.75, self.degrees))
    }

    /// Chance of a figure at least this far on its side of a limit.
    fn tail_probability(&self, distance: f64) -> f64 {
        let error = if distance > 0.0 { self.lower_error } else { self.upper_error };
        if error == 0.0 { 0.0 } else { t_upper_tail(distance.abs() / error, self.degrees) }
    }
}

/// The ratio of the medians of two groups of rounds, other over base, as a logarithm; `None` unless both have [`MIN_INTERVAL_ROUNDS`], all
/// positive. With history, that of the ratio, the error has what differs from run to run.
pub fn ratio_of_medians(base: &[f64], other: &[f64], history: Option<&BetweenRunVariance>) -> Option<UncertainValue> {
    let ratio = UncertainValue::log_median(other)?.minus(UncertainValue::log_median(base)?);
    let Some(history) = history else { return Some(ratio) };
    let spreads = [base, other].map(|rounds| within_run_variance(&logarithms(rounds)?));
    let spread = spreads[0]?.plus(spreads[1]?);
    Some(UncertainValue::from_variance(ratio.value, history.headline_variance(spread)))
}

/// The ratio of two quantities that were measured in the same passes, second over first, as a logarithm: what both have in common
/// cancels. `None` with fewer than [`MIN_INTERVAL_ROUNDS`] or unless all are positive.
pub fn paired_ratio(pairs: &[[f64; 2]]) -> Option<UncertainValue> {
    let logarithms = logarithms(pairs.as_flattened())?;
    let ratios: Vec<f64> = logarithms.as_chunks().0.iter().map(|[first, second]| second - first).collect();
    UncertainValue::median(&ratios, None)
}

pub(crate) fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|&value| (value > 0.0).then(|| value.ln())).collect()
}

/// Distances of the ends of the 95 % interval from the median.
fn interval_distances(rounds: &[f64], median: f64) -> [f64; 2] {
    let sorted = sorted(rounds);
    let last = sorted.len() - 1;
    if let Some(factor) = RANGE_WIDENING.get(rounds.len() - MIN_INTERVAL_ROUNDS) {
        return [factor * (median - sorted[0]), factor * (sorted[last] - median)];
    }
    let (rank, fraction) = outer_order_statistic(rounds.len());
    let lower = sorted[rank] + fraction * (sorted[rank + 1] - sorted[rank]);
    let upper = sorted[last - rank] + fraction * (sorted[last - rank - 1] - sorted[last - rank]);
    [median - lower, upper - median]
}

/// The outer order statistic of the 95 % interval of a median, from 0, and how far from it to the next one inwards the end lies.
fn outer_order_statistic(rounds: usize) -> (usize, f64) {
    let n = rounds as f64;
    if rounds > NORMAL_APPROXIMATION_ROUNDS {
        let position = n / 2.0 - 0.98 * n.sqrt() - 0.5;
        return (position as usize, position.fract());
    }
    // Chance that the truth lies beyond the k-th order statistic of either side: at most k - 1 heads of n.
    let (mut chance, mut tail) = (0.5f64.powf(n), 0.0);
    for rank in 0..rounds / 2 {
        let coverage = 1.0 - 2.0 * (tail + chance);
        tail += chance;
        chance *= (n - rank as f64) / (rank as f64 + 1.0);
        let next = coverage - 2.0 * chance;
        if next < CONFIDENCE_LEVEL {
            // Interpolated as Hettmansperger and Sheather do, at order k = place + 1.
            let k = rank as f64 + 1.0;
            let share = (coverage - CONFIDENCE_LEVEL) / (coverage - next);
            return (rank, (n - k) * share / (k + (n - 2.0 * k) * share));
        }
    }
    (0, 0.0)
}

/// The level at which this many intervals hold together with [`CONFIDENCE_LEVEL`] (Bonferroni).
pub fn bonferroni_level(intervals: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE_LEVEL) / intervals.max(1) as f64
}

/// How many rounds would decide whether the truth is a limit, or else lies within a margin of it: the errors fall with their root.
/// `None` where the figure lies on the limit and no margin is asked for.
pub fn rounds_to_decide(
    figure: &UncertainValue,
    rounds: usize,
    limit: f64,
    margin: Option<(f64, f64)>,
) -> Option<usize> {
    let times = |limits: &[f64]| figure.times_to_decide(1.0 - CONFIDENCE_LEVEL, limits);
    let difference_factor = times(&[limit]);
    let enclosing = margin.filter(|(low, high)| (low..high).contains(&&figure.value));
    let factor = enclosing.map_or(difference_factor, |(low, high)| times(&[low, high]).min(difference_factor));
    factor.is_finite().then(|| (rounds as f64 * factor).ceil() as usize)
}

/// First distance at which an end of the interval is looked for, and how often it is doubled at most.
const FIRST_SEARCH_DISTANCE: f64 = 1.0 / 64.0;
const MAX_DOUBLINGS: u32 = 40;
/// Halvings after that: the end is then as exact as the number that holds it.
const BISECTION_STEPS: u32 = 60;

/// A share with its interval at [`CONFIDENCE_LEVEL`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareOfChange {
    /// The share.
    pub value: f64,
    /// Its interval.
    pub interval: (f64, f64),
}

/// The share of the change of a whole that is not one of the rest; `None` unless the whole has changed for certain.
///
/// It is one less the ratio of two uncertain quantities, which has no standard error of its own: its interval holds each share at
/// which the rest may have changed by all that is left of the whole (Fieller 1954). Neither change need be normal; each has its own
/// degrees of freedom. The two are taken for measured apart: where both move together, the interval is wider than it need be.
pub fn share_of_change(total: UncertainValue, rest: UncertainValue) -> Option<ShareOfChange> {
    let is_nonzero = |figure: &UncertainValue| {
        let (low, high) = figure.interval(CONFIDENCE_LEVEL);
        low > 0.0 || high < 0.0
    };
    if !is_nonzero(&total) {
        return None;
    }
    let value = 1.0 - rest.value / total.value;
    let is_excluded = |share: f64| is_nonzero(&total.scaled(1.0 - share).minus(rest));
    let end = |direction: f64| {
        let step = |doublings| direction * FIRST_SEARCH_DISTANCE * 2f64.powi(doublings as i32);
        let excluded_step = (0..MAX_DOUBLINGS).map(step).find(|step| is_excluded(value + step))?;
        let (mut inside, mut outside) = (value, value + excluded_step);
        for _ in 0..BISECTION_STEPS {
            let midpoint = f64::midpoint(inside, outside);
            *(if is_excluded(midpoint) { &mut outside } else { &mut inside }) = midpoint;
        }
        Some(outside)
    };
    Some(ShareOfChange { value, interval: (end(-1.0)?, end(1.0)?) })
}

/// Share of false ones among the differences, and among the equivalences, that a report finds: on average, at most.
pub const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// The chances of several tests, corrected for one another: the least share of false discoveries at which each of them still
/// counts (Benjamini and Hochberg 1995), in the order of the tests.
///
/// Valid for independent tests and for those that are positively dependent (Benjamini and Yekutieli 2001); the simulation shows
/// that it holds for the ratios of a report too, which share sides and the state of the machine.
pub fn adjusted_p_values(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_unstable_by(|&first, &second| chances[second].total_cmp(&chances[first]));
    let tests = chances.len() as f64;
    let mut joint = vec![1.0; chances.len()];
    let mut lowest: f64 = 1.0;
    for (rank, &test) in order.iter().enumerate() {
        lowest = lowest.min(chances[test] * tests / (tests - rank as f64));
        joint[test] = lowest;
    }
    joint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_ends_match_sign_test_table() {
        // Hettmansperger and Sheather 1986: of 10 values the 2nd to the 9th cover 97.85 %, the 3rd to the 8th 89.06 %.
        let (rank, fraction) = outer_order_statistic(10);
        let share = (0.978_515_625 - 0.95) / (0.978_515_625 - 0.890_625);
        assert_eq!(rank, 1);
        assert!((fraction - 8.0 * share / (2.0 + 6.0 * share)).abs() < 1e-12, "{fraction}");
        assert_eq!([6, 8, 20].map(|rounds| outer_order_statistic(rounds).0), [0, 0, 5]);
        let ([exact, approximate], end_position) =
            ([200, 201].map(outer_order_statistic), |(rank, fraction): (usize, f64)| rank as f64 + fraction);
        assert!((end_position(exact) - end_position(approximate)).abs() < 1.0, "{exact:?} {approximate:?}");
    }

    #[test]
    fn few_rounds_none_equal_rounds_tiny_error() {
        assert_eq!(UncertainValue::median(&[1.0, 2.0, 3.0], None), None);
        assert_eq!(UncertainValue::median(&[3.0; 6], None).unwrap().interval(CONFIDENCE_LEVEL), (3.0, 3.0));
        assert_eq!(UncertainValue::mean(&[1.0]), None);
        assert_eq!(ratio_of_medians(&[1.0, 2.0, 3.0, 0.0], &[1.0; 4], None), None);
    }

    #[test]
    fn four_rounds_match_hand_calculation() {
        // 1.6 times the range around the median, three tenths of either side being the mean of both.
        let (low, high) = UncertainValue::median(&[4.0, 1.0, 2.0, 3.0], None).unwrap().interval(CONFIDENCE_LEVEL);
        assert!((low - (2.5 - 2.4)).abs() < 1e-9 && (high - (2.5 + 2.4)).abs() < 1e-9, "{low} {high}");
        let (low, high) = UncertainValue::median(&[1.0, 2.0, 3.0, 9.0], None).unwrap().interval(CONFIDENCE_LEVEL);
        let distances = [1.6 * 1.5, 1.6 * 6.5].map(|side| 0.7 * side + 0.3 * 1.6 * 4.0);
        assert!((2.5 - low - distances[0]).abs() < 1e-9 && (high - 2.5 - distances[1]).abs() < 1e-9, "{low} {high}");
    }

    #[test]
    fn outlier_moves_only_its_own_side() {
        let interval_with = |outlier| {
            UncertainValue::median(&[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, outlier], None)
                .unwrap()
                .interval(CONFIDENCE_LEVEL)
        };
        let (mild, wild) = (interval_with(101.5), interval_with(130.0));
        assert!(wild.1 - mild.1 < 2.0 && mild.0 - wild.0 < 0.5, "{mild:?} {wild:?}");
    }

    #[test]
    fn p_value_is_level_of_interval_end() {
        let figure = UncertainValue::median(&[4.0, 1.0, 2.0, 3.0, 7.0, 2.5, 3.5, 1.5], None).unwrap();
        for level in [0.5, 0.95, 0.999] {
            let (low, high) = figure.interval(level);
            assert!((figure.p_value(low) - (1.0 - level)).abs() < 1e-9);
            assert!((figure.p_value(high) - (1.0 - level)).abs() < 1e-9);
        }
        // Inside bounds with 95 % where the interval of 90 % is.
        let (low, high) = figure.interval(0.9);
        assert!((figure.equivalence_p_value(low, high + 1.0) - 0.05).abs() < 1e-9);
        assert_eq!(figure.equivalence_p_value(figure.value, high), 1.0);
        assert_eq!(figure.p_value(figure.value), 1.0);
    }

    #[test]
    fn differences_and_ratios_mirror() {
        let (a, b) = ([10.0, 11.0, 10.5, 9.0, 14.0, 10.2], [20.0, 21.0, 20.5, 26.0, 19.5]);
        let (forward, backward) = (ratio_of_medians(&a, &b, None).unwrap(), ratio_of_medians(&b, &a, None).unwrap());
        assert!(
            (forward.value + backward.value).abs() < 1e-12 && (forward.value - (20.5f64 / 10.35).ln()).abs() < 1e-12
        );
        let (ends, mirrored) = (forward.interval(CONFIDENCE_LEVEL), backward.interval(CONFIDENCE_LEVEL));
        assert!((ends.0 + mirrored.1).abs() < 1e-12 && (ends.1 + mirrored.0).abs() < 1e-12);
        assert!((forward.p_value(0.0) - backward.p_value(0.0)).abs() < 1e-12);
    }

    #[test]
    fn common_part_of_pass_cancels_in_pairs() {
        let (shared, noise) = ([100.0, 150.0, 80.0, 120.0, 200.0], [1.0, 1.02, 0.99, 1.01, 0.995]);
        let pairs: Vec<[f64; 2]> =
            shared.iter().zip(noise).map(|(shared, noise)| [*shared, 2.0 * shared * noise]).collect();
        let (low, high) = paired_ratio(&pairs).unwrap().interval(CONFIDENCE_LEVEL);
        assert!(low.exp() > 1.9 && high.exp() < 2.1 && low < 2f64.ln() && high > 2f64.ln());
        assert_eq!(paired_ratio(&pairs[..3]), None);
        assert_eq!(paired_ratio(&[[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), None);
    }

    #[test]
    fn rounds_to_decide_scales_with_squared_error() {
        let figure = UncertainValue::from_variance(1.0, VarianceEstimate { variance: 1.0, degrees: 1e9 });
        // Half of the interval is 1.96: twice the distance to the limit is four times the rounds.
        assert_eq!(rounds_to_decide(&figure, 8, 1.0 - 0.98, None), Some(32));
        assert_eq!(rounds_to_decide(&figure, 8, 1.0, None), None);
        assert_eq!(rounds_to_decide(&figure, 8, 1.0, Some((0.02, 1.98))), Some(32));
        assert_eq!(rounds_to_decide(&figure, 8, -9.0, None), Some(8));
    }
}

#[cfg(test)]
mod share_of_change_tests {
    use super::*;
    use crate::Random;
    use crate::variance_estimate::VarianceEstimate;

    fn uncertain_with_error(value: f64, error: f64) -> UncertainValue {
        UncertainValue::from_variance(value, VarianceEstimate { variance: error.powi(2), degrees: 1e9 })
    }

    #[test]
    fn fieller_interval_matches_hand_calculation() {
        // The ratio of 20 (error 2) to 100 (error 10), by the closed form with g = (1.96 * 10 / 100)^2.
        let share = share_of_change(uncertain_with_error(100.0, 10.0), uncertain_with_error(20.0, 2.0)).unwrap();
        let z: f64 = 1.959_963_985;
        let (ratio, g) = (0.2, (z * 0.1).powi(2));
        let half = z / 100.0 * (4.0 * (1.0 - g) + ratio * ratio * 100.0).sqrt();
        let ends = [(ratio + half) / (1.0 - g), (ratio - half) / (1.0 - g)].map(|end| 1.0 - end);
        assert!((share.value - 0.8).abs() < 1e-12);
        assert!((share.interval.0 - ends[0]).abs() < 1e-6 && (share.interval.1 - ends[1]).abs() < 1e-6, "{share:?}");
    }

    #[test]
    fn fall_has_same_share_as_rise() {
        let (rise, fall) = (uncertain_with_error(10.0, 1.0), uncertain_with_error(-10.0, 1.0));
        let share = |total, rest| share_of_change(total, rest).unwrap();
        assert_eq!(share(rise, uncertain_with_error(2.0, 0.5)), share(fall, uncertain_with_error(-2.0, 0.5)));
        // What is left went the other way: the part is more than all.
        let opposite = share(rise, uncertain_with_error(-5.0, 0.5));
        assert!(opposite.value == 1.5 && opposite.interval.0 > 1.0 && opposite.interval.1 > 1.5, "{opposite:?}");
        let exact = share(uncertain_with_error(10.0, 0.0), uncertain_with_error(2.0, 0.0));
        assert!((exact.interval.0 - 0.8).abs() < 1e-9 && (exact.interval.1 - 0.8).abs() < 1e-9, "{exact:?}");
    }

    #[test]
    fn undecided_change_has_no_share() {
        assert_eq!(share_of_change(uncertain_with_error(1.0, 1.0), uncertain_with_error(0.5, 0.1)), None);
        assert_eq!(share_of_change(uncertain_with_error(0.0, 0.0), uncertain_with_error(0.5, 0.1)), None);
    }

    #[test]
    fn intervals_cover_share_at_95_percent() {
        let mut random = Random::new(5);
        let (pairs, degrees) = (4000, 8);
        let mut covered = [0; 4];
        for (number, truth) in [0.0, 0.3, 0.9, 1.2].into_iter().enumerate() {
            for _ in 0..pairs {
                // A value with an error that is itself estimated, with this many degrees of freedom.
                let mut draw = |mean: f64| {
                    let square: f64 = (0..degrees).map(|_| random.normal().powi(2)).sum();
                    let spread =
                        VarianceEstimate { variance: square / f64::from(degrees), degrees: f64::from(degrees) };
                    UncertainValue::from_variance(mean + random.normal(), spread)
                };
                let (total, rest) = (draw(12.0), draw(12.0 * (1.0 - truth)));
                let share = share_of_change(total, rest).unwrap();
                covered[number] += u32::from(share.interval.0 <= truth && truth <= share.interval.1);
            }
        }
        let shares = covered.map(|count| f64::from(count) / f64::from(pairs));
        assert!(shares.iter().all(|share| (0.93..=0.98).contains(share)), "{shares:?}");
    }
}

#[cfg(test)]
mod fdr_tests {
    use super::*;

    #[test]
    fn p_values_adjusted_as_published() {
        // Benjamini and Hochberg 1995, section 3.2: of these 15 the first four are rejected at 5 %.
        let chances = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let joint = adjusted_p_values(&chances);
        assert_eq!(joint.iter().filter(|&&chance| chance <= FALSE_DISCOVERY_RATE).count(), 4);
        // R: p.adjust(p, "BH").
        assert!((joint[3] - 0.035_625).abs() < 1e-9 && (joint[4] - 0.0603).abs() < 1e-9, "{joint:?}");
        assert!(joint.windows(2).all(|pair| pair[0] <= pair[1]) && joint[14] == 1.0);
    }

    #[test]
    fn adjustment_ignores_order_and_single_tests() {
        assert_eq!(adjusted_p_values(&[0.03]), [0.03]);
        assert_eq!(adjusted_p_values(&[]), [0.0; 0]);
        let (first, second) = (adjusted_p_values(&[0.01, 0.5, 0.02]), adjusted_p_values(&[0.5, 0.02, 0.01]));
        assert_eq!([first[0], first[1], first[2]], [second[2], second[0], second[1]]);
    }
}
