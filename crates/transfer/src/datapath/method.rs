//! The methods and modes, and their words.

use std::fmt;
use std::str::FromStr;

use kelvin_sys::net::transfer_call::PageAccess;

use super::methods::{Mmap, ReadWrite, Sendfile, Splice, TransferMethod, Uring, ZeroCopy};
use super::range_cursor::RangeCursor;
use super::setup::PathSetup;
use super::socket_io::SocketIo;

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

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|one| one.word() == word).ok_or_else(|| {
                    format!(concat!("no such ", $what, "; there is: {}"), [$($word),+].join(", "))
                })
            }
        }
    };
}

words! { "method of sending",
    /// How bytes get from a file to the socket.
    SendMethod {
        /// pread(2) into a buffer, send(2) from it: two calls and two copies for each buffer. The one that is seen to win for small
        /// files and for cached ones, because the buffer stays in the processor's cache and nothing has to be set up; it loses
        /// where memory bandwidth or the CPU is the limit. With a small buffer (512 bytes) it is all calls.
        ReadWrite = "rw",
        /// The file mapped a window at a time (mmap(2)), sent from there: one copy, but a page fault for every 16 pages or so, and a
        /// change of mappings for each window, which other threads of the process feel. It wins over small buffers, whose calls it
        /// saves, at most over large ones. A file that becomes shorter meanwhile may send zeros up to the end of its last page.
        Mmap = "mmap",
        /// sendfile(2): the socket refers to the pages of the page cache; no copy at the sender, and no byte in this process. It
        /// wins for large files and where the sender's CPU is the limit; for a small one its call costs more than a copy. On
        /// loopback the receiver copies from the same pages. A file that is written meanwhile may send its new bytes.
        Sendfile = "sendfile",
        /// splice(2) from the file into a pipe and from there to the socket: as sendfile, which does the same inside, with two calls
        /// and a pipe whose size bounds each of them. A user's limit on pipes may refuse a larger one.
        Splice = "splice",
        /// pread(2) into one of several buffers, send(2) with MSG_ZEROCOPY: one copy, of which the kernel says later when the
        /// buffer is free. It wins where a network device sends large buffers from memory by itself; pinning pages and asking
        /// for completions cost more than copying up to about 10 KiB. Where the kernel copies after all, as on loopback, that
        /// cost comes on top of the copy: see [`super::IoCounts::copied`].
        ZeroCopy = "zerocopy",
        /// io_uring with many requests in flight: the file is read ahead into several buffers while others are sent, in order, as
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
        /// it. The file must be open for reading and writing and as long as what arrives (sparse if need be); a page for
        /// which there is no room is an error of the call.
        Mmap = "mmap",
        /// splice(2) from the socket into a pipe and from there to the file: no byte in this process. What has arrived does not lie
        /// as the pages of a file do, so most file systems copy it into them all the same, a segment at a time.
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

const URING_ONLY: &str = "the method uring waits in its ring: use it with --wait uring";
/// Buffers that are filled and emptied at a time: more would only leave the processor's cache.
const MAX_IN_FLIGHT: usize = 16;
/// Buffers to be sent without a copy: they wait for an acknowledgement, which a peer may delay by 40 ms as long as they make no
/// full segment. Of the smallest ones, this many make two on loopback, where segments are largest.
const MAX_UNACKNOWLEDGED: usize = 256;

/// The methods of one side.
pub trait PathMethod: Copy + PartialEq + 'static {
    /// By way of a buffer.
    const READ_WRITE: Self;
    /// By a mapping of the file.
    const MMAP: Self;
    /// How a file is mapped.
    const ACCESS: PageAccess;
    /// Which of two methods is tried next. The orders of the two ends differ, so that each method of one meets each of the other
    /// equally often.
    const TRIAL_ORDER: [usize; 4];

    /// Whether bytes pass through this process, where they can be seen.
    fn shows_bytes(self) -> bool;
    /// Most buffers that are filled, or wait, at one time; none where there are no such buffers.
    fn max_slots(self) -> usize;
    /// An error with the reason if it cannot be used in a mode.
    fn check(self, mode: Mode) -> Result<(), String>;
    /// It, with what it needs.
    fn implementer(setup: &PathSetup<Self>, socket: &mut SocketIo) -> std::io::Result<Box<dyn TransferMethod>>;
    /// Moves the bytes of a range.
    fn transfer(
        method: &mut dyn TransferMethod,
        socket: &mut SocketIo,
        range: &mut RangeCursor<'_, '_>,
    ) -> std::io::Result<()>;
}

impl PathMethod for SendMethod {
    const READ_WRITE: Self = Self::ReadWrite;
    const MMAP: Self = Self::Mmap;
    const ACCESS: PageAccess = PageAccess::Read;
    const TRIAL_ORDER: [usize; 4] = [0, 1, 1, 0];

    fn shows_bytes(self) -> bool {
        !matches!(self, Self::Sendfile | Self::Splice)
    }

    fn max_slots(self) -> usize {
        match self {
            Self::Uring => MAX_IN_FLIGHT,
            Self::ZeroCopy => MAX_UNACKNOWLEDGED,
            Self::ReadWrite | Self::Mmap | Self::Sendfile | Self::Splice => 0,
        }
    }

    fn check(self, mode: Mode) -> Result<(), String> {
        match (self, mode) {
            (Self::Sendfile, Mode::Uring) => {
                Err("io_uring has no sendfile: use another method, or another --wait".into())
            }
            (Self::Uring, Mode::Blocking | Mode::Nonblocking | Mode::Signal) => Err(URING_ONLY.into()),
            _ => Ok(()),
        }
    }

    fn implementer(setup: &PathSetup<Self>, socket: &mut SocketIo) -> std::io::Result<Box<dyn TransferMethod>> {
        Ok(match setup.method {
            Self::ReadWrite => Box::new(ReadWrite::new(setup.buffer)),
            Self::Mmap => Box::new(Mmap::new(setup.window, setup.buffer, Self::ACCESS)?),
            Self::Sendfile => Box::new(Sendfile { call_bytes: setup.buffer }),
            Self::Splice => Box::new(Splice::for_sending(setup.buffer)?),
            Self::ZeroCopy if setup.mode != Mode::Uring => {
                Box::new(ZeroCopy::new(setup.slots(), setup.buffer, socket)?)
            }
            Self::ZeroCopy => Box::new(Uring { zero_copy: true }),
            Self::Uring => Box::new(Uring { zero_copy: false }),
        })
    }

    fn transfer(
        method: &mut dyn TransferMethod,
        socket: &mut SocketIo,
        range: &mut RangeCursor<'_, '_>,
    ) -> std::io::Result<()> {
        method.send(socket, range)
    }
}

impl PathMethod for ReceiveMethod {
    const READ_WRITE: Self = Self::ReadWrite;
    const MMAP: Self = Self::Mmap;
    const ACCESS: PageAccess = PageAccess::Write;
    const TRIAL_ORDER: [usize; 4] = [0, 0, 1, 1];

    fn shows_bytes(self) -> bool {
        self != Self::Splice
    }

    fn max_slots(self) -> usize {
        if self == Self::Uring { MAX_IN_FLIGHT } else { 0 }
    }

    fn check(self, mode: Mode) -> Result<(), String> {
        if self == Self::Uring && mode != Mode::Uring { Err(URING_ONLY.into()) } else { Ok(()) }
    }

    fn implementer(setup: &PathSetup<Self>, _: &mut SocketIo) -> std::io::Result<Box<dyn TransferMethod>> {
        Ok(match setup.method {
            Self::ReadWrite => Box::new(ReadWrite::new(setup.buffer)),
            Self::Mmap => Box::new(Mmap::new(setup.window, setup.buffer, Self::ACCESS)?),
            Self::Splice => Box::new(Splice::for_receiving(setup.buffer)?),
            Self::Uring => Box::new(Uring { zero_copy: false }),
        })
    }

    fn transfer(
        method: &mut dyn TransferMethod,
        socket: &mut SocketIo,
        range: &mut RangeCursor<'_, '_>,
    ) -> std::io::Result<()> {
        method.receive(socket, range)
    }
}
