//! Figures with one kind of warning, summarised in one finding.

use super::*;
use crate::summary::TREND_ALPHA;

/// A kind of warning that is summarised: its words for several figures and for one, how much it matters, and the chance that a figure has it by
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
    let has_warning = |result: &MetricResult| own_warning(result).is_some();
    let (first, warning) = requested_results(analysis).find_map(|result| Some((result, own_warning(result)?)))?;
    let count = requested_results(analysis).filter(|result| has_warning(result)).count();
    let expected_count = alpha * total as f64;
    let importance = if count as f64 <= 2.0 * expected_count { Importance::Detail } else { importance };
    let expected = if expected_count < 0.5 {
        String::new()
    } else {
        format!("; chance alone gives up to about {} among {total}", number(expected_count))
    };
    let (place, [plural, singular]) = (name(first), text);
    let text = match count {
        1 => format!("{place} {singular}{expected}"),
        count => format!("{count} of {total} figures {plural}, {place} among them{expected}"),
    };
    let reason = format!("{place}: {}", warning.text);
    let data =
        FindingData::Warned { count, total, expected_by_chance: expected_count, first: first.metric_case(), warning };
    Some(Finding::new(importance, data, text, reason).with_metrics(metrics_of_results(analysis, has_warning)))
}
