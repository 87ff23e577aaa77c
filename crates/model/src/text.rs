//! Foreign text made safe to show: control characters and other invisible ones are escaped.

use std::borrow::Cow;

/// Whether a character is safe to show. Others move a terminal's cursor or change its settings (the control characters of
/// ISO 6429, both sets), end a line, change the text direction (Unicode Standard Annex 9), or are invisible.
pub fn is_visible(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_a_line = matches!(c, '\u{2028}' | '\u{2029}');
    let is_hidden =
        matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}');
    !(c.is_control() || turns || ends_a_line || is_hidden)
}

/// The text with every other character escaped, as `\u{1b}` or `\n`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_visible) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(spelled_out(text, is_visible))
}

/// The same of several lines, which stay lines.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    let stays = |c: char| c == '\n' || is_visible(c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(spelled_out(text, stays))
}

fn spelled_out(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut seen = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if stays(c) {
            seen.push(c);
        } else {
            seen.extend(c.escape_default());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_spelled_out() {
        assert_eq!(visible("Grüße, 世界 ▁▂▃ …"), "Grüße, 世界 ▁▂▃ …");
        assert_eq!(visible("a\u{1b}]0;x\u{7}b\r\n"), r"a\u{1b}]0;x\u{7}b\r\n");
        // CSI as one character, right-to-left override, line separator, byte order mark, delete, a tag.
        assert_eq!(
            visible("\u{9b}2J\u{202e}\u{2028}\u{feff}\u{7f}\u{e0041}\0"),
            r"\u{9b}2J\u{202e}\u{2028}\u{feff}\u{7f}\u{e0041}\u{0}"
        );
        assert_eq!(visible_lines("a\nb\u{1b}\n"), "a\nb\\u{1b}\n");
        assert_eq!(visible(&visible("\u{1b}")), r"\u{1b}");
    }
}
