//! Blocks of a file that are there already, of a part that was kept or of an older state: their digests are sent, and the sender answers
//! which are right.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::{DIGEST_REPORT_INTERVAL, MAX_OPEN_PARTS, ReceiveSession, UNWANTED_FILE, WantedEntry};
use crate::blocks::{self, BlockLayout};
use crate::incoming_file::{IncomingFile, block_digests};
use crate::message::{Blake3Digest, EntryKind, EntryNumber, FileEntry, ReceiverMessage};
use crate::secure_channel::{SecureChannel, TransferStream};
use crate::stage_times::add_elapsed;
use crate::{Error, Result};

/// Most digests in a message.
const MAX_DIGESTS: usize = 1024;

impl<S: TransferStream> ReceiveSession<'_, S> {
    /// Sends which blocks of a file are there, as it reads them.
    pub(super) fn send_present_blocks(&mut self, file: EntryNumber) -> Result<()> {
        let Some(wanted_file) = self.wanted_files.get_mut(&file) else { return Ok(()) };
        let Some(part) = wanted_file.part.as_ref().and_then(|incoming| incoming.resumed_part()) else {
            return Ok(());
        };
        let mut report = BlockReport::new(file);
        for digest in block_digests(part) {
            // A block that cannot be read is one that is not there, as are those behind it.
            let Ok(digest) = digest else { break };
            report.add(digest, self.channels.first)?;
        }
        wanted_file.announced_blocks = report.finish(self.channels.first)?;
        Ok(())
    }

    /// Begins a file as a copy of its older state, and sends which blocks that has.
    pub(super) fn on_query_blocks(&mut self, file: EntryNumber) -> Result<()> {
        let parts = self.wanted_files.values().filter(|file| file.part.is_some()).count();
        // One more than those that go on with what was kept: it is sent as soon as the blocks are known.
        Error::ensure(
            parts <= MAX_OPEN_PARTS,
            "it asks for the blocks of more files than it may before it sends them",
        )?;
        let wanted_file = self.wanted_files.get_mut(&file).filter(|file| file.is_changed).ok_or(UNWANTED_FILE)?;
        wanted_file.is_changed = false;
        let entry = wanted_file.entry.clone();
        match self.copy_present_blocks(file, &entry) {
            Ok((part, announced_blocks)) => {
                if let Some(wanted_file) = self.wanted_files.get_mut(&file) {
                    (wanted_file.part, wanted_file.announced_blocks) = (Some(Box::new(part)), announced_blocks);
                }
                Ok(())
            }
            Err(why) if why.is_per_file() => {
                self.wanted_files.remove(&file);
                self.report_failure(file, &entry, why)
            }
            Err(why) => Err(why),
        }
    }

    /// Copies a file that is there block by block; returns the copy, and how many blocks it has. Each digest is that of what was
    /// written, so that nobody needs to read it again.
    fn copy_present_blocks(&mut self, file: EntryNumber, entry: &FileEntry) -> Result<(IncomingFile, u64)> {
        let EntryKind::File { bytes, .. } = entry.kind else { return Err(UNWANTED_FILE) };
        let (mut copy, source) = self.policy.create_copy(entry, bytes)?;
        let (mut report, mut buffer) = (BlockReport::new(file), Vec::new());
        let present_bytes = source.as_ref().and_then(|source| source.metadata().ok()).map_or(0, |source| source.len());
        let layout = BlockLayout::of_changed_file(bytes).truncated(present_bytes);
        for range in (0..layout.count()).map(|block| layout.range(block)) {
            buffer.resize((range.end - range.start) as usize, 0);
            let channel = &mut self.channels.first;
            let read = source.as_ref().is_some_and(|source| {
                channel.times.time_file(|| source.read_exact_at(&mut buffer, range.start)).is_ok()
            });
            // As of a part.
            if !read {
                break;
            }
            channel.times.time_file(|| copy.copy_block(&buffer, range.start))?;
            let digest = add_elapsed(&mut channel.times.verify, || *crate::wire::hash(&buffer).as_bytes());
            report.add(digest, channel)?;
        }
        Ok((copy, report.finish(self.channels.first)?))
    }

    pub(super) fn on_valid_blocks(&mut self, file: EntryNumber, bits: &[u8]) -> Result<()> {
        let wanted_file = self.wanted_files.get_mut(&file).ok_or(UNWANTED_FILE)?;
        let announced_blocks = std::mem::take(&mut wanted_file.announced_blocks);
        Error::ensure(blocks::last_block_end(bits) <= announced_blocks, "it keeps blocks that are not there")?;
        let part = wanted_file.part.as_mut().ok_or(UNWANTED_FILE)?;
        part.mark_blocks_present(bits);
        if !part.is_complete() {
            return Ok(());
        }
        // However many others are arriving: it has no turn.
        match self.wanted_files.remove(&file) {
            Some(WantedEntry { entry, part: Some(incoming), .. }) => self.finish_file(file, &entry, *incoming),
            _ => Err(UNWANTED_FILE),
        }
    }
}

/// Which blocks of a file are there, sent as they are found.
struct BlockReport {
    file: EntryNumber,
    first: u32,
    digests: Vec<Blake3Digest>,
    last_sent: Instant,
}

impl BlockReport {
    fn new(file: EntryNumber) -> Self {
        Self { file, first: 0, digests: Vec::new(), last_sent: Instant::now() }
    }

    /// The next block is there.
    fn add<S: TransferStream>(&mut self, digest: Blake3Digest, channel: &mut SecureChannel<S>) -> Result<()> {
        self.digests.push(digest);
        // A slow disk needs minutes for this many, and the sender, who waits for them, has its own blocks to read.
        if self.digests.len() == MAX_DIGESTS || self.last_sent.elapsed() >= DIGEST_REPORT_INTERVAL {
            Error::check_stop()?;
            self.send(false, channel)?;
            self.last_sent = Instant::now();
        }
        Ok(())
    }

    fn send<S: TransferStream>(&mut self, is_all: bool, channel: &mut SecureChannel<S>) -> Result<()> {
        let digests = std::mem::take(&mut self.digests);
        let next = self.first + digests.len() as u32;
        let first = std::mem::replace(&mut self.first, next);
        channel.send(&ReceiverMessage::PresentBlocks { file: self.file, first, digests, is_all })
    }

    /// No more are there; how many there are.
    fn finish<S: TransferStream>(mut self, channel: &mut SecureChannel<S>) -> Result<u64> {
        self.send(true, channel)?;
        Ok(self.first.into())
    }
}
