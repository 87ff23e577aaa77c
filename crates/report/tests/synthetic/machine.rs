//! A made-up virtual machine.

use kelvin_core::*;

fn known_fact<T>(value: T) -> Fact<T> {
    Fact::known(value, "/proc/cpuinfo")
}

fn unknown_fact<T>() -> Fact<T> {
    Fact::unknown("the hypervisor does not say")
}

/// A virtual machine of two CPUs of one core.
pub fn machine() -> Machine {
    Machine {
        identity: "9f2c51d0a7e43b18".into(),
        architecture: "x86_64".into(),
        cpu: cpu(),
        topology: topology(),
        memory: memory(),
        disks: vec![disk()],
        mounts: vec![Mount {
            target: "/".into(),
            source: "/dev/vda1".into(),
            kind: "ext4".into(),
            options: "rw,relatime".into(),
        }],
        nics: vec![Nic {
            name: "eth0".into(),
            driver: Fact::known("virtio_net".into(), "/sys/class/net/eth0/device/driver"),
            bits_per_second: Fact::unknown("virtio states no speed"),
            line_rate: Fact::unknown("virtio states no speed"),
            mtu: Fact::known(1500, "/sys/class/net/eth0/mtu"),
            state: Fact::known("up".into(), "/sys/class/net/eth0/operstate"),
            offloads: Fact::unknown("not asked for"),
        }],
        kernel: kernel(),
        platform: Platform {
            bios: Fact::default(),
            product: Fact::known("QEMU Standard PC (Q35)".into(), "/sys/class/dmi/id"),
            hypervisor: Fact::known(Some("KVM".into()), "cpuid 4000_0000h"),
            container: Fact::known(None, "/proc/1/cgroup"),
            chassis: Fact::unknown("a test"),
            host: Fact::default(),
        },
        limits: Limits {
            cpu_quota: Fact::known(None, "/sys/fs/cgroup/cpu.max"),
            memory_bytes: Fact::known(None, "/sys/fs/cgroup/memory.max"),
            processes: Fact::known(Some(15_234), "/sys/fs/cgroup/pids.max"),
            open_files: Fact::known(1_048_576, "getrlimit"),
            cgroup_version: Fact::known(2, "/proc/mounts"),
        },
    }
}

fn cpu() -> Cpu {
    Cpu {
        vendor: known_fact("AuthenticAMD".into()),
        model_name: known_fact("AMD EPYC 9B45 64-Core Processor".into()),
        family: known_fact(26),
        model: known_fact(2),
        stepping: known_fact(1),
        microarchitecture: Fact::known("Zen 5".into(), "family 26, model 2"),
        microcode: known_fact("0xffffffff".into()),
        nominal_hz: unknown_fact(),
        maximum_hz: unknown_fact(),
        measured_hz: Fact::known(4.05e9, "chain of dependent adds"),
        counter_hz: Fact::known(2.7e9, "cpuid 15h"),
        flags: known_fact(vec!["avx2".into(), "avx512f".into(), "erms".into(), "fsrm".into()]),
        tlbs: known_fact(vec![
            Tlb { level: 1, kind: CacheKind::Data, page_bytes: 4096, entries: 96, ways: 0 },
            Tlb { level: 2, kind: CacheKind::Data, page_bytes: 4096, entries: 4096, ways: 16 },
        ]),
        governor: Fact::unknown("no cpufreq in /sys: the hypervisor sets the frequency"),
        mitigations: known_fact(vec![
            Mitigation { vulnerability: "spectre_v1".into(), status: "Mitigation: usercopy/swapgs barriers".into() },
            Mitigation { vulnerability: "spectre_v2".into(), status: "Mitigation: Enhanced IBRS; IBPB".into() },
        ]),
        ..Default::default()
    }
}

fn topology() -> Topology {
    let cache =
        |level, kind, bytes| Cache { level, kind, bytes, ways: Some(8), line_bytes: Some(64), shared_by: vec![0, 1] };
    Topology {
        online: known_fact(vec![0, 1]),
        allowed: known_fact(vec![0, 1]),
        sockets: known_fact(1),
        cores: known_fact(1),
        siblings: known_fact(vec![vec![0, 1], vec![0, 1]]),
        caches: known_fact(vec![
            cache(1, CacheKind::Data, 48 << 10),
            cache(2, CacheKind::Unified, 1 << 20),
            cache(3, CacheKind::Unified, 32 << 20),
        ]),
        nodes: known_fact(vec![NumaNode { id: 0, cpus: vec![0, 1], bytes: Some(8 << 30), distances: vec![10] }]),
        ..Default::default()
    }
}

fn memory() -> Memory {
    Memory {
        total_bytes: Fact::known(8_323_072 << 10, "/proc/meminfo"),
        available_bytes: Fact::known(6_100_000 << 10, "/proc/meminfo"),
        swap_bytes: Fact::known(0, "/proc/meminfo"),
        page_bytes: Fact::known(4096, "sysconf"),
        huge_page_bytes: Fact::known(vec![2 << 20, 1 << 30], "/sys/kernel/mm/hugepages"),
        transparent_huge_pages: Fact::known("madvise".into(), "/sys/kernel/mm/transparent_hugepage/enabled"),
        kind: Fact::unknown("/sys/firmware/dmi/tables/DMI needs root"),
        transfers_per_second: Fact::unknown("/sys/firmware/dmi/tables/DMI needs root"),
        modules: Fact::default(),
        channels: Fact::unknown("/sys/firmware/dmi/tables/DMI needs root"),
        peak_bytes_per_second: Fact::unknown("type and channels of the memory are not known"),
    }
}

fn disk() -> BlockDevice {
    BlockDevice {
        name: "vda".into(),
        model: unknown_fact(),
        bytes: Fact::known(270_582_939_648, "/sys/block/vda/size"),
        link: unknown_fact(),
        scheduler: Fact::known("none".into(), "/sys/block/vda/queue/scheduler"),
        queues: Fact::known(2, "/sys/block/vda/mq"),
        queue_depth: Fact::known(256, "/sys/block/vda/queue/nr_requests"),
        write_cache: Fact::known("write back".into(), "/sys/block/vda/queue/write_cache"),
        rotational: Fact::known(true, "/sys/block/vda/queue/rotational"),
        logical_block_bytes: Fact::known(512, "/sys/block/vda/queue/logical_block_size"),
    }
}

fn kernel() -> Kernel {
    Kernel {
        release: Fact::known("6.18.44".into(), "uname"),
        version: Fact::known("#1 SMP PREEMPT_DYNAMIC".into(), "uname"),
        distribution: Fact::known("Debian GNU/Linux 12 (bookworm)".into(), "/etc/os-release"),
        libc: Fact::known("glibc 2.36".into(), "gnu_get_libc_version"),
        omitted_boot_parameters: None,
        command_line: Fact::known("BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro console=ttyS0".into(), "/proc/cmdline"),
        preemption: Fact::known("dynamic (voluntary)".into(), "/sys/kernel/debug/sched/preempt"),
        timer_hz: Fact::unknown("/boot/config-6.18.44 is not readable"),
        scheduler: Fact::known("EEVDF".into(), "release 6.6 or later"),
        congestion_control: Fact::known("cubic".into(), "/proc/sys/net/ipv4/tcp_congestion_control"),
        clock_source: Fact::known("tsc".into(), "/sys/devices/system/clocksource"),
    }
}
