//! The front of the page: verdict, hazards, machine, and how quiet it was.

use kelvin_analysis::wording::measured_cost;
use kelvin_analysis::{Outcome, RangeVerdict};
use kelvin_core::{FactRow, Hazard, RunStatus, Severity};

use super::findings::findings;
use super::overview::OverviewSection;
use super::topology::topology_map;
use super::{anchor, cells, figure, heading, pill, remark_span, scrollable};
use crate::escape::{Markup, html};
use crate::figures::Figure;
use crate::sections::Section;
use crate::terminal::is_study;
use crate::text::grouped;
use crate::{Report, labels, units};

/// What the first part of the page is called.
pub(super) fn title(report: &Report<'_>) -> &'static str {
    if report.analysis.overview.is_some() { "Overview" } else { "Verdict" }
}

/// The first part: what the machine is, and its first screen; where it has none, what is odd and why.
pub(super) fn verdict(report: &Report<'_>, sections: &[Section<'_>]) -> Markup {
    let machine = labels::machine_line(report.run);
    // A study has its own title, and its page begins with that.
    let mut page = match is_study(report) {
        true => heading("verdict", &machine),
        false => html!("<h1 id=\"verdict-title\">{}</h1>{}", machine, partial_notice(report)),
    };
    if let Some(screen) = &report.analysis.overview {
        page.push(OverviewSection { report, screen, sections }.markup());
        page.push(tiles(report));
        return page;
    }
    page.push(tiles(report));
    page.extend(report.analysis.results.is_empty().then(|| html!("<p>Nothing was measured.</p>")));
    page.push(html!("<h2>Findings</h2>{}", findings(report)));
    page
}

/// That a run was not finished.
pub(super) fn partial_notice(report: &Report<'_>) -> Markup {
    match &report.run.status {
        RunStatus::Partial(reason) => html!("<p class=\"notice\"><strong>This run is partial:</strong> {}</p>", reason),
        RunStatus::Complete => Markup::new(),
    }
}

/// Four figures on how far to trust the run.
fn tiles(report: &Report<'_>) -> Markup {
    let results = &report.analysis.results;
    let compared_count = results.iter().filter(|result| result.ratio.is_some()).count();
    let expected_count = results.iter().filter(|result| result.verdict == RangeVerdict::AsPredicted).count();
    let measured_count = results.iter().filter(|result| result.outcome.summary().is_some()).count();
    let skipped_count = results.iter().filter(|result| matches!(result.outcome, Outcome::Skipped(_))).count();
    let skipped_text = |count: usize| if count == 0 { String::new() } else { format!(", {count} were skipped") };
    let serious_count = report.run.header.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious).count();
    let serious_text = if serious_count == 0 { "none".into() } else { serious_count.to_string() };
    let undisturbed_share = report.analysis.undisturbed_share.map_or_else(|| "not known".into(), units::share);
    let tile = |value: String, label: String| html!("<li><strong>{}</strong> <span>{}</span></li>", value, label);
    html!(
        "<ul class=\"tiles\">{}{}{}{}</ul>",
        tile(format!("{expected_count} of {compared_count}"), "predicted figures are within their range".into()),
        tile(undisturbed_share, "of the batches were undisturbed".into()),
        tile(
            format!("{measured_count} of {}", results.len()),
            format!("planned figures were measured{}", skipped_text(skipped_count))
        ),
        tile(report.run.header.hazards.len().to_string(), format!("hazards found, {serious_text} serious"))
    )
}

/// Hazards, the most severe first.
pub(super) fn hazards(report: &Report<'_>) -> Markup {
    let hazards = labels::hazards(report.run);
    let empty_notice = hazards.is_empty().then(|| html!("<p>None found.</p>"));
    let item = |hazard: &Hazard| {
        let class = match hazard.severity {
            Severity::Serious => "bad",
            Severity::Warning => "odd",
            Severity::Note => "quiet",
        };
        let affects = hazard.affects.iter().map(|prefix| html!("<code>{}</code>", prefix.trim_end_matches('.')));
        let affects = Markup::joined(affects, ", ");
        let remedy = hazard.remedy.as_ref().map(|remedy| match hazard.remedy_is_command {
            true => html!("<p>Remedy: <code>{}</code></p>", remedy),
            false => html!("<p>Remedy: {}.</p>", remedy),
        });
        let affects = if affects.is_empty() { "everything".into() } else { affects };
        let cost = measured_cost(&hazard.id, report.analysis).map(|cost| html!(" ({})", cost));
        let effect = html!("{}{}. Affects {}.", hazard.effect.trim_end_matches('.'), cost, affects);
        let summary = html!("{} <strong>{}</strong>", pill(class, hazard.severity.name()), hazard.summary);
        let texts = html!("<p>{}</p><p>{} {}</p>{}", summary, effect, remark_span(&hazard.source), remedy);
        html!("<li id=\"{}\" class=\"{}\">{}</li>", anchor("hazard", &hazard.id), class, texts)
    };
    let items: Markup = hazards.into_iter().map(item).collect();
    html!("{}{}<ul class=\"hazards\">{}</ul>", heading("hazards", "Hazards"), empty_notice, items)
}

/// Machine facts by group, each with its source or the reason why it is unknown.
pub(super) fn machine(report: &Report<'_>) -> Markup {
    let rows = report.run.header.machine.rows();
    let mut page = heading("machine", "Machine");
    page.push(html!(
        "<p class=\"lead\">Every fact with its source, or why it is unknown. Machine identity {} (a hash).</p>",
        report.run.header.machine.identity
    ));
    page.push(topology_map(&report.run.header.machine));
    let groups = grouped(rows.iter().map(|row| (row.group, row)));
    let facts: Markup = groups.into_iter().map(|(group, rows)| facts(group, &rows)).collect();
    page.push(html!("<div class=\"facts\">{}</div>", facts));
    page
}

fn facts(group: &str, rows: &[&FactRow]) -> Markup {
    let unknown_count = rows.iter().filter(|row| row.text.is_none()).count();
    let unknown_text = if unknown_count == 0 { String::new() } else { format!(", {unknown_count} unknown") };
    let fact = |row: &&FactRow| {
        let unknown_cell = || html!("<td class=\"why\">unknown</td>");
        let value = row.text.as_ref().map_or_else(unknown_cell, |text| cells([text]));
        html!("<tr><th>{}</th>{}<td class=\"why\">{}</td></tr>", row.label, value, row.source)
    };
    let head = html!("<thead class=\"unseen\"><tr><th>Fact</th><th>Value</th><th>Source</th></tr></thead>");
    let (caption, rows_of_group) = (html!("<caption class=\"unseen\">{}</caption>", group), rows.iter().map(fact));
    let body = rows_of_group.collect::<Markup>();
    let table = html!("<table class=\"plain\">{}{}<tbody>{}</tbody></table>", caption, head, body);
    let count = remark_span(format!("{}{unknown_text}", labels::plural(rows.len() as u64, "fact")));
    let table = scrollable(&format!("{group}, facts"), table);
    html!("<details><summary>{} {}</summary>{}</details>", group, count, table)
}

/// The canaries over the run.
pub(super) fn canary_section(report: &Report<'_>, canaries: &Figure) -> Markup {
    let share = report.analysis.undisturbed_share;
    let share = share.map(|share| format!(" {} of all batches were undisturbed.", units::share(share)));
    html!(
        "{}<p class=\"lead\">A canary is a short fixed piece of work, timed between batches. On a quiet machine its time does \
         not change: a flat line at 1.{}</p>{}",
        heading("quiet", "How quiet the machine was"),
        share,
        figure::figure(canaries, 0)
    )
}
