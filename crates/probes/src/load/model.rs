//! What capacities alone say of a number of users: a closed network of the devices, by exact mean value analysis.

use kelvin_catalogue::load::{CAPACITY, FILE_BYTES, Resource, SERVERS, THINK, USERS};
use kelvin_harness::Facts;
use kelvin_model::{Case, Input, Name, NoPrediction, Unit};
use kelvin_stats::{ClosedNetwork, Part, whole_servers};

/// What is expected of a number of users.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub users: u64,
    /// Requests a second.
    pub throughput: f64,
    /// Seconds from a request to its answer.
    pub response: f64,
    /// The most and the least that the demands allow at all.
    pub most_throughput: f64,
    pub least_response: f64,
    /// Bytes of a file.
    pub bytes: f64,
    /// The capacities that it follows from.
    pub inputs: Vec<Input>,
    /// The resource with the least of them, and its requests a second.
    pub limit: (Resource, f64),
}

/// What the capacities of this run let expect of a case with users.
pub(super) fn expected(facts: &Facts<'_>, case: &Case) -> Result<Expected, NoPrediction> {
    let (users, think) = (USERS.of(case).unwrap_or(1).max(1), THINK.of(case).unwrap_or(0) as f64 / 1e3);
    let capacities = capacities(facts, case);
    let none = || NoPrediction::because("no capacity of any resource is known");
    let limit = capacities
        .iter()
        .map(|(resource, part, _)| (*resource, part.capacity))
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .ok_or_else(none)?;
    let parts = capacities.iter().map(|(resource, part, _)| (resource.device(), *part));
    let network = ClosedNetwork::of_slowest(parts, think).map_err(|_| none())?;
    let solved = network.solve(users as usize).pop().ok_or_else(none)?;
    let bounds = network.bounds(users as usize);
    let number = |name: &str, value: u64| Input {
        name: name.into(),
        value: value as f64,
        unit: Unit::Count,
        source: "the case".into(),
    };
    let mut inputs: Vec<Input> = capacities.into_iter().map(|(.., input)| input).collect();
    inputs.push(number("users", users));
    Ok(Expected {
        users,
        throughput: solved.throughput,
        response: solved.response,
        most_throughput: bounds.most_throughput,
        least_response: bounds.least_response,
        bytes: FILE_BYTES.of(case).unwrap_or(0) as f64,
        inputs,
        limit,
    })
}

/// The parts of devices whose capacity was measured.
fn capacities(facts: &Facts<'_>, case: &Case) -> Vec<(Resource, Part, Input)> {
    let of = |&resource: &Resource| {
        let alone = alone(case, resource);
        let input = facts.measured(&CAPACITY, &alone).ok()?;
        let servers = facts.measured(&SERVERS, &alone).map_or(1.0, |input| input.value);
        let part = Part { capacity: input.value, servers: whole_servers(servers) };
        (input.value > 0.0).then_some((resource, part, input))
    };
    Resource::ALL.iter().filter(|resource| resource.device().is_station()).filter_map(of).collect()
}

/// The case of a resource alone, of a case with users.
pub(super) fn alone(case: &Case, resource: Resource) -> Case {
    let is_of = |name: Name| CAPACITY.axes().any(|axis| axis.name == name);
    case.iter().filter(|(name, _)| is_of(*name)).collect::<Case>().at(resource)
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::file::CacheState;
    use kelvin_catalogue::load::{Between, FILES, Pattern};
    use kelvin_model::{Machine, MeasuredValue};

    use super::*;
    use crate::testing::facts_about;

    fn case(users: u64, think: u64) -> Case {
        let case = Case::new().at(Pattern::Random).at(CacheState::Uncached).at(Between::Hosts);
        case.with(FILES, 10_000).with(FILE_BYTES, 2_000_000).with(USERS, users).with(THINK, think)
    }

    #[test]
    fn published_capacities_give_published_bounds() {
        let capacities = [(Resource::Disk, 21.8), (Resource::Link, 5.78)];
        let measured = |id: &str, at: &Case| {
            let of = |(resource, _): &&(Resource, f64)| CAPACITY.id == *id && *at == alone(&case(1, 0), *resource);
            capacities.iter().find(of).map(|&(_, value)| MeasuredValue { value, half_width: 0.0 })
        };
        let machine = Machine::default();
        let expected = |users, think| expected(&Facts::new(&machine, &measured), &case(users, think)).unwrap();
        let one = expected(1, 0);
        assert!((one.throughput - 1.0 / (1.0 / 21.8 + 1.0 / 5.78)).abs() < 1e-9);
        assert!((expected(100, 0).throughput - 5.78).abs() < 0.001);
        assert_eq!(expected(10, 1000).limit, (Resource::Link, 5.78));
        assert!((expected(1, 1000).response - one.response).abs() < 1e-9, "think time is no part of it");
    }

    #[test]
    fn without_capacities_there_is_no_prediction() {
        let none = facts_about(&[], |facts| expected(facts, &case(1, 0)).unwrap_err());
        assert_eq!(none.0, "no capacity of any resource is known");
    }
}
