//! The end of a sending: what both ends measured is exchanged, and what was to be expected is found out.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::files::read_whole;
use super::stream_tuner::StreamTuner;
use super::{SendResult, SendSession, UnsentFile};
use crate::datapath::PathMethod;
use crate::message::{
    ConnectionLifetime, MAX_SMALL_FILE, ReceiverMessage, RefusalReason, SenderMessage, SenderReport, SessionSettings,
};
use crate::rate_prediction::{RatePrediction, StageCosts, TransferWork};
use crate::secure_channel::{PART_BYTES, TransferStream};
use crate::source::{SourceEntry, SourceList, SourceOpener};
use crate::stage_times::StorageKind;
use crate::summary::{MovedFiles, TransferSummary};
use crate::{Error, Result, stage_costs};

impl<S: TransferStream> SendSession<'_, S> {
    /// Has the receiver finish, and exchanges what was measured.
    pub(super) fn finish(mut self) -> Result<SendResult> {
        self.methods.finish()?;
        let method = self.methods.method();
        let choice = self.tuner.as_ref().and_then(StreamTuner::choice);
        let carried = self.channels.link_usage();
        let deletion = self.delete_extraneous()?;
        let unread = std::mem::take(&mut self.collection.unread);
        let unread = unread.into_iter().map(|(path, why)| UnsentFile { path, why });
        let unsent: Vec<UnsentFile> = unread.chain(std::mem::take(&mut self.unsent)).collect();
        let failed = unsent.len() as u64;
        self.channels.first.send(&SenderMessage::End)?;
        let report = loop {
            match self.channels.first.receive()? {
                ReceiverMessage::Finished(report) => break report,
                // Of files that were abandoned.
                ReceiverMessage::Verdicts(_) | ReceiverMessage::JoinInvitation(_) | ReceiverMessage::Arrived(_) => {}
                ReceiverMessage::Refused(RefusalReason(why)) => return Err(Error::RefusedAll(why)),
                _ => return Err(Error::ProtocolViolation("it does not report what it measured")),
            }
        };
        let nanoseconds = (self.started_at.elapsed().as_nanos() as u64).saturating_sub(report.since);
        let load = self.meter.finish(self.channels.first.times, source_storage(&self.collection.sources));
        let settings = self.options.settings;
        let compression = settings.compressed.then(|| self.compression_totals.report());
        let streams = choice.map_or(settings.streams, |choice| choice.streams);
        let sent =
            SenderReport { nanoseconds, failed, load, carried, expected: None, method, chosen: choice, compression };
        let mut summary = TransferSummary { moved: self.moved, settings, streams, sent, received: report };
        // What several threads take from each other is not known.
        let is_predictable = streams == 1 && summary.is_predictable();
        summary.sent.expected = if is_predictable { self.predict_rate(&summary) } else { None };
        self.channels.first.send(&SenderMessage::Finish(Box::new(summary.sent)))?;
        let sizeless_files = self.collection.sources.iter().filter(|source| source.is_unsized()).count() as u64;
        let Self { unchanged, planned, moved_paths, collection: SourceList { skipped: omitted, .. }, .. } = self;
        Ok(SendResult { summary, moved_paths, unsent, unchanged, omitted, sizeless_files, planned, deletion })
    }

    /// The rate that was to be expected of two ends of which one has these costs; nothing where that cannot be found out.
    fn predict_rate(&self, summary: &TransferSummary) -> Option<RatePrediction> {
        let (receiver, setup, sources) = (summary.received.costs?, self.methods.setup(), &self.collection.sources);
        let SessionSettings { connection, verify, .. } = self.options.settings;
        if connection == ConnectionLifetime::PerFile {
            // What connecting takes is not known.
            return None;
        }
        let call_bytes = setup.map_or(PART_BYTES, |setup| setup.buffer.min(PART_BYTES));
        let [sender, _] = stage_costs::stage_costs(&self.options.settings, call_bytes).ok()?;
        let read_cost = first_large_cost(sources, stage_costs::reading_cost).ok()?;
        let per_file = source_opening_cost(sources).ok()?;
        let sender = match setup {
            // It reads and sends, and what it does not show is read again to be hashed.
            Some(setup) => {
                let file = if verify && !setup.method.shows_bytes() { read_cost } else { 0 };
                let send_cost = |source: &File, bytes| stage_costs::send_method_cost(source, bytes, setup);
                StageCosts { file, per_file, connection: first_large_cost(sources, send_cost).ok()?, ..sender }
            }
            None => StageCosts { file: read_cost, per_file, ..sender },
        };
        let (MovedFiles { amount, small_files: small, .. }, link) = (summary.moved, summary.link_rate());
        let work = TransferWork { bytes: amount.moved, small_files: small, limit: self.options.limit, link };
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

/// What reading or sending the first large file again costs, in picoseconds a byte; nothing if there is none.
fn first_large_cost(sources: &[Arc<SourceEntry>], cost: impl FnOnce(&File, u64) -> io::Result<u64>) -> io::Result<u64> {
    let Some(source) = sources.iter().find(|source| source.bytes() > MAX_SMALL_FILE) else { return Ok(0) };
    cost(&source.open().map_err(io::Error::other)?, source.bytes())
}

/// What opening and reading a small file again costs, in nanoseconds of CPU time; nothing if there is none.
fn source_opening_cost(sources: &[Arc<SourceEntry>]) -> io::Result<u64> {
    let small_files = sources.iter().filter(|source| source.entry.is_small()).take(stage_costs::MAX_TIMED_FILES);
    let small_files: Vec<&Arc<SourceEntry>> = small_files.collect();
    let (mut content, mut opener) = (vec![0; MAX_SMALL_FILE as usize + 1], SourceOpener::default());
    let mut read =
        |source: &&Arc<SourceEntry>| read_whole(source, opener.open(source)?, &mut content[..=source.bytes() as usize]);
    let cpu_time = stage_costs::cpu_time(|| small_files.iter().try_for_each(&mut read).map_err(io::Error::other))?;
    Ok(cpu_time / small_files.len().max(1) as u64)
}
