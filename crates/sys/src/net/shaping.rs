//! The rate to which queueing disciplines hold a network interface (rtnetlink).

use super::interface;
use super::netlink::{self, attribute, word};
use super::traffic::{BUFFER, CLASSES, DISCIPLINES, Question, ROOT, Told, each, kind};
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
const RATE: usize = 8;
const CEILING: usize = 12 + RATE;
/// Bytes of `struct tc_netem_qopt`, which comes before netem's attributes.
const NETEM_HEAD: usize = 24;

/// Bits a second to which the disciplines of an interface hold what it sends; `None` where none does, or not for all that it sends.
/// The interface is that of this name in the network namespace of the calling thread. A token bucket (tbf), cake and netem with a rate
/// count where they are the root or below one of these; of a hierarchy of token buckets (htb) the largest ceiling of a leaf, and no more
/// than that of the root's only class.
///
/// # Errors
/// An interface that is not there; a kernel without rtnetlink.
pub fn rate(interface: &str) -> Result<Option<f64>> {
    let index = interface::number(interface)?;
    let disciplines = all(DISCIPLINES, index)?;
    let is_tree = disciplines.iter().any(|one| one.parent == ROOT && one.kind == "htb");
    let classes = if is_tree { all(CLASSES, index)? } else { Vec::new() };
    Ok(held_to(&disciplines, &classes).map(|bytes| bytes * 8.0))
}

/// A discipline or a class.
#[derive(Clone, Debug, PartialEq)]
struct One {
    kind: String,
    handle: u32,
    parent: u32,
    /// Bytes a second.
    rate: Option<f64>,
}

/// Bytes a second of all that is sent.
fn held_to(disciplines: &[One], classes: &[One]) -> Option<f64> {
    let root = disciplines.iter().find(|one| one.parent == ROOT)?;
    if root.kind == "htb" {
        return ceiling(classes);
    }
    // Of those below each other, the slowest. The major number of a parent's class is that of the parent.
    let (mut at, mut least) = (root, None::<f64>);
    for _ in 0..disciplines.len() {
        if !is_of_all(&at.kind) {
            return least;
        }
        least = least.into_iter().chain(at.rate).reduce(f64::min);
        let below = |one: &&One| one.parent != ROOT && one.parent >> 16 == at.handle >> 16;
        let Some(next) = disciplines.iter().find(below) else { break };
        at = next;
    }
    least
}

/// Whether all that passes an interface passes one queue of such a discipline.
fn is_of_all(kind: &str) -> bool {
    matches!(kind, "tbf" | "netem" | "cake")
}

fn ceiling(classes: &[One]) -> Option<f64> {
    let is_leaf = |one: &&One| classes.iter().all(|other| other.parent != one.handle);
    let leaves = classes.iter().filter(is_leaf).map(|one| one.rate);
    let most = leaves.reduce(|one, other| Some(one?.max(other?)))??;
    let mut tops = classes.iter().filter(|one| one.parent == ROOT || one.parent & 0xffff == 0);
    let top = match (tops.next(), tops.next()) {
        (Some(top), None) => top.rate,
        _ => None,
    };
    Some(top.map_or(most, |top| most.min(top)))
}

/// All disciplines, or classes, of an interface.
fn all(question: Question, interface: u32) -> Result<Vec<One>> {
    let mut found = Vec::new();
    each(&mut netlink::open()?, &mut vec![0; BUFFER], (question, interface), |told| found.extend(one(told)))?;
    Ok(found)
}

fn one(Told { handle, parent, attributes }: Told<'_>) -> Option<One> {
    let kind = kind(attributes)?;
    let rate = attribute(attributes, OPTIONS).and_then(|options| rate_of(&kind, options)).filter(|&rate| rate > 0.0);
    Some(One { kind, handle, parent, rate })
}

/// Bytes a second among the options of a discipline or a class. The kernel tells the wide figure where the narrow one cannot hold it.
fn rate_of(kind: &str, options: &[u8]) -> Option<f64> {
    let wide = |options: &[u8], number: u16| {
        attribute(options, number).and_then(|one| Some(u64::from_ne_bytes(*one.first_chunk()?) as f64))
    };
    let either = |options: &[u8], (narrow, broad): (u16, u16), at: usize| {
        wide(options, broad).or_else(|| attribute(options, narrow).and_then(|one| word(one, at)).map(f64::from))
    };
    match kind {
        "tbf" => either(options, TBF, RATE),
        "htb" => either(options, HTB, CEILING),
        "netem" => either(options.get(NETEM_HEAD..)?, NETEM, 0),
        "cake" => wide(options, CAKE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::iproute::{configure, limit};
    use crate::net::namespace::Namespace;

    fn of(kind: &str, [handle, parent]: [u32; 2], rate: Option<f64>) -> One {
        One { kind: kind.into(), handle, parent, rate }
    }

    #[test]
    fn what_holds_all_that_is_sent_counts() {
        let fair = of("fq_codel", [0, ROOT], None);
        assert_eq!(held_to(&[fair], &[]), None);
        let delayed = [of("netem", [0x1_0000, ROOT], None), of("tbf", [0x2_0000, 0x1_0001], Some(1e6))];
        assert_eq!(held_to(&delayed, &[]), Some(1e6));
        // A bucket of one band of several is not of all.
        let bands = [of("prio", [0x1_0000, ROOT], None), of("tbf", [0x2_0000, 0x1_0001], Some(1e6))];
        assert_eq!(held_to(&bands, &[]), None);
        let tree = [of("htb", [0x1_0000, ROOT], None)];
        let classes = [
            of("htb", [0x1_0001, ROOT], Some(3e6)),
            of("htb", [0x1_0010, 0x1_0001], Some(1e6)),
            of("htb", [0x1_0020, 0x1_0001], Some(2e6)),
        ];
        assert_eq!(held_to(&tree, &classes), Some(2e6));
        assert_eq!(held_to(&tree, &[]), None);
    }

    #[test]
    fn the_kernel_tells_the_rate_that_was_set() {
        let done = std::thread::spawn(|| {
            let Ok(_apart) = Namespace::enter_new() else { return Err("no right to make a namespace") };
            let tc = |words: &str| configure("tc", &words.split(' ').collect::<Vec<_>>());
            assert_eq!(rate("lo").unwrap(), None);
            assert!(rate("nosuchif0").is_err());
            configure("ip", &["link", "set", "lo", "up"]).map_err(|_| "no iproute2")?;
            limit("lo", 20_000_000).map_err(|_| "no token bucket filter")?;
            assert_eq!(rate("lo").unwrap(), Some(20e6));
            tc("qdisc del dev lo root").map_err(|_| "no tc")?;
            tc("qdisc add dev lo root handle 1: htb default 10").map_err(|_| "no htb")?;
            tc("class add dev lo parent 1: classid 1:10 htb rate 5mbit ceil 7mbit").map_err(|_| "no htb")?;
            assert_eq!(rate("lo").unwrap(), Some(7e6));
            tc("qdisc del dev lo root").map_err(|_| "no tc")?;
            tc("qdisc add dev lo root netem rate 9mbit").map_err(|_| "no netem")?;
            assert_eq!(rate("lo").unwrap(), Some(9e6));
            tc("qdisc change dev lo root netem rate 50gbit").map_err(|_| "no netem")?;
            assert_eq!(rate("lo").unwrap(), Some(50e9));
            Ok(())
        });
        match done.join() {
            Ok(Ok(())) => {}
            Ok(Err(missing)) => kelvin_testing::Missing::machine(missing).skips("the rates of some shapers"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
