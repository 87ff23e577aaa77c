//! An interned string, so that definitions can be constants and still be read back from a file.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A short text that is either a constant of the program or interned for the life of the process.
///
/// Metric ids, axis names and the like occur thousands of times in a run and come from a small set; interning makes
/// them `Copy` and lets a [`crate::Metric`] be a `static`. Each distinct text is kept once.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(&'static str);

static INTERNED_NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Name {
    /// A name from a constant.
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    /// A name from a text known only at run time; keeps one copy of each distinct text for ever.
    pub fn intern(text: &str) -> Self {
        let mut interned = INTERNED_NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(existing) = interned.get(text) {
            return Self(existing);
        }
        let leaked: &'static str = Box::leak(text.to_owned().into_boxed_str());
        interned.insert(leaked);
        Self(leaked)
    }

    /// The text.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// Whether a name is this id, or a leading part of it up to a dot: `os` and `os.syscall` of `os.syscall.null`.
pub fn is_dotted_prefix(name: &str, id: &str) -> bool {
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl std::ops::Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.0
    }
}

impl From<&'static str> for Name {
    fn from(text: &'static str) -> Self {
        Self(text)
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        Ok(Self::intern(&text))
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interning_keeps_one_copy() {
        let first = Name::intern(&String::from("os.syscall.null"));
        let second = Name::intern(&String::from("os.syscall.null"));
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
        assert_eq!(first, Name::new("os.syscall.null"));
    }
}
