//! One point in the space of a metric's parameters.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::{Id, Word};
use crate::{Axis, Name, quantity};

/// The parameters of one measurement: axis name to value; empty for a metric without parameters.
///
/// Axes are data, never part of a metric's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Case(#[schemars(with = "BTreeMap<Id, Value>")] BTreeMap<Name, Value>);

/// The value of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A number: a count, or bytes.
    Integer(u64),
    /// A word.
    Word(#[schemars(with = "Word")] Name),
}

impl Value {
    /// Whether a user writes it so: as data, or, of a number, as a size: `1M`, `64KiB`.
    pub fn matches_text(self, text: &str) -> bool {
        self.to_string() == text || matches!(self, Self::Integer(number) if quantity::parse_bytes(text) == Ok(number))
    }
}

/// An axis at one of its words: an enum of the catalogue in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct AxisWord(#[schemars(with = "Id")] Name, #[schemars(with = "Word")] Name);

impl AxisWord {
    /// The axis where it has this word.
    pub const fn new(axis: Axis, word: &'static str) -> Self {
        Self(axis.name, Name::new(word))
    }

    /// Name of the axis.
    pub const fn axis(self) -> Name {
        self.0
    }

    /// The word.
    pub const fn word(self) -> Name {
        self.1
    }

    /// An axis and a word by their names, for fixtures and the command line.
    pub const fn from_names(axis: &'static str, word: &'static str) -> Self {
        Self(Name::new(axis), Name::new(word))
    }

    /// Whether a case is at this point.
    pub fn is_in_case(self, case: &Case) -> bool {
        case.get(&self.0) == Some(Value::Word(self.1))
    }
}

impl Case {
    /// The case without parameters.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The case with one more number.
    #[must_use]
    pub fn with_number(mut self, axis: impl Into<Name>, value: u64) -> Self {
        self.0.insert(axis.into(), Value::Integer(value));
        self
    }

    /// The case with one more word.
    #[must_use]
    pub fn with_word(mut self, point: impl Into<AxisWord>) -> Self {
        let AxisWord(axis, word) = point.into();
        self.0.insert(axis, Value::Word(word));
        self
    }

    /// The value on an axis.
    pub fn get(&self, axis: &str) -> Option<Value> {
        self.0.iter().find(|(name, _)| **name == *axis).map(|(_, value)| *value)
    }

    /// All axes and values, by axis name.
    pub fn iter(&self) -> impl Iterator<Item = (Name, Value)> {
        self.0.iter().map(|(&name, &value)| (name, value))
    }

    /// Whether it has no parameters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Name, Value)> for Case {
    fn from_iter<I: IntoIterator<Item = (Name, Value)>>(pairs: I) -> Self {
        // A case has few axes: to collect them would sort them first, by code of its own for every kind of iterator.
        let mut values = BTreeMap::new();
        values.extend(pairs);
        Self(values)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(value) => f.pad(&value.to_string()),
            Value::Word(word) => f.pad(word),
        }
    }
}

impl fmt::Display for Case {
    /// `arguments=3 via=plt`; nothing for the case without parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.pad(&pairs.join(" "))
    }
}

impl Axis {
    /// The number of a case on this axis, if it has one.
    pub fn number_in(self, case: &Case) -> Option<u64> {
        match case.get(&self.name)? {
            Value::Integer(value) => Some(value),
            Value::Word(_) => None,
        }
    }

    /// The word of a case on this axis, if it has one.
    pub fn word_in(self, case: &Case) -> Option<&'static str> {
        match case.get(&self.name)? {
            Value::Word(word) => Some(word.as_str()),
            Value::Integer(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_round_trips_json_and_displays() {
        let case = Case::new().with_number("arguments", 3).with_word(AxisWord::from_names("via", "plt"));
        let json = serde_json::to_string(&case).unwrap();
        assert_eq!(json, r#"{"arguments":3,"via":"plt"}"#);
        assert_eq!(serde_json::from_str::<Case>(&json).unwrap(), case);
        assert_eq!(case.to_string(), "arguments=3 via=plt");
        assert_eq!(case.get("arguments"), Some(Value::Integer(3)));
        assert!(
            AxisWord::from_names("via", "plt").is_in_case(&case)
                && !AxisWord::from_names("via", "direct").is_in_case(&case)
        );
    }

    #[test]
    fn size_matches_in_any_unit() {
        let size = Value::Integer(1 << 20);
        assert!(["1048576", "1M", "1MiB", "1024k"].iter().all(|text| size.matches_text(text)));
        assert!(["1MB", "1", "", "M"].iter().all(|text| !size.matches_text(text)));
        assert!(Value::Word(Name::new("plt")).matches_text("plt") && !Value::Word(Name::new("plt")).matches_text("1"));
    }
}
