//! Figures with one kind of warning, summarised in one finding.

use super::*;
use crate::summary::TREND_ALPHA;

/// A kind of warning that is summarised.
struct WarningKind {
    is_kind: fn(&Warning) -> bool,
    /// What it says of several figures, and of one.
    text: [&'static str; 2],
    importance: Importance,
    /// Chance that a figure has it by accident; 0 if it is not from a test.
    alpha: f64,
}

const WARNING_KINDS: [WarningKind; 5] = [
    WarningKind {
        is_kind: |warning| matches!(warning, Warning::Implausible { .. }),
        text: ["are implausible", "is implausible"],
        importance: Importance::Notable,
        alpha: 0.0,
    },
    WarningKind {
        is_kind: |warning| matches!(warning, Warning::Drift { .. }),
        text: ["drifted over the run"; 2],
        importance: Importance::Notable,
        alpha: TREND_ALPHA,
    },
    WarningKind {
        is_kind: |warning| matches!(warning, Warning::Modes { .. }),
        text: ["are bimodal", "is bimodal"],
        importance: Importance::Notable,
        alpha: 0.0,
    },
    WarningKind {
        is_kind: |warning| matches!(warning, Warning::HalvesDiffer { .. }),
        text: ["differed between halves of the run"; 2],
        importance: Importance::Notable,
        alpha: TREND_ALPHA,
    },
    WarningKind {
        is_kind: |warning| matches!(warning, Warning::WideInterval { .. }),
        text: ["did not reach the target for the interval"; 2],
        importance: Importance::Detail,
        alpha: 0.0,
    },
];

pub(super) fn warnings(_: &Evidence<'_>, analysis: &Analysis) -> Vec<Finding> {
    WARNING_KINDS.iter().filter_map(|kind| warning_finding(analysis, kind)).collect()
}

/// A detail where chance alone explains as many.
fn warning_finding(analysis: &Analysis, kind: &WarningKind) -> Option<Finding> {
    let all = attempted_figures(analysis);
    let is_hit = |result: &MetricResult| result.warnings.iter().any(kind.is_kind);
    let first = requested_results(analysis).find(|result| is_hit(result))?;
    let warning = first.warnings.iter().find(|warning| (kind.is_kind)(warning))?.clone();
    let count = requested_results(analysis).filter(|result| is_hit(result)).count();
    let by_chance = kind.alpha * all as f64;
    let importance = if count as f64 <= 2.0 * by_chance { Importance::Detail } else { kind.importance };
    let expected = if by_chance < 0.5 {
        String::new()
    } else {
        format!("; chance alone gives up to about {} among {all}", number(by_chance))
    };
    let (place, [many, one]) = (name(first), kind.text);
    let text = match count {
        1 => format!("{place} {one}{expected}"),
        count => format!("{count} of {all} figures {many}, {place} among them{expected}"),
    };
    let because = format!("{place}: {}", warning.text());
    let found =
        FindingData::Warned { count, total: all, expected_by_chance: by_chance, first: first.metric_case(), warning };
    Some(Finding::new(importance, found, text, because).with_metrics(metrics_of_results(analysis, is_hit)))
}
