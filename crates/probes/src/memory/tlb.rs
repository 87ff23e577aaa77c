//! The cost of a TLB miss: one line per page against as many adjacent lines.
//!
//! The difference of the two curves is the cost of a miss. It must not be used as the cost of a page fault: all pages
//! are mapped.

use kelvin_core::catalogue::mem::{TLB, TLB_PACKED, TOUCHED_PAGES};
use kelvin_sys::memory::{LINE_BYTES, PagePolicy, PointerRing};

use super::axes::{check_pages, number, skip_if_out_of_memory};
use super::{latency, memory_budget};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "Latency of dependent loads over one line in each of many pages, and over as many adjacent lines",
    method: include_str!("tlb.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&TLB, &TLB_PACKED])
};

/// Numbers of pages: below, at and above the TLBs of known cores (first level 16 to 96 entries, second level 512 to
/// 4096).
const PAGE_COUNTS: [u64; 11] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const DEFAULT_COUNTS: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];
const QUICK_COUNTS: [u64; 3] = [16, 256, 16384];
const PAGE_BYTES: u64 = 4096;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let mut counts = by_effort(effort, [&QUICK_COUNTS[..], &DEFAULT_COUNTS, &PAGE_COUNTS]).to_vec();
    counts.retain(|&count| count <= memory_budget::memory_budget(machine) / (PAGE_BYTES + LINE_BYTES as u64));
    numbers(TOUCHED_PAGES, &counts)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let count = number(case, TOUCHED_PAGES)?;
    let bytes = count * PAGE_BYTES as usize;
    let mut packed = skip_if_out_of_memory(
        count * LINE_BYTES,
        PointerRing::new(count * LINE_BYTES, PagePolicy::Base, bench.seed()),
    )?;
    time_chase(bench, &TLB_PACKED, &mut packed)?;
    let mut sparse = skip_if_out_of_memory(bytes, PointerRing::line_per_page(count, bench.seed()))?;
    bench.note(check_pages(sparse.arena(), PagePolicy::Base)?);
    time_chase(bench, &TLB, &mut sparse)
}

fn time_chase(bench: &mut Bench<'_>, metric: &Metric, ring: &mut PointerRing) -> ProbeResult {
    ring.chase(ring.lines() as u64);
    bench.time(metric, infallible(|loads| ring.chase(loads)))
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let count = required_number(TOUCHED_PAGES, case)?;
    if metric.id == TLB_PACKED.id {
        return latency::model::adjacent_lines_latency(facts, count * LINE_BYTES as u64);
    }
    latency::model::one_line_per_page_latency(facts, measured(facts, &TLB_PACKED, case)?, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn lower_effort_has_subset_of_counts() {
        assert!(DEFAULT_COUNTS.iter().all(|count| PAGE_COUNTS.contains(count)));
        assert!(QUICK_COUNTS.iter().all(|count| DEFAULT_COUNTS.contains(count)));
    }
}
