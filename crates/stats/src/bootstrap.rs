//! The hierarchical bootstrap: rounds are drawn first, then samples within each.

use crate::{Random, Sorted, median_in_place};

/// How often and with which seed to resample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampling {
    /// Number of resamples.
    pub times: usize,
    /// Seed.
    pub seed: u64,
}

impl Default for Resampling {
    /// A thousand times.
    fn default() -> Self {
        Self { times: 1000, seed: 1 }
    }
}

/// The percentile interval at `level` of the median of round medians, from a hierarchical bootstrap: rounds are drawn
/// with replacement, then samples of each drawn round. `None` without samples.
///
/// It covers too little with few rounds (see `examples/coverage.rs`), and is kept for figures that have no better
/// method; the headline's interval is [`crate::headline_interval`].
pub fn bootstrap_interval(rounds: &[&[f64]], level: f64, how: Resampling) -> Option<(f64, f64)> {
    let rounds: Vec<&[f64]> = rounds.iter().copied().filter(|round| !round.is_empty()).collect();
    if rounds.is_empty() || how.times == 0 {
        return None;
    }
    let mut random = Random::new(how.seed);
    let mut drawn = Vec::new();
    let mut medians = Vec::with_capacity(rounds.len());
    let mut results = Vec::with_capacity(how.times);
    for _ in 0..how.times {
        medians.clear();
        for _ in 0..rounds.len() {
            let round = rounds[random.below(rounds.len())];
            drawn.clear();
            drawn.extend((0..round.len()).map(|_| round[random.below(round.len())]));
            medians.push(median_in_place(&mut drawn));
        }
        results.push(median_in_place(&mut medians));
    }
    let sorted: Sorted = crate::Samples::new(results).ok()?.sorted();
    Some((sorted.quantile((1.0 - level) / 2.0), sorted.quantile((1.0 + level) / 2.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_the_unit_of_resampling() {
        // Two rounds that only differ from each other: the interval spans both, however many samples they have.
        let (low, high) = (vec![1.0; 500], vec![2.0; 500]);
        let interval = bootstrap_interval(&[&low, &high], 0.95, Resampling::default()).unwrap();
        assert_eq!(interval, (1.0, 2.0));
    }

    #[test]
    fn it_is_repeatable_and_covers_the_median_of_many_rounds() {
        let mut random = Random::new(8);
        let rounds: Vec<Vec<f64>> = (0..40).map(|_| (0..30).map(|_| 10.0 + random.normal()).collect()).collect();
        let rounds: Vec<&[f64]> = rounds.iter().map(Vec::as_slice).collect();
        let first = bootstrap_interval(&rounds, 0.95, Resampling::default()).unwrap();
        assert_eq!(Some(first), bootstrap_interval(&rounds, 0.95, Resampling::default()));
        assert!(first.0 < 10.0 && first.1 > 10.0 && first.1 - first.0 < 0.5, "{first:?}");
    }

    #[test]
    fn degenerate_rounds() {
        assert_eq!(bootstrap_interval(&[], 0.95, Resampling::default()), None);
        assert_eq!(bootstrap_interval(&[&[]], 0.95, Resampling::default()), None);
        assert_eq!(bootstrap_interval(&[&[3.0]], 0.95, Resampling::default()), Some((3.0, 3.0)));
    }
}
