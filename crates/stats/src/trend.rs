//! Drift: whether values rise or fall over time, and how fast.

use crate::{median_in_place, normal_cdf};

/// A monotone trend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Change of the value per unit of time: the median of the slopes between all pairs (Theil 1950, Sen 1968).
    pub slope: f64,
    /// Kendall's score: pairs that rise less pairs that fall.
    pub score: f64,
    /// Two-sided p value of the test of Mann (1945) and Kendall: exact up to [`MAX_EXACT_VALUES`] values without ties, else normal
    /// with the correction for ties and for continuity.
    pub p: f64,
}

/// Up to this many values the p value is exact.
pub const MAX_EXACT_VALUES: usize = 60;

/// The trend of `values` over `times`; `None` with fewer than three points, unequal lengths, or no two distinct times.
/// Costs the square of the number of points: thin to a few hundred first.
pub fn trend(times: &[f64], values: &[f64]) -> Option<Trend> {
    if values.len() < 3 || times.len() != values.len() {
        return None;
    }
    let mut slopes = Vec::with_capacity(values.len() * (values.len() - 1) / 2);
    let mut score = 0.0;
    for i in 0..values.len() {
        for j in 0..i {
            let (dt, dv) = (times[i] - times[j], values[i] - values[j]);
            if dt != 0.0 {
                slopes.push(dv / dt);
                score += sign(dv / dt);
            }
        }
    }
    if slopes.is_empty() {
        return None;
    }
    let tied = has_ties(times) || has_ties(values);
    let p = if tied || values.len() > MAX_EXACT_VALUES {
        normal_p_value(score, times, values)
    } else {
        exact_p_value(score, values.len())
    };
    Some(Trend { slope: median_in_place(&mut slopes), score, p })
}

fn sign(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value.signum() }
}

fn has_ties(values: &[f64]) -> bool {
    tie_sizes(values).iter().any(|&size| size > 1.0)
}

/// Sizes of the groups of equal values.
pub(crate) fn tie_sizes(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(|group| group.len() as f64).collect()
}

/// P(|score| at least this) from the number of permutations with each count of inversions.
fn exact_p_value(score: f64, n: usize) -> f64 {
    let pairs = n * (n - 1) / 2;
    let mut chances = vec![1.0];
    for size in 2..=n {
        let mut next = vec![0.0; chances.len() + size - 1];
        for (inversions, chance) in chances.iter().enumerate() {
            for more in 0..size {
                next[inversions + more] += chance / size as f64;
            }
        }
        chances = next;
    }
    let extreme = |inversions: usize| (pairs as f64 - 2.0 * inversions as f64).abs() >= score.abs() - 0.5;
    chances
        .iter()
        .enumerate()
        .filter(|(inversions, _)| extreme(*inversions))
        .map(|(_, chance)| chance)
        .sum::<f64>()
        .min(1.0)
}

/// Normal approximation with ties in either sequence (Kendall 1970).
fn normal_p_value(score: f64, times: &[f64], values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let sums = |ties: &[f64]| {
        let first: f64 = ties.iter().map(|t| t * (t - 1.0) * (2.0 * t + 5.0)).sum();
        let second: f64 = ties.iter().map(|t| t * (t - 1.0) * (t - 2.0)).sum();
        let third: f64 = ties.iter().map(|t| t * (t - 1.0)).sum();
        (first, second, third)
    };
    let (t, v) = (sums(&tie_sizes(times)), sums(&tie_sizes(values)));
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - t.0 - v.0) / 18.0
        + t.1 * v.1 / (9.0 * n * (n - 1.0) * (n - 2.0))
        + t.2 * v.2 / (2.0 * n * (n - 1.0));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (score.abs() - 1.0).max(0.0) / variance.sqrt();
    (2.0 * normal_cdf(-z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trend_at_unit_times(values: &[f64]) -> Trend {
        let times: Vec<f64> = (0..values.len()).map(|i| i as f64).collect();
        trend(&times, values).unwrap()
    }

    #[test]
    fn exact_p_values_are_those_of_kendalls_table() {
        // A perfect order of n has p = 2 / n!.
        assert!((trend_at_unit_times(&[1.0, 2.0, 3.0, 4.0]).p - 2.0 / 24.0).abs() < 1e-12);
        let six = trend_at_unit_times(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        assert!((six.p - 2.0 / 720.0).abs() < 1e-12);
        assert_eq!((six.slope, six.score), (-1.0, -15.0));
        // Kendall's table for n = 5: P(S >= 6) = 0.117, P(S >= 8) = 0.042.
        assert!((trend_at_unit_times(&[1.0, 2.0, 3.0, 5.0, 4.0]).p - 2.0 * 5.0 / 120.0).abs() < 1e-12);
        assert!((trend_at_unit_times(&[1.0, 2.0, 4.0, 5.0, 3.0]).p - 2.0 * 14.0 / 120.0).abs() < 1e-12);
    }

    #[test]
    fn one_outlier_does_not_move_the_slope() {
        let mut values: Vec<f64> = (0..21).map(|i| 3.0 + 0.5 * f64::from(i)).collect();
        values[4] = 1e6;
        let trend = trend_at_unit_times(&values);
        assert!((trend.slope - 0.5).abs() < 1e-12);
        assert!(trend.p < 1e-6);
    }

    #[test]
    fn degenerate_sequences() {
        assert_eq!(trend(&[1.0, 2.0], &[1.0, 2.0]), None);
        assert_eq!(trend(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
        let flat = trend_at_unit_times(&[2.0; 10]);
        assert_eq!((flat.slope, flat.p), (0.0, 1.0));
    }

    #[test]
    fn normal_p_value_approaches_exact() {
        let values: Vec<f64> = (0..40).map(|i| f64::from(i * 17 % 41) + 0.2 * f64::from(i)).collect();
        let times: Vec<f64> = (0..40).map(f64::from).collect();
        let exact = trend(&times, &values).unwrap();
        assert!((exact.p - normal_p_value(exact.score, &times, &values)).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn the_trend_of_a_mirrored_sequence_is_mirrored(values in prop::collection::vec(-100i32..100, 3..30)) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
            let (a, b) = (trend_at_unit_times(&values), trend_at_unit_times(&mirrored));
            prop_assert!((a.slope + b.slope).abs() < 1e-9);
            prop_assert!((a.p - b.p).abs() < 1e-12 && (0.0..=1.0).contains(&a.p));
        }
    }
}
