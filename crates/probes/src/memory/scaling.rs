//! Memory bandwidth with one CPU at work, with two, four, and so on up to all.
//!
//! It shows at how many CPUs memory gives no more, on one node and on all. It must not be used for programs whose threads share memory: each
//! CPU has its own here, on its own node.

mod model;

use std::collections::BTreeSet;

use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_READ, BANDWIDTH_TRIAD, BANDWIDTH_WRITE, BYTES, MemoryNodes, SCALING_COPY, SCALING_PROBE,
    SCALING_READ, SCALING_TRIAD, SCALING_WRITE,
};
use kelvin_core::catalogue::os::WORKING_CPUS;
use kelvin_sys::kernels::bandwidth::Operation;
use kelvin_sys::numa::node_of_cpu;

use super::axes::number;
use super::bandwidth::group::BandwidthGroup;
use super::bandwidth::last_level_count;
use super::memory_budget::{allowed_cpu_count, last_level_bytes, memory_budget, second_level_bytes};
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
    summary: "Memory bandwidth with 1, 2, 4 CPUs and all at once, on one node and on all",
    method: include_str!("scaling.md"),
    cases,
    run,
    predict: model::predict,
    ..Probe::measure(&[&SCALING_READ, &SCALING_WRITE, &SCALING_COPY, &SCALING_TRIAD])
};

/// Minimum CPUs with a curve: mem.bandwidth has the figures of one and of two.
const MIN_CPUS: u64 = 3;
/// Memory for a last-level cache, as a multiple of it and of the L2 caches before it: what is passed through in order leaves nothing for the
/// next pass.
const CACHE_MULTIPLE: u64 = 4;
/// L2 cache assumed where the machine states none.
const ASSUMED_SECOND_LEVEL: u64 = 1 << 20;
/// The memory is a multiple of this.
const SET_STEP: u64 = 16 << 20;

/// The case of this many CPUs on these nodes, with this much memory for each last-level cache at work.
fn scaling_case(nodes: MemoryNodes, bytes: u64, cpus: u64) -> Case {
    Case::new().with_word(nodes).with_number(BYTES, bytes).with_number(WORKING_CPUS, cpus)
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let cpus = allowed_cpu_count(machine);
    if cpus < MIN_CPUS {
        // One case, to report why there is no curve.
        return vec![scaling_case(MemoryNodes::All, cache_set_bytes(machine), MIN_CPUS)];
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
    let caches = last_level_count(machine);
    let sharing_cpus = allowed_cpu_count(machine).div_ceil(caches);
    let second_levels = second_level_bytes(machine).unwrap_or(ASSUMED_SECOND_LEVEL) * sharing_cpus;
    let wanted = CACHE_MULTIPLE * (last_level_bytes(machine) + second_levels);
    let budget = memory_budget(machine) / caches / SET_STEP * SET_STEP;
    wanted.next_multiple_of(SET_STEP).min(budget.max(SET_STEP))
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
    let group = BandwidthGroup::start(bench, cpus, number(case, BYTES)? * caches.len() / count)?;
    for (operation, metric, _) in OPERATIONS {
        group.measure(bench, operation, metric)?;
    }
    group.finish()
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
    fn two_cpus_have_no_curve() {
        assert_eq!(cases(&machine(2, 32 * MIB, 24 << 30), Effort::Default).len(), 1);
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
