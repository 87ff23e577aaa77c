//! How often steps are found where there are some, and where there are none: a Markdown table.
//!
//! `cargo run --release -p kelvin-stats --example changes`; with `values` the simulated histories as lines of JSON instead, for
//! another program to look at the same ones; with `read` the histories of standard input, one a line as numbers between spaces, and of each
//! in a line where it steps and where its drifts begin and end.
use std::io::{self, Write};

#[path = "../tests/simulation/scenarios.rs"]
mod scenarios;

use kelvin_stats::{MIN_LEVEL_VALUES, Random, detect_change_points, rank_change_points};
use scenarios::Scenario;

const HISTORIES: usize = 200;
const RUNS: [usize; 3] = [12, 40, 120];
const SCENARIOS: [Scenario; 15] = [
    Scenario::Steady,
    Scenario::HeavyTails,
    Scenario::Outliers,
    Scenario::TwoStates,
    Scenario::Lasting,
    Scenario::Step(1.0, 6),
    Scenario::Step(2.0, 6),
    Scenario::Step(5.0, 6),
    Scenario::Step(2.0, 3),
    Scenario::Step(5.0, 3),
    Scenario::StepAmongOutliers(5.0, 4),
    Scenario::UpAndBack(2.0),
    Scenario::UpAndBack(5.0),
    Scenario::Drift(3.0),
    Scenario::Drift(8.0),
];

/// What a method detects in a history: steps, each with whether it lies in its interval; how many drifts; the least chance.
struct DetectedChanges {
    steps: Vec<(usize, [usize; 2])>,
    drifts: usize,
    min_p_value: f64,
}

fn kelvin_changes(values: &[f64]) -> DetectedChanges {
    let changes = detect_change_points(values);
    let chances = changes.steps.iter().map(|step| step.p_value).chain(changes.drifts.iter().map(|drift| drift.p_value));
    DetectedChanges {
        steps: changes.steps.iter().map(|step| (step.index, step.index_interval)).collect(),
        drifts: changes.drifts.len(),
        min_p_value: chances.fold(changes.p_value, f64::min),
    }
}

fn rank_changes(values: &[f64]) -> DetectedChanges {
    let changes = rank_change_points(values, MIN_LEVEL_VALUES);
    DetectedChanges {
        steps: changes.iter().map(|change| (change.index, [change.index; 2])).collect(),
        drifts: 0,
        min_p_value: changes.iter().map(|change| change.p).fold(1.0, f64::min),
    }
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    match std::env::args().nth(1).as_deref() {
        Some("values") => return print_values(&mut out),
        Some("read") => return print_external_histories(&mut out),
        _ => {}
    }
    writeln!(
        out,
        "| runs | scene | method | all as it is | a step found | place within 1 | in its interval | false steps | a drift | sure (1e-4) |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for runs in RUNS {
        for scenario in SCENARIOS {
            for (name, method) in [("course", kelvin_changes as fn(&[f64]) -> DetectedChanges), ("ranks", rank_changes)]
            {
                writeln!(out, "{}", row(scenario, runs, name, method))?;
            }
        }
    }
    Ok(())
}

fn row(scenario: Scenario, runs: usize, name: &str, method: fn(&[f64]) -> DetectedChanges) -> String {
    let mut random = Random::new(1);
    let truth = scenario.steps(runs);
    let is_drift = matches!(scenario, Scenario::Drift(_));
    let [
        mut exact_count,
        mut found_count,
        mut near_count,
        mut covered_count,
        mut false_count,
        mut drift_count,
        mut certain_count,
    ] = [0; 7];
    for _ in 0..HISTORIES {
        let changes = method(&scenario.values(runs, &mut random));
        let mut unmatched = changes.steps.len();
        for &step in &truth {
            let nearest = changes.steps.iter().min_by_key(|(index, _)| index.abs_diff(step));
            if let Some((index, [low, high])) = nearest.filter(|(index, _)| index.abs_diff(step) <= 4) {
                found_count += 1;
                unmatched = unmatched.saturating_sub(1);
                near_count += usize::from(index.abs_diff(step) <= 1);
                covered_count += usize::from((*low..=*high).contains(&step));
            }
        }
        false_count += usize::from(unmatched > 0);
        drift_count += usize::from(changes.drifts > 0);
        certain_count += usize::from(changes.min_p_value <= 1e-4);
        exact_count +=
            usize::from(changes.steps.len() == truth.len() && unmatched == 0 && (changes.drifts > 0) == is_drift);
    }
    let share = |count: usize, total: usize| {
        if total == 0 { "-".into() } else { format!("{:.3}", count as f64 / total as f64) }
    };
    let step_count = HISTORIES * truth.len();
    format!(
        "| {runs} | {scenario:?} | {name} | {} | {} | {} | {} | {} | {} | {} |",
        share(exact_count, HISTORIES),
        share(found_count, step_count),
        share(near_count, found_count),
        share(covered_count, found_count),
        share(false_count, HISTORIES),
        share(drift_count, HISTORIES),
        share(certain_count, HISTORIES)
    )
}

/// What histories from elsewhere do.
fn print_external_histories(out: &mut impl Write) -> io::Result<()> {
    for line in io::stdin().lines() {
        let values: Result<Vec<f64>, _> = line?.split_whitespace().map(str::parse).collect();
        let changes = detect_change_points(&values.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?);
        let steps = changes.steps.iter().map(|step| step.index);
        let mut places: Vec<usize> =
            steps.chain(changes.drifts.iter().flat_map(|drift| [drift.start, drift.end])).collect();
        places.sort_unstable();
        writeln!(out, "{places:?}")?;
    }
    Ok(())
}

fn print_values(out: &mut impl Write) -> io::Result<()> {
    for runs in RUNS {
        for scenario in SCENARIOS {
            let mut random = Random::new(1);
            for _ in 0..HISTORIES {
                let (values, steps) = (scenario.values(runs, &mut random), scenario.steps(runs));
                writeln!(
                    out,
                    "{{\"runs\":{runs},\"scene\":\"{scenario:?}\",\"steps\":{steps:?},\"values\":{values:?}}}"
                )?;
            }
        }
    }
    Ok(())
}
