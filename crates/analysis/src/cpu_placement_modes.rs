//! Whether the CPUs that move memory together share a last-level cache at the time, and the bandwidth in either case.
//!
//! The host of a virtual machine moves its CPUs. Their joint bandwidth has one value when they are in one core complex, with
//! one path to memory, and another when they are in two; core-to-core latency says which. Neither value is wrong, and no
//! canary separates them: they are named.

use kelvin_core::catalogue::mem::*;

use crate::prelude::*;

/// The metrics that depend on the distance between the CPUs.
static PLACEMENT_RATES: [&Metric; 7] = [
    &BANDWIDTH_READ,
    &BANDWIDTH_WRITE,
    &BANDWIDTH_COPY,
    &BANDWIDTH_FILL,
    &BANDWIDTH_ZERO,
    &BANDWIDTH_NTWRITE,
    &BANDWIDTH_TRIAD,
];
/// Least factor between the core-to-core latencies of two modes of a rate that explains the modes.
const MIN_LATENCY_RATIO: f64 = 1.5;

/// Core-to-core latency: of each round, by its start, and of the whole run.
struct CoreDistance {
    case: Case,
    rounds: Vec<(f64, f64)>,
    headline: f64,
}

/// Names the modes of the rates of all CPUs by their core-to-core latency, where that separates the modes.
pub(crate) fn name_bandwidth_modes(results: &mut [MetricResult]) {
    let latency_results = results.iter().filter(|result| result.metric.id == BANDWIDTH_CORE_TO_CORE.id);
    let distance = latency_results.filter_map(|result| {
        let summary = result.outcome.summary()?;
        let rounds = summary.round_times.iter().copied().zip(summary.round_headlines.iter().copied()).collect();
        Some(CoreDistance { case: result.case.clone(), rounds, headline: summary.headline })
    });
    for distance in distance.collect::<Vec<_>>() {
        let is_dependent = |result: &&mut MetricResult| is_placement_rate(result) && result.case == distance.case;
        results.iter_mut().filter(is_dependent).for_each(|result| name_result_modes(result, &distance));
    }
}

/// Whether a rate depends on the distance between the CPUs.
pub(crate) fn is_placement_rate(result: &MetricResult) -> bool {
    PLACEMENT_RATES.iter().any(|rate| rate.id == result.metric.id)
}

fn name_result_modes(result: &mut MetricResult, distance: &CoreDistance) {
    let Some(summary) = result.outcome.found_summary() else { return };
    let [first, second] = summary.states() else { return };
    let bound = (first.center * second.center).sqrt();
    let times = match summary.mode_unit {
        ModeUnit::Rounds => [first, second]
            .map(|mode| median_distance(summary, distance, |rate| (rate < bound) == (mode.center < bound))),
        // Core-to-core latency is known of this run only.
        _ => [first, second].map(|mode| {
            let is_run_mode = (summary.headline < bound) == (mode.center < bound);
            is_run_mode.then_some(distance.headline)
        }),
    };
    if let [Some(first_time), Some(second_time)] = times
        && first_time.max(second_time) < MIN_LATENCY_RATIO * first_time.min(second_time)
    {
        return;
    }
    let centers = [first.center, second.center];
    rename_modes(result, |mode| {
        let place = centers.iter().position(|&center| center == mode.center)?;
        times[place].map(|time| format!("core-to-core latency {}", value_text(time, Unit::Nanoseconds)))
    });
}

/// Median core-to-core latency of the rounds that satisfy this; `None` if there are none.
fn median_distance(summary: &Summary, distance: &CoreDistance, is_selected: impl Fn(f64) -> bool) -> Option<f64> {
    let rounds = summary.round_times.iter().zip(&summary.round_headlines);
    let selected = rounds.filter(|&(_, &rate)| is_selected(rate));
    let time =
        |&start: &f64| distance.rounds.iter().find(|(round_start, _)| *round_start == start).map(|(_, time)| *time);
    let times: Vec<f64> = selected.filter_map(|(start, _)| time(start)).collect();
    (!times.is_empty()).then(|| median(&times))
}
