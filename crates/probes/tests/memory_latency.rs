//! The probes of memory latency run once for real, in memory as requested.

mod common;

use common::{measure, reading_of, report_skip};
use kelvin_core::{Case, MetricReadings, RoundOutcome};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 10;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn latency(pages: &'static str, bytes: u64) -> RoundOutcome {
    common::run_probe(
        "mem.latency",
        &Case::new().with_word(kelvin_core::AxisWord::from_names("pages", pages)).with_number("bytes", bytes),
        SLICE,
    )
}

fn measured(attempt: RoundOutcome) -> Vec<MetricReadings> {
    match attempt {
        RoundOutcome::Measured(readings) => readings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sets_of_every_size_are_resident() {
    for bytes in [16 * KIB, 192 * KIB, 96 * MIB] {
        let readings = measured(latency("base", bytes));
        let expected = format!("{bytes} bytes requested; by smaps {bytes} resident, 0 in huge pages");
        assert_eq!(reading_of(&readings, "mem.latency").notes, [expected]);
    }
}

#[test]
fn requested_and_obtained_pages_are_noted() {
    let base = measured(latency("base", 4 * MIB));
    assert_eq!(base[0].notes, ["4194304 bytes requested; by smaps 4194304 resident, 0 in huge pages"]);
    match latency("huge", 4 * MIB) {
        RoundOutcome::Measured(readings) => {
            assert_eq!(
                readings[0].notes,
                ["4194304 bytes requested; by smaps 4194304 resident, 4194304 in huge pages"]
            );
        }
        RoundOutcome::Skipped(reason) => {
            assert!(reason.0.starts_with("needs 4194304 bytes in huge pages"), "{reason}");
            report_skip(
                "mem.latency",
                &Case::new().with_word(kelvin_core::AxisWord::from_names("pages", "huge")),
                &reason,
            );
        }
        RoundOutcome::Failed(reason) => panic!("{reason}"),
    }
}

#[test]
fn invalid_cases_fail_with_reason() {
    assert_eq!(
        latency("big", MIB),
        RoundOutcome::Failed("the case needs pages=base or pages=huge, not bytes=1048576 pages=big".into())
    );
    let attempt = common::run_probe(
        "mem.latency",
        &Case::new().with_word(kelvin_core::AxisWord::from_names("pages", "base")),
        SLICE,
    );
    assert_eq!(attempt, RoundOutcome::Failed("the case has no bytes".into()));
    // Half of a 47-bit address space: no machine has it.
    let huge_attempt = latency("base", 1 << 46);
    assert!(
        matches!(&huge_attempt, RoundOutcome::Skipped(reason) if reason.0.starts_with("needs ")),
        "{huge_attempt:?}"
    );
}

#[test]
fn strides_and_tlb_cases_are_read() {
    for stride in [16, 64] {
        let case = Case::new().with_number("bytes", 64 * MIB).with_number("stride", stride);
        let readings = measure("mem.latency.stride", &case, SLICE);
        let notes = &reading_of(&readings, "mem.latency.stride").notes;
        assert!(notes[0].contains("by smaps 67108864 resident, 0 in huge pages"), "{notes:?}");
    }
    for count in [16, 16384] {
        let readings = measure("mem.tlb", &Case::new().with_number("count", count), SLICE);
        let notes = &reading_of(&readings, "mem.tlb").notes;
        assert!(notes[0].contains("resident, 0 in huge pages"), "{notes:?}");
        reading_of(&readings, "mem.tlb.packed");
    }
}
