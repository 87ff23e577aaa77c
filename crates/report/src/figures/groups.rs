//! Which curves of an area share a figure: operations of one family, and a delay against its rate.

use kelvin_analysis::MetricResult;
use kelvin_analysis::wording::list_text;
use kelvin_core::{Name, Unit, Value};

use super::curves::{
    curve_figures, describe_line, headline, is_measured, lines_of, measured_axis, measured_series, predicted_interval,
    prefix, reference_series, series_over, verdict_counts, x_axis,
};
use super::heat::{grid_figures, heat_figure};
use super::knees::{growth_marks, growth_meaning};
use super::named_lines::{FigureLines, NamedLine};
use super::tails;
use super::{Drawing, Figure, FigureAxis, Plot, Series, SeriesRole, needs_log_axis, safe_file_name, y_values};
use crate::sections::{Curve, CurveSeries, SectionEntry};
use crate::text::grouped;
use crate::{Report, study_tables, units};

/// Fewest parts of an id whose children can be a family: below an area alone, everything would be related.
const MIN_PARENT_PARTS: usize = 2;

/// The figures of an area, each at the place of the first curve that it shows.
pub(super) fn figures(report: &Report<'_>, entries: &[SectionEntry<'_>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut drawn_metrics: Vec<Name> = Vec::new();
    let is_drawn = |entry: &&SectionEntry<'_>| !study_tables::has_metric(report, entry.metric());
    let entries: &[SectionEntry<'_>] = &entries.iter().filter(is_drawn).cloned().collect::<Vec<_>>();
    for entry in entries {
        match entry {
            SectionEntry::Single(_) => {}
            SectionEntry::Matrix(matrix) => figures.extend(heat_figure(matrix)),
            SectionEntry::Curve(curve) if drawn_metrics.contains(&curve.metric.id) => {}
            SectionEntry::Curve(curve) => {
                let group = curves_of_group(curve, entries);
                drawn_metrics.extend(group.iter().map(|member| member.metric.id));
                figures.extend(group_figures(report, &group));
                figures.extend(group.iter().flat_map(|member| grid_figures(report, member)));
            }
        }
    }
    figures.extend(tails::tail_figure(report, entries));
    figures
}

/// The curves that are drawn with this one, itself among them, in the order of the report.
///
/// They are children of one id over the same parameters. A duration and a rate alone are drawn against each other; of more, those of one unit
/// are a family.
fn curves_of_group<'c, 'a>(curve: &'c Curve<'a>, entries: &'c [SectionEntry<'a>]) -> Vec<&'c Curve<'a>> {
    let is_related = |member: &Curve<'_>| {
        parent_id(curve).is_some_and(|id| parent_id(member) == Some(id)) && member.metric.axes == curve.metric.axes
    };
    let curves =
        entries.iter().filter_map(|entry| if let SectionEntry::Curve(curve) = entry { Some(curve) } else { None });
    let mut group: Vec<&Curve<'a>> = curves.filter(|member| is_related(member)).collect();
    if group.is_empty() {
        return vec![curve];
    }
    if delay_against_rate(&group).is_none() {
        group.retain(|member| member.metric.unit == curve.metric.unit);
    }
    group
}

/// The id above a curve's, if it is long enough to name a family.
fn parent_id(curve: &Curve<'_>) -> Option<&'static str> {
    let (parent, _) = curve.metric.id.as_str().rsplit_once('.')?;
    (parent.split('.').count() >= MIN_PARENT_PARTS).then_some(parent)
}

/// The last part of a curve's id: what sets it apart in its family.
fn own_name(curve: &Curve<'_>) -> &'static str {
    let id = curve.metric.id.as_str();
    id.rsplit_once('.').map_or(id, |(_, name)| name)
}

fn group_figures(report: &Report<'_>, group: &[&Curve<'_>]) -> Vec<Figure> {
    match (group, delay_against_rate(group)) {
        ([curve], _) => curve_figures(report, curve),
        (_, Some(pair)) => loaded_figure(pair).into_iter().collect(),
        _ => family_figures(report, group),
    }
}

// ---- A family: one figure for each combination of the other parameters, one series for each member.

fn family_figures(report: &Report<'_>, family: &[&Curve<'_>]) -> Vec<Figure> {
    let Some(first) = family.first() else { return Vec::new() };
    let lines = grouped(family.iter().flat_map(|curve| &curve.series).map(|line| (&line.label, line)));
    let lines = FigureLines::new(first, lines.iter().map(|(_, lines)| lines[0]));
    let figure = |combination| {
        let mut figure = family_figure(report, family, combination, &lines.case_text(first, combination))?;
        figure.description.extend(lines.common_axes_text());
        Some(figure)
    };
    lines.lines.iter().filter_map(figure).collect()
}

/// The figure of a combination of the other parameters, which has a label, a name that sets it apart, and the same as it is in an id.
fn family_figure(
    report: &Report<'_>,
    family: &[&Curve<'_>],
    combination: &NamedLine<'_>,
    case_text: &str,
) -> Option<Figure> {
    let label = &combination.line.label;
    let (mut curves, mut lines) = (Vec::new(), Vec::new());
    for (style, &curve) in family.iter().enumerate() {
        let Some(line) = curve.series.iter().find(|line| line.label == *label) else { continue };
        lines.push(NamedLine { line, name: own_name(curve).to_owned(), style });
        curves.push(curve);
    }
    let members = || curves.iter().copied().zip(&lines);
    let mut series: Vec<Series> = lines.iter().flat_map(measured_series).collect();
    // Nothing but zeros is in the table.
    if !is_measured(&series) || series.iter().flat_map(|line| &line.points).all(|point| point.high == 0.0) {
        return None;
    }
    let published =
        |(curve, line)| report.references.iter().filter_map(move |reference| reference_series(curve, line, reference));
    series.extend(members().flat_map(published));
    let first = family.first()?;
    let y = measured_axis(first.metric.unit, &series);
    let (id, title) = family_id_and_title(first, family, [case_text, &combination.name])?;
    let plot = Plot { marks: growth_marks(&lines), ..Plot::new(x_axis(first), y, series) };
    Some(Figure {
        id,
        title,
        description: members()
            .filter_map(|(curve, line)| describe_line(curve, line))
            .chain(growth_meaning(&lines))
            .collect(),
        shows: curves.iter().map(|curve| (curve.metric.id, label.clone())).collect(),
        drawing: Drawing::Plot(plot),
    })
}

/// The family's id with the case that sets this figure apart, and its title with the name of that: `Bandwidth of read, write and copy over
/// working set, one CPU`. Where nothing sets it apart the id has the members, for the bare id may be a metric's.
fn family_id_and_title(
    first: &Curve<'_>,
    family: &[&Curve<'_>],
    [case_text, name]: [&str; 2],
) -> Option<(String, String)> {
    let id = parent_id(first)?;
    let names: Vec<&str> = family.iter().map(|curve| own_name(curve)).collect();
    let quantity = capitalized(id.rsplit_once('.').map_or("", |(_, name)| name));
    let (suffix, separator) = if name.is_empty() { (names.join(" "), "") } else { (case_text.to_owned(), ", ") };
    let title = format!("{quantity} of {} over {}{separator}{name}", list_text(&names), first.axis.label);
    Some((safe_file_name(&format!("{id} {suffix}")), title))
}

/// The part of an id as the beginning of a title.
fn capitalized(part: &str) -> String {
    let word = part.replace('_', " ");
    if word == "cpu" {
        return "CPU".into();
    }
    kelvin_analysis::wording::capitalise(&word)
}

// ---- A delay against its rate: both are measured, the parameter only sets them.

/// The duration and the rate of a group of just these two.
fn delay_against_rate<'c, 'a>(group: &[&'c Curve<'a>]) -> Option<[&'c Curve<'a>; 2]> {
    let [a, b] = group else { return None };
    let is_pair = |delay: &Curve<'_>, rate: &Curve<'_>| {
        delay.metric.unit == Unit::Nanoseconds && rate.metric.unit == Unit::BytesPerSecond
    };
    [[*a, *b], [*b, *a]].into_iter().find(|[delay, rate]| is_pair(delay, rate))
}

fn loaded_figure(pair: [&Curve<'_>; 2]) -> Option<Figure> {
    let [delay, rate] = pair;
    let (mut series, mut description) = (Vec::new(), Vec::new());
    for (style, line) in delay.series.iter().enumerate() {
        let Some(rates) = rate.series.iter().find(|rates| rates.label == line.label) else { continue };
        series.extend(loaded_series(line, rates, style));
        description.extend(describe_loaded(pair, line, rates));
    }
    if !is_measured(&series) {
        return None;
    }
    let (delay_name, rate_name) = (own_name(delay), own_name(rate));
    let y = FigureAxis::new(delay_name, delay.metric.unit).logarithmic(needs_log_axis(y_values(&series)));
    let x = FigureAxis::new(format!("measured {rate_name}"), rate.metric.unit);
    Some(Figure {
        id: safe_file_name(&format!("{}.{delay_name}-{rate_name}", parent_id(delay)?)),
        title: format!(
            "{} against the {rate_name} at which it was measured, by {}",
            capitalized(delay_name),
            delay.axis.label
        ),
        description,
        shows: pair.map(lines_of).concat(),
        drawing: Drawing::Plot(Plot::new(x, y, series)),
    })
}

/// The result of the other curve at the same position.
fn result_at<'a>(rates: &CurveSeries<'a>, position: u64) -> Option<&'a MetricResult> {
    rates.points.iter().find(|(point_position, _)| *point_position == position).map(|(_, result)| *result)
}

/// The series of one line, by the parameter: measured delays at measured rates, predicted ones at predicted rates (at measured
/// rates if only the delay was predicted).
fn loaded_series(line: &CurveSeries<'_>, rates: &CurveSeries<'_>, style: usize) -> Vec<Series> {
    let rate = |role, position| {
        let rate = result_at(rates, position)?;
        let predicted = predicted_interval(rate).filter(|_| role == SeriesRole::Predicted);
        Some(predicted.or_else(|| headline(rate))?[0])
    };
    series_over(&NamedLine { line, name: line.label.clone(), style }, rate)
}

/// Both ends of a line in words, and how far the delay rose.
fn describe_loaded([delay, rate]: [&Curve<'_>; 2], line: &CurveSeries<'_>, rates: &CurveSeries<'_>) -> Option<String> {
    let point_values = |(position, result): &(u64, &MetricResult)| {
        let rate = headline(result_at(rates, *position)?)?;
        Some((*position, headline(result)?[0], rate[0]))
    };
    let points: Vec<(u64, f64, f64)> = line.points.iter().filter_map(point_values).collect();
    let (first, last) = (points.first()?, points.last()?);
    let end = |&(position, time, bytes): &(u64, f64, f64)| {
        let bytes = units::value_text(bytes, rate.metric.unit);
        let position = units::axis_value(Value::Integer(position), delay.axis.scale);
        format!("{} at {bytes} ({} {position})", units::value_text(time, delay.metric.unit), delay.axis.name)
    };
    let (name, ratio) = (prefix(&line.label), units::ratio(last.1 / first.1));
    let verdicts = verdict_counts(line.points.iter().map(|(_, result)| *result));
    Some(format!("{name}from {} to {}, {ratio} times as long{verdicts}.", end(first), end(last)))
}
