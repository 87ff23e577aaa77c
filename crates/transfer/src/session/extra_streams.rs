//! More connections of a session at the receiver, as its sender asks for them: by what they join, and which file they carry.

use super::ReceiveSession;
use crate::message::StreamChoice;
use crate::message::{ArrivedBytes, EntryNumber, JoinInvitation, ReceiverMessage, RefusalReason, SessionSettings};
use crate::raw_protocol::ConnectionLifetime;
use crate::secure_channel::TransferStream;
use crate::session_streams::{MAX_STREAMS, OpenSession};
use crate::{Error, Result};

impl<S: TransferStream> ReceiveSession<'_, S> {
    /// Tells the sender by what more connections can join.
    pub(super) fn open_for_join(&mut self) -> Result<()> {
        let is_per_file = self.settings.connection == ConnectionLifetime::PerFile;
        let Some(sessions) = self.sessions.filter(|_| is_per_file || self.policy.accepts_any_order()) else {
            let why = if is_per_file { Error::SingleConnectionOnly } else { Error::SingleStreamOnly };
            self.channels.first.send(&ReceiverMessage::Refused(RefusalReason(why.wire_text())))?;
            return Err(why);
        };
        let streams = sessions.register(self.settings)?;
        self.channels.first.send(&ReceiverMessage::Session(streams.id()))?;
        self.open_session = Some(streams);
        Ok(())
    }

    /// Begins a file of which blocks may come over all streams.
    pub(super) fn begin_split(&mut self, file: EntryNumber) -> Result<()> {
        if self.open_session.is_none() || self.settings.connection == ConnectionLifetime::PerFile {
            return Err(Error::ProtocolViolation("it splits a file, and has one stream"));
        }
        if self.index_of(file).is_none() && !self.failed.contains(&file) {
            self.begin_file(file)?;
        }
        let split = self.index_of(file).map(|place| self.arriving[place].file.shared()).transpose()?;
        if let Some(streams) = &self.open_session {
            streams.begin_split(file, split);
        }
        Ok(())
    }

    /// No more of a file that was split is to come.
    pub(super) fn end_split(&self, file: EntryNumber) {
        if let Some(streams) = &self.open_session {
            streams.end_split(file);
        }
    }

    /// Tells the sender by what more connections can join that it has not announced, if they can.
    pub(super) fn send_invitation(&mut self) -> Result<()> {
        if self.open_session.is_some() {
            return Err(Error::ProtocolViolation("it asks again by what its session is joined"));
        }
        let takes_others = self.method.is_none() && self.policy.accepts_any_order();
        let settings = SessionSettings { streams: MAX_STREAMS, ..self.settings };
        self.open_session =
            self.sessions.filter(|_| takes_others).map(|sessions| sessions.register(settings)).transpose()?;
        let invitation =
            self.open_session.as_ref().map(|streams| JoinInvitation { session: streams.id(), most: MAX_STREAMS });
        self.channels.first.send(&ReceiverMessage::JoinInvitation(invitation))
    }

    /// Tells the sender how much has arrived, over all streams.
    pub(super) fn send_arrived(&mut self) -> Result<()> {
        let others = self.open_session.as_ref().map_or(0, OpenSession::arrived);
        let (bytes, nanoseconds) = (self.bytes_written + others, self.begun.elapsed().as_nanos() as u64);
        self.channels.first.send(&ReceiverMessage::Arrived(ArrivedBytes { bytes, nanoseconds }))
    }

    /// Over how many streams all has come: over as many as were chosen, if they were not announced.
    pub(super) fn streams_used(&self, chosen: Option<StreamChoice>) -> u32 {
        match (self.settings.streams, &self.open_session) {
            (2.., Some(streams)) => streams.streams(),
            _ => chosen.map_or(1, |chosen| chosen.streams),
        }
    }
}
