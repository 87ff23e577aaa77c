//! What is to be sent: the files that a user named, and what is below the directories, as found before anything is sent.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use kelvin_file::Error as FileError;
use kelvin_sys::fs::effective_user;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::file_name::FileName;
use crate::incoming_file::STAT_BLOCK;
use crate::links::{MAX_LINKED_FILES, MAX_LINKED_NAME_BYTES};
use crate::message::{
    Acl, AclKind, Attribute, EntryKind, EntryNumber, FileEntry, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES, Mtime,
    PERMISSION_BITS,
};
use crate::offer_policy::kind_name;
use crate::path_filter::PathFilter;
use crate::{Error, Result, directory_tree};

/// Extended attributes that anybody may set.
const USER_PREFIX: &[u8] = b"user.";
/// What a system labels every file with, by its own policy.
const SELINUX_LABEL: &[u8] = b"security.selinux";
/// Directories on the way to what is looked at that are held open. From the lowest one a file is found sooner than by its path.
const MAX_OPEN_DIRECTORIES: usize = 32;
/// How a file is opened: one that became a pipe does not block.
const OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Most files in one transfer: their numbers have 32 bits.
const MAX_ENTRIES: usize = u32::MAX as usize;

/// What is sent in addition to the content, names, permissions and times of regular files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreserveOptions {
    /// Directories, with all that is below.
    pub recursive: bool,
    /// Symbolic links, as links.
    pub links: bool,
    /// What symbolic links lead to, instead of them.
    pub copy_links: bool,
    /// Further names of a file, as hard links.
    pub hard_links: bool,
    /// Users and groups.
    pub owners: bool,
    /// Extended attributes of the user's name space.
    pub attributes: AttributePolicy,
    /// Access control lists.
    pub acls: bool,
}

/// What becomes of the extended attributes of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributePolicy {
    /// Those of the user's name space are kept, and files that have others counted.
    Preserve,
    /// Files that have some are counted when they are found.
    CountWhenFound,
    /// Files that have some are counted when they are sent, which costs less for a file that is open.
    #[default]
    CountWhenSent,
}

/// What was found and is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedEntries {
    /// Symbolic links.
    pub links: u64,
    /// Sockets, pipes and devices.
    pub special: u64,
    /// Files of other users than the one who sends.
    pub owners: u64,
    /// Files with extended attributes that are not sent.
    pub attributes: u64,
}

/// A file, directory or link, as it was when it was found.
#[derive(Clone, Debug)]
pub struct SourceEntry {
    /// Where it is; empty for standard input.
    pub path: PathBuf,
    /// What is sent about it.
    pub entry: FileEntry,
    /// Device and inode: what is opened later must be the same file.
    identity: (u64, u64),
    /// Whether a link in its place would be followed: one that the user named, or where all are followed.
    is_followed: bool,
    /// Whether it has fewer blocks than bytes.
    pub has_holes: bool,
}

impl SourceEntry {
    /// Its bytes, if it is a file whose size is known.
    pub fn bytes(&self) -> u64 {
        if let EntryKind::File { bytes, .. } = self.entry.kind { bytes } else { 0 }
    }

    /// Whether it has content to be sent.
    pub fn is_file(&self) -> bool {
        matches!(self.entry.kind, EntryKind::File { .. } | EntryKind::Stream)
    }

    /// Whether it is standard input.
    pub fn is_stdin(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// Whether it is a file that states no bytes and has some.
    pub fn is_unsized(&self) -> bool {
        self.entry.kind == EntryKind::Stream && !self.is_stdin()
    }

    /// Its path, for an error.
    pub(crate) fn display_path(&self) -> &Path {
        if self.is_stdin() { Path::new("-") } else { &self.path }
    }

    /// Opens a file; whether it is still the same one, [`SourceEntry::check_unchanged`] checks.
    ///
    /// # Errors
    /// Those of open.
    pub fn open(&self) -> Result<File> {
        if self.is_stdin() {
            let input = std::io::stdin().as_fd().try_clone_to_owned();
            return Ok(input.map_err(|error| FileError::call("open", Path::new("-"), error))?.into());
        }
        self.open_at(CWD, &self.path)
    }

    /// Like `open`, by a path from a directory.
    fn open_at(&self, directory: BorrowedFd<'_>, path: &Path) -> Result<File> {
        let flags = if self.is_followed { OPEN_FLAGS } else { OPEN_FLAGS | OFlags::NOFOLLOW };
        let opened = retry_on_intr(|| rustix::fs::openat(directory, path, flags, Mode::empty()));
        Ok(opened.map_err(|error| FileError::call("open", &self.path, error.into()))?.into())
    }

    /// Whether an open file has extended attributes that are not sent.
    fn has_attributes(&self, file: &File, acls: bool) -> bool {
        // A file system may have none.
        matches!(self.entry.kind, EntryKind::File { .. })
            && attribute_names(rustix::fs::flistxattr_query(file), |names| rustix::fs::flistxattr(file, names))
                .is_ok_and(|names| names.iter().any(|name| is_left_out(name, acls)))
    }

    /// That an open file is the one that was found, with the same size and time.
    ///
    /// # Errors
    /// That it was changed, and how.
    pub fn check_unchanged(&self, file: &File) -> Result<()> {
        let EntryKind::File { bytes, .. } = self.entry.kind else { return Ok(()) };
        let stat = rustix::fs::fstat(file).map_err(|error| FileError::call("look at", &self.path, error.into()))?;
        let change = match &stat {
            stat if (stat.st_dev, stat.st_ino) != self.identity => "another file has taken its place".into(),
            stat if stat.st_size as u64 != bytes => {
                format!("its size went from {bytes} to {} bytes", stat.st_size)
            }
            stat if Mtime::of_stat(stat) != self.entry.modified => "it was written".into(),
            _ => return Ok(()),
        };
        Err(self.changed_error(change))
    }

    /// Like `check_unchanged`, when all that it stated was read; and that nothing is behind that.
    ///
    /// # Errors
    /// As for [`SourceEntry::check_unchanged`]; more bytes than it states.
    pub fn check_unchanged_at_end(&self, file: &File) -> Result<()> {
        self.check_unchanged(file)?;
        let trailing_bytes = retry_on_intr(|| rustix::io::pread(file, &mut [0], self.bytes()));
        match trailing_bytes.map_err(|error| FileError::call("read", &self.path, error.into()))? {
            0 => Ok(()),
            _ => Err(self.longer_error()),
        }
    }

    /// The error that it has more bytes than it states.
    pub(crate) fn longer_error(&self) -> Error {
        FileError::SizeUnderstated { path: self.path.clone(), bytes: self.bytes() }.into()
    }

    /// The error that it changed.
    pub fn changed_error(&self, change: String) -> Error {
        FileError::Changed { path: self.path.clone(), change }.into()
    }
}

/// Opens one file after the other, a second one of the same directory from there.
#[derive(Debug, Default)]
pub(crate) struct SourceOpener {
    /// The number of the directory of the last file, and it, if it is open.
    last: u32,
    directory: Option<OwnedFd>,
}

impl SourceOpener {
    /// As [`SourceEntry::open`].
    pub(crate) fn open(&mut self, source: &SourceEntry) -> Result<File> {
        let number = source.entry.parent;
        if number == 0 || number != self.last {
            (self.last, self.directory) = (number, None);
            return source.open();
        }
        if self.directory.is_none() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let path = source.path.parent().unwrap_or(Path::new("."));
            self.directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).ok();
        }
        match &self.directory {
            // A file that is not the one that was found shows when it is looked at.
            Some(directory) => source.open_at(directory.as_fd(), source.entry.name.as_os_str().as_ref()),
            None => source.open(),
        }
    }
}

/// A directory that is being walked.
#[derive(Debug)]
struct DirectoryLevel {
    path: PathBuf,
    /// Its path from the receiver's directory.
    arrival_path: PathBuf,
    /// It, if it is held open.
    directory: Option<Dir>,
    names: std::vec::IntoIter<OsString>,
    /// Its number.
    number: u32,
    /// Where links are followed: device and inode of the directory, and of those that led to it.
    way: Vec<(u64, u64)>,
}

impl DirectoryLevel {
    /// Reads a directory: the names in it, in their order.
    fn read(
        parent: BorrowedFd<'_>,
        (relative_path, flags): (&Path, OFlags),
        (path, arrival_path): (&Path, PathBuf),
    ) -> Result<Self> {
        let read_error = |error: Errno| FileError::call("read", path, error.into());
        let opened = retry_on_intr(|| rustix::fs::openat(parent, relative_path, flags, Mode::empty()));
        let mut directory = Dir::new(opened.map_err(read_error)?).map_err(read_error)?;
        let mut names = Vec::new();
        while let Some(entry) = directory.read() {
            let entry = entry.map_err(read_error)?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(OsStr::from_bytes(name).to_owned()),
            }
        }
        names.sort();
        Ok(Self {
            path: path.to_owned(),
            arrival_path,
            directory: Some(directory),
            names: names.into_iter(),
            number: 0,
            way: Vec::new(),
        })
    }

    /// A directory of which nothing is sent but what is named elsewhere.
    fn unread(path: PathBuf, arrival_path: PathBuf, number: u32) -> Self {
        Self { path, arrival_path, directory: None, names: Vec::new().into_iter(), number, way: Vec::new() }
    }

    /// What a call for something in it takes: a directory, and a path from there.
    fn open_at<'a>(&'a self, name: &'a OsStr, path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        let directory = self.directory.as_ref().and_then(|directory| directory.fd().ok());
        directory.map_or((CWD, path), |directory| (directory, Path::new(name)))
    }
}

/// Device, inode, size and time of a file.
type FileState = (u64, u64, i64, Mtime);

/// All that is to be sent, as far as it was found, each directory before what is in it.
#[derive(Debug, Default)]
pub struct SourceList {
    /// In the order in which it is offered.
    pub sources: Vec<Arc<SourceEntry>>,
    /// What is left out.
    pub skipped: SkippedEntries,
    /// What could not be looked at.
    pub unread: Vec<(PathBuf, Error)>,
    /// What is sent of each file, and which files are.
    preserve: PreserveOptions,
    filter: PathFilter,
    /// Named directories that were not looked into yet, and the one that is being walked, with those below on the way.
    pending_directories: VecDeque<DirectoryLevel>,
    levels: Vec<DirectoryLevel>,
    /// The file systems of the named directories.
    devices: Vec<u64>,
    /// Bytes that all that was found takes on a disk; none where that is unknown.
    pub stored_bytes: Option<u64>,
    /// Bytes that all of it takes at most, found or not: as many as are on its file systems; none where that is unknown. Links to a
    /// file, and what is mounted in a directory, may make it more.
    pub max_stored_bytes: Option<u64>,
    /// Files of several names that were found, by what they were then, with their numbers; and their further names, which are offered
    /// once these files are in their place.
    linked_files: HashMap<FileState, EntryNumber>,
    linked_name_bytes: usize,
    hard_links: Vec<Arc<SourceEntry>>,
    /// Who sends, once asked for.
    user: Option<u32>,
    /// Directories so far, and bytes of their names.
    directories: u32,
    name_bytes: usize,
}

impl SourceList {
    /// Finds what a user named. A symbolic link is followed, and sent by its own name. What is in the directories is found later.
    ///
    /// # Errors
    /// What is no regular file, nor a directory where those are sent; what may not be read.
    pub fn begin(paths: &[PathBuf], preserve: PreserveOptions, filter: PathFilter) -> Result<Self> {
        let mut list = Self::new(preserve, filter);
        paths.iter().try_for_each(|path| list.add_named(path))?;
        Ok(list)
    }

    fn new(preserve: PreserveOptions, filter: PathFilter) -> Self {
        Self { preserve, filter, stored_bytes: Some(0), max_stored_bytes: Some(0), ..Self::default() }
    }

    /// Finds files by their paths from a directory, under which they arrive, and the directories on the way. Of a directory that is named
    /// nothing in it is sent.
    ///
    /// # Errors
    /// A path that leads elsewhere; more than one transfer can have. What cannot be found is set aside.
    pub fn from_paths(
        directory: &Path,
        paths: &[PathBuf],
        (preserve, filter): (PreserveOptions, PathFilter),
    ) -> Result<Self> {
        let mut list = Self::new(preserve, filter);
        // No number of a directory that is excluded.
        let mut numbers: HashMap<PathBuf, Option<u32>> = HashMap::from([(PathBuf::new(), Some(0))]);
        for path in paths {
            let names = relative_names(path).ok_or_else(|| leads_elsewhere(path))?;
            let mut arrival_path = PathBuf::new();
            for name in names {
                let (parent_path, number) = (directory.join(&arrival_path), numbers.get(&arrival_path));
                let Some(number) = number.copied().flatten() else { break };
                let level = DirectoryLevel::unread(parent_path, arrival_path.clone(), number);
                arrival_path.push(name);
                if numbers.contains_key(&arrival_path) {
                    continue;
                }
                let source_path = directory.join(&arrival_path);
                let added = match list.add_below(&level, name.to_owned(), &source_path) {
                    Err(error @ Error::File(_)) => {
                        list.unread.push((source_path, error));
                        None
                    }
                    outcome => outcome?.map(|subdirectory| subdirectory.number),
                };
                numbers.insert(arrival_path.clone(), added);
            }
        }
        Ok(list)
    }

    /// Like `begin`, with all that is in the directories.
    #[cfg(test)]
    pub(crate) fn collect(paths: &[PathBuf], preserve: PreserveOptions) -> Result<Self> {
        let mut list = Self::begin(paths, preserve, PathFilter::default())?;
        list.find_all()?;
        Ok(list)
    }

    /// Which files are sent.
    pub(crate) fn filter(&self) -> &PathFilter {
        &self.filter
    }

    /// Whether all was found.
    pub fn is_complete(&self) -> bool {
        self.pending_directories.is_empty() && self.levels.is_empty()
    }

    /// Finds all that is left to be found.
    ///
    /// # Errors
    /// More than one transfer can have.
    pub fn find_all(&mut self) -> Result<()> {
        while !self.is_complete() {
            self.find_more(MAX_ENTRIES)?;
        }
        Ok(())
    }

    /// Adds the further names of files, once all files are in their place; returns whether there are any.
    pub(crate) fn append_hard_links(&mut self) -> bool {
        let first = self.sources.len();
        self.sources.append(&mut self.hard_links);
        self.sources.len() > first
    }

    /// Finds about this many more, if there are this many: in a directory by name, so that an order of sending can be repeated.
    ///
    /// # Errors
    /// As for [`SourceList::find_all`].
    pub fn find_more(&mut self, count: usize) -> Result<()> {
        let target_count = self.sources.len().saturating_add(count);
        while self.sources.len() < target_count {
            let Some(mut level) = self.levels.pop().or_else(|| self.pending_directories.pop_front()) else { break };
            // What is in it, until there is enough, or a directory among it.
            let mut subdirectory = None;
            while subdirectory.is_none()
                && self.sources.len() < target_count
                && let Some(name) = level.names.next()
            {
                let path = level.path.join(&name);
                subdirectory = match self.add_below(&level, name, &path) {
                    Err(error @ Error::File(_)) => {
                        self.unread.push((path, error));
                        None
                    }
                    outcome => outcome?,
                };
            }
            if level.names.len() > 0 {
                self.levels.push(level);
            }
            if let Some(mut subdirectory) = subdirectory {
                subdirectory.directory = subdirectory.directory.filter(|_| self.levels.len() < MAX_OPEN_DIRECTORIES);
                self.levels.push(subdirectory);
            }
        }
        Ok(())
    }

    /// Counts an open file that has extended attributes, if those are counted when they are sent.
    pub(crate) fn count_attributes(&mut self, source: &SourceEntry, file: &File) {
        let is_counted = self.preserve.attributes == AttributePolicy::CountWhenSent
            && source.has_attributes(file, self.preserve.acls);
        self.skipped.attributes += u64::from(is_counted);
    }

    /// Standard input, under this name.
    ///
    /// # Errors
    /// A name that is none.
    pub fn from_stdin(name: &OsStr) -> Result<Self> {
        let why = |why: &str| FileError::call("send as", Path::new(name), invalid_input(why));
        let name = FileName::try_from(name.as_bytes().to_vec()).map_err(why)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let modified = Mtime { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
        let kind = EntryKind::Stream;
        // As a shell's redirection would make it, but for its umask.
        let entry = FileEntry::new((0, name), kind, (0o644, modified));
        let source = SourceEntry { path: PathBuf::new(), entry, identity: (0, 0), is_followed: true, has_holes: false };
        Ok(Self { sources: vec![Arc::new(source)], ..Self::default() })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.bytes()).sum()
    }

    fn add_named(&mut self, path: &Path) -> Result<()> {
        let stat = rustix::fs::stat(path).map_err(|error| FileError::call("find", path, error.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        // A directory has a name even if its path ends in dots.
        let resolved = if kind == FileType::Directory { fs::canonicalize(path) } else { Ok(path.to_owned()) };
        let name = resolved.and_then(|resolved| FileName::from_path(&resolved).map_err(invalid_input));
        let name = name.map_err(|source| FileError::call("send", path, source))?;
        if self.is_excluded(Path::new(name.as_os_str()), &stat) {
            return Ok(());
        }
        if kind == FileType::Directory {
            if !self.preserve.recursive {
                return Err(not_regular(path, "a directory, which only -r sends"));
            }
            let arrival_path = PathBuf::from(name.as_os_str());
            let mut level = DirectoryLevel::read(CWD, (path, DIRECTORY_FLAGS), (path, arrival_path))?;
            level.number = self.add_directory(path, 0, name, &stat)?;
            level.way.push((stat.st_dev, stat.st_ino));
            if !self.devices.contains(&stat.st_dev) {
                self.devices.push(stat.st_dev);
                let space = kelvin_sys::fs::space(path).ok().filter(|space| space.total_bytes > 0);
                let used = space.map(|space| space.total_bytes.saturating_sub(space.free_bytes));
                self.max_stored_bytes = self.max_stored_bytes.zip(used).map(|(sum, used)| sum.saturating_add(used));
            }
            self.pending_directories.push_back(level);
            return Ok(());
        }
        if kind != FileType::RegularFile {
            return Err(not_regular(path, kind_name(kind)));
        }
        self.add(path, 0, name, (&stat, true), regular_kind((CWD, path, OPEN_FLAGS), &stat))?;
        // What may not be read is reported before anything is sent.
        self.sources.last().map_or(Ok(()), |file| file.open().map(drop))
    }

    /// Adds what has a name in a directory; returns it if it is a directory itself.
    ///
    /// # Errors
    /// Of a file alone, those of looking at it; more than one transfer can have.
    fn add_below(&mut self, level: &DirectoryLevel, name: OsString, path: &Path) -> Result<Option<DirectoryLevel>> {
        let call_error = |doing| move |error| FileError::call(doing, path, error);
        let file_name = FileName::try_from(name.into_vec()).map_err(invalid_input).map_err(call_error("send"))?;
        let (directory, relative_path) = level.open_at(file_name.as_os_str(), path);
        let stat = rustix::fs::statat(directory, relative_path, AtFlags::SYMLINK_NOFOLLOW);
        let mut stat = stat.map_err(std::io::Error::from).map_err(call_error("find"))?;
        let is_followed = self.preserve.copy_links && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if is_followed {
            let followed = rustix::fs::statat(directory, relative_path, AtFlags::empty());
            stat = followed.map_err(std::io::Error::from).map_err(call_error("follow the link"))?;
        }
        let follow = if is_followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        let arrival_path = level.arrival_path.join(file_name.as_os_str());
        if self.is_excluded(&arrival_path, &stat) {
            return Ok(None);
        }
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let (flags, identity) = (DIRECTORY_FLAGS | follow, (stat.st_dev, stat.st_ino));
                if is_followed && level.way.contains(&identity) {
                    let why = invalid_input("the link leads to a directory that it is in");
                    return Err(call_error("send")(why).into());
                }
                let mut subdirectory = DirectoryLevel::read(directory, (relative_path, flags), (path, arrival_path))?;
                subdirectory.number = self.add_directory(path, level.number, file_name, &stat)?;
                if self.preserve.copy_links {
                    subdirectory.way = [&level.way[..], &[identity]].concat();
                }
                return Ok(Some(subdirectory));
            }
            FileType::RegularFile => regular_kind((directory, relative_path, OPEN_FLAGS | follow), &stat),
            FileType::Symlink if self.preserve.links => {
                let target = fs::read_link(path).map_err(call_error("read the link"))?;
                EntryKind::Link { target: target.into_os_string().into_vec() }
            }
            kind => {
                let is_link = kind == FileType::Symlink;
                *(if is_link { &mut self.skipped.links } else { &mut self.skipped.special }) += 1;
                return Ok(None);
            }
        };
        self.add(path, level.number, file_name, (&stat, is_followed), kind).map(|()| None)
    }

    /// Whether the user wants none of such a path or size.
    fn is_excluded(&self, arrival_path: &Path, stat: &Stat) -> bool {
        let kind = FileType::from_raw_mode(stat.st_mode);
        self.filter.excludes(arrival_path, kind == FileType::Directory)
            || kind == FileType::RegularFile && self.filter.excludes_size(stat.st_size as u64)
    }

    fn add_directory(&mut self, path: &Path, parent: u32, name: FileName, stat: &Stat) -> Result<u32> {
        self.name_bytes += name.as_os_str().len();
        if self.directories as usize >= directory_tree::MAX_DIRECTORIES
            || self.name_bytes > directory_tree::MAX_NAME_BYTES
        {
            return Err(Error::TooManyEntries);
        }
        self.add(path, parent, name, (stat, false), EntryKind::Directory)?;
        self.name_bytes += self.sources.last().map_or(0, |directory| directory.entry.acl_bytes());
        self.directories += 1;
        Ok(self.directories)
    }

    fn add(
        &mut self,
        path: &Path,
        parent: u32,
        name: FileName,
        (stat, is_followed): (&Stat, bool),
        kind: EntryKind,
    ) -> Result<()> {
        if self.sources.len() + self.hard_links.len() >= MAX_ENTRIES {
            return Err(Error::TooManyEntries);
        }
        let is_linked = self.preserve.hard_links && stat.st_nlink > 1 && matches!(kind, EntryKind::File { .. });
        if is_linked && let Some(kind) = self.further_name(stat, &name)? {
            let (mode, modified) = (stat.st_mode & PERMISSION_BITS, Mtime::of_stat(stat));
            let entry = FileEntry::new((parent, name), kind, (mode, modified));
            let identity = (stat.st_dev, stat.st_ino);
            let source = SourceEntry { path: path.to_owned(), entry, identity, is_followed, has_holes: false };
            self.hard_links.push(Arc::new(source));
            return Ok(());
        }
        let owner = self.preserve.owners.then_some((stat.st_uid, stat.st_gid));
        let user = *self.user.get_or_insert_with(effective_user);
        self.skipped.owners += u64::from(owner.is_none() && stat.st_uid != user);
        let attributes = match (&kind, self.preserve.attributes) {
            (EntryKind::Link { .. }, _) | (EntryKind::File { .. }, AttributePolicy::CountWhenSent) => Vec::new(),
            (_, policy) => self.read_attributes(path, policy == AttributePolicy::Preserve),
        };
        let acls = if self.preserve.acls { self.read_acls(path, &kind) } else { Vec::new() };
        let (mode, modified) = (stat.st_mode & PERMISSION_BITS, Mtime::of_stat(stat));
        let has_holes = matches!(kind, EntryKind::File { bytes, stored } if stored < bytes);
        let entry = FileEntry { parent, name, kind, mode, modified, owner, attributes, has_links: is_linked, acls };
        let identity = (stat.st_dev, stat.st_ino);
        if let EntryKind::File { bytes, stored } = entry.kind {
            let add = |sum: Option<u64>| sum.map(|sum| sum.saturating_add(stored.min(bytes)));
            self.stored_bytes = add(self.stored_bytes);
            // What was found in a directory is on a file system that is counted whole.
            self.max_stored_bytes = if is_followed { add(self.max_stored_bytes) } else { self.max_stored_bytes };
        }
        self.sources.push(Arc::new(SourceEntry { path: path.to_owned(), entry, identity, is_followed, has_holes }));
        Ok(())
    }

    /// What a file of several names is, if one of them was found before; else remembers that it was.
    fn further_name(&mut self, stat: &Stat, name: &FileName) -> Result<Option<EntryKind>> {
        let state = (stat.st_dev, stat.st_ino, stat.st_size, Mtime::of_stat(stat));
        if let Some(&first) = self.linked_files.get(&state) {
            return Ok(Some(EntryKind::HardLink { first }));
        }
        self.linked_name_bytes += name.as_os_str().len();
        if self.linked_files.len() >= MAX_LINKED_FILES || self.linked_name_bytes > MAX_LINKED_NAME_BYTES {
            return Err(Error::TooManyEntries);
        }
        self.linked_files.insert(state, self.sources.len() as EntryNumber);
        Ok(None)
    }

    /// The access control lists that are to be sent; counts a file that has longer ones.
    fn read_acls(&mut self, path: &Path, kind: &EntryKind) -> Vec<Acl> {
        let kinds: &[AclKind] = match kind {
            EntryKind::Directory => &AclKind::ALL,
            EntryKind::File { .. } | EntryKind::Stream => &[AclKind::Access],
            EntryKind::Link { .. } | EntryKind::HardLink { .. } => &[],
        };
        // Most files have none, and some file systems no file.
        let read = |kind: &AclKind| {
            let list = attribute_value(path, kind.attribute_name().as_bytes()).ok()?;
            Some(Acl { kind: *kind, list })
        };
        let acls: Vec<Acl> = kinds.iter().filter_map(read).collect();
        let is_short = acls.iter().map(|acl| acl.list.len()).sum::<usize>() <= MAX_ATTRIBUTE_BYTES;
        self.skipped.attributes += u64::from(!is_short);
        if is_short { acls } else { Vec::new() }
    }

    /// The extended attributes that are to be sent; counts a file that has others, or too many.
    fn read_attributes(&mut self, path: &Path, keeps_user: bool) -> Vec<Attribute> {
        let list = |names: &mut [u8]| rustix::fs::llistxattr(path, names);
        let Ok(names) = attribute_names(rustix::fs::llistxattr_query(path), list) else {
            // A file system without them, or a file that cannot be read, which opening it reports.
            return Vec::new();
        };
        let (user_names, other_names): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| keeps_user && name.starts_with(USER_PREFIX));
        let mut is_skipped = other_names.iter().any(|name| is_left_out(name, self.preserve.acls));
        let (mut attributes, mut bytes) = (Vec::new(), 0);
        for name in user_names {
            let value = attribute_value(path, &name);
            bytes += value.as_ref().map_or(0, Vec::len) + name.len();
            match value {
                Ok(value) if bytes <= MAX_ATTRIBUTE_BYTES && attributes.len() < MAX_ATTRIBUTES => {
                    attributes.push(Attribute { name: name[USER_PREFIX.len()..].to_vec(), value });
                }
                _ => is_skipped = true,
            }
        }
        self.skipped.attributes += u64::from(is_skipped);
        attributes
    }
}

/// Whether an extended attribute is worth a word where no rule of its own keeps it.
fn is_left_out(name: &[u8], acls: bool) -> bool {
    name != SELINUX_LABEL && !(acls && AclKind::ALL.iter().any(|kind| kind.attribute_name().as_bytes() == name))
}

/// The names of a path from a directory, if it does not lead out of it.
fn relative_names(path: &Path) -> Option<Vec<&OsStr>> {
    let name = |component| match component {
        Component::Normal(name) => Some(Some(name)),
        Component::CurDir => Some(None),
        Component::RootDir | Component::ParentDir | Component::Prefix(_) => None,
    };
    let names: Option<Vec<Option<&OsStr>>> = path.components().map(name).collect();
    Some(names?.into_iter().flatten().collect())
}

fn leads_elsewhere(path: &Path) -> Error {
    let why = "it leads out of the directory that the list is for";
    FileError::call("send", path, invalid_input(why)).into()
}

/// How a directory is opened whose names are read.
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn not_regular(path: &Path, kind: &'static str) -> Error {
    FileError::NotRegular { path: path.to_owned(), kind }.into()
}

fn invalid_input(why: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why.to_owned())
}

/// As what a regular file is sent. One that states no bytes may have some all the same, as those of /proc have, and some of programs
/// behind FUSE. Then it is read until its end.
fn regular_kind((directory, path, flags): (BorrowedFd<'_>, &Path, OFlags), stat: &Stat) -> EntryKind {
    let has_bytes = || {
        let opened = retry_on_intr(|| rustix::fs::openat(directory, path, flags, Mode::empty()))?;
        retry_on_intr(|| rustix::io::read(&opened, &mut [0]))
    };
    // One that cannot be read fails when it is sent.
    if stat.st_size == 0 && has_bytes().is_ok_and(|read| read > 0) {
        return EntryKind::Stream;
    }
    EntryKind::File { bytes: stat.st_size as u64, stored: stat.st_blocks as u64 * STAT_BLOCK }
}

/// Bytes that names of attributes, or a value, can have at most (XATTR_LIST_MAX, XATTR_SIZE_MAX of limits.h).
const MAX_ATTRIBUTE_SIZE: usize = 64 << 10;

/// The names of a file's extended attributes: most files have none, which a first call without a buffer reports.
fn attribute_names(
    length: rustix::io::Result<usize>,
    list: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<Vec<u8>>> {
    if length? == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0; MAX_ATTRIBUTE_SIZE];
    let length = list(&mut names)?;
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

fn attribute_value(path: &Path, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; MAX_ATTRIBUTE_SIZE];
    let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// What is left out, in words; nothing if nothing is.
pub fn skipped_text(skipped: &SkippedEntries) -> Option<String> {
    let kinds = [
        (skipped.links, ["symbolic link", "symbolic links"], " (--links keeps them)"),
        (skipped.special, ["socket, pipe or device", "sockets, pipes and devices"], ""),
        (skipped.owners, ["file's owner", "files' owners"], " (--owners keeps them)"),
        (
            skipped.attributes,
            ["file's extended attributes", "files' extended attributes"],
            " (--xattrs keeps user.*, --acls access control lists)",
        ),
    ];
    let skipped = kinds.into_iter().filter(|(count, ..)| *count > 0);
    let texts = skipped.map(|(count, [singular, plural], how)| match count {
        1 => format!("1 {singular}{how}"),
        _ => format!("{} {plural}{how}", kelvin_core::units::count(count)),
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("left out: {}", texts.join(", ")))
}
