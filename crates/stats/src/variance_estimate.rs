//! A variance that is only estimated, with its degrees of freedom.

use serde::{Deserialize, Serialize};

use crate::{t_quantile, variance};

/// An estimate of a variance and the degrees of freedom behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VarianceEstimate {
    /// The variance.
    pub variance: f64,
    /// Degrees of freedom; need not be whole.
    pub degrees: f64,
}

impl VarianceEstimate {
    /// No spread at all.
    pub(crate) const NONE: Self = Self::new(0.0, f64::INFINITY);

    /// A variance with its degrees of freedom.
    pub const fn new(variance: f64, degrees: f64) -> Self {
        Self { variance, degrees }
    }

    /// Half-width of the interval at `level` around an estimate with this variance.
    pub fn half_width(&self, level: f64) -> f64 {
        if self.variance == 0.0 {
            return 0.0;
        }
        t_quantile(0.5 + level / 2.0, self.degrees) * self.variance.sqrt()
    }

    /// The spread of a sum or difference of two independent estimates.
    pub fn plus(self, other: Self) -> Self {
        let variance = self.variance + other.variance;
        let degrees = match variance {
            0.0 => self.degrees + other.degrees,
            sum => sum.powi(2) / (self.variance.powi(2) / self.degrees + other.variance.powi(2) / other.degrees),
        };
        Self { variance, degrees }
    }
}

/// The variance of values around the means of their own groups.
pub(crate) fn pooled_variance<const N: usize>(groups: [impl AsRef<[f64]>; N]) -> VarianceEstimate {
    let parts = groups.each_ref().map(|group| (variance(group.as_ref()), group.as_ref().len() as f64 - 1.0));
    let degrees: f64 = parts.iter().map(|(_, degrees)| degrees).sum();
    let squares: f64 = parts.iter().map(|(variance, degrees)| variance * degrees).sum();
    VarianceEstimate::new(squares / degrees, degrees)
}
