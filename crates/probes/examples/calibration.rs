//! How sharp and how right predictions are. Runs that had no part in formulas, constants or ranges (`tests/held_out/`) come first, each
//! predicted from its own lower metrics and from all machines whose figures are kept. Then each machine that is kept, by the others alone:
//! their formulas were made with it in view, but its ranges were not.
//!
//! For each area: figures and how they are predicted; the share that lies in its range, of which nine tenths are meant; how far the
//! predicted values are off in the median; the median range, upper over lower end; and how often a figure that took 1.25, 1.5 or 2 times
//! as long would be flagged.
//!
//! ```sh
//! cargo run --release -p kelvin-probes --example calibration           # tables
//! cargo run --release -p kelvin-probes --example calibration -- each   # every figure too
//! cargo run --release -p kelvin-probes --example calibration -- whole  # metrics that got slower as a whole
//! cargo run --release -p kelvin-probes --example calibration -- x.json # of these machines alone (kelvin other-machine)
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;

use kelvin_core::{Better, Name, Prediction, PredictionBasis};
use kelvin_harness::{ReferenceHeadline, ReferenceRecord};
use kelvin_probes::calibration::{CoverageSummary, PredictedFigure, predict_figures};
use kelvin_stats::median;

/// Runs that had no part in any formula, constant or range.
const HELD_OUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/held_out");
/// By how much figures are made worse.
const SLOWDOWN_FACTORS: [f64; 3] = [1.25, 1.5, 2.0];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let requested_machines: Vec<ReferenceRecord> =
        arguments.iter().filter(|argument| argument.ends_with(".json")).map(read_record).collect();
    let machines = if requested_machines.is_empty() { kelvin_probes::reference_records() } else { &requested_machines };
    if arguments.iter().any(|argument| argument == "whole") {
        print_whole_metrics(machines);
        return;
    }
    // Every figure, to see which formulas are off.
    let verbose = arguments.iter().any(|argument| argument == "each");
    if requested_machines.is_empty() {
        println!("# Held out\n");
        let folder = std::fs::read_dir(HELD_OUT).unwrap_or_else(|error| panic!("{HELD_OUT}: {error}"));
        let mut files: Vec<String> = folder.map(|file| file.expect(HELD_OUT).path().display().to_string()).collect();
        files.sort();
        print_tables(&files.iter().map(read_record).collect::<Vec<_>>(), verbose);
        println!("# Kept, each by the others\n");
    }
    print_tables(machines, verbose);
}

/// A table of each machine, and of all.
fn print_tables(machines: &[ReferenceRecord], verbose: bool) {
    let mut all_areas: BTreeMap<&str, Vec<PredictedFigure>> = BTreeMap::new();
    for record in machines {
        let mut machine_areas: BTreeMap<&str, Vec<PredictedFigure>> = BTreeMap::new();
        for figure in predict_figures(record) {
            if verbose {
                print_line(&figure);
            }
            machine_areas.entry(area(figure.figure.metric)).or_default().push(figure);
        }
        println!("{}\n", record.name);
        print_table(&machine_areas);
        for (area, figures) in machine_areas {
            all_areas.entry(area).or_default().extend(figures);
        }
    }
    if machines.len() > 1 {
        println!("All {}\n", machines.len());
        print_table(&all_areas);
    }
}

/// Metrics of which all figures got slower, and with them what follows from them: of those with no figure outside its
/// range as measured, how many have one then.
fn print_whole_metrics(machines: &[ReferenceRecord]) {
    let factors = [1.0, SLOWDOWN_FACTORS[0], SLOWDOWN_FACTORS[1], SLOWDOWN_FACTORS[2]];
    let mut areas: BTreeMap<&str, (usize, usize, [usize; 3])> = BTreeMap::new();
    for record in machines {
        for (metric, flagged_counts) in flagged_if_metric_slower(record, &factors) {
            for area in [area(metric), "all"] {
                let (metrics, inside, counts) = areas.entry(area).or_default();
                *metrics += 1;
                if flagged_counts[0] == 0 {
                    *inside += 1;
                    for (count, flagged) in counts.iter_mut().zip(&flagged_counts[1..]) {
                        *count += usize::from(*flagged > 0);
                    }
                }
            }
        }
    }
    println!("| area | metrics | all inside as measured | of these, 1.25 times slower as a whole: flagged | 1.5 | 2 |");
    println!("|---|--:|--:|--:|--:|--:|");
    for (area, (metrics, inside, counts)) in areas {
        let shares = counts.map(|count| format!("{:.0} %", 100.0 * count as f64 / inside.max(1) as f64));
        println!("| {area} | {metrics} | {inside} | {} |", shares.join(" | "));
    }
}

/// How many figures of each metric are flagged where all of them are this many times worse, and so are the inputs of
/// others: the metric, and a count for each of these factors.
fn flagged_if_metric_slower(record: &ReferenceRecord, factors: &[f64]) -> Vec<(Name, Vec<usize>)> {
    let figures = predict_figures(record).into_iter().filter(|figure| figure.prediction.is_some());
    let metrics: BTreeMap<Name, Better> = figures.map(|figure| (figure.figure.metric, figure.better)).collect();
    let count_flagged = |metric: Name, better, factor: f64| {
        let scale = if better == Better::Higher { 1.0 / factor } else { factor };
        let mut scaled_record = record.clone();
        for figure in scaled_record.figures.iter_mut().filter(|figure| figure.metric == metric) {
            figure.value *= scale;
            figure.half_width *= scale;
        }
        let metric_figures =
            predict_figures(&scaled_record).into_iter().filter(|figure| figure.figure.metric == metric);
        metric_figures.filter(|figure| figure.overlaps_range(1.0) == Some(false)).count()
    };
    let counts_of_metric =
        |(metric, better)| (metric, factors.iter().map(|factor| count_flagged(metric, better, *factor)).collect());
    metrics.into_iter().map(counts_of_metric).collect()
}

fn read_record(file: &String) -> ReferenceRecord {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file} is no machine of kelvin other-machine: {error}"))
}

/// The area of a metric: the first part of its id.
fn area(metric: Name) -> &'static str {
    metric.as_str().split('.').next().unwrap_or_default()
}

/// A figure over its prediction with the half-width of its interval, and the ends of the range.
fn print_line(figure: &PredictedFigure) {
    let ReferenceHeadline { metric, case, value, half_width } = &figure.figure;
    match &figure.prediction {
        None => println!("- {metric} {case}: not predicted"),
        Some(Prediction { value: predicted_value, low, high, basis, .. }) => {
            let ratio = |end: f64| end / predicted_value;
            println!(
                "- {metric} {case}: {:.2} ± {:.0} % ({:.2} to {:.2}) {basis:?}",
                ratio(*value),
                100.0 * half_width / value,
                ratio(*low),
                ratio(*high)
            );
        }
    }
}

fn print_table(areas: &BTreeMap<&str, Vec<PredictedFigure>>) {
    println!(
        "| area | figures | by a formula | by other machines | not predicted | in range | off, median | range, median | 1.25 flagged | 1.5 | 2 |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let all_figures: Vec<&PredictedFigure> = areas.values().flatten().collect();
    for (area, figures) in areas {
        print_row(area, &figures.iter().collect::<Vec<_>>());
    }
    print_row("all", &all_figures);
    let is_by_formula = |figure: &&PredictedFigure| {
        figure.prediction.as_ref().is_some_and(|prediction| prediction.basis != PredictionBasis::ReferenceMachines)
    };
    let (by_formula, rest): (Vec<&PredictedFigure>, Vec<&PredictedFigure>) =
        all_figures.into_iter().partition(is_by_formula);
    print_row("by a formula", &by_formula);
    print_row("by other machines", &rest);
    println!();
}

fn print_row(area: &str, figures: &[&PredictedFigure]) {
    let predicted: Vec<(&PredictedFigure, &Prediction)> =
        figures.iter().filter_map(|figure| Some((*figure, figure.prediction.as_ref()?))).collect();
    let by_machines =
        predicted.iter().filter(|(_, prediction)| prediction.basis == PredictionBasis::ReferenceMachines).count();
    let share = |count: usize| format!("{:.0} %", 100.0 * count as f64 / predicted.len().max(1) as f64);
    let coverage = CoverageSummary::from_figures(figures.iter().copied());
    let (inside, range) = coverage.map_or((f64::NAN, f64::NAN), |coverage| (coverage.covered, coverage.median_range));
    let positive_figures =
        || predicted.iter().filter(|(figure, prediction)| figure.figure.value > 0.0 && prediction.low > 0.0);
    let log_errors: Vec<f64> =
        positive_figures().map(|(figure, prediction)| (figure.figure.value / prediction.value).ln().abs()).collect();
    let median_error = if log_errors.is_empty() { f64::NAN } else { median(&log_errors) };
    let flagged_shares = SLOWDOWN_FACTORS.map(|factor| {
        share(predicted.iter().filter(|(figure, _)| figure.overlaps_range(factor) == Some(false)).count())
    });
    println!(
        "| {area} | {} | {} | {by_machines} | {} | {:.0} % | {:.0} % | {range:.2} | {} |",
        figures.len(),
        predicted.len() - by_machines,
        figures.len() - predicted.len(),
        100.0 * inside,
        100.0 * (median_error.exp() - 1.0),
        flagged_shares.join(" | "),
    );
}
