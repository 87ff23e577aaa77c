//! Bytes per second that one thread reads and writes in order, by block size, one call a block.
//!
//! It shows from which block on the cost of a call no longer matters. It must not be taken for the speed of a device, which
//! needs many requests in flight.

use kelvin_core::AxisWord;
use kelvin_core::catalogue::file::{BLOCKSIZE_READ, BLOCKSIZE_WRITE, SyncPolicy};

use super::overwrite::Overwriter;
use super::prelude::*;
use super::read_ahead_model::ReadAheadCost;

pub(super) static READ_PROBE: Probe = Probe {
    summary: "Reading by one thread, by block size: from the page cache, through it, and past it",
    method: include_str!("blocksize_read.md"),
    cases: read_cases,
    run: read,
    predict,
    ..Probe::measure(&[&BLOCKSIZE_READ])
};

pub(super) static WRITE_PROBE: Probe = Probe {
    summary: "Writing by one thread, by block size: into the page cache, and past it",
    method: include_str!("blocksize_write.md"),
    cases: write_cases,
    run: write,
    predict,
    ..Probe::measure(&[&BLOCKSIZE_WRITE])
};

/// Size of the file that is read whole each time: small, as each pass takes disk time, but longer than read-ahead needs to
/// begin.
const UNCACHED_FILE_BYTES: u64 = 16 * MIB;
/// Most bytes of direct writes in a round, and fewest blocks.
const MAX_DIRECT_BYTES: u64 = 12 * MIB;
const MIN_DIRECT_BLOCKS: u64 = 3;

const MIN_BLOCK: u64 = 512;
const MAX_BLOCK: u64 = 16 * MIB;
/// The smallest block that every device takes past the page cache.
const MIN_DIRECT_BLOCK: u64 = 4 * KIB;

/// The sizes of each effort, between the smallest and the largest that make sense.
fn block_cases(effort: Effort, state: impl Into<AxisWord>, smallest: u64, largest: u64) -> Vec<Case> {
    let sizes = match effort {
        Effort::Quick => vec![MIN_DIRECT_BLOCK, MIB],
        Effort::Default => vec![MIN_BLOCK, MIN_DIRECT_BLOCK, 64 * KIB, MIB, MAX_BLOCK],
        Effort::Thorough => (MIN_BLOCK.ilog2()..=MAX_BLOCK.ilog2()).map(|power| 1 << power).collect(),
    };
    let fitting_sizes: Vec<u64> = sizes.into_iter().filter(|block| (smallest..=largest).contains(block)).collect();
    numbers(BLOCK, &fitting_sizes).words(&[state.into()])
}

fn read_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    // An uncached pass takes long, and beyond a mebibyte nothing changes.
    let largest = if effort == Effort::Thorough { MAX_BLOCK } else { MIB };
    [
        block_cases(effort, CacheState::Cached, MIN_BLOCK, MAX_BLOCK),
        block_cases(effort, CacheState::Uncached, MIN_DIRECT_BLOCK, largest),
        block_cases(effort, CacheState::Direct, MIN_DIRECT_BLOCK, MAX_BLOCK),
    ]
    .concat()
}

fn write_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    // Three blocks of more than 4 MiB are more than a round should write, and every size more than a run should.
    let mut direct = block_cases(effort, SyncPolicy::Direct, MIN_DIRECT_BLOCK, 4 * MIB);
    direct.retain(|case| BLOCK.number_in(case).is_some_and(|block| block.ilog2().is_multiple_of(2)));
    [block_cases(effort, SyncPolicy::Buffered, MIN_BLOCK, MAX_BLOCK), direct].concat()
}

fn read(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let block = required_number(BLOCK, case)?;
    match cache_state(case)? {
        PageCacheState::Uncached => read_uncached(bench, block),
        state => read_repeatedly(bench, block, state),
    }
}

const ORDER: BlockOrder = BlockOrder::Sequential;

/// Reads blocks repeatedly, from memory or past it.
fn read_repeatedly(bench: &mut Bench<'_>, block: u64, state: PageCacheState) -> ProbeResult {
    let target = match state {
        PageCacheState::Direct if block <= test_files::SMALL_BYTES => test_files::device_file(bench, SHARED_BYTES)?,
        _ => test_files::shared_file(bench, SHARED_BYTES)?,
    };
    test_files::check_block(&target, state, block)?;
    bench.note(format!("before, {}", set_cache_state(&target, state)?));
    let options = ReadOptions { access: state.access(), block: block as usize, order: ORDER, pages: PagePolicy::Base };
    let mut blocks = BlockReader::open(&target, Engine::Pread, options)?;
    let counters = DeviceCounters::now(&target);
    bench.time_work(&BLOCKSIZE_READ, block as f64, |iterations| blocks.read_next(iterations))?;
    let proof = match state {
        PageCacheState::Direct => counters.prove_read(blocks.tally.bytes)?,
        _ => prove_resident(&target)?,
    };
    bench.note_last_reading(proof);
    Ok(())
}

/// Repeatedly reads a whole file of which nothing is in memory.
fn read_uncached(bench: &mut Bench<'_>, block: u64) -> ProbeResult {
    let target = test_files::device_file(bench, UNCACHED_FILE_BYTES)?;
    let file_bytes = target.bytes();
    let options =
        ReadOptions { access: Access::Buffered, block: block as usize, order: ORDER, pages: PagePolicy::Base };
    let (mut bytes_read, counters) = (0, DeviceCounters::now(&target));
    bench.note(format!("each pass of {} begins with no page in memory", kelvin_core::units::bytes(file_bytes)));
    bench.time_each_work([&BLOCKSIZE_READ], file_bytes as f64, |clock| {
        set_cache_state(&target, PageCacheState::Uncached)?;
        let mut blocks = BlockReader::open(&target, Engine::Pread, options)?;
        blocks.requests = blocks.requests.passes(1);
        let (ticks, outcome) = clock.time(|| blocks.read());
        bytes_read += blocks.tally.bytes;
        outcome.map(|()| [ticks])
    })?;
    bench.note_last_reading(counters.prove_read(bytes_read)?);
    Ok(())
}

fn write(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let block = required_number(BLOCK, case)?;
    match required(SyncPolicy::of(case), case)? {
        SyncPolicy::Buffered => write_buffered(bench, block),
        SyncPolicy::Direct => write_direct(bench, block),
    }
}

/// Writes over a file that is in memory.
fn write_buffered(bench: &mut Bench<'_>, block: u64) -> ProbeResult {
    let target = test_files::cached_overwrite_file(bench, SHARED_BYTES)?;
    bench.note(format!("before, {}", set_cache_state(&target, PageCacheState::Cached)?));
    let mut writer = Overwriter::open(&target, Access::Buffered, block as usize, bench.seed())?;
    let mut requests = BlockRequests::new(0..SHARED_BYTES, block as usize, ORDER).endless();
    bench.time_work(&BLOCKSIZE_WRITE, block as f64, |iterations| {
        requests.extend_limit(iterations);
        requests.by_ref().try_for_each(|request| writer.write(request))
    })?;
    bench.note_last_reading(prove_resident(&target)?);
    Ok(())
}

/// Writes over a part of a file past the page cache.
fn write_direct(bench: &mut Bench<'_>, block: u64) -> ProbeResult {
    let target = test_files::overwrite_file(bench, SHARED_BYTES)?;
    test_files::check_direct_io(&target, block)?;
    bench.reserve_write(MAX_DIRECT_BYTES.max(MIN_DIRECT_BLOCKS * block))?;
    let mut writer = Overwriter::open(&target, Access::Direct, block as usize, bench.seed())?;
    let (clock, counters) = (bench.clock(), DeviceCounters::now(&target));
    let (mut blocks, mut elapsed) = (0, 0.0);
    for request in BlockRequests::new(0..SHARED_BYTES, block as usize, ORDER).endless() {
        let is_limit_reached = elapsed >= bench.slice() || (blocks + 1) * block > MAX_DIRECT_BYTES;
        if blocks >= MIN_DIRECT_BLOCKS && is_limit_reached {
            break;
        }
        writer.renew();
        let (ticks, outcome) = clock.time(|| writer.write(request));
        outcome?;
        elapsed += bench.nanoseconds(ticks);
        blocks += 1;
    }
    let written = blocks * block;
    bench.note(counters.prove_written(written)?);
    bench.record(&BLOCKSIZE_WRITE, vec![written as f64 * 1e9 / elapsed]);
    Ok(())
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let block = required_number(BLOCK, case)?;
    let block_time = match CacheState::of(case) {
        Some(CacheState::Cached) => derived_time::cached_read(facts, block)?,
        Some(CacheState::Uncached) => {
            let file = ReadAheadCost::new(facts, UNCACHED_FILE_BYTES, block)?.single_thread_time();
            return Ok(derived_time::predict_from_parts(bytes_of("file", UNCACHED_FILE_BYTES) / file));
        }
        Some(CacheState::Direct) => derived_time::direct_request(facts, block, IoDirection::Read)?,
        None => match required(SyncPolicy::of(case), case)? {
            SyncPolicy::Buffered => derived_time::cached_overwrite(facts, block)?,
            SyncPolicy::Direct => derived_time::direct_request(facts, block, IoDirection::Write)?,
        },
    };
    Ok(derived_time::predict_from_parts(bytes_of("block", block) / block_time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{machine, with_facts};
    use kelvin_core::catalogue::file::{
        DEVICE_ACCEPT_LATENCY, DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_WRITE, PAGE_READ, PAGE_WRITE,
    };
    use kelvin_core::catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ};

    fn predicted(case: &Case, values: &[(&str, Option<f64>)]) -> Result<Prediction, NoPrediction> {
        with_facts(values, |facts| predict(facts, &BLOCKSIZE_READ, case))
    }

    fn block_case(block: u64, word: impl Into<AxisWord>) -> Case {
        Case::new().with_number(BLOCK, block).with_word(word)
    }

    const INPUTS: [(&str, Option<f64>); 8] = [
        (PAGE_WRITE.id.as_str(), Some(900.0)),
        (PAGE_READ.id.as_str(), Some(100.0)),
        (BANDWIDTH_COPY.id.as_str(), Some(20e9)),
        (DEVICE_READ.id.as_str(), Some(500e6)),
        (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0)),
        (DEVICE_WRITE.id.as_str(), Some(250e6)),
        (DEVICE_ACCEPT_LATENCY.id.as_str(), Some(40_000.0)),
        (BANDWIDTH_READ.id.as_str(), None),
    ];

    #[test]
    fn rates_match_hand_calculation() {
        let read = |block, cache: CacheState| predicted(&block_case(block, cache), &INPUTS).unwrap().value;
        let written = |block, sync: SyncPolicy| predicted(&block_case(block, sync), &INPUTS).unwrap().value;
        // No cache is known: half of the copy, 10 bytes a nanosecond, and 100 ns of call.
        assert!((read(1000, CacheState::Cached) - 5e9).abs() < 1.0);
        // 900 ns of a call with a page, the same with two: no page costs more.
        assert!((written(1000, SyncPolicy::Buffered) - 1e9).abs() < 1.0);
        // 80 us, and 40 KB less 4 KiB at half a byte a nanosecond.
        assert!((read(44_096, CacheState::Direct) - 44_096e9 / 160_000.0).abs() < 1.0);
        assert!((written(44_096, SyncPolicy::Direct) - 44_096e9 / 200_000.0).abs() < 1.0);
    }

    #[test]
    fn a_derivation_names_every_step() {
        let prediction = predicted(&block_case(4096, CacheState::Cached), &INPUTS).unwrap();
        assert_eq!(prediction.derivation, "4.00 KiB / (100 ns + 4.00 KiB / (20.0 GB/s / 2)) = 8.04 GB/s");
        assert_eq!(prediction.inputs.len(), 2);
        assert!((prediction.high / prediction.value - derived_time::RANGE_FACTOR).abs() < 1e-9);
    }

    #[test]
    fn direct_cases_are_page_aligned_and_bounded() {
        let blocks = |cases: Vec<Case>, word: AxisWord| -> Vec<u64> {
            cases.iter().filter(|case| word.is_in_case(case)).filter_map(|case| BLOCK.number_in(case)).collect()
        };
        let reads = |effort, cache: CacheState| blocks(read_cases(&machine(), effort), cache.point());
        assert_eq!(reads(Effort::Quick, CacheState::Direct), [MIN_DIRECT_BLOCK, MIB]);
        assert_eq!(reads(Effort::Default, CacheState::Direct), [MIN_DIRECT_BLOCK, 64 * KIB, MIB, 16 * MIB]);
        assert_eq!(reads(Effort::Default, CacheState::Uncached), [MIN_DIRECT_BLOCK, 64 * KIB, MIB]);
        assert_eq!(reads(Effort::Thorough, CacheState::Cached).len(), 16);
        let writes = blocks(write_cases(&machine(), Effort::Thorough), SyncPolicy::Direct.point());
        assert!(writes.iter().all(|block| MIN_DIRECT_BLOCKS * block <= MAX_DIRECT_BYTES), "{writes:?}");
        assert_eq!(writes.len(), 6);
    }
}
