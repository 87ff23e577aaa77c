//! The measures of flushes and of files as such run once for real: what they claim is what the file system did, and nothing
//! of theirs is left.

mod common;

use std::path::Path;

use kelvin_catalogue::file::{
    DirectoryCount, ENTRY, ENTRY_ADD, ENTRY_GIVE_BACK, ENTRY_MAKE, ENTRY_REMOVE, FILES, FlushedBy, METADATA,
    METADATA_CREATE, METADATA_LIST, METADATA_OPEN, METADATA_STAT, SYNC, WritePlace,
};
use kelvin_model::{Attempt, Case, Metric, Point, Reading};
use tempfile::TempDir;

/// Milliseconds of the timed part.
const SLICE: u64 = 20;

/// A scratch directory on the disk that holds the build.
fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn sync(by: FlushedBy, place: WritePlace) -> Case {
    Case::new().at(by).at(place)
}

fn tree(files: u64, directories: DirectoryCount) -> Case {
    Case::new().with(FILES, files).at(directories)
}

/// What a probe reads; `None`, and said, where this disk has not what it needs.
#[allow(clippy::print_stderr)]
fn measure(scratch: &Path, id: &str, case: &Case) -> Option<Vec<Reading>> {
    match common::run_probe_in(scratch, id, case, SLICE) {
        Attempt::Measured(readings) => Some(readings),
        Attempt::Skipped(reason) => {
            eprintln!("{id} {case} skipped: {reason}");
            None
        }
        Attempt::Failed(reason) => panic!("{id} {case}: {reason}"),
    }
}

/// Names in a directory, but that of the ledger.
fn left(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "written");
    names.sort_unstable();
    names
}

#[test]
fn a_write_that_is_flushed_takes_longer_than_one_that_is_not_and_reaches_the_device() {
    let scratch = scratch();
    for &place in WritePlace::ALL {
        let Some(base) = measure(scratch.path(), &SYNC.id, &sync(FlushedBy::Nothing, place)) else { return };
        // More than a system call that does nothing.
        let base = common::median(&base[0]);
        assert!((100.0..1e7).contains(&base), "{base} ns");
        for by in [FlushedBy::Fdatasync, FlushedBy::Fsync, FlushedBy::Dsync] {
            let Some(readings) = measure(scratch.path(), &SYNC.id, &sync(by, place)) else { continue };
            let (flushed, note) = (common::median(&readings[0]), &readings[0].notes[0]);
            assert!(flushed > 2.0 * base, "{}: {flushed} ns, without a flush {base} ns", sync(by, place));
            assert!(
                note.contains("the 12288 bytes that were flushed") || note.contains("no device's counter"),
                "{note}"
            );
        }
    }
    // What the rounds of a run share, and nothing that one of them made for itself.
    assert_eq!(left(scratch.path()), ["kelvin-sync-flushed", "kelvin-sync-unflushed"]);
}

#[test]
fn nothing_is_flushed_in_memory() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let in_place = |by| common::run_probe_in(memory.path(), &SYNC.id, &sync(by, WritePlace::InPlace), SLICE);
    let flushed = in_place(FlushedBy::Fsync);
    assert!(matches!(&flushed, Attempt::Skipped(reason) if reason.0.contains("tmpfs lives in memory")), "{flushed:?}");
    let base = in_place(FlushedBy::Nothing);
    assert!(matches!(&base, Attempt::Measured(readings) if readings[0].notes[0].starts_with("tmpfs")), "{base:?}");
    assert_eq!(left(memory.path()), ["kelvin-sync-unflushed"]);
}

#[test]
fn files_are_made_worked_on_and_removed_in_one_directory_and_in_many() {
    let scratch = scratch();
    for (case, name, directories) in [
        (tree(300, DirectoryCount::One), "kelvin-tree-300-1", 1),
        (tree(300, DirectoryCount::Many), "kelvin-tree-300-100", 100),
    ] {
        for _ in 0..2 {
            let Some(readings) = measure(scratch.path(), &METADATA, &case) else { return };
            assert_eq!(readings.len(), 6);
            for reading in &readings {
                let value = common::median(reading);
                // More than reading a name from a buffer, less than a disk for each.
                assert!((5.0..5e6).contains(&value), "{} {case}: {value} ns", reading.metric);
            }
            let of =
                |metric: &Metric| common::median(readings.iter().find(|reading| reading.metric == metric.id).unwrap());
            assert!(of(&METADATA_CREATE) > of(&METADATA_STAT), "making a file is more than looking at it");
            let listed = of(&METADATA_OPEN) > of(&METADATA_LIST);
            assert!(listed || directories > 1, "a listing gives many names for one call");
            let notes = &readings[0].notes;
            let found = format!("found 300 files in {directories} directories");
            assert!(notes.iter().any(|note| note.contains(&found)), "{notes:?}");
            // The second round finds the tree of the first, and leaves it as it was.
            let root = scratch.path().join("kelvin-trees").join(name);
            let counts: usize = left(&root).iter().map(|directory| left(&root.join(directory)).len()).sum();
            assert_eq!((left(&root).len(), counts), (directories, 300));
        }
    }
    assert_eq!(left(scratch.path()), ["kelvin-trees"]);
    assert_eq!(left(&scratch.path().join("kelvin-trees")), ["kelvin-tree-300-1", "kelvin-tree-300-100"]);
}

#[test]
fn names_and_inodes_come_and_go_apart_and_leave_their_directory_as_it_was() {
    let scratch = scratch();
    for _ in 0..2 {
        let Some(readings) = measure(scratch.path(), &ENTRY, &Case::new()) else { return };
        let ids: Vec<_> = readings.iter().map(|reading| reading.metric).collect();
        assert_eq!(ids, [&ENTRY_ADD, &ENTRY_REMOVE, &ENTRY_MAKE, &ENTRY_GIVE_BACK].map(|metric| metric.id));
        for reading in &readings {
            let value = common::median(reading);
            // More than a system call that does nothing, less than a disk for each.
            assert!((100.0..5e6).contains(&value), "{}: {value} ns", reading.metric);
        }
        let root = scratch.path().join("kelvin-trees/kelvin-entries-1000-1/directory-0");
        assert_eq!(left(&root).len(), 1000);
    }
    assert_eq!(left(scratch.path()), ["kelvin-trees"]);
}

#[test]
fn unknown_cases_fail_with_a_reason() {
    let scratch = scratch();
    let flushed = sync(FlushedBy::Fsync, WritePlace::InPlace);
    for (id, case) in [
        (SYNC.id, flushed.clone().at(Point::new(FlushedBy::AXIS, "prayer"))),
        (SYNC.id, flushed.at(Point::new(WritePlace::AXIS, "elsewhere"))),
        (METADATA, tree(10, DirectoryCount::One).at(Point::new(DirectoryCount::AXIS, "no"))),
    ] {
        let attempt = common::run_probe_in(scratch.path(), &id, &case, SLICE);
        let expected = format!("nothing to measure for the case {case}");
        assert!(matches!(&attempt, Attempt::Failed(reason) if reason.contains(&expected)), "{attempt:?}");
    }
    assert!(left(scratch.path()).is_empty());
}
