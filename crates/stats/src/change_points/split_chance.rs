//! Chances of the splits of a sequence: of one at a known place, and of the best one anywhere.

use super::MIN_LEVEL_VALUES;
use crate::{normal_quantile, t_upper_tail};

/// Numbers that a sum takes one by one: of 1 / sqrt(x), which the sum is like, the midpoint rule is then off by less than one in 10,000.
const EXACT_SUM_TERMS: usize = 32;

/// Steps of the integral over all others: few, since over the logarithm hardly anything bends.
const SUM_INTEGRAL_STEPS: usize = 32;

/// Chance that a split at a known place takes so large a share of the squares, and its correlation with the values: of its t with this many
/// degrees of freedom, smaller by what the variance of a mean is larger.
pub(super) fn known_index_p_value(share: f64, degrees: f64, widening: f64) -> (f64, f64) {
    let ratio = t_squared(share, widening);
    if !ratio.is_finite() {
        return (0.0, 1.0);
    }
    (2.0 * t_upper_tail((ratio * degrees).sqrt(), degrees), (ratio / (1.0 + ratio)).sqrt())
}

/// The square of the t of a split that takes a share of the squares, per degree of freedom.
fn t_squared(share: f64, widening: f64) -> f64 {
    let share = share.clamp(0.0, 1.0);
    share / (1.0 - share) / widening
}

/// How certain a split must be.
pub(super) struct SignificanceBound {
    p_value: f64,
    /// The square of a normal value that is exceeded with this chance, in either direction.
    normal: f64,
}

impl SignificanceBound {
    pub(super) fn new(chance: f64) -> Self {
        Self { p_value: chance, normal: normal_quantile(chance / 2.0).powi(2) }
    }

    /// Whether a split at a known place, which takes so large a share of the squares, is as certain.
    pub(super) fn is_reachable(&self, share: f64, degrees: f64, widening: f64) -> bool {
        // Student's t exceeds any bound more often than a normal value does: what is too likely for that needs no closer look.
        let is_too_likely = t_squared(share, widening) * degrees < self.normal;
        !is_too_likely && known_index_p_value(share, degrees, widening).0 <= self.p_value
    }
}

/// Chance that any split of `n` independent normal values, with at least [`MIN_LEVEL_VALUES`] on either side, has a correlation with the
/// values of at least `r` in either direction, which one of them has with the chance `single_p_value`: the improved inequality of
/// Bonferroni by Worsley (1979, "On the likelihood ratio test for a shift in location of normal populations", JASA 74), which is never too small.
///
/// Values less their mean, scaled to length 1, are a point on a sphere in n - 1 dimensions, and every split is a direction; the part of
/// the sphere near one direction and not near the next one has a closed form up to one integral over the angle between them.
pub(super) fn any_index_p_value(n: usize, r: f64, single_p_value: f64) -> f64 {
    if r >= 1.0 {
        return single_p_value;
    }
    // To the power of (n - 3) / 2, a whole number or one half more: several times as fast as any other power.
    let exponent = i32::try_from((n - 3) / 2).unwrap_or(i32::MAX);
    let has_half = n.is_multiple_of(2);
    let density = |angle: f64| {
        let base = (1.0 - (r / angle.cos()).powi(2)).max(0.0);
        base.powi(exponent) * if has_half { base.sqrt() } else { 1.0 }
    };
    let pair_chance = |before: f64| {
        let after = n as f64 - before;
        let correlation = (before * (after - 1.0) / ((before + 1.0) * after)).sqrt();
        let end = (correlation.clamp(-1.0, 1.0).acos() / 2.0).min(r.acos());
        let steps = if end < 0.1 { 2 } else { 12 };
        simpson(density, end, steps) * std::f64::consts::FRAC_2_PI
    };
    // The angle between a split and the next one is that of their mirror images.
    (single_p_value + symmetric_sum(pair_chance, MIN_LEVEL_VALUES, n - 1 - MIN_LEVEL_VALUES)).min(1.0)
}

/// The sum of a smooth function over the whole numbers from one to another, which is the same on either side of the middle. Beyond the first
/// [`EXACT_SUM_TERMS`] it is the integral whose midpoint rule it is, by Simpson's rule over the logarithm.
fn symmetric_sum(term: impl Fn(f64) -> f64, first: usize, last: usize) -> f64 {
    let twice_middle = first + last;
    let weight = |index: usize| if 2 * index == twice_middle { 1.0 } else { 2.0 };
    let places = (first..first + EXACT_SUM_TERMS).take_while(|&index| 2 * index <= twice_middle);
    let exact_sum: f64 = places.map(|index| weight(index) * term(index as f64)).sum();
    let (start, end) = ((first + EXACT_SUM_TERMS) as f64 - 0.5, twice_middle as f64 / 2.0);
    if end <= start {
        return exact_sum;
    }
    let scaled_term = |logarithm: f64| {
        let position = start * logarithm.exp();
        position * term(position)
    };
    exact_sum + 2.0 * simpson(scaled_term, (end / start).ln(), SUM_INTEGRAL_STEPS)
}

/// The integral from 0 to `end` by Simpson's rule, with an even number of steps.
fn simpson(function: impl Fn(f64) -> f64, end: f64, steps: usize) -> f64 {
    let step = end / steps as f64;
    let weight = |index: usize| match index {
        0 => 1.0,
        _ if index == steps => 1.0,
        _ if index % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=steps).map(|index| weight(index) * function(index as f64 * step)).sum::<f64>() * step / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruning_keeps_significant_splits() {
        for chance in [0.01, 1e-3, 1e-5] {
            let bound = SignificanceBound::new(chance);
            for degrees in [4.0, 10.0, 100.0, 10_000.0] {
                let may_be = |share: f64| {
                    (bound.is_reachable(share, degrees, 1.5), known_index_p_value(share, degrees, 1.5).0 <= chance)
                };
                let comparisons: Vec<(bool, bool)> = (0..=2000).map(|step| may_be(f64::from(step) / 2000.0)).collect();
                assert!(
                    comparisons.iter().all(|(reachable, significant)| reachable == significant),
                    "{chance} {degrees}"
                );
                assert_eq!((comparisons[0].0, comparisons[2000].0), (false, true));
            }
        }
    }

    /// The sum over half of the splits, and whole powers, match the formula.
    #[test]
    fn split_bound_matches_formula() {
        for n in [6_usize, 7, 20, 61, 70, 71, 72, 73, 300, 5000] {
            for r in [0.02_f64, 0.05, 0.2, 0.5, 0.9] {
                let pair_chance = |index: usize| {
                    let (before, after) = (index as f64, (n - index) as f64);
                    let correlation = (before * (after - 1.0) / ((before + 1.0) * after)).sqrt();
                    let end = (correlation.acos() / 2.0).min(r.acos());
                    let density = |angle: f64| (1.0 - (r / angle.cos()).powi(2)).max(0.0).powf((n as f64 - 3.0) / 2.0);
                    simpson(density, end, 200) * std::f64::consts::FRAC_2_PI
                };
                let sum: f64 = (MIN_LEVEL_VALUES..n - MIN_LEVEL_VALUES).map(pair_chance).sum();
                let p_value = any_index_p_value(n, r, 0.0);
                // Beyond one in 10^30 nobody asks for a digit.
                assert!((p_value - sum.min(1.0)).abs() <= 1e-3 * sum.max(1e-30), "{n} {r}: {p_value}, not {sum}");
            }
        }
    }
}
