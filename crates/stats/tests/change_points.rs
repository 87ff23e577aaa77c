//! Steps are found where there are some, told from drifts, and where there are none hardly ever.

#[path = "simulation/scenarios.rs"]
mod scenarios;

use kelvin_stats::{ChangePoints, FALSE_DISCOVERY_RATE, Random, adjusted_p_values, detect_change_points};
use scenarios::Scenario;

const HISTORIES: usize = 150;

/// The share of histories of which this holds.
fn share_of_histories(scene: Scenario, runs: usize, holds: impl Fn(&ChangePoints) -> bool) -> f64 {
    let mut random = Random::new(7);
    let of = (0..HISTORIES).filter(|_| holds(&detect_change_points(&scene.values(runs, &mut random)))).count();
    of as f64 / HISTORIES as f64
}

/// Whether exactly one step is told, so near its place, and no drift.
fn is_single_step_near(course: &ChangePoints, place: usize, away: usize) -> bool {
    matches!(&course.steps[..], [step] if step.index.abs_diff(place) <= away) && course.drifts.is_empty()
}

#[test]
fn false_alarms_are_rare_whatever_the_noise() {
    let says_something = |course: &ChangePoints| !course.steps.is_empty() || !course.drifts.is_empty();
    for (scene, most) in [
        (Scenario::Steady, 0.03),
        (Scenario::HeavyTails, 0.03),
        (Scenario::Outliers, 0.04),
        (Scenario::TwoStates, 0.06),
        (Scenario::Lasting, 0.16),
    ] {
        for runs in [8, 30, 90] {
            let found = share_of_histories(scene, runs, says_something);
            assert!(found <= most, "{scene:?} over {runs} runs: {found}");
        }
    }
}

#[test]
fn steps_are_located() {
    for (height, after, runs, least) in
        [(5.0, 3, 30, 0.93), (5.0, 6, 90, 0.93), (2.0, 8, 30, 0.7), (2.0, 20, 90, 0.85), (1.0, 45, 90, 0.6)]
    {
        let found = share_of_histories(Scenario::Step(height, after), runs, |course| {
            is_single_step_near(course, runs - after, 6)
        });
        assert!(found >= least, "{height} deviations, {after} of {runs} runs after it: {found}");
    }
    let both = share_of_histories(Scenario::UpAndBack(5.0), 45, |course| {
        course.steps.len() == 2 && course.steps[0].index.abs_diff(15) <= 1 && course.steps[1].index.abs_diff(30) <= 1
    });
    assert!(both >= 0.9, "{both}");
}

#[test]
fn step_interval_covers_true_index() {
    for (height, runs) in [(1.5, 60), (2.0, 40), (4.0, 30)] {
        let (mut told, mut held) = (0, 0);
        let mut random = Random::new(11);
        for _ in 0..300 {
            let scene = Scenario::Step(height, runs / 3);
            if let [step] = &detect_change_points(&scene.values(runs, &mut random)).steps[..] {
                told += 1;
                held += usize::from((step.index_interval[0]..=step.index_interval[1]).contains(&(runs - runs / 3)));
            }
        }
        let covers = f64::from(held as u32) / f64::from(told);
        assert!(told > 150 && covers >= 0.92, "{height}: {covers} of {told}");
    }
}

#[test]
fn drift_is_not_a_step() {
    let drifts = |course: &ChangePoints| course.steps.is_empty() && course.drifts.len() == 1;
    assert!(share_of_histories(Scenario::Drift(8.0), 40, drifts) >= 0.85);
    assert!(share_of_histories(Scenario::Drift(6.0), 90, drifts) >= 0.9);
}

/// A report of 200 steady series says something in about one of twenty; a real step among them is found.
#[test]
fn false_discoveries_are_controlled_over_a_report() {
    let mut random = Random::new(5);
    let (mut reports, mut found) = (0, 0);
    for _ in 0..40 {
        let mut chances: Vec<f64> =
            (0..200).map(|_| min_p_value(&detect_change_points(&Scenario::Steady.values(30, &mut random)))).collect();
        reports += usize::from(adjusted_p_values(&chances).iter().any(|&chance| chance <= FALSE_DISCOVERY_RATE));
        chances[0] = min_p_value(&detect_change_points(&Scenario::Step(5.0, 5).values(30, &mut random)));
        found += usize::from(adjusted_p_values(&chances)[0] <= FALSE_DISCOVERY_RATE);
    }
    assert!(reports <= 5, "{reports} of 40 reports");
    assert!(found >= 36, "{found} of 40");
}

fn min_p_value(course: &ChangePoints) -> f64 {
    let steps = course.steps.iter().map(|step| step.p_value);
    steps.chain(course.drifts.iter().map(|drift| drift.p_value)).fold(course.p_value, f64::min)
}
