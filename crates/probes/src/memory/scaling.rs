//! Memory bandwidth and latency with one CPU at work, with two, four, and so on up to all.
//!
//! It shows at how many CPUs memory gives no more, on one node and on all, and what a dependent load takes then. It must not be used for programs whose threads share memory: each
//! CPU has its own here, on its own node.

mod chases;
mod model;

use std::collections::BTreeSet;

use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_READ, BANDWIDTH_TRIAD, BANDWIDTH_WRITE, BYTES, MemoryNodes, SCALING_COPY,
    SCALING_LATENCY, SCALING_PROBE, SCALING_READ, SCALING_TRIAD, SCALING_WRITE,
};
use kelvin_core::catalogue::os::WORKING_CPUS;
use kelvin_sys::kernels::bandwidth::Operation;
use kelvin_sys::numa::node_of_cpu;

use super::axes::number;
use super::bandwidth::group::BandwidthGroup;
use super::memory_budget::{self, allowed_cpu_count, last_level_count};
use crate::prelude::*;
use crate::working_cpus::{cpu_counts, last_level_sharers, spread_over_machine};

/// The operations of STREAM that differ, and reading and writing alone, each with its metric, and that of one CPU by itself.
static OPERATIONS: [(Operation, &Metric, &Metric); 4] = [
    (Operation::Read, &SCALING_READ, &BANDWIDTH_READ),
    (Operation::Write, &SCALING_WRITE, &BANDWIDTH_WRITE),
    (Operation::Copy, &SCALING_COPY, &BANDWIDTH_COPY),
    (Operation::Triad, &SCALING_TRIAD, &BANDWIDTH_TRIAD),
];

pub(crate) static PROBE: Probe = Probe {
    id: SCALING_PROBE.as_str(),
    summary: "Memory bandwidth and latency with 1, 2, 4 CPUs and all at once, on one node and on all",
    method: include_str!("scaling.md"),
    cases,
    run,
    predict: model::predict,
    ..Probe::measure(&[&SCALING_READ, &SCALING_WRITE, &SCALING_COPY, &SCALING_TRIAD, &SCALING_LATENCY])
};

/// Minimum CPUs with a curve. Of two, mem.bandwidth has all rates and mem.latency that of one: what two take at once is for a study.
const MIN_CPUS: u64 = 3;
const MIN_STUDY_CPUS: u64 = 2;

/// The case of this many CPUs on these nodes, with this much memory for each last-level cache at work.
fn scaling_case(nodes: MemoryNodes, bytes: u64, cpus: u64) -> Case {
    Case::new().with_word(nodes).with_number(BYTES, bytes).with_number(WORKING_CPUS, cpus)
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let cpus = allowed_cpu_count(machine);
    let min_cpus = if effort == Effort::Thorough { MIN_STUDY_CPUS } else { MIN_CPUS };
    if cpus < min_cpus {
        // One case, to report why there is no curve.
        return vec![scaling_case(MemoryNodes::All, cache_set_bytes(machine), min_cpus)];
    }
    let bytes = cache_set_bytes(machine);
    let curve = |nodes: MemoryNodes, cpus: u64| {
        cpu_counts(cpus, effort).into_iter().map(move |count| scaling_case(nodes, bytes, count))
    };
    let node_cpus = measured_node_cpus(machine).filter(|&node_cpus| node_cpus > 1 && node_cpus < cpus);
    let one_node = node_cpus.filter(|_| effort > Effort::Quick).map(|node_cpus| curve(MemoryNodes::One, node_cpus));
    curve(MemoryNodes::All, cpus).chain(one_node.into_iter().flatten()).collect()
}

/// Memory for each last-level cache at work: the same at all points of a curve.
fn cache_set_bytes(machine: &Machine) -> u64 {
    memory_budget::cache_set_bytes(machine, last_level_count(machine))
}

/// How many CPUs this process may use of the node of the measured one.
fn measured_node_cpus(machine: &Machine) -> Option<u64> {
    let (nodes, allowed) = (machine.topology.nodes.get()?, machine.topology.allowed.get()?);
    let measured_cpu = machine.cpu.number.or_else(|| machine.topology.default_cpu(allowed))?;
    let node = nodes.iter().find(|node| node.cpus.contains(&measured_cpu))?;
    Some(node.cpus.iter().filter(|cpu| allowed.contains(cpu)).count() as u64)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let nodes = required_word(MemoryNodes::of(case), MemoryNodes::ALL, case)?;
    let count = required(WORKING_CPUS.number_in(case).filter(|&count| count > 0), case)? as usize;
    let allowed = bench.allowed_cpus();
    let own_node = node_of_cpu(bench.cpu());
    let is_usable = |cpu: &u32| nodes == MemoryNodes::All || node_of_cpu(*cpu) == own_node;
    let usable: Vec<u32> = allowed.iter().copied().filter(is_usable).collect();
    let cpus = spread_over_machine(bench.cpu(), &usable);
    skip_if(cpus.len() < count, format!("needs {count} CPUs; this process may use {}", cpus.len()))?;
    let cpus = &cpus[..count];
    // Where the kernel tells no caches, there is one.
    let caches: BTreeSet<Option<String>> = cpus.iter().map(|&cpu| last_level_sharers(cpu)).collect();
    let set_bytes = number(case, BYTES)? * caches.len() / count;
    let group = BandwidthGroup::start(bench, cpus, set_bytes)?;
    for (operation, metric, _) in OPERATIONS {
        group.measure(bench, operation, metric)?;
    }
    group.finish()?;
    chases::measure(bench, cpus, set_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bandwidth::tests::machine;
    use kelvin_core::{Fact, NumaNode};

    const MIB: u64 = 1 << 20;

    fn points(machine: &Machine, effort: Effort, nodes: MemoryNodes) -> Vec<(u64, u64)> {
        let all_cases = cases(machine, effort);
        let of_nodes = all_cases.iter().filter(|case| MemoryNodes::of(case) == Some(nodes));
        of_nodes.map(|case| (BYTES.number_in(case).unwrap(), WORKING_CPUS.number_in(case).unwrap())).collect()
    }

    #[test]
    fn curve_has_powers_of_two_and_all_cpus() {
        // Four times 32 MiB of L3 and 12 times 1 MiB of L2.
        let of_counts = |counts: &[u64]| counts.iter().map(|&cpus| (176 * MIB, cpus)).collect::<Vec<_>>();
        let machine = machine(12, 32 * MIB, 24 << 30);
        assert_eq!(points(&machine, Effort::Default, MemoryNodes::All), of_counts(&[1, 2, 4, 8, 12]));
        assert_eq!(points(&machine, Effort::Quick, MemoryNodes::All), of_counts(&[1, 12]));
        assert_eq!(points(&machine, Effort::Thorough, MemoryNodes::All), of_counts(&[1, 2, 3, 4, 6, 8, 12]));
        assert!(points(&machine, Effort::Thorough, MemoryNodes::One).is_empty());
    }

    #[test]
    fn two_cpus_are_for_a_study() {
        let machine = machine(2, 32 * MIB, 24 << 30);
        for effort in [Effort::Quick, Effort::Default] {
            assert_eq!(points(&machine, effort, MemoryNodes::All), [(144 * MIB, 3)], "one case, to be skipped");
        }
        assert_eq!(points(&machine, Effort::Thorough, MemoryNodes::All), [(144 * MIB, 1), (144 * MIB, 2)]);
    }

    #[test]
    fn measured_node_has_a_curve_of_its_own() {
        let mut machine = machine(8, 32 * MIB, 24 << 30);
        let node = |id: u32| NumaNode {
            id,
            cpus: (4 * id..4 * id + 4).collect(),
            bytes: Some(8 << 30),
            distances: Vec::new(),
        };
        machine.topology.nodes = Fact::known(vec![node(0), node(1)], "a test");
        machine.cpu.number = Some(5);
        let counts = |effort| points(&machine, effort, MemoryNodes::One).into_iter().map(|(_, cpus)| cpus);
        assert!(counts(Effort::Default).eq([1, 2, 4]));
        assert_eq!(counts(Effort::Quick).count(), 0);
    }

    #[test]
    fn memory_is_within_the_budget() {
        let machine = machine(8, 32 * MIB, 300 * MIB);
        assert_eq!(points(&machine, Effort::Quick, MemoryNodes::All), [(144 * MIB, 1), (144 * MIB, 8)]);
    }
}
