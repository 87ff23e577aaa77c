//! What the capacities alone say before the first visit: where the knee is to be expected.

use kelvin_core::catalogue::load::Resource;
use kelvin_stats::{ClosedNetwork, DevicePart, whole_servers};

use crate::sweep::capacity::{Capacities, Capacity};

/// Share of the capacity from which on more users bring nothing that matters.
const KNEE_SHARE: f64 = 0.95;
/// Most users among which a knee is looked for.
const MAX_USERS: usize = 1000;

/// What is expected of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpectedKnee {
    /// The resource with the least capacity.
    pub limit: Resource,
    /// Requests a second that it serves.
    pub capacity: f64,
    /// The least number of users with nearly all of it.
    pub knee: u64,
}

/// What these capacities let expect with this mean think time, in seconds; nothing, where none was measured.
pub(crate) fn expected_knee(capacities: &Capacities, think: f64) -> Option<ExpectedKnee> {
    let part = |(resource, one): &(Resource, Capacity)| {
        let part = DevicePart { capacity: one.requests?, servers: whole_servers(one.servers) };
        resource.group().is_station().then_some((*resource, part))
    };
    let parts: Vec<(Resource, DevicePart)> = capacities.all.iter().filter_map(part).collect();
    let stations = parts.iter().map(|(resource, part)| (resource.group(), *part));
    let network = ClosedNetwork::from_slowest_parts(stations, think).ok()?;
    let (limit, part) = parts.into_iter().min_by(|(_, one), (_, other)| one.capacity.total_cmp(&other.capacity))?;
    let knee = network.min_customers_for(KNEE_SHARE * part.capacity, MAX_USERS).unwrap_or(MAX_USERS);
    Some(ExpectedKnee { limit, capacity: part.capacity, knee: knee as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_capacities_predict_published_knees() {
        let of = |requests| Capacity { requests: Some(requests), bytes: None, servers: 1.0 };
        let all = [(Resource::Disk, of(21.8)), (Resource::Link, of(5.78))];
        let capacities = Capacities { all: all.to_vec(), ..Capacities::default() };
        let found = [0.0, 1.0].map(|think| expected_knee(&capacities, think).unwrap());
        assert_eq!(
            found.map(|one| (one.limit, one.capacity, one.knee)),
            [(Resource::Link, 5.78, 3), (Resource::Link, 5.78, 10)]
        );
        assert_eq!(expected_knee(&Capacities::default(), 0.0), None);
    }
}
