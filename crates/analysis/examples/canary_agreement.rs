//! What a canary's reading says of the samples beside it: how long these take where the canary is so far off its reference and all others
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
/// Bounds of the groups that are told.
const GROUP_BOUNDS: [f64; 9] = [0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, f64::INFINITY];
/// Fewer samples at the reference tell nothing of what a case takes.
const MIN_REFERENCE_SAMPLES: usize = 10;

type CanaryMedians = BTreeMap<Canary, f64>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut found: BTreeMap<(Canary, usize), Vec<f64>> = BTreeMap::new();
    for file in env::args().skip(1) {
        let mut report: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
        let run: Run = serde_json::from_value(report["run"].take())?;
        let of_run: CanaryMedians =
            analyse(&run).canaries.into_iter().map(|history| (history.canary, history.reference)).collect();
        for measurement in &run.measurements {
            for metric in measurement.planned.metrics.iter().filter_map(|id| run.metric(id)) {
                let metric = metric.for_case(&measurement.planned.case);
                if metric.headline != HeadlineSamples::AsFound {
                    add_samples(measurement, &metric, &of_run, &mut found);
                }
            }
        }
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "| canary | off by | samples | 25 % | median | 75 % | 95 % |\n|---|---|---|---|---|---|---|")?;
    for ((canary, group), ratios) in found {
        let sorted = Sorted::new(ratios).ok_or("a ratio is not finite")?;
        let [low, median, high, most] = [0.25, 0.5, 0.75, 0.95].map(|share| sorted.quantile(share));
        let bound = GROUP_BOUNDS[group];
        let off = if bound.is_finite() { format!("up to {} %", 100.0 * bound) } else { "more".into() };
        let count = sorted.values().len();
        writeln!(out, "| {} | {off} | {count} | {low:.3} | {median:.3} | {high:.3} | {most:.3} |", canary.name())?;
    }
    Ok(())
}

/// Adds the samples of a metric at a case, as multiples of what they take beside canaries at their references.
fn add_samples(
    measurement: &Measurement,
    metric: &Metric,
    of_run: &CanaryMedians,
    found: &mut BTreeMap<(Canary, usize), Vec<f64>>,
) {
    let all: Vec<&Batches> = measurement.rounds.iter().flat_map(|round| batches_of(&round.outcome, metric)).collect();
    let samples: Vec<(f64, BTreeMap<Canary, f64>)> = all.iter().flat_map(|one| samples(one, metric, of_run)).collect();
    let is_at_reference = |off: &f64| *off <= MAX_REFERENCE_DISTANCE;
    let steady = samples.iter().filter(|(_, off)| off.values().all(is_at_reference)).map(|(time, _)| *time).collect();
    let Some(steady) = Sorted::new(steady) else { return };
    if steady.values().len() < MIN_REFERENCE_SAMPLES {
        return;
    }
    let usual = steady.quantile(0.5);
    for (time, off) in &samples {
        for (&canary, own) in off {
            if off.iter().all(|(other, off)| *other == canary || is_at_reference(off)) {
                let group = GROUP_BOUNDS.partition_point(|bound| bound < own);
                found.entry((canary, group)).or_default().push(time / usual);
            }
        }
    }
}

fn batches_of<'r>(attempt: &'r RoundOutcome, metric: &Metric) -> Vec<&'r Batches> {
    let RoundOutcome::Measured(readings) = attempt else { return Vec::new() };
    let of_metric = readings.iter().filter(|reading| reading.metric == metric.id);
    let timed = of_metric.filter_map(|reading| match &reading.readings {
        Readings::Batches(batches) => Some(batches),
        Readings::Scalars(_) => None,
    });
    timed.collect()
}

/// The time of each sample that is neither warm-up nor tagged, with how far off each canary was at most on either side of it; the block as
/// it would be at the reference frequency.
fn samples(batches: &Batches, metric: &Metric, references: &CanaryMedians) -> Vec<(f64, BTreeMap<Canary, f64>)> {
    let slowness = |canary: Canary, reading: f32| f64::from(reading) / references[&canary];
    let mut found = Vec::new();
    for batch in 0..batches.len() {
        let tags = batches.tags.get(batch).copied().unwrap_or(SampleTags::NONE);
        if tags.intersects(SampleTags::WARM_UP) || tags.intersects(metric.contaminants) {
            continue;
        }
        let chain = batches.neighbours(Canary::Chain, batch).filter(|_| references.contains_key(&Canary::Chain));
        let mut off = BTreeMap::new();
        for &canary in batches.canaries.keys().filter(|canary| references.contains_key(canary)) {
            let Some(own) = batches.neighbours(canary, batch) else { continue };
            let sides = [own.0, own.1].map(|reading| slowness(canary, reading));
            let clock = match (canary, chain) {
                (Canary::Block, Some(chain)) => [chain.0, chain.1].map(|reading| slowness(Canary::Chain, reading)),
                _ => [1.0; 2],
            };
            off.insert(canary, (sides[0] / clock[0] - 1.0).abs().max((sides[1] / clock[1] - 1.0).abs()));
        }
        found.push((batches.nanoseconds[batch] / batches.iterations[batch].max(1) as f64, off));
    }
    found
}
