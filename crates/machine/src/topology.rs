//! CPUs, what they share, and NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kelvin_core::{Cache, Fact, NumaNode, Topology, cpu_ranges};

use crate::cpu;
use crate::memory::kibibytes;
use crate::root::{FileRoot, cpu_list, cpu_mask, fact_of, required, suffixed_size, value_of_key};
use crate::tlb::cache_kind;

const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";
const NODE_DIRECTORY: &str = "/sys/devices/system/node";

pub(crate) fn read(root: FileRoot<'_>) -> Topology {
    let online = online_cpus(root);
    let allowed = allowed_cpus(root, None);
    let first = first_allowed(&allowed);
    let locations = cpu_locations(root, &online);
    let siblings = fact_of(locations.clone())
        .map(|cpus: Vec<CpuLocation>| cpus.into_iter().map(|cpu| cpu.threads).collect::<Vec<Vec<u32>>>());
    Topology {
        sockets: fact_of(locations.and_then(|(cpus, source)| Ok((sockets(root, &cpus)?, source)))),
        cores: siblings.clone().map(|cores| cores.into_iter().collect::<BTreeSet<_>>().len() as u32),
        siblings,
        caches: caches(root, first),
        nodes: nodes(root),
        online,
        allowed,
    }
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

/// The default CPU of probes: the first allowed one.
pub(crate) fn first_allowed(allowed: &Fact<Vec<u32>>) -> u32 {
    allowed.get().and_then(|cpus| cpus.first().copied()).unwrap_or(0)
}

fn non_empty_cpu_list(text: &str) -> Option<Vec<u32>> {
    cpu_list(text).filter(|cpus| !cpus.is_empty())
}

fn non_empty_cpu_mask(text: &str) -> Option<Vec<u32>> {
    cpu_mask(text).filter(|cpus| !cpus.is_empty())
}

fn online_cpus(root: FileRoot<'_>) -> Fact<Vec<u32>> {
    let listed = root.fact(&format!("{CPU_DIRECTORY}/online"), non_empty_cpu_list);
    if listed.get().is_some() {
        return listed;
    }
    let blocks = cpu::parse_cpuinfo(&root.text(cpu::CPUINFO).unwrap_or_default());
    let cpus: Vec<u32> = blocks.iter().filter_map(|block| block.get("processor")?.parse().ok()).collect();
    if !cpus.is_empty() {
        return Fact::known(cpus, cpu::CPUINFO);
    }
    // Those that have a directory, and are not reported as offline.
    let is_online = |cpu: &u32| root.text(&format!("{CPU_DIRECTORY}/cpu{cpu}/online")).is_none_or(|state| state != "0");
    let cpus: Vec<u32> = numbered_entries(root, CPU_DIRECTORY, "cpu").into_iter().filter(is_online).collect();
    if cpus.is_empty() { listed } else { Fact::known(cpus, CPU_DIRECTORY) }
}

/// The numbers of the directories of this name: 0 and 1 of `cpu0`, `cpu1` and `cpufreq`.
fn numbered_entries(root: FileRoot<'_>, directory: &str, name: &str) -> Vec<u32> {
    root.names(directory).iter().filter_map(|entry| entry.strip_prefix(name)?.parse().ok()).collect()
}

/// The CPUs of the first of these files that is there and has any, by its list, or else by its mask: kernels have had both since 2.6.26,
/// and some recorders keep only masks.
fn cpus_from_files(root: FileRoot<'_>, files: &[(String, String)]) -> Option<Vec<u32>> {
    let read = |name: &str, parse: fn(&str) -> Option<Vec<u32>>| parse(&root.text(name)?);
    files.iter().find_map(|(list, mask)| read(list, non_empty_cpu_list).or_else(|| read(mask, non_empty_cpu_mask)))
}

/// CPUs that a process (this one, if none is named) may run on and that are online. The list of its status may name all that the kernel can have (virtual machines
/// with room for more, `nosmt`): the running kernel is asked what of it can be used, and in a recorded tree the list is cut to the CPUs
/// that were online there.
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

/// The place of a CPU: its socket, and the CPUs of its core.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CpuLocation {
    /// `None` where the platform states none (-1 in some virtual machines).
    socket: Option<u32>,
    threads: Vec<u32>,
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
    Some(CpuLocation {
        socket: root.text(&file("physical_package_id"))?.parse().ok(),
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
        let key = (number("physical id")?, number("core id")?);
        cores.entry(key).or_default().push(number("processor")?);
        keys.push(key);
    }
    if cores.values().any(|threads| threads.len() > MAX_THREADS_PER_CORE) {
        return None;
    }
    let places =
        keys.iter().map(|key| CpuLocation { socket: Some(key.0), threads: cores[key].clone(), has_cluster: false });
    Some(places.collect()).filter(|places: &Vec<CpuLocation>| !places.is_empty())
}

fn sockets(root: FileRoot<'_>, locations: &[CpuLocation]) -> Result<u32, String> {
    let sockets: Option<BTreeSet<u32>> = locations.iter().map(|location| location.socket).collect();
    let sockets = sockets.ok_or("the platform numbers no sockets (physical_package_id is -1)")?;
    // Whether the numbers of sockets may be those of clusters: the device tree names both, and before Linux 6.0 the kernel stated the cluster
    // as the socket (`parse_cluster` in drivers/base/arch_topology.c), and no cluster of its own.
    let may_be_clusters = || {
        let has_clusters = locations.iter().any(|location| location.has_cluster);
        cpu::is_arm(root) && !root.exists("/sys/firmware/acpi") && !has_clusters
    };
    if sockets.len() > 1 && may_be_clusters() {
        return Err(
            "on Arm without ACPI a kernel before 6.0 gives the number of a cluster of cores as physical_package_id"
                .into(),
        );
    }
    Ok(sockets.len() as u32)
}

fn caches(root: FileRoot<'_>, cpu: u32) -> Fact<Vec<Cache>> {
    let directory = format!("{CPU_DIRECTORY}/cpu{cpu}/cache");
    let indices = root.names(&directory).into_iter().filter(|name| name.starts_with("index"));
    let mut caches: Vec<Cache> = indices.filter_map(|index| cache(root, &format!("{directory}/{index}"))).collect();
    caches.sort_by_key(|cache| cache.level);
    if caches.is_empty() {
        return Fact::unknown(format!(
            "{directory} states no cache sizes: the firmware or hypervisor does not describe them"
        ));
    }
    Fact::known(caches, directory)
}

fn cache(root: FileRoot<'_>, directory: &str) -> Option<Cache> {
    let file = |name: &str| root.text(&format!("{directory}/{name}"));
    let positive_number = |name: &str| file(name)?.parse::<u32>().ok().filter(|&value| value > 0);
    Some(Cache {
        level: file("level")?.parse().ok()?,
        kind: cache_kind(&file("type")?)?,
        bytes: suffixed_size(&file("size")?).filter(|&bytes| bytes > 0)?,
        ways: positive_number("ways_of_associativity"),
        line_bytes: positive_number("coherency_line_size"),
        shared_by: cpus_from_files(
            root,
            &[(format!("{directory}/shared_cpu_list"), format!("{directory}/shared_cpu_map"))],
        )
        .unwrap_or_default(),
    })
}

fn nodes(root: FileRoot<'_>) -> Fact<Vec<NumaNode>> {
    let present_nodes = numbered_entries(root, NODE_DIRECTORY, "node");
    let listed = root.text(&format!("{NODE_DIRECTORY}/online")).and_then(|list| non_empty_cpu_list(&list));
    let ids = listed.unwrap_or_else(|| present_nodes.clone());
    let nodes: Vec<NumaNode> = ids.iter().filter_map(|&id| node(root, id)).collect();
    match (nodes.is_empty(), ids.first()) {
        (false, _) => Fact::known(nodes, NODE_DIRECTORY),
        (true, Some(id)) => Fact::unknown(format!(
            "{NODE_DIRECTORY}/node{id} states neither a list of its CPUs (cpulist) nor a mask (cpumap)"
        )),
        (true, None) => Fact::unknown(format!("there are no nodes in {NODE_DIRECTORY}: a kernel without NUMA has one")),
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
        let topology = read(FileRoot::new(tree.path()));
        assert_eq!(topology.cores.get(), Some(&2));
        assert_eq!(topology.sockets.get(), Some(&2));
        assert_eq!(topology.siblings.get(), Some(&vec![vec![0, 1], vec![0, 1], vec![2]]));
        assert_eq!(locations_from_cpuinfo("processor : 0\n\n"), None);
    }

    #[test]
    fn negative_socket_is_unknown() {
        let tree = FixtureTree::default();
        tree.fill("sys/devices/system/cpu/online", "0");
        tree.fill("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0");
        tree.fill("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1");
        let topology = read(FileRoot::new(tree.path()));
        assert!(topology.sockets.get().is_none());
        assert_eq!(topology.cores.get(), Some(&1));
    }
}
