//! What the queueing discipline of a network interface has let through, as the kernel counts it (rtnetlink).

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Error, Result, check};

/// `RTM_NEWQDISC`, `RTM_GETQDISC` of `linux/rtnetlink.h`.
const NEW_DISCIPLINE: u16 = 36;
const GET_DISCIPLINE: u16 = 38;
/// `NLM_F_REQUEST`, and `NLM_F_DUMP`: all of them, because to ask for one is answered differently by older kernels.
const REQUEST_ALL: u16 = 0x1 | 0x300;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const FAILED: u16 = 2;
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr` and of `struct tcmsg`, and where in them length, type, interface and parent are.
const HEADER: usize = 16;
const ABOUT: usize = 20;
const INTERFACE: usize = HEADER + 4;
const PARENT: usize = HEADER + 12;
/// `TC_H_ROOT`: the discipline through which all packets of the interface go.
const ROOT: u32 = 0xffff_ffff;
/// `TCA_KIND`, `TCA_STATS2`, and in it `TCA_STATS_BASIC` and `TCA_STATS_QUEUE`.
const KIND: u16 = 1;
const STATISTICS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
/// Where `struct gnet_stats_queue` has the packets that were dropped.
const DROPS: usize = 8;
/// More than the kernel puts into one answer.
const BUFFER: usize = 64 << 10;

/// What a discipline has let through and what not, since it was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The discipline: `tbf`.
    pub kind: String,
    /// Bytes that went through: packets with the headers of the link.
    pub bytes: u64,
    /// Packets that went through, as they are on the link: what is cut later counts as its pieces.
    pub packets: u32,
    /// Packets that were dropped.
    pub drops: u32,
}

/// The outermost discipline of an interface, in the network namespace in which this was opened.
#[derive(Debug)]
pub struct Discipline {
    kernel: File,
    interface: u32,
    answer: Vec<u8>,
}

impl Discipline {
    /// Of the interface of this name in the network namespace of the calling thread.
    ///
    /// # Errors
    /// An interface that is not there; a kernel without rtnetlink.
    pub fn of(interface: &str) -> Result<Self> {
        let name = CString::new(interface).map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: takes no pointers.
        let descriptor =
            check(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) })?;
        // SAFETY: the descriptor was just made and nothing else owns it.
        let kernel = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        // SAFETY: the name is terminated and outlives the call.
        let interface = match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => return Err(Error::last_os_error()),
            index => index,
        };
        Ok(Self { kernel, interface, answer: vec![0; BUFFER] })
    }

    /// What it has counted by now.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` if it tells of no such discipline.
    pub fn counts(&mut self) -> Result<Counts> {
        self.kernel.write_all(&request())?;
        let mut found = None;
        loop {
            let length = self.kernel.read(&mut self.answer)?;
            let mut rest = &self.answer[..length];
            while let Some(message) = next(&mut rest, message_length) {
                match half(message, 4) {
                    Some(DONE) => {
                        let missing =
                            || Error::new(std::io::ErrorKind::NotFound, "the interface has no discipline that counts");
                        return found.ok_or_else(missing);
                    }
                    Some(FAILED) => {
                        let code = word(message, HEADER).map_or(libc::EIO, |code| (code as i32).wrapping_neg());
                        return Err(Error::from_raw_os_error(code));
                    }
                    Some(NEW_DISCIPLINE) => found = found.or(self.outermost(message)),
                    _ => {}
                }
            }
        }
    }

    /// The counts in a message, if it is about the outermost discipline of this interface.
    fn outermost(&self, message: &[u8]) -> Option<Counts> {
        let is_it = word(message, INTERFACE)? == self.interface && word(message, PARENT)? == ROOT;
        if is_it { counts(message.get(HEADER + ABOUT..)?) } else { None }
    }
}

/// A request for all disciplines of the namespace.
fn request() -> [u8; HEADER + ABOUT] {
    let mut bytes = [0; HEADER + ABOUT];
    bytes[..4].copy_from_slice(&((HEADER + ABOUT) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&GET_DISCIPLINE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    bytes
}

/// The counts among the attributes of a discipline.
fn counts(attributes: &[u8]) -> Option<Counts> {
    let kind = attribute(attributes, KIND)?;
    let statistics = attribute(attributes, STATISTICS)?;
    let basic = attribute(statistics, BASIC)?;
    Some(Counts {
        kind: String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned(),
        bytes: u64::from_ne_bytes(*basic.first_chunk()?),
        packets: word(basic, 8)?,
        drops: attribute(statistics, QUEUE).and_then(|queue| word(queue, DROPS)).unwrap_or(0),
    })
}

/// The content of the first attribute of this type.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(one) = next(&mut attributes, attribute_length) {
        // The upper two bits say how its content is written.
        if half(one, 2)? & 0x3fff == wanted {
            return one.get(4..);
        }
    }
    None
}

/// Takes what is next: it begins with its own length, and what follows begins at a multiple of four bytes.
fn next<'a>(rest: &mut &'a [u8], length: fn(&[u8]) -> Option<usize>) -> Option<&'a [u8]> {
    let length = length(rest).filter(|&length| length >= 4)?;
    let one = rest.get(..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(one)
}

fn message_length(bytes: &[u8]) -> Option<usize> {
    word(bytes, 0).map(|length| length as usize)
}

fn attribute_length(bytes: &[u8]) -> Option<usize> {
    half(bytes, 0).map(usize::from)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_length(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = [&((4 + content.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn counts_are_found_among_the_attributes() {
        let basic = [&1_000_000_000_000_u64.to_ne_bytes()[..], &660_000_u32.to_ne_bytes(), &[0; 4]].concat();
        let queue: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|one| one.to_ne_bytes()).collect();
        let statistics = [with_length(QUEUE, &queue), with_length(BASIC, &basic)].concat();
        let all = [with_length(2, &[9; 5]), with_length(KIND, b"tbf\0"), with_length(STATISTICS | 0x8000, &statistics)];
        let found = counts(&all.concat()).unwrap();
        assert_eq!(found, Counts { kind: "tbf".into(), bytes: 1_000_000_000_000, packets: 660_000, drops: 3 });
        // Cut anywhere, it is nothing, or what was whole before the cut.
        let all = all.concat();
        assert!(
            (0..all.len()).all(|length| counts(&all[..length]).is_none_or(|found| found.bytes == 1_000_000_000_000))
        );
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert!(Discipline::of("nosuchif0").is_err());
    }
}
