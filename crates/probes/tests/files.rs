//! The measures of files run once for real, on the disk that holds the build: what they claim is what the counters say.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kelvin_model::{Attempt, Case, Reading, Readings};

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
fn of<'a>(readings: &'a [Reading], metric: &str) -> &'a Reading {
    readings.iter().find(|reading| reading.metric == *metric).unwrap_or_else(|| panic!("no {metric}"))
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
    let Some(readings) = scratch.measure("file.device", &Case::new()) else { return };
    let (stream, single) = (of(&readings, "file.device.read"), of(&readings, "file.device.latency"));
    for reading in [stream, single] {
        assert!(says(reading, "bytes that were read"), "{:?}", reading.notes);
    }
    let (mean, many) = (of(&readings, "file.device.mean_latency"), of(&readings, "file.device.requests"));
    assert!((1e3..1e9).contains(&common::median(mean)), "{}", common::median(mean));
    assert!(says(many, "bytes that were read") && common::median(many) > 1.0, "{many:?}");
    let repeat = of(&readings, "file.device.repeat");
    assert!(says(repeat, "the first pass over the file after it was written ran at"), "{:?}", repeat.notes);
    // The file was read whole once before, in the same way.
    assert!((0.02..50.0).contains(&common::median(repeat)), "{}", common::median(repeat));
    // From a memory card to the fastest of buses; more than a system call takes.
    assert!((MIB..100e9).contains(&rate(stream)), "{}", rate(stream));
    assert!((1e3..1e9).contains(&common::median(single)), "{}", common::median(single));
    // One small block at a time never gets what many large ones do.
    assert!(above(|| {
        let again = scratch.measure("file.device", &Case::new())?;
        let small = 4096.0 * 1e9 / value(&again, "file.device.latency");
        Some((rate(of(&again, "file.device.read")), small))
    }));
    assert_eq!(scratch.left(), ["kelvin-data-67108864", "kelvin-data-67108864.first-pass"]);
}

#[test]
fn a_byte_in_a_page_is_more_than_a_null_call_and_pages_are_all_in_memory() {
    let scratch = Scratch::new();
    for (pages, order) in [(1u64, "sequential"), (2, "random")] {
        let case = Case::new().with("pages", pages).with_word("order", order);
        let Some(readings) = scratch.measure("file.page_write", &case) else { return };
        let write = of(&readings, "file.page_write");
        // No call with work takes less than 50 ns, and none in memory a hundred microseconds.
        let time = value(&readings, "file.page_write");
        assert!((50.0..100_000.0).contains(&time), "{case}: {time}");
        assert!(says(write, "before, ") && says(write, "afterwards, "), "{:?}", write.notes);
    }
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864"]);
}

#[test]
fn a_page_that_is_not_in_memory_is_more_than_one_that_is_and_no_device_is_asked() {
    let scratch = Scratch::new();
    let case = |cache, order| Case::new().with_word("cache", cache).with_word("order", order);
    let pages = |cache, order| Some(value(&scratch.measure("file.page_read", &case(cache, order))?, "file.page_read"));
    // No call with work takes less than 50 ns.
    assert!(pages("cached", "sequential").is_none_or(|time| (50.0..100_000.0).contains(&time)));
    for order in ["sequential", "random"] {
        assert!(above(|| Some((pages("uncached", order)?, pages("cached", order)?))));
    }
    // Without read-ahead each page is found by itself.
    assert!(above(|| Some((pages("uncached", "random")?, pages("uncached", "sequential")?))));
    let Some(readings) = scratch.measure("file.read_ahead", &Case::new()) else { return };
    let window = of(&readings, "file.read_ahead");
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
    let Some(readings) = scratch.measure("file.device.write", &Case::new()) else { return };
    let stream = of(&readings, "file.device.write");
    assert!(says(stream, "bytes that were written"), "{:?}", stream.notes);
    assert!((MIB..100e9).contains(&rate(stream)), "{}", rate(stream));
    let [accepted, durable] =
        ["accept", "write_latency"].map(|metric| common::median(of(&readings, &format!("file.device.{metric}"))));
    assert!(1e3 < accepted && 1e3 < durable, "{accepted} ns and {durable} ns");
    // What is flushed was accepted before.
    assert!(above(|| {
        let again = scratch.measure("file.device.write", &Case::new())?;
        Some((value(&again, "file.device.write_latency"), value(&again, "file.device.accept")))
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
    for id in ["file.device", "file.device.write"] {
        let attempt = common::run_probe_in(&scratch.0, id, &Case::new(), SLICE);
        assert!(
            matches!(&attempt, Attempt::Skipped(reason) if reason.0.contains("past the page cache")),
            "{id}: {attempt:?}"
        );
    }
}

/// The rate of reading or writing in blocks of so many bytes.
fn block_rate(
    scratch: &Scratch,
    direction: &str,
    block: u64,
    (axis, word): (&'static str, &'static str),
) -> Option<f64> {
    let case = Case::new().with("block", block).with_word(axis, word);
    let readings = scratch.measure(&format!("file.blocksize.{direction}"), &case)?;
    let reading = of(&readings, &format!("file.blocksize.{direction}"));
    let proof = match word {
        // All of them, but for what was reclaimed meanwhile.
        "cached" | "buffered" => " of 16384 pages in memory",
        _ => "bytes that were",
    };
    assert!(says(reading, proof) || says(reading, "no device's counters tell"), "{case}: {:?}", reading.notes);
    Some(rate(reading))
}

#[test]
fn larger_blocks_are_read_faster_and_memory_faster_than_the_disk() {
    let scratch = Scratch::new();
    let rate = |block, cache| block_rate(&scratch, "read", block, ("cache", cache));
    assert!(above(|| Some((rate(1 << 20, "cached")?, 2.0 * rate(512, "cached")?))));
    assert!(above(|| Some((rate(4096, "cached")?, rate(4096, "uncached")?))));
    assert!(above(|| Some((rate(1 << 20, "direct")?, 2.0 * rate(4096, "direct")?))));
}

#[test]
fn larger_blocks_are_written_faster_and_nothing_but_the_shared_files_stays() {
    let scratch = Scratch::new();
    let rate = |block, sync| block_rate(&scratch, "write", block, ("sync", sync));
    assert!(above(|| Some((rate(1 << 20, "buffered")?, 2.0 * rate(512, "buffered")?))));
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864"]);
    if rate(4096, "direct").is_none() {
        return;
    }
    assert!(above(|| Some((rate(1 << 20, "direct")?, 2.0 * rate(4096, "direct")?))));
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864", "kelvin-scrap-67108864"]);
}

fn value(readings: &[Reading], metric: &str) -> f64 {
    common::median(of(readings, metric))
}

#[test]
fn read_ahead_makes_reading_in_order_faster_and_the_tail_is_no_shorter_than_the_mean() {
    let scratch = Scratch::new();
    let read = |order, cache| {
        let case = Case::new().with("bytes", 16 << 20).with_word("order", order).with_word("cache", cache);
        scratch.measure("file.seqrand", &case)
    };
    let (Some(in_order), Some(random)) = (read("sequential", "uncached"), read("random", "uncached")) else { return };
    let mean = |order| Some(value(&read(order, "uncached")?, "file.seqrand"));
    assert!(above(|| Some((mean("random")?, 2.0 * mean("sequential")?))));
    for readings in [in_order, random] {
        let mean = of(&readings, "file.seqrand");
        assert!(says(mean, "bytes that were read") && says(mean, "reads half took at most"), "{:?}", mean.notes);
    }
    let Some(direct) = read("random", "direct") else { return };
    // One in a hundred that takes a hundred times as long makes the mean twice the others.
    assert!(value(&direct, "file.seqrand.p99") >= 0.1 * value(&direct, "file.seqrand"));
    assert_eq!(scratch.left(), ["kelvin-data-16777216", "kelvin-data-16777216.first-pass"]);
}

#[test]
fn more_requests_under_way_are_more_requests_a_second_by_littles_law() {
    let scratch = Scratch::new();
    let read = |depth| scratch.measure("file.depth", &Case::new().with("depth", depth));
    let (Some(one), Some(many)) = (read(1), read(16)) else { return };
    for (readings, depth) in [(&one, 1.0), (&many, 16.0)] {
        let [rate, latency, achieved] =
            ["rate", "latency", "achieved"].map(|metric| value(readings, &format!("file.depth.{metric}")));
        assert!((rate * latency / 1e9 / achieved - 1.0).abs() < 1e-9);
        // On a busy machine a request that is done may wait to be followed by the next one.
        assert!(achieved > 0.5 * depth && achieved < 1.05 * depth, "{achieved} of {depth}");
        let first = of(readings, "file.depth.rate");
        assert!(says(first, "requests were asked to be under way"), "{:?}", first.notes);
    }
    // A device that served one at a time would be no faster; none is that slow with 16.
    let rate = |depth| Some(value(&read(depth)?, "file.depth.rate"));
    assert!(above(|| Some((rate(16)?, rate(1)?))));
}

#[test]
fn a_device_that_many_read_from_makes_each_wait() {
    let scratch = Scratch::new();
    let read = |threads, files| {
        let case = Case::new().with("threads", threads).with_word("files", files);
        scratch.measure("file.contention", &case)
    };
    let Some(one) = read(1, "own") else { return };
    let time = |threads| Some(value(&read(threads, "own")?, "file.contention"));
    assert!(above(|| Some((time(8)?, time(1)?))));
    assert!(says(of(&one, "file.contention"), "Jain's index: 1.000"));
    // One file for each thread, of which the first is that of other measures.
    assert_eq!(scratch.left().len(), 8 + 1);
    let shared = read(3, "shared").unwrap();
    assert!(says(of(&shared, "file.contention"), "fairness among 3 threads"));
}

#[test]
fn threads_read_from_memory_faster_than_from_the_disk() {
    let scratch = Scratch::new();
    let read = |threads, cache| {
        let case = Case::new().with("threads", threads).with("block", 65536).with_word("cache", cache);
        scratch.measure("file.threads", &case)
    };
    let cached = read(4, "cached").unwrap();
    let note = "16384 of 16384 pages in memory by mincore";
    assert!(says(of(&cached, "file.threads"), &format!("before, {note}")), "{:?}", cached[0].notes);
    let Some(uncached) = read(4, "uncached") else { return };
    assert!(says(of(&uncached, "file.threads"), "before, 0 of 16384 pages"), "{:?}", uncached[0].notes);
    let rate = |cache| Some(value(&read(4, cache)?, "file.threads"));
    assert!(above(|| Some((rate("cached")?, rate("uncached")?))));
}
