//! The tables of a study: the main columns, in the width that there is.

use std::io;

use kelvin_analysis::{StudyColumn, StudyTable};

use super::{Terminal, TextStyle};
use crate::study_tables::{self, cell_text};
use crate::text::{clean, display_width, pad_left, pad_right};

/// Widest label beside figures; a longer one has a line of its own.
const MAX_LABEL_WIDTH: usize = 48;

/// Between columns.
const COLUMN_GAP: &str = " ";

impl Terminal {
    /// Writes a table, if it has a main column.
    pub(super) fn study_table(&self, table: &StudyTable, out: &mut dyn io::Write) -> io::Result<()> {
        let shown = study_tables::columns(table, true);
        if shown.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, &table.title)?;
        let widths: Vec<usize> = shown.iter().map(|&column| column_width(table, column)).collect();
        let taken: usize = widths.iter().map(|width| width + COLUMN_GAP.len()).sum();
        let longest = table.rows.iter().map(|row| display_width(&clean(&row.label))).max().unwrap_or(0);
        let label = self.width().saturating_sub(taken).min(MAX_LABEL_WIDTH).min(longest);
        let line = |cells: Vec<String>| -> String {
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{COLUMN_GAP}{}", pad_left(cell, width))).collect()
        };
        let titles = line(shown.iter().map(|(_, column)| clean(&column.label)).collect());
        let picture = Picture::of(table, self.width().saturating_sub(label + taken + BESIDE));
        let beside = |text: String| if text.is_empty() { text } else { format!("{}{text}", " ".repeat(BESIDE)) };
        let above = beside(picture.as_ref().map(Picture::title).unwrap_or_default());
        writeln!(out, "{}", self.paint(TextStyle::Faint, format!("{}{titles}{above}", " ".repeat(label)).trim_end()))?;
        for (at, row) in table.rows.iter().enumerate() {
            let mut name = clean(&row.label);
            if display_width(&name) > label {
                writeln!(out, "{name}")?;
                name.clear();
            }
            let figures = line(shown.iter().map(|&column| cell_text(row, column)).collect());
            let track = beside(picture.as_ref().map(|picture| picture.track(at)).unwrap_or_default());
            writeln!(out, "{}", format!("{}{figures}{track}", pad_right(&name, label)).trim_end())?;
        }
        match picture {
            Some(picture) => writeln!(out, "{}", self.paint(TextStyle::Faint, &picture.legend())),
            None => Ok(()),
        }
    }
}

/// Columns between a table and its picture, and of the picture: with less room there is none.
const BESIDE: usize = 2;
const LEAST_PICTURE: usize = 12;
const MOST_PICTURE: usize = 40;

/// The figures of a column as bars beside their rows, and marks of another column.
struct Picture<'t> {
    table: &'t StudyTable,
    columns: [usize; 2],
    most: f64,
    width: usize,
}

impl<'t> Picture<'t> {
    /// `None` where nothing is to be drawn, or there is no room.
    fn of(table: &'t StudyTable, room: usize) -> Option<Self> {
        let columns = table.bars.filter(|_| room >= LEAST_PICTURE)?;
        let all = table.rows.iter().flat_map(|row| columns.map(|column| row.cells[column])).flatten();
        let most = all.map(|figure| figure.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
        (most > 0.0).then_some(Self { table, columns, most, width: room.min(MOST_PICTURE) })
    }

    fn place(&self, value: f64) -> usize {
        ((value / self.most).clamp(0.0, 1.0) * (self.width - 1) as f64).round() as usize
    }

    /// The ends of its axis.
    fn title(&self) -> String {
        let most = crate::units::value_text(self.most, self.table.columns[self.columns[0]].unit);
        format!("0{}", pad_left(&most, self.width - 1))
    }

    fn track(&self, row: usize) -> String {
        let value = |column: usize| self.table.rows[row].cells[column].map(|figure| figure.value);
        let mut cells = vec![' '; self.width];
        if let Some(value) = value(self.columns[0]) {
            cells[..=self.place(value)].fill('=');
        }
        if let Some(value) = value(self.columns[1]) {
            cells[self.place(value)] = '|';
        }
        cells.into_iter().collect()
    }

    fn legend(&self) -> String {
        let [bar, mark] = self.columns.map(|column| clean(&self.table.columns[column].label));
        format!("= {bar}  | {mark}")
    }
}

/// The widest cell of a column, its title among them.
fn column_width(table: &StudyTable, column: (usize, &StudyColumn)) -> usize {
    let cells = table.rows.iter().map(|row| display_width(&cell_text(row, column)));
    cells.chain([display_width(&clean(&column.1.label))]).max().unwrap_or(0)
}
