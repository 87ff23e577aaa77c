//! The visits of a study over its time: whether what was measured stayed the same.

use kelvin_analysis::{Timeline, TimelineGroup};

use super::{AxisKind, Drawing, Figure, FigureAxis, Guide, Mark, Plot, Point, Series, SeriesRole, safe_file_name};
use crate::{Report, units};

/// The figures of a report's timelines.
pub(super) fn timeline_figures(report: &Report<'_>) -> Vec<Figure> {
    report.analysis.timelines.iter().enumerate().filter_map(|(index, one)| timeline_figure(index, one)).collect()
}

/// One of them; `None` where it has no point that can be drawn.
fn timeline_figure(index: usize, timeline: &Timeline) -> Option<Figure> {
    let groups = timeline.groups.iter().enumerate();
    let series: Vec<Series> = groups.filter_map(|(style, group)| visit_points(group, style)).collect();
    let number = if index == 0 { String::new() } else { format!(".{}", index + 1) };
    let (low, high) = (1.0 - timeline.same, 1.0 + timeline.same);
    let mark = |(label, at): &(String, f64)| Mark { label: label.clone(), at: *at, low: *at, high: *at };
    let axis = |label: &str, kind, from_zero| FigureAxis { label: label.into(), kind, logarithmic: false, from_zero };
    (!series.is_empty()).then(|| Figure {
        id: format!("{}.time{number}", safe_file_name(&timeline.metric)),
        title: timeline.title.clone(),
        description: timeline.groups.iter().filter_map(group_text).collect(),
        // None of the lines over a parameter: those have their own figure.
        shows: vec![(timeline.metric, "over time".into())],
        drawing: Drawing::Plot(Plot {
            x: axis("time since the start of the run", AxisKind::Seconds, true),
            y: axis("over the mean", AxisKind::Number, false),
            guides: vec![Guide { label: format!("within {}", units::share(timeline.same)), low, high }],
            marks: timeline.back.iter().map(mark).collect(),
            series,
        }),
    })
}

/// The visits of a group.
fn visit_points(group: &TimelineGroup, style: usize) -> Option<Series> {
    let points = group.points.iter().map(|&(x, y)| Point { x, y, low: y, high: y });
    Series { label: group.label.clone(), role: SeriesRole::Visits, style, points: Vec::new() }.with(points)
}

/// A group in words: how far its visits are from their mean.
fn group_text(group: &TimelineGroup) -> Option<String> {
    let ratios = || group.points.iter().map(|(_, ratio)| *ratio);
    let (low, high) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(f64::NEG_INFINITY, f64::max));
    let span = if low < high { format!("{} to {}", units::ratio(low), units::ratio(high)) } else { units::ratio(low) };
    (!group.points.is_empty())
        .then(|| format!("{}: {} visits, {span} times their mean.", group.label, group.points.len()))
}
