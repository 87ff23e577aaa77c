//! NUMA: latency and bandwidth of memory whose pages lie on all nodes by turns, from the CPUs of each node.
//!
//! It shows what a program gets that spreads its memory over the machine rather than keep it near. It must not be used as what all CPUs
//! together draw from all nodes (that is mem.scaling, in which each has memory of its own node).

use kelvin_core::catalogue::mem::{
    BYTES, FROM_NODE, INTERLEAVED_BANDWIDTH, INTERLEAVED_LATENCY, INTERLEAVED_PROBE, NODE_BANDWIDTH, NODE_LATENCY,
};
use kelvin_sys::numa::{self, NodePolicy, page_nodes};

use super::axes::number;
use super::numa_node::{
    PART_BYTES, PlacedMemory, bind_to_node, cpu_nodes, memory_nodes, node_pairs, pair_case, require_memory,
    run_on_node, set_bytes,
};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: INTERLEAVED_PROBE.as_str(),
    summary: "Latency and bandwidth of memory that is interleaved over all NUMA nodes, from the CPUs of each",
    method: include_str!("interleaved.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&INTERLEAVED_LATENCY, &INTERLEAVED_BANDWIDTH])
};

/// Nodes whose CPUs measure it in a run: that of the measured CPU, and the farthest from it. Elsewhere the mean over all nodes differs little.
const MAX_CPU_NODES: usize = 2;
/// How far the pages of a node may be from an even share of all: a few huge pages may be missing.
const MAX_UNEVENNESS: f64 = 0.25;

/// From nodes of which mem.node measures the way to all memory: these predict what is interleaved.
fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let nodes = memory_nodes(machine).len();
    // As much on each node, in parts with a huge page of each.
    let bytes = set_bytes(machine).next_multiple_of(stripe_bytes(nodes) as u64);
    let case = |from: u32| Case::new().with_number(FROM_NODE, from.into()).with_number(BYTES, bytes);
    if nodes < 2 {
        // One case, to report why there is none.
        return vec![case(0)];
    }
    let pairs = node_pairs(machine, effort);
    let has_all_ways = |from: &u32| pairs.iter().filter(|pair| pair.0 == *from).count() == nodes;
    let max_nodes = if effort == Effort::Thorough { usize::MAX } else { MAX_CPU_NODES };
    let mut from_nodes: Vec<u32> = cpu_nodes(machine).into_iter().take(max_nodes).filter(has_all_ways).collect();
    from_nodes.sort_unstable();
    from_nodes.into_iter().map(case).collect()
}

/// Bytes that have a huge page on each node.
fn stripe_bytes(nodes: usize) -> usize {
    nodes.max(1) * PART_BYTES
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    run_on_node(bench, required_u32(FROM_NODE, case)?)?;
    let bytes = number(case, BYTES)?;
    let nodes: Vec<u32> = numa::nodes().into_iter().filter(|&node| numa::available_bytes(node) > Some(0)).collect();
    skip_if(nodes.len() < 2, "needs two NUMA nodes with memory; this machine shows one")?;
    for &node in &nodes {
        require_memory(node, bytes / nodes.len())?;
        // Interleaving leaves out in silence what this process may not use.
        drop(bind_to_node(node)?);
    }
    let _policy = NodePolicy::interleave(&nodes).or_skip("needs memory that is interleaved over nodes")?;
    let metrics = [&INTERLEAVED_LATENCY, &INTERLEAVED_BANDWIDTH];
    PlacedMemory { bytes, part_bytes: stripe_bytes(nodes.len()), metrics }.measure(bench, |arena| {
        // Of pages at even distances, all may lie on one node.
        describe_shares(&nodes, &page_nodes(arena, usize::MAX)?)
    })
}

/// How many pages lie on each node, in words, if these are even shares of all.
fn describe_shares(nodes: &[u32], page_nodes: &[i32]) -> ProbeResult<String> {
    let counts: Vec<usize> =
        nodes.iter().map(|&node| page_nodes.iter().filter(|&&page_node| page_node == node as i32).count()).collect();
    let on_nodes: Vec<String> =
        counts.iter().zip(nodes).map(|(count, node)| format!("{count} on node {node}")).collect();
    let text = format!("pages by move_pages: {}", on_nodes.join(", "));
    let share = page_nodes.len() as f64 / nodes.len() as f64;
    let is_uneven = counts.iter().any(|&count| (count as f64 - share).abs() > MAX_UNEVENNESS * share);
    skip_if(is_uneven, format!("needs as much memory of each node; {text}"))?;
    Ok(text)
}

/// Predicted range, as a share: a mean of figures of the same run.
const TOLERANCE: f64 = 0.1;

/// A load finds its line on each node equally often, and all bytes of a page are read before those of the next.
fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let machine = facts.machine();
    let from = required_u32(FROM_NODE, case)?;
    let nodes = memory_nodes(machine);
    let is_latency = metric.id == INTERLEAVED_LATENCY.id;
    let node_metric = if is_latency { &NODE_LATENCY } else { &NODE_BANDWIDTH };
    let ways = nodes.iter().map(|&to| measured(facts, node_metric, &pair_case(machine, from, to)));
    let ways = ways.collect::<Predicted<Vec<Expr>>>()?;
    let page = bytes_of("page", PART_BYTES as u64);
    let count = fact("nodes", nodes.len() as f64, Unit::Count, "nodes with memory");
    let times = ways.into_iter().map(|way| if is_latency { way } else { page.clone() / way });
    let sum = times.reduce(|sum, time| sum + time).or_unpredicted("no node is known to have memory")?;
    let mean = if is_latency { sum / count } else { count * page / sum };
    let name = if is_latency { "mean over nodes" } else { "a page of each node, one after the other" };
    Ok(mean.widen_by_share(TOLERANCE).derived(name))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::mem::TO_NODE;
    use kelvin_core::{Fact, MeasuredValue, NumaNode};

    use super::*;
    use crate::testing;

    /// This many nodes with a CPU each, and one more with memory alone.
    fn machine(cpu_nodes: u32) -> Machine {
        let mut machine = testing::machine();
        let node = |id| NumaNode {
            id,
            cpus: (id..(id + 1).min(cpu_nodes)).collect(),
            bytes: Some(64 << 30),
            distances: Vec::new(),
        };
        machine.topology.nodes = Fact::known((0..=cpu_nodes).map(node).collect(), "a test");
        machine.topology.allowed = Fact::known((0..cpu_nodes).collect(), "a test");
        machine.memory.available_bytes = Fact::known(96 << 30, "a test");
        machine
    }

    fn points(machine: &Machine, effort: Effort) -> Vec<(u64, u64)> {
        let cases = cases(machine, effort);
        cases.iter().map(|case| (FROM_NODE.number_in(case).unwrap(), BYTES.number_in(case).unwrap())).collect()
    }

    #[test]
    fn cases_are_nodes_with_ways_to_all_memory() {
        // 36 MiB are a multiple of three huge pages.
        assert_eq!(points(&machine(2), Effort::Default), [(0, 36 << 20), (1, 36 << 20)]);
        assert!(points(&machine(2), Effort::Quick).is_empty(), "two nodes of three");
        assert_eq!(points(&machine(1), Effort::Quick), [(0, 32 << 20)]);
        assert_eq!(points(&machine(11), Effort::Default), [(0, 48 << 20)], "the measured one alone has all pairs");
        assert_eq!(points(&machine(11), Effort::Thorough).len(), 11);
        // Without distances the second is as far away in their order as it can be.
        assert_eq!(points(&machine(7), Effort::Default), [(0, 32 << 20), (4, 32 << 20)]);
        let mut one_node = machine(2);
        one_node.topology.nodes = Fact::unknown("a test");
        assert_eq!(points(&one_node, Effort::Default), [(0, 32 << 20)], "one case, to be skipped");
    }

    #[test]
    fn uneven_pages_are_refused() {
        assert_eq!(
            describe_shares(&[0, 2], &[0, 2, 2, 0]),
            Ok("pages by move_pages: 2 on node 0, 2 on node 2".to_owned())
        );
        let on_one = describe_shares(&[0, 1], &[0, 0, 0, 1]);
        assert!(
            matches!(&on_one, Err(ProbeError::Skip(reason)) if reason.0.ends_with("3 on node 0, 1 on node 1")),
            "{on_one:?}"
        );
        assert!(describe_shares(&[0, 1], &[0, 0, -14, -14]).is_err(), "pages that are on no node");
    }

    #[test]
    fn pages_count_alike_in_time() {
        let machine = machine(1);
        let measured = |id: &str, case: &Case| {
            let is_local = TO_NODE.number_in(case) == Some(0);
            let value = match (id == NODE_LATENCY.id.as_str(), is_local) {
                (true, true) => 100.0,
                (true, false) => 200.0,
                (false, true) => 20e9,
                (false, false) => 5e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let case = &cases(&machine, Effort::Default)[0];
        let latency = predict(&facts, &INTERLEAVED_LATENCY, case).unwrap();
        assert_eq!((latency.value, latency.low, latency.high.round()), (150.0, 135.0, 165.0));
        // As long for 1 byte of 5 GB/s as for 4 of 20: 2 bytes in 0.25 ns.
        assert!((predict(&facts, &INTERLEAVED_BANDWIDTH, case).unwrap().value - 8e9).abs() < 1.0);
        let no_figures = PredictionInputs::new(&machine, &|_, _| None);
        assert!(predict(&no_figures, &INTERLEAVED_LATENCY, case).is_err());
    }
}
