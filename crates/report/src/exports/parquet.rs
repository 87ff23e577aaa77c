//! Apache Parquet: one table of figures, or one of raw samples, a column each with its type.
//!
//! An axis is a column `axis_NAME`, of numbers where all its values are numbers. Units are in the file's metadata, under
//! [`UNITS_KEY`], since what a reader such as pyarrow shows of a column's own is written by Arrow alone.
//!
//! Source: the format's specification (parquet.apache.org/docs/file-format, LogicalTypes.md of apache/parquet-format).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use kelvin_analysis::{Interval, IntervalKind, MetricResult, Summary};
use kelvin_core::text::escape_invisible;
use kelvin_core::{Batches, Canary, Case, MetricReadings, Name, Readings, Round, SampleTags, Value, json};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use crate::{Render, Report, labels};

/// Key of the file's metadata: a JSON object from the name of a column to its unit.
pub const UNITS_KEY: &str = "kelvin.units";

/// Rows of a row group: as many are in memory, and compressed together.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// One row for each metric and case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parquet;

/// One row for each raw sample: nothing subtracted, nothing dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetSamples;

/// What a column holds; each may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnType {
    /// UTF-8, by a dictionary.
    Text,
    /// 64-bit floating point.
    Real,
    /// 64 bits, unsigned.
    Count,
    /// Yes or no.
    Flag,
    /// Microseconds since 1970, UTC.
    Time,
}

/// A value in a row.
#[derive(Clone, Debug)]
enum ParquetCell {
    Text(Option<Cow<'static, str>>),
    Real(Option<f64>),
    Count(Option<u64>),
    Flag(Option<bool>),
    Time(Option<i64>),
}

/// Name, content and unit of a column; the unit `unit` is that of the row's column of this name.
type ColumnDefinition = (&'static str, ColumnType, &'static str);

use ColumnType::{Count, Flag, Real, Text, Time};

const RUN_COLUMNS: [ColumnDefinition; 4] = [
    ("run", Text, ""),
    ("started", Time, "microseconds since 1970, UTC"),
    ("run_tags", Text, ""),
    ("run_note", Text, ""),
];

const FIGURE_COLUMNS: [ColumnDefinition; 45] = [
    ("unit", Text, ""),
    ("better", Text, ""),
    ("method_version", Count, ""),
    ("only_input", Flag, ""),
    ("status", Text, ""),
    ("headline", Real, "unit"),
    ("lower", Real, "unit"),
    ("upper", Real, "unit"),
    ("interval", Text, ""),
    ("level", Real, "ratio"),
    ("treatment", Text, ""),
    ("cycles", Real, "cycles"),
    ("predicted", Real, "unit"),
    ("predicted_low", Real, "unit"),
    ("predicted_high", Real, "unit"),
    ("ratio", Real, "ratio"),
    ("verdict", Text, ""),
    ("explained_by", Text, ""),
    ("kept_share", Real, "ratio"),
    ("as_found", Real, "unit"),
    ("as_found_lower", Real, "unit"),
    ("as_found_upper", Real, "unit"),
    ("undisturbed", Real, "unit"),
    ("undisturbed_lower", Real, "unit"),
    ("undisturbed_upper", Real, "unit"),
    ("n", Count, "count"),
    ("rounds", Count, "count"),
    ("failed_rounds", Count, "count"),
    ("effective_samples", Real, "count"),
    ("of_batch_means", Flag, ""),
    ("best", Real, "unit"),
    ("min", Real, "unit"),
    ("p5", Real, "unit"),
    ("p25", Real, "unit"),
    ("p50", Real, "unit"),
    ("p75", Real, "unit"),
    ("p95", Real, "unit"),
    ("p99", Real, "unit"),
    ("max", Real, "unit"),
    ("mean", Real, "unit"),
    ("std", Real, "unit"),
    ("machine", Text, ""),
    ("kelvin", Text, ""),
    ("warnings", Text, ""),
    ("reason", Text, ""),
];

const SAMPLE_COLUMNS: [ColumnDefinition; 16] = [
    ("unit", Text, ""),
    ("round", Count, ""),
    ("round_at", Real, "seconds"),
    ("cpu", Count, ""),
    ("sample", Count, ""),
    ("value", Real, "unit"),
    ("iterations", Count, "count"),
    ("nanoseconds", Real, "nanoseconds"),
    ("work_per_iteration", Real, "bytes, or operations, of an iteration"),
    ("tags", Text, ""),
    ("clock_pair", Real, "nanoseconds"),
    ("loop_iteration", Real, "nanoseconds"),
    ("canary_chain", Real, "nanoseconds"),
    ("canary_block", Real, "nanoseconds"),
    ("canary_cache", Real, "nanoseconds"),
    ("canary_kernel", Real, "nanoseconds"),
];

impl Render for Parquet {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let axes = AxisColumns::of_cases(report.analysis.results.iter().map(|result| &result.case));
        let mut table = ParquetTable::new(&axes, &FIGURE_COLUMNS)?;
        for result in &report.analysis.results {
            let mut row = run_cells(report, result.metric.id);
            row.extend(axes.cells(&result.case));
            row.extend(figure_cells(report, result));
            table.add(row)?;
        }
        out.write_all(&table.finish()?)
    }
}

impl Render for ParquetSamples {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let axes = AxisColumns::of_cases(report.run.measurements.iter().map(|measurement| &measurement.planned.case));
        let mut table = ParquetTable::new(&axes, &SAMPLE_COLUMNS)?;
        for measurement in &report.run.measurements {
            for metric in &measurement.planned.metrics {
                let unit = report.run.metric(metric).map(|metric| metric.unit.name());
                let mut beginning = run_cells(report, *metric);
                beginning.extend(axes.cells(&measurement.planned.case));
                beginning.push(ParquetCell::Text(unit.map(Cow::Borrowed)));
                for (round, reading) in measurement.readings(metric) {
                    add_samples(&mut table, &beginning, (round, reading))?;
                }
            }
        }
        out.write_all(&table.finish()?)
    }
}

fn add_samples(
    table: &mut ParquetTable,
    beginning: &[ParquetCell],
    (round, reading): (&Round, &MetricReadings),
) -> io::Result<()> {
    let beginning = [
        beginning,
        &[
            ParquetCell::Count(Some(round.index.into())),
            ParquetCell::Real(Some(round.at)),
            ParquetCell::Count(Some(round.cpu.into())),
        ],
    ]
    .concat();
    let (pair, iteration) = (reading.overhead.clock_pair, reading.overhead.loop_iteration);
    match &reading.readings {
        Readings::Scalars(values) => values.iter().enumerate().try_for_each(|(index, value)| {
            let cells =
                [ParquetCell::Count(Some(index as u64)), ParquetCell::Real(Some(*value)), ParquetCell::Count(None)];
            let nothing = [ParquetCell::Real(None), ParquetCell::Real(None), ParquetCell::Text(None)];
            let none = std::iter::repeat_n(ParquetCell::Real(None), 6);
            table.add([&beginning[..], &cells, &nothing].concat().into_iter().chain(none).collect())
        }),
        Readings::Batches(batches) => (0..batches.len()).try_for_each(|index| {
            let mut row = beginning.clone();
            row.extend([ParquetCell::Count(Some(index as u64)), ParquetCell::Real(None)]);
            row.extend(batch_cells(batches, index));
            row.extend([pair, iteration].map(|value| ParquetCell::Real(Some(value))));
            row.extend(Canary::ALL.map(|canary| ParquetCell::Real(neighbouring_canary(batches, canary, index))));
            table.add(row)
        }),
    }
}

fn batch_cells(batches: &Batches, index: usize) -> [ParquetCell; 4] {
    let tags = batches.tags.get(index).copied().unwrap_or_default();
    let names: Vec<&str> =
        SampleTags::NAMES.iter().filter(|(tag, _)| tags.intersects(*tag)).map(|(_, name)| *name).collect();
    [
        ParquetCell::Count(batches.iterations.get(index).copied()),
        ParquetCell::Real(batches.nanoseconds.get(index).copied()),
        ParquetCell::Real(Some(batches.work_per_iteration)),
        ParquetCell::Text(Some(names.join(" ").into())),
    ]
}

/// The mean of a canary's readings on either side of a batch.
fn neighbouring_canary(batches: &Batches, canary: Canary, index: usize) -> Option<f64> {
    batches.neighbours(canary, index).map(|(before, after)| f64::midpoint(before.into(), after.into()))
}

/// The run, and the metric.
fn run_cells(report: &Report<'_>, metric: Name) -> Vec<ParquetCell> {
    let outline = &report.run.outline;
    let started = outline.started.parse::<Timestamp>().ok().map(Timestamp::as_microsecond);
    let labels = &report.run.labels;
    let tags = Some(labels.tags_text()).filter(|tags| !tags.is_empty());
    let said = [tags.as_deref(), labels.note.as_deref()].map(|said| said.map_or(ParquetCell::Text(None), text_cell));
    let mut cells = vec![text_cell(&outline.id), ParquetCell::Time(started)];
    cells.extend(said);
    cells.push(ParquetCell::Text(Some(metric.as_str().into())));
    cells
}

fn text_cell(text: &str) -> ParquetCell {
    ParquetCell::Text(Some(escape_invisible(text).into_owned().into()))
}

fn figure_cells(report: &Report<'_>, result: &MetricResult) -> Vec<ParquetCell> {
    let metric = &result.metric;
    let summary = result.outcome.found_summary();
    // A metric that is not known has no headline, whatever its samples.
    let head = result.outcome.summary();
    let interval = head.and_then(|summary| summary.interval);
    let prediction = result.prediction.as_ref();
    let word = |word: &'static str| ParquetCell::Text(Some(word.into()));
    let explained: Vec<&str> = result.explained_by.iter().map(|id| id.as_str()).collect();
    let mut row = vec![
        word(metric.unit.name()),
        word(metric.better.name()),
        ParquetCell::Count(Some(metric.version.into())),
        ParquetCell::Flag(Some(result.only_input)),
        word(labels::status(&result.outcome)),
        ParquetCell::Real(head.map(|summary| summary.headline)),
    ];
    row.extend(interval_cells(interval));
    row.extend([
        ParquetCell::Text(interval.map(|interval| interval_kind(interval.kind).into())),
        ParquetCell::Real(interval.map(|interval| interval.level)),
        word(labels::treatment_id(metric.headline)),
        ParquetCell::Real(result.cycles),
        ParquetCell::Real(prediction.map(|prediction| prediction.value)),
        ParquetCell::Real(prediction.map(|prediction| prediction.low)),
        ParquetCell::Real(prediction.map(|prediction| prediction.high)),
        ParquetCell::Real(result.ratio),
        word(labels::verdict_id(result.verdict)),
        text_cell(&explained.join(" ")),
    ]);
    row.extend(distribution_cells(summary));
    let warnings: Vec<&str> = result.warnings.iter().map(|warning| warning.text()).collect();
    let reason = labels::missing_reason(&result.outcome, metric.unit).map(|(_, why)| why).unwrap_or_default();
    let outline = &report.run.outline;
    row.extend([&outline.machine.identity, &outline.kelvin, &warnings.join("; "), &reason].map(|one| text_cell(one)));
    row
}

fn distribution_cells(summary: Option<&Summary>) -> Vec<ParquetCell> {
    let real = |of: fn(&Summary) -> f64| ParquetCell::Real(summary.map(of));
    let mut row = vec![real(|summary| summary.kept_share), real(|summary| summary.as_found.value)];
    row.extend(interval_cells(summary.and_then(|summary| summary.as_found.interval)));
    let undisturbed = summary.and_then(|summary| summary.undisturbed);
    row.push(ParquetCell::Real(undisturbed.map(|figure| figure.value)));
    row.extend(interval_cells(undisturbed.and_then(|figure| figure.interval)));
    row.extend([
        ParquetCell::Count(summary.map(|summary| summary.distribution.n)),
        ParquetCell::Count(summary.map(|summary| summary.rounds.into())),
        ParquetCell::Count(summary.map(|summary| summary.failed_rounds.into())),
        real(|summary| summary.effective_samples),
        ParquetCell::Flag(summary.map(|summary| summary.distribution.of_batch_means)),
        real(|summary| summary.distribution.best),
        real(|summary| summary.distribution.min),
        real(|summary| summary.distribution.p5),
        real(|summary| summary.distribution.p25),
        real(|summary| summary.distribution.p50),
        real(|summary| summary.distribution.p75),
        real(|summary| summary.distribution.p95),
        real(|summary| summary.distribution.p99),
        real(|summary| summary.distribution.max),
        real(|summary| summary.distribution.mean),
        real(|summary| summary.distribution.std),
    ]);
    row
}

fn interval_cells(interval: Option<Interval>) -> [ParquetCell; 2] {
    [interval.map(|interval| interval.lower), interval.map(|interval| interval.upper)].map(ParquetCell::Real)
}

fn interval_kind(kind: IntervalKind) -> &'static str {
    match kind {
        IntervalKind::Confidence => "confidence",
        IntervalKind::Range => "range",
    }
}

/// The axes of a table, and whether all values of each are numbers.
struct AxisColumns(BTreeMap<Name, bool>);

impl AxisColumns {
    fn of_cases<'a>(cases: impl Iterator<Item = &'a Case>) -> Self {
        let mut axes = BTreeMap::new();
        for (axis, value) in cases.flat_map(Case::iter) {
            *axes.entry(axis).or_insert(true) &= matches!(value, Value::Integer(_));
        }
        Self(axes)
    }

    fn cells(&self, case: &Case) -> Vec<ParquetCell> {
        let cell = |(axis, is_number): (&Name, &bool)| match (case.get(axis), is_number) {
            (Some(Value::Integer(value)), true) => ParquetCell::Count(Some(value)),
            (_, true) => ParquetCell::Count(None),
            (Some(Value::Word(word)), false) => ParquetCell::Text(Some(word.as_str().into())),
            (value, false) => ParquetCell::Text(value.map(|value| value.to_string().into())),
        };
        self.0.iter().map(cell).collect()
    }
}

/// A file under way: the rows that are in no row group yet, by column.
///
/// It grows in memory, compressed: the writer of Parquet wants one that can go to another thread.
struct ParquetTable {
    writer: SerializedFileWriter<Vec<u8>>,
    columns: Vec<ColumnType>,
    rows: Vec<Vec<ParquetCell>>,
}

impl ParquetTable {
    fn new(axes: &AxisColumns, definitions: &[ColumnDefinition]) -> io::Result<Self> {
        let named = |&(name, holds, unit): &ColumnDefinition| (name.to_owned(), holds, unit);
        let mut columns: Vec<(String, ColumnType, &str)> = RUN_COLUMNS.iter().map(named).collect();
        columns.push(("metric".into(), Text, ""));
        columns.extend(
            axes.0.iter().map(|(axis, is_number)| (format!("axis_{axis}"), if *is_number { Count } else { Text }, "")),
        );
        columns.extend(definitions.iter().map(named));
        let units: BTreeMap<&str, &str> = columns
            .iter()
            .filter(|(.., unit)| !unit.is_empty())
            .map(|(name, _, unit)| (name.as_str(), *unit))
            .collect();
        let units = KeyValue::new(UNITS_KEY.to_owned(), json::to_string(&units)?);
        let fields: Result<Vec<TypePtr>, ParquetError> =
            columns.iter().map(|(name, holds, _)| holds.field(name).map(Arc::new)).collect();
        let schema = Type::group_type_builder("kelvin").with_fields(fields.map_err(io::Error::other)?).build();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_key_value_metadata(Some(vec![units]))
            .build();
        let schema = Arc::new(schema.map_err(io::Error::other)?);
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).map_err(io::Error::other)?;
        Ok(Self { writer, columns: columns.into_iter().map(|(_, holds, _)| holds).collect(), rows: Vec::new() })
    }

    fn add(&mut self, row: Vec<ParquetCell>) -> io::Result<()> {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
        if self.rows.len() == ROW_GROUP_ROWS { self.write().map_err(io::Error::other) } else { Ok(()) }
    }

    fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.rows.is_empty() {
            self.write().map_err(io::Error::other)?;
        }
        self.writer.into_inner().map_err(io::Error::other)
    }

    /// Writes the rows as a row group.
    fn write(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            macro_rules! write {
                ($kind:ty, $($pattern:pat => $value:expr),+) => {{
                    let values: Vec<Option<_>> =
                        rows.iter().map(|row| match &row[index] { $($pattern => $value,)+ _ => None }).collect();
                    // 1 where there is a value, 0 where it is null.
                    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
                    let values: Vec<_> = values.into_iter().flatten().collect();
                    column.typed::<$kind>().write_batch(&values, Some(&levels), None)?;
                }};
            }
            match self.columns[index] {
                Text => {
                    write!(ByteArrayType, ParquetCell::Text(value) => value.as_ref().map(|text| ByteArray::from(text.as_ref())))
                }
                Real => write!(DoubleType, ParquetCell::Real(value) => *value),
                // The bits of an unsigned number are stored as those of a signed one, by the format.
                Count => write!(Int64Type, ParquetCell::Count(value) => value.map(u64::cast_signed)),
                Flag => write!(BoolType, ParquetCell::Flag(value) => *value),
                Time => write!(Int64Type, ParquetCell::Time(value) => *value),
            }
            column.close()?;
            index += 1;
        }
        group.close().map(drop)
    }
}

impl ColumnType {
    fn field(self, name: &str) -> Result<Type, ParquetError> {
        let unsigned = LogicalType::integer(64, false);
        let time = LogicalType::timestamp(true, TimeUnit::MICROS);
        let (physical, logical) = match self {
            Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Real => (Physical::DOUBLE, None),
            Count => (Physical::INT64, Some(unsigned)),
            Flag => (Physical::BOOLEAN, None),
            Time => (Physical::INT64, Some(time)),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
    }
}
