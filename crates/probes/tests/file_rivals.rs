//! Reading by kelvin and by other programs, interleaved, run once for real: each installed one gives a rate with its proof, and each
//! other one is named.

mod common;

use common::TestDirectories;
use kelvin_core::{Case, MetricReadings, RoundOutcome};

/// Milliseconds of the timed part, which these measures do not use: their sides last as long as programs need.
const SLICE: u64 = 10;

fn rival_case(program: &'static str, block: Option<u64>) -> Case {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("program", program));
    match block {
        Some(block) => case.with_number("block", block),
        None => case.with_word(kelvin_core::AxisWord::from_names("block", "own")),
    }
}

/// The readings of a case; `None`, and printed, where the program is not installed or the disk lacks what it needs.
fn measured(id: &str, case: &Case, program: &str) -> Option<Vec<MetricReadings>> {
    let scratch = common::on_disk();
    let readings = common::measure_if_possible_at(&TestDirectories::with_scratch(scratch.path()), id, case, SLICE);
    let is_installed = std::process::Command::new(program).arg("--version").output().is_ok();
    assert!(is_installed || readings.is_none(), "{program} is not installed");
    readings
}

/// That the ratio is that of the two rates, and that both sides note where the bytes came from.
fn check_readings(id: &str, readings: &[MetricReadings], proof: &str) {
    let [ratio, kelvin, rival] = readings else { panic!("{readings:?}") };
    assert_eq!(
        [&ratio.metric, &kelvin.metric, &rival.metric].map(|id| id.to_string()),
        [id.to_owned(), format!("{id}.kelvin"), format!("{id}.other")]
    );
    let [ratio_value, kelvin_rate, rival_rate] = [ratio, kelvin, rival].map(common::median);
    assert!(
        (ratio_value - kelvin_rate / rival_rate).abs() < 1e-9 * ratio_value,
        "{ratio_value}: {kelvin_rate} and {rival_rate}"
    );
    assert!(ratio.notes.iter().any(|note| note.contains("against kelvin, in blocks of")), "{:?}", ratio.notes);
    for side in [kelvin, rival] {
        assert!(side.notes.iter().any(|note| note.contains("before, ") && note.contains(proof)), "{:?}", side.notes);
    }
}

#[test]
fn programs_and_kelvin_read_same_cached_bytes() {
    for (program, block) in [
        ("fio", Some(4096)),
        ("fio", Some(1 << 20)),
        ("dd", Some(4096)),
        ("dd", Some(1 << 20)),
        ("cat", None),
        ("bw_file_rd", None),
    ] {
        if let Some(readings) = measured("file.rivals.cached", &rival_case(program, block), program) {
            check_readings("file.rivals.cached", &readings, "afterwards, ");
        }
    }
}

#[test]
fn programs_and_kelvin_read_same_device_bytes() {
    for (program, block, order) in [
        ("fio", 4096, "sequential"),
        ("fio", 4096, "random"),
        ("fio", 1 << 20, "sequential"),
        ("dd", 1 << 20, "sequential"),
    ] {
        let case = rival_case(program, Some(block)).with_word(kelvin_core::AxisWord::from_names("order", order));
        if let Some(readings) = measured("file.rivals.direct", &case, program) {
            // Where there are counters they have moved; where there are none that is noted.
            let notes = format!("{readings:?}");
            let proof = if notes.contains("no device counters show") { "no device counters" } else { "that were read" };
            check_readings("file.rivals.direct", &readings, proof);
        }
    }
}

#[test]
fn unknown_program_is_named_in_failure() {
    match common::run_probe("file.rivals.cached", &rival_case("pv", Some(4096)), SLICE) {
        RoundOutcome::Failed(reason) => {
            assert!(reason.contains("nothing to measure for the case block=4096 program=pv"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}
