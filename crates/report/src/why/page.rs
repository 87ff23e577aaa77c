//! What makes a figure what it is, as one page without any script, and as a drawing: the sum as a waterfall.

use std::io;

use kelvin_analysis::wording::explanation::{ExplanationRow, ExplanationText, word_explanation};
use kelvin_core::Explanation;

use crate::escape::{Markup, html};
use crate::html::elements::{cells, definition_list, scrollable};
use crate::html::page_shell::PageShell;
use crate::svg::waterfall::Waterfall;

const STYLE: &str = include_str!("../../assets/compare.css");

/// Writes an explanation as a page that opens offline, prints, and fits a phone; light and dark.
///
/// # Errors
/// Those of the writer.
pub fn write_page(explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
    let text = word_explanation(explanation);
    let mut sentences = text.sentences.iter().filter(|sentence| !sentence.is_empty());
    let title = sentences.next().map_or("", String::as_str);
    let lead: Markup = sentences.map(|sentence| html!("<p class=\"lead\">{}</p>", sentence)).collect();
    let drawing = html!("<div class=\"ladder\">{}</div>", Waterfall::new(explanation, &text).inline());
    let sum = html!("<section id=\"sum\"><h2>Breakdown</h2>{}{}</section>", drawing, sum(&text));
    let notes = html!("<section id=\"notes\"><h2>What else was found</h2>{}</section>", notes(&text));
    let body = html!("<h1>{}</h1>{}{}{}", title, lead, sum, notes);
    PageShell { subject: "why", title, style: STYLE, body }.write(out)
}

/// An explanation within another page.
pub(crate) fn sum_and_notes(explanation: &Explanation) -> Markup {
    let text = word_explanation(explanation);
    html!("{}{}", sum(&text), notes(&text))
}

fn notes(text: &ExplanationText) -> Markup {
    definition_list(text.notes.iter().map(|(label, note)| (*label, note.into())))
}

/// The sum as a table, for readers who do not see the drawing.
fn sum(text: &ExplanationText) -> Markup {
    let row = |row: &ExplanationRow| {
        // Not by a style alone: who has the table read out has to know.
        let part_mark = if row.is_within { "– " } else { "" };
        let figures = cells([&row.amount, &row.share, &row.shown_by]);
        html!("<tr><th scope=\"row\">{}{}</th>{}</tr>", part_mark, row.label, figures)
    };
    let titles = ["What", &text.unit, "Share", "Shown by"].into_iter();
    let titles: Markup = titles.map(|title| html!("<th scope=\"col\">{}</th>", title)).collect();
    let head = html!("<caption class=\"unseen\">The sum</caption><thead><tr>{}</tr></thead>", titles);
    let figures = cells([html!("<b>{}</b>", text.total), html!("<b>100 %</b>"), Markup::new()]);
    let total_row = html!("<tr><th scope=\"row\"><b>all of it</b></th>{}</tr>", figures);
    let rows: Markup = text.rows.iter().map(row).chain([total_row]).collect();
    scrollable("The sum", html!("<table class=\"plain sum\">{}<tbody>{}</tbody></table>", head, rows))
}

/// Writes an explanation as a drawing, a file of its own.
///
/// # Errors
/// Those of the writer.
pub fn write_drawing(explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
    let text = word_explanation(explanation);
    out.write_all(Waterfall::new(explanation, &text).standalone().as_bytes())
}
