//! Local communication between two processes: round-trip time and bandwidth.

pub(super) mod bandwidth;
pub(super) mod latency;

use kelvin_core::Case;
use kelvin_core::catalogue::PairPlacement;
use kelvin_harness::{Bench, ProbeError};

/// The CPU of the partner.
pub(crate) fn partner_cpu(bench: &Bench<'_>, case: &Case) -> Result<u32, ProbeError> {
    match PairPlacement::of(case) {
        Some(PairPlacement::SameCpu) => Ok(bench.cpu()),
        Some(PairPlacement::TwoCpus) => bench.partner_cpu(),
        None => Err(ProbeError::fail(format!("the case needs placement=same_cpu or placement=two_cpus, not {case}"))),
    }
}
