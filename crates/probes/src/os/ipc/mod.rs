//! Local communication between two processes: round-trip time and bandwidth.

pub(super) mod bandwidth;
pub(super) mod latency;

use crate::reasons::{OrReason, ProbeResult};
use kelvin_core::Case;
use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::HandoffMechanism;
use kelvin_harness::{Bench, ProbeError};

/// The CPU of the partner.
pub(crate) fn partner_cpu(bench: &Bench<'_>, case: &Case) -> ProbeResult<u32> {
    match PairPlacement::of(case) {
        Some(PairPlacement::SameCpu) => Ok(bench.cpu()),
        Some(PairPlacement::TwoCpus) => bench.partner_cpu(),
        None => Err(ProbeError::fail(format!("the case needs placement=same_cpu or placement=two_cpus, not {case}"))),
    }
}

/// What two processes communicate by.
const MECHANISMS: [HandoffMechanism; 3] = [HandoffMechanism::Pipe, HandoffMechanism::Unix, HandoffMechanism::Futex];

fn mechanism_of(case: &Case) -> ProbeResult<HandoffMechanism> {
    HandoffMechanism::of(case)
        .filter(|mechanism| MECHANISMS.contains(mechanism))
        .or_fail(format!("the case needs mechanism=pipe, mechanism=unix or mechanism=futex, not {case}"))
}
