//! A frame: its length in four bytes, the least significant first, and so many bytes.

use crate::deadline::{Connection, Deadline};
use crate::{Error, Result};

/// Most bytes of a frame: messages are short, and a forged length must not cost memory.
pub const LONGEST: usize = 64 << 10;

/// Bytes of its length.
const HEAD: usize = 4;

/// Sends one. Its length and its bytes in one call, so that they leave together.
///
/// # Errors
/// [`Error::TooLong`], or see [`Deadline::drain`].
pub fn send(stream: &mut impl Connection, bytes: &[u8], deadline: &Deadline, doing: &'static str) -> Result<()> {
    let length = bounded(bytes.len())? as u32;
    deadline.drain(stream, &[&length.to_le_bytes(), bytes].concat(), doing)
}

/// Receives one.
///
/// # Errors
/// [`Error::TooLong`] before any of it is read, and see [`Deadline::fill`].
pub fn receive(stream: &mut impl Connection, deadline: &Deadline, doing: &'static str) -> Result<Vec<u8>> {
    let mut length = [0; HEAD];
    deadline.fill(stream, &mut length, doing)?;
    let mut frame = vec![0; bounded(u32::from_le_bytes(length) as usize)?];
    deadline.fill(stream, &mut frame, doing)?;
    Ok(frame)
}

fn bounded(claimed: usize) -> Result<usize> {
    if claimed > LONGEST { Err(Error::TooLong { claimed, most: LONGEST }) } else { Ok(claimed) }
}
