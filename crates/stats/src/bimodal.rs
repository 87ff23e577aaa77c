//! Whether a few values, one per round or run, are bimodal: two states with nothing between.

use crate::{Cluster, median};

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

/// The two states of positive values; `None` if there is one, or too few values to tell.
pub fn two_states(values: &[f64]) -> Option<TwoStates> {
    if values.len() < MIN_BIMODAL_VALUES || !values.iter().all(|value| value.is_finite() && *value > 0.0) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let logs: Vec<f64> = sorted.iter().map(|value| value.ln()).collect();
    let cuts = MIN_STATE_VALUES..=sorted.len() - MIN_STATE_VALUES;
    let cut = cuts.max_by(|&a, &b| (logs[a] - logs[a - 1]).total_cmp(&(logs[b] - logs[b - 1])))?;
    let (low, high) = logs.split_at(cut);
    let distance = median(high) - median(low);
    let reach = |part: &[f64]| part[part.len() - 1] - part[0];
    let strictness = small_sample_factor(values.len());
    let apart = distance >= MIN_STATE_RATIO.ln()
        && distance >= strictness * MIN_STATE_DISTANCE_STDS * pooled_std(low, high)
        && logs[cut] - logs[cut - 1] >= strictness * MIN_STATE_GAP_RATIO * reach(low).max(reach(high));
    let state = |part: &[f64]| {
        let std = (sum_of_squares(part) / (part.len() - 1) as f64).sqrt();
        Cluster { center: median(part), share: part.len() as f64 / values.len() as f64, std }
    };
    let (low, high) = sorted.split_at(cut);
    apart.then(|| TwoStates { low: state(low), high: state(high), bound: (low[cut - 1] * high[0]).sqrt() })
}

/// Sum of the squared distances from the mean.
fn sum_of_squares(part: &[f64]) -> f64 {
    let mean = part.iter().sum::<f64>() / part.len() as f64;
    part.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Standard deviation within two parts, pooled.
fn pooled_std(low: &[f64], high: &[f64]) -> f64 {
    ((sum_of_squares(low) + sum_of_squares(high)) / (low.len() + high.len() - 2) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn two_levels_found_with_their_shares() {
        let found = two_states(&[12.1, 118.0, 11.9, 12.4, 121.0, 12.0]).unwrap();
        assert_eq!((found.low.center, found.high.center), (12.05, 119.5));
        assert!((found.low.share - 4.0 / 6.0).abs() < 1e-12 && (found.high.share - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!(found.dominant(), found.low);
        assert!(found.is_same_state(11.0, 13.0) && !found.is_same_state(11.0, 110.0));
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
            let found = (0..500)
                .filter(|_| {
                    let level = |i: usize| if i < n / 3 { 1.0 } else { 4.0 };
                    let values: Vec<f64> = (0..n).map(|i| level(i) * (0.06 * random.normal()).exp()).collect();
                    two_states(&values).is_some_and(|found| found.low.share == (n / 3) as f64 / n as f64)
                })
                .count();
            assert!(found >= 485, "{found} of 500 with {n} values");
        }
    }
}
