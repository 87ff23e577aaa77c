//! The file probes run once for real, on the disk that holds the build: what they claim is what the counters show.

mod common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{TestDirectories, median, reading_of};
use kelvin_core::{AxisWord, Case, MetricReadings, Readings, RoundOutcome};
use kelvin_harness::ProbeError;
use kelvin_probes::ExtentFile;
use kelvin_testing::mounted_fs::MountedFs;

/// Milliseconds of the timed part.
const SLICE: u64 = 10;

/// A scratch directory on the disk that holds the build, removed when dropped. There is one at a time: tests that share the
/// disk would measure each other.
struct LockedScratch(PathBuf, #[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>);

static IN_USE: Mutex<()> = Mutex::new(());

impl LockedScratch {
    fn new() -> Self {
        Self::in_directory(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    fn in_directory(directory: &Path) -> Self {
        let guard = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = directory.join(format!("kelvin-files-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path, guard)
    }

    /// Like `in_directory`, where this many nanoseconds are what the device was found to take for the file by which a slow one is known.
    fn on_device(nanoseconds: u64) -> Self {
        let scratch = Self::new();
        std::fs::write(scratch.0.join("kelvin-data-4194304.read-in"), nanoseconds.to_string()).unwrap();
        scratch
    }

    /// A probe's readings; `None`, and printed, where this disk lacks what it needs.
    fn measure(&self, id: &str, case: &Case) -> Option<Vec<MetricReadings>> {
        common::measure_if_possible_at(&TestDirectories::with_scratch(&self.0), id, case, SLICE)
    }

    /// Names of the files left, without the ledger.
    fn remaining_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "written");
        names.sort_unstable();
        names
    }
}

impl Drop for LockedScratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Nanoseconds for 4 MiB at 1 GB/s, and at 7 MB/s.
const FAST_DEVICE_NANOSECONDS: u64 = 4_200_000;
const SLOW_DEVICE_NANOSECONDS: u64 = 600_000_000;

/// Whether a note of a reading contains these words.
fn has_note(reading: &MetricReadings, words: &str) -> bool {
    reading.notes.iter().any(|note| note.contains(words))
}

#[test]
fn device_counts_bytes_read() {
    let scratch = LockedScratch::on_device(FAST_DEVICE_NANOSECONDS);
    let Some(readings) = scratch.measure("file.device", &Case::new()) else { return };
    let (stream, single) = (reading_of(&readings, "file.device.read"), reading_of(&readings, "file.device.latency"));
    for reading in [stream, single] {
        assert!(has_note(reading, "that were read"), "{:?}", reading.notes);
    }
    reading_of(&readings, "file.device.mean_latency");
    assert!(has_note(reading_of(&readings, "file.device.requests"), "that were read"), "{readings:?}");
    let repeat = reading_of(&readings, "file.device.repeat");
    assert!(has_note(repeat, "the first pass over the file after it was written ran at"), "{:?}", repeat.notes);
    let small_files = ["kelvin-data-4194304", "kelvin-data-4194304.first-pass", "kelvin-data-4194304.read-in"];
    let shared_files = ["kelvin-data-67108864", "kelvin-data-67108864.first-pass"];
    assert_eq!(scratch.remaining_files(), [&small_files[..], &shared_files].concat());
}

#[test]
fn slow_device_reads_less() {
    let scratch = LockedScratch::on_device(SLOW_DEVICE_NANOSECONDS);
    let read = |block, cache| Case::new().with_number("block", block).with_word(AxisWord::from_names("cache", cache));
    for (id, metric, case) in [
        ("file.device", "file.device.read", Case::new()),
        ("file.blocksize.read", "file.blocksize.read", read(4096, "uncached")),
        ("file.blocksize.read", "file.blocksize.read", read(1 << 20, "direct")),
        ("file.threads", "file.threads", read(65536, "uncached").with_number("threads", 4)),
        ("file.depth", "file.depth.rate", Case::new().with_number("depth", 16)),
    ] {
        let Some(readings) = scratch.measure(id, &case) else { return };
        assert!(has_note(reading_of(&readings, metric), "on a file of 4 MiB"), "{id} {case}: {readings:?}");
    }
    // What is in memory is not read from the device in each round, and a block of 16 MiB needs a file that holds it.
    let small_files = scratch.remaining_files();
    assert!(small_files.iter().all(|name| name.starts_with("kelvin-data-4194304")), "{small_files:?}");
    for (cache, block) in [("cached", 4096), ("direct", 16 << 20)] {
        let Some(readings) = scratch.measure("file.blocksize.read", &read(block, cache)) else { return };
        assert!(!has_note(reading_of(&readings, "file.blocksize.read"), "on a file of 4 MiB"), "{cache} {readings:?}");
    }
}

#[test]
fn idle_files_are_checked_after_minute() {
    let scratch = LockedScratch::new();
    let id = "file.idle";
    let Some(first_readings) = scratch.measure(id, &Case::new()) else { return };
    assert!(
        matches!(&first_readings[..], [reading] if reading.readings == Readings::Scalars(Vec::new())),
        "{first_readings:?}"
    );
    let attempt = common::run_probe_in(&scratch.0, id, &Case::new(), SLICE);
    assert!(
        matches!(&attempt, RoundOutcome::Skipped(reason) if reason.0.contains("needs more than 1 min 0 s")),
        "{attempt:?}"
    );
    // As if that had been an hour ago.
    let hour = 3_600_000_000_000;
    let idle_since = kelvin_sys::clock::monotonic().saturating_sub(hour);
    std::fs::write(scratch.0.join("kelvin-idle.left"), idle_since.to_string()).unwrap();
    let Some(readings) = scratch.measure(id, &Case::new()) else { return };
    let value_at = |index: usize| match &readings[index].readings {
        Readings::Scalars(values) => values[0],
        other => panic!("{other:?}"),
    };
    assert!((0.0..=1.0).contains(&value_at(0)), "{readings:?}");
    assert!(value_at(1) >= hour.min(kelvin_sys::clock::monotonic()) as f64 || idle_since == 0, "{readings:?}");
    assert!(has_note(&readings[0], "pages in memory by mincore"), "{readings:?}");
}

#[test]
fn page_writes_use_cached_pages() {
    let scratch = LockedScratch::new();
    for (pages, order) in [(1u64, "sequential"), (2, "random")] {
        let case = Case::new().with_number("pages", pages).with_word(AxisWord::from_names("order", order));
        let Some(readings) = scratch.measure("file.page_write", &case) else { return };
        let write = reading_of(&readings, "file.page_write");
        assert!(has_note(write, "before, ") && has_note(write, "afterwards, "), "{:?}", write.notes);
    }
    assert_eq!(scratch.remaining_files(), ["kelvin-afloat-67108864"]);
}

#[test]
fn uncached_pages_are_holes() {
    let scratch = LockedScratch::new();
    for cache in ["cached", "uncached"] {
        for order in ["sequential", "random"] {
            let case = Case::new()
                .with_word(AxisWord::from_names("cache", cache))
                .with_word(AxisWord::from_names("order", order));
            scratch.measure("file.page_read", &case);
        }
    }
    let Some(readings) = scratch.measure("file.read_ahead", &Case::new()) else { return };
    let window = reading_of(&readings, "file.read_ahead");
    // It reads ahead whole pages, of no more than the file.
    let bytes = median(window);
    assert!((4096.0..=67_108_864.0).contains(&bytes) && bytes % 4096.0 == 0.0, "{bytes}");
    assert!(has_note(window, "windows read ahead: "), "{:?}", window.notes);
    assert_eq!(
        scratch.remaining_files(),
        ["kelvin-data-67108864", "kelvin-data-67108864.first-pass", "kelvin-hole-67108864"]
    );
    let hole = std::fs::metadata(scratch.0.join("kelvin-hole-67108864")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&hole), 0);
}

#[test]
fn device_counts_bytes_written() {
    let scratch = LockedScratch::new();
    let Some(readings) = scratch.measure("file.device.write", &Case::new()) else { return };
    let stream = reading_of(&readings, "file.device.write");
    assert!(has_note(stream, "that were written"), "{:?}", stream.notes);
    for metric in ["file.device.accept", "file.device.write_latency"] {
        reading_of(&readings, metric);
    }
    assert_eq!(scratch.remaining_files(), ["kelvin-scrap-67108864"]);
}

#[test]
fn tmpfs_has_no_device_reads() {
    let Some(shm) = kelvin_testing::memory_dir("a scratch directory in memory") else { return };
    let scratch = LockedScratch::in_directory(shm);
    for id in ["file.device", "file.device.write"] {
        let attempt = common::run_probe_in(&scratch.0, id, &Case::new(), SLICE);
        assert!(
            matches!(&attempt, RoundOutcome::Skipped(reason) if reason.0.contains("past the page cache")),
            "{id}: {attempt:?}"
        );
    }
}

/// Reads or writes in blocks of this many bytes, and checks where the bytes were; `false` where that is impossible.
fn measure_blocks(scratch: &LockedScratch, direction: &str, case: &Case, proof: &str) -> bool {
    let id = format!("file.blocksize.{direction}");
    let Some(readings) = scratch.measure(&id, case) else { return false };
    let reading = reading_of(&readings, &id);
    assert!(has_note(reading, proof) || has_note(reading, "no device counters show"), "{case}: {:?}", reading.notes);
    true
}

#[test]
fn blocks_are_read_from_expected_source() {
    let scratch = LockedScratch::new();
    for (block, cache, proof) in [
        (512, "cached", " of 16384 pages in memory"),
        (1 << 20, "cached", " of 16384 pages in memory"),
        (4096, "uncached", "that were read"),
        (4096, "direct", "that were read"),
        (1 << 20, "direct", "that were read"),
    ] {
        measure_blocks(
            &scratch,
            "read",
            &Case::new().with_number("block", block).with_word(AxisWord::from_names("cache", cache)),
            proof,
        );
    }
}

#[test]
fn block_writes_leave_only_shared_files() {
    let scratch = LockedScratch::new();
    let case = |block, sync| Case::new().with_number("block", block).with_word(AxisWord::from_names("sync", sync));
    for block in [512, 1 << 20] {
        measure_blocks(&scratch, "write", &case(block, "buffered"), " of 16384 pages in memory");
    }
    assert_eq!(scratch.remaining_files(), ["kelvin-afloat-67108864"]);
    for block in [4096, 1 << 20] {
        if !measure_blocks(&scratch, "write", &case(block, "direct"), "that were written") {
            return;
        }
    }
    assert_eq!(scratch.remaining_files(), ["kelvin-afloat-67108864", "kelvin-scrap-67108864"]);
}

#[test]
fn read_tails_are_noted() {
    let scratch = LockedScratch::new();
    for (order, cache) in [("sequential", "uncached"), ("random", "uncached"), ("random", "direct")] {
        let case = Case::new()
            .with_number("bytes", 16 << 20)
            .with_word(AxisWord::from_names("order", order))
            .with_word(AxisWord::from_names("cache", cache));
        let Some(readings) = scratch.measure("file.seqrand", &case) else { return };
        let mean = reading_of(&readings, "file.seqrand");
        assert!(has_note(mean, "that were read") && has_note(mean, "reads half took at most"), "{:?}", mean.notes);
        // A slow device gives too few reads, which is said.
        let has_tail = readings.iter().any(|reading| reading.metric == *"file.seqrand.p99");
        assert_ne!(has_tail, has_note(mean, "a 99th percentile needs 100 reads"), "{readings:?}");
        assert_eq!(has_tail, counted_reads(mean) >= 100, "{readings:?}");
    }
    assert_eq!(scratch.remaining_files(), ["kelvin-data-16777216", "kelvin-data-16777216.first-pass"]);
}

/// The reads that a round timed, from its note of their quantiles.
fn counted_reads(reading: &MetricReadings) -> u64 {
    let count = reading.notes.iter().find_map(|note| note.strip_prefix("of ")?.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no count of reads in {:?}", reading.notes))
}

#[test]
fn achieved_depth_is_at_most_requested() {
    let scratch = LockedScratch::new();
    for depth in [1u64, 16] {
        let Some(readings) = scratch.measure("file.depth", &Case::new().with_number("depth", depth)) else { return };
        // Counted at each completion, and so in no round more than were requested.
        let notes = reading_of(&readings, "file.depth.rate").notes.join("; ");
        let depth_text = notes.split_once(&format!("queue depth {depth} requested; "));
        let in_flight = depth_text.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(in_flight.is_some_and(|in_flight| in_flight > 0.0 && in_flight <= depth as f64), "{notes}");
    }
}

#[test]
fn jobs_are_read_by_one_cpu_each() {
    let scratch = LockedScratch::new();
    let case = |jobs: u64| Case::new().with_number("jobs", jobs).with_number("depth", 8);
    let cpus = kelvin_sys::cpu::affinity().unwrap().len() as u64;
    for jobs in [1, cpus] {
        let Some(readings) = scratch.measure("file.jobs", &case(jobs)) else { return };
        let rate = reading_of(&readings, "file.jobs.iops");
        assert!(median(rate) > 0.0 && has_note(rate, "queue depth 8 requested of each"), "{:?}", rate.notes);
        assert!(has_note(rate, "that were read") || has_note(rate, "no device counters show"), "{:?}", rate.notes);
        assert!(median(reading_of(&readings, "file.jobs.cpu")) >= 0.0);
    }
    let attempt = common::run_probe_in(&scratch.0, "file.jobs", &case(cpus + 1), SLICE);
    let reason = format!("needs {} CPUs; this process may use {cpus}", cpus + 1);
    assert!(matches!(&attempt, RoundOutcome::Skipped(skipped) if skipped.0 == reason), "{attempt:?}");
}

#[test]
fn each_steady_window_is_the_figure_of_one_round() {
    let scratch = LockedScratch::new();
    let bytes = 64 << 20;
    std::fs::write(scratch.0.join("kelvin-extent-67108864"), vec![1; bytes]).unwrap();
    // The first one was in a cache of the device.
    let rates = "3000000000\n500000000\n510000000\n490000000\n505000000\n495000000";
    std::fs::write(scratch.0.join("kelvin-extent-67108864.windows"), rates).unwrap();
    let case = Case::new().with_number("extent", bytes as u64);
    let Some(readings) = scratch.measure("file.device.write", &case) else { return };
    let write = reading_of(&readings, "file.device.write");
    assert_eq!(median(write), 500e6);
    assert!(has_note(write, "on a file of 64 MiB (--extent)"), "{:?}", write.notes);
    assert!(
        has_note(write, "writing reached a steady state at 500 MB/s: the last 5 of 6 windows"),
        "{:?}",
        write.notes
    );
    reading_of(&readings, "file.device.accept");
    let Some(readings) = scratch.measure("file.device", &case) else { return };
    assert!(has_note(reading_of(&readings, "file.device.read"), "on a file of 64 MiB (--extent)"), "{readings:?}");
    assert!(readings.iter().all(|reading| reading.metric.as_str() != "file.device.repeat"), "{readings:?}");
}

#[test]
fn extent_is_written_whole_or_not_at_all() {
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mounted = match MountedFs::ext4(&[], base.path()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.report_skip("a full disk"),
    };
    let scratch = mounted.path();
    let setup = common::setup(&TestDirectories::with_scratch(&scratch));
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&scratch).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.starts_with("kelvin-"));
        names.sort_unstable();
        names
    };
    let available = kelvin_sys::fs::space(&scratch).unwrap().available_bytes;
    let too_large = ExtentFile { bytes: (available >> 20 << 20) + (64 << 20), is_overwritten: false };
    assert!(too_large.check_room(&scratch, u64::MAX).unwrap_err().ends_with("another directory by --dir"));
    let error = too_large.write(&setup, &|_| {}).unwrap_err();
    assert!(matches!(&error, ProbeError::Fail(reason) if reason.contains("No space left")), "{error:?}");
    assert!(names().is_empty(), "{:?}", names());
    let fitting = ExtentFile { bytes: 64 << 20, is_overwritten: true };
    let reports = Mutex::new(Vec::new());
    let write = || fitting.write(&setup, &|text| reports.lock().unwrap().push(text.to_owned()));
    // ext4 counts the blocks of a removed file as free at once, and allocates them only after its journal has committed their removal.
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = write() {
        assert!(matches!(&error, ProbeError::Fail(reason) if reason.contains("No space left")), "{error:?}");
        assert!(Instant::now() < deadline, "{error:?}");
        File::open(&scratch).unwrap().sync_all().unwrap();
    }
    assert_eq!(names(), ["kelvin-extent-67108864", "kelvin-extent-67108864.windows"]);
    let windows = std::fs::read_to_string(scratch.join("kelvin-extent-67108864.windows")).unwrap();
    assert!((5..=15).contains(&windows.lines().count()), "{windows}");
    let reports = reports.into_inner().unwrap();
    assert!(reports.last().is_some_and(|text| text.contains("steady state at ")), "{reports:?}");
    // Each block was written: none of it is a hole, and none is zeros.
    let content = std::fs::read(scratch.join("kelvin-extent-67108864")).unwrap();
    assert_eq!(content.len(), 64 << 20);
    assert!(content.chunks(4096).all(|unit| unit.iter().any(|&byte| byte != 0)));
}

#[test]
fn threads_read_own_or_shared_files() {
    let scratch = LockedScratch::new();
    let read = |threads, files, block: u64| {
        let case = Case::new().with_number("threads", threads).with_word(AxisWord::from_names("files", files));
        scratch.measure("file.contention", &case.with_number("block", block).with_number("bytes", 8u64 << 20))
    };
    let Some(single) = read(1, "own", 1 << 20) else { return };
    assert!(has_note(reading_of(&single, "file.contention"), "Jain's index: 1.000"));
    read(8, "own", 4096).unwrap();
    // One file for each thread, of which the first is that of other probes.
    assert_eq!(scratch.remaining_files().len(), 8 + 1);
    let shared = read(3, "shared", 4096).unwrap();
    assert!(has_note(reading_of(&shared, "file.contention"), "fairness among 3 threads"));
}

#[test]
fn threads_read_cached_and_direct() {
    let scratch = LockedScratch::on_device(FAST_DEVICE_NANOSECONDS);
    for (cache, pages) in [("cached", 16384), ("uncached", 0)] {
        let case = Case::new()
            .with_number("threads", 4)
            .with_number("block", 65536)
            .with_word(AxisWord::from_names("cache", cache));
        let Some(readings) = scratch.measure("file.threads", &case) else { return };
        let note = format!("before, {pages} of 16384 pages in memory by mincore");
        assert!(has_note(reading_of(&readings, "file.threads"), &note), "{:?}", readings[0].notes);
    }
}
