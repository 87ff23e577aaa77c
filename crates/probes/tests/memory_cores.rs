//! The measures of cores that talk to each other run once for real.

mod common;

use kelvin_model::{Attempt, Case};
use kelvin_sys::cpu;

/// Milliseconds of the timed part.
const SLICE: u64 = 20;
/// No two cores are this near, in nanoseconds one way: the published figures for two threads of one core end at 10, those
/// for two cores begin at 16.
const THREADS_OF_ONE_CORE: f64 = 13.0;

/// Two CPUs of this machine, if it lets us use two.
fn two_cpus() -> Option<(u64, u64)> {
    let allowed = cpu::allowed().unwrap();
    (allowed.len() > 1).then(|| (allowed[0].into(), allowed[allowed.len() - 1].into()))
}

/// The last two CPUs, which [`common`] hands to pairs.
fn two_cpus_of_the_pair() -> (u64, u64) {
    let allowed = cpu::allowed().unwrap();
    let [.., peer, last] = allowed[..] else { panic!("{allowed:?}") };
    (peer.into(), last.into())
}

/// Says what is not tested on this machine, and why.
#[allow(clippy::print_stderr)]
fn skipped(what: &str, reason: &str) {
    eprintln!("{what} skipped: {reason}");
}

fn between(from: u64, to: u64) -> Attempt {
    common::run_probe("mem.core_to_core", &Case::new().with("from", from).with("to", to), SLICE)
}

#[test]
fn a_line_takes_as_long_either_way() {
    let Some((a, b)) = two_cpus() else { return skipped("pairs of CPUs", "this process may use one") };
    let one_way = |from, to| match between(from, to) {
        Attempt::Measured(readings) => common::median(&readings[0]),
        other => panic!("{from} {to}: {other:?}"),
    };
    let (there, back) = (one_way(a, b), one_way(b, a));
    // A thread of the same core takes some nanoseconds, another socket some hundred; a busy machine more.
    assert!(there > 1.0 && there < 20_000.0, "{there} ns");
    // The same round trip, begun at the other end.
    assert!(there / back < 5.0 && back / there < 5.0, "{there} ns and {back} ns");
}

#[test]
fn one_cpu_is_not_two() {
    let only = cpu::allowed().unwrap()[0].into();
    let attempt = between(only, only);
    assert!(matches!(&attempt, Attempt::Skipped(reason) if reason.0.contains("needs two CPUs")), "{attempt:?}");
}

#[test]
fn a_cpu_that_is_not_there_is_an_error() {
    let attempt = between(cpu::allowed().unwrap()[0].into(), 8000);
    assert!(matches!(&attempt, Attempt::Failed(reason) if reason.contains("CPU 8000")), "{attempt:?}");
}

#[test]
fn two_cores_that_count_in_one_line_disturb_each_other() {
    let sharing = |lines, increment| {
        let case = Case::new()
            .at(kelvin_model::Point::named("lines", lines))
            .at(kelvin_model::Point::named("increment", increment));
        common::run_probe("mem.false_sharing", &case, SLICE)
    };
    let figure = |attempt: Attempt| match attempt {
        Attempt::Measured(readings) => common::median(&readings[0]),
        other => panic!("{other:?}"),
    };
    if two_cpus().is_none() {
        let attempt = sharing("same", "atomic");
        assert!(matches!(&attempt, Attempt::Skipped(reason) if reason.0.contains("two CPUs")), "{attempt:?}");
        return;
    }
    let (same, apart) = (figure(sharing("same", "atomic")), figure(sharing("apart", "atomic")));
    let (plain_same, plain_apart) = (figure(sharing("same", "plain")), figure(sharing("apart", "plain")));
    assert!(plain_apart > 0.05 && plain_same > 0.05, "{plain_same} ns and {plain_apart} ns");
    let pair = two_cpus_of_the_pair();
    let one_way = figure(between(pair.0, pair.1));
    // Two threads of one core share all lines anyway; on two cores a shared line costs several times as much.
    if one_way > THREADS_OF_ONE_CORE {
        assert!(same > 1.5 * apart, "{same} ns in one line, {apart} ns apart, {one_way} ns between the cores");
    }
}

#[test]
fn memory_of_nodes_is_measured_where_there_are_two() {
    let case = |to: u64| Case::new().with("from", 0).with("to", to).with("bytes", 64 << 20);
    let nodes = kelvin_sys::numa::nodes();
    if nodes.len() < 2 {
        let attempt = common::run_probe("mem.node", &case(0), SLICE);
        assert!(matches!(&attempt, Attempt::Skipped(reason) if reason.0.contains("two nodes")), "{attempt:?}");
        return skipped("the figures of nodes", "this machine shows one");
    }
    for &to in &nodes {
        match common::run_probe("mem.node", &case(to.into()), SLICE) {
            Attempt::Measured(readings) => assert_eq!(readings.len(), 2),
            Attempt::Skipped(reason) => skipped("a node", &reason.0),
            other => panic!("{to}: {other:?}"),
        }
    }
}
