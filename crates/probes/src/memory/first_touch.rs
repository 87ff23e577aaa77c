//! The first touch of memory that is new to a process, and of the same memory just after the process gave it back.
//!
//! It is what a program pays while it grows. It must not be used as the cost of a page fault: where a host lends a virtual
//! machine its memory page by page, most of it may be the host's.

use kelvin_core::catalogue::mem::{BANDWIDTH_ZERO, FAULT_MINOR, FIRST_TOUCH, FaultPage, LATENCY, REPEATED_FIRST_TOUCH};
use kelvin_sys::mapping::{self, page_bytes};
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::usage::{UsageScope, read_usage};

use super::memory_budget::memory_budget;
use super::{bandwidth, latency};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "The first touch of memory new to a process, and of memory that it gave back just before",
    method: include_str!("first_touch.md"),
    // Twice as much as is touched must be free, or what is measured is how memory is found.
    cases: |machine, _| if memory_budget(machine) >= TOUCHED_BYTES as u64 { vec![Case::new()] } else { Vec::new() },
    run,
    predict,
    ..Probe::measure(&[&FIRST_TOUCH, &REPEATED_FIRST_TOUCH])
};

/// Bytes that are touched: more than what other programs have just freed, which a host still has, and little compared
/// with the memory of any machine.
const TOUCHED_BYTES: usize = 128 << 20;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let mut arena = Arena::map(TOUCHED_BYTES, PagePolicy::Base)?;
    let first = time_touch(bench, &mut arena)?;
    mapping::discard_pages(&mut arena, TOUCHED_BYTES)?;
    let repeated = time_touch(bench, &mut arena)?;
    bench.note(format!("{} pages, each a fault by getrusage in either pass", TOUCHED_BYTES / page_bytes()));
    bench.record(&FIRST_TOUCH, vec![first]);
    bench.record(&REPEATED_FIRST_TOUCH, vec![repeated]);
    Ok(())
}

/// Nanoseconds of a page, of touching all.
fn time_touch(bench: &Bench<'_>, arena: &mut Arena) -> ProbeResult<f64> {
    let page = page_bytes();
    let pages = TOUCHED_BYTES / page;
    let before = read_usage(UsageScope::Thread).minor_faults;
    let (ticks, ()) = bench.clock().time(|| mapping::write_pages(arena, page, pages));
    let faults = read_usage(UsageScope::Thread).minor_faults - before;
    fail_if(faults < pages as u64, format!("{faults} faults by getrusage of {pages} pages: some were there already"))?;
    Ok(bench.nanoseconds(ticks) / pages as f64)
}

/// Factor either way within which a page of 128 MiB costs as much as one of a few.
const SPREAD: f64 = 1.5;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let fault = measured(facts, &FAULT_MINOR, &Case::new().with_word(FaultPage::Anonymous))?;
    let zero_rate = bandwidth::in_memory(facts, &BANDWIDTH_ZERO)?;
    let load = measured(facts, &LATENCY, &latency::memory_case(facts.machine()))?;
    let touch = fault + bytes_of("page", page_bytes() as u64) / zero_rate + load;
    Ok(touch.widen(SPREAD).derived("fault, clearing and load"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn first_touch_follows_from_fresh_fault() {
        // 4096 bytes at 8.192 a nanosecond.
        let values = [(&FAULT_MINOR, 800.0), (&BANDWIDTH_ZERO, 8.192e9), (&LATENCY, 100.0)];
        let values = values.map(|(metric, value)| (metric.id.as_str(), Some(value)));
        with_facts(&values, |facts| {
            for metric in [&FIRST_TOUCH, &REPEATED_FIRST_TOUCH] {
                let predicted = predict(facts, metric, &Case::new()).unwrap();
                assert_eq!((predicted.value, predicted.high), (1400.0, 2100.0));
            }
        });
        with_facts(&[], |facts| assert!(predict(facts, &FIRST_TOUCH, &Case::new()).is_err()));
    }
}
