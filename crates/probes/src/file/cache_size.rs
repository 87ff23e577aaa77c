//! The size of the file cache under a limit of memory: where a file just read is no longer found there, and what reading it
//! again takes on either side.
//!
//! It shows that the whole limit serves files, and how sharp its end is. It must not be used as the size of this machine's
//! file cache, which `kelvin file cache` derives: that would need files as large as memory.

use kelvin_catalogue::file::{
    AccessOrder, BYTES, CACHE_SIZE, CACHE_SIZE_BLOCK, CACHE_SIZE_STAYED, CacheState, DEVICE, PAGE_READ,
};
use kelvin_catalogue::mem::{BANDWIDTH, BANDWIDTH_READ};
use kelvin_file::Target;
use kelvin_file::capacity::{self, Sample};
use kelvin_file::group::{Controller, Group};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit, units};
use kelvin_stats::median;

use super::cases::{known, pages_read, predictable};
use super::data::{self, MIB};
use super::expected::{self, Expected, Transfer};
use crate::memory::{allowance, bandwidth};
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: CACHE_SIZE.id.as_str(),
    summary: "The size of the file cache under a limit of 128 MiB, found by reading",
    kind: ProbeKind::Study,
    method: Method {
        how: "The round's process enters a control group of its own with 128 MiB of memory, and reads the beginning of one \
              file, twelve sizes from a quarter of the limit to 1.7 times it: dropped from memory, read once, then read \
              again block by block of 64 KiB, which is timed. Five sizes more lie between the last that stayed and the \
              first that did not. The size is reported only where the time of a block jumps once, upwards, by four times \
              or more, and the pages counted by mincore agree on either side: see `kelvin file cache --measure`.",
        prediction: "The limit, less what the reading process needs: within a tenth.",
        not_for: "The size of the file cache of the machine, which `kelvin file cache` tells with its derivation.",
        pitfalls: &[
            "Pages that are in memory already are charged to whoever read them first: each size is dropped before.",
            "Reading ahead evicts pages that are to stay: the kernel is told not to.",
            "A device as fast as memory makes no jump: then there is no size.",
        ],
        sources: &["Linux kernel documentation, admin-guide/cgroup-v2.rst: memory.max", "mincore(2)"],
    },
    metrics: &[&CACHE_SIZE],
    inputs: &[],
    cases: |_, _| vec![Case::new()],
    run: |bench, _| size(bench),
    predict: |_, _, _| Ok(limit()),
};

pub(super) static BLOCK_PROBE: Probe = Probe {
    id: CACHE_SIZE_BLOCK.id.as_str(),
    summary: "Reading a file again that was just read, by its size, under a limit of 128 MiB",
    kind: ProbeKind::Study,
    method: Method {
        how: "As in file.cache_size, one size a round: under a limit of 128 MiB of memory the beginning of a file is dropped \
              from memory, read once from its beginning to its end, and read again in blocks of 64 KiB, which is timed: \
              the median of a sixth of it, six of them. The share is what mincore finds in memory before or after the \
              second pass, whichever is less.",
        prediction: "Up to the size that file.cache_size found: each of the 16 pages is looked up by itself, for the kernel was \
                     told not to read ahead and keeps them in folios of one page each (file.page_read, cached, in random order), \
                     and 64 KiB are read from memory (mem.bandwidth.read). Beyond it: a read of 64 KiB past the page cache, \
                     16 pages that are added to it (file.page_read, uncached, in random order), and the same copy. A factor of \
                     two either way. The share: none, for what a kernel keeps of a file that is too large is in no formula.",
        not_for: "Programs that read a large file once, which no cache helps.",
        pitfalls: &[
            "The least recently used pages go first: of a file slightly too large they are the ones needed next, so that \
             the second pass finds nothing at all, not a little less.",
        ],
        sources: &["Linux kernel documentation, admin-guide/cgroup-v2.rst: memory.max", "mincore(2)"],
    },
    metrics: &[&CACHE_SIZE_BLOCK, &CACHE_SIZE_STAYED],
    inputs: &[CACHE_SIZE.id.as_str(), BANDWIDTH.as_str(), DEVICE.as_str(), PAGE_READ.id.as_str()],
    cases,
    run,
    predict,
};

/// The limit: twice the least that can be found, so that the reading process is a small part of it. A round reads thirty times as
/// much to find it, which has to stay a matter of seconds.
const LIMIT: u64 = 128 * MIB;
/// By how much of the limit the size may be off it.
const WITHIN: f64 = capacity::TOLERANCE;
/// Of the sizes of a study, a quick one has every so many.
const QUICK: usize = 3;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let step = if effort == Effort::Quick { QUICK } else { 1 };
    capacity::sizes(LIMIT).into_iter().step_by(step).map(|bytes| Case::new().with(BYTES, bytes)).collect()
}

/// The file, and the group that this process is in until it is dropped.
fn enter(bench: &Bench<'_>) -> Result<(Target, Group), Stop> {
    // Written before, so that it is not charged to the group.
    let target = data::file(bench, capacity::largest(LIMIT))?;
    let group = Group::make(Controller::Memory).map_err(data::stopped)?;
    group.limit_memory(LIMIT).and_then(|()| group.enter()).map_err(data::stopped)?;
    Ok((target, group))
}

fn size(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let (target, _group) = enter(bench)?;
    let read = |sizes: Vec<u64>| -> Result<Vec<Sample>, Stop> {
        sizes.into_iter().map(|bytes| capacity::sample(&target, bytes).map_err(data::stopped)).collect()
    };
    let mut samples = read(capacity::sizes(LIMIT))?;
    let finer = read(capacity::finer(&samples))?;
    samples.extend(finer);
    let found = capacity::find(&samples).map_err(|doubt| Stop::fail(doubt.to_string()))?;
    bench.note(format!(
        "a block took {} below and {} above; of larger files {} bytes stayed",
        expected::time(found.in_memory),
        expected::time(found.missing),
        found.resident
    ));
    bench.record(&CACHE_SIZE, vec![found.bytes() as f64]);
    Ok(())
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let bytes = known(BYTES.of(case), case)?;
    let (target, _group) = enter(bench)?;
    let sample = capacity::sample(&target, bytes).map_err(data::stopped)?;
    bench.note(format!("{} of {bytes} bytes in memory", sample.resident));
    bench.record(&CACHE_SIZE_BLOCK, vec![median(&sample.block_nanoseconds)]);
    bench.record(&CACHE_SIZE_STAYED, vec![sample.resident as f64 / bytes as f64]);
    Ok(())
}

/// The size that is expected: the limit.
fn limit() -> Prediction {
    Predicting::within_factor(Basis::Spec, LIMIT as f64, 1.0 + WITHIN)
        .formula("limit of the group", "the limit of the group")
        .constant("limit", LIMIT as f64, Unit::Bytes, "set by the probe")
        .derived_as(format!("{LIMIT} B of memory, less the process's own"))
}

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id == CACHE_SIZE_STAYED.id {
        return Err(NoPrediction::because(
            "what a kernel keeps of a file that is too large for its limit is in no formula",
        ));
    }
    let bytes = predictable(BYTES.of(case), case)?;
    let size = facts.measured(&CACHE_SIZE, &Case::new())?;
    let copied = copied(facts)?;
    // All that either may need is asked for: a plan does not know the size.
    let [found, added] = [CacheState::Cached, CacheState::Uncached].map(|state| pages(facts, state));
    let device = expected::direct(facts, capacity::BLOCK as u64, Transfer::Read);
    let time = match bytes as f64 <= size.value {
        true => expected::one_by_one(found?, copied),
        false => expected::one_by_one(expected::one_by_one(device?, added?), copied),
    };
    Ok(time.into_time())
}

/// The pages of a block, each in a folio of its own: found, or added.
fn pages(facts: &Facts<'_>, state: CacheState) -> Result<Expected, NoPrediction> {
    let page = allowance::page_bytes(facts.machine());
    let name = if state == CacheState::Cached { "page found" } else { "page added" };
    let each = facts.measured(&PAGE_READ, &pages_read(state, AccessOrder::Random))?;
    Ok(expected::times(capacity::BLOCK as u64 / page, Expected::measured(name, each, " a page")))
}

/// The copy of a block from memory.
fn copied(facts: &Facts<'_>) -> Result<Expected, NoPrediction> {
    let (rate, block) =
        (facts.measured(&BANDWIDTH_READ, &bandwidth::in_memory(facts.machine()))?, capacity::BLOCK as u64);
    Ok(Expected {
        nanoseconds: expected::nanoseconds_of(block, rate.value),
        name: "copy".into(),
        formula: format!("block / {}", rate.name),
        derivation: format!("{} / {} copy", units::bytes(block), expected::per_second(rate.value)),
        inputs: vec![rate],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_catalogue::file::{DEVICE_MEAN_LATENCY, DEVICE_READ};
    use kelvin_harness::MeasuredValue;

    #[test]
    fn sizes_lie_on_both_sides_of_the_limit_at_any_effort() {
        for (effort, count) in [(Effort::Quick, 4), (Effort::Default, 12), (Effort::Thorough, 12)] {
            let sizes: Vec<u64> = cases(&machine(), effort).iter().filter_map(|case| BYTES.of(case)).collect();
            assert_eq!(sizes.len(), count);
            assert!(sizes[0] < LIMIT && sizes[count - 1] > LIMIT, "{sizes:?}");
        }
    }

    #[test]
    fn what_stayed_is_copied_page_by_page_and_what_did_not_is_read() {
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
        let facts = Facts::new(&machine, &measured);
        let of = |bytes: u64| predict(&facts, &CACHE_SIZE_BLOCK, &Case::new().with(BYTES, bytes)).unwrap().value;
        // 16 pages of 300 ns, and 4 us; 80 us and 60 KiB at 61.44 bytes a microsecond, 16 pages of 1 us, and 4 us.
        assert!((of(129_000_000) - 8800.0).abs() < 1e-6, "{}", of(129_000_000));
        assert!((of(131_000_000) - 1_100_000.0).abs() < 1e-6, "{}", of(131_000_000));
        assert!(predict(&facts, &CACHE_SIZE_STAYED, &Case::new().with(BYTES, LIMIT)).is_err());
        let range = limit();
        assert!(range.low < LIMIT as f64 && range.high < 1.11 * LIMIT as f64);
    }
}
