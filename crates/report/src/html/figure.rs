//! A figure of the page: controls and canvas for the script, a drawing without it, and the data as a table.

use std::fmt::Write as _;

use super::{esc, list, scrolling};
use crate::figures::{Figure, Role, Series};
use crate::svg;

/// Most rows of a figure's table; beyond them every n-th is shown, and said so. The CSV has all.
const MOST_ROWS: usize = 120;

/// A figure; `index` is its place in the script's data.
pub(super) fn figure(figure: &Figure, index: usize) -> String {
    let id = format!("figure-{}", esc(&figure.id));
    format!(
        "<figure id=\"{id}\" class=\"figure\" data-figure=\"{index}\"><figcaption><strong>{}</strong> <span \
         class=\"why\">{}</span></figcaption>{}<div class=\"canvas\"><div class=\"static\">{}</div></div>{}{}\
         <details class=\"data\"><summary>Data as a table</summary>{}</details></figure>",
        esc(&figure.title),
        if figure.id == "canaries" { String::new() } else { format!("<code>{}</code>", esc(&figure.id)) },
        controls(figure),
        svg::inline(figure),
        legend(figure),
        list("reading", figure.description.iter().map(|sentence| esc(sentence))),
        data_table(figure)
    )
}

/// Buttons of a figure; of use with the script only.
fn controls(figure: &Figure) -> String {
    let toggle = |action: &str, label: &str, on: bool| {
        format!("<button type=\"button\" data-action=\"{action}\" aria-pressed=\"{on}\">{label}</button>")
    };
    let button =
        |action: &str, label: &str| format!("<button type=\"button\" data-action=\"{action}\">{label}</button>");
    format!(
        "<div class=\"controls js-only\" role=\"group\" aria-label=\"Controls of the figure\">{}{}{}{}\
         <details class=\"menu\"><summary>Export</summary><div>{}{}{}{}{}{}</div></details></div>",
        toggle("log-x", "Log x", figure.x.logarithmic),
        toggle("log-y", "Log y", figure.y.logarithmic),
        toggle("bands", "Bands", true),
        "<button type=\"button\" data-action=\"reset\" disabled>Whole range</button>",
        button("copy-png", "Copy PNG"),
        button("copy-svg", "Copy SVG"),
        button("copy-csv", "Copy CSV"),
        button("save-png", "Save PNG"),
        button("save-svg", "Save SVG"),
        button("save-csv", "Save CSV"),
    )
}

/// A check box for each series; without the script the drawing has its own legend.
fn legend(figure: &Figure) -> String {
    let mut items = String::new();
    for (index, series) in figure.series.iter().enumerate() {
        let _ = write!(
            items,
            "<label><input type=\"checkbox\" checked data-series=\"{index}\">{}{}</label>",
            svg::swatch_icon(series),
            esc(&series.label)
        );
    }
    format!(
        "<fieldset class=\"series js-only\"><legend class=\"unseen\">Series of the figure</legend>{items}</fieldset>"
    )
}

fn data_table(figure: &Figure) -> String {
    let points: usize = figure.series.iter().map(|series| series.points.len()).sum();
    let step = points.div_ceil(MOST_ROWS).max(1);
    let rows: String = figure.series.iter().map(|series| rows(figure, series, step)).collect();
    let said = if step == 1 { String::new() } else { format!(", every {step}th of {points} points") };
    let table = format!(
        "<table class=\"plain numbers\"><caption>{}{said}</caption><thead><tr><th scope=\"col\">Series</th><th \
         scope=\"col\">{}</th><th scope=\"col\">Value</th><th scope=\"col\">Low</th><th scope=\"col\">High</th></tr></thead>\
         <tbody>{rows}</tbody></table>",
        esc(&figure.title),
        esc(&figure.x.label),
    );
    scrolling(&format!("Data of {}", figure.title), &table)
}

fn rows(figure: &Figure, series: &Series, step: usize) -> String {
    let mut rows = String::new();
    for point in series.points.iter().step_by(step) {
        let text = |value: f64| esc(&figure.y.kind.text(value));
        let ends = if point.low == point.high || series.role == Role::Reference {
            "<td></td><td></td>".to_owned()
        } else {
            format!("<td>{}</td><td>{}</td>", text(point.low), text(point.high))
        };
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td>{ends}</tr>",
            esc(&series.label),
            esc(&figure.x.kind.text(point.x)),
            text(point.y),
        );
    }
    rows
}
