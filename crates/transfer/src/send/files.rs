//! The files that a receiver wants, sent one after the other: small ones together, large ones block by block.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelvin_file::{Error as FileError, may_overstate};
use kelvin_sys::mapping::{FileMapping, is_unmappable};
use rustix::fs::SeekFrom;
use rustix::io::retry_on_intr;

use super::{SendSession, UnsentFile, WantedFile};
use crate::blocks::{self, BlockLayout, is_bit_set};
use crate::compression::{COMPRESSED_PIECE_BYTES, PieceCompressor};
use crate::datapath::{PathMethod, SendMethod, SendPath};
use crate::message::{EntryKind, EntryNumber, FilePiece, SenderMessage, WholeFile};
use crate::method_chooser::{self, PieceMethod};
use crate::secure_channel::{PART_BYTES, SETUP_STEP, TransferStream};
use crate::session::{MAX_BATCH_BYTES, MAX_BATCH_FILES};
use crate::source::SourceEntry;
use crate::stage_times::{add_elapsed, hash_timed};
use crate::summary::ByteCounts;
use crate::wire::Hasher;
use crate::{Error, Result};

/// Zeros that are sent at once.
const ZERO_BUFFER_BYTES: usize = 4096;

impl<S: TransferStream> SendSession<'_, S> {
    /// Sends the next file, or as many small ones as go together.
    pub(super) fn send_next(&mut self, mut next: WantedFile) -> Result<()> {
        if next.is_changed && next.valid_blocks.is_empty() {
            let Some(compared) = self.query_blocks(next)? else { return Ok(()) };
            next = compared;
        }
        let number = next.number;
        let source = Arc::clone(&self.collection.sources[number]);
        self.open_file_connection(number)?;
        if source.entry.is_small() {
            self.send_small(number)?;
        } else {
            self.send_large(&next, &source)?;
        }
        self.close_file_connection(number)?;
        while self.options.acknowledge && self.unacked.contains_key(&number) {
            self.receive_message()?;
        }
        Ok(())
    }

    /// Sends the whole content of this file and those that follow it.
    fn send_small(&mut self, first: usize) -> Result<()> {
        Error::check_stop()?;
        let (mut files, mut content, mut filled) = (Vec::new(), self.take_buffer(), 0);
        let max_bytes = self.limiter.max_burst(MAX_BATCH_BYTES);
        let mut next = Some(first);
        while let Some(number) = next {
            let source = Arc::clone(&self.collection.sources[number]);
            let end = filled + source.bytes() as usize;
            match self.read_small(&source, &mut content[filled..=end]) {
                Ok(()) => {
                    self.unacked.insert(number, ByteCounts::from_sent(source.bytes()));
                    files.push(WholeFile { file: number as EntryNumber, bytes: source.bytes() as u32 });
                    filled = end;
                }
                Err(why) if why.is_per_file() => self.abandon(number, why)?,
                Err(why) => return Err(why),
            }
            let remaining_bytes = max_bytes.saturating_sub(filled as u64);
            let is_full = self.options.acknowledge || self.connect_for_file.is_some() || files.len() == MAX_BATCH_FILES;
            let fits_batch = |file: &WantedFile| {
                let source = &self.collection.sources[file.number];
                !is_full && source.entry.is_small() && source.bytes() <= remaining_bytes
            };
            let batched_file =
                if self.ready_files.front().is_some_and(fits_batch) { self.ready_files.pop_front() } else { None };
            next = batched_file.map(|file| file.number);
        }
        if !files.is_empty() {
            let verify = self.options.settings.verify;
            let hash = || verify.then(|| *crate::wire::hash(&content[..filled]).as_bytes());
            let digest = add_elapsed(&mut self.channels.first.times.verify, hash);
            let announce = |frame_bytes| match frame_bytes {
                Some(frame_bytes) => SenderMessage::CompressedBatch { files, digest, frame_bytes },
                None => SenderMessage::Batch { files, digest },
            };
            self.send_content(&content[..filled], announce)?;
        }
        self.buffer = content;
        Ok(())
    }

    /// Announces and sends content, as a frame where it is compressed.
    fn send_content(&mut self, content: &[u8], announce: impl FnOnce(Option<u32>) -> SenderMessage) -> Result<()> {
        match self.compressor.take() {
            None => {
                self.channels.current().queue(&announce(None))?;
                self.send_bytes(content)?;
                self.advance(content.len() as u64);
                Ok(())
            }
            Some(mut compressor) => {
                let sent = self.send_compressed(&mut compressor, content, announce);
                self.compressor = Some(compressor);
                sent
            }
        }
    }

    fn send_compressed(
        &mut self,
        compressor: &mut PieceCompressor,
        content: &[u8],
        announce: impl FnOnce(Option<u32>) -> SenderMessage,
    ) -> Result<()> {
        let frame = add_elapsed(&mut self.channels.first.times.compress, || compressor.compress(content));
        self.channels.current().queue(&announce(frame.map(|frame| frame.len() as u32)))?;
        let wait_before = self.connection_wait();
        let (bytes, mut advanced) = (frame.unwrap_or(content), 0);
        for (start, part) in blocks::parts(0..bytes.len() as u64, self.limiter.max_burst(PART_BYTES as u64)) {
            self.send_bytes(&bytes[start as usize..][..part])?;
            // Of a frame, each part stands for as large a part of what is in it.
            let settled = content.len() as u64 * (start + part as u64) / bytes.len() as u64;
            self.advance(settled - std::mem::replace(&mut advanced, settled));
        }
        // Of empty files nothing was sent with it.
        self.channels.current().flush()?;
        compressor.record_sent(Duration::from_nanos(self.connection_wait() - wait_before));
        Ok(())
    }

    /// Nanoseconds for which what was sent has waited, for the connection or by a limit.
    fn connection_wait(&mut self) -> u64 {
        self.channels.first.times.limit + self.channels.current().times.connection
    }

    /// Reads the content of a small file, as [`read_whole`] does.
    fn read_small(&mut self, source: &SourceEntry, content: &mut [u8]) -> Result<()> {
        let (opener, collection) = (&mut self.opener, &mut self.collection);
        self.channels.first.times.time_file(|| {
            let file = opener.open(source)?;
            collection.count_attributes(source, &file);
            read_whole(source, file, content)
        })
    }

    /// Reports that a file will not come.
    pub(super) fn abandon(&mut self, number: usize, why: Error) -> Result<()> {
        let source = Arc::clone(&self.collection.sources[number]);
        self.channels.first.queue(&SenderMessage::Abandoned { file: number as EntryNumber, why: why.wire_text() })?;
        self.unacked.remove(&number);
        self.advance(source.bytes());
        self.unsent.push(UnsentFile::new(&source, why));
        Ok(())
    }

    /// Sends the blocks of a file that the receiver does not have.
    fn send_large(&mut self, wanted_file: &WantedFile, source: &SourceEntry) -> Result<()> {
        let (number, valid_blocks) = (wanted_file.number, &wanted_file.valid_blocks[..]);
        let layout = wanted_file.layout(source.bytes());
        let settled_before = self.settled_bytes;
        if valid_blocks.is_empty() {
            self.unacked.insert(number, ByteCounts::default());
        } else if !self.unacked.contains_key(&number) {
            return Ok(());
        }
        let sent = source.open().and_then(|file| {
            let outgoing = OutgoingFile { number: number as EntryNumber, source, file: &file, valid_blocks, layout };
            if source.entry.kind == EntryKind::Stream {
                return self.send_stream(outgoing);
            }
            self.collection.count_attributes(source, &file);
            source.check_unchanged(&file)?;
            self.check_mapping(source, &file)?;
            self.send_blocks(outgoing)
        });
        match sent {
            Err(why) if why.is_per_file() => {
                self.settled_bytes = settled_before;
                self.abandon(number, why)
            }
            Err(why) => Err(why.during(source.entry.name.as_os_str())),
            Ok(()) => self.channels.current().flush(),
        }
    }

    /// That a file can be mapped, where it must be sent in this way.
    fn check_mapping(&self, source: &SourceEntry, file: &File) -> Result<()> {
        let is_mapped = self.options.method.is_some_and(|setup| setup.method == SendMethod::Mmap);
        if is_mapped && FileMapping::whole(file, 1).is_err_and(|error| is_unmappable(&error)) {
            return Err(FileError::MmapUnsupported { path: source.path.clone() }.into());
        }
        Ok(())
    }

    fn send_blocks(&mut self, outgoing: OutgoingFile<'_>) -> Result<()> {
        let OutgoingFile { number, source, file, valid_blocks, layout } = outgoing;
        let count = layout.count().max(1);
        let Some(first) = self.send_parallel(outgoing)? else { return Ok(()) };
        let mut missing_blocks = (first..count).filter(|block| !is_bit_set(valid_blocks, *block)).peekable();
        while let Some(block) = missing_blocks.next() {
            let range = layout.range(block);
            let mut pieces = data_and_holes(source, file, range).into_iter().peekable();
            while let Some(((offset, end), is_hole)) = pieces.next() {
                let (bytes, is_last) =
                    ((end - offset) as u32, missing_blocks.peek().is_none() && pieces.peek().is_none());
                let piece = FilePiece { file: number, offset, bytes, is_last };
                match (is_hole, is_last) {
                    (true, _) => {
                        if is_last {
                            source.check_unchanged_at_end(file)?;
                        }
                        self.channels.current().queue(&SenderMessage::Hole(piece))?;
                        self.count_unacked(number, |amount| amount.holes += u64::from(bytes));
                        self.advance(bytes.into());
                    }
                    (false, true) => self.send_last_piece(outgoing, piece)?,
                    (false, false) => self.send_piece(outgoing, piece)?,
                }
                if !self.is_still_wanted(number)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether the receiver has not refused a file that is being sent; else reports that the rest will not come.
    pub(super) fn is_still_wanted(&mut self, number: EntryNumber) -> Result<bool> {
        Error::check_stop()?;
        self.receive_available()?;
        let is_refused = self.refused_file == Some(number as usize);
        if is_refused {
            let why = "the receiver wants no more of it".to_owned();
            self.channels.first.send(&SenderMessage::Abandoned { file: number, why })?;
        }
        Ok(!is_refused)
    }

    /// Sends the piece with which the receiver has the whole file: its end only when all is read, and is still what was offered.
    fn send_last_piece(&mut self, outgoing: OutgoingFile<'_>, piece: FilePiece) -> Result<()> {
        let OutgoingFile { source, file, .. } = outgoing;
        let bytes = self.limiter.max_burst(PART_BYTES as u64).min(piece.bytes.into()) as u32;
        let head_bytes = piece.bytes - bytes;
        if head_bytes > 0 {
            self.send_piece(outgoing, FilePiece { bytes: head_bytes, is_last: false, ..piece })?;
        }
        let end = FilePiece { offset: piece.offset + u64::from(head_bytes), bytes, ..piece };
        let mut buffer = self.take_buffer();
        let content = &mut buffer[..bytes as usize];
        let read = self.channels.first.times.time_file(|| file.read_exact_at(content, end.offset));
        let check = read.map_err(|_| shortened_error(source, file)).and_then(|()| source.check_unchanged_at_end(file));
        let sent = check.and_then(|()| self.send_block(end, content));
        self.buffer = buffer;
        sent
    }

    /// Sends a piece whose bytes are these.
    fn send_block(&mut self, piece: FilePiece, content: &[u8]) -> Result<()> {
        self.count_unacked(piece.file, |amount| amount.moved += u64::from(piece.bytes));
        let mut hasher = Hasher::new();
        if self.options.settings.verify {
            hash_timed(&mut hasher, content, &mut self.channels.first.times.verify);
        }
        let announce = |frame_bytes| match frame_bytes {
            Some(frame_bytes) => SenderMessage::CompressedBlock { piece, frame_bytes },
            None => SenderMessage::Block(piece),
        };
        self.send_content(content, announce)?;
        self.send_digest(&hasher)
    }

    /// Sends a piece of a file.
    pub(super) fn send_piece(&mut self, outgoing: OutgoingFile<'_>, piece: FilePiece) -> Result<()> {
        if self.compressor.is_some() {
            return self.send_compressible_piece(outgoing, piece);
        }
        self.announce_block(piece)?;
        match self.send_range(outgoing.file, piece.range())? {
            true => Ok(()),
            false => Err(shortened_error(outgoing.source, outgoing.file)),
        }
    }

    /// Like `send_piece`, in parts that are compressed one by one.
    fn send_compressible_piece(&mut self, outgoing: OutgoingFile<'_>, piece: FilePiece) -> Result<()> {
        let mut content =
            self.compressor.as_mut().map_or_else(Vec::new, |compressor| std::mem::take(&mut compressor.content));
        content.resize(COMPRESSED_PIECE_BYTES as usize, 0);
        let mut sent = Ok(());
        for (offset, bytes) in blocks::parts(piece.range(), COMPRESSED_PIECE_BYTES) {
            let part = &mut content[..bytes];
            let is_read = self.channels.first.times.time_file(|| outgoing.file.read_exact_at(part, offset)).is_ok();
            sent = match is_read {
                true => self.send_block(FilePiece { offset, bytes: bytes as u32, ..piece }, part),
                false => Err(shortened_error(outgoing.source, outgoing.file)),
            };
            if sent.is_err() {
                break;
            }
        }
        self.compressor.iter_mut().for_each(|compressor| compressor.content = std::mem::take(&mut content));
        sent
    }

    fn announce_block(&mut self, piece: FilePiece) -> Result<()> {
        self.count_unacked(piece.file, |amount| amount.moved += u64::from(piece.bytes));
        self.channels.current().queue(&SenderMessage::Block(piece))
    }

    /// Sends as many bytes as were announced, by the method that is due.
    fn send_range(&mut self, file: &File, range: Range<u64>) -> Result<bool> {
        if !self.can_bypass_channel() {
            return self.send_buffered(file, range);
        }
        let (channel, bytes) = (self.channels.current(), range.end - range.start);
        let mut method = self.methods.next_method(|| channel.socket()).map_err(Error::call(SETUP_STEP))?;
        let start = Instant::now();
        let sent = match &mut method.path {
            None => Some(self.send_buffered(file, range.clone())),
            Some(path) => self.send_direct(path, file, range.clone()).transpose(),
        };
        self.methods.record(method, if sent.is_some() { bytes } else { 0 }, start);
        sent.unwrap_or_else(|| {
            let (start, is_whole) = (Instant::now(), self.send_buffered(file, range));
            self.methods.record(PieceMethod::BUFFERED, bytes, start);
            is_whole
        })
    }

    /// Whether so little can come from the receiver that it finds room in the socket while nobody listens. That is, no digests of parts, no
    /// decisions, and few verdicts.
    pub(super) fn can_bypass_channel(&self) -> bool {
        self.resume_infos.is_empty()
            && self.decided_count == self.offered_count
            && self.unacked.len() <= MAX_BATCH_FILES
    }

    /// Sends as many bytes as were announced by a method of its own, with zeros for those that are not there any more. Returns whether
    /// all were, or nothing of a file that cannot be mapped, of which none has gone.
    fn send_direct(&mut self, path: &mut SendPath, file: &File, range: Range<u64>) -> Result<Option<bool>> {
        let (verify, shows_bytes) = (self.options.settings.verify, path.setup.method.shows_bytes());
        let (mut hasher, mut is_whole) = (Hasher::new(), true);
        self.channels.current().flush()?;
        for (offset, part) in blocks::parts(range.clone(), self.limiter.max_burst(u64::MAX)) {
            let (start, mut hash_time) = (Instant::now(), 0);
            let mut hash = |bytes: &[u8]| hash_timed(&mut hasher, bytes, &mut hash_time);
            let observer = (verify && shows_bytes).then_some(&mut hash as &mut dyn FnMut(&[u8]));
            let sent = match method_chooser::send_range(path, file, offset..offset + part as u64, observer)? {
                None if offset == range.start => return Ok(None),
                sent => sent.unwrap_or_default(),
            };
            let times = &mut self.channels.first.times;
            times.verify += hash_time;
            times.connection += (start.elapsed().as_nanos() as u64).saturating_sub(hash_time);
            if verify && !shows_bytes {
                self.hash_from_file(file, offset..offset + sent, &mut hasher);
            }
            self.limit_rate(sent);
            self.advance(sent);
            if sent < part as u64 {
                for (_, zeros) in blocks::parts(offset + sent..range.end, ZERO_BUFFER_BYTES as u64) {
                    self.send_bytes(&[0; ZERO_BUFFER_BYTES][..zeros])?;
                }
                is_whole = false;
                break;
            }
        }
        self.send_digest(&hasher)?;
        Ok(Some(is_whole))
    }

    /// Hashes bytes that went from the file into the socket without being seen. Where they cannot be read, the digest will not be right,
    /// and the file not kept.
    fn hash_from_file(&mut self, file: &File, range: Range<u64>, hasher: &mut Hasher) {
        let mut buffer = self.take_buffer();
        let times = &mut self.channels.first.times;
        for (start, part) in blocks::parts(range, PART_BYTES as u64) {
            if times.time_file(|| file.read_exact_at(&mut buffer[..part], start)).is_err() {
                break;
            }
            hash_timed(hasher, &buffer[..part], &mut times.verify);
        }
        self.buffer = buffer;
    }

    /// Sends as many bytes as were announced, with zeros for parts that are not there any more; returns whether all were.
    fn send_buffered(&mut self, file: &File, range: Range<u64>) -> Result<bool> {
        let (mut is_whole, mut hasher, mut buffer) = (true, Hasher::new(), self.take_buffer());
        for (start, part) in blocks::parts(range, self.limiter.max_burst(PART_BYTES as u64)) {
            let part = &mut buffer[..part];
            is_whole &= self.channels.first.times.time_file(|| read_or_zero(file, part, start));
            self.send_part(part, &mut hasher)?;
        }
        self.buffer = buffer;
        self.send_digest(&hasher)?;
        Ok(is_whole)
    }

    /// Sends a part of a piece.
    fn send_part(&mut self, part: &[u8], hasher: &mut Hasher) -> Result<()> {
        if self.options.settings.verify {
            hash_timed(hasher, part, &mut self.channels.first.times.verify);
        }
        self.send_bytes(part)?;
        self.advance(part.len() as u64);
        Ok(())
    }

    /// Sends the digest of a piece that was sent.
    fn send_digest(&mut self, hasher: &Hasher) -> Result<()> {
        if !self.options.settings.verify {
            return Ok(());
        }
        self.channels.current().queue(&SenderMessage::Digests(vec![*hasher.finalize().as_bytes()]))
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.channels.current().send_data(bytes)?;
        self.limit_rate(bytes.len() as u64);
        Ok(())
    }

    /// Waits until more may be sent after this many bytes.
    fn limit_rate(&mut self, bytes: u64) {
        add_elapsed(&mut self.channels.first.times.limit, || self.limiter.wait_after(bytes));
    }

    /// Sends what is read from a pipe, or a file that states no size, until its end.
    fn send_stream(&mut self, OutgoingFile { number, source, mut file, .. }: OutgoingFile<'_>) -> Result<()> {
        let mut offset = 0;
        let mut buffer = vec![0; self.limiter.max_burst(PART_BYTES as u64) as usize];
        loop {
            let read = self.channels.first.times.time_file(|| file.read(&mut buffer));
            let count = match read {
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    Error::check_stop()?;
                    continue;
                }
                read => read.map_err(|error| FileError::call("read", source.display_path(), error))?,
            };
            Error::check_stop()?;
            let piece = FilePiece { file: number, offset, bytes: count as u32, is_last: count == 0 };
            self.send_block(piece, &buffer[..count])?;
            self.channels.current().flush()?;
            offset += count as u64;
            if count == 0 || !self.is_still_wanted(number)? {
                return Ok(());
            }
        }
    }
}

/// A large file that is being sent.
#[derive(Clone, Copy)]
pub(super) struct OutgoingFile<'a> {
    pub(super) number: EntryNumber,
    pub(super) source: &'a SourceEntry,
    pub(super) file: &'a File,
    /// A bit for each block that the receiver has.
    pub(super) valid_blocks: &'a [u8],
    pub(super) layout: BlockLayout,
}

/// Reads the content of a small file, if it is what was offered, into room for a byte more. That there is none shows its end without
/// another call.
pub(super) fn read_whole(source: &SourceEntry, file: File, content: &mut [u8]) -> Result<()> {
    let (bytes, mut filled) = (source.bytes() as usize, 0);
    let read = loop {
        match retry_on_intr(|| rustix::io::read(&file, &mut content[filled..])) {
            Ok(read) if read > 0 && filled + read < bytes => filled += read,
            Ok(read) => {
                filled += read;
                break Ok(());
            }
            Err(error) => break Err(std::io::Error::from(error)),
        }
    };
    // A file that was written reports it itself.
    source.check_unchanged(&file)?;
    read.map_err(|error| FileError::call("read", &source.path, error))?;
    match filled.cmp(&bytes) {
        Ordering::Less => Err(source.changed_error(format!("it ended after {filled} of {bytes} bytes"))),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(source.longer_error()),
    }
}

/// The parts of a range of a file, and whether they are holes.
fn data_and_holes(source: &SourceEntry, file: &File, range: Range<u64>) -> Vec<((u64, u64), bool)> {
    if !source.has_holes {
        return vec![((range.start, range.end), false)];
    }
    let seek = |target| rustix::fs::seek(file, target).map_or(range.end, |position| position.min(range.end));
    let (mut parts, mut position) = (Vec::new(), range.start);
    while position < range.end {
        // None behind it: the rest is a hole. A file system that does not know holes calls everything data.
        let data = seek(SeekFrom::Data(position));
        let hole = seek(SeekFrom::Hole(data)).max(data);
        parts.extend(
            [((position, data), true), ((data, hole), false)].into_iter().filter(|((start, end), _)| end > start),
        );
        position = hole;
    }
    if parts.is_empty() {
        parts.push(((range.start, range.end), false));
    }
    parts
}

/// Reads a part of a file; zeros, where not all of it is there. Returns whether it is.
pub(super) fn read_or_zero(file: &File, part: &mut [u8], offset: u64) -> bool {
    let is_read = file.read_exact_at(part, offset).is_ok();
    if !is_read {
        part.fill(0);
    }
    is_read
}

/// Why a file has not the bytes that were announced.
pub(super) fn shortened_error(source: &SourceEntry, file: &File) -> Error {
    // Its time of modification is that of the first look at it.
    if may_overstate(source.display_path()) {
        return FileError::size_overstated(source.display_path(), source.bytes()).into();
    }
    match source.check_unchanged(file) {
        Err(error) => error,
        Ok(()) => source.changed_error("some of its bytes could not be read".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::source::{PreserveOptions, SourceList};

    /// A file of /sys states a page, and may have another time of modification at each look.
    #[test]
    fn short_kernel_file_is_not_changed() {
        let path = PathBuf::from("/sys/devices/system/cpu/online");
        let list = SourceList::collect(&[path], PreserveOptions::default()).unwrap();
        let mut source = SourceEntry::clone(&list.sources[0]);
        source.entry.modified.seconds -= 1;
        let why = shortened_error(&source, &source.open().unwrap()).to_string();
        assert!(why.ends_with("states 4096 bytes and has fewer, as files of the kernel do (/sys, /proc)"), "{why}");
    }
}
