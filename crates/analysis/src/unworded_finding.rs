//! A finding before it is worded.

use kelvin_core::Name;

use crate::result::{FindingData, Importance, MetricResult};

/// Below this share of undisturbed samples a machine is noisy, and below half of it very noisy.
pub(crate) const MIN_QUIET_SHARE: f64 = 0.7;

/// A finding before it is worded: its importance, what it is, and its metrics.
pub(crate) struct UnwordedFinding {
    pub importance: Importance,
    pub data: FindingData,
    pub metrics: Vec<Name>,
}

impl UnwordedFinding {
    pub fn major(found: FindingData) -> Self {
        Self { importance: Importance::Major, data: found, metrics: Vec::new() }
    }

    pub fn notable(found: FindingData) -> Self {
        Self { importance: Importance::Notable, ..Self::major(found) }
    }

    pub fn with_metric(self, result: &MetricResult) -> Self {
        Self { metrics: vec![result.metric.id], ..self }
    }
}
