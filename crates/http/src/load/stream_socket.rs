//! A socket to a server, of TCP or of a path on this host (a Unix socket), that never waits.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use kelvin_sys::net::rx_timestamp::{self, TimedRead};
use kelvin_sys::net::tx_timestamp;
use kelvin_transfer::wire::address::DisplayAddr;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// At an address and port of TCP.
    Tcp(SocketAddr),
    /// At a path of this host.
    Unix(PathBuf),
}

impl ServerAddress {
    /// Whether it is on this host.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => is_own_address(*address),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => DisplayAddr(*address).fmt(out),
            Self::Unix(path) => path.display().fmt(out),
        }
    }
}

/// Whether an address is this host's: a socket here can have it.
pub(crate) fn is_own_address(mut address: SocketAddr) -> bool {
    address.set_port(0);
    UdpSocket::bind(address).is_ok()
}

/// A connected socket, or one that is being connected.
#[derive(Debug)]
pub(crate) struct StreamSocket {
    socket: OwnedFd,
    /// Whether the kernel keeps when packets come and leave: a Unix socket has none, and takes a question for them for a read.
    has_packets: bool,
}

impl StreamSocket {
    /// Begins to connect: the socket can be written once it is connected.
    pub(crate) fn connect(address: &ServerAddress) -> io::Result<Self> {
        match address {
            ServerAddress::Tcp(address) => Self::connect_tcp(address),
            ServerAddress::Unix(path) => Self::connect_unix(path),
        }
    }

    fn connect_tcp(address: &SocketAddr) -> io::Result<Self> {
        let socket = new_socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
        // A request is one write; Nagle's algorithm would hold back the rest of one that is not.
        sockopt::set_tcp_nodelay(&socket, true)?;
        rx_timestamp::enable(&socket)?;
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self { socket, has_packets: true }),
            Err(error) => Err(error.into()),
        }
    }

    fn connect_unix(path: &Path) -> io::Result<Self> {
        let (socket, address) = (new_socket(AddressFamily::UNIX)?, SocketAddrUnix::new(path)?);
        match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(Self { socket, has_packets: false }),
            Err(Errno::AGAIN) => Err(io::Error::other("the queue of the listening socket is full")),
            Err(error) => Err(error.into()),
        }
    }

    /// The error of the socket, which it then no longer has.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(self)?.err().map(io::Error::from))
    }

    /// Whether from now on the kernel keeps when what is sent leaves.
    pub(crate) fn enable_departure_times(&self) -> bool {
        self.has_packets && tx_timestamp::enable(self).is_ok()
    }

    /// For how many nanoseconds what was sent last has been on its way; nothing if it has not left.
    pub(crate) fn transit_time(&self) -> Option<u64> {
        let departure = if self.has_packets { tx_timestamp::last_departure(self).ok().flatten() } else { None };
        departure.and_then(tx_timestamp::time_since)
    }

    /// Reads what has come, and when it came, where the kernel reports that.
    pub(crate) fn timed_read(&self, buffer: &mut [u8]) -> io::Result<TimedRead> {
        rx_timestamp::read(self, buffer)
    }
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for &StreamSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, buffer)?)
    }
}

impl Write for &StreamSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
