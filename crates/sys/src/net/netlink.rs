//! Queries by rtnetlink: the socket, its requests and answers, and their attributes.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Error, Result};

/// `NLM_F_REQUEST` of `linux/netlink.h`, and `NLM_F_DUMP`, which asks for all of a kind.
const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_DUMP: u16 = 0x300;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// More than one answer of the kernel.
const ANSWER_BYTES: usize = 64 << 10;

/// A request: the type of its message, flags in addition to `NLM_F_REQUEST`, and what follows the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetlinkRequest<'a> {
    pub kind: u16,
    pub flags: u16,
    pub body: &'a [u8],
}

/// A socket for queries, in the network namespace of the calling thread.
pub(super) fn open() -> Result<File> {
    // Its default protocol is that of routes.
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?.into())
}

/// Sends a request, and calls `visit` with the type and the body of each message of the answer until it breaks.
///
/// # Errors
/// Those of the kernel.
pub(super) fn query(
    mut kernel: &File,
    request: NetlinkRequest<'_>,
    mut visit: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&((HEADER_BYTES + request.body.len()) as u32).to_ne_bytes());
    header[4..6].copy_from_slice(&request.kind.to_ne_bytes());
    header[6..8].copy_from_slice(&(NLM_F_REQUEST | request.flags).to_ne_bytes());
    kernel.write_all(&[&header, request.body].concat())?;
    let mut answer = vec![0; ANSWER_BYTES];
    loop {
        let length = kernel.read(&mut answer)?;
        let mut rest = &answer[..length];
        while let Some(message) = take_padded(&mut rest, |bytes| Some(u32_at(bytes, 0)? as usize)) {
            let body = message.get(HEADER_BYTES..).unwrap_or_default();
            match u16_at(message, 4) {
                Some(NLMSG_DONE) => return Ok(()),
                Some(NLMSG_ERROR) => {
                    let code = u32_at(body, 0).map_or(libc::EIO, |code| (code as i32).wrapping_neg());
                    return Err(Error::from_raw_os_error(code));
                }
                Some(kind) if visit(kind, body).is_break() => return Ok(()),
                _ => {}
            }
        }
        if request.flags & NLM_F_DUMP == 0 {
            return Ok(());
        }
    }
}

/// The content of the first attribute of this type.
pub(super) fn find_attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let Some(attribute) = take_padded(&mut attributes, |bytes| u16_at(bytes, 0).map(usize::from)) {
        // The upper two bits are flags of its content.
        if u16_at(attribute, 2)? & 0x3fff == kind {
            return attribute.get(4..);
        }
    }
    None
}

/// Takes what is next: it begins with its own length, and what follows begins at a multiple of four bytes.
fn take_padded<'a>(rest: &mut &'a [u8], length: fn(&[u8]) -> Option<usize>) -> Option<&'a [u8]> {
    let length = length(rest).filter(|&length| length >= 4)?;
    let item = rest.get(..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(item)
}

/// The half word at a place.
fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The word at a place.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The double word at a place.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}
