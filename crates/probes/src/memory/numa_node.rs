//! NUMA: latency and bandwidth from the CPUs of each node to the memory of each.
//!
//! The matrix shows the cost of running on another node than one's memory. It must not be used as the cost of page
//! migration, nor of lines cached on another node (that is mem.core_to_core).

use std::collections::{BTreeMap, BTreeSet};

use kelvin_core::catalogue::mem::{BYTES, FROM_NODE, NODE_BANDWIDTH, NODE_LATENCY, NODE_PROBE, TO_NODE};
use kelvin_core::{NumaNode, units};
use kelvin_sys::cpu;
use kelvin_sys::kernels::bandwidth::Operation;
use kelvin_sys::memory::{Arena, PagePolicy, PointerRing};
use kelvin_sys::numa::{self, NodePolicy, node_of_cpu, page_nodes};

use super::axes::{number, skip_if_out_of_memory};
use super::bandwidth::{BandwidthArrays, widest_kernel};
use super::memory_budget;
use crate::prelude::*;
use crate::working_cpus::evenly_spread;

pub(crate) static PROBE: Probe = Probe {
    id: NODE_PROBE.as_str(),
    summary: "Memory latency and bandwidth from the CPUs of each NUMA node to the memory of each",
    method: include_str!("numa_node.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&NODE_LATENCY, &NODE_BANDWIDTH])
};

/// Maximum nodes of which all pairs are measured, by effort. Of more, these are spread over the machine, and the node of the measured CPU
/// is paired with all.
const MAX_QUICK_NODES: usize = 2;
const MAX_DEFAULT_NODES: usize = 8;
/// Memory of a round: more than the pages that banks keep open, so that loads find as few of them open as in larger memory.
const SET_BYTES: u64 = 32 << 20;
/// How many times as much memory must be left on a node.
const MEMORY_MARGIN: u64 = 4;
/// Bytes for each line of the ring: a round needs some thousands of lines, and a denser ring takes longer to build.
const BYTES_PER_LINE: usize = 1 << 10;
/// Bytes of a sample of bandwidth: far beyond what is in flight.
pub(super) const PART_BYTES: usize = 2 << 20;
/// Pages whose node is checked.
const CHECKED_PAGES: usize = 256;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let pairs = node_pairs(machine, effort);
    // One case, to report why there is no matrix.
    let pairs = if pairs.len() < 2 { vec![(0, 0)] } else { pairs };
    pairs.into_iter().map(|(from, to)| pair_case(machine, from, to)).collect()
}

/// The case of memory of a node, and a CPU of another one or of the same.
pub(super) fn pair_case(machine: &Machine, from: u32, to: u32) -> Case {
    let pair = Case::new().with_number(FROM_NODE, from.into()).with_number(TO_NODE, to.into());
    pair.with_number(BYTES, set_bytes(machine))
}

/// The pairs of a node with CPUs and one with memory that are measured, in ascending order.
pub(super) fn node_pairs(machine: &Machine, effort: Effort) -> Vec<(u32, u32)> {
    let max_nodes = by_effort(effort, [MAX_QUICK_NODES, MAX_DEFAULT_NODES, usize::MAX]);
    let mut cpu_nodes = cpu_nodes(machine);
    let mut memory_nodes = memory_nodes(machine);
    let of_measured_cpu = cpu_nodes.first().copied();
    cpu_nodes.truncate(max_nodes);
    let rest = memory_nodes.split_off(max_nodes.min(memory_nodes.len()));
    let mut pairs: Vec<(u32, u32)> =
        cpu_nodes.iter().flat_map(|&from| memory_nodes.iter().map(move |&to| (from, to))).collect();
    if effort > Effort::Quick {
        pairs.extend(of_measured_cpu.into_iter().flat_map(|from| rest.iter().map(move |&to| (from, to))));
    }
    pairs.sort_unstable();
    pairs
}

/// The nodes with CPUs that this process may use, in the order of selection.
pub(super) fn cpu_nodes(machine: &Machine) -> Vec<u32> {
    let allowed = machine.topology.allowed.get().map_or(&[][..], Vec::as_slice);
    let has_cpus = |node: &&NumaNode| node.cpus.iter().any(|cpu| allowed.contains(cpu));
    node_order(machine).into_iter().filter(has_cpus).map(|node| node.id).collect()
}

/// The nodes with memory, as far as that is known, in the order of selection.
pub(super) fn memory_nodes(machine: &Machine) -> Vec<u32> {
    node_order(machine).into_iter().filter(|node| node.bytes != Some(0)).map(|node| node.id).collect()
}

/// The nodes in the order of selection: that of the measured CPU, the farthest from it, one at each other distance, and the others so that
/// the first ones are spread over the machine.
fn node_order(machine: &Machine) -> Vec<&NumaNode> {
    let nodes = machine.topology.nodes.get().map_or(&[][..], Vec::as_slice);
    let is_measured = |node: &NumaNode| machine.cpu.number.is_some_and(|cpu| node.cpus.contains(&cpu));
    let measured_node = nodes.iter().find(|node| is_measured(node)).or(nodes.first());
    let distance = |index: usize| measured_node.and_then(|node| node.distances.get(index)).copied();
    let mut by_distance = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        by_distance.entry(distance(index)).or_insert(node);
    }
    let nearest_last = by_distance.into_values().rev();
    let mut order: Vec<&NumaNode> = measured_node.into_iter().chain(nearest_last).chain(evenly_spread(nodes)).collect();
    let mut found = BTreeSet::new();
    order.retain(|node| found.insert(node.id));
    order
}

/// The memory of a round. Each node is assumed to have an equal share of what may be touched.
pub(super) fn set_bytes(machine: &Machine) -> u64 {
    let nodes = machine.topology.nodes.get().map_or(1, Vec::len).max(1) as u64;
    let part = PART_BYTES as u64;
    // Whole parts, so that all of it is read.
    let budget = memory_budget::memory_budget(machine) / nodes / part * part;
    SET_BYTES.min(budget.max(part))
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (from, to) = (required_u32(FROM_NODE, case)?, required_u32(TO_NODE, case)?);
    run_on_node(bench, from)?;
    let bytes = number(case, BYTES)?;
    require_memory(to, bytes)?;
    let _policy = bind_to_node(to)?;
    let memory = PlacedMemory { bytes, part_bytes: PART_BYTES, metrics: [&NODE_LATENCY, &NODE_BANDWIDTH] };
    memory.measure(bench, |arena| check_node(arena, to))
}

/// Moves this thread to a CPU of a node, the measured one in its own.
pub(super) fn run_on_node(bench: &mut Bench<'_>, node: u32) -> ProbeResult {
    skip_if(numa::nodes().len() < 2, "needs two NUMA nodes; this machine shows one")?;
    let other_cpus = bench.allowed_cpus().iter().copied();
    let cpu = std::iter::once(bench.cpu()).chain(other_cpus).find(|&cpu| node_of_cpu(cpu) == Some(node));
    let cpu = cpu.or_skip(format!("needs a CPU of node {node}; this process may use none"))?;
    cpu::pin(&[cpu]).or_fail(format!("cannot run on CPU {cpu}"))?;
    bench.note(format!("by CPU {cpu}"));
    Ok(())
}

/// Skips the round where a node has too little memory left: then the kernel kills a process that is bound to it rather than refuse it.
pub(super) fn require_memory(node: u32, bytes: usize) -> ProbeResult {
    let available = numa::available_bytes(node).unwrap_or(0);
    let needed = MEMORY_MARGIN * bytes as u64;
    let reason =
        format!("needs {} of memory of node {node}, which has {} left", units::bytes(needed), units::bytes(available));
    skip_if(available < needed, reason)
}

/// Lets what this thread touches from now on come from a node.
pub(super) fn bind_to_node(node: u32) -> ProbeResult<NodePolicy> {
    NodePolicy::bind(node).or_skip(format!("needs memory of node {node}, which this process cannot allocate"))
}

/// Memory that lies where the policy of this thread places it, of which latency and bandwidth are measured from the CPU that the thread is on.
pub(super) struct PlacedMemory {
    pub bytes: usize,
    /// Bytes of a sample of bandwidth.
    pub part_bytes: usize,
    /// The metrics of latency and of bandwidth.
    pub metrics: [&'static Metric; 2],
}

impl PlacedMemory {
    /// Measures both, each in memory of its own, of which `describe_placement` says where it lies or why it lies wrongly.
    pub(super) fn measure(
        &self,
        bench: &mut Bench<'_>,
        describe_placement: impl Fn(&Arena) -> ProbeResult<String>,
    ) -> ProbeResult {
        let Self { bytes, part_bytes, metrics: [latency, bandwidth] } = *self;
        let ring = PointerRing::line_per_piece(bytes, BYTES_PER_LINE, PagePolicy::Huge, bench.seed());
        let mut ring = skip_if_out_of_memory(bytes, ring)?;
        bench.note(describe_placement(ring.arena())?);
        bench.time_parts([latency], |clock, loads| Ok([ring.chase_uncached(clock, loads) as f64]))?;
        drop(ring);
        let mut memory = skip_if_out_of_memory(bytes, BandwidthArrays::new(bytes, part_bytes, PagePolicy::Huge))?;
        bench.note(describe_placement(memory.arrays.arena())?);
        let kernel = widest_kernel(Operation::Read)?;
        let part_bytes = memory.iteration_bytes(Operation::Read);
        let mut uncached_parts = 0;
        bench.time_each_work([bandwidth], part_bytes as f64, |clock| {
            if uncached_parts == 0 {
                memory.arrays.evict();
                uncached_parts = bytes / part_bytes;
            }
            uncached_parts -= 1;
            Ok([clock.time(|| memory.run(Operation::Read, &kernel, 1)).0])
        })
    }
}

/// The result of move_pages in words, if all pages are on the node.
fn check_node(arena: &Arena, node: u32) -> ProbeResult<String> {
    let nodes_of_pages = page_nodes(arena, CHECKED_PAGES)?;
    let misplaced = nodes_of_pages.iter().filter(|&&page_node| page_node != node as i32).count();
    fail_if(misplaced > 0, format!("{misplaced} of {} checked pages are not on node {node}", nodes_of_pages.len()))?;
    Ok(format!("all {} checked pages are on node {node} by move_pages", nodes_of_pages.len()))
}

/// Predicted range, factor around the ratio of distances.
const SPREAD: f64 = 1.6;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let (from, to) = (required_number(FROM_NODE, case)?, required_number(TO_NODE, case)?);
    unpredicted_if(from == to, "mem.latency and mem.bandwidth predict local memory")?;
    let (local_distance, remote_distance) = distances(facts.machine(), from, to)
        .or_unpredicted(format!("the firmware states no distance from node {from} to node {to}"))?;
    let local = measured(facts, metric, &case.clone().with_number(TO_NODE, from))?;
    let local_distance = published("local distance", f64::from(local_distance), Unit::Count, DISTANCES);
    let remote_distance = published("distance", f64::from(remote_distance), Unit::Count, DISTANCES);
    let ratio =
        if metric.id == NODE_LATENCY.id { remote_distance / local_distance } else { local_distance / remote_distance };
    Ok((local * ratio).widen(SPREAD).derived("by distance"))
}

const DISTANCES: &str = "node distances as stated by the firmware, /sys/devices/system/node";

/// The stated distances from a node to itself and to another one.
fn distances(machine: &Machine, from: u64, to: u64) -> Option<(u32, u32)> {
    let nodes = machine.topology.nodes.get()?;
    let position_of = |id: u64| nodes.iter().position(|node| u64::from(node.id) == id);
    let distances_from = &nodes[position_of(from)?].distances;
    let (local, remote) = (*distances_from.get(position_of(from)?)?, *distances_from.get(position_of(to)?)?);
    (local > 0 && remote > 0).then_some((local, remote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_harness::MeasuredValue;

    /// Two nodes with four CPUs each, and one with memory alone.
    fn machine() -> Machine {
        let mut machine = testing::machine();
        let node = |id, cpus: std::ops::Range<u32>, distances: [u32; 3]| NumaNode {
            id,
            cpus: cpus.collect(),
            bytes: Some(64 << 30),
            distances: distances.to_vec(),
        };
        let nodes = vec![node(0, 0..4, [10, 21, 17]), node(1, 4..8, [21, 10, 28]), node(4, 0..0, [17, 28, 10])];
        machine.topology.nodes = Fact::known(nodes, "a test");
        machine.topology.allowed = Fact::known((0..8).collect(), "a test");
        machine.memory.available_bytes = Fact::known(96 << 30, "a test");
        machine
    }

    fn pairs(machine: &Machine, effort: Effort) -> Vec<(u64, u64)> {
        let cases = cases(machine, effort);
        cases.iter().map(|case| (FROM_NODE.number_in(case).unwrap(), TO_NODE.number_in(case).unwrap())).collect()
    }

    #[test]
    fn cpu_nodes_pair_with_memory_nodes() {
        let mut machine = machine();
        assert_eq!(pairs(&machine, Effort::Default), [(0, 0), (0, 1), (0, 4), (1, 0), (1, 1), (1, 4)]);
        assert_eq!(pairs(&machine, Effort::Quick), [(0, 0), (0, 1), (1, 0), (1, 1)], "the farthest of both");
        machine.topology.allowed = Fact::known((4..8).collect(), "a test");
        assert_eq!(pairs(&machine, Effort::Default), [(1, 0), (1, 1), (1, 4)]);
        machine.topology.nodes = Fact::unknown("a test");
        assert_eq!(pairs(&machine, Effort::Default), [(0, 0)]);
    }

    /// Two sockets of `socket_nodes` nodes of one CPU each.
    fn two_sockets(socket_nodes: u32) -> Machine {
        let mut machine = testing::machine();
        let nodes = 2 * socket_nodes;
        let distance = |a: u32, b: u32| match (a == b, a / socket_nodes == b / socket_nodes) {
            (true, _) => 10,
            (_, true) => 12,
            (_, false) => 32,
        };
        let node = |id| NumaNode {
            id,
            cpus: vec![id],
            bytes: Some(64 << 30),
            distances: (0..nodes).map(|other| distance(id, other)).collect(),
        };
        machine.topology.nodes = Fact::known((0..nodes).map(node).collect(), "a test");
        machine.topology.allowed = Fact::known((0..nodes).collect(), "a test");
        machine.cpu.number = Some(nodes - 1);
        machine
    }

    #[test]
    fn both_sockets_of_four_nodes_each_have_all_pairs() {
        let machine = two_sockets(4);
        let all: Vec<(u64, u64)> = (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).collect();
        assert_eq!(pairs(&machine, Effort::Default), all);
        assert_eq!(pairs(&machine, Effort::Quick), [(0, 0), (0, 7), (7, 0), (7, 7)], "the measured and the farthest");
    }

    #[test]
    fn many_nodes_are_sampled_across_sockets() {
        let machine = two_sockets(8);
        let default_pairs = pairs(&machine, Effort::Default);
        assert_eq!(default_pairs.len(), 8 * 8 + 8);
        let from_measured = default_pairs.iter().filter(|(from, _)| *from == 15);
        assert!(from_measured.map(|&(_, to)| to).eq(0..16), "{default_pairs:?}");
        let (first, second): (Vec<&(u64, u64)>, Vec<_>) = default_pairs.iter().partition(|(from, _)| *from < 8);
        assert!(first.len() >= 24 && second.len() >= 24, "{default_pairs:?}");
        assert_eq!(pairs(&machine, Effort::Thorough).len(), 16 * 16);
    }

    #[test]
    fn set_is_within_node_share() {
        let mut machine = machine();
        assert_eq!(set_bytes(&machine), 32 << 20);
        machine.memory.available_bytes = Fact::known(99 << 20, "a test");
        assert_eq!(set_bytes(&machine), 16 << 20);
    }

    #[test]
    fn remote_latency_scales_with_distance() {
        let machine = machine();
        let measured = |metric: &str, case: &Case| {
            assert_eq!(TO_NODE.number_in(case), Some(0));
            Some(MeasuredValue {
                value: if metric == NODE_LATENCY.id.as_str() { 100.0 } else { 21e9 },
                half_width: 1.0,
            })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let case = |to| Case::new().with_number(FROM_NODE, 0).with_number(TO_NODE, to).with_number(BYTES, 32 << 20);
        let latency = predict(&facts, &NODE_LATENCY, &case(1)).unwrap();
        assert!((latency.value - 210.0).abs() < 1e-9);
        assert!((predict(&facts, &NODE_BANDWIDTH, &case(1)).unwrap().value - 10e9).abs() < 1.0);
        assert!((predict(&facts, &NODE_LATENCY, &case(4)).unwrap().value - 170.0).abs() < 1e-9);
        assert!(predict(&facts, &NODE_LATENCY, &case(0)).is_err());
        assert!(predict(&facts, &NODE_LATENCY, &case(7)).unwrap_err().0.contains("no distance"));
    }
}
