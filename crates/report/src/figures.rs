//! Which figures a report has, as data: every curve, the canaries' history, and the distribution of any metric.

use kelvin_analysis::{CanaryHistory, MetricResult, Outcome};
use kelvin_model::{AxisScale, Reference, Unit};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use crate::sections::{Curve, CurveSeries, Entry, sections};
use crate::{Report, units, words};

/// Above this span of values an axis starts out logarithmic.
const WIDE_SPAN: f64 = 20.0;

/// Bins over time into which a canary's readings are drawn: about one for every two pixels.
const CANARY_BINS: usize = 360;

/// A figure as data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Stable id, usable as a file name: `os.process.fork_rss`.
    pub id: String,
    /// Title.
    pub title: String,
    /// What is to be seen, in sentences, with its figures; also for those who do not see it.
    pub description: Vec<String>,
    /// Horizontal axis.
    pub x: FigureAxis,
    /// Vertical axis.
    pub y: FigureAxis,
    /// Horizontal lines and bands that the reader needs: the range of an undisturbed batch.
    pub guides: Vec<Guide>,
    /// The data.
    pub series: Vec<Series>,
}

/// An axis of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureAxis {
    /// Label, without the unit.
    pub label: String,
    /// What its numbers are.
    pub kind: AxisKind,
    /// Whether it starts out logarithmic.
    pub logarithmic: bool,
    /// Whether a linear axis of positive values starts at zero, so that heights can be compared; not where the
    /// distance from another value is what counts.
    pub from_zero: bool,
}

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisKind {
    /// Nanoseconds.
    Nanoseconds,
    /// Cycles.
    Cycles,
    /// Hertz.
    Hertz,
    /// Bytes, in binary units.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Operations per second.
    PerSecond,
    /// A pure number.
    Number,
    /// Seconds of the run.
    Seconds,
    /// A share from 0 to 1, written in percent.
    Share,
}

impl From<Unit> for AxisKind {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Nanoseconds => Self::Nanoseconds,
            Unit::Cycles => Self::Cycles,
            Unit::Hertz => Self::Hertz,
            Unit::Bytes => Self::Bytes,
            Unit::BytesPerSecond => Self::BytesPerSecond,
            Unit::PerSecond => Self::PerSecond,
            Unit::Ratio | Unit::Count => Self::Number,
        }
    }
}

impl AxisKind {
    /// The metric unit behind it, if there is one.
    fn unit(self) -> Option<Unit> {
        match self {
            Self::Nanoseconds => Some(Unit::Nanoseconds),
            Self::Cycles => Some(Unit::Cycles),
            Self::Hertz => Some(Unit::Hertz),
            Self::Bytes => Some(Unit::Bytes),
            Self::BytesPerSecond => Some(Unit::BytesPerSecond),
            Self::PerSecond => Some(Unit::PerSecond),
            Self::Number | Self::Seconds | Self::Share => None,
        }
    }

    /// A number in the scale in which it reads best, and the symbol of that scale.
    pub fn scaled(self, value: f64) -> (f64, &'static str) {
        match (self.unit(), self) {
            (Some(unit), _) => {
                let scale = units::scale_for(value, unit);
                (value / scale.factor, scale.symbol)
            }
            (None, Self::Seconds) => (value, "s"),
            (None, Self::Share) => (value * 100.0, "%"),
            (None, _) => (value, ""),
        }
    }

    /// A number of this axis as text, with its unit.
    pub fn text(self, value: f64) -> String {
        let whole = value >= 0.0 && value.fract() == 0.0;
        match (self.unit(), self) {
            (Some(Unit::Bytes), _) if whole => units::bytes(value as u64),
            (Some(unit), _) => units::plain(value, unit),
            (None, Self::Number) if whole => units::count(value as u64),
            (None, Self::Seconds) => units::plain(value * 1e9, Unit::Nanoseconds),
            (None, Self::Share) => units::share(value),
            (None, _) => units::plain(value, Unit::Ratio),
        }
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

/// One series of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Label.
    pub label: String,
    /// What it is, and so how it is drawn.
    pub role: Role,
    /// Which colour and marker: a prediction has those of the measurement that it is for.
    pub style: usize,
    /// Its points, by position.
    pub points: Vec<Point>,
}

/// What a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Measured: line, markers, interval band.
    Measured,
    /// Predicted: dashed line, band of the unremarkable.
    Predicted,
    /// As found, where too few samples were undisturbed for a headline: hollow markers.
    AsFound,
    /// Published by a reference machine: markers of their own.
    Reference,
    /// Over time: a thin line with its spread.
    History,
}

/// One point with its interval.
///
/// Serialised for drawing: an array of position, value, low and high; fractions have seven significant digits.
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

/// All figures of a report: the canaries first, then the curves in their order.
pub fn figures(report: &Report<'_>) -> Vec<Figure> {
    let curves = sections(report).into_iter().flat_map(|section| section.entries).filter_map(|entry| match entry {
        Entry::Curve(curve) => curve_figure(&curve, report.references),
        Entry::Single(_) => None,
    });
    canary_figure(report).into_iter().chain(curves).collect()
}

/// The figure of a curve; `None` where nothing of it was measured.
pub fn curve_figure(curve: &Curve<'_>, references: &[Reference]) -> Option<Figure> {
    let metric = curve.metric;
    let mut series = Vec::new();
    for (style, line) in curve.series.iter().enumerate() {
        series.extend(measured_series(curve, line, style));
    }
    if !series.iter().any(|line| matches!(line.role, Role::Measured | Role::AsFound)) {
        return None;
    }
    series.extend(reference_series(curve, references));
    let x_kind = if curve.axis.scale == AxisScale::Bytes { AxisKind::Bytes } else { AxisKind::Number };
    let y = FigureAxis {
        label: "measured".into(),
        kind: metric.unit.into(),
        logarithmic: spans_wide(&series),
        from_zero: true,
    };
    Some(Figure {
        id: metric.id.to_string(),
        title: metric.summary.to_string(),
        description: describe(curve),
        x: FigureAxis {
            label: curve.axis.label.to_string(),
            kind: x_kind,
            logarithmic: curve.axis.scale != AxisScale::Linear,
            from_zero: true,
        },
        y,
        guides: Vec::new(),
        series,
    })
}

/// The measured, as-found and predicted lines of one series of a curve; those without points are left out.
fn measured_series(curve: &Curve<'_>, line: &CurveSeries<'_>, style: usize) -> Vec<Series> {
    let named = |suffix: &str| match (line.label.is_empty(), suffix.is_empty()) {
        (true, true) => "measured".to_owned(),
        (true, false) => suffix.to_owned(),
        (false, true) => line.label.clone(),
        (false, false) => format!("{}, {suffix}", line.label),
    };
    let measured = line.points.iter().filter_map(|(x, result)| {
        let summary = result.outcome.summary()?;
        let (low, high) = summary.interval.map_or((summary.headline, summary.headline), |i| (i.lower, i.upper));
        Some(Point { x: *x as f64, y: summary.headline, low, high })
    });
    let as_found = line.points.iter().filter_map(|(x, result)| match &result.outcome {
        Outcome::NotKnown(summary) => {
            let figure = summary.as_found;
            let (low, high) = figure.interval.map_or((figure.value, figure.value), |i| (i.lower, i.upper));
            Some(Point { x: *x as f64, y: figure.value, low, high })
        }
        _ => None,
    });
    let predicted = line.points.iter().filter_map(|(x, result)| {
        let prediction = result.prediction.as_ref()?;
        Some(Point { x: *x as f64, y: prediction.value, low: prediction.low, high: prediction.high })
    });
    let series = |label, role, points: Vec<Point>| {
        let points: Vec<Point> = points.into_iter().filter(Point::is_finite).collect();
        (!points.is_empty()).then_some(Series { label, role, style, points })
    };
    debug_assert!(curve.series.len() > style);
    [
        series(named(""), Role::Measured, measured.collect()),
        series(named("as found, too disturbed for a headline"), Role::AsFound, as_found.collect()),
        series(named("predicted"), Role::Predicted, predicted.collect()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Published values of the same quantity; values that span something else are never drawn beside ours.
fn reference_series(curve: &Curve<'_>, references: &[Reference]) -> Vec<Series> {
    let of = |(index, reference): (usize, &Reference)| {
        let comparable = reference.values.iter().filter(|value| {
            value.metric == curve.metric.id && value.spans.is_none() && value.unit == curve.metric.unit
        });
        let mut points: Vec<Point> = comparable
            .filter_map(|value| {
                let x = value.case.integer(&curve.axis.name)? as f64;
                Some(Point { x, y: value.value, low: value.value, high: value.value })
            })
            .filter(Point::is_finite)
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let style = curve.series.len() + index;
        (!points.is_empty()).then(|| Series { label: reference.title.clone(), role: Role::Reference, style, points })
    };
    references.iter().enumerate().filter_map(of).collect()
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let short = |value: f64| match value.fract() {
            0.0 => Ok(value),
            _ => format!("{value:.6e}").parse::<f64>().map_err(S::Error::custom),
        };
        [short(self.x)?, short(self.y)?, short(self.low)?, short(self.high)?].serialize(serializer)
    }
}

impl Point {
    fn is_finite(&self) -> bool {
        [self.x, self.y, self.low, self.high].iter().all(|value| value.is_finite())
    }
}

/// Whether positive values lie so far apart that a linear axis would hide the small ones.
fn spans_wide(series: &[Series]) -> bool {
    let values = || series.iter().flat_map(|line| line.points.iter().map(|point| point.y));
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(0.0, f64::max);
    least > 0.0 && most / least > WIDE_SPAN
}

/// A curve in words: for each series, from what to what it goes, and how it stands to its prediction.
fn describe(curve: &Curve<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for line in &curve.series {
        let measured: Vec<(u64, f64)> =
            line.points.iter().filter_map(|(x, result)| Some((*x, result.outcome.summary()?.headline))).collect();
        let (Some(first), Some(last)) = (measured.first(), measured.last()) else { continue };
        let at = |x: u64| units::axis_value(kelvin_model::Value::Integer(x), curve.axis.scale);
        let name = if line.label.is_empty() { String::new() } else { format!("{}: ", line.label) };
        sentences.push(format!(
            "{name}from {} at {} to {} at {}{}.",
            units::plain(first.1, curve.metric.unit),
            at(first.0),
            units::plain(last.1, curve.metric.unit),
            at(last.0),
            standing(line)
        ));
    }
    if sentences.is_empty() {
        sentences.push("No point came to a number.".into());
    }
    sentences
}

/// How the points of a series stand to their predictions, as the end of a sentence.
fn standing(line: &CurveSeries<'_>) -> String {
    let ratios: Vec<f64> = line.points.iter().filter_map(|(_, result)| result.ratio).collect();
    if ratios.is_empty() {
        return String::new();
    }
    let gaps = line.points.iter().filter(|(_, result)| words::is_gap(result.verdict)).count();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let points = words::plural(ratios.len() as u64, "predicted point");
    let outside = if gaps == 0 { "none".to_owned() } else { gaps.to_string() };
    format!(
        "; {} to {} times the prediction, {outside} of {points} out of range",
        units::ratio(low),
        units::ratio(high)
    )
}

/// The canaries over the run, each relative to its reference: a quiet machine is a flat line at 1.
pub fn canary_figure(report: &Report<'_>) -> Option<Figure> {
    let canaries: Vec<&CanaryHistory> = report
        .analysis
        .canaries
        .iter()
        .filter(|history| !history.points.is_empty() && history.reference > 0.0)
        .collect();
    if canaries.is_empty() {
        return None;
    }
    let mut series = Vec::new();
    let mut sentences = Vec::new();
    for (style, history) in canaries.iter().enumerate() {
        let label = words::canary(history.canary);
        series.push(Series { label: label.into(), role: Role::History, style, points: thinned(history) });
        sentences.push(format!(
            "{label}: {} of readings within {} of {}.",
            units::share(history.steady_share),
            units::share(history.tolerance),
            units::plain(history.reference, Unit::Nanoseconds)
        ));
    }
    let tolerance = canaries.iter().map(|history| history.tolerance).fold(0.0, f64::max);
    let label = format!("undisturbed (±{})", units::share(tolerance));
    Some(Figure {
        id: "canaries".into(),
        title: "How quiet the machine was: canaries over the run".into(),
        description: sentences,
        x: FigureAxis {
            label: "time since the start of the run".into(),
            kind: AxisKind::Seconds,
            logarithmic: false,
            from_zero: true,
        },
        y: FigureAxis {
            label: "canary's time over its reference".into(),
            kind: AxisKind::Number,
            // A single interruption takes a thousand times a canary's time, and must not flatten all the rest.
            logarithmic: true,
            from_zero: false,
        },
        guides: vec![Guide { label, low: 1.0 - tolerance, high: 1.0 + tolerance }],
        series,
    })
}

/// Readings of a canary relative to its reference, in bins over time: the median, with lowest and highest as its band.
fn thinned(history: &CanaryHistory) -> Vec<Point> {
    let end = history.points.iter().map(|point| point.at).fold(0.0, f64::max);
    let width = end / CANARY_BINS as f64;
    let mut bins: Vec<(f64, Vec<f64>)> = Vec::new();
    let mut bin_of_last = None;
    for point in &history.points {
        let bin = if width > 0.0 { (point.at / width) as usize } else { 0 };
        let value = point.nanoseconds / history.reference;
        match bins.last_mut() {
            Some((_, values)) if bin_of_last == Some(bin) => values.push(value),
            _ => bins.push((point.at, vec![value])),
        }
        bin_of_last = Some(bin);
    }
    let point = |(x, mut values): (f64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        Point { x, y: values[values.len() / 2], low: values[0], high: values[values.len() - 1] }
    };
    bins.into_iter().map(point).filter(Point::is_finite).collect()
}

/// The distribution of the samples behind a headline, as its quantile function: share of samples against value.
pub fn distribution_figure(result: &MetricResult) -> Option<Figure> {
    let (Outcome::Measured(summary) | Outcome::NotKnown(summary)) = &result.outcome else { return None };
    let d = &summary.distribution;
    let quantiles = [
        (0.0, d.min),
        (0.05, d.p5),
        (0.25, d.p25),
        (0.5, d.p50),
        (0.75, d.p75),
        (0.95, d.p95),
        (0.99, d.p99),
        (1.0, d.max),
    ];
    let points: Vec<Point> =
        quantiles.iter().map(|&(x, y)| Point { x, y, low: y, high: y }).filter(Point::is_finite).collect();
    let case = units::case(&result.metric, &result.case);
    let of = if d.of_batch_means { "batch means" } else { "single operations" };
    let series = vec![Series { label: of.into(), role: Role::Measured, style: 0, points }];
    Some(Figure {
        id: file_name(&format!("{} {case} distribution", result.metric.id)),
        title: format!("Distribution of {}{}{case}", result.metric.id, if case.is_empty() { "" } else { " at " }),
        description: vec![format!("Quantiles of {} {of}.", units::count(d.n))],
        x: FigureAxis {
            label: "share of samples below".into(),
            kind: AxisKind::Share,
            logarithmic: false,
            from_zero: true,
        },
        y: FigureAxis {
            label: "value".into(),
            kind: result.metric.unit.into(),
            logarithmic: spans_wide(&series),
            from_zero: true,
        },
        guides: Vec::new(),
        series,
    })
}

/// A text as a file name: letters, digits and `.-_=`, anything else a dash.
fn file_name(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || ".-_=".contains(c) { c } else { '-' };
    text.trim().chars().map(safe).collect()
}
