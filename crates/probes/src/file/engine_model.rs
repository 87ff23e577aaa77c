//! The expected cost of a request of each way of reading a cached file, from calls, copies, faults and the ring's own work.

use kelvin_core::catalogue::file::{BYTE_CALLS, ReadEngine};
use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ, FAULT_MINOR};

use super::byte_calls;
use super::cases::read_engine;
use super::prelude::*;
use crate::memory::fault;
use crate::os::syscall_null;
use crate::os::syscall_work::NANOSECONDS_PER_INSTRUCTION;

pub(super) const AXBOE_SOURCE: &str =
    "Axboe: Efficient IO with io_uring, 2019: 12 to 20 million empty requests a second on one core";

/// Nanoseconds of an empty request: least and most of what is published.
const NOP_NANOSECONDS: [(&str, f64); 2] =
    [("an empty request, least", 1e9 / 20e6), ("an empty request, most", 1e9 / 12e6)];
/// Bytes that mappings are populated at a time.
const POPULATE_BYTES: f64 = (2u64 << 20) as f64;
/// Bytes of a page, of the buffer of Rust's `BufReader`, and of that of the C library's streams: st_blksize for glibc,
/// BUFSIZ for musl.
const PAGE_BYTES: u64 = 4096;
const RUST_BUFFER: u64 = 8 << 10;
const STDIO_BUFFER: u64 = if cfg!(target_env = "musl") { 1 << 10 } else { 4 << 10 };
/// Instructions of making a request and reaping its completion; and of a library's call that is answered from its buffer.
/// Counted in the source to within the factor.
const LOOP_INSTRUCTIONS: f64 = 30.0;
const RUST_INSTRUCTIONS: f64 = 20.0;
const STDIO_INSTRUCTIONS: f64 = 90.0;
const COUNTED_RANGE_FACTOR: f64 = 3.0;
const COUNTED_SOURCE: &str = "instructions counted in the source, at two per cycle and 3 GHz";
/// Factor either way by which the sum may be off.
const SPREAD: f64 = 1.3;

/// The lower figures of which requests are composed.
struct RequestCosts {
    /// A one-byte read.
    call: Expr,
    /// A null call.
    null: Expr,
    /// Bytes read per second, and bytes copied, both those read and those written.
    read: Expr,
    copy: Expr,
    /// A load from memory.
    latency: Expr,
}

impl RequestCosts {
    fn measured(facts: &PredictionInputs<'_>) -> Predicted<Self> {
        let set_case = bandwidth::case_for_set(facts.machine(), SHARED_BYTES);
        Ok(Self {
            call: measured(facts, &BYTE_CALLS, &byte_calls::next_byte_case())?,
            null: syscall_null::kernel_entry(facts)?,
            read: measured(facts, &BANDWIDTH_READ, &set_case)?,
            copy: measured(facts, &BANDWIDTH_COPY, &set_case)?,
            latency: latency::memory_latency(facts)?,
        })
    }

    /// Copying: the bytes come from memory and go to a buffer in a cache, unless it is too large for that.
    fn copy_time(&self, bytes: u64) -> Expr {
        let byte_count = || bytes_of("bytes", bytes);
        (byte_count() / self.read.clone()).spanning(2.0 * byte_count() / self.copy.clone())
    }

    /// The file's part of a call: the cost of a one-byte read beyond the null call.
    fn file_time(&self) -> Expr {
        (self.call.clone() - self.null.clone()).at_least_zero()
    }

    /// The pages of a request beyond the first: the kernel copies page by page, and the copy of one ends before that of the next begins,
    /// so each waits for memory once. At least nothing, where they are copied as one folio; at most as much as finding the first costs too.
    fn extra_page_time(&self, bytes: u64) -> Expr {
        let pages = count_of("further pages", bytes.div_ceil(PAGE_BYTES) - 1);
        let upper = pages.clone() * (self.latency.clone() + self.file_time());
        (pages * self.latency.clone()).with_bounds(&nothing(), &upper)
    }

    /// A call that reads this many bytes.
    fn call_time(&self, bytes: u64) -> Expr {
        self.call.clone() + self.extra_page_time(bytes) + self.copy_time(bytes)
    }
}

/// The least that a part may take.
fn nothing() -> Expr {
    quantity("nothing", 0.0, Unit::Nanoseconds)
}

/// Instructions counted in the source.
fn counted_time(name: &str, instructions: f64) -> Expr {
    let time = quantity("time of an instruction", NANOSECONDS_PER_INSTRUCTION, Unit::Nanoseconds);
    (published(name, instructions, Unit::Count, COUNTED_SOURCE) * time).widen(COUNTED_RANGE_FACTOR)
}

/// A request through a library's buffer.
struct BufferedLibrary {
    buffer: u64,
    instructions: f64,
    /// Whether a request that is larger than the buffer and no multiple of it takes a second call.
    keeps_remainder: bool,
}

const STDIO_LIBRARY: BufferedLibrary =
    BufferedLibrary { buffer: STDIO_BUFFER, instructions: STDIO_INSTRUCTIONS, keeps_remainder: true };
const RUST_LIBRARY: BufferedLibrary =
    BufferedLibrary { buffer: RUST_BUFFER, instructions: RUST_INSTRUCTIONS, keeps_remainder: false };

impl BufferedLibrary {
    fn request_time(&self, costs: &RequestCosts, bytes: u64) -> Expr {
        let library_time = counted_time("instructions of the library", self.instructions);
        if bytes < self.buffer {
            let share = quantity("share of a buffer", bytes as f64 / self.buffer as f64, Unit::Ratio);
            return share.variant("shared buffer") * costs.call_time(self.buffer) + library_time;
        }
        let mut calls = costs.call_time(bytes);
        if self.keeps_remainder && !bytes.is_multiple_of(self.buffer) {
            calls = calls + costs.call.clone().of_value([0.0, 1.0]);
        }
        (calls + library_time).variant("past the buffer")
    }
}

/// The prediction of a request.
pub(super) fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    request_time(facts, case).map(predict_within)
}

/// A prediction from the time of requests: each part was measured apart.
pub(super) fn predict_within(time: Expr) -> Prediction {
    time.widen(SPREAD).derived("request")
}

/// The time of a request. Its variant names its parts.
pub(super) fn request_time(facts: &PredictionInputs<'_>, case: &Case) -> Predicted<Expr> {
    let engine = read_engine(required(ReadEngine::of(case), case)?);
    let bytes = required(BLOCK.number_in(case).filter(|&bytes| bytes > 0), case)?;
    let costs = RequestCosts::measured(facts)?;
    let request = match engine {
        Engine::Read | Engine::Pread | Engine::Readv => costs.call_time(bytes).variant("call"),
        Engine::Stdio => STDIO_LIBRARY.request_time(&costs, bytes),
        Engine::BufReader => RUST_LIBRARY.request_time(&costs, bytes),
        Engine::Mmap | Engine::MmapPopulate | Engine::MmapInPlace => {
            let windows = bytes as f64 / (fault::FAULT_AROUND_PAGES * PAGE_BYTES as f64);
            // A fault that maps the pages around. At least one that maps a single page, where the pages around are of
            // one folio and mapped in one go. At most one that maps each page for itself, or as many of the former
            // where a quick run has not measured that.
            let single = measured(facts, &FAULT_MINOR, &fault::cached_file_case())?.source(fault::FAULT_AROUND_SOURCE);
            let fault_around = measured(facts, &FAULT_MINOR, &fault::fault_around_case());
            let fault_around = fault_around.unwrap_or_else(|_| fault::FAULT_AROUND_PAGES * single.clone());
            let faults = quantity("windows of 16 pages", windows, Unit::Ratio) * single.spanning(fault_around);
            if engine == Engine::Mmap {
                faults.variant("faults") + costs.copy_time(bytes)
            } else {
                // At most the work of the faults; at least next to nothing, where large folios are mapped at once.
                let populate_faults = faults.clone().with_bounds(&nothing(), &faults).variant("mapped ahead");
                let calls =
                    quantity("windows of 2 MiB", bytes as f64 / POPULATE_BYTES, Unit::Ratio) * costs.null.clone();
                populate_faults + calls + costs.copy_time(bytes)
            }
        }
        Engine::Uring { depth, .. } => {
            let entry_time = costs.null.clone() / quantity("depth", f64::from(depth), Unit::Count).variant("ring");
            let [lower, upper] =
                NOP_NANOSECONDS.map(|(name, time)| published(name, time, Unit::Nanoseconds, AXBOE_SOURCE));
            let read_time = costs.file_time() + costs.extra_page_time(bytes) + costs.copy_time(bytes);
            entry_time + lower.spanning(upper) + read_time
        }
    };
    Ok(request + counted_time("instructions of the loop", LOOP_INSTRUCTIONS))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SYSCALL_NULL;

    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::file::ENGINES;
    use kelvin_core::catalogue::mem::LATENCY;

    fn engine_case(engine: ReadEngine, bytes: u64) -> Case {
        Case::new().with_word(engine).with_number(BLOCK, bytes)
    }

    /// Predictions where a null call takes 60 ns, a one-byte read 130 ns and a fault around 4 us. Memory is read at 20
    /// GB/s and copied at 20 GB/s of bytes read and written.
    fn predicted(engine: ReadEngine, bytes: u64) -> Prediction {
        let values = [
            (SYSCALL_NULL.id.as_str(), Some(60.0)),
            (BYTE_CALLS.id.as_str(), Some(130.0)),
            (BANDWIDTH_READ.id.as_str(), Some(20e9)),
            (BANDWIDTH_COPY.id.as_str(), Some(20e9)),
            (FAULT_MINOR.id.as_str(), Some(4000.0)),
            (LATENCY.id.as_str(), Some(35.0)),
        ];
        with_facts(&values, |facts| predict(facts, &ENGINES, &engine_case(engine, bytes)).unwrap())
    }

    /// A byte is copied in between 0.05 and 0.1 ns.
    const BYTE: f64 = 0.070_710_678;
    const LOOP: f64 = 5.0;

    fn assert_prediction(prediction: &Prediction, expected: f64) {
        assert!((prediction.value / expected - 1.0).abs() < 1e-6, "{} is not {expected}", prediction.value);
        assert!(prediction.low < prediction.value && prediction.value < prediction.high);
    }

    #[test]
    fn call_cost_is_per_request() {
        for engine in [ReadEngine::Read, ReadEngine::Pread, ReadEngine::Readv] {
            assert_prediction(&predicted(engine, 1), 130.0 + BYTE + LOOP);
            // Of three pages two are further ones, each of which waits for memory.
            assert_prediction(&predicted(engine, 10_000), 130.0 + 70.0 + 10_000.0 * BYTE + LOOP);
        }
    }

    #[test]
    fn buffer_call_is_shared_by_requests() {
        // 20 instructions are 3.33 ns; a buffer is two pages.
        let buffer = 130.0 + 35.0 + 8192.0 * BYTE;
        assert_prediction(&predicted(ReadEngine::BufReader, 1), buffer / 8192.0 + 10.0 / 3.0 + LOOP);
        assert_prediction(&predicted(ReadEngine::BufReader, 1000), buffer * 1000.0 / 8192.0 + 10.0 / 3.0 + LOOP);
        assert_prediction(
            &predicted(ReadEngine::BufReader, 10_000),
            130.0 + 70.0 + 10_000.0 * BYTE + 10.0 / 3.0 + LOOP,
        );
        if STDIO_BUFFER == 4096 {
            assert_prediction(&predicted(ReadEngine::Fread, 1), (130.0 + 4096.0 * BYTE) / 4096.0 + 15.0 + LOOP);
            assert_prediction(&predicted(ReadEngine::Fread, 10_000), 260.0 + 70.0 + 10_000.0 * BYTE + 15.0 + LOOP);
            assert_prediction(&predicted(ReadEngine::Fread, 4096), 130.0 + 4096.0 * BYTE + 15.0 + LOOP);
        }
    }

    #[test]
    fn fault_cost_is_shared_by_mapped_pages() {
        assert_prediction(&predicted(ReadEngine::Mmap, 64 << 10), 4000.0 + 65_536.0 * BYTE + LOOP);
        assert_prediction(&predicted(ReadEngine::Mmap, 1), 4000.0 / 65_536.0 + BYTE + LOOP);
        assert_prediction(
            &predicted(ReadEngine::MmapPopulate, 2 << 20),
            32.0 * 4000.0 + 60.0 + 2_097_152.0 * BYTE + LOOP,
        );
    }

    #[test]
    fn uring_call_is_shared_by_queue() {
        let ring = (50.0f64 * 1e9 / 12e6).sqrt();
        assert_prediction(&predicted(ReadEngine::Uring1, 1), 60.0 + ring + 70.0 + BYTE + LOOP);
        assert_prediction(&predicted(ReadEngine::UringFixed64, 1), 60.0 / 64.0 + ring + 70.0 + BYTE + LOOP);
    }

    #[test]
    fn missing_input_has_reason() {
        let result = with_facts(&[(SYSCALL_NULL.id.as_str(), Some(60.0))], |facts| {
            predict(facts, &ENGINES, &engine_case(ReadEngine::Read, 1))
        });
        assert!(result.unwrap_err().0.contains(BYTE_CALLS.id.as_str()));
    }
}
