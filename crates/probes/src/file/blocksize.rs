//! Bytes per second that one thread reads and writes in order, by block size, one call a block.
//!
//! It shows from which block on the cost of a call no longer matters. It must not be taken for the speed of a device, which
//! needs many requests in flight.

use kelvin_catalogue::file::{
    BLOCK, BLOCKSIZE_READ, BLOCKSIZE_WRITE, CacheState, DEVICE, DEVICE_WRITE, PAGE_READ, PAGE_WRITE, READ_AHEAD,
    SyncPolicy,
};
use kelvin_catalogue::mem::{BANDWIDTH, LATENCY};
use kelvin_file::cache::{self, State};
use kelvin_file::{Access, Engine, How, Order, Pages, Requests, Tally};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Point, Prediction};

use super::ahead::Ahead;
use super::cached;
use super::cases::{known, predictable, state};
use super::data::{self, KIB, MIB, SHARED_BYTES};
use super::expected::{self, Transfer};
use super::proof::Counters;
use super::writing::Overwriter;

pub(super) static READ_PROBE: Probe = Probe {
    id: BLOCKSIZE_READ.id.as_str(),
    summary: "Reading by one thread, by block size: from the page cache, through it, and past it",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One thread reads a file of noise in order by pread, into one buffer used again. cached: 64 MiB, all in \
              memory by mincore and cachestat before and after, read repeatedly, timed in batches. uncached: 16 MiB, \
              dropped by posix_fadvise before each pass until mincore and cachestat find no page of it, and opened \
              afresh, so that the kernel remembers no read-ahead; only the pass itself is timed. direct: O_DIRECT on \
              64 MiB of which nothing is in memory. Where a device would take more than 2 s for those bytes, a file of 4 MiB \
              takes their place, which is noted. The device's own counters must show 95 % of uncached and direct \
              reads. POSIX_FADV_SEQUENTIAL is set, which doubles the kernel's read-ahead.",
        prediction: "cached: block / (a call that finds a page, file.page_read of cached pages in order, + block / \
                     copy). The copy reads memory and writes a buffer: it runs at the speed of memory reads while the \
                     buffer fits half of the L2 cache, beyond that at half the counted bytes of a copy in memory. \
                     uncached: file / (allocating all its pages, which is file.page_read with nothing in memory less \
                     that with all of it, + the longer of calls and copy, and of the device's time for one read-ahead \
                     window after another). A window takes file.device.mean_latency, and what is beyond 4 KiB at \
                     file.device.read; windows grow from a few pages up to file.read_ahead by the kernel's source. The \
                     device is sent a window when all its pages are allocated, and works on it while the one before is \
                     copied. direct: block / (file.device.mean_latency + what is beyond 4 KiB / file.device.read). \
                     Predicted range: a factor of two either way.",
        not_for: "A device with many requests in flight (file.device.read); files read in another order.",
        pitfalls: &[
            "The page cache taken for the disk: the state is proven before each timed part, and checked by the \
             device's counters.",
            "Dropping the cache inside the timed part: only the reads are timed.",
            "Read-ahead of an earlier pass: an uncached file is read to its end and opened afresh.",
            "A file that fits a processor's cache: 64 MiB are more than most hold.",
        ],
        sources: &[
            "dd, with bs, iflag=direct, and iflag=nocache",
            "lmbench bw_file_rd",
            "posix_fadvise(2), mincore(2), cachestat(2)",
        ],
    },
    metrics: &[&BLOCKSIZE_READ],
    inputs: &[BANDWIDTH.as_str(), LATENCY.id.as_str(), DEVICE.as_str(), PAGE_READ.id.as_str(), READ_AHEAD.id.as_str()],
    cases: read_cases,
    run: read,
    predict,
};

pub(super) static WRITE_PROBE: Probe = Probe {
    id: BLOCKSIZE_WRITE.id.as_str(),
    summary: "Writing by one thread, by block size: into the page cache, and past it",
    kind: ProbeKind::Measure,
    method: Method {
        how: "One thread writes over a file of noise of 64 MiB in order by pwrite, from one buffer. Nothing is \
              flushed: the sync policy names what a call waits for. buffered: the file is all in memory by mincore and \
              cachestat, before and after, and is written over repeatedly, timed in batches; it is never flushed. \
              direct: O_DIRECT, with noise in which no two blocks of 4 KiB are alike; blocks are timed one by one \
              until the round's time is over or 12 MiB are written, three at least, and the figure is their bytes over \
              their time. The device's own counters must show 95 % of them.",
        prediction: "buffered: block / (file.page_write of one page + the added time of a second page there, once for \
                     each further page + block / copy). The copy runs at the speed of memory writes while the buffer \
                     fits half of the L2 cache, beyond that at half the counted bytes of a copy in memory. So the file \
                     system's work for a call and for a page is measured apart from the copy, and never on the \
                     predicted figure. direct: block / (file.device.accept + what is beyond 4 KiB / \
                     file.device.write). Predicted range: a factor of two either way.",
        not_for: "How soon data is safe: nothing is flushed. New files, which need blocks allocated.",
        pitfalls: &[
            "Writes acknowledged in memory taken for writes to the disk: the sync policy is part of the case.",
            "A writer throttled because too much of memory is dirty: 64 MiB are far below that limit.",
            "Drives that compress or deduplicate: every 4 KiB of a direct write is different.",
        ],
        sources: &[
            "dd, with bs, conv=notrunc, and oflag=direct",
            "Documentation/admin-guide/sysctl/vm.rst on dirty_background_ratio",
        ],
    },
    metrics: &[&BLOCKSIZE_WRITE],
    inputs: &[PAGE_WRITE.id.as_str(), BANDWIDTH.as_str(), DEVICE_WRITE.id.as_str()],
    cases: write_cases,
    run: write,
    predict,
};

/// Size of the file that is read whole each time: small, as each pass takes disk time, but longer than read-ahead needs to
/// begin.
const WHOLE: u64 = 16 * MIB;
/// Most bytes of direct writes in a round, and fewest blocks.
const MOST_WRITTEN: u64 = 12 * MIB;
const FEWEST_BLOCKS: u64 = 3;

const SMALLEST: u64 = 512;
const LARGEST: u64 = 16 * MIB;
/// The smallest block that every device takes past the page cache.
const PAGE: u64 = 4 * KIB;

/// The sizes of each effort, between the smallest and the largest that make sense.
fn blocks(effort: Effort, at: impl Into<Point>, least: u64, most: u64) -> Vec<Case> {
    let mut all = match effort {
        Effort::Quick => vec![PAGE, MIB],
        Effort::Default => vec![SMALLEST, PAGE, 64 * KIB, MIB, LARGEST],
        Effort::Thorough => (SMALLEST.ilog2()..=LARGEST.ilog2()).map(|power| 1 << power).collect(),
    };
    all.retain(|&block| (least..=most).contains(&block));
    let at = at.into();
    all.into_iter().map(|block| Case::new().with(BLOCK, block).at(at)).collect()
}

fn read_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    // An uncached pass takes long, and beyond a mebibyte nothing changes.
    let most = if effort == Effort::Thorough { LARGEST } else { MIB };
    [
        blocks(effort, CacheState::Cached, SMALLEST, LARGEST),
        blocks(effort, CacheState::Uncached, PAGE, most),
        blocks(effort, CacheState::Direct, PAGE, LARGEST),
    ]
    .concat()
}

fn write_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    // Three blocks of more than 4 MiB are more than a round should write, and every size more than a run should.
    let mut direct = blocks(effort, SyncPolicy::Direct, PAGE, 4 * MIB);
    direct.retain(|case| BLOCK.of(case).is_some_and(|block| block.ilog2().is_multiple_of(2)));
    [blocks(effort, SyncPolicy::Buffered, SMALLEST, LARGEST), direct].concat()
}

fn read(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let block = known(BLOCK.of(case), case)?;
    match state(case)? {
        State::Uncached => read_uncached(bench, block),
        state => read_again(bench, block, state),
    }
}

const ORDER: Order = Order::Sequential;

/// Reads blocks repeatedly, from memory or past it.
fn read_again(bench: &mut Bench<'_>, block: u64, state: State) -> Result<(), Stop> {
    let target = match state {
        State::Direct if block <= data::SMALL_BYTES => data::on_device(bench, SHARED_BYTES)?,
        _ => data::file(bench, SHARED_BYTES)?,
    };
    if state == State::Direct {
        data::can_be_direct(&target, block)?;
    }
    let found = cache::bring(&target, state).map_err(data::stopped)?;
    bench.note(format!("before, {found}"));
    let how = How { access: state.access(), block: block as usize, order: ORDER, pages: Pages::Base };
    let mut reader = Engine::Pread.open(&target, how).map_err(data::stopped)?;
    let mut requests = Requests::new(0..target.bytes(), block as usize, ORDER).endless();
    let (mut tally, counters) = (Tally::default(), Counters::look(&target));
    bench.time_work(&BLOCKSIZE_READ, block as f64, |iterations| {
        requests.allow(iterations);
        reader.read(&mut requests, &mut tally).map_err(data::stopped)
    })?;
    let after = if state == State::Direct {
        counters.have_read(tally.bytes)?
    } else {
        cached::still(cache::residency(&target).map_err(data::stopped)?)?
    };
    bench.note_on_last(after);
    Ok(())
}

/// Repeatedly reads a whole file of which nothing is in memory.
fn read_uncached(bench: &mut Bench<'_>, block: u64) -> Result<(), Stop> {
    let target = data::on_device(bench, WHOLE)?;
    let whole = target.bytes();
    let how = How { access: Access::Buffered, block: block as usize, order: ORDER, pages: Pages::Base };
    let (mut tally, counters) = (Tally::default(), Counters::look(&target));
    bench.note(format!("each pass of {} begins with no page in memory", kelvin_model::units::bytes(whole)));
    bench.time_each_work([&BLOCKSIZE_READ], whole as f64, |clock| {
        cache::bring(&target, State::Uncached).map_err(data::stopped)?;
        let mut reader = Engine::Pread.open(&target, how).map_err(data::stopped)?;
        let mut requests = Requests::new(0..whole, block as usize, ORDER);
        let begun = clock.start();
        reader.read(&mut requests, &mut tally).map_err(data::stopped)?;
        Ok([clock.stop().wrapping_sub(begun)])
    })?;
    bench.note_on_last(counters.have_read(tally.bytes)?);
    Ok(())
}

fn write(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let block = known(BLOCK.of(case), case)?;
    match known(SyncPolicy::of(case), case)? {
        SyncPolicy::Buffered => write_buffered(bench, block),
        SyncPolicy::Direct => write_direct(bench, block),
    }
}

/// Writes over a file that is in memory.
fn write_buffered(bench: &mut Bench<'_>, block: u64) -> Result<(), Stop> {
    let target = data::afloat(bench, SHARED_BYTES)?;
    let found = cache::bring(&target, State::Cached).map_err(data::stopped)?;
    bench.note(format!("before, {found}"));
    let mut writer = Overwriter::open(&target, Access::Buffered, block as usize, bench.seed())?;
    let mut requests = Requests::new(0..SHARED_BYTES, block as usize, ORDER).endless();
    bench.time_work(&BLOCKSIZE_WRITE, block as f64, |iterations| {
        requests.allow(iterations);
        requests.by_ref().try_for_each(|request| writer.write(request))
    })?;
    bench.note_on_last(cached::still(cache::residency(&target).map_err(data::stopped)?)?);
    Ok(())
}

/// Writes over a part of a file past the page cache.
fn write_direct(bench: &mut Bench<'_>, block: u64) -> Result<(), Stop> {
    let target = data::scrap(bench, SHARED_BYTES)?;
    data::can_be_direct(&target, block)?;
    bench.may_write(MOST_WRITTEN.max(FEWEST_BLOCKS * block))?;
    let mut writer = Overwriter::open(&target, Access::Direct, block as usize, bench.seed())?;
    let (clock, counters) = (bench.clock(), Counters::look(&target));
    let (mut blocks, mut spent) = (0, 0.0);
    for request in Requests::new(0..SHARED_BYTES, block as usize, ORDER).endless() {
        let enough = spent >= bench.slice() || (blocks + 1) * block > MOST_WRITTEN;
        if blocks >= FEWEST_BLOCKS && enough {
            break;
        }
        writer.renew();
        let begun = clock.start();
        writer.write(request)?;
        spent += bench.nanoseconds(clock.stop().wrapping_sub(begun));
        blocks += 1;
    }
    let written = blocks * block;
    bench.note(counters.have_written(written)?);
    bench.record(&BLOCKSIZE_WRITE, vec![written as f64 * 1e9 / spent]);
    Ok(())
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let block = predictable(BLOCK.of(case), case)?;
    let of_block = match CacheState::of(case) {
        Some(CacheState::Cached) => expected::cached(facts, block)?,
        Some(CacheState::Uncached) => return Ok(Ahead::of(facts, WHOLE, block)?.whole().into_rate_of(WHOLE, "file")),
        Some(CacheState::Direct) => expected::direct(facts, block, Transfer::Read)?,
        None => match predictable(SyncPolicy::of(case), case)? {
            SyncPolicy::Buffered => expected::overwritten(facts, block)?,
            SyncPolicy::Direct => expected::direct(facts, block, Transfer::Write)?,
        },
    };
    Ok(of_block.into_rate(block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts_about, machine};
    use kelvin_catalogue::file::{DEVICE_ACCEPT, DEVICE_MEAN_LATENCY, DEVICE_READ};
    use kelvin_catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_READ};

    fn predicted(case: &Case, known: &[(&str, Option<f64>)]) -> Result<Prediction, NoPrediction> {
        facts_about(known, |facts| predict(facts, &BLOCKSIZE_READ, case))
    }

    fn of(block: u64, at: impl Into<Point>) -> Case {
        Case::new().with(BLOCK, block).at(at)
    }

    const KNOWN: [(&str, Option<f64>); 8] = [
        (PAGE_WRITE.id.as_str(), Some(900.0)),
        (PAGE_READ.id.as_str(), Some(100.0)),
        (BANDWIDTH_COPY.id.as_str(), Some(20e9)),
        (DEVICE_READ.id.as_str(), Some(500e6)),
        (DEVICE_MEAN_LATENCY.id.as_str(), Some(80_000.0)),
        (DEVICE_WRITE.id.as_str(), Some(250e6)),
        (DEVICE_ACCEPT.id.as_str(), Some(40_000.0)),
        (BANDWIDTH_READ.id.as_str(), None),
    ];

    #[test]
    fn rates_are_those_worked_out_by_hand() {
        let read = |block, cache: CacheState| predicted(&of(block, cache), &KNOWN).unwrap().value;
        let written = |block, sync: SyncPolicy| predicted(&of(block, sync), &KNOWN).unwrap().value;
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
        let prediction = predicted(&of(4096, CacheState::Cached), &KNOWN).unwrap();
        assert_eq!(
            prediction.derivation,
            "4 KiB block: 100 ns call with a page found + 4 KiB / 10.0 GB/s copy = 510 ns, so 8.04 GB/s"
        );
        assert_eq!(prediction.inputs.len(), 2);
        assert!((prediction.high / prediction.value - expected::FACTOR).abs() < 1e-9);
    }

    #[test]
    fn direct_blocks_are_whole_pages_and_writes_stay_small() {
        let blocks = |cases: Vec<Case>, at: Point| -> Vec<u64> {
            cases.iter().filter(|case| at.is_of(case)).filter_map(|case| BLOCK.of(case)).collect()
        };
        let reads = |effort, cache: CacheState| blocks(read_cases(&machine(), effort), cache.point());
        assert_eq!(reads(Effort::Quick, CacheState::Direct), [PAGE, MIB]);
        assert_eq!(reads(Effort::Default, CacheState::Direct), [PAGE, 64 * KIB, MIB, 16 * MIB]);
        assert_eq!(reads(Effort::Default, CacheState::Uncached), [PAGE, 64 * KIB, MIB]);
        assert_eq!(reads(Effort::Thorough, CacheState::Cached).len(), 16);
        let writes = blocks(write_cases(&machine(), Effort::Thorough), SyncPolicy::Direct.point());
        assert!(writes.iter().all(|block| FEWEST_BLOCKS * block <= MOST_WRITTEN), "{writes:?}");
        assert_eq!(writes.len(), 6);
    }
}
