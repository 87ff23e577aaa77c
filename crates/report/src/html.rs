//! HTML: one self-contained file that opens offline, prints, works without script, in light and dark, and on a phone.

mod back;
mod detail;
mod figure;
mod front;
mod plots;
mod results;

use std::io;

use serde::Serialize;

use crate::figures::{Figure, of_sections};
use crate::sections::{Section, sections};
use crate::text::{html as esc, script_json};
use crate::{Render, Report, words};

/// The HTML report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Html;

/// What the page draws with of Apache ECharts, deflated, in base64; see `assets/README.md`.
const CHARTS: &str = include_str!("../assets/echarts.deflate.txt");
const LIBRARY: &str = include_str!("../assets/library.js");
const AXES: &str = include_str!("../assets/axes.js");
const HEAT: &str = include_str!("../assets/heat.js");
const FIGURES: &str = include_str!("../assets/figures.js");
const SCRIPT: &str = include_str!("../assets/report.js");
const STYLE: &str = include_str!("../assets/report.css");

/// Nothing is loaded from anywhere: the page is its own and only source.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

/// What the script draws from.
#[derive(Serialize)]
struct Data<'a> {
    run: &'a str,
    figures: &'a [Figure],
}

/// A part of the page: id, short title for the navigation, and its content.
struct Part {
    id: String,
    title: String,
    content: String,
}

impl Part {
    fn new(id: impl Into<String>, title: impl Into<String>, content: String) -> Self {
        Self { id: id.into(), title: title.into(), content }
    }
}

impl Render for Html {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let sections = sections(report);
        let figures = of_sections(report, &sections);
        let parts = parts(report, &sections, &figures);
        head(report, out)?;
        write!(out, "<div class=\"frame\">{}", navigation(&parts))?;
        write!(out, "<main id=\"main\" tabindex=\"-1\">")?;
        for part in &parts {
            write!(
                out,
                "<section id=\"{id}\" aria-labelledby=\"{id}-title\">{}</section>",
                without_implied_ends(&part.content),
                id = esc(&part.id)
            )?;
        }
        write!(out, "</main></div>")?;
        foot(report, out)?;
        script(report, &figures, out)
    }
}

/// End tags that HTML implies and lets a writer leave out (section 13.1.2.4): a sixteenth of a page. Texts are escaped and
/// hold none.
const IMPLIED_ENDS: [&str; 6] = ["</td>", "</th>", "</tr>", "</li>", "</dt>", "</dd>"];

fn without_implied_ends(markup: &str) -> String {
    IMPLIED_ENDS.iter().fold(markup.to_owned(), |markup, end| markup.replace(end, ""))
}

fn parts(report: &Report<'_>, sections: &[Section<'_>], figures: &[Figure]) -> Vec<Part> {
    let mut parts = vec![
        Part::new("verdict", "Verdict", front::verdict(report)),
        Part::new("hazards", "Hazards", front::hazards(report)),
        Part::new("machine", "Machine", front::machine(report)),
    ];
    if let Some(canaries) = figures.iter().find(|figure| figure.id == "canaries") {
        parts.push(Part::new("quiet", "How quiet it was", front::quiet(report, canaries)));
    }
    for section in sections {
        let id = format!("area-{}", section.area);
        parts.push(Part::new(id.clone(), section.title.clone(), results::area(report, section, figures, &id)));
    }
    if !report.analysis.peers.is_empty() {
        parts.push(Part::new("peers", "Other programs", back::peers(report)));
    }
    if !report.analysis.studies.is_empty() {
        parts.push(Part::new("studies", "Studies", back::studies(report, figures)));
    }
    if !report.references.is_empty() {
        parts.push(Part::new("published", "Published machines", back::references(report)));
    }
    parts.push(Part::new("method", "How it was measured", back::method(report)));
    if report.analysis.results.iter().any(|result| report.probe(&result.probe).is_some()) {
        parts.push(Part::new("methods", "Methods of the probes", back::methods(report)));
    }
    parts.push(Part::new("glossary", "Words", back::glossary()));
    parts
}

fn head(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let machine = esc(&words::machine_line(report.run));
    write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"generator\" content=\"kelvin {}\">\
         <title>kelvin: {machine}</title><style>{STYLE}{}</style></head><body>\
         <a class=\"skip\" href=\"#main\">Skip to the results</a>\
         <header class=\"top\"><p class=\"brand\">kelvin</p><p class=\"run\">{}</p>\
         <button type=\"button\" id=\"theme\" class=\"js-only\">Theme: automatic</button></header>\
         <p id=\"live\" class=\"unseen\" role=\"status\"></p>",
        esc(&report.run.outline.kelvin),
        results::labels(),
        esc(&words::run_line(report.run)),
    )
}

fn navigation(parts: &[Part]) -> String {
    let link = |part: &Part| format!("<li><a href=\"#{}\">{}</a></li>", esc(&part.id), esc(&part.title));
    let links: String = parts.iter().map(link).collect();
    format!("<nav aria-label=\"Sections\"><ul>{links}</ul></nav>")
}

fn foot(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    write!(
        out,
        "<footer><p>kelvin {}, run {}. Charts by Apache ECharts (Apache-2.0). This file needs no network.</p></footer>",
        esc(&report.run.outline.kelvin),
        esc(&report.run.outline.id)
    )
}

/// Data, the packed chart library, then the one script.
fn script(report: &Report<'_>, figures: &[Figure], out: &mut dyn io::Write) -> io::Result<()> {
    let data = Data { run: &report.run.outline.id, figures };
    let data = script_json(&serde_json::to_string(&data)?);
    write!(out, "{}<script type=\"application/json\" id=\"data\">{data}</script>", figure::export())?;
    write!(out, "<script type=\"text/plain\" id=\"library\">{CHARTS}</script>")?;
    write!(out, "<script>\n{LIBRARY}\n{AXES}\n{HEAT}\n{FIGURES}\n{SCRIPT}</script></body></html>")?;
    writeln!(out)
}

/// The heading of a part; its id is what the part is labelled by.
fn heading(id: &str, title: &str) -> String {
    format!("<h2 id=\"{}-title\">{}</h2>", esc(id), esc(title))
}

/// A list; nothing for no items. Items are HTML.
fn list(class: &str, items: impl IntoIterator<Item = String>) -> String {
    let items: String = items.into_iter().map(|item| format!("<li>{item}</li>")).collect();
    if items.is_empty() { items } else { format!("<ul class=\"{class}\">{items}</ul>") }
}

/// Terms and descriptions; descriptions are HTML.
fn terms<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let pairs: String =
        pairs.into_iter().map(|(term, text)| format!("<dt>{}</dt><dd>{text}</dd>", esc(term))).collect();
    format!("<dl class=\"terms\">{pairs}</dl>")
}

/// A table of data that scrolls within its own box where it is wider than the page.
fn scrolling(label: &str, table: &str) -> String {
    format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{table}</div>", esc(label))
}
