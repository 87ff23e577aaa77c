//! The probes of requests on cached files and of remote directories run once for real, in a scratch directory on disk.

mod common;

use std::path::Path;

use common::{TestDirectories, measure_at, measure_if_possible_at, median, notes, reading_of};
use kelvin_core::{Case, RoundOutcome};
use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};

/// Milliseconds of the timed part.
const SLICE: u64 = 20;
const MIB: u64 = 1 << 20;

#[test]
fn every_byte_call_reads_cached_pages() {
    let disk = common::on_disk();
    let directories = TestDirectories::with_scratch(disk.path());
    for call in ["read", "pread", "lseek", "pread_anywhere"] {
        let case =
            Case::new().with_word(kelvin_core::AxisWord::from_names("call", call)).with_number("file_bytes", MIB);
        let readings = measure_at(&directories, "file.byte_calls", &case, SLICE);
        assert_eq!(readings.len(), 1);
        let note = &readings[0].notes[0];
        let pages = MIB / kelvin_sys::mapping::page_bytes() as u64;
        assert!(note.starts_with(&format!("before: {pages} of {pages} pages in memory")), "{note}");
        assert!(note.contains("calls a second, ") && note.contains("no bytes") == (call == "lseek"), "{note}");
    }
}

#[test]
fn unknown_call_fails_with_reason() {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("call", "mmap")).with_number("file_bytes", MIB);
    let attempt = common::run_probe("file.byte_calls", &case, SLICE);
    assert!(
        matches!(&attempt, RoundOutcome::Failed(reason) if reason.contains("nothing to measure for the case")),
        "{attempt:?}"
    );
}

/// The ways of reading, as cases name them.
const ENGINE_WORDS: [&str; 13] = [
    "read",
    "pread",
    "readv",
    "fread",
    "bufreader",
    "mmap",
    "mmap-populate",
    "io_uring-1",
    "io_uring-8",
    "io_uring-64",
    "io_uring-fixed-1",
    "io_uring-fixed-8",
    "io_uring-fixed-64",
];

#[test]
fn all_engines_read_all_sizes() {
    let disk = common::on_disk();
    let directories = TestDirectories::with_scratch(disk.path());
    for engine in ENGINE_WORDS {
        let is_ring = engine.starts_with("io_uring");
        for block in [1, 100, MIB] {
            let case =
                Case::new().with_word(kelvin_core::AxisWord::from_names("engine", engine)).with_number("block", block);
            let Some(readings) = measure_if_possible_at(&directories, "file.engines", &case, SLICE) else {
                assert!(is_ring, "{engine} is a call of every kernel");
                continue;
            };
            let notes = notes(&readings);
            assert!(notes.contains("pages in memory") && notes.contains("100 MB took"), "{notes}");
            assert_eq!(notes.contains("queue depth"), is_ring, "{engine}: {notes}");
        }
    }
}

/// The comparisons of remote and local blocks.
const COMPARED_CASES: [(&str, &str); 6] = [
    ("direct", "random"),
    ("direct", "sequential"),
    ("uncached", "random"),
    ("uncached", "sequential"),
    ("cached", "random"),
    ("cached", "sequential"),
];
/// The file that they read.
const REMOTE_BYTES: u64 = 8 * MIB;

fn compared_case(cache: &'static str, order: &'static str) -> Case {
    let word = kelvin_core::AxisWord::from_names;
    Case::new().with_word(word("cache", cache)).with_word(word("order", order)).with_number("bytes", REMOTE_BYTES)
}

/// Reads remote and local blocks in all these cases, and measures what their predictions rest on; the notes of those that are
/// possible.
fn compared_notes(directories: &TestDirectories) -> Vec<String> {
    for place in ["remote", "local"] {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("place", place));
        let readings = measure_at(directories, "file.remote.round_trip", &case, SLICE);
        for metric in ["file.remote.round_trip", "file.remote.attributes"] {
            assert!(median(reading_of(&readings, metric)) > 0.0, "{metric}");
        }
    }
    for metric in ["file.remote.rate", "file.remote.read_ahead"] {
        if let Some(readings) = measure_if_possible_at(directories, metric, &Case::new(), SLICE) {
            assert!(median(reading_of(&readings, metric)) > 0.0, "{metric}");
        }
    }
    let notes_of = |(cache, order)| {
        let readings = measure_if_possible_at(directories, "file.remote", &compared_case(cache, order), SLICE)?;
        let [remote, local, share] =
            ["file.remote", "file.remote.local", "file.remote.share"].map(|id| median(reading_of(&readings, id)));
        assert!(remote > 0.0 && local > 0.0 && share <= 1.0, "{share} of {remote} and {local}");
        let pages = REMOTE_BYTES / kelvin_sys::mapping::page_bytes() as u64;
        let resident = if cache == "cached" { pages } else { 0 };
        let notes = notes(&readings);
        assert!(notes.contains(&format!(", {resident} of {pages} pages in memory")), "{cache}, {order}: {notes}");
        Some(notes)
    };
    COMPARED_CASES.into_iter().filter_map(notes_of).collect()
}

#[test]
fn missing_remote_reason_names_option() {
    let disk = common::on_disk();
    let case = compared_case("direct", "random");
    match common::run_probe_at(&TestDirectories::with_scratch(disk.path()), "file.remote", &case, SLICE) {
        RoundOutcome::Skipped(reason) => {
            assert_eq!(reason.0, "needs a directory mounted from another machine: give --remote DIR");
        }
        other => panic!("{other:?}"),
    }
}

/// Local and remote directories.
fn two_directories(local: &Path, remote: &Path) -> TestDirectories {
    TestDirectories { scratch: local.into(), remote: Some(remote.into()), agent: None }
}

#[test]
fn same_disk_directories_have_no_network_time() {
    let (local, remote) = (common::on_disk(), common::on_disk());
    for notes in compared_notes(&two_directories(local.path(), remote.path())) {
        assert!(notes.contains("there is no network in the difference"), "{notes}");
    }
}

#[test]
fn served_directory_is_compared_with_local() {
    let remote_mount = match MountedFs::new(FileSystemKind::Sshfs, Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(remote_mount) => remote_mount,
        Err(requirement) => return requirement.report_skip("a remote directory served by sshfs"),
    };
    let local = common::on_disk();
    for notes in compared_notes(&two_directories(local.path(), &remote_mount.path())) {
        assert!(notes.starts_with("remote: fuse, "), "{notes}");
        assert!(!notes.contains("no network in the difference"), "{notes}");
    }
}

#[test]
fn tuning_ends_with_remeasured_setting() {
    let disk = common::on_disk();
    let directories = TestDirectories::with_scratch(disk.path());
    for (cache, engine) in [("cached", "pread"), ("direct", "io_uring")] {
        let case = Case::new()
            .with_word(kelvin_core::AxisWord::from_names("cache", cache))
            .with_word(kelvin_core::AxisWord::from_names("engine", engine));
        let Some(readings) = measure_if_possible_at(&directories, "file.tune", &case, SLICE) else { continue };
        let figure = |id: &str| median(reading_of(&readings, id));
        let [block, threads, depth] = ["file.tune.block", "file.tune.threads", "file.tune.depth"].map(figure);
        let [rate, gain] = ["file.tune", "file.tune.gain"].map(figure);
        let note = notes(&readings);
        assert!(note.contains(&format!("blocks of {block} bytes, {threads} threads")), "{note}");
        assert!((4096.0..=4194304.0).contains(&block) && (1.0..=16.0).contains(&threads), "{note}");
        assert!(depth == 1.0 || engine == "io_uring", "{note}");
        assert!(rate > 0.0 && gain > 0.0, "{rate} B/s, {gain} times the plain rate: {note}");
        let is_resident = note.contains("before: 16384 of 16384 pages in memory");
        assert_eq!(is_resident, cache == "cached", "{note}");
    }
}
