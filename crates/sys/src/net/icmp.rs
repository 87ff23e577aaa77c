//! Sockets for echo requests (ping): unprivileged where the kernel lets this user have one, raw where rights allow.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Error, Result, check};

/// What an echo socket adds to a message and takes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoSocket {
    /// A ping socket: the kernel fills in identifier and checksum, and hands over the message alone.
    Datagram,
    /// A raw socket: identifier and checksum are the sender's, and an IP header comes before what is received.
    Raw,
}

/// `SOL_RAW` and `ICMP_FILTER` of `linux/icmp.h`; a set bit keeps a type of message away.
const SOL_RAW: libc::c_int = 255;
const ICMP_FILTER: libc::c_int = 1;
/// Type of an echo reply.
const ECHO_REPLY: u32 = 0;

/// A socket for echo requests over IPv4, and of which kind it is. It is a datagram socket to whoever sends and receives.
///
/// # Errors
/// `PermissionDenied` if neither kind may be had.
pub fn socket() -> Result<(UdpSocket, EchoSocket)> {
    match open(libc::SOCK_DGRAM) {
        Ok(socket) => Ok((UdpSocket::from(socket), EchoSocket::Datagram)),
        // EACCES: the user's group is not in net.ipv4.ping_group_range; a raw socket needs CAP_NET_RAW instead.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            let socket = open(libc::SOCK_RAW)?;
            only_replies(&socket)?;
            Ok((UdpSocket::from(socket), EchoSocket::Raw))
        }
        Err(error) => Err(error),
    }
}

fn open(kind: libc::c_int) -> Result<OwnedFd> {
    // SAFETY: takes no pointers; the descriptor is new and owned by nobody else.
    unsafe {
        Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, libc::IPPROTO_ICMP))?))
    }
}

/// Keeps everything but echo replies away from a raw socket, which otherwise is given all that arrives.
fn only_replies(socket: &OwnedFd) -> Result<()> {
    let filter: u32 = !(1 << ECHO_REPLY);
    // SAFETY: the filter is valid for its size.
    let result = unsafe {
        let size = size_of::<u32>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), SOL_RAW, ICMP_FILTER, (&raw const filter).cast(), size)
    };
    check(result).map(drop)
}

/// Whether an error says that the rights are missing.
pub fn is_forbidden(error: &Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}
