//! Figures as SVG: standalone, or inside a page whose style sheet gives the colours.

pub(crate) mod bars;
pub(crate) mod heat;
pub(crate) mod ladder;
pub(crate) mod path;
pub(crate) mod waterfall;

use kelvin_core::IndirectSort;
use serde::Serialize;

use crate::escape::{HtmlPiece, Markup, html};
use crate::figures::{Drawing, Figure, Guide, Mark, Point, SeriesRole};
use crate::palette::{self, HEAT_COLORS, SERIES_COLORS};
use crate::plot_layout::{LineStyle, Marker, PlotLayout, PlotLine};
use crate::scale::Tick;
use crate::text::{data_name, wrap};
use path::number;

const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 300.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 18.0;
/// Below the plot: tick labels and the axis' label.
const BOTTOM: f64 = 48.0;

/// The margins of a plot, in a drawing and in a chart.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Margins {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

pub(crate) const MARGINS: Margins = Margins { left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM };

/// Height of a line of the legend.
const LEGEND_LINE_HEIGHT: f64 = 20.0;
/// Width of an average character at 12 px, on the wide side, since text cannot be measured here.
pub(crate) const CHARACTER_WIDTH: f64 = 6.8;

/// Widest heat map that a phone shows as a whole: letters of a wider one would be too small to read there.
const MAX_SHRUNK_WIDTH: f64 = 480.0;

/// Half the width of the bar that replaces a band around a single point.
const HALF_WHISKER: f64 = 3.0;

/// The look of drawings, by the names of the palette's colours.
pub(crate) fn style_sheet() -> String {
    let series = (0..SERIES_COLORS).map(|n| format!(".s{n}{{stroke:var(--s{n});fill:var(--s{n})}}"));
    let heat = (0..HEAT_COLORS)
        .map(|n| format!(".h{n}{{fill:var(--h{n})}}text.ht{n}{{fill:var(--ht{n})}}rect.ht{n}{{stroke:var(--ht{n})}}"));
    // Of two rules for one element the later holds.
    let rules = series
        .chain([include_str!("../assets/drawing.css").to_owned()])
        .chain(SeriesRole::ALL.map(role_style))
        .chain(heat);
    rules.collect()
}

/// The rules for lines and bands of a role; those of measured lines hold unless another role's do.
fn role_style(role: SeriesRole) -> String {
    let LineStyle { width, dash, round, band, .. } = LineStyle::for_role(role);
    let dash = if dash.is_empty() { String::new() } else { format!(";stroke-dasharray:{} {}", dash[0], dash[1]) };
    let round = if round { ";stroke-linecap:round" } else { "" };
    let class = if role == SeriesRole::Measured { String::new() } else { format!(".{}", data_name(&role)) };
    format!(".line{class}{{stroke-width:{width}{dash}{round}}}.band{class}{{fill-opacity:{band}}}")
}

/// A text that begins at a place.
pub(crate) fn text_at(x: f64, y: f64, text: impl HtmlPiece) -> Markup {
    html!("<text x=\"{}\" y=\"{}\">{}</text>", number(x), number(y), text)
}

/// A text of which the start, the middle or the end is at a place.
pub(crate) fn anchored_text([x, y]: [f64; 2], anchor: &str, text: impl HtmlPiece) -> Markup {
    html!("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>", number(x), number(y), anchor, text)
}

/// Lines of this height and class, from the baseline of the first one down.
fn title_lines(lines: &[String], [x, top]: [f64; 2], height: f64, class: &str) -> Markup {
    let line = |(index, text): (usize, &String)| {
        let y = number(top + height * index as f64);
        html!("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>", class, x, y, text)
    };
    lines.iter().enumerate().map(line).collect()
}

/// A drawing whose contents the page also has in words or as a table.
pub(crate) fn unlabelled(class: &str, [width, height]: [f64; 2], content: impl HtmlPiece) -> Markup {
    let height = number(height);
    html!("<svg class=\"{}\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\">{}</svg>", class, width, height, content)
}

/// How wide a drawing of rows is, with the room for their names, and for the figures behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLayout {
    pub width: f64,
    pub names: f64,
    pub figures: f64,
}

/// What these layouts have, a wide one and one for a phone, where letters must not shrink: the style sheet shows one of them. A table
/// next to it has its contents for readers who do not see it.
fn wide_and_narrow(layouts: [RowLayout; 2], render: impl Fn(RowLayout) -> (Markup, f64)) -> Markup {
    let drawing = |(class, layout): (&str, RowLayout)| {
        let (content, height) = render(layout);
        unlabelled(class, [layout.width, height], content)
    };
    ["drawing wide", "drawing narrow"].into_iter().zip(layouts).map(drawing).collect()
}

/// A file of its own, with colours and a white ground.
pub(crate) struct SvgFile<'f> {
    pub title: &'f str,
    /// What it shows, for readers who do not see it.
    pub description: Option<String>,
    /// White to the left and right, above, and in all.
    pub margin: f64,
    pub top_margin: f64,
    pub size: [f64; 2],
    pub content: Markup,
}

impl SvgFile<'_> {
    pub(crate) fn text(self) -> String {
        let description = self.description.map(|text| html!("<desc>{}</desc>", text));
        let [left, top, width, height] = [-self.margin, -self.top_margin, self.size[0], self.size[1]].map(number);
        let view = html!("viewBox=\"{} {} {} {}\" width=\"{2}\" height=\"{3}\"", left, top, width, height);
        let head = html!("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" {} role=\"img\">", view);
        let style = html!("<style>{}</style>", palette::with_light_colors(&style_sheet()));
        let ground = html!("<rect x=\"{}\" y=\"{}\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>", left, top);
        let words = html!("<title>{}</title>{}", self.title, description);
        html!("{}{}{}{}{}</svg>\n", head, words, style, ground, self.content).as_str().to_owned()
    }
}

/// Where the lines of a horizontal axis begin and end, and where their labels stand.
pub(crate) struct GridLines {
    pub top: f64,
    pub bottom: f64,
    pub labels: f64,
    /// The right edge, beyond which no label reaches.
    pub right: f64,
}

impl GridLines {
    /// The lines at these places as path data, and their labels. A label that would touch the one before it, or leave the drawing, is left
    /// out; its line stays.
    pub(crate) fn draw(&self, ticks: impl Iterator<Item = (f64, String)>) -> (String, Markup) {
        let (mut lines, mut labels, mut free_x) = (String::new(), Markup::new(), 0.0);
        for (x, label) in ticks {
            lines.push_str(&path::vertical(x, self.top, self.bottom));
            let half = text_width(&label) / 2.0;
            if x - half >= free_x && x + half <= self.right {
                labels.push(text_at(x, self.labels, label));
                free_x = x + half + CHARACTER_WIDTH;
            }
        }
        (lines, labels)
    }

    /// Lines and labels as a part of a drawing.
    pub(crate) fn markup(&self, ticks: impl Iterator<Item = (f64, String)>) -> Markup {
        let (lines, labels) = self.draw(ticks);
        html!("{}<g text-anchor=\"middle\">{}</g>", path::element("grid", lines), labels)
    }
}

/// Height of a line of a file's title, and width of an average character of it, on the wide side.
const TITLE_HEIGHT: f64 = 20.0;
const TITLE_CHARACTER_WIDTH: f64 = 8.2;
/// Between the edge and a title, and below that.
const TITLE_MARGIN: f64 = 12.0;
const TITLE_GAP: f64 = 6.0;

/// The title of a file in as many lines as it takes, above what is drawn from 0 down; and its height.
fn title(figure: &Figure, width: f64) -> (Markup, f64) {
    let columns = ((width - 2.0 * TITLE_MARGIN) / TITLE_CHARACTER_WIDTH) as usize;
    let lines = wrap(&format!("{}: {}", figure.id, figure.title), columns);
    let height = TITLE_HEIGHT * lines.len() as f64 + TITLE_GAP;
    (title_lines(&lines, [TITLE_MARGIN, 0.8 * TITLE_HEIGHT - height], TITLE_HEIGHT, "title"), height)
}

/// A drawing: what a page shows, with its size, and what a file shows in addition, with its own.
struct SvgDrawing {
    body: Markup,
    width: f64,
    height: f64,
    file_extras: Markup,
    /// Height of the title of a file.
    title_height: f64,
    file_size: (f64, f64),
}

fn draw(figure: &Figure) -> SvgDrawing {
    match &figure.drawing {
        Drawing::Plot(plot) => {
            let (body, height) = plot_body(&PlotLayout::new(plot));
            let (file_extras, title_height) = title(figure, WIDTH);
            SvgDrawing {
                body,
                width: WIDTH,
                height,
                file_extras,
                title_height,
                file_size: (WIDTH, title_height + height),
            }
        }
        Drawing::Heat(heat) => heat::draw(heat, |width| title(figure, width)),
    }
}

/// A figure as a file of its own, with title, colours and a white ground; a heat map with its legend.
pub fn standalone(figure: &Figure) -> String {
    let SvgDrawing { body, file_extras, title_height, file_size: (width, height), .. } = draw(figure);
    let (title, description) = (figure.title.as_str(), Some(figure.description.join(" ")));
    SvgFile {
        title,
        description,
        margin: 0.0,
        top_margin: title_height,
        size: [width, height],
        content: html!("{}{}", body, file_extras),
    }
    .text()
}

/// A figure for the inside of a page: classes, no colours; the page has the description. A heat map is drawn once, for the
/// script to make it live, and holds what a file shows of it, which the page hides.
pub(crate) fn inline(figure: &Figure) -> Markup {
    let SvgDrawing { body, width, height, file_extras, title_height, file_size: (file_width, file_height) } =
        draw(figure);
    let title = &figure.title;
    if let Drawing::Plot(_) = figure.drawing {
        return labelled([width, height], title, body);
    }
    let title_top = number(title_height);
    let size = html!(" width=\"{}\" height=\"{}\"", width, height);
    let size = html!("{} data-file=\"0 -{} {} {}\"", size, title_top, file_width, file_height);
    let ground = html!("<rect class=\"in-file\" y=\"-{}\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>", title_top);
    let class = if width > MAX_SHRUNK_WIDTH { "drawing broad" } else { "drawing" };
    let head =
        html!("<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"", class, width, height, title);
    html!("{}{}>{}{}<g class=\"in-file\">{}</g></svg>", head, size, ground, body, file_extras)
}

/// A figure for a page without scripts.
pub(crate) fn still(figure: &Figure) -> Markup {
    let SvgDrawing { body, width, height, .. } = draw(figure);
    labelled([width, height], &figure.title, body)
}

/// A drawing with a name for readers who do not see it.
pub(crate) fn labelled([width, height]: [f64; 2], label: &str, content: impl HtmlPiece) -> Markup {
    let head = html!("class=\"drawing\" viewBox=\"0 0 {} {}\" role=\"img\"", width, height);
    html!("<svg {} aria-label=\"{}\">{}</svg>", head, label, content)
}

/// What a plot draws, and how high it is.
fn plot_body(picture: &PlotLayout<'_>) -> (Markup, f64) {
    let mut svg = Markup::new();
    svg.extend(picture.guides.iter().map(|guide| draw_guide(picture, guide)));
    svg.push(axes(picture));
    let (marks, rows) = draw_marks(picture);
    svg.push(marks);
    // The interval band of measured points, the range of predictions, the spread of a history.
    svg.extend(picture.lines.iter().filter(|line| picture.shows_band(line)).map(|line| {
        let bands = line.segments().map(|points| band_path(picture, points));
        path::element(&classes("band", line), bands.collect::<String>())
    }));
    svg.extend(picture.lines.iter().map(|line| draw_line(picture, line)));
    let (legend, lines) = legend(picture);
    svg.push(legend);
    let height = TOP + PLOT_HEIGHT + BOTTOM + lines * LEGEND_LINE_HEIGHT;
    // The first row of names has its place above the plot; further ones are put on top of it.
    match rows.saturating_sub(1) as f64 * MARK_NAME_HEIGHT {
        0.0 => (svg, height),
        extra_height => {
            (html!("<g transform=\"translate(0 {})\">{}</g>", number(extra_height), svg), height + extra_height)
        }
    }
}

impl PlotLayout<'_> {
    fn x_of(&self, x: f64) -> f64 {
        LEFT + self.x.scale().share_of_value(x) * (WIDTH - LEFT - RIGHT)
    }

    fn y_of(&self, y: f64) -> f64 {
        TOP + (1.0 - self.y.scale().share_of_value(y)) * PLOT_HEIGHT
    }

    /// Where the points of a line lie.
    fn positions(&self, line: &PlotLine<'_>) -> impl Iterator<Item = (f64, f64)> {
        line.points.iter().map(|point| (self.x_of(point.x), self.y_of(point.y)))
    }
}

fn draw_guide(picture: &PlotLayout<'_>, guide: &Guide) -> Markup {
    let (top, bottom) = (picture.y_of(guide.high), picture.y_of(guide.low));
    let band = path::rectangle(LEFT, top, WIDTH - LEFT - RIGHT, bottom - top);
    html!("<path class=\"guide\" d=\"{}\"><title>{}</title></path>", band, guide.label)
}

/// Distance of names that stand above each other.
const MARK_NAME_HEIGHT: f64 = 14.0;

/// Vertical lines with their bands and names, in the order of their places, and how many rows the names take: one that would touch another
/// to its left stands higher.
fn draw_marks(picture: &PlotLayout<'_>) -> (Markup, usize) {
    let mut marks: Vec<&Mark> = picture.marks.iter().collect();
    marks.indirect_sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut row_ends: Vec<f64> = Vec::new();
    let row = |mark: &&Mark| {
        let (x, width) = (picture.x_of(mark.at), text_width(&mark.label));
        let start = match text_anchor(x, width) {
            "start" => x,
            "end" => x - width,
            _ => x - width / 2.0,
        };
        let row = row_ends.iter().position(|end| *end <= start).unwrap_or(row_ends.len());
        row_ends.resize(row_ends.len().max(row + 1), 0.0);
        row_ends[row] = start + width + CHARACTER_WIDTH;
        row
    };
    let rows: Vec<usize> = marks.iter().map(row).collect();
    let count = rows.iter().max().map_or(0, |last| last + 1);
    (marks.into_iter().zip(rows).map(|(mark, row)| draw_mark(picture, mark, row)).collect(), count)
}

/// A vertical line with its band, and its name at its upper end.
fn draw_mark(picture: &PlotLayout<'_>, mark: &Mark, row: usize) -> Markup {
    let [x, from, to] = [mark.at, mark.low, mark.high].map(|end| picture.x_of(end));
    let name = [x, TOP - 3.0 - row as f64 * MARK_NAME_HEIGHT];
    let band = path::element("guide", path::rectangle(from, TOP, to - from, PLOT_HEIGHT));
    let line = path::element("mark-line", path::vertical(x, TOP, TOP + PLOT_HEIGHT));
    html!("{}{}{}", band, line, anchored_text(name, text_anchor(x, text_width(&mark.label)), &mark.label))
}

pub(crate) fn text_width(name: &str) -> f64 {
    name.chars().count() as f64 * CHARACTER_WIDTH
}

/// How a name of this width stands to its place so that it stays within the drawing.
fn text_anchor(x: f64, width: f64) -> &'static str {
    match width / 2.0 {
        half if x - half < 0.0 => "start",
        half if x + half > WIDTH => "end",
        _ => "middle",
    }
}

/// The grid as one path, and the labels of its lines.
fn axes(picture: &PlotLayout<'_>) -> Markup {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
    let (x, y) = (picture.x.scale(), picture.y.scale());
    let y_of = |tick: &Tick| TOP + (1.0 - y.share(tick.position)) * PLOT_HEIGHT;
    let mut grid: String = y.ticks().iter().map(|tick| path::horizontal(LEFT, right, y_of(tick))).collect();
    let labels: Markup = y.ticks().iter().map(|tick| text_at(LEFT - 8.0, y_of(tick) + 4.0, &tick.label)).collect();
    let ticks = x.ticks().iter().map(|tick| (LEFT + x.share(tick.position) * (right - LEFT), tick.label.clone()));
    let (lines, x_labels) = GridLines { top: TOP, bottom, labels: bottom + 18.0, right: f64::INFINITY }.draw(ticks);
    grid.push_str(&lines);
    let axis = path::element("axis", path::horizontal(LEFT, right, bottom));
    let title = text_at(f64::midpoint(LEFT, right), bottom + 38.0, picture.x.label);
    let labels = html!("<g text-anchor=\"middle\">{}{}</g><g text-anchor=\"end\">{}</g>", x_labels, title, labels);
    html!("{}{}{}", path::element("grid", grid), axis, labels)
}

/// The band around neighbouring points; around one alone a bar.
fn band_path(picture: &PlotLayout<'_>, points: &[Point]) -> String {
    if let [point] = points {
        let (low, high) = (picture.y_of(point.low), picture.y_of(point.high));
        return path::rectangle(picture.x_of(point.x) - HALF_WHISKER, high, 2.0 * HALF_WHISKER, low - high);
    }
    let upper = points.iter().map(|point| (point.x, point.high));
    let lower = points.iter().rev().map(|point| (point.x, point.low));
    path::polyline(upper.chain(lower).map(|(x, y)| (picture.x_of(x), picture.y_of(y)))) + "z"
}

fn draw_line(picture: &PlotLayout<'_>, line: &PlotLine<'_>) -> Markup {
    let is_drawn = LineStyle::for_role(line.role).width > 0.0 && line.marker != Some(Marker::Dash);
    let line_path = || path::element(&classes("line", line), path::polyline(picture.positions(line)));
    html!("{}{}", is_drawn.then(line_path), markers(line, picture.positions(line)))
}

fn classes(kind: &str, line: &PlotLine<'_>) -> String {
    let role = if line.role == SeriesRole::Measured { String::new() } else { format!(" {}", data_name(&line.role)) };
    format!("{kind}{role} s{}", line.color)
}

/// The markers of a line, as one path.
fn markers(line: &PlotLine<'_>, positions: impl Iterator<Item = (f64, f64)>) -> Option<Markup> {
    let marker = line.marker?;
    let hollow = LineStyle::for_role(line.role).hollow;
    let class = match marker {
        Marker::Dash => classes("line", line),
        _ if hollow => format!("hollow s{}", line.color),
        Marker::Circle => format!("dot s{}", line.color),
        _ => format!("s{}", line.color),
    };
    let outlines: String = positions.map(|(x, y)| outline(marker, hollow, x, y)).collect();
    Some(path::element(&class, outlines))
}

/// A marker around a place.
fn outline(marker: Marker, hollow: bool, x: f64, y: f64) -> String {
    let r = if hollow { 4.0 } else { 3.0 };
    let w = 2.0 * r;
    match marker {
        Marker::Circle if hollow => path::move_to(x - r, y) + &format!("a{r} {r} 0 1 0 {w} 0a{r} {r} 0 1 0-{w} 0z"),
        Marker::Circle => path::dot_at(x, y),
        Marker::Rect => path::move_to(x - r, y - r) + &format!("h{w}v{w}h-{w}z"),
        Marker::Triangle => path::move_to(x, y - r - 0.5) + &format!("l{} {w}h-{}z", r + 0.5, w + 1.0),
        Marker::Diamond => path::move_to(x, y - r - 1.0) + &format!("l{w} {w}-{w} {w}-{w}-{w}z", w = r + 1.0),
        Marker::Dash => path::move_to(x - 8.0, y) + "h16",
    }
}

/// The legend, in lines as wide as the figure, below the axis; and how many lines it takes. A single line of the plot
/// needs none.
fn legend(picture: &PlotLayout<'_>) -> (Markup, f64) {
    let (mut svg, mut lines) = (Markup::new(), 0.0);
    if picture.lines.len() < 2 {
        return (svg, lines);
    }
    let widths = picture.lines.iter().map(|line| 34.0 + text_width(line.label) + 14.0);
    for (line, (x, row)) in picture.lines.iter().zip(legend_positions(LEFT, WIDTH - RIGHT, widths)) {
        let y = TOP + PLOT_HEIGHT + BOTTOM + row * LEGEND_LINE_HEIGHT + 8.0;
        svg.push(swatch(line, x, y));
        svg.push(text_at(x + 34.0, y + 4.0, line.label));
        lines = row + 1.0;
    }
    (svg, lines)
}

/// Where each entry of a legend begins, and in which line: from the left edge, in as many lines as it takes.
pub(crate) fn legend_positions(
    left: f64,
    right: f64,
    widths: impl Iterator<Item = f64>,
) -> impl Iterator<Item = (f64, f64)> {
    let (mut next, mut line) = (left, 0.0);
    widths.map(move |width| {
        if next > left && next + width > right {
            (next, line) = (left, line + 1.0);
        }
        let x = next;
        next += width;
        (x, line)
    })
}

/// A short piece of a line with its marker, 26 wide.
fn swatch(line: &PlotLine<'_>, x: f64, y: f64) -> Markup {
    let piece = || path::element(&classes("line", line), path::move_to(x, y) + "h26");
    let marker = markers(line, std::iter::once((x + 13.0, y))).filter(|_| line.marker != Some(Marker::Dash));
    html!("{}{}", (LineStyle::for_role(line.role).width > 0.0).then(piece), marker)
}

/// The swatch of a line as a small picture of its own, for the legend of a page.
pub(crate) fn swatch_icon(line: &PlotLine<'_>) -> Markup {
    html!("<svg class=\"swatch\" aria-hidden=\"true\">{}</svg>", swatch(line, 2.0, 6.0))
}
