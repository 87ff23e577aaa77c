//! The findings of a run: the five that matter most, and the rest folded below them, what is slower apart from what is faster.

use kelvin_analysis::wording::{class_comparison, gap_explanation};
use kelvin_analysis::{Finding, FindingData, Importance, MetricResult, PredictionGap};
use kelvin_core::units::metric_at;

use super::{DataTable, cells, folded, list, pill, remark_span, text_cell};
use crate::escape::{Markup, html};
use crate::{Report, labels, units};

/// The findings of a report, and how each area is against machines of the same class.
pub(super) fn findings(report: &Report<'_>) -> Markup {
    let lines = class_comparison::class_lines(&report.analysis.class_comparison);
    let class_section = (!lines.is_empty()).then(|| folded("Normal for its class", list("findings", &lines)));
    html!("{}{}", run_findings(report), class_section)
}

/// The findings of a report.
fn run_findings(report: &Report<'_>) -> Markup {
    let findings = &report.analysis.findings;
    if findings.is_empty() {
        return html!("<p>Nothing odd was found.</p>");
    }
    let leading = report.analysis.leading_findings();
    let rest: Vec<&Finding> =
        (0..findings.len()).filter(|index| !leading.contains(index)).map(|index| &findings[index]).collect();
    let mut page = list("findings", leading.iter().map(|&index| line(report, &findings[index])));
    for (verdict, title) in labels::GAP_SIDES {
        let gaps = rest.iter().filter_map(|finding| gap(report, finding));
        page.push(group(
            title,
            &gaps.filter(|(_, result)| labels::verdict_word(result) == verdict).collect::<Vec<_>>(),
        ));
    }
    let other_findings = rest.iter().filter(|finding| gap(report, finding).is_none());
    let other_lines: Vec<Markup> = other_findings.map(|finding| line(report, finding)).collect();
    let count = labels::plural(other_lines.len() as u64, "more finding");
    page.extend((!other_lines.is_empty()).then(|| folded(count, list("findings", other_lines))));
    page
}

/// A finding that is a gap, with its figure.
fn gap<'a>(report: &Report<'a>, finding: &'a Finding) -> Option<(&'a PredictionGap, &'a MetricResult)> {
    let FindingData::Gap(gap) = &finding.data else { return None };
    Some((gap, report.analysis.results.iter().find(|result| result.metric_case() == gap.source)?))
}

/// A finding with its evidence, behind a word for its kind.
fn line(report: &Report<'_>, finding: &Finding) -> Markup {
    let word = match gap(report, finding) {
        Some((_, result)) => html!("{} ", pill("odd", labels::verdict_word(result))),
        None if finding.importance == Importance::Major => html!("{} ", pill("bad", "caution")),
        None => Markup::new(),
    };
    html!("{}{} {}", word, finding.text, remark_span(&finding.reason))
}

/// Figures outside their range in one direction, a row each.
fn group(title: &str, gaps: &[(&PredictionGap, &MetricResult)]) -> Markup {
    if gaps.is_empty() {
        return Markup::new();
    }
    let row = |(gap, result): &(&PredictionGap, &MetricResult)| {
        let unit = result.metric.unit;
        let measured = result.outcome.summary().map(|summary| units::measured_text(summary, unit));
        let predicted = result.prediction.as_ref().map(|range| units::span(range.low, range.high, unit));
        let figures = [measured, predicted, Some(units::ratio(gap.ratio))];
        let name = metric_at(&result.metric, &result.case);
        html!("<tr><th>{}</th>{}{}</tr>", name, cells(figures), text_cell(gap_explanation(gap)))
    };
    let label = format!("Figures {title}");
    let columns = ["Figure", "Measured", "Predicted", "Ratio", "Cause"];
    let table = DataTable::of_figures(&label, &columns, gaps.iter().map(row).collect());
    let body = html!(
        "<p class=\"why\">The ratio is measured over predicted. Where no cause is given, none was tried: <code>kelvin why NAME</code> \
         tries them.</p>{}",
        table.markup()
    );
    folded(format!("{} {title}", labels::plural(gaps.len() as u64, "more figure")), body)
}
