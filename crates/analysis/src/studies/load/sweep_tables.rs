//! The tables of a sweep: every number of users, and what each resource alone would allow.

use super::capacity_model::closed_network;
use super::*;

/// The tables of a sweep.
pub(super) fn sweep_tables(sweep: &Sweep) -> Vec<StudyTable> {
    [Some(user_table(sweep)), resource_table(sweep)]
        .into_iter()
        .flatten()
        .chain(super::host_tables::host_tables(sweep))
        .collect()
}

/// The metrics of these sweeps that are read together with others.
pub(super) fn undrawn_metrics(sweeps: &[Sweep]) -> Vec<Name> {
    let sweep_metrics = SWEEP_COLUMNS.iter().filter(|column| !column.is_drawn).map(|column| column.metric.id);
    sweep_metrics.chain(super::host_tables::undrawn_metrics(sweeps)).collect()
}

/// A column of figures of visits.
struct SweepColumn {
    label: &'static str,
    metric: &'static Metric,
    is_main: bool,
    /// Whether a curve over users shows more than the table.
    is_drawn: bool,
}

static SWEEP_COLUMNS: [SweepColumn; 18] = [
    SweepColumn { label: "requests", metric: &THROUGHPUT, is_main: true, is_drawn: true },
    SweepColumn { label: "response", metric: &RESPONSE, is_main: true, is_drawn: true },
    SweepColumn { label: "median", metric: &RESPONSE_P50, is_main: false, is_drawn: true },
    SweepColumn { label: "p95", metric: &RESPONSE_P95, is_main: false, is_drawn: true },
    SweepColumn { label: "p99", metric: &RESPONSE_P99, is_main: true, is_drawn: true },
    SweepColumn { label: "from when the request left", metric: &SERVICE, is_main: false, is_drawn: false },
    SweepColumn { label: "in flight", metric: &IN_FLIGHT, is_main: false, is_drawn: false },
    SweepColumn { label: "awaited", metric: &CLIENT_IN_FLIGHT, is_main: false, is_drawn: false },
    SweepColumn { label: "sent", metric: &SENT_BYTE_RATE, is_main: false, is_drawn: false },
    SweepColumn { label: "received", metric: &RATE, is_main: false, is_drawn: false },
    SweepColumn { label: "in the network", metric: &NETWORK_IN_FLIGHT, is_main: false, is_drawn: false },
    SweepColumn { label: "read from the disk", metric: &DISK_BYTE_RATE, is_main: false, is_drawn: false },
    SweepColumn { label: "written to the disk", metric: &WRITTEN_BYTE_RATE, is_main: false, is_drawn: false },
    SweepColumn { label: "threads blocked", metric: &BLOCKED, is_main: false, is_drawn: false },
    SweepColumn { label: "stalled", metric: &STALLED, is_main: false, is_drawn: false },
    SweepColumn { label: "stalls", metric: &STALLS, is_main: false, is_drawn: false },
    SweepColumn { label: "sent late", metric: &LATENESS, is_main: false, is_drawn: false },
    SweepColumn { label: "failed", metric: &ERRORS, is_main: false, is_drawn: false },
];

/// A row for each number of users.
fn user_table(sweep: &Sweep) -> StudyTable {
    let was_watched = |resource: &Resource| sweep.loads.iter().any(|load| !use_shares(load, *resource).is_empty());
    let watched_resources: Vec<Resource> = Resource::ALL.iter().copied().filter(was_watched).collect();
    let figure_columns =
        SWEEP_COLUMNS.iter().map(|column| StudyColumn::new(column.label, column.metric.unit, column.is_main));
    let predicted = [
        StudyColumn::new("predicted", Unit::PerSecond, true),
        StudyColumn::new("predicted response", Unit::Nanoseconds, false),
    ];
    let used = watched_resources.iter().map(|&resource| StudyColumn::new(resource.name(), Unit::Ratio, false));
    let busy = StudyColumn::new("disk busy", Unit::Ratio, false);
    let knee = saturated_sweep(sweep).map(|saturated| saturated.saturation.knee.users);
    let model = closed_network(sweep).map(|network| network.solve(usize::try_from(sweep.max_users()).unwrap_or(0)));
    let row = |load: &UserLoad| {
        let figures = SWEEP_COLUMNS.iter().map(|column| mean_figure(&load.figure_values(column.metric)));
        let step = model.as_ref().and_then(|model| model.get(usize::try_from(load.users).ok()?.checked_sub(1)?));
        let predicted = [
            step.map(|predicted_step| Figure::without_interval(predicted_step.throughput, 1)),
            step.map(|predicted_step| Figure::without_interval(predicted_step.response * 1e9, 1)),
        ];
        let shares = watched_resources.iter().map(|&resource| mean_figure(&use_shares(load, resource)));
        let busy = mean_figure(&load.values(|visit| visit.disk_busy));
        let mark = if knee == Some(load.users) { ", knee" } else { "" };
        let label = format!("{}{mark}", counted_text(load.users, "user"));
        StudyRow { label, cells: figures.chain(predicted).chain(shares).chain([busy]).collect() }
    };
    let metrics = SWEEP_COLUMNS.iter().map(|column| column.metric).chain([&UTILISATION, &BUSY_TIME]);
    StudyTable {
        id: sweep.table_id("users"),
        title: format!("Throughput, response time and use of each resource by users{}", sweep_suffix(&sweep.fixed)),
        columns: figure_columns.chain(predicted).chain(used).chain([busy]).collect(),
        rows: sweep.loads.iter().map(row).collect(),
        metrics: metrics.map(|metric| metric.id).collect(),
        // Throughput, and what was predicted of it.
        bars: Some([0, SWEEP_COLUMNS.len()]),
    }
}

/// A row for each resource: the throughput that it alone would allow.
fn resource_table(sweep: &Sweep) -> Option<StudyTable> {
    let saturated = saturated_sweep(sweep)?;
    let columns = [
        ("use", Unit::Ratio, true),
        ("by its use under load", Unit::PerSecond, true),
        ("by its capacity", Unit::PerSecond, true),
        ("capacity", Unit::BytesPerSecond, false),
    ];
    let suffix = sweep_suffix(&sweep.fixed);
    Some(StudyTable::new(
        sweep.table_id("resources"),
        format!("The use of each resource at saturation, and the throughput that it alone would allow{suffix}"),
        columns.map(|(label, unit, is_main)| StudyColumn::new(label, unit, is_main)).into(),
        saturated.uses.iter().map(|usage| resource_row(&saturated, usage)).collect(),
    ))
}

fn resource_row(saturated: &SaturatedSweep<'_>, usage: &SaturationUse) -> StudyRow {
    let allowed_rate = |visit: &LoadStep| Some(visit.throughput / visit.resource_use.get(&usage.resource)?);
    let throughputs: Vec<f64> = saturated.steps().filter_map(allowed_rate).filter(|rate| rate.is_finite()).collect();
    let capacity = saturated.sweep.capacities.get(&usage.resource);
    let cells = vec![
        Some(interval_figure(&usage.utilisation, saturated.steps().count())),
        mean_figure(&throughputs),
        capacity.and_then(|capacity| capacity.requests).map(|value| Figure::without_interval(value, 1)),
        capacity.and_then(|capacity| capacity.bytes).map(|value| Figure::without_interval(value, 1)),
    ];
    StudyRow { label: resource_name(resource_id(usage.resource)).to_owned(), cells }
}

fn use_shares(load: &UserLoad, resource: Resource) -> Vec<f64> {
    load.values(|visit| visit.resource_use.get(&resource).copied())
}

/// A mean of visits with its interval, where there are two or more. No rate, time or share is below nothing.
fn mean_figure(values: &[f64]) -> Option<Figure> {
    match mean_estimate(values).map(clamp_to_zero) {
        Some(estimate) => Some(interval_figure(&estimate, values.len())),
        None => (!values.is_empty()).then(|| Figure::without_interval(mean(values), 1)),
    }
}

fn interval_figure(estimate: &Estimate, n: usize) -> Figure {
    let interval =
        Interval { kind: IntervalKind::Confidence, level: CONFIDENCE_LEVEL, lower: estimate.low, upper: estimate.high };
    Figure { value: estimate.value, interval: Some(interval), n: n as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_scattered_steps_ends_at_zero() {
        let interval = mean_figure(&[1.0, 90.0, 2.0, 700.0]).and_then(|figure| figure.interval).unwrap();
        assert_eq!(interval.lower, 0.0);
        assert!(interval.upper > 700.0, "{interval:?}");
    }
}
