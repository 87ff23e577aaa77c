//! Figures as SVG: standing alone, or inside a page whose style sheet gives the colours.

pub(crate) mod heat;
pub(crate) mod path;

use std::fmt::Write as _;

use crate::figures::{Drawing, Figure, Guide, Mark, Plot, Point, Role, Series};
use crate::palette::{self, HEAT_STEPS, SERIES};
use crate::safe::{Markup, html};
use crate::scale::Scale;
use path::number;

const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 300.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
/// Below the plot: tick labels and the axis' label.
const BOTTOM: f64 = 48.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 20.0;
/// Width of an average character at 12 px; there is nothing to measure text with, so the legend errs on the wide side.
const CHARACTER: f64 = 6.8;

/// Bands of predictions are drawn for this many series; more would hide each other.
const MOST_RANGES: usize = 2;

/// Above this many points a line has no markers.
const MOST_MARKERS: usize = 40;

/// The look of drawings, by the names of the palette's colours.
pub(crate) fn style_sheet() -> String {
    let series: String = (0..SERIES).map(|n| format!(".s{n}{{stroke:var(--s{n});fill:var(--s{n})}}")).collect();
    let heat = |n| format!(".h{n}{{fill:var(--h{n})}}text.ht{n}{{fill:var(--ht{n})}}rect.ht{n}{{stroke:var(--ht{n})}}");
    let heat: String = (0..HEAT_STEPS).map(heat).collect();
    // Of two rules for one element the later holds.
    series + include_str!("../assets/drawing.css") + &heat
}

/// A figure as a file of its own, with title, colours and a white ground.
pub fn standalone(figure: &Figure) -> String {
    let title = 26.0;
    let (drawn, height) = match &figure.drawing {
        Drawing::Plot(plot) => (body(plot), plot_height(plot)),
        Drawing::Heat(heat) => {
            (html!("{}{}", heat::body(heat), heat::legend(heat)), heat::height(heat) + heat::legend_height(heat))
        }
    };
    let height = height + title;
    html!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" viewBox=\"0 0 {} {}\" width=\"{0}\" height=\"{1}\" \
         role=\"img\"><title>{}</title><desc>{}</desc><style>{}</style><rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/><text class=\"title\" x=\"12\" y=\"22\">{}</text><g transform=\"translate(0 {})\">{}</g></svg>\n",
        WIDTH,
        height,
        figure.title,
        figure.description.join(" "),
        palette::light(&style_sheet()),
        format!("{}: {}", figure.id, figure.title),
        title,
        drawn
    )
    .into_string()
}

/// A figure for the inside of a page: classes, no colours; the page has the legend of a heat map, and the description.
pub(crate) fn inline(figure: &Figure) -> Markup {
    let (drawn, height) = match &figure.drawing {
        Drawing::Plot(plot) => (body(plot), plot_height(plot)),
        Drawing::Heat(heat) => (heat::body(heat), heat::height(heat)),
    };
    html!(
        "<svg class=\"drawing\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
        WIDTH,
        height,
        figure.title,
        drawn
    )
}

fn plot_height(plot: &Plot) -> f64 {
    let lines = legend(plot).last().map_or(0.0, |item| item.line as f64 + 1.0);
    TOP + PLOT_HEIGHT + BOTTOM + lines * LEGEND_LINE
}

/// The two axes of a figure in the drawing's coordinates.
struct Frame {
    x: Scale,
    y: Scale,
}

impl Frame {
    fn of(plot: &Plot) -> Self {
        let points = || plot.series.iter().flat_map(|series| &series.points);
        // Intervals and predictions' values are to be seen whole; the range around a prediction may leave the frame.
        let ends = |series: &Series, point: &Point| match series.role {
            Role::Predicted => [point.y, point.y],
            _ => [point.low, point.high],
        };
        let guides = plot.guides.iter().flat_map(|guide| [guide.low, guide.high]);
        let values =
            plot.series.iter().flat_map(|series| series.points.iter().flat_map(move |point| ends(series, point)));
        let values: Vec<f64> = values.chain(guides).filter(|value| !plot.y.logarithmic || *value > 0.0).collect();
        Self {
            x: Scale::over(points().map(|point| point.x), &plot.x, 0.02),
            y: Scale::over(values.iter().copied(), &plot.y, 0.05),
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.at(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.y.at(value)) * PLOT_HEIGHT
    }
}

fn body(plot: &Plot) -> Markup {
    let frame = Frame::of(plot);
    let mut svg = Markup::new();
    for guide in &plot.guides {
        draw_guide(&mut svg, &frame, guide);
    }
    axes(&mut svg, &frame, plot);
    for mark in &plot.marks {
        draw_mark(&mut svg, &frame, mark);
    }
    let ranges = plot.series.iter().filter(|series| series.role == Role::Predicted).count() <= MOST_RANGES;
    for series in &plot.series {
        draw_band(&mut svg, &frame, series, ranges);
    }
    for series in &plot.series {
        draw_series(&mut svg, &frame, series);
    }
    draw_legend(&mut svg, plot);
    svg
}

fn draw_guide(svg: &mut Markup, frame: &Frame, guide: &Guide) {
    let (top, bottom) = (frame.y(guide.high), frame.y(guide.low));
    let (width, height) = (WIDTH - LEFT - RIGHT, bottom - top);
    svg.push(html!(
        "<path class=\"guide\" d=\"{}\"><title>{}</title></path>",
        path::rectangle(LEFT, top, width, height),
        guide.label
    ));
}

/// A vertical line with its band, and its name above it.
fn draw_mark(svg: &mut Markup, frame: &Frame, mark: &Mark) {
    let (x, from, to) = (frame.x(mark.at), frame.x(mark.low), frame.x(mark.high));
    let bottom = TOP + PLOT_HEIGHT;
    svg.push(html!(
        "<path class=\"guide\" d=\"{}\"/><path class=\"mark-line\" d=\"{}V{}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        path::rectangle(from, TOP, to - from, PLOT_HEIGHT),
        path::begin(x, TOP),
        bottom,
        number(x),
        TOP - 3.0,
        mark.label
    ));
}

/// The grid as one path, and the labels of its lines.
fn axes(svg: &mut Markup, frame: &Frame, plot: &Plot) {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
    let (mut grid, mut beside, mut below) = (String::new(), Markup::new(), Markup::new());
    for tick in frame.y.ticks() {
        let y = TOP + (1.0 - tick.at) * PLOT_HEIGHT;
        let _ = write!(grid, "{}H{right}", path::begin(LEFT, y));
        beside.push(html!("<text x=\"{}\" y=\"{}\">{}</text>", LEFT - 8.0, number(y + 4.0), tick.label));
    }
    let mut free_from = 0.0;
    for tick in frame.x.ticks() {
        let x = LEFT + tick.at * (right - LEFT);
        let half = tick.label.chars().count() as f64 * CHARACTER / 2.0;
        let _ = write!(grid, "{}V{bottom}", path::begin(x, TOP));
        // A label that would touch the one before it is left out; its grid line stays.
        if x - half >= free_from {
            below.push(html!("<text x=\"{}\" y=\"{}\">{}</text>", number(x), bottom + 18.0, tick.label));
            free_from = x + half + CHARACTER;
        }
    }
    svg.push(html!(
        "<path class=\"grid\" d=\"{}\"/><path class=\"axis\" d=\"M{} {}H{}\"/>\
         <g text-anchor=\"middle\">{}</g><g text-anchor=\"end\">{}<text x=\"{3}\" y=\"{}\">{}</text></g>",
        grid,
        LEFT,
        bottom,
        right,
        below,
        beside,
        bottom + 38.0,
        plot.x.label
    ));
}

/// The interval band of measured points, the range of predictions, the spread of a history.
fn draw_band(svg: &mut Markup, frame: &Frame, series: &Series, ranges: bool) {
    let class = match series.role {
        Role::Measured | Role::History => "band",
        Role::Predicted if ranges => "range",
        _ => return,
    };
    if series.points.iter().all(|point| point.low == point.high) {
        return;
    }
    if let [point] = series.points[..] {
        // A band of one point would have no width: a bar as wide as a marker is.
        let (x, low, high) = (frame.x(point.x) - 5.0, frame.y(point.low), frame.y(point.high));
        let bar = path::rectangle(x, high, 10.0, low - high);
        svg.push(html!("<path class=\"{} {}\" d=\"{}\"/>", class, style(series), bar));
        return;
    }
    let bands: String = runs(series).map(|run| band(frame, run)).collect();
    svg.push(html!("<path class=\"{} {}\" d=\"{}\"/>", class, style(series), bands));
}

/// Longest gap in a history that its band goes over, as a share of the whole: nobody looked in a longer one.
const LONGEST_GAP: f64 = 0.02;

/// The points of a series between its gaps; only a history has any.
fn runs(series: &Series) -> impl Iterator<Item = &[Point]> {
    let (first, last) = (series.points.first(), series.points.last());
    let length = first.zip(last).map_or(0.0, |(first, last)| last.x - first.x);
    let most = if series.role == Role::History { LONGEST_GAP * length } else { f64::INFINITY };
    series.points.chunk_by(move |a, b| b.x - a.x <= most)
}

/// The band around neighbouring points; around one alone a bar as narrow as can be seen.
fn band(frame: &Frame, points: &[Point]) -> String {
    if let [point] = points {
        let (low, high) = (frame.y(point.low), frame.y(point.high));
        return path::rectangle(frame.x(point.x) - 1.0, high, 2.0, low - high);
    }
    let upper = points.iter().map(|point| (point.x, point.high));
    let lower = points.iter().rev().map(|point| (point.x, point.low));
    path::line(upper.chain(lower).map(|(x, y)| (frame.x(x), frame.y(y)))) + "z"
}

fn draw_series(svg: &mut Markup, frame: &Frame, series: &Series) {
    let style = style(series);
    let line = match series.role {
        Role::Measured => Some("line"),
        Role::Predicted => Some("line predicted"),
        Role::Fitted => Some("line fitted"),
        Role::History => Some("line thin"),
        Role::AsFound | Role::Reference => None,
    };
    if let Some(class) = line {
        let line = match series.points[..] {
            // A line of one point would not be seen: a dash as wide as a marker is.
            [point] if series.role == Role::Predicted => path::begin(frame.x(point.x) - 8.0, frame.y(point.y)) + "h16",
            _ => path::line(places(frame, series)),
        };
        svg.push(html!("<path class=\"{} {}\" d=\"{}\"/>", class, style, line));
    }
    let marked = match series.role {
        Role::Measured => series.points.len() <= MOST_MARKERS,
        Role::AsFound | Role::Reference => true,
        Role::Predicted | Role::Fitted | Role::History => false,
    };
    if marked {
        svg.push(markers(series, places(frame, series)));
    }
}

/// Where the points of a series lie.
fn places(frame: &Frame, series: &Series) -> impl Iterator<Item = (f64, f64)> {
    series.points.iter().map(|point| (frame.x(point.x), frame.y(point.y)))
}

fn style(series: &Series) -> String {
    format!("s{}", series.style % SERIES)
}

/// Shapes of markers.
const SHAPES: usize = 4;

/// The shape of a series: it goes with the colour, and is another one where the colours begin anew.
fn shape(style: usize) -> usize {
    (style + style / SERIES) % SHAPES
}

/// The markers of a series, as one path; hollow where the value is no headline or not ours.
fn markers(series: &Series, places: impl Iterator<Item = (f64, f64)>) -> Markup {
    let is_hollow = matches!(series.role, Role::AsFound | Role::Reference);
    let shape = shape(series.style);
    let class = match (is_hollow, shape) {
        (true, _) => "hollow ",
        (false, 0) => "dot ",
        (false, _) => "",
    };
    let r = if is_hollow { 4.0 } else { 3.0 };
    let outline = |(x, y): (f64, f64)| match shape {
        0 if is_hollow => path::begin(x - r, y) + &format!("a{r} {r} 0 1 0 {w} 0a{r} {r} 0 1 0-{w} 0z", w = 2.0 * r),
        0 => path::dot(x, y),
        1 => path::begin(x - r, y - r) + &format!("h{w}v{w}h-{w}z", w = 2.0 * r),
        2 => path::begin(x, y - r - 0.5) + &format!("l{} {}h-{}z", r + 0.5, 2.0 * r, 2.0 * r + 1.0),
        _ => path::begin(x, y - r - 1.0) + &format!("l{w} {w}-{w} {w}-{w}-{w}z", w = r + 1.0),
    };
    let outlines: String = places.map(outline).collect();
    html!("<path class=\"{}{}\" d=\"{}\"/>", class, style(series), outlines)
}

/// An item of the legend: which series, and where its text begins.
struct LegendItem {
    series: usize,
    x: f64,
    line: usize,
}

/// The items of the legend, in lines as wide as the figure; a single series needs none.
fn legend(plot: &Plot) -> Vec<LegendItem> {
    if plot.series.len() < 2 {
        return Vec::new();
    }
    let (mut x, mut line) = (LEFT, 0);
    let mut items = Vec::new();
    for (series, of) in plot.series.iter().enumerate() {
        let width = 34.0 + of.label.chars().count() as f64 * CHARACTER + 14.0;
        if x > LEFT && x + width > WIDTH - RIGHT {
            (x, line) = (LEFT, line + 1);
        }
        items.push(LegendItem { series, x, line });
        x += width;
    }
    items
}

fn draw_legend(svg: &mut Markup, plot: &Plot) {
    for item in legend(plot) {
        let series = &plot.series[item.series];
        let y = TOP + PLOT_HEIGHT + BOTTOM + item.line as f64 * LEGEND_LINE + 8.0;
        svg.push(swatch(series, item.x, y));
        svg.push(html!("<text x=\"{}\" y=\"{}\">{}</text>", number(item.x + 34.0), y + 4.0, series.label));
    }
}

/// A short piece of a series' line with its marker, 26 wide.
fn swatch(series: &Series, x: f64, y: f64) -> Markup {
    let style = style(series);
    let line = |class: &str| html!("<path class=\"{} {}\" d=\"{}h26\"/>", class, style, path::begin(x, y));
    let marker = markers(series, std::iter::once((x + 13.0, y)));
    match series.role {
        Role::Measured => html!("{}{}", line("line"), marker),
        Role::Predicted => line("line predicted"),
        Role::Fitted => line("line fitted"),
        Role::History => line("line thin"),
        Role::AsFound | Role::Reference => marker,
    }
}

/// The swatch of a series as a small picture of its own, for the legend of a page.
pub(crate) fn swatch_icon(series: &Series) -> Markup {
    html!(
        "<svg class=\"swatch\" viewBox=\"0 0 30 12\" width=\"30\" height=\"12\" aria-hidden=\"true\">{}</svg>",
        swatch(series, 2.0, 6.0)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn as_many_series_as_colours_times_shapes_can_be_told_apart() {
        let looks: BTreeSet<(usize, usize)> =
            (0..SERIES * SHAPES).map(|style| (style % SERIES, shape(style))).collect();
        assert_eq!(looks.len(), SERIES * SHAPES);
    }
}
