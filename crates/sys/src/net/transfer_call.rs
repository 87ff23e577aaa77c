//! Calls that move bytes between a file and a connected socket, each made once: as a system call, or as a request of a ring.

mod file_window;
mod socket_wait;
mod transfer_ring;

use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use io_uring::{opcode, squeue, types};
use rustix::net::{SendAncillaryBuffer, SendFlags};

pub use file_window::{FileWindow, PageAccess};
pub use socket_wait::{SocketEvent, SocketWaitMode, WaitingSocket};
pub use transfer_ring::{BufferRequest, Completion, RingScope, TransferRing, is_cancelled};

use super::socket_send::{Splicer, byte_count, send, splice};
use crate::Result;

/// Whether more follows at once, so that a segment that is not full may wait for it (MSG_MORE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreFollows {
    /// More does.
    Yes,
    /// Nothing does: what was held back goes out.
    No,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileSlice<'a> {
    /// The file.
    pub file: &'a File,
    /// Its first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: usize,
}

/// A call that moves bytes; fewer than asked for is normal.
#[derive(Debug)]
pub enum TransferCall<'a> {
    /// From memory to the socket (send).
    Send(&'a [u8], MoreFollows),
    /// From memory to the socket without a copy (MSG_ZEROCOPY): the bytes must stay as they are until the error queue reports that
    /// they are no longer used.
    SendZeroCopy(&'a [u8], MoreFollows),
    /// From a mapping to the socket (send): EFAULT where the file has become shorter.
    SendWindow(&'a FileWindow, Range<usize>, MoreFollows),
    /// From a file to the socket (sendfile).
    SendFile(FileSlice<'a>),
    /// From a file into a pipe by reference (splice).
    FileToPipe(FileSlice<'a>, &'a Splicer),
    /// From a pipe to the socket by reference (splice).
    PipeToSocket(&'a Splicer, usize, MoreFollows),
    /// From the socket to memory (recv).
    Receive(&'a mut [u8]),
    /// From the socket to a mapping (recv): EFAULT where the file has become shorter or a page of it cannot be made.
    ReceiveWindow(&'a mut FileWindow, Range<usize>),
    /// From the socket into a pipe by reference (splice).
    SocketToPipe(&'a Splicer, usize),
    /// From a pipe to a file (splice).
    PipeToFile(&'a Splicer, FileSlice<'a>),
    /// From a file to memory (pread).
    Read(&'a File, u64, &'a mut [u8]),
    /// From memory to a file (pwrite).
    Write(&'a File, u64, &'a [u8]),
}

/// What holds bytes back only for what follows.
fn flags(more_follows: MoreFollows) -> libc::c_int {
    libc::MSG_NOSIGNAL | if more_follows == MoreFollows::Yes { libc::MSG_MORE } else { 0 }
}

fn splice_flags(more_follows: MoreFollows) -> libc::c_uint {
    libc::SPLICE_F_MOVE | if more_follows == MoreFollows::Yes { libc::SPLICE_F_MORE } else { 0 }
}

/// Bytes that one request of a ring can move: it counts them in 32 bits.
fn ring_length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl TransferCall<'_> {
    /// What the socket must be for it; `None` if it does not touch the socket.
    pub fn wait_event(&self) -> Option<SocketEvent> {
        match self {
            Self::Send(..)
            | Self::SendZeroCopy(..)
            | Self::SendWindow(..)
            | Self::SendFile(..)
            | Self::PipeToSocket(..) => Some(SocketEvent::Writable),
            Self::Receive(..) | Self::ReceiveWindow(..) | Self::SocketToPipe(..) => Some(SocketEvent::Readable),
            Self::FileToPipe(..) | Self::PipeToFile(..) | Self::Read(..) | Self::Write(..) => None,
        }
    }

    /// Makes it as a system call, once, and returns how many bytes were moved.
    ///
    /// # Errors
    /// Those of the call: `WouldBlock` where the socket is non-blocking, or its time is over. A peer that is gone is an error
    /// (EPIPE): the Rust runtime ignores SIGPIPE, which sendfile and splice would raise.
    #[inline]
    pub fn execute(&mut self, socket: &impl AsFd) -> Result<usize> {
        let socket = socket.as_fd().as_raw_fd();
        match self {
            Self::Send(bytes, follows) => send(socket, bytes, flags(*follows)),
            Self::SendZeroCopy(bytes, follows) => send(socket, bytes, flags(*follows) | libc::MSG_ZEROCOPY),
            Self::SendWindow(window, part, follows) => {
                // SAFETY: the part lies in the mapping, which is borrowed through the call; a page that is not to be had is EFAULT.
                byte_count(unsafe { libc::send(socket, window.part_ptr(part).cast(), part.len(), flags(*follows)) })
            }
            Self::SendFile(part) => {
                let mut offset = part.offset as libc::off_t;
                // SAFETY: the offset is valid to read and write.
                byte_count(unsafe { libc::sendfile(socket, part.file.as_raw_fd(), &raw mut offset, part.bytes) })
            }
            Self::FileToPipe(part, pipe) => splice(
                (part.file.as_raw_fd(), Some(part.offset)),
                (pipe.pipe.write.as_raw_fd(), None),
                part.bytes,
                libc::SPLICE_F_MOVE,
            ),
            Self::PipeToSocket(pipe, bytes, follows) => {
                splice((pipe.pipe.read.as_raw_fd(), None), (socket, None), *bytes, splice_flags(*follows))
            }
            Self::Receive(buffer) => {
                // SAFETY: the buffer is valid to write for its length.
                byte_count(unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), 0) })
            }
            Self::ReceiveWindow(window, part) => {
                // SAFETY: the part lies in the mapping, which is borrowed exclusively; a page that is not to be had is EFAULT.
                byte_count(unsafe { libc::recv(socket, window.part_ptr(part).cast(), part.len(), 0) })
            }
            Self::SocketToPipe(pipe, bytes) => {
                splice((socket, None), (pipe.pipe.write.as_raw_fd(), None), *bytes, libc::SPLICE_F_MOVE)
            }
            Self::PipeToFile(pipe, part) => splice(
                (pipe.pipe.read.as_raw_fd(), None),
                (part.file.as_raw_fd(), Some(part.offset)),
                part.bytes,
                libc::SPLICE_F_MOVE,
            ),
            Self::Read(file, offset, buffer) => file.read_at(buffer, *offset),
            Self::Write(file, offset, bytes) => file.write_at(bytes, *offset),
        }
    }

    /// Like `execute`, as a request of a ring; `None` for what a ring cannot do, or only with memory of its own.
    fn submission_entry(&mut self, socket: &impl AsFd) -> Option<squeue::Entry> {
        let socket = socket.as_fd();
        Some(match self {
            Self::Send(bytes, follows) => {
                BufferRequest::Send(socket, *follows).entry(bytes.as_ptr().cast_mut(), bytes.len(), 0)
            }
            Self::SendWindow(window, part, follows) => {
                BufferRequest::Send(socket, *follows).entry(window.part_ptr(part), part.len(), 0)
            }
            Self::Receive(buffer) => BufferRequest::Receive(socket).entry(buffer.as_mut_ptr(), buffer.len(), 0),
            Self::ReceiveWindow(window, part) => {
                BufferRequest::Receive(socket).entry(window.part_ptr(part), part.len(), 0)
            }
            Self::Read(file, offset, buffer) => {
                BufferRequest::Read(file, *offset).entry(buffer.as_mut_ptr(), buffer.len(), 0)
            }
            Self::Write(file, offset, bytes) => {
                BufferRequest::Write(file, *offset).entry(bytes.as_ptr().cast_mut(), bytes.len(), 0)
            }
            Self::FileToPipe(FileSlice { file, offset, bytes }, pipe) => {
                splice_entry((*file, *offset as i64), (&pipe.pipe.write, NO_OFFSET), *bytes, MoreFollows::No)
            }
            Self::PipeToFile(pipe, FileSlice { file, offset, bytes }) => {
                splice_entry((&pipe.pipe.read, NO_OFFSET), (*file, *offset as i64), *bytes, MoreFollows::No)
            }
            Self::PipeToSocket(pipe, bytes, follows) => {
                splice_entry((&pipe.pipe.read, NO_OFFSET), (&socket, NO_OFFSET), *bytes, *follows)
            }
            Self::SocketToPipe(pipe, bytes) => {
                splice_entry((&socket, NO_OFFSET), (&pipe.pipe.write, NO_OFFSET), *bytes, MoreFollows::No)
            }
            Self::SendZeroCopy(..) | Self::SendFile(..) => return None,
        })
    }
}

/// The offset of an end of a splice that has none.
const NO_OFFSET: i64 = -1;

/// A splice from one end to the other, each a descriptor and an offset.
fn splice_entry(
    (source, from_offset): (&impl AsRawFd, i64),
    (target, to_offset): (&impl AsRawFd, i64),
    bytes: usize,
    more_follows: MoreFollows,
) -> squeue::Entry {
    let [source, target] = [source.as_raw_fd(), target.as_raw_fd()].map(types::Fd);
    let entry = opcode::Splice::new(source, from_offset, target, to_offset, ring_length(bytes));
    entry.flags(splice_flags(more_follows)).build()
}

/// Sends several pieces of memory as one message, once.
///
/// # Errors
/// As [`TransferCall::execute`].
pub fn send_vectored(socket: &impl AsFd, pieces: &[IoSlice<'_>], more_follows: MoreFollows) -> Result<usize> {
    // The kernel takes no more of them (UIO_MAXIOV); the rest is for the next call.
    const MAX_VECTORS: usize = 1024;
    let pieces = &pieces[..pieces.len().min(MAX_VECTORS)];
    let flags = SendFlags::from_bits_retain(flags(more_follows) as u32);
    Ok(rustix::net::sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags)?)
}

#[cfg(test)]
mod tests;
