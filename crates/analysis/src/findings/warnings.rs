//! Figures with one kind of warning, summarised in one finding.

use super::*;
use crate::summary::TREND_ALPHA;

/// A kind of warning that is summarised: what it says of several figures and of one, how much it matters, and the chance that a figure has it by
/// accident, 0 if it is not from a test.
type WarningSummary = (fn(&WarningKind) -> bool, [&'static str; 2], Importance, f64);

const WARNING_SUMMARIES: [WarningSummary; 5] = [
    (|kind| matches!(kind, WarningKind::Implausible), ["are implausible", "is implausible"], Importance::Notable, 0.0),
    (|kind| matches!(kind, WarningKind::Drift), ["drifted over the run"; 2], Importance::Notable, TREND_ALPHA),
    (|kind| matches!(kind, WarningKind::Modes), ["are bimodal", "is bimodal"], Importance::Notable, 0.0),
    (
        |kind| matches!(kind, WarningKind::HalvesDiffer),
        ["differed between halves of the run"; 2],
        Importance::Notable,
        TREND_ALPHA,
    ),
    (
        |kind| matches!(kind, WarningKind::WideInterval { .. }),
        ["did not reach the target for the interval"; 2],
        Importance::Detail,
        0.0,
    ),
];

pub(super) fn warnings(analysis: &Analysis) -> Vec<Finding> {
    WARNING_SUMMARIES.iter().filter_map(|summary| warning_finding(analysis, summary)).collect()
}

/// A detail where chance alone explains as many.
fn warning_finding(analysis: &Analysis, &(is_kind, text, importance, alpha): &WarningSummary) -> Option<Finding> {
    let total = attempted_figures(analysis);
    let own_warning = |result: &MetricResult| result.warnings.iter().find(|warning| is_kind(&warning.kind)).cloned();
    let is_hit = |result: &MetricResult| own_warning(result).is_some();
    let (first, warning) = requested_results(analysis).find_map(|result| Some((result, own_warning(result)?)))?;
    let count = requested_results(analysis).filter(|result| is_hit(result)).count();
    let by_chance = alpha * total as f64;
    let importance = if count as f64 <= 2.0 * by_chance { Importance::Detail } else { importance };
    let expected = if by_chance < 0.5 {
        String::new()
    } else {
        format!("; chance alone gives up to about {} among {total}", number(by_chance))
    };
    let (place, [many, one]) = (name(first), text);
    let text = match count {
        1 => format!("{place} {one}{expected}"),
        count => format!("{count} of {total} figures {many}, {place} among them{expected}"),
    };
    let because = format!("{place}: {}", warning.text);
    let data = FindingData::Warned { count, total, expected_by_chance: by_chance, first: first.metric_case(), warning };
    Some(Finding::new(importance, data, text, because).with_metrics(metrics_of_results(analysis, is_hit)))
}
