//! A frame: its length in four bytes, the least significant first, and so many bytes.

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
pub fn send(stream: &mut impl TimedStream, bytes: &[u8], deadline: &Deadline, doing: &'static str) -> Result<()> {
    let length = checked_length(bytes.len())? as u32;
    deadline.write_full(stream, &[&length.to_le_bytes(), bytes].concat(), doing)
}

/// Receives one.
///
/// # Errors
/// [`Error::FrameTooLong`] before any of it is read, and see [`Deadline::read_full`].
pub fn receive(stream: &mut impl TimedStream, deadline: &Deadline, doing: &'static str) -> Result<Vec<u8>> {
    let mut length = [0; LENGTH_BYTES];
    deadline.read_full(stream, &mut length, doing)?;
    let mut frame = vec![0; checked_length(u32::from_le_bytes(length) as usize)?];
    deadline.read_full(stream, &mut frame, doing)?;
    Ok(frame)
}

fn checked_length(claimed: usize) -> Result<usize> {
    if claimed > MAX_FRAME_BYTES { Err(Error::FrameTooLong { claimed, most: MAX_FRAME_BYTES }) } else { Ok(claimed) }
}
