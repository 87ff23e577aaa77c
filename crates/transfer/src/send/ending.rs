//! The end of a sending: what both ends measured is exchanged, and what was to be expected is found out.

use std::sync::Arc;

use kelvin_file::Error as FileError;

use super::Sender;
use super::files::read_whole;
use crate::bare::Connection;
use crate::carried::Carried;
use crate::channel::{PART, Stream};
use crate::chosen::Chosen;
use crate::expected::{self, Costs, Expected, Work};
use crate::load::Storage;
use crate::message::{FromReceiver, FromSender, Measured, Reason, Settings};
use crate::moving::{SendMethod, SendSetup};
use crate::session::{SMALL, is_small};
use crate::source::{Opener, Source};
use crate::summary::{Moved, Summary};
use crate::{Error, Result};

/// What became of all that was sent.
pub(super) struct Ended {
    pub(super) moved: Moved,
    /// Files that were not moved.
    pub(super) failed: u64,
    pub(super) method: Option<SendMethod>,
    /// How that was set up, if it was not by parts.
    pub(super) setup: Option<SendSetup>,
    pub(super) chosen: Option<Chosen>,
    pub(super) carried: Option<Carried>,
}

impl<S: Stream> Sender<S> {
    /// Has the receiver finish, and exchanges what was measured.
    pub(super) fn finish(mut self, sources: &[Arc<Source>], ended: Ended) -> Result<Summary> {
        let Ended { moved, failed, method, setup, chosen, carried } = ended;
        self.channel.send(&FromSender::End)?;
        let finished = loop {
            match self.channel.receive()? {
                FromReceiver::Finished(finished) => break finished,
                // Of files that were abandoned.
                FromReceiver::Verdicts(_) | FromReceiver::Invited(_) | FromReceiver::Arrived(_) => {}
                FromReceiver::Refused(Reason(why)) => return Err(Error::RefusedAll(why)),
                _ => return Err(Error::Nonsense("it does not say what it measured")),
            }
        };
        let nanoseconds = (self.begun.elapsed().as_nanos() as u64).saturating_sub(finished.since);
        let load = self.watch.load(self.channel.times, storage(sources));
        let Settings { plain, verify, sync, connection, .. } = self.manner.settings;
        let streams = chosen.map_or(self.manner.settings.streams, |chosen| chosen.streams);
        let mut summary = Summary {
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
        summary.expected = costs.and_then(|receiver| self.expected(sources, receiver, (&summary, setup)));
        let expected = summary.expected;
        let measured = Measured { nanoseconds, failed, load, carried, expected, method, chosen };
        self.channel.send(&FromSender::Finish(Box::new(measured)))?;
        Ok(summary)
    }

    /// The rate that was to be expected of two ends of which one has these costs; nothing where that cannot be found out.
    fn expected(
        &self,
        sources: &[Arc<Source>],
        receiver: Costs,
        (summary, setup): (&Summary, Option<SendSetup>),
    ) -> Option<Expected> {
        let Settings { connection, verify, .. } = self.manner.settings;
        if connection == Connection::PerFile {
            // What connecting takes is not known.
            return None;
        }
        let at_once = setup.map_or(PART, |setup| setup.buffer.min(PART));
        let [sender, _] = expected::stages(&self.manner.settings, at_once).ok()?;
        let (read, each) = (reading(sources).ok()?, opening(sources).ok()?);
        let sender = match setup {
            // It reads and sends, and what it does not show is read again to be hashed.
            Some(setup) => {
                let file = if verify && !setup.method.shows_bytes() { read } else { 0 };
                Costs { file, each, connection: sending(sources, setup).ok()?, ..sender }
            }
            None => Costs { file: read, each, ..sender },
        };
        let (Moved { amount, small, .. }, link) = (summary.moved, summary.carried.and_then(|carried| carried.most));
        let work = Work { bytes: amount.moved, small, limit: self.manner.limit, link };
        Expected::of([sender, receiver], work)
    }
}

/// What lies under what is sent.
fn storage(sources: &[Arc<Source>]) -> Storage {
    match sources.iter().find(|source| source.is_file()) {
        Some(source) if source.is_input() => Storage::Pipe,
        source => source.map_or(Storage::Nothing, |source| Storage::of(&source.path)),
    }
}

/// What reading the first large file again costs, in picoseconds a byte; nothing if there is none.
fn reading(sources: &[Arc<Source>]) -> Result<u64> {
    let Some(source) = sources.iter().find(|source| source.bytes() > SMALL) else { return Ok(0) };
    let read = expected::reading(&source.open()?, source.bytes());
    Ok(read.map_err(|error| FileError::call("read", &source.path, error))?)
}

/// What sending the first large file again by a method of its own costs, in picoseconds a byte.
fn sending(sources: &[Arc<Source>], setup: SendSetup) -> Result<u64> {
    let Some(source) = sources.iter().find(|source| source.bytes() > SMALL) else { return Ok(0) };
    let sent = expected::sending_by(&source.open()?, source.bytes(), setup);
    Ok(sent.map_err(|error| FileError::call("read", &source.path, error))?)
}

/// What opening and reading a small file again costs, in nanoseconds of CPU time; nothing if there is none.
fn opening(sources: &[Arc<Source>]) -> Result<u64> {
    let small: Vec<&Arc<Source>> =
        sources.iter().filter(|source| is_small(&source.entry)).take(expected::FILES).collect();
    let (mut content, mut opener) = (vec![0; SMALL as usize + 1], Opener::default());
    let mut one =
        |source: &&Arc<Source>| read_whole(source, opener.open(source)?, &mut content[..=source.bytes() as usize]);
    let mut failed = Ok(());
    let spent = expected::cpu_time(|| {
        failed = small.iter().try_for_each(&mut one);
        Ok(())
    });
    let unknown = |error| FileError::call("time", std::path::Path::new("."), error);
    failed.and(Ok(spent.map_err(unknown)? / small.len().max(1) as u64))
}
