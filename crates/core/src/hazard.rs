//! Something about the machine or its state that can distort a number.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::identifiers::{Beginning, Id};

/// A hazard: what it is, what it does to which metrics, and its remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hazard {
    /// Stable id: `virtual_machine`, `smt`, `mitigations`.
    #[schemars(with = "Id")]
    pub id: Name,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in one line, with its figures.
    pub summary: String,
    /// What it does to measurements.
    pub effect: String,
    /// Prefixes of the ids of the metrics it affects; empty means all.
    #[schemars(with = "Vec<Beginning>")]
    pub affects: Vec<Name>,
    /// What removes it, if anything does: a command of a shell, or advice in words.
    pub remedy: Option<String>,
    /// Whether that is a command. Runs that were stored before this was told have none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remedy_is_command: bool,
    /// Its source.
    pub source: String,
}

impl Hazard {
    /// Whether it affects the metric with this id.
    pub fn is_affecting(&self, metric: &str) -> bool {
        self.affects.is_empty() || self.affects.iter().any(|prefix| metric.starts_with(prefix.as_str()))
    }
}

/// How bad a hazard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know: shifts numbers in a known direction.
    Note,
    /// Widens error bars or shifts some numbers.
    Warning,
    /// Numbers it affects should not be trusted while it lasts.
    Serious,
}

impl Severity {
    /// It in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}
