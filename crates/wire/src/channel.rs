//! Messages after the handshake: JSON in frames, each with a tag over it and its number.
//!
//! The number is not sent: both sides count. So a dropped, repeated or reordered frame has a wrong tag too.

use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::deadline::{Connection, Deadline};
use crate::{Error, Result, frame};

/// One end.
#[derive(Debug)]
pub struct Channel<S = TcpStream> {
    stream: S,
    outgoing: Tags,
    incoming: Tags,
}

impl<S> Channel<S> {
    /// Over a connection, with the keys of the two directions.
    pub(crate) fn new(stream: S, outgoing: [u8; 32], incoming: [u8; 32]) -> Self {
        Self { stream, outgoing: Tags::new(outgoing), incoming: Tags::new(incoming) }
    }

    /// The connection below.
    pub fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: Connection> Channel<S> {
    /// Sends a message, which the other side must accept within this time.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send(&mut self, message: &impl Serialize, within: Duration) -> Result<()> {
        self.send_text(&serde_json::to_vec(message).map_err(Error::not_understood)?, within)
    }

    /// The same for a serialised message.
    pub(crate) fn send_text(&mut self, text: &[u8], within: Duration) -> Result<()> {
        let tag = self.outgoing.next(text);
        frame::send(&mut self.stream, &[tag.as_bytes(), text], &Deadline::within(within), "take a message")
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T> {
        let frame = frame::receive(&mut self.stream, &Deadline::within(within), "say anything")?;
        let Some((tag, text)) = frame.split_at_checked(blake3::OUT_LEN) else { return Err(Error::Changed) };
        // `Hash` compares in constant time.
        if self.incoming.next(text) != blake3::Hash::from_slice(tag).map_err(|_| Error::Changed)? {
            return Err(Error::Changed);
        }
        serde_json::from_slice(text).map_err(Error::not_understood)
    }
}

/// The tags of the messages of one direction.
struct Tags {
    key: [u8; 32],
    count: u64,
}

impl Tags {
    fn new(key: [u8; 32]) -> Self {
        Self { key, count: 0 }
    }

    fn next(&mut self, text: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.count.to_le_bytes()).update(text);
        self.count += 1;
        hasher.finalize()
    }
}

impl std::fmt::Debug for Tags {
    /// Never the key.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Tags").field("count", &self.count).finish_non_exhaustive()
    }
}
