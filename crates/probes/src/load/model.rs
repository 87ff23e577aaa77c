//! What capacities alone predict for a number of users: a closed network of the devices, by exact mean value analysis.

use kelvin_core::Name;
use kelvin_core::catalogue::load::{CAPACITY, Resource, SERVERS, THINK_TIME, USERS};
use kelvin_stats::{ClosedNetwork, DevicePart, round_server_count};

use crate::prelude::*;

/// What is expected of a number of users.
#[derive(Clone, Debug)]
pub(super) struct ExpectedLoad {
    pub users: u64,
    /// Requests a second.
    pub throughput: f64,
    /// Seconds from a request to its answer.
    pub response: f64,
    /// The most and the least that the demands allow at all.
    pub max_throughput: f64,
    pub min_response: f64,
    /// The capacities and the number of users that it follows from.
    pub inputs: Expr,
    /// The resource with the least of them, and its requests a second.
    pub bottleneck: (Resource, f64),
}

/// What the capacities of this run let expect of a case with users.
pub(super) fn expected_load(facts: &PredictionInputs<'_>, case: &Case) -> Predicted<ExpectedLoad> {
    let (users, think) =
        (USERS.number_in(case).unwrap_or(1).max(1), THINK_TIME.number_in(case).unwrap_or(0) as f64 / 1e3);
    let capacities = measured_capacities(facts, case);
    let no_capacity = || NoPrediction::new("no capacity of any resource is known");
    let limit = capacities
        .iter()
        .map(|(resource, part, _)| (*resource, part.capacity))
        .min_by(|left, right| left.1.total_cmp(&right.1))
        .ok_or_else(no_capacity)?;
    let parts = capacities.iter().map(|(resource, part, _)| (resource.group(), *part));
    let network = ClosedNetwork::from_slowest_parts(parts, think).map_err(|_| no_capacity())?;
    let solution = network.solve(users as usize).pop().ok_or_else(no_capacity)?;
    let bounds = network.bounds(users as usize);
    let users_input = fact("users", users as f64, Unit::Count, "the case");
    let inputs = capacities.iter().map(|(.., capacity)| capacity).chain([&users_input]);
    let inputs = inputs.fold(quantity("capacities", 0.0, Unit::PerSecond), Expr::with_input);
    Ok(ExpectedLoad {
        users,
        throughput: solution.throughput,
        response: solution.response,
        max_throughput: bounds.max_throughput,
        min_response: bounds.min_response,
        inputs,
        bottleneck: limit,
    })
}

/// The parts of devices whose capacity was measured.
fn measured_capacities(facts: &PredictionInputs<'_>, case: &Case) -> Vec<(Resource, DevicePart, Expr)> {
    let part_of = |&resource: &Resource| {
        let resource_case = single_resource_case(case, resource);
        let capacity = measured(facts, &CAPACITY, &resource_case).ok()?;
        let servers = facts.measured(&SERVERS, &resource_case).map_or(1.0, |servers| servers.value);
        let part = DevicePart { capacity: capacity.value(), servers: round_server_count(servers) };
        (capacity.value() > 0.0).then_some((resource, part, capacity))
    };
    Resource::ALL.iter().filter(|resource| resource.group().is_station()).filter_map(part_of).collect()
}

/// The case of a resource alone, of a case with users.
pub(super) fn single_resource_case(case: &Case, resource: Resource) -> Case {
    let is_capacity_axis = |name: Name| CAPACITY.axes().any(|axis| axis.name == name);
    case.iter().filter(|(name, _)| is_capacity_axis(*name)).collect::<Case>().with_word(resource)
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::file::CacheState;
    use kelvin_core::catalogue::load::{FILE_BYTES, FILES, NetworkSetup, RequestPattern};
    use kelvin_core::{Machine, MeasuredValue};

    use super::*;
    use crate::testing::with_facts;

    fn case(users: u64, think: u64) -> Case {
        let case = Case::new()
            .with_word(RequestPattern::Random)
            .with_word(CacheState::Uncached)
            .with_word(NetworkSetup::Hosts);
        case.with_number(FILES, 10_000)
            .with_number(FILE_BYTES, 2_000_000)
            .with_number(USERS, users)
            .with_number(THINK_TIME, think)
    }

    #[test]
    fn published_capacities_give_published_bounds() {
        let capacities = [(Resource::Disk, 21.8), (Resource::Link, 5.78)];
        let measured = |id: &str, requested_case: &Case| {
            let has_case = |(resource, _): &&(Resource, f64)| {
                CAPACITY.id == *id && *requested_case == single_resource_case(&case(1, 0), *resource)
            };
            capacities.iter().find(has_case).map(|&(_, value)| MeasuredValue { value, half_width: 0.0 })
        };
        let machine = Machine::default();
        let expected =
            |users, think| expected_load(&PredictionInputs::new(&machine, &measured), &case(users, think)).unwrap();
        let single_user = expected(1, 0);
        assert!((single_user.throughput - 1.0 / (1.0 / 21.8 + 1.0 / 5.78)).abs() < 1e-9);
        assert!((expected(100, 0).throughput - 5.78).abs() < 0.001);
        assert_eq!(expected(10, 1000).bottleneck, (Resource::Link, 5.78));
        assert!((expected(1, 1000).response - single_user.response).abs() < 1e-9, "think time is no part of it");
    }

    #[test]
    fn without_capacities_there_is_no_prediction() {
        let reason = with_facts(&[], |facts| expected_load(facts, &case(1, 0)).unwrap_err());
        assert_eq!(reason.0, "no capacity of any resource is known");
    }
}
