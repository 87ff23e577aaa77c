//! A composed machine, a small Zen 5 server, so that results do not depend on the machine that runs the tests.

use kelvin_core::{
    Cache, CacheInstances, CacheKind, CoreLocation, Cpu, Fact, Kernel, Limits, Machine, Memory, Mitigation, Name,
    NumaNode, Platform, Tlb, Topology,
};

const SOURCE: &str = "composed";

fn known_fact<T>(value: T) -> Fact<T> {
    Fact::known(value, SOURCE)
}

fn text(value: &str) -> Fact<String> {
    known_fact(value.to_owned())
}

fn unknown_fact<T>() -> Fact<T> {
    Fact::unknown("left out of the composed machine")
}

/// Four cores with two threads each, one socket, one node, 16 GiB, bare metal, no limits.
pub fn machine() -> Machine {
    Machine {
        identity: "0000composed0000".into(),
        architecture: Name::new("x86_64"),
        cpu: cpu(),
        topology: topology(),
        memory: memory(),
        disks: Vec::new(),
        mounts: Vec::new(),
        nics: Vec::new(),
        kernel: kernel(),
        platform: Platform {
            bios: Fact::default(),
            product: text("Composed"),
            hypervisor: known_fact(None),
            container: known_fact(None),
            ..Platform::default()
        },
        limits: Limits {
            cpu_quota: known_fact(None),
            memory_bytes: known_fact(None),
            processes: known_fact(None),
            open_files: known_fact(1024),
            cgroup_version: known_fact(2),
        },
    }
}

/// Two sockets of 64 cores with two threads each, 256 CPUs whose numbers alternate between the sockets, four nodes of a socket, an L3 cache
/// for eight cores, 1 TiB, bare metal, no limits.
#[allow(dead_code, reason = "not every test program needs it")]
pub fn large_machine() -> Machine {
    const CORES: u32 = 128;
    let mut machine = machine();
    let core_cpus = |core: u32| vec![core, core + CORES];
    let group_cpus = |cores: &mut dyn Iterator<Item = u32>| {
        let mut cpus: Vec<u32> = cores.flat_map(core_cpus).collect();
        cpus.sort_unstable();
        cpus
    };
    // Cores of a part of this many on a socket: the socket is the number's last bit.
    let part_cpus = |part: u32, part_cores: u32| {
        let (socket, first) = (part % 2, part / 2 * part_cores);
        group_cpus(&mut (first..first + part_cores).map(|core| 2 * core + socket))
    };
    let instances = |level, kind, bytes, part_cores: u32| CacheInstances {
        level,
        kind,
        bytes,
        ways: Some(16),
        line_bytes: Some(64),
        shared_by: (0..CORES / part_cores).map(|part| part_cpus(part, part_cores)).collect(),
    };
    let location = |core| CoreLocation { cpus: core_cpus(core), socket: Some(core % 2), die: Some(0) };
    let distance = |a: u32, b: u32| {
        if a == b {
            10
        } else if a / 4 == b / 4 {
            12
        } else {
            32
        }
    };
    let node = |id: u32| NumaNode {
        id,
        cpus: part_cpus(id % 4 * 2 + id / 4, 16),
        bytes: Some(128 << 30),
        distances: (0..8).map(|other| distance(id, other)).collect(),
    };
    let cpus: Vec<u32> = (0..2 * CORES).collect();
    machine.cpu.number = Some(2 * CORES - 1);
    machine.topology = Topology {
        online: known_fact(cpus.clone()),
        allowed: known_fact(cpus.clone()),
        sockets: known_fact(2),
        cores: known_fact(CORES),
        siblings: known_fact(cpus.iter().map(|cpu| core_cpus(cpu % CORES)).collect()),
        core_locations: known_fact((0..CORES).map(location).collect()),
        core_kinds: known_fact(Vec::new()),
        cache_instances: known_fact(vec![
            instances(1, CacheKind::Data, 48 << 10, 1),
            instances(1, CacheKind::Instruction, 32 << 10, 1),
            instances(2, CacheKind::Unified, 1 << 20, 1),
            instances(3, CacheKind::Unified, 32 << 20, 8),
        ]),
        nodes: known_fact((0..8).map(node).collect()),
        ..Default::default()
    };
    machine.topology.caches = machine.topology.caches_of(2 * CORES - 1);
    machine.memory.total_bytes = known_fact(1 << 40);
    machine.memory.available_bytes = known_fact(1000 << 30);
    machine
}

fn cpu() -> Cpu {
    let flags = "fpu tsc msr cx8 sse sse2 ht syscall nx rdtscp lm constant_tsc nonstop_tsc erms fsrm avx2 avx512f";
    Cpu {
        vendor: text("AuthenticAMD"),
        model_name: text("AMD EPYC 9B45"),
        family: known_fact(0x1a),
        model: known_fact(0x02),
        stepping: known_fact(1),
        microarchitecture: text("Zen 5"),
        microcode: text("0xb002147"),
        nominal_hz: known_fact(2.6e9),
        maximum_hz: known_fact(4.1e9),
        measured_hz: known_fact(4.0e9),
        counter_hz: known_fact(2.6e9),
        flags: known_fact(flags.split(' ').map(str::to_owned).collect()),
        tlbs: known_fact(vec![
            Tlb { level: 1, kind: CacheKind::Data, page_bytes: 4096, entries: 96, ways: 0 },
            Tlb { level: 2, kind: CacheKind::Unified, page_bytes: 4096, entries: 4096, ways: 16 },
        ]),
        governor: text("performance"),
        mitigations: known_fact(vec![Mitigation {
            vulnerability: "spectre_v2".into(),
            status: "Mitigation: Enhanced / Automatic IBRS; STIBP: always-on".into(),
        }]),
        ..Default::default()
    }
}

fn topology() -> Topology {
    let cpus: Vec<u32> = (0..8).collect();
    let cache = |level, kind, bytes, shared_by: &[u32]| Cache {
        level,
        kind,
        bytes,
        ways: Some(16),
        line_bytes: Some(64),
        shared_by: shared_by.to_vec(),
    };
    Topology {
        online: known_fact(cpus.clone()),
        allowed: known_fact(cpus.clone()),
        sockets: known_fact(1),
        cores: known_fact(4),
        siblings: known_fact(cpus.iter().map(|&cpu| vec![cpu & !1, cpu | 1]).collect()),
        caches: known_fact(vec![
            cache(1, CacheKind::Data, 48 << 10, &[0, 1]),
            cache(1, CacheKind::Instruction, 32 << 10, &[0, 1]),
            cache(2, CacheKind::Unified, 1 << 20, &[0, 1]),
            cache(3, CacheKind::Unified, 32 << 20, &cpus),
        ]),
        nodes: known_fact(vec![NumaNode { id: 0, cpus, bytes: Some(16 << 30), distances: vec![10] }]),
        ..Default::default()
    }
}

fn memory() -> Memory {
    Memory {
        total_bytes: known_fact(16 << 30),
        available_bytes: known_fact(12 << 30),
        swap_bytes: known_fact(0),
        page_bytes: known_fact(4096),
        huge_page_bytes: known_fact(vec![2 << 20, 1 << 30]),
        transparent_huge_pages: text("madvise"),
        kind: unknown_fact(),
        transfers_per_second: unknown_fact(),
        modules: Fact::default(),
        channels: unknown_fact(),
        peak_bytes_per_second: unknown_fact(),
    }
}

fn kernel() -> Kernel {
    Kernel {
        release: text("6.12.0"),
        version: text("#1 SMP PREEMPT_DYNAMIC"),
        distribution: text("Debian GNU/Linux 12 (bookworm)"),
        libc: text("glibc 2.36"),
        command_line: text("quiet"),
        omitted_boot_parameters: None,
        preemption: text("voluntary"),
        timer_hz: known_fact(250),
        scheduler: text("EEVDF"),
        congestion_control: text("cubic"),
        clock_source: text("tsc"),
    }
}
