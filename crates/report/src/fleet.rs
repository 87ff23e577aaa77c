//! A report of a fleet: on the terminal one screen, or all of it; as a page with a heat map; for a pull request, a table, CI and Prometheus.

mod csv;
mod html;
mod junit;
mod markdown;
mod openmetrics;
mod terminal;

use kelvin_core::IndirectSort;
use kelvin_core::units::{brief_value, metric_at, p_value, percent};
use kelvin_fleet::{FactAssociation, FleetGroup, FleetReport, SeriesDistribution};
use schemars::Schema;

pub use self::csv::write_csv;
pub use self::html::write_page;
pub use self::junit::write_junit;
pub use self::markdown::write_markdown;
pub use self::openmetrics::write_openmetrics;
pub use self::terminal::FleetTerminal;

/// The JSON Schema of a report of a fleet.
pub fn schema() -> Schema {
    schemars::schema_for!(FleetReport)
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `64 hosts with 192 runs in mode default`.
fn title(report: &FleetReport) -> String {
    let against = report.like.as_ref().map(|like| format!(", against {}", like.join(" "))).unwrap_or_default();
    let (hosts, runs) = (counted(report.hosts, "host"), counted(report.runs, "run"));
    format!("{hosts} with {runs} in mode {}{against}", report.mode)
}

/// Whether anything is out, in a sentence.
fn verdict(report: &FleetReport) -> String {
    if report.like.is_some() {
        let hosts = || report.groups.iter().flat_map(|group| &group.acceptance);
        let accepted = hosts().filter(|host| host.is_accepted).count();
        return format!("{accepted} of {} show what the reference hosts show.", counted(report.hosts, "host"));
    }
    let compared: usize = report.groups.iter().map(|group| group.hosts).sum();
    match report.groups.iter().map(|group| group.outliers.len()).sum() {
        _ if compared == 0 => "No host has enough peers to be compared with.".to_owned(),
        0 => format!("No host is out of {compared}."),
        1 => format!("1 host is out of {compared}:"),
        outliers => format!("{outliers} hosts are out of {compared}:"),
    }
}

/// `64 hosts, 3 runs of each: A processor, 8 CPUs, 64 GiB, bare metal`.
fn group_text(group: &FleetGroup) -> String {
    let [fewest, _, most] = group.runs_of_host;
    let runs = if fewest == most { counted(most, "run") } else { format!("{fewest} to {most} runs") };
    format!("{}, {runs} of each: {}", counted(group.hosts, "host"), group.name)
}

/// `Frequency governor powersave goes with being out: 3 of 3 hosts that are out have it, 0 of 61 others (p < 0.001)`.
fn association_text(association: &FactAssociation) -> String {
    let FactAssociation { label, value, outliers_with, outliers, others_with, others, p_value: chance, .. } =
        association;
    let chance = p_value(chance.adjusted);
    format!(
        "{label} {value} goes with being out: {outliers_with} of {outliers} hosts that are out have it, {others_with} of \
         {others} others ({chance})"
    )
}

/// `CPU, Microcode: 0x1 (60), 0x2 (4)`.
fn differing_text(fact: &kelvin_fleet::DifferingFact) -> String {
    let values: Vec<String> = fact.values.iter().map(|(value, hosts)| format!("{value} ({hosts})")).collect();
    format!("{}, {}: {}", fact.group, fact.label, values.join(", "))
}

/// A series as cells of a table: its name, median, first and third quartile, lowest and highest host, spread between hosts and between runs.
fn series_cells(series: &SeriesDistribution) -> [String; 7] {
    let value = |value: f64| brief_value(value, None, series.metric.unit);
    let host = |(label, at): &(String, f64)| format!("{} ({label})", value(*at));
    [
        series_name(series),
        value(series.median),
        format!("{} to {}", value(series.quartiles[0]), value(series.quartiles[1])),
        host(&series.lowest),
        host(&series.highest),
        percent(series.between_hosts),
        series.between_runs.map_or_else(|| "-".to_owned(), percent),
    ]
}

const SERIES_COLUMNS: [&str; 7] = ["figure", "median", "quartiles", "lowest", "highest", "hosts", "runs"];

fn series_name(series: &SeriesDistribution) -> String {
    metric_at(&series.metric, &series.case)
}

/// The series that hosts differ most in.
fn widest_series(group: &FleetGroup, count: usize) -> Vec<&SeriesDistribution> {
    let mut series: Vec<&SeriesDistribution> = group.series.iter().collect();
    series.indirect_sort_by(|a, b| b.between_hosts.total_cmp(&a.between_hosts));
    series.truncate(count);
    series
}
