//! A file system's work for each write, and for each page of it, apart from the copy: a byte written to a page that is in the
//! page cache and dirty, and two bytes across the border of two pages.
//!
//! It is the cost of small writes into the page cache beyond a system call and a copy. It must not be taken for writes to new
//! pages, for which memory and blocks of the device are allocated.

use kelvin_catalogue::file::{AccessOrder, PAGE_WRITE, PAGES};
use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_READ};
use kelvin_file::cache::{self, State};
use kelvin_file::{Access, Request, Requests};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::mapping::page_bytes;

use super::cached;
use super::cases::{known, order, pages_written, predictable};
use super::data::{self, KIB, MIB, SHARED_BYTES};
use super::expected::{self, nanoseconds_of, per_second, time};
use super::writing::Overwriter;
use crate::memory::bandwidth;
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: PAGE_WRITE.id.as_str(),
    summary: "Writing a byte into one page of the page cache, and two across the border of two",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One thread writes over a file of noise of 64 MiB by pwrite, timed in batches. All of it is in memory by \
              mincore and cachestat before and after; what is written is dirty and never flushed, and writes meet \
              dirty pages again from the second pass on. pages=1: one byte in the middle of a page. pages=2: two \
              bytes, the last of a page and the first of the next. Nearly nothing is copied: the first is a write's \
              path through the file system, with one page found, locked, marked dirty and accounted for; the second \
              less the first is the cost of one more page, averaged over the folios in which the cache holds the file \
              (which may be larger than pages). order=sequential goes from page to page, order=random to each page \
              once, in random order.",
        prediction: "One page in order: none, as the length of a file system's code path is not published, and \
                     predictions of buffered writes rest on this figure. Two pages in order: the same, since most \
                     neighbours are in one folio, which is found and locked once. In random order: as in order, \
                     and the records of a folio, which a write walks one by one, read from memory \
                     (mem.bandwidth.read): each write meets another folio. It is as large as what was written at once, \
                     1 MiB, and has a record of 104 bytes (struct buffer_head) for each block of 4 KiB. So it is on \
                     ext4 with Linux 6.16 or later; a file system without such records is faster than that. Predicted \
                     range: a factor of two either way.",
        not_for: "The first write of a page, which allocates memory and blocks and costs much more.",
        pitfalls: &[
            "A page that is not in memory must be read before a byte of it is written: residency is proven.",
            "The kernel writes dirty pages back meanwhile, and a write may wait for a page under write-back.",
            "A file system with a record for each block of a page (buffer heads, as ext4) walks all of a folio's at \
             each write: in random order those of large folios miss the caches, which reading does not show.",
            "Writing the same byte would always meet the same page: each write goes to the next page.",
        ],
        sources: &[
            "Linux mm/filemap.c: generic_perform_write; fs/ext4/inode.c: ext4_da_write_begin, ext4_da_write_end; fs/iomap/buffered-io.c",
            "lmbench lat_syscall write, which writes one byte to /dev/null",
        ],
    },
    metrics: &[&PAGE_WRITE],
    inputs: &[BANDWIDTH.as_str()],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let orders = if effort == Effort::Quick { &[AccessOrder::Sequential] } else { AccessOrder::ALL };
    orders.iter().flat_map(|&order| [1, 2].map(|pages| pages_written(pages, order))).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let (pages, order) = (known(PAGES.of(case), case)?, order(case, bench.seed())?);
    let page = page_bytes() as u64;
    let within = place(pages, page)?;
    let target = data::afloat(bench, SHARED_BYTES)?;
    let found = cache::bring(&target, State::Cached).map_err(data::stopped)?;
    bench.note(format!("before, {found}"));
    let mut writer = Overwriter::open(&target, Access::Buffered, pages as usize, bench.seed())?;
    // Not the last page: the second byte would be beyond the end.
    let mut requests = Requests::new(0..SHARED_BYTES - page, page as usize, order).endless();
    bench.time(&PAGE_WRITE, |iterations| {
        requests.allow(iterations);
        requests
            .by_ref()
            .try_for_each(|whole| writer.write(Request { offset: whole.offset + within, bytes: pages as usize }))
    })?;
    bench.note_on_last(cached::still(cache::residency(&target).map_err(data::stopped)?)?);
    Ok(())
}

/// Where in a page so many bytes begin, each of which is to be in another page.
fn place(pages: u64, page: u64) -> Result<u64, Stop> {
    match pages {
        1 => Ok(page / 2),
        2 => Ok(page - 1),
        other => {
            Err(Stop::fail(format!("a byte in each of {other} pages is no write of {other} bytes; 1 and 2 are known")))
        }
    }
}

/// Two pages in order: as one, since most neighbours are in one folio.
fn neighbours(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let one = facts.measured(&PAGE_WRITE, &pages_written(1, AccessOrder::Sequential))?;
    Ok(Predicting::same_as(one, expected::FACTOR, " as for one page").complete())
}

/// Bytes of a folio: as many as the file was written by at once.
const FOLIO: u64 = MIB;
/// Bytes of a file system's record of a block (`struct buffer_head` on 64 bits), and of a block.
const RECORD: u64 = 104;
const FILE_SYSTEM_BLOCK: u64 = 4 * KIB;

/// One page in order is the base; two are in one folio; in random order each write meets another folio, of which it walks all records.
fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let pages = predictable(PAGES.of(case), case)?;
    match predictable(AccessOrder::of(case), case)? {
        AccessOrder::Sequential if pages == 1 => Err(NoPrediction::because(
            "a file system's cost of a write is not published; predictions of buffered writes rest on this figure",
        )),
        AccessOrder::Sequential => neighbours(facts),
        AccessOrder::Random => far(facts, pages),
    }
}

/// In random order: as in order, and the records of a folio read from memory.
fn far(facts: &Facts<'_>, pages: u64) -> Result<Prediction, NoPrediction> {
    let written = facts.measured(&PAGE_WRITE, &pages_written(pages, AccessOrder::Sequential))?;
    let rate = facts.measured(&BANDWIDTH_READ, &bandwidth::in_memory(facts.machine()))?;
    let records = FOLIO / FILE_SYSTEM_BLOCK;
    let walked = nanoseconds_of(records * RECORD, rate.value);
    let value = written.value + walked;
    let derivation = format!(
        "{} in order + {records} x {RECORD} bytes / {} = {}",
        time(written.value),
        per_second(rate.value),
        time(value)
    );
    Ok(Predicting::within_factor(Basis::Derived, value, expected::FACTOR)
        .formula("records of a folio", format!("{} + records of a folio / {}", written.name, rate.name))
        .input(written)
        .input(rate)
        .constant("bytes of a record of a block", RECORD as f64, Unit::Bytes, WALKED)
        .source(WALKED)
        .derived_as(derivation))
}

const WALKED: &str = "Linux include/linux/buffer_head.h; fs/buffer.c: block_commit_write, which walks all of a folio";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_in_another_page() {
        for page in [4096, 65_536] {
            for pages in [1, 2] {
                let first = place(pages, page).unwrap();
                assert_eq!((first + pages - 1) / page - first / page + 1, pages);
            }
        }
        assert!(place(3, 4096).is_err());
    }

    #[test]
    fn random_order_adds_the_records_of_a_folio() {
        let measured = |id: &str, case: &Case| {
            let value = match AccessOrder::of(case) {
                Some(AccessOrder::Sequential) => 900.0 + 100.0 * PAGES.of(case)? as f64,
                Some(AccessOrder::Random) => return None,
                None => (BANDWIDTH_READ.id == *id).then_some(10.4e9)?,
            };
            Some(kelvin_harness::MeasuredValue { value, half_width: 0.0 })
        };
        let machine = crate::testing::machine();
        let facts = Facts::new(&machine, &measured);
        let of = |pages, order| predict(&facts, &PAGE_WRITE, &pages_written(pages, order));
        // 256 records of 104 bytes, ten nanoseconds each.
        assert!((of(1, AccessOrder::Random).unwrap().value - 3560.0).abs() < 1e-9);
        let two = of(2, AccessOrder::Random).unwrap();
        assert!((two.value - 3660.0).abs() < 1e-9 && (two.low - 1830.0).abs() < 1e-9);
        assert!(of(1, AccessOrder::Sequential).is_err());
        assert_eq!(of(2, AccessOrder::Sequential).unwrap().value, 1000.0);
    }

    #[test]
    fn predictions_find_their_cases() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            assert!([1, 2].iter().all(|&pages| cases.contains(&pages_written(pages, AccessOrder::Sequential))));
        }
    }
}
