//! The measures of files run once for real, on the disk that holds the build: what they claim is what the counters say.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kelvin_catalogue::file::{
    AccessOrder, BLOCK, BLOCKSIZE_READ, BLOCKSIZE_WRITE, BYTES, CONTENTION, CacheState, DEPTH, DEPTH_ACHIEVED,
    DEPTH_LATENCY, DEPTH_RATE, DEVICE, DEVICE_ACCEPT, DEVICE_LATENCY, DEVICE_MEAN_LATENCY, DEVICE_READ, DEVICE_REPEAT,
    DEVICE_REQUESTS, DEVICE_WRITE, DEVICE_WRITE_LATENCY, FileSharing, PAGE_READ, PAGE_WRITE, PAGES, QUEUE_DEPTH,
    READ_AHEAD, SEQRAND, SEQRAND_P99, SyncPolicy, THREAD_COUNT, THREADS,
};
use kelvin_model::{Attempt, Case, Metric, Point, Reading, Readings};

/// Milliseconds of the timed part.
const SLICE: u64 = 10;

/// A scratch directory on the disk that holds the build, removed when dropped. There is one at a time: tests that use the
/// disk together would measure each other.
struct Scratch(PathBuf, #[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

static IN_USE: Mutex<()> = Mutex::new(());

impl Scratch {
    fn new() -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    fn within(directory: &Path) -> Self {
        let only = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = directory.join(format!("kelvin-files-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path, only)
    }

    /// What a probe reads; `None`, and said, where this disk has not what it needs.
    #[allow(clippy::print_stderr)]
    fn measure(&self, id: &str, case: &Case) -> Option<Vec<Reading>> {
        let mut attempts = (0..5).map(|_| common::run_probe_in(&self.0, id, case, SLICE));
        // Others may use the disk, and so may a round's requests be held up while no more are made: that round is lost in a
        // run too.
        let held_up =
            |attempt: &Attempt| matches!(attempt, Attempt::Failed(why) if why.contains("Little's law does not"));
        match attempts.find(|attempt| !held_up(attempt)) {
            Some(Attempt::Measured(readings)) => Some(readings),
            Some(Attempt::Skipped(reason)) => {
                eprintln!("{id} {case} skipped: {reason}");
                None
            }
            Some(Attempt::Failed(reason)) => panic!("{id} {case}: {reason}"),
            None => panic!("{id} {case}: Little's law did not hold in any of five rounds"),
        }
    }

    /// Names of the files that are left, without the ledger.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "written");
        names.sort_unstable();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The reading of a metric.
fn of<'a>(readings: &'a [Reading], metric: &Metric) -> &'a Reading {
    readings.iter().find(|reading| reading.metric == metric.id).unwrap_or_else(|| panic!("no {}", metric.id))
}

/// The median of a reading as a rate in bytes per second.
fn rate(reading: &Reading) -> f64 {
    match &reading.readings {
        Readings::Batches(batches) => batches.work_per_iteration * 1e9 / common::median(reading),
        Readings::Scalars(_) => common::median(reading),
    }
}

/// Whether one figure is above another, once in six tries: others may use the disk in the middle of one.
fn above(figures: impl Fn() -> Option<(f64, f64)>) -> bool {
    (0..6).any(|_| figures().is_none_or(|(higher, lower)| higher > lower))
}

/// Whether a note of a reading says this.
fn says(reading: &Reading, words: &str) -> bool {
    reading.notes.iter().any(|note| note.contains(words))
}

const MIB: f64 = 1048576.0;

#[test]
fn the_device_counts_what_is_read_from_it() {
    let scratch = Scratch::new();
    let Some(readings) = scratch.measure(&DEVICE, &Case::new()) else { return };
    let (stream, single) = (of(&readings, &DEVICE_READ), of(&readings, &DEVICE_LATENCY));
    for reading in [stream, single] {
        assert!(says(reading, "bytes that were read"), "{:?}", reading.notes);
    }
    let (mean, many) = (of(&readings, &DEVICE_MEAN_LATENCY), of(&readings, &DEVICE_REQUESTS));
    assert!((1e3..1e9).contains(&common::median(mean)), "{}", common::median(mean));
    assert!(says(many, "bytes that were read") && common::median(many) > 1.0, "{many:?}");
    let repeat = of(&readings, &DEVICE_REPEAT);
    assert!(says(repeat, "the first pass over the file after it was written ran at"), "{:?}", repeat.notes);
    // The file was read whole once before, in the same way.
    assert!((0.02..50.0).contains(&common::median(repeat)), "{}", common::median(repeat));
    // From a memory card to the fastest of buses; more than a system call takes.
    assert!((MIB..100e9).contains(&rate(stream)), "{}", rate(stream));
    assert!((1e3..1e9).contains(&common::median(single)), "{}", common::median(single));
    // One small block at a time never gets what many large ones do.
    assert!(above(|| {
        let again = scratch.measure(&DEVICE, &Case::new())?;
        let small = 4096.0 * 1e9 / value(&again, &DEVICE_LATENCY);
        Some((rate(of(&again, &DEVICE_READ)), small))
    }));
    assert_eq!(scratch.left(), ["kelvin-data-67108864", "kelvin-data-67108864.first-pass"]);
}

#[test]
fn a_byte_in_a_page_is_more_than_a_null_call_and_pages_are_all_in_memory() {
    let scratch = Scratch::new();
    for (pages, order) in [(1, AccessOrder::Sequential), (2, AccessOrder::Random)] {
        let case = Case::new().with(PAGES, pages).at(order);
        let Some(readings) = scratch.measure(&PAGE_WRITE.id, &case) else { return };
        let write = of(&readings, &PAGE_WRITE);
        // No call with work takes less than 50 ns, and none in memory a hundred microseconds.
        let time = value(&readings, &PAGE_WRITE);
        assert!((50.0..100_000.0).contains(&time), "{case}: {time}");
        assert!(says(write, "before, ") && says(write, "afterwards, "), "{:?}", write.notes);
    }
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864"]);
}

#[test]
fn a_page_that_is_not_in_memory_is_more_than_one_that_is_and_no_device_is_asked() {
    let scratch = Scratch::new();
    let pages = |cache: CacheState, order: AccessOrder| {
        Some(value(&scratch.measure(&PAGE_READ.id, &Case::new().at(cache).at(order))?, &PAGE_READ))
    };
    // No call with work takes less than 50 ns.
    assert!(pages(CacheState::Cached, AccessOrder::Sequential).is_none_or(|time| (50.0..100_000.0).contains(&time)));
    for &order in AccessOrder::ALL {
        assert!(above(|| Some((pages(CacheState::Uncached, order)?, pages(CacheState::Cached, order)?))));
    }
    // Without read-ahead each page is found by itself.
    assert!(above(|| Some((
        pages(CacheState::Uncached, AccessOrder::Random)?,
        pages(CacheState::Uncached, AccessOrder::Sequential)?
    ))));
    let Some(readings) = scratch.measure(&READ_AHEAD.id, &Case::new()) else { return };
    let window = of(&readings, &READ_AHEAD);
    let bytes = common::median(window);
    assert!((4096.0..=64.0 * MIB).contains(&bytes) && bytes % 4096.0 == 0.0, "{bytes}");
    assert!(says(window, "read ahead, one after another: "), "{:?}", window.notes);
    assert_eq!(scratch.left(), ["kelvin-data-67108864", "kelvin-data-67108864.first-pass", "kelvin-hole-67108864"]);
    let hole = std::fs::metadata(scratch.0.join("kelvin-hole-67108864")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&hole), 0);
}

#[test]
fn the_device_counts_what_is_written_to_it() {
    let scratch = Scratch::new();
    let Some(readings) = scratch.measure(&DEVICE_WRITE.id, &Case::new()) else { return };
    let stream = of(&readings, &DEVICE_WRITE);
    assert!(says(stream, "bytes that were written"), "{:?}", stream.notes);
    assert!((MIB..100e9).contains(&rate(stream)), "{}", rate(stream));
    let [accepted, durable] = [&DEVICE_ACCEPT, &DEVICE_WRITE_LATENCY].map(|metric| value(&readings, metric));
    assert!(1e3 < accepted && 1e3 < durable, "{accepted} ns and {durable} ns");
    // What is flushed was accepted before.
    assert!(above(|| {
        let again = scratch.measure(&DEVICE_WRITE.id, &Case::new())?;
        Some((value(&again, &DEVICE_WRITE_LATENCY), value(&again, &DEVICE_ACCEPT)))
    }));
    assert_eq!(scratch.left(), ["kelvin-scrap-67108864"]);
}

#[test]
fn memory_is_no_device() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let scratch = Scratch::within(shm);
    for id in [DEVICE, DEVICE_WRITE.id] {
        let attempt = common::run_probe_in(&scratch.0, &id, &Case::new(), SLICE);
        assert!(
            matches!(&attempt, Attempt::Skipped(reason) if reason.0.contains("past the page cache")),
            "{id}: {attempt:?}"
        );
    }
}

/// The rate of reading or writing in blocks of so many bytes.
fn block_rate(scratch: &Scratch, metric: &Metric, block: u64, at: Point) -> Option<f64> {
    let case = Case::new().with(BLOCK, block).at(at);
    let readings = scratch.measure(&metric.id, &case)?;
    let reading = of(&readings, metric);
    let in_memory = [CacheState::Cached.point(), SyncPolicy::Buffered.point()].contains(&at);
    // All of them, but for what was reclaimed meanwhile.
    let proof = if in_memory { " of 16384 pages in memory" } else { "bytes that were" };
    assert!(says(reading, proof) || says(reading, "no device's counters tell"), "{case}: {:?}", reading.notes);
    Some(rate(reading))
}

#[test]
fn larger_blocks_are_read_faster_and_memory_faster_than_the_disk() {
    let scratch = Scratch::new();
    let rate = |block, cache: CacheState| block_rate(&scratch, &BLOCKSIZE_READ, block, cache.point());
    assert!(above(|| Some((rate(1 << 20, CacheState::Cached)?, 2.0 * rate(512, CacheState::Cached)?))));
    assert!(above(|| Some((rate(4096, CacheState::Cached)?, rate(4096, CacheState::Uncached)?))));
    assert!(above(|| Some((rate(1 << 20, CacheState::Direct)?, 2.0 * rate(4096, CacheState::Direct)?))));
}

#[test]
fn larger_blocks_are_written_faster_and_nothing_but_the_shared_files_stays() {
    let scratch = Scratch::new();
    let rate = |block, sync: SyncPolicy| block_rate(&scratch, &BLOCKSIZE_WRITE, block, sync.point());
    assert!(above(|| Some((rate(1 << 20, SyncPolicy::Buffered)?, 2.0 * rate(512, SyncPolicy::Buffered)?))));
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864"]);
    if rate(4096, SyncPolicy::Direct).is_none() {
        return;
    }
    assert!(above(|| Some((rate(1 << 20, SyncPolicy::Direct)?, 2.0 * rate(4096, SyncPolicy::Direct)?))));
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864", "kelvin-scrap-67108864"]);
}

fn value(readings: &[Reading], metric: &Metric) -> f64 {
    common::median(of(readings, metric))
}

#[test]
fn read_ahead_makes_reading_in_order_faster_and_the_tail_is_no_shorter_than_the_mean() {
    let scratch = Scratch::new();
    let read = |order: AccessOrder, cache: CacheState| {
        scratch.measure(&SEQRAND.id, &Case::new().with(BYTES, 16 << 20).at(order).at(cache))
    };
    let uncached = |order| read(order, CacheState::Uncached);
    let [Some(in_order), Some(random)] = [AccessOrder::Sequential, AccessOrder::Random].map(uncached) else { return };
    let mean = |order| Some(value(&uncached(order)?, &SEQRAND));
    assert!(above(|| Some((mean(AccessOrder::Random)?, 2.0 * mean(AccessOrder::Sequential)?))));
    for readings in [in_order, random] {
        let mean = of(&readings, &SEQRAND);
        assert!(says(mean, "bytes that were read") && says(mean, "reads half took at most"), "{:?}", mean.notes);
    }
    let Some(direct) = read(AccessOrder::Random, CacheState::Direct) else { return };
    // One in a hundred that takes a hundred times as long makes the mean twice the others.
    assert!(value(&direct, &SEQRAND_P99) >= 0.1 * value(&direct, &SEQRAND));
    assert_eq!(scratch.left(), ["kelvin-data-16777216", "kelvin-data-16777216.first-pass"]);
}

#[test]
fn more_requests_under_way_are_more_requests_a_second_by_littles_law() {
    let scratch = Scratch::new();
    let read = |depth| scratch.measure(&DEPTH, &Case::new().with(QUEUE_DEPTH, depth));
    let (Some(one), Some(many)) = (read(1), read(16)) else { return };
    for (readings, depth) in [(&one, 1.0), (&many, 16.0)] {
        let [rate, latency, achieved] =
            [&DEPTH_RATE, &DEPTH_LATENCY, &DEPTH_ACHIEVED].map(|metric| value(readings, metric));
        assert!((rate * latency / 1e9 / achieved - 1.0).abs() < 1e-9);
        // On a busy machine a request that is done may wait to be followed by the next one.
        assert!(achieved > 0.5 * depth && achieved < 1.05 * depth, "{achieved} of {depth}");
        let first = of(readings, &DEPTH_RATE);
        assert!(says(first, "requests were asked to be under way"), "{:?}", first.notes);
    }
    // A device that served one at a time would be no faster; none is that slow with 16.
    let rate = |depth| Some(value(&read(depth)?, &DEPTH_RATE));
    assert!(above(|| Some((rate(16)?, rate(1)?))));
}

#[test]
fn a_device_that_many_read_from_makes_each_wait() {
    let scratch = Scratch::new();
    let read = |threads, files: FileSharing| {
        scratch.measure(&CONTENTION.id, &Case::new().with(THREAD_COUNT, threads).at(files))
    };
    let Some(one) = read(1, FileSharing::Own) else { return };
    let time = |threads| Some(value(&read(threads, FileSharing::Own)?, &CONTENTION));
    assert!(above(|| Some((time(8)?, time(1)?))));
    assert!(says(of(&one, &CONTENTION), "Jain's index: 1.000"));
    // One file for each thread, of which the first is that of other measures.
    assert_eq!(scratch.left().len(), 8 + 1);
    let shared = read(3, FileSharing::Shared).unwrap();
    assert!(says(of(&shared, &CONTENTION), "fairness among 3 threads"));
}

#[test]
fn threads_read_from_memory_faster_than_from_the_disk() {
    let scratch = Scratch::new();
    let read = |threads, cache: CacheState| {
        scratch.measure(&THREADS.id, &Case::new().with(THREAD_COUNT, threads).with(BLOCK, 65536).at(cache))
    };
    let cached = read(4, CacheState::Cached).unwrap();
    let note = "16384 of 16384 pages in memory by mincore";
    assert!(says(of(&cached, &THREADS), &format!("before, {note}")), "{:?}", cached[0].notes);
    let Some(uncached) = read(4, CacheState::Uncached) else { return };
    assert!(says(of(&uncached, &THREADS), "before, 0 of 16384 pages"), "{:?}", uncached[0].notes);
    let rate = |cache| Some(value(&read(4, cache)?, &THREADS));
    assert!(above(|| Some((rate(CacheState::Cached)?, rate(CacheState::Uncached)?))));
}
