//! Waiting for input with a time-out: poll(2).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::Result;

/// Whether a descriptor becomes readable, or its other end is closed, within a time; a signal ends the wait early.
///
/// # Errors
/// Those of the system call.
pub fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> Result<bool> {
    Ok(!poll_events(PollFlags::IN, descriptor, timeout)?.is_empty())
}

/// Whether a descriptor takes bytes, or its other end is closed, within a time; a signal ends the wait early.
///
/// # Errors
/// Those of the system call.
pub fn wait_writable(descriptor: BorrowedFd<'_>, timeout: Duration) -> Result<bool> {
    Ok(!poll_events(PollFlags::OUT, descriptor, timeout)?.is_empty())
}

/// Whether there is something to read within a time, as much as the socket has a receiver wait for, or the end. A socket that has only
/// reports of what was sent without a copy has neither, though poll calls it ready, and ends the wait: a read would wait.
///
/// # Errors
/// Those of the system call.
pub fn wait_input(descriptor: BorrowedFd<'_>, timeout: Duration) -> Result<bool> {
    Ok(poll_events(PollFlags::IN, descriptor, timeout)?.intersects(PollFlags::IN | PollFlags::HUP))
}

/// Which of several become readable, as soon as one is.
///
/// # Errors
/// Those of the system call.
pub fn wait_any_readable(descriptors: &[BorrowedFd<'_>], timeout: Duration) -> Result<Vec<bool>> {
    let mut poll_fds: Vec<_> = descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    poll_all(&mut poll_fds, timeout)?;
    Ok(poll_fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// What happened of that which was awaited.
fn poll_events(events: PollFlags, descriptor: BorrowedFd<'_>, timeout: Duration) -> Result<PollFlags> {
    let mut poll_fds = [PollFd::from_borrowed_fd(descriptor, events)];
    poll_all(&mut poll_fds, timeout)?;
    Ok(poll_fds[0].revents())
}

fn poll_all(poll_fds: &mut [PollFd<'_>], timeout: Duration) -> Result<()> {
    match rustix::event::poll(poll_fds, Some(&whole_milliseconds(timeout))) {
        Err(error) if error != Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// Rounded up to a millisecond, so that the rest of a time-out is not a busy loop of zero waits.
pub(crate) fn whole_milliseconds(timeout: Duration) -> Timespec {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn zero_copy_reports_are_no_input() {
        use std::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        crate::net::socket_send::set_zero_copy(&client).unwrap();
        let content = vec![7; 4096];
        let mut call =
            crate::net::transfer_call::TransferCall::SendZeroCopy(&content, crate::net::transfer_call::MoreFollows::No);
        assert_eq!(call.execute(&client).unwrap(), content.len());
        std::io::Read::read_exact(&mut server, &mut vec![0; 4096]).unwrap();
        server.write_all(b"x").unwrap();
        // Both have come: the report makes it ready, the byte is input.
        while !wait_input(client.as_fd(), Duration::ZERO).unwrap() {}
        std::io::Read::read_exact(&mut &client, &mut [0]).unwrap();
        assert!(!wait_input(client.as_fd(), Duration::ZERO).unwrap());
        drop(server);
        while !wait_input(client.as_fd(), Duration::ZERO).unwrap() {}
    }

    #[test]
    fn written_descriptor_is_readable() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!wait_readable(reader.as_fd(), Duration::from_micros(1)).unwrap());
        writer.write_all(b"a").unwrap();
        assert!(wait_readable(reader.as_fd(), Duration::ZERO).unwrap());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert!(wait_readable(reader.as_fd(), Duration::from_secs(10)).unwrap(), "an end is readable");
    }

    #[test]
    fn full_descriptor_is_not_writable() {
        let (mut stream, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(wait_writable(stream.as_fd(), Duration::ZERO).unwrap());
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65_536]).is_ok() {}
        assert!(!wait_writable(stream.as_fd(), Duration::from_micros(1)).unwrap());
        drop(peer);
        assert!(wait_writable(stream.as_fd(), Duration::from_secs(10)).unwrap(), "an end is told at once");
    }

    #[test]
    fn readable_descriptors_are_returned() {
        let pipes = [(); 3].map(|()| std::io::pipe().unwrap());
        let readers = pipes.each_ref().map(|(reader, _)| reader.as_fd());
        assert_eq!(wait_any_readable(&readers, Duration::from_micros(1)).unwrap(), [false; 3]);
        (&pipes[1].1).write_all(b"a").unwrap();
        assert_eq!(wait_any_readable(&readers, Duration::from_secs(10)).unwrap(), [false, true, false]);
    }
}
