//! Foreign text made safe to show: control characters and other invisible ones are escaped. And where a line of text may end.

use std::borrow::Cow;

use crate::units::is_unit_sign;

/// Whether a character is safe to show. Others move a terminal's cursor or change its settings (the control characters of
/// ISO 6429, both sets), end a line, change the text direction (Unicode Standard Annex 9), or are invisible.
pub fn is_visible(c: char) -> bool {
    let is_bidi_control =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_separator = matches!(c, '\u{2028}' | '\u{2029}');
    !(c.is_control() || is_bidi_control || is_line_separator || is_hidden(c))
}

/// Whether a character takes no place, or is no character: those of Unicode's Default_Ignorable_Code_Point, its noncharacters, and two
/// blanks that are letters.
fn is_hidden(c: char) -> bool {
    let is_noncharacter = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    is_noncharacter
        || matches!(
            c,
            '\u{ad}' | '\u{34f}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200d}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Whether a character chooses the look of the symbol before it, as of an emoji; anywhere else it hides.
fn is_variation_selector(previous: Option<char>, c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}') && previous.is_some_and(|symbol| symbol >= '\u{2190}' && is_visible(symbol))
}

/// The text with every other character escaped, as `\u{1b}` or `\n`.
pub fn escape_invisible(text: &str) -> Cow<'_, str> {
    escape_unless(text, is_visible)
}

/// Like `escape_invisible`, of several lines, which stay lines.
pub fn escape_invisible_lines(text: &str) -> Cow<'_, str> {
    escape_unless(text, |c| c == '\n' || is_visible(c))
}

fn escape_unless(text: &str, is_allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    let previous = std::iter::once(None).chain(text.chars().map(Some));
    let pairs = previous.zip(text.chars());
    let is_kept = |(previous, c): (Option<char>, char)| is_allowed(c) || is_variation_selector(previous, c);
    if pairs.clone().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for pair in pairs {
        match is_kept(pair) {
            true => escaped.push(pair.1),
            false => escaped.extend(pair.1.escape_default()),
        }
    }
    Cow::Owned(escaped)
}

/// The pieces of a text within which no line ends: its words, and numbers with the signs of their units.
pub fn unbreakable_pieces(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(is_breaking_space).filter(|word| !word.is_empty()).collect();
    words.chunk_by(|before, word| is_quantity(before, word)).map(|words| words.join(" ")).collect()
}

/// Whether a line may end at this character: at a space, but for those within a number, as UAX #14 has them.
fn is_breaking_space(letter: char) -> bool {
    letter.is_whitespace() && !['\u{a0}', '\u{2007}', '\u{202f}'].contains(&letter)
}

/// Whether two words are a number and the sign of its unit.
fn is_quantity(before: &str, word: &str) -> bool {
    let sign = word.trim_end_matches(['.', ',', ';', ':', ')']);
    before.ends_with(|last: char| last.is_ascii_digit()) && is_unit_sign(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(escape_invisible("Grüße, 世界 ▁▂▃ …"), "Grüße, 世界 ▁▂▃ …");
        assert_eq!(escape_invisible("a\u{1b}]0;x\u{7}b\r\n"), r"a\u{1b}]0;x\u{7}b\r\n");
        // CSI as one character, right-to-left override, line separator, byte order mark, delete, a tag.
        assert_eq!(
            escape_invisible("\u{9b}2J\u{202e}\u{2028}\u{feff}\u{7f}\u{e0041}\0"),
            r"\u{9b}2J\u{202e}\u{2028}\u{feff}\u{7f}\u{e0041}\u{0}"
        );
        // Zero width: space, joiners, soft hyphen, fillers, invisible operators, musical controls, a noncharacter.
        for hidden in
            "\u{200b}\u{200c}\u{200d}\u{2060}\u{2064}\u{ad}\u{34f}\u{115f}\u{3164}\u{180e}\u{206a}\u{1d173}\u{1ffff}"
                .chars()
        {
            assert_eq!(escape_invisible(&format!("a{hidden}b")), format!("a\\u{{{:x}}}b", u32::from(hidden)));
        }
        assert_eq!(escape_invisible_lines("a\nb\u{1b}\n"), "a\nb\\u{1b}\n");
        assert_eq!(escape_invisible(&escape_invisible("\u{1b}")), r"\u{1b}");
    }

    #[test]
    fn variation_selector_kept_only_after_symbol() {
        assert_eq!(escape_invisible("\u{2764}\u{fe0f} ok"), "\u{2764}\u{fe0f} ok");
        assert_eq!(escape_invisible("a\u{fe0f}"), r"a\u{fe0f}");
        assert_eq!(escape_invisible("\u{fe0f}"), r"\u{fe0f}");
        // Bytes are hidden in rows of them.
        assert_eq!(
            escape_invisible("\u{2764}\u{fe0f}\u{fe0f}\u{fe01}\u{e0100}"),
            "\u{2764}\u{fe0f}\\u{fe0f}\\u{fe01}\\u{e0100}"
        );
    }

    #[test]
    fn numbers_stay_with_their_signs() {
        let text = "it holds  95 %, of 20 runs;\n59.6 µs (1.5 TiB) by 700\u{202f}000 B, 2 k/s";
        let pieces =
            ["it", "holds", "95 %,", "of", "20", "runs;", "59.6 µs", "(1.5 TiB)", "by", "700\u{202f}000 B,", "2 k/s"];
        assert_eq!(unbreakable_pieces(text), pieces);
        assert!(unbreakable_pieces(" ").is_empty());
    }
}
