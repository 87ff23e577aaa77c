//! What visits and capacities are as readings, each at its case.

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::load::hosts::Host;
use kelvin_catalogue::load::{
    ACCEPT_QUEUE, AWAITED, BLOCKED, BUSY, Between, CACHE_HITS, CAPACITY, CAPACITY_BYTES, CLIENT_MEMORY, ERRORS,
    FILE_BYTES, FILES, FROM_DISK, IN_FLIGHT, IN_NETWORK, LATENESS, MORE_WORKERS, Pattern, RATE, RESPONSE, RESPONSE_P50,
    RESPONSE_P95, RESPONSE_P99, Resource, SENT, SERVER_MEMORY, SERVERS, SERVICE, STALLED, STALLS, THINK, THROUGHPUT,
    USERS, UTILISATION, WRITTEN,
};
use kelvin_model::load::Latency;
use kelvin_model::{Case, Metric, OverheadReading, Reading, Readings};

use crate::capacity::{Capacities, Capacity};
use crate::setup::Load;
use crate::used::ServerUse;
use crate::visit::Visited;

/// What all sweeps of a study have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub cache: CacheState,
    pub between: Between,
    pub files: u64,
    pub bytes: u64,
}

impl Common {
    fn case(&self, pattern: Pattern) -> Case {
        let case = Case::new().at(pattern).at(self.cache).at(self.between);
        case.with(FILES, self.files).with(FILE_BYTES, self.bytes)
    }

    /// The case of a number of users.
    pub fn of_users(&self, load: Load, users: u64) -> Case {
        self.case(load.pattern).with(USERS, users).with(THINK, load.think.as_millis() as u64)
    }

    /// The case of a resource with a number of users.
    pub fn of_resource(&self, load: Load, users: u64, resource: Resource) -> Case {
        self.of_users(load, users).at(resource)
    }

    /// The case of a host with a number of users.
    pub fn of_host(&self, load: Load, users: u64, host: Host) -> Case {
        self.of_users(load, users).at(host)
    }

    /// The case of what a resource gives alone.
    pub fn of_capacity(&self, pattern: Pattern, resource: Resource) -> Case {
        self.case(pattern).at(resource)
    }
}

pub(crate) fn reading(metric: &Metric, value: f64) -> Reading {
    let overhead = OverheadReading::default();
    Reading { metric: metric.id, readings: Readings::Scalars(vec![value]), overhead, notes: Vec::new() }
}

/// What a number of users got in a visit, and what either end did meanwhile.
pub(crate) fn of_users(visited: &Visited) -> Vec<Reading> {
    let Visited { load, server, client, .. } = visited;
    let seconds = load.seconds.max(f64::MIN_POSITIVE);
    let own = server.server();
    let of = |times: Latency, figure: fn(&Latency) -> f64| (times.count > 0).then(|| figure(&times));
    let leaving = load.generator.leaving.unwrap_or(0.0);
    let all = [
        (&THROUGHPUT, Some(visited.throughput())),
        (&RATE, Some(visited.received())),
        (&RESPONSE, of(load.response, |times| times.mean)),
        (&RESPONSE_P50, of(load.response, |times| times.p50)),
        (&RESPONSE_P95, of(load.response, |times| times.p95)),
        (&RESPONSE_P99, of(load.response, |times| times.p99)),
        (&SERVICE, of(load.service, |times| times.mean).map(|mean| (mean - leaving).max(0.0))),
        (&IN_FLIGHT, own.zip(load.in_flight).and_then(|(own, awaited)| in_flight(own, awaited))),
        (&AWAITED, load.in_flight.map(|in_flight| in_flight - load.rate() * leaving / 1e9)),
        (&SENT, own.map(|own| own.bytes)),
        (&FROM_DISK, server.read_from_disk()),
        (&LATENESS, of(load.generator.late, |times| times.p99)),
        (&ERRORS, Some(load.errors.count() as f64 / seconds)),
        (&SERVER_MEMORY, Some(server.memory())),
        (&CLIENT_MEMORY, Some(client.memory())),
        (&CACHE_HITS, own.zip(server.read_from_disk()).and_then(|(own, read)| hits(own.bytes, read))),
        (&ACCEPT_QUEUE, own.map(|own| own.accept_queue)),
        (&IN_NETWORK, own.and_then(|own| own.in_network)),
        (&WRITTEN, server.written()),
        (&BLOCKED, own.and_then(|own| own.blocked)),
        (&STALLED, Some((load.stalls.seconds / seconds).min(1.0))),
        (&STALLS, Some(load.stalls.count as f64 / seconds)),
    ];
    all.into_iter().filter_map(|(metric, value)| Some(reading(metric, value?))).collect()
}

/// What a server with more workers gave.
pub(crate) fn of_more_workers(visited: &Visited) -> Vec<Reading> {
    vec![reading(&MORE_WORKERS, visited.throughput())]
}

/// The share of what was sent that no disk had to read; none of nothing.
fn hits(sent: f64, read: f64) -> Option<f64> {
    (sent > 0.0).then(|| (1.0 - read / sent).max(0.0))
}

/// Requests in flight at the server, where they were sampled often enough that some were to be met: an error of a fifth by chance, of
/// which many visits make one of a few percent.
fn in_flight(own: ServerUse, awaited: f64) -> Option<f64> {
    const MET: f64 = 25.0;
    (awaited * own.samples as f64 >= MET).then_some(own.in_flight)
}

/// The resources whose use is known in a visit, with their readings.
pub(crate) fn of_resources(visited: &Visited, capacities: &Capacities) -> Vec<(Resource, Vec<Reading>)> {
    let use_of = |&resource: &Resource| {
        let (utilisation, busy) = used(visited, capacities, resource);
        let known = [(&UTILISATION, utilisation), (&BUSY, busy)];
        let readings: Vec<Reading> =
            known.into_iter().filter_map(|(metric, value)| Some(reading(metric, value?))).collect();
        (!readings.is_empty()).then_some((resource, readings))
    };
    Resource::ALL.iter().filter_map(use_of).collect()
}

/// The share of a resource's capacity that was used in a visit, and the share of the time in which it was.
fn used(visited: &Visited, capacities: &Capacities, resource: Resource) -> (Option<f64>, Option<f64>) {
    let Visited { load, server, client, .. } = visited;
    let own = server.server();
    let capacity = |resource| capacities.get(resource).and_then(|one: &Capacity| one.bytes);
    match resource {
        Resource::Disk => {
            let used = server.read_from_disk().zip(capacity(resource)).map(|(bytes, most)| bytes / most);
            (used, server.disk().map(|disk| disk.busy))
        }
        Resource::DiskRequests => {
            let used = server.disk().zip(capacities.disk_requests).map(|(disk, most)| disk.own_reads / most);
            (used, None)
        }
        Resource::Link => (link(visited, capacities), None),
        Resource::ServerCpu => (Some(server.cpus() / server.allowed()), None),
        Resource::ServerThread => (Some(server.busiest_thread()), None),
        Resource::Workers => (own.and_then(|own| own.workers), None),
        Resource::ClientCpu => (Some(client.cpus() / client.allowed()), None),
        Resource::Generator => (load.generator.busy, None),
        Resource::ClientWindow => (own.and_then(|own| own.window), None),
    }
}

/// By the interface's own count where it has one, which has headers and whatever else passes; else by the bytes that arrived.
fn link(visited: &Visited, capacities: &Capacities) -> Option<f64> {
    let by_interface = || {
        let (name, most) = capacities.interface.as_deref().zip(capacities.interface_bytes)?;
        Some(visited.server.sent(name)? / most)
    };
    let bytes = capacities.get(Resource::Link)?.bytes?;
    by_interface().or(Some(visited.received() / bytes))
}

/// What a resource gives alone.
pub(crate) fn of_capacity(capacity: &Capacity) -> Vec<Reading> {
    let all = [(&CAPACITY, capacity.requests), (&CAPACITY_BYTES, capacity.bytes), (&SERVERS, Some(capacity.servers))];
    all.into_iter().filter_map(|(metric, value)| Some(reading(metric, value?))).collect()
}
