//! Everything from the other side is bounded when it is read: texts by bytes and characters, lists and numbers by size.
//!
//! So nothing of it is too long to be passed on, can move a terminal's cursor, or overflows a computation.

use std::fmt::Display;

use kelvin_core::text::is_visible;
use serde::de::{Deserialize, Deserializer, Error};

use crate::wire::file_server;

/// Most bytes of a reason, of which much is written for people.
pub const MAX_REASON_BYTES: usize = 400;
/// Most bytes of the name of a program, of its version, or of a driver.
pub const MAX_NAME_BYTES: usize = 64;
/// Most entries of a list.
const MAX_LIST_ENTRIES: usize = 128;
/// Most of a rate in bits or bytes per second, and of a share of a host's time: the largest there is, times a thousand.
const MAX_RATE: f64 = 1e15;
const MAX_SHARE: f64 = 1e6;

/// As much of a text as fits, with unprintable characters replaced.
pub fn truncate(text: &str, most: usize) -> String {
    let shown: String = text.chars().map(|c| if is_visible(c) { c } else { char::REPLACEMENT_CHARACTER }).collect();
    shown[..shown.floor_char_boundary(most)].to_owned()
}

/// A text of at most so many bytes.
///
/// # Errors
/// A longer one, or one with control characters.
pub fn text<'de, const MOST: usize, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked_text::<MOST, _>(String::deserialize(from)?)
}

/// The same, optional.
pub(crate) fn optional_text<'de, const MOST: usize, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)?.map(checked_text::<MOST, _>).transpose()
}

/// Names of files, no more than a message has.
pub(crate) fn file_names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    if names.len() > file_server::NAMES_PER_MESSAGE {
        return Err(out_of_bounds("a list", names.len(), file_server::NAMES_PER_MESSAGE));
    }
    if names.iter().all(|name| file_server::is_file_name(name)) {
        Ok(names)
    } else {
        Err(D::Error::custom("a name of no file"))
    }
}

/// The same of a list.
pub(crate) fn text_list<'de, const MOST: usize, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let Some(all) = Option::<Vec<String>>::deserialize(from)? else { return Ok(None) };
    if all.len() > MAX_LIST_ENTRIES {
        return Err(out_of_bounds("a list", all.len(), MAX_LIST_ENTRIES));
    }
    all.into_iter().map(checked_text::<MOST, _>).collect::<Result<_, _>>().map(Some)
}

/// A rate in bits or bytes per second, if there is one.
pub(crate) fn optional_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Option::deserialize(from)?.map(|rate| checked_number(rate, MAX_RATE)).transpose()
}

/// A rate in bytes per second.
pub(crate) fn required_rate<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked_number(f64::deserialize(from)?, MAX_RATE)
}

/// A share of a host's time; of many CPUs more than one.
pub(crate) fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    checked_number(f64::deserialize(from)?, MAX_SHARE)
}

fn checked_text<const MOST: usize, E: Error>(text: String) -> Result<String, E> {
    if text.len() > MOST {
        return Err(out_of_bounds("a text", text.len(), MOST));
    }
    if text.chars().all(is_visible) { Ok(text) } else { Err(E::custom("a text with a control character")) }
}

fn checked_number<E: Error>(number: f64, most: f64) -> Result<f64, E> {
    if (0.0..=most).contains(&number) { Ok(number) } else { Err(out_of_bounds("a number", number, most)) }
}

fn out_of_bounds<E: Error>(what: &str, is: impl Display, most: impl Display) -> E {
    E::custom(format!("{what} of {is}, where {most} is the most"))
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
        let name = |text: &str| read(text, |from| optional_text::<15, _>(from));
        assert_eq!(name("\"fifteen bytes...\""), Err("a text of 16, where 15 is the most".into()));
        assert_eq!(name("\"fifteen bytes..\"").unwrap().unwrap().len(), 15);
        assert_eq!(name("null"), Ok(None));
        assert_eq!(name("\"a\\nb\""), Err("a text with a control character".into()));
        let names =
            |count: usize| read(&format!("[{}]", vec!["\"x\""; count].join(",")), |from| text_list::<1, _>(from));
        assert_eq!(names(128).unwrap().unwrap().len(), 128);
        assert_eq!(names(129), Err("a list of 129, where 128 is the most".into()));
        for wrong in ["-1e-9", "1e7"] {
            assert!(read(wrong, |from| share(from)).unwrap_err().contains("1000000 is the most"), "{wrong}");
        }
        assert_eq!(
            (read("2.5", |from| share(from)), read("1e10", |from| optional_rate(from))),
            (Ok(2.5), Ok(Some(1e10)))
        );
    }
}
