//! An interval of values, labelled with what it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interval, labelled with what it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// What it is.
    pub kind: IntervalKind,
    /// Confidence level, such as 0.95; for a range the share that it covers of what was seen, 1.
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

/// What an interval is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntervalKind {
    /// It covers what a repeat of the run gives, at its level.
    Confidence,
    /// Lowest and highest round: too few rounds for anything better.
    Range,
}
