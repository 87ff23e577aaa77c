//! What a canary's reading shows about the samples next to it: how long these take where the canary is so far off its reference and all others
//! are at theirs, over what they take where all are. A canary that is off without them taking longer sees itself.
//!
//! `cargo run --release -p kelvin-analysis --example canary_agreement -- RUN.json...`, of `kelvin report RUN --format json`.

use std::collections::BTreeMap;
use std::io::Write;
use std::{env, fs};

use kelvin_analysis::analyse;
use kelvin_core::{Batches, Canary, HeadlineSamples, Measurement, Metric, Readings, RoundOutcome, Run, SampleTags};
use kelvin_stats::Sorted;

/// A canary that is nearer to its reference than this is at it.
const MAX_REFERENCE_DISTANCE: f64 = 0.015;
/// Bounds of the groups that are reported.
const GROUP_BOUNDS: [f64; 9] = [0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, f64::INFINITY];
/// Fewer samples at the reference do not show the time of a case.
const MIN_REFERENCE_SAMPLES: usize = 10;

type CanaryMedians = BTreeMap<Canary, f64>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut ratios_by_group: BTreeMap<(Canary, usize), Vec<f64>> = BTreeMap::new();
    for file in env::args().skip(1) {
        let mut report: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
        let run: Run = serde_json::from_value(report["run"].take())?;
        let references: CanaryMedians =
            analyse(&run).canaries.into_iter().map(|history| (history.canary, history.reference)).collect();
        for measurement in &run.measurements {
            for metric in measurement.planned.metrics.iter().filter_map(|id| run.metric(id)) {
                let metric = metric.for_case(&measurement.planned.case);
                if metric.headline != HeadlineSamples::AsFound {
                    add_samples(measurement, &metric, &references, &mut ratios_by_group);
                }
            }
        }
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "| canary | off by | samples | 25 % | median | 75 % | 95 % |\n|---|---|---|---|---|---|---|")?;
    for ((canary, group), ratios) in ratios_by_group {
        let sorted = Sorted::new(ratios).ok_or("a ratio is not finite")?;
        let [low, median, high, p95] = [0.25, 0.5, 0.75, 0.95].map(|share| sorted.quantile(share));
        let bound = GROUP_BOUNDS[group];
        let distance = if bound.is_finite() { format!("up to {} %", 100.0 * bound) } else { "more".into() };
        let count = sorted.values().len();
        writeln!(out, "| {} | {distance} | {count} | {low:.3} | {median:.3} | {high:.3} | {p95:.3} |", canary.name())?;
    }
    Ok(())
}

/// Adds the samples of a metric at a case, as multiples of what they take next to canaries at their references.
fn add_samples(
    measurement: &Measurement,
    metric: &Metric,
    references: &CanaryMedians,
    groups: &mut BTreeMap<(Canary, usize), Vec<f64>>,
) {
    let columns: Vec<&Batches> =
        measurement.rounds.iter().flat_map(|round| batches_of(&round.outcome, metric)).collect();
    let samples: Vec<(f64, BTreeMap<Canary, f64>)> =
        columns.iter().flat_map(|batches| samples(batches, metric, references)).collect();
    let is_at_reference = |distance: &f64| *distance <= MAX_REFERENCE_DISTANCE;
    let reference_times = samples
        .iter()
        .filter(|(_, distances)| distances.values().all(is_at_reference))
        .map(|(time, _)| *time)
        .collect();
    let Some(reference_times) = Sorted::new(reference_times) else { return };
    if reference_times.values().len() < MIN_REFERENCE_SAMPLES {
        return;
    }
    let reference_time = reference_times.quantile(0.5);
    for (time, distances) in &samples {
        for (&canary, distance) in distances {
            if distances.iter().all(|(other, other_distance)| *other == canary || is_at_reference(other_distance)) {
                let group = GROUP_BOUNDS.partition_point(|bound| bound < distance);
                groups.entry((canary, group)).or_default().push(time / reference_time);
            }
        }
    }
}

fn batches_of<'r>(outcome: &'r RoundOutcome, metric: &Metric) -> Vec<&'r Batches> {
    let RoundOutcome::Measured(readings) = outcome else { return Vec::new() };
    let metric_readings = readings.iter().filter(|reading| reading.metric == metric.id);
    let timed = metric_readings.filter_map(|reading| match &reading.readings {
        Readings::Batches(batches) => Some(batches),
        Readings::Scalars(_) => None,
    });
    timed.collect()
}

/// The time of each sample that is neither warm-up nor tagged, with how far off each canary was at most on either side of it; the block as
/// it would be at the reference frequency.
fn samples(batches: &Batches, metric: &Metric, references: &CanaryMedians) -> Vec<(f64, BTreeMap<Canary, f64>)> {
    let slowness = |canary: Canary, reading: f32| f64::from(reading) / references[&canary];
    let mut results = Vec::new();
    for batch in 0..batches.len() {
        let tags = batches.tags.get(batch).copied().unwrap_or(SampleTags::NONE);
        if tags.intersects(SampleTags::WARM_UP) || tags.intersects(metric.contaminants) {
            continue;
        }
        let chain = batches.neighbours(Canary::Chain, batch).filter(|_| references.contains_key(&Canary::Chain));
        let mut distances = BTreeMap::new();
        for &canary in batches.canaries.keys().filter(|canary| references.contains_key(canary)) {
            let Some(neighbours) = batches.neighbours(canary, batch) else { continue };
            let sides = [neighbours.0, neighbours.1].map(|reading| slowness(canary, reading));
            let clock = match (canary, chain) {
                (Canary::Block, Some(chain)) => [chain.0, chain.1].map(|reading| slowness(Canary::Chain, reading)),
                _ => [1.0; 2],
            };
            distances.insert(canary, (sides[0] / clock[0] - 1.0).abs().max((sides[1] / clock[1] - 1.0).abs()));
        }
        results.push((batches.nanoseconds[batch] / batches.iterations[batch].max(1) as f64, distances));
    }
    results
}
