//! Steps are found where there are some, distinguished from drifts, and where there are none hardly ever.

#[path = "simulation/scenarios.rs"]
mod scenarios;

use kelvin_stats::{ChangePoints, FALSE_DISCOVERY_RATE, Random, adjusted_p_values, detect_change_points};
use scenarios::Scenario;

const HISTORIES: usize = 150;

/// The share of histories of which this holds.
fn share_of_histories(scenario: Scenario, runs: usize, predicate: impl Fn(&ChangePoints) -> bool) -> f64 {
    let mut random = Random::new(7);
    let count =
        (0..HISTORIES).filter(|_| predicate(&detect_change_points(&scenario.values(runs, &mut random)))).count();
    count as f64 / HISTORIES as f64
}

/// Whether exactly one step is detected, within this distance of its index, and no drift.
fn is_single_step_near(changes: &ChangePoints, index: usize, tolerance: usize) -> bool {
    matches!(&changes.steps[..], [step] if step.index.abs_diff(index) <= tolerance) && changes.drifts.is_empty()
}

#[test]
fn false_alarms_are_rare_under_any_noise() {
    let has_changes = |changes: &ChangePoints| !changes.steps.is_empty() || !changes.drifts.is_empty();
    for (scenario, max_share) in [
        (Scenario::Steady, 0.03),
        (Scenario::HeavyTails, 0.03),
        (Scenario::Outliers, 0.04),
        (Scenario::TwoStates, 0.06),
        (Scenario::Lasting, 0.16),
    ] {
        for runs in [8, 30, 90] {
            let share = share_of_histories(scenario, runs, has_changes);
            assert!(share <= max_share, "{scenario:?} over {runs} runs: {share}");
        }
    }
}

#[test]
fn steps_are_located() {
    for (height, after, runs, min_share) in
        [(5.0, 3, 30, 0.93), (5.0, 6, 90, 0.93), (2.0, 8, 30, 0.7), (2.0, 20, 90, 0.85), (1.0, 45, 90, 0.6)]
    {
        let share = share_of_histories(Scenario::Step(height, after), runs, |changes| {
            is_single_step_near(changes, runs - after, 6)
        });
        assert!(share >= min_share, "{height} deviations, {after} of {runs} runs after it: {share}");
    }
    let two_step_share = share_of_histories(Scenario::UpAndBack(5.0), 45, |changes| {
        changes.steps.len() == 2 && changes.steps[0].index.abs_diff(15) <= 1 && changes.steps[1].index.abs_diff(30) <= 1
    });
    assert!(two_step_share >= 0.9, "{two_step_share}");
}

#[test]
fn step_interval_covers_true_index() {
    for (height, runs) in [(1.5, 60), (2.0, 40), (4.0, 30)] {
        let (mut detection_count, mut covered_count) = (0, 0);
        let mut random = Random::new(11);
        for _ in 0..300 {
            let scenario = Scenario::Step(height, runs / 3);
            if let [step] = &detect_change_points(&scenario.values(runs, &mut random)).steps[..] {
                detection_count += 1;
                covered_count +=
                    usize::from((step.index_interval[0]..=step.index_interval[1]).contains(&(runs - runs / 3)));
            }
        }
        let coverage = f64::from(covered_count as u32) / f64::from(detection_count);
        assert!(detection_count > 150 && coverage >= 0.92, "{height}: {coverage} of {detection_count}");
    }
}

#[test]
fn drift_is_not_a_step() {
    let drifts = |changes: &ChangePoints| changes.steps.is_empty() && changes.drifts.len() == 1;
    assert!(share_of_histories(Scenario::Drift(8.0), 40, drifts) >= 0.85);
    assert!(share_of_histories(Scenario::Drift(6.0), 90, drifts) >= 0.9);
}

/// A report of 200 steady series has a change in about one of twenty; a real step among them is found.
#[test]
fn false_discoveries_are_controlled_over_a_report() {
    let mut random = Random::new(5);
    let (mut reports, mut detections) = (0, 0);
    for _ in 0..40 {
        let mut chances: Vec<f64> =
            (0..200).map(|_| min_p_value(&detect_change_points(&Scenario::Steady.values(30, &mut random)))).collect();
        reports += usize::from(adjusted_p_values(&chances).iter().any(|&chance| chance <= FALSE_DISCOVERY_RATE));
        chances[0] = min_p_value(&detect_change_points(&Scenario::Step(5.0, 5).values(30, &mut random)));
        detections += usize::from(adjusted_p_values(&chances)[0] <= FALSE_DISCOVERY_RATE);
    }
    assert!(reports <= 5, "{reports} of 40 reports");
    assert!(detections >= 36, "{detections} of 40");
}

fn min_p_value(changes: &ChangePoints) -> f64 {
    let steps = changes.steps.iter().map(|step| step.p_value);
    steps.chain(changes.drifts.iter().map(|drift| drift.p_value)).fold(changes.p_value, f64::min)
}
