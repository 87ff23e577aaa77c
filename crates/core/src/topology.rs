//! CPUs and what they share: cores, caches, sockets, dies, memory nodes, and the kinds of cores.

mod near_cpus;
mod shared_level;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::shared_level::SharedLevel;
use crate::Fact;

/// CPUs and how they share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// CPUs online.
    pub online: Fact<Vec<u32>>,
    /// CPUs that are present and offline; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub offline: Fact<Vec<u32>>,
    /// CPUs that the scheduler balances no tasks onto (`isolcpus=`); not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub isolated: Fact<Vec<u32>>,
    /// CPUs that this process may use (affinity mask).
    pub allowed: Fact<Vec<u32>>,
    /// Sockets.
    pub sockets: Fact<u32>,
    /// Physical cores.
    pub cores: Fact<u32>,
    /// For each online CPU the CPUs of the same core, itself included.
    pub siblings: Fact<Vec<Vec<u32>>>,
    /// Where each core is; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub core_locations: Fact<Vec<CoreLocation>>,
    /// Kinds of cores, the fastest first; empty if all are of one kind. Not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub core_kinds: Fact<Vec<CoreKind>>,
    /// Caches of the CPU that is measured, innermost first.
    pub caches: Fact<Vec<Cache>>,
    /// Caches of all online CPUs, innermost first; not read by earlier versions.
    #[serde(default, skip_serializing_if = "Fact::is_not_read")]
    pub cache_instances: Fact<Vec<CacheInstances>>,
    /// Nodes of memory.
    pub nodes: Fact<Vec<NumaNode>>,
}

/// A core, and where it is. Numbers are those of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreLocation {
    /// Its online CPUs.
    pub cpus: Vec<u32>,
    /// Its socket; `None` where the platform states none.
    pub socket: Option<u32>,
    /// Its die within the socket; `None` where the kernel states none.
    pub die: Option<u32>,
}

/// Cores of one design and speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreKind {
    /// `P-core`, `E-core`, `LP E-core`, `Cortex-A78`; where only frequencies differ, `core up to 4.9 GHz`.
    pub name: String,
    /// Its online CPUs.
    pub cpus: Vec<u32>,
    /// Highest frequency in hertz, if stated.
    pub maximum_hz: Option<f64>,
    /// Capacity by the scheduler, 1024 is the fastest CPU of the machine, if stated.
    pub capacity: Option<u32>,
}

/// Caches that differ only in the CPUs that share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheInstances {
    /// 1, 2, 3.
    pub level: u32,
    /// What they hold.
    pub kind: CacheKind,
    /// Size of each.
    pub bytes: u64,
    /// Ways of associativity, if stated.
    pub ways: Option<u32>,
    /// Line size, if stated.
    pub line_bytes: Option<u32>,
    /// For each the online CPUs that share it.
    pub shared_by: Vec<Vec<u32>>,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Size.
    pub bytes: u64,
    /// Ways of associativity, if stated.
    pub ways: Option<u32>,
    /// Line size, if stated.
    pub line_bytes: Option<u32>,
    /// CPUs that share it.
    pub shared_by: Vec<u32>,
}

/// What a cache or TLB holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

impl CacheKind {
    /// Whether loads and stores find data in it.
    pub fn holds_data(self) -> bool {
        self != Self::Instruction
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Instruction => "instruction",
            Self::Unified => "unified",
        }
    }
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumaNode {
    /// Number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// Its memory.
    pub bytes: Option<u64>,
    /// Distances to all nodes, in the order of nodes, 10 is local.
    pub distances: Vec<u32>,
}

/// Online CPUs that share their last-level cache, and are of one socket, die and node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDomain {
    /// Socket, if the platform states it.
    pub socket: Option<u32>,
    /// Die within the socket, where a socket has more than one.
    pub die: Option<u32>,
    /// Node of memory.
    pub node: Option<u32>,
    /// Level and size of the last-level cache, if the machine states caches.
    pub cache: Option<(u32, u64)>,
    /// Its cores, by kind, in the order of kinds.
    pub cores: Vec<CoreGroup>,
}

/// Cores of one kind in a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreGroup {
    /// Index in `Topology::core_kinds`, where kinds differ.
    pub kind: Option<usize>,
    /// The online CPUs of each core.
    pub cores: Vec<Vec<u32>>,
}

impl CoreGroup {
    /// Its CPUs.
    pub fn cpus(&self) -> Vec<u32> {
        self.cores.concat()
    }
}

impl CacheDomain {
    /// Its CPUs, core by core.
    pub fn cpus(&self) -> Vec<u32> {
        self.cores.iter().flat_map(CoreGroup::cpus).collect()
    }
}

impl Topology {
    /// The kind of a CPU, where kinds of cores differ.
    pub fn kind_of(&self, cpu: u32) -> Option<&CoreKind> {
        Some(&self.core_kinds.get()?[self.kind_index(cpu)?])
    }

    /// The place of a CPU among `core_kinds`, where kinds of cores differ.
    pub fn kind_index(&self, cpu: u32) -> Option<usize> {
        self.core_kinds.get()?.iter().position(|kind| kind.cpus.contains(&cpu))
    }

    /// The CPU that is measured unless another is named: the last allowed one of the fastest kind of core, away from CPU 0, on which most
    /// interrupts land.
    pub fn default_cpu(&self, allowed: &[u32]) -> Option<u32> {
        let kinds = self.core_kinds.get().map_or(&[][..], Vec::as_slice);
        let of_kind = |kind: &CoreKind| allowed.iter().rev().copied().find(|cpu| kind.cpus.contains(cpu));
        kinds.iter().find_map(of_kind).or_else(|| allowed.last().copied())
    }

    /// The caches of one CPU, innermost first.
    pub fn caches_of(&self, cpu: u32) -> Fact<Vec<Cache>> {
        let cache = |group: &CacheInstances| {
            let shared_by = group.sharers_of(cpu)?.to_vec();
            let CacheInstances { level, kind, bytes, ways, line_bytes, .. } = *group;
            Some(Cache { level, kind, bytes, ways, line_bytes, shared_by })
        };
        match &self.cache_instances {
            Fact::Known { value: groups, source } => {
                Fact::known(groups.iter().filter_map(cache).collect(), source.as_str())
            }
            Fact::Unknown { reason } => Fact::unknown(reason.as_str()),
        }
    }

    /// Whether two CPUs have the same last-level cache, or both none that is known.
    pub fn shares_last_level_cache(&self, cpu: u32, other: u32) -> bool {
        self.last_level_cache(cpu) == self.last_level_cache(other)
    }

    /// All online CPUs by socket, die, node and last-level cache, in the order of the kernel's numbers; empty if it is not known which CPUs
    /// share a core.
    pub fn cache_domains(&self) -> Vec<CacheDomain> {
        let cores = self.core_locations.get().map_or(&[][..], Vec::as_slice);
        let nodes = self.nodes.get().map_or(&[][..], Vec::as_slice);
        let has_dies = cores.iter().any(|core| {
            cores.iter().any(|other| other.socket == core.socket && other.die.is_some() && other.die != core.die)
        });
        let mut domains = BTreeMap::<_, BTreeMap<Option<usize>, Vec<Vec<u32>>>>::new();
        for core in cores {
            let Some(&cpu) = core.cpus.first() else { continue };
            let die = core.die.filter(|_| has_dies);
            let node = nodes.iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.id);
            // Where sockets are unknown, the kernel's numbers are of something else.
            let socket = core.socket.filter(|_| self.sockets.get().is_some());
            let key = (socket, die, node, self.last_level_cache(cpu));
            domains.entry(key).or_default().entry(self.kind_index(cpu)).or_default().push(core.cpus.clone());
        }
        let domain = |((socket, die, node, cache), groups): ((_, _, _, Option<LastLevelCache<'_>>), BTreeMap<_, _>)| {
            let cache = cache.map(|cache| (cache.level, cache.bytes));
            let cores = groups.into_iter().map(|(kind, cores)| CoreGroup { kind, cores }).collect();
            CacheDomain { socket, die, node, cache, cores }
        };
        domains.into_iter().map(domain).collect()
    }

    fn last_level_cache(&self, cpu: u32) -> Option<LastLevelCache<'_>> {
        let groups = self.cache_instances.get()?.iter().filter(|group| group.kind.holds_data());
        let shared = groups.filter_map(|group| {
            Some(LastLevelCache { shared_by: group.sharers_of(cpu)?, level: group.level, bytes: group.bytes })
        });
        shared.max_by_key(|cache| cache.level)
    }
}

impl CacheInstances {
    /// Whether they differ from others only in the CPUs that share them.
    pub fn is_alike(&self, other: &Self) -> bool {
        let description = |caches: &Self| (caches.level, caches.kind, caches.bytes, caches.ways, caches.line_bytes);
        description(self) == description(other)
    }

    /// The CPUs that share the one of these caches that a CPU has.
    pub fn sharers_of(&self, cpu: u32) -> Option<&[u32]> {
        self.shared_by.iter().find(|cpus| cpus.contains(&cpu)).map(Vec::as_slice)
    }
}

/// The last-level cache of a CPU; in the order of the CPUs that share it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LastLevelCache<'a> {
    shared_by: &'a [u32],
    level: u32,
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology_map;

    const MIB: u64 = 1 << 20;

    pub(super) fn known<T>(value: T) -> Fact<T> {
        Fact::known(value, "a test")
    }

    fn cache(level: u32, bytes: u64, shared_by: Vec<Vec<u32>>) -> CacheInstances {
        CacheInstances { level, kind: CacheKind::Unified, bytes, ways: None, line_bytes: None, shared_by }
    }

    fn node(id: u32, cpus: Vec<u32>, gibibytes: u64) -> NumaNode {
        NumaNode { id, cpus, bytes: Some(gibibytes << 30), distances: Vec::new() }
    }

    /// Two sockets whose CPUs alternate, each with two nodes, of each two caches shared by two cores of two threads; and a node of memory
    /// alone. The threads of core n are CPUs n and n + 16.
    pub(super) fn two_sockets() -> Topology {
        let core = |n: u32| CoreLocation { cpus: vec![n, n + 16], socket: Some(36 + n % 2 * 1000), die: Some(0) };
        let group = |members: &dyn Fn(u32) -> bool| (0..32).filter(|cpu| members(cpu % 16)).collect::<Vec<u32>>();
        let nodes = (0..4).map(|id| node(id, group(&|core| core % 2 == id / 2 && core / 8 == id % 2), 64));
        let caches = (0..8).map(|id| group(&|core| core % 2 == id / 4 && core / 4 == id % 4));
        Topology {
            online: known((0..32).collect()),
            sockets: known(2),
            core_locations: known((0..16).map(core).collect()),
            core_kinds: known(Vec::new()),
            cache_instances: known(vec![
                cache(2, MIB, (0..16).map(|core| vec![core, core + 16]).collect()),
                cache(3, 32 * MIB, caches.collect()),
            ]),
            nodes: known(nodes.chain([node(4, Vec::new(), 256)]).collect()),
            ..Topology::default()
        }
    }

    /// Four cores of two threads and four smaller ones with a second-level cache of their own, under one third-level cache; and two at its side.
    pub(super) fn hybrid() -> Topology {
        let core = |cpus: Vec<u32>| CoreLocation { cpus, socket: Some(0), die: Some(0) };
        let cores = (0..4).map(|n| vec![2 * n, 2 * n + 1]).chain((8..14).map(|cpu| vec![cpu]));
        let kind = |name: &str, cpus: std::ops::Range<u32>| CoreKind {
            name: name.to_owned(),
            cpus: cpus.collect(),
            maximum_hz: None,
            capacity: None,
        };
        Topology {
            online: known((0..14).collect()),
            sockets: known(1),
            core_locations: known(cores.map(core).collect()),
            core_kinds: known(vec![kind("P-core", 0..8), kind("E-core", 8..12), kind("LP E-core", 12..14)]),
            cache_instances: known(vec![
                cache(
                    2,
                    2 * MIB,
                    vec![vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7], (8..12).collect(), vec![12, 13]],
                ),
                cache(3, 24 * MIB, vec![(0..12).collect()]),
            ]),
            nodes: known(vec![node(0, (0..14).collect(), 32)]),
            ..Topology::default()
        }
    }

    #[test]
    fn map_follows_sockets_nodes_and_caches_of_alternating_cpus() {
        assert_eq!(
            topology_map(&two_sockets()),
            [
                "socket 0, node 0 (64 GiB)",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 0,2,16,18",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 4,6,20,22",
                "socket 0, node 1 (64 GiB)",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 8,10,24,26",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 12,14,28,30",
                "socket 1, node 2 (64 GiB)",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 1,3,17,19",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 5,7,21,23",
                "socket 1, node 3 (64 GiB)",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 9,11,25,27",
                "  L3 32 MiB: 2 cores of 2 threads, CPUs 13,15,29,31",
                "node 4 (256 GiB), no CPUs",
            ]
        );
    }

    #[test]
    fn map_counts_cores_of_each_kind_below_a_cache() {
        assert_eq!(
            topology_map(&hybrid()),
            [
                "socket 0, node 0 (32 GiB)",
                "  L3 24 MiB: 4 P-cores of 2 threads, CPUs 0-7; 4 E-cores, CPUs 8-11",
                "  L2 2 MiB: 2 LP E-cores, CPUs 12-13",
            ]
        );
    }

    #[test]
    fn map_of_unknown_sockets_and_caches_has_cores_alone() {
        let topology = Topology {
            sockets: Fact::unknown("a test"),
            cache_instances: Fact::unknown("a test"),
            nodes: Fact::unknown("a test"),
            ..hybrid()
        };
        assert_eq!(
            topology_map(&topology),
            ["machine", "  4 P-cores of 2 threads, CPUs 0-7; 4 E-cores, CPUs 8-11; 2 LP E-cores, CPUs 12-13"]
        );
        assert!(topology_map(&Topology::default()).is_empty());
    }

    #[test]
    fn default_cpu_is_the_last_allowed_one_of_the_fastest_kind() {
        let all: Vec<u32> = (0..14).collect();
        assert_eq!(hybrid().default_cpu(&all), Some(7));
        assert_eq!(hybrid().default_cpu(&[0, 3, 9]), Some(3));
        assert_eq!(hybrid().default_cpu(&[9, 13]), Some(9));
        assert_eq!(two_sockets().default_cpu(&all), Some(13));
        assert_eq!(hybrid().default_cpu(&[]), None);
    }

    #[test]
    fn caches_of_a_cpu_are_those_that_it_shares() {
        let caches = hybrid().caches_of(9).get().unwrap().clone();
        let shared: Vec<(u32, usize)> = caches.iter().map(|cache| (cache.level, cache.shared_by.len())).collect();
        assert_eq!(shared, [(2, 4), (3, 12)]);
        let caches = hybrid().caches_of(13).get().unwrap().clone();
        assert_eq!(caches.len(), 1, "low-power cores are outside the third-level cache");
        assert!(hybrid().shares_last_level_cache(0, 11) && !hybrid().shares_last_level_cache(11, 12));
        assert!(Topology::default().caches_of(0).get().is_none());
    }
}
