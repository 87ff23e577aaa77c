//! The end of a sending: what both ends measured is exchanged, and what was to be expected is found out.

use std::sync::Arc;

use kelvin_file::Error as FileError;

use super::Sender;
use super::files::read_whole;
use crate::datapath::{PathMethod, SendMethod, SendSetup};
use crate::link_usage::LinkUsage;
use crate::message::{ReceiverMessage, RefusalReason, SenderMessage, SenderReport, SessionSettings};
use crate::rate_prediction::{self, RatePrediction, StageCosts, TransferWork};
use crate::raw_protocol::ConnectionLifetime;
use crate::secure_channel::{PART_BYTES, TransferStream};
use crate::session::{MAX_SMALL_FILE, is_small};
use crate::source::{SourceEntry, SourceOpener};
use crate::stage_times::StorageKind;
use crate::stream_choice::StreamChoice;
use crate::summary::{MovedFiles, TransferSummary};
use crate::{Error, Result};

/// What became of all that was sent.
pub(super) struct SendOutcome {
    pub(super) moved: MovedFiles,
    /// Files that were not moved.
    pub(super) failed: u64,
    pub(super) method: Option<SendMethod>,
    /// How that was set up, if it was not by parts.
    pub(super) setup: Option<SendSetup>,
    pub(super) chosen: Option<StreamChoice>,
    pub(super) carried: Option<LinkUsage>,
}

impl<S: TransferStream> Sender<S> {
    /// Has the receiver finish, and exchanges what was measured.
    pub(super) fn finish(mut self, sources: &[Arc<SourceEntry>], ended: SendOutcome) -> Result<TransferSummary> {
        let SendOutcome { moved, failed, method, setup, chosen, carried } = ended;
        self.channel.send(&SenderMessage::End)?;
        let finished = loop {
            match self.channel.receive()? {
                ReceiverMessage::Finished(finished) => break finished,
                // Of files that were abandoned.
                ReceiverMessage::Verdicts(_) | ReceiverMessage::JoinInvitation(_) | ReceiverMessage::Arrived(_) => {}
                ReceiverMessage::Refused(RefusalReason(why)) => return Err(Error::RefusedAll(why)),
                _ => return Err(Error::ProtocolViolation("it does not say what it measured")),
            }
        };
        let nanoseconds = (self.started_at.elapsed().as_nanos() as u64).saturating_sub(finished.since);
        let load = self.meter.finish(self.channel.times, source_storage(sources));
        let SessionSettings { plain, verify, sync, connection, .. } = self.options.settings;
        let streams = chosen.map_or(self.options.settings.streams, |chosen| chosen.streams);
        let mut summary = TransferSummary {
            moved,
            failed,
            nanoseconds,
            verified: verify,
            encrypted: !plain,
            flushed: sync.then_some(finished.since),
            streams,
            chosen,
            connection,
            sender: load,
            receiver: finished.load,
            carried,
            received_by: finished.method,
            expected: None,
            unwritten: finished.unwritten,
            method,
        };
        // What several threads take from each other is not known.
        let costs = finished.costs.filter(|_| streams == 1 && summary.is_predictable());
        summary.expected = costs.and_then(|receiver| self.predict_rate(sources, receiver, (&summary, setup)));
        let expected = summary.expected;
        let measured = SenderReport { nanoseconds, failed, load, carried, expected, method, chosen };
        self.channel.send(&SenderMessage::Finish(Box::new(measured)))?;
        Ok(summary)
    }

    /// The rate that was to be expected of two ends of which one has these costs; nothing where that cannot be found out.
    fn predict_rate(
        &self,
        sources: &[Arc<SourceEntry>],
        receiver: StageCosts,
        (summary, setup): (&TransferSummary, Option<SendSetup>),
    ) -> Option<RatePrediction> {
        let SessionSettings { connection, verify, .. } = self.options.settings;
        if connection == ConnectionLifetime::PerFile {
            // What connecting takes is not known.
            return None;
        }
        let at_once = setup.map_or(PART_BYTES, |setup| setup.buffer.min(PART_BYTES));
        let [sender, _] = rate_prediction::stage_costs(&self.options.settings, at_once).ok()?;
        let (read, each) = (source_reading_cost(sources).ok()?, source_opening_cost(sources).ok()?);
        let sender = match setup {
            // It reads and sends, and what it does not show is read again to be hashed.
            Some(setup) => {
                let file = if verify && !setup.method.shows_bytes() { read } else { 0 };
                StageCosts { file, each, connection: source_sending_cost(sources, setup).ok()?, ..sender }
            }
            None => StageCosts { file: read, each, ..sender },
        };
        let (MovedFiles { amount, small, .. }, link) =
            (summary.moved, summary.carried.and_then(|carried| carried.most));
        let work = TransferWork { bytes: amount.moved, small, limit: self.options.limit, link };
        RatePrediction::from_costs([sender, receiver], work)
    }
}

/// What lies under what is sent.
fn source_storage(sources: &[Arc<SourceEntry>]) -> StorageKind {
    match sources.iter().find(|source| source.is_file()) {
        Some(source) if source.is_stdin() => StorageKind::Pipe,
        source => source.map_or(StorageKind::Nothing, |source| StorageKind::of_path(&source.path)),
    }
}

/// What reading the first large file again costs, in picoseconds a byte; nothing if there is none.
fn source_reading_cost(sources: &[Arc<SourceEntry>]) -> Result<u64> {
    let Some(source) = sources.iter().find(|source| source.bytes() > MAX_SMALL_FILE) else { return Ok(0) };
    let read = rate_prediction::reading_cost(&source.open()?, source.bytes());
    Ok(read.map_err(|error| FileError::call("read", &source.path, error))?)
}

/// What sending the first large file again by a method of its own costs, in picoseconds a byte.
fn source_sending_cost(sources: &[Arc<SourceEntry>], setup: SendSetup) -> Result<u64> {
    let Some(source) = sources.iter().find(|source| source.bytes() > MAX_SMALL_FILE) else { return Ok(0) };
    let sent = rate_prediction::send_method_cost(&source.open()?, source.bytes(), setup);
    Ok(sent.map_err(|error| FileError::call("read", &source.path, error))?)
}

/// What opening and reading a small file again costs, in nanoseconds of CPU time; nothing if there is none.
fn source_opening_cost(sources: &[Arc<SourceEntry>]) -> Result<u64> {
    let small: Vec<&Arc<SourceEntry>> =
        sources.iter().filter(|source| is_small(&source.entry)).take(rate_prediction::MAX_TIMED_FILES).collect();
    let (mut content, mut opener) = (vec![0; MAX_SMALL_FILE as usize + 1], SourceOpener::default());
    let mut one =
        |source: &&Arc<SourceEntry>| read_whole(source, opener.open(source)?, &mut content[..=source.bytes() as usize]);
    let mut failed = Ok(());
    let spent = rate_prediction::cpu_time(|| {
        failed = small.iter().try_for_each(&mut one);
        Ok(())
    });
    let unknown = |error| FileError::call("time", std::path::Path::new("."), error);
    failed.and(Ok(spent.map_err(unknown)? / small.len().max(1) as u64))
}
