//! The expected time to move a block between a file and a buffer: the parts of many file predictions.

use kelvin_core::catalogue::file::{
    AccessOrder, CacheState, DEVICE_ACCEPT_LATENCY, DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REQUESTS, DEVICE_WRITE,
    PAGE_READ, PAGE_WRITE,
};
use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ, BANDWIDTH_WRITE};
use kelvin_core::units::{self, bytes};
use kelvin_core::{Case, Input, Metric, NoPrediction, Prediction, PredictionBasis, Unit};
use kelvin_harness::PredictionInputs;

use super::cases::{page_read_case, page_write_case};
use super::test_files::KIB;
use crate::memory::{bandwidth, latency, memory_budget};
use crate::prediction_builder::PredictionBuilder;

/// The direction in which a block moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockDirection {
    Read,
    Write,
}

/// A time with its derivation.
#[derive(Clone, Debug)]
pub(super) struct DerivedTime {
    pub nanoseconds: f64,
    /// What tells its formula from others; of a composed one its parts.
    pub name: String,
    /// The formula, in words.
    pub formula: String,
    /// The formula with the figures put in, up to the equals sign.
    pub derivation: String,
    pub inputs: Vec<Input>,
}

/// The time of one call that reads a block from the page cache: a call that finds a page there, and a copy.
///
/// The source of the copy is in memory, as files are larger than caches. The buffer is reused by each call: if it fits half of
/// the L2 cache it stays there, and is written as fast as memory is read; a larger one is in memory too, and the bytes cross it
/// twice. The kernel copies page by page, and the copy of one ends before that of the next begins: each page beyond the first, whose
/// miss is in the call, waits for memory once. Finding further pages is not counted: they lie in folios where the file system has them.
pub(super) fn cached_read(facts: &PredictionInputs<'_>, block: u64) -> Result<DerivedTime, NoPrediction> {
    let call = facts.measured(&PAGE_READ, &page_read_case(CacheState::Cached, AccessOrder::Sequential))?;
    let copied = block_copy(facts, block, BlockDirection::Read)?;
    Ok(DerivedTime {
        nanoseconds: call.value + copied.nanoseconds,
        name: format!("call and {}", copied.name()),
        formula: format!("{} + {}", call.name, copied.formula("block")),
        derivation: format!(
            "{} call with a page found + {} / {} copy",
            format_time(call.value),
            bytes(block),
            format_rate(copied.rate)
        ),
        inputs: merge_inputs(vec![call], copied.inputs),
    })
}

/// The time of one call that writes a block over pages that are in the page cache and dirty: the file system's work for a call
/// with one page, and for each further page, as measured with next to nothing copied, and the copy.
pub(super) fn cached_overwrite(facts: &PredictionInputs<'_>, block: u64) -> Result<DerivedTime, NoPrediction> {
    let page = memory_budget::page_bytes(facts.machine());
    let one = facts.measured(&PAGE_WRITE, &page_write_case(1, AccessOrder::Sequential))?;
    let two = facts.measured(&PAGE_WRITE, &page_write_case(2, AccessOrder::Sequential))?;
    let copied = block_copy(facts, block, BlockDirection::Write)?;
    // Two figures of one thing may come out the wrong way round by their noise.
    let (more, each) = (block.div_ceil(page) - 1, (two.value - one.value).max(0.0));
    Ok(DerivedTime {
        nanoseconds: one.value + more as f64 * each + copied.nanoseconds,
        name: format!("written pages and {}", copied.name()),
        formula: format!("{} + (pages - 1) x ({} less that) + {}", one.name, two.name, copied.formula("block")),
        derivation: format!(
            "{} call with one page + {more} x {} page more + {} / {} copy",
            format_time(one.value),
            format_time(each),
            bytes(block),
            format_rate(copied.rate)
        ),
        inputs: merge_inputs(vec![one, two], copied.inputs),
    })
}

/// A copy between the page cache and a buffer.
pub(super) struct CopyCost {
    /// A bandwidth, and where pages wait for memory its latency.
    pub inputs: Vec<Input>,
    /// Bytes a second, all in all.
    pub rate: f64,
    pub nanoseconds: f64,
    /// The reason for that bandwidth, in words.
    formula_name: &'static str,
}

impl CopyCost {
    /// The name of the formula: whether the buffer stays in a cache, and whether pages wait for memory.
    pub(super) fn name(&self) -> String {
        let further = if self.inputs.len() > 1 { " of several pages" } else { "" };
        format!("copy{further}, {}", self.formula_name)
    }

    /// The formula, for so many bytes named in a word.
    pub(super) fn formula(&self, size: &str) -> String {
        match self.inputs.as_slice() {
            [bandwidth, latency] => {
                format!("{size} / {} ({}) + further pages x {}", bandwidth.name, self.formula_name, latency.name)
            }
            inputs => format!("{size} / {} ({})", inputs[0].name, self.formula_name),
        }
    }
}

/// The copy of a block between the page cache, which is in memory, and a buffer.
pub(super) fn block_copy(
    facts: &PredictionInputs<'_>,
    block: u64,
    transfer: BlockDirection,
) -> Result<CopyCost, NoPrediction> {
    let memory = bandwidth::memory_case(facts.machine());
    let second = memory_budget::second_level_bytes(facts.machine());
    let (copy, rate, of) = match (second.is_some_and(|bytes| block <= bytes / 2), transfer) {
        (true, BlockDirection::Read) => cached_bandwidth(facts.measured(&BANDWIDTH_READ, &memory)?),
        (true, BlockDirection::Write) => cached_bandwidth(facts.measured(&BANDWIDTH_WRITE, &memory)?),
        (false, _) => {
            let copy = facts.measured(&BANDWIDTH_COPY, &memory)?;
            (copy.clone(), copy.value / 2.0, "half of it, for it counts bytes read and bytes written")
        }
    };
    let page = memory_budget::page_bytes(facts.machine());
    let mut nanoseconds = nanoseconds_of(block, rate);
    let mut inputs = vec![copy];
    if transfer == BlockDirection::Read && block > page {
        let latency = latency::memory_latency(facts)?;
        nanoseconds += (block.div_ceil(page) - 1) as f64 * latency.value;
        inputs.push(latency);
    }
    Ok(CopyCost { inputs, rate: block as f64 * 1e9 / nanoseconds, nanoseconds, formula_name: of })
}

/// A bandwidth taken as it is: the buffer is in a cache.
fn cached_bandwidth(measured: Input) -> (Input, f64, &'static str) {
    let rate = measured.value;
    (measured, rate, "the buffer stays in the L2 cache")
}

/// The time of one request past the page cache at queue depth 1: the device's latency for the first 4 KiB, and the rest at its
/// rate.
pub(super) fn direct_request(
    facts: &PredictionInputs<'_>,
    block: u64,
    transfer: BlockDirection,
) -> Result<DerivedTime, NoPrediction> {
    let (latency, rate) = device_metrics(transfer);
    let (latency, rate) = (measured_without_case(facts, latency)?, measured_without_case(facts, rate)?);
    let rest = block.saturating_sub(LATENCY_BYTES);
    let nanoseconds = latency.value + nanoseconds_of(rest, rate.value);
    Ok(DerivedTime {
        nanoseconds,
        name: "request".into(),
        formula: format!("{} + (block - 4 KiB) / {}", latency.name, rate.name),
        derivation: format!(
            "{} latency + {} / {} device",
            format_time(latency.value),
            bytes(rest),
            format_rate(rate.value)
        ),
        inputs: vec![latency, rate],
    })
}

/// The time of a block at the device's rate, with much in flight.
pub(super) fn streamed_block(
    facts: &PredictionInputs<'_>,
    block: u64,
    transfer: BlockDirection,
) -> Result<DerivedTime, NoPrediction> {
    let rate = measured_without_case(facts, device_metrics(transfer).1)?;
    Ok(DerivedTime {
        nanoseconds: nanoseconds_of(block, rate.value),
        name: "block at the rate of the device".into(),
        formula: format!("block / {}", rate.name),
        derivation: format!("{} / {} device", bytes(block), format_rate(rate.value)),
        inputs: vec![rate],
    })
}

/// The time of one read of a block where the device has enough of them in flight: of 4 KiB the number of requests counts, of
/// more the bytes.
pub(super) fn queued_read(facts: &PredictionInputs<'_>, block: u64) -> Result<DerivedTime, NoPrediction> {
    if block > LATENCY_BYTES {
        return streamed_block(facts, block, BlockDirection::Read);
    }
    let rate = facts.measured(&DEVICE_REQUESTS, &Case::new())?;
    Ok(DerivedTime {
        nanoseconds: 1e9 / rate.value,
        name: "one of many requests".into(),
        formula: format!("1 / {}", rate.name),
        derivation: format!("1 / {}", units::value_text(rate.value, Unit::PerSecond)),
        inputs: vec![rate],
    })
}

/// Two overlapping parts: the longer one counts.
pub(super) fn longer_of(one: DerivedTime, other: DerivedTime) -> DerivedTime {
    let (first, second) = (format_time(one.nanoseconds), format_time(other.nanoseconds));
    DerivedTime {
        nanoseconds: one.nanoseconds.max(other.nanoseconds),
        name: format!("({}) beside ({})", one.name, other.name),
        formula: format!("the longer of {} and {}", one.formula, other.formula),
        derivation: format!("the longer of {first} for {}, {second} for {}", one.derivation, other.derivation),
        inputs: merge_inputs(one.inputs, other.inputs),
    }
}

/// One part after another.
pub(super) fn sum_of(first: DerivedTime, second: DerivedTime) -> DerivedTime {
    DerivedTime {
        nanoseconds: first.nanoseconds + second.nanoseconds,
        name: format!("{}, then {}", first.name, second.name),
        formula: format!("{} + {}", first.formula, second.formula),
        derivation: format!("{} + {}", first.derivation, second.derivation),
        inputs: merge_inputs(first.inputs, second.inputs),
    }
}

/// The same part so many times, one after another.
pub(super) fn repeated(count: u64, once: DerivedTime) -> DerivedTime {
    DerivedTime {
        nanoseconds: count as f64 * once.nanoseconds,
        name: format!("several x ({})", once.name),
        formula: format!("{count} x ({})", once.formula),
        derivation: format!("{count} x ({})", once.derivation),
        ..once
    }
}

/// All inputs, each once.
fn merge_inputs(first: Vec<Input>, second: Vec<Input>) -> Vec<Input> {
    let mut all = first;
    for input in second {
        if all.iter().all(|known| known.name != input.name) {
            all.push(input);
        }
    }
    all
}

/// The predicted range as a factor either way: a file system's other work is in no formula.
pub(super) const RANGE_FACTOR: f64 = 2.0;

/// The same for a figure made only of requests to a device, as is the one it is predicted from: drives, and those who share
/// them, vary that much.
pub(super) const DEVICE_RANGE_FACTOR: f64 = 1.5;

impl DerivedTime {
    /// A time that was measured, followed by what it is here, and a name for it.
    pub(super) fn measured(name: &str, input: Input, what: &str) -> Self {
        Self {
            nanoseconds: input.value,
            name: name.into(),
            formula: input.name.clone(),
            derivation: format!("{}{what}", format_time(input.value)),
            inputs: vec![input],
        }
    }

    /// The prediction of the time itself.
    pub(super) fn into_time(self) -> Prediction {
        self.into_time_within(RANGE_FACTOR)
    }

    /// The same with another factor either way.
    pub(super) fn into_time_within(self, factor: f64) -> Prediction {
        let derivation = format!("{} = {}", self.derivation, format_time(self.nanoseconds));
        self.builder(factor, |nanoseconds| nanoseconds, |formula| formula).build_with(derivation)
    }

    /// The time of each of so many things, from the time of all.
    pub(super) fn shared_by(self, count: u64, things: &str) -> Self {
        Self {
            nanoseconds: self.nanoseconds / count as f64,
            name: format!("({}) shared by {things}", self.name),
            formula: format!("({}) / {things}", self.formula),
            derivation: format!("({}) / {count} {things}", self.derivation),
            ..self
        }
    }

    /// The prediction of the rate of blocks of so many bytes, each of which takes this time.
    pub(super) fn into_rate(self, block: u64) -> Prediction {
        self.into_rate_of(block, "block")
    }

    /// The same for so many bytes of anything, named in a word.
    pub(super) fn into_rate_of(self, size: u64, what: &str) -> Prediction {
        let nanoseconds = self.nanoseconds;
        let rate = |nanoseconds: f64| size as f64 * 1e9 / nanoseconds;
        let derivation = format!(
            "{} {what}: {} = {}, so {}",
            bytes(size),
            self.derivation,
            format_time(nanoseconds),
            format_rate(rate(nanoseconds))
        );
        self.builder(RANGE_FACTOR, rate, |formula| format!("{what} / ({formula})")).build_with(derivation)
    }

    fn builder(self, factor: f64, value: impl Fn(f64) -> f64, formula: impl Fn(String) -> String) -> PredictionBuilder {
        let predicting = PredictionBuilder::within_factor(PredictionBasis::Derived, value(self.nanoseconds), factor)
            .formula(self.name, formula(self.formula));
        predicting.inputs(self.inputs)
    }
}

/// Bytes that the latency of a device includes.
const LATENCY_BYTES: u64 = 4 * KIB;

/// Latency and rate of the device. Predictions are sums over many requests: of reads, the mean counts.
fn device_metrics(transfer: BlockDirection) -> (&'static Metric, &'static Metric) {
    match transfer {
        BlockDirection::Read => (&DEVICE_MEAN_LATENCY, &DEVICE_READ),
        BlockDirection::Write => (&DEVICE_ACCEPT_LATENCY, &DEVICE_WRITE),
    }
}

/// A metric without parameters.
fn measured_without_case(facts: &PredictionInputs<'_>, metric: &Metric) -> Result<Input, NoPrediction> {
    debug_assert!(metric.axes().next().is_none() && matches!(metric.unit, Unit::Nanoseconds | Unit::BytesPerSecond));
    facts.measured(metric, &Case::new())
}

/// Nanoseconds of so many bytes at a rate in bytes per second.
pub(super) fn nanoseconds_of(bytes: u64, rate: f64) -> f64 {
    bytes as f64 * 1e9 / rate
}

/// A time for people.
pub(super) fn format_time(nanoseconds: f64) -> String {
    units::value_text(nanoseconds, Unit::Nanoseconds)
}

/// A rate for people.
pub(super) fn format_rate(rate: f64) -> String {
    units::value_text(rate, Unit::BytesPerSecond)
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
    fn with_facts<R>(known: &[(&Metric, f64)], look: impl FnOnce(&PredictionInputs<'_>) -> R) -> R {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(&[(2, MIB)]);
        let measured = |id: &str, _: &Case| {
            let &(_, value) = known.iter().find(|(metric, _)| metric.id == *id)?;
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        look(&PredictionInputs::new(&machine, &measured))
    }

    const KNOWN: [(&Metric, f64); 9] = [
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
        with_facts(&KNOWN, |facts| {
            // 261 ns and 4096 B at 11.8 GB/s.
            let read = cached_read(facts, 4096).unwrap();
            assert_eq!(read.nanoseconds.round(), 608.0);
            assert_eq!(read.derivation, "261 ns call with a page found + 4 KiB / 11.8 GB/s copy");
            assert_eq!(block_copy(facts, 4096, BlockDirection::Write).unwrap().nanoseconds, 512.0);
            // A buffer of half of the cache is the last that stays there; of a copy half the bytes count.
            assert!(cached_read(facts, MIB / 2).unwrap().formula.contains(BANDWIDTH_READ.id.as_str()));
            let large = cached_read(facts, 10 * MIB).unwrap();
            // Of 2560 pages all but the first wait 100 ns.
            assert!((large.nanoseconds - 261.0 - 1_048_576.0 - 255_900.0).abs() < 1e-6, "{large:?}");
            assert_eq!(large.inputs.len(), 3);
        });
    }

    #[test]
    fn overwrite_is_call_pages_and_copy() {
        let machine = testing::machine();
        let with = |two: f64, block: u64| {
            let measured = |id: &str, case: &Case| {
                let value = match PAGES.number_in(case) {
                    Some(1) => 700.0,
                    Some(_) => two,
                    None if BANDWIDTH_COPY.id == *id => 20e9,
                    None => return None,
                };
                Some(MeasuredValue { value, half_width: 0.0 })
            };
            cached_overwrite(&PredictionInputs::new(&machine, &measured), block).unwrap()
        };
        // 10 bytes a nanosecond: half of what a copy counts.
        assert!((with(900.0, 512).nanoseconds - 751.2).abs() < 1e-9);
        assert!((with(900.0, 4096).nanoseconds - 1109.6).abs() < 1e-9);
        assert!((with(900.0, 3 * 4096).nanoseconds - (700.0 + 2.0 * 200.0 + 1228.8)).abs() < 1e-9);
        assert_eq!(
            with(900.0, 8192).derivation,
            "700 ns call with one page + 1 x 200 ns page more + 8 KiB / 10.0 GB/s copy"
        );
        assert!((with(690.0, 8192).nanoseconds - 1519.2).abs() < 1e-9, "noise is no gain");
    }

    #[test]
    fn direct_block_is_latency_plus_transfer() {
        with_facts(&KNOWN, |facts| {
            assert_eq!(direct_request(facts, 4096, BlockDirection::Read).unwrap().nanoseconds, 80_000.0);
            let large = direct_request(facts, 4096 + 1_000_000, BlockDirection::Write).unwrap();
            assert_eq!(large.nanoseconds, 40_000.0 + 4_000_000.0);
            assert_eq!(streamed_block(facts, 1_000_000, BlockDirection::Read).unwrap().nanoseconds, 2_000_000.0);
        });
    }

    #[test]
    fn combined_times_merge_inputs() {
        with_facts(&KNOWN, |facts| {
            let (latency, stream) = (
                direct_request(facts, 4096, BlockDirection::Read).unwrap(),
                streamed_block(facts, 1_000_000, BlockDirection::Read).unwrap(),
            );
            let sum = sum_of(latency.clone(), stream.clone());
            assert_eq!(sum.nanoseconds, 80_000.0 + 2_000_000.0);
            assert_eq!(sum.inputs.len(), 2);
            let slow = longer_of(latency, repeated(3, stream)).into_time();
            assert_eq!((slow.value, slow.low, slow.high), (6e6, 3e6, 12e6));
            assert!(
                slow.derivation.ends_with("6.00 ms for 3 x (1\u{202f}000\u{202f}000 B / 500 MB/s device) = 6.00 ms"),
                "{slow:?}"
            );
        });
    }

    #[test]
    fn missing_input_is_named() {
        with_facts(&KNOWN[..2], |facts| {
            assert!(cached_read(facts, 4096).unwrap_err().0.contains(BANDWIDTH_READ.id.as_str()));
            assert!(
                direct_request(facts, 4096, BlockDirection::Write)
                    .unwrap_err()
                    .0
                    .contains(DEVICE_ACCEPT_LATENCY.id.as_str())
            );
        });
    }
}
