//! The tables of the study of transfers: every cell by set of files, those of files that are not in memory, and what a file and a
//! byte cost by pair of methods.

use kelvin_catalogue::transfer::{
    self, COLD, COLD_DEVICE, Connection, Files, Mode, RATE, RECEIVER_CALLS, RECEIVER_CPU, RECEIVER_DEVICE,
    RECEIVER_FAULTS, RECEIVER_SWITCHES, Reply, SENDER_CALLS, SENDER_CPU, SENDER_DEVICE, SENDER_FAULTS, SENDER_SWITCHES,
    TIME,
};
use kelvin_model::{Case, Metric, Name, Unit};
use kelvin_stats::{Load, two_costs};

use super::{published_on, published_value, without};
use crate::result::{Figure, MetricResult, StudyColumn, StudyRow, StudyTable, Summary};
use crate::words::transfer::{cell, set};

/// The tables of what was measured; none without a transfer.
pub(crate) fn tables(results: &[MetricResult]) -> Vec<StudyTable> {
    let cells = Cells(results);
    let in_memory = Files::ALL.iter().map(|&files| cells.in_memory(files));
    let others = Files::ALL.iter().map(|&files| cells.not_in_memory(files));
    let all = in_memory.chain(others).chain([cells.costs()]);
    all.filter(|table| !table.rows.is_empty()).collect()
}

/// What a column shows of a cell.
struct Column {
    label: &'static str,
    unit: Unit,
    is_main: bool,
    figure: fn(&Row<'_>) -> Option<Figure>,
}

const fn column(label: &'static str, unit: Unit, figure: fn(&Row<'_>) -> Option<Figure>) -> Column {
    Column { label, unit, is_main: false, figure }
}

impl Column {
    const fn main(mut self) -> Self {
        self.is_main = true;
        self
    }
}

/// Place of the median, and of the published mean, among the columns of files in memory.
const BARS: [usize; 2] = [0, 4];

static IN_MEMORY: [Column; 18] = [
    column("median", Unit::Nanoseconds, |row| row.headline(&TIME)).main(),
    column("mean", Unit::Nanoseconds, |row| row.alone(&TIME, |summary| summary.distribution.mean)).main(),
    column("deviation", Unit::Nanoseconds, |row| row.alone(&TIME, |summary| summary.distribution.std)).main(),
    column("rate", Unit::BytesPerSecond, |row| row.alone(&RATE, |summary| summary.headline)).main(),
    column("published", Unit::Nanoseconds, |row| Some(alone(published_value(row.case)?.value, row.trials()?))).main(),
    column("its deviation", Unit::Nanoseconds, |row| Some(alone(published_value(row.case)?.std?, row.trials()?))),
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
    column("trials", Unit::Count, |row| Some(alone(row.trials()? as f64, row.trials()?))),
];

static NOT_IN_MEMORY: [Column; 5] = [
    column("median", Unit::Nanoseconds, |row| row.headline(&COLD)).main(),
    column("mean", Unit::Nanoseconds, |row| row.alone(&COLD, |summary| summary.distribution.mean)).main(),
    column("deviation", Unit::Nanoseconds, |row| row.alone(&COLD, |summary| summary.distribution.std)).main(),
    column("in memory", Unit::Nanoseconds, |row| row.headline(&TIME)).main(),
    column("read from the device", Unit::Bytes, |row| row.headline(&COLD_DEVICE)),
];

/// The results of a run, looked up by metric and case.
struct Cells<'a>(&'a [MetricResult]);

/// One cell.
struct Row<'a> {
    cells: &'a Cells<'a>,
    case: &'a Case,
}

/// A figure without an interval.
fn alone(value: f64, n: u64) -> Figure {
    Figure { value, interval: None, n }
}

impl<'a> Cells<'a> {
    fn summary(&self, metric: &Metric, case: &Case) -> Option<&'a Summary> {
        let is_it = |result: &&MetricResult| result.metric.id == metric.id && result.case == *case;
        self.0.iter().find(is_it)?.outcome.summary()
    }

    /// The cases of a metric that have a figure.
    fn cases(&self, metric: &Metric) -> impl Iterator<Item = &'a Case> {
        let of = self.0.iter().filter(move |result| result.metric.id == metric.id);
        of.filter(|result| result.outcome.summary().is_some()).map(|result| &result.case)
    }

    fn in_memory(&self, files: Files) -> StudyTable {
        let table = self.table(&TIME, files, &IN_MEMORY);
        let has_published = table.rows.iter().any(|row| row.cells[BARS[1]].is_some());
        let published = published_on()
            .filter(|_| has_published)
            .map_or_else(String::new, |machine| format!("; published is the mean of an earlier study: {machine}"));
        StudyTable { title: format!("{}, in memory{published}", set(files)), bars: Some(BARS), ..table }
    }

    fn not_in_memory(&self, files: Files) -> StudyTable {
        let table = self.table(&COLD, files, &NOT_IN_MEMORY);
        StudyTable { title: format!("{}, not in memory", set(files)), bars: Some([0, 3]), ..table }
    }

    fn table(&self, metric: &'static Metric, files: Files, columns: &[Column]) -> StudyTable {
        let row = |case: &Case| StudyRow {
            label: cell(case),
            cells: columns.iter().map(|column| (column.figure)(&Row { cells: self, case })).collect(),
        };
        let column =
            |column: &Column| StudyColumn { label: column.label.into(), unit: column.unit, is_main: column.is_main };
        StudyTable {
            id: format!("{}.{}", metric.id, files.name()),
            title: String::new(),
            columns: columns.iter().map(column).collect(),
            rows: self.cases(metric).filter(|case| Files::of(case) == Some(files)).map(row).collect(),
            metrics: shown(metric),
            bars: None,
        }
    }

    /// What a file and a byte cost, for each cell that all sets were measured in.
    fn costs(&self) -> StudyTable {
        let ordinary = |case: &&Case| {
            Mode::of(case) == Some(Mode::Blocking)
                && Reply::of(case) == Some(Reply::None)
                && Connection::of(case).is_some()
        };
        let first = self.cases(&TIME).filter(|case| Files::of(case) == Some(Files::Small)).filter(ordinary);
        StudyTable {
            id: "transfer.costs".into(),
            title: "Cost of a file and of a byte: least squares of time = a files + b bytes over the three sets".into(),
            columns: [
                ("a file", Unit::Nanoseconds),
                ("rate of the bytes", Unit::BytesPerSecond),
                ("largest residual", Unit::Ratio),
            ]
            .map(|(label, unit)| StudyColumn { label: label.into(), unit, is_main: true })
            .into(),
            rows: first.filter_map(|case| self.cost(case)).collect(),
            metrics: Vec::new(),
            bars: None,
        }
    }

    fn cost(&self, case: &Case) -> Option<StudyRow> {
        let load = |&files: &Files| {
            let summary = self.summary(&TIME, &case.clone().at(files))?;
            let (pieces, units) = files.amount();
            let load = Load { pieces: pieces as f64, units: units as f64, time: summary.headline };
            Some((load, summary.distribution.n))
        };
        let loads: Vec<(Load, u64)> = Files::ALL.iter().map(load).collect::<Option<_>>()?;
        let n = loads.iter().map(|(_, n)| n).sum();
        let fit = two_costs(&loads.iter().map(|(load, _)| *load).collect::<Vec<_>>())?;
        // A file or a byte that costs nothing, or less, is outside of the sum: there is no such time, and no such rate.
        let of_a_file = (fit.of_a_piece > 0.0).then(|| alone(fit.of_a_piece, n));
        let rate = (fit.of_a_unit > 0.0).then(|| alone(1e9 / fit.of_a_unit, n));
        let cells = vec![of_a_file, rate, Some(alone(fit.residual, n))];
        Some(StudyRow { label: cell(&without(case, &[Files::AXIS])), cells })
    }
}

/// The metrics that a table of cells shows.
fn shown(metric: &Metric) -> Vec<Name> {
    let of = if metric.id == COLD.id { transfer::NOT_IN_MEMORY } else { transfer::IN_MEMORY };
    of.iter().map(|metric| metric.id).collect()
}

impl Row<'_> {
    /// A figure of a summary, without interval.
    fn alone(&self, metric: &Metric, of: fn(&Summary) -> f64) -> Option<Figure> {
        let summary = self.cells.summary(metric, self.case)?;
        Some(alone(of(summary), summary.distribution.n))
    }

    fn headline(&self, metric: &Metric) -> Option<Figure> {
        let summary = self.cells.summary(metric, self.case)?;
        Some(Figure { value: summary.headline, interval: summary.interval, n: summary.distribution.n })
    }

    fn trials(&self) -> Option<u64> {
        Some(self.cells.summary(&TIME, self.case)?.distribution.n)
    }

    /// Bytes over the CPU time of both ends; `None` where the clock of CPU time saw none.
    fn rate_per_core(&self) -> Option<Figure> {
        let [sender, receiver] = [&SENDER_CPU, &RECEIVER_CPU].map(|metric| self.headline(metric));
        let busy = sender?.value + receiver?.value;
        let (_, bytes) = Files::of(self.case)?.amount();
        (busy > 0.0).then(|| alone(bytes as f64 * 1e9 / busy, self.trials().unwrap_or(0)))
    }
}
