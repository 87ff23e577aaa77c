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
    pub fn for_report(report: &Report<'a>) -> impl Iterator<Item = Self> {
        let report = *report;
        report.analysis.results.iter().map(move |result| Self { report, result })
    }

    /// What was found, whether or not it makes a headline.
    fn samples_summary(&self) -> Option<&'a Summary> {
        self.result.outcome.found_summary()
    }

    /// The interval of the headline; a metric that is not known has neither, even with samples.
    fn interval(&self) -> Option<Interval> {
        self.result.outcome.summary()?.interval
    }

    fn undisturbed_interval(&self) -> Option<Interval> {
        self.samples_summary()?.undisturbed?.interval
    }
}

impl<'a> SampleRow<'a> {
    /// All rows of a report.
    pub fn for_report(report: &Report<'a>) -> impl Iterator<Item = Self> {
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

type FigureColumn<'a> = Column<'a, FigureRow<'a>>;
type SampleColumn<'a> = Column<'a, SampleRow<'a>>;

/// The columns of figures.
pub(crate) fn figure_columns<'a>() -> Vec<FigureColumn<'a>> {
    vec![
        FigureColumn::text("unit", |row| Some(row.result.metric.unit.name().into())),
        FigureColumn::text("better", |row| Some(row.result.metric.better.name().into())),
        FigureColumn::count("method_version", "", |row| Some(row.result.metric.version.into())),
        FigureColumn::flag("only_input", |row| Some(row.result.only_input)),
        FigureColumn::text("status", |row| Some(labels::status(&row.result.outcome).into())),
        FigureColumn::real("headline", "unit", |row| Some(row.result.outcome.summary()?.headline)),
        FigureColumn::real("lower", "unit", |row| Some(row.interval()?.lower)),
        FigureColumn::real("upper", "unit", |row| Some(row.interval()?.upper)),
        FigureColumn::text("interval", |row| Some(data_name(&row.interval()?.kind))),
        FigureColumn::real("level", "ratio", |row| Some(row.interval()?.level)),
        FigureColumn::text("treatment", |row| Some(data_name(&row.result.metric.headline))),
        FigureColumn::real("cycles", "cycles", |row| row.result.cycles),
        FigureColumn::real("predicted", "unit", |row| Some(row.result.prediction.as_ref()?.value)),
        FigureColumn::real("predicted_low", "unit", |row| Some(row.result.prediction.as_ref()?.low)),
        FigureColumn::real("predicted_high", "unit", |row| Some(row.result.prediction.as_ref()?.high)),
        FigureColumn::real("ratio", "ratio", |row| row.result.ratio),
        FigureColumn::text("verdict", |row| Some(data_name(&row.result.verdict))),
        FigureColumn::text("explaining_causes", |row| {
            visible_text(row.result.explained_by.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "))
        }),
        FigureColumn::real("undisturbed_share", "ratio", |row| Some(row.samples_summary()?.undisturbed_share)),
        FigureColumn::real("as_found", "unit", |row| Some(row.samples_summary()?.as_found.value)),
        FigureColumn::real("as_found_lower", "unit", |row| Some(row.samples_summary()?.as_found.interval?.lower)),
        FigureColumn::real("as_found_upper", "unit", |row| Some(row.samples_summary()?.as_found.interval?.upper)),
        FigureColumn::real("undisturbed", "unit", |row| Some(row.samples_summary()?.undisturbed?.value)),
        FigureColumn::real("undisturbed_lower", "unit", |row| Some(row.undisturbed_interval()?.lower)),
        FigureColumn::real("undisturbed_upper", "unit", |row| Some(row.undisturbed_interval()?.upper)),
        FigureColumn::count("n", "count", |row| Some(row.samples_summary()?.distribution.n)),
        FigureColumn::count("rounds", "count", |row| Some(row.samples_summary()?.rounds.into())),
        FigureColumn::count("failed_rounds", "count", |row| Some(row.samples_summary()?.failed_rounds.into())),
        FigureColumn::real("effective_samples", "count", |row| Some(row.samples_summary()?.effective_samples)),
        FigureColumn::flag("is_batch_means", |row| Some(row.samples_summary()?.distribution.is_of_batch_means)),
        FigureColumn::real("best", "unit", |row| Some(row.samples_summary()?.distribution.best)),
        FigureColumn::real("min", "unit", |row| Some(row.samples_summary()?.distribution.min)),
        FigureColumn::real("p5", "unit", |row| Some(row.samples_summary()?.distribution.p5)),
        FigureColumn::real("p25", "unit", |row| Some(row.samples_summary()?.distribution.p25)),
        FigureColumn::real("p50", "unit", |row| Some(row.samples_summary()?.distribution.p50)),
        FigureColumn::real("p75", "unit", |row| Some(row.samples_summary()?.distribution.p75)),
        FigureColumn::real("p95", "unit", |row| Some(row.samples_summary()?.distribution.p95)),
        FigureColumn::real("p99", "unit", |row| Some(row.samples_summary()?.distribution.p99)),
        FigureColumn::real("max", "unit", |row| Some(row.samples_summary()?.distribution.max)),
        FigureColumn::real("mean", "unit", |row| Some(row.samples_summary()?.distribution.mean)),
        FigureColumn::real("std", "unit", |row| Some(row.samples_summary()?.distribution.std)),
    ]
}

/// The machine and the program, in each row of Parquet: files of several runs are read as one table.
pub(crate) fn machine_columns<'a>() -> [FigureColumn<'a>; 2] {
    [
        FigureColumn::text("machine", |row| visible_text(&row.report.run.header.machine.identity)),
        FigureColumn::text("kelvin", |row| visible_text(&row.report.run.header.kelvin)),
    ]
}

/// Warnings, and why a figure is missing.
pub(crate) fn remark_columns<'a>() -> [FigureColumn<'a>; 2] {
    [
        FigureColumn::text("warnings", |row| {
            visible_text(row.result.warnings.iter().map(|warning| &*warning.text).collect::<Vec<_>>().join("; "))
        }),
        FigureColumn::text("reason", |row| {
            let reason = labels::missing_reason(&row.result.outcome, row.result.metric.unit);
            visible_text(reason.map(|(_, why)| why).unwrap_or_default())
        }),
    ]
}

/// The range of machines of its class, and what the figure is against it: `slower`, `usual`, `faster`. In CSV alone.
pub(crate) fn class_columns<'a>() -> [FigureColumn<'a>; 5] {
    [
        FigureColumn::real("class_low", "unit", |row| Some(row.result.class_range?.low)),
        FigureColumn::real("class_middle", "unit", |row| Some(row.result.class_range?.center)),
        FigureColumn::real("class_high", "unit", |row| Some(row.result.class_range?.high)),
        FigureColumn::count("class_members", "count", |row| Some(row.result.class_range?.members as u64)),
        FigureColumn::text("class_verdict", |row| Some(class_comparison::class_word(row.result).into())),
    ]
}

/// The round of a sample.
pub(crate) fn round_columns<'a>() -> [SampleColumn<'a>; 3] {
    [
        SampleColumn::count("round", "", |row| Some(row.round.index.into())),
        SampleColumn::real("round_at", "seconds", |row| Some(row.round.start_seconds)).in_csv("round_at_seconds"),
        SampleColumn::count("cpu", "", |row| Some(row.round.cpu.into())),
    ]
}

/// The unit of a sample's metric, which CSV leaves to the names of its columns.
pub(crate) fn sample_unit_column<'a>() -> SampleColumn<'a> {
    SampleColumn::text("unit", |row| Some(row.unit?.name().into()))
}

/// The columns of samples.
pub(crate) fn sample_columns<'a>() -> Vec<SampleColumn<'a>> {
    let ns = "nanoseconds";
    vec![
        SampleColumn::count("sample", "", |row| Some(row.sample as u64)),
        SampleColumn::real("value", "unit", |row| row.scalar()),
        SampleColumn::count("iterations", "count", |row| row.batches()?.iterations.get(row.sample).copied()),
        SampleColumn::real(ns, ns, |row| row.batches()?.nanoseconds.get(row.sample).copied()).in_csv("raw_nanoseconds"),
        SampleColumn::real("work_per_iteration", "bytes, or operations, of an iteration", |row| {
            Some(row.batches()?.work_per_iteration)
        }),
        SampleColumn::text("tags", |row| {
            let tags = row.batches()?.tags.get(row.sample).copied().unwrap_or_default();
            let names = SampleTags::NAMES.iter().filter(|(tag, _)| tags.intersects(*tag)).map(|(_, name)| *name);
            Some(names.collect::<Vec<_>>().join(" ").into())
        }),
        SampleColumn::real("clock_pair", ns, |row| row.batches().map(|_| row.reading.overhead.clock_pair))
            .in_csv("clock_pair_nanoseconds"),
        SampleColumn::real("loop_iteration", ns, |row| row.batches().map(|_| row.reading.overhead.loop_iteration))
            .in_csv("loop_nanoseconds"),
        SampleColumn::real("canary_chain", ns, |row| row.canary(Canary::Chain)).in_csv("canary_chain_nanoseconds"),
        SampleColumn::real("canary_block", ns, |row| row.canary(Canary::Block)).in_csv("canary_block_nanoseconds"),
    ]
}
