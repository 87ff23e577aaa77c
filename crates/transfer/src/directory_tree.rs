//! The receiver's directories: the one that it serves, which is held open, and those that were offered below it.
//!
//! Each is found from the one above by its name alone, and no link is followed, even if others change the names meanwhile.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_file::Error as FileError;
use kelvin_file::temporary_files::{HIDDEN_PREFIXES, descriptor_path};
use kelvin_sys::fs::flush_directory;
use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::file_name::FileName;
use crate::message::{Acl, FileEntry, Mtime, PERMISSION_BITS};
use crate::metadata::utimens;
use crate::open_directory::{OpenDirectory, PART_PREFIX};
use crate::staging::Staging;
use crate::{Error, Result};

/// Directories that are held open at one time.
const MAX_OPEN_DIRECTORIES: usize = 32;
/// Most directories of a session, and most bytes of their names and access control lists: they cost memory until its end.
pub const MAX_DIRECTORIES: usize = 100_000;
/// See [`MAX_DIRECTORIES`].
pub const MAX_NAME_BYTES: usize = 8 << 20;
/// Most components of a path: no path of 4096 bytes, by which a sender finds a directory, has more.
const MAX_DEPTH: u16 = 2048;
/// Permissions of a directory until all is in it: so that it is found to be unfinished when its transfer was interrupted. For a
/// directory of its owner alone the sticky bit changes nothing, and hardly anybody sets it; no sender can ([`PERMISSION_BITS`]).
const UNFINISHED_MODE: Mode = Mode::RWXU.union(Mode::SVTX);

/// How a directory is opened in which files are found: by its name alone.
const ENTER_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory that was offered.
#[derive(Debug)]
struct OfferedDirectory {
    parent: u32,
    name: FileName,
    mode: u32,
    modified: Mtime,
    /// Set in the end too: what comes into it would inherit the one, and the other would be its permissions.
    acls: Vec<Acl>,
    depth: u16,
    /// Whether this session made it.
    is_new: bool,
    /// Whether it gets the sender's permissions and time in the end: if it is new, or was not finished, or may be replaced.
    needs_metadata: bool,
    /// Whether something in it got a name.
    has_new_names: bool,
    /// Whether nothing of the dead is in it: a large directory is listed once, however often it is opened.
    is_swept: bool,
}

/// The directories of a session.
#[derive(Debug)]
pub struct DirectoryTree {
    /// The directory that is served.
    pub(crate) root: Arc<OpenDirectory>,
    /// The way to it from the one that the receiver serves.
    root_path: PathBuf,
    root_has_new_names: bool,
    offered: Vec<OfferedDirectory>,
    /// Bytes of their names.
    name_bytes: usize,
    open: VecDeque<(u32, Arc<OpenDirectory>)>,
    staging: VecDeque<(u32, Arc<Staging>)>,
    /// The directory whose path was asked for last, and that: most files follow one of the same directory.
    last_path: RefCell<(u32, PathBuf)>,
}

impl DirectoryTree {
    /// With none but the one that is served.
    pub fn new(root: Arc<OpenDirectory>) -> Self {
        let (offered, open, staging) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let (root_path, last_path) = (PathBuf::new(), RefCell::default());
        Self { root, root_path, root_has_new_names: false, offered, name_bytes: 0, open, staging, last_path }
    }

    /// Goes down to a directory below the one that is served, before anything is offered: name by name, and no link is followed. It is made
    /// if only it is missing, unless nothing is to be written. Returns whether it is there.
    ///
    /// # Errors
    /// Those of making and opening it; a name of what this program has not finished.
    pub(crate) fn enter(&mut self, names: &[FileName], (is_dry, sync): (bool, bool)) -> Result<bool> {
        let mut directory = Arc::clone(&self.root.directory);
        for (index, name) in names.iter().enumerate() {
            self.root_path.push(name.as_os_str());
            if is_reserved_name(name) {
                return Err(Error::ReservedName(self.root_path.clone()));
            }
            let open = || rustix::fs::openat(&*directory, name.as_os_str(), ENTER_FLAGS, Mode::empty());
            let opened = match open() {
                Err(Errno::NOENT) if index + 1 == names.len() => {
                    if is_dry {
                        return Ok(false);
                    }
                    self.make_entered(&directory, name, sync)?;
                    open()
                }
                opened => opened,
            };
            let opened =
                opened.map_err(|error| FileError::call("open the directory", &self.root_path, error.into()))?;
            directory = Arc::new(opened.into());
        }
        let directory = directory.try_clone().map_err(Error::call("open the directory"))?;
        self.root = OpenDirectory::new_swept(directory);
        Ok(true)
    }

    /// Makes a directory that is entered, as mkdir does. Another sender may make it at the same time.
    fn make_entered(&self, parent: &File, name: &FileName, sync: bool) -> Result<()> {
        let call_error = |error| FileError::call("make the directory", &self.root_path, error);
        match rustix::fs::mkdirat(parent, name.as_os_str(), Mode::from_raw_mode(PERMISSION_BITS)) {
            Err(error) if error != Errno::EXIST => return Err(call_error(error.into()).into()),
            _ => {}
        }
        let flushed = if sync { reopen(parent).and_then(|parent| flush_directory(&parent)) } else { Ok(()) };
        Ok(flushed.map_err(call_error)?)
    }

    /// How many directories were offered.
    pub(crate) fn offered_count(&self) -> u32 {
        self.offered.len() as u32
    }

    /// Adds a directory, and makes it unless it is there, or nothing is to be written.
    ///
    /// # Errors
    /// Those of making it; something else under its name. What no sender offers: too many, or too deep.
    pub fn add(&mut self, entry: &FileEntry, (is_dry, overwrite): (bool, bool)) -> Result<()> {
        let depth = match entry.parent {
            0 => 1,
            parent => self.directory(parent)?.depth + 1,
        };
        self.name_bytes += entry.name.as_os_str().len() + entry.acl_bytes();
        // To refuse one of them alone would leave both ends with other numbers for those that follow.
        let is_allowed =
            self.offered.len() < MAX_DIRECTORIES && self.name_bytes <= MAX_NAME_BYTES && depth <= MAX_DEPTH;
        Error::ensure(is_allowed, "it offers more directories than one transfer can have")?;
        let FileEntry { parent, mode, modified, .. } = *entry;
        self.offered.push(OfferedDirectory {
            parent,
            name: entry.name.clone(),
            mode: mode & PERMISSION_BITS,
            modified,
            acls: entry.acls.clone(),
            depth,
            is_new: false,
            needs_metadata: false,
            has_new_names: false,
            is_swept: false,
        });
        if is_reserved_name(&entry.name) {
            return Err(Error::ReservedName(self.path(entry)));
        }
        if is_dry {
            return Ok(());
        }
        let parent_directory = self.open_directory(parent)?;
        let number = self.offered.len() as u32;
        let is_new = match rustix::fs::mkdirat(&*parent_directory.directory, entry.name.as_os_str(), UNFINISHED_MODE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(FileError::call("make the directory", &self.path(entry), error.into()).into()),
        };
        if is_new {
            self.mark_new_name(parent);
            self.update_last(|offered| offered.is_swept = true);
        }
        let directory = Arc::clone(&self.open_directory(number)?.directory);
        let is_unfinished = !is_new
            && is_unfinished(&directory, entry)
                .map_err(|error| self.call_error("query the directory", number, error))?;
        let needs_metadata = is_new || is_unfinished || overwrite;
        self.update_last(|offered| (offered.is_new, offered.needs_metadata) = (is_new, needs_metadata));
        if !needs_metadata {
            return Ok(());
        }
        set_metadata(&directory, entry)
            .map_err(|error| self.call_error("keep owner and extended attributes of", number, error))
    }

    fn update_last(&mut self, update: impl FnOnce(&mut OfferedDirectory)) {
        self.offered.last_mut().map(update);
    }

    /// A directory by its number.
    ///
    /// # Errors
    /// One that was not offered, is no directory, or cannot be opened.
    pub fn open_directory(&mut self, number: u32) -> Result<Arc<OpenDirectory>> {
        if number == 0 {
            return Ok(Arc::clone(&self.root));
        }
        if let Some((_, directory)) = self.open.iter().find(|(open, _)| *open == number) {
            return Ok(Arc::clone(directory));
        }
        let directory = self.open_by_path(number)?;
        let is_swept = self.directory_mut(number).is_none_or(|offered| std::mem::replace(&mut offered.is_swept, true));
        let directory =
            if is_swept { OpenDirectory::new(directory, false) } else { OpenDirectory::new_swept(directory) };
        self.open.truncate(MAX_OPEN_DIRECTORIES - 1);
        self.open.push_front((number, Arc::clone(&directory)));
        Ok(directory)
    }

    /// Something in a directory gets a name: where names are to be flushed, this one's are.
    pub fn mark_new_name(&mut self, number: u32) {
        match self.directory_mut(number) {
            Some(offered) => offered.has_new_names = true,
            None => self.root_has_new_names = true,
        }
    }

    /// Whether a directory was made by this session, so that nothing is in it that it did not bring.
    pub fn is_new(&self, number: u32) -> bool {
        self.directory(number).is_ok_and(|offered| offered.is_new)
    }

    /// Where the small files of a directory are made.
    ///
    /// # Errors
    /// As for [`DirectoryTree::open_directory`].
    pub fn staging(&mut self, number: u32) -> Result<Arc<Staging>> {
        if let Some((_, staging)) = self.staging.iter().find(|(open, _)| *open == number) {
            return Ok(Arc::clone(staging));
        }
        let staging = Arc::new(Staging::for_directory(&self.open_directory(number)?));
        self.staging.truncate(MAX_OPEN_DIRECTORIES - 1);
        self.staging.push_front((number, Arc::clone(&staging)));
        Ok(staging)
    }

    /// Opens a directory from the one that is served, name by name.
    fn open_by_path(&self, number: u32) -> Result<File> {
        let names: Vec<&FileName> = self.names_upwards(number).collect();
        let mut last: Option<File> = None;
        for name in names.iter().rev() {
            // It was refused, and something else may be there.
            if is_reserved_name(name) {
                return Err(Error::ReservedName(self.path_of(number)));
            }
            let parent = last.as_ref().unwrap_or(&self.root.directory);
            let opened = rustix::fs::openat(parent, name.as_os_str(), ENTER_FLAGS, Mode::empty());
            let opened = opened.map_err(|error| self.call_error("open the directory", number, error.into()))?;
            last = Some(opened.into());
        }
        last.ok_or(UNKNOWN)
    }

    fn directory(&self, number: u32) -> Result<&OfferedDirectory> {
        self.offered.get((number as usize).wrapping_sub(1)).ok_or(UNKNOWN)
    }

    fn directory_mut(&mut self, number: u32) -> Option<&mut OfferedDirectory> {
        self.offered.get_mut((number as usize).wrapping_sub(1))
    }

    /// Free bytes of the file system of the directory that is served, if known.
    ///
    /// # Errors
    /// Those of statfs.
    pub fn free_bytes(&self) -> Result<Option<u64>> {
        let path = descriptor_path(&self.root.directory);
        let space = kelvin_sys::fs::space(&path);
        let space = space.map_err(|error| FileError::call("query the file system of", Path::new("."), error))?;
        let free = if kelvin_sys::fs::effective_user() == 0 { space.free_bytes } else { space.available_bytes };
        Ok((space.total_bytes > 0).then_some(free))
    }

    /// Where an entry is, from the directory that is served.
    pub fn path(&self, entry: &FileEntry) -> PathBuf {
        let mut last = self.last_path.borrow_mut();
        // One that was not offered may be yet.
        if last.0 != entry.parent || self.directory(entry.parent).is_err() {
            *last = (entry.parent, self.path_of(entry.parent));
        }
        let (parent, name) = (&last.1, entry.name.as_os_str());
        let mut path = PathBuf::with_capacity(parent.as_os_str().len() + 1 + name.len());
        path.extend([parent.as_os_str(), name]);
        path
    }

    /// Where a directory is, from the one that is served.
    pub(crate) fn path_of(&self, number: u32) -> PathBuf {
        let names: Vec<&OsStr> = self.names_upwards(number).map(FileName::as_os_str).collect();
        let relative_path: PathBuf = names.iter().rev().collect();
        self.root_path.join(relative_path)
    }

    /// The names on the way from a directory up to the one that is served; none where it was not offered.
    fn names_upwards(&self, number: u32) -> impl Iterator<Item = &FileName> {
        let parent_of = |offered: &&OfferedDirectory| self.directory(offered.parent).ok();
        std::iter::successors(self.directory(number).ok(), parent_of).map(|offered| &offered.name)
    }

    /// Gives the directories their permissions and times, the deepest first, and flushes them if asked to. These are those that it sets, and those
    /// in which something got a name, also where they were there before.
    ///
    /// # Errors
    /// The first failure; the others are still done.
    pub fn finish(&mut self, sync: bool) -> Result<()> {
        self.staging.clear();
        let mut failure = None;
        for number in (1..=self.offered.len() as u32).rev() {
            if let Err(error) = self.finish_directory(number, sync) {
                failure.get_or_insert(error);
            }
        }
        if sync && self.root_has_new_names && failure.is_none() {
            let flushed = reopen(&self.root.directory).and_then(|root| flush_directory(&root));
            failure = flushed.err().map(|error| self.call_error("flush", 0, error));
        }
        failure.map_or(Ok(()), Err)
    }

    fn finish_directory(&mut self, number: u32, sync: bool) -> Result<()> {
        let &OfferedDirectory { needs_metadata, has_new_names, mode, modified, ref acls, .. } =
            self.directory(number)?;
        let acls = acls.clone();
        let needs_flush = sync && (needs_metadata || has_new_names);
        if !needs_metadata && !needs_flush {
            return Ok(());
        }
        let directory = self.open_directory(number)?;
        // Opened first: its permissions may not let it be read.
        let opened = needs_flush.then(|| reopen(&directory.directory)).transpose();
        let opened = opened.map_err(|error| self.call_error("flush the directory", number, error))?;
        if needs_metadata {
            let path = descriptor_path(&directory.directory);
            for Acl { kind, list } in &acls {
                let set = rustix::fs::setxattr(&path, kind.attribute_name(), list, XattrFlags::empty());
                set.map_err(|error| self.call_error("keep an access control list of", number, error.into()))?;
            }
            let set = rustix::fs::chmod(&path, Mode::from_raw_mode(mode))
                .and_then(|()| rustix::fs::utimensat(rustix::fs::CWD, &path, &utimens(modified), AtFlags::empty()));
            set.map_err(|error| self.call_error("keep time and permissions of", number, error.into()))?;
        }
        let flushed = opened.as_ref().map_or(Ok(()), flush_directory);
        flushed.map_err(|error| self.call_error("flush the directory", number, error))
    }

    fn call_error(&self, doing: &str, number: u32, error: std::io::Error) -> Error {
        FileError::call(doing, &self.path_of(number), error).into()
    }
}

/// What a sender did wrong.
const UNKNOWN: Error = Error::ProtocolViolation("it names a directory that it did not offer");

/// Gives a directory its owner and attributes, which no file that comes into it depends on.
fn set_metadata(directory: &File, entry: &FileEntry) -> std::io::Result<()> {
    let path = descriptor_path(directory);
    if let Some((user, group)) = entry.owner {
        std::os::unix::fs::chown(&path, Some(user), Some(group))?;
    }
    for attribute in &entry.attributes {
        rustix::fs::setxattr(&path, attribute.full_name(), &attribute.value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Whether a transfer made the directory of an entry, and did not finish it. Its owner may have been set already.
fn is_unfinished(directory: &File, entry: &FileEntry) -> std::io::Result<bool> {
    let metadata = directory.metadata()?;
    // A group that is inherited has a bit of its own.
    let mode = metadata.mode() & (Mode::SVTX.bits() | PERMISSION_BITS);
    let owners = [Some(kelvin_sys::fs::effective_user()), entry.owner.map(|(user, _)| user)];
    Ok(mode == UNFINISHED_MODE.bits() && owners.contains(&Some(metadata.uid())))
}

/// A held directory cannot be flushed or changed itself (O_PATH), but what it leads to can.
fn reopen(directory: &File) -> std::io::Result<File> {
    File::open(descriptor_path(directory))
}

/// Whether a name begins as those of what a receiver makes and has not finished: it removes what it finds under them.
pub(crate) fn is_reserved_name(name: &FileName) -> bool {
    let name = name.as_os_str().as_bytes();
    name.starts_with(PART_PREFIX.as_bytes()) || HIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// The name under which a part of a file arrives: the same whenever the same file is sent again.
pub(crate) fn part_name(entry: &FileEntry, bytes: u64) -> String {
    let mut identity = crate::wire::Hasher::new();
    identity.update(entry.name.as_os_str().as_bytes()).update(&[0]).update(&bytes.to_le_bytes());
    identity.update(&entry.modified.seconds.to_le_bytes()).update(&entry.modified.nanoseconds.to_le_bytes());
    let hex = identity.finalize().to_hex();
    format!("{PART_PREFIX}{}", &hex[..32])
}
