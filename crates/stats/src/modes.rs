//! Modes of many samples: the dominant one, and whether there is more than one; two states of a few values, one per round or run; and how
//! values change between two modes.

use std::ops::Range;

use crate::distributions::binomial_upper_tail;
use crate::samples::sorted;
use crate::variance_estimate::pooled_variance;
use crate::{MAD_TO_STD, Sorted, mad, median, normal_cdf, variance};

/// The dominant steady state of positive readings: the median of the window [x, x (1 + `relative_width`)] that holds the
/// most readings, and the share that it holds.
///
/// With a fixed relative width the spread of the rest does not matter: neither a slow tail nor a short fast phase moves
/// it, and ties from a coarse clock do no harm. Of equally full windows the tightest counts.
pub fn dominant_mode(sorted: &Sorted, relative_width: f64) -> (f64, f64) {
    let values = sorted.values();
    let (mut best_start, mut best_count, mut best_width) = (0, 0, f64::INFINITY);
    let mut end = 0;
    for (start, &low) in values.iter().enumerate() {
        let limit = low + low.abs() * relative_width;
        while end < values.len() && values[end] <= limit {
            end += 1;
        }
        let (count, width) = (end - start, values[end - 1] - low);
        if count > best_count || (count == best_count && width < best_width) {
            (best_start, best_count, best_width) = (start, count, width);
        }
    }
    mode_of_window(values, best_start..best_start + best_count)
}

/// The median of a window of ascending values, and the share of them that it holds.
fn mode_of_window(values: &[f64], window: Range<usize>) -> (f64, f64) {
    let window_values = &values[window];
    let center = f64::midpoint(window_values[(window_values.len() - 1) / 2], window_values[window_values.len() / 2]);
    (center, window_values.len() as f64 / values.len() as f64)
}

/// The fastest steady state of positive readings: of all windows [x, x (1 + `relative_width`)] that hold at least
/// `min_share` of the readings, three at least, and more than any window that begins up to two widths above, the lowest one's median, and
/// the share that it holds. `None` if no window holds this many.
///
/// If disturbances can only slow a reading down, this is the undisturbed state, even if most readings were disturbed.
pub fn fastest_mode(sorted: &Sorted, relative_width: f64, min_share: f64) -> Option<(f64, f64)> {
    let values = sorted.values();
    let window_end = |start: usize, widths: f64| {
        let limit = values[start] * (1.0 + widths * relative_width);
        values.partition_point(|&value| value <= limit)
    };
    let counts: Vec<usize> = (0..values.len()).map(|start| window_end(start, 1.0) - start).collect();
    let min_count = ((min_share * values.len() as f64).ceil() as usize).max(3);
    let mut start = 0;
    while start < values.len() {
        // The fullest window near this one; a fuller one further up moves the search there.
        let nearby = start..window_end(start, 2.0);
        let fullest = nearby.max_by_key(|&index| (counts[index], std::cmp::Reverse(index)))?;
        if fullest == start && counts[start] >= min_count {
            return Some(mode_of_window(values, start..start + counts[start]));
        }
        start = if fullest > start { fullest } else { start + 1 };
    }
    None
}

/// A cluster of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Its median.
    pub center: f64,
    /// Its share of all values.
    pub share: f64,
    /// Its standard deviation, robustly.
    pub std: f64,
}

/// A cluster is more than a tail only with this share.
const MIN_CLUSTER_SHARE: f64 = 0.1;
/// Neighbouring clusters are distinct only if their centres are more than this many of their standard deviations apart.
const MIN_CLUSTER_SEPARATION_STDS: f64 = 3.0;
/// A valley counts only if its density is below this share of the lower peak's.
const MAX_VALLEY_DENSITY_RATIO: f64 = 0.5;
/// Maximum probability of a valley as deep by chance.
const VALLEY_ALPHA: f64 = 0.002;
/// Fractions of Silverman's bandwidth to try: it suits one mode, and smooths away several distant ones.
const BANDWIDTH_FRACTIONS: [f64; 3] = [1.0, 0.5, 0.25];
/// Maximum values used: quantiles of more.
const MAX_DENSITY_VALUES: usize = 2000;
/// Points of the density's grid.
const DENSITY_GRID_POINTS: usize = 512;
/// Minimum independent samples for more than one mode.
const MIN_EFFECTIVE_SAMPLES: f64 = 10.0;

/// Clusters of the values, largest first; a single one where there is no evidence of more.
///
/// `effective` is the number of independent samples that the values are worth: rounds that merely differ are not modes,
/// since with few independent samples the density is smoothed more and a valley must be emptier.
///
/// A Gaussian kernel density over the logarithms of positive values, so that skew is not mistaken for a second mode;
/// bandwidth of Silverman (1986), and fractions of it where those show more. Peaks without a valley half as deep
/// between them are joined, shares below 10 % are tails, centres must be 3 standard deviations apart, and the emptiness
/// of each valley must pass a one-sided binomial test against the lower of its peaks.
pub fn clusters(sorted: &Sorted, effective: f64) -> Vec<Cluster> {
    let sorted_values = sorted.values();
    let values: Vec<f64> = match sorted_values.len() <= MAX_DENSITY_VALUES {
        true => sorted_values.to_vec(),
        false => (0..MAX_DENSITY_VALUES)
            .map(|i| sorted_values[(2 * i + 1) * sorted_values.len() / (2 * MAX_DENSITY_VALUES)])
            .collect(),
    };
    let effective = effective.min(values.len() as f64);
    let logarithmic = values[0] > 0.0;
    let points: Vec<f64> = values.iter().map(|&value| if logarithmic { value.ln() } else { value }).collect();
    let mut bounds = Vec::new();
    if effective >= MIN_EFFECTIVE_SAMPLES && values[0] < values[values.len() - 1] {
        for fraction in BANDWIDTH_FRACTIONS {
            let split_bounds = cluster_bounds(&values, &points, effective, fraction);
            if split_bounds.len() > bounds.len() {
                bounds = split_bounds;
            }
        }
    }
    let cluster = |members: &[f64]| {
        let share = members.len() as f64 / values.len() as f64;
        Cluster { center: median(members), share, std: robust_std(members) }
    };
    let mut clusters: Vec<Cluster> = split_at_bounds(&values, &points, &bounds).into_iter().map(cluster).collect();
    clusters.sort_by(|a, b| b.share.total_cmp(&a.share));
    clusters
}

/// The bottoms of the valleys between clusters, at this fraction of Silverman's bandwidth.
fn cluster_bounds(values: &[f64], points: &[f64], effective: f64, bandwidth: f64) -> Vec<f64> {
    let Some(density) = KernelDensity::estimate(points, effective, bandwidth) else { return Vec::new() };
    let min_size = (MIN_CLUSTER_SHARE * values.len() as f64).ceil() as usize;
    let mut bounds = density.valleys();
    while !bounds.is_empty() {
        let parts = split_at_bounds(values, points, &bounds);
        let tail = parts.iter().position(|part| part.len() < min_size);
        // A tail is joined with the neighbour whose valley is the less empty.
        let removed_valley = tail.map(|part| match part {
            0 => 0,
            part if part == bounds.len() => part - 1,
            part if density.density_at(bounds[part - 1]) > density.density_at(bounds[part]) => part - 1,
            part => part,
        });
        let removed_valley = removed_valley
            .or_else(|| (0..bounds.len()).find(|&i| !are_separated(parts[i], parts[i + 1])))
            .or_else(|| density.insignificant_valley(points, &bounds, effective));
        match removed_valley {
            Some(valley) => bounds.remove(valley),
            None => break,
        };
    }
    bounds
}

/// From the median absolute deviation, or the moments where half of the values are equal.
fn robust_std(values: &[f64]) -> f64 {
    let scale = MAD_TO_STD * mad(values);
    if scale > 0.0 { scale } else { variance(values).sqrt() }
}

fn are_separated(a: &[f64], b: &[f64]) -> bool {
    let distance = (median(b) - median(a)).abs();
    distance > MIN_CLUSTER_SEPARATION_STDS * f64::midpoint(robust_std(a), robust_std(b))
}

/// The ascending values in parts, cut where the ascending points pass the bounds.
fn split_at_bounds<'a>(values: &'a [f64], points: &[f64], bounds: &[f64]) -> Vec<&'a [f64]> {
    let cuts = bounds.iter().map(|bound| points.partition_point(|point| point <= bound));
    let ends: Vec<usize> = cuts.chain(std::iter::once(values.len())).collect();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| &values[start..end]).collect()
}

/// A kernel density over an even grid.
struct KernelDensity {
    low: f64,
    step: f64,
    bandwidth: f64,
    heights: Vec<f64>,
}

impl KernelDensity {
    /// `None` for points without any spread.
    fn estimate(points: &[f64], effective: f64, fraction: f64) -> Option<Self> {
        let quantile = |share: f64| points[((points.len() - 1) as f64 * share) as usize];
        let quartiles = (quantile(0.75) - quantile(0.25)) / 1.349;
        let std = variance(points).sqrt();
        let scale = if quartiles > 0.0 { quartiles.min(std) } else { std };
        if scale <= 0.0 {
            return None;
        }
        let bandwidth = fraction * 0.9 * scale * effective.powf(-0.2);
        // Far outliers would make the grid too coarse: they are beyond all modes.
        let margin = 3.0 * bandwidth;
        let low = quantile(0.01) - margin;
        let high = quantile(0.99) + margin;
        let step = ((high - low) / (DENSITY_GRID_POINTS - 1) as f64).max(f64::MIN_POSITIVE);
        let heights = gaussian_smoothed(&linear_binned(points, low, step), step / bandwidth);
        Some(Self { low, step, bandwidth, heights })
    }

    fn density_at(&self, point: f64) -> f64 {
        let index = ((point - self.low) / self.step).round().max(0.0) as usize;
        self.heights[index.min(DENSITY_GRID_POINTS - 1)]
    }

    /// The bottoms of all deep enough valleys between peaks, ascending.
    fn valleys(&self) -> Vec<f64> {
        let mut peaks: Vec<usize> = (0..DENSITY_GRID_POINTS).filter(|&i| self.is_peak(i)).collect();
        let bottom =
            |a: usize, b: usize| (a..=b).min_by(|&i, &j| self.heights[i].total_cmp(&self.heights[j])).unwrap_or(a);
        loop {
            // The shallowest valley, relative to the lower of its peaks, goes first.
            let depth = |pair: &[usize]| {
                self.heights[bottom(pair[0], pair[1])] / self.heights[pair[0]].min(self.heights[pair[1]])
            };
            let shallowest = (0..peaks.len().saturating_sub(1))
                .map(|i| (i, depth(&peaks[i..i + 2])))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            match shallowest {
                Some((i, depth)) if depth > MAX_VALLEY_DENSITY_RATIO => {
                    let lower = if self.heights[peaks[i]] < self.heights[peaks[i + 1]] { i } else { i + 1 };
                    peaks.remove(lower);
                }
                _ => break,
            }
        }
        peaks.windows(2).map(|pair| self.low + self.step * bottom(pair[0], pair[1]) as f64).collect()
    }

    fn is_peak(&self, index: usize) -> bool {
        let peak_height = self.heights[index];
        let is_rise = index == 0 || self.heights[index - 1] < peak_height;
        let next_height = self.heights[index + 1..].iter().find(|&&height| height != peak_height);
        peak_height > 0.0 && is_rise && next_height.is_none_or(|&height| height < peak_height)
    }

    /// The first valley that is no emptier than chance would make it: a window of twice the bandwidth around its bottom
    /// holds no fewer points than such a window around the lower peak next to it, by a binomial test.
    fn insignificant_valley(&self, points: &[f64], bounds: &[f64], effective: f64) -> Option<usize> {
        let count = |center: f64| {
            let count_below = |limit: f64| points.partition_point(|&point| point <= limit);
            let window_count = count_below(center + self.bandwidth) - count_below(center - self.bandwidth);
            window_count as f64 * effective / points.len() as f64
        };
        let peak_between = |start: f64, end: f64| {
            let is_inside = |&i: &usize| (start..=end).contains(&(self.low + self.step * i as f64));
            let index =
                (0..DENSITY_GRID_POINTS).filter(is_inside).max_by(|&a, &b| self.heights[a].total_cmp(&self.heights[b]));
            self.low + self.step * index.unwrap_or(0) as f64
        };
        (0..bounds.len()).find(|&i| {
            let before = if i == 0 { f64::NEG_INFINITY } else { bounds[i - 1] };
            let after = bounds.get(i + 1).copied().unwrap_or(f64::INFINITY);
            let (left, right) = (peak_between(before, bounds[i]), peak_between(bounds[i], after));
            let peak = count(left).min(count(right));
            binomial_lower_tail(count(bounds[i]).round(), (count(bounds[i]) + peak).round()) > VALLEY_ALPHA
        })
    }
}

/// Bins smoothed by a Gaussian that is cut off at three deviations; `step` is from one bin to the next, in deviations.
fn gaussian_smoothed(bins: &[f64], step: f64) -> Vec<f64> {
    let kernel: Vec<f64> = (0..DENSITY_GRID_POINTS)
        .map(|i| i as f64 * step)
        .take_while(|z| *z <= 3.0)
        .map(|z| (-z * z / 2.0).exp())
        .collect();
    let mut heights = vec![0.0; DENSITY_GRID_POINTS];
    for (index, weight) in bins.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        heights[index] += weight * kernel[0];
        for (distance, height) in kernel.iter().enumerate().skip(1) {
            if let Some(lower_index) = index.checked_sub(distance) {
                heights[lower_index] += weight * height;
            }
            if index + distance < DENSITY_GRID_POINTS {
                heights[index + distance] += weight * height;
            }
        }
    }
    heights
}

/// How many points fall on each point of the grid, shared by distance between the two next to a point; points beyond the
/// grid are left out.
fn linear_binned(points: &[f64], low: f64, step: f64) -> Vec<f64> {
    let mut bins = vec![0.0; DENSITY_GRID_POINTS];
    for point in points {
        let position = (point - low) / step;
        let index = position.floor();
        if index >= 0.0 && index < (DENSITY_GRID_POINTS - 1) as f64 {
            let (index, fraction) = (index as usize, position - index);
            bins[index] += 1.0 - fraction;
            bins[index + 1] += fraction;
        }
    }
    bins
}

/// P(at most k heads of n fair coins): exact up to 200, normal above.
fn binomial_lower_tail(k: f64, n: f64) -> f64 {
    if n > 200.0 {
        return normal_cdf((k + 0.5 - n / 2.0) / (n / 4.0).sqrt());
    }
    // As many tails, or more, as are left.
    binomial_upper_tail(n as usize, (n - k) as usize, 0.5)
}

/// Minimum values to distinguish two states.
const MIN_BIMODAL_VALUES: usize = 5;
/// Values that make a state: a single one is an outlier.
const MIN_STATE_VALUES: usize = 2;
/// Minimum factor between the centres of the two states: a smaller difference is spread.
const MIN_STATE_RATIO: f64 = 1.5;
/// Distance of the centres in standard deviations within the states, at least, and of the states' nearest values as a
/// multiple of the longer one's reach; both for many values, and more the fewer there are ([`small_sample_factor`]). Simulated with
/// 2000 samples each of normal, uniform, lognormal, heavy-tailed and exponential values, of 5 to 40: that many at most look
/// like two states as the tests allow.
const MIN_STATE_DISTANCE_STDS: f64 = 6.0;
const MIN_STATE_GAP_RATIO: f64 = 1.0;

/// Two states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoStates {
    /// The lower one.
    pub low: Cluster,
    /// The higher one.
    pub high: Cluster,
    /// What lies between them.
    pub bound: f64,
}

impl TwoStates {
    /// The one with more of the values; of two equal ones the lower.
    pub fn dominant(&self) -> Cluster {
        if self.high.share > self.low.share { self.high } else { self.low }
    }

    /// Whether two values are of the same state.
    pub fn is_same_state(&self, a: f64, b: f64) -> bool {
        (a < self.bound) == (b < self.bound)
    }
}

/// Stricter criteria for few values: with five a gap by chance is common.
fn small_sample_factor(values: usize) -> f64 {
    1.0 + 6.0 / values as f64
}

/// The two states of positive values; `None` if there is one, or too few values.
pub fn two_states(values: &[f64]) -> Option<TwoStates> {
    if values.len() < MIN_BIMODAL_VALUES || !values.iter().all(|value| value.is_finite() && *value > 0.0) {
        return None;
    }
    let sorted = sorted(values);
    let logs: Vec<f64> = sorted.iter().map(|value| value.ln()).collect();
    let cuts = MIN_STATE_VALUES..=sorted.len() - MIN_STATE_VALUES;
    let cut = cuts.max_by(|&a, &b| (logs[a] - logs[a - 1]).total_cmp(&(logs[b] - logs[b - 1])))?;
    let (low, high) = logs.split_at(cut);
    let distance = median(high) - median(low);
    let spread = |members: &[f64]| members[members.len() - 1] - members[0];
    let strictness = small_sample_factor(values.len());
    let are_separate = distance >= MIN_STATE_RATIO.ln()
        && distance >= strictness * MIN_STATE_DISTANCE_STDS * pooled_variance([low, high]).variance.sqrt()
        && logs[cut] - logs[cut - 1] >= strictness * MIN_STATE_GAP_RATIO * spread(low).max(spread(high));
    let state = |members: &[f64]| {
        let share = members.len() as f64 / values.len() as f64;
        Cluster { center: median(members), share, std: variance(members).sqrt() }
    };
    let (low, high) = sorted.split_at(cut);
    are_separate.then(|| TwoStates { low: state(low), high: state(high), bound: (low[cut - 1] * high[0]).sqrt() })
}

/// How values change between two modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModePattern {
    /// They stay in one for several, up to a whole sequence: what they are values of changes.
    Persistent,
    /// They are in either from one to the next, at random or alternately: a pattern of the work itself.
    Alternating,
}

/// Part of the changes expected of a lot below which they are too few for one, ...
const MAX_CHANGE_RATIO: f64 = 0.5;
/// ... and by this many standard deviations at least: with fewer values half as many changes are no rarity.
const MIN_DEFICIT_STDS: f64 = 3.0;

/// How the values of sequences change across a bound, by the number of changes between neighbours: values that are drawn by lot change
/// twice the product of both shares of the time (the runs test of Wald and Wolfowitz, 1940). `None` where all are on one side.
pub fn mode_pattern(sequences: &[&[f64]], bound: f64) -> Option<ModePattern> {
    let pairs = || sequences.iter().flat_map(|sequence| sequence.windows(2));
    let count: usize = sequences.iter().map(|sequence| sequence.len()).sum();
    let below_count = sequences.iter().flat_map(|sequence| sequence.iter()).filter(|&&value| value < bound).count();
    if below_count == 0 || below_count == count {
        return None;
    }
    let share = below_count as f64 / count as f64;
    let random_rate = 2.0 * share * (1.0 - share);
    let expected = random_rate * pairs().count() as f64;
    let changes = pairs().filter(|pair| (pair[0] < bound) != (pair[1] < bound)).count() as f64;
    let deviation = (expected * (1.0 - random_rate)).sqrt();
    let is_few = changes < MAX_CHANGE_RATIO * expected && expected - changes > MIN_DEFICIT_STDS * deviation;
    Some(if is_few { ModePattern::Persistent } else { ModePattern::Alternating })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn sorted(values: Vec<f64>) -> Sorted {
        Sorted::new(values).unwrap()
    }

    fn find_clusters(values: Vec<f64>) -> Vec<Cluster> {
        let n = values.len() as f64;
        clusters(&sorted(values), n)
    }

    #[test]
    fn fastest_mode_found_among_slower_majority() {
        let mut random = Random::new(3);
        // A single transient reading at 50, a tenth steady at 100, the rest slower in two modes.
        let values: Vec<f64> = (0..2000)
            .map(|i| match (i, i % 10) {
                (17, _) => 50.0,
                (_, 0) => 100.0 + 0.4 * random.normal(),
                (_, 1..=5) => 130.0 + 1.0 * random.normal(),
                _ => 112.0 + 30.0 * random.uniform(),
            })
            .collect();
        let values = sorted(values);
        let (mode, share) = fastest_mode(&values, 0.02, 0.05).unwrap();
        assert!((mode - 100.0).abs() < 0.2 && (0.08..0.11).contains(&share), "{mode} {share}");
        assert!(dominant_mode(&values, 0.02).0 > 125.0);
        // One state alone is found at its middle, not at its edge.
        let single_state = sorted((0..2000).map(|_| 100.0 + 1.5 * random.normal()).collect());
        let (mode, _) = fastest_mode(&single_state, 0.02, 0.05).unwrap();
        assert!((mode - 100.0).abs() < 0.7, "{mode}");
        // If nothing is steady, there is no state.
        let spread = sorted((0..200).map(|i| 1.1f64.powi(i)).collect());
        assert_eq!(fastest_mode(&spread, 0.02, 0.05), None);
        assert_eq!(fastest_mode(&sorted(vec![1.0, 1.0]), 0.02, 0.05), None);
    }

    #[test]
    fn dominant_mode_differs_from_minimum_and_mean() {
        let mut random = Random::new(1);
        // A fifth of transient boost at 90, half steady at 100, the rest disturbed, up to 200.
        let values: Vec<f64> = (0..2000)
            .map(|i| match i % 10 {
                0 | 1 => 90.0 + 0.2 * random.normal(),
                2..=6 => 100.0 + 0.2 * random.normal(),
                _ => 105.0 + 95.0 * random.uniform(),
            })
            .collect();
        let (mode, share) = dominant_mode(&sorted(values.clone()), 0.02);
        assert!((mode - 100.0).abs() < 0.2, "{mode}");
        assert!((share - 0.5).abs() < 0.03, "{share}");
    }

    #[test]
    fn modes_of_tiny_and_equal_samples() {
        assert_eq!(dominant_mode(&sorted(vec![5.0]), 0.02), (5.0, 1.0));
        assert_eq!(dominant_mode(&sorted(vec![5.0; 7]), 0.02), (5.0, 1.0));
        assert_eq!(find_clusters(vec![3.0]).len(), 1);
        assert_eq!(find_clusters(vec![3.0; 500]), [Cluster { center: 3.0, share: 1.0, std: 0.0 }]);
    }

    #[test]
    fn skew_tails_and_uniform_noise_are_not_modes() {
        let mut random = Random::new(9);
        let mut alarms = 0;
        for trial in 0..200 {
            let n = [40, 100, 400, 2000][trial % 4];
            let values: Vec<f64> = (0..n)
                .map(|_| match trial % 5 {
                    0 => 100.0 + random.normal(),
                    1 => (random.normal()).exp(),
                    2 => 50.0 + (0.5 * random.normal()).exp(),
                    3 => 10.0 + random.uniform(),
                    _ => 20.0 - 3.0 * (1.0 - random.uniform()).ln(),
                })
                .collect();
            alarms += usize::from(find_clusters(values).len() > 1);
        }
        assert!(alarms <= 4, "{alarms} of 200 unimodal samples looked bimodal");
    }

    #[test]
    fn mixtures_are_found_with_their_shares_and_centres() {
        let mut random = Random::new(21);
        let mut missed = 0;
        for trial in 0..100 {
            let n = [200, 500, 2000, 8000][trial % 4];
            let (share, gap) = [(0.6, 5.0), (0.8, 6.0), (0.5, 4.5), (0.85, 12.0)][trial / 4 % 4];
            let values: Vec<f64> =
                (0..n).map(|_| 100.0 + random.normal() + if random.uniform() < share { 0.0 } else { gap }).collect();
            let clusters = find_clusters(values);
            let is_correct = clusters.len() == 2
                && (clusters[0].share - share).abs() < 0.1
                && (clusters[1].center - clusters[0].center).abs() > 0.8 * gap;
            missed += usize::from(!is_correct);
        }
        assert!(missed <= 4, "{missed} of 100 mixtures missed");
    }

    #[test]
    fn three_modes_and_far_outliers() {
        let values: Vec<f64> =
            (0..900).map(|i| [100.0, 120.0, 150.0][i % 3] + (i * 7 % 11) as f64 / 10.0).chain([1e9, 1e9]).collect();
        let clusters = find_clusters(values);
        assert_eq!(clusters.len(), 3, "{clusters:?}");
        assert!(clusters.iter().all(|cluster| (cluster.share - 1.0 / 3.0).abs() < 0.01));
    }

    #[test]
    fn rounds_that_differ_are_not_modes() {
        let mut random = Random::new(33);
        let mut alarms = 0;
        for _ in 0..50 {
            let values: Vec<f64> = (0..6)
                .flat_map(|_| {
                    let level = 100.0 + 5.0 * random.normal();
                    (0..200).map(|_| level + 0.1 * random.normal()).collect::<Vec<f64>>()
                })
                .collect();
            alarms += usize::from(clusters(&sorted(values), 7.0).len() > 1);
        }
        assert_eq!(alarms, 0);
    }

    #[test]
    fn binomial_tail_matches_known_values() {
        assert!((binomial_lower_tail(0.0, 7.0) - 1.0 / 128.0).abs() < 1e-15);
        assert!((binomial_lower_tail(2.0, 5.0) - 0.5).abs() < 1e-15);
        assert!((binomial_lower_tail(120.0, 240.0) - 0.5).abs() < 0.03);
    }
}

#[cfg(test)]
mod bimodal_tests {
    use super::*;
    use crate::Random;

    #[test]
    fn two_levels_found_with_their_shares() {
        let states = two_states(&[12.1, 118.0, 11.9, 12.4, 121.0, 12.0]).unwrap();
        assert_eq!((states.low.center, states.high.center), (12.05, 119.5));
        assert!((states.low.share - 4.0 / 6.0).abs() < 1e-12 && (states.high.share - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!(states.dominant(), states.low);
        assert!(states.is_same_state(11.0, 13.0) && !states.is_same_state(11.0, 110.0));
        // As many of each: the lower one.
        assert_eq!(two_states(&[10.0, 10.1, 10.2, 99.0, 98.0, 97.0]).unwrap().dominant().center, 10.1);
    }

    #[test]
    fn outlier_spread_few_values_are_unimodal() {
        assert_eq!(two_states(&[12.0, 12.1, 11.9, 12.0, 118.0]), None, "a single odd value");
        assert_eq!(two_states(&[12.0, 12.1, 118.0, 119.0]), None, "too few");
        assert_eq!(two_states(&[10.0, 20.0, 40.0, 80.0, 160.0, 320.0]), None, "a ramp");
        assert_eq!(two_states(&[10.0, 10.01, 10.02, 11.0, 11.01, 11.02]), None, "too near");
        assert_eq!(two_states(&[5.0; 9]), None);
        assert_eq!(two_states(&[-1.0, -1.1, 5.0, 5.1, 5.2, 5.3]), None);
        assert_eq!(two_states(&[]), None);
    }

    #[test]
    fn noise_is_rarely_bimodal() {
        let mut random = Random::new(17);
        for n in [5, 6, 8, 12, 20, 40] {
            for kind in 0..4 {
                let alarms = (0..2000)
                    .filter(|_| {
                        let values: Vec<f64> = (0..n)
                            .map(|_| match kind {
                                0 => (0.3 * random.normal()).exp(),
                                1 => 1.0 + random.uniform(),
                                2 => 1.0 - 0.5 * (1.0 - random.uniform()).ln(),
                                _ => (0.3 * random.normal() / random.uniform().max(0.05).sqrt()).exp(),
                            })
                            .collect();
                        two_states(&values).is_some()
                    })
                    .count();
                assert!(alarms <= 50, "{alarms} of 2000 samples of {n}, kind {kind}");
            }
        }
    }

    #[test]
    fn two_levels_are_found_under_noise() {
        let mut random = Random::new(23);
        for n in [6, 8, 12, 20] {
            let detection_count = (0..500)
                .filter(|_| {
                    let level = |i: usize| if i < n / 3 { 1.0 } else { 4.0 };
                    let values: Vec<f64> = (0..n).map(|i| level(i) * (0.06 * random.normal()).exp()).collect();
                    two_states(&values).is_some_and(|states| states.low.share == (n / 3) as f64 / n as f64)
                })
                .count();
            assert!(detection_count >= 485, "{detection_count} of 500 with {n} values");
        }
    }
}

#[cfg(test)]
mod mode_pattern_tests {
    use super::*;
    use crate::Random;

    /// Sequences of values near 1 or 2; a value stays in its mode with this chance, and else draws one anew.
    fn sequences(stays: f64, random: &mut Random) -> Vec<Vec<f64>> {
        let mut mode = 1.0;
        let mut value = || {
            if random.uniform() >= stays {
                mode = if random.uniform() < 0.3 { 2.0 } else { 1.0 };
            }
            mode * (0.05 * random.normal()).exp()
        };
        (0..8).map(|_| (0..40).map(|_| value()).collect()).collect()
    }

    fn sequence_pattern(sequences: &[Vec<f64>]) -> Option<ModePattern> {
        mode_pattern(&sequences.iter().map(Vec::as_slice).collect::<Vec<&[f64]>>(), 1.4)
    }

    #[test]
    fn persistent_modes_distinguished_from_random_changes() {
        let mut random = Random::new(9);
        let mut persistent_count = |persistence| {
            let patterns = (0..200).map(|_| sequence_pattern(&sequences(persistence, &mut random)));
            patterns.filter(|&pattern| pattern == Some(ModePattern::Persistent)).count()
        };
        assert_eq!([persistent_count(0.0), persistent_count(0.2)], [0, 0]);
        assert!(persistent_count(0.9) >= 190, "of stretches of ten values");
    }

    #[test]
    fn one_mode_per_sequence_is_persistent() {
        let rounds: Vec<Vec<f64>> = [1.0, 2.0, 1.0, 1.0, 2.0, 1.0].map(|mode| vec![mode; 30]).to_vec();
        assert_eq!(sequence_pattern(&rounds), Some(ModePattern::Persistent));
        let alternating_values: Vec<f64> = (0..100).map(|index| f64::from(1 + index % 2)).collect();
        assert_eq!(sequence_pattern(&[alternating_values]), Some(ModePattern::Alternating));
        assert_eq!(sequence_pattern(&[vec![1.0; 20]]), None);
        assert_eq!(sequence_pattern(&[]), None);
        // Too few to decide.
        assert_eq!(sequence_pattern(&[vec![1.0, 1.0, 2.0, 2.0]]), Some(ModePattern::Alternating));
    }
}
