//! A file system's work for each write, and for each page of it, apart from the copy: a byte written to a page that is in the
//! page cache and dirty, and two bytes across the border of two pages.
//!
//! It is the cost of small writes into the page cache beyond a system call and a copy. It must not be taken for writes to new
//! pages, for which memory and blocks of the device are allocated.

use kelvin_core::catalogue::file::{PAGE_WRITE, PAGES};
use kelvin_core::catalogue::mem::BANDWIDTH_READ;
use kelvin_file::BlockRequest;
use kelvin_sys::mapping::page_bytes;

use super::overwrite::Overwriter;
use super::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "Writing a byte into one page of the page cache, and two across the border of two",
    method: include_str!("page_write.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&PAGE_WRITE])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let orders = if effort == Effort::Quick { &[AccessOrder::Sequential] } else { AccessOrder::ALL };
    words(orders).numbers(PAGES, &[1, 2])
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (pages, order) = (required_number(PAGES, case)?, block_order(case, bench.seed())?);
    let page = page_bytes() as u64;
    let page_offset = offset_in_page(pages, page)?;
    let target = test_files::cached_overwrite_file(bench, SHARED_BYTES)?;
    bench.note(format!("before, {}", set_cache_state(&target, PageCacheState::Cached)?));
    let mut writer = Overwriter::open(&target, Access::Buffered, pages as usize, bench.seed())?;
    // Not the last page: the second byte would be beyond the end.
    let mut requests = BlockRequests::new(0..SHARED_BYTES - page, page as usize, order).endless();
    bench.time(&PAGE_WRITE, |iterations| {
        requests.extend_limit(iterations);
        requests.by_ref().try_for_each(|request| {
            writer.write(BlockRequest { offset: request.offset + page_offset, bytes: pages as usize })
        })
    })?;
    bench.note_last_reading(prove_resident(&target)?);
    Ok(())
}

/// Where in a page this many bytes begin, each of which is to be in another page.
fn offset_in_page(pages: u64, page: u64) -> ProbeResult<u64> {
    match pages {
        1 => Ok(page / 2),
        2 => Ok(page - 1),
        other => Err(ProbeError::fail(format!(
            "a byte in each of {other} pages is no write of {other} bytes; 1 and 2 are known"
        ))),
    }
}

/// Bytes of a folio: as many as the file was written by at once.
const FOLIO_BYTES: u64 = MIB;
/// Bytes of a file system's record of a block (`struct buffer_head` on 64 bits), and of a block.
const BUFFER_HEAD_BYTES: u64 = 104;
const FILE_SYSTEM_BLOCK: u64 = 4 * KIB;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let pages = required_number(PAGES, case)?;
    let sequential_write = |pages| measured(facts, &PAGE_WRITE, &page_write_case(pages, AccessOrder::Sequential));
    let write_time = match required(AccessOrder::of(case), case)? {
        AccessOrder::Sequential if pages == 1 => {
            return Err(NoPrediction::new(
                "a file system's cost of a write is not published; predictions of buffered writes rest on this figure",
            ));
        }
        // Most neighbours are in one folio.
        AccessOrder::Sequential => sequential_write(1)?.variant("as for one page"),
        // Each write meets another folio, of which it walks all records.
        AccessOrder::Random => {
            let records = count_of("records of a folio", FOLIO_BYTES / FILE_SYSTEM_BLOCK);
            let record =
                published("bytes of a record of a block", BUFFER_HEAD_BYTES as f64, Unit::Bytes, FOLIO_WALK_SOURCE);
            let rate = bandwidth::in_memory(facts, &BANDWIDTH_READ);
            sequential_write(pages)? + records * record / rate?
        }
    };
    Ok(derived_time::predict_from_parts(write_time))
}

const FOLIO_WALK_SOURCE: &str =
    "Linux include/linux/buffer_head.h; fs/buffer.c: block_commit_write, which walks all of a folio";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_in_another_page() {
        for page in [4096, 65_536] {
            for pages in [1, 2] {
                let first = offset_in_page(pages, page).unwrap();
                assert_eq!((first + pages - 1) / page - first / page + 1, pages);
            }
        }
        assert!(offset_in_page(3, 4096).is_err());
    }

    #[test]
    fn random_order_adds_buffer_heads() {
        let measured = |id: &str, case: &Case| {
            let value = match AccessOrder::of(case) {
                Some(AccessOrder::Sequential) => 900.0 + 100.0 * PAGES.number_in(case)? as f64,
                Some(AccessOrder::Random) => return None,
                None => (BANDWIDTH_READ.id == *id).then_some(10.4e9)?,
            };
            Some(kelvin_harness::MeasuredValue { value, half_width: 0.0 })
        };
        let machine = crate::testing::machine();
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |pages, order| predict(&facts, &PAGE_WRITE, &page_write_case(pages, order));
        // 256 records of 104 bytes, ten nanoseconds each.
        assert!((predicted(1, AccessOrder::Random).unwrap().value - 3560.0).abs() < 1e-9);
        let two_pages = predicted(2, AccessOrder::Random).unwrap();
        assert!((two_pages.value - 3660.0).abs() < 1e-9 && (two_pages.low - 1830.0).abs() < 1e-9);
        assert!(predicted(1, AccessOrder::Sequential).is_err());
        assert_eq!(predicted(2, AccessOrder::Sequential).unwrap().value, 1000.0);
    }

    #[test]
    fn predictions_find_their_cases() {
        for effort in [Effort::Quick, Effort::Default, Effort::Thorough] {
            let cases = cases(&crate::testing::machine(), effort);
            assert!([1, 2].iter().all(|&pages| cases.contains(&page_write_case(pages, AccessOrder::Sequential))));
        }
    }
}
