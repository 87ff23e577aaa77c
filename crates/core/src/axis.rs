//! The parameters of metrics, and how their values are spread.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::identifiers::Id;

/// A parameter of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    /// Key in a [`crate::Case`]: `arguments`.
    #[schemars(with = "Id")]
    pub name: Name,
    /// Label for people, with its unit: `resident memory, bytes`.
    pub label: Name,
    /// How values are spread.
    pub scale: AxisScale,
}

impl Axis {
    /// An axis from constants.
    pub const fn new(name: &'static str, label: &'static str, scale: AxisScale) -> Self {
        Self { name: Name::new(name), label: Name::new(label), scale }
    }
}

impl From<Axis> for Name {
    fn from(axis: Axis) -> Self {
        axis.name
    }
}

/// How the values of an axis are distributed and drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AxisScale {
    /// Integers on a linear scale.
    Linear,
    /// Integers on a logarithmic scale, written as they are.
    Logarithmic,
    /// Bytes on a logarithmic scale, written in KiB, MiB, GiB.
    Bytes,
    /// Words.
    Category,
}
