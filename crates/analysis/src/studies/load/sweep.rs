//! A sweep over numbers of users as a run has it: visits with their figures and the use of each resource, and capacities.

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use super::knee::{Saturation, saturation};
use super::*;

/// All visits to numbers of users that differ in nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    /// What is common to all of them.
    pub fixed: Case,
    /// In ascending order of users.
    pub loads: Vec<UserLoad>,
    /// What each resource gives alone.
    pub capacities: BTreeMap<Resource, ResourceCapacity>,
    /// A number of users, and the throughput of its visits to the same server with twice as many workers.
    pub more_workers: Option<(u64, Vec<f64>)>,
    /// Where more users bring nothing any more; `None` where too little was measured to know.
    pub saturation: Option<Saturation>,
}

/// The visits to one number of users.
#[derive(Clone, Debug)]
pub(crate) struct UserLoad {
    pub users: u64,
    pub steps: Vec<LoadStep>,
}

/// One visit.
#[derive(Clone, Debug)]
pub(crate) struct LoadStep {
    /// Seconds from the start of the run.
    pub start: f64,
    /// Seconds that it took, its warm-up included.
    pub seconds: f64,
    /// Requests a second.
    pub throughput: f64,
    figures: FigureValues,
    /// Share of each resource's capacity that was used.
    pub resource_use: BTreeMap<Resource, f64>,
    /// Share of the time in which the disk had a request.
    pub disk_busy: Option<f64>,
    /// The figures of each host.
    hosts: BTreeMap<LoadHost, FigureValues>,
}

/// Figures by the ids of their metrics.
type FigureValues = BTreeMap<Name, f64>;

/// What a resource gives alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ResourceCapacity {
    /// Requests a second, if measured.
    pub requests: Option<f64>,
    /// Bytes a second, where it carries bytes.
    pub bytes: Option<f64>,
    /// Requests that it serves at once; 1 if not measured.
    pub servers: Option<f64>,
}

impl LoadStep {
    /// A visit of this many seconds, with this many requests a second and some figures.
    #[cfg(test)]
    pub fn from_figures(seconds: f64, throughput: f64, figures: &[(&Metric, f64)]) -> Self {
        let figures = figures.iter().map(|(metric, value)| (metric.id, *value)).collect();
        Self {
            start: 0.0,
            seconds,
            throughput,
            figures,
            resource_use: BTreeMap::new(),
            disk_busy: None,
            hosts: BTreeMap::new(),
        }
    }

    /// A figure of the visit, in the metric's unit.
    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.figures.get(&metric.id).copied()
    }

    /// A figure of a host in the visit.
    pub fn host_figure(&self, host: LoadHost, metric: &Metric) -> Option<f64> {
        self.hosts.get(&host)?.get(&metric.id).copied()
    }
}

impl UserLoad {
    /// A quantity of each visit that has it.
    pub fn values(&self, quantity: impl Fn(&LoadStep) -> Option<f64>) -> Vec<f64> {
        self.steps.iter().filter_map(quantity).collect()
    }

    /// A figure of each visit that has it.
    pub fn figure_values(&self, metric: &Metric) -> Vec<f64> {
        self.values(|visit| visit.get(metric))
    }

    /// Requests a second of each visit.
    pub fn throughputs(&self) -> Vec<f64> {
        self.steps.iter().map(|visit| visit.throughput).collect()
    }
}

impl Sweep {
    /// The name of one of its tables, apart from those of the run's other sweeps.
    pub(super) fn table_id(&self, name: &str) -> String {
        let fixed = self.fixed.to_string().replace(' ', "-").replace('=', "_");
        format!("{}.{name}.{fixed}", super::LOAD_STUDY)
    }

    /// Mean think time, in seconds.
    pub fn think_seconds(&self) -> f64 {
        THINK_TIME.number_in(&self.fixed).unwrap_or(0) as f64 / 1e3
    }

    /// Bytes of a file.
    pub fn file_bytes(&self) -> Option<f64> {
        FILE_BYTES.number_in(&self.fixed).map(|bytes| bytes as f64)
    }

    /// Requests that a resource serves at once, if measured.
    pub fn servers(&self, resource: Resource) -> Option<f64> {
        self.capacities.get(&resource)?.servers
    }

    /// The fewest visits of a number of users.
    pub fn min_steps(&self) -> usize {
        self.loads.iter().map(|load| load.steps.len()).min().unwrap_or(0)
    }

    /// The largest number of users.
    pub fn max_users(&self) -> u64 {
        self.loads.last().map_or(0, |load| load.users)
    }
}

/// The sweeps of a run, in the order in which they were planned.
pub(crate) fn sweeps(run: &Run) -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for measurement in measurements_of(run, &THROUGHPUT) {
        let Some(load) = user_load(run, measurement) else { continue };
        let fixed = without_axes(&measurement.planned.case, &[USERS]);
        let new = || {
            let capacities = resource_capacities(run, &fixed);
            Sweep { fixed: fixed.clone(), loads: Vec::new(), capacities, more_workers: None, saturation: None }
        };
        find_or_push(&mut sweeps, |sweep| sweep.fixed == fixed, new).loads.push(load);
    }
    for sweep in &mut sweeps {
        sweep.loads.indirect_sort_by_key(|load| load.users);
        let is_same_sweep =
            |measurement: &&Measurement| without_axes(&measurement.planned.case, &[USERS]) == sweep.fixed;
        sweep.more_workers = measurements_of(run, &MORE_WORKERS).find(is_same_sweep).and_then(|measurement| {
            let rates =
                measurement.readings(&MORE_WORKERS.id).filter_map(|(_, reading)| scalar_mean(&reading.readings));
            Some((USERS.number_in(&measurement.planned.case)?, rates.filter(|&rate| rate > 0.0).collect()))
        });
        sweep.saturation = saturation(sweep);
    }
    sweeps
}

fn measurements_of<'r>(run: &'r Run, metric: &'static Metric) -> impl Iterator<Item = &'r Measurement> {
    run.measurements.iter().filter(|measurement| measurement.readings(&metric.id).next().is_some())
}

/// The visits of a measurement; `None` where none served a request.
fn user_load(run: &Run, measurement: &Measurement) -> Option<UserLoad> {
    let users = USERS.number_in(&measurement.planned.case)?;
    let case = &measurement.planned.case;
    let resource_figures = |metric: &'static Metric| {
        by_axis_value(run, case, (Resource::AXIS, Resource::of), |figures| figures.get(&metric.id).copied())
    };
    let (mut uses, mut busy_times) = (resource_figures(&UTILISATION), resource_figures(&BUSY_TIME));
    let mut hosts = by_axis_value(run, case, (LoadHost::AXIS, LoadHost::of), Some);
    let visit = |(index, (start, seconds, figures)): (u32, (f64, f64, FigureValues))| {
        let throughput = figures.get(&THROUGHPUT.id).copied().filter(|&rate| rate > 0.0)?;
        let (resource_use, hosts) = (uses.remove(&index).unwrap_or_default(), hosts.remove(&index).unwrap_or_default());
        let disk_busy = busy_times.remove(&index).and_then(|busy| busy.get(&Resource::Disk).copied());
        Some(LoadStep { start, seconds, throughput, figures, resource_use, disk_busy, hosts })
    };
    let visits: Vec<LoadStep> = round_figures(measurement).into_iter().filter_map(visit).collect();
    (!visits.is_empty()).then_some(UserLoad { users, steps: visits })
}

/// The figures of each round, by its index, with the seconds at which it began and those that it took.
fn round_figures(measurement: &Measurement) -> BTreeMap<u32, (f64, f64, FigureValues)> {
    let mut rounds: BTreeMap<u32, (f64, f64, FigureValues)> = BTreeMap::new();
    for metric in &measurement.planned.metrics {
        for (round, reading) in measurement.readings(metric) {
            if let Some(value) = scalar_mean(&reading.readings) {
                rounds
                    .entry(round.index)
                    .or_insert_with(|| (round.start_seconds, round.seconds, FigureValues::new()))
                    .2
                    .insert(*metric, value);
            }
        }
    }
    rounds
}

/// The value of a reading of scalars: their mean, as where there is one for each second.
fn scalar_mean(readings: &Readings) -> Option<f64> {
    match readings {
        Readings::Scalars(values) => (!values.is_empty()).then(|| mean(values)).filter(|value| value.is_finite()),
        Readings::Batches(_) => None,
    }
}

/// What each visit to a case has of every value of an axis, by the index of the round.
fn by_axis_value<K: Ord, V>(
    run: &Run,
    case: &Case,
    (axis, value_of): (Axis, fn(&Case) -> Option<K>),
    part: impl Fn(FigureValues) -> Option<V>,
) -> BTreeMap<u32, BTreeMap<K, V>> {
    let mut visits: BTreeMap<u32, BTreeMap<K, V>> = BTreeMap::new();
    for measurement in &run.measurements {
        let planned = &measurement.planned.case;
        if value_of(planned).is_some() && without_axes(planned, &[axis]) == *case {
            for (index, (.., figures)) in round_figures(measurement) {
                let entry = value_of(planned).zip(part(figures));
                visits.entry(index).or_default().extend(entry);
            }
        }
    }
    visits
}

/// What was measured of each resource alone, for the requests of these sweeps.
fn resource_capacities(run: &Run, fixed: &Case) -> BTreeMap<Resource, ResourceCapacity> {
    let mut capacities: BTreeMap<Resource, ResourceCapacity> = BTreeMap::new();
    let is_same_value =
        |case: &Case, axis: &Axis| case.get(&axis.name).is_none_or(|value| fixed.get(&axis.name) == Some(value));
    for measurement in run.measurements.iter().filter(|candidate| USERS.number_in(&candidate.planned.case).is_none()) {
        let case = &measurement.planned.case;
        let is_of_sweep =
            CAPACITY.axes().filter(|axis| axis.name != Resource::AXIS.name).all(|axis| is_same_value(case, axis));
        let Some(resource) = Resource::of(case).filter(|_| is_of_sweep) else { continue };
        let figure = |metric: &Metric| {
            let values: Vec<f64> =
                measurement.readings(&metric.id).filter_map(|(_, reading)| scalar_mean(&reading.readings)).collect();
            (!values.is_empty()).then(|| median(&values)).filter(|&value| value > 0.0)
        };
        let entry = capacities.entry(resource).or_default();
        entry.requests = figure(&CAPACITY).or(entry.requests);
        entry.bytes = figure(&CAPACITY_BYTES).or(entry.bytes);
        entry.servers = figure(&SERVERS).or(entry.servers);
    }
    capacities
}
