//! The probes of flushes and of files run once for real: what they claim is what the file system did, and they leave nothing
//! behind.

mod common;

use std::path::Path;

use common::{TestDirectories, on_disk as scratch};
use kelvin_core::{Case, MetricReadings, RoundOutcome};

/// Milliseconds of the timed part.
const SLICE: u64 = 20;

fn sync(method: &'static str, position: &'static str) -> Case {
    Case::new()
        .with_word(kelvin_core::AxisWord::from_names("by", method))
        .with_word(kelvin_core::AxisWord::from_names("place", position))
}

fn tree(files: u64, directories: &'static str) -> Case {
    Case::new().with_number("files", files).with_word(kelvin_core::AxisWord::from_names("directories", directories))
}

/// A probe's readings; `None`, and printed, where this disk lacks what it needs.
fn measure(scratch: &Path, id: &str, case: &Case) -> Option<Vec<MetricReadings>> {
    common::measure_if_possible_at(&TestDirectories::with_scratch(scratch), id, case, SLICE)
}

/// Names in a directory, but the ledger's.
fn remaining_files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "written");
    names.sort_unstable();
    names
}

#[test]
fn flushed_write_reaches_device() {
    let scratch = scratch();
    for position in ["in_place", "append"] {
        let Some(_) = measure(scratch.path(), "file.sync", &sync("none", position)) else { return };
        for method in ["fdatasync", "fsync", "dsync"] {
            let Some(readings) = measure(scratch.path(), "file.sync", &sync(method, position)) else { continue };
            let note = &readings[0].notes[0];
            assert!(note.contains("the 12 KiB that were flushed") || note.contains("no device counter"), "{note}");
        }
    }
    // The files that a run's rounds share, and none of a single round.
    assert_eq!(remaining_files(scratch.path()), ["kelvin-sync-flushed", "kelvin-sync-unflushed"]);
}

#[test]
fn tmpfs_flush_is_skipped() {
    let Some(shm) = kelvin_testing::memory_dir("flushes in memory") else { return };
    let memory = tempfile::tempdir_in(shm).unwrap();
    let attempt = common::run_probe_in(memory.path(), "file.sync", &sync("fsync", "in_place"), SLICE);
    assert!(
        matches!(&attempt, RoundOutcome::Skipped(reason) if reason.0.contains("tmpfs lives in memory")),
        "{attempt:?}"
    );
    let base = common::run_probe_in(memory.path(), "file.sync", &sync("none", "in_place"), SLICE);
    assert!(matches!(&base, RoundOutcome::Measured(readings) if readings[0].notes[0].starts_with("tmpfs")), "{base:?}");
    assert_eq!(remaining_files(memory.path()), ["kelvin-sync-unflushed"]);
}

#[test]
fn metadata_operations_leave_no_files() {
    let scratch = scratch();
    for (case, name, directories) in
        [(tree(300, "one"), "kelvin-tree-300-1", 1), (tree(300, "many"), "kelvin-tree-300-100", 100)]
    {
        for _ in 0..2 {
            let Some(readings) = measure(scratch.path(), "file.metadata", &case) else { return };
            assert_eq!(readings.len(), 6);
            let notes = &readings[0].notes;
            let listing = format!("found 300 files in {directories} directories");
            assert!(notes.iter().any(|note| note.contains(&listing)), "{notes:?}");
            // The second round finds the tree of the first, and leaves it as it was.
            let root = scratch.path().join("kelvin-trees").join(name);
            let counts: usize =
                remaining_files(&root).iter().map(|directory| remaining_files(&root.join(directory)).len()).sum();
            assert_eq!((remaining_files(&root).len(), counts), (directories, 300));
        }
    }
    assert_eq!(remaining_files(scratch.path()), ["kelvin-trees"]);
    assert_eq!(remaining_files(&scratch.path().join("kelvin-trees")), ["kelvin-tree-300-1", "kelvin-tree-300-100"]);
}

#[test]
fn directory_entries_are_cleaned_up() {
    let scratch = scratch();
    for _ in 0..2 {
        let Some(readings) = measure(scratch.path(), "file.entry", &Case::new()) else { return };
        let names: Vec<&str> = readings.iter().map(|reading| reading.metric.as_str()).collect();
        assert_eq!(names, ["file.entry.add", "file.entry.remove", "file.entry.make", "file.entry.give_back"]);
        let root = scratch.path().join("kelvin-trees/kelvin-entries-1000-1/directory-0");
        assert_eq!(remaining_files(&root).len(), 1000);
    }
    assert_eq!(remaining_files(scratch.path()), ["kelvin-trees"]);
}

#[test]
fn unknown_cases_fail_with_reason() {
    let scratch = scratch();
    for (id, case, expected) in [
        ("file.sync", sync("prayer", "in_place"), "nothing to measure for the case by=prayer"),
        ("file.sync", sync("fsync", "elsewhere"), "nothing to measure for the case by=fsync place=elsewhere"),
        ("file.metadata", tree(10, "no"), "nothing to measure for the case directories=no"),
    ] {
        let attempt = common::run_probe_in(scratch.path(), id, &case, SLICE);
        assert!(matches!(&attempt, RoundOutcome::Failed(reason) if reason.contains(expected)), "{attempt:?}");
    }
    assert!(remaining_files(scratch.path()).is_empty());
}
