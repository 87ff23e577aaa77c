//! Everything from the other side is bounded when it is read: texts by bytes and characters, lists and numbers by size.
//!
//! So nothing of it is too long to be passed on, can move a terminal's cursor, or overflows a computation.

use std::fmt::Display;

use kelvin_core::text::is_visible;
use serde::de::{Deserialize, Deserializer, Error};

/// Most bytes of a reason, of which much is written for people.
pub const MAX_REASON_BYTES: usize = 400;
/// Most bytes of the name of a program, of its version, or of a driver.
pub const MAX_NAME_BYTES: usize = 64;
/// Most entries of a list.
const MAX_LIST_ENTRIES: usize = 128;
/// Most of a rate in bits or bytes per second, and of a share of a host's time: the largest there is, times a thousand.
pub(crate) const MAX_RATE: u64 = 1_000_000_000_000_000;
pub(crate) const MAX_SHARE: u64 = 1_000_000;

/// As much of a text as fits, with unprintable characters replaced.
pub fn truncate(text: &str, limit: usize) -> String {
    let visible_text: String =
        text.chars().map(|c| if is_visible(c) { c } else { char::REPLACEMENT_CHARACTER }).collect();
    let end = (0..=limit.min(visible_text.len())).rev().find(|&end| visible_text.is_char_boundary(end));
    visible_text[..end.unwrap_or(0)].to_owned()
}

/// What is bounded when it is read: by bytes where it is a text, by its value where it is a number.
pub trait Bounded {
    /// An error for what exceeds the most, or has control characters.
    ///
    /// # Errors
    /// What it exceeds.
    fn check<E: Error>(&self, limit: u64) -> Result<(), E>;
}

impl Bounded for String {
    fn check<E: Error>(&self, limit: u64) -> Result<(), E> {
        if self.len() as u64 > limit {
            return Err(out_of_bounds("a text", self.len(), limit));
        }
        if self.chars().all(is_visible) { Ok(()) } else { Err(E::custom("a text with a control character")) }
    }
}

impl Bounded for f64 {
    fn check<E: Error>(&self, limit: u64) -> Result<(), E> {
        if (0.0..=limit as f64).contains(self) { Ok(()) } else { Err(out_of_bounds("a number", self, limit)) }
    }
}

impl<T: Bounded> Bounded for Option<T> {
    fn check<E: Error>(&self, limit: u64) -> Result<(), E> {
        self.as_ref().map_or(Ok(()), |value| value.check(limit))
    }
}

impl<T: Bounded> Bounded for Vec<T> {
    fn check<E: Error>(&self, limit: u64) -> Result<(), E> {
        if self.len() > MAX_LIST_ENTRIES {
            return Err(out_of_bounds("a list", self.len(), MAX_LIST_ENTRIES));
        }
        self.iter().try_for_each(|value| value.check(limit))
    }
}

/// A value, or none, or a list, of which each has this bound.
///
/// # Errors
/// One that exceeds it.
pub fn bounded<'de, const LIMIT: u64, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Bounded + Deserialize<'de>,
    D: Deserializer<'de>,
{
    let value = T::deserialize(deserializer)?;
    value.check(LIMIT)?;
    Ok(value)
}

pub(crate) fn out_of_bounds<E: Error>(subject: &str, value: impl Display, limit: impl Display) -> E {
    E::custom(format!("{subject} of {value}, where {limit} is the most"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_text_ends_at_char_boundary() {
        assert_eq!(truncate("one\u{1b}[2J\ntwo", 100), "one\u{fffd}[2J\u{fffd}two");
        assert_eq!(truncate("ääää", 5), "ää");
        assert_eq!(truncate("\u{202e}x", 3), "\u{fffd}");
        assert_eq!(truncate("", 0), "");
    }

    fn read<T>(
        text: &str,
        read: fn(&mut serde_json::Deserializer<serde_json::de::StrRead<'_>>) -> serde_json::Result<T>,
    ) -> Result<T, String> {
        read(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn out_of_bounds_value_is_refused() {
        let name = |text: &str| read(text, |deserializer| bounded::<15, Option<String>, _>(deserializer));
        assert_eq!(name("\"fifteen bytes...\""), Err("a text of 16, where 15 is the most".into()));
        assert_eq!(name("\"fifteen bytes..\"").unwrap().unwrap().len(), 15);
        assert_eq!(name("null"), Ok(None));
        assert_eq!(name("\"a\\nb\""), Err("a text with a control character".into()));
        let names = |count: usize| {
            read(&format!("[{}]", vec!["\"x\""; count].join(",")), |deserializer| {
                bounded::<1, Option<Vec<String>>, _>(deserializer)
            })
        };
        assert_eq!(names(128).unwrap().unwrap().len(), 128);
        assert_eq!(names(129), Err("a list of 129, where 128 is the most".into()));
        for text in ["-1e-9", "1e7"] {
            assert!(
                read(text, |deserializer| bounded::<MAX_SHARE, f64, _>(deserializer))
                    .unwrap_err()
                    .contains("1000000 is the most"),
                "{text}"
            );
        }
        assert_eq!(
            (
                read("2.5", |deserializer| bounded::<MAX_SHARE, f64, _>(deserializer)),
                read("1e10", |deserializer| bounded::<MAX_RATE, Option<f64>, _>(deserializer))
            ),
            (Ok(2.5), Ok(Some(1e10)))
        );
    }
}
