//! The CPUs of experiments on several at once: how many, and which.

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use kelvin_harness::Effort;
use kelvin_sys::cpu;
use kelvin_sys::numa::node_of_cpu;

/// Numbers of CPUs for a curve up to all: one and all in a quick run; the powers of two between them, and those halfway in a thorough one.
pub(crate) fn cpu_counts(cpus: u64, effort: Effort) -> Vec<u64> {
    let is_halfway = |count: u64| count.is_multiple_of(3) && (count / 3).is_power_of_two();
    let is_included = |count: u64| match effort {
        Effort::Quick => count == 1,
        Effort::Default => count.is_power_of_two(),
        Effort::Thorough => count.is_power_of_two() || is_halfway(count),
    };
    (1..=cpus).filter(|&count| is_included(count) || count == cpus).collect()
}

/// Where a CPU is, by numbers that differ between cores, caches and nodes; `None` is not known, and shared with none.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuPlace {
    pub core: Option<[i64; 3]>,
    /// The CPUs that share its last-level cache, as the kernel lists them.
    pub cache: Option<String>,
    pub node: Option<u32>,
}

/// CPUs in the order in which they are put to work: the measured one and one of each other core, then the second threads of the cores. Among
/// these, one of each cache comes before the second of any, and one of each node's caches before the second of any.
pub(crate) fn spread_over_cores(measured_cpu: u32, allowed: &[u32], place_of: impl Fn(u32) -> CpuPlace) -> Vec<u32> {
    let other_cpus = allowed.iter().copied().filter(|&cpu| cpu != measured_cpu);
    let (mut threads, mut cache_cpus, mut node_cpus) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut ranked: Vec<_> = std::iter::once(measured_cpu)
        .chain(other_cpus)
        .map(|cpu| {
            let CpuPlace { core, cache, node } = place_of(cpu);
            let thread = core.map_or(0, |core| next_count(&mut threads, core));
            let in_cache = cache.map_or(0, |cache| next_count(&mut cache_cpus, (thread, cache)));
            let in_node = node.map_or(0, |node| next_count(&mut node_cpus, (thread, in_cache, node)));
            ((thread, in_cache, in_node), cpu)
        })
        .collect();
    // Stable: where all is the same, in the order of the numbers.
    ranked.indirect_sort_by_key(|&(rank, _)| rank);
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

/// CPUs of this machine in that order, by what the kernel states of their cores, caches and nodes.
pub(crate) fn spread_over_machine(measured_cpu: u32, allowed: &[u32]) -> Vec<u32> {
    spread_over_cores(measured_cpu, allowed, place_of)
}

/// CPUs so that neighbours are near each other, whatever their numbers: those of one cache, one after another, then those of the next cache
/// of the node, and of the next node of the socket. Within a cache cores come before their second threads. The measured CPU is the first.
pub(crate) fn neighbours_together(measured_cpu: u32, allowed: &[u32], place_of: impl Fn(u32) -> CpuPlace) -> Vec<u32> {
    let socket_of = |place: &CpuPlace| place.core.map(|[socket, ..]| socket);
    let (own, mut threads) = (place_of(measured_cpu), BTreeMap::new());
    let other_cpus = allowed.iter().copied().filter(|&cpu| cpu != measured_cpu);
    let mut ranked: Vec<_> = std::iter::once(measured_cpu)
        .chain(other_cpus)
        .map(|cpu| {
            let place = place_of(cpu);
            let thread = place.core.map_or(0, |core| next_count(&mut threads, core));
            let socket = socket_of(&place);
            let is_apart = [socket != socket_of(&own), place.node != own.node, place.cache != own.cache];
            ((is_apart, socket, place.node, place.cache, thread), cpu)
        })
        .collect();
    ranked.indirect_sort_by(|(rank, _), (other, _)| rank.cmp(other));
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

/// CPUs of this machine in that order.
pub(crate) fn neighbours_on_machine(measured_cpu: u32, allowed: &[u32]) -> Vec<u32> {
    neighbours_together(measured_cpu, allowed, place_of)
}

/// Where a CPU of this machine is.
fn place_of(cpu: u32) -> CpuPlace {
    CpuPlace { core: cpu::core_of(cpu), cache: last_level_sharers(cpu), node: node_of_cpu(cpu) }
}

/// The CPUs that share the last-level cache of a CPU; `None` where the kernel tells none.
pub(crate) fn last_level_sharers(cpu: u32) -> Option<String> {
    cpu::last_level_cache(cpu).map(|cache| cache.cpus)
}

/// CPUs in the order in which they are put to work where nearness of caches and nodes does not count: cores, then their second threads.
pub(crate) fn cores_first(measured_cpu: u32, allowed: &[u32]) -> Vec<u32> {
    spread_over_cores(measured_cpu, allowed, |cpu| CpuPlace { core: cpu::core_of(cpu), ..CpuPlace::default() })
}

/// The items so that the first ones are spread over all: those at the beginning, halfway, at the quarters, and so on (bit-reversed order).
pub(crate) fn evenly_spread<T>(items: &[T]) -> impl Iterator<Item = &T> {
    let bits = items.len().next_power_of_two().trailing_zeros();
    let index = move |i: usize| i.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0);
    (0..1usize << bits).filter_map(move |i| items.get(index(i)))
}

/// How often a key was counted before.
fn next_count<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) -> usize {
    let count = counts.entry(key).or_default();
    *count += 1;
    *count - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_curve_depend_on_effort() {
        assert_eq!(cpu_counts(12, Effort::Quick), [1, 12]);
        assert_eq!(cpu_counts(12, Effort::Default), [1, 2, 4, 8, 12]);
        assert_eq!(cpu_counts(12, Effort::Thorough), [1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(cpu_counts(1, Effort::Default), [1]);
    }

    #[test]
    fn first_items_are_spread_over_all() {
        let order = |count: u32| evenly_spread(&(0..count).collect::<Vec<u32>>()).copied().collect::<Vec<u32>>();
        assert_eq!(order(8), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(order(6), [0, 4, 2, 1, 5, 3]);
        assert_eq!((order(1), order(0)), (vec![0], vec![]));
    }

    #[test]
    fn cores_are_filled_before_their_second_threads() {
        let of_core = |core: [i64; 3]| CpuPlace { core: Some(core), ..CpuPlace::default() };
        // Threads of a core side by side, as on many guests.
        let adjacent = |cpu: u32| of_core([0, 0, i64::from(cpu / 2)]);
        assert_eq!(spread_over_cores(7, &[0, 1, 2, 3, 4, 5, 6, 7], adjacent), [7, 0, 2, 4, 1, 3, 5, 6]);
        // Those of a core half of the CPUs apart, on two sockets with the same numbers of cores.
        let apart = |cpu: u32| of_core([i64::from(cpu % 4 / 2), 0, i64::from(cpu % 2)]);
        assert_eq!(spread_over_cores(7, &[0, 1, 2, 3, 4, 5, 6, 7], apart), [7, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(spread_over_cores(2, &[0, 1, 2], |_| CpuPlace::default()), [2, 0, 1]);
    }

    #[test]
    fn caches_and_nodes_take_turns() {
        // Two nodes of two caches of two cores, one after another.
        let place = |cpu: u32| CpuPlace {
            core: Some([0, 0, i64::from(cpu)]),
            cache: Some(format!("{}-{}", cpu & !1, cpu | 1)),
            node: Some(cpu / 4),
        };
        assert_eq!(spread_over_cores(0, &[0, 1, 2, 3, 4, 5, 6, 7], place), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(spread_over_cores(5, &[0, 1, 2, 3, 4, 5, 6, 7], place), [5, 0, 2, 6, 1, 4, 3, 7]);
    }

    #[test]
    fn neighbours_share_a_cache_where_numbers_alternate_between_sockets() {
        // Two sockets of two nodes of two caches of two cores of two threads; the socket is the number's last bit.
        let place = |cpu: u32| {
            let core = cpu % 16;
            let (socket, in_socket) = (core % 2, core / 2);
            CpuPlace {
                core: Some([i64::from(socket), 0, i64::from(in_socket)]),
                cache: Some(format!("{socket}/{}", in_socket / 2)),
                node: Some(2 * socket + in_socket / 4),
            }
        };
        let allowed: Vec<u32> = (0..32).collect();
        let order = neighbours_together(31, &allowed, place);
        // The measured CPU counts as its core's first thread.
        assert_eq!(order[..8], [31, 13, 15, 29, 9, 11, 25, 27], "its cache, then its node's other one");
        assert_eq!(order[8..12], [1, 3, 17, 19], "then its socket's other node");
        let sockets: Vec<u32> = order.iter().map(|cpu| cpu % 2).collect();
        assert_eq!(sockets.windows(2).filter(|pair| pair[0] != pair[1]).count(), 1, "{order:?}");
        assert_eq!(neighbours_together(1, &[0, 1], |_| CpuPlace::default()), [1, 0]);
    }
}
