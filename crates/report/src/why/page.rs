//! What makes a figure what it is, as one page without any script, and as a drawing: the sum as a waterfall.

use std::io;

use kelvin_analysis::wording::explanation::{ExplanationRow, ExplanationText, word_explanation};
use kelvin_core::Explanation;

use crate::escape::{Markup, html};
use crate::html::page_shell::PageShell;
use crate::html::{cells, definition_list, scrollable};
use crate::svg::waterfall::Waterfall;

const STYLE: &str = include_str!("../../assets/compare.css");

/// An explanation as a page that opens offline, prints, and fits a phone; light and dark.
#[derive(Clone, Copy, Debug)]
pub struct WhyPage;

impl WhyPage {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
        let text = word_explanation(explanation);
        let mut sentences = text.sentences.iter().filter(|sentence| !sentence.is_empty());
        let what = sentences.next().map_or("", String::as_str);
        let more: Markup = sentences.map(|sentence| html!("<p class=\"lead\">{}</p>", sentence)).collect();
        let body = html!(
            "<h1>{}</h1>{}<section id=\"sum\"><h2>What makes it what it is</h2><div class=\"ladder\">{}</div>{}</section>\
             <section id=\"notes\"><h2>What else was found</h2>{}</section>",
            what,
            more,
            Waterfall::new(explanation, &text).inline(),
            sum(&text),
            notes(&text)
        );
        PageShell { of: "why", title: what, style: STYLE, body }.write(out)
    }
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
        let within = if row.is_within { "– " } else { "" };
        let figures = cells([&row.amount, &row.share, &row.shown_by]);
        html!("<tr><th scope=\"row\">{}{}</th>{}</tr>", within, row.what, figures)
    };
    let table = html!(
        "<table class=\"plain sum\"><caption class=\"unseen\">The sum</caption><thead><tr><th scope=\"col\">What</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">Share</th><th scope=\"col\">Shown by</th></tr></thead><tbody>{}<tr><th scope=\"row\"><b>all of it</b></th>\
         <td><b>{}</b></td><td><b>100 %</b></td><td></td></tr></tbody></table>",
        text.unit,
        text.rows.iter().map(row).collect::<Markup>(),
        text.whole
    );
    scrollable("The sum", table)
}

/// An explanation as a drawing, a file of its own.
#[derive(Clone, Copy, Debug)]
pub struct WhyDrawing;

impl WhyDrawing {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
        let text = word_explanation(explanation);
        out.write_all(Waterfall::new(explanation, &text).standalone().as_bytes())
    }
}
