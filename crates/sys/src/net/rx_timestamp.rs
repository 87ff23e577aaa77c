//! Reading what came over a socket, and when the kernel took it from the network: a reader that is woken up late is late itself,
//! and what it reads is not.

use std::os::fd::{AsFd, AsRawFd};

use super::set_option;
use crate::clock::nanoseconds;
use crate::{Error, Result};

/// Has the kernel keep when the packets of a socket came.
pub fn enable(socket: &impl AsFd) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedRead {
    /// Bytes; none at the end of the connection.
    pub length: usize,
    /// Nanoseconds of CLOCK_REALTIME at which the last packet that was wholly read came, where the kernel reports it.
    pub arrival: Option<u64>,
}

impl TimedRead {
    /// For how many nanoseconds it waited until now; 0 where that is not known or the clock was set back.
    pub fn delay(&self) -> u64 {
        self.arrival.map_or(0, |arrival| nanoseconds(libc::CLOCK_REALTIME).saturating_sub(arrival))
    }
}

/// Reads what has come.
///
/// # Errors
/// Those of recvmsg.
pub fn read(socket: &impl AsFd, buffer: &mut [u8]) -> Result<TimedRead> {
    // SAFETY: the buffer is valid for its length.
    unsafe { receive(socket, (buffer.as_mut_ptr(), buffer.len()), libc::MSG_DONTWAIT) }
}

/// Reads into the spare capacity of a buffer what has come, or comes while a socket that waits does.
///
/// # Errors
/// Those of recvmsg.
pub fn append(socket: &impl AsFd, buffer: &mut Vec<u8>) -> Result<TimedRead> {
    let spare = buffer.spare_capacity_mut();
    // SAFETY: the spare capacity is valid for its length, and the kernel reads none of it.
    let timed_read = unsafe { receive(socket, (spare.as_mut_ptr().cast(), spare.len()), 0) }?;
    // SAFETY: this many bytes of it were written.
    unsafe { buffer.set_len(buffer.len() + timed_read.length) };
    Ok(timed_read)
}

/// The first byte that has come and was not read, which stays there.
///
/// # Errors
/// Those of recvmsg: `EAGAIN` where there is none.
pub fn peek(socket: &impl AsFd) -> Result<TimedRead> {
    let mut first = [0];
    // SAFETY: the buffer is valid for its length.
    unsafe { receive(socket, (first.as_mut_ptr(), first.len()), libc::MSG_DONTWAIT | libc::MSG_PEEK) }
}

/// # Safety
/// The buffer must be valid for writes of this many bytes.
unsafe fn receive(socket: &impl AsFd, (buffer, length): (*mut u8, usize), flags: libc::c_int) -> Result<TimedRead> {
    /// More than a header and a time need.
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec { iov_base: buffer.cast(), iov_len: length };
    // SAFETY: an all-zero header is valid; both buffers are valid for their lengths while the call writes into them; the control
    // buffer is aligned for its headers.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        (header.msg_control, header.msg_controllen) = ((&raw mut control).cast(), size_of::<Control>() as _);
        let length = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags);
        let length = usize::try_from(length).map_err(|_| Error::last_os_error())?;
        Ok(TimedRead { length, arrival: parse_time(&control.0[..header.msg_controllen as usize]) })
    }
}

/// Bytes of the control message next to what was read, if that is the time at which it came.
pub(crate) const CONTROL_BYTES: usize = TIME_OFFSET + size_of::<libc::timespec>();
/// Where in it the time is.
const TIME_OFFSET: usize = size_of::<libc::cmsghdr>().next_multiple_of(align_of::<usize>());

/// The time of a control message, in nanoseconds of CLOCK_REALTIME.
pub(crate) fn parse_time(control: &[u8]) -> Option<u64> {
    if control.len() < CONTROL_BYTES {
        return None;
    }
    // SAFETY: there are this many bytes, and any are a header or a time.
    let (header, time) = unsafe {
        let header = std::ptr::read_unaligned(control.as_ptr().cast::<libc::cmsghdr>());
        (header, std::ptr::read_unaligned(control[TIME_OFFSET..].as_ptr().cast::<libc::timespec>()))
    };
    let is_time = (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
    is_time.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};

    /// What comes of five bytes on their way, and between which times they were sent.
    fn send_and_read(receiver: &TcpStream, sender: &mut TcpStream) -> (TimedRead, std::ops::RangeInclusive<u64>) {
        let before = nanoseconds(libc::CLOCK_REALTIME);
        sender.write_all(b"hello").unwrap();
        // On the loopback interface a packet has its time before the call that sends it is over.
        let after = nanoseconds(libc::CLOCK_REALTIME);
        let mut buffer = [0; 16];
        loop {
            match read(receiver, &mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                result => {
                    assert_eq!(buffer[..5], *b"hello");
                    return (result.unwrap(), before..=after);
                }
            }
        }
    }

    #[test]
    fn read_returns_arrival_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut sender = listener.accept().unwrap().0;
        enable(&receiver).unwrap();
        assert_eq!(read(&receiver, &mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The kernel begins to keep times some packets after it was asked to.
        let (timed_read, sent) = loop {
            let (timed_read, sent) = send_and_read(&receiver, &mut sender);
            assert_eq!(timed_read.length, 5);
            if timed_read.arrival.is_some() {
                break (timed_read, sent);
            }
        };
        assert!(timed_read.arrival.is_some_and(|arrival| sent.contains(&arrival)), "{timed_read:?} {sent:?}");
        // Looked at twice and then read, by a socket that waits: it is the same.
        sender.write_all(b"again").unwrap();
        let first = std::iter::repeat_with(|| peek(&receiver)).find_map(Result::ok);
        let peeks = [first.unwrap(), peek(&receiver).unwrap()];
        let mut buffer = Vec::with_capacity(16);
        buffer.push(b'-');
        let read = append(&receiver, &mut buffer).unwrap();
        assert_eq!((buffer.as_slice(), read.length), (&b"-again"[..], 5));
        assert!(
            read.arrival.is_some() && peeks.iter().all(|peeked| *peeked == TimedRead { length: 1, ..read }),
            "{peeks:?} {read:?}"
        );
        assert_eq!(peek(&receiver).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(timed_read.delay() >= sent.end() - timed_read.arrival.unwrap());
        assert_eq!(TimedRead::default().delay(), 0);
    }
}
