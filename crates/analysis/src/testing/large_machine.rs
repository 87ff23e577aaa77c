//! Runs of machines of many CPUs, by formulas: a server of two sockets and eight nodes, and a laptop of three kinds of cores.

use kelvin_core::catalogue::mem::{self, MemoryNodes};
use kelvin_core::catalogue::os::{self, KernelService, TaskKind, WORKING_CPUS};
use kelvin_core::catalogue::{cpu, file};
use kelvin_core::{
    CacheInstances, CacheKind, Case, CoreKind, CoreLocation, Fact, Metric, Name, NumaNode, Run, SharedLevel,
    SkipReason, Topology,
};

use super::{add_scalars, guest};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Nodes of the server, half of them in each socket.
const NODES: u32 = 8;
/// Cores that share a last-level cache of the server.
const CACHE_CORES: u32 = 4;
/// The pair of nodes of the server that is not measured.
pub const SKIPPED_NODES: (u32, u32) = (2, 5);
/// CPUs of the server whose pairs are measured: those that the probe selects of 128 where the last one is measured.
pub const PAIRED_CPUS: [u32; 24] =
    [0, 2, 4, 8, 12, 16, 20, 24, 28, 31, 32, 34, 36, 40, 44, 48, 52, 56, 60, 63, 94, 95, 126, 127];

fn known<T>(value: T) -> Fact<T> {
    Fact::known(value, "a made-up machine")
}

/// A server of two sockets and eight nodes with this many last-level caches of four cores in each node. The threads of core n are CPUs n and
/// n + the number of cores.
pub fn server_topology(caches_per_node: u32) -> Topology {
    let node_cores = caches_per_node * CACHE_CORES;
    let cores = NODES * node_cores;
    let cpus = |first: u32, count: u32| -> Vec<u32> {
        (0..2).flat_map(|thread| (first..first + count).map(move |core| core + thread * cores)).collect()
    };
    let caches = |level, bytes, shared_cores: u32| CacheInstances {
        level,
        kind: CacheKind::Unified,
        bytes,
        ways: None,
        line_bytes: Some(64),
        shared_by: (0..cores).step_by(shared_cores as usize).map(|first| cpus(first, shared_cores)).collect(),
    };
    let location = |core| CoreLocation { cpus: cpus(core, 1), socket: Some(2 * core / cores), die: Some(0) };
    let node = |id| NumaNode {
        id,
        cpus: cpus(id * node_cores, node_cores),
        bytes: Some(64 * GIB),
        distances: (0..NODES).map(|other| node_distance(id, other)).collect(),
    };
    let mut topology = Topology {
        online: known((0..2 * cores).collect()),
        offline: known(Vec::new()),
        isolated: known(Vec::new()),
        allowed: known((0..2 * cores).collect()),
        sockets: known(2),
        cores: known(cores),
        siblings: known((0..2 * cores).map(|cpu| cpus(cpu % cores, 1)).collect()),
        core_locations: known((0..cores).map(location).collect()),
        core_kinds: known(Vec::new()),
        cache_instances: known(vec![caches(2, MIB / 2, 1), caches(3, 16 * MIB, CACHE_CORES)]),
        nodes: known((0..NODES).map(node).collect()),
        ..Topology::default()
    };
    topology.caches = topology.caches_of(2 * cores - 1);
    topology
}

fn node_distance(from: u32, to: u32) -> u32 {
    match () {
        () if from == to => 10,
        () if is_one_socket(from, to) => 12,
        () => 32,
    }
}

fn is_one_socket(from: u32, to: u32) -> bool {
    from / (NODES / 2) == to / (NODES / 2)
}

/// A laptop of four cores of two threads, eight smaller ones in two clusters, and two of low power beside their last-level cache.
pub fn hybrid_topology() -> Topology {
    let pairs = (0..4).map(|core| vec![2 * core, 2 * core + 1]);
    let cores: Vec<Vec<u32>> = pairs.chain((8..18).map(|cpu| vec![cpu])).collect();
    let clusters = vec![(8..12).collect(), (12..16).collect(), vec![16, 17]];
    let caches = |level, bytes, shared_by| CacheInstances {
        level,
        kind: CacheKind::Unified,
        bytes,
        ways: None,
        line_bytes: Some(64),
        shared_by,
    };
    let kind = |name: &str, cpus: std::ops::Range<u32>, hertz| CoreKind {
        name: name.to_owned(),
        cpus: cpus.collect(),
        maximum_hz: Some(hertz),
        capacity: None,
    };
    let mut topology = Topology {
        online: known((0..18).collect()),
        offline: known(Vec::new()),
        isolated: known(Vec::new()),
        allowed: known((0..18).collect()),
        sockets: known(1),
        cores: known(cores.len() as u32),
        siblings: known((0..18).map(|cpu| if cpu < 8 { vec![cpu & !1, cpu | 1] } else { vec![cpu] }).collect()),
        core_locations: known(
            cores.iter().map(|cpus| CoreLocation { cpus: cpus.clone(), socket: Some(0), die: Some(0) }).collect(),
        ),
        core_kinds: known(vec![
            kind("P-core", 0..8, 5.0e9),
            kind("E-core", 8..16, 3.8e9),
            kind("LP E-core", 16..18, 2.5e9),
        ]),
        cache_instances: known(vec![
            caches(2, 2 * MIB, cores[..4].iter().cloned().chain(clusters).collect()),
            caches(3, 24 * MIB, vec![(0..16).collect()]),
        ]),
        nodes: known(vec![NumaNode { id: 0, cpus: (0..18).collect(), bytes: Some(32 * GIB), distances: vec![10] }]),
        ..Topology::default()
    };
    topology.caches = topology.caches_of(7);
    topology
}

/// The run of the server with 128 CPUs.
pub fn server_run() -> Run {
    let topology = server_topology(2);
    let mut run = bare_metal_run("AMD EPYC 7542 32-Core Processor", 127, topology);
    add_core_pairs(&mut run, &PAIRED_CPUS);
    add_nodes(&mut run);
    add_memory_scaling(&mut run, MemoryNodes::All, 128, SharedRate { one: 22e9, all: 320e9 });
    add_memory_scaling(&mut run, MemoryNodes::One, 16, SharedRate { one: 22e9, all: 40e9 });
    add_services(&mut run, 64, 128);
    add_jobs(&mut run, 64, SharedRate { one: 120e3, all: 530e3 });
    run
}

/// The run of the laptop.
pub fn hybrid_run() -> Run {
    let mut run = bare_metal_run("Intel(R) Core(TM) Ultra 9 185H", 7, hybrid_topology());
    // Of a CPU of each kind: frequency, and in nanoseconds a call, a switch and a load from memory.
    let kinds = [(7, 4.9e9, 62.0, 820.0, 98.0), (15, 3.7e9, 88.0, 1240.0, 112.0), (17, 2.5e9, 131.0, 1900.0, 141.0)];
    for (kind, (number, hertz, call, switch, load)) in kinds.into_iter().enumerate() {
        let case = || Case::new().with_number(cpu::CORE_KIND, kind as u64).with_number(cpu::ON_CPU, number);
        measure(&mut run, &cpu::CORE_FREQUENCY, case(), hertz);
        measure(&mut run, &cpu::CORE_CALL, case(), call);
        measure(&mut run, &cpu::CORE_SWITCH, case(), switch);
        measure(&mut run, &cpu::CORE_LOAD, case(), load);
    }
    let cpus: Vec<u32> = (0..18).collect();
    add_core_pairs(&mut run, &cpus);
    add_memory_scaling(&mut run, MemoryNodes::All, 18, SharedRate { one: 31e9, all: 82e9 });
    add_services(&mut run, 14, 18);
    run
}

/// The run of the guest on another machine, without its memory and network.
fn bare_metal_run(model: &str, measured_cpu: u32, topology: Topology) -> Run {
    let mut run = guest::guest_run();
    let is_kept = |probe: Name| !["mem.", "net."].iter().any(|area| probe.starts_with(area));
    run.measurements.retain(|measurement| is_kept(measurement.planned.probe));
    run.header.hazards.clear();
    let machine = &mut run.header.machine;
    machine.cpu.model_name = known(model.to_owned());
    machine.cpu.number = Some(measured_cpu);
    machine.platform.hypervisor = known(None);
    machine.memory.total_bytes = known(topology.nodes.get().into_iter().flatten().filter_map(|node| node.bytes).sum());
    machine.topology = topology;
    run.header.settings.cpu = measured_cpu;
    run
}

/// A measurement of a metric that the run defines from then on.
fn measure(run: &mut Run, metric: &Metric, case: Case, value: f64) {
    define(run, metric);
    guest::measure(run, metric, case, value);
}

fn define(run: &mut Run, metric: &Metric) {
    if !run.header.metrics.contains(metric) {
        run.header.metrics.push(*metric);
    }
}

/// Nanoseconds of a line between two CPUs of this distance.
pub fn line_nanoseconds(level: SharedLevel) -> f64 {
    match level {
        SharedLevel::Core => 8.0,
        SharedLevel::Cache(2) => 17.0,
        SharedLevel::Cache(_) => 24.0,
        SharedLevel::Die | SharedLevel::Node => 88.0,
        SharedLevel::Socket => 104.0,
        SharedLevel::Machine => 210.0,
    }
}

/// All pairs of these CPUs, the lower number first; pairs of a distance differ by up to a tenth.
fn add_core_pairs(run: &mut Run, cpus: &[u32]) {
    let topology = run.header.machine.topology.clone();
    for (index, &from) in cpus.iter().enumerate() {
        for &to in &cpus[index + 1..] {
            let level = topology.shared_level(from, to).expect("a machine of known sockets");
            let share = 1.0 + 0.01 * f64::from((7 * from + 3 * to) % 11);
            let case = Case::new().with_number(mem::FROM_CPU, from.into()).with_number(mem::TO_CPU, to.into());
            measure(run, &mem::CORE_TO_CORE, case, share * line_nanoseconds(level));
        }
    }
}

/// Latency and bandwidth from each node to each: 115 ns and 21 GB/s at home, 128 ns and 19 GB/s in a socket, 240 ns and 11 GB/s between them.
fn add_nodes(run: &mut Run) {
    for (from, to) in (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to))) {
        let (latency, rate) = match () {
            () if from == to => (115.0, 21e9),
            () if is_one_socket(from, to) => (128.0, 19e9),
            () => (240.0, 11e9),
        };
        let case = Case::new().with_number(mem::FROM_NODE, from.into()).with_number(mem::TO_NODE, to.into());
        let case = case.with_number(mem::BYTES, 64 * MIB);
        for (metric, value) in [(&mem::NODE_LATENCY, latency), (&mem::NODE_BANDWIDTH, rate)] {
            if (from, to) != SKIPPED_NODES {
                measure(run, metric, case.clone(), value);
                continue;
            }
            define(run, metric);
            add_scalars(run, metric, case.clone(), &[]);
            let reason = format!("needs memory of node {to}, which this process cannot allocate");
            run.measurements.last_mut().expect("one was added").skipped = Some(SkipReason::new(reason));
        }
    }
    // On all nodes alike: one here, three in this socket, four in the other.
    for from in 0..NODES {
        let case = Case::new().with_number(mem::FROM_NODE, from.into()).with_number(mem::BYTES, 64 * MIB);
        measure(run, &mem::INTERLEAVED_LATENCY, case.clone(), (115.0 + 3.0 * 128.0 + 4.0 * 240.0) / 8.0);
        measure(run, &mem::INTERLEAVED_BANDWIDTH, case, 8.0 / (1.0 / 21e9 + 3.0 / 19e9 + 4.0 / 11e9));
    }
}

/// Powers of two up to all CPUs, and all.
fn cpu_counts(cpus: u64) -> Vec<u64> {
    let mut counts: Vec<u64> = (0..).map(|power| 1 << power).take_while(|&count| count < cpus).collect();
    counts.push(cpus);
    counts
}

/// Amounts per second of one CPU or job, and of all that they share.
#[derive(Clone, Copy)]
struct SharedRate {
    one: f64,
    all: f64,
}

impl SharedRate {
    /// The rate of this many: theirs while what they share has more, then that of what they share, with a knee between.
    fn of_count(self, count: f64) -> f64 {
        const SHARPNESS: f64 = 6.0;
        let wanted = self.one * count;
        wanted / (1.0 + (wanted / self.all).powf(SHARPNESS)).powf(1.0 / SHARPNESS)
    }
}

fn add_memory_scaling(run: &mut Run, nodes: MemoryNodes, cpus: u64, rates: SharedRate) {
    let operations = [
        (&mem::SCALING_READ, 1.0),
        (&mem::SCALING_WRITE, 0.55),
        (&mem::SCALING_COPY, 0.8),
        (&mem::SCALING_TRIAD, 0.86),
    ];
    for count in cpu_counts(cpus) {
        let case = Case::new().with_word(nodes).with_number(mem::BYTES, 16 * MIB * cpus);
        for (metric, share) in operations {
            measure(run, metric, case.clone().with_number(WORKING_CPUS, count), share * rates.of_count(count as f64));
        }
        // A line of 64 bytes for each CPU.
        let latency = 115.0 + 64e9 * (count - 1) as f64 / rates.all;
        measure(run, &mem::SCALING_LATENCY, case.with_number(WORKING_CPUS, count), latency);
    }
}

/// How many times as much processes do of a kernel service as threads of one process, where either reaches the end.
const PROCESS_GAIN: f64 = 10.0;

/// Kernel services in threads on 1, 2, 4 ... all CPUs, and in processes on all. All threads of a process do no more than some of them, by
/// service; a second thread of a core adds a quarter.
fn add_services(run: &mut Run, cores: u64, cpus: u64) {
    for &service in KernelService::ALL {
        let (rate, most_threads) = match service {
            KernelService::NullCall => (18e6, f64::INFINITY),
            KernelService::ForkExitWait => (9e3, 20.0),
            KernelService::MmapMunmap => (350e3, 2.0),
            KernelService::PageFault => (1.6e6, 45.0),
            KernelService::CreateUnlink => (60e3, 9.0),
            KernelService::FutexWake => (11e6, f64::INFINITY),
            KernelService::ConnectAccept => (45e3, 60.0),
        };
        let threads = cpu_counts(cpus).into_iter().map(|count| (TaskKind::Threads, count, most_threads));
        for (kind, count, most) in threads.chain([(TaskKind::Processes, cpus, PROCESS_GAIN * most_threads)]) {
            let effective = count as f64 - 0.75 * count.saturating_sub(cores) as f64;
            let total = SharedRate { one: rate, all: most * rate }.of_count(effective);
            let case = Case::new().with_word(service).with_word(kind).with_number(WORKING_CPUS, count);
            measure(run, &os::SCALING_RATE, case.clone(), total);
            measure(run, &os::SCALING_EFFICIENCY, case, total / (rate * count as f64));
        }
    }
}

/// Random reads of the disk by 1, 2, 4 ... jobs.
fn add_jobs(run: &mut Run, jobs: u64, rates: SharedRate) {
    for count in cpu_counts(jobs) {
        let case = Case::new().with_number(file::JOBS, count).with_number(file::QUEUE_DEPTH, file::JOBS_DEPTH);
        measure(run, &file::JOBS_IOPS, case.clone(), rates.of_count(count as f64));
        measure(run, &file::JOBS_CPU, case, 3_100.0);
    }
}
