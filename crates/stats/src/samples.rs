//! Samples that are never empty and always finite, with their quantiles and moments.

/// Samples in ascending order: at least one, all finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// These values in ascending order; `None` if there is none, or one that is not finite.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(Self(values))
    }

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
        let lower = position.floor() as usize;
        let upper = (lower + 1).min(self.0.len() - 1);
        let fraction = position - lower as f64;
        self.0[lower] + fraction * (self.0[upper] - self.0[lower])
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

/// The values in ascending order.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
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
    let mid = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (lower_half, &mut upper, _) = values.select_nth_unstable_by(mid, f64::total_cmp);
    if is_odd {
        return upper;
    }
    let lower = lower_half.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    lower + (upper - lower) / 2.0
}

/// The minimum and the maximum of values; `None` of none.
pub fn min_max(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().map(|value| (value, value)).reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
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

    fn samples(values: &[f64]) -> Sorted {
        Sorted::new(values.to_vec()).unwrap()
    }

    #[test]
    fn only_finite_values_are_samples() {
        assert_eq!(Sorted::new(vec![]), None);
        assert_eq!(Sorted::new(vec![1.0, f64::NAN]), None);
        assert_eq!(Sorted::new(vec![2.0, 1.0]).unwrap().values(), [1.0, 2.0]);
    }

    #[test]
    fn quantiles_are_those_of_type_seven() {
        // R: quantile(c(1, 2, 4, 8, 16), c(0, .05, .25, .5, .9, 1))
        let sorted = samples(&[16.0, 1.0, 8.0, 2.0, 4.0]);
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
        assert!((mean(&values) - 10_000_000.2).abs() < 1e-8);
        assert!((variance(&values).sqrt() - 0.1).abs() < 1e-8);
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), 1.0);
    }

    #[test]
    fn single_and_equal_values_have_no_spread() {
        for values in [vec![7.0], vec![7.0; 9]] {
            assert_eq!(mad(&values), 0.0);
            assert_eq!((mean(&values), samples(&values).median()), (7.0, 7.0));
            assert_eq!(variance(&values), 0.0);
            assert_eq!(samples(&values).quantile(0.3), 7.0);
        }
    }

    proptest! {
        #[test]
        fn medians_agree_and_quantiles_rise(values in prop::collection::vec(-1e6..1e6f64, 1..80)) {
            let sorted = samples(&values);
            prop_assert!((median(&values) - sorted.quantile(0.5)).abs() < 1e-6);
            let quantiles: Vec<f64> = (0..=20).map(|i| sorted.quantile(f64::from(i) / 20.0)).collect();
            prop_assert!(quantiles.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert_eq!((quantiles[0], quantiles[20]), (sorted.min(), sorted.max()));
        }
    }
}
