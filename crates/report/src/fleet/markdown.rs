//! A report of a fleet as Markdown.

use std::io;

use kelvin_fleet::{FleetGroup, FleetReport};

use super::{SERIES_COLUMNS, association_text, differing_text, group_text, series_cells, title, verdict};
use crate::escape::{MarkdownText, md};

/// Writes a report of a fleet as Markdown (GitHub's flavour: tables, and what folds).
///
/// # Errors
/// Those of the writer.
pub fn write_markdown(report: &FleetReport, out: &mut dyn io::Write) -> io::Result<()> {
    let groups: MarkdownText = report.groups.iter().map(|group| group_section(group, report)).collect();
    let not_compared = report
        .not_compared
        .iter()
        .map(|group| md!("- {} not compared, {}: {}\n", group.name, group.reason, group.hosts.join(", ")));
    let notes = report.notes.iter().map(|note| md!("- {}\n", note));
    let remarks: MarkdownText = not_compared.chain(notes).collect();
    let page = md!("### kelvin fleet\n\n{}\n\n**{}**\n\n{}{}", title(report), verdict(report), groups, remarks);
    out.write_all(page.as_str().as_bytes())
}

fn group_section(group: &FleetGroup, report: &FleetReport) -> MarkdownText {
    let outliers: MarkdownText = match report.like {
        Some(_) => group
            .acceptance
            .iter()
            .map(|host| {
                let word = if host.is_accepted { md!("pass") } else { md!("**fail**") };
                md!("- {} {}: {}\n", word, host.label, host.reasons.join("; "))
            })
            .collect(),
        None => group.outliers.iter().map(|outlier| md!("- {}\n", outlier.line)).collect(),
    };
    let associations: MarkdownText =
        group.associations.iter().map(|association| md!("- {}\n", association_text(association))).collect();
    let facts: MarkdownText =
        group.differing_facts.iter().map(|fact| md!("- hosts differ in {}\n", differing_text(fact))).collect();
    let rows = group.series.iter().map(|series| {
        let [name, cells @ ..] = series_cells(series);
        let cells = cells.iter().map(|cell| md!("{}", cell));
        MarkdownText::row(std::iter::once(MarkdownText::code(&name)).chain(cells))
    });
    let head = MarkdownText::row(SERIES_COLUMNS.iter().map(|column| md!("{}", *column)));
    let table = md!("{}|:--|--:|--:|--:|--:|--:|--:|\n{}", head, rows.collect::<MarkdownText>());
    let table = MarkdownText::folded(&format!("All figures ({})", group.series.len()), table);
    md!("#### {}\n\n{}{}{}\n{}\n\n{}", group_text(group), outliers, associations, facts, group.power, table)
}
