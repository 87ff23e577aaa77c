//! Waiting until something can be read, for a time: poll(2).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::{Result, check};

/// Whether something can be read from a descriptor, or its other end is gone, within a time; a signal ends the wait early.
///
/// # Errors
/// What the system call says.
pub fn readable(descriptor: BorrowedFd<'_>, within: Duration) -> Result<bool> {
    let mut wanted = [to_read(descriptor)];
    wait(&mut wanted, within)?;
    Ok(wanted[0].revents != 0)
}

/// The same of several: of each whether it can be read, as soon as one can.
///
/// # Errors
/// What the system call says.
pub fn readable_of(descriptors: &[BorrowedFd<'_>], within: Duration) -> Result<Vec<bool>> {
    let mut wanted: Vec<libc::pollfd> = descriptors.iter().copied().map(to_read).collect();
    wait(&mut wanted, within)?;
    Ok(wanted.iter().map(|one| one.revents != 0).collect())
}

fn to_read(descriptor: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

fn wait(wanted: &mut [libc::pollfd], within: Duration) -> Result<()> {
    // Up to the next millisecond, so that a wait for what is left of a time is none of zero over and over.
    let milliseconds = within.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as libc::c_int;
    // SAFETY: so many pollfds, which outlive the call.
    match check(unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, milliseconds) }) {
        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
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

    #[test]
    fn of_several_those_that_can_be_read_are_told_as_soon_as_there_is_one() {
        let pipes = [(); 3].map(|()| std::io::pipe().unwrap());
        let readers = pipes.each_ref().map(|(reader, _)| reader.as_fd());
        assert_eq!(readable_of(&readers, Duration::from_micros(1)).unwrap(), [false; 3]);
        (&pipes[1].1).write_all(b"a").unwrap();
        assert_eq!(readable_of(&readers, Duration::from_secs(10)).unwrap(), [false, true, false]);
    }
}
