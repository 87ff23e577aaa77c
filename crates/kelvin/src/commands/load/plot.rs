//! Several loads on one server as one figure: throughput against response time, users and rates as lines of their own.

use kelvin_core::Unit;
use kelvin_core::load::{LatencySummary, LoadFigures, OfferedLoad};
use kelvin_report::figures::{AxisKind, Drawing, Figure, FigureAxis, Plot, Point, Series, SeriesRole};
use kelvin_stats::min_max;

use super::sentence::load_sentence;

/// Response times of which the largest is more than this many times the smallest are drawn on a logarithmic axis.
const LOG_AXIS_RATIO: f64 = 20.0;

/// Throughput against median and 99 % quantile of the response times.
pub fn throughput_figure(loads: &[LoadFigures<'_>]) -> Figure {
    let is_users = |load: &&LoadFigures<'_>| matches!(load.offered, OfferedLoad::Users { .. });
    let is_shown = |load: &&LoadFigures<'_>| load.response.count > 0 && load.rate.is_some();
    let (users, rates): (Vec<&LoadFigures<'_>>, Vec<&LoadFigures<'_>>) =
        loads.iter().filter(is_shown).partition(is_users);
    let series = [("users", &users), ("rates", &rates)].into_iter().filter(|(_, loads)| !loads.is_empty());
    let series: Vec<Series> = series
        .flat_map(|(name, loads)| load_lines(name, loads))
        .enumerate()
        .map(|(style, line)| Series { style, ..line })
        .collect();
    let times = series.iter().flat_map(|line| line.points.iter().map(|point| point.y));
    let (fastest, slowest) = min_max(times).unwrap_or_default();
    Figure {
        id: "load".into(),
        title: format!("response times of {}", loads.first().map_or("", |load| load.target)),
        description: loads.iter().map(load_sentence).collect(),
        shows: Vec::new(),
        drawing: Drawing::Plot(Plot {
            x: figure_axis("correct answers a second", AxisKind::Unit(Unit::PerSecond), false),
            y: figure_axis("response time", AxisKind::Unit(Unit::Nanoseconds), slowest > LOG_AXIS_RATIO * fastest),
            guides: Vec::new(),
            marks: Vec::new(),
            series,
        }),
    }
}

fn figure_axis(label: &str, kind: AxisKind, logarithmic: bool) -> FigureAxis {
    FigureAxis { label: label.into(), kind, logarithmic, from_zero: true }
}

/// The lines of the loads of one kind, in the order in which they were asked for.
fn load_lines(name: &str, loads: &[&LoadFigures<'_>]) -> [Series; 2] {
    let line = |quantile: &str, time: fn(&LatencySummary) -> f64| {
        let point = |load: &&LoadFigures<'_>| {
            let y = time(&load.response);
            Some(Point { x: load.rate?, y, low: y, high: y })
        };
        let points = loads.iter().filter_map(point).collect();
        Series { label: format!("{name}, {quantile}"), role: SeriesRole::Measured, style: 0, points }
    };
    [line("median", |times| times.p50), line("p99", |times| times.p99)]
}
