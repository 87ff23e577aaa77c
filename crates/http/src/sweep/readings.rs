//! What visits and capacities are as readings, each at its case.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::hosts::LoadHost;
use kelvin_core::catalogue::load::{
    ACCEPT_QUEUE, BLOCKED, BUSY_TIME, CACHE_HITS, CAPACITY, CAPACITY_BYTES, CLIENT_IN_FLIGHT, CLIENT_MEMORY,
    DISK_BYTE_RATE, ERRORS, FILE_BYTES, FILES, IN_FLIGHT, LATENESS, NETWORK_IN_FLIGHT, NetworkSetup, RATE, RESPONSE,
    RESPONSE_P50, RESPONSE_P95, RESPONSE_P99, RequestPattern, Resource, SENT_BYTE_RATE, SERVER_MEMORY, SERVERS,
    SERVICE, STALLED, STALLS, THINK_TIME, THROUGHPUT, USERS, UTILISATION, WRITTEN_BYTE_RATE,
};
use kelvin_core::load::LatencySummary;
use kelvin_core::{Case, Metric, MetricReadings, OverheadReading, Readings};

use crate::sweep::capacity::{Capacities, Capacity};
use crate::sweep::load_step::StepResult;
use crate::sweep::setup::SweepLoad;
use crate::sweep::usage_delta::ServerUse;

/// What all sweeps of a study have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StudyConditions {
    pub cache: CacheState,
    pub network: NetworkSetup,
    pub files: u64,
    pub bytes: u64,
}

impl StudyConditions {
    fn case(&self, pattern: RequestPattern) -> Case {
        let case = Case::new().with_word(pattern).with_word(self.cache).with_word(self.network);
        case.with_number(FILES, self.files).with_number(FILE_BYTES, self.bytes)
    }

    /// The case of a number of users.
    pub fn user_case(&self, load: SweepLoad, users: u64) -> Case {
        self.case(load.pattern).with_number(USERS, users).with_number(THINK_TIME, load.think.as_millis() as u64)
    }

    /// The case of a resource with a number of users.
    pub fn resource_case(&self, load: SweepLoad, users: u64, resource: Resource) -> Case {
        self.user_case(load, users).with_word(resource)
    }

    /// The case of a host with a number of users.
    pub fn host_case(&self, load: SweepLoad, users: u64, host: LoadHost) -> Case {
        self.user_case(load, users).with_word(host)
    }

    /// The case of what a resource gives alone.
    pub fn capacity_case(&self, pattern: RequestPattern, resource: Resource) -> Case {
        self.case(pattern).with_word(resource)
    }
}

pub(crate) fn reading(metric: &Metric, value: f64) -> MetricReadings {
    let overhead = OverheadReading::default();
    MetricReadings { metric: metric.id, readings: Readings::Scalars(vec![value]), overhead, notes: Vec::new() }
}

/// What a number of users got in a visit, and what either end did meanwhile.
pub(crate) fn user_readings(visited: &StepResult) -> Vec<MetricReadings> {
    let StepResult { load, server, client, .. } = visited;
    let seconds = load.seconds.max(f64::MIN_POSITIVE);
    let own = server.server_use();
    let of = |times: LatencySummary, figure: fn(&LatencySummary) -> f64| (times.count > 0).then(|| figure(&times));
    let leaving = load.generator.send_delay.unwrap_or(0.0);
    let all = [
        (&THROUGHPUT, Some(visited.throughput())),
        (&RATE, Some(visited.bytes_per_second())),
        (&RESPONSE, of(load.response, |times| times.mean)),
        (&RESPONSE_P50, of(load.response, |times| times.p50)),
        (&RESPONSE_P95, of(load.response, |times| times.p95)),
        (&RESPONSE_P99, of(load.response, |times| times.p99)),
        (&SERVICE, of(load.service, |times| times.mean).map(|mean| (mean - leaving).max(0.0))),
        (&IN_FLIGHT, own.zip(load.in_flight).and_then(|(own, awaited)| sampled_in_flight(own, awaited))),
        (&CLIENT_IN_FLIGHT, load.in_flight.map(|in_flight| in_flight - load.rate() * leaving / 1e9)),
        (&SENT_BYTE_RATE, own.map(|own| own.bytes)),
        (&DISK_BYTE_RATE, server.disk_read_rate()),
        (&LATENESS, of(load.generator.late, |times| times.p99)),
        (&ERRORS, Some(load.errors.count() as f64 / seconds)),
        (&SERVER_MEMORY, Some(server.memory())),
        (&CLIENT_MEMORY, Some(client.memory())),
        (&CACHE_HITS, own.zip(server.disk_read_rate()).and_then(|(own, read)| cache_hit_share(own.bytes, read))),
        (&ACCEPT_QUEUE, own.map(|own| own.accept_queue)),
        (&NETWORK_IN_FLIGHT, own.and_then(|own| own.in_network)),
        (&WRITTEN_BYTE_RATE, server.write_rate()),
        (&BLOCKED, own.and_then(|own| own.blocked)),
        (&STALLED, Some((load.stalls.seconds / seconds).min(1.0))),
        (&STALLS, Some(load.stalls.count as f64 / seconds)),
    ];
    all.into_iter().filter_map(|(metric, value)| Some(reading(metric, value?))).collect()
}

/// The share of what was sent that no disk had to read; none of nothing.
fn cache_hit_share(sent: f64, read: f64) -> Option<f64> {
    (sent > 0.0).then(|| (1.0 - read / sent).max(0.0))
}

/// Requests in flight at the server, where they were sampled often enough that some were to be met: an error of a fifth by chance, of
/// which many visits make one of a few percent.
fn sampled_in_flight(own: ServerUse, awaited: f64) -> Option<f64> {
    const MET: f64 = 25.0;
    (awaited * own.samples as f64 >= MET).then_some(own.in_flight)
}

/// The resources whose use is known in a visit, with their readings.
pub(crate) fn resource_readings(visited: &StepResult, capacities: &Capacities) -> Vec<(Resource, Vec<MetricReadings>)> {
    let use_of = |&resource: &Resource| {
        let (utilisation, busy) = resource_use(visited, capacities, resource);
        let known = [(&UTILISATION, utilisation), (&BUSY_TIME, busy)];
        let readings: Vec<MetricReadings> =
            known.into_iter().filter_map(|(metric, value)| Some(reading(metric, value?))).collect();
        (!readings.is_empty()).then_some((resource, readings))
    };
    Resource::ALL.iter().filter_map(use_of).collect()
}

/// The share of a resource's capacity that was used in a visit, and the share of the time in which it was.
fn resource_use(visited: &StepResult, capacities: &Capacities, resource: Resource) -> (Option<f64>, Option<f64>) {
    let StepResult { load, server, client, .. } = visited;
    let own = server.server_use();
    let capacity = |resource| capacities.get(resource).and_then(|one: &Capacity| one.bytes);
    match resource {
        Resource::Disk => {
            let used = server.disk_read_rate().zip(capacity(resource)).map(|(bytes, most)| bytes / most);
            (used, server.disk_use().map(|disk| disk.busy))
        }
        Resource::DiskRequests => {
            let used = server.disk_use().zip(capacities.disk_requests).map(|(disk, most)| disk.own_reads / most);
            (used, None)
        }
        Resource::Link => (link_use(visited, capacities), None),
        Resource::ServerCpu => (Some(server.busy_cpus() / server.allowed_cpus()), None),
        Resource::ServerThread => (Some(server.busiest_thread()), None),
        Resource::Workers => (own.and_then(|own| own.workers), None),
        Resource::ClientCpu => (Some(client.busy_cpus() / client.allowed_cpus()), None),
        Resource::Generator => (load.generator.busy, None),
        Resource::ClientWindow => (own.and_then(|own| own.window), None),
    }
}

/// By the interface's own count where it has one, which has headers and whatever else passes; else by the bytes that arrived.
fn link_use(visited: &StepResult, capacities: &Capacities) -> Option<f64> {
    let by_interface = || {
        let (name, most) = capacities.interface.as_deref().zip(capacities.interface_bytes)?;
        Some(visited.server.link_send_rate(name)? / most)
    };
    let bytes = capacities.get(Resource::Link)?.bytes?;
    by_interface().or(Some(visited.bytes_per_second() / bytes))
}

/// What a resource gives alone.
pub(crate) fn capacity_readings(capacity: &Capacity) -> Vec<MetricReadings> {
    let all = [(&CAPACITY, capacity.requests), (&CAPACITY_BYTES, capacity.bytes), (&SERVERS, Some(capacity.servers))];
    all.into_iter().filter_map(|(metric, value)| Some(reading(metric, value?))).collect()
}
