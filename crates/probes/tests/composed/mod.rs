//! A composed machine, a small Zen 5 server, so that results do not depend on the machine that runs the tests.

use kelvin_core::{
    Cache, CacheKind, Cpu, Fact, Kernel, Limits, Machine, Memory, Mitigation, Name, NumaNode, Platform, Tlb, Topology,
};

const SOURCE: &str = "composed";

fn known<T>(value: T) -> Fact<T> {
    Fact::known(value, SOURCE)
}

fn text(value: &str) -> Fact<String> {
    known(value.to_owned())
}

fn unknown<T>() -> Fact<T> {
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
            product: text("Composed"),
            hypervisor: known(None),
            container: known(None),
            ..Platform::default()
        },
        limits: Limits {
            cpu_quota: known(None),
            memory_bytes: known(None),
            processes: known(None),
            open_files: known(1024),
            cgroup_version: known(2),
        },
    }
}

fn cpu() -> Cpu {
    let flags = "fpu tsc msr cx8 sse sse2 ht syscall nx rdtscp lm constant_tsc nonstop_tsc erms fsrm avx2 avx512f";
    Cpu {
        vendor: text("AuthenticAMD"),
        model_name: text("AMD EPYC 9B45"),
        family: known(0x1a),
        model: known(0x02),
        stepping: known(1),
        microarchitecture: text("Zen 5"),
        microcode: text("0xb002147"),
        nominal_hz: known(2.6e9),
        maximum_hz: known(4.1e9),
        measured_hz: known(4.0e9),
        counter_hz: known(2.6e9),
        flags: known(flags.split(' ').map(str::to_owned).collect()),
        tlbs: known(vec![
            Tlb { level: 1, kind: CacheKind::Data, page_bytes: 4096, entries: 96, ways: 0 },
            Tlb { level: 2, kind: CacheKind::Unified, page_bytes: 4096, entries: 4096, ways: 16 },
        ]),
        governor: text("performance"),
        mitigations: known(vec![Mitigation {
            vulnerability: "spectre_v2".into(),
            status: "Mitigation: Enhanced / Automatic IBRS; STIBP: always-on".into(),
        }]),
    }
}

fn topology() -> Topology {
    let all: Vec<u32> = (0..8).collect();
    let cache = |level, kind, bytes, shared_by: &[u32]| Cache {
        level,
        kind,
        bytes,
        ways: Some(16),
        line_bytes: Some(64),
        shared_by: shared_by.to_vec(),
    };
    Topology {
        online: known(all.clone()),
        allowed: known(all.clone()),
        sockets: known(1),
        cores: known(4),
        siblings: known(all.iter().map(|&cpu| vec![cpu & !1, cpu | 1]).collect()),
        caches: known(vec![
            cache(1, CacheKind::Data, 48 << 10, &[0, 1]),
            cache(1, CacheKind::Instruction, 32 << 10, &[0, 1]),
            cache(2, CacheKind::Unified, 1 << 20, &[0, 1]),
            cache(3, CacheKind::Unified, 32 << 20, &all),
        ]),
        nodes: known(vec![NumaNode { id: 0, cpus: all, bytes: Some(16 << 30), distances: vec![10] }]),
    }
}

fn memory() -> Memory {
    Memory {
        total_bytes: known(16 << 30),
        available_bytes: known(12 << 30),
        swap_bytes: known(0),
        page_bytes: known(4096),
        huge_page_bytes: known(vec![2 << 20, 1 << 30]),
        transparent_huge_pages: text("madvise"),
        kind: unknown(),
        transfers_per_second: unknown(),
        channels: unknown(),
        peak_bytes_per_second: unknown(),
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
        timer_hz: known(250),
        scheduler: text("EEVDF"),
        congestion_control: text("cubic"),
        clock_source: text("tsc"),
    }
}
