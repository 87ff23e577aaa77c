//! Figures without a value: those that are impossible, and how many failed, are not known, or were skipped.

use super::*;

pub(super) fn invalid_figures(analysis: &Analysis) -> Vec<Finding> {
    let finding = |result: &MetricResult| {
        let Outcome::Invalid(ceiling) = &result.outcome else { return None };
        let [value, bound] = [ceiling.value, ceiling.bound].map(|value| value_text(value, result.metric.unit));
        let text = format!("{} measured {value}, which is impossible: {}", name(result), ceiling.likely_cause);
        let derivation = ceiling.derivation.as_ref().map_or_else(String::new, |basis| format!(": {basis}"));
        let reason = format!("the bound is {bound}{derivation}");
        let data = FindingData::Invalid { source: result.metric_case(), impossible: ceiling.clone() };
        Some(Finding::new(Importance::Major, data, text, reason).with_metrics(vec![result.metric.id]))
    };
    requested_results(analysis).filter_map(finding).collect()
}

pub(super) fn missing_counts(analysis: &Analysis) -> Vec<Finding> {
    let kinds = [
        (Importance::Major, MissingFigureKind::Failed, "failed"),
        (Importance::Notable, MissingFigureKind::NotKnown, "are not known: too few undisturbed samples"),
        (Importance::Detail, MissingFigureKind::Skipped, "were skipped"),
    ];
    let count = |(importance, missing_kind, phrase): (Importance, MissingFigureKind, &str)| {
        let missing = |result: &MetricResult| missing_reason(result).filter(|(kind, _)| *kind == missing_kind);
        let is_missing = |result: &&MetricResult| missing(result).is_some();
        let first = requested_results(analysis).find(is_missing)?;
        let count = requested_results(analysis).filter(is_missing).count();
        let total = match missing_kind {
            MissingFigureKind::Skipped => requested_results(analysis).count(),
            _ => attempted_figures(analysis),
        };
        let reason = format!("first: {}: {}", name(first), missing(first)?.1);
        let data = FindingData::MissingFigures { kind: missing_kind, count, total, first: first.metric_case() };
        let metrics = metrics_of_results(analysis, |result| missing(result).is_some());
        let text = format!("{count} of {total} figures {phrase}");
        Some(Finding::new(importance, data, text, reason).with_metrics(metrics))
    };
    kinds.into_iter().filter_map(count).collect()
}

/// Why a figure has no value, of those that are counted.
fn missing_reason(result: &MetricResult) -> Option<(MissingFigureKind, String)> {
    match &result.outcome {
        Outcome::Failed(reason) => Some((MissingFigureKind::Failed, reason.clone())),
        Outcome::NotKnown(summary) => {
            Some((MissingFigureKind::NotKnown, format!("{} undisturbed", percent(summary.undisturbed_share))))
        }
        Outcome::Skipped(reason) => Some((MissingFigureKind::Skipped, reason.0.clone())),
        _ => None,
    }
}
