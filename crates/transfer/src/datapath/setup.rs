//! How a path is set up, and what makes no sense.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::memory::Arena;

use super::method::{Mode, ReceiveMethod, SendMethod};

/// The smallest buffer, which the published study used.
const MIN_BUFFER: usize = 512;
/// The largest buffer or window: larger ones save no more calls.
const MAX_BUFFER: usize = 64 << 20;
/// Memory for several buffers of one path, as far as two of them do not take more.
const MAX_BUFFER_MEMORY: usize = 4 << 20;
/// Buffers that are filled and emptied at a time: more would only leave the processor's cache.
const MAX_IN_FLIGHT: usize = 16;
/// Buffers to be sent without a copy: they wait for an acknowledgement, which a peer may delay by 40 ms as long as they make no
/// full segment. Of the smallest ones, this many make two on loopback, where segments are largest.
const MAX_UNACKNOWLEDGED: usize = 256;

/// How to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSetup {
    /// How bytes get from the file to the socket.
    pub method: SendMethod,
    /// How calls wait.
    pub mode: Mode,
    /// Bytes that one call moves at most, by every method.
    pub buffer: usize,
    /// Pages that are mapped at a time, by the method `mmap`.
    pub window: usize,
    /// How long the peer may be silent.
    pub timeout: Duration,
}

/// How to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveSetup {
    /// How bytes get from the socket to the file.
    pub method: ReceiveMethod,
    /// How calls wait.
    pub mode: Mode,
    /// Bytes that one call moves at most, by every method.
    pub buffer: usize,
    /// Pages that are mapped at a time, by the method `mmap`.
    pub window: usize,
    /// How long the peer may be silent.
    pub timeout: Duration,
}

impl SendSetup {
    /// Why this makes no sense, in one line.
    ///
    /// # Errors
    /// A method that the mode has not; a buffer or window that is too small or too large; no patience at all.
    pub fn check(&self) -> Result<(), String> {
        self.method.check(self.mode)?;
        check_sizes(self.buffer, self.window, self.timeout)
    }

    /// Bytes of memory of its own that a path makes.
    pub fn memory_bytes(&self) -> usize {
        match self.method {
            SendMethod::ReadWrite => self.buffer,
            SendMethod::ZeroCopy | SendMethod::Uring => Arena::io_buffer_bytes(self.slots() * self.buffer),
            SendMethod::Mmap | SendMethod::Sendfile | SendMethod::Splice => 0,
        }
    }

    /// Buffers in a ring, or to be sent without a copy.
    pub(super) fn slots(&self) -> usize {
        match self.method {
            SendMethod::Uring => slots(self.buffer, MAX_IN_FLIGHT),
            SendMethod::ZeroCopy => slots(self.buffer, MAX_UNACKNOWLEDGED),
            _ => 0,
        }
    }
}

impl ReceiveSetup {
    /// Why this makes no sense, in one line.
    ///
    /// # Errors
    /// As [`SendSetup::check`].
    pub fn check(&self) -> Result<(), String> {
        self.method.check(self.mode)?;
        check_sizes(self.buffer, self.window, self.timeout)
    }

    /// As [`SendSetup::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        match self.method {
            ReceiveMethod::ReadWrite => self.buffer,
            ReceiveMethod::Uring => Arena::io_buffer_bytes(self.slots() * self.buffer),
            ReceiveMethod::Mmap | ReceiveMethod::Splice => 0,
        }
    }

    /// Buffers in a ring.
    pub(super) fn slots(&self) -> usize {
        if self.method == ReceiveMethod::Uring { slots(self.buffer, MAX_IN_FLIGHT) } else { 0 }
    }
}

fn slots(buffer: usize, most: usize) -> usize {
    (MAX_BUFFER_MEMORY / buffer).clamp(2, most)
}

fn check_sizes(buffer: usize, window: usize, patience: Duration) -> Result<(), String> {
    let pages = MAX_BUFFER / page_bytes();
    if !(MIN_BUFFER..=MAX_BUFFER).contains(&buffer) {
        return Err(format!("a buffer of {buffer} bytes: there must be {MIN_BUFFER} to {MAX_BUFFER}"));
    }
    if !(1..=pages).contains(&window) {
        return Err(format!("a window of {window} pages: there must be 1 to {pages}"));
    }
    if patience.is_zero() {
        return Err("no patience: the peer must be given some time".into());
    }
    Ok(())
}

/// A setup that makes no sense, as an error of making a path.
pub(super) fn invalid_setup(reason: String) -> Error {
    Error::new(ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: SendSetup = SendSetup {
        method: SendMethod::ReadWrite,
        mode: Mode::Blocking,
        buffer: 512,
        window: 1,
        timeout: Duration::from_secs(1),
    };

    #[test]
    fn invalid_setup_is_refused() {
        assert_eq!(SEND.check(), Ok(()));
        assert_eq!(
            SendSetup { buffer: 511, ..SEND }.check().unwrap_err(),
            "a buffer of 511 bytes: there must be 512 to 67108864"
        );
        assert!(SendSetup { buffer: MAX_BUFFER + 1, ..SEND }.check().is_err());
        assert!(SendSetup { window: 0, ..SEND }.check().unwrap_err().starts_with("a window of 0 pages"));
        assert!(SendSetup { window: MAX_BUFFER / page_bytes() + 1, ..SEND }.check().is_err());
        assert!(SendSetup { timeout: Duration::ZERO, ..SEND }.check().is_err());
        let in_ring = SendSetup { method: SendMethod::Sendfile, mode: Mode::Uring, ..SEND };
        assert!(in_ring.check().unwrap_err().starts_with("io_uring has no sendfile"));
    }

    #[test]
    fn uring_method_needs_uring_mode() {
        let mut senders = 0;
        for &method in SendMethod::ALL {
            senders += Mode::ALL.iter().filter(|&&mode| SendSetup { method, mode, ..SEND }.check().is_ok()).count();
        }
        let mut receivers = 0;
        for &method in ReceiveMethod::ALL {
            let SendSetup { buffer, window, timeout: patience, .. } = SEND;
            let makes_sense =
                |&&mode: &&Mode| ReceiveSetup { method, mode, buffer, window, timeout: patience }.check().is_ok();
            receivers += Mode::ALL.iter().filter(makes_sense).count();
        }
        assert_eq!((senders, receivers), (6 * 4 - 1 - 3, 4 * 4 - 3));
    }

    #[test]
    fn memory_bytes_covers_buffers_in_flight() {
        let of = |method, buffer| SendSetup { method, buffer, ..SEND }.memory_bytes();
        assert_eq!([SendMethod::ReadWrite, SendMethod::Mmap].map(|method| of(method, 65_536)), [65_536, 0]);
        assert_eq!([SendMethod::Uring, SendMethod::ZeroCopy].map(|method| of(method, 65_536)), [2 << 20, 4 << 20]);
        assert_eq!(of(SendMethod::Uring, 32 << 20), 64 << 20);
    }

    #[test]
    fn method_names_round_trip() {
        for &method in SendMethod::ALL {
            assert_eq!(method.word().parse(), Ok(method));
        }
        assert_eq!("signal".parse(), Ok(Mode::Signal));
        assert_eq!(
            "fcntl".parse::<ReceiveMethod>().unwrap_err(),
            "no such method of receiving; there is: rw, mmap, splice, uring"
        );
        assert_eq!(format!("{:>5}|{}", SendMethod::ReadWrite, SendMethod::ZeroCopy), "   rw|zerocopy");
    }
}
