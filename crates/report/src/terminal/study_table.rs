//! The tables of a study: the main columns, in the width that there is.

use kelvin_analysis::{StudyColumn, StudyRow, StudyTable};

use super::point_table::PlotTrack;
use super::{Terminal, TextStyle};
use crate::study_tables::{self, cell_text};
use crate::text::{clean, display_width};

/// Widest label next to figures; a longer one has a line of its own.
const MAX_LABEL_WIDTH: usize = 48;

impl Terminal {
    /// A table, if it has a main column.
    pub(super) fn study_table(&self, table: &StudyTable) -> Vec<String> {
        let columns = study_tables::columns(table, true);
        if columns.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![String::new()];
        lines.extend(self.paragraph(&table.title));
        // The widest cell of each column, its title among them.
        let width = |&column: &(usize, &StudyColumn)| {
            let cells = table.rows.iter().map(|row| display_width(&cell_text(row, column)));
            cells.chain([display_width(&clean(&column.1.label))]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = columns.iter().map(width).collect();
        let columns_width: usize = widths.iter().map(|width| width + 1).sum();
        let max_label_width = table.rows.iter().map(|row| display_width(&clean(&row.label))).max().unwrap_or(0);
        let label_width = self.width().saturating_sub(columns_width).min(MAX_LABEL_WIDTH).min(max_label_width);
        let picture = Picture::new(table, self.width().saturating_sub(label_width + columns_width + PICTURE_GAP));
        let line = |name: &str, cells: Vec<String>, picture: Option<String>| {
            let cells: String = cells.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:>width$}")).collect();
            let line = format!("{name:label_width$}{cells}{:PICTURE_GAP$}{}", "", picture.unwrap_or_default());
            line.trim_end().to_owned()
        };
        let titles = columns.iter().map(|(_, column)| clean(&column.label)).collect();
        lines.push(self.paint(TextStyle::Faint, &line("", titles, picture.as_ref().map(Picture::title))));
        for row in &table.rows {
            let mut name = clean(&row.label);
            if display_width(&name) > label_width {
                lines.push(std::mem::take(&mut name));
            }
            let cells = columns.iter().map(|&column| cell_text(row, column)).collect();
            lines.push(line(&name, cells, picture.as_ref().map(|picture| picture.row(row))));
        }
        lines.extend(picture.map(|picture| self.paint(TextStyle::Faint, &picture.legend())));
        lines
    }
}

/// Columns between a table and its picture, and of the picture: with less room there is none.
const PICTURE_GAP: usize = 2;
const MIN_PICTURE_WIDTH: usize = 12;
const MAX_PICTURE_WIDTH: usize = 40;

/// The figures of a column as bars next to their rows, and marks of another column.
struct Picture<'t> {
    table: &'t StudyTable,
    columns: [usize; 2],
    track: PlotTrack,
}

impl<'t> Picture<'t> {
    /// `None` where nothing is to be drawn, or there is no room.
    fn new(table: &'t StudyTable, available_width: usize) -> Option<Self> {
        let columns = table.bars.filter(|_| available_width >= MIN_PICTURE_WIDTH)?;
        let figures = table.rows.iter().flat_map(|row| columns.map(|column| row.cells[column])).flatten();
        let values = figures.map(|figure| figure.value.max(0.0));
        let track = PlotTrack::new(values, false, available_width.min(MAX_PICTURE_WIDTH))?;
        Some(Self { table, columns, track })
    }

    /// The ends of its axis.
    fn title(&self) -> String {
        self.track.title(self.table.columns[self.columns[0]].unit)
    }

    fn row(&self, row: &StudyRow) -> String {
        let [bar, mark] = self.columns.map(|column| row.cells[column].map(|figure| figure.value));
        let bar = bar.map(|value| ([0.0, value], '='));
        self.track.row(bar.into_iter().chain(mark.map(|value| ([value; 2], '|'))))
    }

    fn legend(&self) -> String {
        let [bar, mark] = self.columns.map(|column| clean(&self.table.columns[column].label));
        format!("= {bar}  | {mark}")
    }
}
