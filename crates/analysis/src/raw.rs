//! A finding before it is worded.

use kelvin_model::Name;

use crate::result::{Found, Importance, MetricResult};

/// Below this share of undisturbed samples a machine is noisy, and below half of it very noisy.
pub(crate) const QUIET: f64 = 0.7;

/// A finding before it is worded: its importance, what it is, and its metrics.
pub(crate) struct Raw {
    pub importance: Importance,
    pub found: Found,
    pub metrics: Vec<Name>,
}

impl Raw {
    pub fn major(found: Found) -> Self {
        Self { importance: Importance::Major, found, metrics: Vec::new() }
    }

    pub fn notable(found: Found) -> Self {
        Self { importance: Importance::Notable, ..Self::major(found) }
    }

    pub fn about(self, result: &MetricResult) -> Self {
        Self { metrics: vec![result.metric.id], ..self }
    }
}
