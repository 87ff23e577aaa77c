//! Canaries: short fixed kernels between the batches of a probe, and sets of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A short fixed kernel timed between batches to see a disturbance that no counter shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Canary {
    /// A chain of dependent multiplies: a known number of core cycles each, so the core's frequency.
    Chain,
    /// A block of independent adds: throughput, which a busy SMT sibling halves.
    Block,
}

impl Canary {
    /// All canaries, in the order in which they are kept.
    pub const ALL: [Canary; 2] = [Canary::Chain, Canary::Block];

    /// Its name in data.
    pub const fn name(self) -> &'static str {
        match self {
            Canary::Chain => "chain",
            Canary::Block => "block",
        }
    }
}

/// Dependent multiplies in one reading of [`Canary::Chain`].
pub const CANARY_CHAIN_MULTIPLIES: u32 = 2752;

/// A set of canaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Canaries(u8);

impl Canaries {
    /// No canary.
    pub const NONE: Self = Self(0);
    /// Frequency and throughput of the core.
    pub const CORE: Self = Self(0b0011);
    /// The set of these canaries.
    pub const fn from_canaries(canaries: &[Canary]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < canaries.len() {
            bits |= 1 << canaries[i] as u8;
            i += 1;
        }
        Self(bits)
    }

    /// Whether the set holds this canary.
    pub const fn contains(self, canary: Canary) -> bool {
        self.0 & (1 << canary as u8) != 0
    }

    /// The canaries of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = Canary> {
        Canary::ALL.into_iter().filter(move |&canary| self.contains(canary))
    }
}
