//! Apache Parquet: one table of figures, or one of raw samples, a column each with its type.
//!
//! An axis is a column `axis_NAME`, of numbers where all its values are numbers. Units are in the file's metadata, under
//! [`UNITS_KEY`], since what a reader such as pyarrow shows of a column's own is written by Arrow alone.
//!
//! Source: the format's specification (parquet.apache.org/docs/file-format, LogicalTypes.md of apache/parquet-format).

mod file;
mod page;
mod thrift;

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use kelvin_core::{Case, Name, Value, json};

use self::file::ParquetFile;
use crate::columns::{
    Column, ColumnValues, FigureRow, SampleRow, TableRow, figure_columns, machine_columns, remark_columns,
    round_columns, sample_columns, sample_unit_column, visible_text,
};
use crate::{Render, Report};

/// Key of the file's metadata: a JSON object from the name of a column to its unit.
pub const UNITS_KEY: &str = "kelvin.units";

/// Rows of a row group: as many are compressed together.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// One row for each metric and case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parquet;

/// One row for each raw sample: nothing subtracted, nothing dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetSamples;

impl Render for Parquet {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut columns = run_columns(report);
        columns.extend(axis_columns(report.analysis.results.iter().map(|result| &result.case)));
        columns.extend(figure_columns().into_iter().chain(machine_columns()).chain(remark_columns()));
        write_table(&columns, FigureRow::for_report(report), out)
    }
}

impl Render for ParquetSamples {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut columns = run_columns(report);
        columns.extend(axis_columns(report.run.measurements.iter().map(|measurement| &measurement.planned.case)));
        columns.push(sample_unit_column());
        columns.extend(round_columns().into_iter().chain(sample_columns()));
        write_table(&columns, SampleRow::for_report(report), out)
    }
}

/// The run, and the metric.
fn run_columns<'a, R: TableRow + 'a>(report: &Report<'a>) -> Vec<Column<'a, R>> {
    let (header, labels) = (&report.run.header, &report.run.labels);
    let started = header.started.parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
    let time = ColumnValues::Time(Box::new(move |_: &R| started));
    let tags = labels.tags_text();
    vec![
        Column::text("run", |_: &R| visible_text(&header.id)),
        Column::new("started", "microseconds since 1970, UTC", time),
        Column::text("run_tags", move |_: &R| if tags.is_empty() { None } else { visible_text(&tags) }),
        Column::text("run_note", |_: &R| visible_text(labels.note.as_ref()?)),
        Column::text("metric", |row: &R| Some(row.metric_case().0.as_str().into())),
    ]
}

/// A column for each axis, of numbers where all its values are numbers.
fn axis_columns<'c, 'a, R: TableRow + 'a>(cases: impl Iterator<Item = &'c Case>) -> Vec<Column<'a, R>> {
    let mut axes: BTreeMap<Name, bool> = BTreeMap::new();
    for (axis, value) in cases.flat_map(Case::iter) {
        *axes.entry(axis).or_insert(true) &= matches!(value, Value::Integer(_));
    }
    let column = |(axis, is_number): (Name, bool)| {
        let number = move |row: &R| {
            if let Value::Integer(number) = row.metric_case().1.get(&axis)? { Some(number) } else { None }
        };
        let text = move |row: &R| Some(row.metric_case().1.get(&axis)?.to_string().into());
        let values = if is_number { ColumnValues::Count(Box::new(number)) } else { ColumnValues::Text(Box::new(text)) };
        Column::new(format!("axis_{axis}"), "", values)
    };
    axes.into_iter().map(column).collect()
}

/// Writes the file.
fn write_table<R>(
    columns: &[Column<'_, R>],
    mut rows: impl Iterator<Item = R>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let units = columns.iter().filter(|column| !column.unit.is_empty()).map(|column| (&*column.name, column.unit));
    let units = json::to_string(&units.collect::<BTreeMap<&str, &str>>())?;
    let mut file = ParquetFile::create(out)?;
    loop {
        let rows: Vec<R> = rows.by_ref().take(ROW_GROUP_ROWS).collect();
        if rows.is_empty() {
            return file.finish(columns, (UNITS_KEY, &units));
        }
        file.write_rows(columns, &rows)?;
    }
}
