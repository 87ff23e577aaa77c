//! The distributions of round trips: the time that 1 in N exceeds, by protocol and placement.

use kelvin_analysis::{MetricResult, samples_as_found};
use kelvin_core::{AxisScale, Case, Name, Unit, Value};
use kelvin_stats::Sorted;

use super::curves::name_with_suffix;
use super::{AxisKind, Drawing, Figure, FigureAxis, Mark, Plot, Point, Series, SeriesRole, safe_file_name};
use crate::sections::SectionEntry;
use crate::{Report, labels, units};

/// N of the quantiles that are drawn (1 round trip in N is slower), evenly spread over the logarithmic axis. The first is the
/// fastest of all.
const ONE_IN: [f64; 20] = [
    1.0, 1.01, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.3, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
    10_000.0,
];
/// Samples of all rounds that must lie beyond a quantile; samples of a round's own; and in how many rounds, since a range of one
/// round would look certain.
const MIN_SAMPLES_BEYOND: f64 = 5.0;
const MIN_SAMPLES_BEYOND_IN_ROUND: f64 = 1.0;
const MIN_ROUNDS: usize = 2;
/// The quantiles that are marked by name.
const MARKED_QUANTILES: [(f64, &str); 4] = [(2.0, "median"), (10.0, "90 %"), (100.0, "99 %"), (1000.0, "99.9 %")];

/// The figure of the family; `None` where no round trip was timed by itself.
pub(super) fn tail_figure(report: &Report<'_>, entries: &[SectionEntry<'_>]) -> Option<Figure> {
    let tails = report.analysis.tails.as_ref()?;
    let is_tail_result = |result: &&MetricResult| {
        let is_fixed = |(axis, value): (Name, Value)| result.case.get(&axis) == Some(value);
        tails.metrics.contains(&result.metric.id) && tails.fixed.iter().all(is_fixed)
    };
    let results = entries.iter().flat_map(SectionEntry::results).filter(is_tail_result);
    let lines: Vec<TailLine> = results.filter_map(|result| TailLine::new(report, result, &tails.fixed)).collect();
    let series = |(style, line): (usize, &TailLine)| {
        let points = ONE_IN.iter().filter_map(|&one_in| line.point_at(one_in));
        Series::new(line.label.as_str(), SeriesRole::Measured, style, points)
    };
    let series: Vec<Series> = lines.iter().enumerate().filter_map(series).collect();
    if series.is_empty() {
        return None;
    }
    let fixed: Vec<String> = tails.fixed.iter().map(|(_, value)| units::axis_value(value, AxisScale::Bytes)).collect();
    let max_one_in = series.iter().flat_map(|line| &line.points).map(|point| point.x).fold(1.0, f64::max);
    let marks = MARKED_QUANTILES.iter().filter(|(one_in, _)| *one_in <= max_one_in);
    let x = FigureAxis::new("1 in N round trips takes longer: N", AxisKind::Number);
    let y = FigureAxis::new("time of a round trip", Unit::Nanoseconds);
    let mut description: Vec<String> = lines.iter().map(TailLine::describe).collect();
    description.push("Bands reach from the lowest to the highest round.".into());
    Some(Figure {
        id: safe_file_name(&format!("{} distribution", tails.family)),
        title: format!("Distribution of round trips of {}: the time that 1 in N exceeds", fixed.join(", ")),
        description,
        // No row of the table has this name: those lead to the curves.
        shows: lines.iter().map(|line| (line.metric, format!("{} distribution", line.label))).collect(),
        drawing: Drawing::Plot(Plot {
            marks: marks
                .map(|&(one_in, label)| Mark { label: label.into(), at: one_in, low: one_in, high: one_in })
                .collect(),
            ..Plot::new(x.logarithmic(true).without_zero(), y.logarithmic(true).without_zero(), series)
        }),
    })
}

/// The samples of one metric at one case.
struct TailLine {
    metric: Name,
    label: String,
    samples: Sorted,
    rounds: Vec<Sorted>,
}

impl TailLine {
    /// `None` unless the samples are single operations of this run.
    fn new(report: &Report<'_>, result: &MetricResult, fixed: &Case) -> Option<Self> {
        let (metric, case) = (&result.metric, &result.case);
        let measures_case = |measurement: &&kelvin_core::Measurement| {
            measurement.planned.case == *case && measurement.readings(&metric.id).next().is_some()
        };
        let measurement = report.run.measurements.iter().find(measures_case)?;
        let rounds = samples_as_found(measurement, metric);
        let samples = Sorted::new(rounds.concat())?;
        let other_axes: Case = case.iter().filter(|(name, _)| fixed.get(name).is_none()).collect();
        let short_name = metric.id.rsplit_once('.').map_or(metric.id.as_str(), |(_, name)| name);
        let placement = labels::case_words(metric, &other_axes);
        let label = if placement.is_empty() { short_name.to_owned() } else { name_with_suffix(short_name, &placement) };
        Some(Self { metric: metric.id, label, samples, rounds: rounds.into_iter().filter_map(Sorted::new).collect() })
    }

    /// The time that 1 in N exceeds, with the range over rounds; `None` with too few samples.
    fn point_at(&self, one_in: f64) -> Option<Point> {
        let has_enough = |samples: &Sorted, min_beyond: f64| samples.values().len() as f64 >= min_beyond * one_in;
        let quantile = |samples: &Sorted| samples.quantile(1.0 - 1.0 / one_in);
        let round_quantiles: Vec<f64> =
            self.rounds.iter().filter(|round| has_enough(round, MIN_SAMPLES_BEYOND_IN_ROUND)).map(quantile).collect();
        let is_reliable =
            has_enough(&self.samples, MIN_SAMPLES_BEYOND) && round_quantiles.len() >= MIN_ROUNDS.min(self.rounds.len());
        is_reliable.then(|| {
            let y = quantile(&self.samples);
            let end = |extreme: fn(f64, f64) -> f64| round_quantiles.iter().copied().fold(y, extreme);
            Point { x: one_in, y, low: end(f64::min), high: end(f64::max) }
        })
    }

    /// `tcp, same CPU: half exceed 13.0 µs, one in 10 14.2 µs, one in 100 21.0 µs (2,400 round trips).`
    fn describe(&self) -> String {
        let text = |point: Point| units::value_text(point.y, Unit::Nanoseconds);
        let times = MARKED_QUANTILES.iter().filter_map(|&(one_in, _)| {
            let time = text(self.point_at(one_in)?);
            Some(if one_in == 2.0 { format!("half exceed {time}") } else { format!("one in {one_in} {time}") })
        });
        let times: Vec<String> = times.collect();
        format!(
            "{}: {} ({} round trips).",
            self.label,
            times.join(", "),
            units::count(self.samples.values().len() as u64)
        )
    }
}
