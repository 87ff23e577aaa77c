//! The rate to which queueing disciplines hold a network interface (rtnetlink).

use super::interface;
use super::netlink::{self, find_attribute, u32_at, u64_at};
use super::qdisc::{CLASSES, DISCIPLINES, TC_H_ROOT, TcQuery, kind_name};
use crate::Result;

/// `TCA_OPTIONS`.
const OPTIONS: u16 = 2;
/// Of `linux/pkt_sched.h`: `TCA_TBF_PARMS`, `TCA_TBF_RATE64`; `TCA_HTB_PARMS`, `TCA_HTB_CEIL64`; `TCA_NETEM_RATE`,
/// `TCA_NETEM_RATE64`; `TCA_CAKE_BASE_RATE64`.
const TBF: (u16, u16) = (1, 4);
const HTB: (u16, u16) = (1, 7);
const NETEM: (u16, u16) = (6, 8);
const CAKE: u16 = 2;
/// Where `struct tc_ratespec` has the rate, in bytes a second; `struct tc_htb_opt` has a second one, of the ceiling, behind a first.
const RATE_OFFSET: usize = 8;
const CEILING_OFFSET: usize = 12 + RATE_OFFSET;
/// Bytes of `struct tc_netem_qopt`, which comes before netem's attributes.
const NETEM_HEAD_BYTES: usize = 24;

/// Bits a second to which the disciplines of an interface hold what it sends; `None` where none does, or not for all that it sends.
/// The interface is that of this name in the network namespace of the calling thread. A token bucket (tbf), cake and netem with a rate
/// count where they are the root or below one of these; of a hierarchy of token buckets (htb) the largest ceiling of a leaf, and no more
/// than that of the root's only class.
///
/// # Errors
/// An interface that is not there; a kernel without rtnetlink.
pub fn interface_rate(interface: &str) -> Result<Option<f64>> {
    let index = interface::number(interface)?;
    let disciplines = read_nodes(DISCIPLINES, index)?;
    let is_tree = disciplines.iter().any(|node| node.parent == TC_H_ROOT && node.kind == "htb");
    let classes = if is_tree { read_nodes(CLASSES, index)? } else { Vec::new() };
    Ok(shaped_rate(&disciplines, &classes).map(|bytes| bytes * 8.0))
}

/// A discipline or a class.
#[derive(Clone, Debug, PartialEq)]
struct QueueNode {
    kind: String,
    handle: u32,
    parent: u32,
    /// Bytes a second.
    rate: Option<f64>,
}

/// Bytes a second of all that is sent.
fn shaped_rate(disciplines: &[QueueNode], classes: &[QueueNode]) -> Option<f64> {
    let root = disciplines.iter().find(|child| child.parent == TC_H_ROOT)?;
    if root.kind == "htb" {
        return class_ceiling(classes);
    }
    // Of nested ones, the slowest. The major number of a parent's class is that of the parent.
    let (mut node, mut min_rate) = (root, None::<f64>);
    for _ in 0..disciplines.len() {
        // All that passes an interface passes one queue of these.
        if !matches!(node.kind.as_str(), "tbf" | "netem" | "cake") {
            return min_rate;
        }
        min_rate = min_rate.into_iter().chain(node.rate).reduce(f64::min);
        let is_child = |child: &&QueueNode| child.parent != TC_H_ROOT && child.parent >> 16 == node.handle >> 16;
        let Some(next) = disciplines.iter().find(is_child) else { break };
        node = next;
    }
    min_rate
}

fn class_ceiling(classes: &[QueueNode]) -> Option<f64> {
    let is_leaf = |class: &&QueueNode| classes.iter().all(|child| child.parent != class.handle);
    let leaf_rates = classes.iter().filter(is_leaf).map(|class| class.rate);
    let max_rate = leaf_rates.reduce(|max, rate| Some(max?.max(rate?)))??;
    let mut top_classes = classes.iter().filter(|class| class.parent == TC_H_ROOT || class.parent & 0xffff == 0);
    let top_rate = match (top_classes.next(), top_classes.next()) {
        (Some(top), None) => top.rate,
        _ => None,
    };
    Some(top_rate.map_or(max_rate, |rate| max_rate.min(rate)))
}

/// All disciplines, or classes, of an interface.
fn read_nodes(question: TcQuery, interface: u32) -> Result<Vec<QueueNode>> {
    let mut nodes = Vec::new();
    question.for_each_node(&netlink::open()?, interface, |node| {
        let Some(kind) = kind_name(node.attributes) else { return };
        let rate = find_attribute(node.attributes, OPTIONS).and_then(|options| option_rate(&kind, options));
        let rate = rate.filter(|&rate| rate > 0.0);
        nodes.push(QueueNode { kind, handle: node.handle, parent: node.parent, rate });
    })?;
    Ok(nodes)
}

/// Bytes a second among the options of a discipline or a class. The kernel reports the 64-bit figure where the 32-bit one cannot hold it.
fn option_rate(kind: &str, options: &[u8]) -> Option<f64> {
    let wide_rate = |options: &[u8], number| Some(u64_at(find_attribute(options, number)?, 0)? as f64);
    let rate_of_any_width = |options: &[u8], (narrow_number, wide_number): (u16, u16), offset: usize| {
        wide_rate(options, wide_number)
            .or_else(|| u32_at(find_attribute(options, narrow_number)?, offset).map(f64::from))
    };
    match kind {
        "tbf" => rate_of_any_width(options, TBF, RATE_OFFSET),
        "htb" => rate_of_any_width(options, HTB, CEILING_OFFSET),
        "netem" => rate_of_any_width(options.get(NETEM_HEAD_BYTES..)?, NETEM, 0),
        "cake" => wide_rate(options, CAKE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::iproute::{configure, limit_rate};
    use crate::net::namespace::Namespace;

    fn node(kind: &str, [handle, parent]: [u32; 2], rate: Option<f64>) -> QueueNode {
        QueueNode { kind: kind.into(), handle, parent, rate }
    }

    #[test]
    fn only_whole_interface_shapers_count() {
        let fair = node("fq_codel", [0, TC_H_ROOT], None);
        assert_eq!(shaped_rate(&[fair], &[]), None);
        let netem_tree = [node("netem", [0x1_0000, TC_H_ROOT], None), node("tbf", [0x2_0000, 0x1_0001], Some(1e6))];
        assert_eq!(shaped_rate(&netem_tree, &[]), Some(1e6));
        // A bucket of one band of several is not of all.
        let bands = [node("prio", [0x1_0000, TC_H_ROOT], None), node("tbf", [0x2_0000, 0x1_0001], Some(1e6))];
        assert_eq!(shaped_rate(&bands, &[]), None);
        let tree = [node("htb", [0x1_0000, TC_H_ROOT], None)];
        let classes = [
            node("htb", [0x1_0001, TC_H_ROOT], Some(3e6)),
            node("htb", [0x1_0010, 0x1_0001], Some(1e6)),
            node("htb", [0x1_0020, 0x1_0001], Some(2e6)),
        ];
        assert_eq!(shaped_rate(&tree, &classes), Some(2e6));
        assert_eq!(shaped_rate(&tree, &[]), None);
    }

    #[test]
    fn kernel_reports_configured_rate() {
        let thread = std::thread::spawn(|| {
            let Ok(_namespace) = Namespace::enter_new() else { return Err("no right to make a namespace") };
            let tc = |words: &str| configure("tc", &words.split(' ').collect::<Vec<_>>());
            assert_eq!(interface_rate("lo").unwrap(), None);
            assert!(interface_rate("nosuchif0").is_err());
            configure("ip", &["link", "set", "lo", "up"]).map_err(|_| "no iproute2")?;
            limit_rate("lo", 20_000_000).map_err(|_| "no token bucket filter")?;
            assert_eq!(interface_rate("lo").unwrap(), Some(20e6));
            tc("qdisc del dev lo root").map_err(|_| "no tc")?;
            tc("qdisc add dev lo root handle 1: htb default 10").map_err(|_| "no htb")?;
            tc("class add dev lo parent 1: classid 1:10 htb rate 5mbit ceil 7mbit").map_err(|_| "no htb")?;
            assert_eq!(interface_rate("lo").unwrap(), Some(7e6));
            tc("qdisc del dev lo root").map_err(|_| "no tc")?;
            tc("qdisc add dev lo root netem rate 9mbit").map_err(|_| "no netem")?;
            assert_eq!(interface_rate("lo").unwrap(), Some(9e6));
            tc("qdisc change dev lo root netem rate 50gbit").map_err(|_| "no netem")?;
            assert_eq!(interface_rate("lo").unwrap(), Some(50e9));
            Ok(())
        });
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(missing)) => {
                kelvin_testing::MissingRequirement::machine(missing).report_skip("the rates of some shapers")
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
