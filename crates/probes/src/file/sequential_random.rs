//! The time to read a block of 4 KiB in order and in random order, in files of several sizes.
//!
//! It shows the effect of order, read-ahead and page cache. It must not be used for higher queue depths: here it is 1.

use kelvin_core::catalogue::file::{READ_AHEAD, READ_ORDER, READ_ORDER_P99};
use kelvin_file::{LatencyObserver, recording_cost};

use super::derived_time::format_time;
use super::prelude::*;
use super::read_ahead_model::{self, ReadAheadCost};

pub(super) static PROBE: Probe = Probe {
    summary: "Reading blocks of 4 KiB in order and in random order, through an empty page cache and past it",
    method: include_str!("sequential_random.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&READ_ORDER, &READ_ORDER_P99])
};

const BLOCK: usize = 4096;
/// Reads between two checks of the time.
const TIME_CHECK_READS: u64 = 16;
/// Reads for a 99th percentile, for which a round is made longer, up to this many nanoseconds.
const MIN_READS_FOR_P99: u64 = 100;
const MAX_EXTENDED_NANOSECONDS: f64 = 100e6;
/// Nanoseconds after which a pass with read-ahead is broken off: what is read ahead is little of it by then.
const MAX_PASS_NANOSECONDS: f64 = 1e9;

/// MiB of the files of an older study.
const PUBLISHED_SIZES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let sizes: Vec<u64> = match effort {
        Effort::Quick => vec![16],
        Effort::Default => vec![1, 16, 128],
        Effort::Thorough => PUBLISHED_SIZES.into_iter().chain(beyond_memory_size(machine)).collect(),
    };
    let sizes: Vec<u64> = sizes.into_iter().map(|size| size * MIB).collect();
    numbers(BYTES, &sizes).words(&[CacheState::Direct, CacheState::Uncached]).words(AccessOrder::ALL)
}

/// MiB of the largest file beyond memory that is made without a request: half of what a run may write.
const MAX_BEYOND_MEMORY: u64 = 2048;

/// MiB of a file that no file cache of this machine holds: a quarter more than its memory, or than its control group may use. None on a
/// machine where that takes long to write.
fn beyond_memory_size(machine: &Machine) -> Option<u64> {
    let limit = machine.limits.memory_bytes.get().copied().flatten().unwrap_or(u64::MAX);
    let memory = limit.min(*machine.memory.total_bytes.get()?);
    let largest = PUBLISHED_SIZES[PUBLISHED_SIZES.len() - 1];
    let size = (memory + memory / 4).div_ceil(largest * MIB) * largest;
    (largest + 1..=MAX_BEYOND_MEMORY).contains(&size).then_some(size)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let state = cache_state(case)?;
    let target = test_files::shared_file(bench, required_number(BYTES, case)?)?;
    test_files::check_block(&target, state, BLOCK as u64)?;
    if state == PageCacheState::Uncached {
        // An untimed pass first, to touch the memory of its pages.
        ReadRound::new(bench).pass(bench, &target, state, block_order(case, bench.seed())?)?;
    }
    let counters = DeviceCounters::now(&target);
    let (mut round, mut passes) = (ReadRound::new(bench), 0);
    while !round.is_over(bench.slice()) {
        let order = block_order(case, bench.seed().wrapping_add(passes))?;
        round.pass(bench, &target, state, order)?;
        passes += 1;
    }
    let ReadRound { reads, read_time } = round;
    // From memory it is a control: what the same reads take without the device.
    if state != PageCacheState::Cached {
        bench.note(counters.prove_read(reads.inner.bytes)?);
    }
    bench.note(describe_quantiles(&reads, recording_cost(bench.clock(), bench.hertz())));
    bench.record(&READ_ORDER, vec![read_time / reads.inner.requests as f64]);
    if reads.histogram.count() >= MIN_READS_FOR_P99 {
        bench.record(&READ_ORDER_P99, reads.histogram.quantile(0.99).into_iter().collect());
    } else {
        bench.note(format!("a 99th percentile needs {MIN_READS_FOR_P99} reads"));
    }
    Ok(())
}

/// The reads so far, and their nanoseconds.
struct ReadRound {
    reads: LatencyObserver<IoTally>,
    read_time: f64,
}

impl ReadRound {
    fn new(bench: &Bench<'_>) -> Self {
        Self { reads: LatencyObserver::new(IoTally::default(), bench.clock(), bench.hertz()), read_time: 0.0 }
    }

    fn is_over(&self, slice: f64) -> bool {
        self.read_time >= slice
            && (self.reads.histogram.count() >= MIN_READS_FOR_P99 || self.read_time >= MAX_EXTENDED_NANOSECONDS)
    }

    /// One pass over a file, or as much of it as there is time for: all of it where the kernel reads ahead, since what is read
    /// ahead must count too.
    fn pass(&mut self, bench: &Bench<'_>, target: &Target, state: PageCacheState, order: BlockOrder) -> ProbeResult {
        set_cache_state(target, state)?;
        let options = ReadOptions { access: state.access(), block: BLOCK, order, pages: PagePolicy::Base };
        let mut reader = Engine::Pread.open(target, options).map_err(probe_error)?;
        let mut requests = BlockRequests::new(0..target.bytes(), BLOCK, order);
        let (clock, has_read_ahead) =
            (bench.clock(), state == PageCacheState::Uncached && order == BlockOrder::Sequential);
        while requests.complete_passes() == 0
            && (has_read_ahead && self.read_time < MAX_PASS_NANOSECONDS || !self.is_over(bench.slice()))
        {
            requests.extend_limit(TIME_CHECK_READS);
            let (ticks, outcome) = clock.time(|| reader.read(&mut requests, &mut self.reads));
            outcome.map_err(probe_error)?;
            self.read_time += bench.nanoseconds(ticks);
        }
        Ok(())
    }
}

/// The quantiles of a round's reads, in words.
fn describe_quantiles(reads: &LatencyObserver<IoTally>, cost: f64) -> String {
    let quantile = |share: f64| format_time(reads.histogram.quantile(share).unwrap_or_default());
    format!(
        "of {} reads half took at most {}, 90 % {}, 99 % {}, the longest {}; timing one costs {}",
        reads.histogram.count(),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(1.0),
        format_time(cost)
    )
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    if metric.id == READ_ORDER_P99.id {
        return tail_prediction(facts, case);
    }
    let block = BLOCK as u64;
    let time = match required(CacheState::of(case), case)? {
        CacheState::Direct => {
            let request = derived_time::direct_request(facts, block, IoDirection::Read)?;
            return Ok(request.widen(derived_time::DEVICE_RANGE_FACTOR).derived("parts"));
        }
        CacheState::Uncached if AccessOrder::of(case) == Some(AccessOrder::Random) => {
            read_ahead_model::random_block_time(facts, block)?
        }
        CacheState::Uncached => {
            let file_bytes = required_number(BYTES, case)?;
            let blocks = count_of("blocks", file_bytes / block);
            ReadAheadCost::new(facts, file_bytes, block)?.single_thread_time() / blocks
        }
        CacheState::Cached => required(None, case)?,
    };
    Ok(derived_time::predict_from_parts(time))
}

/// The case of the tail from which all others follow: one request of the device after another.
fn device_tail_case() -> Case {
    Case::new().with_number(BYTES, 16 * MIB).with_word(AccessOrder::Random).with_word(CacheState::Direct)
}

/// What one in a hundred reads exceeds.
fn tail_prediction(facts: &PredictionInputs<'_>, case: &Case) -> Predicted {
    let is_sequential = AccessOrder::of(case) == Some(AccessOrder::Sequential);
    match required(CacheState::of(case), case)? {
        CacheState::Direct if *case == device_tail_case() => {
            Err(NoPrediction::new("the tail of a device's latency does not follow from its mean"))
        }
        CacheState::Uncached if is_sequential => read_ahead_tail(facts, required_number(BYTES, case)?),
        CacheState::Direct | CacheState::Uncached => {
            let tail = measured(facts, &READ_ORDER_P99, &device_tail_case())?.variant("requests");
            Ok(derived_time::predict_from_parts(tail))
        }
        CacheState::Cached => Ok(required(None, case)?),
    }
}

/// Loads, one after another, of what nobody has read yet when a folio is met first: its slot in the page cache, and its header
/// (Linux mm/filemap.c: `filemap_get_read_batch`).
const FOLIO_LOADS: f64 = 2.0;

/// Like `tail_prediction`, where the kernel reads ahead: what matters is how many reads wait for a window.
fn read_ahead_tail(facts: &PredictionInputs<'_>, bytes: u64) -> Predicted {
    let block = BLOCK as u64;
    let page = memory_budget::page_bytes(facts.machine());
    let window = facts.measured(&READ_AHEAD, &Case::new())?;
    // All that either way may need is requested: a plan does not know the size of windows.
    let (cached, load) = (derived_time::cached_read(facts, block), latency::memory_latency(facts));
    let (reads, waits) = (bytes / block, read_ahead_model::window_count(bytes, block, window.value as u64, page));
    if 100 * waits > reads {
        let tail = measured(facts, &READ_ORDER_P99, &device_tail_case())?.widen(derived_time::RANGE_FACTOR);
        let remark = format!("as other requests to the device, for which {waits} of {reads} reads wait");
        return Ok(tail.explained(PredictionBasis::Derived, "reads that wait for windows", &remark));
    }
    let folio = quantity("loads of a folio", FOLIO_LOADS, Unit::Count).variant("first of a folio");
    Ok(derived_time::predict_from_parts(cached? + folio * load?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::Fact;
    use kelvin_core::catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ, PAGE_READ};
    use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, LATENCY};

    #[test]
    fn times_match_hand_calculation() {
        let values = [
            (BANDWIDTH_COPY.id.as_str(), Some(8.192e9)),
            (PAGE_READ.id.as_str(), Some(1000.0)),
            (READ_AHEAD.id.as_str(), Some(262_144.0)),
            (DEVICE_READ.id.as_str(), Some(409.6e6)),
            (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0)),
        ];
        with_facts(&values, |facts| {
            let time = |order: AccessOrder, cache: CacheState| {
                predict(facts, &READ_ORDER, &Case::new().with_number(BYTES, MIB).with_word(order).with_word(cache))
                    .unwrap()
                    .value
            };
            assert_eq!(time(AccessOrder::Random, CacheState::Direct), 80_000.0);
            assert_eq!(time(AccessOrder::Sequential, CacheState::Direct), 80_000.0);
            // 1 us of call and page, and 4096 bytes at 4.096 a nanosecond.
            assert!((time(AccessOrder::Random, CacheState::Uncached) - 82_000.0).abs() < 1e-6);
            // 256 pages in 8 windows of 80 us, and 10 us for each page beyond the first one of each. Pages cost nothing to
            // allocate only because the test makes the two figures equal.
            let sequential_time = time(AccessOrder::Sequential, CacheState::Uncached);
            assert!((sequential_time - (8.0 * 80_000.0 + 248.0 * 10_000.0) / 256.0).abs() < 1e-6);
        });
    }

    #[test]
    fn tail_depends_on_read_ahead() {
        let values = [
            (READ_ORDER_P99.id.as_str(), Some(150_000.0)),
            (READ_AHEAD.id.as_str(), Some(131_072.0)),
            (PAGE_READ.id.as_str(), Some(400.0)),
            (BANDWIDTH_COPY.id.as_str(), Some(8.192e9)),
            (LATENCY.id.as_str(), Some(100.0)),
        ];
        with_facts(&values, |facts| {
            let predicted = |mib: u64, order: AccessOrder, cache: CacheState| {
                predict(
                    facts,
                    &READ_ORDER_P99,
                    &Case::new().with_number(BYTES, mib * MIB).with_word(order).with_word(cache),
                )
            };
            for (mib, order, cache) in [
                (128, AccessOrder::Random, CacheState::Direct),
                (16, AccessOrder::Sequential, CacheState::Direct),
                (16, AccessOrder::Random, CacheState::Uncached),
                // Windows of 32 pages at most: one of 32 reads waits.
                (16, AccessOrder::Sequential, CacheState::Uncached),
            ] {
                let tail = predicted(mib, order, cache).unwrap();
                assert_eq!((tail.value, tail.low, tail.high), (150_000.0, 75_000.0, 300_000.0));
            }
            assert!(predicted(16, AccessOrder::Random, CacheState::Direct).is_err());
        });
        let large_windows = [&values[..1], &[(READ_AHEAD.id.as_str(), Some(16.0 * MIB as f64))], &values[2..]].concat();
        with_facts(&large_windows, |facts| {
            let predicted = |mib: u64| {
                let case = Case::new()
                    .with_number(BYTES, mib * MIB)
                    .with_word(AccessOrder::Sequential)
                    .with_word(CacheState::Uncached);
                predict(facts, &READ_ORDER_P99, &case).unwrap()
            };
            // 4 windows of 256 reads; 8 of 4096, of which most find their page: 400 ns, 1 us of copy, 200 ns.
            assert_eq!(predicted(1).value, 150_000.0);
            assert!((predicted(16).value - 1600.0).abs() < 1e-9, "{}", predicted(16).value);
        });
    }

    #[test]
    fn cases_cover_orders_and_states() {
        let cases = cases(&crate::testing::machine(), Effort::Default);
        assert_eq!(cases.len(), 12);
        let large = Case::new().with_number(BYTES, 128 * MIB);
        assert!(cases.contains(&large.with_word(AccessOrder::Random).with_word(CacheState::Uncached)));
        let thorough_cases = super::cases(&crate::testing::machine(), Effort::Thorough);
        let sizes: std::collections::BTreeSet<u64> =
            thorough_cases.iter().filter_map(|case| BYTES.number_in(case)).collect();
        assert_eq!((thorough_cases.len(), sizes), (32, PUBLISHED_SIZES.map(|size| size * MIB).into()));
    }

    #[test]
    fn largest_file_exceeds_allowed_memory() {
        let mut machine = crate::testing::machine();
        assert_eq!(beyond_memory_size(&machine), None);
        machine.memory.total_bytes = Fact::known(1600 * MIB, "a test");
        assert_eq!(beyond_memory_size(&machine), Some(2048));
        machine.memory.total_bytes = Fact::known(16384 * MIB, "a test");
        assert_eq!(beyond_memory_size(&machine), None);
        machine.limits.memory_bytes = Fact::known(Some(1000 * MIB), "a test");
        // 1250 are ten times 128.
        assert_eq!(beyond_memory_size(&machine), Some(1280));
        assert_eq!(super::cases(&machine, Effort::Thorough).len(), 36);
        assert_eq!(super::cases(&machine, Effort::Default).len(), 12);
        // All of such a limit is within the sizes of the older study.
        machine.limits.memory_bytes = Fact::known(Some(64 * MIB), "a test");
        assert_eq!(beyond_memory_size(&machine), None);
    }
}
