//! A frame: its length in four bytes, the least significant first, and so many bytes.

use std::io::{ErrorKind, Read};

use crate::deadline::{Connection, Deadline};
use crate::{Error, Result};

/// Most bytes of a frame: messages are short, and a forged length must not cost memory.
pub const LONGEST: usize = 64 << 10;

/// Bytes of its length.
const HEAD: usize = 4;

/// Sends one. Both parts in one call, so that they leave together.
///
/// # Errors
/// [`Error::TooLong`], or see [`Deadline::drain`].
pub fn send(stream: &mut impl Connection, parts: &[&[u8]], deadline: &Deadline, doing: &'static str) -> Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = bounded(length, LONGEST)?;
    let mut whole = Vec::with_capacity(HEAD + length);
    whole.extend_from_slice(&(length as u32).to_le_bytes());
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    deadline.drain(stream, &whole, doing)
}

/// Receives one.
///
/// # Errors
/// [`Error::TooLong`] before any of it is read, and see [`Deadline::fill`].
pub fn receive(stream: &mut impl Connection, deadline: &Deadline, doing: &'static str) -> Result<Vec<u8>> {
    let mut length = [0; HEAD];
    deadline.fill(stream, &mut length, doing)?;
    let mut frame = vec![0; length_of(length, LONGEST)?];
    deadline.fill(stream, &mut frame, doing)?;
    Ok(frame)
}

/// The length in a frame's head, at most so many bytes.
fn length_of(head: [u8; HEAD], most: usize) -> Result<usize> {
    bounded(u32::from_le_bytes(head) as usize, most)
}

fn bounded(claimed: usize, most: usize) -> Result<usize> {
    if claimed > most { Err(Error::TooLong { claimed, most }) } else { Ok(claimed) }
}

/// A frame of at most so many bytes, of which a part may have come: from a client that nobody waits for.
#[derive(Debug)]
pub struct Partial {
    come: Vec<u8>,
    most: usize,
}

impl Partial {
    /// Nothing of it.
    pub fn new(most: usize) -> Self {
        Self { come: Vec::new(), most }
    }

    /// Takes what has come, of a non-blocking stream; the frame, if it is complete. Memory is allocated for what came, not for
    /// what is announced.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Gone`] if the stream ends before, or a failed call.
    pub fn take(&mut self, stream: &mut impl Read) -> Result<Option<Vec<u8>>> {
        loop {
            let whole = match self.come.first_chunk() {
                Some(head) => HEAD + length_of(*head, self.most)?,
                None => HEAD,
            };
            let left = whole - self.come.len();
            if left == 0 {
                return Ok(Some(self.come.split_off(HEAD)));
            }
            let mut some = [0; 1024];
            let room = left.min(some.len());
            match stream.read(&mut some[..room]) {
                Ok(0) => return Err(Error::Gone),
                Ok(count) => self.come.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::call("receive")(error)),
            }
        }
    }
}
