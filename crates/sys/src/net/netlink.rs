//! Queries by rtnetlink: the socket, and parsing of messages and attributes.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Error, Result, check};

/// `NLM_F_REQUEST` of `linux/netlink.h`.
pub(super) const NLM_F_REQUEST: u16 = 0x1;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`.
pub(super) const HEADER_BYTES: usize = 16;

/// A socket for queries, in the network namespace of the calling thread.
pub(super) fn open() -> Result<File> {
    // SAFETY: takes no pointers.
    let descriptor =
        check(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) })?;
    // SAFETY: the descriptor was just made and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// Why a request was refused, from the message that says so.
pub(super) fn error_of_message(message: &[u8]) -> Error {
    let code = u32_at(message, HEADER_BYTES).map_or(libc::EIO, |code| (code as i32).wrapping_neg());
    Error::from_raw_os_error(code)
}

/// The content of the first attribute of this type.
pub(super) fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(one) = take_padded(&mut attributes, attribute_length) {
        // The upper two bits say how its content is written.
        if u16_at(one, 2)? & 0x3fff == wanted {
            return one.get(4..);
        }
    }
    None
}

/// Takes what is next: it begins with its own length, and what follows begins at a multiple of four bytes.
fn take_padded<'a>(rest: &mut &'a [u8], length: fn(&[u8]) -> Option<usize>) -> Option<&'a [u8]> {
    let length = length(rest).filter(|&length| length >= 4)?;
    let one = rest.get(..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(one)
}

/// Takes the next message of an answer.
pub(super) fn take_message<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    take_padded(rest, |bytes| u32_at(bytes, 0).map(|length| length as usize))
}

fn attribute_length(bytes: &[u8]) -> Option<usize> {
    u16_at(bytes, 0).map(usize::from)
}

/// The half word at a place.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The word at a place.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}
