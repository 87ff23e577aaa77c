//! Texts in Markdown: sections of paragraphs and items.

/// The sections of a text by their titles. What comes before the first title has an empty one.
pub fn sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n## ").enumerate().map(|(number, section)| match number {
        0 => ("", section),
        _ => section.split_once('\n').unwrap_or((section, "")),
    })
}

/// A paragraph in one line.
pub fn paragraph(body: &str) -> String {
    body.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Items, each in one line.
pub fn items(body: &str) -> Vec<String> {
    body.trim().strip_prefix("- ").map_or_else(Vec::new, |first| first.split("\n- ").map(paragraph).collect())
}
