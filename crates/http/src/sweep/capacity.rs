//! What each resource gives alone, measured before the first visit, and where the knee is to be expected by that.

use kelvin_core::catalogue::load::{NetworkSetup, Resource};
use kelvin_stats::{ClosedNetwork, DevicePart, median, round_server_count};
use kelvin_transfer::wire::file_server::{DiskRateReport, RequestRate};

use crate::sweep::disk::device_rate;
use crate::sweep::load_step::StepResult;

/// Share of a link's own rate from which on a stream was limited by it: headers and gaps between frames take up to a tenth.
const NEAR_LINK_RATE: f64 = 0.85;

/// What a resource gives alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests a second, where the work of one is known.
    pub requests: Option<f64>,
    /// Bytes a second: those that it carries, or those of the files of these requests.
    pub bytes: Option<f64>,
    /// Requests that it serves at once.
    pub servers: f64,
}

/// What all of them give, for the requests of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacities {
    /// In the order of the catalogue.
    pub by_resource: Vec<(Resource, Capacity)>,
    /// The server's interface towards the client, where it is the link.
    pub interface: Option<String>,
    /// Bytes a second that it sends when full, headers included.
    pub interface_bytes: Option<f64>,
    /// Requests a second that the disk serves, however little each asks for.
    pub disk_requests: Option<f64>,
}

impl Capacities {
    /// A resource's capacity.
    pub fn get(&self, resource: Resource) -> Option<&Capacity> {
        self.by_resource.iter().find(|(key, _)| *key == resource).map(|(_, capacity)| capacity)
    }

    /// Those of several rounds: of each figure the median of the rounds that have it.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let figure_median = |figure: &dyn Fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(figure).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let resource_median = |&resource: &Resource| {
            let figure = |field: fn(&Capacity) -> Option<f64>| figure_median(&|round| field(round.get(resource)?));
            let servers = figure(|capacity| Some(capacity.servers))?;
            let (requests, bytes) = (figure(|capacity| capacity.requests), figure(|capacity| capacity.bytes));
            Some((resource, Capacity { requests, bytes, servers }))
        };
        let interface = rounds.iter().find_map(|round| round.interface.clone());
        Self {
            by_resource: Resource::ALL.iter().filter_map(resource_median).collect(),
            interface_bytes: figure_median(&|round| round.interface_bytes.filter(|_| round.interface == interface)),
            disk_requests: figure_median(&|round| round.disk_requests),
            interface,
        }
    }

    /// All that follows from what a few users got of files in memory, and from what the disk gave, where files are to come from it.
    pub(crate) fn from_measured(
        stream: &StepResult,
        disk: Option<DiskRateReport>,
        bytes_of_a_file: f64,
        network: NetworkSetup,
    ) -> Self {
        let requests = stream.load.rate();
        let mut capacities = Self::default();
        let bytes_capacity =
            |bytes: f64| Capacity { requests: Some(bytes / bytes_of_a_file), bytes: Some(bytes), servers: 1.0 };
        capacities.by_resource.extend(disk.and_then(device_rate).map(|bytes| (Resource::Disk, bytes_capacity(bytes))));
        if let Some(RequestRate { per_second, bytes }) = disk.and_then(|disk| disk.requests) {
            capacities.by_resource.push((Resource::DiskRequests, bytes_capacity(per_second * bytes)));
            capacities.disk_requests = Some(per_second);
        }
        // What the link carries, if it has a rate of its own: what a stream got where it came near that rate, else as much of the rate as of
        // what the stream sent were bodies. A stream that stayed below was limited by something else, as by an end that was short of CPU,
        // and shows no capacity of a link.
        let server = &stream.server;
        if let Some(interface) = server.busiest_link().filter(|_| network != NetworkSetup::Loopback)
            && let Some((rate, sent)) = server.link_rate(&interface).zip(server.link_send_rate(&interface))
            && let Some((bytes, with_headers)) = scale_to_rate((stream.bytes_per_second(), sent), rate)
        {
            capacities.by_resource.push((Resource::Link, bytes_capacity(bytes)));
            (capacities.interface, capacities.interface_bytes) = (Some(interface), Some(with_headers));
        }
        capacities.by_resource.extend(cpu_capacities(stream, requests, bytes_of_a_file));
        capacities
    }
}

/// Bytes of bodies, and with headers, that a link of this rate carries, by those of a stream.
fn scale_to_rate((bytes, sent): (f64, f64), rate: f64) -> Option<(f64, f64)> {
    let is_saturated = sent >= NEAR_LINK_RATE * rate && sent <= rate;
    let with_headers = if is_saturated { sent } else { rate };
    (sent > 0.0 && bytes > 0.0).then(|| (bytes * with_headers / sent, with_headers))
}

/// The CPUs of either end, by the CPU time of a request. A thread of the generator has one.
fn cpu_capacities(stream: &StepResult, requests: f64, bytes_of_a_file: f64) -> Vec<(Resource, Capacity)> {
    let capacity = |allowed_cpus: f64, busy_cpus: f64| {
        let requests = (busy_cpus > 0.0 && requests > 0.0).then(|| allowed_cpus * requests / busy_cpus);
        Capacity {
            requests,
            bytes: requests.map(|requests| requests * bytes_of_a_file),
            servers: allowed_cpus.max(1.0),
        }
    };
    let mut capacities =
        vec![(Resource::ServerCpu, capacity(stream.server.end.cpu.allowed, stream.server.busy_cpus()))];
    if let Some(bound) = stream.server.end.server.as_ref().and_then(|server| server.workers) {
        capacities.push((Resource::Workers, Capacity { requests: None, bytes: None, servers: f64::from(bound) }));
    }
    let generator = &stream.load.generator;
    capacities.push((Resource::ClientCpu, capacity(stream.client.end.cpu.allowed, stream.client.busy_cpus())));
    let generator_cpus = generator.cpu.unwrap_or(0.0) / stream.load.seconds.max(f64::MIN_POSITIVE);
    capacities.push((Resource::Generator, capacity(f64::from(stream.max_threads), generator_cpus)));
    capacities
}

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
    let to_device_part = |(resource, capacity): &(Resource, Capacity)| {
        let to_device_part = DevicePart { capacity: capacity.requests?, servers: round_server_count(capacity.servers) };
        resource.group().is_station().then_some((*resource, to_device_part))
    };
    let parts: Vec<(Resource, DevicePart)> = capacities.by_resource.iter().filter_map(to_device_part).collect();
    let stations = parts.iter().map(|(resource, part)| (resource.group(), *part));
    let network = ClosedNetwork::from_slowest_parts(stations, think).ok()?;
    let (limit, part) =
        parts.into_iter().min_by(|(_, first), (_, second)| first.capacity.total_cmp(&second.capacity))?;
    let knee = network.min_customers_for(KNEE_SHARE * part.capacity, MAX_USERS).unwrap_or(MAX_USERS);
    Some(ExpectedKnee { limit, capacity: part.capacity, knee: knee as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(bytes: Option<f64>) -> Capacity {
        Capacity { requests: bytes.map(|bytes| bytes / 1e6), bytes, servers: 1.0 }
    }

    #[test]
    fn median_ignores_one_disturbed_round() {
        let round = |disk: f64, link: Option<f64>| Capacities {
            by_resource: std::iter::once((Resource::Disk, capacity(Some(disk))))
                .chain(link.map(|link| (Resource::Link, capacity(Some(link)))))
                .collect(),
            interface: link.map(|_| "eth0".into()),
            interface_bytes: link.map(|link| 1.1 * link),
            disk_requests: Some(disk / 1e3),
        };
        let rounds = [round(3e6, None), round(9e6, Some(5e6)), round(8e6, Some(7e6))];
        let medians = Capacities::median(&rounds);
        assert_eq!(medians.get(Resource::Disk), Some(&capacity(Some(8e6))));
        assert_eq!(medians.get(Resource::Link), Some(&capacity(Some(6e6))), "of the rounds that have it");
        assert_eq!((medians.disk_requests, medians.interface.as_deref()), (Some(8e3), Some("eth0")));
        assert!((medians.interface_bytes.unwrap() - 6.6e6).abs() < 1.0);
        assert_eq!(medians.get(Resource::ServerCpu), None);
    }

    #[test]
    fn stream_below_link_rate_gives_none() {
        let assert_close = |actual: Option<(f64, f64)>, (bytes, sent): (f64, f64)| {
            let (actual_bytes, actual_sent) = actual.unwrap();
            assert!(
                (actual_bytes / bytes - 1.0).abs() < 1e-12 && (actual_sent / sent - 1.0).abs() < 1e-12,
                "{actual_bytes} {actual_sent}"
            );
        };
        assert_close(scale_to_rate((9.1e6, 9.5e6), 10e6), (9.1e6, 9.5e6));
        // The server had a fifth of a CPU.
        assert_close(scale_to_rate((2.0e6, 2.1e6), 10e6), (10e6 / 1.05, 10e6));
        // What a token bucket had saved is not its rate.
        assert_close(scale_to_rate((11.5e6, 12e6), 10e6), (11.5e6 / 1.2, 10e6));
        assert_eq!(scale_to_rate((0.0, 0.0), 10e6), None);
    }

    #[test]
    fn no_rounds_give_no_capacity() {
        assert_eq!(Capacities::median(&[]), Capacities::default());
    }

    #[test]
    fn published_capacities_predict_published_knees() {
        let rate_capacity = |requests| Capacity { requests: Some(requests), bytes: None, servers: 1.0 };
        let entries = [(Resource::Disk, rate_capacity(21.8)), (Resource::Link, rate_capacity(5.78))];
        let capacities = Capacities { by_resource: entries.to_vec(), ..Capacities::default() };
        let knees = [0.0, 1.0].map(|think| expected_knee(&capacities, think).unwrap());
        assert_eq!(
            knees.map(|knee| (knee.limit, knee.capacity, knee.knee)),
            [(Resource::Link, 5.78, 3), (Resource::Link, 5.78, 10)]
        );
        assert_eq!(expected_knee(&Capacities::default(), 0.0), None);
    }
}
