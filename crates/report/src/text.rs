//! Text made safe for where it goes: terminals, HTML, scripts, Markdown tables.

use std::fmt::Write as _;

/// Text without control characters, so that no machine fact can move a terminal's cursor or end a line.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidirectional_control(c) { '\u{fffd}' } else { c }).collect()
}

/// Characters that reorder what follows them.
fn is_bidirectional_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Text for the inside of an HTML element or of a quoted attribute.
pub fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() || is_bidirectional_control(c) => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// JSON for the inside of a script element: nothing in it can end the element, open a comment, or end a line of
/// script.
pub fn script_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", c as u32);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Text for a Markdown line or table cell.
pub fn markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                safe.push('\\');
                safe.push(c);
            }
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Text as inline code of Markdown, with as many back-ticks around it as it needs; usable in a table cell.
pub fn markdown_code(text: &str) -> String {
    let text = clean(text).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Breaks text into lines of at most `width` characters at spaces; a longer word gets a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in clean(text).split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let room = width.saturating_sub(columns(line));
        if line.is_empty() {
            line.push_str(word);
        } else if columns(word) < room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Columns that a text takes on a terminal. The texts of a report are of single-column characters.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Text padded on the right to a width.
pub fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Text padded on the left to a width.
pub fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_element() {
        assert_eq!(html("</td><script>\"x\" & 'y'"), "&lt;/td&gt;&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;");
        assert_eq!(html("a\u{202e}b\u{0}c"), "a\u{fffd}b\u{fffd}c");
        let json = script_json("{\"a\":\"</script><!--\u{2028}\u{2029}&\"}");
        assert_eq!(json, "{\"a\":\"\\u003c/script\\u003e\\u003c!--\\u2028\\u2029\\u0026\"}");
    }

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(clean("a\u{1b}[31mred\r\n"), "a\u{fffd}[31mred\u{fffd}\u{fffd}");
    }

    #[test]
    fn nothing_leaves_its_table_cell() {
        assert_eq!(markdown("a|b <i>*x*</i>\n# y"), "a\\|b &lt;i&gt;\\*x\\*&lt;/i&gt;\u{fffd}\\# y");
        assert_eq!(markdown_code("a`b|c"), "``a`b\\|c``");
        assert_eq!(markdown_code("`"), "`` ` ``");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
