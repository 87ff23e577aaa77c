//! What ladders have in common: rows on one axis of times, its lines, and what the marks mean.

use super::super::path::{self, number};
use super::super::{GridLines, RowLayout, legend_positions, text_at, text_width, wide_and_narrow};
use crate::escape::{Markup, html};
use crate::ladder::LadderAxis;

pub(super) const WIDE_LAYOUT: RowLayout = RowLayout { width: 720.0, names: 172.0, figures: 138.0 };
/// On a phone, where letters must not shrink.
pub(super) const NARROW_LAYOUT: RowLayout = RowLayout { width: 380.0, names: 140.0, figures: 124.0 };

/// Above the rows: the times of the axis.
const TOP: f64 = 24.0;
/// Height of a row, of the range of a prediction, and radius of what was measured.
const ROW_HEIGHT: f64 = 22.0;
pub(super) const RANGE_HEIGHT: f64 = 10.0;
pub(super) const MARK_RADIUS: f64 = 4.5;
/// How much further in a rung begins that continues the one above.
const INDENT_WIDTH: f64 = 12.0;
/// Below the rows: a legend of one line, and how much each line more takes.
const LEGEND_HEIGHT: f64 = 30.0;
const LEGEND_LINE_HEIGHT: f64 = 20.0;

/// Rows on one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct LadderFrame {
    pub axis: LadderAxis,
    pub rows: usize,
    pub layout: RowLayout,
}

/// What a row is of.
pub(super) struct LadderRow<'r> {
    pub label: &'r str,
    /// Whether it continues the row above.
    pub continues: bool,
    pub middle: f64,
    /// The text shown while a pointer rests on it.
    pub hover: String,
    /// How the text behind the axis looks.
    pub class: &'r str,
}

/// Draws a mark of the legend around a place.
pub(super) type LegendMark = fn(f64, f64) -> Markup;

impl LadderFrame {
    /// What is drawn above a legend of these marks, for the inside of a page.
    pub fn inline(
        &self,
        layouts: [RowLayout; 2],
        marks: &[(LegendMark, &str)],
        draw: impl Fn(&Self) -> Markup,
    ) -> Markup {
        wide_and_narrow(layouts, |layout| {
            let frame = Self { layout, ..*self };
            (html!("{}{}", draw(&frame), frame.legend(marks)), frame.height(marks))
        })
    }

    /// The lines of the axis with their times, and the rows, of which some lead to an element.
    pub fn body(&self, rows: impl Iterator<Item = (Option<String>, Markup)>) -> Markup {
        let ticks = self.axis.labels().map(|(share, time)| (self.x_of_share(share), time));
        let bottom = TOP + ROW_HEIGHT * self.rows as f64;
        let lines = GridLines { top: TOP, bottom, labels: TOP - 8.0, right: f64::INFINITY };
        let row = |(target, content)| match target {
            Some(target) => html!("<a href=\"#{}\" tabindex=\"-1\">{}</a>", target, content),
            None => content,
        };
        html!("{}{}", lines.markup(ticks), rows.map(row).collect::<Markup>())
    }

    /// The height with a legend of these marks.
    pub fn height(&self, marks: &[(LegendMark, &str)]) -> f64 {
        let lines = self.legend_positions(marks).last().map_or(0.0, |(_, line)| line);
        TOP + ROW_HEIGHT * self.rows as f64 + LEGEND_HEIGHT + LEGEND_LINE_HEIGHT * lines
    }

    /// Where each mark of a legend begins, and in which line: on a narrow ladder from its edge.
    fn legend_positions(&self, marks: &[(LegendMark, &str)]) -> impl Iterator<Item = (f64, f64)> {
        let RowLayout { width, names, .. } = self.layout;
        let left = if width < WIDE_LAYOUT.width { MARK_RADIUS } else { names };
        legend_positions(left, width + 14.0, marks.iter().map(|(_, text)| 34.0 + text_width(text)))
    }

    /// The middle of a row.
    pub fn row_middle(row: usize) -> f64 {
        TOP + ROW_HEIGHT * (row as f64 + 0.5)
    }

    pub fn x_of(&self, seconds: f64) -> f64 {
        self.x_of_share(self.axis.share(seconds))
    }

    /// Where a share of the axis is.
    fn x_of_share(&self, share: f64) -> f64 {
        let RowLayout { width, names, figures } = self.layout;
        names + share * (width - names - figures)
    }

    /// A row: its label, its marks, and the text behind the axis with its distance from the edge.
    pub fn row(&self, row: &LadderRow<'_>, marks: &Markup, figure_text: (&Markup, f64)) -> Markup {
        let (text, edge_distance) = figure_text;
        let (top, baseline, width) = (number(row.middle - ROW_HEIGHT / 2.0), row.middle + 4.0, self.layout.width);
        let name = text_at(if row.continues { INDENT_WIDTH } else { 0.0 }, baseline, row.label);
        let place = html!("x=\"{}\" y=\"{}\" text-anchor=\"end\"", width - edge_distance, number(baseline));
        let figure = html!("<text class=\"ladder-figure {}\" {}>{}</text>", row.class, place, text);
        let ground = html!("<rect class=\"ladder-row\" y=\"{}\" width=\"{}\" height=\"{}\"/>", top, width, ROW_HEIGHT);
        html!("<g><title>{}</title>{}{}{}{}</g>", row.hover, ground, name, marks, figure)
    }

    /// What the marks mean, below the axis.
    pub fn legend(&self, marks: &[(LegendMark, &str)]) -> Markup {
        let mut legend = Markup::new();
        for ((mark, text), (x, line)) in marks.iter().zip(self.legend_positions(marks)) {
            let y = TOP + ROW_HEIGHT * self.rows as f64 + 18.0 + LEGEND_LINE_HEIGHT * line;
            legend.push(html!("{}{}", mark(x + 6.0, y), text_at(x + 18.0, y + 4.0, text)));
        }
        legend
    }
}

/// The range of a prediction in a legend.
pub(super) fn range_mark(x: f64, y: f64) -> Markup {
    path::element("ladder-range", path::rectangle(x - 8.0, y - RANGE_HEIGHT / 2.0, 16.0, RANGE_HEIGHT))
}

pub(super) fn circle(class: &str, x: f64, y: f64) -> Markup {
    html!("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", class, number(x), number(y), MARK_RADIUS)
}

pub(super) fn diamond(class: &str, x: f64, y: f64) -> Markup {
    let corners = [(x, y - MARK_RADIUS), (x + MARK_RADIUS, y), (x, y + MARK_RADIUS), (x - MARK_RADIUS, y)];
    path::element(class, path::polyline(corners.into_iter()) + "z")
}

/// A circle wide enough to be seen around another one.
pub(super) fn ring(class: &str, x: f64, y: f64) -> Markup {
    html!("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", class, number(x), number(y), MARK_RADIUS + 2.0)
}
