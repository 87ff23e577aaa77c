//! The cost of two cores writing to one cache line at once, each to its own word.
//!
//! It shows what two adjacent counters of two threads cost. It must not be used as the cost of a lock.

use std::sync::Arc;

use kelvin_catalogue::mem::{FALSE_SHARING, IncrementKind, Lines};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::bounce::{Counters, Increment, Line, Places};

use super::partner::{Partner, SETTLE};

pub(crate) static PROBE: Probe = Probe {
    id: FALSE_SHARING.id.as_str(),
    summary: "Increments by two CPUs at once, in one cache line and apart",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Two threads pinned to two CPUs increment a word each, equally often: lines=same puts the words in one \
              cache line, lines=apart 128 bytes apart. increment=plain is a load, an add and a store (one instruction \
              on x86-64), increment=atomic one atomic add. They synchronise by bouncing a line; the time runs from \
              there until both are done, divided by the increments of one. At the end both words must hold the right \
              count.",
        prediction: "None: how many increments a core completes before it loses the line depends on its store buffer \
                     and on the arbitration of the interconnect, which are not published. Compare with lines=apart, \
                     the figure without sharing.",
        not_for: "A contended lock; more than two CPUs, where it is worse.",
        pitfalls: &[
            "Words 64 bytes apart may still interfere: some cores fetch lines in pairs.",
            "Plain increments hide most of it: the store buffer collects them while the core waits for the line.",
            "Between SMT siblings the line never moves; they share the core's units instead.",
        ],
        sources: &[
            "Bolosky, Scott: False Sharing and its Effect on Shared Memory Performance, USENIX SEDMS 1993",
            "Linux kernel documentation, kernel-hacking/false-sharing.rst",
        ],
    },
    metrics: &[&FALSE_SHARING],
    inputs: &[],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let increments = if effort == Effort::Quick { &[IncrementKind::Plain] } else { IncrementKind::ALL };
    let cases = |&increment: &IncrementKind| Lines::ALL.iter().map(move |&lines| Case::new().at(lines).at(increment));
    increments.iter().flat_map(cases).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let places = match Lines::of(case) {
        Some(Lines::Same) => Places::SameLine,
        Some(Lines::Apart) => Places::Apart,
        None => return Err(Stop::fail(format!("the case needs lines=same or lines=apart, not {case}"))),
    };
    let increment = match IncrementKind::of(case) {
        Some(IncrementKind::Plain) => Increment::Plain,
        Some(IncrementKind::Atomic) => Increment::Atomic,
        None => return Err(Stop::fail(format!("the case needs increment=plain or increment=atomic, not {case}"))),
    };
    let to = bench.partner_cpu()?;
    let (line, counters) = (Line::new()?, Counters::new(places)?);
    let (far_line, far_counters) = (Arc::clone(&line), Arc::clone(&counters));
    let other = Partner::start(to, move |times| {
        far_line.answer(SETTLE);
        far_counters.count_up(true, increment, times);
        far_line.answer(1);
    })?;
    bench.note(format!("CPU {} and CPU {to}", bench.cpu()));
    let mut total = 0;
    bench.time_parts([&FALSE_SHARING], |clock, times| {
        other.begin(times)?;
        line.serve(SETTLE);
        let begun = clock.start();
        counters.count_up(false, increment, times);
        line.serve(1);
        let ticks = clock.stop().wrapping_sub(begun);
        other.end()?;
        total += times;
        Ok([ticks as f64])
    })?;
    other.dismiss()?;
    let values = [counters.value(false), counters.value(true)];
    if values != [total; 2] {
        return Err(Stop::fail(format!("the words hold {values:?} after {total} increments each")));
    }
    Ok(())
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because(
        "it is not published how many increments a core completes before it loses a line that another core writes to",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;

    #[test]
    fn every_case_in_one_line_has_one_apart() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&machine(), effort);
            let count = |lines| cases.iter().filter(|case| Lines::of(case) == Some(lines)).count();
            assert_eq!(count(Lines::Same), count(Lines::Apart));
            assert_eq!(count(Lines::Same) + count(Lines::Apart), cases.len());
        }
    }
}
