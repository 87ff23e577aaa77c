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

/// What a method says of a history: steps, each with whether it lies in its interval; how many drifts; the least chance.
struct DetectedChanges {
    steps: Vec<(usize, [usize; 2])>,
    drifts: usize,
    min_p_value: f64,
}

fn kelvin_changes(values: &[f64]) -> DetectedChanges {
    let course = detect_change_points(values);
    let chances = course.steps.iter().map(|step| step.p_value).chain(course.drifts.iter().map(|drift| drift.p_value));
    DetectedChanges {
        steps: course.steps.iter().map(|step| (step.index, step.index_interval)).collect(),
        drifts: course.drifts.len(),
        min_p_value: chances.fold(course.p_value, f64::min),
    }
}

fn rank_changes(values: &[f64]) -> DetectedChanges {
    let found = rank_change_points(values, MIN_LEVEL_VALUES);
    DetectedChanges {
        steps: found.iter().map(|change| (change.index, [change.index; 2])).collect(),
        drifts: 0,
        min_p_value: found.iter().map(|change| change.p).fold(1.0, f64::min),
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
        for scene in SCENARIOS {
            for (name, method) in [("course", kelvin_changes as fn(&[f64]) -> DetectedChanges), ("ranks", rank_changes)]
            {
                writeln!(out, "{}", row(scene, runs, name, method))?;
            }
        }
    }
    Ok(())
}

fn row(scene: Scenario, runs: usize, name: &str, method: fn(&[f64]) -> DetectedChanges) -> String {
    let mut random = Random::new(1);
    let truth = scene.steps(runs);
    let is_drift = matches!(scene, Scenario::Drift(_));
    let [mut whole, mut found, mut near, mut within, mut wrong, mut drifts, mut sure] = [0; 7];
    for _ in 0..HISTORIES {
        let said = method(&scene.values(runs, &mut random));
        let mut unexplained = said.steps.len();
        for &step in &truth {
            let nearest = said.steps.iter().min_by_key(|(index, _)| index.abs_diff(step));
            if let Some((index, [low, high])) = nearest.filter(|(index, _)| index.abs_diff(step) <= 4) {
                found += 1;
                unexplained = unexplained.saturating_sub(1);
                near += usize::from(index.abs_diff(step) <= 1);
                within += usize::from((*low..=*high).contains(&step));
            }
        }
        wrong += usize::from(unexplained > 0);
        drifts += usize::from(said.drifts > 0);
        sure += usize::from(said.min_p_value <= 1e-4);
        whole += usize::from(said.steps.len() == truth.len() && unexplained == 0 && (said.drifts > 0) == is_drift);
    }
    let share = |count: usize, of: usize| if of == 0 { "-".into() } else { format!("{:.3}", count as f64 / of as f64) };
    let all = HISTORIES * truth.len();
    format!(
        "| {runs} | {scene:?} | {name} | {} | {} | {} | {} | {} | {} | {} |",
        share(whole, HISTORIES),
        share(found, all),
        share(near, found),
        share(within, found),
        share(wrong, HISTORIES),
        share(drifts, HISTORIES),
        share(sure, HISTORIES)
    )
}

/// What histories from elsewhere do.
fn print_external_histories(out: &mut impl Write) -> io::Result<()> {
    for line in io::stdin().lines() {
        let values: Result<Vec<f64>, _> = line?.split_whitespace().map(str::parse).collect();
        let found = detect_change_points(&values.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?);
        let steps = found.steps.iter().map(|step| step.index);
        let mut places: Vec<usize> =
            steps.chain(found.drifts.iter().flat_map(|drift| [drift.from, drift.to])).collect();
        places.sort_unstable();
        writeln!(out, "{places:?}")?;
    }
    Ok(())
}

fn print_values(out: &mut impl Write) -> io::Result<()> {
    for runs in RUNS {
        for scene in SCENARIOS {
            let mut random = Random::new(1);
            for _ in 0..HISTORIES {
                let (values, steps) = (scene.values(runs, &mut random), scene.steps(runs));
                writeln!(out, "{{\"runs\":{runs},\"scene\":\"{scene:?}\",\"steps\":{steps:?},\"values\":{values:?}}}")?;
            }
        }
    }
    Ok(())
}
