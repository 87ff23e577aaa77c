//! A comparison as one page of its own, without any script: what differs, both ladders, and every figure with its ratio on an axis
//! and, on demand, its rounds.

mod figure;
mod forest;
mod strip;

use std::io;

use kelvin_analysis::wording::compare::{
    gate_finding, gate_resolved_issue, gate_undetectable, no_difference_text, not_compared_by_reason, remarks,
    side_text, verdict_counts,
};
use kelvin_core::{ComparedRung, ComparedSide, Comparison, FactDifference, GateFinding, GateResult};

use self::figure::{anchor, figure};
use self::forest::Forest;
use super::{UNDECIDED_TABLE, VerdictTable, differences_title, fact_texts, verdict_tables};
use crate::escape::{Markup, html};
use crate::html::page_shell::PageShell;
use crate::html::{DataTable, folded_data, list, table_row};
use crate::labels;
use crate::ladder::full_labels;
use crate::svg::ladder::compared::{self, rung_outcome};

const STYLE: &str = include_str!("../../assets/compare.css");
/// Facts that differ, and misses of a gate, of which more are folded away.
const MAX_SHOWN: usize = 12;
/// The sides, as the page calls them.
const SIDES: [&str; 2] = ["A", "B"];

/// Writes a comparison as a page that opens offline, prints, and fits a phone; light and dark.
///
/// # Errors
/// Those of the writer.
pub fn write_page(comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
    let body = html!(
        "<h1>Comparison</h1>{}{}{}{}{}{}{}",
        sides(comparison),
        differences(comparison),
        verdict(comparison),
        comparison.gate.as_ref().map(|gated| gate(gated, comparison)),
        ladder(comparison),
        figures(comparison),
        one_sided(comparison)
    );
    let title = format!("{} against {}", comparison.other.name, comparison.base.name);
    PageShell { subject: "compare", title: &title, style: STYLE, body }.write(out)
}

fn ladder(comparison: &Comparison) -> Markup {
    if comparison.ladder.is_empty() {
        return html!("<p class=\"lead\">No ladders: not both sides cover a whole machine.</p>");
    }
    let ladders = html!("<div class=\"ladder\">{}</div>", compared::inline(comparison, anchor));
    let table = folded_data("The ladder as a table", rungs(comparison));
    html!("<section id=\"ladder\"><h2>How long it takes</h2>{}{}</section>", ladders, table)
}

/// The ladders as a table, for readers who do not see the drawing.
fn rungs(comparison: &Comparison) -> Markup {
    let labels = full_labels(comparison.ladder.iter().map(|rung| (rung.label.as_str(), rung.continues)));
    let row = |(rung, label): (&ComparedRung, String)| {
        let [base, other] = rung.seconds.map(|seconds| seconds.map(labels::time_text).unwrap_or_default());
        table_row(label, [base, other, rung_outcome(rung, comparison)])
    };
    let rows = comparison.ladder.iter().zip(labels).map(row).collect();
    DataTable::of_figures("The ladder", &["What", "A", "B", "B over A"], rows).markup()
}

/// What A and B are.
fn sides(comparison: &Comparison) -> Markup {
    let side = |(letter, side): (&str, &ComparedSide)| {
        let text = side_text(side, comparison);
        // Two settings are named by their letters already.
        let text =
            text.strip_prefix(&format!("{letter}: ")).filter(|_| comparison.interleaving.is_some()).unwrap_or(&text);
        html!("<dt>{}</dt><dd>{}</dd>", letter, text)
    };
    let sides: Markup = SIDES.into_iter().zip([&comparison.base, &comparison.other]).map(side).collect();
    html!("<dl class=\"sides\">{}</dl>", sides)
}

/// What differs besides figures: it may explain them.
fn differences(comparison: &Comparison) -> Markup {
    let facts = &comparison.differences;
    if facts.is_empty() {
        return html!("<p>{}</p>", no_difference_text(comparison));
    }
    let title = differences_title(comparison);
    let tables = first_and_folded(facts, |facts| facts_table(title, facts));
    html!("<section id=\"differs\"><h2>{}</h2>{}</section>", title, tables)
}

/// The first of these, and the rest folded.
fn first_and_folded<T>(entries: &[T], render: impl Fn(&[T]) -> Markup) -> Markup {
    let (first, rest) = entries.split_at(entries.len().min(MAX_SHOWN));
    let rest_markup = || folded(false, &html!("and {} more", rest.len()), &render(rest));
    html!("{}{}", render(first), (!rest.is_empty()).then(rest_markup))
}

fn facts_table(title: &str, facts: &[FactDifference]) -> Markup {
    let row = |fact: &FactDifference| {
        let [base, other] = fact_texts(fact);
        table_row(format!("{}: {}", fact.group, fact.label), [html!("<i>A</i> {}", base), html!("<i>B</i> {}", other)])
    };
    let rows: Markup = facts.iter().map(row).collect();
    html!("<table class=\"plain facts\"><caption class=\"unseen\">{}</caption><tbody>{}</tbody></table>", title, rows)
}

/// What comes out in a sentence, and what is to be known of it.
fn verdict(comparison: &Comparison) -> Markup {
    let answer = html!("<p class=\"answer\">{}</p>", verdict_counts(comparison));
    let remarks = list("remarks", remarks(comparison));
    html!("<section id=\"verdict\"><h2>Result</h2>{}{}</section>", answer, remarks)
}

/// What misses the gate, and what would if it were not known.
fn gate(gated: &GateResult, comparison: &Comparison) -> Markup {
    let findings =
        |entries: &[GateFinding]| first_and_folded(entries, |part| list("gate", part.iter().map(gate_finding)));
    let misses = match gated.failures.len() {
        0 => html!("<p class=\"answer\"><b class=\"good\">No figure misses the gate.</b></p>"),
        _ => html!("<p class=\"answer\"><b class=\"bad\">Misses of the gate:</b></p>{}", findings(&gated.failures)),
    };
    let known_issues =
        (!gated.known.is_empty()).then(|| html!("<p>Known, and not counted:</p>{}", findings(&gated.known)));
    let resolved = gated.resolved.iter().map(|issue| gate_resolved_issue(issue));
    let notes = gate_undetectable(gated, comparison).into_iter().chain(resolved);
    html!("<section id=\"gate\"><h2>The gate</h2>{}{}{}</section>", misses, known_issues, list("gate", notes))
}

/// The tables of figures, the most consequential first; those of what nobody has to act on are folded, unless there is nothing else.
fn figures(comparison: &Comparison) -> Markup {
    let mut page = Markup::new();
    for VerdictTable { index, title, figures } in verdict_tables(comparison) {
        let forest = Forest::for_figures(figures.iter().map(|(_, figure)| *figure), comparison.threshold);
        let rows: Markup = figures.iter().map(|numbered| figure(*numbered, comparison, &forest)).collect();
        let title = html!("<h2>{} ({})</h2>", title, figures.len());
        let rows = html!("<div class=\"head\" aria-hidden=\"true\">{}</div>{}", forest.axis(), rows);
        page.push(match index >= UNDECIDED_TABLE {
            true => html!("<section>{}</section>", folded(page.is_empty(), &title, &rows)),
            false => html!("<section>{}{}</section>", title, rows),
        });
    }
    if page.is_empty() {
        return page;
    }
    html!(
        "<p class=\"lead\">Each ratio is B over A, with its 95 % interval; in brackets where it is only the range of a few rounds. The band is \
         what counts as the same. Open a figure to see its rounds.</p>{}",
        page
    )
}

/// A part that a reader opens, or that is open already.
fn folded(is_open: bool, title: &Markup, body: &Markup) -> Markup {
    let open = if is_open { html!(" open") } else { Markup::new() };
    html!("<details class=\"fold\"{}><summary>{}</summary>{}</details>", open, title, body)
}

/// What is not compared, by reason.
fn one_sided(comparison: &Comparison) -> Markup {
    let groups = not_compared_by_reason(comparison);
    if groups.is_empty() {
        return Markup::new();
    }
    let group = |(reason, figures): &(String, Vec<String>)| {
        let names = Markup::joined(figures.iter().map(|name| html!("<code>{}</code>", name)), ", ");
        let title = html!("{} <span class=\"count\">({})</span>", reason, figures.len());
        folded(false, &title, &html!("<p>{}</p>", names))
    };
    let (count, groups) = (comparison.not_compared.len(), groups.iter().map(group).collect::<Markup>());
    html!("<section id=\"apart\"><h2>Not compared ({})</h2>{}</section>", count, groups)
}
