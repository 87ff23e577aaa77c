//! The queueing disciplines and classes of a network interface, and the counters of its root (rtnetlink).

use std::fs::File;
use std::ops::ControlFlow;

use super::interface;
use super::netlink::{self, NLM_F_DUMP, NetlinkRequest, find_attribute, u32_at, u64_at};
use crate::{Error, Result};

/// What is asked for, and by which messages it is answered: of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcQuery {
    get: u16,
    new: u16,
}

/// `RTM_GETQDISC`, `RTM_NEWQDISC`.
pub(super) const DISCIPLINES: TcQuery = TcQuery { get: 38, new: 36 };
/// `RTM_GETTCLASS`, `RTM_NEWTCLASS`.
pub(super) const CLASSES: TcQuery = TcQuery { get: 42, new: 40 };
/// Bytes of `struct tcmsg`, and where in it interface, handle and parent are.
const TCMSG_BYTES: usize = 20;
const INTERFACE_OFFSET: usize = 4;
const HANDLE_OFFSET: usize = 8;
const PARENT_OFFSET: usize = 12;
/// `TC_H_ROOT`: the parent of the root discipline, for all packets of the interface.
pub(super) const TC_H_ROOT: u32 = 0xffff_ffff;
/// `TCA_KIND`.
const TCA_KIND: u16 = 1;
/// `TCA_STATS2`, and in it `TCA_STATS_BASIC` and `TCA_STATS_QUEUE`.
const STATISTICS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
/// Where `struct gnet_stats_queue` has the packets that were dropped.
const DROPS_OFFSET: usize = 8;

/// A discipline or a class, as a message reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcNode<'m> {
    pub handle: u32,
    pub parent: u32,
    pub attributes: &'m [u8],
}

impl TcQuery {
    /// Asks for all of an interface, and shows each.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(super) fn for_each_node(self, kernel: &File, interface: u32, mut visit: impl FnMut(TcNode<'_>)) -> Result<()> {
        // Classes are reported of one interface alone; disciplines of all, whichever is named. Older kernels answer a request for one
        // differently.
        let mut body = [0; TCMSG_BYTES];
        body[INTERFACE_OFFSET..HANDLE_OFFSET].copy_from_slice(&interface.to_ne_bytes());
        netlink::query(kernel, NetlinkRequest { kind: self.get, flags: NLM_F_DUMP, body: &body }, |kind, body| {
            let words = [INTERFACE_OFFSET, HANDLE_OFFSET, PARENT_OFFSET].map(|offset| u32_at(body, offset));
            if let ([Some(index), Some(handle), Some(parent)], Some(attributes)) = (words, body.get(TCMSG_BYTES..))
                && (kind, index) == (self.new, interface)
            {
                visit(TcNode { handle, parent, attributes });
            }
            ControlFlow::Continue(())
        })
    }
}

/// The name of a discipline among its attributes: `tbf`.
pub(super) fn kind_name(attributes: &[u8]) -> Option<String> {
    find_attribute(attributes, TCA_KIND).map(|kind| String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned())
}

/// The counters of a discipline since it was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QdiscCounts {
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
pub struct Qdisc {
    kernel: File,
    interface: u32,
}

impl Qdisc {
    /// Of the interface of this name in the network namespace of the calling thread.
    ///
    /// # Errors
    /// An interface that is not there; a kernel without rtnetlink.
    pub fn open(interface: &str) -> Result<Self> {
        Ok(Self { kernel: netlink::open()?, interface: interface::number(interface)? })
    }

    /// Its current counters.
    ///
    /// # Errors
    /// Those of the kernel; `NotFound` if there is no such discipline.
    pub fn counts(&mut self) -> Result<QdiscCounts> {
        let mut root_counts = None;
        DISCIPLINES.for_each_node(&self.kernel, self.interface, |node| {
            if node.parent == TC_H_ROOT && root_counts.is_none() {
                root_counts = counts(node.attributes);
            }
        })?;
        let message = "the interface has no queueing discipline with counters";
        root_counts.ok_or_else(|| Error::new(std::io::ErrorKind::NotFound, message))
    }
}

/// The counts among the attributes of a discipline.
fn counts(attributes: &[u8]) -> Option<QdiscCounts> {
    let kind = kind_name(attributes)?;
    let statistics = find_attribute(attributes, STATISTICS)?;
    let basic = find_attribute(statistics, BASIC)?;
    let drops = find_attribute(statistics, QUEUE).and_then(|queue| u32_at(queue, DROPS_OFFSET)).unwrap_or(0);
    Some(QdiscCounts { kind, bytes: u64_at(basic, 0)?, packets: u32_at(basic, 8)?, drops })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_bytes(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = [&((4 + content.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn counts_parse_from_attributes() {
        let basic = [&1_000_000_000_000_u64.to_ne_bytes()[..], &660_000_u32.to_ne_bytes(), &[0; 4]].concat();
        let queue: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let statistics = [attribute_bytes(QUEUE, &queue), attribute_bytes(BASIC, &basic)].concat();
        let attributes = [
            attribute_bytes(2, &[9; 5]),
            attribute_bytes(TCA_KIND, b"tbf\0"),
            attribute_bytes(STATISTICS | 0x8000, &statistics),
        ];
        let parsed_counts = counts(&attributes.concat()).unwrap();
        assert_eq!(
            parsed_counts,
            QdiscCounts { kind: "tbf".into(), bytes: 1_000_000_000_000, packets: 660_000, drops: 3 }
        );
        // Truncated anywhere, it gives nothing, or what was whole before.
        let attributes = attributes.concat();
        assert!((0..attributes.len()).all(|length| {
            counts(&attributes[..length]).is_none_or(|parsed_counts| parsed_counts.bytes == 1_000_000_000_000)
        }));
    }

    #[test]
    fn missing_interface_is_an_error() {
        assert!(Qdisc::open("nosuchif0").is_err());
    }
}
