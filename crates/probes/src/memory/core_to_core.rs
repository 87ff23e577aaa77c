//! The latency of a cache line from one core to another.
//!
//! The matrix shows which CPUs share a core, a cache, a socket. It must not be used as the cost of a lock, which takes
//! several such transfers, nor of a wake-up.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelvin_core::catalogue::mem::{CORE_TO_CORE, FROM_CPU, LATENCY, TO_CPU};
use kelvin_sys::cache_line::BouncingLine;
use kelvin_sys::cpu;

use super::latency;
use super::published::CORE_TO_CORE_LATENCIES;
use crate::os::partner::TokenPartner;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "A cache line bounced between each pair of CPUs, one way",
    method: include_str!("core_to_core.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CORE_TO_CORE])
};

/// Maximum CPUs of which all pairs are measured.
const MAX_CPUS: usize = 16;
const MAX_QUICK_CPUS: usize = 4;
const MAX_THOROUGH_CPUS: usize = 32;
/// Round trips, or increments, before a batch: until both CPUs are awake and the line bounces.
pub(super) const SETTLE_ROUND_TRIPS: u64 = 128;
/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;
/// Lines in flight of a copy (line fill buffers of a core): this many arrive in the time of one.
const LINES_IN_FLIGHT: f64 = 10.0;

/// How many times as long as one line all lines but the first of this many bytes take from another CPU.
pub(crate) fn extra_line_times(bytes: f64) -> f64 {
    (bytes / LINE_BYTES - 1.0).max(0.0) / LINES_IN_FLIGHT
}

/// What all lines but the first of this many bytes take between a pair that every run measures.
pub(crate) fn extra_lines_latency(facts: &PredictionInputs<'_>, bytes: u64) -> Predicted<Expr> {
    let line_times = quantity("cache lines / 10", extra_line_times(bytes as f64), Unit::Count);
    Ok(line_times * default_pair_latency(facts)?)
}

/// What a line takes between a pair that every run measures.
pub(crate) fn default_pair_latency(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    measured(facts, &CORE_TO_CORE, &default_pair(facts.machine()))
}

/// A pair that every run measures: the last one, so that it is not two threads of one core where there are others.
pub(crate) fn default_pair(machine: &Machine) -> Case {
    cases(machine, Effort::Quick).pop().expect("there is a pair, or a case that states why there is none")
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let mut cpus = selection_order(machine);
    cpus.truncate(by_effort(effort, [MAX_QUICK_CPUS, MAX_CPUS, MAX_THOROUGH_CPUS]));
    cpus.sort_unstable();
    let case = |from: u32, to: u32| Case::new().with_number(FROM_CPU, from.into()).with_number(TO_CPU, to.into());
    if let &[cpu] = cpus.as_slice() {
        // One case, to report why there is none.
        return vec![case(cpu, cpu)];
    }
    let pairs = cpus.iter().enumerate().flat_map(|(i, &from)| cpus[i + 1..].iter().map(move |&to| (from, to)));
    pairs.map(|(from, to)| case(from, to)).collect()
}

/// The allowed CPUs in the order of selection: the first, its SMT sibling, a neighbour in its last-level cache, then
/// halves, quarters, eighths of the list. Any prefix is thus spread over the machine and contains every shorter one.
fn selection_order(machine: &Machine) -> Vec<u32> {
    let topology = &machine.topology;
    let reported = topology.allowed.get().filter(|cpus| !cpus.is_empty());
    let mut allowed = reported.cloned().unwrap_or_else(|| vec![0, 1]);
    allowed.sort_unstable();
    let first = allowed[0];
    let sibling = smt_siblings(machine, first).iter().find(|&&cpu| cpu != first && allowed.contains(&cpu)).copied();
    let is_other_core = |&&cpu: &&u32| allowed.contains(&cpu) && !smt_siblings(machine, first).contains(&cpu);
    let neighbour = last_level_cpus(machine).iter().find(|cpu| **cpu != first && is_other_core(cpu)).copied();
    let mut order: Vec<u32> = std::iter::once(first).chain(sibling).chain(neighbour).collect();
    let bits = allowed.len().next_power_of_two().trailing_zeros();
    let indices = (0..1usize << bits).map(|i| if bits == 0 { 0 } else { i.reverse_bits() >> (usize::BITS - bits) });
    order.extend(indices.filter_map(|index| allowed.get(index).copied()));
    let mut selected_cpus = BTreeSet::new();
    order.retain(|&cpu| selected_cpus.insert(cpu));
    order
}

/// The CPUs of a CPU's core; empty if unknown.
fn smt_siblings(machine: &Machine, cpu: u32) -> &[u32] {
    let groups = machine.topology.siblings.get().map_or(&[][..], Vec::as_slice);
    groups.iter().find(|group| group.contains(&cpu)).map_or(&[], Vec::as_slice)
}

/// The CPUs that share the last-level cache of the first allowed CPU; empty if unknown.
fn last_level_cpus(machine: &Machine) -> &[u32] {
    let caches = machine.topology.caches.get().map_or(&[][..], Vec::as_slice);
    caches.iter().max_by_key(|cache| cache.level).map_or(&[], |cache| cache.shared_by.as_slice())
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (from, to) = (required_u32(FROM_CPU, case)?, required_u32(TO_CPU, case)?);
    skip_if(from == to, "needs two CPUs; this process may use one")?;
    cpu::pin(&[from]).or_fail(format!("cannot run on CPU {from}"))?;
    let line = BouncingLine::new()?;
    let partner_line = Arc::clone(&line);
    let partner = TokenPartner::start_batches(to, move |trips| partner_line.pong(trips))?;
    let allowed = bench.allowed_cpus().len();
    if allowed > MAX_CPUS {
        bench.note(format!("pairs among a spread of the {allowed} allowed CPUs"));
    }
    bench.time_parts([&CORE_TO_CORE], |clock, trips| {
        partner.start_batch(SETTLE_ROUND_TRIPS + trips)?;
        line.ping(SETTLE_ROUND_TRIPS);
        let (ticks, ()) = clock.time(|| line.ping(trips));
        partner.finish_batch()?;
        Ok([ticks as f64 / 2.0])
    })?;
    partner.finish().map(drop)
}

/// Predicted range, factor beyond the published medians: core and interconnect clocks differ by that much between
/// models of one microarchitecture.
const SPREAD: f64 = 1.5;

/// What two CPUs have in common, as the machine reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedLevel {
    Core,
    Cache,
    Socket,
    Nothing,
}

impl SharedLevel {
    /// What two CPUs share; `None` if unknown.
    fn of_cpus(machine: &Machine, a: u32, b: u32) -> Option<Self> {
        if smt_siblings(machine, a).contains(&b) {
            return Some(Self::Core);
        }
        // Only the caches of the first allowed CPU are known.
        let cache = last_level_cpus(machine);
        match (cache.contains(&a), cache.contains(&b)) {
            (true, true) => Some(Self::Cache),
            (false, false) => None,
            _ if machine.topology.sockets.get() == Some(&1) => Some(Self::Socket),
            _ => {
                let nodes = machine.topology.nodes.get()?;
                let node = |cpu| nodes.iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.id);
                // With as many nodes as sockets a node is a socket.
                let is_node_per_socket =
                    machine.topology.sockets.get().is_some_and(|&sockets| nodes.len() == sockets as usize);
                is_node_per_socket.then(|| if node(a) == node(b) { Self::Socket } else { Self::Nothing })
            }
        }
    }

    const fn describe(self) -> &'static str {
        match self {
            Self::Core => "SMT siblings",
            Self::Cache => "same last-level cache",
            Self::Socket => "same socket, different last-level caches",
            Self::Nothing => "different sockets",
        }
    }
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let machine = facts.machine();
    let (from, to) = (required_u32(FROM_CPU, case)?, required_u32(TO_CPU, case)?);
    let shared_level = SharedLevel::of_cpus(machine, from, to);
    if shared_level == Some(SharedLevel::Cache)
        && let Some(levels) = latency::model::outer_cache_cases(machine)
        && let [Ok(second), Ok(third)] = levels.map(|case| measured(facts, &LATENCY, &case))
    {
        // The way to that cache, from there to the other core, and back. L3 is no nearer than L2, in spite of their
        // noise.
        let line = (2.0 * third.clone() - second).max(third);
        return Ok(line.widen(SPREAD).derived("by way of the cache"));
    }
    let row = CORE_TO_CORE_LATENCIES.row(machine)?;
    let shared_level =
        shared_level.or_unpredicted(format!("the machine does not report what CPU {from} and CPU {to} share"))?;
    let figures = match shared_level {
        SharedLevel::Core => row.figures.core,
        SharedLevel::Cache => Some(row.figures.cache),
        SharedLevel::Socket => row.figures.socket,
        SharedLevel::Nothing => row.figures.sockets,
    };
    let name = machine.cpu.microarchitecture.get().map_or("this core", String::as_str);
    let name = format!("{name}, {}", shared_level.describe());
    let [low, high] = figures.or_unpredicted(format!("nothing is published for {name}"))?;
    let line = published(name, f64::midpoint(low, high), Unit::Nanoseconds, row.source);
    let line = line.with_interval((low, high)).widen(SPREAD);
    Ok(line.predict(PredictionBasis::Published, shared_level.describe()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{Cache, CacheKind, Fact};

    /// A machine of `cores` cores with two threads each, numbered core by core, and a cache for every four cores.
    fn machine(cores: u32) -> Machine {
        let mut machine = testing::machine();
        let cpus: Vec<u32> = (0..2 * cores).collect();
        let topology = &mut machine.topology;
        topology.siblings = Fact::known(cpus.iter().map(|&cpu| vec![cpu & !1, cpu | 1]).collect(), "a test");
        let cache = |level, shared_by: &[u32]| Cache {
            level,
            kind: CacheKind::Unified,
            bytes: 1 << 20,
            ways: None,
            line_bytes: None,
            shared_by: shared_by.to_vec(),
        };
        topology.caches = Fact::known(vec![cache(2, &cpus[..2]), cache(3, &cpus[..8.min(cpus.len())])], "a test");
        topology.sockets = Fact::known(1, "a test");
        topology.allowed = Fact::known(cpus, "a test");
        machine.cpu.microarchitecture = Fact::known("Zen 3".into(), "a test");
        machine
    }

    fn pairs(machine: &Machine, effort: Effort) -> Vec<(u64, u64)> {
        let cases = cases(machine, effort);
        cases.iter().map(|case| (FROM_CPU.number_in(case).unwrap(), TO_CPU.number_in(case).unwrap())).collect()
    }

    #[test]
    fn pair_selection_depends_on_machine_size() {
        assert_eq!(pairs(&machine(1), Effort::Default), [(0, 1)]);
        assert_eq!(pairs(&machine(2), Effort::Default), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
        assert_eq!(pairs(&machine(8), Effort::Default).len(), 16 * 15 / 2);
        let large_pairs = pairs(&machine(64), Effort::Default);
        assert_eq!(large_pairs.len(), 16 * 15 / 2);
        // a thread of the same core, a core of the same cache, one half of the machine away
        assert!([(0, 1), (0, 2), (0, 64)].iter().all(|pair| large_pairs.contains(pair)), "{large_pairs:?}");
        let quick_pairs = pairs(&machine(64), Effort::Quick);
        assert_eq!(quick_pairs.len(), 6);
        assert!(quick_pairs.iter().all(|pair| large_pairs.contains(pair)), "{quick_pairs:?}");
    }

    #[test]
    fn single_cpu_case_is_skipped() {
        let mut machine = machine(1);
        machine.topology.allowed = Fact::known(vec![3], "a test");
        assert_eq!(pairs(&machine, Effort::Thorough), [(3, 3)]);
    }

    #[test]
    fn prediction_depends_on_shared_level() {
        let machine = machine(8);
        let facts = PredictionInputs::new(&machine, &|_, _| None);
        let predicted =
            |from, to| predict(&facts, &CORE_TO_CORE, &Case::new().with_number(FROM_CPU, from).with_number(TO_CPU, to));
        assert_eq!(predicted(0, 1).unwrap().value, (7.6 + 9.8) / 2.0);
        let same_cache = predicted(0, 2).unwrap();
        assert_eq!((same_cache.value, same_cache.low, same_cache.high), (19.5, 16.0 / 1.5, 34.5));
        assert_eq!(predicted(0, 8).unwrap().value, 95.5);
        // Neither is in the one known cache.
        assert!(predicted(8, 10).is_err());
    }

    #[test]
    fn sockets_are_distinguished_by_their_nodes() {
        let mut machine = machine(8);
        machine.topology.sockets = Fact::known(2, "a test");
        assert_eq!(SharedLevel::of_cpus(&machine, 0, 8), None);
        let node = |id, cpus: std::ops::Range<u32>| kelvin_core::NumaNode {
            id,
            cpus: cpus.collect(),
            bytes: None,
            distances: Vec::new(),
        };
        machine.topology.nodes = Fact::known(vec![node(0, 0..12), node(1, 12..16)], "a test");
        assert_eq!(SharedLevel::of_cpus(&machine, 0, 8), Some(SharedLevel::Socket));
        assert_eq!(SharedLevel::of_cpus(&machine, 0, 12), Some(SharedLevel::Nothing));
    }

    #[test]
    fn table_and_method_have_same_sources() {
        let sources = kelvin_harness::Method::parse(PROBE.method).sources;
        assert!(CORE_TO_CORE_LATENCIES.rows().iter().all(|row| sources.iter().any(|source| source == row.source)));
    }
}
