//! Waiting until something can be read, for a time: poll(2).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::{Result, check};

/// Whether something can be read from a descriptor, or its other end is gone, within a time; a signal ends the wait early.
///
/// # Errors
/// What the system call says.
pub fn readable(descriptor: BorrowedFd<'_>, within: Duration) -> Result<bool> {
    let mut wanted = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Up to the next millisecond, so that a wait for what is left of a time is none of zero over and over.
    let milliseconds = within.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as libc::c_int;
    // SAFETY: one pollfd, which outlives the call.
    match check(unsafe { libc::poll(&raw mut wanted, 1, milliseconds) }) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_was_written_can_be_read_and_nothing_before() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!readable(reader.as_fd(), Duration::from_micros(1)).unwrap());
        writer.write_all(b"a").unwrap();
        assert!(readable(reader.as_fd(), Duration::ZERO).unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert!(readable(reader.as_fd(), Duration::from_secs(10)).unwrap(), "an end is readable");
    }
}
