//! What the capacities alone predict for each number of users, computed before any was visited: bounds and mean value analysis.

use super::*;

const NANOSECONDS_PER_SECOND: f64 = 1e9;

/// The network that the capacities of a sweep are; `None` where none was measured. Of each device the slowest part.
pub(super) fn closed_network(sweep: &Sweep) -> Option<ClosedNetwork> {
    let parts = sweep.capacities.iter().filter_map(|(resource, capacity)| {
        let part =
            DevicePart { capacity: capacity.requests?, servers: round_server_count(capacity.servers.unwrap_or(1.0)) };
        resource.group().is_station().then_some((resource.group(), part))
    });
    ClosedNetwork::from_slowest_parts(parts, sweep.think_seconds()).ok()
}

/// The lines over users: throughput and response time as predicted, and their bounds.
pub(super) fn capacity_lines(sweep: &Sweep) -> Vec<ModelLine> {
    const PREDICTED: &str = "predicted from capacities";
    let (Some(network), Ok(max_users)) = (closed_network(sweep), usize::try_from(sweep.max_users())) else {
        return Vec::new();
    };
    let steps = network.solve(max_users);
    let line = |metric: &Metric, label: &str, value: &dyn Fn(&MvaResult) -> f64| ModelLine {
        metric: metric.id,
        axis: USERS.name,
        fixed: sweep.fixed.clone(),
        label: label.into(),
        is_bound: label != PREDICTED,
        points: steps.iter().map(|step| (step.customers as u64, value(step))).collect(),
    };
    vec![
        line(&THROUGHPUT, PREDICTED, &|step| step.throughput),
        line(&THROUGHPUT, "at most", &|step| network.bounds(step.customers).max_throughput),
        line(&RESPONSE, PREDICTED, &|step| step.response * NANOSECONDS_PER_SECOND),
        line(&RESPONSE, "at least", &|step| network.bounds(step.customers).min_response * NANOSECONDS_PER_SECOND),
    ]
}

/// The knee of a sweep, on the curves of throughput and response time.
pub(super) fn knee_marks(sweep: &Sweep) -> Vec<KneeMark> {
    let saturated = saturated_sweep(sweep);
    let mark = |metric: &Metric| {
        let knee = saturated.as_ref()?.saturation.knee;
        Some(KneeMark { metric: metric.id, axis: USERS.name, fixed: sweep.fixed.clone(), knee })
    };
    [&THROUGHPUT, &RESPONSE].into_iter().filter_map(mark).collect()
}
