//! What a page costs on its way into the page cache, apart from its device and its copy: a byte read of each page of a hole, which
//! the kernel must find memory for and nothing to put into it.
//!
//! It is what reading through an empty page cache costs beyond the device and the copy. It must not be taken for reading of
//! what is in a file: no device is asked.

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
    summary: "Taking pages into the page cache that no device has to fill, and finding them there",
    kind: ProbeKind::Measure,
    method: Method {
        how: "A file of 64 MiB that is one hole: where nothing was ever written, the kernel puts zeros into the page cache, \
              and asks no device. One thread reads the first byte of each page once by pread, and a pass is timed as a whole. \
              cache=uncached: before each pass the file is dropped by posix_fadvise until mincore and cachestat find no page \
              of it, and opened afresh; after it all of it must be in memory. cache=cached: a file of 64 MiB of noise, all of \
              it in memory before. \
              The kernel is told of the order (POSIX_FADV_SEQUENTIAL, POSIX_FADV_RANDOM). The one less the other is what it \
              takes to find memory for a page, to enter it into the page cache, and to set it to zero.",
        prediction: "None: the instructions of a file system's way are published nowhere. Predictions of reading through an \
                     empty page cache, and out of a full one, rest on these figures.",
        not_for: "Reading of files that hold something, for which a device must be asked; mapped files.",
        pitfalls: &[
            "A page that a device fills need not be set to zero first: of a page of 4 KiB that is some 100 ns too much.",
            "Free memory that was given back to a host is slow to touch: a file system that puts pages of a device there has \
             its host wait for it instead.",
            "A hole of a file that another machine or program serves is asked of that one.",
            "The kernel takes pages in larger pieces (folios) when it reads ahead, and in single pages in random order.",
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
    // In memory any file will do, also where holes are not to be had.
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
        Ok(read) => Err(Stop::fail(format!("a read of a byte at {offset} was one of {read}"))),
        Err(error) => Err(Stop::fail(format!("cannot read a byte at {offset}: {error}"))),
    }
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because(
        "what a file system and the page cache do for a page has no published cost; predictions of reading through an empty \
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
