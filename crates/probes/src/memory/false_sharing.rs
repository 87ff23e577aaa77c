//! The cost of two cores writing to one cache line at once, each to its own word.
//!
//! It shows what two adjacent counters of two threads cost. It must not be used as the cost of a lock.

use std::sync::Arc;

use kelvin_core::catalogue::cpu::{LATENCY_ADD, LATENCY_LOAD};
use kelvin_core::catalogue::mem::{FALSE_SHARING, IncrementKind, LinePlacement};
use kelvin_sys::cache_line::{BouncingLine, Increment, PairCounters, WordLayout};

use super::core_to_core::{self, SETTLE_ROUND_TRIPS};
use crate::os::partner::TokenPartner;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Increments by two CPUs at once, in one cache line and apart",
    method: include_str!("false_sharing.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&FALSE_SHARING])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let increments = if effort == Effort::Quick { &[IncrementKind::NonAtomic] } else { IncrementKind::ALL };
    words(increments).words(LinePlacement::ALL)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let layout = match required_word(LinePlacement::of(case), LinePlacement::ALL, case)? {
        LinePlacement::Same => WordLayout::SameLine,
        LinePlacement::Separate => WordLayout::SeparateLines,
    };
    let increment = match required_word(IncrementKind::of(case), IncrementKind::ALL, case)? {
        IncrementKind::NonAtomic => Increment::Plain,
        IncrementKind::Atomic => Increment::Atomic,
    };
    let to = bench.partner_cpu()?;
    let (line, counters) = (BouncingLine::new()?, PairCounters::new(layout)?);
    let (partner_line, partner_counters) = (Arc::clone(&line), Arc::clone(&counters));
    let partner = TokenPartner::start_batches(to, move |count| {
        partner_line.pong(SETTLE_ROUND_TRIPS);
        partner_counters.increment(true, increment, count);
        partner_line.pong(1);
    })?;
    bench.note(format!("CPU {} and CPU {to}", bench.cpu()));
    let mut total = 0;
    bench.time_parts([&FALSE_SHARING], |clock, count| {
        partner.start_batch(count)?;
        line.ping(SETTLE_ROUND_TRIPS);
        let (ticks, ()) = clock.time(|| {
            counters.increment(false, increment, count);
            line.ping(1);
        });
        partner.finish_batch()?;
        total += count;
        Ok([ticks as f64])
    })?;
    partner.finish()?;
    let values = [counters.value(false), counters.value(true)];
    fail_if(values != [total; 2], format!("the words hold {values:?} after {total} increments each"))
}

/// Predicted range, factor either way, of what is no bound.
const SPREAD: f64 = 1.5;
/// Accesses of an atomic increment to L1: a load, and a store that the next one waits for.
const INCREMENT_ACCESSES: f64 = 2.0;
/// CPUs that increment.
const WRITING_CPUS: f64 = 2.0;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (lines, increment) = (required(LinePlacement::of(case), case)?, required(IncrementKind::of(case), case)?);
    let (time, name) = match (lines, increment) {
        // Served from the store buffer; or waiting for the load, the add and the store, which takes as long as a load.
        (LinePlacement::Separate, _) => {
            let [add, load] = [&LATENCY_ADD, &LATENCY_LOAD].map(|metric| measured(facts, metric, &Case::new()));
            let (add, load) = (add?, load?);
            if increment == IncrementKind::NonAtomic {
                (add.clone().with_bounds(&add, &(add.clone() + load)).widen(SPREAD), "forwarded")
            } else {
                let source = "the load and the store of an increment";
                let accesses = fact("accesses to L1", INCREMENT_ACCESSES, Unit::Count, source);
                ((accesses * load + add).widen(SPREAD * INCREMENT_ACCESSES), "locked")
            }
        }
        (LinePlacement::Same, _) => {
            let separate = Case::new().with_word(LinePlacement::Separate).with_word(increment);
            let uncontended = measured(facts, &FALSE_SHARING, &separate)?;
            let line = core_to_core::default_pair_latency(facts)?;
            let (turns, name) = match increment {
                // Collected in the store buffer while the line is away.
                IncrementKind::NonAtomic => (1.0, "collected"),
                IncrementKind::Atomic => (WRITING_CPUS, "one at a time"),
            };
            let time = fact("CPUs that have the line one after another", turns, Unit::Count, "the case") * uncontended;
            let maximum = time.clone() + WRITING_CPUS * line;
            (time.clone().with_bounds(&time, &maximum).widen(SPREAD), name)
        }
    };
    Ok(time.derived(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, with_facts};
    use kelvin_core::catalogue::mem::CORE_TO_CORE;

    #[test]
    fn shared_cases_have_separate_counterparts() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&machine(), effort);
            let count = |lines| cases.iter().filter(|case| LinePlacement::of(case) == Some(lines)).count();
            assert_eq!(count(LinePlacement::Same), count(LinePlacement::Separate));
            assert_eq!(count(LinePlacement::Same) + count(LinePlacement::Separate), cases.len());
        }
    }

    #[test]
    fn increments_are_predicted_from_parts() {
        let inputs = [
            (LATENCY_ADD.id.as_str(), Some(0.25)),
            (LATENCY_LOAD.id.as_str(), Some(1.25)),
            (CORE_TO_CORE.id.as_str(), Some(60.0)),
            (FALSE_SHARING.id.as_str(), Some(5.0)),
        ];
        with_facts(&inputs, |facts| {
            let predicted = |lines: LinePlacement, increment: IncrementKind| {
                predict(facts, &FALSE_SHARING, &Case::new().with_word(lines).with_word(increment)).unwrap()
            };
            let separate = predicted(LinePlacement::Separate, IncrementKind::NonAtomic);
            assert_eq!((separate.value, separate.high), (0.25, 1.5 * SPREAD));
            assert_eq!(predicted(LinePlacement::Separate, IncrementKind::Atomic).value, 2.0 * 1.25 + 0.25);
            assert_eq!(predicted(LinePlacement::Same, IncrementKind::NonAtomic).value, 5.0);
            let contended = predicted(LinePlacement::Same, IncrementKind::Atomic);
            assert_eq!((contended.value, contended.high), (10.0, (10.0 + 120.0) * SPREAD));
        });
    }
}
