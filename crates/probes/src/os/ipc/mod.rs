//! Local communication between two processes: round-trip time and bandwidth.

pub(super) mod bandwidth;
pub(super) mod latency;

use crate::cases::{IncompleteCase, required_word};
use crate::reasons::ProbeResult;
use kelvin_core::Case;
use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::os::HandoffMechanism;
use kelvin_harness::Bench;

/// The CPU of the partner.
pub(crate) fn partner_cpu(bench: &Bench<'_>, case: &Case) -> ProbeResult<u32> {
    match required_word(PairPlacement::of(case), PairPlacement::ALL, case)? {
        PairPlacement::SameCpu => Ok(bench.cpu()),
        PairPlacement::TwoCpus => bench.partner_cpu(),
    }
}

/// What two processes communicate by.
const MECHANISMS: [HandoffMechanism; 3] = [HandoffMechanism::Pipe, HandoffMechanism::Unix, HandoffMechanism::Futex];

fn mechanism_of(case: &Case) -> Result<HandoffMechanism, IncompleteCase> {
    required_word(HandoffMechanism::of(case), &MECHANISMS, case)
}
