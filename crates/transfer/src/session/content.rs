//! The content of files as it comes: small files together, pieces of large ones, holes, and the digests that these are compared with.

use std::time::Instant;

use kelvin_file::Error as FileError;

use super::{
    ArrivingFile, MAX_BATCH_BYTES, MAX_BATCH_FILES, MAX_OPEN_FILES, MAX_PENDING_CHECKS, ReceiveSession, UNWANTED_FILE,
    WantedEntry,
};
use crate::blocks;
use crate::compression::{Decompressor, check_frame};
use crate::datapath::{PathMethod, ReceiveMethod, ReceivePath};
use crate::incoming_file::IncomingFile;
use crate::message::{Blake3Digest, EntryKind, EntryNumber, FileEntry, FilePiece, SenderMessage, WholeFile};
use crate::method_chooser;
use crate::secure_channel::{SETUP_STEP, TransferStream};
use crate::stage_times::{add_elapsed, hash_timed};
use crate::summary::ByteCounts;
use crate::wire::Hasher;
use crate::{Error, Result};

impl<S: TransferStream> ReceiveSession<'_, S> {
    /// Has content arrive.
    pub(super) fn receive_content(&mut self, message: SenderMessage) -> Result<()> {
        match message {
            SenderMessage::Batch { files, digest } => self.receive_batch(&files, digest, None)?,
            SenderMessage::CompressedBatch { files, digest, frame_bytes } => {
                self.receive_batch(&files, digest, Some(frame_bytes))?;
            }
            SenderMessage::Block(piece) => self.receive_block(&piece, None)?,
            SenderMessage::CompressedBlock { piece, frame_bytes } => self.receive_block(&piece, Some(frame_bytes))?,
            SenderMessage::Hole(piece) => return self.receive_hole(&piece),
            SenderMessage::Digests(digests) => return self.compare_digests(digests),
            _ => return Err(Error::ProtocolViolation("it neither offers nor sends anything, nor ends")),
        }
        self.report_progress();
        Ok(())
    }

    /// Has the whole content of small files arrive; in a frame of this many bytes, where it is compressed.
    fn receive_batch(
        &mut self,
        files: &[WholeFile],
        digest: Option<Blake3Digest>,
        frame_bytes: Option<u32>,
    ) -> Result<()> {
        let bytes: usize = files.iter().map(|file| file.bytes as usize).sum();
        let is_allowed = files.len() <= MAX_BATCH_FILES && bytes as u64 <= MAX_BATCH_BYTES;
        Error::ensure(is_allowed, "it sends too many files at once")?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let decompressed = match frame_bytes {
            Some(frame_bytes) => self.decompress_batch(&mut buffer[..bytes], frame_bytes)?,
            None => self.channels.current().receive_data(&mut buffer, bytes).map(Ok)?,
        };
        let verify = self.settings.verify;
        let is_intact = add_elapsed(&mut self.channels.first.times.verify, || {
            !verify || digest == Some(*crate::wire::hash(&buffer[..bytes]).as_bytes())
        });
        let mut content = &buffer[..bytes];
        for file in files {
            let file_content;
            (file_content, content) = content.split_at(file.bytes as usize);
            let wanted_file = self.wanted_files.remove(&file.file).ok_or(UNWANTED_FILE)?;
            let written = match decompressed {
                Ok(()) if is_intact => self.write_small(&wanted_file.entry, file_content),
                Err(Error::Decompression(why)) => Err(Error::Decompression(why)),
                _ => Err(Error::DigestMismatch),
            };
            self.queue_verdict((file.file, &wanted_file.entry), written)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Receives the content of small files as a frame; whether that could be decompressed.
    fn decompress_batch(&mut self, content: &mut [u8], frame_bytes: u32) -> Result<Result<()>> {
        let piece = FilePiece { file: 0, offset: 0, bytes: content.len() as u32, is_last: true };
        let write = |part: &[u8], offset| {
            content[offset as usize..][..part.len()].copy_from_slice(part);
            Ok(())
        };
        // All files together have one digest.
        Ok(self.decompress_piece((&piece, frame_bytes, false), write)?.1)
    }

    /// Receives a piece that comes as a frame of this many bytes, and writes it; its digest, and whether it was written.
    fn decompress_piece(
        &mut self,
        (piece, frame_bytes, verify): (&FilePiece, u32, bool),
        write: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<(Blake3Digest, Result<()>)> {
        check_frame(&self.settings, piece.bytes.into(), frame_bytes)?;
        let mut decompressor = self.decompressor.take().map_or_else(Decompressor::new, Ok)?;
        let channel = self.channels.current();
        let received = channel.receive_compressed((piece, frame_bytes, verify), &mut decompressor, write)?;
        self.decompressor = Some(decompressor);
        Ok(received)
    }

    fn write_small(&mut self, entry: &FileEntry, content: &[u8]) -> Result<ByteCounts> {
        let is_whole = matches!(entry.kind, EntryKind::File { bytes, .. } if bytes == content.len() as u64);
        Error::ensure(is_whole, "it sent another number of bytes than it had offered")?;
        let start = Instant::now();
        let written = self.policy.write_small(entry, content, self.settings.sync);
        let end = self.channels.first.times.add_file_time(start);
        written?;
        self.last_write = end;
        Ok(ByteCounts::from_sent(content.len() as u64))
    }

    /// Begins the file of a piece that has come, unless it arrives already; whether it has not failed.
    fn begin_piece(&mut self, piece: &FilePiece) -> Result<bool> {
        blocks::check_piece_length(piece)?;
        if self.failed_files.contains(&piece.file) {
            return Ok(false);
        }
        if !self.arriving_files.contains_key(&piece.file) {
            self.begin_file(piece.file)?;
        }
        let Some(arriving) = self.arriving_files.get_mut(&piece.file) else { return Ok(false) };
        arriving.file.record_piece(piece).map(|()| true)
    }

    /// Begins a wanted file; one that cannot be begun has failed.
    pub(super) fn begin_file(&mut self, number: EntryNumber) -> Result<()> {
        let WantedEntry { entry, part, .. } = self.wanted_files.remove(&number).ok_or(UNWANTED_FILE)?;
        let is_allowed = self.arriving_files.len() < MAX_OPEN_FILES;
        Error::ensure(is_allowed, "it begins more files than it may before it has ended others")?;
        match part.map_or_else(|| self.policy.create_incoming(&entry), |part| Ok(*part)) {
            Ok(file) => {
                self.arriving_files.insert(number, ArrivingFile { entry, file, pending_checks: 0 });
                Ok(())
            }
            Err(why) => self.report_failure(number, &entry, why),
        }
    }

    /// Has a part of a block arrive; in a frame of this many bytes, where it is compressed.
    fn receive_block(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<()> {
        let is_arriving = self.begin_piece(piece)?;
        let (digest, written) = match is_arriving {
            true => self.receive_piece(piece, frame_bytes)?,
            false => self.receive_buffered(piece, frame_bytes)?,
        };
        self.bytes_written += if written.is_ok() { u64::from(piece.bytes) } else { 0 };
        if self.settings.verify {
            let is_allowed = self.pending_digests.len() < MAX_PENDING_CHECKS;
            Error::ensure(is_allowed, "it sends more than it may before it sends digests")?;
            self.pending_digests.push_back((piece.file, digest));
            if let Some(arriving) = self.arriving_files.get_mut(&piece.file) {
                arriving.pending_checks += 1;
            }
        }
        self.on_written(piece.file, written)
    }

    /// Some of a file that arrives was written, or not: it is finished if it is whole, and has failed if it was not.
    fn on_written(&mut self, number: EntryNumber, written: Result<()>) -> Result<()> {
        let is_whole = |arriving: &ArrivingFile| arriving.pending_checks == 0 && arriving.file.is_complete();
        if written.is_ok() && !self.arriving_files.get(&number).is_some_and(is_whole) {
            return Ok(());
        }
        let Some(ArrivingFile { entry, file, .. }) = self.arriving_files.remove(&number) else { return Ok(()) };
        match written {
            Ok(()) => self.finish_file(number, &entry, file),
            Err(why) => {
                self.end_split(number);
                file.discard();
                self.report_failure(number, &entry, why)
            }
        }
    }

    /// Receives the bytes of a piece of a file that arrives and writes them; their digest, and whether they were written.
    fn receive_piece(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<(Blake3Digest, Result<()>)> {
        let incoming = self.arriving_files.get_mut(&piece.file).map(|arriving| &mut arriving.file);
        let is_skipped = |file: &&mut IncomingFile| file.is_discarded() && !self.settings.verify;
        let skipped = incoming.filter(is_skipped).filter(|_| frame_bytes.is_none());
        let channel = self.channels.current();
        let (digest, mut written) = if let Some(incoming) = skipped {
            channel.skip_data(piece.bytes as usize, &mut self.buffer)?;
            incoming.add_arrived(piece.bytes.into());
            (Blake3Digest::default(), Ok(()))
        } else {
            let mut method = self.methods.next_method(|| channel.socket()).map_err(Error::call(SETUP_STEP))?;
            let start = Instant::now();
            let received = match &mut method.path {
                None => self.receive_buffered(piece, frame_bytes),
                Some(path) => self.receive_direct(path, piece),
            };
            self.methods.record(method, piece.bytes.into(), start);
            received?
        };
        self.last_write = Instant::now();
        if written.is_ok()
            && self.settings.sync
            && let Some(arriving) = self.arriving_files.get_mut(&piece.file)
        {
            written = add_elapsed(&mut self.channels.first.times.sync, || arriving.file.flush_if_due());
        }
        Ok((digest, written))
    }

    /// By way of a buffer; those of a file that has failed are dropped.
    fn receive_buffered(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<(Blake3Digest, Result<()>)> {
        let verify = self.settings.verify;
        let Some(frame_bytes) = frame_bytes else {
            let mut arriving = self.arriving_files.get_mut(&piece.file);
            let write =
                |part: &[u8], offset| arriving.as_mut().map_or(Ok(()), |arriving| arriving.file.write(part, offset));
            return self.channels.current().receive_content((piece, verify), &mut self.buffer, write);
        };
        let mut arriving = self.arriving_files.remove(&piece.file);
        let write =
            |part: &[u8], offset| arriving.as_mut().map_or(Ok(()), |arriving| arriving.file.write(part, offset));
        let received = self.decompress_piece((piece, frame_bytes, verify), write);
        self.arriving_files.extend(arriving.map(|arriving| (piece.file, arriving)));
        received
    }

    /// By a method of its own, past the channel.
    fn receive_direct(&mut self, path: &mut ReceivePath, piece: &FilePiece) -> Result<(Blake3Digest, Result<()>)> {
        let method = path.setup.method;
        let is_hashed = self.settings.verify && method.shows_bytes();
        let arriving = self.arriving_files.get_mut(&piece.file).ok_or(UNWANTED_FILE)?;
        let incoming = &mut arriving.file;
        let (mut hasher, mut hash_time) = (Hasher::new(), 0);
        // What came with messages is in no socket any more.
        let head = self.channels.current().available(piece.bytes as usize)?;
        if is_hashed {
            hasher.update(head);
        }
        let (mut rest, mut written) = (piece.bytes as usize - head.len(), incoming.write(head, piece.offset));
        let start = Instant::now();
        let file = written.and_then(|()| incoming.file_for_piece(piece, method == ReceiveMethod::Mmap));
        written = match file {
            Err(why) => Err(why),
            Ok(None) => return Err(Error::ProtocolViolation("bytes for no file")),
            Ok(Some(file)) => {
                let mut hash = |part: &[u8]| hash_timed(&mut hasher, part, &mut hash_time);
                let observer = is_hashed.then_some(&mut hash as &mut dyn FnMut(&[u8]));
                let end = piece.offset + u64::from(piece.bytes);
                let meter = &mut self.channels.current().incoming;
                let (received, outcome) =
                    method_chooser::receive_range(path, meter, file, end - rest as u64..end, observer)?;
                if outcome.is_ok() && received < rest as u64 {
                    return Err(Error::Closed);
                }
                let outcome = outcome.map_err(|why| FileError::call("write", &incoming.path, why).into());
                incoming.add_arrived(received);
                rest -= received as usize;
                outcome
            }
        };
        let times = &mut self.channels.first.times;
        times.verify += hash_time;
        times.connection += (start.elapsed().as_nanos() as u64).saturating_sub(hash_time);
        self.channels.current().skip_data(rest, &mut self.buffer)?;
        if is_hashed || !self.settings.verify || written.is_err() {
            return Ok((*hasher.finalize().as_bytes(), written));
        }
        let read =
            add_elapsed(&mut self.channels.first.times.verify, || incoming.digest_from_disk(piece, &mut self.buffer));
        Ok(read.map_or_else(|why| (Blake3Digest::default(), Err(why)), |digest| (digest, Ok(()))))
    }

    fn receive_hole(&mut self, piece: &FilePiece) -> Result<()> {
        if !self.begin_piece(piece)? {
            return Ok(());
        }
        let arriving = self.arriving_files.get_mut(&piece.file);
        let written = arriving.map_or(Ok(()), |arriving| arriving.file.hole(piece));
        self.on_written(piece.file, written)
    }

    /// Compares the digests of the next pieces with those of what has arrived.
    fn compare_digests(&mut self, digests: Vec<Blake3Digest>) -> Result<()> {
        for sent_digest in digests {
            let (file, local_digest) =
                self.pending_digests.pop_front().ok_or(Error::ProtocolViolation("it sends the digest of nothing"))?;
            let Some(arriving) = self.arriving_files.get_mut(&file) else { continue };
            arriving.pending_checks -= 1;
            self.on_written(file, if local_digest == sent_digest { Ok(()) } else { Err(Error::DigestMismatch) })?;
        }
        Ok(())
    }
}
