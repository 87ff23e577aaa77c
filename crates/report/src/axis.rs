//! The axes of figures: what their numbers are, and how a number is drawn.

use kelvin_core::Unit;
use serde::{Serialize, Serializer};

use crate::units;

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureAxis {
    /// Label, without the unit.
    pub label: String,
    /// What its numbers are.
    pub kind: AxisKind,
    /// Whether it starts out logarithmic.
    pub logarithmic: bool,
    /// Whether a linear axis of positive values starts at zero, so that heights can be compared; not if the distance from
    /// another value is what counts.
    pub from_zero: bool,
}

impl FigureAxis {
    /// A linear axis that starts at zero.
    pub(crate) fn new(label: impl Into<String>, kind: impl Into<AxisKind>) -> Self {
        Self { label: label.into(), kind: kind.into(), logarithmic: false, from_zero: true }
    }

    pub(crate) fn logarithmic(self, logarithmic: bool) -> Self {
        Self { logarithmic, ..self }
    }

    pub(crate) fn without_zero(self) -> Self {
        Self { from_zero: false, ..self }
    }
}

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisKind {
    /// A pure number, or a count.
    Number,
    /// Seconds of the run.
    Seconds,
    /// Values of metrics in another unit.
    #[serde(untagged)]
    Unit(Unit),
}

impl From<Unit> for AxisKind {
    fn from(unit: Unit) -> Self {
        if matches!(unit, Unit::Ratio | Unit::Count) { Self::Number } else { Self::Unit(unit) }
    }
}

impl AxisKind {
    /// Its scales: from which size, divided by what, with which symbol; smallest first.
    pub fn scales(self) -> Vec<(f64, f64, &'static str)> {
        match self {
            Self::Unit(unit) => {
                units::reading_scales(unit).map(|(start, scale)| (start, scale.factor, scale.symbol)).collect()
            }
            Self::Number => vec![(0.0, 1.0, "")],
            Self::Seconds => vec![(0.0, 1.0, "s")],
        }
    }

    /// A range as text, in one unit where its ends lie close together.
    pub fn span(self, low: f64, high: f64) -> String {
        match self {
            Self::Unit(unit) => units::span(low, high, unit),
            _ if low == high => self.text(low),
            _ => format!("{} to {}", self.text(low), self.text(high)),
        }
    }

    /// A number of this axis as text, with its unit.
    pub fn text(self, value: f64) -> String {
        let is_whole = value >= 0.0 && value.fract() == 0.0;
        match self {
            Self::Unit(Unit::Bytes) if is_whole => units::bytes(value as u64),
            Self::Unit(unit) => units::value_text(value, unit),
            Self::Number if is_whole => units::count(value as u64),
            Self::Number => units::value_text(value, Unit::Ratio),
            Self::Seconds => units::value_text(value * 1e9, Unit::Nanoseconds),
        }
    }
}

/// A number as it is drawn: whole, or a fraction of six significant digits, which is more than any interval here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sig6(pub f64);

impl Serialize for Sig6 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Above it not every whole number is a double.
        const MAX_EXACT_INTEGER: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
        let Self(value) = *self;
        if value.fract() == 0.0 && value.abs() < MAX_EXACT_INTEGER {
            return (value as i64).serialize(serializer);
        }
        let rounded: f64 = format!("{value:.5e}").parse().map_err(serde::ser::Error::custom)?;
        rounded.serialize(serializer)
    }
}
