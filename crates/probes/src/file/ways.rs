//! The expected cost of a request of each way of reading a cached file, from calls, copies, faults and the ring's own work.

use std::ops::Add;

use kelvin_catalogue::file::{BLOCK, BYTE_CALLS, ReadEngine};
use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_COPY, BANDWIDTH_READ, FAULT_MINOR, LATENCY};
use kelvin_file::Engine;
use kelvin_harness::Facts;
use kelvin_model::{Basis, Case, Input, Metric, NoPrediction, Prediction, Unit};

use super::byte_calls;
use super::cases::{engine, predictable};
use super::data::SHARED_BYTES;
use crate::memory::{bandwidth, fault, latency};
use crate::os::syscall_null;
use crate::os::syscall_work::NANOSECONDS_AN_INSTRUCTION;
use crate::predict::Predicting;

pub(super) const AXBOE: &str =
    "Axboe: Efficient IO with io_uring, 2019: 12 to 20 million empty requests a second on one core";

/// Of what the lower figures are.
pub(super) const INPUTS: &[&str] =
    &[BYTE_CALLS.id.as_str(), syscall_null::ID, BANDWIDTH.as_str(), LATENCY.id.as_str(), FAULT_MINOR.id.as_str()];

/// Nanoseconds of an empty request: least and most of what is published.
const NO_OPERATION: [f64; 2] = [1e9 / 20e6, 1e9 / 12e6];
/// Bytes that mappings are populated at a time.
const AHEAD: f64 = (2u64 << 20) as f64;
/// Bytes of a page, of the buffer of Rust's `BufReader`, and of that of the C library's streams: st_blksize for glibc,
/// BUFSIZ for musl.
const PAGE: u64 = 4096;
const RUST_BUFFER: u64 = 8 << 10;
const STDIO_BUFFER: u64 = if cfg!(target_env = "musl") { 1 << 10 } else { 4 << 10 };
/// Instructions of making a request and reaping its completion; and of a library's call that is answered from its buffer.
/// Counted in the source to within the factor.
const LOOP_INSTRUCTIONS: f64 = 30.0;
const RUST_INSTRUCTIONS: f64 = 20.0;
const STDIO_INSTRUCTIONS: f64 = 90.0;
const COUNTED_WITHIN: f64 = 3.0;
const COUNTED: &str = "instructions counted in the source, at two per cycle and 3 GHz";
/// Factor either way by which the sum may be off: each part was measured apart.
const SPREAD: f64 = 1.3;

/// Nanoseconds of a part of a request: the expected value, and the bounds of the predicted range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    least: f64,
    value: f64,
    most: f64,
}

impl Part {
    const fn exactly(value: f64) -> Self {
        Self { least: value, value, most: value }
    }

    /// Between two bounds, expected at their geometric middle.
    fn between(least: f64, most: f64) -> Self {
        Self { least, value: (least * most).sqrt(), most }
    }

    fn within_factor(value: f64, factor: f64) -> Self {
        Self { least: value / factor, value, most: value * factor }
    }

    fn times(self, factor: f64) -> Self {
        Self { least: self.least * factor, value: self.value * factor, most: self.most * factor }
    }
}

impl Add for Part {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { least: self.least + other.least, value: self.value + other.value, most: self.most + other.most }
    }
}

/// The lower figures of which requests are composed.
struct Costs {
    /// A one-byte read.
    call: Input,
    /// A null call.
    null: Input,
    /// Bytes read per second, and bytes copied, both those read and those written.
    read: Input,
    copy: Input,
    /// A load from memory.
    latency: Input,
}

impl Costs {
    fn of(facts: &Facts<'_>) -> Result<Self, NoPrediction> {
        let place = bandwidth::lying_where(facts.machine(), SHARED_BYTES);
        Ok(Self {
            call: facts.measured(&BYTE_CALLS, &byte_calls::next_byte())?,
            null: facts.measured(&syscall_null::METRIC, &syscall_null::getppid())?,
            read: facts.measured(&BANDWIDTH_READ, &place)?,
            copy: facts.measured(&BANDWIDTH_COPY, &place)?,
            latency: latency::of_memory(facts)?,
        })
    }

    /// Copying: the bytes come from memory and go to a buffer in a cache, unless it is too large for that.
    fn copying(&self, bytes: f64) -> Part {
        let (read, copied) = (bytes * 1e9 / self.read.value, 2.0 * bytes * 1e9 / self.copy.value);
        Part::between(read.min(copied), read.max(copied))
    }

    /// The file's part of a call: the cost of a one-byte read beyond the null call.
    fn file(&self) -> f64 {
        (self.call.value - self.null.value).max(0.0)
    }

    /// The pages of a request beyond the first: the kernel copies page by page, and the copy of one ends before that of the next begins,
    /// so each waits for memory once. At least nothing, where they are copied as one folio; at most as much as finding the first costs too.
    fn further_pages(&self, bytes: u64) -> Part {
        let (pages, latency) = ((bytes.div_ceil(PAGE) - 1) as f64, self.latency.value);
        Part { least: 0.0, value: pages * latency, most: pages * (latency + self.file()) }
    }

    /// A call that reads so many bytes.
    fn calling(&self, bytes: u64) -> Part {
        Part::exactly(self.call.value) + self.further_pages(bytes) + self.copying(bytes as f64)
    }
}

/// Instructions counted in the source.
fn counted(instructions: f64) -> Part {
    Part::within_factor(instructions * NANOSECONDS_AN_INSTRUCTION, COUNTED_WITHIN)
}

/// A request through a library's buffer.
struct Library {
    buffer: u64,
    instructions: f64,
    /// Whether a request that is larger than the buffer and no multiple of it takes a second call.
    rests: bool,
}

const STDIO: Library = Library { buffer: STDIO_BUFFER, instructions: STDIO_INSTRUCTIONS, rests: true };
const RUST: Library = Library { buffer: RUST_BUFFER, instructions: RUST_INSTRUCTIONS, rests: false };

impl Library {
    /// The parts of a request, and name and text of their formula.
    fn request(&self, costs: &Costs, bytes: u64) -> (Part, [&'static str; 2]) {
        let own = counted(self.instructions);
        if bytes < self.buffer {
            let shared = costs.calling(self.buffer).times(bytes as f64 / self.buffer as f64);
            return (
                shared + own,
                ["shared buffer", "a call for a buffer, shared by its requests, + the library's instructions"],
            );
        }
        let rest = self.rests && !bytes.is_multiple_of(self.buffer);
        let second = if rest { Part { least: 0.0, ..Part::exactly(costs.call.value) } } else { Part::default() };
        (
            costs.calling(bytes) + second + own,
            ["past the buffer", "a call (two if no multiple of the buffer) + copy + the library's instructions"],
        )
    }
}

/// Nanoseconds of a fault that maps the pages around: from one that maps a single page, where the pages around are of one folio
/// and mapped in one go, to one that maps each of them for itself, or as many of the former where a quick run has not measured
/// that.
fn fault_around(facts: &Facts<'_>) -> Result<(Part, Vec<Input>), NoPrediction> {
    let one = facts.measured(&FAULT_MINOR, &fault::cached_file())?;
    Ok(match facts.measured(&FAULT_MINOR, &fault::cached_file_around()) {
        Ok(around) => (Part::between(one.value.min(around.value), one.value.max(around.value)), vec![one, around]),
        Err(_) => (Part::between(one.value, one.value * fault::PAGES_AROUND), vec![one]),
    })
}

/// The prediction of a request.
pub(super) fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let engine = engine(predictable(ReadEngine::of(case), case)?);
    let bytes = predictable(BLOCK.of(case).filter(|&bytes| bytes > 0), case)?;
    let costs = Costs::of(facts)?;
    let mut inputs = [&costs.call, &costs.null, &costs.read, &costs.copy, &costs.latency].map(Clone::clone).to_vec();
    let mut sources = vec![COUNTED];
    let (part, [name, formula]) = match engine {
        Engine::Read | Engine::Pread | Engine::Readv => {
            (costs.calling(bytes), ["call", "file.byte_calls + further pages + bytes / copy rate"])
        }
        Engine::Stdio => STDIO.request(&costs, bytes),
        Engine::BufReader => RUST.request(&costs, bytes),
        Engine::Mmap | Engine::MmapPopulate | Engine::MmapInPlace => {
            let (fault, found) = fault_around(facts)?;
            inputs.extend(found);
            sources.push(fault::AROUND);
            let faults = fault.times(bytes as f64 / (fault::PAGES_AROUND * PAGE as f64));
            let copying = costs.copying(bytes as f64);
            if engine == Engine::Mmap {
                (faults + copying, ["faults", "a fault for each 16 pages + bytes / copy rate"])
            } else {
                // At most the work of the faults; at least next to nothing, where large folios are mapped at once.
                let ahead = Part { least: 0.0, ..faults };
                let calls = Part::exactly(costs.null.value * bytes as f64 / AHEAD);
                let text = "a null call for each 2 MiB + mapping each 16 pages + bytes / copy rate";
                (ahead + calls + copying, ["mapped ahead", text])
            }
        }
        Engine::Uring { depth, .. } => {
            sources.push(AXBOE);
            let entering = Part::exactly(costs.null.value / f64::from(depth));
            let ring = Part::between(NO_OPERATION[0], NO_OPERATION[1]);
            let reading = Part::exactly(costs.file()) + costs.further_pages(bytes) + costs.copying(bytes as f64);
            let text = "null call / depth + an empty request + the file's part of a call + copy";
            (entering + ring + reading, ["ring", text])
        }
    };
    let whole = part + counted(LOOP_INSTRUCTIONS);
    let mut predicting = Predicting::between(Basis::Derived, whole.value, whole.least / SPREAD, whole.most * SPREAD)
        .formula(name, formula);
    for input in inputs {
        predicting = predicting.input(input);
    }
    for source in sources {
        predicting = predicting.source(source);
    }
    let copying = costs.copying(bytes as f64).value;
    Ok(predicting.constant("instructions of the loop", LOOP_INSTRUCTIONS, Unit::Count, COUNTED).derived_as(format!(
        "copying {bytes} B takes {copying:.1} ns, all else {:.1} ns: {:.1} ns; from {:.1} to {:.1} ns by the bounds of \
             the parts, and a factor of {SPREAD}",
        whole.value - copying,
        whole.value,
        whole.least,
        whole.most
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;
    use kelvin_catalogue::file::ENGINES;

    fn of(way: ReadEngine, bytes: u64) -> Case {
        Case::new().at(way).with(BLOCK, bytes)
    }

    /// Predictions where a null call takes 60 ns, a one-byte read 130 ns, memory is read at 20 GB/s and copied at 20 GB/s of
    /// bytes read and written, and a fault around 4 us.
    fn predicted(way: ReadEngine, bytes: u64) -> Prediction {
        let known = [
            (syscall_null::ID, Some(60.0)),
            (BYTE_CALLS.id.as_str(), Some(130.0)),
            (BANDWIDTH_READ.id.as_str(), Some(20e9)),
            (BANDWIDTH_COPY.id.as_str(), Some(20e9)),
            (FAULT_MINOR.id.as_str(), Some(4000.0)),
            (LATENCY.id.as_str(), Some(35.0)),
        ];
        facts_about(&known, |facts| predict(facts, &ENGINES, &of(way, bytes)).unwrap())
    }

    /// A byte is copied in between 0.05 and 0.1 ns.
    const BYTE: f64 = 0.070_710_678;
    const LOOP: f64 = 5.0;

    fn is(prediction: &Prediction, expected: f64) {
        assert!((prediction.value / expected - 1.0).abs() < 1e-6, "{} is not {expected}", prediction.value);
        assert!(prediction.low < prediction.value && prediction.value < prediction.high);
    }

    #[test]
    fn a_call_is_paid_for_each_request() {
        for way in [ReadEngine::Read, ReadEngine::Pread, ReadEngine::Readv] {
            is(&predicted(way, 1), 130.0 + BYTE + LOOP);
            // Of three pages two are further ones, each of which waits for memory.
            is(&predicted(way, 10_000), 130.0 + 70.0 + 10_000.0 * BYTE + LOOP);
        }
    }

    #[test]
    fn a_buffers_call_is_shared_by_its_requests() {
        // 20 instructions are 3.33 ns; a buffer is two pages.
        let buffer = 130.0 + 35.0 + 8192.0 * BYTE;
        is(&predicted(ReadEngine::BufReader, 1), buffer / 8192.0 + 10.0 / 3.0 + LOOP);
        is(&predicted(ReadEngine::BufReader, 1000), buffer * 1000.0 / 8192.0 + 10.0 / 3.0 + LOOP);
        is(&predicted(ReadEngine::BufReader, 10_000), 130.0 + 70.0 + 10_000.0 * BYTE + 10.0 / 3.0 + LOOP);
        if STDIO_BUFFER == 4096 {
            is(&predicted(ReadEngine::Fread, 1), (130.0 + 4096.0 * BYTE) / 4096.0 + 15.0 + LOOP);
            is(&predicted(ReadEngine::Fread, 10_000), 260.0 + 70.0 + 10_000.0 * BYTE + 15.0 + LOOP);
            is(&predicted(ReadEngine::Fread, 4096), 130.0 + 4096.0 * BYTE + 15.0 + LOOP);
        }
    }

    #[test]
    fn faults_are_spread_over_the_pages_that_they_map() {
        is(&predicted(ReadEngine::Mmap, 64 << 10), 4000.0 + 65_536.0 * BYTE + LOOP);
        is(&predicted(ReadEngine::Mmap, 1), 4000.0 / 65_536.0 + BYTE + LOOP);
        is(&predicted(ReadEngine::MmapPopulate, 2 << 20), 32.0 * 4000.0 + 60.0 + 2_097_152.0 * BYTE + LOOP);
    }

    #[test]
    fn a_rings_call_is_shared_by_what_is_under_way() {
        let ring = (50.0f64 * 1e9 / 12e6).sqrt();
        is(&predicted(ReadEngine::Uring1, 1), 60.0 + ring + 70.0 + BYTE + LOOP);
        is(&predicted(ReadEngine::UringFixed64, 1), 60.0 / 64.0 + ring + 70.0 + BYTE + LOOP);
    }

    #[test]
    fn without_its_lower_figures_there_is_a_reason() {
        let none =
            facts_about(&[(syscall_null::ID, Some(60.0))], |facts| predict(facts, &ENGINES, &of(ReadEngine::Read, 1)));
        assert!(none.unwrap_err().0.contains(BYTE_CALLS.id.as_str()));
    }
}
