//! The costs of names and of inodes apart: creating and closing an O_TMPFILE file, and adding and removing a name of a file.
//!
//! They explain creating, renaming and removing files. They must not be taken for what programs mostly do, which is both at
//! once.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kelvin_catalogue::file::{ENTRY, ENTRY_ADD, ENTRY_GIVE_BACK, ENTRY_MAKE, ENTRY_REMOVE};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::clock::Clock;
use kelvin_sys::fs::UNNAMED;

use super::data::cannot;
use super::expected;
use super::tree::{Tree, timed};
use crate::predict::Predicting;

pub(super) static PROBE: Probe = Probe {
    id: ENTRY.as_str(),
    summary: "Creating files without a name (O_TMPFILE) and names of a file: the parts of creating and removing files",
    kind: ProbeKind::Measure,
    method: Method {
        how: "In a directory with 1000 empty files, made once a run in the scratch directory, names are added to a \
              file (linkat) and removed again (unlink), 16 of each in a row: a figure is the time of the 16, over 16. \
              The file keeps a name, so that no inode is allocated or freed. Once a round 16 files without a name are \
              created in the same directory (open with O_TMPFILE) and then closed, which frees them: no name is added \
              or removed. Every call is checked. Nothing is flushed: journal writes meanwhile fall into some figures, \
              and count.",
        prediction: "Removing a name does what adding one does, the other way round (a path is walked, the directory's \
                     block is searched and changed within a transaction of the journal, the inode counts its names): \
                     it is predicted to take as long (file.entry.add), within a factor of two either way. The others \
                     have no prediction: a file system's cost of directories, inodes and journal is not published. The \
                     predictions of file.metadata and file.new rest on these figures.",
        not_for: "Directories that are not in memory. Flushed changes: see file.sync.",
        pitfalls: &[
            "ext4 with a journal enters a file without a name in its orphan list, for removal after a crash: that \
             costs a little more than an inode alone.",
            "ext4 without a journal reuses no inode for minutes after its file was removed, and checks each of those \
             first: few are made, in a tree of their own; see file.metadata.",
        ],
        sources: &[
            "open(2) on O_TMPFILE, link(2), unlink(2)",
            "Linux fs/ext4/namei.c: ext4_tmpfile, ext4_link, ext4_unlink",
        ],
    },
    metrics: &[&ENTRY_MAKE, &ENTRY_GIVE_BACK, &ENTRY_ADD, &ENTRY_REMOVE],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

/// Files already there: as in the case of file.metadata that every run has.
const FILES: u64 = 1000;
/// Files and names made in a row: enough that a clock reading is nothing, and few, as in file.metadata.
const COUNT: usize = 16;
/// Bytes to reserve: the blocks that hold them, once for each of the four changes.
const ROUND_BYTES: u64 = 1 << 20;

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let tree = Tree::of(bench, "entries", FILES, 1)?;
    bench.may_write(ROUND_BYTES)?;
    bench.note(tree.file_system()?);
    let directory = &tree.directories[0];
    let names = Names::in_directory(directory)?;
    bench.time_each([&ENTRY_ADD, &ENTRY_REMOVE], |clock| names.pass(clock))?;
    drop(names);
    let [made, given_back] = unnamed(directory, bench.clock())?;
    bench.record(&ENTRY_MAKE, vec![bench.nanoseconds(made) / COUNT as f64]);
    bench.record(&ENTRY_GIVE_BACK, vec![bench.nanoseconds(given_back) / COUNT as f64]);
    Ok(())
}

/// A file and its names; all are removed when dropped.
struct Names {
    file: PathBuf,
    others: Vec<PathBuf>,
}

impl Names {
    fn in_directory(directory: &Path) -> Result<Self, Stop> {
        let process = std::process::id();
        let others = (0..COUNT).map(|number| directory.join(format!("name-{process}-{number}"))).collect();
        let names = Self { file: directory.join(format!("file-{process}-named")), others };
        File::create_new(&names.file).map_err(|error| cannot("make", &names.file, &error))?;
        match fs::hard_link(&names.file, &names.others[0]) {
            Ok(()) => fs::remove_file(&names.others[0]).map_err(|error| cannot("remove", &names.others[0], &error))?,
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
                return Err(Stop::skip(format!(
                    "needs a file system on which a file can have several names: {error}; choose another by --dir"
                )));
            }
            Err(error) => return Err(cannot("give another name to", &names.file, &error)),
        }
        Ok(names)
    }

    /// Adds all names and removes them; the ticks of one of each.
    fn pass(&self, clock: Clock) -> Result<[u64; 2], Stop> {
        let added = timed(clock, &self.others, "make the name", |name| fs::hard_link(&self.file, name))?;
        let removed = timed(clock, &self.others, "remove the name", |name| fs::remove_file(name))?;
        Ok([added, removed].map(|ticks| ticks / COUNT as u64))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for path in self.others.iter().chain([&self.file]) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Creates files without names in a directory and closes them; the ticks of all of each.
fn unnamed(directory: &Path, clock: Clock) -> Result<[u64; 2], Stop> {
    let mut files = Vec::with_capacity(COUNT);
    let begun = clock.start();
    for _ in 0..COUNT {
        files.push(
            File::options()
                .write(true)
                .custom_flags(UNNAMED)
                .open(directory)
                .map_err(|error| none(directory, &error))?,
        );
    }
    let made = clock.stop().wrapping_sub(begun);
    let begun = clock.start();
    drop(files);
    Ok([made, clock.stop().wrapping_sub(begun)])
}

/// That no file without a name could be created. A kernel without O_TMPFILE takes the flag for O_DIRECTORY.
fn none(directory: &Path, error: &Error) -> Stop {
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::IsADirectory => {
            Stop::skip(format!("needs a file system with O_TMPFILE: {error}; choose another by --dir"))
        }
        _ => cannot("create a file without a name in", directory, error),
    }
}

fn predict(facts: &Facts<'_>, metric: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id != ENTRY_REMOVE.id {
        return Err(NoPrediction::because("a file system's cost of directories and inodes is not published"));
    }
    let add = facts.measured(&ENTRY_ADD, &Case::new())?;
    Ok(Predicting::same_as(add, expected::FACTOR, " as for adding it")
        .source("Linux fs/ext4/namei.c: ext4_link, ext4_unlink")
        .complete())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;
    use kelvin_sys::clock::Script;

    #[test]
    fn a_name_is_removed_as_it_is_added() {
        facts_about(&[(ENTRY_ADD.id.as_str(), Some(3000.0))], |facts| {
            let of = |metric| predict(facts, metric, &Case::new());
            let remove = of(&ENTRY_REMOVE).unwrap();
            assert_eq!((remove.value, remove.low, remove.high), (3000.0, 1500.0, 6000.0));
            assert!([&ENTRY_ADD, &ENTRY_MAKE, &ENTRY_GIVE_BACK].into_iter().all(|metric| of(metric).is_err()));
        });
    }

    #[test]
    fn names_and_files_come_and_go_and_leave_nothing() {
        let root = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(root.path()).unwrap().count();
        let clock = Clock::Scripted(Script::leak(160));
        let names = Names::in_directory(root.path()).unwrap();
        for _ in 0..2 {
            assert_eq!(names.pass(clock).unwrap(), [10; 2]);
            assert_eq!(count(), 1);
        }
        fs::hard_link(&names.file, &names.others[3]).unwrap();
        drop(names);
        assert_eq!(count(), 0);
        assert_eq!(unnamed(root.path(), clock).unwrap(), [160; 2]);
        assert_eq!(count(), 0);
    }

    #[test]
    fn what_is_not_to_be_had_is_skipped_and_what_fails_says_where() {
        let skips = |code| matches!(none(Path::new("/d"), &Error::from_raw_os_error(code)), Stop::Skip(_));
        // EOPNOTSUPP of a file system, EISDIR of a kernel, EACCES of either.
        assert!(skips(95) && skips(21) && !skips(13));
        let Err(Stop::Fail(reason)) = unnamed(Path::new("/no such directory"), Clock::MonotonicRaw) else {
            panic!("made")
        };
        assert!(reason.contains("/no such directory"), "{reason}");
    }
}
