//! How a plot is drawn, decided once for the page's drawing, its chart and the files of `--assets`.

use serde::Serialize;

use crate::figures::{AxisKind, FigureAxis, Guide, Mark, Plot, Point, Series, SeriesRole};
use crate::palette::SERIES_COLORS;
use crate::scale::AxisScaling;

/// Maximum lines with prediction bands; more would hide each other.
pub(crate) const MAX_PREDICTED_BANDS: usize = 2;

/// Above this many points a line has no markers.
const MAX_MARKED_POINTS: usize = 60;

/// Longest gap in a history that its band covers, as a share of the whole: a longer one was not observed.
const MAX_GAP: f64 = 0.02;

/// A plot with everything decided that does not depend on its size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PlotLayout<'p> {
    pub x: PlotAxis<'p>,
    pub y: PlotAxis<'p>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub guides: &'p [Guide],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub marks: &'p [Mark],
    pub lines: Vec<PlotLine<'p>>,
}

/// An axis in both of its forms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PlotAxis<'p> {
    pub label: &'p str,
    pub kind: AxisKind,
    /// Whether it starts out logarithmic.
    pub log: bool,
    pub linear: AxisScaling,
    /// `None` where nothing is positive.
    pub logarithmic: Option<AxisScaling>,
}

/// A series as it is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PlotLine<'p> {
    pub label: &'p str,
    /// What it is, which decides its [`LineStyle`].
    pub role: SeriesRole,
    /// Number of its colour.
    pub color: usize,
    /// Its marker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker: Option<Marker>,
    /// Whether it has a band.
    #[serde(skip)]
    pub band: bool,
    /// Points before which its band has a gap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<usize>,
    pub points: &'p [Point],
}

/// The marker of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Marker {
    Circle,
    Rect,
    Triangle,
    Diamond,
    /// Instead of a line of no length.
    Dash,
}

const MARKER_SHAPES: [Marker; 4] = [Marker::Circle, Marker::Rect, Marker::Triangle, Marker::Diamond];

/// How all lines of a role look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct LineStyle {
    /// Width of the line; no line where it is 0.
    pub width: f64,
    /// Lengths of dashes and gaps; none for a line without.
    pub dash: &'static [f64],
    /// Whether dashes end round.
    pub round: bool,
    /// Whether markers are hollow: no headline, or not of this run.
    pub hollow: bool,
    /// How opaque the band is; no band where it is 0.
    pub band: f64,
}

impl LineStyle {
    pub fn for_role(role: SeriesRole) -> Self {
        let line = Self { width: 2.0, dash: &[], round: false, hollow: false, band: 0.0 };
        match role {
            SeriesRole::Measured => Self { band: 0.18, ..line },
            SeriesRole::Predicted => Self { width: 1.6, dash: &[6.0, 4.0], band: 0.09, ..line },
            SeriesRole::Fitted => Self { width: 2.6, dash: &[0.1, 5.0], round: true, ..line },
            SeriesRole::AsFound | SeriesRole::Reference => Self { width: 0.0, hollow: true, ..line },
            SeriesRole::LoadSteps => Self { width: 0.0, ..line },
            SeriesRole::History => Self { width: 1.2, band: 0.18, ..line },
        }
    }
}

impl<'p> PlotLayout<'p> {
    pub fn new(plot: &'p Plot) -> Self {
        let points = || plot.series.iter().flat_map(|series| series.points.iter().map(|point| (series.role, point)));
        // Intervals and predicted values are in the frame; the range around a prediction may leave it.
        let ends = |(role, point): (SeriesRole, &Point)| match role {
            SeriesRole::Predicted => [point.y, point.y],
            _ => [point.low, point.high],
        };
        let x: Vec<f64> = points().map(|(_, point)| point.x).collect();
        let guides = plot.guides.iter().map(|guide| [guide.low, guide.high]);
        let y: Vec<f64> = points().map(ends).chain(guides).flatten().collect();
        // An interval that reaches zero leaves a logarithmic axis; a position at zero has its place.
        let positive: Vec<f64> = y.iter().copied().filter(|value| *value > 0.0).collect();
        Self {
            x: PlotAxis::new(&plot.x, [&x, &x], 0.02),
            y: PlotAxis::new(&plot.y, [&y, &positive], 0.05),
            guides: &plot.guides,
            marks: &plot.marks,
            lines: plot.series.iter().map(PlotLine::new).collect(),
        }
    }

    /// Whether a line has a band that is drawn among all the others.
    pub fn shows_band(&self, line: &PlotLine<'_>) -> bool {
        let ranges = || self.lines.iter().filter(|line| line.role == SeriesRole::Predicted).count();
        line.band && (line.role != SeriesRole::Predicted || ranges() <= MAX_PREDICTED_BANDS)
    }
}

impl<'p> PlotAxis<'p> {
    /// An axis over values, and over those that it shows where it is logarithmic.
    fn new(axis: &'p FigureAxis, [values, logarithmic]: [&[f64]; 2], padding: f64) -> Self {
        let linear = AxisScaling::linear(values, axis, padding);
        let logarithmic = AxisScaling::logarithmic(logarithmic, axis, padding);
        let log = axis.logarithmic && logarithmic.is_some();
        Self { label: &axis.label, kind: axis.kind, log, linear, logarithmic }
    }

    /// Its initial form.
    pub fn scale(&self) -> &AxisScaling {
        self.logarithmic.as_ref().filter(|_| self.log).unwrap_or(&self.linear)
    }
}

impl<'p> PlotLine<'p> {
    fn new(series: &'p Series) -> Self {
        Self {
            label: &series.label,
            role: series.role,
            color: series.style % SERIES_COLORS,
            marker: marker(series),
            band: LineStyle::for_role(series.role).band > 0.0
                && series.points.iter().any(|point| point.low != point.high),
            gaps: gaps(series),
            points: &series.points,
        }
    }

    /// The points between the gaps.
    pub fn segments(&self) -> impl Iterator<Item = &'p [Point]> {
        let ends = self.gaps.iter().copied().chain([self.points.len()]);
        let starts = [0].into_iter().chain(self.gaps.iter().copied());
        let points = self.points;
        starts.zip(ends).map(|(start, end)| &points[start..end])
    }
}

/// The shape goes with the colour, and changes when the colours repeat.
fn marker_shape(style: usize) -> Marker {
    MARKER_SHAPES[(style + style / SERIES_COLORS) % MARKER_SHAPES.len()]
}

fn marker(series: &Series) -> Option<Marker> {
    match (series.role, series.points.len()) {
        (SeriesRole::Predicted, 1) => Some(Marker::Dash),
        (SeriesRole::Measured, 0..=MAX_MARKED_POINTS)
        | (SeriesRole::AsFound | SeriesRole::Reference | SeriesRole::LoadSteps, _) => Some(marker_shape(series.style)),
        _ => None,
    }
}

/// The points after long unobserved gaps; only a history has any.
fn gaps(series: &Series) -> Vec<usize> {
    let (SeriesRole::History, Some(first), Some(last)) = (series.role, series.points.first(), series.points.last())
    else {
        return Vec::new();
    };
    let max_gap = MAX_GAP * (last.x - first.x);
    (1..series.points.len()).filter(|&i| series.points[i].x - series.points[i - 1].x > max_gap).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn colors_and_shapes_distinguish_series() {
        let styles: BTreeSet<(usize, Marker)> = (0..SERIES_COLORS * MARKER_SHAPES.len())
            .map(|style| (style % SERIES_COLORS, marker_shape(style)))
            .collect();
        assert_eq!(styles.len(), SERIES_COLORS * MARKER_SHAPES.len());
    }

    #[test]
    fn many_predicted_bands_are_hidden() {
        let axis = || FigureAxis { label: "a".into(), kind: AxisKind::Number, logarithmic: false, from_zero: false };
        let series = |role, style| {
            let point = |x: f64| Point { x, y: 2.0, low: 1.0, high: 3.0 };
            Series { label: "a".into(), role, style, points: vec![point(1.0), point(2.0)] }
        };
        let is_banded = |predicted: usize, measured: SeriesRole| {
            let all_series =
                (0..predicted).map(|style| series(SeriesRole::Predicted, style)).chain([series(measured, 0)]);
            let plot =
                Plot { x: axis(), y: axis(), guides: Vec::new(), marks: Vec::new(), series: all_series.collect() };
            let picture = PlotLayout::new(&plot);
            picture.lines.iter().any(|line| picture.shows_band(line))
        };
        assert!(
            is_banded(MAX_PREDICTED_BANDS, SeriesRole::AsFound)
                && !is_banded(MAX_PREDICTED_BANDS + 1, SeriesRole::AsFound)
        );
        assert!(is_banded(MAX_PREDICTED_BANDS + 1, SeriesRole::Measured));
    }
}
