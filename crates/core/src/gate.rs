//! What a comparison shows that it must not: misses of a gate, and what is known already.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::identifiers::Id;

/// What a gate finds in a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateResult {
    /// What makes it fail.
    pub failures: Vec<GateFinding>,
    /// What would, if it were not known.
    pub known: Vec<GateFinding>,
    /// How many figures could not have shown a change as large as is allowed.
    pub undetectable: usize,
    /// Known issues, by their reasons, of which nothing was seen.
    pub resolved: Vec<String>,
}

/// A figure that a gate has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateFinding {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The metric at its case, as tables name it: `mem.latency pages=base bytes=16 MiB`.
    pub figure: String,
    /// What is wrong.
    pub reason: GateReason,
    /// The known issue, where there is one.
    pub issue: Option<KnownIssue>,
    /// Whose it is, where the policy says so.
    pub owner: Option<String>,
}

/// What is wrong with a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateReason {
    /// It is worse, as a share, than is allowed; 0 where nothing worse is.
    Worse {
        /// By so much.
        change: f64,
        /// What is allowed.
        allowed: f64,
    },
    /// It is not known well enough.
    Undetectable {
        /// The smallest change that would have been found, as a share; none where no change would have been.
        detectable: Option<f64>,
        /// What must be found.
        required: f64,
    },
    /// It was not compared, and must be.
    NotCompared,
}

/// A known issue, as far as it bears on a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnownIssue {
    /// What it is.
    pub reason: String,
    /// Until which day it is known, that day included: 2026-12-31.
    pub until: Option<String>,
    /// By which share it may make a figure worse, if that is bounded.
    pub worse: Option<f64>,
}
