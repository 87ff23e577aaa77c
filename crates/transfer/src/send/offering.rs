//! What a sender offers as it finds it, and what the receiver decides on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{SendSession, UNKNOWN_FILE, UnsentFile, WantedFile};
use crate::blocks::{BLOCK_BYTES, set_bit};
use crate::incoming_file::range_digest;
use crate::message::{Blake3Digest, EntryDecision, EntryKind, EntryNumber, FileEntry, RefusalReason, SenderMessage};
use crate::secure_channel::TransferStream;
use crate::session::MAX_WANTED_FILES;
use crate::source::SourceEntry;
use crate::summary::ByteCounts;
use crate::{Error, Result};

/// Most entries of an offer, and most bytes of their names and attributes, so that it fits into a frame.
const MAX_OFFER_ENTRIES: usize = 256;
const MAX_OFFER_BYTES: usize = 40 << 10;
/// Files that are ready to be sent, of which no more need be offered: this many are under way while the receiver decides on others.
const MAX_READY_FILES: usize = MAX_WANTED_FILES / 4;
/// Bytes of an entry in addition to its name and attributes, at most.
const MAX_ENTRY_OVERHEAD: usize = 64;

/// What the receiver reported of the blocks of a file.
pub(super) struct ResumeInfo {
    /// The file, with those that are right.
    wanted_file: WantedFile,
    /// The next one of which it is to speak.
    next_block: u32,
}

/// For what the receiver has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceCheck {
    /// It was asked, and has not answered.
    Pending,
    /// For as much as there is at most.
    UpperBoundFits,
    /// Not for that much, or there is more: how much it is must be known before more is sent.
    Insufficient,
    /// For all, however much it is: the receiver knows it, and would have refused it.
    TotalFits,
}

impl ResumeInfo {
    /// Nothing yet of a file of this size.
    fn new(mut wanted_file: WantedFile, bytes: u64) -> Self {
        wanted_file.valid_blocks = wanted_file.layout(bytes).no_bits();
        Self { wanted_file, next_block: 0 }
    }
}

impl<S: TransferStream> SendSession<'_, S> {
    /// Offers some entries, where few are ready to be sent and the receiver takes more before it has the content of others. Returns
    /// whether it did.
    pub(super) fn offer(&mut self) -> Result<bool> {
        let is_due =
            self.ready_files.len() < MAX_READY_FILES && self.in_flight() + MAX_OFFER_ENTRIES <= MAX_WANTED_FILES;
        if is_due && self.offered_count == self.collection.sources.len() && !self.collection.is_complete() {
            self.collection.find_more(MAX_OFFER_ENTRIES)?;
            self.send_total()?;
        }
        let has_more = is_due && self.offered_count < self.collection.sources.len();
        if has_more {
            let mut bytes = 0;
            let fits_offer = |source: &&Arc<SourceEntry>| {
                bytes += entry_bytes(&source.entry);
                bytes <= MAX_OFFER_BYTES
            };
            let sources =
                self.collection.sources[self.offered_count..].iter().take(MAX_OFFER_ENTRIES).take_while(fits_offer);
            let entries: Vec<FileEntry> = sources.map(|source| source.entry.clone()).collect();
            self.offered_count += entries.len();
            self.channels.first.queue(&SenderMessage::Offer(entries))?;
        }
        self.channels.first.flush()?;
        Ok(has_more)
    }

    /// Reports how much there is once all is found; more than the announced maximum is no more known to find room.
    pub(super) fn send_total(&mut self) -> Result<()> {
        let bytes = self.collection.stored_bytes.unwrap_or_default();
        if self.collection.is_complete() && self.space != SpaceCheck::TotalFits {
            self.space = SpaceCheck::TotalFits;
            self.total_bytes = Some(self.collection.bytes());
            return self.channels.first.queue(&SenderMessage::TotalFound(bytes));
        }
        if self.options.settings.at_most.is_none_or(|limit| bytes > limit) {
            self.space = SpaceCheck::Insufficient;
        }
        Ok(())
    }

    /// Whether there is room for as much as there is at most. By now all may be found, and reported.
    pub(super) fn on_space_answer(&mut self, is_enough: bool) -> Result<()> {
        Error::ensure(self.options.settings.at_most.is_some(), "it reports room that was not asked for")?;
        if self.space == SpaceCheck::Pending {
            self.space = if is_enough { SpaceCheck::UpperBoundFits } else { SpaceCheck::Insufficient };
        }
        Ok(())
    }

    pub(super) fn on_decision(&mut self, decision: EntryDecision) -> Result<()> {
        let number = self.decided_count;
        let source = Arc::clone(self.collection.sources[..self.offered_count].get(number).ok_or(UNKNOWN_FILE)?);
        self.decided_count += 1;
        let is_dry = self.options.settings.dry_run;
        match decision {
            EntryDecision::Wanted | EntryDecision::Resumed if !source.is_file() => return Err(UNKNOWN_FILE),
            EntryDecision::Changed if !self.options.settings.update || source.bytes() <= BLOCK_BYTES => {
                return Err(Error::ProtocolViolation("it has an older state of a file that is sent whole"));
            }
            EntryDecision::Made if source.is_file() => return Err(UNKNOWN_FILE),
            EntryDecision::Wanted | EntryDecision::Resumed | EntryDecision::Changed if is_dry => {
                self.planned.push(source.display_path().to_owned())
            }
            EntryDecision::Wanted | EntryDecision::Changed => {
                let is_changed = decision == EntryDecision::Changed;
                self.ready_files.push_back(WantedFile { number, valid_blocks: Vec::new(), is_changed });
            }
            EntryDecision::Resumed => {
                let wanted_file = WantedFile { number, valid_blocks: Vec::new(), is_changed: false };
                self.resume_infos.insert(number, ResumeInfo::new(wanted_file, source.bytes()));
            }
            EntryDecision::Unchanged => {
                self.unchanged += 1;
                self.advance(source.bytes());
            }
            EntryDecision::Made if matches!(source.entry.kind, EntryKind::HardLink { .. }) => match is_dry {
                true => self.planned.push(source.display_path().to_owned()),
                false => {
                    self.moved.hard_links += 1;
                    self.moved_paths.extend(self.options.lists_moved.then(|| source.display_path().to_owned()));
                }
            },
            EntryDecision::Made => {}
            EntryDecision::Refused(RefusalReason(why)) => {
                self.advance(source.bytes());
                self.unsent.push(UnsentFile::new(&source, Error::Refused(why)));
            }
        }
        Ok(())
    }

    /// Asks which blocks the receiver has of an older state of a file, and compares them; none if the receiver cannot go on with it.
    pub(super) fn query_blocks(&mut self, wanted_file: WantedFile) -> Result<Option<WantedFile>> {
        let number = wanted_file.number;
        let bytes = self.collection.sources[number].bytes();
        self.resume_infos.insert(number, ResumeInfo::new(wanted_file, bytes));
        // It may be refused meanwhile.
        self.unacked.insert(number, ByteCounts::default());
        self.channels.first.send(&SenderMessage::QueryBlocks(number as EntryNumber))?;
        while self.resume_infos.contains_key(&number) {
            self.receive_message()?;
        }
        let index = self.ready_files.iter().rposition(|file| file.number == number);
        Ok(index.and_then(|index| self.ready_files.remove(index)))
    }

    /// Compares blocks that the receiver has with those of the file.
    pub(super) fn compare_blocks(
        &mut self,
        (file, first): (EntryNumber, u32),
        digests: &[Blake3Digest],
        is_all: bool,
    ) -> Result<()> {
        let number = file as usize;
        let source = Arc::clone(self.collection.sources.get(number).ok_or(UNKNOWN_FILE)?);
        let ResumeInfo { wanted_file, next_block } = self.resume_infos.get_mut(&number).ok_or(UNKNOWN_FILE)?;
        let layout = wanted_file.layout(source.bytes());
        // Each block is read once, however often the receiver would speak of it.
        let next = first.checked_add(digests.len() as u32).ok_or(UNKNOWN_FILE)?;
        let is_next = first == std::mem::replace(next_block, next);
        let is_possible = is_next && u64::from(next) <= layout.count();
        Error::ensure(is_possible, "it names blocks that it cannot have")?;
        let mut last_keepalive = Instant::now();
        // A file that cannot be read fails when it is sent.
        if let Ok(file) = source.open() {
            for (block, peer_digest) in (u64::from(first)..).zip(digests) {
                let range = layout.range(block);
                if range_digest(&file, range, &mut self.buffer).is_ok_and(|local_digest| local_digest == *peer_digest) {
                    set_bit(&mut wanted_file.valid_blocks, block);
                }
                // The receiver waits meanwhile, and a disk may be slow.
                let keepalives = last_keepalive.elapsed().as_millis() / KEEPALIVE_INTERVAL.as_millis();
                if keepalives > 0 {
                    last_keepalive = Instant::now();
                    (0..keepalives).try_for_each(|_| self.channels.first.queue(&SenderMessage::Digests(Vec::new())))?;
                    self.channels.first.flush()?;
                }
            }
        }
        if is_all && let Some(ResumeInfo { wanted_file, .. }) = self.resume_infos.remove(&number) {
            // Where nothing is missing it is not looked at again.
            match source.open().and_then(|file| source.check_unchanged(&file)) {
                Err(why) if why.is_per_file() => return self.abandon(number, why),
                checked => checked?,
            }
            let resumed = layout.present_bytes(&wanted_file.valid_blocks);
            // Its verdict comes at once if nothing of it is missing.
            self.unacked.insert(number, ByteCounts { resumed, ..ByteCounts::default() });
            self.advance(resumed);
            self.channels.first.send(&SenderMessage::ValidBlocks { file, blocks: wanted_file.valid_blocks.clone() })?;
            self.ready_files.push_back(wanted_file);
        }
        Ok(())
    }
}

/// In the time that it reads its own blocks to compare them, a sender sends digests of nothing, one after each such time. That is several times
/// as many bytes as a receiver waits for ([`crate::progress`]).
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of an entry in an offer, at most.
fn entry_bytes(entry: &FileEntry) -> usize {
    let attributes: usize = entry
        .attributes
        .iter()
        .map(|attribute| attribute.name.len() + attribute.value.len() + MAX_ENTRY_OVERHEAD)
        .sum();
    let target = if let EntryKind::Link { target } = &entry.kind { target.len() } else { 0 };
    let acls = entry.acl_bytes() + entry.acls.len() * MAX_ENTRY_OVERHEAD;
    MAX_ENTRY_OVERHEAD + entry.name.as_os_str().len() + attributes + acls + target
}
