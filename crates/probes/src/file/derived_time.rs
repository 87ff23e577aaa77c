//! The expected time to move a block between a file and a buffer: the parts of many file predictions.

use kelvin_core::catalogue::file::{
    DEVICE_ACCEPT_LATENCY, DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REQUESTS, DEVICE_WRITE, PAGE_READ, PAGE_WRITE,
};
use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ, BANDWIDTH_WRITE};
use kelvin_core::units;

pub(super) use kelvin_sys::uring::IoDirection;

use super::prelude::*;

/// The time of one call that reads a block from the page cache: a call that finds a page there, and a copy.
///
/// The source of the copy is in memory, as files are larger than caches. The buffer is reused by each call: if it fits half of
/// the L2 cache it stays there, and is written as fast as memory is read; a larger one is in memory too, and the bytes cross it
/// twice. The kernel copies page by page, and the copy of one ends before that of the next begins: each page beyond the first, whose
/// miss is in the call, waits for memory once. Finding further pages is not counted: they lie in folios where the file system has them.
pub(super) fn cached_read(facts: &PredictionInputs<'_>, block: u64) -> Predicted<Expr> {
    let call = measured(facts, &PAGE_READ, &page_read_case(CacheState::Cached, AccessOrder::Sequential))?;
    Ok(call.variant("call") + block_copy(facts, block, IoDirection::Read)?)
}

/// The time of one call that writes a block over pages that are in the page cache and dirty: the file system's work for a call
/// with one page, and for each further page, as measured with next to nothing copied, and the copy.
pub(super) fn cached_overwrite(facts: &PredictionInputs<'_>, block: u64) -> Predicted<Expr> {
    let page = memory_budget::page_bytes(facts.machine());
    let one_page = measured(facts, &PAGE_WRITE, &page_write_case(1, AccessOrder::Sequential))?.variant("written pages");
    let two_pages = measured(facts, &PAGE_WRITE, &page_write_case(2, AccessOrder::Sequential))?;
    let further_pages = count_of("further pages", block.div_ceil(page) - 1);
    // Noise may reverse the order of two figures.
    let pages = one_page.clone() + further_pages * (two_pages - one_page).at_least_zero();
    Ok(pages + block_copy(facts, block, IoDirection::Write)?)
}

/// Whether the buffer of a block stays in the L2 cache.
pub(super) fn buffer_stays_in_cache(facts: &PredictionInputs<'_>, block: u64) -> bool {
    memory_budget::second_level_bytes(facts.machine()).is_some_and(|bytes| block <= bytes / 2)
}

/// The copy of a block between the page cache, which is in memory, and a buffer.
pub(super) fn block_copy(facts: &PredictionInputs<'_>, block: u64, direction: IoDirection) -> Predicted<Expr> {
    let memory = bandwidth::memory_case(facts.machine());
    let rate = match (buffer_stays_in_cache(facts, block), direction) {
        (true, IoDirection::Read) => measured(facts, &BANDWIDTH_READ, &memory)?.variant("buffer in L2"),
        (true, IoDirection::Write) => measured(facts, &BANDWIDTH_WRITE, &memory)?.variant("buffer in L2"),
        // It counts bytes read and bytes written.
        (false, _) => (measured(facts, &BANDWIDTH_COPY, &memory)? / 2.0).variant("buffer in memory"),
    };
    let copy = bytes_of("block", block) / rate;
    let page = memory_budget::page_bytes(facts.machine());
    if direction == IoDirection::Write || block <= page {
        return Ok(copy);
    }
    let further_pages = count_of("further pages", block.div_ceil(page) - 1);
    Ok(copy + further_pages.variant("several pages") * latency::memory_latency(facts)?)
}

/// The time of one request past the page cache at queue depth 1: the device's latency for the first 4 KiB, and the rest at its
/// rate.
pub(super) fn direct_request(facts: &PredictionInputs<'_>, block: u64, direction: IoDirection) -> Predicted<Expr> {
    let (latency, rate) = device_metrics(direction);
    let latency = measured(facts, latency, &Case::new())?.variant("request");
    let rest = bytes_of("(block - 4 KiB)", block.saturating_sub(LATENCY_BYTES));
    Ok(latency + rest / measured(facts, rate, &Case::new())?)
}

/// The time of a block at the device's rate, with much in flight.
pub(super) fn streamed_block(facts: &PredictionInputs<'_>, block: u64, direction: IoDirection) -> Predicted<Expr> {
    let rate = measured(facts, device_metrics(direction).1, &Case::new())?.variant("rate of the device");
    Ok(bytes_of("block", block) / rate)
}

/// The time of one read of a block where the device has enough of them in flight: of 4 KiB the number of requests counts, of
/// more the bytes.
pub(super) fn queued_read(facts: &PredictionInputs<'_>, block: u64) -> Predicted<Expr> {
    if block > LATENCY_BYTES {
        return streamed_block(facts, block, IoDirection::Read);
    }
    Ok(1.0 / measured(facts, &DEVICE_REQUESTS, &Case::new())?.variant("one of many requests"))
}

/// The predicted range as a factor either way: a file system's other work is in no formula.
pub(super) const RANGE_FACTOR: f64 = 2.0;

/// Like `RANGE_FACTOR`, for a figure made only of requests to a device, as is the one it is predicted from: drives, and those who share
/// them, vary that much.
pub(super) const DEVICE_RANGE_FACTOR: f64 = 1.5;

/// The prediction of a time or a rate from its parts, whose variants distinguish one formula from another.
pub(super) fn predict_from_parts(parts: Expr) -> Prediction {
    parts.widen(RANGE_FACTOR).derived("parts")
}

/// Bytes that the latency of a device includes.
const LATENCY_BYTES: u64 = 4 * KIB;

/// Latency and rate of the device. Predictions are sums over many requests: of reads, the mean counts.
fn device_metrics(direction: IoDirection) -> (&'static Metric, &'static Metric) {
    match direction {
        IoDirection::Read => (&DEVICE_MEAN_LATENCY, &DEVICE_READ),
        IoDirection::Write => (&DEVICE_ACCEPT_LATENCY, &DEVICE_WRITE),
    }
}

/// A time for people.
pub(super) fn format_time(nanoseconds: f64) -> String {
    units::value_text(nanoseconds, Unit::Nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::test_files::MIB;
    use crate::testing;
    use kelvin_core::catalogue::file::PAGES;
    use kelvin_core::catalogue::mem::LATENCY;
    use kelvin_harness::MeasuredValue;

    /// Facts of a machine with an L2 cache of 1 MiB and these measured values.
    fn with_facts<R>(values: &[(&Metric, f64)], f: impl FnOnce(&PredictionInputs<'_>) -> R) -> R {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(&[(2, MIB)]);
        let measured = |id: &str, _: &Case| {
            let &(_, value) = values.iter().find(|(metric, _)| metric.id == *id)?;
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        f(&PredictionInputs::new(&machine, &measured))
    }

    const INPUTS: [(&Metric, f64); 9] = [
        (&LATENCY, 100.0),
        (&PAGE_READ, 261.0),
        (&BANDWIDTH_READ, 11.8e9),
        (&BANDWIDTH_WRITE, 8e9),
        (&BANDWIDTH_COPY, 20e9),
        (&DEVICE_READ, 500e6),
        (&DEVICE_MEAN_LATENCY, 80_000.0),
        (&DEVICE_WRITE, 250e6),
        (&DEVICE_ACCEPT_LATENCY, 40_000.0),
    ];

    #[test]
    fn cached_read_is_call_plus_copy() {
        with_facts(&INPUTS, |facts| {
            // 261 ns and 4096 B at 11.8 GB/s.
            let read = cached_read(facts, 4096).unwrap();
            assert_eq!(read.value().round(), 608.0);
            assert_eq!(predict_from_parts(read).derivation, "261 ns + 4.00 KiB / 11.8 GB/s = 608 ns");
            assert_eq!(block_copy(facts, 4096, IoDirection::Write).unwrap().value(), 512.0);
            // A buffer of half of the cache is the last that stays there; of a copy half the bytes count.
            let small_read = predict_from_parts(cached_read(facts, MIB / 2).unwrap());
            assert!(small_read.formula.contains(BANDWIDTH_READ.id.as_str()));
            let large_read = cached_read(facts, 10 * MIB).unwrap();
            // Of 2560 pages all but the first wait 100 ns.
            assert!((large_read.value() - 261.0 - 1_048_576.0 - 255_900.0).abs() < 1e-6, "{large_read:?}");
            assert_eq!(predict_from_parts(large_read).inputs.len(), 3);
        });
    }

    #[test]
    fn overwrite_is_call_pages_and_copy() {
        let machine = testing::machine();
        let overwrite_time = |two_pages: f64, block: u64| {
            let measured = |id: &str, case: &Case| {
                let value = match PAGES.number_in(case) {
                    Some(1) => 700.0,
                    Some(_) => two_pages,
                    None if BANDWIDTH_COPY.id == *id => 20e9,
                    None => return None,
                };
                Some(MeasuredValue { value, half_width: 0.0 })
            };
            cached_overwrite(&PredictionInputs::new(&machine, &measured), block).unwrap()
        };
        // 10 bytes a nanosecond: half of what a copy counts.
        assert!((overwrite_time(900.0, 512).value() - 751.2).abs() < 1e-9);
        assert!((overwrite_time(900.0, 4096).value() - 1109.6).abs() < 1e-9);
        assert!((overwrite_time(900.0, 3 * 4096).value() - (700.0 + 2.0 * 200.0 + 1228.8)).abs() < 1e-9);
        assert_eq!(
            predict_from_parts(overwrite_time(900.0, 8192)).derivation,
            "700 ns + 1 x (900 ns - 700 ns) + 8.00 KiB / (20.0 GB/s / 2) = 1.72 µs"
        );
        assert!((overwrite_time(690.0, 8192).value() - 1519.2).abs() < 1e-9, "noise is no gain");
    }

    #[test]
    fn direct_block_is_latency_plus_transfer() {
        with_facts(&INPUTS, |facts| {
            assert_eq!(direct_request(facts, 4096, IoDirection::Read).unwrap().value(), 80_000.0);
            let large_request = direct_request(facts, 4096 + 1_000_000, IoDirection::Write).unwrap();
            assert_eq!(large_request.value(), 40_000.0 + 4_000_000.0);
            assert_eq!(streamed_block(facts, 1_000_000, IoDirection::Read).unwrap().value(), 2_000_000.0);
        });
    }

    #[test]
    fn combined_times_merge_inputs() {
        with_facts(&INPUTS, |facts| {
            let (latency, stream) = (
                direct_request(facts, 4096, IoDirection::Read).unwrap(),
                streamed_block(facts, 1_000_000, IoDirection::Read).unwrap(),
            );
            let sum = predict_from_parts(latency.clone() + stream.clone());
            assert_eq!((sum.value, sum.inputs.len()), (80_000.0 + 2_000_000.0, 2));
            let longest = predict_from_parts(latency.max(3.0 * stream));
            assert_eq!((longest.value, longest.low, longest.high), (6e6, 3e6, 12e6));
            assert!(longest.derivation.ends_with("and 3 x 977 KiB / 500 MB/s = 6.00 ms"), "{longest:?}");
        });
    }

    #[test]
    fn missing_input_is_named() {
        with_facts(&INPUTS[..2], |facts| {
            assert!(cached_read(facts, 4096).unwrap_err().0.contains(BANDWIDTH_READ.id.as_str()));
            assert!(
                direct_request(facts, 4096, IoDirection::Write)
                    .unwrap_err()
                    .0
                    .contains(DEVICE_ACCEPT_LATENCY.id.as_str())
            );
        });
    }
}
