//! What the rounds of a unit take beside their timing, as it is expected before they are made.

use std::time::Duration;

/// What the rounds of a unit are expected to take beside their timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedCost {
    /// The first of them, which may make what the others find.
    pub first: Duration,
    /// Each other.
    pub later: Duration,
    /// Whether it is what they took before on this machine, or a guess.
    pub is_measured: bool,
}

impl ExpectedCost {
    /// The same guess for each round.
    pub const fn estimated(each: Duration) -> Self {
        Self { first: each, later: each, is_measured: false }
    }

    /// Nanoseconds of so many rounds of a unit that has not had any.
    pub(crate) fn total_for_rounds(self, rounds: u32) -> f64 {
        match rounds {
            0 => 0.0,
            _ => as_nanoseconds(self.first) + f64::from(rounds - 1) * as_nanoseconds(self.later),
        }
    }
}

/// A time in nanoseconds.
pub(crate) fn as_nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}
