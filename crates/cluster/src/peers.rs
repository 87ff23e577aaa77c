//! One of several alike against the others: hosts, ranks.

use kelvin_stats::{MAD_TO_STD, mad, median, t_quantile, t_upper_tail};

/// What is named may be false at this rate (Benjamini and Hochberg): lower than elsewhere, since somebody goes to a rack for it.
pub const NAMING_LEVEL: f64 = 0.01;
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

impl PeerComparison {
    /// Compares the value at an index, which has this standard error, with all others.
    pub fn new(values: &[f64], index: usize, error: f64) -> Self {
        let others: Vec<f64> =
            values.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, value)| *value).collect();
        let spread = MAD_TO_STD * mad(&others);
        Self {
            difference: values[index] - median(&others),
            std: spread.hypot(error),
            degrees: (others.len() - 1) as f64,
        }
    }

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
        let values = [1.0, 10.0, 11.0, 12.0, 13.0];
        let low = PeerComparison::new(&values, 0, 0.0);
        assert_eq!(low.difference, 1.0 - 11.5);
        // The deviations of the others from 11.5 are 1.5, 0.5, 0.5, 1.5.
        assert_eq!(low.std, MAD_TO_STD);
        assert!(low.p_value() < 0.01 && PeerComparison::new(&values, 2, 0.0).p_value() > 0.3);
        assert_eq!(low.half_range(0.95), MAD_TO_STD * t_quantile(0.975, 3.0));
        // Its own error counts.
        assert_eq!(PeerComparison::new(&values, 0, 100.0).std, MAD_TO_STD.hypot(100.0));
    }
}
