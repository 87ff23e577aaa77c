//! CSV in base units (RFC 4180): one row for each metric and case, one for each raw sample, or one figure's points.

use std::borrow::Cow;
use std::io;

use kelvin_analysis::{Figure as Value, Interval, IntervalKind, MetricResult, Outcome, Summary};
use kelvin_model::text::visible;
use kelvin_model::{Canary, Readings, Tags};

use crate::figures::{Drawing, Figure, Heat, Plot, Role};
use crate::{Render, Report, words};

/// One row for each metric at each case.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvSummary;

/// One row for each raw sample: nothing subtracted, nothing dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct CsvSamples;

const SUMMARY_COLUMNS: [&str; 45] = [
    "metric",
    "case",
    "unit",
    "better",
    "method_version",
    "only_input",
    "status",
    "headline",
    "lower",
    "upper",
    "interval",
    "level",
    "treatment",
    "cycles",
    "predicted",
    "predicted_low",
    "predicted_high",
    "ratio",
    "verdict",
    "explained_by",
    "kept_share",
    "as_found",
    "as_found_lower",
    "as_found_upper",
    "undisturbed",
    "undisturbed_lower",
    "undisturbed_upper",
    "n",
    "rounds",
    "failed_rounds",
    "effective_samples",
    "of_batch_means",
    "best",
    "min",
    "p5",
    "p25",
    "p50",
    "p75",
    "p95",
    "p99",
    "max",
    "mean",
    "std",
    "warnings",
    "reason",
];

const SAMPLE_COLUMNS: [&str; 17] = [
    "metric",
    "case",
    "round",
    "round_at_seconds",
    "cpu",
    "sample",
    "value",
    "iterations",
    "raw_nanoseconds",
    "work_per_iteration",
    "tags",
    "clock_pair_nanoseconds",
    "loop_nanoseconds",
    "canary_chain_nanoseconds",
    "canary_block_nanoseconds",
    "canary_cache_nanoseconds",
    "canary_kernel_nanoseconds",
];

impl Render for CsvSummary {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        line(out, SUMMARY_COLUMNS)?;
        for result in &report.analysis.results {
            line(out, summary_row(result))?;
        }
        Ok(())
    }
}

/// One metric at one case; the fields of [`SUMMARY_COLUMNS`].
fn summary_row(result: &MetricResult) -> [String; 45] {
    let metric = &result.metric;
    let summary = match &result.outcome {
        Outcome::Measured(summary) | Outcome::NotKnown(summary) => Some(summary.as_ref()),
        _ => None,
    };
    // A metric that is not known has no headline, whatever its samples say.
    let headline = result.outcome.summary();
    let interval = headline.and_then(|summary| summary.interval);
    let prediction = result.prediction.as_ref();
    let of = |value: fn(&Summary) -> f64| summary.map(value).map(number).unwrap_or_default();
    let undisturbed = summary.and_then(|summary| summary.undisturbed);
    let as_found = summary.map(|summary| summary.as_found);
    let warnings: Vec<&str> = result.warnings.iter().map(|warning| warning.text()).collect();
    [
        metric.id.to_string(),
        result.case.to_string(),
        word(&metric.unit),
        word(&metric.better),
        metric.version.to_string(),
        result.only_input.to_string(),
        words::status(&result.outcome).into(),
        headline.map(|summary| number(summary.headline)).unwrap_or_default(),
        lower(interval),
        upper(interval),
        interval.map(|interval| kind(interval.kind)).unwrap_or_default().into(),
        interval.map(|interval| number(interval.level)).unwrap_or_default(),
        words::treatment_id(metric.headline).into(),
        result.cycles.map(number).unwrap_or_default(),
        prediction.map(|prediction| number(prediction.value)).unwrap_or_default(),
        prediction.map(|prediction| number(prediction.low)).unwrap_or_default(),
        prediction.map(|prediction| number(prediction.high)).unwrap_or_default(),
        result.ratio.map(number).unwrap_or_default(),
        words::verdict_id(result.verdict).into(),
        result.explained_by.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "),
        of(|summary| summary.kept_share),
        as_found.map(|figure| number(figure.value)).unwrap_or_default(),
        lower(as_found.and_then(|figure: Value| figure.interval)),
        upper(as_found.and_then(|figure| figure.interval)),
        undisturbed.map(|figure| number(figure.value)).unwrap_or_default(),
        lower(undisturbed.and_then(|figure| figure.interval)),
        upper(undisturbed.and_then(|figure| figure.interval)),
        summary.map(|summary| summary.distribution.n.to_string()).unwrap_or_default(),
        summary.map(|summary| summary.rounds.to_string()).unwrap_or_default(),
        summary.map(|summary| summary.failed_rounds.to_string()).unwrap_or_default(),
        of(|summary| summary.effective_samples),
        summary.map(|summary| summary.distribution.of_batch_means.to_string()).unwrap_or_default(),
        of(|summary| summary.distribution.best),
        of(|summary| summary.distribution.min),
        of(|summary| summary.distribution.p5),
        of(|summary| summary.distribution.p25),
        of(|summary| summary.distribution.p50),
        of(|summary| summary.distribution.p75),
        of(|summary| summary.distribution.p95),
        of(|summary| summary.distribution.p99),
        of(|summary| summary.distribution.max),
        of(|summary| summary.distribution.mean),
        of(|summary| summary.distribution.std),
        warnings.join("; "),
        words::no_number(&result.outcome, metric.unit).map(|(_, reason)| reason).unwrap_or_default(),
    ]
}

impl Render for CsvSamples {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        line(out, SAMPLE_COLUMNS)?;
        for measurement in &report.run.measurements {
            let case = measurement.planned.case.to_string();
            for metric in &measurement.planned.metrics {
                for (round, reading) in measurement.readings(metric) {
                    let head = [
                        metric.to_string(),
                        case.clone(),
                        round.index.to_string(),
                        number(round.at),
                        round.cpu.to_string(),
                    ];
                    samples(out, &head, reading)?;
                }
            }
        }
        Ok(())
    }
}

/// The samples of one reading; `head` are the columns that they share.
fn samples(out: &mut dyn io::Write, head: &[String; 5], reading: &kelvin_model::Reading) -> io::Result<()> {
    match &reading.readings {
        Readings::Scalars(values) => {
            for (index, &value) in values.iter().enumerate() {
                let row = [index.to_string(), number(value)];
                let empty = std::iter::repeat_n(String::new(), SAMPLE_COLUMNS.len() - head.len() - row.len());
                line(out, head.iter().cloned().chain(row).chain(empty))?;
            }
        }
        Readings::Batches(batches) => {
            for index in 0..batches.len() {
                let canary = |canary: Canary| {
                    // The mean of the readings on either side.
                    let mean = |(before, after): (f32, f32)| number(f64::midpoint(before.into(), after.into()));
                    batches.neighbours(canary, index).map(mean).unwrap_or_default()
                };
                let row = [
                    index.to_string(),
                    String::new(),
                    batches.iterations.get(index).map(u64::to_string).unwrap_or_default(),
                    number(batches.nanoseconds[index]),
                    number(batches.work_per_iteration),
                    tags(batches.tags.get(index).copied().unwrap_or_default()),
                    number(reading.overhead.clock_pair),
                    number(reading.overhead.loop_iteration),
                    canary(Canary::Chain),
                    canary(Canary::Block),
                    canary(Canary::Cache),
                    canary(Canary::Kernel),
                ];
                line(out, head.iter().cloned().chain(row))?;
            }
        }
    }
    Ok(())
}

/// The points of one figure, or the cells of a heat map, one row each.
///
/// # Errors
/// Those of the writer.
pub fn figure(figure: &Figure, out: &mut dyn io::Write) -> io::Result<()> {
    match &figure.drawing {
        Drawing::Plot(plot) => points(plot, out),
        Drawing::Heat(heat) => cells(heat, out),
    }
}

fn cells(heat: &Heat, out: &mut dyn io::Write) -> io::Result<()> {
    let [row, column] = &heat.axes;
    line(out, [row, column, "value", "low", "high", "predicted"])?;
    for cell in &heat.cells {
        let names = [heat.rows[cell.row].clone(), heat.columns[cell.column].clone()];
        let predicted = cell.predicted.map(number).unwrap_or_default();
        line(out, names.into_iter().chain([cell.value, cell.low, cell.high].map(number)).chain([predicted]))?;
    }
    Ok(())
}

fn points(plot: &Plot, out: &mut dyn io::Write) -> io::Result<()> {
    line(out, ["series", "role", "x", "y", "low", "high"])?;
    for series in &plot.series {
        for point in &series.points {
            let role = role(series.role);
            let cells = [point.x, point.y, point.low, point.high].map(number);
            line(out, [series.label.clone(), role.to_owned()].into_iter().chain(cells))?;
        }
    }
    Ok(())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Measured => "measured",
        Role::Predicted => "predicted",
        Role::Fitted => "fitted",
        Role::AsFound => "as_found",
        Role::Reference => "reference",
        Role::History => "history",
    }
}

fn kind(kind: IntervalKind) -> &'static str {
    match kind {
        IntervalKind::Confidence => "confidence",
        IntervalKind::Range => "range",
    }
}

fn lower(interval: Option<Interval>) -> String {
    interval.map(|interval| number(interval.lower)).unwrap_or_default()
}

fn upper(interval: Option<Interval>) -> String {
    interval.map(|interval| number(interval.upper)).unwrap_or_default()
}

fn tags(tags: Tags) -> String {
    let names: Vec<&str> = Tags::NAMED.iter().filter(|(tag, _)| tags.any(*tag)).map(|(_, name)| *name).collect();
    names.join(" ")
}

/// The shortest decimal that reads back as the same number.
fn number(value: f64) -> String {
    value.to_string()
}

/// An enum's word as it stands in the JSON.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("unit and direction are words: {other:?}"),
    }
}

/// One line, fields quoted where they must be. What is no number and would begin a formula in a spreadsheet has an apostrophe
/// before it, which makes it text there; and what would act on a terminal is spelled out.
fn line(out: &mut dyn io::Write, fields: impl IntoIterator<Item = impl AsRef<str>>) -> io::Result<()> {
    for (index, field) in fields.into_iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        write!(out, "{separator}{}", quoted(&inert(&visible(field.as_ref()))))?;
    }
    // RFC 4180 wants a carriage return too.
    out.write_all(b"\r\n")
}

/// Letters with which spreadsheets begin a formula; those of full width do in some languages.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

fn inert(field: &str) -> Cow<'_, str> {
    let is_formula = field.trim_start().starts_with(FORMULA) && field.parse::<f64>().is_err();
    if is_formula { Cow::Owned(format!("'{field}")) } else { Cow::Borrowed(field) }
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_is_a_formula_and_numbers_stay() {
        let mut out = Vec::new();
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
        line(&mut out, fields).unwrap();
        let expected = "'=cmd|' /C calc'!A0,'@SUM(1),'-5+2,' =1,-0.5,1e-9,,a-b,\"'+\"\"x\"\"\",\\t=1,'＝1,-inf\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
