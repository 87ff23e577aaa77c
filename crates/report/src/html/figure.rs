//! A figure of the page: controls and canvas for the script, a drawing without it, the data as a table.

use super::{DataTable, folded_data, list, remark_span, scrollable, table_row};
use crate::escape::{Markup, html};
use crate::figures::{Drawing, Figure, Heat, HeatCell, Plot, Series, SeriesRole};
use crate::plot_layout::{PlotAxis, PlotLayout, PlotLine};
use crate::svg;

/// Maximum rows of a figure's table; of more, every n-th is shown, with a remark. The CSV has all.
const MAX_TABLE_ROWS: usize = 120;

/// A figure; `index` is its place in the script's data.
pub(super) fn figure(figure: &Figure, index: usize) -> Markup {
    let (kind, controls, legend, table) = match &figure.drawing {
        Drawing::Plot(plot) => {
            let picture = PlotLayout::new(plot);
            ("plot", plot_controls(&picture), plot_legend(&picture), plot_table(&figure.title, plot))
        }
        Drawing::Heat(heat) => {
            // A grid like the drawing, unless too wide to read.
            let is_grid = heat.columns.len() <= MAX_GRID_COLUMNS;
            let table = if is_grid { heat_grid(&figure.title, heat) } else { heat_list(&figure.title, heat) };
            ("heat", Markup::new(), heat_legend(heat), table)
        }
    };
    let (id, title) = (&figure.id, &figure.title);
    let code = (id != "canaries").then(|| html!("<code>{}</code>", id));
    let caption = html!("<figcaption><strong>{}</strong> {}</figcaption>", title, remark_span(code));
    let label = "Controls of the figure";
    let controls = html!("<div class=\"controls js-only\" role=\"group\" aria-label=\"{}\">{}</div>", label, controls);
    let canvas = html!("<div class=\"canvas\"><div class=\"static\">{}</div></div>", svg::inline(figure));
    let head = html!("<figure id=\"figure-{}\" class=\"figure\" data-figure=\"{}\" data-kind=\"{}\">", id, index, kind);
    let (reading, table) = (list("reading", &figure.description), folded_data("Data as a table", table));
    html!("{}{}{}{}{}{}{}</figure>", head, caption, controls, canvas, legend, reading, table)
}

/// The menu of export, once for all figures.
pub(super) fn export_controls() -> Markup {
    let button = |verb: &str, kind: &str| {
        let action = format!("{verb}-{kind}").to_lowercase();
        html!("<button type=\"button\" data-action=\"{}\">{} {}</button>", action, verb, kind)
    };
    let buttons: Markup =
        ["Copy", "Save"].iter().flat_map(|verb| ["PNG", "SVG", "CSV"].map(|kind| button(verb, kind))).collect();
    html!(
        "<template id=\"export\"><details class=\"menu\"><summary>Export</summary><div>{}</div></details></template>",
        buttons
    )
}

/// How the axes of a plot can be switched.
fn plot_controls(picture: &PlotLayout<'_>) -> Markup {
    let toggle = |action: &str, label: &str, is_pressed: bool| {
        html!("<button type=\"button\" data-action=\"{}\" aria-pressed=\"{}\">{}</button>", action, is_pressed, label)
    };
    let log = |action: &str, label: &str, axis: &PlotAxis<'_>| {
        axis.logarithmic.is_some().then(|| toggle(action, label, axis.log))
    };
    let is_banded = picture.lines.iter().any(|line| picture.shows_band(line));
    let scales = html!("{}{}", log("log-x", "Log x", &picture.x), log("log-y", "Log y", &picture.y));
    let bands = is_banded.then(|| toggle("bands", "Bands", true));
    html!("{}{}<button type=\"button\" data-action=\"reset\" disabled>Whole range</button>", scales, bands)
}

/// A check box for each line; without the script the drawing has its own legend.
fn plot_legend(picture: &PlotLayout<'_>) -> Markup {
    let item = |(index, line): (usize, &PlotLine<'_>)| {
        let icon = svg::swatch_icon(line);
        html!("<label><input type=\"checkbox\" checked data-series=\"{}\">{}{}</label>", index, icon, line.label)
    };
    let items: Markup = picture.lines.iter().enumerate().map(item).collect();
    html!(
        "<fieldset class=\"series js-only\"><legend class=\"unseen\">Series of the figure</legend>{}</fieldset>",
        items
    )
}

/// The legend of colours and frames, with the script, without it, and on paper.
fn heat_legend(heat: &Heat) -> Markup {
    let item = |(class, label): (String, &str)| {
        let colour = html!("<rect class=\"{}\" width=\"14\" height=\"14\" rx=\"2\"/>", class);
        html!("<svg aria-hidden=\"true\">{}</svg>{}", colour, label)
    };
    list("heat-legend", svg::heat::color_explanations(heat).into_iter().map(item))
}

/// Maximum rows and columns of a heat map's table shown as a grid; a larger one is a list.
const MAX_GRID_COLUMNS: usize = 32;

fn heat_grid(title: &str, heat: &Heat) -> Markup {
    let row = |(row, name): (usize, &String)| {
        let cell = |column: usize| {
            let cell = heat.cell(row, column)?;
            let standing = cell.standing.labels().map(|(_, words)| html!(", {}", words));
            Some(html!("{}{}", heat.unit.text(cell.value), standing))
        };
        table_row(name, (0..heat.columns.len()).map(cell))
    };
    let columns: Vec<&str> = std::iter::once(&heat.row_label).chain(&heat.columns).map(String::as_str).collect();
    let caption = format!("{title}: {} down, {} across", heat.row_label, heat.column_label);
    let table = DataTable::of_figures(&caption, &columns, heat.rows.iter().enumerate().map(row).collect());
    let label = &format!("Data of {title}");
    DataTable { label, class: "plain numbers grid-table", shows_caption: true, ..table }.markup()
}

fn heat_list(title: &str, heat: &Heat) -> Markup {
    let step = heat.cells.len().div_ceil(MAX_TABLE_ROWS).max(1);
    let row = |cell: &HeatCell| {
        let predicted = cell.predicted.map(|value| heat.unit.text(value)).unwrap_or_default();
        let cells = [heat.columns[cell.column].clone(), heat.unit.text(cell.value), predicted];
        table_row(&heat.rows[cell.row], cells)
    };
    let thinning = thinning_text(step, heat.cells.len(), &format!("{}s", heat.called));
    let columns = [heat.row_label.as_str(), &heat.column_label, "Value", "Predicted"];
    let caption = format!("{title}{thinning}");
    let table = DataTable::of_figures(&caption, &columns, heat.cells.iter().step_by(step).map(row).collect());
    DataTable { label: &format!("Data of {title}"), shows_caption: true, ..table }.markup()
}

/// The remark on rows that a table leaves out.
fn thinning_text(step: usize, total: usize, noun: &str) -> String {
    if step == 1 { String::new() } else { format!(", 1 in {step} of {total} {noun}") }
}

/// The points of a plot as a table.
fn plot_table(title: &str, plot: &Plot) -> Markup {
    // A fitted law is described below the figure; its points are no data.
    let data = || plot.series.iter().filter(|series| series.role != SeriesRole::Fitted);
    let points: usize = data().map(|series| series.points.len()).sum();
    let step = points.div_ceil(MAX_TABLE_ROWS).max(1);
    let rows: Markup = data().map(|series| rows(plot, series, step)).collect();
    let thinning = thinning_text(step, points, "points");
    let head = html!("<thead><tr><th>{}</th><th>Value</th><th>Low</th><th>High</th></tr></thead>", plot.x.label);
    let caption = html!("<caption>{}{}</caption>", title, thinning);
    let table = html!("<table class=\"plain numbers\">{}{}{}</table>", caption, head, rows);
    scrollable(&format!("Data of {title}"), table)
}

/// The points of a series below its name.
fn rows(plot: &Plot, series: &Series, step: usize) -> Markup {
    let mut rows = html!("<tr><th colspan=\"4\" scope=\"rowgroup\">{}</th></tr>", series.label);
    for point in series.points.iter().step_by(step) {
        let text = |value: f64| plot.y.kind.text(value);
        let is_exact = point.low == point.high || series.role == SeriesRole::Reference;
        let ends = [point.low, point.high].map(|end| (!is_exact).then(|| text(end)));
        rows.push(table_row(plot.x.kind.text(point.x), std::iter::once(Some(text(point.y))).chain(ends)));
    }
    html!("<tbody>{}</tbody>", rows)
}
