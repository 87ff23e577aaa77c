//! Whether two groups of values differ, and by how much.

use crate::interval::{LEVEL, headline, within_spread};
use crate::trend::tie_sizes;
use crate::{mean, median, median_in_place, normal_cdf, t_quantile, t_upper_tail, variance};

/// The rank test of Mann and Whitney (1947).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// U of the first group: pairs in which its value is the larger, ties counting half.
    pub u: f64,
    /// Two-sided p value: exact without ties where the product of the group sizes is at most [`EXACT_PAIRS`], else
    /// normal with corrections for ties and continuity.
    pub p: f64,
    /// Chance that a value of the second group is larger than one of the first, ties counting half.
    pub superiority: f64,
    /// The second group less the first: median of all differences (Hodges and Lehmann 1963).
    pub shift: f64,
}

/// Product of group sizes up to which the rank test is exact.
pub const EXACT_PAIRS: usize = 900;

/// The Mann-Whitney test of two groups; `None` if one is empty. Costs the product of the sizes.
pub fn rank_test(first: &[f64], second: &[f64]) -> Option<RankTest> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let pairs = (first.len() * second.len()) as f64;
    let mut differences: Vec<f64> = first.iter().flat_map(|a| second.iter().map(move |b| b - a)).collect();
    let u: f64 = differences
        .iter()
        .map(|&d| {
            if d < 0.0 {
                1.0
            } else if d == 0.0 {
                0.5
            } else {
                0.0
            }
        })
        .sum();
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let ties = tie_sizes(&all);
    let exact = ties.iter().all(|&size| size == 1.0) && first.len() * second.len() <= EXACT_PAIRS;
    let p = if exact { exact_p(u, first.len(), second.len()) } else { normal_p(u, first.len(), second.len(), &ties) };
    Some(RankTest { u, p, superiority: 1.0 - u / pairs, shift: median_in_place(&mut differences) })
}

/// P(U as far from its middle) by counting the arrangements of each U (Mann and Whitney's recursion).
fn exact_p(u: f64, n: usize, m: usize) -> f64 {
    // chances[i][u]: chance of u with i values of the first group and j of the second, built up over j.
    let mut chances: Vec<Vec<f64>> = vec![vec![1.0]; n + 1];
    for j in 1..=m {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for i in 1..=n {
            let mut row = vec![0.0; i * j + 1];
            let (from_first, from_second) = (i as f64 / (i + j) as f64, j as f64 / (i + j) as f64);
            // The largest value is from the first group, above all j of the second, or from the second.
            for (below, chance) in next[i - 1].iter().enumerate() {
                row[below + j] += from_first * chance;
            }
            for (below, chance) in chances[i].iter().enumerate() {
                row[below] += from_second * chance;
            }
            next.push(row);
        }
        chances = next;
    }
    let middle = (n * m) as f64 / 2.0;
    let far = |value: usize| (value as f64 - middle).abs() >= (u - middle).abs() - 1e-9;
    chances[n].iter().enumerate().filter(|(value, _)| far(*value)).map(|(_, chance)| chance).sum::<f64>().min(1.0)
}

fn normal_p(u: f64, n: usize, m: usize, ties: &[f64]) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let all = n + m;
    let tied: f64 = ties.iter().map(|t| t.powi(3) - t).sum();
    let variance = n * m / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * normal_cdf(-z)).min(1.0)
}

/// A difference of means with its interval, by Welch's test (1947).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanTest {
    /// Mean of the second group less that of the first.
    pub difference: f64,
    /// Half-width of its 95 % interval.
    pub half_width: f64,
    /// Two-sided p value.
    pub p: f64,
    /// Degrees of freedom.
    pub degrees: f64,
}

/// Welch's test; `None` if a group has fewer than two values. Groups without any spread differ (p 0) or do not (p 1).
pub fn mean_test(first: &[f64], second: &[f64]) -> Option<MeanTest> {
    if first.len() < 2 || second.len() < 2 {
        return None;
    }
    let (a, b) = (variance(first) / first.len() as f64, variance(second) / second.len() as f64);
    let difference = mean(second) - mean(first);
    if a + b == 0.0 {
        let p = if difference == 0.0 { 1.0 } else { 0.0 };
        return Some(MeanTest { difference, half_width: 0.0, p, degrees: (first.len() + second.len() - 2) as f64 });
    }
    let degrees = (a + b).powi(2) / (a.powi(2) / (first.len() - 1) as f64 + b.powi(2) / (second.len() - 1) as f64);
    let error = (a + b).sqrt();
    let p = 2.0 * t_upper_tail((difference / error).abs(), degrees);
    Some(MeanTest { difference, half_width: t_quantile(0.975, degrees) * error, p, degrees })
}

/// A weighted sum of the means of several groups with its interval, by the same approximation (Satterthwaite 1946): an effect in a
/// factorial design. The difference is the sum; `None` if a group has fewer than two values.
pub fn contrast(groups: &[(f64, &[f64])]) -> Option<MeanTest> {
    if groups.iter().any(|(_, values)| values.len() < 2) {
        return None;
    }
    let part = |&(weight, values): &(f64, &[f64])| {
        let error = weight * weight * variance(values) / values.len() as f64;
        (error, error * error / (values.len() - 1) as f64)
    };
    let (errors, squares) = groups.iter().map(part).fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let difference = groups.iter().map(|&(weight, values)| weight * mean(values)).sum();
    if errors == 0.0 {
        let degrees = groups.iter().map(|(_, values)| values.len() as f64 - 1.0).sum();
        return Some(MeanTest { difference, half_width: 0.0, p: if difference == 0.0 { 1.0 } else { 0.0 }, degrees });
    }
    let (degrees, error) = (errors * errors / squares, errors.sqrt());
    let p = 2.0 * t_upper_tail((difference / error).abs(), degrees);
    Some(MeanTest { difference, half_width: t_quantile(0.975, degrees) * error, p, degrees })
}

/// The ratio of the medians of two groups, second over first, with its 95 % interval; `None` without two positive values
/// in each group.
///
/// Computed on logarithms: the ratio's interval is the exponential of Welch's interval around the logarithm of the ratio
/// of medians.
pub fn median_ratio(first: &[f64], second: &[f64]) -> Option<(f64, f64, f64)> {
    if first.iter().chain(second).any(|&value| value <= 0.0) {
        return None;
    }
    let logarithms = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let test = mean_test(&logarithms(first), &logarithms(second))?;
    let ratio = median(second) / median(first);
    Some((ratio, ratio * (-test.half_width).exp(), ratio * test.half_width.exp()))
}

/// The difference of two quantities that were measured in the same passes, second less first: what all cells of a pass have in
/// common cancels. The mean of the differences of passes, by Student's test of them; a pass that only one of the two has is left out.
/// `None` with fewer than two passes.
pub fn paired_difference(first: &[f64], second: &[f64]) -> Option<MeanTest> {
    let differences: Vec<f64> = first.iter().zip(second).map(|(first, second)| second - first).collect();
    contrast(&[(1.0, &differences)])
}

/// The ratio of the same, second over first: the median of the ratios of passes, with an interval at which so many ratios hold jointly
/// with 95 % (Bonferroni). `None` with fewer than two passes, or unless all values are positive.
pub fn paired_ratio(first: &[f64], second: &[f64], of: f64) -> Option<(f64, f64, f64)> {
    if first.iter().chain(second).any(|&value| value <= 0.0) {
        return None;
    }
    let logarithms: Vec<f64> = first.iter().zip(second).map(|(first, second)| (second / first).ln()).collect();
    let half_width = within_spread(&logarithms)?.half_width(1.0 - (1.0 - LEVEL) / of);
    let center = headline(&logarithms);
    Some((center.exp(), (center - half_width).exp(), (center + half_width).exp()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_exact_test_agrees_with_the_published_table() {
        // Groups of 3 fully apart: p = 2 / C(6, 3) = 0.1.
        let apart = rank_test(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert_eq!((apart.u, apart.superiority, apart.shift), (0.0, 1.0, 3.0));
        assert!((apart.p - 0.1).abs() < 1e-12);
        // R: wilcox.test(c(0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46),
        //                c(1.15, 0.88, 0.90, 0.74, 1.21)): W = 35, two-sided p = 0.2544 (Hollander and Wolfe, p. 69).
        let x = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let y = [1.15, 0.88, 0.90, 0.74, 1.21];
        let test = rank_test(&x, &y).unwrap();
        assert_eq!(test.u, 35.0);
        assert!((test.p - 0.254_412_254_412_254_4).abs() < 1e-9, "{}", test.p);
    }

    #[test]
    fn ties_use_the_normal_approximation() {
        let tied = rank_test(&[1.0, 1.0, 1.0, 1.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!((tied.p, tied.superiority, tied.shift), (1.0, 0.5, 0.0));
        assert_eq!(rank_test(&[], &[1.0]), None);
    }

    #[test]
    fn welch_on_known_samples() {
        // R: t.test(sleep$extra[11:20], sleep$extra[1:10]): t = 1.8608, df = 17.776, p = 0.07939.
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let test = mean_test(&first, &second).unwrap();
        assert!((test.difference - 1.58).abs() < 1e-12);
        assert!((test.degrees - 17.776).abs() < 1e-3);
        assert!((test.p - 0.079_39).abs() < 1e-5);
        assert!((test.half_width - (3.365_483 - 1.58)).abs() < 1e-5);
        assert_eq!(mean_test(&[1.0, 1.0], &[1.0, 1.0]).unwrap().p, 1.0);
        assert_eq!(mean_test(&[1.0], &[1.0, 1.0]), None);
    }

    #[test]
    fn a_contrast_of_two_groups_is_their_test_and_one_of_four_an_effect() {
        let groups: [&[f64]; 4] = [&[1.0, 1.2, 0.9], &[2.1, 1.8, 2.0, 2.2], &[3.0, 3.3], &[7.0, 6.6, 7.1]];
        let two = contrast(&[(-1.0, groups[0]), (1.0, groups[1])]).unwrap();
        let welch = mean_test(groups[0], groups[1]).unwrap();
        assert!((two.difference - welch.difference).abs() < 1e-12 && (two.half_width - welch.half_width).abs() < 1e-9);
        assert!((two.p - welch.p).abs() < 1e-12 && (two.degrees - welch.degrees).abs() < 1e-9);
        // Means 31/30, 2.025, 3.15 and 6.9: half of (3.15 + 6.9 - 31/30 - 2.025).
        let weighted = [-0.5, -0.5, 0.5, 0.5].into_iter().zip(groups).collect::<Vec<_>>();
        let effect = contrast(&weighted).unwrap();
        assert!((effect.difference - 3.495_833_333).abs() < 1e-8, "{}", effect.difference);
        assert_eq!(contrast(&[(1.0, &[1.0])]), None);
        assert_eq!(contrast(&[(1.0, &[2.0, 2.0]), (-1.0, &[2.0, 2.0])]).unwrap().p, 1.0);
    }

    #[test]
    fn ratios_of_medians() {
        let (ratio, low, high) = median_ratio(&[10.0, 10.1, 9.9], &[20.0, 20.4, 19.6]).unwrap();
        assert!((ratio - 2.0).abs() < 1e-12 && low < 2.0 && high > 2.0 && high < 2.2);
        assert_eq!(median_ratio(&[0.0, 1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn what_the_values_of_a_pass_share_cancels_in_pairs() {
        // R: t.test(sleep$extra[11:20], sleep$extra[1:10], paired = TRUE): t = 4.0621, df = 9, p = 0.002833, 0.70 to 2.46.
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let test = paired_difference(&first, &second).unwrap();
        assert!((test.difference - 1.58).abs() < 1e-12 && test.degrees == 9.0);
        assert!((test.p - 0.002_833).abs() < 1e-6 && (test.half_width - (1.58 - 0.700_114_2)).abs() < 1e-6);
        let (shared, noise) = ([100.0, 150.0, 80.0, 120.0], [1.0, 1.02, 0.99, 1.01]);
        let doubled = [0, 1, 2, 3].map(|pass| 2.0 * shared[pass] * noise[pass]);
        let [one, three] = [1.0, 3.0].map(|of| paired_ratio(&shared, &doubled, of).unwrap());
        assert!((one.0 / (2.0 * (1.0f64 * 1.01).sqrt()) - 1.0).abs() < 1e-12 && one.1 > 1.9 && one.2 < 2.1, "{one:?}");
        assert!(three.1 < one.1 && three.2 > one.2);
        assert_eq!(paired_ratio(&shared, &doubled[..1], 1.0), None);
        assert_eq!(paired_ratio(&[1.0, 0.0], &[1.0, 1.0], 1.0), None);
    }

    proptest! {
        #[test]
        fn swapping_the_groups_mirrors_the_test(
            a in prop::collection::vec(-50i32..50, 1..12),
            b in prop::collection::vec(-50i32..50, 1..12),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let (ab, ba) = (rank_test(&a, &b).unwrap(), rank_test(&b, &a).unwrap());
            prop_assert!((ab.p - ba.p).abs() < 1e-12 && (0.0..=1.0).contains(&ab.p));
            prop_assert!((ab.u + ba.u - (a.len() * b.len()) as f64).abs() < 1e-9);
            prop_assert!((ab.shift + ba.shift).abs() < 1e-9);
        }
    }
}
