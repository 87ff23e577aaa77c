//! The counters of a network interface's queueing discipline (rtnetlink).

use std::fs::File;

use super::interface;
use super::netlink::{self, find_attribute, u32_at};
use super::traffic_control::{BUFFER_BYTES, DISCIPLINES, TC_H_ROOT, for_each_node, kind_name};
use crate::{Error, Result};

/// `TCA_STATS2`, and in it `TCA_STATS_BASIC` and `TCA_STATS_QUEUE`.
const STATISTICS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
/// Where `struct gnet_stats_queue` has the packets that were dropped.
const DROPS_OFFSET: usize = 8;

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
    answer: Vec<u8>,
}

impl Qdisc {
    /// Of the interface of this name in the network namespace of the calling thread.
    ///
    /// # Errors
    /// An interface that is not there; a kernel without rtnetlink.
    pub fn open(interface: &str) -> Result<Self> {
        let kernel = netlink::open()?;
        let interface = interface::number(interface)?;
        Ok(Self { kernel, interface, answer: vec![0; BUFFER_BYTES] })
    }

    /// Its current counters.
    ///
    /// # Errors
    /// Those of the kernel; `NotFound` if there is no such discipline.
    pub fn counts(&mut self) -> Result<QdiscCounts> {
        let mut found = None;
        for_each_node(&mut self.kernel, &mut self.answer, (DISCIPLINES, self.interface), |told| {
            if told.parent == TC_H_ROOT && found.is_none() {
                found = counts(told.attributes);
            }
        })?;
        let missing = "the interface has no queueing discipline with counters";
        found.ok_or_else(|| Error::new(std::io::ErrorKind::NotFound, missing))
    }
}

/// The counts among the attributes of a discipline.
fn counts(attributes: &[u8]) -> Option<QdiscCounts> {
    let kind = kind_name(attributes)?;
    let statistics = find_attribute(attributes, STATISTICS)?;
    let basic = find_attribute(statistics, BASIC)?;
    Some(QdiscCounts {
        kind,
        bytes: u64::from_ne_bytes(*basic.first_chunk()?),
        packets: u32_at(basic, 8)?,
        drops: find_attribute(statistics, QUEUE).and_then(|queue| u32_at(queue, DROPS_OFFSET)).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::traffic_control::TCA_KIND;

    fn attribute_bytes(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = [&((4 + content.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn counts_parse_from_attributes() {
        let basic = [&1_000_000_000_000_u64.to_ne_bytes()[..], &660_000_u32.to_ne_bytes(), &[0; 4]].concat();
        let queue: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|one| one.to_ne_bytes()).collect();
        let statistics = [attribute_bytes(QUEUE, &queue), attribute_bytes(BASIC, &basic)].concat();
        let all = [
            attribute_bytes(2, &[9; 5]),
            attribute_bytes(TCA_KIND, b"tbf\0"),
            attribute_bytes(STATISTICS | 0x8000, &statistics),
        ];
        let found = counts(&all.concat()).unwrap();
        assert_eq!(found, QdiscCounts { kind: "tbf".into(), bytes: 1_000_000_000_000, packets: 660_000, drops: 3 });
        // Truncated anywhere, it gives nothing, or what was whole before.
        let all = all.concat();
        assert!(
            (0..all.len()).all(|length| counts(&all[..length]).is_none_or(|found| found.bytes == 1_000_000_000_000))
        );
    }

    #[test]
    fn missing_interface_is_an_error() {
        assert!(Qdisc::open("nosuchif0").is_err());
    }
}
