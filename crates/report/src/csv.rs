//! CSV in base units (RFC 4180): one row for each metric and case, one for each raw sample, or one figure's points.

use std::borrow::Cow;
use std::io;

use csv::{Terminator, Writer, WriterBuilder};
use kelvin_analysis::wording::class_comparison;
use kelvin_analysis::{Interval, IntervalKind, MetricResult, Summary};
use kelvin_core::text::escape_invisible;
use kelvin_core::{Batches, Better, Canary, MetricReadings, OverheadReading, Readings, Round, SampleTags, Unit};
use serde::{Serialize, Serializer};

use crate::figures::{Drawing, Figure, Heat, Plot};
use crate::{Render, Report, labels};

/// One row for each metric at each case.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvSummary;

/// One row for each raw sample: nothing subtracted, nothing dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvSamples;

/// A number as the shortest decimal that reads back as the same.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A text that no spreadsheet takes for a formula: unless a number, one that would begin a formula gets an apostrophe, which makes
/// it text there; control characters are escaped.
#[derive(Default)]
struct Text<T = String>(T);

impl<T: AsRef<str>> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape_formula(self.0.as_ref()))
    }
}

/// Letters with which spreadsheets begin a formula; those of full width do in some languages.
const FORMULA_STARTS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

fn escape_formula(field: &str) -> Cow<'_, str> {
    let field = escape_invisible(field);
    let is_formula = field.trim_start().starts_with(FORMULA_STARTS) && field.parse::<f64>().is_err();
    if is_formula { Cow::Owned(format!("'{field}")) } else { field }
}

/// A number, or nothing.
type Cell = Option<Number>;

fn cell(value: impl Into<Option<f64>>) -> Cell {
    value.into().map(Number)
}

/// A part of a row: name, type and value of each column, and their source.
macro_rules! columns {
    ($part:ident of $from:ident: $of:ty { $($column:ident: $kind:ty = $value:expr,)* }) => {
        #[derive(Default, Serialize)]
        struct $part { $($column: $kind,)* }

        impl $part {
            fn of($from: $of) -> Self {
                Self { $($column: $value,)* }
            }
        }
    };
}

columns! { Subject of result: &MetricResult {
    metric: Text = Text(result.metric.id.to_string()),
    case: Text = Text(result.case.to_string()),
    unit: Option<Unit> = Some(result.metric.unit),
    better: Option<Better> = Some(result.metric.better),
    method_version: u32 = result.metric.version,
    only_input: bool = result.only_input,
    status: &'static str = labels::status(&result.outcome),
}}

// A metric that is `not known` has no headline, whatever its samples.
columns! { Headline of result: &MetricResult {
    headline: Cell = cell(result.outcome.summary().map(|summary| summary.headline)),
    lower: Cell = lower(headline_interval(result)),
    upper: Cell = upper(headline_interval(result)),
    interval: Option<IntervalKind> = headline_interval(result).map(|interval| interval.kind),
    level: Cell = cell(headline_interval(result).map(|interval| interval.level)),
    treatment: &'static str = labels::treatment_id(result.metric.headline),
    cycles: Cell = cell(result.cycles),
}}

columns! { Predicted of result: &MetricResult {
    predicted: Cell = cell(result.prediction.as_ref().map(|prediction| prediction.value)),
    predicted_low: Cell = cell(result.prediction.as_ref().map(|prediction| prediction.low)),
    predicted_high: Cell = cell(result.prediction.as_ref().map(|prediction| prediction.high)),
    ratio: Cell = cell(result.ratio),
    verdict: &'static str = labels::verdict_id(result.verdict),
    explained_by: Text = Text(result.explained_by.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" ")),
}}

columns! { Treatments of summary: &Summary {
    kept_share: Cell = cell(summary.kept_share),
    as_found: Cell = cell(summary.as_found.value),
    as_found_lower: Cell = lower(summary.as_found.interval),
    as_found_upper: Cell = upper(summary.as_found.interval),
    undisturbed: Cell = cell(summary.undisturbed.map(|figure| figure.value)),
    undisturbed_lower: Cell = lower(summary.undisturbed.and_then(|figure| figure.interval)),
    undisturbed_upper: Cell = upper(summary.undisturbed.and_then(|figure| figure.interval)),
}}

columns! { Samples of summary: &Summary {
    n: Option<u64> = Some(summary.distribution.n),
    rounds: Option<u32> = Some(summary.rounds),
    failed_rounds: Option<u32> = Some(summary.failed_rounds),
    effective_samples: Cell = cell(summary.effective_samples),
    of_batch_means: Option<bool> = Some(summary.distribution.of_batch_means),
    best: Cell = cell(summary.distribution.best),
    min: Cell = cell(summary.distribution.min),
    p5: Cell = cell(summary.distribution.p5),
    p25: Cell = cell(summary.distribution.p25),
    p50: Cell = cell(summary.distribution.p50),
    p75: Cell = cell(summary.distribution.p75),
    p95: Cell = cell(summary.distribution.p95),
    p99: Cell = cell(summary.distribution.p99),
    max: Cell = cell(summary.distribution.max),
    mean: Cell = cell(summary.distribution.mean),
    std: Cell = cell(summary.distribution.std),
}}

columns! { Remarks of result: &MetricResult {
    warnings: Text = Text(result.warnings.iter().map(|warning| warning.text()).collect::<Vec<_>>().join("; ")),
    reason: Text = Text(labels::missing_reason(&result.outcome, result.metric.unit).map(|(_, why)| why).unwrap_or_default()),
}}

// The range of machines of its class, and what the figure is against it: `slower`, `usual`, `faster`.
columns! { OfClass of result: &MetricResult {
    class_low: Cell = cell(result.of_class.map(|of_class| of_class.low)),
    class_middle: Cell = cell(result.of_class.map(|of_class| of_class.middle)),
    class_high: Cell = cell(result.of_class.map(|of_class| of_class.high)),
    class_members: Option<usize> = result.of_class.map(|of_class| of_class.members),
    against_class: &'static str = class_comparison::class_word(result),
}}

columns! { Origin of at: (&str, &str, &Round) {
    metric: Text = Text(at.0.to_owned()),
    case: Text = Text(at.1.to_owned()),
    round: u32 = at.2.index,
    round_at_seconds: Cell = cell(at.2.at),
    cpu: u32 = at.2.cpu,
}}

columns! { Value of at: (usize, Option<f64>) {
    sample: usize = at.0,
    value: Cell = cell(at.1),
}}

columns! { Batch of at: (&Batches, &OverheadReading, usize) {
    iterations: Option<u64> = at.0.iterations.get(at.2).copied(),
    raw_nanoseconds: Cell = cell(at.0.nanoseconds[at.2]),
    work_per_iteration: Cell = cell(at.0.work_per_iteration),
    tags: String = tag_names(at.0.tags.get(at.2).copied().unwrap_or_default()),
    clock_pair_nanoseconds: Cell = cell(at.1.clock_pair),
    loop_nanoseconds: Cell = cell(at.1.loop_iteration),
    canary_chain_nanoseconds: Cell = canary_cell(at.0, Canary::Chain, at.2),
    canary_block_nanoseconds: Cell = canary_cell(at.0, Canary::Block, at.2),
    canary_cache_nanoseconds: Cell = canary_cell(at.0, Canary::Cache, at.2),
    canary_kernel_nanoseconds: Cell = canary_cell(at.0, Canary::Kernel, at.2),
}}

impl Render for CsvSummary {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut rows =
            writer_with_header::<(Subject, Headline, Predicted, Treatments, Samples, Remarks, OfClass)>(out)?;
        for result in &report.analysis.results {
            let summary = result.outcome.found_summary();
            let treatments = summary.map(Treatments::of).unwrap_or_default();
            let samples = summary.map(Samples::of).unwrap_or_default();
            let (headline, predicted) = (Headline::of(result), Predicted::of(result));
            let (remarks, of_class) = (Remarks::of(result), OfClass::of(result));
            rows.serialize((Subject::of(result), headline, predicted, treatments, samples, remarks, of_class))?;
        }
        rows.flush()
    }
}

impl Render for CsvSamples {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut rows = writer_with_header::<(Origin, Value, Batch)>(out)?;
        for measurement in &report.run.measurements {
            let case = measurement.planned.case.to_string();
            for metric in &measurement.planned.metrics {
                for (round, reading) in measurement.readings(metric) {
                    sample_rows(&mut rows, &Origin::of((metric, &case, round)), reading)?;
                }
            }
        }
        rows.flush()
    }
}

fn sample_rows<W: io::Write>(rows: &mut Writer<W>, origin: &Origin, reading: &MetricReadings) -> csv::Result<()> {
    match &reading.readings {
        Readings::Scalars(values) => values.iter().enumerate().try_for_each(|(index, &value)| {
            rows.serialize((origin, Value::of((index, Some(value))), Batch::default()))
        }),
        Readings::Batches(batches) => (0..batches.len()).try_for_each(|index| {
            rows.serialize((origin, Value::of((index, None)), Batch::of((batches, &reading.overhead, index))))
        }),
    }
}

/// The points of one figure, or the cells of a heat map, one row each.
///
/// # Errors
/// Those of the writer.
pub fn write_figure(figure: &Figure, out: &mut dyn io::Write) -> io::Result<()> {
    let mut rows = csv_writer(out, false);
    match &figure.drawing {
        Drawing::Plot(plot) => plot_rows(plot, &mut rows)?,
        Drawing::Heat(heat) => heat_rows(heat, &mut rows)?,
    }
    rows.flush()
}

fn heat_rows<W: io::Write>(heat: &Heat, rows: &mut Writer<W>) -> csv::Result<()> {
    let [row, column] = &heat.axes;
    rows.write_record([&escape_formula(row), &escape_formula(column), "value", "low", "high", "predicted"])?;
    heat.cells.iter().try_for_each(|at| {
        let numbers = [at.value, at.low, at.high].map(Number);
        rows.serialize((Text(&heat.rows[at.row]), Text(&heat.columns[at.column]), numbers, cell(at.predicted)))
    })
}

fn plot_rows<W: io::Write>(plot: &Plot, rows: &mut Writer<W>) -> csv::Result<()> {
    rows.write_record(["series", "role", "x", "y", "low", "high"])?;
    plot.series.iter().flat_map(|series| series.points.iter().map(move |point| (series, point))).try_for_each(
        |(series, point)| {
            rows.serialize((Text(&series.label), series.role, [point.x, point.y, point.low, point.high].map(Number)))
        },
    )
}

fn headline_interval(result: &MetricResult) -> Option<Interval> {
    result.outcome.summary()?.interval
}

fn lower(interval: Option<Interval>) -> Cell {
    cell(interval.map(|interval| interval.lower))
}

fn upper(interval: Option<Interval>) -> Cell {
    cell(interval.map(|interval| interval.upper))
}

/// The mean of a canary's readings on either side of a batch.
fn canary_cell(batches: &Batches, canary: Canary, index: usize) -> Cell {
    cell(batches.neighbours(canary, index).map(|(before, after)| f64::midpoint(before.into(), after.into())))
}

fn tag_names(tags: SampleTags) -> String {
    let names: Vec<&str> =
        SampleTags::NAMES.iter().filter(|(tag, _)| tags.intersects(*tag)).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// Lines that end as RFC 4180 wants it, `headed` by the names of the first row's fields or by nothing.
fn csv_writer<W: io::Write>(out: W, headed: bool) -> Writer<W> {
    WriterBuilder::new().has_headers(headed).terminator(Terminator::CRLF).from_writer(out)
}

/// Lines under the names of a row's fields, even if no row follows.
fn writer_with_header<R: Default + Serialize>(out: &mut dyn io::Write) -> io::Result<Writer<&mut dyn io::Write>> {
    let mut empty = csv_writer(Vec::new(), true);
    empty.serialize(R::default())?;
    let empty = empty.into_inner().map_err(csv::IntoInnerError::into_error)?;
    out.write_all(empty.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default())?;
    Ok(csv_writer(out, false))
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
        let mut out = csv_writer(Vec::new(), false);
        out.serialize(fields.map(Text)).unwrap();
        let expected = "'=cmd|' /C calc'!A0,'@SUM(1),'-5+2,' =1,-0.5,1e-9,,a-b,\"'+\"\"x\"\"\",\\t=1,'＝1,-inf\r\n";
        assert_eq!(String::from_utf8(out.into_inner().unwrap()).unwrap(), expected);
    }
}
