//! What makes a figure what it is, as one page without any script, and as a drawing: the sum as a waterfall.

use std::io;

use kelvin_analysis::words::why::{Row, Worded, worded};
use kelvin_model::Explanation;

use crate::html::plain::PlainPage;
use crate::html::{scrolling, terms};
use crate::safe::{Markup, html};
use crate::svg::waterfall::Waterfall;

const STYLE: &str = include_str!("../../assets/compare.css");

/// An explanation as a page that opens offline, prints, and fits a phone; light and dark.
#[derive(Clone, Copy, Debug)]
pub struct Page;

impl Page {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
        let said = worded(explanation);
        let mut sentences = said.sentences.iter().filter(|text| !text.is_empty());
        let what = sentences.next().map_or("", String::as_str);
        let more: Markup = sentences.map(|text| html!("<p class=\"lead\">{}</p>", text.as_str())).collect();
        let body = html!(
            "<h1>{}</h1>{}<section id=\"sum\"><h2>What makes it what it is</h2><div class=\"ladder\">{}</div>{}</section>\
             <section id=\"notes\"><h2>What else was found</h2>{}</section>",
            what,
            more,
            Waterfall::of(explanation, &said).inline(),
            sum(&said),
            notes(&said)
        );
        PlainPage { of: "why", title: what, style: STYLE, body }.write(out)
    }
}

/// An explanation within another page.
pub(crate) fn in_short(explanation: &Explanation) -> Markup {
    let said = worded(explanation);
    html!("{}{}", sum(&said), notes(&said))
}

fn sum(said: &Worded) -> Markup {
    scrolling("The sum", table(said))
}

fn notes(said: &Worded) -> Markup {
    terms(said.notes.iter().map(|(label, text)| (*label, text.as_str().into())))
}

/// The sum, for who does not see the drawing.
fn table(said: &Worded) -> Markup {
    let row = |row: &Row| {
        // Not by a style alone: who has the table read out has to know.
        let within = if row.is_within { "– " } else { "" };
        html!(
            "<tr><th scope=\"row\">{}{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            within,
            row.what.as_str(),
            row.amount.as_str(),
            row.share.as_str(),
            row.shown_by.as_str()
        )
    };
    html!(
        "<table class=\"plain sum\"><caption class=\"unseen\">The sum</caption><thead><tr><th scope=\"col\">What</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">Share</th><th scope=\"col\">Shown by</th></tr></thead><tbody>{}<tr><th scope=\"row\"><b>all of it</b></th>\
         <td><b>{}</b></td><td><b>100 %</b></td><td></td></tr></tbody></table>",
        said.unit.as_str(),
        said.rows.iter().map(row).collect::<Markup>(),
        said.whole.as_str()
    )
}

/// An explanation as a drawing, a file of its own.
#[derive(Clone, Copy, Debug)]
pub struct Picture;

impl Picture {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, explanation: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
        let said = worded(explanation);
        out.write_all(Waterfall::of(explanation, &said).standalone().as_bytes())
    }
}
