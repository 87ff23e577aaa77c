//! JSON output: no control character reaches a terminal, and nothing is lost. All JSON is read by the reader of bytes: one of texts, or of
//! [`Value`], would be compiled for every type once more.

use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned};
use serde_json::Value;

use crate::text::is_visible;

/// The value that a text has.
///
/// # Errors
/// Where it is no JSON, or of another type.
pub fn from_str<'a, T: Deserialize<'a>>(json: &'a str) -> serde_json::Result<T> {
    serde_json::from_slice(json.as_bytes())
}

/// A value as any JSON.
///
/// # Errors
/// If the value cannot be JSON.
pub fn to_value(value: &impl Serialize) -> serde_json::Result<Value> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

/// The same value with a change to its JSON.
///
/// # Errors
/// If the value does not survive JSON, such as a NaN, or the change.
pub fn edit<T: Serialize + DeserializeOwned>(value: &T, change: impl FnOnce(&mut Value)) -> serde_json::Result<T> {
    let mut json = to_value(value)?;
    change(&mut json);
    serde_json::from_slice(&serde_json::to_vec(&json)?)
}

/// In one line.
///
/// # Errors
/// If the value cannot be JSON.
pub fn to_string(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(escape_invisible)
}

/// Indented for people.
///
/// # Errors
/// If the value cannot be JSON.
pub fn to_string_pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(escape_invisible)
}

/// JSON escapes only the first 32 control characters. Other invisible characters occur only in texts, where an escape means the
/// same.
fn escape_invisible(json: String) -> String {
    let is_allowed = |c: char| c == '\n' || is_visible(c);
    if json.chars().all(is_allowed) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_allowed(c) {
            escaped.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            escaped.push_str(&units);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_escaped_without_loss() {
        let text = "a\u{1b}[31m\u{9b}2J\u{202e}\u{7f}\u{e0041}\n\"\\ü";
        for json in [to_string(&[text]).unwrap(), to_string_pretty(&[text]).unwrap()] {
            assert!(json.chars().all(|c| c == '\n' || is_visible(c)), "{json:?}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
        }
        assert_eq!(to_string(&"\u{9b}\u{e0041}").unwrap(), r#""\u009b\udb40\udc41""#);
    }
}
