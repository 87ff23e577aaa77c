//! Socket options beyond the standard library: congestion control, buffers, TCP_INFO.

pub mod icmp;
pub mod interface;
pub mod iproute;
pub mod namespace;
mod netlink;
pub mod qdisc;
pub mod route;
pub mod rx_timestamp;
pub mod shaped_rate;
pub mod socket_queues;
pub mod socket_send;
pub mod tap;
pub mod transfer_call;
pub mod tx_timestamp;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

pub use self::socket_queues::{TcpInfo, tcp_info};
use crate::{Error, Result, check, stop_signals};

/// Time-out of a connection to this machine, which answers at once.
const LOCAL_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// `SO_MEMINFO` of `asm-generic/socket.h`, and the bytes of its words in `linux/sock_diag.h` up to and with `SK_MEMINFO_DROPS`.
const SO_MEMINFO: libc::c_int = 55;
const MEMINFO_BYTES: usize = 9 * size_of::<u32>();

/// Bytes that a socket may hold, as the kernel counts them: including its overhead, so twice the requested size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBufferSizes {
    /// Sent and not yet acknowledged.
    pub send: u32,
    /// Received and not yet read.
    pub receive: u32,
}

/// Sets a congestion control by name. A connection that began with a pacing one (BBR) keeps being paced under any
/// other: set it before connecting.
///
/// # Errors
/// `NotFound` for one that the kernel does not have or does not allow.
pub fn set_congestion_control(socket: &impl AsFd, name: &str) -> Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The congestion control of a TCP socket.
pub fn congestion_control(socket: &impl AsFd) -> Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// The sizes of a socket's buffers now.
pub fn buffers(socket: &impl AsFd) -> Result<SocketBufferSizes> {
    Ok(SocketBufferSizes {
        send: sockopt::socket_send_buffer_size(socket)? as u32,
        receive: sockopt::socket_recv_buffer_size(socket)? as u32,
    })
}

/// Datagrams dropped because the socket's buffer was full, since it was opened.
///
/// # Errors
/// `ENOPROTOOPT` of a kernel before 4.12.
pub fn dropped_datagrams(socket: &impl AsFd) -> Result<u32> {
    let (words, _) = get_option::<MEMINFO_BYTES>(socket, libc::SOL_SOCKET, SO_MEMINFO)?;
    Ok(u32::from_ne_bytes(*words.last_chunk().expect("it has a last word")))
}

/// Requests this many bytes in each of a socket's buffers; the kernel silently caps them at its limits: read back what
/// was obtained. This disables the auto-tuning of a TCP socket's buffers.
pub fn set_buffers(socket: &impl AsFd, bytes: u32) -> Result<()> {
    sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
    Ok(sockopt::set_socket_recv_buffer_size(socket, bytes as usize)?)
}

/// Has poll and its like call a socket readable only when this many bytes have come (SO_RCVLOWAT), at least one, or the stream ends. A
/// kernel makes the receive buffer as large as that needs.
///
/// A read that waits is not to be combined with it: it takes what has come, and then sleeps until as many bytes have come again,
/// which at the end of what is sent is never.
///
/// # Errors
/// Those of setsockopt.
pub fn set_receive_low_water(socket: &impl AsFd, bytes: u32) -> Result<()> {
    let bytes = libc::c_int::try_from(bytes.max(1)).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes)
}

/// Has a TCP connection take no more once this many of its bytes wait to be sent (TCP_NOTSENT_LOWAT), in addition to those that are on their
/// way. A connection that a listening socket accepts has its value.
///
/// # Errors
/// Those of setsockopt.
pub fn set_unsent_low_water(socket: &impl AsFd, bytes: u32) -> Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Has the kernel spread what a TCP connection sends over time, to at most this many bytes a second (SO_MAX_PACING_RATE).
///
/// # Errors
/// Those of setsockopt.
pub fn set_max_pacing_rate(socket: &impl AsFd, bytes_per_second: u32) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second)
}

/// Limits the payload of each segment of a TCP connection to this many bytes (TCP_MAXSEG), before it is made. A connection that a listening
/// socket accepts has its limit.
///
/// # Errors
/// `EINVAL` of a size that the kernel does not allow.
pub fn set_max_segment(socket: &impl AsFd, bytes: u32) -> Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, &bytes)
}

/// Drops what a TCP connection has received, at most this many bytes, without copying it (MSG_TRUNC of recv(2), tcp(7)). Returns how many
/// were dropped: none at the end of the stream.
///
/// # Errors
/// Those of recv: `WouldBlock` where nothing has come.
pub fn drop_received(socket: &TcpStream, bytes: usize) -> Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer.
    let result =
        unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), bytes, libc::MSG_TRUNC | libc::MSG_DONTWAIT) };
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

/// Both ends of a TCP connection to an address of this machine, over sockets prepared before connecting.
///
/// # Errors
/// Those of the calls and of the preparation.
pub fn connect_local_pair(
    listener: &TcpListener,
    prepare: impl Fn(BorrowedFd<'_>) -> Result<()>,
) -> Result<(TcpStream, TcpStream)> {
    // An accepted socket inherits the options of the listening one.
    prepare(listener.as_fd())?;
    let client = connect_prepared(listener.local_addr()?, LOCAL_CONNECT_TIMEOUT, |socket| prepare(socket.as_fd()))?;
    Ok((client, listener.accept()?.0))
}

/// A TCP connection over a socket prepared before connecting: later options come too late for the window scale
/// (tcp(7)), and for pacing (see [`set_congestion_control`]).
///
/// # Errors
/// Those of the calls; `TimedOut` if nobody answered within this time; `Interrupted` if a signal asked to stop.
pub fn connect_prepared(
    address: SocketAddr,
    timeout: Duration,
    prepare: impl FnOnce(&TcpStream) -> Result<()>,
) -> Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let stream = TcpStream::from(rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    prepare(&stream)?;
    // It holds for connect as well (socket(7)).
    stream.set_write_timeout(Some(timeout))?;
    loop {
        match rustix::net::connect(&stream, &address) {
            Ok(()) => break,
            Err(Errno::INPROGRESS) => return Err(ErrorKind::TimedOut.into()),
            // A call with a time is not made again by itself, and work that the kernel has for this thread counts as a signal too, such as
            // the end of a ring that it used. The attempt goes on, and the same call waits for it.
            Err(Errno::INTR) if stop_signals::stop_signal().is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Sets the backlog of a listening socket; the standard library's is 128.
pub fn set_backlog(listener: &TcpListener, connections: u32) -> Result<()> {
    Ok(rustix::net::listen(listener, i32::try_from(connections).unwrap_or(i32::MAX))?)
}

/// The names of the loaded congestion controls.
pub fn congestion_controls() -> Result<Vec<String>> {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// Makes close reset the TCP connection at once, without TIME_WAIT.
pub fn reset_on_close(socket: &impl AsFd) -> Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Sets an option to a value as the kernel has it: a number, a struct or bytes.
fn set_option<T: ?Sized>(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: &T) -> Result<()> {
    let (bytes, length) = (std::ptr::from_ref(value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of `value`, which outlives the call.
    check(unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, bytes, length) }).map(drop)
}

/// The first bytes of an option, and how many of them the kernel filled; the rest is zero.
fn get_option<const N: usize>(socket: &impl AsFd, level: libc::c_int, name: libc::c_int) -> Result<([u8; N], usize)> {
    let (mut bytes, mut length) = ([0; N], N as libc::socklen_t);
    let (descriptor, buffer) = (socket.as_fd().as_raw_fd(), bytes.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `length` bytes, of which every pattern is a value.
    check(unsafe { libc::getsockopt(descriptor, level, name, buffer, &raw mut length) })?;
    Ok((bytes, length as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn tcp_info_is_filled() {
        let (mut client, mut server) = connection();
        client.write_all(&[7; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let info = tcp_info(&client).unwrap();
        assert_eq!(info.retransmits, 0);
        assert!(info.congestion_window > 0 && info.segment >= 536, "{info:?}");
        assert!(info.path_mtu > info.segment && info.receive_window > 1000, "{info:?}");
    }

    #[test]
    fn drop_received_drops_exact_bytes() {
        let (mut client, mut server) = connection();
        client.write_all(b"abcdef").unwrap();
        drop(client);
        set_receive_low_water(&server, 6).unwrap();
        assert_eq!(drop_received(&server, 4).unwrap(), 4);
        let mut rest = String::new();
        server.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), drop_received(&server, 4).unwrap()), ("ef", 0));
    }

    #[test]
    fn congestion_control_round_trips() {
        let (client, _server) = connection();
        // Reno is part of every kernel.
        set_congestion_control(&client, "reno").unwrap();
        assert_eq!(congestion_control(&client).unwrap(), "reno");
        let error = set_congestion_control(&client, "nosuch").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(congestion_control(&client).unwrap(), "reno");
    }

    #[test]
    fn reset_on_close_errors_peer() {
        let (mut client, server) = connection();
        reset_on_close(&server).unwrap();
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
    }

    #[test]
    fn dropped_datagrams_are_counted() {
        let [sender, receiver] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        set_buffers(&receiver, 4096).unwrap();
        assert_eq!(dropped_datagrams(&receiver).unwrap(), 0);
        for _ in 0..100 {
            sender.send_to(&[7; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        // A busy kernel may deliver some of them later.
        receiver.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let received_count = std::iter::from_fn(|| receiver.recv(&mut [0; 1000]).ok()).count();
        assert!((1..100).contains(&received_count), "{received_count}");
        assert_eq!(dropped_datagrams(&receiver).unwrap(), 100 - received_count as u32);
    }

    #[test]
    fn buffer_size_is_doubled() {
        let (client, _server) = connection();
        set_buffers(&client, 32 << 10).unwrap();
        assert_eq!(buffers(&client).unwrap(), SocketBufferSizes { send: 64 << 10, receive: 64 << 10 });
    }

    #[test]
    fn prepared_options_hold_on_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let prepare = |socket: BorrowedFd<'_>| {
            set_congestion_control(&socket, "reno")?;
            set_buffers(&socket, 48 << 10)
        };
        let (mut client, mut server) = connect_local_pair(&listener, prepare).unwrap();
        for end in [&client, &server] {
            assert_eq!(buffers(end).unwrap(), SocketBufferSizes { send: 96 << 10, receive: 96 << 10 });
            assert_eq!(congestion_control(end).unwrap(), "reno");
        }
        let result = connect_local_pair(&listener, |socket| set_congestion_control(&socket, "nosuch"));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        client.write_all(&[9; 100]).unwrap();
        let mut received = [0; 100];
        server.read_exact(&mut received).unwrap();
        assert_eq!(received, [9; 100]);
    }

    #[test]
    fn socket_is_prepared_before_connect() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = match TcpListener::bind(address) {
                Ok(listener) => listener,
                Err(error) => {
                    kelvin_testing::MissingRequirement::machine(format!("{address}: {error}"))
                        .report_skip("a socket prepared over IPv6");
                    continue;
                }
            };
            let listen_address = listener.local_addr().unwrap();
            let prepare = |socket: &TcpStream| {
                assert!(socket.peer_addr().is_err());
                set_congestion_control(socket, "reno")
            };
            let client = connect_prepared(listen_address, LOCAL_CONNECT_TIMEOUT, prepare).unwrap();
            assert_eq!(
                (client.peer_addr().unwrap(), congestion_control(&client).unwrap().as_str()),
                (listen_address, "reno")
            );
            assert_eq!(client.write_timeout().unwrap(), None);
            let result = connect_prepared(listen_address, LOCAL_CONNECT_TIMEOUT, |socket| {
                set_congestion_control(socket, "nosuch")
            });
            assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        }
    }

    #[test]
    fn unanswered_connect_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: a call without pointers. Nobody accepts, so that the first one fills the queue.
        check(unsafe { libc::listen(listener.as_raw_fd(), 0) }).unwrap();
        let address = listener.local_addr().unwrap();
        let _first = connect_prepared(address, LOCAL_CONNECT_TIMEOUT, |_| Ok(())).unwrap();
        let second = connect_prepared(address, Duration::from_millis(50), |_| Ok(()));
        assert_eq!(second.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn listed_congestion_controls_can_be_set() {
        let (client, _server) = connection();
        let names = congestion_controls().unwrap();
        assert!(names.iter().any(|name| name == "reno"), "{names:?}");
        assert!(names.contains(&congestion_control(&client).unwrap()), "{names:?}");
    }
}
