//! The receiver's directories: the one that it serves, which is held open, and those that were offered below it.
//!
//! Each is found from the one above by its name alone, and no link is followed, whatever others do to the names meanwhile.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin_file::Error as FileError;
use kelvin_file::temporary::{AMONG_OTHERS, Files, reach, sweep};
use kelvin_sys::fs::flush_directory;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};

use crate::expected;
use crate::message::{Entry, Modified};
use crate::moving::ReceiveSetup;
use crate::name::Name;
use crate::staging::Staging;
use crate::{Error, Result};

/// Directories that are held open at one time.
const OPEN: usize = 32;
/// Most directories of a session, and most bytes of their names: they cost memory until its end.
pub const MOST: usize = 100_000;
/// See [`MOST`].
pub const NAMES: usize = 8 << 20;
/// Most components of a path: no path of 4096 bytes, by which a sender finds a directory, has more.
const DEEPEST: u16 = 2048;
/// The beginning of the name of a file of which a part arrived.
pub const PART: &str = ".kelvin-part-";
/// How long a part is kept.
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Permissions of a directory until all is in it: so that it is found to be unfinished when its transfer was interrupted. For a
/// directory of its owner alone the sticky bit changes nothing, and hardly anybody sets it; no sender can ([`RIGHTS`]).
const UNFINISHED: Mode = Mode::RWXU.union(Mode::SVTX);
/// Permissions that are kept.
pub(crate) const RIGHTS: u32 = 0o777;

/// A directory that is held open.
#[derive(Debug)]
pub struct Held {
    /// The directory (O_PATH).
    pub directory: Arc<File>,
    /// Where files are made.
    pub files: Files,
    /// Whether parts of files were there when it was opened.
    has_parts: bool,
}

impl Held {
    /// With nothing in it that the dead left.
    fn swept(directory: File) -> Arc<Self> {
        let parts = sweep(&reach(&directory), PART.as_bytes(), KEPT);
        Self::new(directory, parts > 0)
    }

    fn new(directory: File, has_parts: bool) -> Arc<Self> {
        let files = Files::in_swept(&reach(&directory));
        Arc::new(Self { directory: Arc::new(directory), files, has_parts })
    }
}

/// The directory that a receiver serves.
#[derive(Clone, Debug)]
pub struct Root {
    held: Arc<Held>,
}

impl Root {
    /// Opens it, makes sure that files can be made there, and removes what a killed receiver left behind.
    ///
    /// # Errors
    /// A path that is no directory, or one that takes no files.
    pub fn open(path: &Path) -> std::result::Result<Self, FileError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = rustix::fs::open(path, flags, Mode::empty());
        let held = File::from(found.map_err(|error| FileError::call("open", path, error.into()))?);
        if !held.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(FileError::call("receive into", path, ErrorKind::NotADirectory.into()));
        }
        let held = Held::swept(held);
        held.files.make(0o600).map_err(|error| FileError::call("make files in", path, error))?;
        Ok(Self { held })
    }
}

/// A directory that was offered.
#[derive(Debug)]
struct Offered {
    parent: u32,
    name: Name,
    mode: u32,
    modified: Modified,
    depth: u16,
    found: Found,
    /// Whether it gets the sender's permissions and time in the end.
    is_to_be_set: bool,
    /// Whether something in it got a name.
    has_new_names: bool,
    /// Whether nothing of the dead is in it: a large directory is listed once, however often it is opened.
    is_swept: bool,
}

/// What was under the name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing: it was made by this session.
    Nothing,
    /// A directory that a transfer made and did not finish.
    Unfinished,
    /// Another one, which is the user's.
    Directory,
}

/// The directories of a session.
#[derive(Debug)]
pub struct Tree {
    root: Root,
    root_has_new_names: bool,
    offered: Vec<Offered>,
    /// Bytes of their names.
    names: usize,
    open: VecDeque<(u32, Arc<Held>)>,
    staging: VecDeque<(u32, Arc<Staging>)>,
    /// The directory whose path was asked for last, and that: most files follow one of the same directory.
    last_path: RefCell<(u32, PathBuf)>,
}

impl Tree {
    /// With none but the one that is served.
    pub fn new(root: Root) -> Self {
        let (offered, open, staging) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { root, root_has_new_names: false, offered, names: 0, open, staging, last_path: RefCell::default() }
    }

    /// Adds a directory, and makes it unless it is there, or nothing is to be written.
    ///
    /// # Errors
    /// Those of making it; something else under its name. What no sender offers: too many, or too deep.
    pub fn add(&mut self, entry: &Entry, (is_dry, overwrite): (bool, bool)) -> Result<()> {
        let depth = match entry.parent {
            0 => 1,
            parent => self.offered(parent)?.depth + 1,
        };
        self.names += entry.name.as_os_str().len();
        // To refuse one of them alone would leave both ends with other numbers for those that follow.
        if self.offered.len() >= MOST || self.names > NAMES || depth > DEEPEST {
            return Err(Error::Nonsense("it offers more directories than one transfer can have"));
        }
        let Entry { parent, mode, modified, .. } = *entry;
        let name = entry.name.clone();
        self.offered.push(Offered {
            parent,
            name,
            mode: mode & RIGHTS,
            modified,
            depth,
            found: Found::Directory,
            is_to_be_set: false,
            has_new_names: false,
            is_swept: false,
        });
        if is_own(&entry.name) {
            return Err(Error::OwnName { path: self.path(entry) });
        }
        if is_dry {
            return Ok(());
        }
        let found = self.make(entry)?;
        let is_to_be_set = found != Found::Directory || overwrite;
        if let Some(last) = self.offered.last_mut() {
            (last.found, last.is_to_be_set) = (found, is_to_be_set);
        }
        if !is_to_be_set {
            return Ok(());
        }
        let number = self.offered.len() as u32;
        let held = self.held(number)?;
        describe(&held.directory, entry)
            .map_err(|error| self.failed("keep owner and extended attributes of", number, error))
    }

    /// Makes a directory, and says what was there.
    fn make(&mut self, entry: &Entry) -> Result<Found> {
        let above = self.held(entry.parent)?;
        let made = rustix::fs::mkdirat(&*above.directory, entry.name.as_os_str(), UNFINISHED);
        let number = self.offered.len() as u32;
        match made {
            Ok(()) => {
                self.gets_name(entry.parent);
                if let Some(new) = self.offered.last_mut() {
                    new.is_swept = true;
                }
                self.held(number).map(|_| Found::Nothing)
            }
            Err(rustix::io::Errno::EXIST) => {
                let held = self.held(number)?;
                let found = is_unfinished(&held.directory, entry);
                let found = found.map_err(|error| self.failed("query the directory", number, error))?;
                Ok(if found { Found::Unfinished } else { Found::Directory })
            }
            Err(error) => Err(FileError::call("make the directory", &self.path(entry), error.into()).into()),
        }
    }

    /// A directory by its number.
    ///
    /// # Errors
    /// One that was not offered, is no directory, or cannot be opened.
    pub fn held(&mut self, number: u32) -> Result<Arc<Held>> {
        if number == 0 {
            return Ok(Arc::clone(&self.root.held));
        }
        if let Some((_, held)) = self.open.iter().find(|(open, _)| *open == number) {
            return Ok(Arc::clone(held));
        }
        let directory = self.descend(number)?;
        let is_swept = self.offered_mut(number).is_none_or(|offered| std::mem::replace(&mut offered.is_swept, true));
        let held = if is_swept { Held::new(directory, false) } else { Held::swept(directory) };
        self.open.truncate(OPEN - 1);
        self.open.push_front((number, Arc::clone(&held)));
        Ok(held)
    }

    /// Something in a directory gets a name: where names are to be flushed, this one's are.
    pub fn gets_name(&mut self, number: u32) {
        match self.offered_mut(number) {
            Some(offered) => offered.has_new_names = true,
            None => self.root_has_new_names = true,
        }
    }

    /// Whether a directory was made by this session, so that nothing is in it that it did not bring.
    pub fn is_new(&self, number: u32) -> bool {
        self.offered(number).is_ok_and(|offered| offered.found == Found::Nothing)
    }

    /// Where the small files of a directory are made.
    ///
    /// # Errors
    /// As for [`Tree::held`].
    pub fn staging(&mut self, number: u32) -> Result<Arc<Staging>> {
        if let Some((_, staging)) = self.staging.iter().find(|(open, _)| *open == number) {
            return Ok(Arc::clone(staging));
        }
        let made = Arc::new(Staging::beside(&self.held(number)?));
        self.staging.truncate(OPEN - 1);
        self.staging.push_front((number, Arc::clone(&made)));
        Ok(made)
    }

    /// Opens a directory from the one that is served, name by name.
    fn descend(&self, number: u32) -> Result<File> {
        let mut names = Vec::new();
        let mut below = number;
        while below != 0 {
            let offered = self.offered(below)?;
            names.push(&offered.name);
            below = offered.parent;
        }
        let mut held: Option<File> = None;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for name in names.iter().rev() {
            // It was refused, and something else may be there.
            if is_own(name) {
                return Err(Error::OwnName { path: self.path_of(number) });
            }
            let above = held.as_ref().unwrap_or(&self.root.held.directory);
            let opened = rustix::fs::openat(above, name.as_os_str(), flags, Mode::empty());
            let failed =
                |error: rustix::io::Errno| FileError::call("open the directory", &self.path_of(number), error.into());
            held = Some(opened.map_err(failed)?.into());
        }
        held.ok_or(Error::Nonsense(UNKNOWN))
    }

    fn offered(&self, number: u32) -> Result<&Offered> {
        self.offered.get((number as usize).wrapping_sub(1)).ok_or(Error::Nonsense(UNKNOWN))
    }

    fn offered_mut(&mut self, number: u32) -> Option<&mut Offered> {
        self.offered.get_mut((number as usize).wrapping_sub(1))
    }

    /// Free bytes of the file system of the directory that is served, if known.
    ///
    /// # Errors
    /// Those of statfs.
    pub fn room(&self) -> Result<Option<u64>> {
        let path = reach(&self.root.held.directory);
        let found = kelvin_sys::fs::room(&path);
        let room = found.map_err(|error| FileError::call("query the file system of", Path::new("."), error))?;
        let free = if kelvin_sys::fs::effective_user() == 0 { room.free_bytes } else { room.available_bytes };
        Ok((room.total_bytes > 0).then_some(free))
    }

    /// The path by which the directory that is served is reached.
    pub fn reach(&self) -> PathBuf {
        reach(&self.root.held.directory)
    }

    /// What writing a file in it costs, in picoseconds a byte.
    ///
    /// # Errors
    /// Those of writing one, which is removed.
    pub fn cost_of_writing(&self) -> std::io::Result<u64> {
        expected::writing(self.root.held.files.make(0o600)?.as_file())
    }

    /// What receiving into a file in it by a method of its own costs, in picoseconds a byte, for what is verified or not.
    ///
    /// # Errors
    /// Those of receiving into one, which is removed.
    pub fn cost_of_receiving(&self, (setup, verify): (ReceiveSetup, bool)) -> std::io::Result<u64> {
        expected::receiving_by(self.root.held.files.make(0o600)?.as_file(), setup, verify)
    }

    /// What making a small file in it costs beside its bytes, in nanoseconds. Nothing is left when it is known.
    ///
    /// # Errors
    /// Those of making some, which are removed.
    pub fn cost_of_making(&self) -> Result<u64> {
        Staging::beside(&self.root.held).cost()
    }

    /// Whether there are parts in the directory that is served.
    pub fn has_parts(&self) -> bool {
        self.root.held.has_parts
    }

    /// Where an entry is, from the directory that is served.
    pub fn path(&self, entry: &Entry) -> PathBuf {
        let mut last = self.last_path.borrow_mut();
        // One that was not offered may be yet.
        if last.0 != entry.parent || self.offered(entry.parent).is_err() {
            *last = (entry.parent, self.path_of(entry.parent));
        }
        let (above, name) = (&last.1, entry.name.as_os_str());
        let mut path = PathBuf::with_capacity(above.as_os_str().len() + 1 + name.len());
        path.extend([above.as_os_str(), name]);
        path
    }

    fn path_of(&self, mut number: u32) -> PathBuf {
        let mut names = Vec::new();
        while let Ok(offered) = self.offered(number) {
            names.push(offered.name.as_os_str());
            number = offered.parent;
        }
        names.iter().rev().collect()
    }

    /// Gives the directories their permissions and times, the deepest first, and flushes them if asked to: those that it sets, and those
    /// in which something got a name, also where they were there before.
    ///
    /// # Errors
    /// The first failure; the others are still done.
    pub fn finish(&mut self, sync: bool) -> Result<()> {
        self.staging.clear();
        let mut failure = None;
        for number in (1..=self.offered.len() as u32).rev() {
            if let Err(error) = self.finish_one(number, sync) {
                failure.get_or_insert(error);
            }
        }
        if sync && self.root_has_new_names && failure.is_none() {
            let flushed = opened(&self.root.held.directory).and_then(|root| flush_directory(&root));
            failure = flushed.err().map(|error| self.failed("flush", 0, error));
        }
        failure.map_or(Ok(()), Err)
    }

    fn finish_one(&mut self, number: u32, sync: bool) -> Result<()> {
        let &Offered { is_to_be_set, has_new_names, mode, modified, .. } = self.offered(number)?;
        let is_to_be_flushed = sync && (is_to_be_set || has_new_names);
        if !is_to_be_set && !is_to_be_flushed {
            return Ok(());
        }
        let held = self.held(number)?;
        // Opened first: its permissions may not let it be read.
        let opened = is_to_be_flushed.then(|| opened(&held.directory)).transpose();
        let opened = opened.map_err(|error| self.failed("flush the directory", number, error))?;
        if is_to_be_set {
            let set = set_rights(&held.directory, mode).and_then(|()| set_time(&held.directory, modified));
            set.map_err(|error| self.failed("keep time and permissions of", number, error))?;
        }
        let flushed = opened.as_ref().map_or(Ok(()), flush_directory);
        flushed.map_err(|error| self.failed("flush the directory", number, error))
    }

    fn failed(&self, doing: &str, number: u32, error: std::io::Error) -> Error {
        FileError::call(doing, &self.path_of(number), error).into()
    }
}

/// What a sender did wrong.
const UNKNOWN: &str = "it names a directory that it did not offer";

/// Gives a directory its owner and attributes, which no file that comes into it depends on.
fn describe(directory: &File, entry: &Entry) -> std::io::Result<()> {
    let path = reach(directory);
    if let Some((user, group)) = entry.owner {
        std::os::unix::fs::chown(&path, Some(user), Some(group))?;
    }
    for attribute in &entry.attributes {
        rustix::fs::setxattr(&path, attribute.full_name(), &attribute.value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Whether a transfer made the directory of an entry, and did not finish it. Its owner may have been set already.
fn is_unfinished(directory: &File, entry: &Entry) -> std::io::Result<bool> {
    let found = directory.metadata()?;
    // A group that is inherited has a bit of its own.
    let mode = found.mode() & (Mode::SVTX.bits() | RIGHTS);
    let owners = [Some(kelvin_sys::fs::effective_user()), entry.owner.map(|(user, _)| user)];
    Ok(mode == UNFINISHED.bits() && owners.contains(&Some(found.uid())))
}

/// A held directory cannot be flushed or changed itself (O_PATH), but what it leads to can.
fn opened(directory: &File) -> std::io::Result<File> {
    File::open(reach(directory))
}

fn set_rights(directory: &File, mode: u32) -> std::io::Result<()> {
    Ok(rustix::fs::chmod(reach(directory), Mode::from_raw_mode(mode))?)
}

fn set_time(directory: &File, modified: Modified) -> std::io::Result<()> {
    Ok(rustix::fs::utimensat(rustix::fs::CWD, reach(directory), &times(modified), AtFlags::empty())?)
}

/// For utimensat: the time of modification, and the time of access as it is.
pub(crate) fn times(modified: Modified) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access, last_modification }
}

/// Whether a name begins as those of what a receiver makes and has not finished: it removes what it finds under them.
pub(crate) fn is_own(name: &Name) -> bool {
    let name = name.as_os_str().as_bytes();
    name.starts_with(PART.as_bytes()) || AMONG_OTHERS.iter().any(|own| name.starts_with(own.as_bytes()))
}

/// The name under which a part of a file arrives: the same whenever the same file is sent again.
pub(crate) fn part_name(entry: &Entry, bytes: u64) -> String {
    let mut identity = kelvin_wire::Hasher::new();
    identity.update(entry.name.as_os_str().as_bytes()).update(&[0]).update(&bytes.to_le_bytes());
    identity.update(&entry.modified.seconds.to_le_bytes()).update(&entry.modified.nanoseconds.to_le_bytes());
    let hex = identity.finalize().to_hex();
    format!("{PART}{}", &hex[..32])
}
