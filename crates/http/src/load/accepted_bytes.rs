//! Writes to a socket that does not wait.

use std::io::{self, ErrorKind};

/// A socket that takes nothing now has taken nothing, which is no error.
pub(crate) fn accepted_bytes(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        written => written,
    }
}
