//! CSV in base units (RFC 4180): one row for each metric and case, one for each raw sample, or one figure's points.

use std::borrow::Cow;
use std::io;

use csv::{Terminator, Writer, WriterBuilder};
use kelvin_core::text::escape_invisible;

use crate::columns::{
    Column, ColumnValues, FigureRow, SampleRow, TableRow, class_columns, figure_columns, remark_columns, round_columns,
    sample_columns,
};
use crate::figures::{Drawing, Figure};
use crate::text::data_name;
use crate::{Render, Report};

/// One row for each metric at each case.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvSummary;

/// One row for each raw sample: nothing subtracted, nothing dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvSamples;

/// Letters with which spreadsheets begin a formula; those of full width do in some languages.
const FORMULA_STARTS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// A text that no spreadsheet takes for a formula: unless a number, one that would begin a formula gets an apostrophe, which makes
/// it text there; control characters are escaped.
pub(crate) fn escape_formula(field: &str) -> Cow<'_, str> {
    let field = escape_invisible(field);
    let is_formula = field.trim_start().starts_with(FORMULA_STARTS) && field.parse::<f64>().is_err();
    if is_formula { Cow::Owned(format!("'{field}")) } else { field }
}

impl Render for CsvSummary {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let columns =
            subject_columns().into_iter().chain(figure_columns()).chain(remark_columns()).chain(class_columns());
        write_table(columns.collect(), FigureRow::for_report(report), out)
    }
}

impl Render for CsvSamples {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let columns = subject_columns().into_iter().chain(round_columns()).chain(sample_columns());
        write_table(columns.collect(), SampleRow::for_report(report), out)
    }
}

/// What a row is of.
fn subject_columns<'a, R: TableRow + 'a>() -> [Column<'a, R>; 2] {
    [
        Column::text("metric", |row: &R| Some(row.metric_case().0.to_string().into())),
        Column::text("case", |row: &R| Some(row.metric_case().1.to_string().into())),
    ]
}

/// Lines under the names of their columns, even if no row follows. A number is the shortest decimal that reads back as itself.
fn write_table<R>(
    columns: Vec<Column<'_, R>>,
    rows: impl Iterator<Item = R>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut lines = csv_writer(out);
    lines.write_record(columns.iter().map(|column| column.csv_name.as_ref()))?;
    for row in rows {
        let fields = columns.iter().map(|column| match &column.values {
            ColumnValues::Text(read) => read(&row).map(|text| escape_formula(&text).into_owned()),
            ColumnValues::Real(read) => read(&row).map(|value| value.to_string()),
            ColumnValues::Count(read) => read(&row).map(|value| value.to_string()),
            ColumnValues::Flag(read) => read(&row).map(|value| value.to_string()),
            ColumnValues::Time(read) => read(&row).map(|value| value.to_string()),
        });
        lines.write_record(fields.map(Option::unwrap_or_default))?;
    }
    lines.flush()
}

/// The points of one figure, or the cells of a heat map, one row each.
///
/// # Errors
/// Those of the writer.
pub fn write_figure(figure: &Figure, out: &mut dyn io::Write) -> io::Result<()> {
    let mut lines = csv_writer(out);
    match &figure.drawing {
        Drawing::Plot(plot) => {
            lines.write_record(["series", "role", "x", "y", "low", "high"])?;
            for series in &plot.series {
                let (label, role) = (escape_formula(&series.label), data_name(&series.role));
                for point in &series.points {
                    let [x, y, low, high] = [point.x, point.y, point.low, point.high].map(|value| value.to_string());
                    lines.write_record([label.as_ref(), &role, &x, &y, &low, &high])?;
                }
            }
        }
        Drawing::Heat(heat) => {
            let [row, column] = heat.axes.each_ref().map(|axis| escape_formula(axis));
            lines.write_record([row.as_ref(), &column, "value", "low", "high", "predicted"])?;
            for cell in &heat.cells {
                let [value, low, high] = [cell.value, cell.low, cell.high].map(|value| value.to_string());
                let predicted = cell.predicted.map(|value| value.to_string()).unwrap_or_default();
                let [row, column] = [&heat.rows[cell.row], &heat.columns[cell.column]].map(|name| escape_formula(name));
                lines.write_record([row.as_ref(), &column, &value, &low, &high, &predicted])?;
            }
        }
    }
    lines.flush()
}

/// Lines that end as RFC 4180 wants it.
pub(crate) fn csv_writer<W: io::Write>(out: W) -> Writer<W> {
    WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_escaped_and_numbers_kept() {
        let fields = [
            "=cmd|' /C calc'!A0",
            "@SUM(1)",
            "-5+2",
            " =1",
            "-0.5",
            "1e-9",
            "",
            "a-b",
            "+\"x\"",
            "\t=1",
            "＝1",
            "-inf",
        ];
        let mut out = csv_writer(Vec::new());
        out.write_record(fields.map(escape_formula).each_ref().map(|field| field.as_ref())).unwrap();
        let expected = "'=cmd|' /C calc'!A0,'@SUM(1),'-5+2,' =1,-0.5,1e-9,,a-b,\"'+\"\"x\"\"\",\\t=1,'＝1,-inf\r\n";
        assert_eq!(String::from_utf8(out.into_inner().unwrap()).unwrap(), expected);
    }
}
