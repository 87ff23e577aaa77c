//! The costs of files without their content: creating, checking, opening, renaming, listing, removing.
//!
//! It is what a build, a mail store or a backup of small files pays for each of them. It must not be used for files whose
//! directory is not in memory, nor for durable changes: the journal is written later.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use kelvin_core::catalogue::file::{
    DirectoryCount, ENTRY_ADD, ENTRY_CREATE, ENTRY_FREE, ENTRY_REMOVE, FILES, METADATA, METADATA_CREATE, METADATA_LIST,
    METADATA_OPEN, METADATA_RENAME, METADATA_STAT, METADATA_UNLINK,
};
use kelvin_core::catalogue::os::{SYSCALL_FSTAT, SYSCALL_OPEN_CLOSE, SYSCALL_READ, SYSCALL_STAT};

use super::derived_time;
use super::prelude::*;
use super::tree::{Tree, time_paths};

pub(crate) static PROBE: Probe = Probe {
    id: METADATA.as_str(),
    summary: "Creating, checking, opening, renaming, listing and removing files, in one directory and in many",
    method: include_str!("metadata.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[
        &METADATA_CREATE,
        &METADATA_STAT,
        &METADATA_OPEN,
        &METADATA_RENAME,
        &METADATA_LIST,
        &METADATA_UNLINK,
    ])
};

/// Files that a round creates and removes: enough that a clock reading is nothing, and few, as some file systems remember each;
/// see the pitfalls.
const OWN_FILES: usize = 16;
/// Files checked in a pass: enough that a clock reading is nothing, few enough for a short pass.
const CHECKED_FILES: u64 = 128;
/// Directories where files are spread over many.
const MANY_DIRECTORIES: u64 = 100;
/// Bytes to reserve for a round's own files: the blocks that hold them, once for each of the three changes.
const ROUND_BYTES: u64 = 1 << 20;

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    use DirectoryCount::{Many, One};
    let sets = [(1000, One), (100, One), (1000, Many), (10_000, One), (10_000, Many)];
    let cases_of = |&(files, directories): &(u64, DirectoryCount)| numbers(FILES, &[files]).words(&[directories]);
    sets[..by_effort(effort, [1, 3, sets.len()])].iter().flat_map(cases_of).collect()
}

const fn directory_count(directories: DirectoryCount) -> u64 {
    match directories {
        DirectoryCount::One => 1,
        DirectoryCount::Many => MANY_DIRECTORIES,
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let files = required_number(FILES, case)?;
    let directories = directory_count(required(DirectoryCount::of(case), case)?);
    let tree = Tree::open(bench, "tree", files, directories)?;
    bench.reserve_write(ROUND_BYTES)?;
    let lookups = LookupPass::new(&tree);
    let (_, listed_files) = lookups.pass(bench.clock())?;
    let components = lookups.files.first().map_or(0, |path| path.components().count());
    bench.note(format!(
        "{}; a listing found {listed_files} files in {directories} directories; paths have {components} components",
        tree.file_system()?
    ));
    let changes = OwnFiles::new(&tree).time_pass(bench.clock())?;
    for (metric, ticks) in [&METADATA_CREATE, &METADATA_RENAME, &METADATA_UNLINK].into_iter().zip(changes) {
        bench.record(metric, vec![bench.nanoseconds(ticks) / OWN_FILES as f64]);
    }
    bench.time_each([&METADATA_STAT, &METADATA_OPEN, &METADATA_LIST], |clock| Ok(lookups.pass(clock)?.0))
}

/// The files that a round creates and removes; what a failed one leaves is removed when dropped.
struct OwnFiles {
    paths: Vec<PathBuf>,
    new_paths: Vec<PathBuf>,
}

impl OwnFiles {
    fn new(tree: &Tree) -> Self {
        let directories = || tree.directories.iter().cycle().zip(0..OWN_FILES);
        let paths_named = |name: &'static str| -> Vec<PathBuf> {
            // No two rounds have the same names, as one may have been killed.
            let process = std::process::id();
            directories().map(|(directory, number)| directory.join(format!("{name}-{process}-{number}"))).collect()
        };
        Self { paths: paths_named("own"), new_paths: paths_named("new") }
    }

    /// Creates them all, renames them all, removes them all; the ticks of each.
    fn time_pass(&self, clock: Clock) -> ProbeResult<[u64; 3]> {
        let create_ticks = time_paths(clock, &self.paths, "make", |path| File::create_new(path).map(drop))?;
        let mut names = self.new_paths.iter();
        let rename_ticks = time_paths(clock, &self.paths, "rename", |path| match names.next() {
            Some(name) => fs::rename(path, name),
            None => Err(Error::from(ErrorKind::InvalidInput)),
        })?;
        let remove_ticks = time_paths(clock, &self.new_paths, "remove", |path| fs::remove_file(path))?;
        Ok([create_ticks, rename_ticks, remove_ticks])
    }
}

/// What each pass checks: some of the files, and all of the directories.
struct LookupPass<'a> {
    tree: &'a Tree,
    files: Vec<PathBuf>,
}

impl<'a> LookupPass<'a> {
    fn new(tree: &'a Tree) -> Self {
        let count = CHECKED_FILES.min(tree.files);
        // Evenly spread, and over the directories too.
        let files = (0..count).map(|number| tree.file(number * tree.files / count)).collect();
        Self { tree, files }
    }

    /// Checks everything once; the ticks per file of stat, of open, of listing; the files listed.
    fn pass(&self, clock: Clock) -> ProbeResult<([u64; 3], u64)> {
        let stat = time_paths(clock, &self.files, "look at", |path| match fs::symlink_metadata(path)?.is_file() {
            true => Ok(()),
            false => Err(Error::from(ErrorKind::InvalidData)),
        })?;
        let open = time_paths(clock, &self.files, "open", |path| File::open(path).map(drop))?;
        let mut entry_count = 0;
        let list = time_paths(clock, &self.tree.directories, "list", |directory| {
            for entry in fs::read_dir(directory)? {
                entry?;
                entry_count += 1;
            }
            Ok(())
        })?;
        let reason = format!("a listing found {entry_count} of {} files", self.tree.files);
        fail_if(entry_count < self.tree.files || entry_count == 0, reason)?;
        let lookups = self.files.len().max(1) as u64;
        Ok(([stat / lookups, open / lookups, list / entry_count], entry_count))
    }
}

impl Drop for OwnFiles {
    fn drop(&mut self) {
        for path in self.paths.iter().chain(&self.new_paths) {
            let _ = fs::remove_file(path);
        }
    }
}

/// How much more than the call on /dev/null is within the predicted range: as for other short calls (os.syscall.read and its
/// kin), which leaves room for a longer path and another file system.
const RANGE_FACTOR: f64 = 3.0;

/// Files of the listing from which others follow, in one directory.
const LISTED_FILES: u64 = 1000;
/// Entries of a directory that are no files: `.` and `..`.
const DOT_ENTRIES: u64 = 2;
/// Calls for the entries of a small directory: one that has them, and one that finds no more.
const GETDENTS_CALLS: f64 = 2.0;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let figure = |metric: &Metric| measured(facts, metric, &Case::new());
    let parts = match metric.id {
        id if id == METADATA_STAT.id => {
            // The call on /dev/null, a path of two components.
            let call = figure(&SYSCALL_STAT)?.source(PATH_SOURCE).of_value([1.0 / 1.2, RANGE_FACTOR]);
            let remark =
                format!("predicted range: up to {RANGE_FACTOR} times that, for a longer path in another file system");
            return Ok(call.explained(PredictionBasis::Derived, "call on /dev/null", &remark));
        }
        id if id == METADATA_OPEN.id => {
            // As of /dev/null, and what the path and the file system add, as they do to stat.
            let call = figure(&SYSCALL_OPEN_CLOSE)?.source(PATH_SOURCE);
            call + (measured(facts, &METADATA_STAT, case)? - figure(&SYSCALL_STAT)?).at_least_zero()
        }
        id if id == METADATA_CREATE.id => figure(&ENTRY_CREATE)? + figure(&ENTRY_ADD)?,
        id if id == METADATA_RENAME.id => figure(&ENTRY_ADD)? + figure(&ENTRY_REMOVE)?,
        id if id == METADATA_UNLINK.id => figure(&ENTRY_REMOVE)? + figure(&ENTRY_FREE)?,
        _ => listing_time(facts, case)?,
    };
    Ok(derived_time::predict_from_parts(parts))
}

const PATH_SOURCE: &str = "Linux fs/namei.c: link_path_walk, once for each component";

/// Listing, for each file: as in one large directory, by entries, and each directory's own calls.
fn listing_time(facts: &PredictionInputs<'_>, case: &Case) -> Predicted<Expr> {
    let files = required_number(FILES, case)?;
    let directories = directory_count(required(DirectoryCount::of(case), case)?);
    let reason = "a file system's cost of listing a directory is not published";
    unpredicted_if((files, directories) == (LISTED_FILES, 1), reason)?;
    let large_case = Case::new().with_number(FILES, LISTED_FILES).with_word(DirectoryCount::One);
    let large_listing = measured(facts, &METADATA_LIST, &large_case)?;
    let open = measured(facts, &METADATA_OPEN, case)?;
    let (fstat, call) = (measured(facts, &SYSCALL_FSTAT, &Case::new())?, measured(facts, &SYSCALL_READ, &Case::new())?);
    let entries = |files: u64, directories: u64| (files + DOT_ENTRIES * directories) as f64 / files as f64;
    let entries_time =
        large_listing * quantity("entries", entries(files, directories) / entries(LISTED_FILES, 1), Unit::Ratio);
    // What one directory costs is in the figure of the large one.
    let extra_directories = directories as f64 / files as f64 - 1.0 / LISTED_FILES as f64;
    let directory = open + fstat + GETDENTS_CALLS * call;
    Ok(entries_time + quantity("directories of a file", extra_directories, Unit::Ratio) * directory)
}

#[cfg(test)]
mod tests {
    use super::super::tree::{create_tree, directory};
    use super::*;
    use crate::testing::with_facts;
    use kelvin_sys::clock::ScriptedClock;

    fn tree(files: u64, directories: u64) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        create_tree(root.path(), files, directories).unwrap();
        let directories = (0..directories).map(|number| directory(root.path(), number)).collect();
        (root, Tree { directories, files })
    }

    fn files_of(tree: &Tree) -> Vec<usize> {
        tree.directories.iter().map(|directory| fs::read_dir(directory).unwrap().count()).collect()
    }

    #[test]
    fn tree_files_are_spread_evenly_and_kept() {
        for (files, directories, expected) in [(7, 1, vec![7]), (7, 3, vec![3, 2, 2]), (300, 1, vec![300])] {
            let (_root, tree) = tree(files, directories);
            let lookups = LookupPass::new(&tree);
            let lookup_count = files.min(CHECKED_FILES);
            assert_eq!(lookups.files.len() as u64, lookup_count);
            // The script gives each pair of readings this many ticks.
            let clock = Clock::Scripted(ScriptedClock::leak(CHECKED_FILES * 6));
            for _ in 0..2 {
                assert_eq!(
                    lookups.pass(clock).unwrap(),
                    ([768 / lookup_count, 768 / lookup_count, 768 / files], files)
                );
            }
            let own_files = OwnFiles::new(&tree);
            for _ in 0..2 {
                assert_eq!(own_files.time_pass(clock).unwrap(), [768; 3]);
                assert_eq!(files_of(&tree), expected);
            }
        }
    }

    #[test]
    fn failed_pass_names_file_and_cleans_up() {
        let (_root, tree) = tree(1, 2);
        let own_files = OwnFiles::new(&tree);
        fs::create_dir(&own_files.new_paths[7]).unwrap();
        let Err(ProbeError::Fail(reason)) = own_files.time_pass(Clock::MonotonicRaw) else {
            panic!("renamed over a directory")
        };
        assert!(reason.starts_with("cannot rename ") && reason.contains("-7"), "{reason}");
        fs::remove_dir(&own_files.new_paths[7]).unwrap();
        drop(own_files);
        assert_eq!(files_of(&tree), [1, 0]);
        fs::remove_file(tree.file(0)).unwrap();
        let Err(ProbeError::Fail(reason)) = LookupPass::new(&tree).pass(Clock::MonotonicRaw) else {
            panic!("a file is missing")
        };
        assert!(reason.starts_with("cannot look at ") && reason.contains("file-0"), "{reason}");
    }

    #[test]
    fn changes_are_predicted_from_parts() {
        let values = [
            (SYSCALL_STAT.id.as_str(), Some(600.0)),
            (ENTRY_CREATE.id.as_str(), Some(5000.0)),
            (ENTRY_ADD.id.as_str(), Some(3000.0)),
            (ENTRY_REMOVE.id.as_str(), Some(2000.0)),
            (ENTRY_FREE.id.as_str(), Some(1000.0)),
        ];
        with_facts(&values, |facts| {
            let predicted = |metric| predict(facts, metric, &Case::new());
            let stat = predicted(&METADATA_STAT).unwrap();
            assert_eq!((stat.value, stat.low, stat.high), (600.0, 500.0, 1800.0));
            let changes = [&METADATA_CREATE, &METADATA_RENAME, &METADATA_UNLINK];
            assert_eq!(changes.map(|metric| predicted(metric).unwrap().value), [8000.0, 5000.0, 3000.0]);
            let create = predicted(&METADATA_CREATE).unwrap();
            assert_eq!((create.low, create.high, create.inputs.len()), (4000.0, 16_000.0, 2));
        });
    }

    #[test]
    fn open_adds_path_cost_of_stat() {
        let values = [
            (SYSCALL_STAT.id.as_str(), Some(300.0)),
            (METADATA_STAT.id.as_str(), Some(500.0)),
            (SYSCALL_OPEN_CLOSE.id.as_str(), Some(700.0)),
        ];
        with_facts(&values, |facts| {
            let open = predict(facts, &METADATA_OPEN, &Case::new()).unwrap();
            assert_eq!((open.value, open.low, open.inputs.len()), (900.0, 450.0, 3));
        });
        with_facts(&values[..2], |facts| {
            let reason = predict(facts, &METADATA_OPEN, &Case::new()).unwrap_err();
            assert!(reason.0.contains(SYSCALL_OPEN_CLOSE.id.as_str()));
        });
    }

    #[test]
    fn listing_follows_from_large_directory() {
        let values = [
            (METADATA_LIST.id.as_str(), Some(250.5)),
            (METADATA_OPEN.id.as_str(), Some(1500.0)),
            (SYSCALL_FSTAT.id.as_str(), Some(200.0)),
            (SYSCALL_READ.id.as_str(), Some(150.0)),
        ];
        with_facts(&values, |facts| {
            let predicted = |files: u64, directories: DirectoryCount| {
                predict(facts, &METADATA_LIST, &Case::new().with_number(FILES, files).with_word(directories))
            };
            // 250 ns an entry, 2 us a directory. 102 entries of 100 files.
            let value = |files, directories| predicted(files, directories).unwrap().value;
            assert!((value(100, DirectoryCount::One) - (255.0 + 20.0 - 2.0)).abs() < 1e-9);
            // 12 entries of 10 files.
            assert!((value(1000, DirectoryCount::Many) - (300.0 + 200.0 - 2.0)).abs() < 1e-9);
            assert_eq!(predicted(1000, DirectoryCount::Many).unwrap().inputs.len(), 4);
            assert!(predicted(1000, DirectoryCount::One).unwrap_err().0.contains("published"));
        });
    }
}
