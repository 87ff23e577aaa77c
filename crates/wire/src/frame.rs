//! A frame: its length in four bytes, the least significant first, and so many bytes.

use std::io::{ErrorKind, Read};

use crate::deadline::{Connection, Deadline};
use crate::{Error, Result};

/// Most bytes of a frame: what is said is short, and a length that somebody made up must not cost memory.
pub const LONGEST: usize = 64 << 10;

/// Bytes of its length.
const HEAD: usize = 4;

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
    let mut whole = Vec::with_capacity(HEAD + length);
    whole.extend_from_slice(&(length as u32).to_le_bytes());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    deadline.drain(stream, &whole, doing)
}

/// Receives one.
///
/// # Errors
/// [`Error::TooLong`] before anything of it is read, and see [`Deadline::fill`].
pub fn receive(stream: &mut impl Connection, deadline: &Deadline, doing: &'static str) -> Result<Vec<u8>> {
    let mut length = [0; HEAD];
    deadline.fill(stream, &mut length, doing)?;
    let mut frame = vec![0; length_of(length)?];
    deadline.fill(stream, &mut frame, doing)?;
    Ok(frame)
}

/// The length that a frame claims.
fn length_of(head: [u8; HEAD]) -> Result<usize> {
    let claimed = u32::from_le_bytes(head);
    if claimed as usize > LONGEST {
        return Err(Error::TooLong { claimed });
    }
    Ok(claimed as usize)
}

/// A frame of which a part may have come: from somebody for whom nobody waits.
#[derive(Debug, Default)]
pub struct Partial(Vec<u8>);

impl Partial {
    /// Takes what has come, of a stream that does not wait; the frame, if that is all of it. Memory is given for what came, not
    /// for what is claimed.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Gone`] if the stream ends before, or a failed call.
    pub fn take(&mut self, stream: &mut impl Read) -> Result<Option<Vec<u8>>> {
        loop {
            let whole = match self.0.first_chunk() {
                Some(head) => HEAD + length_of(*head)?,
                None => HEAD,
            };
            let left = whole - self.0.len();
            if left == 0 {
                return Ok(Some(self.0.split_off(HEAD)));
            }
            let mut some = [0; 1024];
            let room = left.min(some.len());
            match stream.read(&mut some[..room]) {
                Ok(0) => return Err(Error::Gone),
                Ok(count) => self.0.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::call("receive")(error)),
            }
        }
    }
}
