//! CPUs, what they share, and NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};

use kelvin_model::{Cache, CacheKind, Fact, NumaNode, Topology};

use crate::cpu;
use crate::text::{Root, cpu_list, suffixed_size, value};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

pub(crate) fn read(root: Root<'_>) -> Topology {
    let online = online(root);
    let allowed = allowed(root);
    let first = first_allowed(&allowed);
    let places = places(root, &online);
    Topology {
        sockets: sockets(&places),
        cores: cores(&places),
        siblings: siblings(&places),
        caches: caches(root, first),
        nodes: nodes(root),
        online,
        allowed,
    }
}

/// What makes two CPUs of one kind: their speed, by cpufreq and by the scheduler, their design, and what they share.
const KIND: [&str; 6] = [
    "cpufreq/cpuinfo_max_freq",
    "cpu_capacity",
    "regs/identification/midr_el1",
    "topology/physical_package_id",
    "topology/die_id",
    "cache/index3/id",
];

/// Those of these CPUs that are of the same kind as one of them, in the same place: a metric is the same on all of them.
pub(crate) fn alike(root: Root<'_>, cpus: &[u32], one: u32) -> Vec<u32> {
    let kind = |cpu: u32| KIND.map(|file| root.text(&format!("{CPUS}/cpu{cpu}/{file}")));
    let own = kind(one);
    cpus.iter().copied().filter(|&cpu| kind(cpu) == own).collect()
}

/// The default CPU of probes: the first allowed one.
pub(crate) fn first_allowed(allowed: &Fact<Vec<u32>>) -> u32 {
    allowed.get().and_then(|cpus| cpus.first().copied()).unwrap_or(0)
}

fn some_cpus(text: &str) -> Option<Vec<u32>> {
    cpu_list(text).filter(|cpus| !cpus.is_empty())
}

fn online(root: Root<'_>) -> Fact<Vec<u32>> {
    let listed = root.fact(&format!("{CPUS}/online"), some_cpus);
    if listed.get().is_some() {
        return listed;
    }
    let blocks = cpu::parse(&root.text(cpu::CPUINFO).unwrap_or_default());
    let cpus: Vec<u32> = blocks.iter().filter_map(|block| block.get("processor")?.parse().ok()).collect();
    if cpus.is_empty() { listed } else { Fact::known(cpus, cpu::CPUINFO) }
}

pub(crate) fn allowed(root: Root<'_>) -> Fact<Vec<u32>> {
    root.fact("/proc/self/status", |text| some_cpus(value(text, "Cpus_allowed_list", ':')?))
}

/// The place of a CPU: its socket, and the CPUs of its core.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// `None` where the platform states none (-1 in some virtual machines).
    socket: Option<u32>,
    threads: Vec<u32>,
}

/// The place of every online CPU, from sysfs or else from /proc/cpuinfo.
fn places(root: Root<'_>, online: &Fact<Vec<u32>>) -> Fact<Vec<Place>> {
    let cpus = match online {
        Fact::Known { value, .. } => value,
        Fact::Unknown { reason } => return Fact::unknown(reason.as_str()),
    };
    let listed: Option<Vec<Place>> = cpus.iter().map(|&cpu| place(root, cpu)).collect();
    if let Some(places) = listed {
        return Fact::known(places, format!("{CPUS}/cpu*/topology"));
    }
    match places_of_cpuinfo(&root.text(cpu::CPUINFO).unwrap_or_default()) {
        Some(places) => Fact::known(places, cpu::CPUINFO),
        None => Fact::unknown(format!("neither {CPUS}/cpu*/topology nor /proc/cpuinfo shows which CPUs share a core")),
    }
}

fn place(root: Root<'_>, cpu: u32) -> Option<Place> {
    let file = |name: &str| root.text(&format!("{CPUS}/cpu{cpu}/topology/{name}"));
    // `core_cpus_list` is the name since 5.3, `thread_siblings_list` the one before.
    let threads = file("core_cpus_list").or_else(|| file("thread_siblings_list"))?;
    Some(Place { socket: file("physical_package_id")?.parse().ok(), threads: some_cpus(&threads)? })
}

fn places_of_cpuinfo(text: &str) -> Option<Vec<Place>> {
    let blocks = cpu::parse(text);
    let mut cores: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    let mut keys = Vec::new();
    for block in &blocks {
        let number = |key: &str| block.get(key)?.parse::<u32>().ok();
        let key = (number("physical id")?, number("core id")?);
        cores.entry(key).or_default().push(number("processor")?);
        keys.push(key);
    }
    let places = keys.iter().map(|key| Place { socket: Some(key.0), threads: cores[key].clone() });
    Some(places.collect()).filter(|places: &Vec<Place>| !places.is_empty())
}

fn sockets(places: &Fact<Vec<Place>>) -> Fact<u32> {
    match places {
        Fact::Unknown { reason } => Fact::unknown(reason.as_str()),
        Fact::Known { value, source } => {
            let sockets: Option<BTreeSet<u32>> = value.iter().map(|place| place.socket).collect();
            match sockets {
                Some(sockets) => Fact::known(sockets.len() as u32, source.as_str()),
                None => Fact::unknown("the platform numbers no sockets (physical_package_id is -1)"),
            }
        }
    }
}

fn cores(places: &Fact<Vec<Place>>) -> Fact<u32> {
    let distinct =
        |places: Vec<Place>| places.into_iter().map(|place| place.threads).collect::<BTreeSet<_>>().len() as u32;
    places.clone().map(distinct)
}

fn siblings(places: &Fact<Vec<Place>>) -> Fact<Vec<Vec<u32>>> {
    places.clone().map(|places| places.into_iter().map(|place| place.threads).collect())
}

fn caches(root: Root<'_>, cpu: u32) -> Fact<Vec<Cache>> {
    let directory = format!("{CPUS}/cpu{cpu}/cache");
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

fn cache(root: Root<'_>, directory: &str) -> Option<Cache> {
    let file = |name: &str| root.text(&format!("{directory}/{name}"));
    let kind = match file("type")?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    let stated = |name: &str| file(name)?.parse::<u32>().ok().filter(|&value| value > 0);
    Some(Cache {
        level: file("level")?.parse().ok()?,
        kind,
        bytes: suffixed_size(&file("size")?).filter(|&bytes| bytes > 0)?,
        ways: stated("ways_of_associativity"),
        line_bytes: stated("coherency_line_size"),
        shared_by: file("shared_cpu_list").and_then(|list| cpu_list(&list)).unwrap_or_default(),
    })
}

fn nodes(root: Root<'_>) -> Fact<Vec<NumaNode>> {
    let ids = root.text(&format!("{NODES}/online")).and_then(|list| cpu_list(&list)).unwrap_or_default();
    let nodes: Vec<NumaNode> = ids.into_iter().filter_map(|id| node(root, id)).collect();
    if nodes.is_empty() {
        return Fact::unknown(format!("there is no {NODES}: a kernel without NUMA has one node"));
    }
    Fact::known(nodes, NODES)
}

fn node(root: Root<'_>, id: u32) -> Option<NumaNode> {
    let file = |name: &str| root.text(&format!("{NODES}/node{id}/{name}"));
    let distances = file("distance").unwrap_or_default();
    Some(NumaNode {
        id,
        cpus: cpu_list(&file("cpulist")?)?,
        bytes: file("meminfo").and_then(|text| node_memory(&text)),
        distances: distances.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect(),
    })
}

/// `Node 0 MemTotal:       65639228 kB`
fn node_memory(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("MemTotal:"))?;
    let (_, after) = line.split_once(':')?;
    after.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuinfo_shows_cores_where_sysfs_is_hidden() {
        let text = "processor : 0\nphysical id : 0\ncore id : 0\n\nprocessor : 1\nphysical id : 0\ncore id : 0\n\n\
                    processor : 2\nphysical id : 1\ncore id : 0\n\n";
        let places = Fact::known(places_of_cpuinfo(text).unwrap(), "x");
        assert_eq!(cores(&places).get(), Some(&2));
        assert_eq!(sockets(&places).get(), Some(&2));
        assert_eq!(siblings(&places).get(), Some(&vec![vec![0, 1], vec![0, 1], vec![2]]));
        assert_eq!(places_of_cpuinfo("processor : 0\n\n"), None);
    }

    #[test]
    fn sockets_numbered_minus_one_are_unknown() {
        let places = Fact::known(vec![Place { socket: None, threads: vec![0] }], "x");
        assert!(sockets(&places).get().is_none());
        assert_eq!(cores(&places).get(), Some(&1));
    }
}
