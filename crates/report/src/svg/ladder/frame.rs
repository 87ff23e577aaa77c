//! What ladders have in common: rows on one axis of times, its lines, and what the marks mean.

use super::super::CHARACTER;
use super::super::path::{self, number};
use crate::ladder::Axis;
use crate::safe::{Markup, html};

/// How wide a ladder is, with the room for its names and for the figures behind the axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub width: f64,
    pub names: f64,
    pub figures: f64,
}

pub(super) const WIDE: Layout = Layout { width: 720.0, names: 172.0, figures: 138.0 };
/// On a phone, where letters must not shrink.
pub(super) const NARROW: Layout = Layout { width: 380.0, names: 140.0, figures: 124.0 };

/// Above the rows: the times of the axis.
const TOP: f64 = 24.0;
/// Height of a row, of the range of a prediction, and radius of what was measured.
const ROW: f64 = 22.0;
pub(super) const RANGE: f64 = 10.0;
pub(super) const RADIUS: f64 = 4.5;
/// How much further in a rung begins that continues the one above.
const INDENT: f64 = 12.0;
/// Below the rows: a legend of one line, and how much each line more takes.
const LEGEND: f64 = 30.0;
const LEGEND_LINE: f64 = 20.0;

/// Rows on one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub axis: Axis,
    pub rows: usize,
    pub layout: Layout,
}

/// What a row is of.
pub(super) struct Row<'r> {
    pub what: &'r str,
    /// Whether it continues the row above.
    pub continues: bool,
    pub middle: f64,
    /// What a pointer that rests on it is told.
    pub hover: String,
    /// How the text behind the axis looks.
    pub class: &'r str,
}

/// A mark of the legend.
pub(super) enum Mark {
    Range,
    Line(&'static str),
    Circle(&'static str),
    Diamond(&'static str),
    /// A circle around what another mark shows.
    Ring(&'static str),
}

impl Frame {
    /// What is drawn in it above a legend of these marks, for the inside of a page.
    pub fn inline(&self, class: &str, drawn: &Markup, marks: &[(Mark, &str)]) -> Markup {
        html!(
            "<svg class=\"drawing {}\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\">{}</svg>",
            class,
            self.layout.width,
            number(self.height(marks)),
            html!("{}{}", drawn, self.legend(marks))
        )
    }

    /// The height with a legend of these marks.
    pub fn height(&self, marks: &[(Mark, &str)]) -> f64 {
        let lines = self.places(marks).last().map_or(0.0, |(_, line)| line);
        TOP + ROW * self.rows as f64 + LEGEND + LEGEND_LINE * lines
    }

    /// Where each mark of a legend begins, and in which line: on a narrow ladder from its edge, in as many lines as it takes.
    fn places<'m>(&self, marks: &'m [(Mark, &str)]) -> impl Iterator<Item = (f64, f64)> + 'm {
        let Layout { width: most, names, .. } = self.layout;
        let left = if most < WIDE.width { RADIUS } else { names };
        let (mut next, mut line) = (left, 0.0);
        marks.iter().map(move |(_, text)| {
            let width = 34.0 + text.chars().count() as f64 * CHARACTER;
            if next > left && next + width > most + 14.0 {
                (next, line) = (left, line + 1.0);
            }
            let x = next;
            next += width;
            (x, line)
        })
    }

    /// The middle of a row.
    pub fn middle(row: usize) -> f64 {
        TOP + ROW * (row as f64 + 0.5)
    }

    pub fn across(&self, seconds: f64) -> f64 {
        self.place(self.axis.share(seconds))
    }

    /// Where a share of the axis is.
    fn place(&self, share: f64) -> f64 {
        let Layout { width, names, figures } = self.layout;
        names + share * (width - names - figures)
    }

    /// The lines of the axis with their times.
    pub fn grid(&self) -> Markup {
        let bottom = TOP + ROW * self.rows as f64;
        let (mut lines, mut times, mut free_from) = (String::new(), Markup::new(), 0.0);
        for (share, time) in self.axis.labelled() {
            let x = self.place(share);
            let half = time.chars().count() as f64 * CHARACTER / 2.0;
            lines.push_str(&format!("{}V{}", path::begin(x, TOP), number(bottom)));
            // A label that would come within a letter of the one before it is left out; its line stays.
            if x - half >= free_from {
                times.push(html!("<text x=\"{}\" y=\"{}\">{}</text>", number(x), TOP - 8.0, time));
                free_from = x + half + CHARACTER;
            }
        }
        html!("<path class=\"grid\" d=\"{}\"/><g text-anchor=\"middle\">{}</g>", lines, times)
    }

    /// A row: what it is of, its marks, and what stands behind the axis, so far from the edge.
    pub fn row(&self, row: &Row<'_>, marks: &Markup, behind: (&Markup, f64)) -> Markup {
        let (text, from_edge) = behind;
        html!(
            "<g><title>{}</title><rect class=\"ladder-row\" y=\"{}\" width=\"{}\" height=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>{}<text class=\"ladder-figure {}\" x=\"{}\" y=\"{5}\" text-anchor=\"end\">{}</text></g>",
            row.hover,
            number(row.middle - ROW / 2.0),
            self.layout.width,
            ROW,
            number(if row.continues { INDENT } else { 0.0 }),
            number(row.middle + 4.0),
            row.what,
            marks,
            row.class,
            self.layout.width - from_edge,
            text
        )
    }

    /// What the marks mean, below the axis.
    pub fn legend(&self, marks: &[(Mark, &str)]) -> Markup {
        let mut legend = Markup::new();
        for ((mark, text), (x, line)) in marks.iter().zip(self.places(marks)) {
            let y = TOP + ROW * self.rows as f64 + 18.0 + LEGEND_LINE * line;
            let shape = match mark {
                Mark::Range => {
                    let shape = path::rectangle(x - 2.0, y - RANGE / 2.0, 16.0, RANGE);
                    html!("<path class=\"ladder-range\" d=\"{}\"/>", shape)
                }
                Mark::Line(class) => {
                    html!("<path class=\"{}\" d=\"{}H{}\"/>", class, path::begin(x - 2.0, y), number(x + 14.0))
                }
                Mark::Circle(class) => circle(class, x + 6.0, y),
                Mark::Diamond(class) => diamond(class, x + 6.0, y),
                Mark::Ring(class) => ring(class, x + 6.0, y),
            };
            legend.push(html!("{}<text x=\"{}\" y=\"{}\">{}</text>", shape, number(x + 18.0), number(y + 4.0), text));
        }
        legend
    }
}

pub(super) fn circle(class: &str, x: f64, y: f64) -> Markup {
    html!("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", class, number(x), number(y), RADIUS)
}

pub(super) fn diamond(class: &str, x: f64, y: f64) -> Markup {
    let corners = [(x, y - RADIUS), (x + RADIUS, y), (x, y + RADIUS), (x - RADIUS, y)];
    html!("<path class=\"{}\" d=\"{}z\"/>", class, path::line(corners.into_iter()))
}

/// A circle wide enough to be seen around another one.
pub(super) fn ring(class: &str, x: f64, y: f64) -> Markup {
    html!("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", class, number(x), number(y), RADIUS + 2.0)
}
