//! What the capacities alone say of each number of users, made before any was visited: bounds and mean value analysis.

use kelvin_catalogue::load::{RESPONSE, THROUGHPUT, USERS};
use kelvin_model::Metric;
use kelvin_stats::{ClosedNetwork, Part, Population, whole_servers};

use super::reached;
use super::sweep::Sweep;
use crate::result::{KneeMark, ModelLine};

const NANOSECONDS: f64 = 1e9;

/// The network that the capacities of a sweep are; `None` where none was measured. Of each device the slowest part.
pub(super) fn network(sweep: &Sweep) -> Option<ClosedNetwork> {
    let parts = sweep.capacities.iter().filter_map(|(resource, capacity)| {
        let part = Part { capacity: capacity.requests?, servers: whole_servers(capacity.servers.unwrap_or(1.0)) };
        resource.device().is_station().then_some((resource.device(), part))
    });
    ClosedNetwork::of_slowest(parts, sweep.think()).ok()
}

/// The lines over users: throughput and response time as predicted, and their bounds.
pub(super) fn lines(sweep: &Sweep) -> Vec<ModelLine> {
    const PREDICTED: &str = "predicted from capacities";
    let (Some(network), Ok(most)) = (network(sweep), usize::try_from(sweep.most_users())) else { return Vec::new() };
    let solved = network.solve(most);
    let line = |metric: &Metric, label: &str, value: &dyn Fn(&Population) -> f64| ModelLine {
        metric: metric.id,
        axis: USERS.name,
        held: sweep.held.clone(),
        label: label.into(),
        is_bound: label != PREDICTED,
        points: solved.iter().map(|one| (one.customers as u64, value(one))).collect(),
    };
    vec![
        line(&THROUGHPUT, PREDICTED, &|one| one.throughput),
        line(&THROUGHPUT, "at most", &|one| network.bounds(one.customers).most_throughput),
        line(&RESPONSE, PREDICTED, &|one| one.response * NANOSECONDS),
        line(&RESPONSE, "at least", &|one| network.bounds(one.customers).least_response * NANOSECONDS),
    ]
}

/// The knee of a sweep, on the curves of throughput and response time.
pub(super) fn knees(sweep: &Sweep) -> Vec<KneeMark> {
    let found = reached(sweep);
    let mark = |metric: &Metric| {
        let knee = found.as_ref()?.at.knee;
        Some(KneeMark { metric: metric.id, axis: USERS.name, held: sweep.held.clone(), knee })
    };
    [&THROUGHPUT, &RESPONSE].into_iter().filter_map(mark).collect()
}
