//! Predictions of the machines whose figures are kept, each from its own lower metrics and from the machines of other kinds: how often they
//! hold is known, since no machine's figures change any more. `cargo run -p kelvin-probes --example calibration` prints the tables.

#[path = "../examples/calibration/beside.rs"]
mod beside;

use beside::{Beside, beside};
use kelvin_stats::median;

/// All figures of machines that have a prediction.
fn predicted() -> Vec<Beside> {
    kelvin_probes::other_machines().iter().flat_map(beside).filter(|one| one.prediction.is_some()).collect()
}

#[test]
fn nine_of_ten_figures_lie_in_the_ranges_that_other_machines_tell() {
    let all = predicted();
    let inside = all.iter().filter(|one| one.touches(1.0) == Some(true)).count();
    let share = inside as f64 / all.len() as f64;
    assert!((0.85..0.95).contains(&share), "{inside} of {}", all.len());
}

#[test]
fn most_figures_are_predicted_and_the_median_of_them_closely() {
    let figures: usize = kelvin_probes::other_machines().iter().map(|machine| machine.figures.len()).sum();
    let all = predicted();
    assert!(all.len() as f64 > 0.95 * figures as f64, "{} of {figures}", all.len());
    let off = |one: &Beside| {
        let predicted = one.prediction.as_ref()?.value;
        (predicted > 0.0 && one.figure.value > 0.0).then(|| (one.figure.value / predicted).ln().abs())
    };
    let off = median(&all.iter().filter_map(off).collect::<Vec<f64>>());
    assert!(off < 0.08, "{off}");
}

#[test]
fn ranges_are_narrow_and_what_got_slower_is_flagged() {
    let all = predicted();
    let range = |one: &Beside| {
        let prediction = one.prediction.as_ref()?;
        (prediction.low > 0.0).then(|| prediction.high / prediction.low)
    };
    let range = median(&all.iter().filter_map(range).collect::<Vec<f64>>());
    assert!(range < 1.45, "{range}");
    for (slower, share) in [(1.25, 0.5), (1.5, 0.75), (2.0, 0.9)] {
        let flagged = all.iter().filter(|one| one.touches(slower) == Some(false)).count();
        assert!(flagged as f64 > share * all.len() as f64, "{slower}: {flagged} of {}", all.len());
    }
}
