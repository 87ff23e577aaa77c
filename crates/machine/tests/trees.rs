//! Facts and hazards of recorded and composed machines, exactly.

mod support;

use std::fmt::Debug;
use std::path::Path;

use kelvin_core::{Bios, CacheKind, Fact, Hazard, Machine, ModuleGroup, Severity, Tlb};
use kelvin_machine::{FileCacheBound, file_cache, hazards, read, read_for_cpu};
use support::RecordedTree;

/// All recorded or composed machines: the first two are guests, on a Zen 5 and on an Intel server core.
const TREES: [&str; 6] = ["x86-64-vm", "x86-64-vm-masked", "x86-64-server", "aarch64-server", "container", "cgroup-v1"];

/// Asserts a fact's value, and that it names its source.
#[track_caller]
fn assert_known<T: Debug + PartialEq>(fact: &Fact<T>, value: impl Into<T>) {
    let value = value.into();
    assert_eq!(fact.get(), Some(&value), "{}", fact.source_or_reason());
    assert!(!fact.source_or_reason().is_empty());
}

/// Asserts that a fact is unknown, for a reason with these words.
#[track_caller]
fn assert_unknown<T: Debug>(fact: &Fact<T>, words: &str) {
    assert!(fact.get().is_none() && fact.source_or_reason().contains(words), "{fact:?}");
}

fn hazards_of(tree: &RecordedTree, machine: &Machine, scratch: &str) -> Vec<Hazard> {
    let hazards = hazards(tree.root(), machine, Path::new(scratch));
    for hazard in &hazards {
        assert!(!hazard.summary.is_empty() && !hazard.effect.is_empty() && !hazard.source.is_empty(), "{hazard:?}");
    }
    assert!(hazards.is_sorted_by_key(|hazard| std::cmp::Reverse(hazard.severity)));
    hazards
}

/// Ids and severities, in alphabetical order.
fn ids(hazards: &[Hazard]) -> Vec<(&str, Severity)> {
    let mut ids: Vec<_> = hazards.iter().map(|hazard| (hazard.id.as_str(), hazard.severity)).collect();
    ids.sort();
    ids
}

#[track_caller]
fn summary<'h>(hazards: &'h [Hazard], id: &str) -> &'h str {
    &hazards.iter().find(|hazard| hazard.id == *id).unwrap_or_else(|| panic!("no {id} in {hazards:?}")).summary
}

#[test]
fn virtual_machine_tree_is_read() {
    let tree = RecordedTree::load("x86-64-vm");
    let machine = read(tree.root());
    assert_eq!(machine.architecture, "x86_64");
    assert_known(&machine.cpu.vendor, "AuthenticAMD");
    assert_known(&machine.cpu.model_name, "AMD EPYC");
    assert_known(&machine.cpu.family, 26_u32);
    assert_known(&machine.cpu.microarchitecture, "Zen 5");
    assert_known(&machine.cpu.nominal_hz, 2_596_122_000.0);
    assert_known(&machine.cpu.counter_hz, 2_596_122_000.0);
    assert_unknown(&machine.cpu.maximum_hz, "no cpufreq driver");
    assert_unknown(&machine.cpu.governor, "there is no /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor:");
    assert_unknown(&machine.cpu.measured_hz, "not measured");
    let tlbs = machine.cpu.tlbs.get().unwrap();
    assert_eq!(machine.cpu.tlbs.source_or_reason(), "cpuid, as the hypervisor presents it");
    assert_eq!(tlbs[0], Tlb { level: 1, kind: CacheKind::Data, page_bytes: 4096, entries: 96, ways: 0 });
    assert_eq!(tlbs.len(), 8);
    assert_eq!(machine.cpu.mitigations.get().unwrap().len(), 19);
    assert_known(&machine.topology.online, [0, 1]);
    assert_known(&machine.topology.cores, 2_u32);
    assert_known(&machine.topology.sockets, 1_u32);
    let caches = machine.topology.caches.get().unwrap();
    let sizes: Vec<_> = caches.iter().map(|cache| (cache.level, cache.bytes, cache.ways)).collect();
    assert_eq!(
        sizes,
        [(1, 48 << 10, Some(12)), (1, 32 << 10, Some(8)), (2, 1 << 20, Some(16)), (3, 32 << 20, Some(16))]
    );
    assert_eq!(caches[3].shared_by, [0, 1]);
    assert_known(&machine.memory.total_bytes, 24_684_092_u64 << 10);
    assert_known(&machine.memory.huge_page_bytes, [2 << 20, 1 << 30]);
    assert_known(&machine.memory.page_bytes, 4096_u64);
    assert_unknown(&machine.memory.channels, "/sys/firmware/dmi/tables/DMI");
    assert_eq!(machine.disks.len(), 1);
    assert_known(&machine.disks[0].bytes, 274_877_906_944_u64);
    assert_known(&machine.disks[0].link, "virtio");
    assert_known(&machine.disks[0].scheduler, "mq-deadline");
    assert_known(&machine.disks[0].rotational, true);
    assert_unknown(&machine.disks[0].model, "/sys/block/vda/device/model");
    let mounts: Vec<_> = machine.mounts.iter().map(|mount| (mount.target.as_str(), mount.kind.as_str())).collect();
    assert_eq!(mounts, [("/", "ext4"), ("/dev/shm", "tmpfs")]);
    let eth0 = &machine.nics[0];
    assert_known(&eth0.driver, "virtio_net");
    assert_known(&eth0.mtu, 1400_u32);
    assert_unknown(&eth0.bits_per_second, "states no speed");
    assert_unknown(&eth0.line_rate, "states no speed");
    assert_known(&eth0.offloads, ["tx-checksum", "rx-checksum", "tso", "mergeable-rx-buffers"].map(String::from));
    assert_known(&machine.kernel.release, "6.18.44-fc-v657");
    assert_known(&machine.kernel.distribution, "Debian GNU/Linux 12 (bookworm)");
    assert_known(&machine.kernel.scheduler, "EEVDF");
    assert_known(&machine.kernel.congestion_control, "bbr");
    assert_known(&machine.kernel.clock_source, "tsc");
    assert_known(&machine.platform.hypervisor, Some("KVM".into()));
    assert_known(&machine.platform.container, None);
    assert_known(&machine.limits.cpu_quota, None);
    assert_known(&machine.limits.processes, Some(96_365));
    assert_known(&machine.limits.open_files, 20_000_u64);
    assert_known(&machine.limits.cgroup_version, 1_u32);

    let hazards = hazards_of(&tree, &machine, "/dev/shm/kelvin");
    assert_eq!(
        ids(&hazards),
        [
            ("idle_states", Severity::Note),
            ("mitigations", Severity::Note),
            ("no_cpufreq", Severity::Note),
            ("page_reporting", Severity::Warning),
            ("pressure_cpu", Severity::Warning),
            ("proactive_reclaim", Severity::Warning),
            ("scratch_in_memory", Severity::Serious),
            ("steal", Severity::Note),
            ("unknown_facts", Severity::Note),
            ("virtual_machine", Severity::Warning),
        ]
    );
    assert_eq!(summary(&hazards, "mitigations"), "mitigations in force: retpolines, guarded returns");
    assert_eq!(summary(&hazards, "unknown_facts"), "unknown: the peak memory bandwidth");
    let page_reporting = hazards.iter().find(|hazard| hazard.id == "page_reporting").unwrap();
    assert!(page_reporting.is_affecting("mem.fault.minor") && !page_reporting.is_affecting("mem.latency"));
}

/// A server core that the hypervisor masks as another one: every source is reported as it is, and nothing is inferred.
#[test]
fn masked_processor_tree_is_read() {
    let tree = RecordedTree::load("x86-64-vm-masked");
    let machine = read(tree.root());
    assert_known(&machine.cpu.vendor, "GenuineIntel");
    assert_known(&machine.cpu.model_name, "Intel(R) Xeon(R) Processor");
    assert_known(&machine.cpu.model, 167_u32);
    // No desktop processor of that number has these.
    let flags = machine.cpu.flags.get().unwrap();
    assert!(
        ["amx_tile", "amx_bf16", "amx_int8", "avx512_fp16"]
            .iter()
            .all(|flag| flags.iter().any(|cpu_flag| cpu_flag == flag))
    );
    assert_known(&machine.cpu.nominal_hz, 2.6e9);
    assert_unknown(&machine.cpu.maximum_hz, "no cpuid leaf 16h");
    // The model that it states is a claim, and what contradicts it is reported with it.
    assert_known(&machine.cpu.microarchitecture, "Rocket Lake");
    let source = machine.cpu.microarchitecture.source_or_reason();
    assert!(source.contains("; contradicted by the flag amx_tile, as only Sapphire Rapids, "), "{source}");
    assert_unknown(&machine.cpu.counter_hz, "cpuid leaf 15h is absent or empty");
    // Leaf 2 refers to leaf 18h, which is empty.
    assert_unknown(&machine.cpu.tlbs, "cpuid leaf 2, 18h (Intel)");
    let caches = machine.topology.caches.get().unwrap();
    let sizes: Vec<_> = caches.iter().map(|cache| (cache.level, cache.bytes, cache.ways)).collect();
    assert_eq!(
        sizes,
        [(1, 48 << 10, Some(12)), (1, 64 << 10, Some(16)), (2, 2 << 20, Some(16)), (3, 480 << 20, Some(16))]
    );
    assert_known(&machine.topology.cores, 2_u32);
    assert_known(&machine.platform.hypervisor, Some("KVM".into()));
    assert_known(&machine.limits.memory_bytes, None);
    assert_known(&machine.limits.cpu_quota, None);
    // With another identity later runs of this machine would not match earlier ones.
    assert_eq!(machine.identity, "13140d84a56c7592f8bd748792c0e7b6");

    let hazards = hazards_of(&tree, &machine, "/tmp");
    assert_eq!(
        ids(&hazards),
        [
            ("idle_states", Severity::Note),
            ("load", Severity::Warning),
            ("mitigations", Severity::Note),
            ("no_cpufreq", Severity::Note),
            ("page_reporting", Severity::Warning),
            ("proactive_reclaim", Severity::Warning),
            ("steal", Severity::Note),
            ("unknown_facts", Severity::Note),
            ("virtual_machine", Severity::Warning),
        ]
    );
    assert_eq!(summary(&hazards, "mitigations"), "mitigations in force: retpolines");
}

#[test]
fn two_socket_server_tree_is_read() {
    let tree = RecordedTree::load("x86-64-server");
    let machine = read_for_cpu(tree.root(), Some(0));
    assert_known(&machine.cpu.microarchitecture, "Ice Lake-SP");
    assert_known(&machine.cpu.nominal_hz, 2e9);
    assert_eq!(machine.cpu.nominal_hz.source_or_reason(), "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    assert_known(&machine.cpu.maximum_hz, 3.2e9);
    assert_known(&machine.cpu.counter_hz, 2e9);
    assert_eq!(machine.cpu.counter_hz.source_or_reason(), "cpuid leaf 15h");
    assert_known(&machine.cpu.governor, "powersave");
    let tlbs = machine.cpu.tlbs.get().unwrap();
    assert!(tlbs.contains(&Tlb { level: 2, kind: CacheKind::Unified, page_bytes: 4096, entries: 1024, ways: 8 }));
    assert!(tlbs.contains(&Tlb { level: 1, kind: CacheKind::Data, page_bytes: 4096, entries: 64, ways: 4 }));
    assert_eq!(machine.cpu.tlbs.source_or_reason(), "cpuid");
    assert_known(&machine.topology.sockets, 2_u32);
    assert_known(&machine.topology.cores, 4_u32);
    assert_eq!(machine.topology.siblings.get().unwrap()[5], [1, 5]);
    let nodes = machine.topology.nodes.get().unwrap();
    assert_eq!((nodes[1].cpus.as_slice(), nodes[1].distances.as_slice()), (&[2, 3, 6, 7][..], &[20, 10][..]));
    assert_eq!(nodes[1].bytes, Some(65_921_052 << 10));
    assert_known(&machine.memory.kind, "DDR4");
    let modules = ModuleGroup { count: 4, bytes: 32 << 30, transfers_per_second: Some(3.2e9) };
    assert_known(&machine.memory.modules, [modules]);
    assert_known(&machine.memory.channels, 4_u32);
    assert_known(&machine.memory.transfers_per_second, 3.2e9);
    assert_known(&machine.memory.peak_bytes_per_second, 102.4e9);
    assert_known(&machine.memory.transparent_huge_pages, "always");
    let disks: Vec<_> = machine.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(disks, ["nvme0n1", "sda"]);
    assert_known(&machine.disks[0].link, "NVMe, 16.0 GT/s PCIe x4");
    assert_known(&machine.disks[0].model, "SAMSUNG MZQL21T9HCJR-00A07");
    assert_known(&machine.disks[0].queues, 8_u32);
    assert_known(&machine.disks[1].link, "SATA, 6.0 Gbps");
    assert_known(&machine.disks[1].rotational, true);
    assert_eq!(machine.mounts[1].target, "/srv/data one");
    assert_eq!(machine.nics.len(), 1, "bonding_masters is not an interface");
    assert_known(&machine.nics[0].bits_per_second, 25e9);
    assert_known(&machine.nics[0].line_rate, 25e9);
    assert_known(&machine.nics[0].driver, "mlx5_core");
    assert_known(&machine.kernel.preemption, "dynamic (voluntary)");
    assert_known(&machine.kernel.timer_hz, 250_u32);
    assert_known(&machine.kernel.scheduler, "CFS");
    assert_known(&machine.platform.product, "Dell Inc. PowerEdge R750");
    assert_known(&machine.platform.chassis, kelvin_core::Chassis::Server);
    let bios =
        Bios { vendor: Some("Dell Inc.".into()), version: Some("1.13.2".into()), date: Some("2023-12-19".into()) };
    assert_known(&machine.platform.bios, bios);
    assert_known(&machine.platform.hypervisor, None);
    assert_known(&machine.platform.container, None);
    assert_known(&machine.limits.cpu_quota, None);
    assert_known(&machine.limits.processes, Some(33_792));
    assert_known(&machine.limits.cgroup_version, 2_u32);

    let hazards = hazards_of(&tree, &machine, "/srv/data one/x");
    assert_eq!(
        ids(&hazards),
        [
            ("block_io_limit", Severity::Serious),
            ("boost", Severity::Warning),
            ("governor", Severity::Warning),
            ("idle_states", Severity::Note),
            ("mitigations", Severity::Note),
            ("numa_balancing", Severity::Warning),
            ("smt", Severity::Note),
            ("thermal_throttling", Severity::Note),
            ("transparent_huge_pages", Severity::Warning),
        ]
    );
    assert_eq!(summary(&hazards, "smt"), "CPU 0 shares its core with CPU 4");
    assert_eq!(summary(&hazards, "idle_states"), "an idle CPU may enter C6, with an exit latency of 170 us");
    assert!(summary(&hazards, "thermal_throttling").contains("24 times"));

    let limit = hazards.iter().find(|hazard| hazard.id == "block_io_limit").unwrap();
    let expected = "the control group limits block I/O: nvme0n1 writes 104.9 MB/s, 8:0 reads 120 per second";
    assert_eq!(limit.summary, expected);
    let remedy = limit.remedy.as_deref().unwrap();
    assert!(limit.remedy_is_command);
    let file = "/sys/fs/cgroup/user.slice/user-1000.slice/io.max";
    assert_eq!(remedy, format!("echo '259:0 wbps=max' | sudo tee {file}; echo '8:0 riops=max' | sudo tee {file}"));
    assert_eq!(limit.source, file);
    assert!(limit.is_affecting("file.seqrand") && !limit.is_affecting("mem.latency"));

    let plan = kelvin_machine::tune::plan_changes(tree.root());
    let required = plan.iter().filter(|change| !change.optional).count();
    assert_eq!((required, plan.len()), (8 + 4, 8 + 4 + 2), "{plan:?}");
}

#[test]
fn arm_server_tree_is_read() {
    let tree = RecordedTree::load("aarch64-server");
    let machine = read(tree.root());
    assert_eq!(machine.architecture, "aarch64");
    assert_known(&machine.cpu.vendor, "ARM");
    assert_known(&machine.cpu.model_name, "AWS Graviton3");
    assert_known(&machine.cpu.model, 0xd40_u32);
    assert_known(&machine.cpu.stepping, 1_u32);
    assert_known(&machine.cpu.microarchitecture, "Neoverse V1");
    assert!(machine.cpu.flags.get().unwrap().contains(&"sve".into()));
    assert_unknown(&machine.cpu.microcode, "no line 'microcode'");
    assert_unknown(&machine.cpu.nominal_hz, "no base_frequency");
    assert_unknown(&machine.cpu.counter_hz, "only be read on the running machine");
    assert_unknown(&machine.cpu.tlbs, "no cpuid");
    assert_known(&machine.topology.cores, 4_u32);
    assert_known(&machine.memory.page_bytes, 4096_u64);
    assert_known(&machine.memory.huge_page_bytes, [64 << 10, 2 << 20, 32 << 20, 1 << 30]);
    assert_known(&machine.kernel.clock_source, "arch_sys_counter");
    assert_known(&machine.kernel.preemption, "none or voluntary");
    assert_unknown(&machine.kernel.timer_hz, "/boot/config-6.1.94-99.176.amzn2023.aarch64");
    assert_known(&machine.platform.product, "Amazon EC2 c7g.xlarge");
    assert_known(&machine.platform.hypervisor, Some("KVM (Nitro)".into()));
    assert_known(&machine.limits.processes, None);
    assert_known(&machine.disks[0].model, "Amazon Elastic Block Store");

    let hazards = hazards_of(&tree, &machine, "/tmp");
    assert_eq!(
        ids(&hazards),
        [
            ("idle_states", Severity::Note),
            ("mitigations", Severity::Note),
            ("no_cpufreq", Severity::Note),
            ("unknown_facts", Severity::Note),
            ("virtual_machine", Severity::Warning),
        ]
    );
    assert_eq!(summary(&hazards, "unknown_facts"), "unknown: the nominal frequency, the peak memory bandwidth");
}

#[test]
fn limited_container_tree_is_read() {
    let tree = RecordedTree::load("container");
    let machine = read_for_cpu(tree.root(), Some(2));
    assert_known(&machine.cpu.microarchitecture, "Zen 3");
    assert_known(&machine.cpu.nominal_hz, 1.9e9);
    assert_known(&machine.cpu.maximum_hz, 4_505_078_000.0);
    assert_unknown(&machine.cpu.counter_hz, "the recorded tree has no cpuid");
    assert_known(&machine.topology.allowed, [2, 3]);
    assert_known(&machine.platform.container, Some("docker".into()));
    assert_known(&machine.platform.hypervisor, None);
    assert_known(&machine.limits.cpu_quota, Some(1.5));
    assert_eq!(machine.limits.cpu_quota.source_or_reason(), "/sys/fs/cgroup/cpu.max");
    assert_known(&machine.limits.memory_bytes, Some(512 << 20));
    assert_known(&machine.limits.processes, Some(100));
    assert_known(&machine.kernel.libc, "musl 1.2.5-r0");
    assert_known(&machine.kernel.preemption, "dynamic (full)");
    assert_known(&machine.kernel.scheduler, "sched_ext (lavd)");
    assert_known(&machine.nics[0].driver, "veth");
    assert_unknown(&machine.nics[0].line_rate, "has no device");

    let hazards = hazards_of(&tree, &machine, "/tmp");
    assert_eq!(
        ids(&hazards),
        [
            ("battery", Severity::Serious),
            ("boost", Severity::Warning),
            ("clock_source", Severity::Warning),
            ("cpu_quota", Severity::Warning),
            ("cpuset", Severity::Note),
            ("governor", Severity::Warning),
            ("load", Severity::Warning),
            ("memory_limit", Severity::Note),
            ("memory_pressure", Severity::Warning),
            ("pressure_cpu", Severity::Serious),
            ("pressure_io", Severity::Warning),
            ("pressure_memory", Severity::Warning),
            ("scratch_layered", Severity::Warning),
            ("smt", Severity::Note),
            ("swap", Severity::Warning),
            ("unknown_facts", Severity::Note),
        ]
    );
    assert_eq!(summary(&hazards, "cpuset"), "this process may use only 2 of 8 CPUs: 2-3");
    assert_eq!(summary(&hazards, "cpu_quota"), "the control group has a quota of 1.5 CPUs of 2 allowed CPUs");
    assert_eq!(summary(&hazards, "smt"), "CPU 2 shares its core with CPU 3");
    let clock = hazards.iter().find(|hazard| hazard.id == "clock_source").unwrap();
    assert!(clock.remedy.as_deref().unwrap().starts_with("echo tsc | sudo tee"));
}

#[test]
fn nested_v1_limits_are_read() {
    let tree = RecordedTree::load("cgroup-v1");
    let machine = read(tree.root());
    assert_known(&machine.cpu.microarchitecture, "Cascade Lake");
    assert_known(&machine.cpu.nominal_hz, 3e9);
    assert_known(&machine.topology.sockets, 2_u32);
    assert_eq!(machine.topology.sockets.source_or_reason(), "/proc/cpuinfo");
    assert_unknown(&machine.topology.caches, "states no cache sizes");
    assert_unknown(&machine.topology.nodes, "without NUMA");
    assert_known(&machine.kernel.release, "4.18.0-513.el8.x86_64");
    assert_known(&machine.platform.hypervisor, Some("VMware".into()));
    assert_known(&machine.limits.cgroup_version, 1_u32);
    assert_known(&machine.limits.cpu_quota, Some(0.5));
    assert_eq!(machine.limits.cpu_quota.source_or_reason(), "/sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us");
    assert_known(&machine.limits.memory_bytes, Some(256 << 20));
    assert_known(&machine.limits.processes, Some(15_592));
    assert_unknown(&machine.cpu.mitigations, "vulnerabilities");

    let hazards = hazards_of(&tree, &machine, "/home/somebody/x");
    assert_eq!(
        ids(&hazards),
        [
            ("block_io_limit", Severity::Serious),
            ("clock_source", Severity::Warning),
            ("cpu_quota", Severity::Serious),
            ("idle_states", Severity::Note),
            ("load", Severity::Warning),
            ("memory_limit", Severity::Note),
            ("memory_pressure", Severity::Serious),
            ("network_file_system", Severity::Serious),
            ("no_cpufreq", Severity::Note),
            ("steal", Severity::Note),
            ("swap", Severity::Warning),
            ("unknown_facts", Severity::Note),
            ("virtual_machine", Severity::Warning),
        ]
    );
    // The limit of the parent group is not in force in this version.
    assert!(summary(&hazards, "block_io_limit").ends_with(": 253:0 reads 21.0 MB/s, 253:0 reads 500 per second"));
    assert!(summary(&hazards, "steal").ends_with("0.44 % since boot"), "{}", summary(&hazards, "steal"));
    assert!(hazards.iter().find(|hazard| hazard.id == "clock_source").unwrap().remedy.is_none());
}

#[test]
fn file_cache_bounds_include_all_cgroups() {
    let bounds_of_tree = |name: &str| file_cache(RecordedTree::load(name).root()).unwrap();
    let sum = |bound: &FileCacheBound| bound.terms.iter().map(|term| term.bytes).sum::<i64>();
    let machine = bounds_of_tree("x86-64-vm");
    assert_eq!(machine.current_bytes, Some((468_560 + 845_756) << 10));
    let [bound] = machine.bounds.as_slice() else { panic!("{machine:?}") };
    assert_eq!((bound.bytes, bound.set_by.as_str()), (24_091_664 << 10, "the machine"));
    assert_eq!((sum(bound) as u64, bound.terms[3].bytes), (bound.bytes, -278_396 << 10));

    // 256 MiB, of which 192 are used, of which 96 are file pages; the machine has less available.
    let nested = bounds_of_tree("cgroup-v1");
    assert_eq!((nested.bounds.len(), nested.current_bytes), (2, None));
    assert_eq!((nested.bounds[1].bytes, nested.bounds[0].bytes), (180_000 << 10, (256 - 96) << 20));
    assert_eq!(nested.bounds[0].set_by, "the control group /sys/fs/cgroup/memory/batch/job7");
    assert_eq!(nested.bounds[0].source, "/sys/fs/cgroup/memory/batch/job7/memory.limit_in_bytes");

    // 512 MiB, of which 384 are used, of which 156 are file pages and 16 reclaimable caches.
    let container = bounds_of_tree("container");
    assert_eq!((container.bounds[0].bytes, sum(&container.bounds[0]) as u64), (300 << 20, 300 << 20));
    assert_eq!(container.bounds[0].source, "/sys/fs/cgroup/memory.max");
    let empty = tempfile::tempdir().unwrap();
    assert!(file_cache(empty.path()).unwrap_err().contains("there is no /proc/meminfo"));
}

#[test]
fn empty_tree_has_reasons_for_unknowns() {
    let empty = tempfile::tempdir().unwrap();
    let machine = read(empty.path());
    assert_eq!(machine.architecture, "unknown");
    assert!(machine.disks.is_empty() && machine.mounts.is_empty() && machine.nics.is_empty());
    for row in machine.rows() {
        assert_eq!(row.text, None, "{row:?}");
        assert!(row.source.len() > 10, "{row:?}");
    }
    let hazards = hazards(empty.path(), &machine, Path::new("/tmp"));
    assert_eq!(ids(&hazards), [("no_cpufreq", Severity::Note), ("unknown_facts", Severity::Note)]);
    assert!(kelvin_machine::tune::plan_changes(empty.path()).is_empty());
}

#[test]
fn identities_are_distinct_and_stable() {
    let identities: Vec<String> = TREES.map(|name| read(RecordedTree::load(name).root()).identity).to_vec();
    let second_identities: Vec<String> = TREES.map(|name| read(RecordedTree::load(name).root()).identity).to_vec();
    assert_eq!(identities, second_identities);
    let mut distinct = identities.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), TREES.len());
    assert!(identities.iter().all(|text| text.len() == 32 && text.bytes().all(|c| c.is_ascii_hexdigit())));
}

#[test]
fn machine_round_trips_through_json() {
    for name in TREES {
        let machine = read(RecordedTree::load(name).root());
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
        for row in machine.rows() {
            assert!(!row.source.is_empty() && row.text.as_deref() != Some(""), "{name}: {row:?}");
        }
    }
}

#[test]
fn live_machine_is_read_without_panic() {
    let root = Path::new("/");
    let machine = read(root);
    assert!(machine.memory.total_bytes.get().is_some());
    assert!(machine.topology.allowed.get().is_some());
    assert!(machine.kernel.release.get().is_some());
    for hazard in hazards(root, &machine, &std::env::temp_dir()) {
        assert!(!hazard.source.is_empty(), "{hazard:?}");
    }
}

#[test]
fn zero_maximum_frequency_is_reported() {
    let tree = RecordedTree::load("x86-64-vm-masked");
    let cpufreq = tree.root().join("sys/devices/system/cpu/cpu0/cpufreq");
    std::fs::create_dir_all(&cpufreq).unwrap();
    std::fs::write(cpufreq.join("cpuinfo_max_freq"), "0\n").unwrap();
    assert_unknown(
        &read_for_cpu(tree.root(), Some(0)).cpu.maximum_hz,
        "cpu0/cpufreq/cpuinfo_max_freq states '0', and there is no cpuid leaf 16h",
    );
}
