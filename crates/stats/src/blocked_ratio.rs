//! The ratio of two sides that were measured interleaved, in blocks with as many values of either: of their means, and of their best values.
//!
//! The mean is what somebody pays who does the work many times; it follows every disturbance. A disturbance only makes a value worse, so
//! the best of several values is hardly disturbed where only a part of them is: its ratio is known better on a disturbed machine. It
//! is no summary of a side that has two modes by itself, and of those the mean alone is a fair summary.

use crate::variance_estimate::VarianceEstimate;
use crate::{Cluster, MIN_INTERVAL_ROUNDS, Sorted, UncertainValue, clusters, mean, two_states};

/// A block: the values of the base, and as many of the other.
pub type Block = [Vec<f64>; 2];

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestValue {
    /// The lower one: a time.
    Lowest,
    /// The higher one: a rate.
    Highest,
}

/// What a ratio is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatioEstimator {
    /// The means of all values.
    Means,
    /// The best values of groups of blocks.
    Best,
}

/// The ratio of two sides, other over base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockedRatio {
    /// Its logarithm.
    pub ratio: UncertainValue,
    /// What it is one of.
    pub estimator: RatioEstimator,
}

/// At least this many groups of blocks are compared by their best values, if there are this many blocks.
const MIN_BLOCK_GROUPS: usize = 8;
/// Centres of clusters whose ratio is at least this are modes: less is how a machine is disturbed.
const MIN_MODE_RATIO: f64 = 1.25;
/// The best values may lie in the interval of the means of this level. One of 95 % would by accident refuse them once in twenty, and just then
/// the means are wrong too: simulated, both together covered 91 %.
const MEANS_CHECK_LEVEL: f64 = 0.99;
/// Modes of both sides are the machine's, and not a side's own, if neither their distance nor their shares differ by more.
const MAX_SHARED_MODE_DISTANCE: f64 = 0.1;
const MAX_SHARED_MODE_SHARE_GAP: f64 = 0.25;

/// The modes of the values of a side, the lower one first; none where there is but one.
pub fn find_modes(values: &[f64]) -> Vec<Cluster> {
    if let Some(states) = two_states(values) {
        return vec![states.low, states.high];
    }
    let Some(sorted) = Sorted::new(values.to_vec()) else { return Vec::new() };
    let mut modes = clusters(&sorted, values.len() as f64);
    modes.sort_by(|a, b| a.center.total_cmp(&b.center));
    let are_separate =
        modes.windows(2).any(|pair| pair[0].center > 0.0 && pair[1].center / pair[0].center >= MIN_MODE_RATIO);
    if are_separate { modes } else { Vec::new() }
}

/// The ratio of two sides from their blocks, all values above zero; `None` with fewer than four blocks.
///
/// That of the means, unless that of the best values is known better and lies where the means allow it; never of best values where a
/// side has modes of its own. Without a better direction it is that of the means.
pub fn blocked_ratio(blocks: &[Block], best: Option<BestValue>) -> Option<BlockedRatio> {
    let mean_ratio = ratio_of_means(blocks)?;
    let by_means = BlockedRatio { ratio: mean_ratio, estimator: RatioEstimator::Means };
    let Some(best_ratio) = best.filter(|_| !has_own_modes(blocks)).and_then(|best| ratio_of_best(blocks, best)) else {
        return Some(by_means);
    };
    let width = |ratio: &UncertainValue| {
        let (low, high) = ratio.interval(crate::CONFIDENCE_LEVEL);
        high - low
    };
    let (low, high) = mean_ratio.interval(MEANS_CHECK_LEVEL);
    let is_allowed = (low..=high).contains(&best_ratio.value);
    let is_better = is_allowed && width(&best_ratio) < width(&mean_ratio);
    Some(if is_better { BlockedRatio { ratio: best_ratio, estimator: RatioEstimator::Best } } else { by_means })
}

/// Whether a side has modes that the other has not.
fn has_own_modes(blocks: &[Block]) -> bool {
    let [base, other] = [0, 1].map(|side| find_modes(&side_values(blocks, side)));
    let ([low, high], [other_low, other_high]) = (&base[..], &other[..]) else {
        return !(base.is_empty() && other.is_empty());
    };
    let distance = (high.center / low.center).ln() - (other_high.center / other_low.center).ln();
    distance.abs() > MAX_SHARED_MODE_DISTANCE || (low.share - other_low.share).abs() > MAX_SHARED_MODE_SHARE_GAP
}

fn side_values(blocks: &[Block], side: usize) -> Vec<f64> {
    blocks.iter().flat_map(|block| block[side].iter().copied()).collect()
}

/// The ratio of the means of all values, with the error from leaving out one block at a time (the jackknife of Tukey 1958).
fn ratio_of_means(blocks: &[Block]) -> Option<UncertainValue> {
    let count = blocks.len();
    let sums: Vec<[f64; 2]> = blocks.iter().map(|block| block.each_ref().map(|side| side.iter().sum())).collect();
    let total = sums.iter().fold([0.0; 2], |sum, block| [sum[0] + block[0], sum[1] + block[1]]);
    let log_ratio = |[base, other]: [f64; 2]| (other / base).ln();
    if count < MIN_INTERVAL_ROUNDS || blocks.iter().flatten().flatten().any(|&value| value <= 0.0) {
        return None;
    }
    let jackknife: Vec<f64> = sums.iter().map(|block| log_ratio([total[0] - block[0], total[1] - block[1]])).collect();
    let center = mean(&jackknife);
    let squares: f64 = jackknife.iter().map(|ratio| (ratio - center).powi(2)).sum();
    let spread = VarianceEstimate::new(squares * (count - 1) as f64 / count as f64, (count - 1) as f64);
    Some(UncertainValue::from_variance(log_ratio(total), spread))
}

/// The ratio of the best values: of consecutive blocks in groups, whose number hangs on nothing but the number of blocks.
fn ratio_of_best(blocks: &[Block], best: BestValue) -> Option<UncertainValue> {
    let groups = MIN_BLOCK_GROUPS.max((blocks.len() as f64).sqrt() as usize).min(blocks.len());
    if groups < MIN_INTERVAL_ROUNDS {
        return None;
    }
    let choose_best: fn(f64, f64) -> f64 = if best == BestValue::Lowest { f64::min } else { f64::max };
    let log_ratio = |group: &[Block]| {
        let [base, other] = [0, 1].map(|side| side_values(group, side).into_iter().reduce(choose_best));
        Some((other? / base?).ln())
    };
    let start = |group: usize| group * blocks.len() / groups;
    let ratios: Option<Vec<f64>> =
        (0..groups).map(|group| log_ratio(&blocks[start(group)..start(group + 1)])).collect();
    // Both sides of a group have as many values: their difference is as likely to fall to either side, as Student's interval has it.
    UncertainValue::mean(&ratios?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CONFIDENCE_LEVEL, Random};

    /// How values of both sides come about; the other side is `ratio` times as long.
    #[derive(Clone, Copy, Debug)]
    enum Scenario {
        /// Noise of 1 %.
        Quiet,
        /// Noise of 0.3 %, and 60 % of the values up to half as long again and more.
        Disturbed,
        /// The machine changes by a quarter from stretch to stretch.
        Stretches,
        /// The base takes 3 or 13 by lot, the other always 8.
        Modes,
    }

    impl Scenario {
        /// Blocks, and the logarithm of the ratio of the expected values.
        fn blocks(self, count: usize, ratio: f64, random: &mut Random) -> (Vec<Block>, f64) {
            let mut state = 1.0;
            let mut value = |side: usize| {
                let noise = |random: &mut Random, share: f64| (share * random.normal()).exp();
                let expected = if side == 1 { ratio } else { 1.0 };
                match self {
                    Self::Quiet => expected * noise(random, 0.01),
                    Self::Disturbed if random.uniform() < 0.6 => {
                        expected * noise(random, 0.003) * (1.0 - 0.25 * (1.0 - random.uniform()).ln())
                    }
                    Self::Disturbed => expected * noise(random, 0.003),
                    Self::Stretches => {
                        if random.uniform() < 0.1 {
                            state = if random.uniform() < 0.5 { 1.0 } else { 1.25 };
                        }
                        expected * state * noise(random, 0.003)
                    }
                    Self::Modes if side == 1 => ratio * 8.0 * noise(random, 0.01),
                    Self::Modes => (if random.uniform() < 0.5 { 3.0 } else { 13.0 }) * noise(random, 0.01),
                }
            };
            let mut block = || {
                let [first, second] = [value(0), value(1)];
                let [third, fourth] = [value(1), value(0)];
                [vec![first, fourth], vec![second, third]]
            };
            ((0..count).map(|_| block()).collect(), ratio.ln())
        }
    }

    /// The share of intervals that cover the ratio, and the median of their half-widths.
    fn coverage(scenario: Scenario, blocks: usize, ratio: f64) -> (f64, f64) {
        let (mut random, trials) = (Random::new(5), 1000);
        let (mut covered_count, mut widths) = (0, Vec::new());
        for _ in 0..trials {
            let (blocks, truth) = scenario.blocks(blocks, ratio, &mut random);
            let (low, high) = blocked_ratio(&blocks, Some(BestValue::Lowest)).unwrap().ratio.interval(CONFIDENCE_LEVEL);
            covered_count += usize::from((low..=high).contains(&truth));
            widths.push((high - low) / 2.0);
        }
        (covered_count as f64 / f64::from(trials), crate::median(&widths))
    }

    #[test]
    fn intervals_have_nominal_coverage() {
        for scenario in [Scenario::Quiet, Scenario::Disturbed, Scenario::Stretches, Scenario::Modes] {
            for blocks in [8, 16, 50, 150] {
                for ratio in [1.0, 1.05] {
                    let (covered_share, width) = coverage(scenario, blocks, ratio);
                    assert!(
                        covered_share >= 0.92,
                        "{scenario:?}, {blocks} blocks, {ratio}: {covered_share}, ± {width}"
                    );
                }
            }
        }
    }

    #[test]
    fn disturbed_blocks_use_ratio_of_best() {
        let (_, width) = coverage(Scenario::Disturbed, 50, 1.0);
        assert!(width < 0.005, "± {width}");
        let mut random = Random::new(8);
        let (blocks, _) = Scenario::Disturbed.blocks(50, 1.0, &mut random);
        let (low, high) = ratio_of_means(&blocks).unwrap().interval(CONFIDENCE_LEVEL);
        assert!(high - low > 0.08, "{low} {high}");
    }

    #[test]
    fn side_with_own_modes_uses_means() {
        let mut random = Random::new(3);
        for _ in 0..200 {
            let (blocks, _) = Scenario::Modes.blocks(60, 1.0, &mut random);
            let blocked = blocked_ratio(&blocks, Some(BestValue::Lowest)).unwrap();
            assert_eq!(blocked.estimator, RatioEstimator::Means);
            let modes = find_modes(&side_values(&blocks, 0));
            assert!(modes.len() == 2 && (modes[1].center / modes[0].center - 13.0 / 3.0).abs() < 0.1, "{modes:?}");
            assert!(find_modes(&side_values(&blocks, 1)).is_empty());
        }
    }

    #[test]
    fn ratio_of_means_matches_hand_calculation() {
        let blocks = [[1.0, 2.0], [3.0, 3.0], [2.0, 5.0], [2.0, 2.0]].map(|[base, other]| [vec![base], vec![other]]);
        let ratio = ratio_of_means(&blocks).unwrap();
        assert!((ratio.value - (12.0f64 / 8.0).ln()).abs() < 1e-12);
        let jackknife = [10.0f64 / 7.0, 9.0 / 5.0, 7.0 / 6.0, 10.0 / 6.0].map(f64::ln);
        let center = jackknife.iter().sum::<f64>() / 4.0;
        let error = (0.75 * jackknife.iter().map(|log_ratio| (log_ratio - center).powi(2)).sum::<f64>()).sqrt();
        assert!((ratio.mean_variance().variance.sqrt() - error).abs() < 1e-12);
        assert_eq!(ratio_of_means(&blocks[..3]), None);
        assert_eq!(ratio_of_means(&vec![[vec![1.0], vec![0.0]]; 4]), None);
    }

    #[test]
    fn higher_is_better_for_rates() {
        let blocks: Vec<Block> =
            (0..20).map(|i| [vec![100.0 - f64::from(i % 3)], vec![50.0 - f64::from(i % 3)]]).collect();
        let ratio = ratio_of_best(&blocks, BestValue::Highest).unwrap();
        assert!((ratio.value - 0.5f64.ln()).abs() < 0.02, "{ratio:?}");
    }
}
