//! A comparison as Markdown: for a pull request.

use std::io;

use kelvin_analysis::wording::compare::{
    ComparisonRow, comparison_row, gate_finding, no_difference_text, not_compared_by_reason, remarks, side_text,
    verdict_counts,
};
use kelvin_core::{Comparison, FactDifference, GateFinding, GateResult};

use super::{UNDECIDED_TABLE, VerdictTable, fact_texts, verdict_tables};
use crate::escape::{MarkdownText, md};

/// Writes a comparison as Markdown (GitHub's flavour: tables, and what folds).
///
/// # Errors
/// Those of the writer.
pub fn write_markdown(comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
    let tables = verdict_tables(comparison).map(|VerdictTable { index, title, figures }| {
        let rows = figures.into_iter().map(|(_, figure)| comparison_row(figure, comparison));
        table(title, index >= UNDECIDED_TABLE, &rows.collect::<Vec<_>>(), comparison)
    });
    let (other, base) = (&comparison.other.name, &comparison.base.name);
    let title = md!("### kelvin: {} against {}\n\n{}\n\n", other, base, verdict_counts(comparison));
    let gate = comparison.gate.as_ref().map(gate);
    let tables = md!("{}{}", differences(comparison), tables.collect::<MarkdownText>());
    let page = md!("{}{}{}{}{}", title, gate, tables, one_sided(comparison), how_known(comparison));
    out.write_all(page.as_str().as_bytes())
}

/// What misses the gate, and what would if it were not known.
fn gate(gated: &GateResult) -> MarkdownText {
    let lines =
        |findings: &[GateFinding]| findings.iter().map(|finding| md!("- {}\n", gate_finding(finding))).collect();
    let misses = match gated.failures.len() {
        0 => md!("**No figure misses the gate.**\n\n"),
        1 => md!("**A miss of the gate:**\n\n{}\n", lines(&gated.failures)),
        _ => md!("**Misses of the gate:**\n\n{}\n", lines(&gated.failures)),
    };
    let known_title = format!("Known ({})", gated.known.len());
    let known_issues = (!gated.known.is_empty()).then(|| MarkdownText::folded(&known_title, lines(&gated.known)));
    md!("{}{}", misses, known_issues)
}

/// What else differs: it comes before the figures that it may explain.
fn differences(comparison: &Comparison) -> MarkdownText {
    let facts = &comparison.differences;
    if facts.is_empty() {
        return md!("{}\n\n", no_difference_text(comparison));
    }
    let row = |fact: &FactDifference| {
        let [base, other] = fact_texts(fact);
        md!("| {}: {} | {} | {} |\n", fact.group, fact.label, base, other)
    };
    let rows: MarkdownText = facts.iter().map(row).collect();
    let [base, other] = [&comparison.base.name, &comparison.other.name];
    MarkdownText::folded(
        &format!("What else differs ({})", facts.len()),
        md!("| | {} | {} |\n|:--|:--|:--|\n{}", base, other, rows),
    )
}

/// A table of figures; one of what nobody has to act on is folded.
fn table(title: &str, is_folded: bool, rows: &[ComparisonRow], comparison: &Comparison) -> MarkdownText {
    let has_needs = rows.iter().any(|row| !row.needs.is_empty());
    let has_causes = rows.iter().any(|row| !row.cause.is_empty());
    let line = |first: MarkdownText, figures: [&str; 4], need: &str, cause: &str| {
        let extra_cells = [need].into_iter().filter(|_| has_needs).chain([cause].into_iter().filter(|_| has_causes));
        MarkdownText::row(std::iter::once(first).chain(figures.into_iter().chain(extra_cells).map(Into::into)))
    };
    let row = |row: &ComparisonRow| {
        let figures = [&row.base, &row.other, &row.ratio, &row.interval].map(String::as_str);
        line(MarkdownText::code(&row.figure), figures, &row.needs, &row.cause)
    };
    let names = [comparison.base.name.as_str(), &comparison.other.name, "ratio", "95 %"];
    let titles = line("figure".into(), names, "to know it", "what explains it");
    let alignments: MarkdownText =
        [has_needs, has_causes].into_iter().filter(|is_shown| *is_shown).map(|_| md!(":--|")).collect();
    let body = md!("{}|:--|--:|--:|--:|--:|{}\n{}", titles, alignments, rows.iter().map(row).collect::<MarkdownText>());
    if is_folded {
        MarkdownText::folded(&format!("{title} ({})", rows.len()), body)
    } else {
        md!("#### {}\n\n{}\n", title, body)
    }
}

fn one_sided(comparison: &Comparison) -> MarkdownText {
    let groups = not_compared_by_reason(comparison);
    if groups.is_empty() {
        return MarkdownText::new();
    }
    let names = |figures: &[String]| MarkdownText::joined(figures.iter().map(|name| MarkdownText::code(name)), ", ");
    let lines: MarkdownText =
        groups.iter().map(|(reason, figures)| md!("- {}: {}\n", reason, names(figures))).collect();
    MarkdownText::folded(&format!("Not compared ({})", comparison.not_compared.len()), lines)
}

/// What the verdicts rest on.
fn how_known(comparison: &Comparison) -> MarkdownText {
    let sides = [&comparison.other, &comparison.base].map(|side| side_text(side, comparison));
    let texts = sides.into_iter().chain(remarks(comparison));
    MarkdownText::folded("How this is known", texts.map(|text| md!("- {}\n", text)).collect())
}
