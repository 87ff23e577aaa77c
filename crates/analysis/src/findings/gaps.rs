//! Gaps between measured and predicted, with what was found of their causes.

use super::*;
use crate::explanation::{cause_share, share_interval};
use crate::levels::smaller_cache_level;
use crate::wording;
use kelvin_core::IndirectSort;

/// What is worse than predicted before what is better, and of each first what lies furthest outside its range in units of that range's
/// uncertainty; of the points of a curve only the first. Of slow-downs planted in a stored run that order detects more than the ratio alone:
/// see the book, under predictions.
pub(super) fn prediction_gaps(run: &Run, analysis: &Analysis) -> Vec<Finding> {
    let gaps = requested_results(analysis).filter_map(|result| Some((gap_distance(result)?, result)));
    let mut gaps: Vec<((bool, f64), &MetricResult)> = gaps.collect();
    gaps.indirect_sort_by(|(a, _), (b, _)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut metrics = Vec::new();
    gaps.retain(|(_, result)| {
        let is_new = !metrics.contains(&result.metric.id);
        metrics.push(result.metric.id);
        is_new
    });
    gaps.into_iter().filter_map(|(_, result)| prediction_gap(run, analysis, result)).collect()
}

/// Whether a figure outside its range is worse than predicted, and how far outside it lies, in half-widths of the range; `None` within
/// it.
pub(super) fn gap_distance(result: &MetricResult) -> Option<(bool, f64)> {
    let is_worse = match (result.verdict, result.metric.better) {
        (RangeVerdict::Above, better) => better == Better::Lower,
        (RangeVerdict::Below, better) => better == Better::Higher,
        _ => return None,
    };
    // A range without a width is left by any figure.
    Some((is_worse, result.log_distance.unwrap_or(f64::INFINITY)))
}

fn prediction_gap(run: &Run, analysis: &Analysis, result: &MetricResult) -> Option<Finding> {
    let source = result.metric_case();
    let gap = PredictionGap {
        level: analysis.levels.as_ref().and_then(|hierarchy| smaller_cache_level(hierarchy, result)).cloned(),
        causes: GapCauses::from_run(run, &source),
        source,
        ratio: result.ratio?,
        hazards: result.explained_by.clone(),
    };
    let (summary, prediction) = (result.outcome.summary()?, result.prediction.as_ref()?);
    let value = |value: f64| value_text(value, result.metric.unit);
    let measured = match summary.states() {
        [] => value(summary.headline),
        states => {
            format!("bimodal, {} of the {}", modes_text(states, result.metric.unit), summary.mode_unit.label())
        }
    };
    let verdict_text = match wording::verdict_word(result) {
        speed @ ("slower" | "faster") => format!("{speed} than predicted"),
        side => format!("{side} its prediction"),
    };
    let cause_text = gap_explanation(&gap).unwrap_or_else(|| {
        let figure = format!("{} {}", gap.source.metric, gap.source.case);
        format!("no cause was tried (kelvin why {})", figure.trim_end())
    });
    let (name, ratio, predicted) = (name(result), number(gap.ratio), value(prediction.value));
    let text = format!("{name}: {measured}, {verdict_text}: {ratio} times the predicted {predicted}; {cause_text}");
    let interval = summary.interval.map_or_else(
        || value(summary.headline),
        |interval| format!("{} to {}", value(interval.lower), value(interval.upper)),
    );
    let [low, high] = [prediction.low, prediction.high].map(value);
    let distance = wording::range_distance(result).map_or_else(String::new, |text| format!(", {text}"));
    let reason = format!(
        "measured over predicted: {ratio}; the interval {interval} does not touch the predicted range from {low} to {high}{distance} ({})",
        prediction.derivation
    );
    let finding = Finding::new(Importance::Notable, FindingData::Gap(gap), text, reason);
    Some(finding.with_metrics(vec![result.metric.id]))
}

/// What explains a gap: only what was shown. A hazard that was not tried as a cause explains nothing. `None` where no cause was tried.
///
/// `waking an idle CPU takes 51 to 64 % of it; 20 to 28 % is not explained`, or `of the 480 MiB of L3 that the machine reports, this
/// process gets 8 MiB to 12 MiB`.
pub fn gap_explanation(gap: &PredictionGap) -> Option<String> {
    if let Some(level) = &gap.level {
        let ends = level.capacity.map(|ends| format!("{} to {}", bytes(ends.low), bytes(ends.high)));
        return Some(format!(
            "of the {} of {} that the machine reports, this process gets {}",
            level.reported_bytes.map(bytes).unwrap_or_default(),
            level.name,
            ends.unwrap_or_default()
        ));
    }
    let causes = gap.causes.as_ref()?;
    let names = |names: &[Name]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let undecided = match causes.not_decided.as_slice() {
        [] => String::new(),
        ids => format!("; not decided: {}", names(ids)),
    };
    if causes.shown.is_empty() {
        return Some(match causes.ruled_out.as_slice() {
            [] if undecided.is_empty() => "not explained: no cause could be tried on this machine".into(),
            [] => format!("not explained{undecided}"),
            ruled_out => format!("not explained; ruled out: {}{undecided}", names(ruled_out)),
        });
    }
    let cause_texts: Vec<String> = causes.shown.iter().map(cause_share).collect();
    let remainder = match causes.not_explained.is_above(0.0) {
        Some(true) => format!("; {} is not explained", share_interval(&causes.not_explained)),
        _ => String::new(),
    };
    Some(format!("{}{remainder}", cause_texts.join(", ")))
}
