//! The methods and modes with their words, how a path is set up, and what makes no sense.

use std::time::Duration;

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::memory::Arena;
use kelvin_sys::net::transfer_call::PageAccess;

/// An enum whose variants have words: one table for both directions, and an error that lists them.
macro_rules! words {
    ($what:literal, $(#[$about:meta])* $name:ident { $($(#[$text:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$text])* $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its word on the command line and in reports.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|value| value.word() == word).ok_or_else(|| {
                    format!(concat!("no such ", $what, "; there is: {}"), [$($word),+].join(", "))
                })
            }
        }
    };
}
pub(crate) use words;

words! { "method of sending",
    /// How bytes get from a file to the socket.
    SendMethod {
        /// pread(2) into a buffer, send(2) from it: two calls and two copies for each buffer. The one that is seen to win for small
        /// files and for cached ones. There the buffer stays in the processor's cache and nothing has to be set up. It loses
        /// where memory bandwidth or the CPU is the limit. With a small buffer (512 bytes) it is all calls.
        ReadWrite = "rw",
        /// The file mapped a window at a time (mmap(2)), sent from there. One copy, but a page fault for every 16 pages or so, and a
        /// change of mappings for each window, which other threads of the process feel. It wins over small buffers, whose calls it
        /// saves, at most over large ones. A file that becomes shorter meanwhile may send zeros up to the end of its last page.
        Mmap = "mmap",
        /// sendfile(2): the socket refers to the pages of the page cache; no copy at the sender, and no byte in this process. It
        /// wins for large files and where the sender's CPU is the limit; for a small one its call costs more than a copy. On
        /// loopback the receiver copies from the same pages. A file that is written meanwhile may send its new bytes.
        Sendfile = "sendfile",
        /// splice(2) from the file into a pipe and from there to the socket. It is as sendfile, which does the same inside, with two calls
        /// and a pipe whose size bounds each of them. A user's limit on pipes may refuse a larger one.
        Splice = "splice",
        /// pread(2) into one of several buffers, send(2) with MSG_ZEROCOPY: one copy, of which the kernel says later when the
        /// buffer is free. It wins where a network device sends large buffers from memory by itself. Pinning pages and asking
        /// for completions cost more than copying up to about 10 KiB. Where the kernel copies after all, as on loopback, that
        /// cost comes on top of the copy: see [`super::IoCounts::copied`].
        ZeroCopy = "zerocopy",
        /// io_uring with many requests in flight. The file is read ahead into several buffers while others are sent, in order, as
        /// a chain of linked requests. As many copies as `rw`, fewer calls; reading from a disk and sending overlap.
        Uring = "uring",
    }
}

words! { "method of receiving",
    /// How bytes get from the socket to a file.
    ReceiveMethod {
        /// recv(2) into a buffer, pwrite(2) from it: two calls and two copies for each buffer, which stays in the processor's
        /// cache. The write finds or makes the pages of the file many at a time, which is why it is hard to beat.
        ReadWrite = "rw",
        /// recv(2) into the file, mapped a window at a time: one copy, but a page fault for each page, which also clears it or reads
        /// it. The file must be open for reading and writing and as long as what arrives (sparse if need be). A page for
        /// which there is no room is an error of the call.
        Mmap = "mmap",
        /// splice(2) from the socket into a pipe and from there to the file: no byte in this process. What has arrived does not lie
        /// as the pages of a file do. So most file systems copy it into them all the same, a segment at a time.
        Splice = "splice",
        /// io_uring: the next bytes are received while those before are written, into several buffers. It wins where writing waits,
        /// as for a file system that commits; it makes about half of the calls of `rw`.
        Uring = "uring",
    }
}

words! { "way to wait",
    /// How a call waits until the socket can go on.
    Mode {
        /// In the call itself.
        Blocking = "blocking",
        /// Calls do not block, and epoll(7) waits: two calls more for each wait, and none for what is ready.
        Nonblocking = "nonblocking",
        /// Calls do not block, and the socket sends a real-time signal (O_ASYNC, F_SETSIG) that is waited for. It is sent for each
        /// event whether anybody waits or not; where too many are pending, the kernel sends SIGIO instead.
        Signal = "signal",
        /// Each call is a request of an io_uring that is waited for, which for the method `uring` means many at a time. There is
        /// no request for sendfile. A splice is done by a thread of the kernel, which makes it slow.
        Uring = "uring",
    }
}

/// Buffers that are filled and emptied at a time: more would only leave the processor's cache.
const MAX_IN_FLIGHT: usize = 16;
/// Buffers to be sent without a copy. They wait for an acknowledgement, which a peer may delay by 40 ms as long as they make no
/// full segment. Of the smallest ones, this many make two on loopback, where segments are largest.
const MAX_UNACKNOWLEDGED: usize = 256;

/// The smallest buffer, which the published study used.
const MIN_BUFFER: usize = 512;
/// The largest buffer or window: larger ones save no more calls.
const MAX_BUFFER: usize = 64 << 20;
/// Memory for several buffers of one path, as far as two of them do not take more.
const MAX_BUFFER_MEMORY: usize = 4 << 20;

/// The methods of one side.
pub trait PathMethod: Copy + PartialEq + 'static {
    /// By way of a buffer.
    const READ_WRITE: Self;
    /// How a file is mapped: to be read by a sender, to be written by a receiver.
    const ACCESS: PageAccess;
    /// Which of two methods is tried next. The orders of the two ends differ, so that each method of one meets each of the other
    /// equally often.
    const TRIAL_ORDER: [usize; 4];

    /// The sending method by the same calls: what follows is alike for both sides.
    fn as_sending(self) -> SendMethod;

    /// Whether bytes pass through this process, where they can be seen.
    fn shows_bytes(self) -> bool {
        !matches!(self.as_sending(), SendMethod::Sendfile | SendMethod::Splice)
    }

    /// Most buffers that are filled, or wait, at one time; none where there are no such buffers.
    fn max_slots(self) -> usize {
        match self.as_sending() {
            SendMethod::Uring => MAX_IN_FLIGHT,
            SendMethod::ZeroCopy => MAX_UNACKNOWLEDGED,
            SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Sendfile | SendMethod::Splice => 0,
        }
    }
}

impl PathMethod for SendMethod {
    const READ_WRITE: Self = Self::ReadWrite;
    const ACCESS: PageAccess = PageAccess::Read;
    const TRIAL_ORDER: [usize; 4] = [0, 1, 1, 0];

    fn as_sending(self) -> SendMethod {
        self
    }
}

impl PathMethod for ReceiveMethod {
    const READ_WRITE: Self = Self::ReadWrite;
    const ACCESS: PageAccess = PageAccess::Write;
    const TRIAL_ORDER: [usize; 4] = [0, 0, 1, 1];

    fn as_sending(self) -> SendMethod {
        match self {
            Self::ReadWrite => SendMethod::ReadWrite,
            Self::Mmap => SendMethod::Mmap,
            Self::Splice => SendMethod::Splice,
            Self::Uring => SendMethod::Uring,
        }
    }
}

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
    /// Pages mapped at a time, by the method `mmap`.
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
        match (self.method.as_sending(), self.mode) {
            (SendMethod::Sendfile, Mode::Uring) => {
                return Err("io_uring has no sendfile: use another method, or another --wait".into());
            }
            (SendMethod::Uring, Mode::Blocking | Mode::Nonblocking | Mode::Signal) => {
                return Err("the method uring waits in its ring: use it with --wait uring".into());
            }
            _ => {}
        }
        let (buffer, window, pages) = (self.buffer, self.window, MAX_BUFFER / page_bytes());
        if !(MIN_BUFFER..=MAX_BUFFER).contains(&buffer) {
            return Err(format!("a buffer of {buffer} bytes: there must be {MIN_BUFFER} to {MAX_BUFFER}"));
        }
        if !(1..=pages).contains(&window) {
            return Err(format!("a window of {window} pages: there must be 1 to {pages}"));
        }
        if self.timeout.is_zero() {
            return Err("no time to wait: the peer must be given some".into());
        }
        Ok(())
    }

    /// The same with the sending method by the same calls.
    pub(super) fn as_sending(&self) -> SendSetup {
        let Self { mode, buffer, window, timeout, .. } = *self;
        SendSetup { method: self.method.as_sending(), mode, buffer, window, timeout }
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
            max_slots => (MAX_BUFFER_MEMORY / self.buffer).clamp(2, max_slots),
        }
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
            let SendSetup { buffer, window, timeout, .. } = SEND;
            let is_valid = |&&mode: &&Mode| ReceiveSetup { method, mode, buffer, window, timeout }.check().is_ok();
            receivers += Mode::ALL.iter().filter(is_valid).count();
        }
        assert_eq!((senders, receivers), (6 * 4 - 1 - 3, 4 * 4 - 3));
    }

    #[test]
    fn memory_bytes_covers_buffers_in_flight() {
        let memory = |method, buffer| SendSetup { method, buffer, ..SEND }.memory_bytes();
        assert_eq!([SendMethod::ReadWrite, SendMethod::Mmap].map(|method| memory(method, 65_536)), [65_536, 0]);
        assert_eq!([SendMethod::Uring, SendMethod::ZeroCopy].map(|method| memory(method, 65_536)), [2 << 20, 4 << 20]);
        assert_eq!(memory(SendMethod::Uring, 32 << 20), 64 << 20);
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
