//! Published results of a reference machine: mean, deviation and count, no samples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Case, Name, Unit};

/// A reference machine and its published values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// Id: `zenbook-2011`.
    pub id: Name,
    /// Its name for people.
    pub title: String,
    /// Facts of the machine, label and text.
    pub machine: Vec<(String, String)>,
    /// Core frequency in hertz during the measurements, if published.
    pub frequency_hz: Option<f64>,
    /// The published values, including those without a counterpart in kelvin.
    pub values: Vec<ReferenceValue>,
    /// What its authors found, in words.
    pub findings: Vec<String>,
}

/// One published value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReferenceValue {
    /// Id of the metric; of a value without a counterpart in kelvin, the name of its row, and no case.
    pub metric: Name,
    /// The case it was measured at.
    pub case: Case,
    /// Published (or corrected, see `note`) value in `unit`.
    pub value: f64,
    /// Published core cycles, where the study gave its value in cycles too.
    #[serde(default)]
    pub cycles: Option<f64>,
    /// Published standard deviation of one value, in `unit`.
    pub std: Option<f64>,
    /// Number of trials.
    pub n: Option<u64>,
    /// What its authors predicted before measuring, in `unit`.
    pub predicted: Option<f64>,
    /// Unit of all these figures.
    pub unit: Unit,
    /// What one value covers, if not what kelvin's metric covers; then the two must not be compared as equals.
    pub range: Option<String>,
    /// Known slips of the publication.
    pub note: Option<String>,
    /// Other published figures about the same value, each with a label that names its unit: a peak, a total.
    #[serde(default)]
    pub other_values: Vec<(String, f64)>,
}
