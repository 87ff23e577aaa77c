//! The counters of a network interface's queueing discipline (rtnetlink).

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};

use super::netlink::{self, DONE, FAILED, HEADER, REQUEST, attribute, half, message, refused, word};
use crate::{Error, Result};

/// `RTM_NEWQDISC`, `RTM_GETQDISC` of `linux/rtnetlink.h`.
const NEW_DISCIPLINE: u16 = 36;
const GET_DISCIPLINE: u16 = 38;
/// `NLM_F_REQUEST`, and `NLM_F_DUMP`: all of them, because older kernels answer a request for one differently.
const REQUEST_ALL: u16 = REQUEST | 0x300;
/// Bytes of `struct tcmsg`, and where in a message interface and parent are.
const ABOUT: usize = 20;
const INTERFACE: usize = HEADER + 4;
const PARENT: usize = HEADER + 12;
/// `TC_H_ROOT`: the root discipline, for all packets of the interface.
const ROOT: u32 = 0xffff_ffff;
/// `TCA_KIND`, `TCA_STATS2`, and in it `TCA_STATS_BASIC` and `TCA_STATS_QUEUE`.
const KIND: u16 = 1;
const STATISTICS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
/// Where `struct gnet_stats_queue` has the packets that were dropped.
const DROPS: usize = 8;
/// More than one answer of the kernel.
const BUFFER: usize = 64 << 10;

/// The counters of a discipline since it was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The discipline: `tbf`.
    pub kind: String,
    /// Bytes passed: packets with the link's headers.
    pub bytes: u64,
    /// Packets passed, as on the link: after segmentation.
    pub packets: u32,
    /// Packets that were dropped.
    pub drops: u32,
}

/// The root discipline of an interface, in the network namespace in which this was opened.
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
        let kernel = netlink::open()?;
        // SAFETY: the name is terminated and outlives the call.
        let interface = match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => return Err(Error::last_os_error()),
            index => index,
        };
        Ok(Self { kernel, interface, answer: vec![0; BUFFER] })
    }

    /// Its current counters.
    ///
    /// # Errors
    /// Those of the kernel; `NotFound` if there is no such discipline.
    pub fn counts(&mut self) -> Result<Counts> {
        self.kernel.write_all(&request())?;
        let mut found = None;
        loop {
            let length = self.kernel.read(&mut self.answer)?;
            let mut rest = &self.answer[..length];
            while let Some(message) = message(&mut rest) {
                match half(message, 4) {
                    Some(DONE) => {
                        let missing = || {
                            Error::new(
                                std::io::ErrorKind::NotFound,
                                "the interface has no queueing discipline with \
                                                                         counters",
                            )
                        };
                        return found.ok_or_else(missing);
                    }
                    Some(FAILED) => return Err(refused(message)),
                    Some(NEW_DISCIPLINE) => found = found.or(self.outermost(message)),
                    _ => {}
                }
            }
        }
    }

    /// The counts in a message, if it is about the root discipline of this interface.
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
        // Truncated anywhere, it gives nothing, or what was whole before.
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
