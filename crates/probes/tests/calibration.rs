//! Predictions of runs that had no part in formulas or ranges, and of the machines whose figures are kept, each by the others: how often they
//! hold is known, since none of these figures changes any more. `cargo run -p kelvin-probes --example calibration` prints the tables.

use std::collections::BTreeMap;
use std::fs;

use kelvin_harness::OtherMachine;
use kelvin_probes::calibration::{Beside, Held, beside};
use kelvin_stats::median;

/// Runs that had no part in any formula, constant or range: the judges of all of them.
fn held_out() -> Vec<OtherMachine> {
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/held_out")).unwrap();
    let machines = files.map(|file| serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap());
    let machines: Vec<OtherMachine> = machines.collect();
    assert!(!machines.is_empty());
    machines
}

/// The figures of a machine that have a prediction.
fn predicted(machine: &OtherMachine) -> Vec<Beside> {
    beside(machine).into_iter().filter(|one| one.prediction.is_some()).collect()
}

/// The same of all machines that are kept.
fn kept() -> Vec<Beside> {
    kelvin_probes::other_machines().iter().flat_map(predicted).collect()
}

/// Nine of ten are promised: fewer than 85 % would be too few on any machine, and fewer than 80 % in any area.
#[test]
fn nine_of_ten_figures_of_each_machine_lie_in_the_ranges_that_others_tell() {
    for machine in held_out().iter().chain(kelvin_probes::other_machines()) {
        let figures = predicted(machine);
        let held = Held::of(&figures).unwrap();
        assert!(held.inside > 0.85, "{}: {held:?}", machine.name);
        let mut areas: BTreeMap<&str, Vec<&Beside>> = BTreeMap::new();
        for one in &figures {
            areas.entry(one.figure.metric.split('.').next().unwrap_or_default()).or_default().push(one);
        }
        for (area, figures) in areas {
            let held = Held::of(figures).unwrap();
            assert!(held.inside > 0.8, "{}, {area}: {held:?}", machine.name);
        }
    }
}

/// A line of the table: how many figures, the share in range of all and of each area, and the median range.
fn row(machine: &OtherMachine) -> String {
    let figures = predicted(machine);
    let held = Held::of(&figures).unwrap();
    let of_area = |area: &&str| {
        let own = figures.iter().filter(|one| one.figure.metric.split('.').next() == Some(*area));
        Held::of(own).map_or("-".to_owned(), |held| format!("{:.0}", 100.0 * held.inside))
    };
    let areas: Vec<String> = AREAS.iter().map(of_area).collect();
    format!(
        "| {} | {} | {:.0} | {} | {:.2} |\n",
        machine.name,
        held.figures,
        100.0 * held.inside,
        areas.join(" | "),
        held.range
    )
}

/// Areas with figures of their own in a default run.
const AREAS: [&str; 5] = ["cpu", "os", "mem", "file", "net"];

#[test]
fn the_book_has_the_result_of_each_machine() {
    let head = format!(
        "| machine | figures | in range, % | {} | range |\n|---|--:|--:|{}--:|\n",
        AREAS.join(" | "),
        "--:|".repeat(AREAS.len())
    );
    for (name, machines) in [("held-out runs", &held_out()[..]), ("kept machines", kelvin_probes::other_machines())] {
        let mut rows: Vec<String> = machines.iter().map(row).collect();
        rows.sort();
        kelvin_testing::assert_in_book("held-out.md", name, &(head.clone() + &rows.concat()));
    }
}

#[test]
fn most_figures_are_predicted_and_the_median_of_them_closely() {
    let figures: usize = kelvin_probes::other_machines().iter().map(|machine| machine.figures.len()).sum();
    let all = kept();
    assert!(all.len() as f64 > 0.95 * figures as f64, "{} of {figures}", all.len());
    let off = |one: &Beside| {
        let predicted = one.prediction.as_ref()?.value;
        (predicted > 0.0 && one.figure.value > 0.0).then(|| (one.figure.value / predicted).ln().abs())
    };
    let off = median(&all.iter().filter_map(off).collect::<Vec<f64>>());
    assert!(off < 0.08, "{off}");
}

/// On a kind of machine that is known, ranges are narrower than on one that is not.
#[test]
fn ranges_are_narrow_and_what_got_slower_is_flagged() {
    let unknown = kept();
    let known: Vec<Beside> = held_out().iter().flat_map(predicted).collect();
    for (figures, most, flagged) in [
        (&unknown, 1.7, [(1.25, 0.35), (1.5, 0.6), (2.0, 0.8)]),
        (&known, 1.45, [(1.25, 0.5), (1.5, 0.75), (2.0, 0.85)]),
    ] {
        let held = Held::of(figures).unwrap();
        assert!(held.range < most, "{held:?}");
        for (slower, share) in flagged {
            let count = figures.iter().filter(|one| one.touches(slower) == Some(false)).count();
            assert!(count as f64 > share * figures.len() as f64, "{slower}: {count} of {}", figures.len());
        }
    }
}
