//! Sockets for echo requests (ping): unprivileged where the kernel allows it for this user, else raw where rights
//! allow.

use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Error, Result, check};

/// The kind of echo socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoSocketKind {
    /// A ping socket: the kernel fills in identifier and checksum, and delivers the message alone.
    Datagram,
    /// A raw socket: the sender sets identifier and checksum, and received messages have an IP header.
    Raw,
}

/// `SOL_RAW` and `ICMP_FILTER` of `linux/icmp.h`; a set bit keeps a type of message away.
const SOL_RAW: libc::c_int = 255;
const ICMP_FILTER: libc::c_int = 1;
/// Type of an echo reply.
const ECHO_REPLY: u32 = 0;

/// A socket for echo requests over IPv4, and of which kind it is. It is used like a datagram socket.
///
/// # Errors
/// `PermissionDenied` if neither kind is allowed.
pub fn open_echo_socket() -> Result<(UdpSocket, EchoSocketKind)> {
    match open(libc::SOCK_DGRAM) {
        Ok(socket) => Ok((UdpSocket::from(socket), EchoSocketKind::Datagram)),
        // EACCES: the user's group is not in net.ipv4.ping_group_range; a raw socket needs CAP_NET_RAW instead.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            let socket = open(libc::SOCK_RAW)?;
            filter_replies(&socket)?;
            Ok((UdpSocket::from(socket), EchoSocketKind::Raw))
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

/// Filters everything but echo replies on a raw socket, which otherwise receives everything.
fn filter_replies(socket: &OwnedFd) -> Result<()> {
    super::set_option(socket, SOL_RAW, ICMP_FILTER, &!(1u32 << ECHO_REPLY))
}

/// Whether an error means missing rights.
pub fn is_forbidden(error: &Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}
