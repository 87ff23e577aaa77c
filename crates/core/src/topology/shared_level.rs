//! What two CPUs have in common.

use std::fmt;

use super::{CoreLocation, Topology};

/// The smallest part of a machine that has both of two CPUs, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedLevel {
    /// A core: they are its threads.
    Core,
    /// A cache of this level.
    Cache(u32),
    /// A die, whose caches differ.
    Die,
    /// A node of memory, whose caches differ.
    Node,
    /// A socket, whose caches, dies and nodes differ.
    Socket,
    /// No socket.
    Machine,
}

impl fmt::Display for SharedLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core => out.write_str("SMT siblings"),
            Self::Cache(level) => write!(out, "same L{level} cache"),
            Self::Die => out.write_str("same die"),
            Self::Node => out.write_str("same node"),
            Self::Socket => out.write_str("same socket"),
            Self::Machine => out.write_str("different sockets"),
        }
    }
}

impl Topology {
    /// The smallest part that has both of two CPUs; `None` if the machine does not state one. Of parts of one size a cache comes before a
    /// socket, and a socket before its only die or node.
    pub fn shared_level(&self, cpu: u32, other: u32) -> Option<SharedLevel> {
        let has_both = |cpus: &[u32]| cpus.contains(&cpu) && cpus.contains(&other);
        let located = self.core_locations.get().into_iter().flatten().map(|core| &core.cpus);
        let cores = self.siblings.get().into_iter().flatten().chain(located);
        let cores = cores.map(|cpus| (SharedLevel::Core, cpus.len(), has_both(cpus)));
        let caches =
            self.data_cache_groups().map(|(level, cpus)| (SharedLevel::Cache(level), cpus.len(), has_both(cpus)));
        let nodes = self.nodes.get().into_iter().flatten();
        let nodes = nodes.map(|node| (SharedLevel::Node, node.cpus.len(), has_both(&node.cpus)));
        let [location, other_location] = [cpu, other].map(|cpu| self.location_of(cpu));
        // Where sockets are unknown, the kernel's numbers are of something else.
        let socket = |core: &CoreLocation| core.socket.filter(|_| self.sockets.get().is_some());
        let die = |core: &CoreLocation| Some((socket(core)?, core.die?));
        let socket_cpus = self.shared_part_cpus(location, other_location, socket);
        let die_cpus = self.shared_part_cpus(location, other_location, die);
        let parts = [(SharedLevel::Socket, socket_cpus), (SharedLevel::Die, die_cpus)];
        let parts = parts.into_iter().filter_map(|(level, cpus)| Some((level, cpus?, true)));
        let shared = cores.chain(caches).chain(parts).chain(nodes).filter(|(.., is_shared)| *is_shared);
        let smallest = shared.min_by_key(|&(_, cpus, _)| cpus).map(|(level, ..)| level);
        let is_one_socket = || self.sockets.get() == Some(&1);
        let are_sockets_known = || location.and_then(socket).is_some() && other_location.and_then(socket).is_some();
        match smallest {
            Some(level) => Some(level),
            None if is_one_socket() => Some(SharedLevel::Socket),
            None => are_sockets_known().then_some(SharedLevel::Machine),
        }
    }

    /// The other CPU for experiments between two: on another core if there is one, of the same kind, of those that share most with this one
    /// the last.
    pub fn partner_of(&self, cpu: u32, allowed: &[u32]) -> Option<u32> {
        let nearness = |other: u32| {
            let level = self.shared_level(cpu, other);
            let is_other_core = level != Some(SharedLevel::Core);
            let is_same_kind = self.kind_index(cpu) == self.kind_index(other);
            // An unknown level is the farthest.
            (is_other_core, is_same_kind, level.is_some(), std::cmp::Reverse(level), other)
        };
        allowed.iter().copied().filter(|&other| other != cpu).max_by_key(|&other| nearness(other))
    }

    /// Each cache of data with its level and the CPUs that share it, those of the measured CPU alone where no others are known.
    fn data_cache_groups(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let instances = self.cache_instances.get();
        let known = instances.into_iter().flatten().filter(|group| group.kind.holds_data());
        let all = known.flat_map(|group| group.shared_by.iter().map(|cpus| (group.level, cpus.as_slice())));
        let own = self.caches.get().filter(|_| instances.is_none()).into_iter().flatten();
        let own = own.filter(|cache| cache.kind.holds_data()).map(|cache| (cache.level, cache.shared_by.as_slice()));
        all.chain(own)
    }

    fn location_of(&self, cpu: u32) -> Option<&CoreLocation> {
        self.core_locations.get()?.iter().find(|core| core.cpus.contains(&cpu))
    }

    /// How many CPUs the part has in which both cores are; `None` if they are in two, or it is not known.
    fn shared_part_cpus<P: PartialEq>(
        &self,
        core: Option<&CoreLocation>,
        other: Option<&CoreLocation>,
        part: impl Fn(&CoreLocation) -> Option<P>,
    ) -> Option<usize> {
        let shared = part(core?)?;
        let is_in = |candidate: &CoreLocation| part(candidate).as_ref() == Some(&shared);
        let cores = self.core_locations.get()?.iter().filter(|candidate| is_in(candidate));
        is_in(other?).then(|| cores.map(|core| core.cpus.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hybrid, known, two_sockets};
    use super::*;
    use crate::{Cache, CacheKind, Fact};

    #[test]
    fn nearest_shared_part_counts() {
        let topology = two_sockets();
        // Threads, cores of a cache, of a node, of a socket of two nodes, and of two sockets, whose numbers alternate.
        let levels = [16, 2, 4, 8, 1].map(|other| topology.shared_level(0, other).unwrap());
        let expected =
            [SharedLevel::Core, SharedLevel::Cache(3), SharedLevel::Node, SharedLevel::Socket, SharedLevel::Machine];
        assert_eq!(levels, expected);
        assert!(levels.is_sorted());
        let topology = hybrid();
        let level = |cpu, other| topology.shared_level(cpu, other);
        assert_eq!((level(0, 1), level(0, 2)), (Some(SharedLevel::Core), Some(SharedLevel::Cache(3))));
        assert_eq!((level(8, 11), level(8, 7)), (Some(SharedLevel::Cache(2)), Some(SharedLevel::Cache(3))));
        assert_eq!((level(8, 12), level(12, 13)), (Some(SharedLevel::Socket), Some(SharedLevel::Cache(2))));
    }

    #[test]
    fn node_of_a_whole_socket_is_no_level() {
        let mut topology = two_sockets();
        let nodes = topology.nodes.get().unwrap();
        let merged = |first: usize| {
            let mut node = nodes[first].clone();
            node.cpus.extend(&nodes[first + 1].cpus);
            node
        };
        topology.nodes = known(vec![merged(0), merged(2)]);
        assert_eq!(topology.shared_level(0, 4), Some(SharedLevel::Socket));
        // Dies without caches of their own.
        let mut cores = topology.core_locations.get().unwrap().clone();
        cores.iter_mut().for_each(|core| core.die = Some(core.cpus[0] / 8));
        topology.core_locations = known(cores);
        assert_eq!(topology.shared_level(0, 4), Some(SharedLevel::Die));
        assert_eq!(topology.shared_level(0, 8), Some(SharedLevel::Socket));
    }

    #[test]
    fn unknown_parts_are_no_levels() {
        assert_eq!(Topology::default().shared_level(0, 1), None);
        let unknown_sockets = Topology { sockets: Fact::unknown("a test"), ..two_sockets() };
        assert_eq!(unknown_sockets.shared_level(0, 2), Some(SharedLevel::Cache(3)));
        assert_eq!(unknown_sockets.shared_level(0, 1), None);
        // Of a run that knows the caches of the measured CPU alone.
        let cache = Cache {
            level: 3,
            kind: CacheKind::Unified,
            bytes: 1 << 20,
            ways: None,
            line_bytes: None,
            shared_by: vec![0, 1],
        };
        let of_one_cpu = Topology { caches: known(vec![cache]), sockets: known(1), ..Topology::default() };
        assert_eq!(of_one_cpu.shared_level(0, 1), Some(SharedLevel::Cache(3)));
        assert_eq!(of_one_cpu.shared_level(0, 2), Some(SharedLevel::Socket));
    }

    #[test]
    fn partner_is_near_and_of_the_same_kind() {
        let all: Vec<u32> = (0..32).collect();
        assert_eq!(two_sockets().partner_of(0, &all), Some(18));
        assert_eq!(two_sockets().partner_of(0, &[0, 1, 16]), Some(1), "a thread of the same core is the last resort");
        assert_eq!(two_sockets().partner_of(0, &[0, 16]), Some(16));
        assert_eq!(hybrid().partner_of(0, &[0, 1, 2, 8]), Some(2));
        assert_eq!(hybrid().partner_of(8, &[0, 8, 9, 12]), Some(9));
        assert_eq!(Topology::default().partner_of(0, &[0, 1, 2]), Some(2));
        assert_eq!(Topology::default().partner_of(0, &[0]), None);
    }
}
