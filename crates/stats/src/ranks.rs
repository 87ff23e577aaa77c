//! Statistics by ranks: correlation, drift, and change points at which the level of a sequence shifts for good.

use crate::samples::sorted;
use crate::{Random, median, median_in_place, normal_cdf, t_upper_tail};

/// Ranks from 1; ties get their mean rank.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = start as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|&index| ranks[index] = rank);
        start += group.len();
    }
    ranks
}

/// Spearman's rank correlation and its two-sided p value (from t with n - 2 degrees of freedom, good from about ten
/// points); `None` with fewer than three points, unequal lengths, or one side without any spread.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    if x.len() != y.len() || x.len() < 3 {
        return None;
    }
    let points: Vec<(f64, f64)> = ranks(x).into_iter().zip(ranks(y)).collect();
    let center = (x.len() as f64 + 1.0) / 2.0;
    let sum = |term: fn(f64, f64) -> f64| points.iter().map(|(a, b)| term(a - center, b - center)).sum::<f64>();
    let (xx, yy, xy) = (sum(|a, _| a * a), sum(|_, b| b * b), sum(|a, b| a * b));
    if xx == 0.0 || yy == 0.0 {
        return None;
    }
    let rho = (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0);
    let degrees = x.len() as f64 - 2.0;
    let p = if rho.abs() == 1.0 {
        0.0
    } else {
        2.0 * t_upper_tail((rho.abs()) * (degrees / (1.0 - rho * rho)).sqrt(), degrees)
    };
    Some((rho, p))
}

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
    let has_tied_values = has_ties(times) || has_ties(values);
    let p = if has_tied_values || values.len() > MAX_EXACT_VALUES {
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
    sorted(values).chunk_by(|a, b| a == b).map(|group| group.len() as f64).collect()
}

/// P(|score| at least this) from the number of permutations with each count of inversions.
fn exact_p_value(score: f64, n: usize) -> f64 {
    let pairs = n * (n - 1) / 2;
    let mut chances = vec![1.0];
    for size in 2..=n {
        let mut next = vec![0.0; chances.len() + size - 1];
        for (inversions, chance) in chances.iter().enumerate() {
            for added in 0..size {
                next[inversions + added] += chance / size as f64;
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

/// Probability of a false alarm in a sequence without a change.
const ALPHA: f64 = 0.01;
/// Random orders that a sequence is compared with, and their seed.
const PERMUTATIONS: u32 = 999;
const SEED: u64 = 1;

/// A shift of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankChangePoint {
    /// Index of the first value at the new level.
    pub index: usize,
    /// Median of the segment that ends before it.
    pub before: f64,
    /// Median of the segment that begins with it.
    pub after: f64,
    /// Share of random orders that look at least as much like a shift.
    pub p: f64,
}

/// Change points by binary segmentation (Vostrikova 1981) on ranks, so that an outlier is not a shift, with at least `min_segment`
/// values between two, before the first and after the last. Each split must be more extreme than the best split of all but 1 % of
/// random orders of its segment.
pub fn rank_change_points(values: &[f64], min_segment: usize) -> Vec<RankChangePoint> {
    let mut splits = Vec::new();
    segment(values, 0, min_segment.max(1), &mut Random::new(SEED), &mut splits);
    splits.sort_unstable_by_key(|split| split.0);
    let bounds: Vec<usize> =
        std::iter::once(0).chain(splits.iter().map(|split| split.0)).chain(std::iter::once(values.len())).collect();
    splits
        .iter()
        .enumerate()
        .map(|(i, &(index, p))| RankChangePoint {
            index,
            before: median(&values[bounds[i]..index]),
            after: median(&values[index..bounds[i + 2]]),
            p,
        })
        .collect()
}

fn segment(values: &[f64], offset: usize, min_segment: usize, random: &mut Random, splits: &mut Vec<(usize, f64)>) {
    if values.len() < 2 * min_segment || values.iter().all(|value| *value == values[0]) {
        return;
    }
    let mut ranks = ranks(values);
    let (index, score) = best_split(&ranks, min_segment);
    let max_extreme = (ALPHA * f64::from(PERMUTATIONS + 1)) as u32;
    let mut extreme_count = 1;
    for _ in 0..PERMUTATIONS {
        random.shuffle(&mut ranks);
        extreme_count += u32::from(best_split(&ranks, min_segment).1 >= score * (1.0 - 1e-12));
        if extreme_count > max_extreme {
            return;
        }
    }
    splits.push((offset + index, f64::from(extreme_count) / f64::from(PERMUTATIONS + 1)));
    segment(&values[..index], offset, min_segment, random, splits);
    segment(&values[index..], offset + index, min_segment, random, splits);
}

/// The split with the largest standardised difference of mean ranks: its index and its squared score.
fn best_split(ranks: &[f64], min_segment: usize) -> (usize, f64) {
    let n = ranks.len();
    let mean = (n as f64 + 1.0) / 2.0;
    let mut sum = 0.0;
    let mut best_split = (min_segment, f64::NEG_INFINITY);
    for (index, rank) in ranks.iter().enumerate().take(n - min_segment) {
        sum += rank - mean;
        let split = index + 1;
        let score = sum * sum / (split as f64 * (n - split) as f64);
        if split >= min_segment && score > best_split.1 {
            best_split = (split, score);
        }
    }
    best_split
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation() {
        assert_eq!(ranks(&[10.0, 30.0, 10.0, 20.0]), [1.5, 4.0, 1.5, 3.0]);
        // IQ against hours of television, a much-printed example: rho = -29/165, p = 0.627188.
        let iq = [106.0, 100.0, 86.0, 101.0, 99.0, 103.0, 97.0, 113.0, 112.0, 110.0];
        let hours = [7.0, 27.0, 2.0, 50.0, 28.0, 29.0, 20.0, 12.0, 6.0, 17.0];
        let (rho, p) = spearman(&iq, &hours).unwrap();
        assert!((rho - -29.0 / 165.0).abs() < 1e-12);
        assert!((p - 0.627_188).abs() < 1e-6);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[2.0, 4.0, 9.0]), Some((1.0, 0.0)));
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[2.0, 4.0, 9.0]), None);
        assert_eq!(spearman(&[1.0], &[2.0]), None);
    }
}

#[cfg(test)]
mod trend_tests {
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
    fn outlier_does_not_move_slope() {
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
        let constant_trend = trend_at_unit_times(&[2.0; 10]);
        assert_eq!((constant_trend.slope, constant_trend.p), (0.0, 1.0));
    }

    #[test]
    fn normal_p_value_approaches_exact() {
        let values: Vec<f64> = (0..40).map(|i| f64::from(i * 17 % 41) + 0.2 * f64::from(i)).collect();
        let times: Vec<f64> = (0..40).map(f64::from).collect();
        let result = trend(&times, &values).unwrap();
        assert!((result.p - normal_p_value(result.score, &times, &values)).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn mirrored_sequence_has_mirrored_trend(values in prop::collection::vec(-100i32..100, 3..30)) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
            let (a, b) = (trend_at_unit_times(&values), trend_at_unit_times(&mirrored));
            prop_assert!((a.slope + b.slope).abs() < 1e-9);
            prop_assert!((a.p - b.p).abs() < 1e-12 && (0.0..=1.0).contains(&a.p));
        }
    }
}

#[cfg(test)]
mod rank_change_points_tests {
    use super::*;

    #[test]
    fn nile_flow_has_one_step_in_1899() {
        // Annual flow of the Nile at Aswan 1871-1970 (Cobb 1978); every published analysis finds the change after 1898.
        const NILE: [f64; 100] = [
            1120., 1160., 963., 1210., 1160., 1160., 813., 1230., 1370., 1140., 995., 935., 1110., 994., 1020., 960.,
            1180., 799., 958., 1140., 1100., 1210., 1150., 1250., 1260., 1220., 1030., 1100., 774., 840., 874., 694.,
            940., 833., 701., 916., 692., 1020., 1050., 969., 831., 726., 456., 824., 702., 1120., 1100., 832., 764.,
            821., 768., 845., 864., 862., 698., 845., 744., 796., 1040., 759., 781., 865., 845., 944., 984., 897.,
            822., 1010., 771., 676., 649., 846., 812., 742., 801., 1040., 860., 874., 848., 890., 744., 749., 838.,
            1050., 918., 986., 797., 923., 975., 815., 1020., 906., 901., 1170., 912., 746., 919., 718., 714., 740.,
        ];
        let changes = rank_change_points(&NILE, 3);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].index + 1871, 1899);
        assert!(changes[0].before > 1050.0 && changes[0].after < 860.0);
    }

    #[test]
    fn noise_and_outlier_are_no_changes() {
        let mut random = Random::new(3);
        let alarms = (0..200)
            .filter(|_| {
                let values: Vec<f64> = (0..30).map(|_| random.normal()).collect();
                !rank_change_points(&values, 3).is_empty()
            })
            .count();
        assert!(alarms <= 8, "{alarms} of 200");
        let mut spike: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 5)).collect();
        spike[11] = 1e9;
        assert_eq!(rank_change_points(&spike, 3), []);
    }

    #[test]
    fn several_levels_and_degenerate_sequences() {
        let steps: Vec<f64> = (0..36).map(|i| [10.0, 30.0, 20.0][i / 12] + (i * 7 % 5) as f64 / 10.0).collect();
        let indices: Vec<usize> = rank_change_points(&steps, 3).iter().map(|c| c.index).collect();
        assert_eq!(indices, [12, 24]);
        assert_eq!(rank_change_points(&[], 3), []);
        assert_eq!(rank_change_points(&[1.0; 50], 3), []);
        assert_eq!(rank_change_points(&[1.0, 1.0, 1.0, 2.0, 2.0], 3), []);
    }
}
