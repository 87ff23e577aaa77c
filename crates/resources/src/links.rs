//! Network interfaces and TCP, of the network namespace of a process.

use std::collections::BTreeMap;

use kelvin_machine::nics::{is_loopback, speed};
use kelvin_machine::text::{Root, value};
use kelvin_model::resources::{Link, Tcp};
use kelvin_sys::net::shaping::rate;

/// Most interfaces: a host of containers has hundreds, and of those beyond few carry the load.
const MOST: usize = 1024;

/// What does not change about an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    speed: Option<u64>,
    is_loopback: bool,
}

/// The interfaces.
pub(crate) fn all(root: Root<'_>, process: u32, known: &mut BTreeMap<String, Known>) -> Vec<Link> {
    let text = root.text(&format!("/proc/{process}/net/dev")).unwrap_or_default();
    let links: Vec<Link> = text.lines().filter_map(parse).take(MOST).collect();
    known.retain(|name, _| links.iter().any(|link| link.name == *name));
    let with = |link: Link| {
        let Known { speed, is_loopback } = *known.entry(link.name.clone()).or_insert_with(|| look_up(root, &link.name));
        // A shaper may come and go meanwhile. One of another network namespace cannot be asked for.
        let shaped = if is_own_network(root, process) { rate(&link.name).ok().flatten() } else { None };
        Link { speed, is_loopback, shaped: shaped.map(|bits| bits as u64), ..link }
    };
    links.into_iter().map(with).collect()
}

/// Whether a process of this machine is in the network namespace of this thread.
fn is_own_network(root: Root<'_>, process: u32) -> bool {
    let of = |path: &str| std::fs::read_link(path).ok();
    root.is_live()
        && of(&format!("/proc/{process}/ns/net")).is_some_and(|its| of("/proc/thread-self/ns/net") == Some(its))
}

fn look_up(root: Root<'_>, name: &str) -> Known {
    let is_loopback = is_loopback(root, name);
    Known { speed: speed(root, name, is_loopback).get().map(|bits| *bits as u64), is_loopback }
}

/// A line of the file `dev`: eight counters of what was received, and eight of what was sent.
fn parse(line: &str) -> Option<Link> {
    let (name, counters) = line.split_once(':')?;
    let counters: Vec<u64> = counters.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let [received, _, _, received_dropped, _, _, _, _, sent, _, _, sent_dropped, ..] = counters[..] else {
        return None;
    };
    Some(Link {
        name: name.trim().to_owned(),
        received_bytes: received,
        sent_bytes: sent,
        dropped: received_dropped.saturating_add(sent_dropped),
        ..Link::default()
    })
}

/// TCP.
pub(crate) fn tcp(root: Root<'_>, process: u32) -> Tcp {
    let [basic, extended] =
        ["snmp", "netstat"].map(|file| root.text(&format!("/proc/{process}/net/{file}")).unwrap_or_default());
    let counter = |text: &str, (table, name): (&str, &str)| counter(text, table, name).unwrap_or(0);
    Tcp {
        sent_segments: counter(&basic, ("Tcp:", "OutSegs")),
        retransmitted_segments: counter(&basic, ("Tcp:", "RetransSegs")),
        listen_overflows: counter(&extended, ("TcpExt:", "ListenOverflows")),
        listen_drops: counter(&extended, ("TcpExt:", "ListenDrops")),
        sockets: sockets(root, process),
    }
}

/// Sockets of TCP in use, of either version of IP: `TCP: inuse 5 orphan 0 ...`.
fn sockets(root: Root<'_>, process: u32) -> Option<u64> {
    let in_use = |(file, protocol): (&str, &str)| {
        let text = root.text(&format!("/proc/{process}/net/{file}"))?;
        value(&text, protocol, ':')?.strip_prefix("inuse ")?.split(' ').next()?.parse::<u64>().ok()
    };
    let [old, new] = [("sockstat", "TCP"), ("sockstat6", "TCP6")].map(in_use);
    Some(old?.saturating_add(new.unwrap_or(0)))
}

/// A counter of a table of two lines, one of names and one of figures.
fn counter(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (names, figures) = (lines.next()?, lines.next()?);
    let mut both = names.split_ascii_whitespace().zip(figures.split_ascii_whitespace());
    both.find(|(found, _)| *found == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Tree;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs \
                       drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: \
                       3715639079567 353961906    0  270    0     0          0         0 3715639079567 353961906    0    1    0     \
                       0       0          0\n  eth0: 2867519236   87908    0    0    0     0          0         0  4010780   51489    \
                       0    0    0     0       0          0\n";

    #[test]
    fn interfaces_have_their_counters_and_advertised_speeds() {
        let tree = Tree::default();
        tree.fill("proc/7/net/dev", DEV);
        tree.fill("sys/class/net/lo/type", "772");
        tree.fill("sys/class/net/eth0/type", "1");
        tree.fill("sys/class/net/eth0/device/vendor", "x");
        tree.fill("sys/class/net/eth0/speed", "10000");
        let mut known = BTreeMap::new();
        let links = all(Root::new(tree.path()), 7, &mut known);
        let bytes = 3_715_639_079_567;
        let lo = Link {
            name: "lo".into(),
            received_bytes: bytes,
            sent_bytes: bytes,
            dropped: 271,
            speed: None,
            shaped: None,
            is_loopback: true,
        };
        let eth0 = Link {
            name: "eth0".into(),
            received_bytes: 2_867_519_236,
            sent_bytes: 4_010_780,
            speed: Some(10_000_000_000),
            ..Link::default()
        };
        assert_eq!(links, [lo, eth0]);
    }

    #[test]
    fn counters_of_tcp_are_found_by_their_names() {
        let tree = Tree::default();
        tree.fill(
            "proc/7/net/snmp",
            "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 20 3\nTcp: 9 9 9\n",
        );
        tree.fill("proc/7/net/netstat", "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 4 5\n");
        let expected =
            Tcp { sent_segments: 20, retransmitted_segments: 3, listen_overflows: 4, listen_drops: 5, sockets: None };
        assert_eq!(tcp(Root::new(tree.path()), 7), expected);
        tree.fill(
            "proc/7/net/sockstat",
            "sockets: used 54\nTCP: inuse 27 orphan 0 tw 0 alloc 54 mem 2\nUDP: inuse 4\n",
        );
        assert_eq!(tcp(Root::new(tree.path()), 7).sockets, Some(27));
        tree.fill("proc/7/net/sockstat6", "TCP6: inuse 3\nUDP6: inuse 1\n");
        assert_eq!(tcp(Root::new(tree.path()), 7), Tcp { sockets: Some(30), ..expected });
    }
}
