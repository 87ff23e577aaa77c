//! Samples that are never empty and always finite, with their quantiles and moments.

/// Why values are no samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    /// There is no value.
    #[error("samples: no value; at least one is needed")]
    Empty,
    /// The value at this index is infinite or no number.
    #[error("samples: value {0} is not a finite number")]
    NotFinite(usize),
}

/// Values in the order in which they were taken: at least one, all finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Samples from values.
    ///
    /// # Errors
    /// If there is no value, or one that is not finite.
    pub fn new(values: Vec<f64>) -> Result<Self, SamplesError> {
        if values.is_empty() {
            return Err(SamplesError::Empty);
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(index) => Err(SamplesError::NotFinite(index)),
            None => Ok(Self(values)),
        }
    }

    /// The values, in the order in which they were taken.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Number of values; at least 1.
    #[allow(clippy::len_without_is_empty)] // samples are never empty
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The same values in ascending order.
    pub fn sorted(&self) -> Sorted {
        let mut values = self.0.clone();
        values.sort_unstable_by(f64::total_cmp);
        Sorted(values)
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        mean(&self.0)
    }

    /// Standard deviation, the root of [`variance`].
    pub fn std(&self) -> f64 {
        variance(&self.0).sqrt()
    }
}

/// Samples in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// The values, ascending.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The lowest value.
    pub fn min(&self) -> f64 {
        self.0[0]
    }

    /// The highest value.
    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    /// The quantile at `share` (clamped to 0..=1), by linear interpolation between order statistics at
    /// (n - 1) share: type 7 of Hyndman and Fan, "Sample quantiles in statistical packages", 1996; the default of R
    /// and NumPy.
    pub fn quantile(&self, share: f64) -> f64 {
        let position = share.clamp(0.0, 1.0) * (self.0.len() - 1) as f64;
        let below = position.floor() as usize;
        let above = (below + 1).min(self.0.len() - 1);
        let part = position - below as f64;
        self.0[below] + part * (self.0[above] - self.0[below])
    }

    /// Median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Factor from a median absolute deviation to a normal standard deviation: 1 / normal quantile of 3/4.
pub const MAD_TO_STD: f64 = 1.482_602_218_505_602;

/// Arithmetic mean; by deviations from the first value, so that large offsets lose no digits. 0 for no values.
pub fn mean(values: &[f64]) -> f64 {
    let Some(&first) = values.first() else { return 0.0 };
    first + values.iter().map(|value| value - first).sum::<f64>() / values.len() as f64
}

/// Unbiased variance (divisor n - 1), in two passes; 0 for fewer than two values.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let center = mean(values);
    values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// Median in linear time. The values must be finite; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    median_in_place(&mut values.to_vec())
}

/// Median in linear time, reordering the values. They must be finite; 0 for no values.
pub fn median_in_place(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    lower + (upper - lower) / 2.0
}

/// Median absolute deviation from the median, unscaled; 0 for no values.
pub fn mad(values: &[f64]) -> f64 {
    let center = median(values);
    let mut distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    median_in_place(&mut distances)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.to_vec()).unwrap()
    }

    #[test]
    fn only_finite_values_are_samples() {
        assert_eq!(Samples::new(vec![]), Err(SamplesError::Empty));
        assert_eq!(Samples::new(vec![1.0, f64::NAN]), Err(SamplesError::NotFinite(1)));
        assert_eq!(SamplesError::NotFinite(1).to_string(), "samples: value 1 is not a finite number");
    }

    #[test]
    fn quantiles_are_those_of_type_seven() {
        // R: quantile(c(1, 2, 4, 8, 16), c(0, .05, .25, .5, .9, 1))
        let sorted = samples(&[16.0, 1.0, 8.0, 2.0, 4.0]).sorted();
        let expected = [(0.0, 1.0), (0.05, 1.2), (0.25, 2.0), (0.5, 4.0), (0.9, 12.8), (1.0, 16.0)];
        for (share, value) in expected {
            assert!((sorted.quantile(share) - value).abs() < 1e-12, "{share}");
        }
    }

    #[test]
    fn moments_of_known_samples() {
        // NIST StRD "NumAcc4": 10000000.2, then 10000000.1 and 10000000.3 five hundred times each; std exactly 0.1.
        let mut values = vec![10_000_000.2];
        for _ in 0..500 {
            values.extend([10_000_000.1, 10_000_000.3]);
        }
        let numerical = samples(&values);
        assert!((numerical.mean() - 10_000_000.2).abs() < 1e-8);
        assert!((numerical.std() - 0.1).abs() < 1e-8);
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), 1.0);
    }

    #[test]
    fn single_and_equal_values_have_no_spread() {
        for values in [vec![7.0], vec![7.0; 9]] {
            assert_eq!(mad(&values), 0.0);
            let samples = samples(&values);
            assert_eq!((samples.mean(), samples.sorted().median()), (7.0, 7.0));
            assert_eq!(samples.std(), 0.0);
            assert_eq!(samples.sorted().quantile(0.3), 7.0);
        }
    }

    proptest! {
        #[test]
        fn medians_agree_and_quantiles_rise(values in prop::collection::vec(-1e6..1e6f64, 1..80)) {
            let sorted = samples(&values).sorted();
            prop_assert!((median(&values) - sorted.quantile(0.5)).abs() < 1e-6);
            let quantiles: Vec<f64> = (0..=20).map(|i| sorted.quantile(f64::from(i) / 20.0)).collect();
            prop_assert!(quantiles.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert_eq!((quantiles[0], quantiles[20]), (sorted.min(), sorted.max()));
        }
    }
}
