//! Figures as data: the contents of plots and heat maps, and which of them a report has.

mod canaries;
mod curves;
mod groups;
mod heat;
mod knees;
mod named_lines;
mod tails;
mod timeline;

use kelvin_core::Name;
use kelvin_stats::min_max;
use serde::{Serialize, Serializer};

use crate::Report;
pub(crate) use crate::axis::Sig6;
pub use crate::axis::{AxisKind, FigureAxis};
use crate::sections::{Section, sections};

pub use canaries::canary_figure;
pub use heat::{CellRank, Heat, HeatCell};

/// Above this span of values an axis starts out logarithmic.
const LOG_AXIS_RATIO: f64 = 20.0;

/// A figure as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Stable id, usable as a file name: `os.process.fork_rss`.
    pub id: String,
    /// Title.
    pub title: String,
    /// What it shows, in sentences with figures; also for readers who cannot see it.
    pub description: Vec<String>,
    /// The lines of the tables that it shows: metric, and the values of the parameters that single the line out.
    pub shows: Vec<(Name, String)>,
    /// What is drawn.
    pub drawing: Drawing,
}

impl Figure {
    /// Whether it shows this line of a metric.
    pub fn shows_line(&self, metric: Name, line: &str) -> bool {
        self.shows.iter().any(|(id, label)| *id == metric && label == line)
    }

    /// Whether it shows a metric of this area.
    pub fn is_of(&self, area: &str) -> bool {
        self.shows.iter().any(|(metric, _)| metric.split('.').next() == Some(area))
    }
}

/// What is drawn: lines over two axes, or a coloured grid.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawing {
    /// Series of points over a numeric axis.
    Plot(Plot),
    /// A value for each pair of a row and a column, as a colour.
    Heat(Heat),
}

/// Series of points over a numeric axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Horizontal axis.
    pub x: FigureAxis,
    /// Vertical axis.
    pub y: FigureAxis,
    /// Horizontal lines and bands: the range of an undisturbed batch.
    pub guides: Vec<Guide>,
    /// Vertical lines with their names: where a cache ends.
    pub marks: Vec<Mark>,
    /// The data.
    pub series: Vec<Series>,
}

impl Plot {
    /// Series without guides and marks.
    pub(crate) fn new(x: FigureAxis, y: FigureAxis, series: Vec<Series>) -> Self {
        Self { x, y, guides: Vec::new(), marks: Vec::new(), series }
    }
}

impl Series {
    /// A series of those of these points that can be drawn; `None` where there are none.
    pub(crate) fn new(
        label: impl Into<String>,
        role: SeriesRole,
        style: usize,
        points: impl Iterator<Item = Point>,
    ) -> Option<Self> {
        let points: Vec<Point> = points.filter(Point::is_finite).collect();
        (!points.is_empty()).then(|| Self { label: label.into(), role, style, points })
    }
}

/// A horizontal line with a band around it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Guide {
    /// Label.
    pub label: String,
    /// Lower end of the band.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A vertical line with a band around it: a position on the horizontal axis that is known to within the band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// What ends there, short enough for a label next to the line.
    pub label: String,
    /// Where.
    pub at: f64,
    /// Lower end of the band; `at` itself where it is known exactly.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One series of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Label.
    pub label: String,
    /// What it is, which decides how it is drawn.
    pub role: SeriesRole,
    /// Which colour and marker: a prediction has those of the measurement that it is for.
    pub style: usize,
    /// Its points, by position.
    pub points: Vec<Point>,
}

/// What a series is. Its name in data is that in style sheets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesRole {
    /// Measured: line, markers, interval band.
    Measured,
    /// Predicted: dashed line, band of the predicted range.
    Predicted,
    /// No prediction: a law fitted to the measurements, or their ceiling. Dotted line.
    Fitted,
    /// As found, with too few undisturbed samples for a headline: hollow markers.
    AsFound,
    /// Published by a reference machine: hollow markers.
    Reference,
    /// Over time: a thin line with its spread.
    History,
    /// One measurement each: markers without a line.
    LoadSteps,
}

impl SeriesRole {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Measured, Self::Predicted, Self::Fitted, Self::AsFound, Self::Reference, Self::History, Self::LoadSteps];
}

/// One point with its interval.
///
/// Serialised for drawing: an array of position and value, then low and high where they are not the value itself;
/// fractions have six significant digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Position.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Lower end of its interval or band; the value itself without one.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// All figures of a report: the canaries first, then those of each area in their order.
pub fn figures(report: &Report<'_>) -> Vec<Figure> {
    figures_of_sections(report, &sections(report))
}

/// All figures of a report whose sections are known.
pub(crate) fn figures_of_sections(report: &Report<'_>, sections: &[Section<'_>]) -> Vec<Figure> {
    let areas = sections.iter().flat_map(|section| groups::figures(report, &section.entries));
    canary_figure(report).into_iter().chain(areas).chain(timeline::timeline_figures(report)).collect()
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [x, y, low, high] = [self.x, self.y, self.low, self.high].map(Sig6);
        if self.low == self.y && self.high == self.y {
            [x, y].serialize(serializer)
        } else {
            [x, y, low, high].serialize(serializer)
        }
    }
}

impl Point {
    /// A point without an interval.
    pub(crate) fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    fn is_finite(&self) -> bool {
        [self.x, self.y, self.low, self.high].iter().all(|value| value.is_finite())
    }
}

/// The values of all series.
fn y_values(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|line| line.points.iter().map(|point| point.y))
}

/// Whether positive values are so far apart that a linear axis would hide the small ones.
pub(crate) fn needs_log_axis(values: impl Iterator<Item = f64>) -> bool {
    min_max(values).is_some_and(|(low, high)| low > 0.0 && high / low > LOG_AXIS_RATIO)
}

/// A text as a file name: letters, digits and `.-_=`, anything else a dash.
pub(crate) fn safe_file_name(text: &str) -> String {
    let safe_char = |c: char| if c.is_ascii_alphanumeric() || ".-_=".contains(c) { c } else { '-' };
    text.trim().chars().map(safe_char).collect()
}
