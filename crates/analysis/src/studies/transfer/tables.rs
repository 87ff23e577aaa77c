//! The tables of the study of transfers: every cell by set of files, those of files that are not in memory, and what a file and a
//! byte cost by pair of methods.

use kelvin_core::catalogue::transfer::{self, *};

use super::{cell_text, file_set, published_machine, published_value, without_axes};
use crate::prelude::*;

/// The tables of what was measured; none without a transfer.
pub(crate) fn transfer_tables(results: &[MetricResult]) -> Vec<StudyTable> {
    let cells = CellResults(results);
    let in_memory = TransferFiles::ALL.iter().map(|&files| {
        let table = cells.table(&TIME, files, &CACHED_COLUMNS, transfer::CACHED_METRICS);
        let has_published = table.rows.iter().any(|row| row.cells[BAR_COLUMNS[1]].is_some());
        let published = published_machine()
            .filter(|_| has_published)
            .map_or_else(String::new, |machine| format!("; published is the mean of an earlier study: {machine}"));
        StudyTable { title: format!("{}, in memory{published}", file_set(files)), bars: Some(BAR_COLUMNS), ..table }
    });
    let cold_tables = TransferFiles::ALL.iter().map(|&files| {
        let table = cells.table(&COLD_TIME, files, &COLD_COLUMNS, transfer::COLD_METRICS);
        StudyTable { title: format!("{}, not in memory", file_set(files)), bars: Some([0, 3]), ..table }
    });
    let tables = in_memory.chain(cold_tables).chain([cells.cost_table()]);
    tables.filter(|table| !table.rows.is_empty()).collect()
}

/// What a column shows of a cell.
struct TransferColumn {
    label: &'static str,
    unit: Unit,
    is_main: bool,
    figure: fn(&CellRow<'_>) -> Option<Figure>,
}

const fn column(label: &'static str, unit: Unit, figure: fn(&CellRow<'_>) -> Option<Figure>) -> TransferColumn {
    TransferColumn { label, unit, is_main: false, figure }
}

const fn main_column(label: &'static str, unit: Unit, figure: fn(&CellRow<'_>) -> Option<Figure>) -> TransferColumn {
    TransferColumn { is_main: true, ..column(label, unit, figure) }
}

/// Place of the median, and of the published mean, among the columns of files in memory.
const BAR_COLUMNS: [usize; 2] = [0, 4];

static CACHED_COLUMNS: [TransferColumn; 18] = [
    main_column("median", Unit::Nanoseconds, |row| row.headline(&TIME)),
    main_column("mean", Unit::Nanoseconds, |row| row.summary_figure(&TIME, |summary| summary.distribution.mean)),
    main_column("deviation", Unit::Nanoseconds, |row| row.summary_figure(&TIME, |summary| summary.distribution.std)),
    main_column("rate", Unit::BytesPerSecond, |row| row.summary_figure(&RATE, |summary| summary.headline)),
    main_column("published", Unit::Nanoseconds, |row| {
        Some(Figure::without_interval(published_value(row.case)?.value, row.trials()?))
    }),
    column("its deviation", Unit::Nanoseconds, |row| {
        Some(Figure::without_interval(published_value(row.case)?.std?, row.trials()?))
    }),
    column("sender's CPU time", Unit::Nanoseconds, |row| row.headline(&SENDER_CPU)),
    column("receiver's CPU time", Unit::Nanoseconds, |row| row.headline(&RECEIVER_CPU)),
    column("rate per core", Unit::BytesPerSecond, |row| row.rate_per_core()),
    column("sender's calls", Unit::Count, |row| row.headline(&SENDER_CALLS)),
    column("receiver's calls", Unit::Count, |row| row.headline(&RECEIVER_CALLS)),
    column("sender's faults", Unit::Count, |row| row.headline(&SENDER_FAULTS)),
    column("receiver's faults", Unit::Count, |row| row.headline(&RECEIVER_FAULTS)),
    column("sender's switches", Unit::Count, |row| row.headline(&SENDER_SWITCHES)),
    column("receiver's switches", Unit::Count, |row| row.headline(&RECEIVER_SWITCHES)),
    column("read from the device", Unit::Bytes, |row| row.headline(&SENDER_DEVICE)),
    column("written to the device", Unit::Bytes, |row| row.headline(&RECEIVER_DEVICE)),
    column("trials", Unit::Count, |row| Some(Figure::without_interval(row.trials()? as f64, row.trials()?))),
];

static COLD_COLUMNS: [TransferColumn; 5] = [
    main_column("median", Unit::Nanoseconds, |row| row.headline(&COLD_TIME)),
    main_column("mean", Unit::Nanoseconds, |row| row.summary_figure(&COLD_TIME, |summary| summary.distribution.mean)),
    main_column("deviation", Unit::Nanoseconds, |row| {
        row.summary_figure(&COLD_TIME, |summary| summary.distribution.std)
    }),
    main_column("in memory", Unit::Nanoseconds, |row| row.headline(&TIME)),
    column("read from the device", Unit::Bytes, |row| row.headline(&COLD_DEVICE)),
];

/// The results of a run, looked up by metric and case.
struct CellResults<'a>(&'a [MetricResult]);

/// One cell.
struct CellRow<'a> {
    cells: &'a CellResults<'a>,
    case: &'a Case,
}

impl<'a> CellResults<'a> {
    fn summary(&self, metric: &Metric, case: &Case) -> Option<&'a Summary> {
        let is_match = |result: &&MetricResult| result.metric.id == metric.id && result.case == *case;
        self.0.iter().find(is_match)?.outcome.summary()
    }

    /// The cases of a metric that have a figure.
    fn cases(&self, metric: &Metric) -> impl Iterator<Item = &'a Case> {
        let results = self.0.iter().filter(move |result| result.metric.id == metric.id);
        results.filter(|result| result.outcome.summary().is_some()).map(|result| &result.case)
    }

    fn table(
        &self,
        metric: &'static Metric,
        files: TransferFiles,
        columns: &[TransferColumn],
        metrics: &[&Metric],
    ) -> StudyTable {
        let row = |case: &Case| StudyRow {
            label: cell_text(case),
            cells: columns.iter().map(|column| (column.figure)(&CellRow { cells: self, case })).collect(),
        };
        let column = |column: &TransferColumn| StudyColumn::new(column.label, column.unit, column.is_main);
        StudyTable {
            id: format!("{}.{}", metric.id, files.name()),
            title: String::new(),
            columns: columns.iter().map(column).collect(),
            rows: self.cases(metric).filter(|case| TransferFiles::of(case) == Some(files)).map(row).collect(),
            metrics: metrics.iter().map(|metric| metric.id).collect(),
            bars: None,
        }
    }

    /// What a file and a byte cost, for each cell that all sets were measured in.
    fn cost_table(&self) -> StudyTable {
        let is_ordinary = |case: &&Case| {
            WaitMode::of(case) == Some(WaitMode::Blocking)
                && ReplyPolicy::of(case) == Some(ReplyPolicy::None)
                && ConnectionPolicy::of(case).is_some()
        };
        let first =
            self.cases(&TIME).filter(|case| TransferFiles::of(case) == Some(TransferFiles::Small)).filter(is_ordinary);
        let columns = [
            StudyColumn::new("a file", Unit::Nanoseconds, true),
            StudyColumn::new("rate of the bytes", Unit::BytesPerSecond, true),
            StudyColumn::new("largest residual", Unit::Ratio, true),
        ];
        let title = "Cost of a file and of a byte: least squares of time = a files + b bytes over the three sets";
        let rows = first.filter_map(|case| self.cost_row(case)).collect();
        StudyTable::new("transfer.costs".into(), title.into(), columns.into(), rows)
    }

    fn cost_row(&self, case: &Case) -> Option<StudyRow> {
        let load = |&files: &TransferFiles| {
            let summary = self.summary(&TIME, &case.clone().with_word(files))?;
            let (pieces, units) = files.count_and_bytes();
            let load = WorkSample { pieces: pieces as f64, units: units as f64, time: summary.headline };
            Some((load, summary.distribution.n))
        };
        let loads: Vec<(WorkSample, u64)> = TransferFiles::ALL.iter().map(load).collect::<Option<_>>()?;
        let n = loads.iter().map(|(_, n)| n).sum();
        let fit = fit_fixed_plus_linear(&loads.iter().map(|(load, _)| *load).collect::<Vec<_>>())?;
        // A file or a byte that costs nothing, or less, is outside of the sum: there is no such time, and no such rate.
        let file_cost = (fit.per_piece > 0.0).then(|| Figure::without_interval(fit.per_piece, n));
        let rate = (fit.per_unit > 0.0).then(|| Figure::without_interval(1e9 / fit.per_unit, n));
        let cells = vec![file_cost, rate, Some(Figure::without_interval(fit.residual, n))];
        Some(StudyRow { label: cell_text(&without_axes(case, &[TransferFiles::AXIS])), cells })
    }
}

impl CellRow<'_> {
    /// A figure of a summary, without interval.
    fn summary_figure(&self, metric: &Metric, value: fn(&Summary) -> f64) -> Option<Figure> {
        let summary = self.cells.summary(metric, self.case)?;
        Some(Figure::without_interval(value(summary), summary.distribution.n))
    }

    fn headline(&self, metric: &Metric) -> Option<Figure> {
        self.cells.summary(metric, self.case).map(Summary::headline_figure)
    }

    fn trials(&self) -> Option<u64> {
        Some(self.cells.summary(&TIME, self.case)?.distribution.n)
    }

    /// Bytes over the CPU time of both ends; `None` where the clock of CPU time saw none.
    fn rate_per_core(&self) -> Option<Figure> {
        let [sender, receiver] = [&SENDER_CPU, &RECEIVER_CPU].map(|metric| self.headline(metric));
        let busy = sender?.value + receiver?.value;
        let (_, bytes) = TransferFiles::of(self.case)?.count_and_bytes();
        (busy > 0.0).then(|| Figure::without_interval(bytes as f64 * 1e9 / busy, self.trials().unwrap_or(0)))
    }
}
