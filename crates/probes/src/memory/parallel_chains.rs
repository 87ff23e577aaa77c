//! Memory-level parallelism: what a load takes where a core follows several independent chains of them at once.
//!
//! The curve falls as long as further loads find a place among those that a core can have in flight, and is flat from there on. It must
//! not be used as the latency of a load, which it hides, nor as the rate of a sequential loop, for which prefetchers fetch as well.

use kelvin_core::catalogue::mem::{BYTES, CHAINS, LATENCY, LATENCY_PARALLEL, PageSize};
use kelvin_sys::memory::{ParallelChases, PointerRing};

use super::axes::{check_pages, number, page_kind, skip_if_out_of_memory};
use super::latency;
use super::memory_budget::memory_budget;
use super::published::CACHE_LATENCIES;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Time of a load from memory by number of independent chains of loads: memory-level parallelism",
    method: include_str!("parallel_chains.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&LATENCY_PARALLEL])
};

const CHAIN_COUNTS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// More chains than the loads that any core of today has in flight beyond its first cache would only take room: this many keep most of them
/// busy, and bandwidth is predicted from them.
const MAX_DEFAULT_CHAINS: u64 = 16;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    // The ring takes half a second to make: the curve is for a study.
    let counts: &[u64] = if effort == Effort::Thorough { &CHAIN_COUNTS } else { &[MAX_DEFAULT_CHAINS] };
    counts.iter().map(|&count| chain_case(machine, count)).collect()
}

/// In the largest set of mem.latency, or a half of it where memory is short: every run makes this one.
fn chain_case(machine: &Machine, count: u64) -> Case {
    let budget = 1 << (memory_budget(machine) / 2).max(1).ilog2();
    latency::fewest_tlb_misses_case(machine)
        .with_number(BYTES, latency::largest_latency_set(machine).min(budget))
        .with_number(CHAINS, count)
}

/// The case of the most lines in flight, part of every run.
pub(super) fn max_chains_case(machine: &Machine) -> Case {
    chain_case(machine, MAX_DEFAULT_CHAINS)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (bytes, chains, pages) = (number(case, BYTES)?, number(case, CHAINS)?, page_kind(case)?);
    let ring = skip_if_out_of_memory(bytes + bytes / 16, PointerRing::new(bytes, pages, bench.seed()))?;
    bench.note(check_pages(ring.arena(), pages)?);
    ring.evict_end(usize::MAX);
    let mut chases = ParallelChases::new(ring, chains);
    bench.time(&LATENCY_PARALLEL, infallible(|loads| chases.follow(loads)))
}

/// Beyond the range, for what is wrong with the latency that it begins with.
const TOLERANCE: f64 = 0.1;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let chains = required_number(CHAINS, case)? as f64;
    let pages = required(PageSize::of(case), case)?;
    let latency = measured(facts, &LATENCY, &latency::largest_case(facts.machine(), pages))?;
    let row = CACHE_LATENCIES.row(facts.machine()).ok();
    let lines = row.and_then(|row| Some((row.figures.outstanding?, row.source)));
    let mut in_flight = fact("chains", chains, Unit::Count, "the case");
    let mut name = "shared by chains";
    if let Some((lines, source)) = lines.filter(|(lines, _)| *lines < chains) {
        in_flight = in_flight.min(published("lines in flight, at most", lines, Unit::Count, source));
        name = "published lines in flight";
    }
    let load = latency.clone() / in_flight;
    Ok(load.clone().with_bounds(&load, &latency).widen_by_share(TOLERANCE).derived(name))
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Fact, MeasuredValue};

    use super::*;
    use crate::testing;

    #[test]
    fn chains_scale_until_line_buffers_fill() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        let measured = |id: &str, case: &Case| {
            let is_huge_latency = *id == *LATENCY.id && PageSize::of(case) == Some(PageSize::Huge);
            is_huge_latency.then_some(MeasuredValue { value: 160.0, half_width: 0.0 })
        };
        let predicted = |machine: &Machine, chains| {
            predict(&PredictionInputs::new(machine, &measured), &LATENCY_PARALLEL, &chain_case(machine, chains))
                .unwrap()
        };
        assert_eq!([1, 8, 32].map(|chains| predicted(&machine, chains).value), [160.0, 20.0, 5.0]);
        machine.cpu.microarchitecture = Fact::known("Sapphire Rapids".into(), "a test");
        let saturated = predicted(&machine, 32);
        assert_eq!(
            (saturated.value, saturated.derivation.as_str()),
            (10.0, "160 ns / (the smaller of 32 and 16) = 10.0 ns")
        );
        assert!(saturated.inputs.iter().any(|input| input.name == "lines in flight, at most"));
    }

    #[test]
    fn every_run_has_maximum_chains() {
        let machine = testing::machine();
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            assert!(cases(&machine, effort).contains(&max_chains_case(&machine)), "{effort:?}");
        }
    }
}
