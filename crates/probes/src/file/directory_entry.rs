//! The costs of names and of inodes apart: creating and closing an O_TMPFILE file, and adding and removing a name of a file.
//!
//! They explain creating, renaming and removing files. They must not be taken for what programs mostly do, which is both at
//! once.

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kelvin_core::catalogue::file::{ENTRY, ENTRY_ADD, ENTRY_CREATE, ENTRY_FREE, ENTRY_REMOVE};
use kelvin_sys::fs::O_TMPFILE;

use super::derived_time;
use super::prelude::*;
use super::tree::{Tree, time_paths};

pub(crate) static PROBE: Probe = Probe {
    id: ENTRY.as_str(),
    summary: "Creating files without a name (O_TMPFILE) and names of a file: the parts of creating and removing files",
    method: include_str!("directory_entry.md"),
    run,
    predict,
    ..Probe::measure(&[&ENTRY_CREATE, &ENTRY_FREE, &ENTRY_ADD, &ENTRY_REMOVE])
};

/// Files already there: as in the case of file.metadata that every run has.
const EXISTING_FILES: u64 = 1000;
/// Files and names made in a row: enough that a clock reading is nothing, and few, as in file.metadata.
const LINKS_PER_PASS: usize = 16;
/// Bytes to reserve: the blocks that hold them, once for each of the four changes.
const ROUND_BYTES: u64 = 1 << 20;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let tree = Tree::open(bench, "entries", EXISTING_FILES, 1)?;
    bench.reserve_write(ROUND_BYTES)?;
    bench.note(tree.file_system()?);
    let directory = &tree.directories[0];
    let links = HardLinks::in_directory(directory)?;
    bench.time_each([&ENTRY_ADD, &ENTRY_REMOVE], |clock| links.pass(clock))?;
    drop(links);
    let [create_ticks, free_ticks] = time_unnamed_files(directory, bench.clock())?;
    bench.record(&ENTRY_CREATE, vec![bench.nanoseconds(create_ticks) / LINKS_PER_PASS as f64]);
    bench.record(&ENTRY_FREE, vec![bench.nanoseconds(free_ticks) / LINKS_PER_PASS as f64]);
    Ok(())
}

/// A file and its names; all are removed when dropped.
struct HardLinks {
    file: PathBuf,
    names: Vec<PathBuf>,
}

impl HardLinks {
    fn in_directory(directory: &Path) -> ProbeResult<Self> {
        let process = std::process::id();
        let names = (0..LINKS_PER_PASS).map(|number| directory.join(format!("name-{process}-{number}"))).collect();
        let links = Self { file: directory.join(format!("file-{process}-named")), names };
        File::create_new(&links.file).or_file_failure("make", &links.file)?;
        match fs::hard_link(&links.file, &links.names[0]) {
            Ok(()) => fs::remove_file(&links.names[0]).or_file_failure("remove", &links.names[0])?,
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
                return Err(ProbeError::skip(format!(
                    "needs a file system on which a file can have several names: {error}; choose another by --dir"
                )));
            }
            result => result.or_file_failure("give another name to", &links.file)?,
        }
        Ok(links)
    }

    /// Adds all names and removes them; the ticks of one of each.
    fn pass(&self, clock: Clock) -> ProbeResult<[u64; 2]> {
        let add_ticks = time_paths(clock, &self.names, "make the name", |name| fs::hard_link(&self.file, name))?;
        let remove_ticks = time_paths(clock, &self.names, "remove the name", |name| fs::remove_file(name))?;
        Ok([add_ticks, remove_ticks].map(|ticks| ticks / LINKS_PER_PASS as u64))
    }
}

impl Drop for HardLinks {
    fn drop(&mut self) {
        for path in self.names.iter().chain([&self.file]) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Creates files without names in a directory and closes them; the ticks of all of each.
fn time_unnamed_files(directory: &Path, clock: Clock) -> ProbeResult<[u64; 2]> {
    let mut files = Vec::with_capacity(LINKS_PER_PASS);
    let create_file =
        |_| File::options().write(true).custom_flags(O_TMPFILE).open(directory).map(|file| files.push(file));
    let (create_ticks, outcome) = clock.time(|| (0..LINKS_PER_PASS).try_for_each(create_file));
    check_unnamed_files(directory, outcome)?;
    let (close_ticks, ()) = clock.time(|| drop(files));
    Ok([create_ticks, close_ticks])
}

/// That files without a name could be created. A kernel without O_TMPFILE takes the flag for O_DIRECTORY.
fn check_unnamed_files(directory: &Path, outcome: Result<(), Error>) -> ProbeResult {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::IsADirectory) => {
            Err(ProbeError::skip(format!("needs a file system with O_TMPFILE: {error}; choose another by --dir")))
        }
        other => other.or_file_failure("create a file without a name in", directory),
    }
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    unpredicted_if(metric.id != ENTRY_REMOVE.id, "a file system's cost of directories and inodes is not published")?;
    let add = measured(facts, &ENTRY_ADD, &Case::new())?.source("Linux fs/ext4/namei.c: ext4_link, ext4_unlink");
    Ok(derived_time::predict_from_parts(add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;
    use kelvin_sys::clock::ScriptedClock;

    #[test]
    fn removal_is_predicted_as_addition() {
        with_facts(&[(ENTRY_ADD.id.as_str(), Some(3000.0))], |facts| {
            let predicted = |metric| predict(facts, metric, &Case::new());
            let remove = predicted(&ENTRY_REMOVE).unwrap();
            assert_eq!((remove.value, remove.low, remove.high), (3000.0, 1500.0, 6000.0));
            assert!([&ENTRY_ADD, &ENTRY_CREATE, &ENTRY_FREE].into_iter().all(|metric| predicted(metric).is_err()));
        });
    }

    #[test]
    fn links_and_files_are_cleaned_up() {
        let root = tempfile::tempdir().unwrap();
        let count = || fs::read_dir(root.path()).unwrap().count();
        let clock = Clock::Scripted(ScriptedClock::leak(160));
        let links = HardLinks::in_directory(root.path()).unwrap();
        for _ in 0..2 {
            assert_eq!(links.pass(clock).unwrap(), [10; 2]);
            assert_eq!(count(), 1);
        }
        fs::hard_link(&links.file, &links.names[3]).unwrap();
        drop(links);
        assert_eq!(count(), 0);
        assert_eq!(time_unnamed_files(root.path(), clock).unwrap(), [160; 2]);
        assert_eq!(count(), 0);
    }

    #[test]
    fn unsupported_is_skipped_failures_name_path() {
        let outcome = |code| check_unnamed_files(Path::new("/d"), Err(Error::from_raw_os_error(code)));
        let skips = |code| matches!(outcome(code), Err(ProbeError::Skip(_)));
        // EOPNOTSUPP of a file system, EISDIR of a kernel, EACCES of either.
        assert!(skips(95) && skips(21) && !skips(13));
        let Err(ProbeError::Fail(reason)) = time_unnamed_files(Path::new("/no such directory"), Clock::MonotonicRaw)
        else {
            panic!("made")
        };
        assert!(reason.contains("/no such directory"), "{reason}");
    }
}
