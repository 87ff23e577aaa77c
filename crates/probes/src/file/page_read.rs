//! The cost of a page on its way into the page cache, apart from device and copy: a byte read of each page of a hole, for which
//! the kernel must allocate pages and has nothing to read.
//!
//! It is the cost of reading through an empty page cache beyond device and copy. It must not be taken for reading data in a
//! file: no device is involved.

use std::fs::File;
use std::os::unix::fs::FileExt;

use kelvin_catalogue::file::{AccessOrder, BYTE_CALLS, CacheState, PAGE_READ};
use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_ZERO, FAULT_MINOR, FaultPage, LATENCY};
use kelvin_file::cache::{self, State};
use kelvin_file::{Access, Order, Requests, Target};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::clock::Clock;
use kelvin_sys::mapping::{expect, page_bytes};

use super::byte_calls;
use super::cached;
use super::cases::{order, pages_read, predictable, state};
use super::data::{self, SHARED_BYTES};
use super::expected::{self, Expected, nanoseconds_of, time};
use crate::memory::{allowance, bandwidth, latency};
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: PAGE_READ.id.as_str(),
    summary: "Adding pages to the page cache that no device has to fill, and finding them there",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A file of 64 MiB that is one hole: the kernel puts zeroed pages into the page cache, without the device. \
              One thread reads the first byte of each page once by pread, and a pass is timed as a whole. \
              cache=uncached: before each pass the file is dropped by posix_fadvise until mincore and cachestat find \
              no page of it, and opened afresh; after it all of it must be in memory. cache=cached: a file of 64 MiB \
              of noise, all of it in memory before. The order is announced (POSIX_FADV_SEQUENTIAL, POSIX_FADV_RANDOM). \
              The difference is the cost of allocating a page, adding it to the page cache, and zeroing it.",
        prediction: "cached: a byte read in the page of the one before (file.byte_calls, call=pread), and a load from \
                     memory (mem.latency), for each page is in no cache. So in either order, since the nodes that lead \
                     to a page are few, and stay in the caches; in random order by what is measured in order. \
                     uncached, in order: finding the page, and zeroing it (mem.bandwidth.zero, in memory), as the rest \
                     is shared by all pages of a folio. uncached, in random order: finding the page, and what a page \
                     of its own costs a process that touches it first (mem.fault.minor, kind=anonymous): one that is \
                     allocated, accounted for, zeroed and entered. Predicted range: a factor of two either way. \
                     Predictions of reading through an empty page cache, and from a full one, rest on these figures.",
        not_for: "Reading files with data, which needs the device; mapped files.",
        pitfalls: &[
            "A page filled by a device need not be zeroed first: of a page of 4 KiB that is some 100 ns too much.",
            "Free memory that was returned to the host is slow to touch: where the device fills such pages, the host \
             waits instead.",
            "A sparse file on a server, or of another program, is read from there.",
            "The kernel adds larger units (folios) when it reads ahead, and single pages in random order.",
        ],
        sources: &[
            "Linux mm/filemap.c: filemap_read; mm/readahead.c: page_cache_ra_order",
            "Linux fs/mpage.c, fs/ext4/readpage.c, fs/iomap/buffered-io.c: holes",
            "mincore(2), posix_fadvise(2)",
        ],
    },
    metrics: &[&PAGE_READ],
    inputs: &[BYTE_CALLS.id.as_str(), LATENCY.id.as_str(), BANDWIDTH.as_str(), FAULT_MINOR.id.as_str()],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use AccessOrder::{Random, Sequential};
    use CacheState::{Cached, Uncached};
    let all = [(Cached, Sequential), (Uncached, Sequential), (Uncached, Random), (Cached, Random)];
    let wanted = if effort == Effort::Quick { 3 } else { all.len() };
    all[..wanted].iter().map(|&(cache, order)| pages_read(cache, order)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (state, order) = (state(case)?, order(case, bench.seed())?);
    // In memory any file will do, also where the file system has no holes.
    let target =
        if state == State::Cached { data::file(bench, SHARED_BYTES)? } else { data::hole(bench, SHARED_BYTES)? };
    let pages = SHARED_BYTES / page_bytes() as u64;
    bench.time_each([&PAGE_READ], |clock| Ok([pass(&target, clock, state, order)? / pages]))
}

/// The ticks of reading a byte of each page once.
fn pass(target: &Target, clock: Clock, state: State, order: Order) -> Result<u64, Stop> {
    cache::bring(target, state).map_err(data::stopped)?;
    let file = target.open(Access::Buffered).map_err(data::stopped)?;
    expect(&file, order == Order::Sequential)?;
    let requests = Requests::new(0..target.bytes(), page_bytes(), order);
    let begun = clock.start();
    for request in requests {
        read_byte(&file, request.offset)?;
    }
    let ticks = clock.stop().wrapping_sub(begun);
    let after = cache::residency(target).map_err(data::stopped)?;
    if after.mincore == 0 {
        return Err(Stop::skip(format!("needs a file system that keeps holes in the page cache: afterwards, {after}")));
    }
    cached::still(after).map(|_| ticks)
}

/// Reads a byte of a file.
#[inline]
pub(super) fn read_byte(file: &File, offset: u64) -> Result<(), Stop> {
    match file.read_at(&mut [0], offset) {
        Ok(1) => Ok(()),
        Ok(read) => Err(Stop::fail(format!("a read of a byte at {offset} returned {read}"))),
        Err(error) => Err(Stop::fail(format!("cannot read a byte at {offset}: {error}"))),
    }
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let first = pages_read(CacheState::Cached, AccessOrder::Sequential);
    if *case == first {
        let near = Expected::measured("next byte", facts.measured(&BYTE_CALLS, &byte_calls::next_byte_at())?, "");
        let load = Expected::measured("load", latency::of_memory(facts)?, " for a page in no cache");
        return Ok(expected::one_by_one(near, load).into_time());
    }
    let found = facts.measured(&PAGE_READ, &first)?;
    let in_order = AccessOrder::of(case) == Some(AccessOrder::Sequential);
    let more = match predictable(CacheState::of(case), case)? {
        CacheState::Cached => {
            return Ok(Predicting::same_as(found, expected::FACTOR, " as in order").complete());
        }
        CacheState::Uncached if in_order => {
            let zeroing = facts.measured(&BANDWIDTH_ZERO, &bandwidth::in_memory(facts.machine()))?;
            let nanoseconds = nanoseconds_of(allowance::page_bytes(facts.machine()), zeroing.value);
            Expected {
                nanoseconds,
                name: "zeroing".into(),
                formula: format!("page / {}", zeroing.name),
                derivation: format!("{} for zeroing", time(nanoseconds)),
                inputs: vec![zeroing],
            }
        }
        CacheState::Uncached => {
            let new = facts.measured(&FAULT_MINOR, &Case::new().at(FaultPage::Anonymous))?;
            Expected::measured("fault", new, " for a page of its own")
        }
        CacheState::Direct => return predictable(None, case),
    };
    Ok(expected::one_by_one(Expected::measured("page found", found, ""), more).into_time())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn pages_cost_a_call_and_what_is_made_of_them() {
        use AccessOrder::{Random, Sequential};
        use CacheState::{Cached, Uncached};
        let known = [
            (PAGE_READ.id.as_str(), Some(300.0)),
            (BANDWIDTH_ZERO.id.as_str(), Some(20.48e9)),
            (FAULT_MINOR.id.as_str(), Some(800.0)),
            (BYTE_CALLS.id.as_str(), Some(170.0)),
            (LATENCY.id.as_str(), Some(110.0)),
        ];
        facts_about(&known, |facts| {
            let of = |cache, order| predict(facts, &PAGE_READ, &pages_read(cache, order));
            let values = [(Cached, Random), (Uncached, Sequential), (Uncached, Random)]
                .map(|(cache, order)| of(cache, order).unwrap().value);
            assert_eq!(values, [300.0, 500.0, 1100.0]);
            let new = of(Uncached, Random).unwrap();
            assert_eq!((new.low, new.high, new.inputs.len()), (550.0, 2200.0, 2));
            assert_eq!(of(Cached, Sequential).unwrap().value, 280.0);
        });
    }

    #[test]
    fn predictions_find_their_cases() {
        use AccessOrder::{Random, Sequential};
        use CacheState::{Cached, Uncached};
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            for (cache, order) in [(Cached, Sequential), (Uncached, Sequential), (Uncached, Random)] {
                assert!(cases.contains(&pages_read(cache, order)), "{effort:?} {cache:?} {order:?}");
            }
            assert_eq!(cases.contains(&pages_read(Cached, Random)), effort > Effort::Quick);
        }
    }
}
