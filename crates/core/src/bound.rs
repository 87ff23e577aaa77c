//! Bounds on a number: the most that the hardware carries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Case, Input, Name};

/// The most that the hardware carries. It is derived from facts of the machine alone, never from a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bound {
    /// The most, in the metric's unit.
    pub limit: f64,
    /// Its inputs: facts, each with its source.
    pub inputs: Vec<Input>,
    /// The derivation with the figures put in: `eth0 carries 125.0 MB/s x (1500 - 40) / (1500 + 38) = 118.7 MB/s`.
    pub derivation: String,
    /// The likely cause of a measurement above it, as a clause: `the bytes took another route`.
    pub likely_cause: String,
}

/// The bound of one metric at one case, kept in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundRecord {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The case.
    pub case: Case,
    /// Its bound.
    pub bound: Bound,
}
