//! The probes of memory latency run once for real: caches answer before memory, pages are what was asked for, and a page
//! whose translation is not at hand costs more.

mod common;

use kelvin_model::{Attempt, Case, Reading};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 10;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn latency(pages: &'static str, bytes: u64) -> Attempt {
    common::run_probe(
        "mem.latency",
        &Case::new().at(kelvin_model::Point::named("pages", pages)).with("bytes", bytes),
        SLICE,
    )
}

fn measured(attempt: Attempt) -> Vec<Reading> {
    match attempt {
        Attempt::Measured(readings) => readings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn levels_answer_in_their_order() {
    let of = |bytes| common::median(&measured(latency("base", bytes))[0]);
    let (first, second, memory) = (of(16 * KIB), of(192 * KIB), of(96 * MIB));
    assert!(
        first > 0.3 && 1.5 * first < second && 3.0 * second < memory && memory < 5000.0,
        "{first} {second} {memory}"
    );
}

#[test]
fn what_was_asked_and_obtained_is_noted() {
    let base = measured(latency("base", 4 * MIB));
    assert_eq!(base[0].notes, ["asked for 4194304 bytes; 4194304 resident by smaps, 0 in huge pages"]);
    match latency("huge", 4 * MIB) {
        Attempt::Measured(readings) => {
            assert_eq!(
                readings[0].notes,
                ["asked for 4194304 bytes; 4194304 resident by smaps, 4194304 in huge pages"]
            );
        }
        Attempt::Skipped(reason) => assert!(reason.0.starts_with("needs 4194304 bytes in huge pages"), "{reason}"),
        Attempt::Failed(reason) => panic!("{reason}"),
    }
}

#[test]
fn cases_that_make_no_sense_fail_with_a_reason() {
    assert_eq!(
        latency("big", MIB),
        Attempt::Failed("the case has pages Some(\"big\"); base and huge are known".into())
    );
    let attempt = common::run_probe("mem.latency", &Case::new().at(kelvin_model::Point::named("pages", "base")), SLICE);
    assert_eq!(attempt, Attempt::Failed("the case has no bytes".into()));
    // Half of what 47 bits address: no machine has it.
    let skipped = latency("base", 1 << 46);
    assert!(matches!(&skipped, Attempt::Skipped(reason) if reason.0.starts_with("needs ")), "{skipped:?}");
}

#[test]
fn loads_of_one_line_share_its_miss() {
    let of = |stride| {
        let case = Case::new().with("bytes", 64 * MIB).with("stride", stride);
        common::median(&common::measure("mem.latency.stride", &case, SLICE)[0])
    };
    let (quarter, line) = (of(16), of(64));
    assert!(quarter > 0.3 && quarter < line, "{quarter} {line}");
}

#[test]
fn a_translation_that_is_not_at_hand_costs_time() {
    let of = |count| {
        let readings = common::measure("mem.tlb", &Case::new().with("count", count), SLICE);
        let value = |id: &str| common::median(readings.iter().find(|reading| reading.metric == *id).unwrap());
        (value("mem.tlb"), value("mem.tlb.packed"))
    };
    // A neighbour that takes the memory for a moment can hide it, but not again and again.
    let trials: Vec<_> = (0..5).map(|_| (of(16).0, of(16384))).collect();
    let seen = trials.iter().any(|&(near, (spread, packed))| near < spread && 1.2 * packed < spread);
    assert!(seen, "{trials:?}");
}
