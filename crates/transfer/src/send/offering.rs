//! What a sender offers as it finds it, and what the receiver decides on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Sending, UNKNOWN, Unsent, Wanted};
use crate::blocks::{self, BLOCK, bit, set_bit};
use crate::channel::Stream;
use crate::deposit::digest;
use crate::message::{Decision, Digest, Entry, EntryKind, FromSender, Number, Reason};
use crate::session::WINDOW;
use crate::source::Source;
use crate::summary::Amount;
use crate::{Error, Result};

/// Most entries of an offer, and most bytes of their names and attributes, so that it fits into a frame.
const OFFERED: usize = 256;
const OFFERED_BYTES: usize = 40 << 10;
/// Files that are ready to be sent, of which no more need be offered: so many are under way while the receiver decides on others.
const READY: usize = WINDOW / 4;
/// Bytes of an entry beside its name and attributes, at most.
const ENTRY: usize = 64;

/// What the receiver said of the blocks of a file.
pub(super) struct Told {
    /// Those that are right.
    pub(super) kept: Vec<u8>,
    /// The next one of which it is to speak.
    pub(super) next: u32,
}

/// For what the receiver has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It was asked, and has not answered.
    Asked,
    /// For as much as there is at most.
    OfMost,
    /// Not for so much, or there is more: how much it is must be known before more is sent.
    Short,
    /// For all, however much it is: it was told, and would have refused it.
    OfAll,
}

impl<S: Stream> Sending<'_, S> {
    /// Offers some entries, where few are ready to be sent and the receiver takes more before it has the content of others; says
    /// whether it did.
    pub(super) fn offer(&mut self) -> Result<bool> {
        let is_due = self.ready.len() < READY && self.in_flight() + OFFERED <= WINDOW;
        let has_more = is_due && self.has_more_to_offer()?;
        if has_more {
            let mut bytes = 0;
            let fits = |source: &&Arc<Source>| {
                bytes += size(&source.entry);
                bytes <= OFFERED_BYTES
            };
            let some = self.collection.sources[self.offered..].iter().take(OFFERED).take_while(fits);
            let entries: Vec<Entry> = some.map(|source| source.entry.clone()).collect();
            self.offered += entries.len();
            self.channel.queue(&FromSender::Offer(entries))?;
        }
        self.channel.flush()?;
        Ok(has_more)
    }

    /// Whether something was found that was not offered.
    fn has_more_to_offer(&mut self) -> Result<bool> {
        if self.offered == self.collection.sources.len() && !self.collection.is_whole() {
            self.collection.find(OFFERED)?;
            self.say_how_much()?;
        }
        Ok(self.offered < self.collection.sources.len())
    }

    /// Finds all, where the receiver has no room for as much as it may be, before more is sent.
    pub(super) fn find_all(&mut self) -> Result<()> {
        self.collection.find_all()?;
        self.say_how_much()
    }

    /// Says how much there is once all is found; more than there was said to be at most is no more known to find room.
    fn say_how_much(&mut self) -> Result<()> {
        let bytes = self.collection.stored().unwrap_or_default();
        if self.collection.is_whole() && self.room != Room::OfAll {
            self.room = Room::OfAll;
            self.all = Some(self.collection.bytes());
            return self.channel.queue(&FromSender::Found { bytes });
        }
        if self.manner.settings.at_most.is_none_or(|most| bytes > most) {
            self.room = Room::Short;
        }
        Ok(())
    }

    /// Whether there is room for as much as there is at most. By now all may be found, and said.
    pub(super) fn told_of_room(&mut self, is_enough: bool) -> Result<()> {
        if self.manner.settings.at_most.is_none() {
            return Err(Error::Nonsense("it speaks of room that was not asked for"));
        }
        if self.room == Room::Asked {
            self.room = if is_enough { Room::OfMost } else { Room::Short };
        }
        Ok(())
    }

    pub(super) fn decided(&mut self, decision: Decision) -> Result<()> {
        let number = self.decided;
        let source = self.collection.sources[..self.offered].get(number).ok_or(Error::Nonsense(UNKNOWN))?;
        let source = Arc::clone(source);
        self.decided += 1;
        let is_dry = self.manner.settings.dry_run;
        match decision {
            Decision::Wanted | Decision::Resumed if !source.is_file() => return Err(Error::Nonsense(UNKNOWN)),
            Decision::Made if source.is_file() => return Err(Error::Nonsense(UNKNOWN)),
            Decision::Wanted | Decision::Resumed if is_dry => self.planned.push(source.shown().to_owned()),
            Decision::Wanted => self.ready.push_back(Wanted { number, kept: Vec::new() }),
            Decision::Resumed => {
                let blocks = blocks::count(source.bytes());
                self.resumed.insert(number, Told { kept: vec![0; blocks.div_ceil(8) as usize], next: 0 });
            }
            Decision::Unchanged => {
                self.unchanged += 1;
                self.pass(source.bytes());
            }
            Decision::Made => {}
            Decision::Refused(Reason(why)) => {
                self.pass(source.bytes());
                self.unsent.push(Unsent { path: source.shown().to_owned(), why: Error::Refused(why) });
            }
        }
        Ok(())
    }

    /// Compares blocks that the receiver has with those of the file.
    pub(super) fn compare(&mut self, (file, first): (Number, u32), digests: &[Digest], is_all: bool) -> Result<()> {
        let number = file as usize;
        let source = Arc::clone(self.collection.sources.get(number).ok_or(Error::Nonsense(UNKNOWN))?);
        let told = self.resumed.get_mut(&number).ok_or(Error::Nonsense(UNKNOWN))?;
        // Each block is read once, however often the receiver would speak of it.
        let next = first.checked_add(digests.len() as u32).ok_or(Error::Nonsense(UNKNOWN))?;
        if first != std::mem::replace(&mut told.next, next) || u64::from(next) > blocks::count(source.bytes()) {
            return Err(Error::Nonsense("it speaks of blocks that it cannot have"));
        }
        let mut begun = Instant::now();
        // A file that cannot be read says so when it is sent.
        if let Ok(file) = source.open() {
            for (block, theirs) in (u64::from(first)..blocks::count(source.bytes())).zip(digests) {
                let range = (block * BLOCK, (source.bytes() - block * BLOCK).min(BLOCK));
                if digest(&file, range, &mut self.buffer).is_ok_and(|own| own == *theirs) {
                    set_bit(&mut told.kept, block);
                }
                // The receiver waits meanwhile, and a disk may be slow.
                let signs = begun.elapsed().as_millis() / SIGN.as_millis();
                if signs > 0 {
                    begun = Instant::now();
                    (0..signs).try_for_each(|_| self.channel.queue(&FromSender::Digests(Vec::new())))?;
                    self.channel.flush()?;
                }
            }
        }
        if is_all && let Some(Told { kept, .. }) = self.resumed.remove(&number) {
            let blocks = (0..blocks::count(source.bytes())).filter(|block| bit(&kept, *block));
            let resumed = blocks.map(|block| (source.bytes() - block * BLOCK).min(BLOCK)).sum();
            // Its verdict comes at once if nothing of it is missing.
            self.unjudged.insert(number, Amount { resumed, ..Amount::default() });
            self.pass(resumed);
            self.channel.send(&FromSender::Keep { file, blocks: kept.clone() })?;
            self.ready.push_back(Wanted { number, kept });
        }
        Ok(())
    }
}

/// In the time that it reads its own blocks to compare them, a sender says digests of nothing, one for each so much time: several times
/// as many bytes as a receiver waits for ([`crate::progress`]).
const SIGN: Duration = Duration::from_millis(250);

/// Bytes of an entry in an offer, at most.
fn size(entry: &Entry) -> usize {
    let attributes: usize = entry.attributes.iter().map(|one| one.name.len() + one.value.len() + ENTRY).sum();
    let target = if let EntryKind::Link { target } = &entry.kind { target.len() } else { 0 };
    ENTRY + entry.name.as_os_str().len() + attributes + target
}
