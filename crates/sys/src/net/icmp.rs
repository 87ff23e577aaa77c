//! Sockets for echo requests (ping): unprivileged where the kernel allows it for this user, else raw where rights
//! allow.

use std::net::UdpSocket;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::{Error, Result};

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
    let open = |kind| {
        let (flags, protocol) = (SocketFlags::CLOEXEC, Some(ipproto::ICMP));
        rustix::net::socket_with(AddressFamily::INET, kind, flags, protocol).map(UdpSocket::from)
    };
    match open(SocketType::DGRAM) {
        Ok(socket) => Ok((socket, EchoSocketKind::Datagram)),
        // The user's group is not in net.ipv4.ping_group_range; a raw socket needs CAP_NET_RAW instead.
        Err(Errno::ACCESS) => {
            let socket = open(SocketType::RAW)?;
            // Else it receives everything.
            super::set_option(&socket, SOL_RAW, ICMP_FILTER, &!(1u32 << ECHO_REPLY))?;
            Ok((socket, EchoSocketKind::Raw))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether an error means missing rights.
pub fn is_forbidden(error: &Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}
