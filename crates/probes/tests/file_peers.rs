//! Reading by kelvin and by other programs in turn, run once for real: each that is installed gives a rate with its proof,
//! and each that is not is named.

mod common;

use common::Directories;
use kelvin_catalogue::file::{
    AccessOrder, BLOCK, OWN_BLOCK, PEERS_CACHED, PEERS_CACHED_KELVIN, PEERS_CACHED_OTHER, PEERS_DIRECT,
    PEERS_DIRECT_KELVIN, PEERS_DIRECT_OTHER, Rival,
};
use kelvin_model::{Attempt, Case, Metric, Point, Reading};

/// Milliseconds of the timed part, which these measures do not use: their sides last as long as programs need.
const SLICE: u64 = 10;

/// Ratio, kelvin's rate, and the other's.
const CACHED: [&Metric; 3] = [&PEERS_CACHED, &PEERS_CACHED_KELVIN, &PEERS_CACHED_OTHER];
const DIRECT: [&Metric; 3] = [&PEERS_DIRECT, &PEERS_DIRECT_KELVIN, &PEERS_DIRECT_OTHER];

fn sized(rival: Rival, block: u64) -> Case {
    Case::new().at(rival).with(BLOCK, block)
}

/// The readings of a case; `None`, and said, where the program is not installed or the disk has not what it needs.
#[allow(clippy::print_stderr)]
fn measured([ratio, ..]: [&Metric; 3], case: &Case) -> Option<Vec<Reading>> {
    let (id, program) = (&ratio.id, Rival::of(case).unwrap().name());
    let place = common::on_disk();
    match common::run_probe_at(&Directories::scratch(place.path()), id, case, SLICE) {
        Attempt::Measured(readings) => Some(readings),
        Attempt::Skipped(reason) => {
            let installed = std::process::Command::new(program).arg("--version").output().is_ok();
            let named = reason.0.contains(&format!("needs the program {program}; on Debian: apt-get install "));
            assert!(named != installed || reason.0.contains("--dir"), "{reason}");
            eprintln!("{id} {case} skipped: {reason}");
            None
        }
        Attempt::Failed(reason) => panic!("{id} {case}: {reason}"),
    }
}

/// That the ratio is that of the two rates, and that both sides say how they were timed and where the bytes came from.
fn is_sound(metrics: [&Metric; 3], readings: &[Reading], proof: &str) {
    let [ratio, kelvin, other] = readings else { panic!("{readings:?}") };
    assert_eq!([ratio, kelvin, other].map(|reading| reading.metric), metrics.map(|metric| metric.id));
    let [found, ours, theirs] = [ratio, kelvin, other].map(common::median);
    assert!((found - ours / theirs).abs() < 1e-9 * found, "{found}: {ours} and {theirs}");
    // No two programs that read the same are further apart, though kelvin's sums are slow where nothing is optimised; and none
    // reads a petabyte a second.
    assert!((0.01..30.0).contains(&found) && (1e5..1e15).contains(&ours), "{found}: {ours} and {theirs}");
    assert!(ratio.notes.iter().any(|note| note.contains("against kelvin, in blocks of")), "{:?}", ratio.notes);
    for side in [kelvin, other] {
        assert!(side.notes.iter().any(|note| note.contains("before, ") && note.contains(proof)), "{:?}", side.notes);
    }
}

#[test]
fn programs_read_from_memory_what_kelvin_reads() {
    for case in [
        sized(Rival::Fio, 4096),
        sized(Rival::Fio, 1 << 20),
        sized(Rival::Dd, 4096),
        sized(Rival::Dd, 1 << 20),
        Case::new().at(Rival::Cat).at(OWN_BLOCK),
        Case::new().at(Rival::BwFileRd).at(OWN_BLOCK),
    ] {
        if let Some(readings) = measured(CACHED, &case) {
            is_sound(CACHED, &readings, "afterwards, ");
        }
    }
}

#[test]
fn programs_read_from_the_device_what_kelvin_reads() {
    for (rival, block, order) in [
        (Rival::Fio, 4096, AccessOrder::Sequential),
        (Rival::Fio, 4096, AccessOrder::Random),
        (Rival::Fio, 1 << 20, AccessOrder::Sequential),
        (Rival::Dd, 1 << 20, AccessOrder::Sequential),
    ] {
        if let Some(readings) = measured(DIRECT, &sized(rival, block).at(order)) {
            // Where there are counters they have moved; where there are none that is said.
            let notes = format!("{readings:?}");
            let proof = if notes.contains("no device's counters tell") {
                "no device's counters"
            } else {
                "bytes that were read"
            };
            is_sound(DIRECT, &readings, proof);
        }
    }
}

#[test]
fn a_program_that_nobody_knows_is_a_failure_that_names_it() {
    let unknown = Case::new().at(Point::new(Rival::AXIS, "pv")).with(BLOCK, 4096);
    match common::run_probe(&PEERS_CACHED.id, &unknown, SLICE) {
        Attempt::Failed(reason) => assert!(reason.contains("program=pv"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
