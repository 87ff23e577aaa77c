//! The core-to-core probes run once for real.

mod common;

use common::{measure_if_possible, of};
use kelvin_model::{Attempt, Case};
use kelvin_sys::cpu;

/// Milliseconds of the timed part.
const SLICE: u64 = 20;

fn between(from: u64, to: u64) -> Attempt {
    common::run_probe("mem.core_to_core", &Case::new().with("from", from).with("to", to), SLICE)
}

#[test]
fn a_line_passes_either_way() {
    let allowed = cpu::allowed().unwrap();
    let [a, b] = [allowed[0], allowed[allowed.len() - 1]].map(u64::from);
    for (from, to) in [(a, b), (b, a)] {
        let case = Case::new().with("from", from).with("to", to);
        if let Some(readings) = measure_if_possible("mem.core_to_core", &case, SLICE) {
            of(&readings, "mem.core_to_core");
        }
    }
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
fn two_cores_increment_in_one_line_and_in_two() {
    for lines in ["same", "apart"] {
        for increment in ["atomic", "plain"] {
            let case = Case::new()
                .at(kelvin_model::Point::named("lines", lines))
                .at(kelvin_model::Point::named("increment", increment));
            if let Some(readings) = measure_if_possible("mem.false_sharing", &case, SLICE) {
                let note = &of(&readings, "mem.false_sharing").notes[0];
                let cpus: Vec<&str> = note.split(" and ").collect();
                assert!(cpus.len() == 2 && cpus[0] != cpus[1], "{note}");
            }
        }
    }
}

#[test]
fn memory_of_nodes_is_measured_where_there_are_two() {
    let nodes = kelvin_sys::numa::nodes();
    for &to in &nodes {
        let case = Case::new().with("from", 0).with("to", u64::from(to)).with("bytes", 64 << 20);
        match measure_if_possible("mem.node", &case, SLICE) {
            Some(readings) => assert_eq!(readings.len(), 2),
            None => assert!(nodes.len() < 2, "there are nodes: {nodes:?}"),
        }
    }
}
