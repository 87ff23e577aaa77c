//! The two directions of an encrypted connection: each end seals what it sends, and opens what arrives.
//!
//! Both halves count, and the number of a message is its nonce: what is changed, dropped, repeated or reordered cannot be opened.
//! A half can be moved to another thread; they share nothing that changes.

use std::fmt;
use std::sync::Arc;

use snow::{HandshakeState, StatelessTransportState};

use crate::wire::{Error, Result};

/// Most bytes of a sealed message, by section 3 of the Noise specification.
pub const MAX_SEALED_BYTES: usize = 65_535;
/// Bytes by which sealing makes a message longer: its tag.
pub const TAG_BYTES: usize = 16;
/// Most bytes of what is sealed.
pub const MAX_CONTENT_BYTES: usize = MAX_SEALED_BYTES - TAG_BYTES;

/// Seals the messages of one direction.
#[derive(Debug)]
pub struct Sealer(CipherState);

/// Opens those of the other one.
#[derive(Debug)]
pub struct Opener(CipherState);

/// The keys of both directions, and how many messages of one of them there were.
struct CipherState {
    noise: Arc<StatelessTransportState>,
    count: u64,
}

/// Both halves, once the handshake is over.
///
/// # Errors
/// A handshake that is not.
pub(crate) fn split(state: HandshakeState) -> Result<(Sealer, Opener)> {
    let noise = Arc::new(state.into_stateless_transport_mode().map_err(|_| Error::Tampered)?);
    Ok((Sealer(CipherState { noise: Arc::clone(&noise), count: 0 }), Opener(CipherState { noise, count: 0 })))
}

impl Sealer {
    /// Appends what is sealed of the next message: [`TAG_BYTES`] bytes more than it has.
    ///
    /// # Errors
    /// [`Error::FrameTooLong`] for more than [`MAX_CONTENT_BYTES`] bytes; then nothing is appended.
    pub fn seal(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if content.len() > MAX_CONTENT_BYTES {
            return Err(Error::FrameTooLong { claimed: content.len(), limit: MAX_CONTENT_BYTES });
        }
        let start = out.len();
        // Copied for its room: a program optimised for size would write as many zeros one by one.
        out.extend_from_slice(content);
        out.extend_from_slice(&[0; TAG_BYTES]);
        if self.0.noise.write_message(self.0.count, content, &mut out[start..]).is_err() {
            // No other error is left: a count that is used up takes centuries.
            out.truncate(start);
            return Err(Error::Tampered);
        }
        self.0.count += 1;
        Ok(())
    }
}

impl Opener {
    /// Opens the next message, and returns how many bytes of `out` it fills. Where `out` is as long as what is sealed, nothing is
    /// allocated.
    ///
    /// # Errors
    /// [`Error::Tampered`] for anything but the message that the other side sealed next, and for one that does not fit.
    pub fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> Result<usize> {
        let length = self.0.noise.read_message(self.0.count, sealed, out).map_err(|_| Error::Tampered)?;
        self.0.count += 1;
        Ok(length)
    }
}

impl fmt::Debug for CipherState {
    /// Never the keys.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Half").field("count", &self.count).finish_non_exhaustive()
    }
}
