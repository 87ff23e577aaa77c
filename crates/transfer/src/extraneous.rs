//! What is in the receiver's directories and was not offered: found, listed for the sender, and deleted where the sender asks for it.
//!
//! The sender names what is to be deleted by the numbers of the list alone. So nothing can be deleted that was not found in a directory
//! that was offered, and that is still what it was when it was found.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_file::Error as FileError;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::directory_tree::{DirectoryTree, is_reserved_name};
use crate::file_name::FileName;
use crate::message::{ExtraneousEntry, ExtraneousParent};
use crate::{Error, Result};

/// Most entries of a list, and most bytes of their names: they cost memory at both ends.
pub const MAX_EXTRANEOUS: usize = 1 << 20;
/// See [`MAX_EXTRANEOUS`].
pub const MAX_EXTRANEOUS_BYTES: usize = 64 << 20;
/// Most entries that can be offered where others are deleted: each costs some bytes of memory.
const MAX_OFFERED_NAMES: usize = 1 << 24;
/// Most directories above an entry that was not offered.
const MAX_DEPTH: usize = 512;

/// All names that were offered, by their hash: names that share one are taken for offered, and so are not deleted.
#[derive(Debug, Default)]
pub(crate) struct OfferedNames {
    hasher: RandomState,
    /// Whether what has the name came, or was there.
    names: HashMap<u64, bool>,
    /// How many such there are in each directory.
    present: HashMap<u32, usize>,
}

impl OfferedNames {
    fn key(&self, parent: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one((parent, name))
    }

    /// A name was offered.
    ///
    /// # Errors
    /// Too many.
    pub(crate) fn add(&mut self, parent: u32, name: &FileName) -> Result<()> {
        Error::ensure(self.names.len() < MAX_OFFERED_NAMES, "it offers more than it may where others are deleted")?;
        self.names.entry(self.key(parent, name.as_os_str().as_bytes())).or_insert(false);
        Ok(())
    }

    /// What has the name is in its place.
    pub(crate) fn mark_present(&mut self, parent: u32, name: &FileName) {
        let key = self.key(parent, name.as_os_str().as_bytes());
        if self.names.insert(key, true) != Some(true) {
            *self.present.entry(parent).or_default() += 1;
        }
    }

    /// What of a directory was not offered. None where a name that was offered and is there is listed under another one, by a file system
    /// that knows no case, or no forms of letters: what is listed may then be what has just arrived.
    fn not_offered(&self, parent: u32, listed: Vec<FileName>) -> Option<Vec<FileName>> {
        let mut present = 0;
        let is_extraneous = |name: &FileName| match self.names.get(&self.key(parent, name.as_os_str().as_bytes())) {
            Some(is_present) => {
                present += usize::from(*is_present);
                false
            }
            None => !is_reserved_name(name),
        };
        let extraneous: Vec<FileName> = listed.into_iter().filter(is_extraneous).collect();
        (present >= self.present.get(&parent).copied().unwrap_or_default()).then_some(extraneous)
    }
}

/// Something that was not offered.
#[derive(Debug)]
struct ListedEntry {
    entry: ExtraneousEntry,
    /// Its directory that was offered.
    directory: u32,
    depth: usize,
    /// Device and inode.
    identity: (u64, u64),
}

/// What was not offered, each directory before what is in it.
#[derive(Debug, Default)]
pub(crate) struct ExtraneousList {
    entries: Vec<ListedEntry>,
    name_bytes: usize,
}

impl ExtraneousList {
    /// Finds what is in the directories that were offered. `report` is called now and then, with what was found so far.
    ///
    /// # Errors
    /// A directory that cannot be read; too much. Those of `report`.
    pub(crate) fn find(
        &mut self,
        tree: &mut DirectoryTree,
        offered: &OfferedNames,
        mut report: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        for directory in 1..=tree.offered_count() {
            let opened = match tree.open_directory(directory) {
                // Of a dry run, or refused.
                Err(Error::File(_) | Error::ReservedName(_)) => continue,
                opened => opened?,
            };
            let path = tree.path_of(directory);
            let names = read_names(&opened.directory, &path)?;
            let Some(names) = offered.not_offered(directory, names) else { return Err(Error::NamesDiffer(path)) };
            let first = self.entries.len();
            self.add_all(&opened.directory, (directory, ExtraneousParent::Offered(directory)), 0, names)?;
            report(self)?;
            let mut next = first;
            while next < self.entries.len() {
                self.add_content(tree, next)?;
                report(self)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Adds what is in a directory that was not offered.
    fn add_content(&mut self, tree: &mut DirectoryTree, number: usize) -> Result<()> {
        let ListedEntry { entry, directory, depth, identity } = &self.entries[number];
        if !entry.is_directory {
            return Ok(());
        }
        let (directory, depth, device) = (*directory, *depth, identity.0);
        let path = self.path(tree, number);
        let opened = self.open(tree, number)?;
        let parent = ExtraneousParent::Extraneous(number as u32);
        // What is mounted is no part of it.
        if rustix::fs::fstat(&opened).is_ok_and(|stat| stat.st_dev != device) {
            return Ok(());
        }
        let names = read_names(&opened, &path)?;
        self.add_all(&opened, (directory, parent), depth + 1, names)
    }

    fn add_all(
        &mut self,
        opened: &File,
        (directory, parent): (u32, ExtraneousParent),
        depth: usize,
        names: Vec<FileName>,
    ) -> Result<()> {
        let device = rustix::fs::fstat(opened).map_or(0, |stat| stat.st_dev);
        for name in names {
            let Ok(stat) = rustix::fs::statat(opened, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.name_bytes += name.as_os_str().len();
            if self.entries.len() >= MAX_EXTRANEOUS || self.name_bytes > MAX_EXTRANEOUS_BYTES || depth > MAX_DEPTH {
                return Err(Error::TooManyExtraneous);
            }
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            // What is mounted stays.
            if stat.st_dev != device {
                continue;
            }
            let entry = ExtraneousEntry { parent, name, is_directory };
            self.entries.push(ListedEntry { entry, directory, depth, identity: (stat.st_dev, stat.st_ino) });
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Those from this one on, in their order.
    pub(crate) fn entries_from(&self, first: usize) -> impl Iterator<Item = &ExtraneousEntry> {
        self.entries[first..].iter().map(|listed| &listed.entry)
    }

    /// Where one is, from the directory that is served.
    pub(crate) fn path(&self, tree: &DirectoryTree, number: usize) -> PathBuf {
        let ListedEntry { entry, directory, .. } = &self.entries[number];
        let parent = match entry.parent {
            ExtraneousParent::Offered(_) => tree.path_of(*directory),
            ExtraneousParent::Extraneous(parent) => self.path(tree, parent as usize),
        };
        parent.join(entry.name.as_os_str())
    }

    /// Opens a directory, name by name from the one that was offered. No link is followed.
    fn open(&self, tree: &mut DirectoryTree, number: usize) -> Result<File> {
        let parent = self.open_parent(tree, number)?;
        let name = self.entries[number].entry.name.as_os_str();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&*parent, name, flags, Mode::empty());
        Ok(opened.map_err(|error| FileError::call("open", &self.path(tree, number), error.into()))?.into())
    }

    fn open_parent(&self, tree: &mut DirectoryTree, number: usize) -> Result<Arc<File>> {
        match self.entries[number].entry.parent {
            ExtraneousParent::Offered(directory) => Ok(Arc::clone(&tree.open_directory(directory)?.directory)),
            ExtraneousParent::Extraneous(parent) => Ok(Arc::new(self.open(tree, parent as usize)?)),
        }
    }

    /// Deletes one, if it is what was found. A directory must be empty by now.
    ///
    /// # Errors
    /// That it is something else, and those of deleting it.
    pub(crate) fn delete(&self, tree: &mut DirectoryTree, number: usize) -> Result<()> {
        let ListedEntry { entry, identity, directory, .. } = &self.entries[number];
        let parent = self.open_parent(tree, number)?;
        let name = entry.name.as_os_str();
        let path = self.path(tree, number);
        let call_error = |error: Errno| FileError::call("delete", &path, error.into());
        let stat = rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(call_error)?;
        if (stat.st_dev, stat.st_ino) != *identity {
            return Err(FileError::Changed { path, change: "another file has taken its place".into() }.into());
        }
        let flags = if entry.is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&*parent, name, flags).map_err(call_error)?;
        tree.mark_new_name(*directory);
        Ok(())
    }
}

/// The names in a directory that is held open, in their order.
fn read_names(directory: &File, path: &Path) -> Result<Vec<FileName>> {
    let read_error = |error: Errno| FileError::call("read", path, error.into());
    // It was opened to find files from it (O_PATH), and not to be read.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, ".", flags, Mode::empty()).map_err(read_error)?;
    let mut listing = Dir::new(opened).map_err(read_error)?;
    let mut names = Vec::new();
    while let Some(entry) = listing.read() {
        let name = entry.map_err(read_error)?.file_name().to_bytes().to_vec();
        // The directory itself and the one above have no such name.
        names.extend(FileName::try_from(name).ok());
        if names.len() > MAX_OFFERED_NAMES {
            return Err(Error::TooManyExtraneous);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        text.as_bytes().to_vec().try_into().unwrap()
    }

    #[test]
    fn names_of_other_directories_are_extraneous() {
        let mut offered = OfferedNames::default();
        offered.add(1, &name("a")).unwrap();
        offered.add(2, &name("b")).unwrap();
        let listed = || vec![name("a"), name("b"), name(".kelvin-part-x")];
        assert_eq!(offered.not_offered(1, listed()), Some(vec![name("b")]));
        assert_eq!(offered.not_offered(2, listed()), Some(vec![name("a")]));
    }

    /// A file system that knows no case lists the file that has just come under the name that it had before.
    #[test]
    fn directory_with_other_spelling_is_not_judged() {
        let mut offered = OfferedNames::default();
        for offered_name in ["Case", "other", "refused"] {
            offered.add(1, &name(offered_name)).unwrap();
        }
        offered.mark_present(1, &name("Case"));
        offered.mark_present(1, &name("Case"));
        offered.mark_present(1, &name("other"));
        assert_eq!(offered.not_offered(1, vec![name("case"), name("other"), name("refused")]), None);
        assert_eq!(offered.not_offered(1, vec![name("Case"), name("other"), name("x")]), Some(vec![name("x")]));
    }
}
