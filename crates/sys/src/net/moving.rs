//! Calls that move bytes between a file and a connected socket, each made once: as a system call, or as a request of a ring.

mod requests;
mod waiting;
mod window;

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use io_uring::{opcode, squeue, types};

pub use requests::{Done, Request, Requests, Scope, is_called_back};
pub use waiting::{Awaited, Socket, Waiting};
pub use window::{Access, Window};

use super::sending::Splicer;
use crate::{Error, Result};

/// Whether more follows at once, so that a segment that is not full may wait for it (MSG_MORE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// More does.
    More,
    /// Nothing does: what was held back goes out.
    Nothing,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The file.
    pub file: &'a File,
    /// Its first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: usize,
}

/// A call that moves bytes; fewer than asked for is normal.
#[derive(Debug)]
pub enum Call<'a> {
    /// From memory to the socket (send).
    Send(&'a [u8], Follows),
    /// From memory to the socket without a copy (MSG_ZEROCOPY): the bytes must stay as they are until the error queue says that
    /// they are no longer used.
    SendZeroCopy(&'a [u8], Follows),
    /// From a mapping to the socket (send): EFAULT where the file has become shorter.
    SendWindow(&'a Window, Range<usize>, Follows),
    /// From a file to the socket (sendfile).
    SendFile(Part<'a>),
    /// From a file into a pipe by reference (splice).
    FileToPipe(Part<'a>, &'a Splicer),
    /// From a pipe to the socket by reference (splice).
    PipeToSocket(&'a Splicer, usize, Follows),
    /// From the socket to memory (recv).
    Receive(&'a mut [u8]),
    /// From the socket to a mapping (recv): EFAULT where the file has become shorter or a page of it cannot be made.
    ReceiveWindow(&'a mut Window, Range<usize>),
    /// From the socket into a pipe by reference (splice).
    SocketToPipe(&'a Splicer, usize),
    /// From a pipe to a file (splice).
    PipeToFile(&'a Splicer, Part<'a>),
    /// From a file to memory (pread).
    Read(&'a File, u64, &'a mut [u8]),
    /// From memory to a file (pwrite).
    Write(&'a File, u64, &'a [u8]),
}

/// What holds bytes back only for what follows.
fn flags(follows: Follows) -> libc::c_int {
    libc::MSG_NOSIGNAL | if follows == Follows::More { libc::MSG_MORE } else { 0 }
}

fn splice_flags(follows: Follows) -> libc::c_uint {
    libc::SPLICE_F_MOVE | if follows == Follows::More { libc::SPLICE_F_MORE } else { 0 }
}

/// Bytes that one request of a ring can move: it counts them in 32 bits.
fn counted(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Call<'_> {
    /// What the socket must be for it; `None` if it does not touch the socket.
    pub fn awaits(&self) -> Option<Awaited> {
        match self {
            Self::Send(..)
            | Self::SendZeroCopy(..)
            | Self::SendWindow(..)
            | Self::SendFile(..)
            | Self::PipeToSocket(..) => Some(Awaited::Writable),
            Self::Receive(..) | Self::ReceiveWindow(..) | Self::SocketToPipe(..) => Some(Awaited::Readable),
            Self::FileToPipe(..) | Self::PipeToFile(..) | Self::Read(..) | Self::Write(..) => None,
        }
    }

    /// Makes it as a system call, once, and returns how many bytes were moved.
    ///
    /// # Errors
    /// What the call says: `WouldBlock` where the socket is non-blocking, or its time is over. A peer that is gone is an error
    /// (EPIPE): the Rust runtime ignores SIGPIPE, which sendfile and splice would raise.
    #[inline]
    pub fn make(&mut self, socket: &impl AsFd) -> Result<usize> {
        let socket = socket.as_fd().as_raw_fd();
        match self {
            Self::Send(bytes, follows) => send(socket, bytes, flags(*follows)),
            Self::SendZeroCopy(bytes, follows) => send(socket, bytes, flags(*follows) | libc::MSG_ZEROCOPY),
            Self::SendWindow(window, part, follows) => {
                // SAFETY: the part lies in the mapping, which is borrowed through the call; a page that is not to be had is EFAULT.
                moved(unsafe { libc::send(socket, window.place(part).cast(), part.len(), flags(*follows)) })
            }
            Self::SendFile(part) => {
                let mut offset = part.offset as libc::off_t;
                // SAFETY: the offset is valid to read and write.
                moved(unsafe { libc::sendfile(socket, part.file.as_raw_fd(), &raw mut offset, part.bytes) })
            }
            Self::FileToPipe(part, pipe) => splice(part.end(), (pipe.writer(), None), part.bytes, libc::SPLICE_F_MOVE),
            Self::PipeToSocket(pipe, bytes, follows) => {
                splice((pipe.reader(), None), (socket, None), *bytes, splice_flags(*follows))
            }
            Self::Receive(buffer) => {
                // SAFETY: the buffer is valid to write for its length.
                moved(unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) })
            }
            Self::ReceiveWindow(window, part) => {
                // SAFETY: the part lies in the mapping, which is borrowed exclusively; a page that is not to be had is EFAULT.
                moved(unsafe { libc::recv(socket, window.place(part).cast(), part.len(), 0) })
            }
            Self::SocketToPipe(pipe, bytes) => {
                splice((socket, None), (pipe.writer(), None), *bytes, libc::SPLICE_F_MOVE)
            }
            Self::PipeToFile(pipe, part) => splice((pipe.reader(), None), part.end(), part.bytes, libc::SPLICE_F_MOVE),
            Self::Read(file, offset, buffer) => file.read_at(buffer, *offset),
            Self::Write(file, offset, bytes) => file.write_at(bytes, *offset),
        }
    }

    /// The same as a request of a ring; `None` for what a ring cannot do, or only with memory of its own.
    fn request(&mut self, socket: &impl AsFd) -> Option<squeue::Entry> {
        let socket = types::Fd(socket.as_fd().as_raw_fd());
        let pipe_to = |pipe: &Splicer| types::Fd(pipe.writer());
        let pipe_from = |pipe: &Splicer| types::Fd(pipe.reader());
        Some(match self {
            Self::Send(bytes, follows) => {
                opcode::Send::new(socket, bytes.as_ptr(), counted(bytes.len())).flags(flags(*follows)).build()
            }
            Self::SendWindow(window, part, follows) => {
                opcode::Send::new(socket, window.place(part), counted(part.len())).flags(flags(*follows)).build()
            }
            Self::FileToPipe(part, pipe) => part.splice_from(pipe_to(pipe)),
            Self::PipeToSocket(pipe, bytes, follows) => {
                let entry = opcode::Splice::new(pipe_from(pipe), NOWHERE, socket, NOWHERE, counted(*bytes));
                entry.flags(splice_flags(*follows)).build()
            }
            Self::Receive(buffer) => opcode::Recv::new(socket, buffer.as_mut_ptr(), counted(buffer.len())).build(),
            Self::ReceiveWindow(window, part) => {
                opcode::Recv::new(socket, window.place(part), counted(part.len())).build()
            }
            Self::SocketToPipe(pipe, bytes) => {
                let entry = opcode::Splice::new(socket, NOWHERE, pipe_to(pipe), NOWHERE, counted(*bytes));
                entry.flags(libc::SPLICE_F_MOVE).build()
            }
            Self::PipeToFile(pipe, part) => part.splice_to(pipe_from(pipe)),
            Self::Read(file, offset, buffer) => {
                let file = types::Fd(file.as_raw_fd());
                opcode::Read::new(file, buffer.as_mut_ptr(), counted(buffer.len())).offset(*offset).build()
            }
            Self::Write(file, offset, bytes) => {
                let file = types::Fd(file.as_raw_fd());
                opcode::Write::new(file, bytes.as_ptr(), counted(bytes.len())).offset(*offset).build()
            }
            Self::SendZeroCopy(..) | Self::SendFile(..) => return None,
        })
    }
}

/// The offset of an end of a splice that has none.
const NOWHERE: i64 = -1;

impl Part<'_> {
    /// As an end of a splice.
    fn end(&self) -> (RawFd, Option<u64>) {
        (self.file.as_raw_fd(), Some(self.offset))
    }

    fn splice_from(&self, pipe: types::Fd) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Splice::new(file, self.offset as i64, pipe, NOWHERE, counted(self.bytes));
        entry.flags(libc::SPLICE_F_MOVE).build()
    }

    fn splice_to(&self, pipe: types::Fd) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Splice::new(pipe, NOWHERE, file, self.offset as i64, counted(self.bytes));
        entry.flags(libc::SPLICE_F_MOVE).build()
    }
}

/// Sends several pieces of memory as one message, once.
///
/// # Errors
/// As [`Call::make`].
pub fn send_pieces(socket: &impl AsFd, pieces: &[IoSlice<'_>], follows: Follows) -> Result<usize> {
    // The kernel takes no more of them (UIO_MAXIOV); the rest is for the next call.
    const MOST: usize = 1024;
    let pieces = &pieces[..pieces.len().min(MOST)];
    // SAFETY: an all-zero header is valid; an IoSlice is laid out as an iovec, and sendmsg only reads what they say.
    moved(unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = pieces.as_ptr().cast_mut().cast();
        header.msg_iovlen = pieces.len() as _;
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags(follows))
    })
}

fn send(socket: RawFd, bytes: &[u8], flags: libc::c_int) -> Result<usize> {
    // SAFETY: the slice is valid for its length.
    moved(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Moves bytes from one end to the other, each a descriptor and, of a file, an offset.
fn splice(from: (RawFd, Option<u64>), to: (RawFd, Option<u64>), bytes: usize, flags: libc::c_uint) -> Result<usize> {
    let mut offsets = [from.1, to.1].map(|offset| offset.map(|offset| offset as libc::loff_t));
    let [from_offset, to_offset] =
        offsets.each_mut().map(|offset| offset.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut));
    // SAFETY: each offset is null, or valid to read and write.
    moved(unsafe { libc::splice(from.0, from_offset, to.0, to_offset, bytes, flags) })
}

/// How many bytes a call moved.
fn moved(result: libc::ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

#[cfg(test)]
mod tests;
