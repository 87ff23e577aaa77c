//! The visits of a study over its time: whether what was measured stayed the same.

use kelvin_analysis::{Timeline, TimelineGroup};
use kelvin_stats::min_max;

use super::{AxisKind, Drawing, Figure, FigureAxis, Guide, Mark, Plot, Point, Series, SeriesRole, safe_file_name};
use crate::{Report, units};

/// The figures of a report's timelines.
pub(super) fn timeline_figures(report: &Report<'_>) -> Vec<Figure> {
    let timelines = report.analysis.timelines.iter().enumerate();
    timelines.filter_map(|(index, timeline)| timeline_figure(index, timeline)).collect()
}

/// One of them; `None` where it has no point that can be drawn.
fn timeline_figure(index: usize, timeline: &Timeline) -> Option<Figure> {
    let visits = |(style, group): (usize, &TimelineGroup)| {
        let points = group.points.iter().map(|&(x, y)| Point::exact(x, y));
        Series::new(group.label.as_str(), SeriesRole::LoadSteps, style, points)
    };
    let series: Vec<Series> = timeline.groups.iter().enumerate().filter_map(visits).collect();
    let number = if index == 0 { String::new() } else { format!(".{}", index + 1) };
    let (low, high) = (1.0 - timeline.tolerance, 1.0 + timeline.tolerance);
    let mark = |(label, time): &(String, f64)| Mark { label: label.clone(), at: *time, low: *time, high: *time };
    let x = FigureAxis::new("time since the start of the run", AxisKind::Seconds);
    let y = FigureAxis::new("over the mean", AxisKind::Number).without_zero();
    (!series.is_empty()).then(|| Figure {
        id: format!("{}.time{number}", safe_file_name(&timeline.metric)),
        title: timeline.title.clone(),
        description: timeline.groups.iter().filter_map(group_text).collect(),
        // None of the lines over a parameter: those have their own figure.
        shows: vec![(timeline.metric, "over time".into())],
        drawing: Drawing::Plot(Plot {
            guides: vec![Guide { label: format!("within {}", units::share(timeline.tolerance)), low, high }],
            marks: timeline.marked_time.iter().map(mark).collect(),
            ..Plot::new(x, y, series)
        }),
    })
}

/// A group in words: how far its visits are from their mean.
fn group_text(group: &TimelineGroup) -> Option<String> {
    let (low, high) = min_max(group.points.iter().map(|(_, ratio)| *ratio))?;
    let span = if low < high { format!("{} to {}", units::ratio(low), units::ratio(high)) } else { units::ratio(low) };
    Some(format!("{}: {} visits, {span} times their mean.", group.label, group.points.len()))
}
