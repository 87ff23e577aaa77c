//! Apache Parquet: one table of figures, or one of raw samples, a column each with its type.
//!
//! An axis is a column `axis_NAME`, of numbers where all its values are numbers. Units are in the file's metadata, under
//! [`UNITS_KEY`], since what a reader such as pyarrow shows of a column's own is written by Arrow alone.
//!
//! Source: the format's specification (parquet.apache.org/docs/file-format, LogicalTypes.md of apache/parquet-format).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use kelvin_core::{Case, Name, Value, json};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

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
        out.write_all(&write_table(&columns, FigureRow::for_report(report)).map_err(io::Error::other)?)
    }
}

impl Render for ParquetSamples {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut columns = run_columns(report);
        columns.extend(axis_columns(report.run.measurements.iter().map(|measurement| &measurement.planned.case)));
        columns.push(sample_unit_column());
        columns.extend(round_columns().into_iter().chain(sample_columns()));
        out.write_all(&write_table(&columns, SampleRow::for_report(report)).map_err(io::Error::other)?)
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

/// The file. It grows in memory, compressed: the writer of Parquet wants one that can go to another thread.
fn write_table<R>(columns: &[Column<'_, R>], mut rows: impl Iterator<Item = R>) -> Result<Vec<u8>, ParquetError> {
    let units = columns.iter().filter(|column| !column.unit.is_empty()).map(|column| (&*column.name, column.unit));
    let units = json::to_string(&units.collect::<BTreeMap<&str, &str>>());
    let units = units.map_err(|error| ParquetError::General(error.to_string()))?;
    let fields = columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<Vec<_>, ParquetError>>()?;
    let schema = Type::group_type_builder("kelvin").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(vec![KeyValue::new(UNITS_KEY.to_owned(), units)]))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    loop {
        let rows: Vec<R> = rows.by_ref().take(ROW_GROUP_ROWS).collect();
        if rows.is_empty() {
            return writer.into_inner();
        }
        let mut group = writer.next_row_group()?;
        for column in columns {
            let Some(column_writer) = group.next_column()? else { break };
            match &column.values {
                ColumnValues::Text(read) => {
                    write::<ByteArrayType>(
                        column_writer,
                        rows.iter().map(|row| read(row).map(|text| text.as_ref().into())),
                    )?;
                }
                ColumnValues::Real(read) => write::<DoubleType>(column_writer, rows.iter().map(read))?,
                // The bits of an unsigned number are stored as those of a signed one, by the format.
                ColumnValues::Count(read) => {
                    write::<Int64Type>(column_writer, rows.iter().map(|row| read(row).map(u64::cast_signed)))?;
                }
                ColumnValues::Flag(read) => write::<BoolType>(column_writer, rows.iter().map(read))?,
                ColumnValues::Time(read) => write::<Int64Type>(column_writer, rows.iter().map(read))?,
            }
        }
        group.close()?;
    }
}

/// Writes the values of a column, of which each may be missing.
fn write<T: DataType>(
    mut column: SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.collect();
    // 1 where there is a value, 0 where it is null.
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

fn field<R>(column: &Column<'_, R>) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.values {
        ColumnValues::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnValues::Real(_) => (Physical::DOUBLE, None),
        ColumnValues::Count(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        ColumnValues::Flag(_) => (Physical::BOOLEAN, None),
        ColumnValues::Time(_) => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}
