//! Trees of empty files for measures of names and inodes, each in its own place on the disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::prelude::*;
use kelvin_file::device::Device;
use kelvin_sys::fs::{kind, set_topdir_flag, space};

/// Name of the trees' directory, in the scratch directory.
const TREES_DIRECTORY: &str = "kelvin-trees";
/// Longest time that making the tree may take: a round must end in ten seconds.
const MAX_CREATE_TIME: Duration = Duration::from_secs(5);
/// Bytes to reserve for each file, made once: an inode and an entry, with what is around them.
const FILE_BYTES: u64 = 1024;

/// Directories of files that no probe changes.
pub(super) struct Tree {
    pub directories: Vec<PathBuf>,
    pub files: u64,
}

impl Tree {
    /// A tree of this name and size, shared by all rounds of the run: the first one makes it.
    pub(super) fn open(bench: &mut Bench<'_>, name: &str, files: u64, directories: u64) -> ProbeResult<Self> {
        let top = bench.scratch().join(TREES_DIRECTORY);
        let root = top.join(format!("kelvin-{name}-{files}-{directories}"));
        if !root.exists() {
            check_free_inodes(bench.scratch(), files + directories)?;
            bench.reserve_write(files * FILE_BYTES)?;
            create_trees_directory(bench, &top)?;
            // Whole or not at all, however this round ends; and under a name of this run alone, by which ext4 chooses
            // the group.
            let temporary = root.with_extension(std::process::id().to_string());
            let outcome = create_tree(&temporary, files, directories)
                .and_then(|()| fs::rename(&temporary, &root).or_file_failure("make", &root));
            if outcome.is_err() {
                // This error states more than a failure to tidy up after it.
                let _ = fs::remove_dir_all(&temporary);
            }
            outcome?;
        }
        Ok(Self { directories: (0..directories).map(|number| directory(&root, number)).collect(), files })
    }

    /// The path of one of its files.
    pub(super) fn file(&self, number: u64) -> PathBuf {
        let directory = &self.directories[(number % self.directories.len() as u64) as usize];
        directory.join(file_name(number))
    }

    /// The kind of file system, and whether it is one that remembers removed files; see the pitfalls of file.metadata.
    pub(super) fn file_system(&self) -> ProbeResult<String> {
        let first = self.file(0);
        let name = kind(&first)?.name();
        let device =
            Target::find(&first).map_err(|error| error.to_string()).and_then(|target| Device::of_file(&target));
        // The kernel lists the journals under the names of their devices.
        let (Ok(device), Ok(journals)) = (device, fs::read_dir("/proc/fs/jbd2")) else { return Ok(name) };
        let journals: Vec<String> =
            journals.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        if name != "ext4" || has_journal(&journals, &device.name) {
            return Ok(name);
        }
        Ok("ext4 without a journal: files removed from this block group in the last minutes slow down new ones".into())
    }
}

/// A directory of one round in a place of its own on the disk, for the reason that file.metadata gives; removed on drop with all that
/// is in it.
pub(crate) struct RoundDirectory(PathBuf);

impl RoundDirectory {
    /// Makes one of this name.
    pub(crate) fn create(bench: &mut Bench<'_>, name: &str) -> ProbeResult<Self> {
        let top = bench.scratch().join(TREES_DIRECTORY);
        create_trees_directory(bench, &top)?;
        let path = top.join(format!("kelvin-{name}-{}", std::process::id()));
        fs::create_dir(&path).or_file_failure("make", &path)?;
        Ok(Self(path))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RoundDirectory {
    fn drop(&mut self) {
        // The scratch directory is removed in any case.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The directory of the trees, which a file system may spread over its groups; see the pitfalls of file.metadata.
fn create_trees_directory(bench: &mut Bench<'_>, top: &Path) -> ProbeResult {
    fs::create_dir_all(top).or_file_failure("make", top)?;
    if let Err(error) = File::open(top).and_then(|directory| set_topdir_flag(&directory)) {
        bench.note(format!("its trees are close to each other, as this file system spreads no directories: {error}"));
    }
    Ok(())
}

fn file_name(number: u64) -> String {
    format!("file-{number}")
}

pub(super) fn directory(root: &Path, number: u64) -> PathBuf {
    root.join(format!("directory-{number}"))
}

/// Makes directories below `root`, and files spread evenly over them.
pub(super) fn create_tree(root: &Path, files: u64, directories: u64) -> ProbeResult {
    for number in 0..directories {
        fs::create_dir_all(directory(root, number)).or_file_failure("make", root)?;
    }
    let start = Instant::now();
    for file in 0..files {
        let path = directory(root, file % directories).join(file_name(file));
        File::create_new(&path).or_file_failure("make", &path)?;
        if start.elapsed() > MAX_CREATE_TIME {
            return Err(ProbeError::skip(format!(
                "needs a file system that makes {files} files in {} s, and {} were made; choose another by --dir",
                MAX_CREATE_TIME.as_secs(),
                file + 1
            )));
        }
    }
    Ok(())
}

/// That the file system can hold this many more files; one without a limit can.
fn check_free_inodes(scratch: &Path, files: u64) -> ProbeResult {
    let capacity = space(scratch)?;
    let reason = format!(
        "needs room for {} files in the scratch directory's file system, which has {}; choose another by --dir",
        2 * files,
        capacity.free_files
    );
    skip_if(capacity.total_files > 0 && capacity.free_files < 2 * files, reason)
}

/// Whether one of the kernel's journals (`vda1-8`: the device and an inode) is on a device.
fn has_journal(journals: &[String], device: &str) -> bool {
    journals.iter().any(|journal| journal.rsplit_once('-').is_some_and(|(name, _)| name == device) || journal == device)
}

/// The ticks of an operation on each of some paths.
pub(super) fn time_paths(
    clock: Clock,
    paths: &[PathBuf],
    action: &str,
    mut operation: impl FnMut(&Path) -> std::io::Result<()>,
) -> ProbeResult<u64> {
    let (ticks, outcome) =
        clock.time(|| paths.iter().try_for_each(|path| operation(path).or_file_failure(action, path)));
    outcome.map(|()| ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_found_by_device() {
        let journals = ["vda1-8", "dm-0-8", "loop3"].map(str::to_owned);
        for (device, expected) in [("vda1", true), ("vda", false), ("dm-0", true), ("loop3", true), ("8", false)] {
            assert_eq!(has_journal(&journals, device), expected, "{device}");
        }
    }
}
