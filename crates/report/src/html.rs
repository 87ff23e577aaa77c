//! HTML: one self-contained file that opens offline, prints, works without script, in light and dark, and on a phone.

mod csp;
mod detail;
pub(crate) mod elements;
mod figure;
mod findings;
mod group;
mod method;
mod overview;
pub(crate) mod page_shell;
mod plots;
mod results;
mod summary;
mod topology;

use std::collections::BTreeMap;
use std::io;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use kelvin_core::Unit;
use serde::Serialize;

pub(crate) use elements::{cells, definition_list, scrollable};

use crate::escape::{HtmlPiece, Markup, html};
use crate::figures::{AxisKind, Drawing, Figure, Heat, SeriesRole, figures_of_sections, safe_file_name};
use crate::plot_layout::{LineStyle, MAX_PREDICTED_BANDS, PlotLayout};
use crate::sections::{Section, SectionEntry, sections};
use crate::svg::Margins;
use crate::terminal::is_study;
use crate::text::json_for_script;
use crate::{Render, Report, labels, palette, svg};

/// The HTML report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Html;

/// The part of Apache ECharts that the page uses, deflated; see `assets/README.md`.
const CHART_LIBRARY: &[u8] = include_bytes!("../assets/echarts.deflate");
const LIBRARY_LOADER: &str = include_str!("../assets/library.js");
const HEAT_SCRIPT: &str = include_str!("../assets/heat.js");
const FIGURES_SCRIPT: &str = include_str!("../assets/figures.js");
const PAGE_SCRIPT: &str = include_str!("../assets/report.js");
const STYLE: &str = include_str!("../assets/report.css");

/// The script's data: all that is decided here and not there.
#[derive(Serialize)]
struct PageData<'f> {
    /// Scales of numbers: from which size, divided by what, with which symbol.
    scales: BTreeMap<AxisKind, Vec<(f64, f64, &'static str)>>,
    /// Kinds of numbers with round values in powers of two.
    binary: [AxisKind; 1],
    line_styles: BTreeMap<SeriesRole, LineStyle>,
    max_ranges: usize,
    margins: Margins,
    /// Width of an average character of a name.
    character_width: f64,
    figures: Vec<FigureData<'f>>,
}

/// A figure without its words, which are next to the drawing.
#[derive(Serialize)]
#[serde(untagged)]
enum FigureData<'f> {
    Plot(Box<PlotLayout<'f>>),
    Heat(&'f Heat),
}

impl<'f> PageData<'f> {
    fn new(figures: &'f [Figure]) -> Self {
        let figure = |figure: &'f Figure| match &figure.drawing {
            Drawing::Plot(plot) => FigureData::Plot(PlotLayout::new(plot).into()),
            Drawing::Heat(heat) => FigureData::Heat(heat),
        };
        let units = [Unit::Nanoseconds, Unit::Cycles, Unit::Hertz, Unit::Bytes, Unit::BytesPerSecond, Unit::PerSecond];
        let kinds = units.map(AxisKind::Unit).into_iter().chain([AxisKind::Number, AxisKind::Seconds]);
        Self {
            scales: kinds.map(|kind| (kind, kind.scales())).collect(),
            binary: [AxisKind::Unit(Unit::Bytes)],
            line_styles: SeriesRole::ALL.map(|role| (role, LineStyle::for_role(role))).into(),
            max_ranges: MAX_PREDICTED_BANDS,
            margins: svg::MARGINS,
            character_width: svg::CHARACTER_WIDTH,
            figures: figures.iter().map(figure).collect(),
        }
    }
}

/// A part of the page: id, short title for the navigation, and its content.
struct PageSection {
    id: String,
    title: String,
    content: Markup,
}

impl PageSection {
    fn new(id: impl Into<String>, title: impl Into<String>, content: Markup) -> Self {
        Self { id: id.into(), title: title.into(), content }
    }
}

impl Render for Html {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let sections = sections(report);
        let figures = figures_of_sections(report, &sections);
        let parts = page_sections(report, &sections, &figures);
        head(report, out)?;
        let section = |PageSection { id, content, .. }: &PageSection| {
            html!("<section id=\"{}\" aria-labelledby=\"{0}-title\">{}</section>", id, content)
        };
        let sections: Markup = parts.iter().map(section).collect();
        let main = html!("<main id=\"main\" tabindex=\"-1\">{}</main>", sections);
        let body = html!("<div class=\"frame\">{}{}</div>{}", navigation(&parts), main, foot(report));
        out.write_all(without_implied_ends(body.as_str()).as_bytes())?;
        script(&figures, out)
    }
}

/// End tags that HTML implies and lets a writer leave out (section 13.1.2.4): a sixteenth of a page. Texts are escaped and
/// hold none.
const IMPLIED_ENDS: [&str; 6] = ["</td>", "</th>", "</tr>", "</li>", "</dt>", "</dd>"];

fn without_implied_ends(markup: &str) -> String {
    IMPLIED_ENDS.iter().fold(markup.to_owned(), |markup, end| markup.replace(end, ""))
}

fn page_sections(report: &Report<'_>, sections: &[Section<'_>], figures: &[Figure]) -> Vec<PageSection> {
    let area = |section: &Section<'_>| {
        let id = anchor("area", section.area);
        PageSection::new(id.clone(), section.title.clone(), results::area(report, section, figures, &id))
    };
    let (inputs, requested): (Vec<&Section<'_>>, Vec<&Section<'_>>) =
        sections.iter().partition(|section| section.entries.iter().all(SectionEntry::only_input));
    // A study begins with its answer, a run with its machine.
    let mut parts = Vec::new();
    if is_study(report) {
        parts.push(PageSection::new("studies", "Study", method::study(report, figures)));
        parts.extend(requested.into_iter().map(area));
        parts.extend(summary_sections(report, sections, figures));
    } else {
        parts.extend(summary_sections(report, sections, figures));
        parts.extend(requested.into_iter().map(area));
    }
    let has_rivals = !report.analysis.rivals.is_empty();
    parts.extend(has_rivals.then(|| PageSection::new("rivals", "Other programs", method::rivals(report))));
    let has_studies = !report.analysis.studies.is_empty() && !is_study(report);
    parts.extend(has_studies.then(|| PageSection::new("studies", "Studies", method::studies(report, figures))));
    // Nobody asked for these.
    parts.extend(inputs.into_iter().map(area));
    if !report.references.is_empty() {
        parts.push(PageSection::new("published", "Published machines", method::references(report)));
    }
    parts.push(PageSection::new("method", "How it was measured", method::method(report)));
    if report.analysis.results.iter().any(|result| report.probe(&result.probe).is_some()) {
        parts.push(PageSection::new("methods", "Methods of the probes", method::methods(report)));
    }
    parts.push(PageSection::new("glossary", "Words", method::glossary()));
    parts
}

/// What the machine is, what was found, and what can spoil the figures.
fn summary_sections(report: &Report<'_>, sections: &[Section<'_>], figures: &[Figure]) -> Vec<PageSection> {
    let mut parts = vec![PageSection::new("verdict", summary::title(report), summary::verdict(report, sections))];
    if report.analysis.overview.is_some() {
        let findings = html!("{}{}", heading("findings", "Findings"), findings::findings(report));
        parts.push(PageSection::new("findings", "Findings", findings));
    }
    parts.push(PageSection::new("hazards", "Hazards", summary::hazards(report)));
    parts.push(PageSection::new("machine", "Machine", summary::machine(report)));
    let canaries = figures.iter().find(|figure| figure.id == "canaries");
    let section = canaries.map(|canaries| summary::canary_section(report, canaries));
    parts.extend(section.map(|section| PageSection::new("quiet", "How quiet it was", section)));
    parts
}

fn head(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let style = format!("{}{STYLE}{}", palette::css_properties(), results::column_label_rules());
    let drawings = svg::style_sheet();
    let policy = csp::content_security_policy(Some(&own_script()), &[&style, &drawings]);
    let generator = html!("<meta name=\"generator\" content=\"kelvin {}\">", report.run.header.kelvin);
    let head = page_shell::head(&policy, generator, &format!("kelvin: {}", labels::machine_line(report.run)));
    let top = html!(
        "</head><body><a class=\"skip\" href=\"#main\">Skip to the results</a>\
         <header class=\"top\"><p class=\"brand\">kelvin</p><p class=\"run\">{}</p>\
         <button type=\"button\" id=\"theme\" class=\"js-only\">Theme: automatic</button></header>\
         <p id=\"live\" class=\"unseen\" role=\"status\"></p>",
        labels::run_line(report.run),
    );
    write!(out, "{}<style>{style}</style><style id=\"drawings\">{drawings}</style>{}", head.as_str(), top.as_str())
}

fn navigation(parts: &[PageSection]) -> Markup {
    let link = |part: &PageSection| html!("<li><a href=\"#{}\">{}</a></li>", part.id, part.title);
    html!("<nav aria-label=\"Sections\"><ul>{}</ul></nav>", parts.iter().map(link).collect::<Markup>())
}

fn foot(report: &Report<'_>) -> Markup {
    let (kelvin, run) = (&report.run.header.kelvin, &report.run.header.id);
    let charts = "Charts by Apache ECharts (Apache-2.0). This file needs no network.";
    html!("<footer><p>kelvin {}, run {}. {}</p></footer>", kelvin, run, charts)
}

/// The one script of the page.
fn own_script() -> String {
    format!("\n{LIBRARY_LOADER}\n{HEAT_SCRIPT}\n{FIGURES_SCRIPT}\n{PAGE_SCRIPT}")
}

/// Data, the packed chart library, then the script.
fn script(figures: &[Figure], out: &mut dyn io::Write) -> io::Result<()> {
    let data = json_for_script(&PageData::new(figures))?;
    write!(out, "{}<script type=\"application/json\" id=\"data\">{data}</script>", figure::export_controls().as_str())?;
    let library = Base64Display::new(CHART_LIBRARY, &STANDARD);
    write!(out, "<script type=\"text/plain\" id=\"library\">{library}</script>")?;
    writeln!(out, "<script>{}</script></body></html>", own_script())
}

/// The id of an element for something that has a name.
fn anchor(kind: &str, name: &str) -> String {
    format!("{kind}-{}", safe_file_name(name))
}

/// The heading of a part; its id is what the part is labelled by.
fn heading(id: &str, title: &str) -> Markup {
    html!("<h2 id=\"{}-title\">{}</h2>", id, title)
}

/// A list of texts or markup; nothing for no items.
pub(crate) fn list(class: &str, items: impl IntoIterator<Item = impl HtmlPiece>) -> Markup {
    let items: Markup = items.into_iter().map(|item| html!("<li>{}</li>", item)).collect();
    if items.is_empty() { items } else { html!("<ul class=\"{}\">{}</ul>", class, items) }
}

/// A table of data.
pub(crate) struct DataTable<'a> {
    /// What the box is called in which it scrolls where it is wider than the page.
    pub label: &'a str,
    pub class: &'a str,
    pub caption: &'a str,
    /// Not where the caption repeats the heading above: then it is only for screen readers.
    pub shows_caption: bool,
    pub columns: &'a [&'a str],
    pub rows: Markup,
}

impl<'a> DataTable<'a> {
    /// A table of figures below its title, which is its caption too.
    pub(crate) fn of_figures(title: &'a str, columns: &'a [&'a str], rows: Markup) -> Self {
        Self { label: title, class: "plain numbers", caption: title, shows_caption: false, columns, rows }
    }

    /// A table of words below its caption.
    fn of_words(label: &'a str, caption: &'a str, columns: &'a [&'a str], rows: Markup) -> Self {
        Self { label, class: "plain", caption, shows_caption: true, columns, rows }
    }

    pub(crate) fn markup(&self) -> Markup {
        let Self { label, class, caption, shows_caption, columns, rows } = self;
        let caption_class = (!shows_caption).then(|| html!(" class=\"unseen\""));
        let head: Markup = columns.iter().map(|title| html!("<th>{}</th>", title)).collect();
        let head = html!("<caption{}>{}</caption><thead><tr>{}</tr></thead>", caption_class, caption, head);
        scrollable(label, html!("<table class=\"{}\">{}<tbody>{}</tbody></table>", class, head, rows))
    }
}

/// A row of a table: what it is of, and its figures.
pub(crate) fn table_row<C: HtmlPiece>(head: impl HtmlPiece, figures: impl IntoIterator<Item = C>) -> Markup {
    html!("<tr><th>{}</th>{}</tr>", head, cells(figures))
}

/// A cell of words among figures.
fn text_cell(text: impl HtmlPiece) -> Markup {
    html!("<td class=\"text\">{}</td>", text)
}

/// A word with a ground of its own, such as a verdict.
pub(crate) fn pill(class: &str, word: impl HtmlPiece) -> Markup {
    html!("<span class=\"pill {}\">{}</span>", class, word)
}

/// A reason or a remark behind what it is of.
fn remark_span(text: impl HtmlPiece) -> Markup {
    html!("<span class=\"why\">{}</span>", text)
}

/// The contents of a drawing as a table, to be opened.
pub(crate) fn folded_data(summary: &str, table: Markup) -> Markup {
    html!("<details class=\"data\"><summary>{}</summary>{}</details>", summary, table)
}

/// A part that a reader opens.
pub(crate) fn folded(summary: impl HtmlPiece, body: Markup) -> Markup {
    html!("<details class=\"folded\"><summary>{}</summary>{}</details>", summary, body)
}
