//! Heat maps as SVG: a grid of coloured cells with their values, and the legend of the colours.

use super::path::number;
use super::{BOTTOM, CHARACTER, LEFT, RIGHT, TOP, WIDTH};
use crate::figures::{Cell, HEAT_STEPS, Heat, Standing};
use crate::safe::{Markup, html};

/// Colours of the steps, lowest first, and of the text on each: one hue from light to dark, so that the order is seen
/// without the legend, by colour-blind readers and on grey paper too. After ColorBrewer's Blues.
pub(super) const COLORS: [(&str, &str); HEAT_STEPS] = [
    ("#dce9f6", "#1c2127"),
    ("#c0d8ee", "#1c2127"),
    ("#9ecae1", "#1c2127"),
    ("#6baed6", "#1c2127"),
    ("#4a98c9", "#1c2127"),
    ("#2171b5", "#ffffff"),
    ("#084594", "#ffffff"),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of `#rrggbb` (WCAG 2.2).
    fn luminance(color: &str) -> f64 {
        let part = |at: usize| f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(part(1)) + 0.7152 * linear(part(3)) + 0.0722 * linear(part(5))
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// The themes of the page's style sheet: the values of `--h0` and `--ht0` and so on, once for each theme.
    fn themes() -> Vec<Vec<(String, String)>> {
        let css = include_str!("../../assets/report.css");
        let values = |name: &str| -> Vec<String> {
            css.split(&format!("--{name}:")).skip(1).map(|rest| rest.trim_start()[..7].to_owned()).collect()
        };
        let steps: Vec<(Vec<String>, Vec<String>)> =
            (0..HEAT_STEPS).map(|step| (values(&format!("h{step}")), values(&format!("ht{step}")))).collect();
        (0..steps[0].0.len())
            .map(|theme| steps.iter().map(|(color, ink)| (color[theme].clone(), ink[theme].clone())).collect())
            .collect()
    }

    #[test]
    fn values_are_legible_on_every_colour_of_every_theme() {
        let own = COLORS.iter().map(|(color, ink)| ((*color).to_owned(), (*ink).to_owned())).collect();
        let themes: Vec<Vec<(String, String)>> = themes().into_iter().chain([own]).collect();
        assert_eq!(themes.len(), 4, "light, dark twice, and files");
        assert_eq!(themes[0], themes[3], "files look as the light page");
        for theme in themes {
            for (color, ink) in &theme {
                assert!(contrast(color, ink) >= 4.5, "{ink} on {color}: {:.2}", contrast(color, ink));
            }
            let order: Vec<f64> = theme.iter().map(|(color, _)| luminance(color)).collect();
            assert!(order.is_sorted() || order.iter().rev().is_sorted(), "lightness tells the order");
        }
    }
}
