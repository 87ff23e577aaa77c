//! How a report is cut: areas in their order, single rows, and curves that stand for many rows.

use kelvin_analysis::MetricResult;
use kelvin_model::{Axis, AxisScale, Case, Metric, Name, Value};

use crate::{Report, units, words};

/// Fewest points that make a curve; two points are two rows.
const LEAST_POINTS: usize = 3;

/// One area of a report.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// First part of the metrics' ids: `os`.
    pub area: &'static str,
    /// Title for people.
    pub title: String,
    /// Its rows and curves, in the order of the plan.
    pub entries: Vec<Entry<'a>>,
}

/// A row, or a curve.
#[derive(Clone, Debug)]
pub enum Entry<'a> {
    /// One metric at one case.
    Single(&'a MetricResult),
    /// One metric over a numeric axis.
    Curve(Curve<'a>),
}

/// One metric over a numeric axis.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// The metric.
    pub metric: &'a Metric,
    /// The axis it runs over.
    pub axis: Axis,
    /// A series for each combination of the other axes' values.
    pub series: Vec<CurveSeries<'a>>,
}

/// One line of a curve.
#[derive(Clone, Debug)]
pub struct CurveSeries<'a> {
    /// The other axes' values: `pages=huge`; empty where there is no other axis.
    pub label: String,
    /// Position on the axis and result, by position.
    pub points: Vec<(u64, &'a MetricResult)>,
}

impl<'a> Curve<'a> {
    /// All results of the curve.
    pub fn results(&self) -> impl Iterator<Item = &'a MetricResult> {
        self.series.iter().flat_map(|series| series.points.iter().map(|(_, result)| *result))
    }
}

impl<'a> Entry<'a> {
    /// The metric.
    pub fn metric(&self) -> &'a Metric {
        match self {
            Self::Single(result) => &result.metric,
            Self::Curve(curve) => curve.metric,
        }
    }

    /// The results behind it.
    pub fn results(&self) -> Vec<&'a MetricResult> {
        match self {
            Self::Single(result) => vec![result],
            Self::Curve(curve) => curve.results().collect(),
        }
    }

    /// Whether it was measured only as an input of predictions.
    pub fn only_input(&self) -> bool {
        self.results().iter().all(|result| result.only_input)
    }
}

/// The areas of a report, those known in their order, then any other; an area without results is left out.
pub fn sections<'a>(report: &Report<'a>) -> Vec<Section<'a>> {
    let results = &report.analysis.results;
    let mut areas: Vec<&'static str> = words::AREAS.to_vec();
    for result in results {
        if !areas.contains(&result.metric.area()) {
            areas.push(result.metric.area());
        }
    }
    let section = |area: &'static str| {
        let within: Vec<&MetricResult> = results.iter().filter(|result| result.metric.area() == area).collect();
        Section { area, title: words::area(area), entries: entries(&within) }
    };
    areas.into_iter().map(section).filter(|section| !section.entries.is_empty()).collect()
}

/// Rows and curves in the order in which their metrics first appear.
fn entries<'a>(results: &[&'a MetricResult]) -> Vec<Entry<'a>> {
    let mut metrics: Vec<Name> = Vec::new();
    for result in results {
        if !metrics.contains(&result.metric.id) {
            metrics.push(result.metric.id);
        }
    }
    let mut entries = Vec::new();
    for metric in metrics {
        let of_metric: Vec<&MetricResult> =
            results.iter().copied().filter(|result| result.metric.id == metric).collect();
        match curve(&of_metric) {
            Some(curve) => entries.push(Entry::Curve(curve)),
            None => entries.extend(of_metric.into_iter().map(Entry::Single)),
        }
    }
    entries
}

/// The results of one metric as a curve over its first numeric axis, if they are one.
fn curve<'a>(results: &[&'a MetricResult]) -> Option<Curve<'a>> {
    let metric = &results.first()?.metric;
    let axis = *metric.axes().find(|axis| axis.scale != AxisScale::Category)?;
    let mut series: Vec<(Case, CurveSeries<'a>)> = Vec::new();
    for result in results {
        // A case without the axis (a variant that has no size) makes this a list of rows.
        let position = result.case.integer(&axis.name)?;
        let rest: Case = result.case.iter().filter(|(name, _)| *name != axis.name).collect();
        match series.iter_mut().find(|(case, _)| *case == rest) {
            Some((_, line)) => line.points.push((position, result)),
            None => {
                let label = units::case(metric, &rest);
                series.push((rest, CurveSeries { label, points: vec![(position, result)] }));
            }
        }
    }
    series.sort_by(|(a, _), (b, _)| compare_cases(a, b));
    let mut series: Vec<CurveSeries<'a>> = series.into_iter().map(|(_, line)| line).collect();
    for line in &mut series {
        line.points.sort_by_key(|(position, _)| *position);
    }
    let long_enough = series.iter().any(|line| line.points.len() >= LEAST_POINTS);
    long_enough.then_some(Curve { metric, axis, series })
}

/// Numbers by size, words as they come.
fn compare_cases(a: &Case, b: &Case) -> std::cmp::Ordering {
    let numbers = |case: &Case| -> Vec<u64> {
        let number = |value| if let Value::Integer(number) = value { Some(number) } else { None };
        case.iter().filter_map(|(_, value)| number(value)).collect()
    };
    numbers(a).cmp(&numbers(b))
}
