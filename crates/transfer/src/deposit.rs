//! A file that is arriving: under another name until it is whole, or to where nothing is kept.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kelvin_file::Error as FileError;
use kelvin_file::unfinished::{Place, Unfinished};
use rustix::fs::{FallocateFlags, Gid, Uid, XattrFlags};

use crate::blocks::{self, BLOCK, Blocks};
use crate::channel::PART;
use crate::message::{Digest, Entry, EntryKind, Piece};
use crate::summary::Amount;
use crate::tree::{Held, part_name, times};
use crate::{Error, Result};

/// How much of a file may wait to be flushed where it shall be: so that no flush takes longer than the sender waits.
const FLUSHED: u64 = 64 * BLOCK;
/// Bytes of a block in stat(2).
const STAT_BLOCK: u64 = 512;
/// Zeros are written where no hole can be made.
const ZEROS: usize = 64 << 10;

/// Where the bytes of a file go.
#[derive(Debug)]
enum Sink {
    /// A file, which has its name in the end.
    File(Unfinished),
    /// Standard output, in order.
    Output(File),
    /// Nowhere.
    Nothing,
}

/// The files of a session that have their names, by device and inode: where others are replaced, none of these may be.
#[derive(Clone, Debug, Default)]
pub struct Placed(Arc<Mutex<HashSet<(u64, u64)>>>);

impl Placed {
    /// Whether a file is one of them.
    pub fn has(&self, identity: (u64, u64)) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity)
    }

    fn add(&self, identity: (u64, u64)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(identity);
    }
}

/// A file that is arriving. Dropped before it is kept, it is removed.
#[derive(Debug)]
pub struct Deposit {
    sink: Sink,
    path: PathBuf,
    /// Those that it must not replace, where it may replace any.
    placed: Option<Placed>,
    arrivals: Arc<Mutex<Arrivals>>,
    /// Whether a part is kept if the connection ends, and whether it had one at the beginning.
    is_part: bool,
    is_resumed: bool,
    unflushed: u64,
    taken: Taken,
    /// Its bytes so far.
    pub amount: Amount,
}

/// What has arrived of a file, over all streams.
#[derive(Debug)]
struct Arrivals {
    blocks: Blocks,
    /// Bytes that came over other streams than the first, and are not counted yet.
    uncounted: u64,
    /// Why a block of another stream was not written.
    failed: Option<Error>,
}

impl Arrivals {
    fn of(bytes: Option<u64>) -> Result<Arc<Mutex<Self>>> {
        let blocks = Blocks::new(bytes)?;
        Ok(Arc::new(Mutex::new(Self { blocks, uncounted: 0, failed: None })))
    }
}

fn held(arrivals: &Mutex<Arrivals>) -> MutexGuard<'_, Arrivals> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is arriving, for a stream that has joined its session.
#[derive(Clone, Debug)]
pub(crate) struct SplitFile {
    /// None where nothing is kept.
    file: Option<Arc<File>>,
    path: PathBuf,
    arrivals: Arc<Mutex<Arrivals>>,
}

impl SplitFile {
    /// A whole block is to arrive.
    ///
    /// # Errors
    /// That it must not.
    pub(crate) fn claim(&self, piece: &Piece) -> Result<()> {
        held(&self.arrivals).blocks.claim(piece)
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
    pub(crate) fn arrived(self, piece: &Piece) {
        drop(self.file);
        let mut arrivals = held(&self.arrivals);
        arrivals.blocks.arrived(piece);
        arrivals.uncounted += u64::from(piece.bytes);
    }

    /// A claimed block will not be there.
    pub(crate) fn failed(self, why: Error) {
        held(&self.arrivals).failed.get_or_insert(why);
    }
}

/// The room that a file has taken of what it was promised, summed over all files of a session while they arrive: it is no
/// longer among what is free.
#[derive(Debug, Default)]
pub struct Taken {
    all: Arc<AtomicU64>,
    bytes: u64,
    promised: u64,
}

impl Taken {
    /// None yet.
    pub fn of(entry: &Entry, all: &Arc<AtomicU64>) -> Self {
        Self { all: Arc::clone(all), bytes: 0, promised: size(entry).1 }
    }

    fn add(&mut self, bytes: u64) {
        let more = bytes.min(self.promised - self.bytes);
        self.bytes += more;
        self.all.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Deposit {
    /// Makes a file in a directory, where there is room.
    ///
    /// # Errors
    /// A file there that may not be replaced, or anything else there; no room; a part that somebody else is writing.
    pub fn make(held: &Held, path: PathBuf, entry: &Entry, overwrite: bool) -> Result<Self> {
        let place = Arc::new(Place::inside(&held.directory, path.clone()));
        let (bytes, stored) = size(entry);
        let is_part = bytes.is_some_and(|bytes| bytes > BLOCK);
        let file = if is_part {
            let left = part_name(entry, bytes.unwrap_or_default());
            Unfinished::resume(&place, OsStr::new(&left), overwrite)?
        } else {
            Unfinished::make_among(&held.files, &place, overwrite)?
        };
        // Of a part that was mapped, more is missing than is behind its end.
        let there = file.file().metadata().map_or((0, 0), |found| (found.len(), found.blocks() * STAT_BLOCK));
        let (length, there) = if is_part { there } else { (0, 0) };
        file.check_size(bytes.unwrap_or_default())?;
        file.check_room(stored.saturating_sub(there.min(length)), true)?;
        let arrivals = Arrivals::of(bytes)?;
        Ok(Self {
            sink: Sink::File(file),
            path,
            placed: None,
            arrivals,
            is_part,
            is_resumed: length > 0,
            unflushed: 0,
            taken: Taken::default(),
            amount: Amount::default(),
        })
    }

    /// Has a file go to standard output.
    ///
    /// # Errors
    /// Those of duplicating a descriptor; a file of too many blocks.
    pub fn to_output(output: &File, path: PathBuf, entry: &Entry) -> Result<Self> {
        let output = output.try_clone().map_err(|error| FileError::call("write", &path, error))?;
        Self::without_name(Sink::Output(output), path, entry)
    }

    /// Has a file go nowhere.
    ///
    /// # Errors
    /// A file of too many blocks.
    pub fn to_nothing(path: PathBuf, entry: &Entry) -> Result<Self> {
        Self::without_name(Sink::Nothing, path, entry)
    }

    fn without_name(sink: Sink, path: PathBuf, entry: &Entry) -> Result<Self> {
        let arrivals = Arrivals::of(size(entry).0)?;
        let (taken, amount) = (Taken::default(), Amount::default());
        Ok(Self { sink, path, placed: None, arrivals, is_part: false, is_resumed: false, unflushed: 0, taken, amount })
    }

    /// Has it replace none of these, and be one of them.
    pub fn among(self, placed: &Placed) -> Self {
        Self { placed: Some(placed.clone()), ..self }
    }

    /// Has the room that it takes be counted.
    pub fn taking(self, taken: Taken) -> Self {
        Self { taken, ..self }
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The part that arrived earlier, if there is one.
    pub fn resumed(&self) -> Option<&File> {
        match &self.sink {
            Sink::File(file) if self.is_resumed => Some(file.file()),
            _ => None,
        }
    }

    /// These blocks of the part are right.
    pub fn keep_blocks(&mut self, bits: &[u8]) {
        self.amount.resumed += held(&self.arrivals).blocks.keep(bits);
    }

    /// The file for streams that have joined.
    ///
    /// # Errors
    /// A file that must come in order.
    pub(crate) fn split(&self) -> Result<SplitFile> {
        let file = match &self.sink {
            Sink::File(file) => Some(file.shared()),
            Sink::Nothing => None,
            Sink::Output(_) => return Err(Error::Nonsense("it splits a file that must come in order")),
        };
        Ok(SplitFile { file, path: self.path.clone(), arrivals: Arc::clone(&self.arrivals) })
    }

    /// Why a block of another stream was not written, if one was not.
    pub(crate) fn failure(&self) -> Option<Error> {
        held(&self.arrivals).failed.take()
    }

    /// That a piece is in its turn.
    ///
    /// # Errors
    /// That it is not.
    pub fn take(&mut self, piece: &Piece) -> Result<()> {
        let uncounted = {
            let mut arrivals = held(&self.arrivals);
            arrivals.blocks.take(piece)?;
            std::mem::take(&mut arrivals.uncounted)
        };
        self.count(uncounted);
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
        self.count(bytes.len() as u64);
        Ok(written.map_err(|error| FileError::call("write", &self.path, error))?)
    }

    /// The file, to receive a piece into; if it is to be mapped, as long as it will be, or as the piece needs it.
    ///
    /// # Errors
    /// Those of ftruncate.
    pub(crate) fn file_for(&self, piece: &Piece, is_mapped: bool) -> Result<Option<&File>> {
        let Sink::File(file) = &self.sink else { return Ok(None) };
        let file = file.file();
        let end = piece.offset + u64::from(piece.bytes);
        let whole = held(&self.arrivals).blocks.bytes().unwrap_or(end);
        let lengthen = || if file.metadata()?.len() < whole { file.set_len(whole) } else { Ok(()) };
        let lengthened = if is_mapped { lengthen() } else { Ok(()) };
        lengthened.map_err(|error| FileError::call("lengthen", &self.path, error))?;
        Ok(Some(file))
    }

    /// The digest of a piece, as it can be read from the file.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn read_again(&self, piece: &Piece, buffer: &mut Vec<u8>) -> Result<Digest> {
        let failed = |error| FileError::call("read", &self.path, error);
        let Sink::File(file) = &self.sink else { return Err(Error::Nonsense("a file that is none is read")) };
        Ok(digest(file.file(), (piece.offset, piece.bytes.into()), buffer).map_err(failed)?)
    }

    /// Whether nothing of it is kept.
    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self.sink, Sink::Nothing)
    }

    /// So many more bytes have arrived.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.unflushed += bytes;
        self.taken.add(bytes);
        self.amount.moved += bytes;
    }

    /// Makes a hole, or what reads like one.
    ///
    /// # Errors
    /// Those of writing.
    pub fn hole(&mut self, piece: &Piece) -> Result<()> {
        let (offset, length) = (piece.offset, u64::from(piece.bytes));
        let moved = self.amount.moved;
        self.amount.holes += length;
        match &self.sink {
            Sink::Nothing => return Ok(()),
            Sink::File(_) if !self.is_resumed => return Ok(()),
            Sink::File(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if rustix::fs::fallocate(file.file(), flags, offset, length).is_ok() {
                    return Ok(());
                }
            }
            Sink::Output(_) => {}
        }
        let zeros = [0; ZEROS];
        let mut done = 0;
        while done < length {
            let part = (length - done).min(ZEROS as u64);
            self.write(&zeros[..part as usize], offset + done)?;
            done += part;
        }
        self.amount.moved = moved;
        Ok(())
    }

    /// Flushes what was written since the last time, if that is much.
    ///
    /// # Errors
    /// Those of flushing.
    pub fn flush_some(&mut self) -> Result<()> {
        if self.unflushed < FLUSHED {
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
    pub fn replaces(&self) -> bool {
        matches!(&self.sink, Sink::File(file) if file.replaces())
    }

    /// Whether all of it is there.
    pub fn is_whole(&self) -> bool {
        held(&self.arrivals).blocks.is_whole()
    }

    /// Gives it its size: holes at its end have none.
    ///
    /// # Errors
    /// Those of ftruncate.
    pub fn cut(&self, bytes: u64) -> Result<()> {
        let Sink::File(file) = &self.sink else { return Ok(()) };
        let cut = || match file.file().metadata()?.len() {
            length if length == bytes => Ok(()),
            _ => file.file().set_len(bytes),
        };
        Ok(cut().map_err(|error| FileError::call("cut to its size", &self.path, error))?)
    }

    /// Gives it its owner, attributes and time.
    ///
    /// # Errors
    /// Those of setting them.
    pub fn describe(&self, entry: &Entry) -> Result<()> {
        let Sink::File(file) = &self.sink else { return Ok(()) };
        describe(file.file(), &|| self.path.clone(), entry)
    }

    /// Gives it its permissions, closes it, and gives it its name.
    ///
    /// # Errors
    /// Those of closing and renaming; something that has come there meanwhile, or another file of this session. Then it is removed.
    pub fn keep(self, entry: &Entry) -> Result<()> {
        match self.sink {
            Sink::File(mut file) => {
                file.set_mode(entry.mode);
                let Some(placed) = self.placed else { return Ok(file.finish()?) };
                let identity = |of: &Metadata| (of.dev(), of.ino());
                let own = file.file().metadata().map_err(|error| FileError::call("look at", &self.path, error))?;
                if file.going()?.is_some_and(|going| placed.has(identity(&going))) {
                    return Err(Error::OneName { path: self.path });
                }
                file.finish()?;
                placed.add(identity(&own));
                Ok(())
            }
            Sink::Output(output) => {
                Ok(kelvin_sys::fs::close(output).map_err(|error| FileError::call("close", &self.path, error))?)
            }
            Sink::Nothing => Ok(()),
        }
    }

    /// The connection has ended: a part of a large file is left, to be gone on with; anything else is removed. Returns whether
    /// it is left.
    pub fn leave(self) -> bool {
        let is_left = self.is_part && (self.is_resumed || held(&self.arrivals).blocks.has_any());
        match self.sink {
            Sink::File(file) if is_left => file.leave(),
            _ => {}
        }
        is_left
    }
}

/// Gives a file its owner, attributes and time; an error says where it will be.
///
/// # Errors
/// Those of setting them.
pub(crate) fn describe(file: &File, path: &dyn Fn() -> PathBuf, entry: &Entry) -> Result<()> {
    let failed = |doing| move |error: rustix::io::Errno| FileError::call(doing, &path(), error.into());
    if let Some((user, group)) = entry.owner {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::fchown(file, user, group).map_err(failed("keep the owner of"))?;
    }
    for attribute in &entry.attributes {
        let set = rustix::fs::fsetxattr(file, attribute.full_name(), &attribute.value, XattrFlags::empty());
        set.map_err(failed("keep an extended attribute of"))?;
    }
    let modified = entry.modified.time().ok_or(rustix::io::Errno::INVAL);
    let set = modified.and_then(|_| rustix::fs::futimens(file, &times(entry.modified)));
    Ok(set.map_err(failed("keep the time of"))?)
}

/// The size of a file, if it is known, and the bytes that it takes.
fn size(entry: &Entry) -> (Option<u64>, u64) {
    match entry.kind {
        EntryKind::File { bytes, stored } => (Some(bytes), stored.min(bytes)),
        _ => (None, 0),
    }
}

/// The digests of the blocks of a part.
pub fn digests(part: &File) -> impl Iterator<Item = std::io::Result<Digest>> + '_ {
    let bytes = part.metadata().map_or(0, |found| found.len());
    let mut buffer = Vec::new();
    (0..blocks::count(bytes))
        .map(move |block| digest(part, (block * BLOCK, (bytes - block * BLOCK).min(BLOCK)), &mut buffer))
}

/// The digest of so many bytes of a file from an offset on.
pub(crate) fn digest(file: &File, (offset, bytes): (u64, u64), buffer: &mut Vec<u8>) -> std::io::Result<Digest> {
    if buffer.len() < PART {
        *buffer = vec![0; PART];
    }
    let mut hasher = kelvin_wire::Hasher::new();
    let mut done = 0;
    while done < bytes {
        let room = PART.min((bytes - done) as usize);
        match file.read_at(&mut buffer[..room], offset + done) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                done += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(*hasher.finalize().as_bytes())
}
