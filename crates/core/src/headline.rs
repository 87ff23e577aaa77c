//! The headline of a metric at a case, or what replaces it.

use crate::{Case, Name};

/// A measured headline, which a prediction may rest on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredValue {
    /// The headline, in the metric's unit.
    pub value: f64,
    /// Half-width of its interval by its own run alone, in the metric's unit; with a single round half the interquartile range of its
    /// samples.
    pub half_width: f64,
}

/// What a run has of a metric without a headline.
#[derive(Clone, Debug, PartialEq)]
pub enum MissingInput {
    /// Samples, too few of them undisturbed for the headline that the metric defines.
    AsFound(AsFoundValue),
    /// No figure: the reason, as the end of a sentence on the metric: `failed: no memory`.
    NoFigure(String),
}

/// The figure of a metric as found, disturbances included.
#[derive(Clone, Debug, PartialEq)]
pub struct AsFoundValue {
    /// The figure as found, in the metric's unit.
    pub value: f64,
    /// The 5th percentile of its samples, in the metric's unit.
    pub low: f64,
    /// The 95th percentile of its samples, in the metric's unit.
    pub high: f64,
    /// Why there is no better one: `never undisturbed`.
    pub reason: String,
}

/// A headline from which later runs of the machine learn the spread between runs.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHeadline {
    /// Id of the metric.
    pub metric: Name,
    /// Version of its method: headlines of different methods are different series.
    pub version: u32,
    /// The case.
    pub case: Case,
    /// The headline, in the metric's unit.
    pub value: f64,
    /// Variance of the headline explained by the spread between the rounds of the run, in the unit squared.
    pub within_variance: f64,
}
