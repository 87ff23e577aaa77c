//! Small files, of which there may be many: each is made without a name, and linked into its place when it is whole.
//!
//! Where that cannot be, it is made in a hidden directory beside its place, and renamed. That directory is locked, so that the
//! files in it need no lock of their own, and inherits what files in its place would: group and access control list. What a killed
//! receiver leaves of it is removed by the next one; of a file without a name it leaves nothing.
//!
//! A file without a name saves the lookups, insertions and the removal of its first name: made, written and put into its place it
//! took 0.91 of the time in a tmpfs, 0.9 on ext4 and XFS and 0.92 on Btrfs (Linux 6.18). A file that is flushed gets a first name
//! all the same: what has none need not be there after a crash, and Btrfs writes less of it. So does one on a file system of another
//! machine or program: it must be closed before it gets its last name, since only that shows whether all of it was taken.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use kelvin_file::Error as FileError;
use kelvin_file::rename::{self, At};
use kelvin_file::temporary::{Scratch, reach};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::deposit::describe;
use crate::expected;
use crate::message::{Entry, EntryKind, Modified};
use crate::name::Name;
use crate::tree::{Held, RIGHTS};
use crate::{Error, Result};

/// Where the process's umask is found: the last word of its line.
const STATUS: &str = "/proc/self/status";
const UMASK: &str = "Umask:";

/// Where the small files of a directory are made.
#[derive(Debug)]
pub struct Staging {
    /// A directory beside their places, once one was needed. Removed before the directory is closed by which it is reached.
    scratch: OnceLock<Scratch>,
    held: Arc<Held>,
    /// Whether files can have no name until they are linked, as far as is known.
    takes_nameless: AtomicBool,
    /// How many files were made in the hidden directory.
    made: AtomicU64,
    /// Permissions that a new file does not get.
    umask: u32,
}

/// A small file, all of it.
#[derive(Clone, Copy)]
pub struct Small<'a> {
    /// What was offered.
    pub entry: &'a Entry,
    /// Its bytes.
    pub content: &'a [u8],
    /// Where it goes, in words: for an error.
    pub path: &'a dyn Fn() -> PathBuf,
    /// Whether it is flushed to its device.
    pub sync: bool,
}

impl Small<'_> {
    /// The error of a call.
    fn failed<E: Into<std::io::Error>>(&self, doing: &'static str) -> impl Fn(E) -> Error {
        move |error| FileError::call(doing, &(self.path)(), error.into()).into()
    }

    /// The error that it could not be put into its place.
    fn unplaced(&self, error: Errno) -> Error {
        match error {
            Errno::EXIST => FileError::Exists { path: (self.path)() }.into(),
            error => self.failed("put a file in the place of")(error),
        }
    }
}

impl Staging {
    /// For a directory.
    pub fn beside(held: &Arc<Held>) -> Self {
        let (scratch, held, takes_nameless) = (OnceLock::new(), Arc::clone(held), held.files.are_of_one_machine());
        Self { scratch, held, takes_nameless: takes_nameless.into(), made: AtomicU64::new(0), umask: umask() }
    }

    /// Makes a file, and gives it its name if there is nothing under it.
    ///
    /// # Errors
    /// Those of writing; something under its name. Then nothing is left of it.
    pub fn put(&self, small: &Small<'_>) -> Result<()> {
        let may_be_nameless = !small.sync && self.takes_nameless.load(Ordering::Relaxed);
        if may_be_nameless && self.put_nameless(small)? {
            return Ok(());
        }
        self.put_by_name(small)
    }

    /// Makes a file without a name, and links it; says whether that can be done here.
    fn put_nameless(&self, small: &Small<'_>) -> Result<bool> {
        let made = nameless(&self.held.directory, small.entry);
        let linked = made.map_or(Ok(None), |file| self.fill(file, small).map(Some))?;
        match linked.map(|file| link(&file, &self.held.directory, small.entry.name.as_os_str())) {
            Some(Ok(())) => Ok(true),
            Some(Err(error @ (Errno::EXIST | Errno::NAMETOOLONG))) => Err(small.unplaced(error)),
            // By name it will be done, or shown why not.
            Some(Err(_)) | None => {
                self.takes_nameless.store(false, Ordering::Relaxed);
                Ok(false)
            }
        }
    }

    /// Makes a file in the hidden directory, and renames it.
    fn put_by_name(&self, small: &Small<'_>) -> Result<()> {
        let directory = self.scratch(small)?.directory();
        let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
        let made = self.make(directory, &name, small);
        let put = made.and_then(|()| rename((directory, &name), (&self.held.directory, small)));
        if put.is_err() {
            // What cannot be removed is removed with the directory.
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
        put
    }

    /// The hidden directory.
    fn scratch(&self, small: &Small<'_>) -> Result<&Scratch> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch);
        }
        let made =
            Scratch::make_hidden(&reach(&self.held.directory)).map_err(small.failed("make a directory beside"))?;
        Ok(self.scratch.get_or_init(|| made))
    }

    /// What making a small file costs beside its bytes, in nanoseconds of CPU time: several are made in the hidden directory.
    ///
    /// # Errors
    /// Those of making them.
    pub fn cost(&self) -> Result<u64> {
        let name = Name::try_from(b"small".to_vec()).map_err(Error::Nonsense)?;
        let kind = EntryKind::File { bytes: 0, stored: 0 };
        let modified = Modified { seconds: 1, nanoseconds: 0 };
        let entry = Entry { parent: 0, name, kind, mode: 0o644, modified, owner: None, attributes: Vec::new() };
        let path = || PathBuf::from(".");
        let small = Small { entry: &entry, content: &[], path: &path, sync: false };
        let directory = self.scratch(&small)?.directory();
        let mut failed = Ok(());
        let spent = expected::cpu_time(|| {
            failed = (0..expected::FILES).try_for_each(|number| self.try_one((directory, number), &small));
            Ok(())
        });
        failed.and(Ok(spent.map_err(small.failed("time"))? / expected::FILES as u64))
    }

    /// Makes an empty file in a directory, as others are made, under a name of this number.
    fn try_one(&self, (directory, number): (&File, usize), small: &Small<'_>) -> Result<()> {
        let last = format!("cost-{number}");
        if self.takes_nameless.load(Ordering::Relaxed) {
            let made = nameless(directory, small.entry).map_err(small.failed("make a file beside"))?;
            return link(&self.fill(made, small)?, directory, last.as_ref()).map_err(small.failed("link"));
        }
        let first = format!("first-{number}");
        self.make(directory, &first, small)?;
        let directory = directory.as_fd();
        rename::to_new_name(At::inside(directory, &first), At::inside(directory, &last)).map_err(small.failed("rename"))
    }

    fn make(&self, directory: &File, name: &str, small: &Small<'_>) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(directory, name, flags, rights(small.entry));
        let filled = self.fill(made.map_err(small.failed("make a file beside"))?.into(), small)?;
        kelvin_sys::fs::close(filled).map_err(small.failed("close"))
    }

    /// Gives a new file all but its last name.
    fn fill(&self, file: File, small: &Small<'_>) -> Result<File> {
        let Small { entry, content, path, sync } = *small;
        // By its position: that of the file would be locked, since other threads could share it.
        file.write_all_at(content, 0).map_err(small.failed("write"))?;
        if entry.mode & RIGHTS & self.umask != 0 {
            rustix::fs::fchmod(&file, rights(entry)).map_err(small.failed("keep the permissions of"))?;
        }
        describe(&file, path, entry)?;
        if sync {
            file.sync_all().map_err(small.failed("flush"))?;
        }
        Ok(file)
    }
}

fn rights(entry: &Entry) -> Mode {
    Mode::from_raw_mode(entry.mode & RIGHTS)
}

/// A file in a directory, without a name there.
fn nameless(directory: &File, entry: &Entry) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    rustix::fs::openat(directory, ".", flags, rights(entry)).map(File::from)
}

/// Gives a file without a name one where nothing is under it. Whoever did not make it needs a right for that, and before Linux 6.10
/// its maker does.
fn link(file: &File, directory: &File, name: &OsStr) -> rustix::io::Result<()> {
    rustix::fs::linkat(file, "", directory, name, AtFlags::EMPTY_PATH)
}

/// Renames a file into its place.
fn rename((from, name): (&File, &str), (to, small): (&File, &Small<'_>)) -> Result<()> {
    let (from, to) = (At::inside(from.as_fd(), name), At::inside(to.as_fd(), small.entry.name.as_os_str()));
    rename::to_new_name(from, to).map_err(|error| small.unplaced(error))
}

/// The process's umask; all permissions where it is unknown, so that each is set.
fn umask() -> u32 {
    let status = std::fs::read_to_string(STATUS).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(UMASK));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(RIGHTS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use kelvin_testing::mounted::{FileSystemKind, Mounted};

    use super::*;
    use crate::tree::{Root, Tree};

    const CONTENT: &[u8] = b"some bytes";
    /// More than a usual umask leaves.
    const MODE: u32 = 0o666;
    const MODIFIED: Modified = Modified { seconds: 1_000_000_000, nanoseconds: 0 };

    fn beside(directory: &Path) -> Staging {
        Staging::beside(&Tree::new(Root::open(directory).unwrap()).held(0).unwrap())
    }

    fn put(staging: &Staging, name: &str, (content, sync): (&[u8], bool)) -> Result<()> {
        let name = name.as_bytes().to_vec().try_into().unwrap();
        let kind = EntryKind::File { bytes: content.len() as u64, stored: 0 };
        let entry =
            Entry { parent: 0, name, kind, mode: MODE, modified: MODIFIED, owner: None, attributes: Vec::new() };
        staging.put(&Small { entry: &entry, content, path: &|| PathBuf::from("told"), sync })
    }

    fn names(directory: &Path) -> Vec<String> {
        let all = std::fs::read_dir(directory).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// That files get their names once, with all that belongs to them, and nothing beside them stays; says whether they had none
    /// before.
    fn try_in(directory: &Path, takes_nameless: bool, sync: bool) -> bool {
        let staging = beside(directory);
        staging.takes_nameless.store(takes_nameless, Ordering::Relaxed);
        put(&staging, "a", (CONTENT, sync)).unwrap();
        let refused = put(&staging, "a", (b"other", sync)).unwrap_err();
        assert!(
            matches!(&refused, Error::File(FileError::Exists { path }) if path == Path::new("told")),
            "{refused:?}"
        );
        put(&staging, "b", (&[], sync)).unwrap();
        let (found, modified) = (std::fs::read(directory.join("a")).unwrap(), MODIFIED.seconds);
        let about = std::fs::metadata(directory.join("a")).unwrap();
        assert_eq!((&found[..], about.mode() & RIGHTS, about.mtime()), (CONTENT, MODE, modified));
        let was_nameless = staging.scratch.get().is_none();
        assert_eq!(names(directory).len(), if was_nameless { 2 } else { 3 }, "{:?}", names(directory));
        drop(staging);
        let mut left = names(directory);
        left.sort();
        assert_eq!(left, ["a", "b"]);
        was_nameless
    }

    #[test]
    fn a_file_is_whole_when_it_has_its_name_however_it_is_made() {
        for (takes_nameless, sync) in [(true, false), (false, false), (true, true), (false, true)] {
            let directory = tempfile::tempdir().unwrap();
            let was_nameless = try_in(directory.path(), takes_nameless, sync);
            assert!(!was_nameless || takes_nameless && !sync);
        }
    }

    /// FUSE has no files without names where the program that serves it makes none, as sshfs does.
    #[test]
    fn where_no_file_is_without_a_name_each_has_one_from_the_beginning() {
        let base = tempfile::tempdir().unwrap();
        // bindfs (1.14.7) sets no time of modification without one of access.
        for kind in FileSystemKind::ALL.into_iter().filter(|kind| *kind != FileSystemKind::Bindfs) {
            let mounted = match Mounted::of(kind, base.path()) {
                Ok(mounted) => mounted,
                Err(missing) => {
                    missing.skips(format!("small files on {}", kind.name()));
                    continue;
                }
            };
            let directory = mounted.path().join("files");
            std::fs::create_dir(&directory).unwrap();
            let was_nameless = try_in(&directory, true, false);
            assert!(!was_nameless || kind != FileSystemKind::Sshfs);
        }
    }

    #[test]
    fn what_a_file_costs_is_known_and_nothing_of_it_stays() {
        for takes_nameless in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let staging = beside(directory.path());
            staging.takes_nameless.store(takes_nameless, Ordering::Relaxed);
            assert!(staging.cost().unwrap() > 0);
            drop(staging);
            assert_eq!(names(directory.path()), [""; 0]);
        }
    }

    #[test]
    fn nothing_of_it_stays_while_the_directory_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::new(Root::open(directory.path()).unwrap());
        assert!(tree.cost_of_making().unwrap() > 0);
        assert_eq!(names(directory.path()), [""; 0]);
    }

    #[test]
    fn the_umask_is_known() {
        assert!(umask() < RIGHTS, "{:o}", umask());
    }
}
