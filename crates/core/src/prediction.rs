//! Predictions: the expected value of a number, and why.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Case, Name, Unit};

/// A predicted value with its derivation. Never adjusted to the result that it is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The predicted value, in the metric's unit.
    pub value: f64,
    /// Lower end of the predicted range, in the metric's unit.
    pub low: f64,
    /// Upper end of the predicted range.
    pub high: f64,
    /// Its basis.
    pub basis: PredictionBasis,
    /// The formula, in symbols or words: `null call + bytes / copy rate`.
    pub formula: String,
    /// The inputs of the formula.
    pub inputs: Vec<Input>,
    /// The derivation with the figures put in: `61 ns system call + 4096 B / 11.8 GB/s copy = 408 ns`.
    pub derivation: String,
    /// Sources of formula and constants.
    pub sources: Vec<String>,
    /// What made the range, where other machines tell how far such figures lie from their formula; else it is the formula's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What tells the formula from all others of its metric, whatever their texts say: figures of other machines correct a formula of
    /// the same name only. It comes with the formula and is not stored.
    #[serde(skip)]
    pub formula_name: Cow<'static, str>,
    /// What the machine or the case states as the most, where it states that: no correction goes beyond it. Not stored.
    #[serde(skip)]
    pub ceiling: Option<Ceiling>,
}

/// The most that a machine or a case states of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// The stated most, in the metric's unit: no predicted value is above it.
    pub limit: f64,
    /// The upper end of any range, which also allows for errors of the measurement; at least `limit`.
    pub range_end: f64,
}

/// How far figures of a formula lay from it on other machines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Measured over predicted: the lower end of the range that 9 of 10 figures of one more machine are expected in.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How many figures tell.
    pub figures: usize,
    /// Of how many kinds of machine.
    pub machines: usize,
}

/// The basis of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PredictionBasis {
    /// Specifications of the hardware.
    Spec,
    /// Lower metrics of the same run.
    Derived,
    /// Published figures.
    Published,
    /// The same figure on other machines: no formula tells of it.
    ReferenceMachines,
}

/// One input of a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Input {
    /// What it is: a metric's id with its case, or a fact's name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// Its source: `measured`, a fact's source, or a citation.
    pub source: String,
}

/// Why a metric has no prediction here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct NoPrediction(pub String);

impl NoPrediction {
    /// No prediction, for this reason: a sentence that a reader can act on or at least understand.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The prediction of one metric at one case, or the reason for none, kept in the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionRecord {
    /// Id of the metric.
    #[schemars(with = "Id")]
    pub metric: Name,
    /// The case.
    pub case: Case,
    /// The prediction, if there is one.
    pub prediction: Option<Prediction>,
    /// Why there is none.
    pub missing_reason: Option<NoPrediction>,
}
