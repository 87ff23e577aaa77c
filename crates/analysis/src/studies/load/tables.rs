//! The tables of a sweep: every number of users, and what each resource alone would allow.

use kelvin_catalogue::load::{
    AWAITED, BLOCKED, BUSY, ERRORS, FROM_DISK, IN_FLIGHT, IN_NETWORK, LATENESS, RATE, RESPONSE, RESPONSE_P50,
    RESPONSE_P95, RESPONSE_P99, Resource, SENT, SERVICE, STALLED, STALLS, THROUGHPUT, UTILISATION, WRITTEN,
};
use kelvin_model::{Estimate, Interval, IntervalKind, Metric, Name, Unit};
use kelvin_stats::{LEVEL, mean};

use super::model::network;
use super::reached;
use super::sweep::{Load, Sweep, Visit};
use super::used::{Saturated, Use, estimate, not_negative};
use super::verdict::name;
use crate::result::{Figure, StudyColumn, StudyRow, StudyTable};
use crate::words::load::{held, resource_name};

/// The tables of a sweep.
pub(super) fn tables(sweep: &Sweep) -> Vec<StudyTable> {
    [Some(by_users(sweep)), resources(sweep)].into_iter().flatten().chain(super::hosts::tables(sweep)).collect()
}

/// The metrics of these sweeps that are for reading beside others.
pub(super) fn undrawn(sweeps: &[Sweep]) -> Vec<Name> {
    let own = COLUMNS.iter().filter(|column| !column.is_drawn).map(|column| column.metric.id);
    own.chain(super::hosts::undrawn(sweeps)).collect()
}

/// A column of figures of visits.
struct Column {
    label: &'static str,
    metric: &'static Metric,
    is_main: bool,
    /// Whether a curve over users says more than the table.
    is_drawn: bool,
}

const fn main(label: &'static str, metric: &'static Metric) -> Column {
    Column { label, metric, is_main: true, is_drawn: true }
}

const fn drawn(label: &'static str, metric: &'static Metric) -> Column {
    Column { label, metric, is_main: false, is_drawn: true }
}

const fn other(label: &'static str, metric: &'static Metric) -> Column {
    Column { label, metric, is_main: false, is_drawn: false }
}

static COLUMNS: [Column; 18] = [
    main("requests", &THROUGHPUT),
    main("response", &RESPONSE),
    drawn("median", &RESPONSE_P50),
    drawn("p95", &RESPONSE_P95),
    main("p99", &RESPONSE_P99),
    other("from when the request left", &SERVICE),
    other("in flight", &IN_FLIGHT),
    other("awaited", &AWAITED),
    other("sent", &SENT),
    other("received", &RATE),
    other("in the network", &IN_NETWORK),
    other("read from the disk", &FROM_DISK),
    other("written to the disk", &WRITTEN),
    other("threads blocked", &BLOCKED),
    other("stalled", &STALLED),
    other("stalls", &STALLS),
    other("sent late", &LATENESS),
    other("failed", &ERRORS),
];

/// A row for each number of users.
fn by_users(sweep: &Sweep) -> StudyTable {
    let watched: Vec<Resource> =
        Resource::ALL.iter().copied().filter(|&resource| is_watched(sweep, resource)).collect();
    let own = COLUMNS.iter().map(|column| self::column(column.label, column.metric.unit, column.is_main));
    let predicted =
        [column("predicted", Unit::PerSecond, true), column("predicted response", Unit::Nanoseconds, false)];
    let used = watched.iter().map(|&resource| column(resource.name(), Unit::Ratio, false));
    let busy = column("disk busy", Unit::Ratio, false);
    let knee = reached(sweep).map(|saturated| saturated.at.knee.users);
    let model = network(sweep).map(|network| network.solve(usize::try_from(sweep.most_users()).unwrap_or(0)));
    let row = |load: &Load| {
        let figures = COLUMNS.iter().map(|column| figure(&load.all(column.metric)));
        let there = model.as_ref().and_then(|model| model.get(usize::try_from(load.users).ok()?.checked_sub(1)?));
        let predicted = [there.map(|one| alone(one.throughput)), there.map(|one| alone(one.response * 1e9))];
        let shares = watched.iter().map(|&resource| figure(&shares(load, resource)));
        let busy = figure(&load.visits.iter().filter_map(|visit| visit.disk_busy).collect::<Vec<f64>>());
        let mark = if knee == Some(load.users) { ", knee" } else { "" };
        let label = format!("{}{mark}", users(load.users));
        StudyRow { label, cells: figures.chain(predicted).chain(shares).chain([busy]).collect() }
    };
    let metrics = COLUMNS.iter().map(|column| column.metric).chain([&UTILISATION, &BUSY]);
    StudyTable {
        id: file_name(sweep, "users"),
        title: format!("Throughput, response time and use of each resource by users{}", held(&sweep.held)),
        columns: own.chain(predicted).chain(used).chain([busy]).collect(),
        rows: sweep.loads.iter().map(row).collect(),
        metrics: metrics.map(|metric| metric.id).collect(),
        // Throughput, and what was predicted of it.
        bars: Some([0, COLUMNS.len()]),
    }
}

/// A row for each resource: the throughput that it alone would allow.
fn resources(sweep: &Sweep) -> Option<StudyTable> {
    let saturated = reached(sweep)?;
    let columns = [
        ("use", Unit::Ratio, true),
        ("by its use under load", Unit::PerSecond, true),
        ("by its capacity", Unit::PerSecond, true),
        ("capacity", Unit::BytesPerSecond, false),
    ];
    let with = held(&sweep.held);
    Some(StudyTable {
        id: file_name(sweep, "resources"),
        title: format!("The use of each resource at saturation, and the throughput that it alone would allow{with}"),
        columns: columns.into_iter().map(|(label, unit, is_main)| column(label, unit, is_main)).collect(),
        rows: saturated.used.iter().map(|one| resource(&saturated, one)).collect(),
        metrics: Vec::new(),
        bars: None,
    })
}

fn resource(saturated: &Saturated<'_>, one: &Use) -> StudyRow {
    let allows = |visit: &Visit| Some(visit.throughput / visit.used.get(&one.resource)?);
    let allowed: Vec<f64> = saturated.visits().filter_map(allows).filter(|rate| rate.is_finite()).collect();
    let capacity = saturated.sweep.capacities.get(&one.resource);
    let cells = vec![
        Some(with_interval(&one.utilisation, saturated.visits().count())),
        figure(&allowed),
        capacity.and_then(|capacity| capacity.requests).map(alone),
        capacity.and_then(|capacity| capacity.bytes).map(alone),
    ];
    StudyRow { label: resource_name(name(one.resource)).to_owned(), cells }
}

pub(super) fn column(label: &str, unit: Unit, is_main: bool) -> StudyColumn {
    StudyColumn { label: label.into(), unit, is_main }
}

pub(super) fn users(count: u64) -> String {
    if count == 1 { "1 user".into() } else { format!("{count} users") }
}

/// The name of a table, apart from those of the run's other sweeps.
pub(super) fn file_name(sweep: &Sweep, what: &str) -> String {
    let held = sweep.held.to_string().replace(' ', "-").replace('=', "_");
    format!("{}.{what}.{held}", super::LOAD)
}

fn is_watched(sweep: &Sweep, resource: Resource) -> bool {
    sweep.loads.iter().any(|load| !shares(load, resource).is_empty())
}

fn shares(load: &Load, resource: Resource) -> Vec<f64> {
    load.visits.iter().filter_map(|visit| visit.used.get(&resource).copied()).collect()
}

/// A mean of visits with its interval, where there are two or more. No rate, time or share is below nothing.
fn figure(values: &[f64]) -> Option<Figure> {
    match estimate(values).map(not_negative) {
        Some(estimate) => Some(with_interval(&estimate, values.len())),
        None => (!values.is_empty()).then(|| alone(mean(values))),
    }
}

fn with_interval(of: &Estimate, n: usize) -> Figure {
    let interval = Interval { kind: IntervalKind::Confidence, level: LEVEL, lower: of.low, upper: of.high };
    Figure { value: of.value, interval: Some(interval), n: n as u64 }
}

pub(super) fn alone(value: f64) -> Figure {
    Figure { value, interval: None, n: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_visits_far_apart_ends_at_zero() {
        let interval = figure(&[1.0, 90.0, 2.0, 700.0]).and_then(|figure| figure.interval).unwrap();
        assert_eq!(interval.lower, 0.0);
        assert!(interval.upper > 700.0, "{interval:?}");
    }
}
