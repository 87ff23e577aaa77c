//! The canaries over the run: how quiet the machine was.

use kelvin_analysis::CanaryHistory;
use kelvin_core::{CanaryReading, Unit};

use super::{AxisKind, Drawing, Figure, FigureAxis, Guide, Plot, Point, Series, SeriesRole};
use crate::{Report, labels, units};

/// Bins over time into which a canary's readings are drawn: about one for every two pixels.
const CANARY_BINS: usize = 360;

/// The canaries over the run, each relative to its reference: a flat line at 1 on a quiet machine.
pub fn canary_figure(report: &Report<'_>) -> Option<Figure> {
    let is_drawn = |history: &&CanaryHistory| !history.points.is_empty() && history.reference > 0.0;
    let (mut series, mut sentences, mut tolerance) = (Vec::new(), Vec::new(), 0.0);
    for (style, history) in report.analysis.canaries.iter().filter(is_drawn).enumerate() {
        let label = labels::canary(history.canary);
        tolerance = history.tolerance.max(tolerance);
        series.push(Series { label: label.into(), role: SeriesRole::History, style, points: binned_points(history) });
        let [steady_share, tolerance] = [history.steady_share, history.tolerance].map(units::share);
        let reference = units::value_text(history.reference, Unit::Nanoseconds);
        sentences.push(format!("{label}: {steady_share} of readings within {tolerance} of {reference}."));
    }
    let label = format!("undisturbed (±{} at most)", units::share(tolerance));
    let x = FigureAxis::new("time since the start of the run", AxisKind::Seconds);
    // A single interruption takes a thousand times a canary's time, and must not flatten all the rest.
    let y = FigureAxis::new("canary time over its reference", AxisKind::Number).logarithmic(true).without_zero();
    (!series.is_empty()).then(|| Figure {
        id: "canaries".into(),
        title: "How quiet the machine was: canaries over the run".into(),
        description: sentences,
        shows: Vec::new(),
        drawing: Drawing::Plot(Plot {
            guides: vec![Guide { label, low: 1.0 - tolerance, high: 1.0 + tolerance }],
            ..Plot::new(x, y, series)
        }),
    })
}

/// Readings of a canary relative to its reference, in bins over time: the median, with lowest and highest as its band.
fn binned_points(history: &CanaryHistory) -> Vec<Point> {
    let end = history.points.iter().map(|point| point.seconds).fold(0.0, f64::max);
    let width = end / CANARY_BINS as f64;
    let mut bins: Vec<(f64, Vec<f64>)> = Vec::new();
    let bin = |point: &CanaryReading| if width > 0.0 { (point.seconds / width) as usize } else { 0 };
    for points in history.points.chunk_by(|a, b| bin(a) == bin(b)) {
        let values = points.iter().map(|point| point.nanoseconds / history.reference);
        bins.push((points[0].seconds, values.collect()));
    }
    let point = |(x, mut values): (f64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        Point { x, y: values[values.len() / 2], low: values[0], high: values[values.len() - 1] }
    };
    bins.into_iter().map(point).filter(Point::is_finite).collect()
}
