//! The text of a probe: the file in Markdown next to it, of which `explain`, the page and the book are made.

use serde::Serialize;

use crate::markdown::{items, paragraph, sections};

/// The text about a probe, each paragraph and each item in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Method {
    /// How it is measured: what is inside the timed region, what is subtracted, how it is proven.
    #[serde(rename = "method")]
    pub how: String,
    /// How the prediction is made, and from what.
    pub prediction: String,
    /// What the number must not be used for.
    #[serde(rename = "misuses")]
    pub not_for: String,
    /// Known ways to get it wrong, and the countermeasures here.
    pub pitfalls: Vec<String>,
    /// Publications, manuals, public tools that measure the same.
    pub sources: Vec<String>,
}

impl Method {
    /// Reads the text of a probe's file: one paragraph on how it is measured, then the sections that `kelvin explain` has.
    ///
    /// # Panics
    /// For a section of another title, of which a test over all probes would fail.
    pub fn parse(text: &str) -> Self {
        let mut method = Self::default();
        for (title, body) in sections(text) {
            match title {
                "" => method.how = paragraph(body),
                "Prediction" => method.prediction = paragraph(body),
                "Must not be used for" => method.not_for = paragraph(body),
                "Pitfalls" => method.pitfalls = items(body),
                "Sources" => method.sources = items(body),
                _ => panic!("a method has no section {title:?}"),
            }
        }
        method
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Calls, one\nby one.\n\n## Prediction\n\nThe sum.\n\n## Must not be used for\n\nReading\nfiles.\n\n\
                        ## Pitfalls\n\n- A call that\n  fails.\n- Another.\n\n## Sources\n\n- lmbench\n";

    #[test]
    fn sections_are_read() {
        let method = Method::parse(TEXT);
        assert_eq!(
            (&*method.how, &*method.prediction, &*method.not_for),
            ("Calls, one by one.", "The sum.", "Reading files.")
        );
        assert_eq!(
            (method.pitfalls, method.sources),
            (vec!["A call that fails.".into(), "Another.".into()], vec!["lmbench".into()])
        );
        assert_eq!(Method::parse("Alone."), Method { how: "Alone.".into(), ..Method::default() });
    }

    #[test]
    #[should_panic(expected = "no section")]
    fn unknown_section_is_refused() {
        Method::parse("How.\n\n## Pitfall\n\n- One.\n");
    }
}
