//! How full each resource of a server is with a number of users.
//!
//! It shows what limits a server. It must not be read as a queue's length: a resource that is full has some, of unknown length.

use kelvin_core::catalogue::load::{CAPACITY, RESOURCE_METRICS, Resource, SERVERS, UTILISATION};

use super::model::{expected_load, single_resource_case};
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
    let resource_case = single_resource_case(case, resource);
    let capacity = measured(facts, &CAPACITY, &resource_case)?;
    let throughput = quantity("throughput by mean value analysis", expected.throughput, Unit::PerSecond);
    let mean_utilisation = throughput.with_input(&expected.inputs) / capacity;
    let threads = facts.measured(&SERVERS, &resource_case).map_or(1, |servers| servers.value.round() as u64);
    let utilisation = match resource {
        Resource::Generator if threads > 1 => {
            let factor = busiest_thread_factor(expected.users, threads);
            let busiest = quantity("users of the busiest thread over the mean", factor, Unit::Ratio);
            (mean_utilisation * busiest).min(1.0.into())
        }
        _ => mean_utilisation,
    };
    let (low, high) = (
        utilisation.value() / RANGE_FACTOR,
        (utilisation.value() * RANGE_FACTOR).min(1.0).max(utilisation.value() * 1.02),
    );
    Ok(utilisation.with_interval((low, high)).derived("utilisation"))
}

/// How many times the mean of the generator's threads its busiest one works, of users who are divided over them as evenly as their number
/// allows: its part of the users, of which it has one in each `threads` on average.
fn busiest_thread_factor(users: u64, threads: u64) -> f64 {
    let most_users = users.div_ceil(users.min(threads));
    (most_users * threads) as f64 / users as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_thread_has_its_part_of_the_users() {
        let factors = [1, 3, 4, 6, 8].map(|users| busiest_thread_factor(users, 4));
        assert_eq!(factors, [4.0, 4.0 / 3.0, 1.0, 4.0 / 3.0, 1.0]);
        assert_eq!([1, 2, 7].map(|users| busiest_thread_factor(users, 1)), [1.0; 3]);
    }
}
