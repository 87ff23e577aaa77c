//! How many times as much one metric is as another, and what follows from it.

use kelvin_model::units::{number, plain};
use kelvin_model::{Conclusion, Unit};
use kelvin_stats::{headline, median_ratio};

use super::beyond;

/// A ratio of medians with its interval, and what it was made from.
pub(super) struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    first: f64,
    second: f64,
    test: String,
}

impl Ratio {
    /// The second over the first; `None` without two rounds of each.
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        let (value, low, high) = median_ratio(first, second)?;
        let test = format!(
            "ratio of medians with its 95 % interval by Welch's test on logarithms, {} against {} rounds",
            second.len(),
            first.len()
        );
        Some(Self { value, low, high, first: headline(first), second: headline(second), test })
    }

    /// `3.61 times (3.40 to 3.80)`.
    pub fn times(&self) -> String {
        format!("{} times ({} to {})", number(self.value), number(self.low), number(self.high))
    }

    /// `47.6 us against 13.0 us`.
    pub fn amounts(&self, unit: Unit) -> String {
        format!("{} against {}", plain(self.second, unit), plain(self.first, unit))
    }

    /// That the ratio is above a limit.
    pub fn above(self, limit: f64, text: String) -> Conclusion {
        Conclusion { text, holds: beyond(self.low, self.high, limit), test: self.test }
    }

    /// That the ratio is below a limit.
    pub fn below(self, limit: f64, text: String) -> Conclusion {
        Conclusion { text, holds: beyond(-self.high, -self.low, -limit), test: self.test }
    }
}
