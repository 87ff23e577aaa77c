//! CPUs, what they share, and NUMA nodes.

mod caches;
mod core_kinds;

use std::collections::BTreeMap;
use std::path::Path;

use kelvin_core::{CoreLocation, Fact, IndirectSort, NumaNode, Topology, cpu_ranges};

use self::caches::cache_instances;
use self::core_kinds::core_kinds;
use crate::cpu;
use crate::limits::ProcessCgroups;
use crate::memory::kibibytes;
use crate::root::{FileRoot, cpu_list, cpu_mask, fact_of, required, value_of_key};

const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";
const NODE_DIRECTORY: &str = "/sys/devices/system/node";

/// The topology of the machine whose files are below a root, with the caches of one CPU, or else of the one that is measured by default.
pub(crate) fn read(root: FileRoot<'_>, cpu: Option<u32>) -> Topology {
    let online = online_cpus(root);
    let locations = fact_of(cpu_locations(root, &online));
    let socket_count = required(&locations).and_then(|cpus| sockets(root, cpus));
    let core_locations = locations.as_ref().map(|cpus| cores(cpus));
    let cache_instances = match online.get() {
        Some(online) => cache_instances(root, online),
        None => Fact::unknown(online.source_or_reason()),
    };
    let known_caches = cache_instances.get().map_or(&[][..], Vec::as_slice);
    let mut topology = Topology {
        offline: offline_cpus(root, &online),
        isolated: root.fact(&format!("{CPU_DIRECTORY}/isolated"), cpu_list),
        allowed: allowed_cpus(root, None),
        sockets: fact_of(socket_count.map(|count| (count, locations.source_or_reason()))),
        cores: core_locations.as_ref().map(|cores| cores.len() as u32),
        siblings: locations.map(|cpus| cpus.into_iter().map(|location| location.threads).collect()),
        core_locations,
        core_kinds: fact_of(core_kinds(root, &online, known_caches)),
        caches: Fact::default(),
        cache_instances,
        nodes: nodes(root),
        online,
    };
    topology.caches = topology.caches_of(cpu.unwrap_or_else(|| measured_cpu(&topology)));
    topology
}

/// The CPU that is measured unless another is named.
pub(crate) fn measured_cpu(topology: &Topology) -> u32 {
    topology.allowed.get().and_then(|allowed| topology.default_cpu(allowed)).unwrap_or(0)
}

/// What makes two CPUs of one kind: their speed, by cpufreq and by the scheduler, their design, and what they share.
const CPU_KIND_FILES: [&str; 6] = [
    "cpufreq/cpuinfo_max_freq",
    "cpu_capacity",
    "regs/identification/midr_el1",
    "topology/physical_package_id",
    "topology/die_id",
    "cache/index3/id",
];

/// Those of these CPUs that are of the same kind as one of them and share its package and its last cache, so that a metric is the same
/// on all of them, by the files below a root.
pub fn similar_cpus(root: &Path, cpus: &[u32], reference: u32) -> Vec<u32> {
    let root = FileRoot::new(root);
    let kind = |cpu: u32| CPU_KIND_FILES.map(|file| root.text(&format!("{CPU_DIRECTORY}/cpu{cpu}/{file}")));
    let reference_kind = kind(reference);
    cpus.iter().copied().filter(|&cpu| kind(cpu) == reference_kind).collect()
}

fn non_empty_cpu_list(text: &str) -> Option<Vec<u32>> {
    cpu_list(text).filter(|cpus| !cpus.is_empty())
}

/// The CPUs of the innermost control group that names some: `cpuset.cpus.effective` in version 2, and in version 1 the same of its own name.
pub(crate) fn group_cpus(root: FileRoot<'_>) -> Option<Vec<u32>> {
    const CONTROLLER: &str = "cpuset";
    let groups = ProcessCgroups::read(root).ok()?;
    let group_path = groups.controller_path(CONTROLLER).ok()??;
    let file = if group_path.version == 1 { "cpuset.effective_cpus" } else { "cpuset.cpus.effective" };
    groups.read_with_ancestors(&group_path, file).iter().find_map(|(_, text)| non_empty_cpu_list(text.trim()))
}

fn non_empty_cpu_mask(text: &str) -> Option<Vec<u32>> {
    cpu_mask(text).filter(|cpus| !cpus.is_empty())
}

pub(crate) fn online_cpus(root: FileRoot<'_>) -> Fact<Vec<u32>> {
    let listed = root.fact(&format!("{CPU_DIRECTORY}/online"), non_empty_cpu_list);
    if listed.get().is_some() {
        return listed;
    }
    // Those that do not say that they are offline.
    let is_online = |cpu: &u32| root.text(&format!("{CPU_DIRECTORY}/cpu{cpu}/online")).is_none_or(|state| state != "0");
    let blocks = cpu::parse_cpuinfo(&root.text(cpu::CPUINFO).unwrap_or_default());
    let cpus: Vec<u32> =
        blocks.iter().filter_map(|block| block.get("processor")?.parse().ok()).filter(is_online).collect();
    if !cpus.is_empty() {
        return Fact::known(cpus, cpu::CPUINFO);
    }
    let cpus: Vec<u32> = numbered_entries(root, CPU_DIRECTORY, "cpu").into_iter().filter(is_online).collect();
    if cpus.is_empty() { listed } else { Fact::known(cpus, CPU_DIRECTORY) }
}

/// The CPUs that are present and not online. The kernel's own list of offline ones has those that it could have and the machine lacks.
fn offline_cpus(root: FileRoot<'_>, online: &Fact<Vec<u32>>) -> Fact<Vec<u32>> {
    let present = root.fact(&format!("{CPU_DIRECTORY}/present"), non_empty_cpu_list);
    let entries = numbered_entries(root, CPU_DIRECTORY, "cpu");
    let present =
        if present.get().is_none() && !entries.is_empty() { Fact::known(entries, CPU_DIRECTORY) } else { present };
    match online.get() {
        Some(online) => present.map(|cpus| cpus.into_iter().filter(|cpu| !online.contains(cpu)).collect()),
        None => Fact::unknown(online.source_or_reason()),
    }
}

/// The numbers of the directories of this name: 0 and 1 of `cpu0`, `cpu1` and `cpufreq`.
fn numbered_entries(root: FileRoot<'_>, directory: &str, name: &str) -> Vec<u32> {
    root.names(directory).iter().filter_map(|entry| entry.strip_prefix(name)?.parse().ok()).collect()
}

/// The CPUs of the first of these files that is there and has any, by its mask, or else by its list: kernels have had both since 2.6.26,
/// and some recorders keep only one.
fn cpus_from_files(root: FileRoot<'_>, files: &[(String, String)]) -> Option<Vec<u32>> {
    let read = |name: &str, parse: fn(&str) -> Option<Vec<u32>>| parse(&root.text(name)?);
    files.iter().find_map(|(list, mask)| read(mask, non_empty_cpu_mask).or_else(|| read(list, non_empty_cpu_list)))
}

/// CPUs that a process (this one, if none is named) may run on and that are online. The list of its status may name all that the kernel can
/// have (virtual machines with room for more, `nosmt`): the running kernel is asked what of it can be used, and in a recorded tree the list
/// is cut to the CPUs that were online there.
pub(crate) fn allowed_cpus(root: FileRoot<'_>, process: Option<u32>) -> Fact<Vec<u32>> {
    if root.is_live()
        && let Ok(cpus) = kelvin_sys::cpu::process_affinity(process.unwrap_or_else(std::process::id))
    {
        return Fact::known(cpus, "sched_getaffinity(2)");
    }
    let file = format!("/proc/{}/status", process.map_or("self".into(), |process| process.to_string()));
    let line_fact = |key: &str, parse: fn(&str) -> Option<Vec<u32>>| {
        root.line_fact(&file, key, |text, key| parse(value_of_key(text, key, ':')?))
    };
    let mut listed = line_fact("Cpus_allowed_list", non_empty_cpu_list);
    if listed.get().is_none() {
        // Before 2.6.26 there is only the mask.
        let masked = line_fact("Cpus_allowed", non_empty_cpu_mask);
        listed = if masked.get().is_some() { masked } else { listed };
    }
    let (Fact::Known { value: listed, source }, Fact::Known { value: online, .. }) = (&listed, online_cpus(root))
    else {
        return listed;
    };
    let online_allowed: Vec<u32> = listed.iter().copied().filter(|cpu| online.contains(cpu)).collect();
    match online_allowed.is_empty() {
        true => Fact::unknown(format!(
            "{source} allows CPUs {}, of which none of the online ones ({}) is",
            cpu_ranges(listed),
            cpu_ranges(&online)
        )),
        false => Fact::known(online_allowed, source.as_str()),
    }
}

/// Most CPUs that can share a core: a design has 8. A list of more is of something else, and would be kept for each of them.
const MAX_THREADS_PER_CORE: usize = 1024;

/// Where a CPU is: its socket, its die, and the CPUs of its core.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CpuLocation {
    cpu: u32,
    /// `None` where the platform states none (-1 in some virtual machines).
    socket: Option<u32>,
    /// The CPUs of its socket, where the kernel states them: old kernels number sockets within a node.
    socket_cpus: Option<Vec<u32>>,
    die: Option<u32>,
    threads: Vec<u32>,
    /// The kernel's number of the core, which is not unique over sockets.
    core_id: Option<u32>,
    /// Whether the kernel numbers its cluster separately from its socket.
    has_cluster: bool,
}

/// The place of every online CPU, from sysfs or else from /proc/cpuinfo.
fn cpu_locations(root: FileRoot<'_>, online: &Fact<Vec<u32>>) -> Result<(Vec<CpuLocation>, String), String> {
    let cpus = required(online)?;
    let listed: Result<Vec<CpuLocation>, u32> = cpus.iter().map(|&cpu| cpu_location(root, cpu).ok_or(cpu)).collect();
    let directory = match listed {
        Ok(locations) => return Ok((locations, format!("{CPU_DIRECTORY}/cpu*/topology"))),
        Err(cpu) => format!("{CPU_DIRECTORY}/cpu{cpu}/topology"),
    };
    match locations_from_cpuinfo(&root.text(cpu::CPUINFO).unwrap_or_default()) {
        Some(locations) => Ok((locations, cpu::CPUINFO.into())),
        None if root.exists(&directory) => Err(format!(
            "{directory} lacks physical_package_id, or which CPUs, at most 1024, share the core (core_cpus_list, thread_siblings_list, or their masks), and \
             /proc/cpuinfo does not show it either"
        )),
        None => Err(format!("neither {CPU_DIRECTORY}/cpu*/topology nor /proc/cpuinfo shows which CPUs share a core")),
    }
}

fn cpu_location(root: FileRoot<'_>, cpu: u32) -> Option<CpuLocation> {
    let file = |name: &str| format!("{CPU_DIRECTORY}/cpu{cpu}/topology/{name}");
    // `core_cpus` is the name since 5.3, `thread_siblings` the one before.
    let names = ["core_cpus", "thread_siblings"].map(|name| (file(&format!("{name}_list")), file(name)));
    let threads = cpus_from_files(root, &names).filter(|threads| threads.len() <= MAX_THREADS_PER_CORE)?;
    let number = |name: &str| root.text(&file(name))?.parse::<u32>().ok();
    let socket_names = ["package_cpus", "core_siblings"].map(|name| (file(&format!("{name}_list")), file(name)));
    Some(CpuLocation {
        cpu,
        socket: root.text(&file("physical_package_id"))?.parse().ok(),
        socket_cpus: cpus_from_files(root, &socket_names),
        die: number("die_id"),
        core_id: number("core_id"),
        threads,
        has_cluster: number("cluster_id").is_some(),
    })
}

fn locations_from_cpuinfo(text: &str) -> Option<Vec<CpuLocation>> {
    let blocks = cpu::parse_cpuinfo(text);
    let mut cores: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    let mut keys = Vec::new();
    for block in &blocks {
        let number = |key: &str| block.get(key)?.parse::<u32>().ok();
        let (key, cpu) = ((number("physical id")?, number("core id")?), number("processor")?);
        cores.entry(key).or_default().push(cpu);
        keys.push((key, cpu));
    }
    if cores.values().any(|threads| threads.len() > MAX_THREADS_PER_CORE) {
        return None;
    }
    let location = |&(key, cpu): &((u32, u32), u32)| CpuLocation {
        cpu,
        socket: Some(key.0),
        socket_cpus: None,
        die: None,
        threads: cores[&key].clone(),
        core_id: Some(key.1),
        has_cluster: false,
    };
    Some(keys.iter().map(location).collect()).filter(|locations: &Vec<CpuLocation>| !locations.is_empty())
}

/// The cores of these CPUs, in the order of their lowest CPUs. Where the kernel numbers CPUs of one set of threads as different cores they
/// are that: the two integer cores of a Bulldozer module.
fn cores(locations: &[CpuLocation]) -> Vec<CoreLocation> {
    let mut cores: BTreeMap<(&[u32], Option<u32>), CoreLocation> = BTreeMap::new();
    for location in locations {
        let new = || CoreLocation { cpus: Vec::new(), socket: location.socket, die: location.die };
        cores.entry((&location.threads, location.core_id)).or_insert_with(new).cpus.push(location.cpu);
    }
    let mut cores: Vec<CoreLocation> = cores.into_values().collect();
    cores.indirect_sort_by_key(|core| core.cpus[0]);
    cores
}

fn sockets(root: FileRoot<'_>, locations: &[CpuLocation]) -> Result<u32, String> {
    if locations.iter().any(|location| location.socket.is_none()) {
        return Err("the platform numbers no sockets (physical_package_id is -1)".into());
    }
    // Whether the numbers of sockets may be those of clusters: the device tree names both, and before Linux 6.0 the kernel stated the cluster
    // as the socket (`parse_cluster` in drivers/base/arch_topology.c), and no cluster of its own.
    let may_be_clusters = || {
        let has_clusters = locations.iter().any(|location| location.has_cluster);
        cpu::is_arm(root) && !root.exists("/sys/firmware/acpi") && !has_clusters
    };
    // Old kernels number sockets within a node: two of one number are different sockets where neither lists the other's CPUs.
    let mut sockets: Vec<&CpuLocation> = Vec::new();
    let lists = |a: &CpuLocation, b: &CpuLocation| a.socket_cpus.as_ref().is_none_or(|cpus| cpus.contains(&b.cpu));
    for location in locations {
        let is_same = |other: &&CpuLocation| {
            other.socket == location.socket && (lists(other, location) || lists(location, other))
        };
        if !sockets.iter().any(is_same) {
            sockets.push(location);
        }
    }
    if sockets.len() > 1 && may_be_clusters() {
        return Err(
            "on Arm without ACPI a kernel before 6.0 gives the number of a cluster of cores as physical_package_id"
                .into(),
        );
    }
    Ok(sockets.len() as u32)
}

fn nodes(root: FileRoot<'_>) -> Fact<Vec<NumaNode>> {
    let present_nodes = numbered_entries(root, NODE_DIRECTORY, "node");
    let listed = root.text(&format!("{NODE_DIRECTORY}/online")).and_then(|list| non_empty_cpu_list(&list));
    let ids = listed.unwrap_or_else(|| present_nodes.clone());
    let nodes: Vec<NumaNode> = ids.iter().filter_map(|&id| node(root, id)).collect();
    let mut cpus: Vec<u32> = nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    if let Some(pair) = cpus.windows(2).find(|pair| pair[0] == pair[1]) {
        return Fact::unknown(format!("{NODE_DIRECTORY} has CPU {} in several nodes", pair[0]));
    }
    match (nodes.is_empty(), ids.first()) {
        (false, _) => Fact::known(nodes, NODE_DIRECTORY),
        (true, Some(id)) => Fact::unknown(format!(
            "{NODE_DIRECTORY}/node{id} states neither a list of its CPUs (cpulist) nor a mask (cpumap)"
        )),
        (true, None) => Fact::unknown(format!(
            "there are no nodes in {NODE_DIRECTORY}: {}",
            root.absence_reason(NODE_DIRECTORY, "a kernel without NUMA has one")
        )),
    }
}

fn node(root: FileRoot<'_>, id: u32) -> Option<NumaNode> {
    let file = |name: &str| root.text(&format!("{NODE_DIRECTORY}/node{id}/{name}"));
    let distances = file("distance").unwrap_or_default();
    // `Node 0 MemTotal:       65639228 kB`
    Some(NumaNode {
        id,
        // A node may have memory and no CPUs.
        cpus: file("cpulist").and_then(|list| cpu_list(&list)).or_else(|| cpu_mask(&file("cpumap")?))?,
        bytes: file("meminfo").and_then(|text| kibibytes(&text, &format!("Node {id} MemTotal"))),
        distances: distances.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::FixtureTree;

    #[test]
    fn cores_fall_back_to_cpuinfo() {
        let text = "processor : 0\nphysical id : 0\ncore id : 0\n\nprocessor : 1\nphysical id : 0\ncore id : 0\n\n\
                    processor : 2\nphysical id : 1\ncore id : 0\n\n";
        let tree = FixtureTree::default();
        tree.fill("proc/cpuinfo", text);
        let topology = read(FileRoot::new(tree.path()), None);
        assert_eq!(topology.cores.get(), Some(&2));
        assert_eq!(topology.sockets.get(), Some(&2));
        assert_eq!(topology.siblings.get(), Some(&vec![vec![0, 1], vec![0, 1], vec![2]]));
        assert_eq!(locations_from_cpuinfo("processor : 0\n\n"), None);
    }

    #[test]
    fn group_cpus_are_of_either_version() {
        let tree = FixtureTree::default();
        assert_eq!(group_cpus(FileRoot::new(tree.path())), None);
        tree.fill("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        tree.fill("proc/self/cgroup", "0::/job_42/step_0\n");
        tree.fill("sys/fs/cgroup/job_42/cpuset.cpus.effective", "2-5,8\n");
        assert_eq!(group_cpus(FileRoot::new(tree.path())), Some(vec![2, 3, 4, 5, 8]));
        tree.fill("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
        tree.fill("proc/self/cgroup", "3:cpuset:/slurm\n0::/\n");
        tree.fill("sys/fs/cgroup/cpuset/slurm/cpuset.effective_cpus", "1\n");
        assert_eq!(group_cpus(FileRoot::new(tree.path())), Some(vec![1]));
    }

    #[test]
    fn negative_socket_is_unknown() {
        let tree = FixtureTree::default();
        tree.fill("sys/devices/system/cpu/online", "0");
        tree.fill("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0");
        tree.fill("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1");
        let topology = read(FileRoot::new(tree.path()), None);
        assert!(topology.sockets.get().is_none());
        assert_eq!(topology.cores.get(), Some(&1));
    }

    /// A machine whose CPUs have these files below `topology`.
    fn cores_of(cpus: &[&[(&str, &str)]]) -> Topology {
        let tree = FixtureTree::default();
        tree.fill("sys/devices/system/cpu/online", format!("0-{}", cpus.len() - 1));
        for (cpu, files) in cpus.iter().enumerate() {
            for (name, text) in *files {
                tree.fill(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"), text);
            }
        }
        read(FileRoot::new(tree.path()), None)
    }

    #[test]
    fn integer_cores_of_a_module_are_cores() {
        let module =
            |core_id: &'static str| [("core_cpus_list", "0-1"), ("physical_package_id", "0"), ("core_id", core_id)];
        let bulldozer = cores_of(&[&module("0"), &module("1")]);
        assert_eq!((bulldozer.cores.get(), bulldozer.sockets.get()), (Some(&2), Some(&1)));
        let smt = cores_of(&[&module("0"), &module("0")]);
        assert_eq!(smt.cores.get(), Some(&1));
    }

    #[test]
    fn sockets_numbered_within_a_node_are_told_apart_by_their_cpus() {
        let cpu = |number: &'static str| {
            [("core_cpus_list", number), ("physical_package_id", "0"), ("core_siblings_list", number)]
        };
        assert_eq!(cores_of(&[&cpu("0"), &cpu("1")]).sockets.get(), Some(&2));
    }

    #[test]
    fn offline_cpus_are_present_and_not_online() {
        let tree = FixtureTree::default();
        let root = FileRoot::new(tree.path());
        tree.fill("sys/devices/system/cpu/online", "0-2,4");
        tree.fill("sys/devices/system/cpu/present", "0-5");
        tree.fill("sys/devices/system/cpu/offline", "3,5-255");
        assert_eq!(read(root, None).offline.get(), Some(&vec![3, 5]));
    }

    #[test]
    fn cpus_that_state_themselves_offline_are_not_online() {
        let tree = FixtureTree::default();
        tree.fill("proc/cpuinfo", "processor : 0\n\nprocessor : 1\n\n");
        tree.fill("sys/devices/system/cpu/cpu1/online", "0");
        let topology = read(FileRoot::new(tree.path()), None);
        assert_eq!((topology.online.get(), topology.offline.get()), (Some(&vec![0]), Some(&vec![1])));
    }

    #[test]
    fn without_list_of_present_cpus_offline_ones_are_unknown() {
        let tree = FixtureTree::default();
        tree.fill("proc/cpuinfo", "processor : 0\n\nprocessor : 1\n\n");
        let topology = read(FileRoot::new(tree.path()), None);
        assert_eq!((topology.online.get(), topology.offline.get()), (Some(&vec![0, 1]), None));
        assert!(topology.offline.source_or_reason().contains("nothing is below /sys"));
    }

    #[test]
    fn overlapping_nodes_are_unknown() {
        let tree = FixtureTree::default();
        for id in 0..2 {
            tree.fill(&format!("sys/devices/system/node/node{id}/cpulist"), "0-7");
        }
        let nodes = read(FileRoot::new(tree.path()), None).nodes;
        assert_eq!(nodes.source_or_reason(), "/sys/devices/system/node has CPU 0 in several nodes");
    }

    #[test]
    fn caches_are_those_of_the_measured_cpu() {
        let tree = FixtureTree::default();
        tree.fill("sys/devices/system/cpu/online", "0-3");
        for (cpu, (size, sharers)) in [("48K", "0"), ("48K", "1"), ("32K", "2"), ("32K", "3")].into_iter().enumerate() {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/cache/index0");
            let files = [("level", "1"), ("type", "Data"), ("size", size), ("shared_cpu_list", sharers)];
            for (name, text) in files {
                tree.fill(&format!("{directory}/{name}"), text);
            }
        }
        let bytes = |cpu: Option<u32>| read(FileRoot::new(tree.path()), cpu).caches.get().unwrap()[0].bytes;
        assert_eq!((bytes(Some(1)), bytes(Some(3))), (48 << 10, 32 << 10));
        let instances = read(FileRoot::new(tree.path()), None).cache_instances.get().unwrap().clone();
        let counts: Vec<(u64, usize)> = instances.iter().map(|caches| (caches.bytes, caches.shared_by.len())).collect();
        assert_eq!(counts, [(48 << 10, 2), (32 << 10, 2)]);
    }
}
