//! Times of commands for a terminal.

use std::io;

use kelvin_core::{CommandTimes, TimedCommand};

use super::{mean_text, memory_text, ratio_text, sentences, time_text, title};
use crate::text::{MIN_TEXT_WIDTH, clean, display_width, pad_left, pad_right, wrap};

/// Between two columns of the table.
const GAP: &str = "  ";
/// Columns of a hanging indent.
const INDENT: &str = "    ";

/// Times of commands for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct CommandTimesTerminal {
    /// Columns of the terminal.
    pub width: usize,
}

impl CommandTimesTerminal {
    /// Writes them.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, times: &CommandTimes, out: &mut dyn io::Write) -> io::Result<()> {
        self.paragraph(out, &title(times))?;
        writeln!(out)?;
        let table = Table::new(times);
        if table.width() <= self.width.max(MIN_TEXT_WIDTH) {
            table.write_rows(out)?
        } else {
            table.write_lists(out)?
        }
        writeln!(out)?;
        sentences(times).iter().try_for_each(|sentence| self.paragraph(out, sentence))
    }

    fn paragraph(&self, out: &mut dyn io::Write, text: &str) -> io::Result<()> {
        for (number, line) in wrap(&clean(text), self.width.max(MIN_TEXT_WIDTH) - INDENT.len()).iter().enumerate() {
            writeln!(out, "{}{line}", if number == 0 { "" } else { INDENT })?;
        }
        Ok(())
    }
}

/// A row for each command.
struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(times: &CommandTimes) -> Self {
        let is_comparison = times.results.len() > 1;
        let relative =
            is_comparison.then_some(if times.reference_is_fastest { "to the fastest" } else { "to reference" });
        let heads = ["command", "mean", "min to max"].into_iter().chain(relative).chain(["user", "kernel", "memory"]);
        let row = |command: &TimedCommand| {
            let range = kelvin_core::units::span(command.min * 1e9, command.max * 1e9, kelvin_core::Unit::Nanoseconds);
            let ratio = is_comparison.then(|| ratio_text(command.relative.as_ref()));
            let cells = [clean(&command.command), mean_text(command), range].into_iter().chain(ratio);
            cells.chain([time_text(command.user), time_text(command.system), memory_text(command)]).collect()
        };
        Self { heads: heads.collect(), rows: times.results.iter().map(row).collect() }
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| display_width(&row[column]));
        cells.max().unwrap_or(0).max(display_width(self.heads[column]))
    }

    fn width(&self) -> usize {
        (0..self.heads.len()).map(|column| self.column_width(column) + GAP.len()).sum::<usize>() - GAP.len()
    }

    fn write_rows(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let heads: Vec<String> = self.heads.iter().map(|&head| head.to_owned()).collect();
        for row in [&heads].into_iter().chain(&self.rows) {
            let cells = row.iter().enumerate().map(|(column, cell)| match column {
                0 => pad_right(cell, self.column_width(column)),
                _ => pad_left(cell, self.column_width(column)),
            });
            writeln!(out, "{}", cells.collect::<Vec<_>>().join(GAP).trim_end())?;
        }
        Ok(())
    }

    /// Where the table is wider than the terminal: each command, and below it what it took.
    fn write_lists(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let width = self.heads.iter().map(|head| display_width(head)).max().unwrap_or(0);
        for row in &self.rows {
            writeln!(out, "{}", row[0])?;
            for (head, cell) in self.heads.iter().zip(row).skip(1) {
                writeln!(out, "{INDENT}{}{GAP}{cell}", pad_right(head, width))?;
            }
        }
        Ok(())
    }
}
