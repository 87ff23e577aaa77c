//! One of several alike against the others: hosts, ranks.

use kelvin_stats::{MAD_TO_STD, mad, median, t_quantile, t_upper_tail};

/// What is named may be false at this rate (Benjamini and Hochberg): lower than elsewhere, since somebody goes to a rack for it.
pub const NAMING_LEVEL: f64 = 0.01;
/// With more values a value is compared with all of them: leaving it out moves the median by less than one place, and takes a sort of all.
const MAX_LEFT_OUT: usize = 100;
/// With fewer there is no spread of the others to compare one with.
pub const MIN_PEERS: usize = 4;

/// A value against those of its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerComparison {
    /// The value less the median of the others.
    pub difference: f64,
    /// Standard deviation of such a difference: by the spread of the others, which differ by more than the errors of their values, and by
    /// the error of this one.
    std: f64,
    degrees: f64,
}

/// Values of several alike.
#[derive(Clone, Debug)]
pub struct Peers {
    values: Vec<f64>,
    /// Median and median absolute deviation of all, where these are so many that one of them does not matter.
    common: Option<(f64, f64)>,
}

impl Peers {
    /// At least two values.
    pub fn new(values: Vec<f64>) -> Self {
        let common = (values.len() > MAX_LEFT_OUT).then(|| (median(&values), mad(&values)));
        Self { values, common }
    }

    /// Compares the value at an index, which has this standard error, with all others.
    pub fn compare(&self, index: usize, error: f64) -> PeerComparison {
        let (center, spread) = self.common.unwrap_or_else(|| {
            let others = self.values.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, value)| *value);
            let others: Vec<f64> = others.collect();
            (median(&others), mad(&others))
        });
        PeerComparison {
            difference: self.values[index] - center,
            std: (MAD_TO_STD * spread).hypot(error),
            degrees: (self.values.len() - 2) as f64,
        }
    }
}

impl PeerComparison {
    /// Half of the range, around the median of the others, that holds this share of such values.
    pub fn half_range(&self, level: f64) -> f64 {
        self.std * t_quantile(0.5 + level / 2.0, self.degrees)
    }

    /// Chance of a value so low.
    pub fn p_value(&self) -> f64 {
        t_upper_tail(-self.difference / self.std, self.degrees)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_compared_with_the_median_of_the_others() {
        let peers = Peers::new(vec![1.0, 10.0, 11.0, 12.0, 13.0]);
        let low = peers.compare(0, 0.0);
        assert_eq!(low.difference, 1.0 - 11.5);
        // The deviations of the others from 11.5 are 1.5, 0.5, 0.5, 1.5.
        assert_eq!(low.std, MAD_TO_STD);
        assert!(low.p_value() < 0.01 && peers.compare(2, 0.0).p_value() > 0.3);
        assert_eq!(low.half_range(0.95), MAD_TO_STD * t_quantile(0.975, 3.0));
        // Its own error counts.
        assert_eq!(peers.compare(0, 100.0).std, MAD_TO_STD.hypot(100.0));
    }

    #[test]
    fn many_values_are_compared_with_all() {
        let values: Vec<f64> = (0..1001).map(f64::from).collect();
        let comparison = Peers::new(values).compare(0, 0.0);
        assert_eq!((comparison.difference, comparison.std), (-500.0, MAD_TO_STD * 250.0));
    }
}
