//! What makes a figure what it is, on the terminal: a sentence, the sum as a table, and what else was tried.

mod page;

use std::io;

use kelvin_analysis::words::why::{Row, worded};
use kelvin_model::Explanation;
use schemars::Schema;

use crate::text::{columns, left, right, wrap};

pub(crate) use page::in_short;
pub use page::{Page, Picture};

/// Minimum columns; a narrower terminal wraps them.
const LEAST_WIDTH: usize = 80;
/// Column widths of the table.
const WHAT: usize = 30;
const AMOUNT: usize = 9;
const SHARE: usize = 7;
const GAP: usize = 2;
/// How much further in a row begins that is a part of the one above.
const WITHIN: usize = 2;
/// Width of the labels of paragraphs.
const LABEL: usize = 14;

/// An explanation for a terminal of this width.
#[derive(Clone, Copy, Debug)]
pub struct Why {
    /// Columns of the terminal.
    pub width: usize,
}

/// The JSON Schema of an explanation.
pub fn schema() -> Schema {
    schemars::schema_for!(Explanation)
}

impl Why {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
        let said = worded(explanation);
        for sentence in &said.sentences {
            wrap(sentence, self.width()).into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        let head = Row {
            what: "what".into(),
            amount: said.unit,
            share: "share".into(),
            shown_by: "shown by".into(),
            is_within: false,
        };
        writeln!(out)?;
        std::iter::once(&head).chain(&said.rows).try_for_each(|row| self.row(row, out))?;
        writeln!(out, "  {}{}", " ".repeat(WHAT), right(&"-".repeat(columns(&said.whole).max(4)), AMOUNT))?;
        writeln!(out, "  {}{}", " ".repeat(WHAT), right(&said.whole, AMOUNT))?;
        if !said.notes.is_empty() {
            writeln!(out)?;
        }
        said.notes.iter().try_for_each(|(label, text)| self.note(label, text, out))
    }

    fn width(&self) -> usize {
        self.width.clamp(LEAST_WIDTH, 100)
    }

    fn row(&self, row: &Row, out: &mut dyn io::Write) -> io::Result<()> {
        let before = GAP + WHAT + AMOUNT + SHARE + GAP;
        let inset = if row.is_within { WITHIN } else { 0 };
        let (what, shown_by) = (wrap(&row.what, WHAT - inset), wrap(&row.shown_by, self.width() - before));
        for line in 0..what.len().max(shown_by.len()) {
            let of = |lines: &[String]| lines.get(line).cloned().unwrap_or_default();
            let (amount, share) = if line == 0 { (row.amount.as_str(), row.share.as_str()) } else { ("", "") };
            let text = format!(
                "  {}{}{}  {}",
                left(&format!("{}{}", " ".repeat(inset), of(&what)), WHAT),
                right(amount, AMOUNT),
                right(share, SHARE),
                of(&shown_by)
            );
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }

    fn note(&self, label: &str, text: &str, out: &mut dyn io::Write) -> io::Result<()> {
        for (index, line) in wrap(text, self.width() - GAP - LABEL).into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            writeln!(out, "  {}{line}", left(label, LABEL))?;
        }
        Ok(())
    }
}
