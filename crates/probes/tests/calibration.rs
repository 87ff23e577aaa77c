//! Predictions of runs that had no part in formulas or ranges, and of the machines whose figures are kept, each by the
//! others: how often they hold is known, since none of these figures changes any more. `cargo run -p kelvin-probes
//! --example calibration` prints the tables.

use std::collections::BTreeMap;
use std::fs;

use kelvin_harness::ReferenceRecord;
use kelvin_probes::calibration::{CoverageSummary, PredictedFigure, predict_figures};
use kelvin_stats::median;

/// Runs that had no part in any formula, constant or range: the judges of all of them.
fn held_out() -> Vec<ReferenceRecord> {
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/held_out")).unwrap();
    let machines = files.map(|file| serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap());
    let machines: Vec<ReferenceRecord> = machines.collect();
    assert!(!machines.is_empty());
    machines
}

/// The figures of a machine that have a prediction.
fn predicted(machine: &ReferenceRecord) -> Vec<PredictedFigure> {
    predict_figures(machine).into_iter().filter(|figure| figure.prediction.is_some()).collect()
}

/// Like `predicted`, of all machines that are kept.
fn reference_figures() -> Vec<PredictedFigure> {
    kelvin_probes::reference_records().iter().flat_map(predicted).collect()
}

/// Nine of ten are promised: fewer than 85 % would be too few on any machine, and fewer than 80 % in any area.
#[test]
fn ranges_cover_ninety_percent_per_machine() {
    for machine in held_out().iter().chain(kelvin_probes::reference_records()) {
        let figures = predicted(machine);
        let coverage = CoverageSummary::from_figures(&figures).unwrap();
        assert!(coverage.covered > 0.85, "{}: {coverage:?}", machine.name);
        let mut areas: BTreeMap<&str, Vec<&PredictedFigure>> = BTreeMap::new();
        for figure in &figures {
            areas.entry(figure.figure.metric.split('.').next().unwrap_or_default()).or_default().push(figure);
        }
        for (area, figures) in areas {
            let coverage = CoverageSummary::from_figures(figures).unwrap();
            assert!(coverage.covered > 0.8, "{}, {area}: {coverage:?}", machine.name);
        }
    }
}

/// A line of the table: how many figures, the share in range of all and of each area, and the median range.
fn row(machine: &ReferenceRecord) -> String {
    let figures = predicted(machine);
    let coverage = CoverageSummary::from_figures(&figures).unwrap();
    let of_area = |area: &&str| {
        let area_figures = figures.iter().filter(|figure| figure.figure.metric.split('.').next() == Some(*area));
        CoverageSummary::from_figures(area_figures)
            .map_or("-".to_owned(), |coverage| format!("{:.0}", 100.0 * coverage.covered))
    };
    let areas: Vec<String> = AREAS.iter().map(of_area).collect();
    format!(
        "| {} | {} | {:.0} | {} | {:.2} |\n",
        machine.name,
        coverage.figures,
        100.0 * coverage.covered,
        areas.join(" | "),
        coverage.median_range
    )
}

/// Areas with figures of their own in a default run.
const AREAS: [&str; 5] = ["cpu", "os", "mem", "file", "net"];

#[test]
fn book_lists_each_machine_result() {
    let head = format!(
        "| machine | figures | in range, % | {} | range |\n|---|--:|--:|{}--:|\n",
        AREAS.join(" | "),
        "--:|".repeat(AREAS.len())
    );
    for (name, machines) in [("held-out-runs", &held_out()[..]), ("kept-machines", kelvin_probes::reference_records())]
    {
        let mut rows: Vec<String> = machines.iter().map(row).collect();
        rows.sort();
        kelvin_testing::assert_in_book(name, &(head.clone() + &rows.concat()));
    }
}

#[test]
fn most_figures_are_predicted_closely() {
    let figures: usize = kelvin_probes::reference_records().iter().map(|machine| machine.figures.len()).sum();
    let predicted_figures = reference_figures();
    assert!(predicted_figures.len() as f64 > 0.95 * figures as f64, "{} of {figures}", predicted_figures.len());
    let log_error = |figure: &PredictedFigure| {
        let predicted = figure.prediction.as_ref()?.value;
        (predicted > 0.0 && figure.figure.value > 0.0).then(|| (figure.figure.value / predicted).ln().abs())
    };
    let median_error = median(&predicted_figures.iter().filter_map(log_error).collect::<Vec<f64>>());
    assert!(median_error < 0.08, "{median_error}");
}

/// On a kind of machine that is known, ranges are narrower than on one that is not.
#[test]
fn ranges_are_narrow_and_slowdowns_flagged() {
    let unknown_kind = reference_figures();
    let known_kind: Vec<PredictedFigure> = held_out().iter().flat_map(predicted).collect();
    for (figures, max_range, flagged) in [
        (&unknown_kind, 1.7, [(1.25, 0.35), (1.5, 0.6), (2.0, 0.8)]),
        (&known_kind, 1.45, [(1.25, 0.5), (1.5, 0.75), (2.0, 0.85)]),
    ] {
        let coverage = CoverageSummary::from_figures(figures).unwrap();
        assert!(coverage.median_range < max_range, "{coverage:?}");
        for (slowdown, share) in flagged {
            let count = figures.iter().filter(|figure| figure.overlaps_range(slowdown) == Some(false)).count();
            assert!(count as f64 > share * figures.len() as f64, "{slowdown}: {count} of {}", figures.len());
        }
    }
}
