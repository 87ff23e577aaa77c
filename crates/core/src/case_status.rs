//! What is known while a run goes on, and its planner and its probes decide by: how far a case has come, and how the core's
//! canaries read when it is left alone.

use serde::{Deserialize, Serialize};

use crate::{Canaries, Canary, HeadlineSamples};

/// How far a case has come, by all rounds of the run so far, as the report would state it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CaseStatus {
    /// Rounds that count for the headlines of all its metrics: of an undisturbed headline those with enough undisturbed samples.
    pub counted_rounds: u32,
    /// Half-width of its widest interval as a share of the value; `None` without an interval.
    pub half_width: Option<f64>,
    /// Like `half_width`, of what more rounds narrow, by themselves: neither modes nor drift, nor what differs from run to run.
    pub narrowable: Option<f64>,
}

/// The steady state of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Its reading, in nanoseconds.
    pub nanoseconds: f64,
    /// Relative distance up to which a reading is steady.
    pub tolerance: f64,
}

impl SteadyState {
    /// A reading as a multiple of the steady state.
    pub fn ratio_to_steady(self, reading: f32) -> f64 {
        f64::from(reading) / self.nanoseconds
    }

    /// Whether such a multiple is steady.
    pub fn is_steady(self, relative: f64) -> bool {
        (relative - 1.0).abs() <= self.tolerance
    }
}

/// The steady states of the canaries that show a core's frequency, and what a sibling thread leaves of its throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreSteadyState {
    /// Of [`Canary::Chain`].
    pub chain: SteadyState,
    /// Of [`Canary::Block`].
    pub block: SteadyState,
}

impl CoreSteadyState {
    /// Whether the two guard a metric with these canaries and this choice of samples.
    pub fn is_guarding(canaries: Canaries, treatment: HeadlineSamples) -> bool {
        treatment != HeadlineSamples::AsFound && canaries.contains(Canary::Chain) && canaries.contains(Canary::Block)
    }

    /// Whether readings of the two show an undisturbed core. Where the frequency is divided out of the metric's values any
    /// frequency is as good as the steady one, and is divided out of the block.
    pub fn is_undisturbed(self, chain: f32, block: f32, treatment: HeadlineSamples) -> bool {
        let (slowness, block) = (self.chain.ratio_to_steady(chain), self.block.ratio_to_steady(block));
        match treatment {
            HeadlineSamples::CycleNormalised => self.block.is_steady(block / slowness),
            HeadlineSamples::Undisturbed | HeadlineSamples::AsFound => {
                self.chain.is_steady(slowness) && self.block.is_steady(block)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: CoreSteadyState = CoreSteadyState {
        chain: SteadyState { nanoseconds: 2000.0, tolerance: 0.02 },
        block: SteadyState { nanoseconds: 1000.0, tolerance: 0.015 },
    };

    #[test]
    fn sibling_or_frequency_change_is_disturbance() {
        assert!(CORE.is_undisturbed(2030.0, 1014.0, HeadlineSamples::Undisturbed));
        assert!(!CORE.is_undisturbed(2000.0, 1600.0, HeadlineSamples::Undisturbed), "a busy sibling");
        assert!(!CORE.is_undisturbed(2080.0, 1040.0, HeadlineSamples::Undisturbed), "another frequency");
        assert!(CORE.is_undisturbed(2080.0, 1040.0, HeadlineSamples::CycleNormalised), "it is divided out");
        assert!(!CORE.is_undisturbed(2080.0, 1660.0, HeadlineSamples::CycleNormalised));
    }

    #[test]
    fn core_guards_metrics_of_both_canaries() {
        assert!(CoreSteadyState::is_guarding(Canaries::CORE, HeadlineSamples::Undisturbed));
        assert!(CoreSteadyState::is_guarding(Canaries::CORE, HeadlineSamples::CycleNormalised));
        assert!(!CoreSteadyState::is_guarding(Canaries::CORE, HeadlineSamples::AsFound));
        assert!(!CoreSteadyState::is_guarding(Canaries::from_canaries(&[Canary::Chain]), HeadlineSamples::Undisturbed));
    }
}
