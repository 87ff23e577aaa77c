//! The front of the page: verdict, hazards, machine, and how quiet it was.

use kelvin_analysis::{Importance, Outcome, Verdict};
use kelvin_model::{FactRow, RunStatus, Severity};

use super::{esc, figure, heading, list, scrolling};
use crate::figures::Figure;
use crate::{Report, units, words};

/// The first screen: what this machine is, what is odd and why.
pub(super) fn verdict(report: &Report<'_>) -> String {
    let machine = esc(&words::machine_line(report.run));
    let mut page = format!("<h1 id=\"verdict-title\">{machine}</h1>");
    if let RunStatus::Partial(why) = &report.run.status {
        page.push_str(&format!("<p class=\"notice\"><strong>This run is partial:</strong> {}</p>", esc(why)));
    }
    page.push_str(&tiles(report));
    let lines = report.analysis.verdict.iter().map(|line| esc(line));
    page.push_str(&list("verdict", lines));
    if report.analysis.results.is_empty() {
        page.push_str("<p>Nothing was measured.</p>");
    }
    page.push_str(&findings(report));
    page
}

/// Four figures that say how far the run can be trusted.
fn tiles(report: &Report<'_>) -> String {
    let results = &report.analysis.results;
    let compared = results.iter().filter(|result| result.ratio.is_some()).count();
    let expected = results.iter().filter(|result| result.verdict == Verdict::AsPredicted).count();
    let measured = results.iter().filter(|result| result.outcome.summary().is_some()).count();
    let skipped = results.iter().filter(|result| matches!(result.outcome, Outcome::Skipped(_))).count();
    let left_out = |count: usize| if count == 0 { String::new() } else { format!(", {count} were left out") };
    let serious = report.run.outline.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious).count();
    let quiet = report.analysis.undisturbed_share.map_or_else(|| "not known".into(), units::share);
    let tile = |value: String, label: String| {
        format!("<li><strong>{}</strong> <span>{}</span></li>", esc(&value), esc(&label))
    };
    format!(
        "<ul class=\"tiles\">{}{}{}{}</ul>",
        tile(format!("{expected} of {compared}"), "predicted figures are as predicted".into()),
        tile(quiet, "of the batches were undisturbed".into()),
        tile(format!("{measured} of {}", results.len()), format!("planned figures were measured{}", left_out(skipped))),
        tile(
            report.run.outline.hazards.len().to_string(),
            format!(
                "hazards found, {}",
                if serious == 0 { "none serious".into() } else { format!("{serious} serious") }
            )
        ),
    )
}

fn findings(report: &Report<'_>) -> String {
    if report.analysis.findings.is_empty() {
        return String::new();
    }
    let items = report.analysis.findings.iter().map(|finding| {
        let class = match finding.importance {
            Importance::Major => "bad",
            Importance::Notable => "odd",
            Importance::Detail => "quiet",
        };
        let word = match finding.importance {
            Importance::Major => "major",
            Importance::Notable => "notable",
            Importance::Detail => "detail",
        };
        format!(
            "<span class=\"pill {class}\">{word}</span> {} <span class=\"why\">{}</span>",
            esc(&finding.text),
            esc(&finding.because)
        )
    });
    format!("<h2>Findings</h2>{}", list("findings", items))
}

/// Hazards, the most severe first.
pub(super) fn hazards(report: &Report<'_>) -> String {
    let mut page = heading("hazards", "Hazards");
    let mut hazards: Vec<_> = report.run.outline.hazards.iter().collect();
    hazards.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    if hazards.is_empty() {
        page.push_str("<p>None found.</p>");
    }
    page.push_str("<ul class=\"hazards\">");
    for hazard in hazards {
        let class = match hazard.severity {
            Severity::Serious => "bad",
            Severity::Warning => "odd",
            Severity::Note => "quiet",
        };
        let affects: Vec<String> =
            hazard.affects.iter().map(|prefix| format!("<code>{}</code>", esc(prefix))).collect();
        let touches = if affects.is_empty() { "everything".into() } else { affects.join(", ") };
        let remedy = hazard.remedy.as_ref().map(|remedy| format!("<p>Remedy: <code>{}</code></p>", esc(remedy)));
        page.push_str(&format!(
            "<li id=\"hazard-{}\" class=\"{class}\"><p><span class=\"pill {class}\">{}</span> <strong>{}</strong></p>\
             <p>{}. Touches {touches}. <span class=\"why\">{}</span></p>{}</li>",
            esc(&hazard.id),
            words::severity(hazard.severity),
            esc(&hazard.summary),
            esc(hazard.effect.trim_end_matches('.')),
            esc(&hazard.source),
            remedy.unwrap_or_default(),
        ));
    }
    page.push_str("</ul>");
    page
}

/// Machine facts by group, each with its source or the reason why it is unknown.
pub(super) fn machine(report: &Report<'_>) -> String {
    let rows = report.run.outline.machine.rows();
    let mut groups: Vec<(&'static str, Vec<&FactRow>)> = Vec::new();
    for row in &rows {
        match groups.iter_mut().find(|(group, _)| *group == row.group) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((row.group, vec![row])),
        }
    }
    let mut page = heading("machine", "Machine");
    page.push_str(&format!(
        "<p class=\"lead\">Every fact with its source, or why it is unknown. Machine identity {} (a hash).</p><div class=\"facts\">",
        esc(&report.run.outline.machine.identity)
    ));
    for (group, rows) in groups {
        page.push_str(&facts(group, &rows));
    }
    page.push_str("</div>");
    page
}

fn facts(group: &str, rows: &[&FactRow]) -> String {
    let unknown = rows.iter().filter(|row| row.text.is_none()).count();
    let count = if unknown == 0 { String::new() } else { format!(", {unknown} unknown") };
    let lines: String = rows.iter().map(|row| fact(row)).collect();
    let table = format!(
        "<table class=\"plain\"><caption class=\"unseen\">{group}</caption><thead class=\"unseen\"><tr><th>Fact</th>\
         <th>Value</th><th>Source</th></tr></thead><tbody>{lines}</tbody></table>",
        group = esc(group)
    );
    format!(
        "<details><summary>{} <span class=\"why\">{}{count}</span></summary>{}</details>",
        esc(group),
        words::plural(rows.len() as u64, "fact"),
        scrolling(&format!("{group}, facts"), &table)
    )
}

fn fact(row: &FactRow) -> String {
    let value = match &row.text {
        Some(text) => format!("<td>{}</td><td class=\"why\">{}</td>", esc(text), esc(&row.source)),
        None => format!("<td class=\"why\">unknown</td><td class=\"why\">{}</td>", esc(&row.source)),
    };
    format!("<tr><th>{}</th>{value}</tr>", esc(&row.label))
}

/// The canaries over the run.
pub(super) fn quiet(report: &Report<'_>, canaries: &Figure) -> String {
    let share = report
        .analysis
        .undisturbed_share
        .map_or_else(String::new, |share| format!(" {} of all batches were undisturbed.", units::share(share)));
    format!(
        "{}<p class=\"lead\">A canary is a short fixed piece of work, timed between the batches. On a quiet machine its time does \
         not change: a flat line at 1.{share}</p>{}",
        heading("quiet", "How quiet the machine was"),
        figure::figure(canaries, 0)
    )
}
