//! CPUs that the host moved, within the run or since another one, at the largest working set.

use kelvin_core::catalogue::mem::{BANDWIDTH_CORE_TO_CORE, BYTES};

use super::*;
use crate::cpu_placement_modes::is_placement_rate;

pub(super) fn moved_cpus(analysis: &Analysis) -> Option<Finding> {
    let distances = requested_results(analysis).filter(|result| result.metric.id == BANDWIDTH_CORE_TO_CORE.id);
    let largest = distances.max_by_key(|result| BYTES.number_in(&result.case))?;
    let summary = largest.outcome.summary().filter(|summary| !summary.states().is_empty())?;
    let rates = requested_results(analysis).filter(|result| is_placement_rate(result) && result.case == largest.case);
    let mode_distance = |result: &MetricResult| {
        let states = result.outcome.summary()?.states();
        let factor = states.iter().map(|mode| mode.center).fold(1.0, |ratio, center| center / ratio);
        states.iter().any(|mode| mode.level.is_some()).then(|| factor.ln().abs())
    };
    let most_changed =
        rates.filter_map(|result| Some((mode_distance(result)?, result))).max_by(|a, b| a.0.total_cmp(&b.0));
    let rate_result = most_changed.map(|(_, result)| result);
    let (unit, modes) = (largest.metric.unit, summary.mode_unit.label());
    let changes =
        format!("Core-to-core latency alternates between {} of the {modes}", modes_text(summary.states(), unit));
    let text = match rate_result.and_then(|rate| Some((rate, rate.outcome.summary()?))) {
        Some((rate, rate_summary)) => format!(
            "{changes}; the bandwidth of all CPUs follows it, {} the most: {}",
            rate.metric.id,
            modes_text(rate_summary.states(), rate.metric.unit)
        ),
        None => format!(
            "{changes}; the bandwidths of all CPUs in this run belong to {}",
            value_text(summary.headline, unit)
        ),
    };
    let reason = format!("two modes of core-to-core latency, separated over the {modes} at {}", largest.case);
    let moved_cpus = MovedCpus { case: largest.case.clone(), correlated: rate_result.map(|result| result.metric.id) };
    let finding = Finding::new(Importance::Notable, FindingData::CpusMoved(moved_cpus), text, reason);
    Some(finding.with_metrics(vec![BANDWIDTH_CORE_TO_CORE.id]))
}
