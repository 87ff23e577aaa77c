//! What becomes of what is offered: where it would go, and whether it may.

use std::cell::Cell;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_file::Error as FileError;
use kelvin_file::rename::{self, At};
use rustix::fs::{AtFlags, FileType, Gid, Stat, Uid};

use crate::blocks::BLOCK;
use crate::deposit::{Deposit, Placed, Taken};
use crate::kept_time::KeptTimes;
use crate::load::Storage;
use crate::message::{Decision, Entry, EntryKind, Modified, Settings};
use crate::moving::ReceiveSetup;
use crate::staging::Small;
use crate::tree::{Held, Root, Tree, is_own, part_name, times};
use crate::{Error, Result};

/// Most bytes of a link's path (PATH_MAX of limits.h).
const LONGEST: usize = 4095;

/// Where a receiver's files go.
#[derive(Debug)]
pub enum Destination {
    /// Into a directory.
    Directory(Root),
    /// One file, to standard output.
    Output(File),
    /// Nowhere: to measure what is before.
    Nothing,
}

/// The same for one session.
#[derive(Debug)]
enum Place {
    Directory(Tree),
    /// And whether it has its file.
    Output(File, bool),
    Nothing,
}

/// Decides for one session.
#[derive(Debug)]
pub(crate) struct Desk {
    place: Place,
    /// What file systems keep of times, where files may be there already.
    times: KeptTimes,
    overwrite: bool,
    /// Files that have their names, where others are replaced.
    placed: Placed,
    /// Bytes of room that were promised to none, where known, when it looked last.
    unpromised: Cell<Option<Option<u64>>>,
    /// Bytes that were promised room, of files that did not arrive yet.
    promised: u64,
    /// Those of them that are there already.
    taken: Arc<AtomicU64>,
}

impl Desk {
    /// For a destination.
    ///
    /// # Errors
    /// Those of duplicating a descriptor.
    pub(crate) fn new(destination: &Destination, overwrite: bool) -> Result<Self> {
        let place = match destination {
            Destination::Directory(root) => Place::Directory(Tree::new(root.clone())),
            Destination::Output(file) => {
                let file = file.try_clone().map_err(|error| FileError::call("write", Path::new("-"), error))?;
                Place::Output(file, false)
            }
            Destination::Nothing => Place::Nothing,
        };
        let times = KeptTimes::default();
        let placed = Placed::default();
        Ok(Self { place, times, overwrite, placed, unpromised: Cell::default(), promised: 0, taken: Arc::default() })
    }

    /// Whether the bytes of a file may come in any order.
    pub(crate) fn takes_any_order(&self) -> bool {
        !matches!(self.place, Place::Output(..))
    }

    /// That there is room for all, where all of it is to come.
    ///
    /// # Errors
    /// That there is not.
    pub(crate) fn begin(&self, settings: &Settings) -> Result<()> {
        let (Some(bytes), Place::Directory(tree)) = (settings.bytes, &self.place) else { return Ok(()) };
        // What is there already need not come, and is not known yet.
        let is_all_new = !settings.update && !settings.dry_run && !tree.has_parts();
        if !is_all_new {
            return Ok(());
        }
        self.check_room(bytes)
    }

    /// Looks again how much room there is, before the next file is decided on.
    pub(crate) fn look_again(&self) {
        self.unpromised.set(None);
    }

    /// That there is room for so many bytes beside those that were promised it; remembered until it looks again.
    fn check_room(&self, bytes: u64) -> Result<()> {
        let Place::Directory(tree) = &self.place else { return Ok(()) };
        let room = match self.unpromised.get() {
            Some(seen) => seen,
            None => {
                let promised = self.promised.saturating_sub(self.taken.load(Ordering::Relaxed));
                tree.room()?.map(|room| room.saturating_sub(promised))
            }
        };
        self.unpromised.set(Some(room));
        match room {
            Some(room) if bytes > room => Err(Error::NoRoom { bytes, room }),
            _ => Ok(()),
        }
    }

    fn promise(&mut self, bytes: u64) {
        self.promised = self.promised.saturating_add(bytes);
        let less = |room: Option<u64>| room.map(|room| room.saturating_sub(bytes));
        self.unpromised.set(self.unpromised.get().map(less));
    }

    /// Decides on an entry; for a file of which a part is there, with the part, if one more may be held open.
    ///
    /// # Errors
    /// Why it is refused; an entry that no honest sender offers.
    pub(crate) fn decide(
        &mut self,
        entry: &Entry,
        settings: &Settings,
        may_resume: bool,
    ) -> Result<(Decision, Option<Deposit>)> {
        match (&mut self.place, &entry.kind) {
            (Place::Nothing, EntryKind::File { .. } | EntryKind::Stream) => Ok((Decision::Wanted, None)),
            (Place::Nothing, _) => Ok((Decision::Made, None)),
            (Place::Output(_, has_file @ false), EntryKind::File { .. } | EntryKind::Stream) => {
                *has_file = true;
                Ok((Decision::Wanted, None))
            }
            (Place::Output(..), _) => Err(Error::Refused("only one file goes to its standard output".into())),
            (Place::Directory(tree), EntryKind::Directory) => {
                tree.add(entry, (settings.dry_run, self.overwrite))?;
                Ok((Decision::Made, None))
            }
            (Place::Directory(tree), _) if is_own(&entry.name) => Err(Error::OwnName { path: tree.path(entry) }),
            (Place::Directory(tree), EntryKind::Link { target }) => {
                let made = if settings.dry_run { Ok(()) } else { link(tree, entry, target, self.overwrite) };
                made.map(|()| (Decision::Made, None))
            }
            (Place::Directory(_), _) => self.decide_file(entry, settings, may_resume),
        }
    }

    fn decide_file(
        &mut self,
        entry: &Entry,
        settings: &Settings,
        may_resume: bool,
    ) -> Result<(Decision, Option<Deposit>)> {
        let Place::Directory(tree) = &mut self.place else { return Ok((Decision::Wanted, None)) };
        let held = match tree.held(entry.parent) {
            // A directory that is not there yet, and would have been made.
            Err(Error::File(_)) if settings.dry_run => return Ok((Decision::Wanted, None)),
            held => held?,
        };
        // Where nothing is, nobody asks for the path.
        let found = if tree.is_new(entry.parent) { None } else { look(&held, entry, &tree.path(entry))? };
        if let Some(found) = found {
            let (path, served) = (tree.path(entry), tree.held(0)?);
            if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                return Err(FileError::Special { path, kind: kind(&found) }.into());
            }
            if self.placed.has((found.st_dev, found.st_ino)) {
                return Err(Error::OneName { path });
            }
            if settings.update && is_same(entry, &found, |modified| self.times.of((&served, &held), modified)) {
                return Ok((Decision::Unchanged, None));
            }
            if !self.overwrite {
                return Err(FileError::Exists { path }.into());
            }
        }
        let EntryKind::File { bytes, stored } = entry.kind else { return Ok((Decision::Wanted, None)) };
        let has_part = bytes > BLOCK
            && rustix::fs::statat(&*held.directory, part_name(entry, bytes), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if settings.dry_run {
            return Ok((if has_part { Decision::Resumed } else { Decision::Wanted }, None));
        }
        if has_part && may_resume {
            let deposit = Deposit::make(&held, tree.path(entry), entry, self.overwrite)?;
            let deposit = if self.overwrite { deposit.among(&self.placed) } else { deposit };
            tree.gets_name(entry.parent);
            // A receiver that was killed before it wrote anything left an empty one, of which there is nothing to say.
            let decision = if deposit.resumed().is_some() { Decision::Resumed } else { Decision::Wanted };
            return Ok((decision, Some(deposit)));
        }
        self.check_room(stored)?;
        self.promise(stored);
        Ok((Decision::Wanted, None))
    }

    /// Makes the file of an entry that is wanted.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn deposit(&mut self, entry: &Entry) -> Result<Deposit> {
        let path = self.path(entry);
        match &mut self.place {
            Place::Directory(tree) => {
                let made = Deposit::make(&*tree.held(entry.parent)?, path, entry, self.overwrite)?;
                tree.gets_name(entry.parent);
                let made = if self.overwrite { made.among(&self.placed) } else { made };
                Ok(made.taking(Taken::of(entry, &self.taken)))
            }
            Place::Output(output, _) => Deposit::to_output(output, path, entry),
            Place::Nothing => Deposit::to_nothing(path, entry),
        }
    }

    /// Makes a small file of an entry that is wanted.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn put(&mut self, entry: &Entry, content: &[u8], sync: bool) -> Result<()> {
        match &mut self.place {
            // What may be replaced is looked at closely first.
            Place::Directory(tree) if !self.overwrite => {
                let staging = tree.staging(entry.parent)?;
                tree.gets_name(entry.parent);
                staging.put(&Small { entry, content, path: &|| tree.path(entry), sync })
            }
            _ => {
                let mut deposit = self.deposit(entry)?;
                deposit.write(content, 0)?;
                deposit.describe(entry)?;
                if sync {
                    deposit.flush()?;
                }
                deposit.keep(entry)
            }
        }
    }

    /// A wanted file has come, or failed: what it takes, it has taken.
    pub(crate) fn arrived(&mut self, entry: &Entry) {
        if let EntryKind::File { stored, .. } = entry.kind {
            self.promised = self.promised.saturating_sub(stored);
        }
    }

    /// What lies under what arrives.
    pub(crate) fn storage(&self) -> Storage {
        match &self.place {
            Place::Directory(tree) => Storage::of(&tree.reach()),
            Place::Output(..) => Storage::Pipe,
            Place::Nothing => Storage::Nothing,
        }
    }

    /// What writing costs here, in picoseconds a byte, receiving included where that was by a method of its own, for what is verified or
    /// not; and what a small file costs, in nanoseconds, if there were any.
    ///
    /// # Errors
    /// Those of writing; files of which it is not known, since others are replaced.
    pub(crate) fn costs(&self, small: u64, by: Option<(ReceiveSetup, bool)>) -> Result<(u64, u64)> {
        let Place::Directory(tree) = &self.place else { return Ok((0, 0)) };
        let failed = |error| FileError::call("write in", Path::new("."), error);
        let file = by.map_or_else(|| tree.cost_of_writing(), |by| tree.cost_of_receiving(by)).map_err(failed)?;
        let each = match small {
            0 => 0,
            _ if self.overwrite => return Err(failed(ErrorKind::Unsupported.into()).into()),
            _ => tree.cost_of_making()?,
        };
        Ok((file, each))
    }

    /// Where an entry goes, in words.
    pub(crate) fn path(&self, entry: &Entry) -> PathBuf {
        match &self.place {
            Place::Directory(tree) => tree.path(entry),
            _ => PathBuf::from(entry.name.as_os_str()),
        }
    }

    /// Finishes the directories.
    ///
    /// # Errors
    /// Those of finishing them.
    pub(crate) fn finish(&mut self, settings: &Settings) -> Result<()> {
        match &mut self.place {
            Place::Directory(tree) if !settings.dry_run => tree.finish(settings.sync),
            _ => Ok(()),
        }
    }
}

/// What is under a name, if anything. A link is not followed.
fn look(held: &Held, entry: &Entry, path: &Path) -> Result<Option<Stat>> {
    match rustix::fs::statat(&*held.directory, entry.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(FileError::call("find", path, error.into()).into()),
    }
}

/// Whether a file is there already, by its size and its time, or what its file system keeps of that.
fn is_same(entry: &Entry, found: &Stat, kept: impl FnOnce(Modified) -> std::io::Result<Modified>) -> bool {
    let EntryKind::File { bytes, .. } = entry.kind else { return false };
    let there = Modified { seconds: found.st_mtime, nanoseconds: found.st_mtime_nsec as u32 };
    u64::try_from(found.st_size) == Ok(bytes)
        && (there == entry.modified || kept(entry.modified).is_ok_and(|kept| kept == there))
}

fn kind(found: &Stat) -> &'static str {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "no regular file",
    }
}

/// Makes a symbolic link, at once and whole, where nothing is, or a link that may be replaced.
fn link(tree: &mut Tree, entry: &Entry, target: &[u8], overwrite: bool) -> Result<()> {
    let path = tree.path(entry);
    let held = tree.held(entry.parent)?;
    let directory = &*held.directory;
    let failed = |error: rustix::io::Errno| FileError::call("make the link", &path, error.into());
    if target.is_empty() || target.len() > LONGEST || target.contains(&0) {
        return Err(FileError::call("make the link", &path, ErrorKind::InvalidInput.into()).into());
    }
    if let Some(found) = look(&held, entry, &path)? {
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            return Err(FileError::Special { path, kind: kind(&found) }.into());
        }
        let there = rustix::fs::readlinkat(directory, entry.name.as_os_str(), Vec::new()).map_err(failed)?;
        if there.as_bytes() == target {
            return Ok(());
        }
        if !overwrite {
            return Err(FileError::Exists { path }.into());
        }
    }
    let other = part_name(entry, 0);
    // One that a killed receiver left.
    let _ = rustix::fs::unlinkat(directory, &other, AtFlags::empty());
    rustix::fs::symlinkat(std::ffi::OsStr::from_bytes(target), directory, &other).map_err(failed)?;
    let put = describe(directory, &other, entry).and_then(|()| {
        let (from, to) = (Path::new(&other), entry.name.as_os_str());
        match overwrite {
            true => rustix::fs::renameat(directory, from, directory, to),
            false => rename::to_new_name(At::inside(directory.as_fd(), from), At::inside(directory.as_fd(), to)),
        }
    });
    put.map_err(|error| {
        let _ = rustix::fs::unlinkat(directory, &other, AtFlags::empty());
        failed(error)
    })?;
    tree.gets_name(entry.parent);
    Ok(())
}

/// Gives a link its time and owner.
fn describe(directory: &File, name: &str, entry: &Entry) -> rustix::io::Result<()> {
    rustix::fs::utimensat(directory, name, &times(entry.modified), AtFlags::SYMLINK_NOFOLLOW)?;
    if let Some((user, group)) = entry.owner {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
