//! How a path is set up, and what makes no sense.

use std::time::Duration;

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::memory::Arena;

use super::method::{Mode, PathMethod, ReceiveMethod, SendMethod};
use super::socket_io::WaitOptions;

/// The smallest buffer, which the published study used.
const MIN_BUFFER: usize = 512;
/// The largest buffer or window: larger ones save no more calls.
const MAX_BUFFER: usize = 64 << 20;
/// Memory for several buffers of one path, as far as two of them do not take more.
const MAX_BUFFER_MEMORY: usize = 4 << 20;

/// How to send.
pub type SendSetup = PathSetup<SendMethod>;
/// How to receive.
pub type ReceiveSetup = PathSetup<ReceiveMethod>;

/// How to move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSetup<M> {
    /// How bytes get between the file and the socket.
    pub method: M,
    /// How calls wait.
    pub mode: Mode,
    /// Bytes that one call moves at most, by every method.
    pub buffer: usize,
    /// Pages that are mapped at a time, by the method `mmap`.
    pub window: usize,
    /// How long the peer may be silent.
    pub timeout: Duration,
}

impl<M: PathMethod> PathSetup<M> {
    /// Why this makes no sense, in one line.
    ///
    /// # Errors
    /// A method that the mode has not; a buffer or window that is too small or too large; no time at all.
    pub fn check(&self) -> Result<(), String> {
        self.method.check(self.mode)?;
        let (buffer, window, pages) = (self.buffer, self.window, MAX_BUFFER / page_bytes());
        if !(MIN_BUFFER..=MAX_BUFFER).contains(&buffer) {
            return Err(format!("a buffer of {buffer} bytes: there must be {MIN_BUFFER} to {MAX_BUFFER}"));
        }
        if !(1..=pages).contains(&window) {
            return Err(format!("a window of {window} pages: there must be 1 to {pages}"));
        }
        if self.timeout.is_zero() {
            return Err("no patience: the peer must be given some time".into());
        }
        Ok(())
    }

    /// Bytes of memory of its own that a path makes.
    pub fn memory_bytes(&self) -> usize {
        match self.slots() {
            0 if self.method == M::READ_WRITE => self.buffer,
            0 => 0,
            slots => Arena::io_buffer_bytes(slots * self.buffer),
        }
    }

    /// Buffers in a ring, or to be sent without a copy.
    pub(super) fn slots(&self) -> usize {
        match self.method.max_slots() {
            0 => 0,
            most => (MAX_BUFFER_MEMORY / self.buffer).clamp(2, most),
        }
    }

    pub(super) fn wait_options(&self) -> WaitOptions {
        WaitOptions { mode: self.mode, timeout: self.timeout, slots: self.slots(), buffer: self.buffer }
    }
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
