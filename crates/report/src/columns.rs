//! The tables of figures and of raw samples, column by column: what CSV and Parquet have in common.

use std::borrow::Cow;

use kelvin_analysis::wording::class_comparison;
use kelvin_analysis::{Interval, MetricResult, Summary};
use kelvin_core::text::escape_invisible;
use kelvin_core::{Batches, Canary, Case, MetricReadings, Name, Readings, Round, SampleTags, Unit};

use crate::text::data_name;
use crate::{Report, labels};

/// A row of either table.
pub(crate) trait TableRow {
    /// The metric, and where it was measured.
    fn metric_case(&self) -> (Name, &Case);
}

/// A row of the table of figures: one metric at one case.
pub(crate) struct FigureRow<'a> {
    report: Report<'a>,
    result: &'a MetricResult,
}

/// A row of the table of samples: one raw sample, from which nothing was subtracted.
pub(crate) struct SampleRow<'a> {
    metric: Name,
    case: &'a Case,
    unit: Option<Unit>,
    round: &'a Round,
    reading: &'a MetricReadings,
    sample: usize,
}

/// How a column reads its value from a row; each value may be missing.
type Reader<'a, R, T> = Box<dyn Fn(&R) -> Option<T> + 'a>;

/// What a column holds.
pub(crate) enum ColumnValues<'a, R> {
    /// UTF-8.
    Text(Reader<'a, R, Cow<'a, str>>),
    /// 64-bit floating point.
    Real(Reader<'a, R, f64>),
    /// 64 bits, unsigned.
    Count(Reader<'a, R, u64>),
    /// Yes or no.
    Flag(Reader<'a, R, bool>),
    /// Microseconds since 1970, UTC.
    Time(Reader<'a, R, i64>),
}

/// A column.
pub(crate) struct Column<'a, R> {
    pub name: Cow<'static, str>,
    /// Its name in CSV, where no metadata has its unit.
    pub csv_name: Cow<'static, str>,
    /// Its unit; `unit` is that of the row's column of this name.
    pub unit: &'static str,
    pub values: ColumnValues<'a, R>,
}

impl<'a, R> Column<'a, R> {
    pub fn new(name: impl Into<Cow<'static, str>>, unit: &'static str, values: ColumnValues<'a, R>) -> Self {
        let name = name.into();
        Self { csv_name: name.clone(), name, unit, values }
    }

    pub fn text(name: &'static str, read: impl Fn(&R) -> Option<Cow<'a, str>> + 'a) -> Self {
        Self::new(name, "", ColumnValues::Text(Box::new(read)))
    }

    fn real(name: &'static str, unit: &'static str, read: impl Fn(&R) -> Option<f64> + 'a) -> Self {
        Self::new(name, unit, ColumnValues::Real(Box::new(read)))
    }

    fn count(name: &'static str, unit: &'static str, read: impl Fn(&R) -> Option<u64> + 'a) -> Self {
        Self::new(name, unit, ColumnValues::Count(Box::new(read)))
    }

    fn flag(name: &'static str, read: impl Fn(&R) -> Option<bool> + 'a) -> Self {
        Self::new(name, "", ColumnValues::Flag(Box::new(read)))
    }

    fn in_csv(self, csv_name: &'static str) -> Self {
        Self { csv_name: csv_name.into(), ..self }
    }
}

impl TableRow for FigureRow<'_> {
    fn metric_case(&self) -> (Name, &Case) {
        (self.result.metric.id, &self.result.case)
    }
}

impl TableRow for SampleRow<'_> {
    fn metric_case(&self) -> (Name, &Case) {
        (self.metric, self.case)
    }
}

impl<'a> FigureRow<'a> {
    /// All rows of a report.
    pub fn all(report: &Report<'a>) -> impl Iterator<Item = Self> {
        let report = *report;
        report.analysis.results.iter().map(move |result| Self { report, result })
    }

    /// What was found, whether or not it makes a headline.
    fn found(&self) -> Option<&'a Summary> {
        self.result.outcome.found_summary()
    }

    /// The interval of the headline; a metric that is not known has neither, even with samples.
    fn interval(&self) -> Option<Interval> {
        self.result.outcome.summary()?.interval
    }

    fn undisturbed_interval(&self) -> Option<Interval> {
        self.found()?.undisturbed?.interval
    }
}

impl<'a> SampleRow<'a> {
    /// All rows of a report.
    pub fn all(report: &Report<'a>) -> impl Iterator<Item = Self> {
        let run = report.run;
        run.measurements.iter().flat_map(move |measurement| {
            let case = &measurement.planned.case;
            measurement.planned.metrics.iter().flat_map(move |metric| {
                let unit = run.metric(metric).map(|metric| metric.unit);
                measurement.readings(metric).flat_map(move |(round, reading)| {
                    let samples = match &reading.readings {
                        Readings::Scalars(values) => values.len(),
                        Readings::Batches(batches) => batches.len(),
                    };
                    (0..samples).map(move |sample| Self { metric: *metric, case, unit, round, reading, sample })
                })
            })
        })
    }

    fn scalar(&self) -> Option<f64> {
        if let Readings::Scalars(values) = &self.reading.readings { values.get(self.sample).copied() } else { None }
    }

    fn batches(&self) -> Option<&'a Batches> {
        if let Readings::Batches(batches) = &self.reading.readings { Some(batches) } else { None }
    }

    /// The mean of a canary's readings on either side of the batch.
    fn canary(&self, canary: Canary) -> Option<f64> {
        let (before, after) = self.batches()?.neighbours(canary, self.sample)?;
        Some(f64::midpoint(before.into(), after.into()))
    }
}

pub(crate) fn visible_text<'a>(text: impl AsRef<str>) -> Option<Cow<'a, str>> {
    Some(escape_invisible(text.as_ref()).into_owned().into())
}

type OfFigure<'a> = Column<'a, FigureRow<'a>>;
type OfSample<'a> = Column<'a, SampleRow<'a>>;

/// The columns of figures.
pub(crate) fn figure_columns<'a>() -> Vec<OfFigure<'a>> {
    vec![
        OfFigure::text("unit", |row| Some(row.result.metric.unit.name().into())),
        OfFigure::text("better", |row| Some(row.result.metric.better.name().into())),
        OfFigure::count("method_version", "", |row| Some(row.result.metric.version.into())),
        OfFigure::flag("only_input", |row| Some(row.result.only_input)),
        OfFigure::text("status", |row| Some(labels::status(&row.result.outcome).into())),
        OfFigure::real("headline", "unit", |row| Some(row.result.outcome.summary()?.headline)),
        OfFigure::real("lower", "unit", |row| Some(row.interval()?.lower)),
        OfFigure::real("upper", "unit", |row| Some(row.interval()?.upper)),
        OfFigure::text("interval", |row| Some(data_name(&row.interval()?.kind))),
        OfFigure::real("level", "ratio", |row| Some(row.interval()?.level)),
        OfFigure::text("treatment", |row| Some(data_name(&row.result.metric.headline))),
        OfFigure::real("cycles", "cycles", |row| row.result.cycles),
        OfFigure::real("predicted", "unit", |row| Some(row.result.prediction.as_ref()?.value)),
        OfFigure::real("predicted_low", "unit", |row| Some(row.result.prediction.as_ref()?.low)),
        OfFigure::real("predicted_high", "unit", |row| Some(row.result.prediction.as_ref()?.high)),
        OfFigure::real("ratio", "ratio", |row| row.result.ratio),
        OfFigure::text("verdict", |row| Some(data_name(&row.result.verdict))),
        OfFigure::text("explaining_causes", |row| {
            visible_text(row.result.explained_by.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "))
        }),
        OfFigure::real("undisturbed_share", "ratio", |row| Some(row.found()?.undisturbed_share)),
        OfFigure::real("as_found", "unit", |row| Some(row.found()?.as_found.value)),
        OfFigure::real("as_found_lower", "unit", |row| Some(row.found()?.as_found.interval?.lower)),
        OfFigure::real("as_found_upper", "unit", |row| Some(row.found()?.as_found.interval?.upper)),
        OfFigure::real("undisturbed", "unit", |row| Some(row.found()?.undisturbed?.value)),
        OfFigure::real("undisturbed_lower", "unit", |row| Some(row.undisturbed_interval()?.lower)),
        OfFigure::real("undisturbed_upper", "unit", |row| Some(row.undisturbed_interval()?.upper)),
        OfFigure::count("n", "count", |row| Some(row.found()?.distribution.n)),
        OfFigure::count("rounds", "count", |row| Some(row.found()?.rounds.into())),
        OfFigure::count("failed_rounds", "count", |row| Some(row.found()?.failed_rounds.into())),
        OfFigure::real("effective_samples", "count", |row| Some(row.found()?.effective_samples)),
        OfFigure::flag("is_batch_means", |row| Some(row.found()?.distribution.is_of_batch_means)),
        OfFigure::real("best", "unit", |row| Some(row.found()?.distribution.best)),
        OfFigure::real("min", "unit", |row| Some(row.found()?.distribution.min)),
        OfFigure::real("p5", "unit", |row| Some(row.found()?.distribution.p5)),
        OfFigure::real("p25", "unit", |row| Some(row.found()?.distribution.p25)),
        OfFigure::real("p50", "unit", |row| Some(row.found()?.distribution.p50)),
        OfFigure::real("p75", "unit", |row| Some(row.found()?.distribution.p75)),
        OfFigure::real("p95", "unit", |row| Some(row.found()?.distribution.p95)),
        OfFigure::real("p99", "unit", |row| Some(row.found()?.distribution.p99)),
        OfFigure::real("max", "unit", |row| Some(row.found()?.distribution.max)),
        OfFigure::real("mean", "unit", |row| Some(row.found()?.distribution.mean)),
        OfFigure::real("std", "unit", |row| Some(row.found()?.distribution.std)),
    ]
}

/// The machine and the program, in each row of Parquet: files of several runs are read as one table.
pub(crate) fn machine_columns<'a>() -> [OfFigure<'a>; 2] {
    [
        OfFigure::text("machine", |row| visible_text(&row.report.run.header.machine.identity)),
        OfFigure::text("kelvin", |row| visible_text(&row.report.run.header.kelvin)),
    ]
}

/// Warnings, and why a figure is missing.
pub(crate) fn remark_columns<'a>() -> [OfFigure<'a>; 2] {
    [
        OfFigure::text("warnings", |row| {
            visible_text(row.result.warnings.iter().map(|warning| &*warning.text).collect::<Vec<_>>().join("; "))
        }),
        OfFigure::text("reason", |row| {
            let reason = labels::missing_reason(&row.result.outcome, row.result.metric.unit);
            visible_text(reason.map(|(_, why)| why).unwrap_or_default())
        }),
    ]
}

/// The range of machines of its class, and what the figure is against it: `slower`, `usual`, `faster`. In CSV alone.
pub(crate) fn class_columns<'a>() -> [OfFigure<'a>; 5] {
    [
        OfFigure::real("class_low", "unit", |row| Some(row.result.class_range?.low)),
        OfFigure::real("class_middle", "unit", |row| Some(row.result.class_range?.center)),
        OfFigure::real("class_high", "unit", |row| Some(row.result.class_range?.high)),
        OfFigure::count("class_members", "count", |row| Some(row.result.class_range?.members as u64)),
        OfFigure::text("class_verdict", |row| Some(class_comparison::class_word(row.result).into())),
    ]
}

/// The round of a sample.
pub(crate) fn round_columns<'a>() -> [OfSample<'a>; 3] {
    [
        OfSample::count("round", "", |row| Some(row.round.index.into())),
        OfSample::real("round_at", "seconds", |row| Some(row.round.start_seconds)).in_csv("round_at_seconds"),
        OfSample::count("cpu", "", |row| Some(row.round.cpu.into())),
    ]
}

/// The unit of a sample's metric, which CSV leaves to the names of its columns.
pub(crate) fn sample_unit_column<'a>() -> OfSample<'a> {
    OfSample::text("unit", |row| Some(row.unit?.name().into()))
}

/// The columns of samples.
pub(crate) fn sample_columns<'a>() -> Vec<OfSample<'a>> {
    let ns = "nanoseconds";
    vec![
        OfSample::count("sample", "", |row| Some(row.sample as u64)),
        OfSample::real("value", "unit", |row| row.scalar()),
        OfSample::count("iterations", "count", |row| row.batches()?.iterations.get(row.sample).copied()),
        OfSample::real(ns, ns, |row| row.batches()?.nanoseconds.get(row.sample).copied()).in_csv("raw_nanoseconds"),
        OfSample::real("work_per_iteration", "bytes, or operations, of an iteration", |row| {
            Some(row.batches()?.work_per_iteration)
        }),
        OfSample::text("tags", |row| {
            let tags = row.batches()?.tags.get(row.sample).copied().unwrap_or_default();
            let names = SampleTags::NAMES.iter().filter(|(tag, _)| tags.intersects(*tag)).map(|(_, name)| *name);
            Some(names.collect::<Vec<_>>().join(" ").into())
        }),
        OfSample::real("clock_pair", ns, |row| row.batches().map(|_| row.reading.overhead.clock_pair))
            .in_csv("clock_pair_nanoseconds"),
        OfSample::real("loop_iteration", ns, |row| row.batches().map(|_| row.reading.overhead.loop_iteration))
            .in_csv("loop_nanoseconds"),
        OfSample::real("canary_chain", ns, |row| row.canary(Canary::Chain)).in_csv("canary_chain_nanoseconds"),
        OfSample::real("canary_block", ns, |row| row.canary(Canary::Block)).in_csv("canary_block_nanoseconds"),
    ]
}
