//! Heat maps as SVG: a grid of coloured cells with their values, and the legend of the colours.

use super::path::number;
use super::{BOTTOM, CHARACTER_WIDTH, LEFT, RIGHT, SvgDrawing, TOP, WIDTH, text_width};
use crate::escape::{Markup, html};
use crate::figures::{CellRank, Heat, HeatCell};

/// Largest side of a cell.
const MAX_CELL_SIZE: f64 = 50.0;

/// Least height of a row that has its name.
const MIN_NAMED_HEIGHT: f64 = 16.0;

/// Rows up to which all have their names. Of more, such as the CPUs of a large machine, every second or third says enough.
const MAX_NAMED_ROWS: usize = 80;

/// Least side of a cell that has room for its value.
const MIN_CELL_SIZE_FOR_TEXT: f64 = 34.0;

/// From the edge of a cell to the middle of its frame.
const FRAME_INSET: f64 = 4.0;

/// Widest that a heat map may be: that of a page.
const MAX_WIDTH: f64 = 960.0;

/// The place of the cells.
struct HeatGrid<'h> {
    heat: &'h Heat,
    left: f64,
    /// Width of a cell.
    side: f64,
    /// Height of a cell: as its width, unless the names of rows would overlap.
    row_height: f64,
}

impl<'h> HeatGrid<'h> {
    fn new(heat: &'h Heat) -> Self {
        // The label of the rows is to the left of their names.
        let left = 28.0 + widest(&heat.rows) + 8.0;
        let side = ((MAX_WIDTH - left - RIGHT) / heat.columns.len().max(1) as f64).min(MAX_CELL_SIZE);
        let min_height = if heat.rows.len() <= MAX_NAMED_ROWS { MIN_NAMED_HEIGHT } else { 0.0 };
        Self { heat, left, side, row_height: side.max(min_height) }
    }

    fn x(&self, column: f64) -> f64 {
        self.left + column * self.side
    }

    fn y(&self, row: f64) -> f64 {
        TOP + row * self.row_height
    }

    fn height(&self) -> f64 {
        self.y(self.heat.rows.len() as f64) + BOTTOM
    }

    /// As wide as its cells, or as the text below them.
    fn width(&self) -> f64 {
        let caption = self.left + text_width(&self.heat.column_caption());
        self.x(self.heat.columns.len() as f64).max(caption) + RIGHT
    }

    /// The cells with their axes; one that was not measured is an empty frame.
    fn body(&self) -> Markup {
        let cells = self.heat.cells.iter().map(|cell| self.cell(cell));
        // Over all cells, so that no neighbour hides a part of a frame.
        let frames = self.heat.cells.iter().filter_map(|cell| self.frame(cell));
        let unmeasured = self.heat.unmeasured.iter().map(|&(row, column)| self.unmeasured(row, column));
        std::iter::once(self.axes()).chain(unmeasured).chain(cells).chain(frames).collect()
    }

    fn unmeasured(&self, row: usize, column: usize) -> Markup {
        let [x, y, width, height] = self.inside(row, column, self.side / 8.0).map(number);
        html!("<rect class=\"unmeasured\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", x, y, width, height)
    }

    /// Left, top, width and height of a cell without so much of its edges.
    fn inside(&self, row: usize, column: usize, inset: f64) -> [f64; 4] {
        let [x, y] = [self.x(column as f64) + inset, self.y(row as f64) + inset];
        [x, y, self.side - 2.0 * inset, self.row_height - 2.0 * inset]
    }

    fn cell(&self, cell: &HeatCell) -> Markup {
        let gap = (self.side / 40.0).min(1.0);
        let text = || {
            let [x, y] = [self.x(cell.column as f64 + 0.5), self.y(cell.row as f64 + 0.5) + 4.0].map(number);
            let value = self.heat.value_text(cell.value);
            html!("<text class=\"ht{}\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", cell.step, x, y, value)
        };
        let [x, y, width, height] = self.inside(cell.row, cell.column, gap).map(number);
        let colour =
            html!("class=\"h{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", cell.step, x, y, width, height);
        let text = (self.side >= MIN_CELL_SIZE_FOR_TEXT).then(text);
        html!("<rect {}><title>{}</title></rect>{}", colour, self.heat.cell_text(cell), text)
    }

    /// The frame of a cell that is best or as good: inside the cell, since its neighbour may have one too, and in the colour of
    /// its text, which contrasts with the cell's.
    fn frame(&self, cell: &HeatCell) -> Option<Markup> {
        let (class, _) = cell.standing.labels()?;
        let class = format!("{class} ht{}", cell.step);
        let [x, y, width, height] = self.inside(cell.row, cell.column, FRAME_INSET);
        Some(html!(
            "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            class,
            x,
            y,
            width,
            height
        ))
    }

    /// Names of rows and columns, as many as there is room for, and what they are.
    fn axes(&self) -> Markup {
        let mut svg = Markup::new();
        let end = self.y(self.heat.rows.len() as f64);
        let step = |min_spacing: f64, size: f64| ((min_spacing / size).ceil() as usize).max(1);
        for (index, name) in self.heat.rows.iter().enumerate().step_by(step(MIN_NAMED_HEIGHT, self.row_height)) {
            let (x, y) = (self.left - 8.0, self.y(index as f64 + 0.5) + 4.0);
            svg.push(html!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", x, y, name));
        }
        let column_step = step(widest(&self.heat.columns) + CHARACTER_WIDTH, self.side);
        for (index, name) in self.heat.columns.iter().enumerate().step_by(column_step) {
            let (x, y) = (self.x(index as f64 + 0.5), end + 18.0);
            svg.push(html!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", x, y, name));
        }
        let (caption, label) = (self.heat.column_caption(), &self.heat.row_label);
        svg.push(html!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", self.left, end + 38.0, caption));
        let rotation = html!("transform=\"translate(16 {:.1}) rotate(-90)\"", f64::midpoint(TOP, end));
        svg.push(html!("<text {} text-anchor=\"middle\">{}</text>", rotation, label));
        svg
    }
}

/// The width of the widest name.
fn widest(names: &[String]) -> f64 {
    names.iter().map(|name| text_width(name)).fold(0.0, f64::max)
}

/// A heat map; in a file with the legend below it.
pub(super) fn draw(heat: &Heat, title: impl Fn(f64) -> (Markup, f64)) -> SvgDrawing {
    let grid = HeatGrid::new(heat);
    let (width, height) = (grid.width(), grid.height());
    let (legend, legend_height) = legend(heat, grid.left, height);
    let file_width = width.max(WIDTH);
    let (title, title_height) = title(file_width);
    let file_size = (file_width, title_height + height + legend_height);
    SvgDrawing { body: grid.body(), width, height, file_extras: html!("{}{}", title, legend), title_height, file_size }
}

/// What the legend explains: the colours with their ranges, the frames that are drawn, and cells without a value.
pub(crate) fn color_explanations(heat: &Heat) -> Vec<(String, &str)> {
    let colours = heat.steps.iter().enumerate().map(|(step, label)| (format!("h{step}"), label.as_str()));
    let is_drawn = |standing: &CellRank| heat.cells.iter().any(|cell| cell.standing == *standing);
    let frames = [(CellRank::Best, "best"), (CellRank::AsGood, "as good: no significant difference from the best")];
    let frames = frames.into_iter().filter(|(standing, _)| is_drawn(standing));
    let frames = frames.filter_map(|(standing, label)| Some((standing.labels()?.0.to_owned(), label)));
    let unmeasured = (!heat.unmeasured.is_empty()).then(|| ("unmeasured".to_owned(), "not measured"));
    colours.chain(frames).chain(unmeasured).collect()
}

/// Items of the legend in a line.
const LEGEND_COLUMNS: usize = 4;
/// Height of a line of the legend.
const LEGEND_LINE_HEIGHT: f64 = 20.0;

/// The legend below a heat map that begins and ends here, in as many columns as a file has room for; and its height.
fn legend(heat: &Heat, left: f64, end: f64) -> (Markup, f64) {
    let entries = color_explanations(heat);
    let height = 14.0 + entries.len().div_ceil(LEGEND_COLUMNS) as f64 * LEGEND_LINE_HEIGHT;
    let width = (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS as f64;
    let item = |(index, (class, label)): (usize, (String, &str))| {
        let x = left + (index % LEGEND_COLUMNS) as f64 * width;
        let y = end + (index / LEGEND_COLUMNS) as f64 * LEGEND_LINE_HEIGHT + 4.0;
        let colour = html!("<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"14\"/>", class, x, y);
        html!("{}<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", colour, x + 20.0, y + 11.5, label)
    };
    (entries.into_iter().enumerate().map(item).collect(), height)
}
