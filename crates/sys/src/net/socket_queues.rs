//! What waits in the buffers of a TCP connection or in the queue of a listening socket, and what kept a connection from sending.

use std::os::fd::{AsFd, AsRawFd};

use super::get_option;
use crate::{Error, Result, check};

/// Bytes of `struct tcp_info` (linux/tcp.h) up to and with `tcpi_snd_wnd`, and of them those up to and with `tcpi_sndbuf_limited`, which
/// Linux has had since 5.4 and 4.10; the C library's structure ends before them.
const TCP_INFO_BYTES: usize = 232;
const MIN_TCP_INFO_BYTES: usize = 192;
/// Where in it `tcpi_unacked` and `tcpi_sacked` are, which of a listening socket are its queue and the most that it holds.
const QUEUED_OFFSET: usize = 24;
const QUEUE_OFFSET: usize = 28;
/// Where `tcpi_lost` and `tcpi_retrans` are, in segments, `tcpi_last_data_sent` in milliseconds, `tcpi_notsent_bytes` and, in
/// microseconds, `tcpi_min_rtt`.
const LOST_OFFSET: usize = 32;
const RETRANSMITTED_OFFSET: usize = 36;
const LAST_SENT_OFFSET: usize = 44;
const UNSENT_OFFSET: usize = 144;
/// Where `tcpi_bytes_received` is.
const RECEIVED_OFFSET: usize = 128;
const MIN_ROUND_TRIP_OFFSET: usize = 148;
/// Where `tcpi_bytes_acked` and, in microseconds, `tcpi_busy_time` are.
const ACKNOWLEDGED_OFFSET: usize = 120;
const BUSY_OFFSET: usize = 168;
/// Where `tcpi_total_retrans` and `tcpi_data_segs_out` are, in segments, and, in microseconds, `tcpi_rtt`.
const TOTAL_RETRANSMITTED_OFFSET: usize = 100;
const TOTAL_SENT_OFFSET: usize = 156;
const ROUND_TRIP_OFFSET: usize = 68;
/// Where `tcpi_rwnd_limited` and `tcpi_sndbuf_limited` are, in microseconds.
const WINDOW_LIMITED_OFFSET: usize = 176;
const BUFFER_LIMITED_OFFSET: usize = 184;
/// Where `tcpi_snd_wnd` is, in bytes.
const WINDOW_OFFSET: usize = 228;
/// Where `tcpi_snd_mss`, `tcpi_pmtu` and `tcpi_rcv_ssthresh` are, in bytes, and `tcpi_snd_cwnd`, in segments.
const SEGMENT_OFFSET: usize = 16;
const PATH_MTU_OFFSET: usize = 60;
const RECEIVE_WINDOW_OFFSET: usize = 64;
const CONGESTION_WINDOW_OFFSET: usize = 80;

/// Nanoseconds for which a connection could not send what it had, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedTime {
    /// The other end's receive window was full.
    pub by_window: u64,
    /// The send buffer was, with more to be sent behind it.
    pub by_buffer: u64,
}

/// Nanoseconds for which a connection had something to send since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTime {
    /// Some was to be sent, or was not acknowledged.
    pub busy: u64,
    /// Of these, when it could not send it.
    pub limited: LimitedTime,
}

/// What a connection has carried from this end since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Bytes that the other end has acknowledged.
    pub bytes: u64,
    /// Nanoseconds for which some were to be sent, or were not acknowledged.
    pub busy: u64,
    /// Of these, when it could not send them.
    pub limited: LimitedTime,
    /// Bytes that were not sent yet.
    pub unsent_bytes: u32,
    /// Segments with data that were sent, and those that were sent again.
    pub segments: u32,
    /// See `segments`.
    pub retransmitted: u32,
    /// The shortest round trip so far, in nanoseconds, and the smoothed one.
    pub min_round_trip: u64,
    /// See `min_round_trip`.
    pub round_trip: u64,
    /// Bytes of the other end's receive window now; 0 where the kernel does not report it.
    pub window: u32,
    /// Bytes in the send buffer now: that were not sent, or are not acknowledged.
    pub buffered_bytes: u32,
}

/// What of a connection is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InTransit {
    /// Bytes that were not sent yet.
    pub unsent_bytes: u32,
    /// Segments that were sent and are not acknowledged.
    pub segments: u32,
    /// Whether some of them are lost, or were sent again.
    pub is_recovering: bool,
    /// The shortest round trip so far, in nanoseconds.
    pub min_round_trip: u64,
    /// Nanoseconds since its last bytes were sent, to a tick of the kernel.
    pub since_sent: u64,
}

/// The connections that wait to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenQueue {
    /// How many there are.
    pub length: u32,
    /// At most.
    pub capacity: u32,
}

/// The kernel's state of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// The kernel's smoothed round trip, in nanoseconds (it counts microseconds).
    pub round_trip: u64,
    /// Segments retransmitted since the connection was made.
    pub retransmits: u32,
    /// The congestion window, in segments.
    pub congestion_window: u32,
    /// Largest payload of a segment, in bytes.
    pub segment: u32,
    /// The path MTU, in bytes.
    pub path_mtu: u32,
    /// Most bytes that may come before any is read, as the kernel has let it grow so far.
    pub receive_window: u32,
}

/// The kernel's current state of a TCP connection.
///
/// # Errors
/// As [`send_time`].
pub fn tcp_info(socket: &impl AsFd) -> Result<TcpInfo> {
    let info = TcpInfoBytes::read(socket)?;
    Ok(TcpInfo {
        round_trip: u64::from(info.word(ROUND_TRIP_OFFSET)) * 1000,
        retransmits: info.word(TOTAL_RETRANSMITTED_OFFSET),
        congestion_window: info.word(CONGESTION_WINDOW_OFFSET),
        segment: info.word(SEGMENT_OFFSET),
        path_mtu: info.word(PATH_MTU_OFFSET),
        receive_window: info.word(RECEIVE_WINDOW_OFFSET),
    })
}

/// Bytes that were given to a connection and the other end has not acknowledged (SIOCOUTQ).
///
/// # Errors
/// `EINVAL` of a listening socket.
pub fn unacknowledged_bytes(socket: &impl AsFd) -> Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one integer, and `bytes` is one.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Bytes that have arrived and were not read (SIOCINQ).
///
/// # Errors
/// `EINVAL` of a listening socket.
pub fn unread_bytes(socket: &impl AsFd) -> Result<u32> {
    Ok(rustix::io::ioctl_fionread(socket)? as u32)
}

/// Bytes that have arrived in order since the connection was made, whether they were read or not: a reader that waits for a CPU does
/// not delay them.
///
/// # Errors
/// As [`send_time`].
pub fn received_bytes(socket: &impl AsFd) -> Result<u64> {
    Ok(TcpInfoBytes::read(socket)?.double_word(RECEIVED_OFFSET))
}

/// What is on its way.
///
/// # Errors
/// As [`send_time`].
pub fn in_transit(socket: &impl AsFd) -> Result<InTransit> {
    let info = TcpInfoBytes::read(socket)?;
    Ok(InTransit {
        unsent_bytes: info.word(UNSENT_OFFSET),
        segments: info.word(QUEUED_OFFSET),
        is_recovering: info.word(LOST_OFFSET) > 0 || info.word(RETRANSMITTED_OFFSET) > 0,
        min_round_trip: u64::from(info.word(MIN_ROUND_TRIP_OFFSET)) * 1000,
        since_sent: u64::from(info.word(LAST_SENT_OFFSET)) * 1_000_000,
    })
}

/// What it has carried.
///
/// # Errors
/// As [`send_time`].
pub fn send_counters(socket: &impl AsFd) -> Result<SendCounters> {
    let info = TcpInfoBytes::read(socket)?;
    let SendTime { busy, limited } = info.send_time();
    Ok(SendCounters {
        bytes: info.double_word(ACKNOWLEDGED_OFFSET),
        busy,
        limited,
        unsent_bytes: info.word(UNSENT_OFFSET),
        segments: info.word(TOTAL_SENT_OFFSET),
        retransmitted: info.word(TOTAL_RETRANSMITTED_OFFSET),
        min_round_trip: u64::from(info.word(MIN_ROUND_TRIP_OFFSET)) * 1000,
        round_trip: u64::from(info.word(ROUND_TRIP_OFFSET)) * 1000,
        window: info.word(WINDOW_OFFSET),
        buffered_bytes: unacknowledged_bytes(socket)?,
    })
}

/// For how long it had something to send, and what kept it from that.
///
/// # Errors
/// A kernel before 4.10.
pub fn send_time(socket: &impl AsFd) -> Result<SendTime> {
    Ok(TcpInfoBytes::read(socket)?.send_time())
}

/// The queue of a listening socket.
///
/// # Errors
/// As [`send_time`].
pub fn accept_queue(listener: &impl AsFd) -> Result<ListenQueue> {
    let info = TcpInfoBytes::read(listener)?;
    Ok(ListenQueue { length: info.word(QUEUED_OFFSET), capacity: info.word(QUEUE_OFFSET) })
}

/// What the kernel gives as TCP_INFO.
struct TcpInfoBytes([u8; TCP_INFO_BYTES]);

impl TcpInfoBytes {
    fn read(socket: &impl AsFd) -> Result<Self> {
        match get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)? {
            (info, MIN_TCP_INFO_BYTES..) => Ok(Self(info)),
            (_, length) => Err(Error::other(format!(
                "the kernel returned {length} bytes of TCP_INFO, but {MIN_TCP_INFO_BYTES} are needed"
            ))),
        }
    }

    fn word(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|index| self.0[offset + index]))
    }

    fn double_word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|index| self.0[offset + index]))
    }

    fn send_time(&self) -> SendTime {
        let [busy, by_window, by_buffer] = [BUSY_OFFSET, WINDOW_LIMITED_OFFSET, BUFFER_LIMITED_OFFSET]
            .map(|offset| self.double_word(offset).saturating_mul(1000));
        SendTime { busy, limited: LimitedTime { by_window, by_buffer } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn queued_bytes_are_counted_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        super::super::set_backlog(&listener, 7).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(accept_queue(&listener).unwrap(), ListenQueue { length: 1, capacity: 7 });
        let mut server = listener.accept().unwrap().0;
        assert_eq!(accept_queue(&listener).unwrap().length, 0);
        (&client).write_all(&[1; 1000]).unwrap();
        server.peek(&mut [0]).unwrap();
        assert_eq!((unread_bytes(&server).unwrap(), received_bytes(&server).unwrap()), (1000, 1000));
        server.read_exact(&mut [0; 1000]).unwrap();
        assert_eq!((unread_bytes(&server).unwrap(), received_bytes(&server).unwrap()), (0, 1000));
        assert_eq!(received_bytes(&client).unwrap(), 0);
    }

    #[test]
    fn nonreading_end_fills_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.set_nonblocking(true).unwrap();
        assert_eq!(send_time(&client).unwrap().limited.by_window, 0);
        let mut written_bytes = 0;
        // Both buffers, each of which may grow while it is filled.
        while let Ok(count) = client.write(&[1; 1 << 20]) {
            written_bytes += count;
        }
        let unacknowledged = unacknowledged_bytes(&client).unwrap();
        assert!(unacknowledged > 0 && unacknowledged as usize <= written_bytes);
        let carried_before = send_counters(&client).unwrap();
        let transit = in_transit(&client).unwrap();
        assert!(
            transit.unsent_bytes > 0
                && transit.unsent_bytes <= unacknowledged
                && !transit.is_recovering
                && transit.min_round_trip > 0,
            "{transit:?}"
        );
        // The kernel counts in ticks of its clock, one of which may have passed before.
        while send_time(&client).unwrap().limited.by_window == 0
            || send_counters(&client).unwrap().busy <= carried_before.busy
        {}
        let counters = send_counters(&client).unwrap();
        assert!(counters.busy >= counters.limited.by_window && counters.busy > carried_before.busy, "{counters:?}");
        assert!(
            counters.unsent_bytes > 0 && counters.bytes < written_bytes as u64 && counters.min_round_trip > 0,
            "{counters:?}"
        );
        assert!(counters.segments > 0 && counters.retransmitted <= counters.segments, "{counters:?}");
        assert!(counters.round_trip >= counters.min_round_trip, "{counters:?}");
        assert!(
            counters.buffered_bytes >= counters.unsent_bytes && counters.buffered_bytes as usize <= written_bytes,
            "{counters:?}"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| server.read_exact(&mut vec![0; written_bytes]).unwrap());
        });
        while unacknowledged_bytes(&client).unwrap() > 0 {}
        let after = in_transit(&client).unwrap();
        assert_eq!((after.unsent_bytes, after.segments, after.is_recovering), (0, 0, false));
        let carried = send_counters(&client).unwrap();
        // The kernel may count what opened the connection as well.
        assert!(
            (written_bytes as u64..=written_bytes as u64 + 1).contains(&carried.bytes),
            "{carried:?} of {written_bytes}"
        );
    }
}
