//! The core-to-core probes run once for real.

mod common;

use common::{measure_if_possible, reading_of};
use kelvin_core::{Case, RoundOutcome};
use kelvin_sys::cpu;

/// Milliseconds of the timed part.
const SLICE: u64 = 20;

fn measure_pair(from: u64, to: u64) -> RoundOutcome {
    common::run_probe("mem.core_to_core", &Case::new().with_number("from", from).with_number("to", to), SLICE)
}

#[test]
fn line_passes_in_both_directions() {
    let allowed = cpu::affinity().unwrap();
    let [a, b] = [allowed[0], allowed[allowed.len() - 1]].map(u64::from);
    for (from, to) in [(a, b), (b, a)] {
        let case = Case::new().with_number("from", from).with_number("to", to);
        if let Some(readings) = measure_if_possible("mem.core_to_core", &case, SLICE) {
            reading_of(&readings, "mem.core_to_core");
        }
    }
}

#[test]
fn same_cpu_pair_is_refused() {
    let first_cpu = cpu::affinity().unwrap()[0].into();
    let attempt = measure_pair(first_cpu, first_cpu);
    assert!(matches!(&attempt, RoundOutcome::Skipped(reason) if reason.0.contains("needs two CPUs")), "{attempt:?}");
}

#[test]
fn missing_cpu_is_an_error() {
    let attempt = measure_pair(cpu::affinity().unwrap()[0].into(), 8000);
    assert!(matches!(&attempt, RoundOutcome::Failed(reason) if reason.contains("CPU 8000")), "{attempt:?}");
}

#[test]
fn increments_in_shared_and_separate_lines() {
    for lines in ["same", "separate"] {
        for increment in ["atomic", "plain"] {
            let case = Case::new()
                .with_word(kelvin_core::AxisWord::from_names("lines", lines))
                .with_word(kelvin_core::AxisWord::from_names("increment", increment));
            if let Some(readings) = measure_if_possible("mem.false_sharing", &case, SLICE) {
                let note = &reading_of(&readings, "mem.false_sharing").notes[0];
                let cpus: Vec<&str> = note.split(" and ").collect();
                assert!(cpus.len() == 2 && cpus[0] != cpus[1], "{note}");
            }
        }
    }
}

#[test]
fn node_memory_is_measured_on_numa() {
    let nodes = kelvin_sys::numa::nodes();
    for &to in &nodes {
        let case = Case::new().with_number("from", 0).with_number("to", u64::from(to)).with_number("bytes", 64 << 20);
        match measure_if_possible("mem.node", &case, SLICE) {
            Some(readings) => assert_eq!(readings.len(), 2),
            None => assert!(nodes.len() < 2, "there are nodes: {nodes:?}"),
        }
    }
    let interleaved = Case::new().with_number("from", 0).with_number("bytes", 64 << 20);
    match measure_if_possible("mem.node.interleaved", &interleaved, SLICE) {
        Some(readings) => assert!(common::notes(&readings).contains("pages by move_pages: "), "{readings:?}"),
        None => assert!(nodes.len() < 2, "there are nodes: {nodes:?}"),
    }
}
