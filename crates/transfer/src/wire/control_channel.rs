//! Messages after the handshake: JSON in frames, each of them encrypted.

use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::cipher::{Opener, Sealer};
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::{Error, Result, frame};

/// One end.
#[derive(Debug)]
pub struct ControlChannel<S = TcpStream> {
    stream: S,
    sealer: Sealer,
    opener: Opener,
}

impl<S> ControlChannel<S> {
    /// Over a connection, after its handshake.
    pub fn new(stream: S, (sealer, opener): (Sealer, Opener)) -> Self {
        Self { stream, sealer, opener }
    }

    /// The connection below.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The same, to be changed by a test.
    #[cfg(test)]
    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: TimedStream> ControlChannel<S> {
    /// Sends a message, which the other side must accept within this time.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send(&mut self, message: &impl Serialize, within: Duration) -> Result<()> {
        self.send_serialized(&serde_json::to_vec(message).map_err(Error::malformed)?, within)
    }

    /// The same for a serialised message.
    pub(crate) fn send_serialized(&mut self, text: &[u8], within: Duration) -> Result<()> {
        let mut sealed = Vec::new();
        self.sealer.seal(text, &mut sealed)?;
        frame::send(&mut self.stream, &sealed, &Deadline::within(within), "take a message")
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T> {
        let sealed = frame::receive(&mut self.stream, &Deadline::within(within), "say anything")?;
        let mut text = vec![0; sealed.len()];
        let length = self.opener.open(&sealed, &mut text)?;
        serde_json::from_slice(&text[..length]).map_err(Error::malformed)
    }
}
