//! Links at the receiver: symbolic ones, and further names of files that are in their place.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kelvin_file::Error as FileError;
use kelvin_file::rename_noreplace::{self, PathAt};
use rustix::fs::{AtFlags, FileType, Gid, Uid};
use rustix::io::Errno;

use crate::directory_tree::{DirectoryTree, part_name};
use crate::file_name::FileName;
use crate::incoming_file::PlacedFiles;
use crate::message::{EntryDecision, EntryNumber, FileEntry};
use crate::metadata::utimens;
use crate::offer_policy::stat_entry;
use crate::{Error, Result};

/// Most bytes of a link's path (PATH_MAX of limits.h).
const MAX_LINK_TARGET: usize = 4095;
/// Most files of a session that can have several names, and most bytes of their names: they cost memory at both ends.
pub const MAX_LINKED_FILES: usize = 1 << 20;
/// See [`MAX_LINKED_FILES`].
pub const MAX_LINKED_NAME_BYTES: usize = 64 << 20;

/// Makes a symbolic link, at once and whole, where nothing is, or a link that may be replaced.
///
/// # Errors
/// Those of making it; something else under its name.
pub(crate) fn make_symbolic(tree: &mut DirectoryTree, entry: &FileEntry, target: &[u8], overwrite: bool) -> Result<()> {
    let path = tree.path(entry);
    let parent = tree.open_directory(entry.parent)?;
    let directory = &*parent.directory;
    let link_error = |error: Errno| FileError::call("make the link", &path, error.into());
    if target.is_empty() || target.len() > MAX_LINK_TARGET || target.contains(&0) {
        return Err(FileError::call("make the link", &path, ErrorKind::InvalidInput.into()).into());
    }
    if stat_entry(&parent, entry, &path, FileType::Symlink)?.is_some() {
        let existing = rustix::fs::readlinkat(directory, entry.name.as_os_str(), Vec::new()).map_err(link_error)?;
        if existing.as_bytes() == target {
            return Ok(());
        }
        if !overwrite {
            return Err(FileError::AlreadyExists { path }.into());
        }
    }
    let make = |temporary: &str| {
        rustix::fs::symlinkat(OsStr::from_bytes(target), directory, temporary)?;
        set_link_metadata(directory, temporary, entry)
    };
    make_at(directory, entry, overwrite, make).map_err(link_error)?;
    tree.mark_new_name(entry.parent);
    Ok(())
}

/// Makes something under a name of its own, and gives it that of an entry.
fn make_at(
    directory: &File,
    entry: &FileEntry,
    overwrite: bool,
    make: impl FnOnce(&str) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let temporary = part_name(entry, 0);
    // One that a killed receiver left.
    let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
    let outcome = make(&temporary).and_then(|()| {
        let (old_path, new_path) = (Path::new(&temporary), entry.name.as_os_str());
        match overwrite {
            true => rustix::fs::renameat(directory, old_path, directory, new_path),
            false => rename_noreplace::rename_noreplace(
                PathAt::in_directory(directory.as_fd(), old_path),
                PathAt::in_directory(directory.as_fd(), new_path),
            ),
        }
    });
    if outcome.is_err() {
        let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
    }
    outcome
}

/// Gives a link its time and owner.
fn set_link_metadata(directory: &File, name: &str, entry: &FileEntry) -> rustix::io::Result<()> {
    rustix::fs::utimensat(directory, name, &utimens(entry.modified), AtFlags::SYMLINK_NOFOLLOW)?;
    if let Some((user, group)) = entry.owner {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// A file that may get further names: where it is, and its device and inode.
#[derive(Debug)]
struct LinkedFile {
    parent: u32,
    name: FileName,
    identity: (u64, u64),
}

/// The files of a session that are in their place and may get further names.
///
/// A sender names one by its number. So no other file gets a further name, wherever it is.
#[derive(Debug, Default)]
pub(crate) struct LinkedFiles {
    files: HashMap<EntryNumber, LinkedFile>,
    name_bytes: usize,
}

impl LinkedFiles {
    /// A file is in its place.
    ///
    /// # Errors
    /// More of them than one transfer can have.
    pub(crate) fn record(
        &mut self,
        tree: &mut DirectoryTree,
        (number, entry): (EntryNumber, &FileEntry),
    ) -> Result<()> {
        self.name_bytes += entry.name.as_os_str().len();
        let is_allowed = self.files.len() < MAX_LINKED_FILES && self.name_bytes <= MAX_LINKED_NAME_BYTES;
        Error::ensure(is_allowed, "it offers more files of several names than one transfer can have")?;
        // One that has gone gets no further name.
        let Ok(directory) = tree.open_directory(entry.parent) else { return Ok(()) };
        if let Some(identity) = identity_of(&directory.directory, entry.name.as_os_str()) {
            let linked = LinkedFile { parent: entry.parent, name: entry.name.clone(), identity };
            self.files.insert(number, linked);
        }
        Ok(())
    }

    /// Gives a file a further name, where nothing is, or a file that may be replaced.
    ///
    /// # Errors
    /// A file that is not in its place, or not what it was then; something under the name; those of linking.
    pub(crate) fn add_name(
        &self,
        tree: &mut DirectoryTree,
        (entry, first): (&FileEntry, EntryNumber),
        (is_dry, placed_files): (bool, Option<&PlacedFiles>),
    ) -> Result<EntryDecision> {
        let (path, linked) = (tree.path(entry), self.files.get(&first));
        let directory = match tree.open_directory(entry.parent) {
            // A directory that is not there yet, and would have been made.
            Err(Error::File(_)) if is_dry => return Ok(EntryDecision::Made),
            directory => directory?,
        };
        if let Some(existing) = stat_entry(&directory, entry, &path, FileType::RegularFile)? {
            let identity = (existing.st_dev, existing.st_ino);
            if placed_files.is_some_and(|placed| placed.contains(identity)) {
                return Err(Error::NameCollision(path));
            }
            if linked.is_some_and(|linked| linked.identity == identity) {
                return Ok(EntryDecision::Unchanged);
            }
            if placed_files.is_none() {
                return Err(FileError::AlreadyExists { path }.into());
            }
        }
        if is_dry {
            return Ok(EntryDecision::Made);
        }
        let LinkedFile { parent, name, identity } = linked.ok_or_else(|| Error::FirstNameMissing(path.clone()))?;
        let first_directory = tree.open_directory(*parent)?;
        let (directory, mut is_replaced) = (&*directory.directory, false);
        let link = |temporary: &str| {
            // A symbolic link in its place is not followed.
            rustix::fs::linkat(&*first_directory.directory, name.as_os_str(), directory, temporary, AtFlags::empty())?;
            is_replaced = identity_of(directory, temporary.as_ref()) != Some(*identity);
            if is_replaced { Err(Errno::STALE) } else { Ok(()) }
        };
        let outcome = make_at(directory, entry, placed_files.is_some(), link);
        if is_replaced {
            return Err(Error::FirstNameMissing(path));
        }
        outcome.map_err(|error| FileError::call("make the hard link", &path, error.into()))?;
        tree.mark_new_name(entry.parent);
        Ok(EntryDecision::Made)
    }
}

/// Device and inode of a regular file; none of anything else.
fn identity_of(directory: &File, name: &OsStr) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_regular.then_some((stat.st_dev, stat.st_ino))
}
