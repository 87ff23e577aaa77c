//! How full each resource of a server is with a number of users.
//!
//! It shows what limits a server. It must not be read as a queue's length: a resource that is full has some, of unknown length.

use kelvin_core::catalogue::load::{CAPACITY, RESOURCE_METRICS, Resource, UTILISATION};

use super::model::expected_load;
use super::users;
use crate::prelude::*;

/// How far a use may lie from what the expected throughput takes: that of a request changes with the number of users, since
/// calls and wake-ups are shared.
const RANGE_FACTOR: f64 = 1.5;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: how full each resource of either end is by number of users",
    method: include_str!("resources.md"),
    // Those of the published study: its disk, link and processors.
    cases: |machine, effort| {
        let resources = [Resource::ServerCpu, Resource::ServerThread, Resource::ClientCpu, Resource::Generator];
        (users::PROBE.cases)(machine, effort).words(&resources)
    },
    run: super::refuse_single_round,
    predict,
    ..Probe::study(RESOURCE_METRICS)
};

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let reason = "how long a device has work while it serves several requests follows from no capacity";
    unpredicted_if(metric.id != UTILISATION.id, reason)?;
    let resource = Resource::of(case).filter(|resource| resource.group().is_station());
    let resource = resource.or_unpredicted("workers hold requests while these are served elsewhere")?;
    let expected = expected_load(facts, case)?;
    let capacity = measured(facts, &CAPACITY, &super::model::single_resource_case(case, resource))?;
    let throughput = quantity("throughput by mean value analysis", expected.throughput, Unit::PerSecond);
    let utilisation = throughput.with_input(&expected.inputs) / capacity;
    let (low, high) = (
        utilisation.value() / RANGE_FACTOR,
        (utilisation.value() * RANGE_FACTOR).min(1.0).max(utilisation.value() * 1.02),
    );
    Ok(utilisation.with_interval((low, high)).derived("utilisation"))
}
