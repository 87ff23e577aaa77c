//! Tags of runs: what they are, and their grammar.

use std::fmt;
use std::str::FromStr;

use kelvin_core::identifiers::ID_GRAMMAR;

/// Maximum bytes of the value of a tag: a name of a branch or a version, no text.
const MAX_TAG_VALUE_BYTES: usize = 128;

/// A tag of a run, `kernel=6.18`: a run has at most one value of each name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    name: String,
    value: String,
}

impl Tag {
    /// Its name: `kernel`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value: `6.18`.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// What a tag must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// No name, no sign or no value.
    #[error("a tag is NAME=VALUE, such as kernel=6.18")]
    Parts,
    /// The name.
    #[error("the name of a tag is {}", ID_GRAMMAR.words)]
    Name,
    /// The value.
    #[error(
        "the value of a tag is letters, digits and any of '._-+:/@', at most {MAX_TAG_VALUE_BYTES} bytes, without two consecutive dots"
    )]
    Value,
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let (name, value) = text.split_once('=').ok_or(TagError::Parts)?;
        let name = checked_tag_name(name)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+:/@".contains(&byte);
        // Two dots stand between the ends of a range of runs.
        let is_value =
            (1..=MAX_TAG_VALUE_BYTES).contains(&value.len()) && value.bytes().all(is_allowed) && !value.contains("..");
        match is_value {
            true => Ok(Self { name, value: value.to_owned() }),
            false if value.is_empty() => Err(TagError::Parts),
            false => Err(TagError::Value),
        }
    }
}

/// The name of a tag.
///
/// # Errors
/// If it is none.
pub fn checked_tag_name(name: &str) -> Result<String, TagError> {
    match ID_GRAMMAR.allows(name) {
        true => Ok(name.to_owned()),
        false if name.is_empty() => Err(TagError::Parts),
        false => Err(TagError::Name),
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_name_and_value() {
        let tag: Tag = "kernel=6.18.0-rc1+".parse().unwrap();
        assert_eq!(
            (tag.name(), tag.value(), tag.to_string().as_str()),
            ("kernel", "6.18.0-rc1+", "kernel=6.18.0-rc1+")
        );
        for valid in ["a=b", "branch=feature/x", "by=me@host", "at=12:30", "disk.model=wd_sn-850"] {
            assert_eq!(valid.parse::<Tag>().unwrap().to_string(), valid);
        }
        for (invalid, error) in [
            ("", TagError::Parts),
            ("kernel", TagError::Parts),
            ("=x", TagError::Parts),
            ("kernel=", TagError::Parts),
            ("Kernel=1", TagError::Name),
            ("a b=1", TagError::Name),
            ("a=1 2", TagError::Value),
            ("a=1..2", TagError::Value),
            ("a=b=c", TagError::Value),
            ("a=\u{1b}[2J", TagError::Value),
            ("a=ü", TagError::Value),
        ] {
            assert_eq!(invalid.parse::<Tag>(), Err(error), "{invalid:?}");
        }
        assert!(format!("a={}", "x".repeat(MAX_TAG_VALUE_BYTES)).parse::<Tag>().is_ok());
        assert!(format!("a={}", "x".repeat(MAX_TAG_VALUE_BYTES + 1)).parse::<Tag>().is_err());
    }
}
