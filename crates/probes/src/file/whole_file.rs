//! The time to read 100 MB of a cached file whole, by read, fread and a mapping. Also the part of it for each request
//! and each byte.
//!
//! It is the total of an older study, measured as that one did: opening, reading to the end and closing. It must not be used
//! for the cost of a single request, which `file.engines` has without what is paid once a file.

use kelvin_core::catalogue::file::{ReadEngine, WHOLE_FILE as METRIC, WHOLE_FILE_BYTE, WHOLE_FILE_REQUEST};

use super::cases::read_engine;
use super::engine_model;
use super::prelude::*;
use crate::program::note_c_library;

pub(crate) static PROBE: Probe = Probe {
    summary: "Reading 100 MB of a cached file whole by read, fread and a mapping, by request size",
    method: include_str!("whole_file.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&METRIC, &WHOLE_FILE_REQUEST, &WHOLE_FILE_BYTE])
};

/// Bytes of the older study's file.
const FILE_BYTES: u64 = 100_000_000;
/// Its ways of reading, and its sizes of a request.
const PUBLISHED_ENGINES: [ReadEngine; 3] = [ReadEngine::Read, ReadEngine::Fread, ReadEngine::Mmap];
const PUBLISHED_SIZES: [u64; 5] = [1, 10, 100, 1000, 10_000];
/// Sizes of a quick study: without what takes seconds.
const QUICK_SIZES: [u64; 3] = [100, 1000, 10_000];

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let sizes: &[u64] = if effort == Effort::Quick { &QUICK_SIZES } else { &PUBLISHED_SIZES };
    words(&PUBLISHED_ENGINES).numbers(BLOCK, sizes)
}

/// Requests of a pass, all of them whole.
fn requests_per_pass(block: u64) -> u64 {
    FILE_BYTES / block
}

/// Nanoseconds that a pass is expected to take before one was made: a call, or a library's call or a copy of a few bytes for each
/// request, and copying.
pub(crate) fn expected_pass_time(case: &Case) -> Option<f64> {
    let (engine, block) = (ReadEngine::of(case)?, BLOCK.number_in(case)?);
    let request_time = if engine == ReadEngine::Read { 150.0 } else { 20.0 };
    Some(requests_per_pass(block.max(1)) as f64 * request_time + FILE_BYTES as f64 / 5.0)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (engine, block) = (required(ReadEngine::of(case), case)?, required_number(BLOCK, case)?);
    let bytes =
        usize::try_from(block).map_err(|_| ProbeError::fail(format!("a block of {block} bytes is too large")))?;
    let cached_file = CachedFile::open(bench, FILE_BYTES)?;
    let order = BlockOrder::Sequential;
    let options = ReadOptions { access: Access::Buffered, block: bytes, order, pages: PagePolicy::for_buffer(bytes) };
    let (mut requests, mut tally) = (BlockRequests::new(0..FILE_BYTES, bytes, order), IoTally::default());
    let clock = bench.clock();
    let start = clock.start();
    let mut reader = read_engine(engine).open(&cached_file.target, options).map_err(probe_error)?;
    reader.read(&mut requests, &mut tally).map_err(probe_error)?;
    drop(reader);
    let total = bench.nanoseconds(clock.stop().wrapping_sub(start));
    let expected = IoTally { bytes: FILE_BYTES, requests: self::requests_per_pass(block) };
    fail_if(tally != expected, format!("{expected:?} were to be read, and it came to {tally:?}"))?;
    bench.note(cached_file.proof.as_str());
    if engine == ReadEngine::Fread {
        note_c_library(bench);
    }
    bench.record(&METRIC, vec![total]);
    bench.record(&WHOLE_FILE_REQUEST, vec![total / expected.requests as f64]);
    bench.record(&WHOLE_FILE_BYTE, vec![total / expected.bytes as f64]);
    // Behind or before a pass of many seconds a kernel reclaims pages that were idle for as long.
    if is_read_back_significant(cached_file.missing_pages()?, total) { cached_file.check_resident() } else { Ok(()) }
}

/// Nanoseconds in which a disk reads back a page, at most: read ahead, it is one of many of a request.
const PAGE_READ_BACK_NANOSECONDS: f64 = 0.2e6;
/// Share of a total that reading back pages may be without a loss of the round.
const MAX_READ_BACK_SHARE: f64 = 0.01;

/// Whether reading back this many pages can be more than a little of a total.
fn is_read_back_significant(missing: u64, total: f64) -> bool {
    missing as f64 * PAGE_READ_BACK_NANOSECONDS > MAX_READ_BACK_SHARE * total
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let block = required(BLOCK.number_in(case).filter(|&block| block > 0), case)?;
    let request = engine_model::request_time(facts, case)?;
    Ok(engine_model::predict_within(match metric.id {
        id if id == METRIC.id => count_of("requests", requests_per_pass(block)) * request,
        id if id == WHOLE_FILE_BYTE.id => request / count_of("bytes of a request", block),
        _ => request,
    }))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SYSCALL_NULL;

    use super::*;
    use crate::testing::{machine, with_facts};
    use kelvin_core::catalogue::file::BYTE_CALLS;
    use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ, FAULT_MINOR, LATENCY};

    #[test]
    fn cases_include_published_totals() {
        let cases = |effort| super::cases(&machine(), effort);
        for engine in PUBLISHED_ENGINES {
            for block in [1, 10, 100, 1000, 10_000] {
                assert!(cases(Effort::Default).contains(&Case::new().with_word(engine).with_number(BLOCK, block)));
            }
        }
        assert_eq!([Effort::Quick, Effort::Default, Effort::Thorough].map(|effort| cases(effort).len()), [9, 15, 15]);
        assert!(cases(Effort::Quick).iter().all(|case| expected_pass_time(case).is_some_and(|time| time < 1e9)));
    }

    #[test]
    fn reclaimed_pages_count_by_time() {
        // 500 pages in a tenth of a second at most: a hundredth of ten seconds.
        assert!(!is_read_back_significant(500, 10e9) && is_read_back_significant(501, 10e9));
        assert!(!is_read_back_significant(0, 7e6) && is_read_back_significant(1, 7e6));
    }

    #[test]
    fn total_is_sum_of_requests() {
        let values = [
            (SYSCALL_NULL.id.as_str(), Some(60.0)),
            (BYTE_CALLS.id.as_str(), Some(130.0)),
            (BANDWIDTH_READ.id.as_str(), Some(20e9)),
            (BANDWIDTH_COPY.id.as_str(), Some(20e9)),
            (FAULT_MINOR.id.as_str(), Some(4000.0)),
            (LATENCY.id.as_str(), Some(100.0)),
        ];
        with_facts(&values, |facts| {
            let case = Case::new().with_word(ReadEngine::Read).with_number(BLOCK, 100);
            let predicted = |metric: &Metric| predict(facts, metric, &case).unwrap().value;
            // A call, five nanoseconds of the loop, and 100 bytes at between 10 and 20 a nanosecond.
            let request = 130.0 + 5.0 + 100.0 * 0.005f64.sqrt();
            let assert_close =
                |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-9, "{value} {expected}");
            assert_close(predicted(&WHOLE_FILE_REQUEST), request);
            assert_close(predicted(&METRIC), request * 1e6);
            assert_close(predicted(&WHOLE_FILE_BYTE), request / 100.0);
        });
    }
}
