//! What visits and capacities are as readings, each at its case: of users and resources, and of either host with the process on it that
//! takes part.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::hosts::*;
use kelvin_core::catalogue::load::*;
use kelvin_core::load::LatencySummary;
use kelvin_core::resources::{CpuStats, DiskStats, ServerStats};
use kelvin_core::{Case, Metric, MetricReadings, Name, OverheadReading, PlannedMeasurement, Readings};

use crate::sweep::capacity::{Capacities, Capacity};
use crate::sweep::load_step::StepResult;
use crate::sweep::setup::SweepLoad;
use crate::sweep::usage_delta::UsageDelta;

/// What all sweeps of a study have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StudyConditions {
    pub cache: CacheState,
    pub network: NetworkSetup,
    pub files: u64,
    pub bytes: u64,
}

impl StudyConditions {
    /// What all cases of a pattern have in common.
    pub fn case(&self, pattern: RequestPattern) -> Case {
        let case = Case::new().with_word(pattern).with_word(self.cache).with_word(self.network);
        case.with_number(FILES, self.files).with_number(FILE_BYTES, self.bytes)
    }

    /// The case of a number of users.
    pub fn user_case(&self, load: SweepLoad, users: u64) -> Case {
        self.case(load.pattern).with_number(USERS, users).with_number(THINK_TIME, load.think.as_millis() as u64)
    }
}

pub(crate) fn reading(metric: &Metric, value: f64) -> MetricReadings {
    let overhead = OverheadReading::default();
    MetricReadings {
        metric: metric.id,
        readings: Readings::Scalars(vec![value]),
        overhead,
        notes: Vec::new(),
        counted: None,
    }
}

fn known_readings(figures: &[(&Metric, Option<f64>)]) -> Vec<MetricReadings> {
    figures.iter().filter_map(|(metric, value)| Some(reading(metric, (*value)?))).collect()
}

/// What a number of users got in a visit, and what either end did meanwhile.
pub(crate) fn user_readings(step: &StepResult) -> Vec<MetricReadings> {
    let StepResult { load, server, client, .. } = step;
    let seconds = load.seconds.max(f64::MIN_POSITIVE);
    let time = |times: LatencySummary, figure: fn(&LatencySummary) -> f64| (times.count > 0).then(|| figure(&times));
    let send_delay = load.generator.send_delay.unwrap_or(0.0);
    // Bytes of bodies that arrived: those that were handed to the kernel, less those that the clients' had not acknowledged.
    let sent =
        server.server_mean(|stats| Some(stats.bytes as f64 - stats.unacknowledged as f64)).map(|bytes| bytes * 1e9);
    // The share of what was sent that no disk had to read; none of nothing.
    let cache_hits = sent.filter(|sent| *sent > 0.0).zip(server.disk_read_rate());
    let cache_hits = cache_hits.map(|(sent, read)| (1.0 - read / sent).max(0.0));
    known_readings(&[
        (&THROUGHPUT, Some(step.throughput())),
        (&RATE, Some(step.bytes_per_second())),
        (&RESPONSE, time(load.response, |times| times.mean)),
        (&RESPONSE_P50, time(load.response, |times| times.p50)),
        (&RESPONSE_P95, time(load.response, |times| times.p95)),
        (&RESPONSE_P99, time(load.response, |times| times.p99)),
        (&SERVICE, time(load.service, |times| times.mean).map(|mean| (mean - send_delay).max(0.0))),
        (&IN_FLIGHT, load.in_flight.and_then(|client_in_flight| sampled_in_flight(server, client_in_flight))),
        (&CLIENT_IN_FLIGHT, load.in_flight.map(|in_flight| in_flight - load.rate() * send_delay / 1e9)),
        (&SENT_BYTE_RATE, sent),
        (&DISK_BYTE_RATE, server.disk_read_rate()),
        (&LATENESS, time(load.generator.late, |times| times.p99)),
        (&ERRORS, Some(load.errors.count() as f64 / seconds)),
        (&SERVER_MEMORY, Some(server.end.process.memory as f64)),
        (&CLIENT_MEMORY, Some(client.end.process.memory as f64)),
        (&CACHE_HITS, cache_hits),
        (&ACCEPT_QUEUE, server.edge_mean(|snapshot| Some(f64::from(snapshot.server.as_ref()?.accept_queue.now)))),
        (&NETWORK_IN_FLIGHT, server.share_of_in_flight(network_time)),
        (&WRITTEN_BYTE_RATE, server.write_rate()),
        (&BLOCKED, server.server_mean(|stats| Some(stats.blocked))),
        (&STALLED, Some((load.stalls.seconds / seconds).min(1.0))),
        (&STALLS, Some(load.stalls.count as f64 / seconds)),
    ])
}

/// Requests in flight at the server, where they were sampled often enough that some were to be met: an error of a fifth by chance, of
/// which many visits make one of a few percent.
fn sampled_in_flight(server: &UsageDelta, client_in_flight: f64) -> Option<f64> {
    const MIN_REQUESTS: f64 = 25.0;
    let samples = server.growth(|snapshot| snapshot.server.as_ref().map_or(0.0, |stats| stats.samples as f64));
    server.server_mean(|stats| Some(stats.in_flight)).filter(|_| client_in_flight * samples >= MIN_REQUESTS)
}

/// Time for which an answer was being sent and neither the client's window nor the send buffer kept it: it was up to the network.
pub(crate) fn network_time(stats: &ServerStats) -> f64 {
    stats.sending - stats.window_limited - stats.send_buffer_limited
}

/// The resources whose use is known in a visit, with their readings.
pub(crate) fn resource_readings(step: &StepResult, capacities: &Capacities) -> Vec<(Resource, Vec<MetricReadings>)> {
    let usage_readings = |&resource: &Resource| {
        // The share of the time in which it was used is known of the disk alone.
        let busy = step.server.disk_busy().filter(|_| resource == Resource::Disk);
        let utilisation = (&UTILISATION, resource_use(step, capacities, resource));
        let readings = known_readings(&[utilisation, (&BUSY_TIME, busy)]);
        (!readings.is_empty()).then_some((resource, readings))
    };
    Resource::ALL.iter().filter_map(usage_readings).collect()
}

/// The share of a resource's capacity that was used in a visit.
fn resource_use(step: &StepResult, capacities: &Capacities, resource: Resource) -> Option<f64> {
    let StepResult { load, server, client, .. } = step;
    let capacity = |resource| capacities.get(resource).and_then(|capacity: &Capacity| capacity.bytes);
    match resource {
        Resource::Disk => server.disk_read_rate().zip(capacity(resource)).map(|(bytes, limit)| bytes / limit),
        Resource::DiskRequests => {
            // Those for the server's control group where it has one, else for whomever.
            let reads = server.disk_rate(|disk| disk.reads_of_group.unwrap_or(disk.reads));
            reads.zip(capacities.disk_requests).map(|(reads, limit)| reads / limit)
        }
        Resource::Link => {
            // By the interface's own count where it has one, which has headers and all else that passes; else by the bytes that arrived.
            let interface = capacities.interface.as_deref().zip(capacities.interface_bytes);
            let utilisation = interface.and_then(|(name, limit)| Some(server.link_send_rate(name)? / limit));
            capacity(resource).map(|bytes| utilisation.unwrap_or(step.bytes_per_second() / bytes))
        }
        Resource::ServerCpu => Some(server.busy_cpus() / server.end.cpu.allowed),
        Resource::ServerThread => Some(server.busiest_thread()),
        Resource::Workers => server.server_mean(|stats| Some(stats.held_integral / f64::from(stats.workers?))),
        Resource::ClientCpu => Some(client.busy_cpus() / client.end.cpu.allowed),
        Resource::Generator => load.generator.busy,
        Resource::ClientWindow => server.share_of_in_flight(|stats| stats.window_limited),
    }
}

/// What a resource gives alone.
pub(crate) fn capacity_readings(capacity: &Capacity) -> Vec<MetricReadings> {
    let servers = (&SERVERS, Some(capacity.servers));
    known_readings(&[(&CAPACITY, capacity.requests), (&CAPACITY_BYTES, capacity.bytes), servers])
}

/// Whose a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FigureScope {
    /// The host's.
    Host,
    /// That of a network namespace.
    Network,
    /// That of the process.
    Process,
}

/// A figure: its scope, and its value between two snapshots; `None` where the host does not report it.
type HostFigure = (FigureScope, &'static Metric, fn(&UsageDelta) -> Option<f64>);

static HOST_FIGURES: [HostFigure; 29] = [
    (FigureScope::Host, &CPU_USER, |delta| cpu_share(delta, |cpu| cpu.user)),
    (FigureScope::Host, &CPU_SYSTEM, |delta| cpu_share(delta, |cpu| cpu.system)),
    (FigureScope::Host, &CPU_STEAL, |delta| cpu_share(delta, |cpu| cpu.steal)),
    (FigureScope::Process, &CPU_THROTTLED, throttled_share),
    (FigureScope::Process, &CPU_ALLOWED, allowed_cpu_share),
    (FigureScope::Host, &RUNNABLE_TASKS, |delta| delta.edge_mean(|snapshot| Some(f64::from(snapshot.cpu.running)))),
    (FigureScope::Process, &THREADS_WITHOUT_CPU, run_queue_share),
    (FigureScope::Process, &CONTEXT_SWITCHES, |delta| delta.rate(|snapshot| snapshot.process.switches)),
    (FigureScope::Host, &PRESSURE_CPU, |delta| delta.mean_share(|snapshot| snapshot.pressure.cpu)),
    (FigureScope::Host, &PRESSURE_IO, |delta| delta.mean_share(|snapshot| snapshot.pressure.io)),
    (FigureScope::Host, &PRESSURE_IO_FULL, |delta| delta.mean_share(|snapshot| snapshot.pressure.io_full)),
    (FigureScope::Host, &PRESSURE_MEMORY, |delta| delta.mean_share(|snapshot| snapshot.pressure.memory)),
    (FigureScope::Host, &PRESSURE_MEMORY_FULL, |delta| delta.mean_share(|snapshot| snapshot.pressure.memory_full)),
    (FigureScope::Host, &MEMORY_AVAILABLE, |delta| Some(delta.end.memory.available as f64)),
    (FigureScope::Host, &FILE_CACHE, |delta| Some(delta.end.memory.file_cache as f64)),
    (FigureScope::Host, &MAJOR_FAULTS, |delta| delta.rate(|snapshot| Some(snapshot.memory.major_faults))),
    (FigureScope::Host, &REFAULTS, |delta| delta.rate(|snapshot| snapshot.memory.refaults)),
    (FigureScope::Host, &DISK_READS, |delta| delta.disk_rate(|disk| disk.reads)),
    (FigureScope::Host, &DISK_WRITES, |delta| delta.disk_rate(|disk| disk.writes)),
    (FigureScope::Host, &DISK_READ_SIZE, |delta| mean_size(delta, |disk| disk.read_bytes, |disk| disk.reads)),
    (FigureScope::Host, &DISK_WRITE_SIZE, |delta| mean_size(delta, |disk| disk.written_bytes, |disk| disk.writes)),
    (FigureScope::Host, &DISK_READ_BYTES, |delta| delta.disk_rate(|disk| disk.read_bytes)),
    (FigureScope::Host, &DISK_WRITTEN_BYTES, |delta| delta.disk_rate(|disk| disk.written_bytes)),
    (FigureScope::Network, &RETRANSMITTED_SEGMENTS, retransmit_share),
    (FigureScope::Network, &LISTEN_OVERFLOWS, |delta| {
        Some(delta.growth_with_warm_up(|snapshot| snapshot.tcp.listen_overflows))
    }),
    (FigureScope::Network, &LISTEN_DROPS, |delta| {
        Some(delta.growth_with_warm_up(|snapshot| snapshot.tcp.listen_drops))
    }),
    (FigureScope::Network, &SOCKETS, |delta| delta.end.tcp.sockets.map(|sockets| sockets as f64)),
    (FigureScope::Process, &PROCESSES, |delta| Some(f64::from(delta.end.process.processes))),
    (FigureScope::Process, &THREADS, |delta| Some(f64::from(delta.end.process.threads))),
];

/// The figures of each host in a visit. What both ends have in common is the server's.
pub(crate) fn host_readings(step: &StepResult, network: NetworkSetup) -> [(LoadHost, Vec<MetricReadings>); 2] {
    // Of the client's threads requests wait for the one that sends and reads.
    let generator = step.load.generator.off_cpu.map(|seconds| seconds / step.load.seconds.max(1e-9));
    let hosts = [(LoadHost::Server, &step.server), (LoadHost::Client, &step.client)];
    hosts.map(|(host, delta)| {
        let mut readings = Vec::new();
        for &(scope, metric, value) in &HOST_FIGURES {
            if host == LoadHost::Client && !is_client_owned(scope, network) {
                continue;
            }
            let generator_wait = generator.filter(|_| host == LoadHost::Client && metric.id == THREADS_WITHOUT_CPU.id);
            readings.extend(generator_wait.or_else(|| value(delta)).map(|value| reading(metric, value)));
        }
        (host, readings)
    })
}

/// Whether the client has its own.
fn is_client_owned(scope: FigureScope, network: NetworkSetup) -> bool {
    match scope {
        FigureScope::Host => network == NetworkSetup::Hosts,
        FigureScope::Network => network != NetworkSetup::Loopback,
        FigureScope::Process => true,
    }
}

/// What is reported of each host, by what a visit brought: each visit reports the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReportedMetrics(Vec<(LoadHost, Vec<Name>)>);

impl ReportedMetrics {
    /// By a visit.
    pub fn from_step(step: &StepResult, network: NetworkSetup) -> Self {
        let names = |readings: Vec<MetricReadings>| readings.iter().map(|reading| reading.metric).collect();
        Self(host_readings(step, network).into_iter().map(|(host, readings)| (host, names(readings))).collect())
    }

    /// The hosts of which something is reported.
    pub fn hosts(&self) -> impl Iterator<Item = LoadHost> {
        self.0.iter().map(|(host, _)| *host)
    }

    /// What is planned, without what no host reports.
    pub fn restrict(&self, mut measurement: PlannedMeasurement) -> PlannedMeasurement {
        if let Some((_, reported_metrics)) =
            self.0.iter().find(|(host, _)| LoadHost::of(&measurement.case) == Some(*host))
        {
            measurement.metrics.retain(|metric| reported_metrics.contains(metric));
        }
        measurement
    }
}

/// A part of the CPU time of the host.
fn cpu_share(delta: &UsageDelta, field: fn(&CpuStats) -> f64) -> Option<f64> {
    let total =
        delta.growth(|snapshot| snapshot.cpu.user + snapshot.cpu.system + snapshot.cpu.steal + snapshot.cpu.idle);
    (total > 0.0).then(|| delta.growth(|snapshot| field(&snapshot.cpu)) / total)
}

/// The share of the periods of a quota that it cut short; none are where there is no quota, which is known only where the control group
/// can be seen.
fn throttled_share(delta: &UsageDelta) -> Option<f64> {
    let CpuStats { quota, is_quota_known, .. } = delta.end.cpu;
    let counts = delta.rate(|snapshot| snapshot.cpu.throttled_periods).zip(delta.rate(|snapshot| snapshot.cpu.periods));
    match counts {
        // A quota that was taken away meanwhile has left its counts.
        Some((throttled, periods)) if periods > 0.0 => Some(throttled / periods),
        Some(_) => (quota.is_some() || is_quota_known).then_some(0.0),
        None => (quota.is_none() && is_quota_known).then_some(0.0),
    }
}

/// The share of the time of the CPUs that it may run on in which they did anything.
fn allowed_cpu_share(delta: &UsageDelta) -> Option<f64> {
    let busy = delta.mean_share(|snapshot| snapshot.cpu.allowed_busy)?;
    let total = busy + delta.mean_share(|snapshot| snapshot.cpu.allowed_idle)?;
    (total > 0.0).then(|| busy / total)
}

/// Those that requests wait for: not the one of the server that takes samples.
fn run_queue_share(delta: &UsageDelta) -> Option<f64> {
    let sampling = delta.server_mean(|stats| stats.sampling_without_cpu).unwrap_or(0.0);
    Some((delta.mean_share(|snapshot| snapshot.process.without_cpu)? - sampling).max(0.0))
}

/// The size of a request to a disk; 0 without any.
fn mean_size(delta: &UsageDelta, bytes: fn(&DiskStats) -> u64, requests: fn(&DiskStats) -> u64) -> Option<f64> {
    let requests = delta.disk_rate(requests)?;
    if requests > 0.0 { Some(delta.disk_rate(bytes)? / requests) } else { Some(0.0) }
}

fn retransmit_share(delta: &UsageDelta) -> Option<f64> {
    let [retransmitted, sent] = [
        delta.growth(|snapshot| snapshot.tcp.retransmitted_segments as f64),
        delta.growth(|snapshot| snapshot.tcp.sent_segments as f64),
    ];
    Some(if retransmitted > 0.0 { retransmitted / sent.max(retransmitted) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use kelvin_core::Case;
    use kelvin_core::catalogue::load::hosts::HOST_METRICS;
    use kelvin_core::resources::{MemoryStats, PressureStall, ProcessStats, ResourceSnapshot, TcpStats};

    use super::*;

    /// A host whose counters are all at `times` what they are a second.
    fn usage_sample(times: f64) -> ResourceSnapshot {
        let count = |a_second: f64| (a_second * times) as u64;
        let disk = DiskStats {
            reads: count(10.0),
            read_bytes: count(1e6),
            writes: count(2.0),
            written_bytes: count(8192.0),
            holds_root: true,
            ..DiskStats::default()
        };
        let cpu = CpuStats {
            user: 4e8 * times,
            system: 8e8 * times,
            steal: 2e8 * times,
            idle: 6e8 * times,
            allowed_busy: Some(9e8 * times),
            allowed_idle: Some(1e8 * times),
            quota: Some(0.5),
            throttled_periods: Some(count(9.0)),
            periods: Some(count(10.0)),
            running: count(1.0) as u32,
            ..CpuStats::default()
        };
        let tcp = TcpStats {
            sent_segments: count(1000.0),
            retransmitted_segments: count(20.0),
            listen_overflows: count(3.0),
            listen_drops: count(4.0),
            sockets: Some(27),
        };
        ResourceSnapshot {
            at: 1e9 * times,
            process: ProcessStats {
                without_cpu: Some(5e8 * times),
                switches: Some(count(100.0)),
                threads: 3,
                ..ProcessStats::default()
            },
            cpu,
            disks: vec![disk],
            tcp,
            memory: MemoryStats {
                available: 1 << 30,
                major_faults: count(7.0),
                refaults: Some(count(8.0)),
                ..MemoryStats::default()
            },
            pressure: PressureStall { io: Some(25e7 * times), ..PressureStall::default() },
            ..ResourceSnapshot::default()
        }
    }

    fn usage_delta() -> UsageDelta {
        UsageDelta::between([1.0, 2.0, 4.0].map(usage_sample))
    }

    fn figure(metric: &Metric, delta: &UsageDelta) -> Option<f64> {
        let figure = HOST_FIGURES.iter().find(|figure| figure.1.id == metric.id).unwrap();
        (figure.2)(delta)
    }

    #[test]
    fn every_host_metric_has_a_figure() {
        let figure_ids: Vec<Name> = HOST_FIGURES.iter().map(|figure| figure.1.id).collect();
        let metric_ids: Vec<Name> = HOST_METRICS.iter().map(|metric| metric.id).collect();
        assert_eq!(figure_ids, metric_ids);
    }

    #[test]
    fn counters_become_shares_rates_and_counts() {
        let delta = usage_delta();
        let expected_figures: [(&Metric, f64); 18] = [
            (&CPU_USER, 0.2),
            (&CPU_SYSTEM, 0.4),
            (&CPU_STEAL, 0.1),
            (&CPU_THROTTLED, 0.9),
            (&CPU_ALLOWED, 0.9),
            (&RUNNABLE_TASKS, 3.0),
            (&THREADS_WITHOUT_CPU, 0.5),
            (&CONTEXT_SWITCHES, 100.0),
            (&PRESSURE_IO, 0.25),
            (&MAJOR_FAULTS, 7.0),
            (&REFAULTS, 8.0),
            (&DISK_READS, 10.0),
            (&DISK_READ_SIZE, 1e5),
            (&DISK_WRITE_SIZE, 4096.0),
            (&DISK_WRITTEN_BYTES, 8192.0),
            (&RETRANSMITTED_SEGMENTS, 0.02),
            // With those of the warm-up.
            (&LISTEN_OVERFLOWS, 9.0),
            (&THREADS, 3.0),
        ];
        for (metric, expected) in expected_figures {
            assert_eq!(figure(metric, &delta), Some(expected), "{}", metric.id);
        }
        assert_eq!(figure(&PRESSURE_CPU, &delta), None, "not told is not zero");
    }

    #[test]
    fn sampling_thread_wait_is_not_counted() {
        let sampling = |times: f64| {
            let at = usage_sample(times).at;
            let stats = ServerStats { at, sampling_without_cpu: Some(2e8 * times), ..ServerStats::default() };
            ResourceSnapshot { server: Some(stats), ..usage_sample(times) }
        };
        let wait = figure(&THREADS_WITHOUT_CPU, &UsageDelta::between([1.0, 2.0, 4.0].map(sampling))).unwrap();
        assert!((wait - 0.3).abs() < 1e-9, "{wait}");
    }

    #[test]
    fn figures_are_zero_without_quota_or_reads() {
        let idle = ResourceSnapshot {
            cpu: CpuStats { quota: None, is_quota_known: true, ..usage_sample(1.0).cpu },
            ..usage_sample(1.0)
        };
        let delta = UsageDelta::between([idle.clone(), idle.clone(), ResourceSnapshot { at: 5e9, ..idle }]);
        for metric in [&CPU_THROTTLED, &DISK_READ_SIZE, &RETRANSMITTED_SEGMENTS, &LISTEN_OVERFLOWS] {
            assert_eq!(figure(metric, &delta), Some(0.0), "{}", metric.id);
        }
        assert_eq!(figure(&CPU_USER, &delta), None, "no time has passed on any CPU");
    }

    #[test]
    fn hidden_quota_leaves_throttling_unknown() {
        let hidden_quota = |times: f64| {
            let ResourceSnapshot { cpu, .. } = usage_sample(times);
            let cpu = CpuStats { quota: None, throttled_periods: None, periods: None, is_quota_known: false, ..cpu };
            ResourceSnapshot { cpu, ..usage_sample(times) }
        };
        let visible_quota = |times: f64| ResourceSnapshot {
            cpu: CpuStats { is_quota_known: true, ..hidden_quota(times).cpu },
            ..usage_sample(times)
        };
        assert_eq!(figure(&CPU_THROTTLED, &UsageDelta::between([1.0, 2.0, 4.0].map(hidden_quota))), None);
        assert_eq!(figure(&CPU_THROTTLED, &UsageDelta::between([1.0, 2.0, 4.0].map(visible_quota))), Some(0.0));
    }

    #[test]
    fn client_reports_only_unshared_figures() {
        let is_reported = |metric: &Metric, network| {
            let figure = HOST_FIGURES.iter().find(|figure| figure.1.id == metric.id).unwrap();
            is_client_owned(figure.0, network)
        };
        let networks = [NetworkSetup::Loopback, NetworkSetup::Namespaces, NetworkSetup::Hosts];
        assert_eq!(networks.map(|network| is_reported(&CONTEXT_SWITCHES, network)), [true, true, true]);
        assert_eq!(networks.map(|network| is_reported(&RETRANSMITTED_SEGMENTS, network)), [false, true, true]);
        assert_eq!(networks.map(|network| is_reported(&CPU_STEAL, network)), [false, false, true]);
    }

    #[test]
    fn unreported_metrics_are_not_planned() {
        let reported = ReportedMetrics(vec![(LoadHost::Client, vec![CONTEXT_SWITCHES.id])]);
        let measurement = |host: LoadHost| PlannedMeasurement {
            probe: CPU_USER.id,
            metrics: vec![CPU_USER.id, CONTEXT_SWITCHES.id],
            case: Case::new().with_word(host),
            only_input: false,
        };
        assert_eq!(reported.restrict(measurement(LoadHost::Client)).metrics, [CONTEXT_SWITCHES.id]);
        assert_eq!(reported.restrict(measurement(LoadHost::Server)).metrics, [CPU_USER.id, CONTEXT_SWITCHES.id]);
    }
}
