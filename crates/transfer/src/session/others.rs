//! More connections of a session at the receiver, as its sender asks for them: by what they join, and which file they carry.

use super::Session;
use crate::bare::Connection;
use crate::channel::Stream;
use crate::chosen::Chosen;
use crate::joined::{Joinable, STREAMS};
use crate::message::{Arrived, FromReceiver, Invitation, Number, Reason, Settings};
use crate::{Error, Result};

impl<S: Stream> Session<'_, S> {
    /// Tells the sender by what more connections can join.
    pub(super) fn expect_others(&mut self) -> Result<()> {
        let is_per_file = self.settings.connection == Connection::PerFile;
        let Some(sessions) = self.sessions.filter(|_| is_per_file || self.desk.takes_any_order()) else {
            let why = if is_per_file { Error::OneConnection } else { Error::OneStream };
            self.channel.send(&FromReceiver::Refused(Reason(why.told())))?;
            return Err(why);
        };
        let streams = sessions.begin(self.settings)?;
        self.channel.send(&FromReceiver::Session(streams.id()))?;
        self.streams = Some(streams);
        Ok(())
    }

    /// Begins a file of which blocks may come over all streams.
    pub(super) fn split(&mut self, file: Number) -> Result<()> {
        if self.streams.is_none() || self.settings.connection == Connection::PerFile {
            return Err(Error::Nonsense("it splits a file, and has one stream"));
        }
        if self.place(file).is_none() && !self.failed.contains(&file) {
            self.begin(file)?;
        }
        let split = self.place(file).map(|place| self.arriving[place].deposit.split()).transpose()?;
        if let Some(streams) = &self.streams {
            streams.split(file, split);
        }
        Ok(())
    }

    /// No more of a file that was split is to come.
    pub(super) fn unsplit(&self, file: Number) {
        if let Some(streams) = &self.streams {
            streams.unsplit(file);
        }
    }

    /// Tells the sender by what more connections can join that it has not announced, if they can.
    pub(super) fn invite(&mut self) -> Result<()> {
        if self.streams.is_some() {
            return Err(Error::Nonsense("it asks again by what its session is joined"));
        }
        let takes_others = self.receiving.is_none() && self.desk.takes_any_order();
        let settings = Settings { streams: STREAMS, ..self.settings };
        self.streams = self.sessions.filter(|_| takes_others).map(|sessions| sessions.begin(settings)).transpose()?;
        let invitation = self.streams.as_ref().map(|streams| Invitation { session: streams.id(), most: STREAMS });
        self.channel.send(&FromReceiver::Invited(invitation))
    }

    /// Tells the sender how much has arrived, over all streams.
    pub(super) fn say_how_much(&mut self) -> Result<()> {
        let others = self.streams.as_ref().map_or(0, Joinable::arrived);
        let (bytes, nanoseconds) = (self.arrived + others, self.begun.elapsed().as_nanos() as u64);
        self.channel.send(&FromReceiver::Arrived(Arrived { bytes, nanoseconds }))
    }

    /// Over how many streams all has come: over as many as were chosen, if they were not announced.
    pub(super) fn streams_used(&self, chosen: Option<Chosen>) -> u32 {
        match (self.settings.streams, &self.streams) {
            (2.., Some(streams)) => streams.streams(),
            _ => chosen.map_or(1, |chosen| chosen.streams),
        }
    }
}
