//! What makes a figure what it is, on the terminal: a sentence, the sum as a table, and what else was tried.

mod page;

use std::io;

use kelvin_analysis::wording::explanation::{ExplanationRow, word_explanation};
use kelvin_core::Explanation;
use schemars::Schema;

use crate::text::{MIN_TEXT_WIDTH, display_width, pad_left, pad_right, wrap};

pub(crate) use page::sum_and_notes;
pub use page::{write_drawing, write_page};

/// Minimum columns; a narrower terminal wraps them.
const MIN_WIDTH: usize = 80;
/// Column widths of the table.
const NAME_WIDTH: usize = 30;
const AMOUNT_WIDTH: usize = 9;
const SHARE_WIDTH: usize = 7;
const COLUMN_GAP: usize = 2;
/// How much further in a row begins that is a part of the one above.
const INDENT_WIDTH: usize = 2;
/// Width of the labels of paragraphs.
const LABEL_WIDTH: usize = 14;

/// An explanation for a terminal of this width.
#[derive(Clone, Copy, Debug)]
pub struct WhyTerminal {
    /// Columns of the terminal.
    pub width: usize,
}

/// The JSON Schema of an explanation.
pub fn schema() -> Schema {
    schemars::schema_for!(Explanation)
}

impl WhyTerminal {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
        let text = word_explanation(explanation);
        for sentence in &text.sentences {
            wrap(sentence, self.width.clamp(MIN_TEXT_WIDTH, 100))
                .into_iter()
                .try_for_each(|line| writeln!(out, "{line}"))?;
        }
        writeln!(out)?;
        self.row(["what", &text.unit, "share", "shown by"], 0, out)?;
        for ExplanationRow { label: what, amount, share, shown_by, is_within } in &text.rows {
            self.row([what, amount, share, shown_by], if *is_within { INDENT_WIDTH } else { 0 }, out)?;
        }
        let line = "-".repeat(display_width(&text.total).max(4));
        for amount in [&line, &text.total] {
            writeln!(out, "  {}{}", " ".repeat(NAME_WIDTH), pad_left(amount, AMOUNT_WIDTH))?;
        }
        if !text.notes.is_empty() {
            writeln!(out)?;
        }
        text.notes.iter().try_for_each(|(label, text)| self.note(label, text, out))
    }

    fn width(&self) -> usize {
        self.width.clamp(MIN_WIDTH, 100)
    }

    fn row(&self, cells: [&str; 4], inset: usize, out: &mut dyn io::Write) -> io::Result<()> {
        let prefix_width = COLUMN_GAP + NAME_WIDTH + AMOUNT_WIDTH + SHARE_WIDTH + COLUMN_GAP;
        let [name, amount, share, shown_by] = cells;
        let (name, shown_by) = (wrap(name, NAME_WIDTH - inset), wrap(shown_by, self.width() - prefix_width));
        for line in 0..name.len().max(shown_by.len()) {
            let part = |lines: &[String]| lines.get(line).cloned().unwrap_or_default();
            let (amount, share) = if line == 0 { (amount, share) } else { ("", "") };
            let name = format!("{}{}", " ".repeat(inset), part(&name));
            let shown_by = part(&shown_by);
            let text = format!("  {name:NAME_WIDTH$}{amount:>AMOUNT_WIDTH$}{share:>SHARE_WIDTH$}  {shown_by}");
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }

    fn note(&self, label: &str, text: &str, out: &mut dyn io::Write) -> io::Result<()> {
        for (index, line) in wrap(text, self.width() - COLUMN_GAP - LABEL_WIDTH).into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            writeln!(out, "  {}{line}", pad_right(label, LABEL_WIDTH))?;
        }
        Ok(())
    }
}
