//! The latency of a cache line from one core to another.
//!
//! The matrix shows which CPUs share a core, a cache, a socket. It must not be used as the cost of a lock, which takes
//! several such transfers, nor of a wake-up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kelvin_core::catalogue::mem::{CORE_TO_CORE, FROM_CPU, LATENCY, TO_CPU};
use kelvin_core::{SharedLevel, Topology};
use kelvin_sys::cache_line::BouncingLine;
use kelvin_sys::cpu;

use super::latency;
use super::memory_budget::data_caches;
use super::published::CORE_TO_CORE_LATENCIES;
use crate::os::partner::TokenPartner;
use crate::prelude::*;
use crate::working_cpus::evenly_spread;

pub(crate) static PROBE: Probe = Probe {
    summary: "A cache line bounced between each pair of CPUs, one way",
    method: include_str!("core_to_core.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CORE_TO_CORE])
};

/// Maximum CPUs of which all pairs are measured, by effort.
const MAX_QUICK_CPUS: usize = 4;
const MAX_CPUS: usize = 64;
/// CPUs of which all pairs are measured in a default run where there are more.
const SAMPLED_CPUS: usize = 24;
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

/// A pair that every run measures: the CPU that is measured and its partner.
pub(crate) fn default_pair(machine: &Machine) -> Case {
    let allowed = allowed_cpus(machine);
    let cpu = measured_cpu(machine, &allowed);
    let partner = machine.topology.partner_of(cpu, &allowed).unwrap_or(cpu);
    pair(cpu.min(partner), cpu.max(partner))
}

/// The CPUs that this process may use; two, where that is not known.
fn allowed_cpus(machine: &Machine) -> Vec<u32> {
    let allowed = machine.topology.allowed.get().filter(|cpus| !cpus.is_empty());
    allowed.cloned().unwrap_or_else(|| vec![0, 1])
}

fn measured_cpu(machine: &Machine, allowed: &[u32]) -> u32 {
    let stated = machine.cpu.number.filter(|cpu| allowed.contains(cpu));
    stated.or_else(|| machine.topology.default_cpu(allowed)).unwrap_or(allowed[0])
}

fn pair(from: u32, to: u32) -> Case {
    Case::new().with_number(FROM_CPU, from.into()).with_number(TO_CPU, to.into())
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let mut cpus = selection_order(machine);
    let default_cpus = if cpus.len() > MAX_CPUS { SAMPLED_CPUS } else { MAX_CPUS };
    cpus.truncate(by_effort(effort, [MAX_QUICK_CPUS, default_cpus, MAX_CPUS]));
    cpus.sort_unstable();
    if let &[cpu] = cpus.as_slice() {
        // One case, to report why there is none.
        return vec![pair(cpu, cpu)];
    }
    let pairs = cpus.iter().enumerate().flat_map(|(i, &from)| cpus[i + 1..].iter().map(move |&to| (from, to)));
    pairs.map(|(from, to)| pair(from, to)).collect()
}

/// The allowed CPUs in the order of selection, so that the first ones have pairs of every kind: the measured one, its partner, and one
/// CPU at each other distance from it; the same for a CPU of each other kind of core, and for the farthest CPU. Then halves, quarters, eighths of
/// the machine in the order of its sockets, nodes and caches.
fn selection_order(machine: &Machine) -> Vec<u32> {
    let topology = &machine.topology;
    let allowed = allowed_cpus(machine);
    let is_allowed = |cpu: &u32| allowed.contains(cpu);
    let measured_cpu = measured_cpu(machine, &allowed);
    let mut located: Vec<u32> = topology.cache_domains().into_iter().flat_map(|domain| domain.cpus()).collect();
    located.retain(is_allowed);
    located.extend(allowed.iter().copied());
    remove_repeated(&mut located);
    let other_kinds = topology.core_kinds.get().into_iter().flatten().filter(|kind| !kind.cpus.contains(&measured_cpu));
    let of_other_kinds = other_kinds.filter_map(|kind| kind.cpus.iter().copied().find(is_allowed));
    let farthest = located.iter().copied().max_by_key(|&cpu| topology.shared_level(measured_cpu, cpu));
    let anchors = std::iter::once(measured_cpu).chain(of_other_kinds).chain(farthest);
    let mut order: Vec<u32> = anchors.flat_map(|anchor| distances_from(topology, anchor, &located)).collect();
    order.extend(evenly_spread(&located));
    remove_repeated(&mut order);
    order
}

/// A CPU, and one of these at each distance from it, the nearest first: its partner, where that is.
fn distances_from(topology: &Topology, cpu: u32, cpus: &[u32]) -> Vec<u32> {
    let others = cpus.iter().copied().filter(|&other| other != cpu);
    let mut by_level = BTreeMap::new();
    for other in topology.partner_of(cpu, cpus).into_iter().chain(others) {
        by_level.entry(topology.shared_level(cpu, other)).or_insert(other);
    }
    std::iter::once(cpu).chain(by_level.into_values()).collect()
}

fn remove_repeated(cpus: &mut Vec<u32>) {
    let mut found = BTreeSet::new();
    cpus.retain(|&cpu| found.insert(cpu));
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
        bench.note(format!("pairs among some of the {allowed} allowed CPUs, with every distance between them"));
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

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let machine = facts.machine();
    let (from, to) = (required_u32(FROM_CPU, case)?, required_u32(TO_CPU, case)?);
    let shared_level = machine.topology.shared_level(from, to);
    let kinds = [from, to].map(|cpu| machine.topology.kind_of(cpu));
    let measured_kind = machine.cpu.number.and_then(|cpu| machine.topology.kind_of(cpu));
    unpredicted_if(
        kinds.iter().any(|kind| *kind != measured_kind),
        "formulas are of two cores of the kind that is measured, and one of these is of another kind",
    )?;
    let last_level = data_caches(machine).last().map(|cache| SharedLevel::Cache(cache.level));
    if shared_level.is_some()
        && shared_level == last_level
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
        SharedLevel::Cache(_) => Some(row.figures.cache).filter(|_| Some(shared_level) == last_level),
        SharedLevel::Die | SharedLevel::Node | SharedLevel::Socket => row.figures.socket,
        SharedLevel::Machine => row.figures.sockets,
    };
    let name = machine.cpu.microarchitecture.get().map_or("this core", String::as_str);
    let name = format!("{name}, {shared_level}");
    let [low, high] = figures.or_unpredicted(format!("nothing is published for {name}"))?;
    let line = published(name, f64::midpoint(low, high), Unit::Nanoseconds, row.source);
    let line = line.with_interval((low, high)).widen(SPREAD);
    Ok(line.predict(PredictionBasis::Published, &shared_level.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{CacheInstances, CacheKind, CoreKind, CoreLocation, Fact};

    fn known<T>(value: T) -> Fact<T> {
        Fact::known(value, "a test")
    }

    /// A machine of `cores` cores with two threads each, of sockets of `socket_cores`, with a cache for every four cores. The threads of a core
    /// have the numbers n and n + `cores`.
    fn machine(cores: u32, socket_cores: u32) -> Machine {
        let mut machine = testing::machine();
        let threads = |first: u32, count: u32| -> Vec<u32> {
            (first..(first + count).min(cores)).flat_map(|core| [core, core + cores]).collect()
        };
        let location = |core| CoreLocation { cpus: threads(core, 1), socket: Some(core / socket_cores), die: Some(0) };
        let groups = |level, group_cores| CacheInstances {
            level,
            kind: CacheKind::Unified,
            bytes: 1 << 20,
            ways: None,
            line_bytes: None,
            shared_by: (0..cores).step_by(group_cores as usize).map(|core| threads(core, group_cores)).collect(),
        };
        let topology = &mut machine.topology;
        topology.siblings = known((0..2 * cores).map(|cpu| threads(cpu % cores, 1)).collect());
        topology.core_locations = known((0..cores).map(location).collect());
        topology.cache_instances = known(vec![groups(2, 1), groups(3, 4)]);
        topology.caches = topology.caches_of(0);
        topology.sockets = known(cores.div_ceil(socket_cores));
        topology.allowed = known((0..2 * cores).collect());
        machine.cpu.microarchitecture = known("Zen 3".into());
        machine.cpu.number = Some(0);
        machine
    }

    fn pairs(machine: &Machine, effort: Effort) -> Vec<(u64, u64)> {
        let cases = cases(machine, effort);
        cases.iter().map(|case| (FROM_CPU.number_in(case).unwrap(), TO_CPU.number_in(case).unwrap())).collect()
    }

    #[test]
    fn few_cpus_have_all_pairs() {
        assert_eq!(pairs(&machine(1, 1), Effort::Default), [(0, 1)]);
        assert_eq!(pairs(&machine(2, 2), Effort::Default), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
        assert_eq!(pairs(&machine(32, 16), Effort::Default).len(), 64 * 63 / 2);
        assert_eq!(pairs(&machine(32, 16), Effort::Thorough).len(), 64 * 63 / 2);
    }

    #[test]
    fn many_cpus_have_pairs_at_every_distance() {
        // Two sockets of 64 cores with two threads each.
        let machine = machine(128, 64);
        let level_counts = |effort| {
            let mut counts = BTreeMap::new();
            for (from, to) in pairs(&machine, effort) {
                let level = machine.topology.shared_level(from as u32, to as u32).unwrap();
                *counts.entry(level).or_insert(0) += 1;
            }
            counts
        };
        let default_pairs = pairs(&machine, Effort::Default);
        assert_eq!(default_pairs.len(), 24 * 23 / 2);
        let levels = [SharedLevel::Core, SharedLevel::Cache(3), SharedLevel::Socket, SharedLevel::Machine];
        let counts = level_counts(Effort::Default);
        // Of the first CPU and of the farthest one.
        assert!(levels.iter().all(|level| counts[level] >= 2), "{counts:?}");
        assert!(counts[&SharedLevel::Socket] > 50 && counts[&SharedLevel::Machine] > 50, "{counts:?}");
        // A quick run has what all runs have, and what the measured CPU needs.
        let quick_pairs = pairs(&machine, Effort::Quick);
        assert_eq!(quick_pairs.len(), 6);
        assert!(quick_pairs.iter().all(|pair| default_pairs.contains(pair)), "{quick_pairs:?}");
        assert!(levels[..3].iter().all(|level| level_counts(Effort::Quick).contains_key(level)), "{quick_pairs:?}");
        assert_eq!(default_pair(&machine), pair(0, 131), "the last thread of another core of the same cache");
        assert!(cases(&machine, Effort::Quick).contains(&default_pair(&machine)));
        assert_eq!(pairs(&machine, Effort::Thorough).len(), 64 * 63 / 2);
    }

    #[test]
    fn kinds_of_cores_have_pairs_of_their_own() {
        let mut machine = machine(32, 32);
        let kind = |name: &str, cpus: std::ops::Range<u32>| CoreKind {
            name: name.into(),
            cpus: cpus.clone().chain(cpus.start + 32..cpus.end + 32).collect(),
            maximum_hz: None,
            capacity: None,
        };
        machine.topology.core_kinds = known(vec![kind("P-core", 0..29), kind("E-core", 29..32)]);
        let cpus: Vec<u32> = selection_order(&machine)[..SAMPLED_CPUS].to_vec();
        assert!(cpus.iter().filter(|&&cpu| cpu % 32 >= 29).count() >= 2, "{cpus:?}");
        let facts = PredictionInputs::new(&machine, &|_, _| None);
        let error = predict(&facts, &CORE_TO_CORE, &pair(0, 30)).unwrap_err();
        assert!(error.0.contains("another kind"), "{error:?}");
    }

    #[test]
    fn single_cpu_case_is_skipped() {
        let mut machine = machine(1, 1);
        machine.topology.allowed = known(vec![3]);
        assert_eq!(pairs(&machine, Effort::Thorough), [(3, 3)]);
    }

    #[test]
    fn prediction_depends_on_shared_level() {
        let mut machine = machine(16, 8);
        let predicted = |machine: &Machine, from, to| {
            let facts = PredictionInputs::new(machine, &|_, _| None);
            predict(&facts, &CORE_TO_CORE, &pair(from, to))
        };
        assert_eq!(predicted(&machine, 0, 16).unwrap().value, (7.6 + 9.8) / 2.0);
        let same_cache = predicted(&machine, 0, 2).unwrap();
        assert_eq!((same_cache.value, same_cache.low, same_cache.high), (19.5, 16.0 / 1.5, 34.5));
        // Of CPUs that have another cache than the measured one, too.
        assert_eq!(predicted(&machine, 4, 6).unwrap().value, 19.5);
        assert_eq!(predicted(&machine, 0, 4).unwrap().value, 95.5);
        assert!(predicted(&machine, 0, 8).unwrap().value > 95.5);
        machine.topology.sockets = Fact::unknown("a test");
        assert!(predicted(&machine, 0, 4).unwrap_err().0.contains("does not report what CPU 0 and CPU 4 share"));
    }

    #[test]
    fn table_and_method_have_same_sources() {
        let sources = kelvin_harness::Method::parse(PROBE.method).sources;
        assert!(CORE_TO_CORE_LATENCIES.rows().iter().all(|row| sources.iter().any(|source| source == row.source)));
    }
}
