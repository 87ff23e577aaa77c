//! Autocorrelation, and the effective number of independent samples of a sequence.

use crate::{MAD_TO_STD, mad, mean, median};

/// Deviations beyond this many robust standard deviations count as that many: one outlier must not make all others look
/// independent.
const CLIP_STDS: f64 = 5.0;

/// Up to twice this lag every pair of lags is used, then every second one, and so on.
const SPARSE_LAG_START: usize = 16;

/// Effective number of independent samples in several sequences of one quantity (the rounds of a run).
///
/// Deviations are taken from the mean of all, so that a difference between sequences counts as dependence within them:
/// if the rounds differ and nothing moves inside them, the answer is about the number of rounds. The sum of
/// autocorrelations ends where Geyer's initial positive sequence ends (Statistical Science 7, 1992). Between 1 and the
/// number of samples; 0 without samples.
pub fn effective_samples(sequences: &[&[f64]]) -> f64 {
    let values: Vec<f64> = sequences.iter().flat_map(|sequence| sequence.iter().copied()).collect();
    if values.len() < 4 {
        return values.len() as f64;
    }
    let deviations = clipped_deviations(sequences, &values);
    let n = values.len() as f64;
    let power = autocovariance(&deviations, 0);
    if power == 0.0 {
        return n;
    }
    let max_length = deviations.iter().map(Vec::len).max().unwrap_or(0);
    let mut sum = 0.0;
    let mut last = f64::INFINITY;
    let mut lag = 0;
    while lag + 1 < max_length {
        let pair = (autocovariance(&deviations, lag) + autocovariance(&deviations, lag + 1)) / power;
        if pair <= 0.0 {
            break;
        }
        last = last.min(pair);
        // The sequence falls smoothly: large lags are sampled ever more sparsely, each standing for those skipped.
        let step = 2 * (lag / SPARSE_LAG_START).max(1);
        sum += last * (step / 2) as f64;
        lag += step;
    }
    let time = (2.0 * sum - 1.0).max(1.0);
    (n / time).max(1.0)
}

fn clipped_deviations(sequences: &[&[f64]], values: &[f64]) -> Vec<Vec<f64>> {
    let center = median(values);
    let limit = CLIP_STDS * MAD_TO_STD * mad(values);
    let clip = |value: f64| if limit > 0.0 { value.clamp(center - limit, center + limit) } else { value };
    let mean = mean(&values.iter().map(|&value| clip(value)).collect::<Vec<f64>>());
    sequences.iter().map(|sequence| sequence.iter().map(|&value| clip(value) - mean).collect()).collect()
}

/// Sum of products of deviations `lag` apart within a sequence, over the number of all samples: the estimator that
/// falls with the lag as fewer pairs are left, so that a constant offset of a sequence sums to its length.
fn autocovariance(sequences: &[Vec<f64>], lag: usize) -> f64 {
    let n: usize = sequences.iter().map(Vec::len).sum();
    let longer = sequences.iter().filter(|sequence| sequence.len() > lag);
    let sum: f64 = longer.map(|sequence| sequence.iter().zip(&sequence[lag..]).map(|(a, b)| a * b).sum::<f64>()).sum();
    sum / n.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn independent_samples_count_fully() {
        let mut random = Random::new(2);
        let values: Vec<f64> = (0..4000).map(|_| random.normal()).collect();
        let effective = effective_samples(&[&values]);
        assert!((3200.0..=4000.0).contains(&effective), "{effective}");
    }

    #[test]
    fn ar1_effective_size_matches_theory() {
        // x' = phi x + noise: the effective number is n (1 - phi) / (1 + phi).
        let mut random = Random::new(4);
        let phi = 0.8;
        let mut x = 0.0;
        let values: Vec<f64> = (0..40_000)
            .map(|_| {
                x = phi * x + random.normal();
                x
            })
            .collect();
        let effective = effective_samples(&[&values]);
        let theory = 40_000.0 * (1.0 - phi) / (1.0 + phi);
        assert!((effective / theory - 1.0).abs() < 0.15, "{effective} {theory}");
    }

    #[test]
    fn constant_rounds_count_once_each() {
        let mut random = Random::new(6);
        let rounds: Vec<Vec<f64>> =
            (0..6).map(|round| (0..300).map(|_| 10.0 * f64::from(round * 5 % 6) + random.normal()).collect()).collect();
        let sequences: Vec<&[f64]> = rounds.iter().map(Vec::as_slice).collect();
        let effective = effective_samples(&sequences);
        assert!((4.0..12.0).contains(&effective), "{effective}");
    }

    #[test]
    fn degenerate_sequences() {
        assert_eq!(effective_samples(&[]), 0.0);
        assert_eq!(effective_samples(&[&[1.0]]), 1.0);
        assert_eq!(effective_samples(&[&[2.0; 50]]), 50.0);
    }
}
