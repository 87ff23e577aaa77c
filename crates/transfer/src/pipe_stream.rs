//! Two descriptors as one connection: the pipes of a child process, or standard input and output of this one.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use kelvin_sys::poll::{wait_readable, wait_writable};
use kelvin_sys::stop_signals;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::HANDSHAKE;
use crate::secure_channel::TransferStream;
use crate::wire::deadline::TimedStream;

/// Makes a call that does not wait, and again whenever it can be made, for at most this time.
///
/// # Errors
/// Those of the call; `WouldBlock` when the time is over, and `Interrupted` when this process was asked to stop.
pub(crate) fn retry_when_ready<T>(
    timeout: Duration,
    is_ready: impl Fn(Duration) -> io::Result<bool>,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut start = None;
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
        let remaining = timeout.saturating_sub(start.get_or_insert_with(Instant::now).elapsed());
        if stop_signals::stop_signal().is_some() {
            return Err(ErrorKind::Interrupted.into());
        }
        if remaining.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        is_ready(remaining)?;
    }
}

/// A descriptor whose calls do not wait, until it is dropped: others may have the same open file.
#[derive(Debug)]
struct NonblockingFile {
    file: File,
    original_flags: OFlags,
}

impl NonblockingFile {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let original_flags = fcntl_getfl(&descriptor)?;
        fcntl_setfl(&descriptor, original_flags | OFlags::NONBLOCK)?;
        Ok(Self { file: descriptor.into(), original_flags })
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for NonblockingFile {
    fn drop(&mut self) {
        // Nothing is left to be done about a descriptor that takes no flags.
        let _ = fcntl_setfl(&self.file, self.original_flags);
    }
}

/// What comes by one descriptor, and goes by another one.
#[derive(Debug)]
pub struct PipeStream {
    input: NonblockingFile,
    output: NonblockingFile,
    timeout: Duration,
}

impl PipeStream {
    /// Of these descriptors.
    ///
    /// # Errors
    /// Those of setting how their calls wait.
    pub fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        Ok(Self { input: NonblockingFile::new(input)?, output: NonblockingFile::new(output)?, timeout: HANDSHAKE })
    }

    /// Of standard input and output.
    ///
    /// # Errors
    /// One that is closed, and those of duplicating a descriptor.
    pub fn standard() -> io::Result<Self> {
        kelvin_sys::standard_streams::check_input()?;
        kelvin_sys::standard_streams::check_output()?;
        Self::new(io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?)
    }
}

impl Read for PipeStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        retry_when_ready(
            self.timeout,
            |remaining| wait_readable(self.input.as_fd(), remaining),
            || (&self.input.file).read(buffer),
        )
    }
}

impl Write for PipeStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        retry_when_ready(
            self.timeout,
            |remaining| wait_writable(self.output.as_fd(), remaining),
            || (&self.output.file).write_vectored(pieces),
        )
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TimedStream for PipeStream {
    fn set_io_timeout(&mut self, time: Duration) -> io::Result<()> {
        self.timeout = time;
        Ok(())
    }
}

impl TransferStream for PipeStream {
    fn is_readable(&self, timeout: Duration) -> io::Result<bool> {
        wait_readable(self.input.as_fd(), timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_over_pipes() -> (PipeStream, io::PipeReader, io::PipeWriter) {
        let ((input, peer_output), (peer_input, output)) = (io::pipe().unwrap(), io::pipe().unwrap());
        (PipeStream::new(input.into(), output.into()).unwrap(), peer_input, peer_output)
    }

    #[test]
    fn calls_end_with_their_time() {
        let (mut stream, _peer_input, mut peer_output) = stream_over_pipes();
        stream.set_io_timeout(Duration::from_millis(1)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let written = std::iter::repeat_with(|| stream.write(&[7; 65_536])).take(1000).find_map(Result::err);
        assert_eq!(written.map(|error| error.kind()), Some(ErrorKind::WouldBlock), "a pipe that nobody reads");
        peer_output.write_all(b"x").unwrap();
        assert!(stream.is_readable(Duration::ZERO).unwrap());
        assert_eq!(stream.read(&mut [0; 9]).unwrap(), 1);
    }

    #[test]
    fn closed_ends_are_noticed() {
        let (mut stream, peer_input, peer_output) = stream_over_pipes();
        drop((peer_input, peer_output));
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert_eq!(stream.write(&[0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn shared_descriptors_wait_again_afterwards() {
        let ((input, _peer_output), (_peer_input, output)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let shared = [input.as_fd(), output.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
        let is_nonblocking = |fd: &OwnedFd| fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK);
        let stream = PipeStream::new(input.into(), output.into()).unwrap();
        assert!(shared.iter().all(is_nonblocking));
        drop(stream);
        assert!(!shared.iter().any(is_nonblocking));
    }
}
