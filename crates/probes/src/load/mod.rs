//! A file server under load: what a number of users gets, what of each resource that takes, what the hosts did meanwhile, and what
//! each resource gives alone.

use crate::prelude::*;

mod capacity;
mod hosts;
mod model;
mod resources;
mod users;
mod workers;

pub(crate) static PROBES: &[&Probe] =
    &[&users::PROBE, &workers::PROBE, &resources::PROBE, &hosts::PROBE, &capacity::PROBE];

/// Rounds of these probes are not independent of each other: one visit has a round of each, and all visits have one server. So
/// `kelvin study load` makes them itself.
fn refuse_single_round(_: &mut Bench<'_>, _: &Case) -> ProbeResult {
    Err(ProbeError::fail("a server under load is measured by `kelvin study load` alone: its visits share one server"))
}
