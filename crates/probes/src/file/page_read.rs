//! The cost of a page on its way into the page cache, apart from device and copy: a byte read of each page of a hole, for which
//! the kernel must allocate pages and has nothing to read.
//!
//! It is the cost of reading through an empty page cache beyond device and copy. It must not be taken for reading data in a
//! file: no device is involved.

use std::fs::File;
use std::os::unix::fs::FileExt;

use kelvin_core::catalogue::file::{BYTE_CALLS, PAGE_READ};
use kelvin_core::catalogue::mem::{BANDWIDTH_ZERO, FAULT_MINOR, FaultPage};
use kelvin_sys::mapping::{advise_access, page_bytes};

use super::byte_calls;
use super::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "Adding pages to the page cache that no device has to fill, and finding them there",
    method: include_str!("page_read.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&PAGE_READ])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use AccessOrder::{Random, Sequential};
    use CacheState::{Cached, Uncached};
    let combinations = [(Cached, Sequential), (Uncached, Sequential), (Uncached, Random), (Cached, Random)];
    let count = if effort == Effort::Quick { 3 } else { combinations.len() };
    combinations[..count].iter().map(|&(cache, order)| page_read_case(cache, order)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (state, order) = (cache_state(case)?, block_order(case, bench.seed())?);
    // In memory any file will do, also where the file system has no holes.
    let target = if state == PageCacheState::Cached {
        test_files::shared_file(bench, SHARED_BYTES)?
    } else {
        test_files::sparse_file(bench, SHARED_BYTES)?
    };
    let pages = SHARED_BYTES / page_bytes() as u64;
    bench.time_each([&PAGE_READ], |clock| Ok([time_pass(&target, clock, state, order)? / pages]))
}

/// The ticks of reading a byte of each page once.
fn time_pass(target: &Target, clock: Clock, state: PageCacheState, order: BlockOrder) -> ProbeResult<u64> {
    set_cache_state(target, state)?;
    let file = target.open(Access::Buffered).map_err(probe_error)?;
    advise_access(&file, order == BlockOrder::Sequential)?;
    let requests = BlockRequests::new(0..target.bytes(), page_bytes(), order);
    let (ticks, outcome) = clock.time(|| requests.into_iter().try_for_each(|request| read_byte(&file, request.offset)));
    outcome?;
    let residency_after = residency(target)?;
    let reason = format!("needs a file system that keeps holes in the page cache: afterwards, {residency_after}");
    skip_if(residency_after.mincore == 0, reason)?;
    describe_residency(residency_after).map(|_| ticks)
}

/// Reads a byte of a file.
#[inline]
pub(super) fn read_byte(file: &File, offset: u64) -> ProbeResult {
    match file.read_at(&mut [0], offset) {
        Ok(1) => Ok(()),
        Ok(read) => Err(ProbeError::fail(format!("a read of a byte at {offset} returned {read}"))),
        Err(error) => Err(ProbeError::fail(format!("cannot read a byte at {offset}: {error}"))),
    }
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let first = page_read_case(CacheState::Cached, AccessOrder::Sequential);
    let page = match required(CacheState::of(case), case)? {
        CacheState::Cached if *case == first => {
            let next_byte = measured(facts, &BYTE_CALLS, &byte_calls::next_byte_at_case())?;
            next_byte.variant("next byte") + latency::memory_latency(facts)?
        }
        CacheState::Cached => measured(facts, &PAGE_READ, &first)?.variant("page found"),
        CacheState::Uncached if AccessOrder::of(case) == Some(AccessOrder::Sequential) => {
            let cached = measured(facts, &PAGE_READ, &first)?.variant("zeroing");
            let zeroing = bandwidth::in_memory(facts, &BANDWIDTH_ZERO)?;
            cached + bytes_of("page", memory_budget::page_bytes(facts.machine())) / zeroing
        }
        CacheState::Uncached => {
            let cached = measured(facts, &PAGE_READ, &first)?.variant("fault");
            cached + measured(facts, &FAULT_MINOR, &Case::new().with_word(FaultPage::Anonymous))?
        }
        CacheState::Direct => return Ok(required(None, case)?),
    };
    Ok(derived_time::predict_from_parts(page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::mem::LATENCY;

    #[test]
    fn page_cost_is_call_plus_page() {
        use AccessOrder::{Random, Sequential};
        use CacheState::{Cached, Uncached};
        let inputs = [
            (PAGE_READ.id.as_str(), Some(300.0)),
            (BANDWIDTH_ZERO.id.as_str(), Some(20.48e9)),
            (FAULT_MINOR.id.as_str(), Some(800.0)),
            (BYTE_CALLS.id.as_str(), Some(170.0)),
            (LATENCY.id.as_str(), Some(110.0)),
        ];
        with_facts(&inputs, |facts| {
            let predicted = |cache, order| predict(facts, &PAGE_READ, &page_read_case(cache, order));
            let values = [(Cached, Random), (Uncached, Sequential), (Uncached, Random)]
                .map(|(cache, order)| predicted(cache, order).unwrap().value);
            assert_eq!(values, [300.0, 500.0, 1100.0]);
            let uncached = predicted(Uncached, Random).unwrap();
            assert_eq!((uncached.low, uncached.high, uncached.inputs.len()), (550.0, 2200.0, 2));
            assert_eq!(predicted(Cached, Sequential).unwrap().value, 280.0);
        });
    }

    #[test]
    fn predictions_find_their_cases() {
        use AccessOrder::{Random, Sequential};
        use CacheState::{Cached, Uncached};
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            for (cache, order) in [(Cached, Sequential), (Uncached, Sequential), (Uncached, Random)] {
                assert!(cases.contains(&page_read_case(cache, order)), "{effort:?} {cache:?} {order:?}");
            }
            assert_eq!(cases.contains(&page_read_case(Cached, Random)), effort > Effort::Quick);
        }
    }
}
