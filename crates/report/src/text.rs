//! Text made safe for terminals and scripts, and laid out in columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::Hash;

use kelvin_core::text::{escape_invisible, unbreakable_pieces};
use serde::Serialize;
use serde_json::Value;

/// Text with escapes for what could move a terminal's cursor or end a line.
pub fn clean(text: &str) -> String {
    escape_invisible(text).into_owned()
}

/// JSON for the inside of a script element: nothing in it can end the element, open a comment, or end a line of script;
/// invisible characters are escaped, as everywhere on the page.
///
/// # Errors
/// If the value cannot be JSON.
pub fn json_for_script(value: &impl Serialize) -> serde_json::Result<String> {
    let mut json = kelvin_core::json::to_value(value)?;
    escape_strings(&mut json);
    let mut escaped = String::new();
    for c in serde_json::to_string(&json)?.chars() {
        match c {
            '<' | '>' | '&' => {
                let _ = write!(escaped, "\\u{:04x}", c as u32);
            }
            c => escaped.push(c),
        }
    }
    Ok(escaped)
}

/// The name that a value has in data.
pub(crate) fn data_name(value: &impl Serialize) -> Cow<'static, str> {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name.into(),
        _ => "".into(),
    }
}

/// Escapes invisible characters in every text of a value.
fn escape_strings(json: &mut Value) {
    match json {
        Value::String(text) => *text = escape_invisible(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(escape_strings),
        Value::Object(fields) => fields.values_mut().for_each(escape_strings),
        _ => {}
    }
}

/// Columns that paragraphs take on a narrower terminal too.
pub(crate) const MIN_TEXT_WIDTH: usize = 40;

/// Breaks text into lines of at most `width` characters at spaces, but for those within a quantity; what is longer gets a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in unbreakable_pieces(&clean(text)) {
        let line = lines.last_mut().expect("there is always a line");
        let remaining = width.saturating_sub(display_width(line));
        if line.is_empty() {
            line.push_str(&piece);
        } else if display_width(&piece) < remaining {
            line.push(' ');
            line.push_str(&piece);
        } else {
            lines.push(piece);
        }
    }
    lines
}

/// Values by their keys, in the order in which the keys first come.
pub(crate) fn grouped<K: Clone + Eq + Hash, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    let mut indices: HashMap<K, usize> = HashMap::new();
    for (key, value) in pairs {
        let index = *indices.entry(key).or_insert_with_key(|key| {
            groups.push((key.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[index].1.push(value);
    }
    groups
}

/// Columns of a text on a terminal. The texts of a report have single-column characters.
pub fn display_width(text: &str) -> usize {
    text.chars().count()
}

/// Text padded on the right to a width.
pub fn pad_right(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(display_width(text))))
}

/// Text padded on the left to a width.
pub fn pad_left(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(display_width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_in_script() {
        let json = json_for_script(&[("a", "</script><!--\u{2028}&\u{1b}\u{202e}\"")]).unwrap();
        assert_eq!(json, r#"[["a","\u003c/script\u003e\u003c!--\\u{2028}\u0026\\u{1b}\\u{202e}\""]]"#);
    }

    #[test]
    fn lines_wrap_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("moved 700\u{202f}000 B", 9), ["moved", "700\u{202f}000 B"]);
        // A number and the sign of its unit stay together; other words after a number do not.
        assert_eq!(wrap("it holds 95 %, of 20 runs", 11), ["it holds", "95 %, of 20", "runs"]);
        assert_eq!(wrap("in 1.5 ms, not 2", 6), ["in", "1.5 ms,", "not 2"]);
    }
}
