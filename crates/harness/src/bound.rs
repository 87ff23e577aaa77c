//! What the hardware bounds of what is measured: stated by a probe beside its metric, before anything is measured.

use kelvin_model::{Bound, BoundRecord, Case, Machine, Metric, Name, PathToAgent, Planned};

/// What a bound may rest on. Nothing measured is among it, so that no measurement can excuse itself.
#[derive(Clone, Copy, Debug)]
pub struct Hardware<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The way to the other host of the run, if there is one.
    pub way: Option<&'a PathToAgent>,
}

/// A metric that hardware bounds: what is above the bound is invalid, and never a headline.
///
/// It is stated only where no right measurement can be above it: with a doubt there is none.
#[derive(Debug)]
pub struct Bounded {
    /// The metric.
    pub metric: &'static Metric,
    /// The most that it can be at a case; `None` where that is not known.
    pub most: fn(Hardware<'_>, &Case) -> Option<Bound>,
}

/// What the hardware bounds of what is planned, where that is known.
pub fn bounds(bounded: &[&Bounded], plan: &[Planned], hardware: Hardware<'_>) -> Vec<BoundRecord> {
    let of = |case: &Case, metric: Name| {
        let bound = bounded.iter().find(|bounded| bounded.metric.id == metric)?;
        Some(BoundRecord { metric, case: case.clone(), bound: (bound.most)(hardware, case)? })
    };
    plan.iter()
        .flat_map(|planned| planned.metrics.iter().filter_map(move |&metric| of(&planned.case, metric)))
        .collect()
}
