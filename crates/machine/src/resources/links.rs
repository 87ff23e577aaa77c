//! Network interfaces and TCP, of the network namespace of a process.

use std::collections::BTreeMap;

use crate::nics::{is_loopback, link_speed};
use crate::root::{FileRoot, value_of_key};
use kelvin_core::resources::{LinkStats, TcpStats};
use kelvin_sys::net::shaped_rate::interface_rate;

/// Most interfaces: a host of containers has hundreds, and of those beyond few carry the load.
const MAX_INTERFACES: usize = 1024;

/// What does not change about an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkFacts {
    speed: Option<u64>,
    is_loopback: bool,
}

/// The interfaces.
pub(crate) fn read_links(
    root: FileRoot<'_>,
    process: u32,
    cached_facts: &mut BTreeMap<String, LinkFacts>,
) -> Vec<LinkStats> {
    let text = root.text(&format!("/proc/{process}/net/dev")).unwrap_or_default();
    let links: Vec<LinkStats> = text.lines().filter_map(parse_dev_line).take(MAX_INTERFACES).collect();
    cached_facts.retain(|name, _| links.iter().any(|link| link.name == *name));
    let with_facts = |link: LinkStats| {
        let read_facts = || {
            let is_loopback = is_loopback(root, &link.name);
            LinkFacts { speed: link_speed(root, &link.name, is_loopback).get().map(|bits| *bits as u64), is_loopback }
        };
        let LinkFacts { speed, is_loopback } = *cached_facts.entry(link.name.clone()).or_insert_with(read_facts);
        // A shaper may come and go meanwhile. One of another network namespace cannot be asked for.
        let shaped_rate =
            if is_same_network_namespace(root, process) { interface_rate(&link.name).ok().flatten() } else { None };
        LinkStats { speed, is_loopback, shaped: shaped_rate.map(|bits| bits as u64), ..link }
    };
    links.into_iter().map(with_facts).collect()
}

/// Whether a process of this machine is in the network namespace of this thread.
fn is_same_network_namespace(root: FileRoot<'_>, process: u32) -> bool {
    let namespace = |path: &str| std::fs::read_link(path).ok();
    root.is_live()
        && namespace(&format!("/proc/{process}/ns/net"))
            .is_some_and(|process_namespace| namespace("/proc/thread-self/ns/net") == Some(process_namespace))
}

/// A line of the file `dev`: eight counters of what was received, and eight of what was sent.
fn parse_dev_line(line: &str) -> Option<LinkStats> {
    let (name, counters) = line.split_once(':')?;
    let counters: Vec<u64> = counters.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let [received, _, _, received_dropped, _, _, _, _, sent, _, _, sent_dropped, ..] = counters[..] else {
        return None;
    };
    Some(LinkStats {
        name: name.trim().to_owned(),
        received_bytes: received,
        sent_bytes: sent,
        dropped: received_dropped.saturating_add(sent_dropped),
        ..LinkStats::default()
    })
}

/// TCP.
pub(crate) fn tcp(root: FileRoot<'_>, process: u32) -> TcpStats {
    let [basic, extended] =
        ["snmp", "netstat"].map(|file| root.text(&format!("/proc/{process}/net/{file}")).unwrap_or_default());
    let counter = |text: &str, (table, name): (&str, &str)| snmp_counter(text, table, name).unwrap_or(0);
    TcpStats {
        sent_segments: counter(&basic, ("Tcp:", "OutSegs")),
        retransmitted_segments: counter(&basic, ("Tcp:", "RetransSegs")),
        listen_overflows: counter(&extended, ("TcpExt:", "ListenOverflows")),
        listen_drops: counter(&extended, ("TcpExt:", "ListenDrops")),
        sockets: tcp_sockets(root, process),
    }
}

/// Sockets of TCP in use, of either version of IP: `TCP: inuse 5 orphan 0 ...`.
fn tcp_sockets(root: FileRoot<'_>, process: u32) -> Option<u64> {
    let sockets_in_use = |(file, protocol): (&str, &str)| {
        let text = root.text(&format!("/proc/{process}/net/{file}"))?;
        value_of_key(&text, protocol, ':')?.strip_prefix("inuse ")?.split(' ').next()?.parse::<u64>().ok()
    };
    let [old, new] = [("sockstat", "TCP"), ("sockstat6", "TCP6")].map(sockets_in_use);
    Some(old?.saturating_add(new.unwrap_or(0)))
}

/// A counter of a table of two lines, one of names and one of figures.
fn snmp_counter(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (names, figures) = (lines.next()?, lines.next()?);
    let mut columns = names.split_ascii_whitespace().zip(figures.split_ascii_whitespace());
    columns.find(|(column_name, _)| *column_name == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::FixtureTree;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs \
                       drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: \
                       3715639079567 353961906    0  270    0     0          0         0 3715639079567 353961906    0    1    0     \
                       0       0          0\n  eth0: 2867519236   87908    0    0    0     0          0         0  4010780   51489    \
                       0    0    0     0       0          0\n";

    #[test]
    fn link_counters_and_speeds_parse() {
        let tree = FixtureTree::default();
        tree.fill("proc/7/net/dev", DEV);
        tree.fill("sys/class/net/lo/type", "772");
        tree.fill("sys/class/net/eth0/type", "1");
        tree.fill("sys/class/net/eth0/device/vendor", "x");
        tree.fill("sys/class/net/eth0/speed", "10000");
        let mut facts = BTreeMap::new();
        let links = read_links(FileRoot::new(tree.path()), 7, &mut facts);
        let bytes = 3_715_639_079_567;
        let lo = LinkStats {
            name: "lo".into(),
            received_bytes: bytes,
            sent_bytes: bytes,
            dropped: 271,
            speed: None,
            shaped: None,
            is_loopback: true,
        };
        let eth0 = LinkStats {
            name: "eth0".into(),
            received_bytes: 2_867_519_236,
            sent_bytes: 4_010_780,
            speed: Some(10_000_000_000),
            ..LinkStats::default()
        };
        assert_eq!(links, [lo, eth0]);
    }

    #[test]
    fn tcp_counters_are_found_by_name() {
        let tree = FixtureTree::default();
        tree.fill(
            "proc/7/net/snmp",
            "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 20 3\nTcp: 9 9 9\n",
        );
        tree.fill("proc/7/net/netstat", "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 4 5\n");
        let expected = TcpStats {
            sent_segments: 20,
            retransmitted_segments: 3,
            listen_overflows: 4,
            listen_drops: 5,
            sockets: None,
        };
        assert_eq!(tcp(FileRoot::new(tree.path()), 7), expected);
        tree.fill(
            "proc/7/net/sockstat",
            "sockets: used 54\nTCP: inuse 27 orphan 0 tw 0 alloc 54 mem 2\nUDP: inuse 4\n",
        );
        assert_eq!(tcp(FileRoot::new(tree.path()), 7).sockets, Some(27));
        tree.fill("proc/7/net/sockstat6", "TCP6: inuse 3\nUDP6: inuse 1\n");
        assert_eq!(tcp(FileRoot::new(tree.path()), 7), TcpStats { sockets: Some(30), ..expected });
    }
}
