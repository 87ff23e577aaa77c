//! What becomes of what is offered: where it would go, and whether it may.

use std::cell::Cell;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_file::Error as FileError;
use kelvin_file::temporary_files::descriptor_path;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::blocks::BLOCK_BYTES;
use crate::datapath::ReceiveSetup;
use crate::directory_tree::{DirectoryTree, is_reserved_name, part_name};
use crate::extraneous::OfferedNames;
use crate::file_name::FileName;
use crate::incoming_file::{IncomingFile, PlacedFiles, Sink, SpaceReservation};
use crate::links::{self, LinkedFiles};
use crate::message::{EntryDecision, EntryKind, EntryNumber, FileEntry, Mtime, SessionSettings};
use crate::metadata::utimens;
use crate::open_directory::OpenDirectory;
use crate::stage_times::StorageKind;
use crate::staging::{StagedFile, Staging};
use crate::{Error, Result, stage_costs};

/// Where a receiver's files go.
#[derive(Debug)]
pub enum Destination {
    /// Into a directory.
    Directory(Arc<OpenDirectory>),
    /// One file, to standard output.
    Output(File),
    /// Nowhere: to measure what is before.
    Nothing,
}

/// What senders may do to what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderLeave {
    /// Whether existing files may be replaced.
    pub overwrite: bool,
    /// Whether what is in a directory and was not sent may be deleted.
    pub delete: bool,
    /// Whether what is sent may have access control lists, which let in others.
    pub acls: bool,
}

/// Like `Destination`, for one session.
#[derive(Debug)]
enum SessionDestination {
    Directory(DirectoryTree),
    /// And whether it has its file.
    Output(File, bool),
    Nothing,
}

/// What becomes of an entry; of a file of which a part is there, with the part.
pub(crate) type Decision = (EntryDecision, Option<IncomingFile>);

/// Decides for one session.
#[derive(Debug)]
pub(crate) struct OfferPolicy {
    destination: SessionDestination,
    /// What file systems keep of times, where files may be there already.
    timestamp_probe: TimestampProbe,
    /// Files that have their names, where others may be replaced.
    placed_files: Option<PlacedFiles>,
    /// Bytes of room that were promised to none, where known, when it looked last.
    free_bytes: Cell<Option<Option<u64>>>,
    /// Bytes that were promised room, of files that did not arrive yet.
    reserved_bytes: u64,
    /// Those of them that are there already.
    written_bytes: Arc<AtomicU64>,
    /// What senders may do; and what was offered, where what was not is to be deleted.
    leave: SenderLeave,
    offered_names: Option<OfferedNames>,
    /// Files that may get further names.
    linked_files: LinkedFiles,
}

impl OfferPolicy {
    /// For a destination.
    ///
    /// # Errors
    /// Those of duplicating a descriptor.
    pub(crate) fn new(destination: &Destination, leave: SenderLeave) -> Result<Self> {
        let destination = match destination {
            Destination::Directory(root) => SessionDestination::Directory(DirectoryTree::new(Arc::clone(root))),
            Destination::Output(file) => {
                let file = file.try_clone().map_err(|error| FileError::call("write", Path::new("-"), error))?;
                SessionDestination::Output(file, false)
            }
            Destination::Nothing => SessionDestination::Nothing,
        };
        Ok(Self {
            destination,
            timestamp_probe: TimestampProbe::default(),
            placed_files: leave.overwrite.then(PlacedFiles::default),
            free_bytes: Cell::default(),
            reserved_bytes: 0,
            written_bytes: Arc::default(),
            leave,
            offered_names: None,
            linked_files: LinkedFiles::default(),
        })
    }

    /// Has files go into a directory below the one that is served, which is made if only it is missing. In a dry run nothing is made, and
    /// all that is offered would come into it.
    ///
    /// # Errors
    /// A path that leads elsewhere, or to no directory; those of making it.
    pub(crate) fn enter(&mut self, names: &[FileName], settings: &SessionSettings) -> Result<()> {
        match &mut self.destination {
            _ if names.is_empty() => {}
            SessionDestination::Directory(tree) => {
                if !tree.enter(names, (settings.dry_run, settings.sync))? {
                    self.destination = SessionDestination::Nothing;
                }
            }
            SessionDestination::Output(..) => {
                return Err(Error::Refused("what arrives goes to its standard output, where no directory is".into()));
            }
            SessionDestination::Nothing => {}
        }
        Ok(())
    }

    /// That a sender asks for nothing that it may not; what was not offered is remembered, if that is to be deleted.
    ///
    /// # Errors
    /// What it may not.
    pub(crate) fn check_leave(&mut self, settings: &SessionSettings) -> Result<()> {
        if settings.acls && !self.leave.acls {
            return Err(Error::AclsNotAllowed);
        }
        if settings.delete { self.begin_deletion() } else { Ok(()) }
    }

    fn begin_deletion(&mut self) -> Result<()> {
        if !self.leave.delete {
            return Err(Error::DeletionNotAllowed);
        }
        self.offered_names = Some(OfferedNames::default());
        Ok(())
    }

    /// An entry was decided on, where others are to be deleted.
    ///
    /// # Errors
    /// More of them than can be remembered.
    pub(crate) fn record_offered(&mut self, entry: &FileEntry, is_present: bool) -> Result<()> {
        let Some(names) = &mut self.offered_names else { return Ok(()) };
        names.add(entry.parent, &entry.name)?;
        if is_present {
            names.mark_present(entry.parent, &entry.name);
        }
        Ok(())
    }

    /// A file is in its place, and may get further names.
    ///
    /// # Errors
    /// More of them than one transfer can have.
    pub(crate) fn record_present(&mut self, number: EntryNumber, entry: &FileEntry) -> Result<()> {
        match &mut self.destination {
            SessionDestination::Directory(tree) if entry.has_links => self.linked_files.record(tree, (number, entry)),
            _ => Ok(()),
        }
    }

    /// The directories and what was offered for them, once, where something is to be deleted in them.
    pub(crate) fn take_deletion(&mut self) -> Option<(Option<&mut DirectoryTree>, OfferedNames)> {
        let names = self.offered_names.take()?;
        Some((self.tree(), names))
    }

    /// The directories, if files go to any.
    pub(crate) fn tree(&mut self) -> Option<&mut DirectoryTree> {
        if let SessionDestination::Directory(tree) = &mut self.destination { Some(tree) } else { None }
    }

    /// Whether the bytes of a file may come in any order.
    pub(crate) fn accepts_any_order(&self) -> bool {
        !matches!(self.destination, SessionDestination::Output(..))
    }

    /// That there is room for all, where all of it is to come.
    ///
    /// # Errors
    /// That there is not.
    pub(crate) fn check_total_space(&self, settings: &SessionSettings) -> Result<()> {
        let (Some(bytes), SessionDestination::Directory(tree)) = (settings.bytes, &self.destination) else {
            return Ok(());
        };
        // What is there already need not come, and is not known yet.
        let is_all_new = !settings.update && !settings.dry_run && !tree.root.has_parts;
        if is_all_new { self.check_space(bytes) } else { Ok(()) }
    }

    /// Looks again how much room there is, before the next file is decided on.
    pub(crate) fn refresh_space(&self) {
        self.free_bytes.set(None);
    }

    /// That there is room for this many bytes in addition to those promised before; remembered until it looks again.
    fn check_space(&self, bytes: u64) -> Result<()> {
        let SessionDestination::Directory(tree) = &self.destination else { return Ok(()) };
        if self.free_bytes.get().is_none() {
            let promised = self.reserved_bytes.saturating_sub(self.written_bytes.load(Ordering::Relaxed));
            self.free_bytes.set(Some(tree.free_bytes()?.map(|free_bytes| free_bytes.saturating_sub(promised))));
        }
        match self.free_bytes.get().flatten() {
            Some(free_bytes) if bytes > free_bytes => Err(Error::NoSpace { bytes, free_bytes }),
            _ => Ok(()),
        }
    }

    /// Decides on an entry; for a file of which a part is there, with the part, if one more may be held open.
    ///
    /// # Errors
    /// Why it is refused; an entry that no honest sender offers.
    pub(crate) fn decide(
        &mut self,
        entry: &FileEntry,
        settings: &SessionSettings,
        may_resume: bool,
    ) -> Result<Decision> {
        let may_be_left =
            settings.ignore_existing && entry.kind != EntryKind::Directory && !is_reserved_name(&entry.name);
        if may_be_left && self.exists(entry)? {
            return Ok((EntryDecision::Unchanged, None));
        }
        let is_file = matches!(entry.kind, EntryKind::File { .. } | EntryKind::Stream);
        let overwrite = self.placed_files.is_some();
        let decision = match (&mut self.destination, &entry.kind) {
            (SessionDestination::Nothing, _) if is_file => EntryDecision::Wanted,
            (SessionDestination::Nothing, _) => EntryDecision::Made,
            (SessionDestination::Output(_, has_file @ false), _) if is_file => {
                *has_file = true;
                EntryDecision::Wanted
            }
            (SessionDestination::Output(..), _) => {
                return Err(Error::Refused("only one file goes to its standard output".into()));
            }
            (SessionDestination::Directory(tree), EntryKind::Directory) => {
                tree.add(entry, (settings.dry_run, overwrite))?;
                EntryDecision::Made
            }
            (SessionDestination::Directory(tree), _) if is_reserved_name(&entry.name) => {
                return Err(Error::ReservedName(tree.path(entry)));
            }
            (SessionDestination::Directory(tree), EntryKind::Link { target }) => {
                if !settings.dry_run {
                    links::make_symbolic(tree, entry, target, overwrite)?;
                }
                EntryDecision::Made
            }
            (SessionDestination::Directory(tree), EntryKind::HardLink { first }) => {
                let leave = (settings.dry_run, self.placed_files.as_ref());
                self.linked_files.add_name(tree, (entry, *first), leave)?
            }
            (SessionDestination::Directory(_), _) => return self.decide_file(entry, settings, may_resume),
        };
        Ok((decision, None))
    }

    /// Whether anything has the name of an entry.
    fn exists(&mut self, entry: &FileEntry) -> Result<bool> {
        let Some(tree) = self.tree().filter(|tree| !tree.is_new(entry.parent)) else { return Ok(false) };
        let directory = match tree.open_directory(entry.parent) {
            // Why it cannot be opened is found where it must be; in a dry run it need not be there.
            Err(Error::File(_)) => return Ok(false),
            directory => directory?,
        };
        Ok(rustix::fs::statat(&*directory.directory, entry.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    fn decide_file(&mut self, entry: &FileEntry, settings: &SessionSettings, may_resume: bool) -> Result<Decision> {
        let SessionDestination::Directory(tree) = &mut self.destination else {
            return Ok((EntryDecision::Wanted, None));
        };
        let directory = match tree.open_directory(entry.parent) {
            // A directory that is not there yet, and would have been made.
            Err(Error::File(_)) if settings.dry_run => return Ok((EntryDecision::Wanted, None)),
            directory => directory?,
        };
        // Where nothing is, nobody asks for the path.
        let is_new = tree.is_new(entry.parent);
        let existing =
            if is_new { None } else { stat_entry(&directory, entry, &tree.path(entry), FileType::RegularFile)? };
        if let Some(existing) = existing {
            let (path, root) = (tree.path(entry), tree.open_directory(0)?);
            if self.placed_files.as_ref().is_some_and(|placed| placed.contains((existing.st_dev, existing.st_ino))) {
                return Err(Error::NameCollision(path));
            }
            let stored_time = |modified| self.timestamp_probe.stored_time((&root, &directory), modified);
            if settings.update && is_unchanged(entry, &existing, stored_time) {
                return Ok((EntryDecision::Unchanged, None));
            }
            if self.placed_files.is_none() {
                return Err(FileError::AlreadyExists { path }.into());
            }
        }
        let EntryKind::File { bytes, stored } = entry.kind else { return Ok((EntryDecision::Wanted, None)) };
        let has_part = bytes > BLOCK_BYTES
            && rustix::fs::statat(&*directory.directory, part_name(entry, bytes), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if settings.dry_run {
            return Ok((if has_part { EntryDecision::Resumed } else { EntryDecision::Wanted }, None));
        }
        if has_part && may_resume {
            let part = IncomingFile::create(&directory, tree.path(entry), entry, self.placed_files.as_ref())?;
            tree.mark_new_name(entry.parent);
            // A receiver that was killed before it wrote anything left an empty one, which is not reported.
            let is_resumed = part.resumed_part().is_some();
            return Ok((if is_resumed { EntryDecision::Resumed } else { EntryDecision::Wanted }, Some(part)));
        }
        // Who may replace it may learn digests of what it was.
        let is_changed = settings.update && existing.is_some_and(|old| old.st_size > 0) && bytes > BLOCK_BYTES;
        let decision = if is_changed { EntryDecision::Changed } else { EntryDecision::Wanted };
        self.check_space(stored)?;
        self.reserved_bytes = self.reserved_bytes.saturating_add(stored);
        let free = self.free_bytes.get().map(|free| free.map(|bytes| bytes.saturating_sub(stored)));
        self.free_bytes.set(free);
        Ok((decision, None))
    }

    /// Makes the file of an entry that is there in an older state, and opens that; none where it cannot be read, or has gone.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn create_copy(&mut self, entry: &FileEntry, bytes: u64) -> Result<(IncomingFile, Option<File>)> {
        let mut incoming_file = self.create_incoming(entry)?;
        incoming_file.begin_copy(bytes)?;
        let directory = self.tree().map(|tree| tree.open_directory(entry.parent)).transpose()?;
        let open = |directory: Arc<OpenDirectory>| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(&*directory.directory, entry.name.as_os_str(), flags, Mode::empty()).ok().map(File::from)
        };
        let is_regular = |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file());
        Ok((incoming_file, directory.and_then(open).filter(is_regular)))
    }

    /// Makes the file of an entry that is wanted.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn create_incoming(&mut self, entry: &FileEntry) -> Result<IncomingFile> {
        let path = self.path(entry);
        match &mut self.destination {
            SessionDestination::Directory(tree) => {
                let directory = tree.open_directory(entry.parent)?;
                let mut incoming_file = IncomingFile::create(&directory, path, entry, self.placed_files.as_ref())?;
                tree.mark_new_name(entry.parent);
                incoming_file.reservation = SpaceReservation::new(entry, &self.written_bytes);
                Ok(incoming_file)
            }
            SessionDestination::Output(output, _) => {
                let output = output.try_clone().map_err(|error| FileError::call("write", &path, error))?;
                IncomingFile::new(Sink::Output(output), path, entry)
            }
            SessionDestination::Nothing => IncomingFile::new(Sink::Nothing, path, entry),
        }
    }

    /// Makes a small file of an entry that is wanted.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(crate) fn write_small(&mut self, entry: &FileEntry, content: &[u8], sync: bool) -> Result<()> {
        match &mut self.destination {
            // What may be replaced is looked at closely first.
            SessionDestination::Directory(tree) if self.placed_files.is_none() => {
                let staging = tree.staging(entry.parent)?;
                tree.mark_new_name(entry.parent);
                staging.publish(&StagedFile { entry, content, path: &|| tree.path(entry), sync })
            }
            _ => {
                let mut incoming = self.create_incoming(entry)?;
                incoming.write(content, 0)?;
                incoming.set_metadata(entry)?;
                if sync {
                    incoming.flush()?;
                }
                incoming.commit(entry)
            }
        }
    }

    /// A wanted file has come, or failed: what it takes, it has taken.
    pub(crate) fn release(&mut self, entry: &FileEntry) {
        if let EntryKind::File { stored, .. } = entry.kind {
            self.reserved_bytes = self.reserved_bytes.saturating_sub(stored);
        }
    }

    /// What lies under what arrives.
    pub(crate) fn storage(&self) -> StorageKind {
        match &self.destination {
            SessionDestination::Directory(tree) => StorageKind::of_path(&descriptor_path(&tree.root.directory)),
            SessionDestination::Output(..) => StorageKind::Pipe,
            SessionDestination::Nothing => StorageKind::Nothing,
        }
    }

    /// What writing costs here, in picoseconds a byte, receiving included where that was by a method of its own, for what is verified or
    /// not; and what a small file costs, in nanoseconds, if there were any.
    ///
    /// # Errors
    /// Those of writing; files of which it is not known, since others are replaced.
    pub(crate) fn write_costs(
        &self,
        small_files: u64,
        receive_method: Option<(ReceiveSetup, bool)>,
    ) -> std::io::Result<(u64, u64)> {
        let SessionDestination::Directory(tree) = &self.destination else { return Ok((0, 0)) };
        let probe_file = tree.root.files.create(0o600)?;
        let file_cost = match receive_method {
            None => stage_costs::writing_cost(probe_file.as_file())?,
            Some((setup, verify)) => stage_costs::receive_method_cost(probe_file.as_file(), setup, verify)?,
        };
        let small_file_cost = match small_files {
            0 => 0,
            _ if self.placed_files.is_some() => return Err(ErrorKind::Unsupported.into()),
            _ => Staging::for_directory(&tree.root).measure_cost()?,
        };
        Ok((file_cost, small_file_cost))
    }

    /// Where an entry goes, in words.
    pub(crate) fn path(&self, entry: &FileEntry) -> PathBuf {
        match &self.destination {
            SessionDestination::Directory(tree) => tree.path(entry),
            _ => PathBuf::from(entry.name.as_os_str()),
        }
    }

    /// Finishes the directories.
    ///
    /// # Errors
    /// Those of finishing them.
    pub(crate) fn finish(&mut self, settings: &SessionSettings) -> Result<()> {
        match &mut self.destination {
            SessionDestination::Directory(tree) if !settings.dry_run => tree.finish(settings.sync),
            _ => Ok(()),
        }
    }
}

/// What is under a name, if anything, which must be of this type. A link is not followed.
pub(crate) fn stat_entry(
    parent: &OpenDirectory,
    entry: &FileEntry,
    path: &Path,
    required: FileType,
) -> Result<Option<Stat>> {
    let stat = match rustix::fs::statat(&*parent.directory, entry.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(FileError::call("find", path, error.into()).into()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        kind if kind == required => Ok(Some(stat)),
        kind => Err(FileError::NotRegular { path: path.to_owned(), kind: kind_name(kind) }.into()),
    }
}

/// Whether a file is there already, by its size and its time, or what its file system keeps of that.
fn is_unchanged(entry: &FileEntry, existing: &Stat, stored_time: impl FnOnce(Mtime) -> std::io::Result<Mtime>) -> bool {
    let EntryKind::File { bytes, .. } = entry.kind else { return false };
    let modified = Mtime::of_stat(existing);
    u64::try_from(existing.st_size) == Ok(bytes)
        && (modified == entry.modified || stored_time(entry.modified).is_ok_and(|stored| stored == modified))
}

/// What something is that is no regular file.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "no regular file",
    }
}

/// Files on different file systems that are kept at one time.
const MAX_FILE_SYSTEMS: usize = 4;

/// What a file system keeps of a time of modification: known by what it gives back of that very time. One keeps whole seconds, another two
/// of them, hundredths, or no time before 1980. Which one, the server of a network file system knows, and not this machine. So a file of
/// its own is given the time, and asked for it: one for each file system, which goes when this is dropped.
#[derive(Debug, Default)]
struct TimestampProbe(Vec<ProbeFile>);

#[derive(Debug)]
struct ProbeFile {
    /// The number of the file system's device.
    device: u64,
    file: NamedTempFile,
    /// By what it is found, and removed.
    _directory: Arc<OpenDirectory>,
}

impl TimestampProbe {
    /// What the file system of a directory keeps of a time. The file is made in the directory that is served, if that is on it. A
    /// directory of the user's in which nothing changes keeps its time.
    ///
    /// # Errors
    /// Those of making a file there, and of giving it a time.
    fn stored_time(
        &mut self,
        (root, directory): (&Arc<OpenDirectory>, &Arc<OpenDirectory>),
        modified: Mtime,
    ) -> std::io::Result<Mtime> {
        let device = directory.directory.metadata()?.dev();
        let directory = if root.directory.metadata()?.dev() == device { root } else { directory };
        let index = match self.0.iter().position(|probe| probe.device == device) {
            Some(index) => index,
            None => {
                self.0.truncate(MAX_FILE_SYSTEMS - 1);
                self.0.insert(
                    0,
                    ProbeFile { device, file: directory.files.create(0o600)?, _directory: Arc::clone(directory) },
                );
                0
            }
        };
        let file = self.0[index].file.as_file();
        rustix::fs::futimens(file, &utimens(modified))?;
        // As the server has it, where there is one.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let stored = rustix::fs::statx(file, "", flags, StatxFlags::MTIME)?.stx_mtime;
        Ok(Mtime { seconds: stored.tv_sec, nanoseconds: stored.tv_nsec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory_tree::DirectoryTree;

    #[test]
    fn local_file_system_keeps_exact_time() {
        let directory = tempfile::tempdir().unwrap();
        let (mut tree, mut probe) =
            (DirectoryTree::new(OpenDirectory::open_root(directory.path()).unwrap()), TimestampProbe::default());
        for seconds in [1_000_000_000, 5, 1_600_000_001] {
            let modified = Mtime { seconds, nanoseconds: 500_000_000 };
            let root = tree.open_directory(0).unwrap();
            let Mtime { seconds: stored, .. } = probe.stored_time((&root, &root), modified).unwrap();
            assert_eq!(stored, seconds);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        // It finds its file, no matter what is released first.
        drop(tree);
        drop(probe);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
