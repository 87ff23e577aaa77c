//! Deleting what a sender did not offer: it is listed, the sender chooses, and learns what could not be deleted.

use std::time::Instant;

use super::{DIGEST_REPORT_INTERVAL, MAX_PER_MESSAGE, ReceiveSession, SessionEvent};
use crate::extraneous::ExtraneousList;
use crate::message::{DeletionFailure, ExtraneousEntry, ListEnd, ReceiverMessage, RefusalReason, SenderMessage};
use crate::secure_channel::{SecureChannel, TransferStream};
use crate::{Error, Result};

/// Most bytes of the names in a message, and of an entry in addition to its name.
const MAX_LIST_BYTES: usize = 40 << 10;
const MAX_ENTRY_OVERHEAD: usize = 16;

impl<S: TransferStream> ReceiveSession<'_, S> {
    /// Lists what was not offered, and deletes what the sender chooses of it.
    pub(super) fn serve_deletion(&mut self) -> Result<()> {
        let has_all = self.wanted_files.is_empty() && self.arriving_files.is_empty();
        Error::ensure(has_all, "it asks what it did not offer before all has come")?;
        self.flush_verdicts()?;
        let not_asked = Error::ProtocolViolation("it deletes again, or what it did not announce");
        let (tree, offered) = self.policy.take_deletion().ok_or(not_asked)?;
        let mut list = ExtraneousList::default();
        let mut sent = ListSender { first: 0, last_sent: Instant::now() };
        let found =
            tree.map_or(Ok(()), |tree| list.find(tree, &offered, |list| sent.send_if_due(list, self.channels.first)));
        let end = match found {
            Err(why) if !why.is_per_file() && !matches!(why, Error::NamesDiffer(_) | Error::TooManyExtraneous) => {
                return Err(why);
            }
            Err(why) => ListEnd::Failed(RefusalReason(why.wire_text())),
            Ok(()) => ListEnd::Complete,
        };
        let is_complete = end == ListEnd::Complete;
        sent.send_rest(&list, end, self.channels.first)?;
        let chosen = self.receive_choice(if is_complete { list.len() } else { 0 })?;
        let failures = self.delete(&list, &chosen);
        let mut chunks = failures.chunks(MAX_PER_MESSAGE).peekable();
        while let Some(chunk) = chunks.next() {
            let (failures, is_all) = (chunk.to_vec(), chunks.peek().is_none());
            self.channels.first.queue(&ReceiverMessage::Deleted { failures, is_all })?;
        }
        if failures.is_empty() {
            self.channels.first.queue(&ReceiverMessage::Deleted { failures, is_all: true })?;
        }
        self.channels.first.flush()
    }

    /// Which of the list the sender chooses: all of its messages name higher numbers first.
    fn receive_choice(&mut self, count: usize) -> Result<Vec<u32>> {
        let mut chosen: Vec<u32> = Vec::new();
        loop {
            let SenderMessage::Delete { entries, is_all } = self.channels.first.receive()? else {
                return Err(Error::ProtocolViolation("it does not choose what is to be deleted"));
            };
            for entry in entries {
                let is_next = (entry as usize) < chosen.last().map_or(count, |last| *last as usize);
                Error::ensure(is_next, "it chooses what is not on the list")?;
                chosen.push(entry);
            }
            if is_all {
                return Ok(chosen);
            }
        }
    }

    /// Deletes these, or in a dry run reports them.
    fn delete(&mut self, list: &ExtraneousList, chosen: &[u32]) -> Vec<DeletionFailure> {
        let mut failures = Vec::new();
        let Some(tree) = self.policy.tree() else { return failures };
        for &entry in chosen {
            let path = list.path(tree, entry as usize);
            let deleted = if self.settings.dry_run { Ok(()) } else { list.delete(tree, entry as usize) };
            match deleted {
                Ok(()) => (self.on_event)(SessionEvent::Deleted(path)),
                Err(why) => {
                    failures.push(DeletionFailure { entry, why: RefusalReason(why.wire_text()) });
                    (self.on_event)(SessionEvent::FileFailed(path, why));
                }
            }
        }
        failures
    }
}

/// Sends a list as it is made.
struct ListSender {
    /// The first entry that was not sent.
    first: usize,
    last_sent: Instant,
}

impl ListSender {
    /// Sends what has been found from time to time: the sender waits for it, and a disk may be slow.
    fn send_if_due<S: TransferStream>(&mut self, list: &ExtraneousList, channel: &mut SecureChannel<S>) -> Result<()> {
        Error::check_stop()?;
        if self.last_sent.elapsed() < DIGEST_REPORT_INTERVAL {
            return Ok(());
        }
        self.last_sent = Instant::now();
        self.send_found(list, channel)?;
        // Something comes in any case.
        channel.send(&ReceiverMessage::Extraneous { entries: Vec::new(), end: None })
    }

    fn send_rest<S: TransferStream>(
        &mut self,
        list: &ExtraneousList,
        end: ListEnd,
        channel: &mut SecureChannel<S>,
    ) -> Result<()> {
        self.send_found(list, channel)?;
        channel.send(&ReceiverMessage::Extraneous { entries: Vec::new(), end: Some(end) })
    }

    /// Sends all that was not sent.
    fn send_found<S: TransferStream>(&mut self, list: &ExtraneousList, channel: &mut SecureChannel<S>) -> Result<()> {
        while self.first < list.len() {
            let mut bytes = 0;
            let fits = |entry: &&ExtraneousEntry| {
                bytes += entry.name.as_os_str().len() + MAX_ENTRY_OVERHEAD;
                bytes <= MAX_LIST_BYTES
            };
            let entries: Vec<ExtraneousEntry> = list.entries_from(self.first).take_while(fits).cloned().collect();
            self.first += entries.len();
            channel.send(&ReceiverMessage::Extraneous { entries, end: None })?;
        }
        Ok(())
    }
}
