//! The figure of one curve, and what all figures of curves share: series, predictions, descriptions.

use std::collections::BTreeMap;

use kelvin_analysis::{
    Coefficient, FittedLaw, KneeMark, LineCeiling, MemoryLevel, MemoryLevels, MetricResult, ModelLine, Outcome,
    StatedConclusion,
};
use kelvin_core::{AxisScale, Case, Metric, Name, Reference, ReferenceValue, Unit, Value};

use super::{
    AxisKind, Drawing, Figure, FigureAxis, Mark, Plot, Point, Series, SeriesRole, needs_log_axis, safe_file_name,
    y_values,
};
use crate::palette::SERIES_COLORS;
use crate::sections::{CommonAxes, Curve, CurveSeries};
use crate::text::grouped;
use crate::{Report, labels, units};

/// The figures of a curve: one, or one for each value of a parameter where a single one would need the same colour twice.
pub(super) fn curve_figures(report: &Report<'_>, curve: &Curve<'_>) -> Vec<Figure> {
    let Some(axis) = split_axis(curve) else { return curve_figure(report, curve).into_iter().collect() };
    let parts = grouped(curve.series.iter().filter_map(|line| Some((line.held.get(&axis)?, line.clone()))));
    let figure = |(value, series): (Value, Vec<CurveSeries<'_>>)| {
        let at = units::case(curve.metric, &std::iter::once((axis, value)).collect());
        let figure = curve_figure(report, &Curve { series, ..curve.clone() })?;
        Some(Figure {
            id: safe_file_name(&format!("{} {at}", curve.metric.id)),
            title: format!("{}, {at}", figure.title),
            ..figure
        })
    };
    parts.into_iter().filter_map(figure).collect()
}

/// The parameter by which a curve of more lines than there are colours is parted into figures of fewer lines, the fewest of them.
fn split_axis(curve: &Curve<'_>) -> Option<Name> {
    if curve.series.len() <= SERIES_COLORS {
        return None;
    }
    let parts = |axis: Name| -> Option<(bool, usize, Name)> {
        let mut counts: BTreeMap<Value, usize> = BTreeMap::new();
        for line in &curve.series {
            *counts.entry(line.held.get(&axis)?).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        (counts.len() > 1).then_some((most > SERIES_COLORS, counts.len(), axis))
    };
    let axes = curve.series.first()?.held.iter().map(|(axis, _)| axis).collect::<Vec<Name>>();
    axes.into_iter()
        .filter_map(parts)
        .min_by_key(|&(is_crowded, parts, _)| (is_crowded, parts))
        .map(|(_, _, axis)| axis)
}

/// The figure of a curve; `None` where nothing of it was measured.
fn curve_figure(report: &Report<'_>, curve: &Curve<'_>) -> Option<Figure> {
    let names = LineNames::for_curve(curve);
    let mut series = Vec::new();
    for (style, (line, name)) in curve.series.iter().zip(&names.each).enumerate() {
        series.extend(measured_series(line, name, style));
        series.extend(fitted_law(report, curve, line).and_then(|law| fitted_series(law, name, style)));
    }
    if !is_measured(&series) {
        return None;
    }
    series.extend(model_series(report, curve, &names));
    let ceilings = ceilings(report, curve);
    series.extend(ceilings.iter().filter_map(ceiling_series));
    series.extend(published_series(report, curve, &names));
    Some(Figure {
        id: safe_file_name(&curve.metric.id),
        title: metric_title(curve.metric).to_owned(),
        description: [
            describe(curve, &names),
            law_texts(report, curve, &names),
            conclusion_texts(report, curve),
            ceilings.iter().map(ceiling_text).collect(),
        ]
        .concat(),
        shows: lines_of(curve),
        drawing: Drawing::Plot(Plot {
            marks: curve_marks(report, curve, &names),
            ..Plot::new(x_axis(curve), measured_axis(curve.metric.unit, &series), series)
        }),
    })
}

/// Longest name of a line that a legend has room for.
const MAX_NAME_CHARS: usize = 40;

/// What the lines of a curve are called in its figure.
pub(super) struct LineNames {
    pub(super) each: Vec<String>,
    /// What they have alike, where it is left out of their names.
    alike: CommonAxes,
}

impl LineNames {
    /// Their labels; where one is too long, what tells them apart.
    fn for_curve(curve: &Curve<'_>) -> Self {
        Self::for_lines(curve, &curve.series.iter().collect::<Vec<_>>())
    }

    /// The names of lines of several curves over the same parameters, of which this is one.
    pub(super) fn for_lines(curve: &Curve<'_>, lines: &[&CurveSeries<'_>]) -> Self {
        if lines.iter().all(|line| line.label.chars().count() <= MAX_NAME_CHARS) {
            return Self { each: lines.iter().map(|line| line.label.clone()).collect(), alike: CommonAxes::default() };
        }
        let alike = CommonAxes::of_cases(curve.metric, lines.iter().map(|line| &line.held));
        Self { each: lines.iter().map(|line| alike.rest_text(curve.metric, &line.held)).collect(), alike }
    }

    /// What all lines have alike, as a sentence, where their names leave it out.
    pub(super) fn common_axes_text(&self) -> Option<String> {
        self.alike.sentence()
    }
}

/// The law that was fitted to a line and describes it.
fn fitted_law<'a>(report: &Report<'a>, curve: &Curve<'_>, line: &CurveSeries<'_>) -> Option<&'a FittedLaw> {
    let is_its = |law: &&FittedLaw| is_law_of_line(curve, line, (law.metric, law.workers), &law.fixed);
    report.analysis.laws.iter().find(|law| is_its(law) && law.describes)
}

/// Maximum points of a law.
const LAW_POINTS: usize = 24;

/// A law as a series: at whole numbers of workers, at all of them if few, within the measured range.
fn fitted_series(law: &FittedLaw, name: &str, style: usize) -> Option<Series> {
    let step = |index: usize| (law.max_workers as f64).powf(index as f64 / LAW_POINTS as f64).round();
    let mut numbers: Vec<f64> = (0..=LAW_POINTS).map(step).collect();
    numbers.dedup();
    let points = numbers.into_iter().map(|x| Point::exact(x, law.rate_at(x)));
    Series::new(name_with_suffix(name, "fitted law"), SeriesRole::Fitted, style, points)
}

/// The laws that are drawn, in words.
fn law_texts(report: &Report<'_>, curve: &Curve<'_>, names: &LineNames) -> Vec<String> {
    let sentence = |(line, name): (&CurveSeries<'_>, &String)| {
        let law = fitted_law(report, curve, line)?;
        let share = |of: Coefficient| {
            let percent = |share: f64| units::value_text(100.0 * share, Unit::Ratio);
            format!("{} % ({} to {})", percent(of.value), percent(of.lower), percent(of.upper))
        };
        Some(format!(
            "{}dotted is the fitted universal scalability law, no prediction: contention {}, coherency {}.",
            prefix(name),
            share(law.sigma),
            share(law.kappa)
        ))
    };
    curve.series.iter().zip(&names.each).filter_map(sentence).collect()
}

/// The memory levels, for the curve from which they were derived.
fn memory_levels<'a>(report: &Report<'a>, curve: &Curve<'_>) -> Option<&'a MemoryLevels> {
    report.analysis.levels.as_ref().filter(|found| curve.metric.id == found.metric)
}

/// The working sets between which memory levels end, with a line in their middle on the logarithmic axis.
fn curve_marks(report: &Report<'_>, curve: &Curve<'_>, names: &LineNames) -> Vec<Mark> {
    let end = |level: &MemoryLevel| {
        let capacity = level.capacity?;
        let (low, high) = (capacity.low as f64, capacity.high as f64);
        Some(Mark { label: format!("end of {}", level.name), at: (low * high).sqrt(), low, high })
    };
    let levels = memory_levels(report, curve);
    levels.iter().flat_map(|found| &found.levels).filter_map(end).chain(knee_marks(report, curve, names)).collect()
}

/// Longest name of a knee that several lines have.
const MAX_KNEE_CHARS: usize = 48;

/// The knees of a curve's lines, with the line's name where there are several; those at one place have one name.
fn knee_marks(report: &Report<'_>, curve: &Curve<'_>, names: &LineNames) -> Vec<Mark> {
    let knee = |(line, name): (&CurveSeries<'_>, &String)| {
        let is_its = |knee: &&KneeMark| is_law_of_line(curve, line, (knee.metric, knee.axis), &knee.fixed);
        let KneeMark { knee, .. } = report.analysis.knees.iter().find(is_its)?;
        let name = if curve.series.len() > 1 { name.clone() } else { String::new() };
        Some((knee.users, (name, knee.low as f64, knee.high as f64)))
    };
    let mark = |(users, knees): (u64, Vec<(String, f64, f64)>)| {
        let lines: Vec<&str> = knees.iter().map(|(name, ..)| name.as_str()).collect();
        let all = name_with_suffix(&lines.join("; "), "knee");
        let is_short = lines.len() == 1 || all.chars().count() <= MAX_KNEE_CHARS;
        Mark {
            label: if is_short { all } else { format!("knee of {} lines", lines.len()) },
            at: users as f64,
            low: knees.iter().map(|(_, low, _)| *low).fold(f64::INFINITY, f64::min),
            high: knees.iter().map(|(.., high)| *high).fold(0.0, f64::max),
        }
    };
    grouped(curve.series.iter().zip(&names.each).filter_map(knee)).into_iter().map(mark).collect()
}

/// Whether data of a metric over an axis, with the other parameters held, are those of a curve's line.
fn is_law_of_line(curve: &Curve<'_>, line: &CurveSeries<'_>, (metric, axis): (Name, Name), held: &Case) -> bool {
    metric == curve.metric.id && axis == curve.axis.name && units::case(curve.metric, held) == line.label
}

/// What follows from lower metrics beside the lines of a curve: predictions dashed, bounds dotted.
fn model_series(report: &Report<'_>, curve: &Curve<'_>, names: &LineNames) -> Vec<Series> {
    let of_line = |(style, line): (usize, &CurveSeries<'_>)| -> Vec<Series> {
        let its = report.analysis.model_lines.iter();
        let its = its.filter(|model| is_law_of_line(curve, line, (model.metric, model.axis), &model.fixed));
        let name = if curve.series.len() > 1 { names.each[style].as_str() } else { "" };
        let series = |model: &ModelLine| {
            let role = if model.is_bound { SeriesRole::Fitted } else { SeriesRole::Predicted };
            let points = model.points.iter().map(|&(x, y)| Point::exact(x as f64, y));
            Series::new(name_with_suffix(name, &model.label), role, style, points)
        };
        its.filter_map(series).collect()
    };
    curve.series.iter().enumerate().flat_map(of_line).collect()
}

/// The ceiling of one line of a curve.
struct LineCeilingSeries<'a> {
    line: &'a CurveSeries<'a>,
    style: usize,
    ends: &'a LineCeiling,
}

/// The ceilings of a curve, of one line each.
fn ceilings<'a>(report: &Report<'a>, curve: &'a Curve<'a>) -> Vec<LineCeilingSeries<'a>> {
    let of = |(style, line): (usize, &'a CurveSeries<'a>)| {
        let (_, first) = line.points.first()?;
        let is_its = |ends: &&LineCeiling| {
            ends.metric == curve.metric.id
                && ends.fixed.iter().all(|(axis, value)| first.case.get(&axis) == Some(value))
        };
        Some(LineCeilingSeries { line, style, ends: report.analysis.ceilings.iter().find(is_its)? })
    };
    curve.series.iter().enumerate().filter_map(of).collect()
}

/// A ceiling as a line over all messages, in the colour of its measured line.
fn ceiling_series(LineCeilingSeries { line, style, ends }: &LineCeilingSeries<'_>) -> Option<Series> {
    let LineCeiling { low, high, .. } = ends;
    let y = (low * high).sqrt();
    let ends = [line.points.first()?.0, line.points.last()?.0].map(|x| Point::exact(x as f64, y));
    Series::new(format!("{}, if calls were free", line.label), SeriesRole::Fitted, *style, ends.into_iter())
}

fn ceiling_text(LineCeilingSeries { line, ends, .. }: &LineCeilingSeries<'_>) -> String {
    let rate = units::span(ends.low, ends.high, Unit::BytesPerSecond);
    format!("Dotted, the ceiling of {}: {rate} if calls were free, by {}.", line.label, ends.source)
}

/// The conclusions from a curve, with their test, stated once for neighbours that share it.
fn conclusion_texts(report: &Report<'_>, curve: &Curve<'_>) -> Vec<String> {
    let all = memory_levels(report, curve).map_or(&[][..], |found| &found.conclusions);
    let sentence = |(index, conclusion): (usize, &StatedConclusion)| {
        let shared = all.get(index + 1).is_some_and(|next| next.test == conclusion.test);
        let test = if shared { String::new() } else { format!(" ({})", conclusion.test) };
        format!("{}{test}.", conclusion.text)
    };
    all.iter().enumerate().map(sentence).collect()
}

/// The lines of a curve that a figure shows.
pub(super) fn lines_of(curve: &Curve<'_>) -> Vec<(Name, String)> {
    curve.series.iter().map(|line| (curve.metric.id, line.label.clone())).collect()
}

/// The axis that a curve runs over.
pub(super) fn x_axis(curve: &Curve<'_>) -> FigureAxis {
    let kind = if curve.axis.scale == AxisScale::Bytes { AxisKind::Bytes } else { AxisKind::Number };
    FigureAxis::new(curve.axis.label.as_str(), kind).logarithmic(curve.axis.scale != AxisScale::Linear)
}

/// The axis of what was measured, logarithmic where values are of many magnitudes, and none of them is to be compared with a whole: shares
/// are.
pub(super) fn measured_axis(unit: Unit, series: &[Series]) -> FigureAxis {
    let logarithmic = unit != Unit::Ratio && needs_log_axis(y_values(series));
    FigureAxis::new("measured", unit).logarithmic(logarithmic)
}

/// Whether this run measured a line of at least two points; a single point is in the table.
pub(super) fn is_measured(series: &[Series]) -> bool {
    let is_ours = |line: &&Series| matches!(line.role, SeriesRole::Measured | SeriesRole::AsFound);
    let points_of = |style: usize| {
        series.iter().filter(is_ours).filter(move |line| line.style == style).flat_map(|line| &line.points)
    };
    let is_line = |line: &Series| {
        let first = points_of(line.style).next().map(|point| point.x);
        points_of(line.style).any(|point| Some(point.x) != first)
    };
    series.iter().filter(is_ours).any(is_line)
}

/// The label of a series: its name, what it is, or both.
pub(super) fn name_with_suffix(name: &str, suffix: &str) -> String {
    match (name.is_empty(), suffix.is_empty()) {
        (true, true) => "measured".to_owned(),
        (true, false) => suffix.to_owned(),
        (false, true) => name.to_owned(),
        (false, false) => format!("{name}, {suffix}"),
    }
}

/// The value and interval of a result with a headline.
pub(super) fn headline(result: &MetricResult) -> Option<[f64; 3]> {
    let summary = result.outcome.summary()?;
    let (low, high) = summary.interval.map_or((summary.headline, summary.headline), |i| (i.lower, i.upper));
    Some([summary.headline, low, high])
}

/// The value and interval as found of a result too disturbed for a headline.
pub(super) fn as_found(result: &MetricResult) -> Option<[f64; 3]> {
    let Outcome::NotKnown(summary) = &result.outcome else { return None };
    let figure = summary.as_found;
    let (low, high) = figure.interval.map_or((figure.value, figure.value), |i| (i.lower, i.upper));
    Some([figure.value, low, high])
}

/// The prediction of a result with the range around it.
pub(super) fn predicted_interval(result: &MetricResult) -> Option<[f64; 3]> {
    let prediction = result.prediction.as_ref()?;
    Some([prediction.value, prediction.low, prediction.high])
}

/// What a result's value and range are read from.
pub(super) type ValueAndInterval = fn(&MetricResult) -> Option<[f64; 3]>;

/// The three kinds of series that a line of results can have.
pub(super) const SERIES_ROLES: [(SeriesRole, &str, ValueAndInterval); 3] = [
    (SeriesRole::Measured, "", headline),
    (SeriesRole::AsFound, "as found, too disturbed for a headline", as_found),
    (SeriesRole::Predicted, "predicted", predicted_interval),
];

/// The measured, as-found and predicted series of one line of a curve; those without points are left out.
pub(super) fn measured_series(line: &CurveSeries<'_>, name: &str, style: usize) -> Vec<Series> {
    let of = |(role, suffix, read): (SeriesRole, &str, ValueAndInterval)| {
        let point = |(x, result): &(u64, &MetricResult)| {
            let [y, low, high] = read(result)?;
            Some(Point { x: *x as f64, y, low, high })
        };
        Series::new(name_with_suffix(name, suffix), role, style, line.points.iter().filter_map(point))
    };
    SERIES_ROLES.into_iter().filter_map(of).collect()
}

/// What reference machines published of each line that was measured here, in its colour.
fn published_series(report: &Report<'_>, curve: &Curve<'_>, names: &LineNames) -> Vec<Series> {
    let of_line = |reference: &Reference| -> Vec<Series> {
        let series = |(style, (line, name)): (usize, (&CurveSeries<'_>, &String))| {
            reference_series(curve, line, reference, name, style)
        };
        curve.series.iter().zip(&names.each).enumerate().filter_map(series).collect()
    };
    report.references.iter().flat_map(of_line).collect()
}

/// Published values of the same quantity of one line; values that span something else are never drawn beside ours.
pub(super) fn reference_series(
    curve: &Curve<'_>,
    line: &CurveSeries<'_>,
    reference: &Reference,
    name: &str,
    style: usize,
) -> Option<Series> {
    let metric = curve.metric;
    let of_line = |case: &Case| {
        let rest: Case = case.iter().filter(|(name, _)| *name != curve.axis.name).collect();
        units::case(metric, &rest) == line.label
    };
    let comparable = reference.values.iter().filter(|value| {
        value.metric == metric.id && value.range.is_none() && value.unit == metric.unit && of_line(&value.case)
    });
    let point = |value: &ReferenceValue| Some(Point::exact(curve.axis.number_in(&value.case)? as f64, value.value));
    let mut points: Vec<Point> = comparable.filter_map(point).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let separator = if name.is_empty() { "" } else { ", " };
    Series::new(format!("{}{separator}{name}", reference.title), SeriesRole::Reference, style, points.into_iter())
}

/// A curve in words: the range of each series, and its ratio to the prediction.
fn describe(curve: &Curve<'_>, names: &LineNames) -> Vec<String> {
    let lines = curve.series.iter().zip(&names.each);
    let mut sentences: Vec<String> = lines.filter_map(|(line, name)| describe_line(curve, line, name)).collect();
    if sentences.is_empty() {
        return vec!["No point has a value.".into()];
    }
    sentences.extend(names.common_axes_text());
    sentences
}

/// A line of a curve in words; `None` where nothing of it was measured.
pub(super) fn describe_line(curve: &Curve<'_>, line: &CurveSeries<'_>, name: &str) -> Option<String> {
    let measured: Vec<(u64, f64)> =
        line.points.iter().filter_map(|(x, result)| Some((*x, result.outcome.summary()?.headline))).collect();
    let (first, last) = (measured.first()?, measured.last()?);
    let one = |&(x, value): &(u64, f64)| {
        let at = units::axis_value(Value::Integer(x), curve.axis.scale);
        format!("{} at {at}", units::value_text(value, curve.metric.unit))
    };
    let both = if measured.len() == 1 { one(first) } else { format!("from {} to {}", one(first), one(last)) };
    Some(format!("{}{both}{}.", prefix(name), verdict_counts(line.points.iter().map(|(_, result)| *result))))
}

/// What a metric is, as a title.
pub(super) fn metric_title(metric: &Metric) -> &str {
    metric.summary.trim_end_matches('.')
}

/// The name of a line as the beginning of a sentence.
pub(super) fn prefix(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{name}: ") }
}

/// Points against their predictions, as the end of a sentence.
pub(super) fn verdict_counts<'a>(results: impl Iterator<Item = &'a MetricResult>) -> String {
    let compared: Vec<&MetricResult> = results.filter(|result| result.ratio.is_some()).collect();
    let Some(ratios) = labels::ratio_range(&compared, " to ") else { return String::new() };
    let gaps = compared.iter().filter(|result| labels::is_gap(result.verdict)).count();
    let outside = match (compared.len(), gaps) {
        (1, 0) => "within".to_owned(),
        (1, _) => "outside".to_owned(),
        (points, 0) => format!("none of {} outside", labels::plural(points as u64, "point")),
        (points, gaps) => format!("{gaps} of {} outside", labels::plural(points as u64, "point")),
    };
    format!("; {ratios} times the prediction, {outside} the predicted range")
}
