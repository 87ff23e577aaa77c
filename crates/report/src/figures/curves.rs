//! The figure of one curve, and what all figures of curves share: series, predictions, descriptions.

use std::collections::BTreeMap;

use kelvin_analysis::{
    Coefficient, FittedLaw, Interval, KneeMark, LineCeiling, MemoryLevel, MemoryLevels, MetricResult, ModelLine,
    Outcome, StatedConclusion,
};
use kelvin_core::{AxisScale, Case, IndirectSort, Metric, Name, Reference, ReferenceValue, Unit, Value};

use super::knees::{growth_marks, growth_meaning};
use super::named_lines::{FigureLines, NamedLine};
use super::{
    AxisKind, Drawing, Figure, FigureAxis, Mark, Plot, Point, Series, SeriesRole, needs_log_axis, safe_file_name,
    y_values,
};
use crate::palette::SERIES_COLORS;
use crate::sections::{Curve, CurveSeries, case_without};
use crate::text::grouped;
use crate::{Report, labels, units};

/// The figures of a curve: one, or one for each value of a parameter where a single one would need the same colour twice.
pub(super) fn curve_figures(report: &Report<'_>, curve: &Curve<'_>) -> Vec<Figure> {
    let Some(axis) = split_axis(curve) else {
        let lines = FigureLines::new(curve, curve.series.iter());
        return CurveDrawing { report, curve, lines }.figure().into_iter().collect();
    };
    let parts = grouped(curve.series.iter().filter_map(|line| Some((line.fixed.get(&axis)?, line.clone()))));
    let figure = |(value, series): (Value, Vec<CurveSeries<'_>>)| {
        let part_case = std::iter::once((axis, value)).collect();
        let case = units::case(curve.metric, &part_case);
        let part = Curve { series, ..curve.clone() };
        let lines = FigureLines::of_part(curve, part.series.iter(), axis);
        let figure = CurveDrawing { report, curve: &part, lines }.figure()?;
        Some(Figure {
            id: safe_file_name(&format!("{} {case}", curve.metric.id)),
            title: format!("{}, {}", figure.title, labels::case_words(curve.metric, &part_case)),
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
    let split = |axis: Name| -> Option<(bool, usize, Name)> {
        let mut counts: BTreeMap<Value, usize> = BTreeMap::new();
        for line in &curve.series {
            *counts.entry(line.fixed.get(&axis)?).or_default() += 1;
        }
        let largest = counts.values().copied().max()?;
        (counts.len() > 1).then_some((largest > SERIES_COLORS, counts.len(), axis))
    };
    let splits = curve.series.first()?.fixed.iter().filter_map(|(axis, _)| split(axis));
    splits.min_by_key(|&(is_crowded, part_count, _)| (is_crowded, part_count)).map(|(_, _, axis)| axis)
}

/// Maximum points of a law.
const LAW_POINTS: usize = 24;

/// Longest name of a knee that several lines have.
const MAX_KNEE_CHARS: usize = 48;

/// A curve with the lines of its figure.
struct CurveDrawing<'a> {
    report: &'a Report<'a>,
    curve: &'a Curve<'a>,
    lines: FigureLines<'a>,
}

impl<'a> CurveDrawing<'a> {
    /// The figure of the curve; `None` where nothing of it was measured.
    fn figure(&self) -> Option<Figure> {
        let (curve, lines) = (self.curve, &self.lines.lines);
        let own_series = |line| measured_series(line).into_iter().chain(self.fitted_series(line));
        let mut series: Vec<Series> = lines.iter().flat_map(own_series).collect();
        if !is_measured(&series) {
            return None;
        }
        series.extend(lines.iter().flat_map(|line| self.model_series(line)));
        series.extend(lines.iter().filter_map(|line| self.ceiling_series(line)));
        let reference_lines = |reference| lines.iter().filter_map(move |line| reference_series(curve, line, reference));
        series.extend(self.report.references.iter().flat_map(reference_lines));
        let mut description: Vec<String> = lines.iter().filter_map(|line| describe_line(curve, line)).collect();
        match description.is_empty() {
            true => description.push("No point has a value.".into()),
            false => description.extend(self.lines.common_axes_text()),
        }
        description.extend(growth_meaning(lines));
        description.extend(lines.iter().filter_map(|line| self.law_text(line)));
        description.extend(self.conclusion_texts());
        description.extend(lines.iter().filter_map(|line| self.ceiling_text(line)));
        let y = measured_axis(curve.metric.unit, &series);
        Some(Figure {
            id: safe_file_name(&curve.metric.id),
            title: metric_title(curve.metric).to_owned(),
            description,
            shows: lines_of(curve),
            drawing: Drawing::Plot(Plot { marks: self.marks(), ..Plot::new(x_axis(curve), y, series) }),
        })
    }

    /// Whether data of a metric over an axis, with the other parameters held, are those of a line.
    fn is_of_line(&self, line: &NamedLine<'_>, (metric, axis): (Name, Name), fixed: &Case) -> bool {
        let curve = self.curve;
        metric == curve.metric.id && axis == curve.axis.name && units::case(curve.metric, fixed) == line.line.label
    }

    /// The name of a line; empty for one alone.
    fn name_among_several(&self, line: &NamedLine<'_>) -> String {
        if self.lines.lines.len() > 1 { line.name.clone() } else { String::new() }
    }

    /// The law that was fitted to a line and describes it.
    fn fitted_law(&self, line: &NamedLine<'_>) -> Option<&'a FittedLaw> {
        let matches_line = |law: &&FittedLaw| self.is_of_line(line, (law.metric, law.workers), &law.fixed);
        self.report.analysis.laws.iter().find(|law| matches_line(law) && law.describes)
    }

    /// A law as a series: at whole numbers of workers, at all of them if few, within the measured range.
    fn fitted_series(&self, line: &NamedLine<'_>) -> Option<Series> {
        let law = self.fitted_law(line)?;
        let step = |index: usize| (law.max_workers as f64).powf(index as f64 / LAW_POINTS as f64).round();
        let mut numbers: Vec<f64> = (0..=LAW_POINTS).map(step).collect();
        numbers.dedup();
        let points = numbers.into_iter().map(|x| Point::exact(x, law.rate_at(x)));
        Series::new(name_with_suffix(&line.name, "fitted law"), SeriesRole::Fitted, line.style, points)
    }

    /// A law that is drawn, in words.
    fn law_text(&self, line: &NamedLine<'_>) -> Option<String> {
        let law = self.fitted_law(line)?;
        let share = |coefficient: Coefficient| {
            let Coefficient { value, lower, upper, .. } = coefficient;
            let [value, lower, upper] = [value, lower, upper].map(|end| units::value_text(100.0 * end, Unit::Ratio));
            format!("{value} % ({lower} to {upper})")
        };
        let (name, sigma, kappa) = (prefix(&line.name), share(law.sigma), share(law.kappa));
        let law = "the fitted universal scalability law, no prediction";
        Some(format!("{name}dotted is {law}: contention {sigma}, coherency {kappa}."))
    }

    /// The memory levels, for the curve from which they were derived.
    fn memory_levels(&self) -> Option<&'a MemoryLevels> {
        self.report.analysis.levels.as_ref().filter(|levels| self.curve.metric.id == levels.metric)
    }

    /// The working sets between which memory levels end, with a line in their middle on the logarithmic axis, and the knees.
    fn marks(&self) -> Vec<Mark> {
        let end = |level: &MemoryLevel| {
            let capacity = level.capacity?;
            let (low, high) = (capacity.low as f64, capacity.high as f64);
            Some(Mark { label: format!("end of {}", level.name), at: (low * high).sqrt(), low, high })
        };
        let level_ends = self.memory_levels().into_iter().flat_map(|levels| &levels.levels).filter_map(end);
        level_ends.chain(self.knee_marks()).chain(growth_marks(&self.lines.lines)).collect()
    }

    /// The knees of a curve's lines over users, with the line's name where there are several; those at one place have one name.
    fn knee_marks(&self) -> Vec<Mark> {
        let knee = |line: &NamedLine<'_>| {
            let matches_line = |knee: &&KneeMark| self.is_of_line(line, (knee.metric, knee.axis), &knee.fixed);
            let KneeMark { knee, .. } = self.report.analysis.knees.iter().find(matches_line)?;
            Some((knee.users, (self.name_among_several(line), knee.low as f64, knee.high as f64)))
        };
        let mark = |(users, knees): (u64, Vec<(String, f64, f64)>)| {
            let lines: Vec<&str> = knees.iter().map(|(name, ..)| name.as_str()).collect();
            let name = name_with_suffix(&lines.join("; "), "knee");
            let is_short = lines.len() == 1 || name.chars().count() <= MAX_KNEE_CHARS;
            Mark {
                label: if is_short { name } else { format!("knee of {} lines", lines.len()) },
                at: users as f64,
                low: knees.iter().map(|(_, low, _)| *low).fold(f64::INFINITY, f64::min),
                high: knees.iter().map(|(.., high)| *high).fold(0.0, f64::max),
            }
        };
        grouped(self.lines.lines.iter().filter_map(knee)).into_iter().map(mark).collect()
    }

    /// What follows from lower metrics for a line: predictions dashed, bounds dotted.
    fn model_series(&self, line: &NamedLine<'_>) -> Vec<Series> {
        let models = self.report.analysis.model_lines.iter();
        let models = models.filter(|model| self.is_of_line(line, (model.metric, model.axis), &model.fixed));
        let series = |model: &ModelLine| {
            let role = if model.is_bound { SeriesRole::Fitted } else { SeriesRole::Predicted };
            let points = model.points.iter().map(|&(x, y)| Point::exact(x as f64, y));
            let name = name_with_suffix(&self.name_among_several(line), &model.label);
            Series::new(name, role, line.style, points)
        };
        models.filter_map(series).collect()
    }

    /// The ceiling of one line.
    fn ceiling(&self, line: &NamedLine<'_>) -> Option<&'a LineCeiling> {
        let (_, first) = line.line.points.first()?;
        let matches_line = |ceiling: &&LineCeiling| {
            ceiling.metric == self.curve.metric.id
                && ceiling.fixed.iter().all(|(axis, value)| first.case.get(&axis) == Some(value))
        };
        self.report.analysis.ceilings.iter().find(matches_line)
    }

    /// A ceiling as a line over all messages, in the colour of its measured line.
    fn ceiling_series(&self, named_line: &NamedLine<'_>) -> Option<Series> {
        let (LineCeiling { low, high, .. }, line) = (self.ceiling(named_line)?, named_line.line);
        let y = (low * high).sqrt();
        let ends = [line.points.first()?.0, line.points.last()?.0].map(|x| Point::exact(x as f64, y));
        Series::new(
            format!("{}, if calls were free", named_line.name),
            SeriesRole::Fitted,
            named_line.style,
            ends.into_iter(),
        )
    }

    fn ceiling_text(&self, line: &NamedLine<'_>) -> Option<String> {
        let LineCeiling { low, high, source, .. } = self.ceiling(line)?;
        let rate = units::span(*low, *high, Unit::BytesPerSecond);
        Some(format!("Dotted, the ceiling of {}: {rate} if calls were free, by {source}.", line.name))
    }

    /// The conclusions from a curve, with their test, stated once for neighbours that share it.
    fn conclusion_texts(&self) -> Vec<String> {
        let conclusions = self.memory_levels().map_or(&[][..], |levels| &levels.conclusions);
        let sentence = |(index, conclusion): (usize, &StatedConclusion)| {
            let shared = conclusions.get(index + 1).is_some_and(|next| next.test == conclusion.test);
            let test = if shared { String::new() } else { format!(" ({})", conclusion.test) };
            format!("{}{test}.", conclusion.text)
        };
        conclusions.iter().enumerate().map(sentence).collect()
    }
}

/// The lines of a curve that a figure shows.
pub(super) fn lines_of(curve: &Curve<'_>) -> Vec<(Name, String)> {
    curve.series.iter().map(|line| (curve.metric.id, line.label.clone())).collect()
}

/// The axis that a curve runs over.
pub(super) fn x_axis(curve: &Curve<'_>) -> FigureAxis {
    let kind = if curve.axis.scale == AxisScale::Bytes { AxisKind::Unit(Unit::Bytes) } else { AxisKind::Number };
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
    let has_measured_role = |line: &&Series| matches!(line.role, SeriesRole::Measured | SeriesRole::AsFound);
    let points = |line: &'_ Series| line.points.iter().map(|point| (line.style, point.x)).collect::<Vec<_>>();
    let lines = grouped(series.iter().filter(has_measured_role).flat_map(points));
    lines.iter().any(|(_, positions)| positions.iter().any(|x| *x != positions[0]))
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

/// A value and the ends of its interval; without one they are the value itself.
fn with_ends(value: f64, interval: Option<Interval>) -> [f64; 3] {
    interval.map_or([value; 3], |interval| [value, interval.lower, interval.upper])
}

/// The value and interval of a result with a headline.
pub(super) fn headline(result: &MetricResult) -> Option<[f64; 3]> {
    let summary = result.outcome.summary()?;
    Some(with_ends(summary.headline, summary.interval))
}

/// The value and interval as found of a result too disturbed for a headline.
fn as_found(result: &MetricResult) -> Option<[f64; 3]> {
    let Outcome::NotKnown(summary) = &result.outcome else { return None };
    Some(with_ends(summary.as_found.value, summary.as_found.interval))
}

/// The prediction of a result with the range around it.
pub(super) fn predicted_interval(result: &MetricResult) -> Option<[f64; 3]> {
    let prediction = result.prediction.as_ref()?;
    Some([prediction.value, prediction.low, prediction.high])
}

/// What a result's value and range are read from.
type ValueAndInterval = fn(&MetricResult) -> Option<[f64; 3]>;

/// The three kinds of series that a line of results can have.
const SERIES_ROLES: [(SeriesRole, &str, ValueAndInterval); 3] = [
    (SeriesRole::Measured, "", headline),
    (SeriesRole::AsFound, "as measured, too disturbed for a headline", as_found),
    (SeriesRole::Predicted, "predicted", predicted_interval),
];

/// The measured, as-found and predicted series of one line of a curve; those without points are left out.
pub(super) fn measured_series(line: &NamedLine<'_>) -> Vec<Series> {
    series_over(line, |_, position| Some(position as f64))
}

/// These series over what `x` makes of a role and a position of the parameter.
pub(super) fn series_over(line: &NamedLine<'_>, x: impl Fn(SeriesRole, u64) -> Option<f64>) -> Vec<Series> {
    let series = |(role, suffix, read): (SeriesRole, &str, ValueAndInterval)| {
        let point = |(position, result): &(u64, &MetricResult)| {
            let [y, low, high] = read(result)?;
            Some(Point { x: x(role, *position)?, y, low, high })
        };
        let points = line.line.points.iter().filter_map(point);
        Series::new(name_with_suffix(&line.name, suffix), role, line.style, points)
    };
    SERIES_ROLES.into_iter().filter_map(series).collect()
}

/// Published values of the same quantity of one line; values that span something else are never drawn with ours.
pub(super) fn reference_series(curve: &Curve<'_>, line: &NamedLine<'_>, reference: &Reference) -> Option<Series> {
    let metric = curve.metric;
    let comparable_values = reference.values.iter().filter(|value| {
        value.metric == metric.id
            && value.range.is_none()
            && value.unit == metric.unit
            && units::case(metric, &case_without(&value.case, &[curve.axis])) == line.line.label
    });
    let point = |value: &ReferenceValue| Some(Point::exact(curve.axis.number_in(&value.case)? as f64, value.value));
    let mut points: Vec<Point> = comparable_values.filter_map(point).collect();
    points.indirect_sort_by(|a, b| a.x.total_cmp(&b.x));
    let name = name_with_suffix(&reference.title, &line.name);
    Series::new(name, SeriesRole::Reference, line.style, points.into_iter())
}

/// A line of a curve in words; `None` where nothing of it was measured.
pub(super) fn describe_line(curve: &Curve<'_>, NamedLine { line, name, .. }: &NamedLine<'_>) -> Option<String> {
    let measured_points: Vec<(u64, f64)> =
        line.points.iter().filter_map(|(x, result)| Some((*x, result.outcome.summary()?.headline))).collect();
    let (first, last) = (measured_points.first()?, measured_points.last()?);
    let text = |&(x, value): &(u64, f64)| {
        let position = units::axis_value(Value::Integer(x), curve.axis.scale);
        format!("{} at {position}", units::value_text(value, curve.metric.unit))
    };
    let values_text =
        if measured_points.len() == 1 { text(first) } else { format!("from {} to {}", text(first), text(last)) };
    let growth = line.growth_end.map(|end| format!("; {}", labels::growth_end_text("", end))).unwrap_or_default();
    let verdicts = verdict_counts(line.points.iter().map(|(_, result)| *result));
    Some(format!("{}{values_text}{growth}{verdicts}.", prefix(name)))
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
    let outside_text = match (compared.len(), gaps) {
        (1, 0) => "within".to_owned(),
        (1, _) => "outside".to_owned(),
        (points, 0) => format!("none of {} outside", labels::plural(points as u64, "point")),
        (points, gaps) => format!("{gaps} of {} outside", labels::plural(points as u64, "point")),
    };
    format!("; {ratios} times the prediction, {outside_text} the predicted range")
}
