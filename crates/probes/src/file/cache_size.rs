//! The size of the file cache under a limit of memory: where a file just read is no longer found there, and what reading it
//! again takes on either side.
//!
//! It shows that the whole limit serves files, and how sharp its end is. It must not be used as the size of this machine's
//! file cache, which `kelvin file cache` derives: that would need files as large as memory.

use kelvin_core::catalogue::file::{CACHE_SIZE, CACHE_SIZE_BLOCK, CACHE_SIZE_RETAINED, PAGE_READ};
use kelvin_core::catalogue::mem::BANDWIDTH_READ;
use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_file::page_cache_size::{self, SizeSample};
use kelvin_stats::median;

use super::prelude::*;

pub(super) static PROBE: Probe = Probe {
    summary: "The size of the file cache under a limit of 128 MiB, found by reading",
    method: include_str!("cache_size.md"),
    run: |bench, _| record_cache_size(bench),
    predict: |_, _, _| Ok(limit_prediction()),
    ..Probe::study(&[&CACHE_SIZE])
};

pub(super) static BLOCK_PROBE: Probe = Probe {
    summary: "Reading a file again that was just read, by its size, under a limit of 128 MiB",
    method: include_str!("cache_size_block.md"),
    cases,
    run,
    predict,
    ..Probe::study(&[&CACHE_SIZE_BLOCK, &CACHE_SIZE_RETAINED])
};

/// The limit: twice the least that can be found, so that the reading process is a small part of it. A round reads thirty times as
/// much to find it, which has to stay a matter of seconds.
const CACHE_LIMIT: u64 = 128 * MIB;
/// By how much of the limit the size may be off it.
const SIZE_TOLERANCE: f64 = page_cache_size::SIZE_TOLERANCE;
/// Of the sizes of a study, a quick one has every this many.
const QUICK_STRIDE: usize = 3;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let step = if effort == Effort::Quick { QUICK_STRIDE } else { 1 };
    let sizes: Vec<u64> = page_cache_size::initial_sizes(CACHE_LIMIT).into_iter().step_by(step).collect();
    numbers(BYTES, &sizes)
}

/// The file, and the group that this process is in until it is dropped.
fn enter_limited_cgroup(bench: &Bench<'_>) -> ProbeResult<(Target, Cgroup)> {
    // Written before, so that it is not charged to the group.
    let target = test_files::shared_file(bench, page_cache_size::largest_size(CACHE_LIMIT))?;
    let group = Cgroup::create(Controller::Memory).map_err(probe_error)?;
    group.limit_memory(CACHE_LIMIT).and_then(|()| group.enter()).map_err(probe_error)?;
    Ok((target, group))
}

fn record_cache_size(bench: &mut Bench<'_>) -> ProbeResult {
    let (target, _group) = enter_limited_cgroup(bench)?;
    let measure_sizes = |sizes: Vec<u64>| -> ProbeResult<Vec<SizeSample>> {
        let samples = sizes.into_iter().map(|bytes| page_cache_size::measure_size(&target, bytes));
        samples.collect::<kelvin_file::Result<_>>().map_err(probe_error)
    };
    let mut samples = measure_sizes(page_cache_size::initial_sizes(CACHE_LIMIT))?;
    let refined_samples = measure_sizes(page_cache_size::refined_sizes(&samples))?;
    samples.extend(refined_samples);
    let size = page_cache_size::find_page_cache_size(&samples).map_err(|error| ProbeError::fail(error.to_string()))?;
    bench.note(format!(
        "a block took {} below and {} above; of larger files {} bytes stayed",
        derived_time::format_time(size.jump.before),
        derived_time::format_time(size.jump.after),
        size.resident
    ));
    bench.record(&CACHE_SIZE, vec![size.bytes() as f64]);
    Ok(())
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let bytes = required_number(BYTES, case)?;
    let (target, _group) = enter_limited_cgroup(bench)?;
    let sample = page_cache_size::measure_size(&target, bytes).map_err(probe_error)?;
    bench.note(format!("{} of {bytes} bytes in memory", sample.resident));
    bench.record(&CACHE_SIZE_BLOCK, vec![median(&sample.block_nanoseconds)]);
    bench.record(&CACHE_SIZE_RETAINED, vec![sample.resident as f64 / bytes as f64]);
    Ok(())
}

/// The size that is expected: the limit.
fn limit_prediction() -> Prediction {
    let limit = fact("limit of the group", CACHE_LIMIT as f64, Unit::Bytes, "set by the probe");
    limit.widen(1.0 + SIZE_TOLERANCE).explained(
        PredictionBasis::Spec,
        "limit of the group",
        "the process's own memory is part of it",
    )
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let reason = "what a kernel keeps of a file that is too large for its limit is in no formula";
    unpredicted_if(metric.id == CACHE_SIZE_RETAINED.id, reason)?;
    let bytes = required_number(BYTES, case)?;
    let size = facts.measured(&CACHE_SIZE, &Case::new())?;
    let block = page_cache_size::BLOCK as u64;
    let copied = bytes_of("block", block) / bandwidth::in_memory(facts, &BANDWIDTH_READ)?;
    let pages = quantity("pages", (block / memory_budget::page_bytes(facts.machine())) as f64, Unit::Count);
    // All that either may need is requested: a plan does not know the size. Each page is in a folio of its own.
    let [cached, added] = [CacheState::Cached, CacheState::Uncached]
        .map(|state| measured(facts, &PAGE_READ, &page_read_case(state, AccessOrder::Random)));
    let device = derived_time::direct_request(facts, block, IoDirection::Read);
    let read_time = match bytes as f64 <= size.value {
        true => pages * cached?.variant("pages found"),
        false => device? + pages * added?,
    };
    Ok(derived_time::predict_from_parts(read_time + copied))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_core::catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ};
    use kelvin_harness::MeasuredValue;

    #[test]
    fn sizes_span_the_limit() {
        for (effort, count) in [(Effort::Quick, 4), (Effort::Default, 12), (Effort::Thorough, 12)] {
            let sizes: Vec<u64> = cases(&machine(), effort).iter().filter_map(|case| BYTES.number_in(case)).collect();
            assert_eq!(sizes.len(), count);
            assert!(sizes[0] < CACHE_LIMIT && sizes[count - 1] > CACHE_LIMIT, "{sizes:?}");
        }
    }

    #[test]
    fn cached_blocks_are_copied_uncached_read() {
        let machine = machine();
        let measured = |id: &str, case: &Case| {
            let value = match id {
                id if id == PAGE_READ.id.as_str() => match CacheState::of(case)? {
                    CacheState::Cached => 300.0,
                    _ => 1000.0,
                },
                id if id == BANDWIDTH_READ.id.as_str() => 16.384e9,
                id if id == DEVICE_READ.id.as_str() => 61.44e6,
                id if id == DEVICE_MEAN_LATENCY.id.as_str() => 80_000.0,
                id if id == CACHE_SIZE.id.as_str() => 130e6,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted =
            |bytes: u64| predict(&facts, &CACHE_SIZE_BLOCK, &Case::new().with_number(BYTES, bytes)).unwrap().value;
        // 16 pages of 300 ns, and 4 us; 80 us and 60 KiB at 61.44 bytes a microsecond, 16 pages of 1 us, and 4 us.
        assert!((predicted(129_000_000) - 8800.0).abs() < 1e-6, "{}", predicted(129_000_000));
        assert!((predicted(131_000_000) - 1_100_000.0).abs() < 1e-6, "{}", predicted(131_000_000));
        assert!(predict(&facts, &CACHE_SIZE_RETAINED, &Case::new().with_number(BYTES, CACHE_LIMIT)).is_err());
        let range = limit_prediction();
        assert!(range.low < CACHE_LIMIT as f64 && range.high < 1.11 * CACHE_LIMIT as f64);
    }
}
