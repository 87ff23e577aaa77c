//! A frame: its length in four bytes, the least significant first, and so many bytes.

use crate::deadline::{Connection, Deadline};
use crate::{Error, Result};

/// Most bytes of a frame: what is said is short, and a length that somebody made up must not cost memory.
pub const LONGEST: usize = 64 << 10;

/// Sends one. Both parts in one call, so that they need not wait for each other on their way.
///
/// # Errors
/// See [`Deadline::drain`].
///
/// # Panics
/// If the frame is too long, which is a mistake of whoever made it.
pub fn send(stream: &mut impl Connection, parts: &[&[u8]], deadline: &Deadline, doing: &'static str) -> Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    assert!(length <= LONGEST, "a frame of {length} bytes");
    let mut whole = Vec::with_capacity(4 + length);
    whole.extend_from_slice(&(length as u32).to_le_bytes());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    deadline.drain(stream, &whole, doing)
}

/// Receives one.
///
/// # Errors
/// [`Error::TooLong`] before anything of it is read, and see [`Deadline::fill`].
pub fn receive(stream: &mut impl Connection, deadline: &Deadline, doing: &'static str) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    deadline.fill(stream, &mut length, doing)?;
    let claimed = u32::from_le_bytes(length);
    if claimed as usize > LONGEST {
        return Err(Error::TooLong { claimed });
    }
    let mut frame = vec![0; claimed as usize];
    deadline.fill(stream, &mut frame, doing)?;
    Ok(frame)
}
