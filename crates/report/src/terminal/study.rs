//! The tables of a study: the main columns, in the width that there is.

use std::io;

use kelvin_analysis::{StudyColumn, StudyTable};

use super::{Paint, Terminal};
use crate::studies::{self, text};
use crate::text::{clean, columns, left, right};

/// Widest label beside figures; a longer one has a line of its own.
const WIDEST_LABEL: usize = 48;

/// Between columns.
const GAP: &str = " ";

impl Terminal {
    /// Writes a table, if it has a main column.
    pub(super) fn study_table(&self, table: &StudyTable, out: &mut dyn io::Write) -> io::Result<()> {
        let shown = studies::columns(table, true);
        if shown.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.hanging(out, (Paint::Faint, ""), 0, &table.title)?;
        let widths: Vec<usize> = shown.iter().map(|&column| width(table, column)).collect();
        let taken: usize = widths.iter().map(|width| width + GAP.len()).sum();
        let longest = table.rows.iter().map(|row| columns(&clean(&row.label))).max().unwrap_or(0);
        let label = self.width().saturating_sub(taken).min(WIDEST_LABEL).min(longest);
        let line = |cells: Vec<String>| -> String {
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{GAP}{}", right(cell, width))).collect()
        };
        let titles = line(shown.iter().map(|(_, column)| clean(&column.label)).collect());
        writeln!(out, "{}", self.paint(Paint::Faint, &format!("{}{titles}", " ".repeat(label))))?;
        for row in &table.rows {
            let mut name = clean(&row.label);
            if columns(&name) > label {
                writeln!(out, "{name}")?;
                name.clear();
            }
            let figures = line(shown.iter().map(|&column| text(row, column)).collect());
            writeln!(out, "{}", format!("{}{figures}", left(&name, label)).trim_end())?;
        }
        Ok(())
    }
}

/// The widest cell of a column, its title among them.
fn width(table: &StudyTable, column: (usize, &StudyColumn)) -> usize {
    let cells = table.rows.iter().map(|row| columns(&text(row, column)));
    cells.chain([columns(&clean(&column.1.label))]).max().unwrap_or(0)
}
