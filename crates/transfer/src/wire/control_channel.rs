//! Messages after the handshake: JSON in frames, each of them encrypted. A frame is its length in four bytes, the least significant
//! first, and this many bytes.

use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::cipher::{Opener, Sealer};
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::{Error, Result};

/// Most bytes of a frame: messages are short, and a forged length must not cost memory.
pub const MAX_FRAME_BYTES: usize = 64 << 10;

/// Bytes of its length.
const LENGTH_BYTES: usize = 4;

/// Sends one. Its length and its bytes in one call, so that they leave together.
///
/// # Errors
/// [`Error::FrameTooLong`], or see [`Deadline::write_full`].
pub fn send_frame(stream: &mut impl TimedStream, bytes: &[u8], deadline: &Deadline, doing: &'static str) -> Result<()> {
    let length = check_length(bytes.len())? as u32;
    deadline.write_full(stream, &[&length.to_le_bytes(), bytes].concat(), doing)
}

/// Receives one.
///
/// # Errors
/// [`Error::FrameTooLong`] before any of it is read, and see [`Deadline::read_full`].
pub fn receive_frame(stream: &mut impl TimedStream, deadline: &Deadline, doing: &'static str) -> Result<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    deadline.read_full(stream, &mut length, doing)?;
    let mut frame = vec![0; check_length(u32::from_le_bytes(length) as usize)?];
    deadline.read_full(stream, &mut frame, doing)?;
    Ok(frame)
}

fn check_length(length: usize) -> Result<usize> {
    if length > MAX_FRAME_BYTES {
        Err(Error::FrameTooLong { claimed: length, limit: MAX_FRAME_BYTES })
    } else {
        Ok(length)
    }
}

/// One end.
#[derive(Debug)]
pub struct ControlChannel<S = TcpStream> {
    /// The connection below.
    pub(crate) stream: S,
    sealer: Sealer,
    opener: Opener,
}

impl<S> ControlChannel<S> {
    /// Over a connection, after its handshake.
    pub fn new(stream: S, (sealer, opener): (Sealer, Opener)) -> Self {
        Self { stream, sealer, opener }
    }
}

impl<S: TimedStream> ControlChannel<S> {
    /// Sends a message, which the other side must accept within this time.
    ///
    /// # Errors
    /// Another side that is gone or does not read.
    pub fn send(&mut self, message: &impl Serialize, timeout: Duration) -> Result<()> {
        self.send_serialized(&serde_json::to_vec(message).map_err(Error::malformed)?, timeout)
    }

    /// Like `send`, for a serialised message.
    pub(crate) fn send_serialized(&mut self, text: &[u8], timeout: Duration) -> Result<()> {
        let mut sealed = Vec::new();
        self.sealer.seal(text, &mut sealed)?;
        send_frame(&mut self.stream, &sealed, &Deadline::within(timeout), "take a message")
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// Another side that is gone, silent, or breaks the protocol.
    pub fn receive<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T> {
        let sealed = receive_frame(&mut self.stream, &Deadline::within(timeout), "say anything")?;
        let mut text = vec![0; sealed.len()];
        let length = self.opener.open(&sealed, &mut text)?;
        serde_json::from_slice(&text[..length]).map_err(Error::malformed)
    }
}
