//! A file that is arriving: under another name until it is whole, or to where nothing is kept.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kelvin_file::Error as FileError;
use kelvin_file::atomic_file::{AtomicFile, PinnedPath};
use kelvin_sys::lock;
use rustix::fs::FallocateFlags;

use crate::blocks::{self, BLOCK_BYTES, BlockLayout, BlockMap};
use crate::directory_tree::part_name;
use crate::message::{Blake3Digest, EntryKind, FileEntry, FilePiece};
use crate::metadata::set_metadata;
use crate::open_directory::OpenDirectory;
use crate::secure_channel::PART_BYTES;
use crate::summary::ByteCounts;
use crate::wire::Hasher;
use crate::{Error, Result};

/// How much of a file may wait to be flushed where it shall be: so that no flush takes longer than the sender waits.
const MAX_UNFLUSHED: u64 = 64 * BLOCK_BYTES;
/// Bytes of a block in stat(2).
pub(crate) const STAT_BLOCK: u64 = 512;
/// Zeros are written where no hole can be made.
const ZERO_BUFFER_BYTES: usize = 64 << 10;

/// Where the bytes of a file go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A file, which has its name in the end.
    File(AtomicFile),
    /// Standard output, in order.
    Output(File),
    /// Nowhere.
    Nothing,
}

/// The files of a session that have their names, by device and inode: where others are replaced, none of these may be.
#[derive(Clone, Debug, Default)]
pub struct PlacedFiles(Arc<Mutex<HashSet<(u64, u64)>>>);

impl PlacedFiles {
    /// Whether a file is one of them.
    pub fn contains(&self, identity: (u64, u64)) -> bool {
        lock(&self.0).contains(&identity)
    }

    fn add(&self, identity: (u64, u64)) {
        lock(&self.0).insert(identity);
    }
}

/// A file that is arriving. Dropped before it is kept, it is removed.
#[derive(Debug)]
pub struct IncomingFile {
    sink: Sink,
    /// Where it will be.
    pub path: PathBuf,
    /// Those that it must not replace, where it may replace any.
    placed_files: Option<PlacedFiles>,
    arrivals: Arc<Mutex<ArrivalState>>,
    /// Whether a part is kept if the connection ends, and whether it had one at the beginning.
    is_part: bool,
    is_resumed: bool,
    unflushed: u64,
    pub(crate) reservation: SpaceReservation,
    /// Its bytes so far.
    pub amount: ByteCounts,
}

/// What has arrived of a file, over all streams.
#[derive(Debug)]
struct ArrivalState {
    blocks: BlockMap,
    /// Bytes that came over other streams than the first, and are not counted yet.
    uncounted: u64,
    /// Why a block of another stream was not written.
    failure: Option<Error>,
}

/// A file that is arriving, for a stream that has joined its session.
#[derive(Clone, Debug)]
pub(crate) struct SharedIncomingFile {
    /// None where nothing is kept.
    file: Option<Arc<File>>,
    path: PathBuf,
    arrivals: Arc<Mutex<ArrivalState>>,
}

impl SharedIncomingFile {
    /// A whole block is to arrive.
    ///
    /// # Errors
    /// That it must not.
    pub(crate) fn claim(&self, piece: &FilePiece) -> Result<()> {
        lock(&self.arrivals).blocks.claim(piece)
    }

    /// Writes bytes of a claimed block.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        Ok(file.write_all_at(bytes, offset).map_err(|error| FileError::call("write", &self.path, error))?)
    }

    /// A claimed block is there; the file is let go before another thread may find it whole.
    pub(crate) fn complete(self, piece: &FilePiece) {
        drop(self.file);
        let mut arrivals = lock(&self.arrivals);
        arrivals.blocks.complete_claim(piece);
        arrivals.uncounted += u64::from(piece.bytes);
    }

    /// A claimed block will not be there.
    pub(crate) fn fail(self, why: Error) {
        lock(&self.arrivals).failure.get_or_insert(why);
    }
}

/// The room that a file has taken of what it was promised, summed over all files of a session while they arrive. It is no
/// longer among what is free.
#[derive(Debug, Default)]
pub struct SpaceReservation {
    total: Arc<AtomicU64>,
    bytes: u64,
    promised: u64,
}

impl SpaceReservation {
    /// None yet.
    pub fn new(entry: &FileEntry, total: &Arc<AtomicU64>) -> Self {
        Self { total: Arc::clone(total), bytes: 0, promised: entry_size(entry).1 }
    }

    fn add(&mut self, bytes: u64) {
        let increment = bytes.min(self.promised - self.bytes);
        self.bytes += increment;
        self.total.fetch_add(increment, Ordering::Relaxed);
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl IncomingFile {
    /// Makes a file in a directory, where there is room. Where it may replace others, it replaces none of those that were placed.
    ///
    /// # Errors
    /// A file there that may not be replaced, or anything else there; no room; a part that somebody else is writing.
    pub fn create(
        directory: &OpenDirectory,
        path: PathBuf,
        entry: &FileEntry,
        placed_files: Option<&PlacedFiles>,
    ) -> Result<Self> {
        let pinned_path = Arc::new(PinnedPath::in_directory(&directory.directory, path.clone()));
        let (bytes, stored) = entry_size(entry);
        let is_part = bytes.is_some_and(|bytes| bytes > BLOCK_BYTES);
        let (file, part) = if is_part {
            let name = part_name(entry, bytes.unwrap_or_default());
            let file = AtomicFile::resume(&pinned_path, OsStr::new(&name), placed_files.is_some())?;
            let part = file.file().metadata().ok();
            (file, part)
        } else {
            (AtomicFile::create_among(&directory.files, &pinned_path, placed_files.is_some())?, None)
        };
        // Of a part that was mapped, more is missing than is behind its end.
        let present_bytes = part.as_ref().map_or(0, |part| part.len().min(part.blocks() * STAT_BLOCK));
        file.check_size(bytes.unwrap_or_default())?;
        file.check_free_space(stored.saturating_sub(present_bytes), true)?;
        let (placed_files, is_resumed) = (placed_files.cloned(), part.is_some_and(|part| part.len() > 0));
        Ok(Self { placed_files, is_part, is_resumed, ..Self::new(Sink::File(file), path, entry)? })
    }

    /// Has a file go there.
    ///
    /// # Errors
    /// A file of too many blocks.
    pub(crate) fn new(sink: Sink, path: PathBuf, entry: &FileEntry) -> Result<Self> {
        let arrivals = ArrivalState { blocks: BlockMap::new(entry_size(entry).0)?, uncounted: 0, failure: None };
        Ok(Self {
            sink,
            path,
            placed_files: None,
            arrivals: Arc::new(Mutex::new(arrivals)),
            is_part: false,
            is_resumed: false,
            unflushed: 0,
            reservation: SpaceReservation::default(),
            amount: ByteCounts::default(),
        })
    }

    /// The part that arrived earlier, if there is one.
    pub fn resumed_part(&self) -> Option<&File> {
        match &self.sink {
            Sink::File(file) if self.is_resumed => Some(file.file()),
            _ => None,
        }
    }

    /// It begins as a copy of an older state, block by block.
    ///
    /// # Errors
    /// Those of emptying what a killed receiver left; a file of too many blocks.
    pub(crate) fn begin_copy(&mut self, bytes: u64) -> Result<()> {
        self.set_length(0)?;
        self.is_resumed = true;
        lock(&self.arrivals).blocks = BlockMap::of_changed_file(bytes)?;
        Ok(())
    }

    /// Writes a block of an older state. Zeros stay a hole.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn copy_block(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let Sink::File(file) = &self.sink else { return Ok(()) };
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        file.file().write_all_at(bytes, offset).map_err(|error| FileError::call("write", &self.path, error))?;
        self.unflushed += bytes.len() as u64;
        self.reservation.add(bytes.len() as u64);
        Ok(())
    }

    /// These blocks of the part are right.
    pub fn mark_blocks_present(&mut self, bits: &[u8]) {
        self.amount.resumed += lock(&self.arrivals).blocks.mark_present(bits);
    }

    /// The file for streams that have joined.
    ///
    /// # Errors
    /// A file that must come in order.
    pub(crate) fn shared(&self) -> Result<SharedIncomingFile> {
        let file = match &self.sink {
            Sink::File(file) => Some(file.shared_file()),
            Sink::Nothing => None,
            Sink::Output(_) => return Err(Error::ProtocolViolation("it splits a file that must come in order")),
        };
        Ok(SharedIncomingFile { file, path: self.path.clone(), arrivals: Arc::clone(&self.arrivals) })
    }

    /// Why a block of another stream was not written, if one was not.
    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.arrivals).failure.take()
    }

    /// That a piece is in its turn.
    ///
    /// # Errors
    /// That it is not.
    pub fn record_piece(&mut self, piece: &FilePiece) -> Result<()> {
        let mut arrivals = lock(&self.arrivals);
        arrivals.blocks.record_piece(piece)?;
        let uncounted = std::mem::take(&mut arrivals.uncounted);
        drop(arrivals);
        self.add_arrived(uncounted);
        Ok(())
    }

    /// Writes bytes of it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = match &mut self.sink {
            Sink::File(file) => file.file().write_all_at(bytes, offset),
            Sink::Output(output) => output.write_all(bytes),
            Sink::Nothing => Ok(()),
        };
        self.add_arrived(bytes.len() as u64);
        Ok(written.map_err(|error| FileError::call("write", &self.path, error))?)
    }

    /// The file, to receive a piece into; if it is to be mapped, as long as it will be, or as the piece needs it.
    ///
    /// # Errors
    /// Those of ftruncate.
    pub(crate) fn file_for_piece(&self, piece: &FilePiece, is_mapped: bool) -> Result<Option<&File>> {
        let Sink::File(file) = &self.sink else { return Ok(None) };
        let file = file.file();
        let end = piece.offset + u64::from(piece.bytes);
        let length = lock(&self.arrivals).blocks.bytes.unwrap_or(end);
        let lengthen = || if file.metadata()?.len() < length { file.set_len(length) } else { Ok(()) };
        let lengthened = if is_mapped { lengthen() } else { Ok(()) };
        lengthened.map_err(|error| FileError::call("lengthen", &self.path, error))?;
        Ok(Some(file))
    }

    /// The digest of a piece, as it can be read from the file.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn digest_from_disk(&self, piece: &FilePiece, buffer: &mut Vec<u8>) -> Result<Blake3Digest> {
        let Sink::File(file) = &self.sink else { return Err(Error::ProtocolViolation("a file that is none is read")) };
        let digest = range_digest(file.file(), piece.range(), buffer);
        Ok(digest.map_err(|error| FileError::call("read", &self.path, error))?)
    }

    /// Whether nothing of it is kept.
    pub(crate) fn is_discarded(&self) -> bool {
        matches!(self.sink, Sink::Nothing)
    }

    /// This many more bytes have arrived.
    pub(crate) fn add_arrived(&mut self, bytes: u64) {
        self.unflushed += bytes;
        self.reservation.add(bytes);
        self.amount.moved += bytes;
    }

    /// Makes a hole, or what reads like one.
    ///
    /// # Errors
    /// Those of writing.
    pub fn hole(&mut self, piece: &FilePiece) -> Result<()> {
        let (offset, length) = (piece.offset, u64::from(piece.bytes));
        let moved = self.amount.moved;
        self.amount.holes += length;
        let is_hole = match &self.sink {
            Sink::Nothing => true,
            Sink::File(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                !self.is_resumed || rustix::fs::fallocate(file.file(), flags, offset, length).is_ok()
            }
            Sink::Output(_) => false,
        };
        if is_hole {
            return Ok(());
        }
        for (offset, part) in blocks::parts(piece.range(), ZERO_BUFFER_BYTES as u64) {
            self.write(&[0; ZERO_BUFFER_BYTES][..part], offset)?;
        }
        self.amount.moved = moved;
        Ok(())
    }

    /// Flushes what was written since the last time, if that is much.
    ///
    /// # Errors
    /// Those of flushing.
    pub fn flush_if_due(&mut self) -> Result<()> {
        if self.unflushed < MAX_UNFLUSHED {
            return Ok(());
        }
        self.unflushed = 0;
        let Sink::File(file) = &self.sink else { return Ok(()) };
        Ok(file.file().sync_all().map_err(|error| FileError::call("flush", &self.path, error))?)
    }

    /// Flushes all of it.
    ///
    /// # Errors
    /// Those of flushing.
    pub fn flush(&mut self) -> Result<()> {
        if let Sink::File(file) = &mut self.sink { Ok(file.flush()?) } else { Ok(()) }
    }

    /// Whether another file goes when it gets its name.
    pub fn replaces_existing(&self) -> bool {
        matches!(&self.sink, Sink::File(file) if file.will_replace())
    }

    /// Whether all of it is there.
    pub fn is_complete(&self) -> bool {
        lock(&self.arrivals).blocks.is_complete()
    }

    /// Gives it its size: holes at its end have none.
    ///
    /// # Errors
    /// Those of ftruncate.
    pub fn set_length(&self, bytes: u64) -> Result<()> {
        let Sink::File(file) = &self.sink else { return Ok(()) };
        let file = file.file();
        let truncate = || if file.metadata()?.len() == bytes { Ok(()) } else { file.set_len(bytes) };
        Ok(truncate().map_err(|error| FileError::call("truncate to its size", &self.path, error))?)
    }

    /// Gives it its owner, attributes and time.
    ///
    /// # Errors
    /// Those of setting them.
    pub fn set_metadata(&self, entry: &FileEntry) -> Result<()> {
        let Sink::File(file) = &self.sink else { return Ok(()) };
        set_metadata(file.file(), &|| self.path.clone(), entry)
    }

    /// Gives it its permissions, closes it, and gives it its name.
    ///
    /// # Errors
    /// Those of closing and renaming; something that has come there meanwhile, or another file of this session. Then it is removed.
    pub fn commit(self, entry: &FileEntry) -> Result<()> {
        match self.sink {
            Sink::File(mut file) => {
                file.set_mode(entry.mode);
                let Some(placed_files) = self.placed_files else { return Ok(file.commit()?) };
                let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
                let metadata = file.file().metadata().map_err(|error| FileError::call("look at", &self.path, error))?;
                if file.replaced_file()?.is_some_and(|replaced| placed_files.contains(identity(&replaced))) {
                    return Err(Error::NameCollision(self.path));
                }
                file.commit()?;
                placed_files.add(identity(&metadata));
                Ok(())
            }
            Sink::Output(output) => {
                Ok(kelvin_sys::fs::close(output).map_err(|error| FileError::call("close", &self.path, error))?)
            }
            Sink::Nothing => Ok(()),
        }
    }

    /// It has failed, and nothing of it is left. Its room is free at once, also where a stream that has joined is still writing to it, or
    /// a child that was just forked has its descriptor.
    pub(crate) fn discard(self) {
        if let Sink::File(file) = &self.sink {
            // Where that fails, its room is free once it is closed.
            let _ = file.file().set_len(0);
        }
    }

    /// The connection has ended: a part of a large file is left, to be gone on with; anything else is removed. Returns whether
    /// it is left.
    pub fn keep_part(self) -> bool {
        let is_left = self.is_part && (self.is_resumed || lock(&self.arrivals).blocks.has_any());
        if let (Sink::File(file), true) = (self.sink, is_left) {
            file.keep_partial();
        }
        is_left
    }
}

/// The size of a file, if it is known, and the bytes that it takes.
fn entry_size(entry: &FileEntry) -> (Option<u64>, u64) {
    match entry.kind {
        EntryKind::File { bytes, stored } => (Some(bytes), stored.min(bytes)),
        _ => (None, 0),
    }
}

/// The digests of the blocks of a part.
pub fn block_digests(part: &File) -> impl Iterator<Item = std::io::Result<Blake3Digest>> + '_ {
    let layout = BlockLayout::of_file(part.metadata().map_or(0, |metadata| metadata.len()));
    let mut buffer = Vec::new();
    (0..layout.count()).map(move |block| range_digest(part, layout.range(block), &mut buffer))
}

/// The digest of a range of a file.
pub(crate) fn range_digest(file: &File, range: Range<u64>, buffer: &mut Vec<u8>) -> std::io::Result<Blake3Digest> {
    if buffer.len() < PART_BYTES {
        *buffer = vec![0; PART_BYTES];
    }
    let mut hasher = Hasher::new();
    for (start, part) in blocks::parts(range, PART_BYTES as u64) {
        file.read_exact_at(&mut buffer[..part], start)?;
        hasher.update(&buffer[..part]);
    }
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::message::Mtime;

    #[test]
    fn discarded_file_takes_no_space_while_open() {
        let directory = tempfile::tempdir().unwrap();
        let root = OpenDirectory::open_root(directory.path()).unwrap();
        let kind = EntryKind::File { bytes: 2 * BLOCK_BYTES, stored: 2 * BLOCK_BYTES };
        let (name, modified) = (b"a".to_vec().try_into().unwrap(), Mtime { seconds: 1, nanoseconds: 0 });
        let entry = FileEntry::new((0, name), kind, (0o644, modified));
        let mut incoming = IncomingFile::create(&root, directory.path().join("a"), &entry, None).unwrap();
        incoming.write(&[7; 1 << 20], 0).unwrap();
        let stream = incoming.shared().unwrap();
        let open_file = stream.file.clone().unwrap();
        assert_eq!(open_file.metadata().unwrap().len(), 1 << 20);
        incoming.discard();
        let metadata = open_file.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.blocks()), (0, 0));
    }
}
