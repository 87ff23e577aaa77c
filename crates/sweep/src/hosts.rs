//! What either host, and the process on it that takes part, did in a visit, as readings.

use kelvin_catalogue::load::Between;
use kelvin_catalogue::load::hosts::{
    CPU_ALLOWED, CPU_STEAL, CPU_SYSTEM, CPU_THROTTLED, CPU_USER, DISK_READ_BYTES, DISK_READ_SIZE, DISK_READS,
    DISK_WRITE_SIZE, DISK_WRITES, DISK_WRITTEN_BYTES, FILE_CACHE, Host, LISTEN_DROPS, LISTEN_OVERFLOWS, MAJOR_FAULTS,
    MEMORY_AVAILABLE, PRESSURE_CPU, PRESSURE_IO, PRESSURE_IO_FULL, PRESSURE_MEMORY, PRESSURE_MEMORY_FULL, PROCESSES,
    REFAULTS, RETRANSMITTED, RUNNABLE, SOCKETS, SWITCHES, THREADS, WITHOUT_CPU,
};
use kelvin_model::resources::{Cpu, Look};
use kelvin_model::{Metric, Name, Planned, Reading};

use crate::figures::reading;
use crate::used::Used;
use crate::visit::Visited;

/// Whose a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The host's.
    Host,
    /// That of a network namespace.
    Network,
    /// That of the process.
    Process,
}

/// A figure: whose it is, and what it is between two looks; `None` where the host does not tell.
struct Figure {
    metric: &'static Metric,
    whose: Whose,
    of: fn(&Used) -> Option<f64>,
}

const fn host(metric: &'static Metric, of: fn(&Used) -> Option<f64>) -> Figure {
    Figure { metric, whose: Whose::Host, of }
}

const fn network(metric: &'static Metric, of: fn(&Used) -> Option<f64>) -> Figure {
    Figure { metric, whose: Whose::Network, of }
}

const fn process(metric: &'static Metric, of: fn(&Used) -> Option<f64>) -> Figure {
    Figure { metric, whose: Whose::Process, of }
}

static FIGURES: [Figure; 29] = [
    host(&CPU_USER, |used| share_of_cpus(used, |cpu| cpu.user)),
    host(&CPU_SYSTEM, |used| share_of_cpus(used, |cpu| cpu.system)),
    host(&CPU_STEAL, |used| share_of_cpus(used, |cpu| cpu.steal)),
    process(&CPU_THROTTLED, throttled),
    process(&CPU_ALLOWED, allowed),
    host(&RUNNABLE, |used| Some(used.of_edges(|look| f64::from(look.cpu.running)))),
    process(&WITHOUT_CPU, without_cpu),
    process(&SWITCHES, switches),
    host(&PRESSURE_CPU, |used| used.mean(|look| look.pressure.cpu)),
    host(&PRESSURE_IO, |used| used.mean(|look| look.pressure.io)),
    host(&PRESSURE_IO_FULL, |used| used.mean(|look| look.pressure.io_full)),
    host(&PRESSURE_MEMORY, |used| used.mean(|look| look.pressure.memory)),
    host(&PRESSURE_MEMORY_FULL, |used| used.mean(|look| look.pressure.memory_full)),
    host(&MEMORY_AVAILABLE, |used| Some(used.end().memory.available as f64)),
    host(&FILE_CACHE, |used| Some(used.end().memory.file_cache as f64)),
    host(&MAJOR_FAULTS, |used| Some(used.a_second(|look| look.memory.major_faults as f64))),
    host(&REFAULTS, refaults),
    host(&DISK_READS, |used| Some(used.disk()?.reads)),
    host(&DISK_WRITES, |used| Some(used.disk()?.writes)),
    host(&DISK_READ_SIZE, |used| used.disk().map(|disk| mean(disk.read_bytes, disk.reads))),
    host(&DISK_WRITE_SIZE, |used| used.disk().map(|disk| mean(disk.written_bytes, disk.writes))),
    host(&DISK_READ_BYTES, |used| Some(used.disk()?.read_bytes)),
    host(&DISK_WRITTEN_BYTES, |used| Some(used.disk()?.written_bytes)),
    network(&RETRANSMITTED, retransmitted),
    network(&LISTEN_OVERFLOWS, |used| Some(used.with_warm_up(|look| look.tcp.listen_overflows))),
    network(&LISTEN_DROPS, |used| Some(used.with_warm_up(|look| look.tcp.listen_drops))),
    network(&SOCKETS, |used| used.end().tcp.sockets.map(|sockets| sockets as f64)),
    process(&PROCESSES, |used| Some(f64::from(used.end().process.processes))),
    process(&THREADS, |used| Some(f64::from(used.end().process.threads))),
];

/// The figures of each host in a visit. What both ends have in common is the server's.
pub(crate) fn of_hosts(visited: &Visited, between: Between) -> Vec<(Host, Vec<Reading>)> {
    // Of the client's threads requests wait for the one that sends and reads.
    let generator = visited.load.generator.without_cpu.map(|seconds| seconds / visited.load.seconds.max(1e-9));
    let of = |(host, used): (Host, &Used)| {
        let its = FIGURES.iter().filter(|figure| host == Host::Server || is_apart(figure.whose, between));
        let value = |figure: &Figure| match (host, figure.metric.id == WITHOUT_CPU.id) {
            (Host::Client, true) => generator.or_else(|| (figure.of)(used)),
            _ => (figure.of)(used),
        };
        (host, its.filter_map(|figure| Some(reading(figure.metric, value(figure)?))).collect())
    };
    [(Host::Server, &visited.server), (Host::Client, &visited.client)].into_iter().map(of).collect()
}

/// Whether the client has its own.
fn is_apart(whose: Whose, between: Between) -> bool {
    match whose {
        Whose::Host => between == Between::Hosts,
        Whose::Network => between != Between::Loopback,
        Whose::Process => true,
    }
}

/// What is told of each host, by what a visit brought: the same in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Vec<(Host, Vec<Name>)>);

impl Told {
    /// By a visit.
    pub fn of(visited: &Visited, between: Between) -> Self {
        let names = |readings: Vec<Reading>| readings.iter().map(|reading| reading.metric).collect();
        Self(of_hosts(visited, between).into_iter().map(|(host, readings)| (host, names(readings))).collect())
    }

    /// The hosts of which something is told.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        self.0.iter().map(|(host, _)| *host)
    }

    /// What is planned, without what no host tells.
    pub fn plan(&self, mut planned: Planned) -> Planned {
        if let Some((_, told)) = self.0.iter().find(|(host, _)| Host::of(&planned.case) == Some(*host)) {
            planned.metrics.retain(|metric| told.contains(metric));
        }
        planned
    }
}

/// A part of the CPU time of the host.
fn share_of_cpus(used: &Used, of: fn(&Cpu) -> f64) -> Option<f64> {
    let all = used.since(|look| look.cpu.user + look.cpu.system + look.cpu.steal + look.cpu.idle);
    (all > 0.0).then(|| used.since(|look| of(&look.cpu)) / all)
}

/// The share of the periods of a quota that it cut short; none are where there is no quota, which is known only where the control group
/// can be seen.
fn throttled(used: &Used) -> Option<f64> {
    let Cpu { quota, is_quota_known, throttled_periods, periods, .. } = used.end().cpu;
    let (Some(_), Some(_)) = (throttled_periods, periods) else {
        return (quota.is_none() && is_quota_known).then_some(0.0);
    };
    let since = |of: fn(&Cpu) -> Option<u64>| used.since(|look| of(&look.cpu).unwrap_or_default() as f64);
    let all = since(|cpu| cpu.periods);
    // A quota that was taken away meanwhile has left its counts.
    let share = (all > 0.0).then(|| since(|cpu| cpu.throttled_periods) / all);
    share.or((quota.is_some() || is_quota_known).then_some(0.0))
}

/// The share of the time of the CPUs that it may run on in which they did anything.
fn allowed(used: &Used) -> Option<f64> {
    let Cpu { allowed_busy, allowed_idle, .. } = used.end().cpu;
    let since = |of: fn(&Cpu) -> Option<f64>| used.since(|look| of(&look.cpu).unwrap_or_default());
    let busy = allowed_busy.map(|_| since(|cpu| cpu.allowed_busy))?;
    let all = busy + allowed_idle.map(|_| since(|cpu| cpu.allowed_idle))?;
    (all > 0.0).then(|| busy / all)
}

/// Those that requests wait for: not the one of the server that takes samples.
fn without_cpu(used: &Used) -> Option<f64> {
    let sampling = used.server().and_then(|own| own.sampling_without_cpu).unwrap_or(0.0);
    Some((used.mean(|look| look.process.without_cpu)? - sampling).max(0.0))
}

fn refaults(used: &Used) -> Option<f64> {
    let of = |look: &Look| look.memory.refaults;
    of(used.end())?;
    Some(used.a_second(|look| of(look).unwrap_or_default() as f64))
}

/// A second.
fn switches(used: &Used) -> Option<f64> {
    let of = |look: &Look| look.process.switches;
    of(used.end())?;
    Some(used.a_second(|look| of(look).unwrap_or_default() as f64))
}

/// The size of one of so many; nothing without any.
fn mean(bytes: f64, requests: f64) -> f64 {
    if requests > 0.0 { bytes / requests } else { 0.0 }
}

fn retransmitted(used: &Used) -> Option<f64> {
    let [again, sent] =
        [used.since(|look| look.tcp.retransmitted_segments as f64), used.since(|look| look.tcp.sent_segments as f64)];
    Some(if again > 0.0 { again / sent.max(again) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::load::hosts::OF_HOSTS;
    use kelvin_model::Case;
    use kelvin_model::resources::{Disk, Memory, Pressure, Process, Served, Tcp};

    use super::*;

    /// A host whose counters are all at `times` what they are a second.
    fn look(times: f64) -> Look {
        let count = |a_second: f64| (a_second * times) as u64;
        let disk = Disk {
            reads: count(10.0),
            read_bytes: count(1e6),
            writes: count(2.0),
            written_bytes: count(8192.0),
            holds_root: true,
            ..Disk::default()
        };
        let cpu = Cpu {
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
            ..Cpu::default()
        };
        let tcp = Tcp {
            sent_segments: count(1000.0),
            retransmitted_segments: count(20.0),
            listen_overflows: count(3.0),
            listen_drops: count(4.0),
            sockets: Some(27),
        };
        Look {
            at: 1e9 * times,
            process: Process {
                without_cpu: Some(5e8 * times),
                switches: Some(count(100.0)),
                threads: 3,
                ..Process::default()
            },
            cpu,
            disks: vec![disk],
            tcp,
            memory: Memory {
                available: 1 << 30,
                major_faults: count(7.0),
                refaults: Some(count(8.0)),
                ..Memory::default()
            },
            pressure: Pressure { io: Some(25e7 * times), ..Pressure::default() },
            ..Look::default()
        }
    }

    fn used() -> Used {
        Used::between([1.0, 2.0, 4.0].map(look))
    }

    fn figure(metric: &Metric, used: &Used) -> Option<f64> {
        let figure = FIGURES.iter().find(|figure| figure.metric.id == metric.id).unwrap();
        (figure.of)(used)
    }

    #[test]
    fn every_metric_of_a_host_has_its_figure() {
        let own: Vec<Name> = FIGURES.iter().map(|figure| figure.metric.id).collect();
        let all: Vec<Name> = OF_HOSTS.iter().map(|metric| metric.id).collect();
        assert_eq!(own, all);
    }

    #[test]
    fn counters_become_shares_rates_and_counts() {
        let used = used();
        let known: [(&Metric, f64); 18] = [
            (&CPU_USER, 0.2),
            (&CPU_SYSTEM, 0.4),
            (&CPU_STEAL, 0.1),
            (&CPU_THROTTLED, 0.9),
            (&CPU_ALLOWED, 0.9),
            (&RUNNABLE, 3.0),
            (&WITHOUT_CPU, 0.5),
            (&SWITCHES, 100.0),
            (&PRESSURE_IO, 0.25),
            (&MAJOR_FAULTS, 7.0),
            (&REFAULTS, 8.0),
            (&DISK_READS, 10.0),
            (&DISK_READ_SIZE, 1e5),
            (&DISK_WRITE_SIZE, 4096.0),
            (&DISK_WRITTEN_BYTES, 8192.0),
            (&RETRANSMITTED, 0.02),
            // With those of the warm-up.
            (&LISTEN_OVERFLOWS, 9.0),
            (&THREADS, 3.0),
        ];
        for (metric, expected) in known {
            assert_eq!(figure(metric, &used), Some(expected), "{}", metric.id);
        }
        assert_eq!(figure(&PRESSURE_CPU, &used), None, "not told is not zero");
    }

    #[test]
    fn the_thread_that_takes_samples_waits_for_a_cpu_for_no_request() {
        let sampling = |times: f64| {
            let served = Served { sampling_without_cpu: Some(2e8 * times), ..Served::default() };
            Look { served: Some(served), ..look(times) }
        };
        let waited = figure(&WITHOUT_CPU, &Used::between([1.0, 2.0, 4.0].map(sampling))).unwrap();
        assert!((waited - 0.3).abs() < 1e-9, "{waited}");
    }

    #[test]
    fn nothing_is_throttled_without_a_quota_and_nothing_is_read_without_a_read() {
        let still = Look { cpu: Cpu { quota: None, is_quota_known: true, ..look(1.0).cpu }, ..look(1.0) };
        let used = Used::between([still.clone(), still.clone(), Look { at: 5e9, ..still }]);
        for metric in [&CPU_THROTTLED, &DISK_READ_SIZE, &RETRANSMITTED, &LISTEN_OVERFLOWS] {
            assert_eq!(figure(metric, &used), Some(0.0), "{}", metric.id);
        }
        assert_eq!(figure(&CPU_USER, &used), None, "no time has passed on any CPU");
    }

    #[test]
    fn throttling_by_a_quota_that_cannot_be_seen_is_not_known() {
        let hidden = |times: f64| {
            let Look { cpu, .. } = look(times);
            let cpu = Cpu { quota: None, throttled_periods: None, periods: None, is_quota_known: false, ..cpu };
            Look { cpu, ..look(times) }
        };
        let seen = |times: f64| Look { cpu: Cpu { is_quota_known: true, ..hidden(times).cpu }, ..look(times) };
        assert_eq!(figure(&CPU_THROTTLED, &Used::between([1.0, 2.0, 4.0].map(hidden))), None);
        assert_eq!(figure(&CPU_THROTTLED, &Used::between([1.0, 2.0, 4.0].map(seen))), Some(0.0));
    }

    #[test]
    fn a_client_has_of_its_own_what_it_does_not_share_with_the_server() {
        let of = |metric: &Metric, between| {
            let figure = FIGURES.iter().find(|figure| figure.metric.id == metric.id).unwrap();
            is_apart(figure.whose, between)
        };
        let all = [Between::Loopback, Between::Namespaces, Between::Hosts];
        assert_eq!(all.map(|between| of(&SWITCHES, between)), [true, true, true]);
        assert_eq!(all.map(|between| of(&RETRANSMITTED, between)), [false, true, true]);
        assert_eq!(all.map(|between| of(&CPU_STEAL, between)), [false, false, true]);
    }

    #[test]
    fn what_no_host_tells_is_not_planned() {
        let told = Told(vec![(Host::Client, vec![SWITCHES.id])]);
        let planned = |host: Host| Planned {
            probe: CPU_USER.id,
            metrics: vec![CPU_USER.id, SWITCHES.id],
            case: Case::new().at(host),
            only_input: false,
        };
        assert_eq!(told.plan(planned(Host::Client)).metrics, [SWITCHES.id]);
        assert_eq!(told.plan(planned(Host::Server)).metrics, [CPU_USER.id, SWITCHES.id]);
    }
}
