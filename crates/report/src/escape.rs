//! Escaping by construction.
//!
//! Markup is in the literal of [`html!`] or [`md!`]; every value put into it is escaped, unless it
//! was made in the same way. There is no other way to make a [`Markup`] or a [`MarkdownText`]. A literal cannot name a
//! variable (`{name}`), which would go past the escape: the compiler refuses that in a literal from a macro.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write};
use std::marker::PhantomData;

use kelvin_core::Name;
use kelvin_core::text::is_visible;

macro_rules! safe {
    ($language:ty, $literal:literal $(, $value:expr)* $(,)?) => {
        $crate::escape::Escaped::<$language>::from_fmt(
            format_args!(concat!($literal) $(, $crate::escape::wrapped::<$language, _>(&$value))*)
        )
    };
}

/// A language that text is written in.
pub(crate) trait EscapeRules {
    /// Characters with a meaning in the language that are written as entities.
    const ENTITIES: &str;
    /// Those that are written behind a backslash.
    const BACKSLASHED: &str;
    /// Invisible characters that may stay: a line break where it is only white space.
    const ALLOWED_INVISIBLE: &str;
}

/// HTML and SVG: the inside of an element, or of an attribute in double quotes.
#[derive(Clone, Debug, Default)]
pub(crate) struct HtmlRules;

impl EscapeRules for HtmlRules {
    const ENTITIES: &str = "&<>\"'";
    const BACKSLASHED: &str = "";
    const ALLOWED_INVISIBLE: &str = "\n\t";
}

/// Markdown of GitHub's flavour: the inside of a line or of a table's cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct GfmRules;

impl EscapeRules for GfmRules {
    const ENTITIES: &str = "&<>";
    /// Between two dollars is a formula, which may hold links.
    const BACKSLASHED: &str = "\\`*_[]|#~$";
    const ALLOWED_INVISIBLE: &str = "";
}

/// Writes a text in a language.
fn write_escaped<L: EscapeRules>(text: &str, out: &mut impl Write) -> fmt::Result {
    let mut write = |c: char| match c {
        _ if L::BACKSLASHED.contains(c) => write!(out, "\\{c}"),
        _ if !L::ENTITIES.contains(c) => out.write_char(c),
        '&' => out.write_str("&amp;"),
        '<' => out.write_str("&lt;"),
        '>' => out.write_str("&gt;"),
        '"' => out.write_str("&quot;"),
        _ => write!(out, "&#{};", u32::from(c)),
    };
    text.chars().try_for_each(|c| match is_visible(c) || L::ALLOWED_INVISIBLE.contains(c) {
        true => write(c),
        // An escaped character may begin with one that must itself be escaped.
        false => c.escape_default().try_for_each(&mut write),
    })
}

/// Text of a language, whose markup comes only from literals of this program.
#[derive(Clone, Default)]
pub(crate) struct Escaped<L>(String, PhantomData<L>);

/// HTML or SVG.
pub(crate) type Markup = Escaped<HtmlRules>;

/// Markdown.
pub(crate) type MarkdownText = Escaped<GfmRules>;

impl<L> Escaped<L> {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        Self(String::new(), PhantomData)
    }

    /// For the macros alone, which wrap every value.
    pub(crate) fn from_fmt(pieces: fmt::Arguments<'_>) -> Self {
        Self(pieces.to_string(), PhantomData)
    }

    /// Adds to its end.
    pub(crate) fn push(&mut self, part: Self) {
        self.0.push_str(&part.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As it is written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// All of them, with this between them.
    pub(crate) fn joined(parts: impl IntoIterator<Item = Self>, separator: &'static str) -> Self {
        Self(parts.into_iter().map(|part| part.0).collect::<Vec<_>>().join(separator), PhantomData)
    }
}

impl<L> FromIterator<Self> for Escaped<L> {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        Self::joined(parts, "")
    }
}

impl<L> Extend<Self> for Escaped<L> {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, parts: I) {
        parts.into_iter().for_each(|part| self.push(part));
    }
}

/// A value that can be written in a language.
pub(crate) trait EscapedPiece<L> {
    fn write(&self, out: &mut Formatter<'_>) -> fmt::Result;
}

/// A value that can be written as HTML or SVG.
pub(crate) trait HtmlPiece: EscapedPiece<HtmlRules> {}

impl<T: EscapedPiece<HtmlRules>> HtmlPiece for T {}

impl<L: EscapeRules> EscapedPiece<L> for str {
    fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write_escaped::<L>(self, out)
    }
}

impl<L> EscapedPiece<L> for Escaped<L> {
    fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<L, T: EscapedPiece<L> + ?Sized> EscapedPiece<L> for &T {
    fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
        (**self).write(out)
    }
}

/// Nothing for none.
impl<L, T: EscapedPiece<L>> EscapedPiece<L> for Option<T> {
    fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.as_ref().map_or(Ok(()), |piece| piece.write(out))
    }
}

macro_rules! pieces {
    (as text: $($text:ty),*; as numbers: $($number:ty),*) => {
        $(impl<L: EscapeRules> EscapedPiece<L> for $text {
            fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
                write_escaped::<L>(self, out)
            }
        })*
        $(impl<L> EscapedPiece<L> for $number {
            fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
                self.fmt(out)
            }
        })*
    };
}

macro_rules! escaped_text {
    ($($text:ty),*) => {
        $(impl<L: EscapeRules> From<$text> for Escaped<L> {
            fn from(text: $text) -> Self {
                safe!(L, "{}", text)
            }
        })*
    };
}

escaped_text!(&str, String, &String);

pieces!(as text: String, Cow<'_, str>, Name; as numbers: u32, u64, usize, f64, bool);

/// A value in a format of the standard library.
pub(crate) struct Wrapped<'a, L, T: ?Sized>(&'a T, PhantomData<L>);

/// For the macros alone.
pub(crate) fn wrapped<L, T: EscapedPiece<L> + ?Sized>(piece: &T) -> Wrapped<'_, L, T> {
    Wrapped(piece, PhantomData)
}

impl<L, T: EscapedPiece<L> + ?Sized> Display for Wrapped<'_, L, T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.0.write(out)
    }
}

/// [`Markup`] from a literal and values, as `format!`; values in their order.
macro_rules! html {
    ($($pieces:tt)*) => { $crate::escape::safe!($crate::escape::HtmlRules, $($pieces)*) };
}

/// [`MarkdownText`] from a literal and values, as `format!`; values in their order.
macro_rules! md {
    ($($pieces:tt)*) => { $crate::escape::safe!($crate::escape::GfmRules, $($pieces)*) };
}

pub(crate) use {html, md, safe};

impl MarkdownText {
    /// Text as inline code, with as many back-ticks around it as it needs; usable in a table cell.
    pub(crate) fn code(text: &str) -> Self {
        let text = kelvin_core::text::escape_invisible(text).replace('|', "\\|");
        let fence = "`".repeat(longest_fence(&text) + 1);
        let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
        Self(format!("{fence}{space}{text}{space}{fence}"), PhantomData)
    }

    /// A row of a table.
    pub(crate) fn row<T: Into<Self>>(cells: impl IntoIterator<Item = T>) -> Self {
        md!("| {} |\n", Self::joined(cells.into_iter().map(Into::into), " | "))
    }

    /// A part that a reader opens.
    pub(crate) fn folded(summary: &str, body: Self) -> Self {
        md!("<details><summary>{}</summary>\n\n{}\n</details>\n\n", summary, body)
    }

    /// Lines as they are, in a block between fences of as many back-ticks as it needs.
    pub(crate) fn block(lines: &[String]) -> Self {
        let lines: Vec<_> = lines.iter().map(|line| kelvin_core::text::escape_invisible(line)).collect();
        let text = lines.join("\n");
        let fence = "`".repeat(longest_fence(&text).max(2) + 1);
        Self(format!("{fence}text\n{text}\n{fence}\n"), PhantomData)
    }
}

/// Most back-ticks side by side in a text.
fn longest_fence(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_text_stays_in_element() {
        let hostile = "</td><script>\"x\" & 'y'`";
        let escaped = "&lt;/td&gt;&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;`";
        assert_eq!(html!("<p>{}</p>", hostile).as_str(), format!("<p>{escaped}</p>"));
        let nested = html!("<b>{}</b>", hostile.to_owned());
        assert_eq!(html!("<i>{}</i>", &nested).as_str(), format!("<i><b>{escaped}</b></i>"), "what is safe stays");
        assert_eq!(html!("{}{}", Some(Name::new("<")), None::<&str>).as_str(), "&lt;");
        assert_eq!(html!("{}", "a\u{202e}b\u{0}c\nd").as_str(), "a\\u{202e}b\\u{0}c\nd");
        assert_eq!(html!("{:.1} {} {0}", 1.25, 3_u64).as_str(), "1.2 3 1.25");
    }

    #[test]
    fn markdown_text_stays_in_cell() {
        let line = md!("| {} |", "a|b <i>*x*</i>\n# [y](z) $k$ \u{1b}");
        assert_eq!(line.as_str(), r"| a\|b &lt;i&gt;\*x\*&lt;/i&gt;\\n\# \[y\](z) \$k\$ \\u{1b} |");
        assert_eq!(MarkdownText::code("a`b|c").as_str(), "``a`b\\|c``");
        assert_eq!(MarkdownText::code("`").as_str(), "`` ` ``");
        assert_eq!(MarkdownText::block(&["a|b".into(), "c".into()]).as_str(), "```text\na|b\nc\n```\n");
        assert_eq!(MarkdownText::block(&["````".into()]).as_str(), "`````text\n````\n`````\n");
    }
}
