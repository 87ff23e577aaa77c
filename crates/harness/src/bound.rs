//! Hardware bounds of metrics: stated by a probe beside its metric, before anything is measured.

use kelvin_core::{Bound, BoundRecord, Case, Machine, Metric, Name, NetworkPath, PlannedMeasurement};

/// What a bound may be derived from. No measurement is among it, so that none can justify itself.
#[derive(Clone, Copy, Debug)]
pub struct HardwareFacts<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The network path to the peer, if there is one.
    pub network_path: Option<&'a NetworkPath>,
}

/// A metric with a hardware bound: a figure above it is invalid, and never a headline.
///
/// It is stated only where no correct measurement can exceed it.
#[derive(Debug)]
pub struct BoundedMetric {
    /// The metric.
    pub metric: &'static Metric,
    /// Its maximum at a case; `None` if unknown.
    pub maximum: fn(HardwareFacts<'_>, &Case) -> Option<Bound>,
}

/// The known bounds of the planned metrics.
pub fn bound_records(
    bounded: &[&BoundedMetric],
    plan: &[PlannedMeasurement],
    hardware: HardwareFacts<'_>,
) -> Vec<BoundRecord> {
    let of = |case: &Case, metric: Name| {
        let bound = bounded.iter().find(|bounded| bounded.metric.id == metric)?;
        Some(BoundRecord { metric, case: case.clone(), bound: (bound.maximum)(hardware, case)? })
    };
    plan.iter()
        .flat_map(|planned| planned.metrics.iter().filter_map(move |&metric| of(&planned.case, metric)))
        .collect()
}
