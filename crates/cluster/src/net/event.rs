//! What rank 0 writes of the network to the file of results: plain data.

use kelvin_core::cluster::{Analysis, Transport};
use serde::{Deserialize, Serialize};

use super::task::{PairFigures, PairPlan};

/// What is measured of each pair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetPlan {
    /// What each pair measures, one for each transport.
    pub plans: Vec<PairPlan>,
    /// Relative difference from which on a link or host is named.
    pub tolerance: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum NetEvent {
    /// A pair was measured.
    Pair {
        /// The transport.
        transport: Transport,
        /// The pass, from 1; 0 of those that were measured again.
        pass: usize,
        /// The ranks, the lower one first.
        pair: [usize; 2],
        /// What was measured.
        figures: PairFigures,
    },
    /// A pair could not be measured.
    PairFailed {
        /// The transport.
        transport: Transport,
        /// The ranks, the lower one first.
        pair: [usize; 2],
        /// Why.
        reason: String,
    },
    /// A pair was measured while all others across the middle were.
    Bisection {
        /// The transport.
        transport: Transport,
        /// The ranks, the lower one first.
        pair: [usize; 2],
        /// What was measured.
        figures: PairFigures,
    },
    /// All ranks exchanged with all.
    AllToAll {
        /// Bytes of each rank for each other.
        bytes: usize,
        /// Exchanges.
        count: usize,
        /// Seconds of the slowest rank.
        seconds: f64,
    },
    /// What the pairs say together.
    Analysis {
        /// The matrices with the predictions, and what is slow.
        analysis: Analysis,
    },
}
