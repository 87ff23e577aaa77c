//! A job of `kelvin-cluster net` as one page of its own, without any script: what is slow, and a heat map of the pairs for each quantity.

use std::io;

use kelvin_core::cluster::{Cell, Expected, PairMatrix, Quantity, SlowSubject, Subject};
use kelvin_core::{IndirectSort, Name, Unit};
use kelvin_stats::median;

use super::NetJob;
use crate::deviation_steps::{legend, step_labels, step_of};
use crate::escape::{Markup, html};
use crate::figures::{AxisKind, CellRank, Drawing, Figure, Heat, HeatCell};
use crate::html::page_shell::PageShell;
use crate::html::{DataTable, folded_data, list, table_row};
use crate::{labels, svg, units};

const STYLE: &str = include_str!("../../assets/fleet.css");
/// Hosts of a heat map: all that a reader takes in, and a page of a thousand hosts stays small.
const MAX_HOSTS: usize = 64;
/// The map of so many hosts fits a phone.
const MAX_SMALL_HOSTS: usize = 12;
/// Pairs of a table, the slowest first.
const MAX_PAIRS: usize = 500;
const PAIR_COLUMNS: [&str; 6] = ["pair", "measured", "predicted", "range", "measured / predicted", ""];
const SLOW_COLUMNS: [&str; 6] = ["slow", "what", "measured", "predicted", "range", "p"];

/// Writes a job as a page that opens offline, prints, and fits a phone; light and dark.
///
/// # Errors
/// Those of the writer.
pub fn write_page(job: &NetJob, out: &mut dyn io::Write) -> io::Result<()> {
    let hosts = shown_hosts(job);
    let sections: Markup =
        job.matrices.iter().enumerate().map(|(index, matrix)| section(job, matrix, (index, &hosts))).collect();
    let ending = match (&job.failure, job.is_complete) {
        (Some(reason), _) => Some(html!("<p><b>The job ended early: {}.</b></p>", reason)),
        (None, false) => Some(html!("<p><b>The job ended early. These are the results until then.</b></p>")),
        (None, true) => None,
    };
    let pairs = job.ranks.len() * job.ranks.len().saturating_sub(1) / 2;
    let [hosts, pairs] = [labels::plural(job.ranks.len() as u64, "host"), labels::plural(pairs as u64, "pair")];
    let head = html!("<h1>Network</h1><p class=\"lead\">{}, {}, MPI: {}</p>", hosts, pairs, job.mpi);
    let body = html!(
        "{}{}<p><b>{}</b></p>{}{}{}{}",
        head,
        ending,
        verdict(job),
        slow(job),
        sections,
        together(job),
        ranks(job)
    );
    PageShell { subject: "network", title: &hosts, style: STYLE, body }.write(out)
}

fn verdict(job: &NetJob) -> String {
    let tolerance = units::share(job.tolerance);
    let has_predictions = job.matrices.iter().flat_map(|matrix| &matrix.cells).any(|cell| cell.expected.is_some());
    match job.slow.len() {
        _ if job.matrices.is_empty() => "No pair was measured.".to_owned(),
        _ if !has_predictions => {
            "No pair is predicted from the others: that takes four hosts and a job that came to its end.".to_owned()
        }
        0 => format!("No link and no host is more than {tolerance} slower than the others predict."),
        1 => format!("1 link or host is more than {tolerance} slower than the others predict:"),
        count => format!("{count} links and hosts are more than {tolerance} slower than the others predict:"),
    }
}

fn slow(job: &NetJob) -> Option<Markup> {
    let label = |rank: usize| job.ranks[rank].label.as_str();
    let row = |slow: &SlowSubject| {
        let subject = match (slow.subject, slow.quantity) {
            (Subject::Link { from, to }, Quantity::BytesPerSecond) => {
                format!("link from {} to {}", label(from), label(to))
            }
            (Subject::Link { from, to }, Quantity::RoundTripNs) => {
                format!("link between {} and {}", label(from), label(to))
            }
            (Subject::Sender(rank), _) => format!("host {} as a sender", label(rank)),
            (Subject::Receiver(rank), _) => format!("host {} as a receiver", label(rank)),
            (Subject::Host(rank), _) => format!("host {}", label(rank)),
        };
        let unit = unit_of(slow.quantity);
        let what = format!("{} {}", slow.transport.label(), quantity_text(slow.quantity));
        let difference = 100.0 * (slow.value / slow.expected.value - 1.0);
        let measured = format!("{} ({difference:+.0} %)", units::value_text(slow.value, unit));
        let expected = units::value_text(slow.expected.value, unit);
        let range = units::span(slow.expected.low, slow.expected.high, unit);
        table_row(subject, [what, measured, expected, range, units::p_value(slow.p_value)])
    };
    let rows: Markup = job.slow.iter().map(row).collect();
    (!job.slow.is_empty()).then(|| DataTable::of_figures("Slow links and hosts", &SLOW_COLUMNS, rows).markup())
}

fn section(job: &NetJob, matrix: &PairMatrix, (index, hosts): (usize, &[usize])) -> Markup {
    let unit = unit_of(matrix.quantity);
    let title = format!("{}, {}", matrix.transport.label(), quantity_text(matrix.quantity));
    let values: Vec<f64> = matrix.cells.iter().map(|cell| cell.value).collect();
    let (low, high) =
        values.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &value| (low.min(value), high.max(value)));
    let mut texts = Vec::new();
    if !values.is_empty() {
        texts.push(format!(
            "Median {}, {} of all pairs.",
            units::value_text(median(&values), unit),
            units::span(low, high, unit)
        ));
    }
    texts.extend(
        matrix.deviation.map(|share| format!("A pair differs by {} from what its hosts explain.", units::share(share))),
    );
    let disturbed = matrix.cells.iter().filter(|cell| cell.is_disturbed).count();
    if disturbed > 0 {
        let cells = labels::plural(disturbed as u64, "figure");
        texts.push(format!("{cells} not judged: in every pass other programs took CPUs that the pair needed."));
    }
    let omitted = job.ranks.len() - hosts.len();
    if omitted > 0 {
        texts.push(format!("Hosts with slow links come first, then a sample of the others: {omitted} are not shown."));
    }
    let figure = heat_figure(job, matrix, (index, hosts));
    let reference = if matrix.deviation.is_some() { "the others predict" } else { "the median" };
    let class = if hosts.len() <= MAX_SMALL_HOSTS { "map small" } else { "map" };
    let map = html!(
        "<div class=\"{}\">{}</div>{}",
        class,
        svg::still(&figure),
        legend(&format!("Slower than {reference} by"))
    );
    html!("<section><h2>{}</h2><p>{}</p>{}{}</section>", title, texts.join(" "), map, pair_table(job, matrix))
}

/// The hosts of heat maps: those of slow links first, where not all have room.
fn shown_hosts(job: &NetJob) -> Vec<usize> {
    let hosts = job.ranks.len();
    if hosts <= MAX_HOSTS {
        return (0..hosts).collect();
    }
    let mut shown: Vec<usize> = Vec::new();
    for rank in job.slow.iter().flat_map(|slow| slow.subject.ranks()) {
        if !shown.contains(&rank) && shown.len() < MAX_HOSTS {
            shown.push(rank);
        }
    }
    let room = MAX_HOSTS - shown.len();
    let others: Vec<usize> = (0..hosts).filter(|rank| !shown.contains(rank)).collect();
    shown.extend((0..room.min(others.len())).map(|index| others[index * others.len() / room]));
    shown
}

fn heat_figure(job: &NetJob, matrix: &PairMatrix, (index, hosts): (usize, &[usize])) -> Figure {
    let unit = unit_of(matrix.quantity);
    let is_directed = matrix.quantity == Quantity::BytesPerSecond;
    let values: Vec<f64> = matrix.cells.iter().map(|cell| cell.value).collect();
    let middle = if values.is_empty() { 1.0 } else { median(&values) };
    let position = |rank: usize| hosts.iter().position(|&host| host == rank);
    let mut cells: Vec<HeatCell> = Vec::new();
    for cell in &matrix.cells {
        let (Some(row), Some(column)) = (position(cell.from), position(cell.to)) else { continue };
        let reference = cell.expected.map_or(middle, |expected| expected.value);
        let heat = HeatCell {
            row,
            column,
            step: step_of(slower_by(matrix.quantity, cell.value, reference)),
            value: cell.value,
            low: cell.value,
            high: cell.value,
            predicted: cell.expected.map(|expected| expected.value),
            standing: CellRank::Other,
        };
        cells.push(heat);
        if !is_directed {
            cells.push(HeatCell { row: column, column: row, ..heat });
        }
    }
    cells.indirect_sort_by_key(|cell| (cell.row, cell.column));
    let is_measured =
        |row: usize, column: usize| cells.binary_search_by_key(&(row, column), |cell| (cell.row, cell.column)).is_ok();
    let all = (0..hosts.len()).flat_map(|row| (0..hosts.len()).map(move |column| (row, column)));
    let unmeasured = all.filter(|&(row, column)| row != column && !is_measured(row, column)).collect();
    let largest = cells.iter().map(|cell| cell.value).fold(0.0, f64::max);
    let scale = units::scale_for(largest, unit);
    let names: Vec<String> = hosts.iter().map(|&host| job.ranks[host].label.clone()).collect();
    let [row_label, column_label] = if is_directed { ["from", "to"] } else { ["between", "and"] };
    let title = format!("{}, {}", matrix.transport.label(), quantity_text(matrix.quantity));
    Figure {
        id: format!("network-{index}"),
        title,
        description: Vec::new(),
        shows: Vec::new(),
        drawing: Drawing::Heat(Heat {
            row_label: row_label.into(),
            column_label: column_label.into(),
            axes: [Name::new("from"), Name::new("to")],
            called: "pair",
            rows: names.clone(),
            columns: names,
            unit: AxisKind::from(unit),
            factor: scale.factor,
            symbol: scale.symbol.to_owned(),
            steps: step_labels(),
            cells,
            unmeasured,
        }),
    }
}

/// The pairs with their predictions, the slowest first.
fn pair_table(job: &NetJob, matrix: &PairMatrix) -> Markup {
    let unit = unit_of(matrix.quantity);
    let slowness = |cell: &Cell| {
        let reference = cell.expected.map_or(1.0, |expected| expected.value);
        match matrix.quantity {
            Quantity::BytesPerSecond => reference / cell.value,
            Quantity::RoundTripNs => cell.value / reference,
        }
    };
    let mut cells: Vec<&Cell> = matrix.cells.iter().collect();
    cells.indirect_sort_by(|a, b| slowness(b).total_cmp(&slowness(a)));
    let row = |cell: &&Cell| {
        let [from, to] = [cell.from, cell.to].map(|rank| job.ranks[rank].label.as_str());
        let pair = match matrix.quantity {
            Quantity::BytesPerSecond => format!("{from} to {to}"),
            Quantity::RoundTripNs => format!("{from} and {to}"),
        };
        let expected = |text: &dyn Fn(Expected) -> String| cell.expected.map_or_else(|| "-".to_owned(), text);
        table_row(
            pair,
            [
                units::value_text(cell.value, unit),
                expected(&|expected| units::value_text(expected.value, unit)),
                expected(&|expected| units::span(expected.low, expected.high, unit)),
                expected(&|expected| units::ratio(cell.value / expected.value)),
                if cell.is_disturbed { "not judged".to_owned() } else { String::new() },
            ],
        )
    };
    let table = DataTable::of_figures("Pairs", &PAIR_COLUMNS, cells.iter().take(MAX_PAIRS).map(row).collect()).markup();
    let count = match cells.len() {
        count if count <= MAX_PAIRS => format!("All pairs, the slowest first ({count})"),
        count => format!("The slowest {MAX_PAIRS} of {count} pairs"),
    };
    folded_data(&count, table)
}

fn together(job: &NetJob) -> Option<Markup> {
    let rate = job.all_to_all_bytes_per_second?;
    let [total, each] =
        [rate, rate / job.ranks.len().max(1) as f64].map(|rate| units::value_text(rate, Unit::BytesPerSecond));
    Some(html!("<h2>All at once</h2><p>MPI, all to all: {} in total, {} from each host.</p>", total, each))
}

fn ranks(job: &NetJob) -> Markup {
    let kernels = job.ranks.iter().map(|rank| rank.kernel).collect::<std::collections::BTreeSet<_>>().len();
    let note = (kernels < job.ranks.len()).then(|| {
        format!(
            "{} run these hosts: they share CPUs, and their pairs were measured by turns.",
            labels::plural(kernels as u64, "kernel")
        )
    });
    let line = |(number, rank): (usize, &super::Rank)| {
        html!("{}: {}, {}", number, rank.label, labels::plural(rank.cpus as u64, "CPU"))
    };
    let lines: Vec<Markup> = job.ranks.iter().enumerate().map(line).collect();
    let hosts = folded_data(&format!("Hosts by rank ({})", lines.len()), list("hosts", lines));
    html!("<h2>Hosts</h2>{}{}", note.map(|note| html!("<p>{}</p>", note)), hosts)
}

/// The share by which a value is slower than another one; below zero where it is faster.
fn slower_by(quantity: Quantity, value: f64, reference: f64) -> f64 {
    match quantity {
        Quantity::BytesPerSecond => 1.0 - value / reference,
        Quantity::RoundTripNs => value / reference - 1.0,
    }
}

fn unit_of(quantity: Quantity) -> Unit {
    match quantity {
        Quantity::BytesPerSecond => Unit::BytesPerSecond,
        Quantity::RoundTripNs => Unit::Nanoseconds,
    }
}

fn quantity_text(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::BytesPerSecond => "rate of large messages",
        Quantity::RoundTripNs => "round trip of 8 bytes",
    }
}
