//! What rank 0 writes of a load to the file of results: plain data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is requested, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Given to the ranks in turn.
    pub urls: Vec<String>,
    /// The options of `kelvin load`.
    pub options: Vec<String>,
    /// What all of them together must not do, as `kelvin load merge --fail-on` has it.
    pub fail_on: Vec<String>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LoadEvent {
    /// All ranks begin then, by the clock of rank 0, in seconds since 1970.
    Schedule {
        /// The time.
        start_s: f64,
    },
    /// A generator has ended.
    Generator {
        /// Its rank.
        rank: usize,
        /// What `kelvin load --json` printed, with its times on the clock of rank 0.
        document: Value,
    },
    /// A generator measured nothing.
    GeneratorFailed {
        /// Its rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// All of them as one, as `kelvin load merge --json` has it.
    Merged {
        /// What it printed.
        document: Value,
    },
}
