//! The encrypted channel after the handshake: messages, and the bytes of files.
//!
//! Everything is in frames, each a length of four bytes, the least significant first, and so many bytes. A message is one
//! encrypted frame. The bytes of a file are encrypted frames too, or plain ones; an empty one says that the rest will not come.
//! Noise numbers what it encrypts, so a frame that is changed, dropped, repeated or reordered is noticed; plain ones are noticed
//! by the digest, which goes encrypted.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use kelvin_wire::deadline::{Connection, Deadline};
use kelvin_wire::frame;
use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::TransportState;

use crate::summary::{Times, timed};
use crate::{Error, Result};

/// Most bytes of a file that are sent at once: fewer calls than by pages, and still in a core's own cache.
pub const PART: usize = 256 << 10;
/// Most bytes of an encrypted frame, and of its content: Noise has 65,535 (section 3), of which 16 are the tag.
const ENCRYPTED: usize = 65_535;
const TAG: usize = 16;
const CONTENT: usize = ENCRYPTED - TAG;
/// Bytes of a frame's length.
const HEAD: usize = 4;
/// Time for the next frame: a disk that flushes may take long, and a host that is gone must not hold a place for ever.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is waited for.
const TO_TAKE: &str = "take what was sent";
const TO_SEND: &str = "send anything";

/// One end.
pub struct Channel<S = TcpStream> {
    stream: S,
    noise: TransportState,
    /// Whether the bytes of files go plain.
    plain: bool,
    /// What is sent, or has come, encrypted.
    frames: Vec<u8>,
    /// How long this end was at its stages.
    pub times: Times,
}

impl<S: Connection> Channel<S> {
    /// Over a connection, after the handshake.
    pub fn new(stream: S, noise: TransportState) -> Self {
        Self { stream, noise, plain: false, frames: Vec::new(), times: Times::default() }
    }

    /// From now on the bytes of files go plain, or not.
    pub fn set_plain(&mut self, plain: bool) {
        self.plain = plain;
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|_| Error::Nonsense("a message that cannot be written"))?;
        self.frames.clear();
        self.seal(&text)?;
        Ok(Deadline::within(PATIENCE).drain(&mut self.stream, &self.frames, TO_TAKE)?)
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let frame = frame::receive(&mut self.stream, &Deadline::within(PATIENCE), TO_SEND)?;
        let mut text = vec![0; frame.len()];
        let length = self.noise.read_message(&frame, &mut text).map_err(|_| Error::Changed)?;
        Ok(serde_json::from_slice(&text[..length]).map_err(kelvin_wire::Error::not_understood)?)
    }

    /// Sends bytes of a file, at most [`PART`]; none of them: the rest will not come.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send_part(&mut self, part: &[u8]) -> Result<()> {
        self.frames.clear();
        let deadline = Deadline::within(PATIENCE);
        if self.plain {
            let head = (part.len() as u32).to_le_bytes();
            let (stream, times) = (&mut self.stream, &mut self.times);
            let sent = || deadline.drain(stream, &head, TO_TAKE).and_then(|()| deadline.drain(stream, part, TO_TAKE));
            return Ok(timed(&mut times.connection, sent)?);
        }
        let mut cipher = 0;
        timed(&mut cipher, || match part {
            [] => self.seal(part),
            _ => part.chunks(CONTENT).try_for_each(|chunk| self.seal(chunk)),
        })?;
        self.times.cipher += cipher;
        let (stream, frames) = (&mut self.stream, &self.frames);
        Ok(timed(&mut self.times.connection, || deadline.drain(stream, frames, TO_TAKE))?)
    }

    /// Waits for bytes of a file, and returns how many of the buffer's [`PART`] they fill: none, if the rest will not come.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive_part(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = if self.plain { PART } else { ENCRYPTED };
        let (stream, frames, plain) = (&mut self.stream, &mut self.frames, self.plain);
        let deadline = Deadline::within(PATIENCE);
        let length = timed(&mut self.times.connection, || {
            let mut head = [0; HEAD];
            deadline.fill(stream, &mut head, TO_SEND)?;
            let claimed = u32::from_le_bytes(head) as usize;
            if claimed > most {
                return Err(kelvin_wire::Error::TooLong { claimed, most });
            }
            if !plain {
                frames.resize(ENCRYPTED, 0);
            }
            let into = if plain { &mut buffer[..claimed] } else { &mut frames[..claimed] };
            deadline.fill(stream, into, TO_SEND).map(|()| claimed)
        })?;
        if plain {
            return Ok(length);
        }
        let (noise, frames) = (&mut self.noise, &self.frames[..length]);
        timed(&mut self.times.cipher, || noise.read_message(frames, buffer)).map_err(|_| Error::Changed)
    }

    /// Adds an encrypted frame to those to be sent.
    fn seal(&mut self, content: &[u8]) -> Result<()> {
        if content.len() > CONTENT {
            return Err(kelvin_wire::Error::TooLong { claimed: content.len(), most: CONTENT }.into());
        }
        let start = self.frames.len();
        let length = content.len() + TAG;
        self.frames.extend_from_slice(&(length as u32).to_le_bytes());
        self.frames.resize(start + HEAD + length, 0);
        let sealed = self.noise.write_message(content, &mut self.frames[start + HEAD..]);
        sealed.map(drop).map_err(|_| Error::Changed)
    }
}

#[cfg(test)]
impl<S> Channel<S> {
    /// The connection below, and the state of the encryption.
    pub(crate) fn parts(&mut self) -> (&mut S, &mut TransportState) {
        (&mut self.stream, &mut self.noise)
    }
}

impl Channel {
    /// Whether the other side has said something that was not read yet.
    ///
    /// # Errors
    /// A failed call.
    pub fn is_called(&self) -> Result<bool> {
        let readable = kelvin_sys::ready::readable(self.stream.as_fd(), Duration::ZERO);
        Ok(readable.map_err(kelvin_wire::Error::call("look for an answer"))?)
    }
}
