//! What is to be sent: the files that a user named, and what is below the directories, as found before anything is sent.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kelvin_file::Error as FileError;
use kelvin_sys::fs::{NO_FOLLOW, NONBLOCK, effective_user};

use crate::message::{ATTRIBUTE_BYTES, ATTRIBUTES, Attribute, Entry, EntryKind, Modified};
use crate::name::Name;
use crate::{Error, Result, tree};

/// Permissions that are sent.
const RIGHTS: u32 = 0o777;
/// Bytes of a block in stat(2).
const STAT_BLOCK: u64 = 512;
/// Extended attributes that anybody may set.
const USER: &[u8] = b"user.";
/// What a system labels every file with, by its own policy.
const LABEL: &[u8] = b"security.selinux";
/// Most files in one transfer: their numbers have 32 bits.
const MOST: usize = u32::MAX as usize;

/// What is sent beside the content, names, permissions and times of regular files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Directories, with all that is below.
    pub recursive: bool,
    /// Symbolic links, as links.
    pub links: bool,
    /// Users and groups.
    pub owners: bool,
    /// Extended attributes of the user's name space.
    pub attributes: bool,
}

/// What was found and is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
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
pub struct Source {
    /// Where it is; empty for standard input.
    pub path: PathBuf,
    /// What is said of it.
    pub entry: Entry,
    /// Device and inode: what is opened later must be the same file.
    identity: (u64, u64),
    /// Whether a link in its place would be followed: only one that the user named.
    is_named: bool,
    /// Whether it has fewer blocks than bytes.
    pub has_holes: bool,
}

impl Source {
    /// Its bytes, if it is a file whose size is known.
    pub fn bytes(&self) -> u64 {
        if let EntryKind::File { bytes, .. } = self.entry.kind { bytes } else { 0 }
    }

    /// Whether it has content to be sent.
    pub fn is_file(&self) -> bool {
        matches!(self.entry.kind, EntryKind::File { .. } | EntryKind::Stream)
    }

    /// Opens a file; whether it is still the same one, [`Source::check`] says.
    ///
    /// # Errors
    /// Those of open.
    pub fn open(&self) -> Result<File> {
        if self.path.as_os_str().is_empty() {
            let input = std::io::stdin().as_fd().try_clone_to_owned();
            return Ok(input.map_err(|error| FileError::call("open", Path::new("-"), error))?.into());
        }
        let flags = if self.is_named { NONBLOCK } else { NONBLOCK | NO_FOLLOW };
        let opened = File::options().read(true).custom_flags(flags).open(&self.path);
        let file = opened.map_err(|error| FileError::call("open", &self.path, error))?;
        Ok(file)
    }

    /// That an open file is the one that was found, with the same size and time.
    ///
    /// # Errors
    /// That it was changed, and how.
    pub fn check(&self, file: &File) -> Result<()> {
        let EntryKind::File { bytes, .. } = self.entry.kind else { return Ok(()) };
        let found = file.metadata().map_err(|error| FileError::call("look at", &self.path, error))?;
        if (found.dev(), found.ino()) != self.identity {
            return Err(self.changed("another file has taken its place".into()));
        }
        if found.len() != bytes {
            return Err(self.changed(format!("its size went from {bytes} to {} bytes", found.len())));
        }
        if modified(&found) != self.entry.modified {
            return Err(self.changed("it was written".into()));
        }
        Ok(())
    }

    /// The error that it changed.
    pub fn changed(&self, what: String) -> Error {
        FileError::Changed { path: self.path.clone(), what }.into()
    }
}

/// All that is to be sent, each directory before what is in it.
#[derive(Debug, Default)]
pub struct Collection {
    /// In the order in which it is offered.
    pub sources: Vec<Source>,
    /// What is left out.
    pub left_out: LeftOut,
    /// What could not be looked at.
    pub unread: Vec<(PathBuf, Error)>,
    /// Directories so far, and bytes of their names.
    directories: u32,
    names: usize,
}

impl Collection {
    /// Finds what a user named. A symbolic link is followed, and sent by its own name.
    ///
    /// # Errors
    /// What is no regular file, nor a directory where those are sent; what may not be read.
    pub fn of(paths: &[PathBuf], keep: Keep) -> Result<Self> {
        let mut found = Self::default();
        for path in paths {
            found.add_named(path, keep)?;
        }
        Ok(found)
    }

    /// Standard input, under this name.
    ///
    /// # Errors
    /// A name that is none.
    pub fn of_input(name: &OsStr) -> Result<Self> {
        let why = |why: &str| FileError::call("send as", Path::new(name), invalid(why));
        let name = Name::try_from(name.as_bytes().to_vec()).map_err(why)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let modified = Modified { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
        let kind = EntryKind::Stream;
        // As a shell's redirection would make it, but for its umask.
        let entry = Entry { parent: 0, name, kind, mode: 0o644, modified, owner: None, attributes: Vec::new() };
        let source = Source { path: PathBuf::new(), entry, identity: (0, 0), is_named: true, has_holes: false };
        Ok(Self { sources: vec![source], ..Self::default() })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(Source::bytes).sum()
    }

    /// Bytes that all take on a disk; none where that is unknown.
    pub fn stored(&self) -> Option<u64> {
        let stored = |source: &Source| match source.entry.kind {
            EntryKind::File { stored, bytes } => Some(stored.min(bytes)),
            EntryKind::Stream => None,
            _ => Some(0),
        };
        self.sources.iter().map(stored).sum()
    }

    fn add_named(&mut self, path: &Path, keep: Keep) -> Result<()> {
        let found = fs::metadata(path).map_err(|error| FileError::call("find", path, error))?;
        let name = if found.is_dir() { directory_name(path) } else { Name::of(path).map_err(invalid) };
        let name = name.map_err(|source| FileError::call("send", path, source))?;
        if found.is_dir() {
            if !keep.recursive {
                return Err(
                    FileError::Special { path: path.to_owned(), kind: "a directory, which only -r sends" }.into()
                );
            }
            let entries = read(path)?;
            let parent = self.add_directory(path, 0, name, (&found, keep))?;
            return self.descend(entries, parent, keep);
        }
        if let Some(kind) = special(&found) {
            return Err(FileError::Special { path: path.to_owned(), kind }.into());
        }
        let file = self.add(path, 0, name, (&found, keep), file(&found))?;
        file.is_named = true;
        // What may not be read is said before anything is sent.
        file.open().map(drop)
    }

    /// Adds what is in a directory, by name, so that an order of sending can be repeated.
    fn descend(&mut self, entries: Vec<PathBuf>, parent: u32, keep: Keep) -> Result<()> {
        let mut waiting = vec![(entries.into_iter(), parent)];
        while let Some((entries, parent)) = waiting.last_mut() {
            let (Some(path), parent) = (entries.next(), *parent) else {
                waiting.pop();
                continue;
            };
            if let Some(below) = self.look(path, parent, keep)? {
                waiting.push(below);
            }
        }
        Ok(())
    }

    /// Adds what is at a path; for a directory, returns what is in it and its number.
    fn look(&mut self, path: PathBuf, parent: u32, keep: Keep) -> Result<Option<(std::vec::IntoIter<PathBuf>, u32)>> {
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) => {
                let error = FileError::call("find", &path, error).into();
                self.unread.push((path, error));
                return Ok(None);
            }
        };
        let Ok(name) = Name::of(&path) else { return Ok(None) };
        let kind = found.file_type();
        if kind.is_dir() {
            match read(&path) {
                Ok(entries) => {
                    let number = self.add_directory(&path, parent, name, (&found, keep))?;
                    return Ok(Some((entries.into_iter(), number)));
                }
                Err(error) => self.unread.push((path, error)),
            }
        } else if kind.is_file() {
            self.add(&path, parent, name, (&found, keep), file(&found))?;
        } else if kind.is_symlink() && keep.links {
            let target = fs::read_link(&path).map(|target| target.into_os_string().into_vec());
            match target {
                Ok(target) => drop(self.add(&path, parent, name, (&found, keep), EntryKind::Link { target })?),
                Err(error) => {
                    let error = FileError::call("read the link", &path, error).into();
                    self.unread.push((path, error));
                }
            }
        } else if kind.is_symlink() {
            self.left_out.links += 1;
        } else {
            self.left_out.special += 1;
        }
        Ok(None)
    }

    fn add_directory(&mut self, path: &Path, parent: u32, name: Name, found: (&Metadata, Keep)) -> Result<u32> {
        self.names += name.as_os_str().len();
        if self.directories as usize >= tree::MOST || self.names > tree::NAMES {
            return Err(Error::TooMany);
        }
        self.add(path, parent, name, found, EntryKind::Directory)?;
        self.directories += 1;
        Ok(self.directories)
    }

    fn add(
        &mut self,
        path: &Path,
        parent: u32,
        name: Name,
        (found, keep): (&Metadata, Keep),
        kind: EntryKind,
    ) -> Result<&mut Source> {
        if self.sources.len() >= MOST {
            return Err(Error::TooMany);
        }
        let owner = keep.owners.then_some((found.uid(), found.gid()));
        if owner.is_none() && found.uid() != effective_user() {
            self.left_out.owners += 1;
        }
        let attributes = if found.is_symlink() { Vec::new() } else { self.attributes(path, keep.attributes)? };
        let (mode, modified) = (found.mode() & RIGHTS, modified(found));
        let has_holes = found.is_file() && found.blocks() * STAT_BLOCK < found.len();
        let entry = Entry { parent, name, kind, mode, modified, owner, attributes };
        let identity = (found.dev(), found.ino());
        self.sources.push(Source { path: path.to_owned(), entry, identity, is_named: false, has_holes });
        self.sources.last_mut().ok_or(Error::TooMany)
    }

    /// The extended attributes that are to be sent; counts a file that has others, or too many.
    fn attributes(&mut self, path: &Path, wanted: bool) -> Result<Vec<Attribute>> {
        let Ok(names) = names_of_attributes(path) else {
            // A file system without them, or a file that cannot be read, which its own opening says.
            return Ok(Vec::new());
        };
        let (user, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| wanted && name.starts_with(USER));
        let mut is_left = others.iter().any(|name| name != LABEL);
        let mut kept = Vec::new();
        let mut bytes = 0;
        for name in user {
            let value = value_of_attribute(path, &name);
            bytes += value.as_ref().map_or(0, Vec::len) + name.len();
            match value {
                Ok(value) if bytes <= ATTRIBUTE_BYTES && kept.len() < ATTRIBUTES => {
                    kept.push(Attribute { name: name[USER.len()..].to_vec(), value });
                }
                _ => is_left = true,
            }
        }
        self.left_out.attributes += u64::from(is_left);
        Ok(kept)
    }
}

/// The paths in a directory, by name.
fn read(path: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| FileError::call("read", path, error);
    let entries = fs::read_dir(path).map_err(failed)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries = entries.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort();
    Ok(entries)
}

/// The name of a directory, even if its path ends in dots.
fn directory_name(path: &Path) -> std::io::Result<Name> {
    let whole = fs::canonicalize(path)?;
    Name::of(&whole).map_err(invalid)
}

fn invalid(why: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, why.to_owned())
}

fn file(found: &Metadata) -> EntryKind {
    EntryKind::File { bytes: found.len(), stored: found.blocks() * STAT_BLOCK }
}

fn modified(found: &Metadata) -> Modified {
    Modified { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 }
}

/// The kind of a named file that cannot be sent.
fn special(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_block_device() => Some("a block device"),
        () if kind.is_char_device() => Some("a character device"),
        () => Some("no regular file"),
    }
}

/// Bytes that names of attributes, or a value, can have at most (XATTR_LIST_MAX, XATTR_SIZE_MAX of limits.h).
const LONGEST: usize = 64 << 10;

fn names_of_attributes(path: &Path) -> rustix::io::Result<Vec<Vec<u8>>> {
    // Most files have none: a first call without a buffer says so.
    if rustix::fs::llistxattr_query(path)? == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0; LONGEST];
    let length = rustix::fs::llistxattr(path, &mut names)?;
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

fn value_of_attribute(path: &Path, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; LONGEST];
    let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// What is left out, in words; nothing if nothing is.
pub fn left_out(left: &LeftOut) -> Option<String> {
    let counted = |count: u64, one: &str, several: &str, how: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}{how}")),
        _ => Some(format!("{} {several}{how}", kelvin_model::units::count(count))),
    };
    let all = [
        counted(left.links, "symbolic link", "symbolic links", " (--links keeps them)"),
        counted(left.special, "socket, pipe or device", "sockets, pipes and devices", ""),
        counted(left.owners, "file's owner", "files' owners", " (--owners keeps them)"),
        counted(
            left.attributes,
            "file's extended attributes",
            "files' extended attributes",
            " (--xattrs keeps user.*)",
        ),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("left out: {}", all.join(", ")))
}
