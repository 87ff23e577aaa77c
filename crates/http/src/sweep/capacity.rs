//! What each resource gives alone, measured before the first visit.

use kelvin_core::catalogue::load::{NetworkSetup, Resource};
use kelvin_stats::median;

use crate::sweep::disk::{DiskRate, RequestRate};
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
    pub all: Vec<(Resource, Capacity)>,
    /// The server's interface towards the client, where it is the link.
    pub interface: Option<String>,
    /// Bytes a second that it sends when full, headers included.
    pub interface_bytes: Option<f64>,
    /// Requests a second that the disk serves, however little each asks for.
    pub disk_requests: Option<f64>,
}

/// What capacities follow from.
pub(crate) struct CapacityInputs<'m> {
    /// What a few users got of files in memory.
    pub stream: &'m StepResult,
    /// What the disk gave, where files are to come from it.
    pub disk: Option<DiskRate>,
    pub bytes_of_a_file: f64,
    pub network: NetworkSetup,
}

impl Capacities {
    /// A resource's capacity.
    pub fn get(&self, resource: Resource) -> Option<&Capacity> {
        self.all.iter().find(|(known, _)| *known == resource).map(|(_, capacity)| capacity)
    }

    /// Those of several rounds: of each figure the median of the rounds that have it.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(figure).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let of_resource = |&resource: &Resource| {
            let figure = |part: fn(&Capacity) -> Option<f64>| of(&|round| part(round.get(resource)?));
            let servers = figure(|one| Some(one.servers))?;
            Some((resource, Capacity { requests: figure(|one| one.requests), bytes: figure(|one| one.bytes), servers }))
        };
        let interface = rounds.iter().find_map(|round| round.interface.clone());
        Self {
            all: Resource::ALL.iter().filter_map(of_resource).collect(),
            interface_bytes: of(&|round| round.interface_bytes.filter(|_| round.interface == interface)),
            disk_requests: of(&|round| round.disk_requests),
            interface,
        }
    }

    /// All that follows from these measurements.
    pub(crate) fn from_measured(measured: &CapacityInputs<'_>) -> Self {
        let CapacityInputs { stream, disk, bytes_of_a_file, network } = measured;
        let requests = stream.load.rate();
        let mut found = Self::default();
        let of_bytes =
            |bytes: f64| Capacity { requests: Some(bytes / bytes_of_a_file), bytes: Some(bytes), servers: 1.0 };
        found.all.extend(disk.and_then(DiskRate::device_rate).map(|bytes| (Resource::Disk, of_bytes(bytes))));
        if let Some(RequestRate { per_second, bytes }) = disk.and_then(|disk| disk.requests) {
            found.all.push((Resource::DiskRequests, of_bytes(per_second * bytes)));
            found.disk_requests = Some(per_second);
        }
        if let Some(link) = link_capacity(stream).filter(|_| *network != NetworkSetup::Loopback) {
            found.all.push((Resource::Link, of_bytes(link.bytes)));
            found.interface = Some(link.interface);
            found.interface_bytes = Some(link.with_headers);
        }
        found.all.extend(cpu_capacities(stream, requests, *bytes_of_a_file));
        found
    }
}

/// What a link carries.
#[derive(Clone, Debug, PartialEq)]
struct LinkCapacity {
    interface: String,
    /// Bytes of bodies a second.
    bytes: f64,
    /// Bytes a second with headers, as the interface counts.
    with_headers: f64,
}

/// What the link carries, if it has a rate of its own: what a stream got where it came near that rate, else as much of the rate as of what
/// the stream sent were bodies. A stream that stayed below was limited by something else, as by an end that was short of CPU, and shows no
/// capacity of a link.
fn link_capacity(stream: &StepResult) -> Option<LinkCapacity> {
    let interface = stream.server.busiest_link()?;
    let (rate, sent) = (stream.server.link_rate(&interface)?, stream.server.link_send_rate(&interface)?);
    scale_to_rate((stream.bytes_per_second(), sent), rate).map(|(bytes, with_headers)| LinkCapacity {
        interface,
        bytes,
        with_headers,
    })
}

/// Bytes of bodies, and with headers, that a link of this rate carries, by those of a stream.
fn scale_to_rate((bytes, sent): (f64, f64), rate: f64) -> Option<(f64, f64)> {
    let is_near = sent >= NEAR_LINK_RATE * rate && sent <= rate;
    let with_headers = if is_near { sent } else { rate };
    (sent > 0.0 && bytes > 0.0).then(|| (bytes * with_headers / sent, with_headers))
}

/// The CPUs of either end, by the CPU time of a request.
fn cpu_capacities(stream: &StepResult, requests: f64, bytes_of_a_file: f64) -> Vec<(Resource, Capacity)> {
    let of = |allowed: f64, used: f64| {
        let requests = (used > 0.0 && requests > 0.0).then(|| allowed * requests / used);
        Capacity { requests, bytes: requests.map(|requests| requests * bytes_of_a_file), servers: allowed.max(1.0) }
    };
    let mut all = vec![(Resource::ServerCpu, of(stream.server.allowed_cpus(), stream.server.busy_cpus()))];
    if let Some(bound) = stream.server.server_use().and_then(|server| server.bound) {
        all.push((Resource::Workers, Capacity { requests: None, bytes: None, servers: f64::from(bound) }));
    }
    let generator = &stream.load.generator;
    all.push((Resource::ClientCpu, of(stream.client.allowed_cpus(), stream.client.busy_cpus())));
    all.push((Resource::Generator, of(1.0, generator.cpu.unwrap_or(0.0) / stream.load.seconds.max(f64::MIN_POSITIVE))));
    all
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
            all: std::iter::once((Resource::Disk, capacity(Some(disk))))
                .chain(link.map(|link| (Resource::Link, capacity(Some(link)))))
                .collect(),
            interface: link.map(|_| "eth0".into()),
            interface_bytes: link.map(|link| 1.1 * link),
            disk_requests: Some(disk / 1e3),
        };
        let rounds = [round(3e6, None), round(9e6, Some(5e6)), round(8e6, Some(7e6))];
        let known = Capacities::median(&rounds);
        assert_eq!(known.get(Resource::Disk), Some(&capacity(Some(8e6))));
        assert_eq!(known.get(Resource::Link), Some(&capacity(Some(6e6))), "of the rounds that have it");
        assert_eq!((known.disk_requests, known.interface.as_deref()), (Some(8e3), Some("eth0")));
        assert!((known.interface_bytes.unwrap() - 6.6e6).abs() < 1.0);
        assert_eq!(known.get(Resource::ServerCpu), None);
    }

    #[test]
    fn stream_below_link_rate_gives_none() {
        let close = |found: Option<(f64, f64)>, (bytes, sent): (f64, f64)| {
            let (got, counted) = found.unwrap();
            assert!((got / bytes - 1.0).abs() < 1e-12 && (counted / sent - 1.0).abs() < 1e-12, "{got} {counted}");
        };
        close(scale_to_rate((9.1e6, 9.5e6), 10e6), (9.1e6, 9.5e6));
        // The server had a fifth of a CPU.
        close(scale_to_rate((2.0e6, 2.1e6), 10e6), (10e6 / 1.05, 10e6));
        // What a token bucket had saved is not its rate.
        close(scale_to_rate((11.5e6, 12e6), 10e6), (11.5e6 / 1.2, 10e6));
        assert_eq!(scale_to_rate((0.0, 0.0), 10e6), None);
    }

    #[test]
    fn no_rounds_give_no_capacity() {
        assert_eq!(Capacities::median(&[]), Capacities::default());
    }
}
