//! Composed trees of machines that few have: 512 CPUs on two sockets with 16 nodes, whose numbers alternate between the sockets; and cores of
//! two kinds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use kelvin_core::{Machine, SharedLevel};
use kelvin_machine::{DisturbanceMonitor, read, read_for_cpu};

const CPUS: u32 = 512;
const NODES: u32 = 16;

fn fill(root: &Path, name: &str, text: impl AsRef<str>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text.as_ref()).unwrap();
}

fn list(cpus: impl Iterator<Item = u32>) -> String {
    kelvin_core::cpu_ranges(&cpus.collect::<Vec<_>>())
}

/// Where a CPU of the server is: its socket, which is the last bit of its number, and its core there.
fn place(cpu: u32) -> (u32, u32) {
    let core = cpu % (CPUS / 2);
    (core % 2, core / 2)
}

/// The CPUs of one of the parts of the sockets that have this many cores each.
fn part_cpus(cpu: u32, cores: u32) -> String {
    let part = |cpu: u32| (place(cpu).0, place(cpu).1 / cores);
    list((0..CPUS).filter(|&other| part(other) == part(cpu)))
}

/// The caches of a CPU: level, type, size, and the CPUs that share it.
fn fill_caches(root: &Path, cpu: u32, caches: [(&str, &str, &str, String); 3]) {
    for (index, (level, kind, size, shared)) in caches.into_iter().enumerate() {
        let directory = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        for (name, text) in [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", &shared)] {
            fill(root, &format!("{directory}/{name}"), text);
        }
    }
}

/// Two sockets of 128 cores with two threads each, eight nodes of a socket, an L3 cache for eight cores.
fn server() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    fill(root, "sys/devices/system/cpu/online", "0-511");
    fill(root, "proc/self/status", "Cpus_allowed_list:\t0-511\n");
    let mut cpuinfo = String::new();
    for cpu in 0..CPUS {
        let (socket, core) = place(cpu);
        let microcode = if cpu == CPUS - 1 { "0x2" } else { "0x1" };
        writeln!(cpuinfo, "processor\t: {cpu}\nvendor_id\t: AuthenticAMD\nmicrocode\t: {microcode}\n").unwrap();
        let topology = [
            ("physical_package_id", socket.to_string()),
            ("core_id", core.to_string()),
            ("die_id", "0".to_owned()),
            ("core_cpus_list", part_cpus(cpu, 1)),
            ("package_cpus_list", part_cpus(cpu, 128)),
        ];
        for (name, text) in topology {
            fill(root, &format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"), text);
        }
        let (own, l3) = (part_cpus(cpu, 1), part_cpus(cpu, 8));
        let caches =
            [("1", "Data", "48K", own.clone()), ("2", "Unified", "1024K", own), ("3", "Unified", "32768K", l3)];
        fill_caches(root, cpu, caches);
    }
    fill(root, "proc/cpuinfo", cpuinfo);
    fill(root, "sys/devices/system/node/online", "0-15");
    for node in 0..NODES {
        let distance = |other: u32| match (node == other, node / 8 == other / 8) {
            (true, _) => "10",
            (_, true) => "12",
            (_, false) => "32",
        };
        let directory = format!("sys/devices/system/node/node{node}");
        fill(root, &format!("{directory}/cpulist"), part_cpus(node % 8 * 32 + node / 8, 16));
        fill(root, &format!("{directory}/meminfo"), format!("Node {node} MemTotal:       134217728 kB\n"));
        fill(root, &format!("{directory}/distance"), (0..NODES).map(distance).collect::<Vec<_>>().join(" "));
    }
    tree
}

#[test]
fn server_of_512_cpus_and_16_nodes_is_read() {
    let tree = server();
    let machine = read(tree.path());
    let topology = &machine.topology;
    assert_eq!(topology.allowed.get().map(Vec::len), Some(512));
    assert_eq!((topology.sockets.get(), topology.cores.get()), (Some(&2), Some(&256)));
    let nodes = topology.nodes.get().unwrap();
    assert_eq!(nodes.len(), 16);
    assert!(nodes.iter().all(|node| node.cpus.len() == 32 && node.distances.len() == 16), "{nodes:?}");
    assert_eq!((nodes[15].bytes, nodes[15].distances[7], nodes[15].distances[8]), (Some(128 << 30), 32, 12));
    // All facts of one CPU are of the one that is measured, the last one.
    assert_eq!((machine.cpu.number, machine.cpu.microcode.get().map(String::as_str)), (Some(511), Some("0x2")));
    let caches = topology.caches.get().unwrap();
    assert_eq!(caches.iter().map(|cache| cache.shared_by.len()).collect::<Vec<_>>(), [2, 2, 16]);
    assert!(caches[2].shared_by.contains(&511) && caches[2].shared_by.iter().all(|cpu| cpu % 2 == 1), "{caches:?}");
    // The next lower number is on the other socket.
    let partner = topology.partner_of(511, topology.allowed.get().unwrap()).unwrap();
    assert_eq!(topology.shared_level(511, 510), Some(SharedLevel::Machine));
    assert_eq!((partner, topology.shared_level(511, partner)), (509, Some(SharedLevel::Cache(3))));
    assert_eq!(topology.cache_domains().len(), 32);
}

/// The text of /proc/stat, with this many ticks of user time and of steal of the last CPU.
fn stat(cpus: u32, user: u64, steal: u64) -> String {
    let line =
        |name: &str, user: u64, steal: u64| format!("{name} {user} 0 234567 345678901 4567 0 5678 {steal} 0 0\n");
    let last = cpus - 1;
    let others: String = (0..last).map(|cpu| line(&format!("cpu{cpu}"), 123_456, 0)).collect();
    let interrupts = " 0".repeat(20_000);
    let all = format!("cpu  {} 0 1000 {} 0 0 0 {steal} 0 0\n", 1000 + user, 10_000 + user);
    format!("{all}{others}{}intr 1{interrupts}\nctxt 1\nprocs_running 3\n", line(&format!("cpu{last}"), user, steal))
}

#[test]
fn last_of_many_cpus_is_in_what_happened_during_a_run() {
    for cpus in [58, 128, 512] {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        let path = root.join("proc/stat");
        let fill_stat = |user, steal| fill(root, "proc/stat", stat(cpus, user, steal));
        fill(root, "proc/self/stat", "7 (kelvin) S 1 7 1 0 -1 4194560 100 200 3 4 50 60 7 8 20 0 9 0 12345 1000 5");
        fill_stat(1000, 10);
        assert!(fs::metadata(path).unwrap().len() > 4096);
        let monitor = DisturbanceMonitor::start(root);
        fill_stat(500_000_000, 400_000_000);
        let hazards = monitor.hazards(root);
        let summary_of = |id: &str| {
            let hazard = hazards.iter().find(|hazard| hazard.id == *id);
            hazard.unwrap_or_else(|| panic!("{id}, {cpus} CPUs: {hazards:?}")).summary.clone()
        };
        let (steal, work) = (summary_of("steal_during"), summary_of("other_work"));
        assert!(steal.contains("stole 28.57 % of the CPU time"), "{steal}");
        assert!(work.ends_with(&format!("(busy CPUs, all work: {})", cpus - 1)), "{work}");
    }
}

/// Six performance cores of two threads, and after them eight efficiency cores, of which four share an L2 cache.
fn hybrid() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    fill(root, "sys/devices/system/cpu/online", "0-19");
    fill(root, "proc/self/status", "Cpus_allowed_list:\t0-19\n");
    fill(root, "sys/devices/cpu_core/cpus", "0-11");
    fill(root, "sys/devices/cpu_atom/cpus", "12-19");
    let mut cpuinfo = String::new();
    for cpu in 0..20 {
        let is_fast = cpu < 12;
        let microcode = if is_fast { "0xaa" } else { "0xbb" };
        writeln!(cpuinfo, "processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmicrocode\t: {microcode}\n").unwrap();
        let core = if is_fast { format!("{}-{}", cpu & !1, cpu | 1) } else { cpu.to_string() };
        let cluster = if is_fast { core.clone() } else { format!("{}-{}", cpu & !3, cpu | 3) };
        let directory = format!("sys/devices/system/cpu/cpu{cpu}");
        fill(root, &format!("{directory}/topology/core_cpus_list"), &core);
        fill(root, &format!("{directory}/topology/physical_package_id"), "0");
        fill(root, &format!("{directory}/cpufreq/cpuinfo_max_freq"), if is_fast { "5000000" } else { "3800000" });
        let [l1, l2] = if is_fast { ["48K", "1280K"] } else { ["32K", "2048K"] };
        let l3 = ("3", "Unified", "24576K", "0-19".to_owned());
        fill_caches(root, cpu, [("1", "Data", l1, core), ("2", "Unified", l2, cluster), l3]);
    }
    fill(root, "proc/cpuinfo", cpuinfo);
    tree
}

#[test]
fn facts_of_a_hybrid_are_of_the_measured_kind_of_core() {
    let tree = hybrid();
    let facts = |machine: &Machine| {
        let number = machine.cpu.number.unwrap();
        let caches = machine.topology.caches.get().unwrap().iter();
        (
            number,
            machine.topology.kind_of(number).unwrap().name.clone(),
            machine.cpu.microcode.get().cloned().unwrap(),
            machine.cpu.maximum_hz.get().copied().unwrap(),
            caches.map(|cache| (cache.bytes >> 10, cache.shared_by.len())).collect::<Vec<_>>(),
        )
    };
    let fast = (11, "P-core".into(), "0xaa".into(), 5.0e9, vec![(48, 2), (1280, 2), (24_576, 20)]);
    assert_eq!(facts(&read(tree.path())), fast);
    let slow = (15, "E-core".into(), "0xbb".into(), 3.8e9, vec![(32, 1), (2048, 4), (24_576, 20)]);
    assert_eq!(facts(&read_for_cpu(tree.path(), Some(15))), slow);
    // The partner is of the same kind, whatever its number.
    let topology = read(tree.path()).topology;
    let allowed: Vec<u32> = (0..20).collect();
    assert_eq!((topology.partner_of(11, &allowed), topology.partner_of(15, &allowed)), (Some(9), Some(14)));
}
