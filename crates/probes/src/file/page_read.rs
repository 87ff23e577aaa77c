//! The cost of a page on its way into the page cache, apart from device and copy: a byte read of each page of a hole, for which
//! the kernel must allocate pages and has nothing to read.
//!
//! It is the cost of reading through an empty page cache beyond device and copy. It must not be taken for reading data in a
//! file: no device is involved.

use std::fs::File;
use std::os::unix::fs::FileExt;

use kelvin_catalogue::file::{AccessOrder, CacheState, PAGE_READ};
use kelvin_file::cache::{self, State};
use kelvin_file::{Access, Order, Requests, Target};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::clock::Clock;
use kelvin_sys::mapping::{expect, page_bytes};

use super::cached;
use super::cases::{order, pages_read, state};
use super::data::{self, SHARED_BYTES};

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
        prediction: "None: the length of a file system's code path is not published. Predictions of reading through an \
                     empty page cache, and from a full one, rest on these figures.",
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
    inputs: &[],
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

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because(
        "the cost per page of file system and page cache is not published; predictions of reading through an empty \
         page cache rest on this figure",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
