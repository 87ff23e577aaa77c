//! What the receiver has and the sender has not is deleted there, once all was sent.
//!
//! The receiver lists what was not offered. Of that everything stays that is here all the same, because it was left out or could not be
//! read, and everything that is excluded, with what is above and below it.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{SendSession, UnsentFile};
use crate::extraneous::{MAX_EXTRANEOUS, MAX_EXTRANEOUS_BYTES};
use crate::message::{
    DeletionFailure, EntryKind, ExtraneousEntry, ExtraneousParent, ListEnd, ReceiverMessage, RefusalReason,
    SenderMessage,
};
use crate::secure_channel::TransferStream;
use crate::send::offering::KEEPALIVE_INTERVAL;
use crate::source::SourceList;
use crate::{Error, Result};

/// Numbers in a message, of at most five bytes each.
const MAX_CHOSEN: usize = 8192;

/// What was deleted at the receiver.
#[derive(Debug, Default)]
pub struct DeletionResult {
    /// What was deleted, or in a dry run would be: paths from the receiver's directory.
    pub deleted: Vec<PathBuf>,
    /// Why nothing was, if something should have been.
    pub refused: Option<String>,
}

/// Something that the receiver has, and how it is found at both ends.
struct ListedPath {
    is_directory: bool,
    source_path: PathBuf,
    arrival_path: PathBuf,
    parent: ExtraneousParent,
    /// Whether it stays, with all that is in it.
    is_kept: bool,
}

/// A directory that was offered, and how it is found at both ends.
struct OfferedPath {
    source_path: PathBuf,
    arrival_path: PathBuf,
}

impl<S: TransferStream> SendSession<'_, S> {
    /// Deletes what is to be deleted, if anything is.
    pub(super) fn delete_extraneous(&mut self) -> Result<DeletionResult> {
        if !self.options.settings.delete {
            return Ok(DeletionResult::default());
        }
        if !self.collection.unread.is_empty() {
            let why = "nothing was deleted, since not all could be read here";
            return Ok(DeletionResult { deleted: Vec::new(), refused: Some(why.to_owned()) });
        }
        self.channels.first.send(&SenderMessage::QueryExtraneous)?;
        let (entries, end) = self.receive_list()?;
        let listed = self.find_paths(entries)?;
        let mut chosen: Vec<u32> = match end {
            ListEnd::Complete => choose(&listed),
            ListEnd::Failed(_) => Vec::new(),
        };
        let refused = match (end, self.options.max_delete) {
            (ListEnd::Failed(RefusalReason(why)), _) => Some(format!("the receiver says: {why}")),
            (ListEnd::Complete, Some(limit)) if chosen.len() as u64 > limit => {
                let count = kelvin_core::units::count(chosen.len() as u64);
                chosen.clear();
                Some(format!("nothing was deleted: {count} are to be, and --max-delete allows {limit}"))
            }
            _ => None,
        };
        let failures = self.send_choice(&chosen)?;
        let failed: HashSet<u32> = failures.iter().map(|failure| failure.entry).collect();
        let deleted = chosen.iter().filter(|entry| !failed.contains(entry));
        let mut deleted: Vec<PathBuf> = deleted.map(|&entry| listed[entry as usize].arrival_path.clone()).collect();
        deleted.sort();
        for DeletionFailure { entry, why: RefusalReason(why) } in failures {
            let path = listed[entry as usize].arrival_path.clone();
            self.unsent.push(UnsentFile { path, why: Error::Refused(why) });
        }
        Ok(DeletionResult { deleted, refused })
    }

    /// All that the receiver lists.
    fn receive_list(&mut self) -> Result<(Vec<ExtraneousEntry>, ListEnd)> {
        let (mut list, mut bytes): (Vec<ExtraneousEntry>, usize) = (Vec::new(), 0);
        loop {
            match self.channels.first.receive()? {
                ReceiverMessage::Extraneous { entries, end } => {
                    bytes += entries.iter().map(|entry| entry.name.as_os_str().len()).sum::<usize>();
                    list.extend(entries);
                    let is_allowed = list.len() <= MAX_EXTRANEOUS && bytes <= MAX_EXTRANEOUS_BYTES;
                    Error::ensure(is_allowed, "it lists more than it may")?;
                    if let Some(end) = end {
                        return Ok((list, end));
                    }
                }
                // Of files that were abandoned.
                ReceiverMessage::Verdicts(_) | ReceiverMessage::JoinInvitation(_) | ReceiverMessage::Arrived(_) => {}
                ReceiverMessage::Refused(RefusalReason(why)) => return Err(Error::RefusedAll(why)),
                _ => return Err(Error::ProtocolViolation("it does not list what was not offered")),
            }
        }
    }

    /// How all of the list is found at both ends, and what of it stays.
    fn find_paths(&mut self, entries: Vec<ExtraneousEntry>) -> Result<Vec<ListedPath>> {
        let offered = offered_directories(&self.collection);
        let (mut listed, mut last_keepalive): (Vec<ListedPath>, Instant) = (Vec::new(), Instant::now());
        for ExtraneousEntry { parent, name, is_directory } in entries {
            let name = name.as_os_str();
            let parents = match parent {
                ExtraneousParent::Offered(number) => {
                    let found = offered.get((number as usize).wrapping_sub(1)).ok_or(UNKNOWN_DIRECTORY)?;
                    (&found.source_path, &found.arrival_path, false)
                }
                ExtraneousParent::Extraneous(number) => {
                    let found = listed.get(number as usize).filter(|found| found.is_directory);
                    let found = found.ok_or(UNKNOWN_DIRECTORY)?;
                    (&found.source_path, &found.arrival_path, found.is_kept)
                }
            };
            let (source_path, arrival_path) = (parents.0.join(name), parents.1.join(name));
            let is_kept =
                parents.2 || self.collection.filter().excludes(&arrival_path, is_directory) || may_exist(&source_path);
            listed.push(ListedPath { is_directory, source_path, arrival_path, parent, is_kept });
            // The receiver waits meanwhile.
            if last_keepalive.elapsed() >= KEEPALIVE_INTERVAL {
                last_keepalive = Instant::now();
                self.channels.first.send(&SenderMessage::Delete { entries: Vec::new(), is_all: false })?;
            }
        }
        Ok(listed)
    }

    /// Sends what is to be deleted; returns what could not be.
    fn send_choice(&mut self, chosen: &[u32]) -> Result<Vec<DeletionFailure>> {
        for entries in chosen.chunks(MAX_CHOSEN) {
            self.channels.first.queue(&SenderMessage::Delete { entries: entries.to_vec(), is_all: false })?;
        }
        self.channels.first.send(&SenderMessage::Delete { entries: Vec::new(), is_all: true })?;
        let mut all = Vec::new();
        loop {
            let ReceiverMessage::Deleted { failures, is_all } = self.channels.first.receive()? else {
                return Err(Error::ProtocolViolation("it does not report what it deleted"));
            };
            let is_chosen =
                |failure: &DeletionFailure| chosen.binary_search_by(|entry| failure.entry.cmp(entry)).is_ok();
            Error::ensure(failures.iter().all(is_chosen), "it reports what was not to be deleted")?;
            all.extend(failures);
            Error::ensure(all.len() <= chosen.len(), "it reports what was not to be deleted")?;
            if is_all {
                return Ok(all);
            }
        }
    }
}

/// What a receiver did wrong.
const UNKNOWN_DIRECTORY: Error = Error::ProtocolViolation("it names a directory that was not offered");

/// Whether something has this path here, as far as can be found out.
fn may_exist(path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    !found.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// The directories that were offered, in the order of their numbers.
fn offered_directories(collection: &SourceList) -> Vec<OfferedPath> {
    let mut offered: Vec<OfferedPath> = Vec::new();
    for source in collection.sources.iter().filter(|source| source.entry.kind == EntryKind::Directory) {
        let parent = offered.get((source.entry.parent as usize).wrapping_sub(1));
        let arrival_path = parent.map_or_else(PathBuf::new, |parent| parent.arrival_path.clone());
        let arrival_path = arrival_path.join(source.entry.name.as_os_str());
        offered.push(OfferedPath { source_path: source.path.clone(), arrival_path });
    }
    offered
}

/// What is to be deleted, the last first: a directory is not while something in it stays.
fn choose(listed: &[ListedPath]) -> Vec<u32> {
    let mut has_kept = vec![false; listed.len()];
    let mut chosen = Vec::new();
    for (number, entry) in listed.iter().enumerate().rev() {
        if !entry.is_kept && !has_kept[number] {
            chosen.push(number as u32);
        } else if let ExtraneousParent::Extraneous(parent) = entry.parent {
            has_kept[parent as usize] = true;
        }
    }
    chosen
}
