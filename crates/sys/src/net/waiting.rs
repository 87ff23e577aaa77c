//! What waits in the buffers of a TCP connection or in the queue of a listening socket, and what kept a connection from sending.

use std::os::fd::{AsFd, AsRawFd};

use super::option;
use crate::{Error, Result, check};

/// Bytes of `struct tcp_info` (linux/tcp.h) up to and with `tcpi_snd_wnd`, and of them those up to and with `tcpi_sndbuf_limited`, which
/// Linux has had since 5.4 and 4.10; the C library's structure ends before them.
pub(super) const INFO: usize = 232;
const LEAST_INFO: usize = 192;
/// Where in it `tcpi_unacked` and `tcpi_sacked` are, which of a listening socket are its queue and the most that it holds.
const QUEUED: usize = 24;
const QUEUE: usize = 28;
/// Where `tcpi_lost` and `tcpi_retrans` are, in segments, `tcpi_last_data_sent` in milliseconds, `tcpi_notsent_bytes` and, in
/// microseconds, `tcpi_min_rtt`.
const LOST: usize = 32;
const RETRANSMITTED: usize = 36;
const LAST_SENT: usize = 44;
const NOT_SENT: usize = 144;
/// Where `tcpi_bytes_received` is.
const RECEIVED: usize = 128;
const LEAST_ROUND_TRIP: usize = 148;
/// Where `tcpi_bytes_acked` and, in microseconds, `tcpi_busy_time` are.
const ACKNOWLEDGED: usize = 120;
const BUSY: usize = 168;
/// Where `tcpi_total_retrans` and `tcpi_data_segs_out` are, in segments, and, in microseconds, `tcpi_rtt`.
const ALL_RETRANSMITTED: usize = 100;
const ALL_SENT: usize = 156;
const ROUND_TRIP: usize = 68;
/// Where `tcpi_rwnd_limited` and `tcpi_sndbuf_limited` are, in microseconds.
const WINDOW_LIMITED: usize = 176;
const BUFFER_LIMITED: usize = 184;
/// Where `tcpi_snd_wnd` is, in bytes.
const WINDOW: usize = 228;

/// Nanoseconds for which a connection could not send what it had, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limited {
    /// The other end's receive window was full.
    pub by_window: u64,
    /// The send buffer was, with more to be sent behind it.
    pub by_buffer: u64,
}

/// Nanoseconds for which a connection had something to send since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Some was to be sent, or was not acknowledged.
    pub busy: u64,
    /// Of these, when it could not send it.
    pub limited: Limited,
}

/// What a connection has carried from this end since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that the other end has acknowledged.
    pub bytes: u64,
    /// Nanoseconds for which some were to be sent, or were not acknowledged.
    pub busy: u64,
    /// Of these, when it could not send them.
    pub limited: Limited,
    /// Bytes that were not sent yet.
    pub not_sent: u32,
    /// Segments with data that were sent, and those that were sent again.
    pub segments: u32,
    /// See `segments`.
    pub retransmitted: u32,
    /// The shortest round trip so far, in nanoseconds, and the smoothed one.
    pub least_round_trip: u64,
    /// See `least_round_trip`.
    pub round_trip: u64,
    /// Bytes of the other end's receive window now; 0 where the kernel does not say.
    pub window: u32,
    /// Bytes in the send buffer now: that were not sent, or are not acknowledged.
    pub in_buffer: u32,
}

/// What of a connection is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnTheWay {
    /// Bytes that were not sent yet.
    pub not_sent: u32,
    /// Segments that were sent and are not acknowledged.
    pub segments: u32,
    /// Whether some of them are lost, or were sent again.
    pub is_recovering: bool,
    /// The shortest round trip so far, in nanoseconds.
    pub least_round_trip: u64,
    /// Nanoseconds since its last bytes were sent, to a tick of the kernel.
    pub since_sent: u64,
}

/// The connections that wait to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// How many there are.
    pub now: u32,
    /// At most.
    pub most: u32,
}

/// Bytes that were given to a connection and the other end has not acknowledged (SIOCOUTQ).
///
/// # Errors
/// `EINVAL` of a listening socket.
pub fn unacknowledged(socket: &impl AsFd) -> Result<u32> {
    bytes(socket, libc::TIOCOUTQ)
}

/// Bytes that have arrived and were not read (SIOCINQ).
///
/// # Errors
/// `EINVAL` of a listening socket.
pub fn unread(socket: &impl AsFd) -> Result<u32> {
    bytes(socket, libc::FIONREAD)
}

/// Bytes that have arrived in order since the connection was made, whether they were read or not: a reader that waits for a CPU does
/// not delay them.
///
/// # Errors
/// As [`sending`].
pub fn received(socket: &impl AsFd) -> Result<u64> {
    Ok(u64::from_ne_bytes(bytes_at(&info(socket)?, RECEIVED)))
}

/// What is on its way.
///
/// # Errors
/// As [`sending`].
pub fn on_the_way(socket: &impl AsFd) -> Result<OnTheWay> {
    let info = info(socket)?;
    let number = |at: usize| u32::from_ne_bytes(bytes_at(&info, at));
    Ok(OnTheWay {
        not_sent: number(NOT_SENT),
        segments: number(QUEUED),
        is_recovering: number(LOST) > 0 || number(RETRANSMITTED) > 0,
        least_round_trip: u64::from(number(LEAST_ROUND_TRIP)) * 1000,
        since_sent: u64::from(number(LAST_SENT)) * 1_000_000,
    })
}

/// What it has carried.
///
/// # Errors
/// As [`sending`].
pub fn carried(socket: &impl AsFd) -> Result<Carried> {
    let info = info(socket)?;
    let number = |at: usize| u32::from_ne_bytes(bytes_at(&info, at));
    let large = |at: usize| u64::from_ne_bytes(bytes_at(&info, at));
    Ok(Carried {
        bytes: large(ACKNOWLEDGED),
        busy: busy(&info),
        limited: limited_by(&info),
        not_sent: number(NOT_SENT),
        segments: number(ALL_SENT),
        retransmitted: number(ALL_RETRANSMITTED),
        least_round_trip: u64::from(number(LEAST_ROUND_TRIP)) * 1000,
        round_trip: u64::from(number(ROUND_TRIP)) * 1000,
        window: number(WINDOW),
        in_buffer: unacknowledged(socket)?,
    })
}

/// For how long it had something to send, and what kept it from that.
///
/// # Errors
/// A kernel before 4.10.
pub fn sending(socket: &impl AsFd) -> Result<Sending> {
    let info = info(socket)?;
    Ok(Sending { busy: busy(&info), limited: limited_by(&info) })
}

fn busy(info: &[u8; INFO]) -> u64 {
    u64::from_ne_bytes(bytes_at(info, BUSY)).saturating_mul(1000)
}

fn limited_by(info: &[u8; INFO]) -> Limited {
    let nanoseconds = |at: usize| u64::from_ne_bytes(bytes_at(info, at)).saturating_mul(1000);
    Limited { by_window: nanoseconds(WINDOW_LIMITED), by_buffer: nanoseconds(BUFFER_LIMITED) }
}

/// The queue of a listening socket.
///
/// # Errors
/// As [`sending`].
pub fn queue(listener: &impl AsFd) -> Result<Queue> {
    let info = info(listener)?;
    let number = |at: usize| u32::from_ne_bytes(bytes_at(&info, at));
    Ok(Queue { now: number(QUEUED), most: number(QUEUE) })
}

fn info(socket: &impl AsFd) -> Result<[u8; INFO]> {
    match option::<[u8; INFO]>(socket, libc::IPPROTO_TCP, libc::TCP_INFO)? {
        (info, LEAST_INFO..) => Ok(info),
        (_, length) => {
            Err(Error::other(format!("the kernel returned {length} bytes of TCP_INFO, but {LEAST_INFO} are needed")))
        }
    }
}

fn bytes_at<const N: usize>(info: &[u8; INFO], at: usize) -> [u8; N] {
    std::array::from_fn(|index| info[at + index])
}

fn bytes(socket: &impl AsFd, request: libc::Ioctl) -> Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: either request writes one integer, and `bytes` is one.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, &raw mut bytes) })?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_waits_is_counted_at_either_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        super::super::set_queue(&listener, 7).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(queue(&listener).unwrap(), Queue { now: 1, most: 7 });
        let mut far = listener.accept().unwrap().0;
        assert_eq!(queue(&listener).unwrap().now, 0);
        (&near).write_all(&[1; 1000]).unwrap();
        far.peek(&mut [0]).unwrap();
        assert_eq!((unread(&far).unwrap(), received(&far).unwrap()), (1000, 1000));
        far.read_exact(&mut [0; 1000]).unwrap();
        assert_eq!((unread(&far).unwrap(), received(&far).unwrap()), (0, 1000));
        assert_eq!(received(&near).unwrap(), 0);
    }

    #[test]
    fn an_end_that_reads_nothing_fills_its_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        assert_eq!(sending(&near).unwrap().limited.by_window, 0);
        let mut written = 0;
        // Both buffers, each of which may grow while it is filled.
        while let Ok(some) = near.write(&[1; 1 << 20]) {
            written += some;
        }
        let waits = unacknowledged(&near).unwrap();
        assert!(waits > 0 && waits as usize <= written);
        let carried_before = carried(&near).unwrap();
        let way = on_the_way(&near).unwrap();
        assert!(way.not_sent > 0 && way.not_sent <= waits && !way.is_recovering && way.least_round_trip > 0, "{way:?}");
        // The kernel counts in ticks of its clock, one of which may have passed before.
        while sending(&near).unwrap().limited.by_window == 0 || carried(&near).unwrap().busy <= carried_before.busy {}
        let waited = carried(&near).unwrap();
        assert!(waited.busy >= waited.limited.by_window && waited.busy > carried_before.busy, "{waited:?}");
        assert!(waited.not_sent > 0 && waited.bytes < written as u64 && waited.least_round_trip > 0, "{waited:?}");
        assert!(waited.segments > 0 && waited.retransmitted <= waited.segments, "{waited:?}");
        assert!(waited.round_trip >= waited.least_round_trip, "{waited:?}");
        assert!(waited.in_buffer >= waited.not_sent && waited.in_buffer as usize <= written, "{waited:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| far.read_exact(&mut vec![0; written]).unwrap());
        });
        while unacknowledged(&near).unwrap() > 0 {}
        let after = on_the_way(&near).unwrap();
        assert_eq!((after.not_sent, after.segments, after.is_recovering), (0, 0, false));
        let carried = carried(&near).unwrap();
        // The kernel may count what opened the connection as well.
        assert!((written as u64..=written as u64 + 1).contains(&carried.bytes), "{carried:?} of {written}");
    }
}
