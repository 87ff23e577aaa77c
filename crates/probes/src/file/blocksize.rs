//! How many bytes a second one thread reads and writes in blocks of each size, one call a block, in order.
//!
//! It shows from which block on a call no longer counts. It must not be taken for what a device can do, which needs many
//! requests under way.

use kelvin_file::cache::{self, State};
use kelvin_file::{Access, Engine, How, Order, Requests, Tally};
use kelvin_harness::{Bench, Effort, Facts, Kind, Method, Probe, Stop};
use kelvin_model::{Canaries, Case, Machine, Metric, NoPrediction, Overhead, Prediction, Tags, Treatment};

use super::ahead::Ahead;
use super::axes::{BLOCK, CACHE, SYNC, number, state};
use super::cached;
use super::data::{self, KIB, MIB};
use super::device;
use super::expected::{self, Way};
use super::proof::Counters;
use super::writing::Overwriter;
use super::{page_read, page_write, read_ahead};
use crate::memory::bandwidth;

/// One curve for memory and disk: samples count as found, and waiting is no disturbance.
const fn of_both(metric: Metric) -> Metric {
    metric.headline(Treatment::AsFound).overhead(Overhead::ClockPair).canaries(Canaries::NONE).contaminants(Tags::NONE)
}

pub(super) static READ: Metric =
    of_both(Metric::rate("file.blocksize.read", "Bytes read per second by one thread, one pread a block, in order"))
        .over([BLOCK, CACHE])
        .baseline();
pub(super) static WRITE: Metric = of_both(Metric::rate(
    "file.blocksize.write",
    "Bytes written over per second by one thread, one pwrite a block, in order, not flushed",
))
.over([BLOCK, SYNC])
.baseline();

const INPUTS: &[&str] = &[bandwidth::ID, device::ID, page_read::ID, read_ahead::ID];
const WRITE_INPUTS: &[&str] = &[page_write::ID, bandwidth::ID, device::WRITE_ID];

pub(super) static READ_PROBE: Probe = Probe {
    id: "file.blocksize.read",
    summary: "Reading by one thread in blocks of each size: from the page cache, through it, and past it",
    kind: Kind::Measure,
    method: Method {
        how: "One thread reads a file of noise in order by pread, into one buffer that is used again. cached: 64 MiB, all of \
              it in memory by mincore and cachestat before and after, read again and again, timed in batches. uncached: \
              16 MiB, dropped by posix_fadvise before each pass until mincore and cachestat find no page of it, and opened \
              afresh, so that the kernel remembers no read-ahead; only the pass itself is timed. direct: O_DIRECT on 64 MiB \
              of which nothing is in memory. Of uncached and direct reads the device's own counters must show 95 %. The \
              kernel is told that the order is sequential, which doubles its read-ahead.",
        prediction: "cached: block / (a call that finds a page, as file.page_read has it of cached pages in order, + block / \
                     copy). The bytes come from memory and go to a buffer that \
                     stays in the second-level cache while a half of that holds it: then the copy is as fast as memory is \
                     read, beyond it half of what a copy in memory counts. uncached: file / (memory found for all its pages, \
                     which is file.page_read with nothing in memory less that with all of it, + the longer of calls and \
                     copy, and of the device's answers to one window read ahead after another). A window takes \
                     file.device.mean_latency and what is beyond 4 KiB at file.device.read; they grow from a few pages up to \
                     file.read_ahead as the kernel's source has it. The device is asked for a window when memory for \
                     all of it is found, and works on it while the one before is copied. direct: block / (file.device.mean_latency + what is beyond 4 KiB / file.device.read). \
                     Unremarkable within a factor of two.",
        not_for: "What a device can do with many requests under way (file.device.read), and files read in another order.",
        pitfalls: &[
            "The page cache taken for the disk: the state is proven before each timed part, and the device's counters tell.",
            "Dropping the cache inside the timed part: only the reads are timed.",
            "Read-ahead of an earlier pass: an uncached file is read to its end and opened afresh.",
            "A file that a cache of the processor holds: 64 MiB are more than most.",
        ],
        sources: &[
            "dd, with bs, iflag=direct, and iflag=nocache",
            "lmbench bw_file_rd",
            "posix_fadvise(2), mincore(2), cachestat(2)",
        ],
    },
    metrics: &[&READ],
    inputs: INPUTS,
    cases: read_cases,
    run: read,
    predict,
};

pub(super) static WRITE_PROBE: Probe = Probe {
    id: "file.blocksize.write",
    summary: "Writing by one thread in blocks of each size: into the page cache, and past it",
    kind: Kind::Measure,
    method: Method {
        how: "One thread writes over a file of noise of 64 MiB in order by pwrite, from one buffer. Nothing is flushed: the \
              sync policy names what a call waits for. buffered: the file is all in memory by mincore and cachestat, before \
              and after, and is written over again and again, timed in batches; it is never flushed. direct: O_DIRECT, with \
              noise of which no 4 KiB are like any other; blocks are timed one by one until the time of the round is over \
              or 12 MiB are written, three at least, and the figure is their bytes over their time. The device's own \
              counters must show 95 % of them.",
        prediction: "buffered: block / (file.page_write of one page + as often as there are pages more, what two pages take \
                     longer there than one + block / copy), the copy being as fast as memory is written while a half of the \
                     second-level cache holds the buffer, beyond it half of what a copy in memory counts. So what the file \
                     system does for a call and for a page is measured apart from the copy, and never on the figure that \
                     is predicted. direct: block / (file.device.accept + what is beyond 4 KiB / file.device.write). \
                     Unremarkable within a factor of two.",
        not_for: "How soon data is safe: nothing is flushed. New files, for which room must be found.",
        pitfalls: &[
            "Writes acknowledged in memory taken for writes to the disk: the sync policy is part of the case.",
            "A writer that is slowed down because too much of memory is unwritten: 64 MiB are far below that limit.",
            "Drives that compress or find duplicates: every 4 KiB of a direct write is different.",
        ],
        sources: &[
            "dd, with bs, conv=notrunc, and oflag=direct",
            "Documentation/admin-guide/sysctl/vm.rst on dirty_background_ratio",
        ],
    },
    metrics: &[&WRITE],
    inputs: WRITE_INPUTS,
    cases: write_cases,
    run: write,
    predict,
};

/// Size of the file, for what is read or written again and again.
const BYTES: u64 = 64 * MIB;
/// Size of the file that is read whole each time: small, for each pass takes its time on the disk, but longer than what
/// read-ahead needs to begin.
const WHOLE: u64 = 16 * MIB;
/// Most bytes of direct writes in a round, and fewest blocks.
const MOST_WRITTEN: u64 = 12 * MIB;
const FEWEST_BLOCKS: u64 = 3;

const SMALLEST: u64 = 512;
const LARGEST: u64 = 16 * MIB;
/// The smallest block that every device takes past the page cache.
const PAGE: u64 = 4 * KIB;

/// Blocks of each effort, between the smallest and the largest that make sense.
fn blocks(effort: Effort, least: u64, most: u64) -> Vec<u64> {
    let mut all = match effort {
        Effort::Quick => vec![PAGE, MIB],
        Effort::Default => vec![SMALLEST, PAGE, 64 * KIB, MIB, LARGEST],
        Effort::Thorough => (SMALLEST.ilog2()..=LARGEST.ilog2()).map(|power| 1 << power).collect(),
    };
    all.retain(|&block| (least..=most).contains(&block));
    all
}

fn read_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let of = |word, least, most| {
        let case = move |block| Case::new().with(BLOCK, block).with_word(&CACHE.name, word);
        blocks(effort, least, most).into_iter().map(case)
    };
    // An uncached pass takes long, and beyond a mebibyte nothing changes.
    let most = if effort == Effort::Thorough { LARGEST } else { MIB };
    of("cached", SMALLEST, LARGEST).chain(of("uncached", PAGE, most)).chain(of("direct", PAGE, LARGEST)).collect()
}

fn write_cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let of = |word, least, most| {
        let case = move |block| Case::new().with(BLOCK, block).with_word(&SYNC.name, word);
        blocks(effort, least, most).into_iter().map(case)
    };
    // Three blocks of more than 4 MiB are more than a round shall write, and every size more than a run shall.
    let few = |case: &Case| case.integer(&BLOCK.name).is_some_and(|block| block.ilog2().is_multiple_of(2));
    of("buffered", SMALLEST, LARGEST).chain(of("direct", PAGE, 4 * MIB).filter(few)).collect()
}

fn read(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let block = number(case, &BLOCK)?;
    match state(case)? {
        State::Uncached => read_uncached(bench, block),
        state => read_again(bench, block, state),
    }
}

const ORDER: Order = Order::Sequential;

/// Reads blocks on and on, from memory or past it.
fn read_again(bench: &mut Bench<'_>, block: u64, state: State) -> Result<(), Stop> {
    let target = data::file(bench, BYTES)?;
    if state == State::Direct {
        data::can_be_direct(&target, block)?;
    }
    let found = cache::bring(&target, state).map_err(data::stopped)?;
    bench.note(format!("before, {found}"));
    let how = How { access: state.access(), block: block as usize, order: ORDER };
    let mut reader = Engine::Pread.open(&target, how).map_err(data::stopped)?;
    let mut requests = Requests::new(0..BYTES, block as usize, ORDER).endless();
    let (mut tally, counters) = (Tally::default(), Counters::look(&target));
    bench.time_work(&READ, block as f64, |iterations| {
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

/// Reads a whole file of which nothing is in memory, again and again.
fn read_uncached(bench: &mut Bench<'_>, block: u64) -> Result<(), Stop> {
    let target = data::file(bench, WHOLE)?;
    let how = How { access: Access::Buffered, block: block as usize, order: ORDER };
    let (mut tally, counters) = (Tally::default(), Counters::look(&target));
    bench.note(format!("each pass of {} begins after no page is left in memory", expected::bytes(WHOLE)));
    bench.time_each_work([&READ], WHOLE as f64, |clock| {
        cache::bring(&target, State::Uncached).map_err(data::stopped)?;
        let mut reader = Engine::Pread.open(&target, how).map_err(data::stopped)?;
        let mut requests = Requests::new(0..WHOLE, block as usize, ORDER);
        let begun = clock.start();
        reader.read(&mut requests, &mut tally).map_err(data::stopped)?;
        Ok([clock.stop().wrapping_sub(begun)])
    })?;
    bench.note_on_last(counters.have_read(tally.bytes)?);
    Ok(())
}

fn write(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let block = number(case, &BLOCK)?;
    match case.word(&SYNC.name) {
        Some("buffered") => write_buffered(bench, block),
        Some("direct") => write_direct(bench, block),
        other => Err(Stop::fail(format!("the case has sync {other:?}; buffered and direct are known"))),
    }
}

/// Writes over a file that is in memory.
fn write_buffered(bench: &mut Bench<'_>, block: u64) -> Result<(), Stop> {
    let target = data::afloat(bench, BYTES)?;
    let found = cache::bring(&target, State::Cached).map_err(data::stopped)?;
    bench.note(format!("before, {found}"));
    let mut writer = Overwriter::open(&target, Access::Buffered, block as usize, bench.seed())?;
    let mut requests = Requests::new(0..BYTES, block as usize, ORDER).endless();
    bench.time_work(&WRITE, block as f64, |iterations| {
        requests.allow(iterations);
        requests.by_ref().try_for_each(|request| writer.write(request))
    })?;
    bench.note_on_last(cached::still(cache::residency(&target).map_err(data::stopped)?)?);
    Ok(())
}

/// Writes over a part of a file past the page cache.
fn write_direct(bench: &mut Bench<'_>, block: u64) -> Result<(), Stop> {
    let target = data::scrap(bench, BYTES)?;
    data::can_be_direct(&target, block)?;
    bench.may_write(MOST_WRITTEN.max(FEWEST_BLOCKS * block))?;
    let mut writer = Overwriter::open(&target, Access::Direct, block as usize, bench.seed())?;
    let (clock, counters) = (bench.clock(), Counters::look(&target));
    let (mut blocks, mut spent) = (0, 0.0);
    for request in Requests::new(0..BYTES, block as usize, ORDER).endless() {
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
    bench.record(&WRITE, vec![written as f64 * 1e9 / spent]);
    Ok(())
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let block = case.integer(&BLOCK.name).ok_or_else(|| NoPrediction::because("the case does not name a block"))?;
    match (case.word(&CACHE.name), case.word(&SYNC.name)) {
        (Some("cached"), _) => Ok(expected::cached(facts, block)?.into_rate(block)),
        (Some("uncached"), _) => Ok(Ahead::of(facts, WHOLE, block)?.whole().into_rate_of(WHOLE, "file")),
        (Some("direct"), _) => Ok(expected::direct(facts, block, Way::Read)?.into_rate(block)),
        (_, Some("buffered")) => Ok(expected::overwritten(facts, block)?.into_rate(block)),
        (_, Some("direct")) => Ok(expected::direct(facts, block, Way::Write)?.into_rate(block)),
        _ => Err(NoPrediction::because(format!("there is no formula for the case {case}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts_about, machine};

    fn predicted(case: &Case, known: &[(&str, Option<f64>)]) -> Result<Prediction, NoPrediction> {
        facts_about(known, |facts| predict(facts, &READ, case))
    }

    fn of(block: u64, axis: &'static str, word: &'static str) -> Case {
        Case::new().with("block", block).with_word(axis, word)
    }

    const KNOWN: [(&str, Option<f64>); 8] = [
        ("file.page_write", Some(900.0)),
        ("file.page_read", Some(100.0)),
        ("mem.bandwidth.copy", Some(20e9)),
        ("file.device.read", Some(500e6)),
        ("file.device.mean_latency", Some(80_000.0)),
        ("file.device.write", Some(250e6)),
        ("file.device.accept", Some(40_000.0)),
        ("mem.bandwidth.read", None),
    ];

    #[test]
    fn rates_are_those_worked_out_by_hand() {
        let rate = |block, axis, word| predicted(&of(block, axis, word), &KNOWN).unwrap().value;
        // No cache is known: half of the copy, 10 bytes a nanosecond, and 100 ns of call.
        assert!((rate(1000, "cache", "cached") - 5e9).abs() < 1.0);
        // 900 ns of a call with a page, the same with two: no page costs more.
        assert!((rate(1000, "sync", "buffered") - 1e9).abs() < 1.0);
        // 80 us, and 40 KB less 4 KiB at half a byte a nanosecond.
        assert!((rate(44_096, "cache", "direct") - 44_096e9 / 160_000.0).abs() < 1.0);
        assert!((rate(44_096, "sync", "direct") - 44_096e9 / 200_000.0).abs() < 1.0);
    }

    #[test]
    fn a_derivation_names_every_step() {
        let prediction = predicted(&of(4096, "cache", "cached"), &KNOWN).unwrap();
        assert_eq!(
            prediction.derivation,
            "4 KiB block: 100 ns call with a page found + 4 KiB / 10.00 GB/s copy = 510 ns, so 8.04 GB/s"
        );
        assert_eq!(prediction.inputs.len(), 2);
        assert!((prediction.high / prediction.value - expected::FACTOR).abs() < 1e-9);
    }

    #[test]
    fn direct_blocks_are_whole_pages_and_writes_stay_small() {
        let words = |cases: Vec<Case>, axis, word| -> Vec<u64> {
            let of = cases.iter().filter(|case| case.word(axis) == Some(word));
            of.filter_map(|case| case.integer("block")).collect()
        };
        let reads = |effort, word| words(read_cases(&machine(), effort), "cache", word);
        assert_eq!(reads(Effort::Quick, "direct"), [PAGE, MIB]);
        assert_eq!(reads(Effort::Default, "direct"), [PAGE, 64 * KIB, MIB, 16 * MIB]);
        assert_eq!(reads(Effort::Default, "uncached"), [PAGE, 64 * KIB, MIB]);
        assert_eq!(reads(Effort::Thorough, "cached").len(), 16);
        let writes = words(write_cases(&machine(), Effort::Thorough), "sync", "direct");
        assert!(writes.iter().all(|block| FEWEST_BLOCKS * block <= MOST_WRITTEN), "{writes:?}");
        assert_eq!(writes.len(), 6);
    }
}
