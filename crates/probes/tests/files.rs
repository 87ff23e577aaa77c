//! The file probes run once for real, on the disk that holds the build: what they claim is what the counters show.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Directories, median, of};
use kelvin_model::{Attempt, Case, Point, Reading, Readings};

/// Milliseconds of the timed part.
const SLICE: u64 = 10;

/// A scratch directory on the disk that holds the build, removed when dropped. There is one at a time: tests that share the
/// disk would measure each other.
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

    /// The same, where so many nanoseconds are what the device was found to take for the file by which a slow one is known.
    fn on_device(taking: u64) -> Self {
        let scratch = Self::new();
        std::fs::write(scratch.0.join("kelvin-data-4194304.read-in"), taking.to_string()).unwrap();
        scratch
    }

    /// A probe's readings; `None`, and printed, where this disk lacks what it needs.
    fn measure(&self, id: &str, case: &Case) -> Option<Vec<Reading>> {
        common::measure_if_possible_at(&Directories::scratch(&self.0), id, case, SLICE)
    }

    /// Names of the files left, without the ledger.
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

/// Nanoseconds for 4 MiB at 1 GB/s, and at 7 MB/s.
const FAST: u64 = 4_200_000;
const SLOW: u64 = 600_000_000;

/// Whether a note of a reading says this.
fn says(reading: &Reading, words: &str) -> bool {
    reading.notes.iter().any(|note| note.contains(words))
}

#[test]
fn the_device_counts_what_is_read_from_it() {
    let scratch = Scratch::on_device(FAST);
    let Some(readings) = scratch.measure("file.device", &Case::new()) else { return };
    let (stream, single) = (of(&readings, "file.device.read"), of(&readings, "file.device.latency"));
    for reading in [stream, single] {
        assert!(says(reading, "that were read"), "{:?}", reading.notes);
    }
    of(&readings, "file.device.mean_latency");
    assert!(says(of(&readings, "file.device.requests"), "that were read"), "{readings:?}");
    let repeat = of(&readings, "file.device.repeat");
    assert!(says(repeat, "the first pass over the file after it was written ran at"), "{:?}", repeat.notes);
    let small = ["kelvin-data-4194304", "kelvin-data-4194304.first-pass", "kelvin-data-4194304.read-in"];
    let shared = ["kelvin-data-67108864", "kelvin-data-67108864.first-pass"];
    assert_eq!(scratch.left(), [&small[..], &shared].concat());
}

#[test]
fn less_is_read_of_a_slow_device() {
    let scratch = Scratch::on_device(SLOW);
    let read = |block, cache| Case::new().with("block", block).at(Point::named("cache", cache));
    for (id, metric, case) in [
        ("file.device", "file.device.read", Case::new()),
        ("file.blocksize.read", "file.blocksize.read", read(4096, "uncached")),
        ("file.blocksize.read", "file.blocksize.read", read(1 << 20, "direct")),
        ("file.threads", "file.threads", read(65536, "uncached").with("threads", 4)),
        ("file.depth", "file.depth.rate", Case::new().with("depth", 16)),
    ] {
        let Some(readings) = scratch.measure(id, &case) else { return };
        assert!(says(of(&readings, metric), "on a file of 4 MiB"), "{id} {case}: {readings:?}");
    }
    // What is in memory is not read from the device in each round, and a block of 16 MiB needs a file that holds it.
    let small = scratch.left();
    assert!(small.iter().all(|name| name.starts_with("kelvin-data-4194304")), "{small:?}");
    for (cache, block) in [("cached", 4096), ("direct", 16 << 20)] {
        let Some(readings) = scratch.measure("file.blocksize.read", &read(block, cache)) else { return };
        assert!(!says(of(&readings, "file.blocksize.read"), "on a file of 4 MiB"), "{cache} {readings:?}");
    }
}

#[test]
fn files_are_left_alone_and_looked_at_once_they_were_idle_for_a_minute() {
    let scratch = Scratch::new();
    let id = "file.idle";
    let Some(left) = scratch.measure(id, &Case::new()) else { return };
    assert!(matches!(&left[..], [one] if one.readings == Readings::Scalars(Vec::new())), "{left:?}");
    let early = common::run_probe_in(&scratch.0, id, &Case::new(), SLICE);
    assert!(matches!(&early, Attempt::Skipped(why) if why.0.contains("needs more than 1 min 0 s")), "{early:?}");
    // As if that had been an hour ago.
    let hour = 3_600_000_000_000;
    let then = kelvin_sys::clock::monotonic().saturating_sub(hour);
    std::fs::write(scratch.0.join("kelvin-idle.left"), then.to_string()).unwrap();
    let Some(found) = scratch.measure(id, &Case::new()) else { return };
    let of = |at: usize| match &found[at].readings {
        Readings::Scalars(values) => values[0],
        other => panic!("{other:?}"),
    };
    assert!((0.0..=1.0).contains(&of(0)), "{found:?}");
    assert!(of(1) >= hour.min(kelvin_sys::clock::monotonic()) as f64 || then == 0, "{found:?}");
    assert!(says(&found[0], "pages in memory by mincore"), "{found:?}");
}

#[test]
fn a_byte_is_written_to_pages_that_are_all_in_memory() {
    let scratch = Scratch::new();
    for (pages, order) in [(1u64, "sequential"), (2, "random")] {
        let case = Case::new().with("pages", pages).at(Point::named("order", order));
        let Some(readings) = scratch.measure("file.page_write", &case) else { return };
        let write = of(&readings, "file.page_write");
        assert!(says(write, "before, ") && says(write, "afterwards, "), "{:?}", write.notes);
    }
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864"]);
}

#[test]
fn a_page_that_is_not_in_memory_is_a_hole_and_needs_no_device() {
    let scratch = Scratch::new();
    for cache in ["cached", "uncached"] {
        for order in ["sequential", "random"] {
            let case = Case::new().at(Point::named("cache", cache)).at(Point::named("order", order));
            scratch.measure("file.page_read", &case);
        }
    }
    let Some(readings) = scratch.measure("file.read_ahead", &Case::new()) else { return };
    let window = of(&readings, "file.read_ahead");
    // It reads ahead whole pages, of no more than the file.
    let bytes = median(window);
    assert!((4096.0..=67_108_864.0).contains(&bytes) && bytes % 4096.0 == 0.0, "{bytes}");
    assert!(says(window, "windows read ahead: "), "{:?}", window.notes);
    assert_eq!(scratch.left(), ["kelvin-data-67108864", "kelvin-data-67108864.first-pass", "kelvin-hole-67108864"]);
    let hole = std::fs::metadata(scratch.0.join("kelvin-hole-67108864")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&hole), 0);
}

#[test]
fn the_device_counts_what_is_written_to_it() {
    let scratch = Scratch::new();
    let Some(readings) = scratch.measure("file.device.write", &Case::new()) else { return };
    let stream = of(&readings, "file.device.write");
    assert!(says(stream, "that were written"), "{:?}", stream.notes);
    for metric in ["file.device.accept", "file.device.write_latency"] {
        of(&readings, metric);
    }
    assert_eq!(scratch.left(), ["kelvin-scrap-67108864"]);
}

#[test]
fn memory_is_no_device() {
    let Some(shm) = kelvin_testing::in_memory("a scratch directory in memory") else { return };
    let scratch = Scratch::within(shm);
    for id in ["file.device", "file.device.write"] {
        let attempt = common::run_probe_in(&scratch.0, id, &Case::new(), SLICE);
        assert!(
            matches!(&attempt, Attempt::Skipped(reason) if reason.0.contains("past the page cache")),
            "{id}: {attempt:?}"
        );
    }
}

/// Reads or writes in blocks of so many bytes, and checks where the bytes were; `false` where that is impossible.
fn in_blocks(scratch: &Scratch, direction: &str, case: &Case, proof: &str) -> bool {
    let id = format!("file.blocksize.{direction}");
    let Some(readings) = scratch.measure(&id, case) else { return false };
    let reading = of(&readings, &id);
    assert!(says(reading, proof) || says(reading, "no device counters show"), "{case}: {:?}", reading.notes);
    true
}

#[test]
fn blocks_are_read_from_where_they_were_to_be() {
    let scratch = Scratch::new();
    for (block, cache, proof) in [
        (512, "cached", " of 16384 pages in memory"),
        (1 << 20, "cached", " of 16384 pages in memory"),
        (4096, "uncached", "that were read"),
        (4096, "direct", "that were read"),
        (1 << 20, "direct", "that were read"),
    ] {
        in_blocks(&scratch, "read", &Case::new().with("block", block).at(Point::named("cache", cache)), proof);
    }
}

#[test]
fn blocks_are_written_and_nothing_but_the_shared_files_stays() {
    let scratch = Scratch::new();
    let case = |block, sync| Case::new().with("block", block).at(Point::named("sync", sync));
    for block in [512, 1 << 20] {
        in_blocks(&scratch, "write", &case(block, "buffered"), " of 16384 pages in memory");
    }
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864"]);
    for block in [4096, 1 << 20] {
        if !in_blocks(&scratch, "write", &case(block, "direct"), "that were written") {
            return;
        }
    }
    assert_eq!(scratch.left(), ["kelvin-afloat-67108864", "kelvin-scrap-67108864"]);
}

#[test]
fn the_tail_of_sequential_and_random_reads_is_noted() {
    let scratch = Scratch::new();
    for (order, cache) in [("sequential", "uncached"), ("random", "uncached"), ("random", "direct")] {
        let case =
            Case::new().with("bytes", 16 << 20).at(Point::named("order", order)).at(Point::named("cache", cache));
        let Some(readings) = scratch.measure("file.seqrand", &case) else { return };
        let mean = of(&readings, "file.seqrand");
        assert!(says(mean, "that were read") && says(mean, "reads half took at most"), "{:?}", mean.notes);
        of(&readings, "file.seqrand.p99");
    }
    assert_eq!(scratch.left(), ["kelvin-data-16777216", "kelvin-data-16777216.first-pass"]);
}

#[test]
fn the_queue_depth_reached_is_at_most_the_one_requested() {
    let scratch = Scratch::new();
    for depth in [1u64, 16] {
        let Some(readings) = scratch.measure("file.depth", &Case::new().with("depth", depth)) else { return };
        // Counted at each completion, and so in no round more than were requested.
        let notes = of(&readings, "file.depth.rate").notes.join("; ");
        let counted = notes.split_once(&format!("queue depth {depth} requested; "));
        let counted = counted.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(counted.is_some_and(|counted| counted > 0.0 && counted <= depth as f64), "{notes}");
    }
}

#[test]
fn many_read_from_a_device_each_a_file_of_its_own_or_all_one() {
    let scratch = Scratch::new();
    let read = |threads, files, block: u64| {
        let case = Case::new().with("threads", threads).at(Point::named("files", files));
        scratch.measure("file.contention", &case.with("block", block).with("bytes", 8u64 << 20))
    };
    let Some(one) = read(1, "own", 1 << 20) else { return };
    assert!(says(of(&one, "file.contention"), "Jain's index: 1.000"));
    read(8, "own", 4096).unwrap();
    // One file for each thread, of which the first is that of other probes.
    assert_eq!(scratch.left().len(), 8 + 1);
    let shared = read(3, "shared", 4096).unwrap();
    assert!(says(of(&shared, "file.contention"), "fairness among 3 threads"));
}

#[test]
fn threads_read_from_memory_and_from_the_disk() {
    let scratch = Scratch::on_device(FAST);
    for (cache, pages) in [("cached", 16384), ("uncached", 0)] {
        let case = Case::new().with("threads", 4).with("block", 65536).at(Point::named("cache", cache));
        let Some(readings) = scratch.measure("file.threads", &case) else { return };
        let note = format!("before, {pages} of 16384 pages in memory by mincore");
        assert!(says(of(&readings, "file.threads"), &note), "{:?}", readings[0].notes);
    }
}
