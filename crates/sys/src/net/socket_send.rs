//! Sending bytes other than with a plain send: from a file, through a pipe, zero-copy.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::set_option;
use crate::handoff::Pipe;
use crate::{Error, Result};

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`.
const ORIGIN_ZERO_COPY: u8 = 5;
const ZEROCOPY_COPIED: u8 = 1;

/// An unnamed file in memory with these bytes.
pub fn memory_file_with(bytes: &[u8]) -> Result<File> {
    let file = crate::mapping::memory_file()?;
    file.write_all_at(bytes, 0)?;
    Ok(file)
}

/// The error of a file that is shorter than what is to be sent of it.
const FILE_ENDED: &str = "the file ended before all of it was sent";

/// Sends the first `bytes` of a file by sendfile(2).
///
/// # Errors
/// Those of the call; a file that is shorter.
pub fn send_file(socket: &impl AsFd, file: &File, bytes: usize) -> Result<()> {
    let mut offset: libc::off_t = 0;
    while (offset as usize) < bytes {
        let (socket, file) = (socket.as_fd().as_raw_fd(), file.as_raw_fd());
        // SAFETY: the offset is valid to read and write; the kernel moves it on by what was sent.
        let sent = unsafe { libc::sendfile(socket, file, &raw mut offset, bytes - offset as usize) };
        nonzero(byte_count(sent)?, FILE_ENDED)?;
    }
    Ok(())
}

/// A pipe through which bytes go from a file to a socket by reference, by splice(2).
#[derive(Debug)]
pub struct Splicer {
    pub(super) pipe: Pipe,
}

impl Splicer {
    /// With a pipe that holds this many bytes, as far as the kernel grants it.
    pub fn new(bytes: usize) -> Result<Self> {
        let pipe = Pipe::new()?;
        // A user's limit on pipes leaves it as it is, which costs calls and no bytes.
        match rustix::pipe::fcntl_setpipe_size(&pipe.write, bytes) {
            Err(error) if error != Errno::PERM => Err(error.into()),
            _ => Ok(Self { pipe }),
        }
    }

    /// Bytes that the pipe holds.
    pub fn capacity(&self) -> Result<usize> {
        Ok(rustix::pipe::fcntl_getpipe_size(&self.pipe.write)?)
    }

    /// Sends the first `bytes` of a file.
    ///
    /// # Errors
    /// Those of the calls; a file that is shorter.
    pub fn send(&self, socket: &impl AsFd, file: &File, bytes: usize) -> Result<()> {
        let [read, write] = [&self.pipe.read, &self.pipe.write].map(AsRawFd::as_raw_fd);
        let mut offset = 0;
        while offset < bytes {
            let position = Some(offset as u64);
            let spliced_bytes = splice((file.as_raw_fd(), position), (write, None), bytes - offset, 0)?;
            let mut piped = nonzero(spliced_bytes, FILE_ENDED)?;
            offset += piped;
            let flags = if offset < bytes { libc::SPLICE_F_MORE } else { 0 };
            while piped > 0 {
                let sent = splice((read, None), (socket.as_fd().as_raw_fd(), None), piped, flags)?;
                piped -= nonzero(sent, "the pipe gave nothing of what it holds")?;
            }
        }
        Ok(())
    }
}

/// Sends a whole message with MSG_MORE, so that no packet leaves before it is full or something is sent without it.
///
/// # Errors
/// Those of the call.
#[inline(always)]
pub fn send_with_more(socket: &impl AsFd, mut message: &[u8]) -> Result<()> {
    while !message.is_empty() {
        let sent = send(socket.as_fd().as_raw_fd(), message, libc::MSG_MORE | libc::MSG_NOSIGNAL)?;
        message = &message[sent..];
    }
    Ok(())
}

/// Enables zero-copy sends on this socket; see [`send_without_copy`].
pub fn set_zero_copy(socket: &impl AsFd) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1i32)
}

/// Sends a message by MSG_ZEROCOPY, and returns how many calls were made of it, each of which will be completed. The
/// bytes must not change until then.
///
/// # Errors
/// Those of the call; `ENOBUFS` before any byte was sent if too many calls are not completed.
pub fn send_without_copy(stream: &impl AsFd, message: &[u8]) -> Result<u32> {
    let (mut sent, mut calls) = (0, 0);
    while sent < message.len() {
        let (socket, rest) = (stream.as_fd().as_raw_fd(), &message[sent..]);
        let sent_bytes = match send(socket, rest, libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL) {
            // A message that has begun must be ended; one more copy does no harm.
            Err(error) if is_queue_full(&error) && sent > 0 => send(socket, rest, libc::MSG_NOSIGNAL)?,
            result => {
                calls += 1;
                result?
            }
        };
        sent += nonzero(sent_bytes, "nothing of the message was sent")?;
    }
    Ok(calls)
}

/// Whether an error of [`send_without_copy`] means that too many calls are not completed.
pub fn is_queue_full(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Calls of [`send_without_copy`] completed since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroCopyCompletions {
    /// All of them.
    pub calls: u32,
    /// Those that the kernel copied after all.
    pub copied: u32,
}

/// Asks how many calls were completed, without waiting.
pub fn take_completions(socket: &impl AsFd) -> Result<ZeroCopyCompletions> {
    let mut total = ZeroCopyCompletions::default();
    while let Some((numbers, copied)) = next_completion(socket)? {
        let calls = numbers.end().wrapping_sub(*numbers.start()).wrapping_add(1);
        total.calls += calls;
        if copied {
            total.copied += calls;
        }
    }
    Ok(total)
}

/// The next calls to be completed, without waiting: the numbers of the first and the last of them, counted from 0 on this socket
/// and from 0 again after `u32::MAX`; and whether the kernel copied them after all.
///
/// # Errors
/// Those of recvmsg; another error in the socket's queue of errors.
pub fn next_completion(socket: &impl AsFd) -> Result<Option<(RangeInclusive<u32>, bool)>> {
    let is_report = |kind| matches!(kind, (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR));
    let report: libc::sock_extended_err = match next_queued_error(socket, is_report)? {
        None => return Ok(None),
        // SAFETY: a message of that kind begins with such a report.
        Some(Some(data)) => unsafe { std::ptr::read_unaligned(data.as_ptr().cast()) },
        Some(None) => return Err(Error::other("the socket's error queue holds something other than an error")),
    };
    if report.ee_origin != ORIGIN_ZERO_COPY || report.ee_errno != 0 {
        return Err(Error::from_raw_os_error(report.ee_errno as i32));
    }
    Ok(Some((report.ee_info..=report.ee_data, report.ee_code & ZEROCOPY_COPIED != 0)))
}

/// Most bytes of a control message of interest.
const CONTROL_DATA_BYTES: usize = 128;

/// The next message of a socket's error queue, if there is one: the data of its first control message of a kind, by level and type.
pub(super) fn next_queued_error(
    socket: &impl AsFd,
    is_match: impl Fn((libc::c_int, libc::c_int)) -> bool,
) -> Result<Option<Option<[u8; CONTROL_DATA_BYTES]>>> {
    #[repr(C, align(8))]
    struct Control([u8; 256]);
    let mut control = Control([0; 256]);
    // SAFETY: the header leads to `control` alone, which outlives it; CMSG_FIRSTHDR and CMSG_NXTHDR stay within what the kernel wrote
    // of it, and no more bytes of a message are read than it has.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_control, header.msg_controllen) = ((&raw mut control).cast(), size_of::<Control>() as _);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        if libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) == -1 {
            let error = Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EAGAIN) { Ok(None) } else { Err(error) };
        }
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(message) = next.as_ref() {
            if is_match((message.cmsg_level, message.cmsg_type)) {
                #[allow(clippy::unnecessary_cast, reason = "in musl it has 32 bits")]
                let length = (message.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let mut data = [0; CONTROL_DATA_BYTES];
                std::ptr::copy_nonoverlapping(libc::CMSG_DATA(next), data.as_mut_ptr(), length.min(data.len()));
                return Ok(Some(Some(data)));
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
    }
    Ok(Some(None))
}

/// Sends bytes once, and returns how many the call took.
#[inline(always)]
pub(super) fn send(socket: RawFd, bytes: &[u8], flags: libc::c_int) -> Result<usize> {
    // SAFETY: the slice is valid for its length.
    byte_count(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Moves bytes from one end to the other, each a descriptor and, of a file, an offset.
pub(super) fn splice(
    source: (RawFd, Option<u64>),
    target: (RawFd, Option<u64>),
    bytes: usize,
    flags: libc::c_uint,
) -> Result<usize> {
    let mut offsets = [source.1, target.1].map(|offset| offset.map(|offset| offset as libc::loff_t));
    let [from_offset, to_offset] =
        offsets.each_mut().map(|offset| offset.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut));
    // SAFETY: each offset is null, or valid to read and write.
    byte_count(unsafe { libc::splice(source.0, from_offset, target.0, to_offset, bytes, flags) })
}

/// How many bytes a call moved.
#[inline(always)]
pub(super) fn byte_count(result: libc::ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

/// Bytes that a call moved, at least one.
fn nonzero(bytes: usize, message: &'static str) -> Result<usize> {
    if bytes == 0 { Err(Error::other(message)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    const BYTES: usize = 300_000;

    fn random_bytes() -> Vec<u8> {
        (0..BYTES as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    /// Sends noise over a connection, and whether it arrived.
    fn arrives(send: impl FnOnce(&TcpStream, &[u8])) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let receiving = std::thread::spawn(move || {
            let mut received = Vec::new();
            server.read_to_end(&mut received).unwrap();
            received
        });
        let noise = random_bytes();
        send(&client, &noise);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        receiving.join().unwrap() == noise
    }

    #[test]
    fn file_arrives_by_sendfile_and_splice() {
        let file = memory_file_with(&random_bytes()).unwrap();
        assert!(arrives(|client, _| send_file(client, &file, BYTES).unwrap()));
        let splicer = Splicer::new(64 << 10).unwrap();
        assert!(splicer.capacity().unwrap() >= 4096);
        assert!(arrives(|client, _| splicer.send(client, &file, BYTES).unwrap()));
    }

    #[test]
    fn short_file_is_an_error() {
        let file = memory_file_with(&[1; 100]).unwrap();
        assert!(!arrives(|client, _| assert!(send_file(client, &file, 101).is_err())));
        assert!(!arrives(|client, _| assert!(Splicer::new(4096).unwrap().send(client, &file, 101).is_err())));
    }

    #[test]
    fn zero_copy_send_arrives_and_completes() {
        assert!(arrives(|client, noise| {
            set_zero_copy(client).unwrap();
            let calls = send_without_copy(client, noise).unwrap();
            let mut completions = ZeroCopyCompletions::default();
            while completions.calls < calls {
                let new_completions = take_completions(client).unwrap();
                completions = ZeroCopyCompletions {
                    calls: completions.calls + new_completions.calls,
                    copied: completions.copied + new_completions.copied,
                };
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(completions.calls, calls);
            // Loopback delivers the bytes to the receiver's socket, so it must copy them.
            assert_eq!(completions.copied, calls);
        }));
    }
}
