//! Memory-level parallelism: what a load takes where a core follows several independent chains of them at once.
//!
//! The curve falls as long as further loads find a place among those that a core can have in flight, and is flat from there on. It must
//! not be used as the latency of a load, which it hides, nor as the rate of a sequential loop, for which prefetchers fetch as well.

use kelvin_catalogue::mem::{BYTES, CHAINS, LATENCY, LATENCY_PARALLEL, PageSize};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::memory::{Chases, Ring};

use super::allowance::allowance;
use super::axes::{check_pages, number, obtained, pages};
use super::{latency, published as hierarchy};
use crate::predict::Predicting;

pub(crate) static PROBE: Probe = Probe {
    id: LATENCY_PARALLEL.id.as_str(),
    summary: "Time of a load from memory by number of independent chains of loads: memory-level parallelism",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The ring of mem.latency over its largest working set, in huge pages where the kernel may provide them, followed from as many places at once as \
              there are chains: a load of each in turn, so that a load waits for the last one of its own chain and for \
              no other. The time is that of all loads over their number. The ring is flushed from the caches first. The \
              place of a chain is kept in memory and not in a register: a few cycles a load, in none of which another \
              chain waits. A run has 16 chains, `kelvin study mem.latency.parallel` the curve from 1 to 32.",
        prediction: "The latency of one load over the number of chains, and at least over the lines that a core can have in \
                     flight where that is published. Predicted range: from there to a load at a time.",
        not_for: "The latency of a load: that is mem.latency. The bandwidth of a sequential loop: prefetchers have more \
                  lines in flight than the loads of a program.",
        pitfalls: &[
            "Base pages: misses of the TLB wait for the page walkers, of which a core has few. The set is in huge pages.",
            "A set that a cache shared with others holds in part.",
            "Chains that follow in each other's tracks find the lines in a cache: they begin far apart.",
        ],
        sources: &[
            "google/multichase, -m: parallel chases",
            "Little: A proof for the queuing formula L = λW, Operations Research 9, 1961",
        ],
    },
    metrics: &[&LATENCY_PARALLEL],
    inputs: &[LATENCY.id.as_str()],
    cases,
    run,
    predict,
};

const COUNTS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// More chains than the loads that any core of today has in flight beyond its first cache would only take room: this many keep most of them
/// busy, and bandwidth is predicted from them.
const MOST: u64 = 16;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    // The ring takes half a second to make: the curve is for a study.
    let counts: &[u64] = if effort == Effort::Thorough { &COUNTS } else { &[MOST] };
    counts.iter().map(|&count| of_chains(machine, count)).collect()
}

/// In the largest set of mem.latency, or a half of it where memory is short: every run makes this one.
fn of_chains(machine: &Machine, count: u64) -> Case {
    let most = 1 << (allowance(machine) / 2).max(1).ilog2();
    latency::largest_without_translation(machine).with(BYTES, latency::largest(machine).min(most)).with(CHAINS, count)
}

/// The case of the most lines in flight, part of every run.
pub(super) fn most(machine: &Machine) -> Case {
    of_chains(machine, MOST)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (bytes, chains, pages) = (number(case, BYTES)?, number(case, CHAINS)?, pages(case)?);
    let ring = obtained(bytes + bytes / 16, Ring::new(bytes, pages, bench.seed()))?;
    bench.note(check_pages(ring.arena(), pages)?);
    ring.evict_end(usize::MAX);
    let mut chases = Chases::new(ring, chains);
    bench.time(&LATENCY_PARALLEL, |loads| {
        chases.follow(loads);
        Ok(())
    })
}

/// Beyond the range, for what is wrong with the latency that it begins with.
const TOLERANCE: f64 = 0.1;

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let chains = CHAINS.of(case).ok_or_else(|| NoPrediction::because("the case has no chains"))? as f64;
    let pages = PageSize::of(case).ok_or_else(|| NoPrediction::because("the case has no pages"))?;
    let one = facts.measured(&LATENCY, &latency::largest_in(facts.machine(), pages))?;
    let published = hierarchy::hierarchy(facts).ok().and_then(|row| Some((row.outstanding?, row.source)));
    let in_flight = published.map_or(chains, |(lines, _)| chains.min(lines));
    let value = one.value / in_flight;
    let name = if in_flight < chains { "published lines in flight" } else { "shared by chains" };
    let mut predicting =
        Predicting::between(Basis::Derived, value, value * (1.0 - TOLERANCE), one.value * (1.0 + TOLERANCE))
            .formula(name, "latency of a load / loads in flight, of each chain one")
            .input(one.clone())
            .constant("chains", chains, Unit::Count, "the case");
    if let Some((lines, source)) = published.filter(|(lines, _)| *lines < chains) {
        predicting = predicting.constant("lines in flight, at most", lines, Unit::Count, source).source(source);
    }
    Ok(predicting.derived_as(format!("{:.1} ns / {in_flight} = {value:.1} ns", one.value)))
}

#[cfg(test)]
mod tests {
    use kelvin_model::{Fact, MeasuredValue};

    use super::*;
    use crate::testing;

    #[test]
    fn loads_are_shared_by_the_chains_until_a_core_has_no_place_for_more() {
        let mut machine = testing::machine();
        machine.memory.available_bytes = Fact::known(8 << 30, "a test");
        let measured = |id: &str, case: &Case| {
            let is_it = *id == *LATENCY.id && PageSize::of(case) == Some(PageSize::Huge);
            is_it.then_some(MeasuredValue { value: 160.0, half_width: 0.0 })
        };
        let of = |machine: &Machine, chains| {
            predict(&Facts::new(machine, &measured), &LATENCY_PARALLEL, &of_chains(machine, chains)).unwrap()
        };
        assert_eq!([1, 8, 32].map(|chains| of(&machine, chains).value), [160.0, 20.0, 5.0]);
        machine.cpu.microarchitecture = Fact::known("Sapphire Rapids".into(), "a test");
        let flat = of(&machine, 32);
        assert_eq!((flat.value, flat.derivation.as_str()), (10.0, "160.0 ns / 16 = 10.0 ns"));
        assert!(flat.inputs.iter().any(|input| input.name == "lines in flight, at most"));
    }

    #[test]
    fn every_run_has_the_case_of_most_lines_in_flight() {
        let machine = testing::machine();
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            assert!(cases(&machine, effort).contains(&most(&machine)), "{effort:?}");
        }
    }
}
