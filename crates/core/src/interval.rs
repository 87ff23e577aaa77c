//! An interval of values, with its kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interval, with its kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Its kind.
    pub kind: IntervalKind,
    /// Confidence level, such as 0.95; for a range the share of the rounds that it covers, 1.
    pub level: f64,
    /// Lower end.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
}

impl Interval {
    /// Half of its width.
    pub fn half_width(&self) -> f64 {
        (self.upper - self.lower) / 2.0
    }
}

/// The kind of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalKind {
    /// It covers a repeat of the run, at its level.
    Confidence,
    /// Lowest and highest round: too few rounds for anything better.
    Range,
}
