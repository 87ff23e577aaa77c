//! Rivals: what belongs together is one row, and a missing comparison has its reason.

use kelvin_analysis::testing::{self, add_measurement, add_scalars};
use kelvin_analysis::{Outcome, RangeVerdict, RivalOutcome, RivalResult, analyse};
use kelvin_core::{Better, Case, HeadlineSamples, Metric, RoundOutcome, SkipReason, Unit};

const fn as_found_metric(metric: Metric) -> Metric {
    metric.headline(HeadlineSamples::AsFound)
}

const RATIO: Metric =
    as_found_metric(Metric::rate("file.rivals.cached", "kelvin over the other")).unit(Unit::Ratio, Better::Neither);
const KELVIN: Metric = as_found_metric(Metric::rate("file.rivals.cached.kelvin", "kelvin"));
const RIVAL: Metric = as_found_metric(Metric::rate("file.rivals.cached.other", "the other"));

fn case(program: &'static str) -> Case {
    Case::new().with_word(kelvin_core::AxisWord::from_names("program", program)).with_number("block", 4096)
}

#[test]
fn ratio_is_of_pairs() {
    let mut run = testing::empty_run(&[RATIO, KELVIN, RIVAL]);
    // The machine became slower for both sides: each pair still has 1.25.
    let slower = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5];
    add_scalars(&mut run, &RATIO, case("fio"), &[1.24, 1.25, 1.26, 1.25, 1.24, 1.26]);
    add_scalars(&mut run, &KELVIN, case("fio"), &slower.map(|factor| factor * 5e9));
    add_scalars(&mut run, &RIVAL, case("fio"), &slower.map(|factor| factor * 4e9));
    let missing = RoundOutcome::Skipped(SkipReason::new("needs the program dd"));
    for metric in [&RATIO, &KELVIN, &RIVAL] {
        add_measurement(&mut run, metric, case("dd"), vec![testing::round_with_outcome(0, missing.clone())]);
    }
    let analysis = analyse(&run);
    let [fio, dd] = &analysis.rivals[..] else { panic!("{:#?}", analysis.rivals) };
    assert_eq!((fio.program.as_str(), &fio.case), ("fio", &Case::new().with_number("block", 4096)));
    let RivalOutcome::Compared(figures) = &fio.outcome else { panic!("{fio:#?}") };
    let interval = figures.ratio.interval.unwrap();
    assert!((figures.ratio.value - 1.25).abs() < 1e-9 && interval.half_width() < 0.05, "{figures:#?}");
    let side_width = figures.kelvin.interval.unwrap().half_width() / figures.kelvin.value;
    assert!(side_width > 10.0 * interval.half_width() / 1.25, "{side_width}");
    assert_eq!((figures.expected, figures.verdict), (None, RangeVerdict::NotPredicted));
    assert_eq!(dd.outcome, RivalOutcome::Missing(Box::new(Outcome::Skipped(SkipReason::new("needs the program dd")))));
    assert!(analysis.results.iter().all(RivalResult::is_rival_metric));
}

#[test]
fn run_without_rivals_has_no_comparison() {
    let null = Metric::duration("file.rivalsonal", "something else");
    let mut run = testing::empty_run(&[null]);
    add_scalars(&mut run, &null, Case::new(), &[1.0, 1.1, 1.2]);
    let analysis = analyse(&run);
    assert!(analysis.rivals.is_empty() && !analysis.results.iter().any(RivalResult::is_rival_metric));
}
