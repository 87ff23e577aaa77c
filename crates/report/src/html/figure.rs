//! A figure of the page: controls and canvas for the script, a drawing without it, and the data as a table.

use std::fmt::Write as _;

use super::{esc, list, scrolling};
use crate::figures::{Cell, Drawing, Figure, Heat, Plot, Point, Role, Series, Standing};
use crate::svg;

/// Most rows of a figure's table; beyond them every n-th is shown, and said so. The CSV has all.
const MOST_ROWS: usize = 120;

/// A figure; `index` is its place in the script's data.
pub(super) fn figure(figure: &Figure, index: usize) -> String {
    let id = format!("figure-{}", esc(&figure.id));
    let (kind, controls, legend, table) = match &figure.drawing {
        Drawing::Plot(plot) => ("plot", plot_controls(plot), plot_legend(plot), plot_table(&figure.title, plot)),
        Drawing::Heat(heat) => ("heat", String::new(), heat_legend(heat), heat_table(&figure.title, heat)),
    };
    format!(
        "<figure id=\"{id}\" class=\"figure\" data-figure=\"{index}\" data-kind=\"{kind}\"><figcaption><strong>{}</strong> <span \
         class=\"why\">{}</span></figcaption>{}<div class=\"canvas\"><div class=\"static\">{}</div></div>{}{}\
         <details class=\"data\"><summary>Data as a table</summary>{}</details></figure>",
        esc(&figure.title),
        if figure.id == "canaries" { String::new() } else { format!("<code>{}</code>", esc(&figure.id)) },
        group_of(&controls),
        svg::inline(figure),
        legend,
        list("reading", figure.description.iter().map(|sentence| esc(sentence))),
        table
    )
}

/// Buttons of a figure; of use with the script only, which adds those of the export.
fn group_of(controls: &str) -> String {
    format!("<div class=\"controls js-only\" role=\"group\" aria-label=\"Controls of the figure\">{controls}</div>")
}

/// The menu of export, once for all figures.
pub(super) fn export() -> String {
    let button = |verb: &str, kind: &str| {
        let action = format!("{verb}-{kind}").to_lowercase();
        format!("<button type=\"button\" data-action=\"{action}\">{verb} {kind}</button>")
    };
    let buttons: String =
        ["Copy", "Save"].iter().flat_map(|verb| ["PNG", "SVG", "CSV"].map(|kind| button(verb, kind))).collect();
    format!(
        "<template id=\"export\"><details class=\"menu\"><summary>Export</summary><div>{buttons}</div></details></template>"
    )
}

/// How the axes of a plot can be switched.
fn plot_controls(plot: &Plot) -> String {
    let toggle = |action: &str, label: &str, on: bool| {
        format!("<button type=\"button\" data-action=\"{action}\" aria-pressed=\"{on}\">{label}</button>")
    };
    // An axis of nothing but zeros has no logarithm.
    let log = |action: &str, label: &str, on: bool, value: fn(&Point) -> f64| {
        let is_positive = plot.series.iter().flat_map(|series| &series.points).any(|point| value(point) > 0.0);
        if is_positive { toggle(action, label, on) } else { String::new() }
    };
    let is_banded = plot.series.iter().flat_map(|series| &series.points).any(|point| point.low != point.high);
    let bands = if is_banded { toggle("bands", "Bands", true) } else { String::new() };
    format!(
        "{}{}{bands}<button type=\"button\" data-action=\"reset\" disabled>Whole range</button>",
        log("log-x", "Log x", plot.x.logarithmic, |point| point.x),
        log("log-y", "Log y", plot.y.logarithmic, |point| point.y),
    )
}

/// A check box for each series; without the script the drawing has its own legend.
fn plot_legend(plot: &Plot) -> String {
    let mut items = String::new();
    for (index, series) in plot.series.iter().enumerate() {
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

/// What each colour and frame stands for, with the script and without, and on paper.
fn heat_legend(heat: &Heat) -> String {
    let item = |(class, label): (String, &str)| {
        format!(
            "<svg viewBox=\"0 0 14 14\" width=\"14\" height=\"14\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"14\" \
             height=\"14\" rx=\"2\"/></svg>{}",
            esc(label)
        )
    };
    list("heat-legend", svg::heat::explained(heat).into_iter().map(item))
}

/// Most rows and columns of a heat map's table that stand as a grid; a wider one is a list.
const WIDEST_GRID: usize = 32;

/// The cells of a heat map as a table: a grid as the drawing, where it is not too wide to be read.
fn heat_table(title: &str, heat: &Heat) -> String {
    let table = if heat.columns.len() <= WIDEST_GRID { heat_grid(title, heat) } else { heat_list(title, heat) };
    scrolling(&format!("Data of {title}"), &table)
}

fn heat_grid(title: &str, heat: &Heat) -> String {
    let columns: String = heat.columns.iter().map(|name| format!("<th>{}</th>", esc(name))).collect();
    let mut rows = String::new();
    for (row, name) in heat.rows.iter().enumerate() {
        let cell = |column: usize| {
            let text = heat.cell(row, column).map(|cell| heat.unit.text(cell.value) + standing(cell));
            format!("<td>{}</td>", esc(&text.unwrap_or_default()))
        };
        let cells: String = (0..heat.columns.len()).map(cell).collect();
        let _ = write!(rows, "<tr><th>{}</th>{cells}</tr>", esc(name));
    }
    format!(
        "<table class=\"plain numbers grid-table\"><caption>{}: {} down, {} across</caption><thead><tr><th>{}</th>\
         {columns}</tr></thead><tbody>{rows}</tbody></table>",
        esc(title),
        esc(&heat.row_label),
        esc(&heat.column_label),
        esc(&heat.row_label),
    )
}

/// What a table says of a cell that was found best, or as good.
fn standing(cell: &Cell) -> &'static str {
    match cell.standing {
        Standing::Best => ", best",
        Standing::AsGood => ", as good",
        Standing::Other => "",
    }
}

fn heat_list(title: &str, heat: &Heat) -> String {
    let step = heat.cells.len().div_ceil(MOST_ROWS).max(1);
    let mut rows = String::new();
    for cell in heat.cells.iter().step_by(step) {
        let _ = write!(
            rows,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            esc(&heat.rows[cell.row]),
            esc(&heat.columns[cell.column]),
            esc(&heat.unit.text(cell.value)),
            esc(&cell.predicted.map(|value| heat.unit.text(value)).unwrap_or_default())
        );
    }
    format!(
        "<table class=\"plain numbers\"><caption>{}{}</caption><thead><tr><th>{}</th><th>{}</th><th \
        >Value</th><th>Predicted</th></tr></thead><tbody>{rows}</tbody></table>",
        esc(title),
        thinned(step, heat.cells.len(), &format!("{}s", heat.called)),
        esc(&heat.row_label),
        esc(&heat.column_label),
    )
}

/// What a table says of rows that it leaves out.
fn thinned(step: usize, of: usize, what: &str) -> String {
    if step == 1 { String::new() } else { format!(", every {step}th of {of} {what}") }
}

/// The points of a plot as a table.
fn plot_table(title: &str, plot: &Plot) -> String {
    // A fitted law is in the words below the figure; its points are nobody's data.
    let data = || plot.series.iter().filter(|series| series.role != Role::Fitted);
    let points: usize = data().map(|series| series.points.len()).sum();
    let step = points.div_ceil(MOST_ROWS).max(1);
    let rows: String = data().map(|series| rows(plot, series, step)).collect();
    let said = thinned(step, points, "points");
    let table = format!(
        "<table class=\"plain numbers\"><caption>{}{said}</caption><thead><tr><th>{}</th><th>Value</th><th>Low</th><th>High</th></tr>\
         </thead>{rows}</table>",
        esc(title),
        esc(&plot.x.label),
    );
    scrolling(&format!("Data of {title}"), &table)
}

/// The points of a series below its name.
fn rows(plot: &Plot, series: &Series, step: usize) -> String {
    let mut rows = format!("<tr><th colspan=\"4\" scope=\"rowgroup\">{}</th></tr>", esc(&series.label));
    for point in series.points.iter().step_by(step) {
        let text = |value: f64| esc(&plot.y.kind.text(value));
        let ends = if point.low == point.high || series.role == Role::Reference {
            "<td></td><td></td>".to_owned()
        } else {
            format!("<td>{}</td><td>{}</td>", text(point.low), text(point.high))
        };
        let _ = write!(rows, "<tr><th>{}</th><td>{}</td>{ends}</tr>", esc(&plot.x.kind.text(point.x)), text(point.y));
    }
    format!("<tbody>{rows}</tbody>")
}
