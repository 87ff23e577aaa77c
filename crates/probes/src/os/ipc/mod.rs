//! Local communication between two processes: round-trip time and bandwidth.

pub(super) mod bandwidth;
pub(super) mod latency;

use kelvin_catalogue::Placement;
use kelvin_harness::{Bench, Stop};
use kelvin_model::Case;

/// The CPU of the partner.
pub(crate) fn partner_cpu(bench: &Bench<'_>, case: &Case) -> Result<u32, Stop> {
    match Placement::of(case) {
        Some(Placement::SameCpu) => Ok(bench.cpu()),
        Some(Placement::TwoCpus) => bench.partner_cpu(),
        None => Err(Stop::fail(format!("the case needs placement=same_cpu or placement=two_cpus, not {case}"))),
    }
}
