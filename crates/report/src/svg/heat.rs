//! Heat maps as SVG: a grid of coloured cells with their values, and the legend of the colours.

use super::path::number;
use super::{BOTTOM, CHARACTER, LEFT, RIGHT, TOP, WIDTH};
use crate::figures::{Cell, Heat, Standing};
use crate::safe::{Markup, html};

/// Largest side of a cell: a few CPUs need no poster.
const LARGEST_CELL: f64 = 56.0;

/// Least side of a cell that has room for its value.
const LEAST_FOR_TEXT: f64 = 34.0;

/// From the edge of a cell to the middle of its frame.
const FRAME: f64 = 4.0;

/// What a frame says.
pub(crate) const FRAMES: [(&str, &str); 2] = [("best", "best"), ("as-good", "not told apart from the best")];

/// Side of a cell of a heat map with this many columns.
fn side(columns: usize) -> f64 {
    ((WIDTH - LEFT - RIGHT) / columns.max(1) as f64).min(LARGEST_CELL)
}

pub(super) fn height(heat: &Heat) -> f64 {
    TOP + side(heat.columns.len()) * heat.rows.len() as f64 + BOTTOM
}

/// The grid with its axes; what came to no number has no cell.
pub(super) fn body(heat: &Heat) -> Markup {
    let mut svg = Markup::new();
    let side = side(heat.columns.len());
    axes(&mut svg, heat, side);
    for cell in &heat.cells {
        let (x, y) = (LEFT + cell.column as f64 * side, TOP + cell.row as f64 * side);
        let gap = (side / 40.0).min(1.0);
        svg.push(html!(
            "<rect class=\"h{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{3}\"><title>{}</title></rect>",
            cell.step,
            number(x + gap),
            number(y + gap),
            number(side - 2.0 * gap),
            format!(
                "{} {} {} {}: {}",
                heat.row_label,
                heat.rows[cell.row],
                heat.column_label,
                heat.columns[cell.column],
                heat.unit.text(cell.value)
            )
        ));
        if side >= LEAST_FOR_TEXT {
            svg.push(html!(
                "<text class=\"ht{}\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                cell.step,
                number(x + side / 2.0),
                number(y + side / 2.0 + 4.0),
                heat.digits(cell.value)
            ));
        }
    }
    // Over all cells, so that no neighbour hides a part of a frame.
    heat.cells.iter().for_each(|cell| svg.push(frame(cell, side)));
    svg
}

/// The class of the frame of a cell that is best or as good. It is inside the cell, for the neighbour may have one too, and
/// in the colour of its text, which is told apart from the cell's.
pub(super) fn frame_class(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing::Best => Some("best"),
        Standing::AsGood => Some("as-good"),
        Standing::Other => None,
    }
}

fn frame(cell: &Cell, side: f64) -> Markup {
    let Some(class) = frame_class(cell.standing) else { return Markup::new() };
    let (x, y) = (LEFT + cell.column as f64 * side + FRAME, TOP + cell.row as f64 * side + FRAME);
    let side = side - 2.0 * FRAME;
    html!(
        "<rect class=\"{} ht{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{4:.1}\"/>",
        class,
        cell.step,
        x,
        y,
        side
    )
}

/// Names of rows and columns, as many as there is room for, and what they are.
fn axes(svg: &mut Markup, heat: &Heat, side: f64) {
    let end = TOP + side * heat.rows.len() as f64;
    let widest = heat.columns.iter().map(|name| name.chars().count()).max().unwrap_or(1) as f64 * CHARACTER;
    let every = |room: f64| ((room / side).ceil() as usize).max(1);
    for (index, name) in heat.rows.iter().enumerate().step_by(every(16.0)) {
        let y = TOP + (index as f64 + 0.5) * side + 4.0;
        svg.push(html!("<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, y, name));
    }
    for (index, name) in heat.columns.iter().enumerate().step_by(every(widest + CHARACTER)) {
        let (x, y) = (LEFT + (index as f64 + 0.5) * side, end + 18.0);
        svg.push(html!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", x, y, name));
    }
    let middle = TOP + side * heat.rows.len() as f64 / 2.0;
    svg.push(html!(
        "<text x=\"{:.1}\" y=\"{:.1}\">{}</text><text transform=\"translate(16 {:.1}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        LEFT,
        end + 38.0,
        heat.column_caption(),
        middle,
        heat.row_label
    ));
}

/// What the legend explains: the colours with their ranges, and the frames that are drawn.
pub(crate) fn explained(heat: &Heat) -> Vec<(String, &str)> {
    let colours = heat.steps.iter().enumerate().map(|(step, label)| (format!("h{step}"), label.as_str()));
    let is_drawn = |class: &str| heat.cells.iter().any(|cell| frame_class(cell.standing) == Some(class));
    let frames = FRAMES.iter().filter(|(class, _)| is_drawn(class)).map(|(class, label)| ((*class).to_owned(), *label));
    colours.chain(frames).collect()
}

/// Items of the legend in a line.
const COLUMNS: usize = 4;
/// Height of a line of the legend.
const LINE: f64 = 20.0;

/// Height of the legend.
pub(super) fn legend_height(heat: &Heat) -> f64 {
    14.0 + explained(heat).len().div_ceil(COLUMNS) as f64 * LINE
}

/// The legend, in as many columns as the figure has room for.
pub(super) fn legend(heat: &Heat) -> Markup {
    let mut svg = Markup::new();
    let width = (WIDTH - LEFT - RIGHT) / COLUMNS as f64;
    for (index, (class, label)) in explained(heat).into_iter().enumerate() {
        let (x, y) = (LEFT + (index % COLUMNS) as f64 * width, height(heat) + (index / COLUMNS) as f64 * LINE + 4.0);
        svg.push(html!("<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"14\"/>", class, x, y));
        svg.push(html!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 20.0, y + 11.5, label));
    }
    svg
}
