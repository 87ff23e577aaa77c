//! The sections of a report: areas in order, single rows, and curves and matrices that stand for many rows.

use std::collections::{BTreeMap, BTreeSet};

use kelvin_analysis::{GrowthEnd, MetricResult, RivalResult};
use kelvin_core::catalogue::cpu::CORE_KIND;
use kelvin_core::catalogue::mem::{FROM_CPU, TO_CPU};
use kelvin_core::{
    Axis, AxisScale, CacheDomain, Case, CoreKind, IndirectSort, Metric, Name, SharedLevel, Topology, Value,
};
use kelvin_stats::median;

use crate::text::grouped;
use crate::{Report, labels, units};

/// Minimum points of a curve; two points are two rows.
const MIN_CURVE_POINTS: usize = 3;

/// The axes of a metric that is measured from one thing to another.
const MATRIX_AXES: [&str; 2] = ["from", "to"];

/// One area of a report.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// First part of the metrics' ids: `os`.
    pub area: &'static str,
    /// Title for people.
    pub title: String,
    /// What all its results have alike.
    pub common_axes: CommonAxes,
    /// Its rows and curves, in the order of the plan.
    pub entries: Vec<SectionEntry<'a>>,
}

impl<'a> Section<'a> {
    /// The section with only the entries that are kept; `None` where none is.
    pub(crate) fn with_entries(&self, is_kept: impl Fn(&SectionEntry<'a>) -> bool) -> Option<Self> {
        let entries: Vec<SectionEntry<'a>> = self.entries.iter().filter(|entry| is_kept(entry)).cloned().collect();
        (!entries.is_empty()).then(|| Self { entries, ..self.clone() })
    }
}

/// Minimum results whose common axes are stated once for all.
const MIN_COMMON_RESULTS: usize = 3;

/// The axes that have one value in all results of a section, or in all lines of a figure: stated once, so that their names
/// leave it out.
#[derive(Clone, Debug, Default)]
pub struct CommonAxes {
    case: Case,
    words: String,
    /// The machine's kinds of cores, which replace their numbers in the rest of a case.
    core_kinds: Vec<Name>,
}

impl CommonAxes {
    /// Of the results of a section on a machine with these kinds of cores.
    fn of_results(results: &[&MetricResult], core_kinds: &[CoreKind]) -> Self {
        let first = results.first().filter(|_| results.len() >= MIN_COMMON_RESULTS);
        let cases = results.iter().map(|result| &result.case);
        let common = first.map_or_else(Self::default, |first| Self::of_cases(&first.metric, cases));
        Self { core_kinds: core_kinds.iter().map(|kind| Name::intern(&kind.name)).collect(), ..common }
    }

    /// Of cases of a metric.
    pub fn of_cases<'c>(metric: &Metric, mut cases: impl Iterator<Item = &'c Case>) -> Self {
        let first: Case = cases.next().cloned().unwrap_or_default();
        let case = cases
            .fold(first, |common, case| common.iter().filter(|(name, value)| case.get(name) == Some(*value)).collect());
        Self { words: units::case(metric, &case), case, core_kinds: Vec::new() }
    }

    /// It, as a sentence; none if it is nothing.
    pub fn sentence(&self) -> Option<String> {
        (!self.case.is_empty()).then(|| format!("All at {}.", self.words))
    }

    /// The rest of a case, as it is written after a metric.
    pub fn rest_text(&self, metric: &Metric, case: &Case) -> String {
        units::case(metric, &self.with_kind_names(metric, self.rest_of(case)))
    }

    /// A case of which the kind of core has its name in place of its number.
    fn with_kind_names(&self, metric: &Metric, case: Case) -> Case {
        if !metric.axes().any(|axis| *axis == CORE_KIND) {
            return case;
        }
        let named = |(axis, value): (Name, Value)| match value {
            Value::Integer(number) if axis == CORE_KIND.name => {
                let kind = usize::try_from(number).ok().and_then(|number| self.core_kinds.get(number));
                (axis, kind.map_or(value, |kind| Value::Word(*kind)))
            }
            _ => (axis, value),
        };
        case.iter().map(named).collect()
    }

    /// The rest of a case.
    pub(crate) fn rest_of(&self, case: &Case) -> Case {
        case.iter().filter(|(name, _)| self.case.get(name).is_none()).collect()
    }

    /// What a case has alike with the others.
    pub(crate) fn common_of(&self, case: &Case) -> Case {
        case.iter().filter(|(name, _)| self.case.get(name).is_some()).collect()
    }
}

/// A row, a curve, or a matrix.
#[derive(Clone, Debug)]
pub enum SectionEntry<'a> {
    /// One metric at one case.
    Single(&'a MetricResult),
    /// One metric over a numeric axis.
    Curve(Curve<'a>),
    /// One metric over pairs.
    Matrix(Matrix<'a>),
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
    /// The other axes' values.
    pub fixed: Case,
    /// They in words: `pages=huge`; empty without other axes.
    pub label: String,
    /// Position on the axis and result, by position.
    pub points: Vec<(u64, &'a MetricResult)>,
    /// Its knee, where it is one over CPUs, jobs or streams and stops growing.
    pub growth_end: Option<&'a GrowthEnd>,
}

/// One metric over two axes: pairs of the same things, such as CPUs, or two parameters.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// The metric.
    pub metric: &'a Metric,
    /// The other axes' values.
    pub fixed: Case,
    /// They in words; empty without other axes.
    pub label: String,
    /// The rows.
    pub rows: MatrixAxis,
    /// The columns.
    pub columns: MatrixAxis,
    /// The cells, row by row.
    pub cells: Vec<MatrixCell<'a>>,
    /// The measured pairs of CPUs by what these share, the nearest first; none of anything else, or where that is not known.
    pub distances: Vec<PairDistance>,
}

/// The rows or the columns of a matrix.
#[derive(Clone, Debug)]
pub struct MatrixAxis {
    /// Their axis.
    pub axis: Axis,
    /// Their names for people: numbers by size, CPUs by what they share; those of pairs are everything on either side of one.
    pub names: Vec<String>,
}

/// Pairs of CPUs that have the same in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairDistance {
    /// What the CPUs share.
    pub level: SharedLevel,
    /// How many pairs were measured.
    pub pairs: usize,
    /// The median of their figures.
    pub median: f64,
}

/// One cell of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct MatrixCell<'a> {
    /// Index of its row.
    pub row: usize,
    /// Index of its column.
    pub column: usize,
    /// Its result.
    pub result: &'a MetricResult,
}

impl<'a> Matrix<'a> {
    /// These results over two axes, with the values of the others; one that lacks a value on either axis is left out.
    pub(crate) fn new(metric: &'a Metric, fixed: Case, axes: [Axis; 2], results: &[&'a MetricResult]) -> Self {
        let sides = axes.map(|axis| (axis, axis_values(axis, results).into_iter().collect()));
        Self::with_sides(metric, fixed, sides, results)
    }

    /// These results over two axes, each with its values in the order of the rows or columns.
    fn with_sides(
        metric: &'a Metric,
        fixed: Case,
        sides: [(Axis, Vec<Value>); 2],
        results: &[&'a MetricResult],
    ) -> Self {
        let index = |side: usize, result: &MetricResult| {
            let (axis, values) = &sides[side];
            let value = result.case.get(&axis.name)?;
            values.iter().position(|other| *other == value)
        };
        let cell =
            |&result: &&'a MetricResult| Some(MatrixCell { row: index(0, result)?, column: index(1, result)?, result });
        let mut cells: Vec<MatrixCell<'a>> = results.iter().filter_map(cell).collect();
        cells.indirect_sort_by_key(|cell| (cell.row, cell.column));
        let [rows, columns] = sides.map(|(axis, values)| {
            let names = values.into_iter().map(|value| units::axis_value(value, axis.scale)).collect();
            MatrixAxis { axis, names }
        });
        Self { metric, label: units::case(metric, &fixed), fixed, rows, columns, cells, distances: Vec::new() }
    }

    /// All results of the matrix.
    pub fn results(&self) -> impl Iterator<Item = &'a MetricResult> {
        self.cells.iter().map(|cell| cell.result)
    }

    /// Whether its rows and columns are the same things.
    pub(crate) fn is_of_pairs(&self) -> bool {
        self.rows.axis.name == *MATRIX_AXES[0]
    }

    /// Whether it has one figure for both directions of a pair: of two CPUs, half of a round trip.
    pub(crate) fn is_symmetric(&self) -> bool {
        [self.rows.axis, self.columns.axis] == [FROM_CPU, TO_CPU]
    }

    /// What a cell is called.
    pub(crate) fn cell_word(&self) -> &'static str {
        if self.is_of_pairs() { "pair" } else { "cell" }
    }

    /// What its rows and its columns are.
    pub(crate) fn axes_label(&self) -> String {
        format!("{}, {}", self.rows.axis.label, self.columns.axis.label)
    }

    /// A pair by its names: `0 to 1`.
    pub(crate) fn pair_name(&self, row: usize, column: usize) -> String {
        format!("{} to {}", self.rows.names[row], self.columns.names[column])
    }
}

/// The values that results have on an axis, numbers by size.
fn axis_values(axis: Axis, results: &[&MetricResult]) -> BTreeSet<Value> {
    results.iter().filter_map(|result| result.case.get(&axis.name)).collect()
}

/// Everything on either side of a pair: numbers by size; CPUs by socket, die, node, cache and core, so that those that share are neighbours.
fn pair_values(axes: [Axis; 2], results: &[&MetricResult], topology: &Topology) -> Vec<Value> {
    let [from, to] = axes.map(|axis| axis_values(axis, results));
    let mut values: Vec<Value> = (&from | &to).into_iter().collect();
    if axes == [FROM_CPU, TO_CPU] {
        let cpus: Vec<u64> = topology.cache_domains().iter().flat_map(CacheDomain::cpus).map(u64::from).collect();
        let place = |value: &Value| cpus.iter().position(|&cpu| *value == Value::Integer(cpu));
        // Those whose place is not known come last.
        values.indirect_sort_by_key(|value| place(value).unwrap_or(cpus.len()));
    }
    values
}

/// Measured pairs of CPUs by what these share.
fn pair_distances(results: &[&MetricResult], topology: &Topology) -> Vec<PairDistance> {
    let mut figures: BTreeMap<SharedLevel, Vec<f64>> = BTreeMap::new();
    for result in results {
        let cpu = |axis: Axis| axis.number_in(&result.case)?.try_into().ok();
        let level = cpu(FROM_CPU).zip(cpu(TO_CPU)).and_then(|(from, to)| topology.shared_level(from, to));
        if let (Some(level), Some(summary)) = (level, result.outcome.summary()) {
            figures.entry(level).or_default().push(summary.headline);
        }
    }
    let distance =
        |(level, figures): (_, Vec<f64>)| PairDistance { level, pairs: figures.len(), median: median(&figures) };
    figures.into_iter().map(distance).collect()
}

/// A case without its values on some axes.
pub(crate) fn case_without(case: &Case, axes: &[Axis]) -> Case {
    case.iter().filter(|(name, _)| axes.iter().all(|axis| axis.name != *name)).collect()
}

impl<'a> Curve<'a> {
    /// All results of the curve.
    pub fn results(&self) -> impl Iterator<Item = &'a MetricResult> {
        self.series.iter().flat_map(|series| series.points.iter().map(|(_, result)| *result))
    }
}

impl<'a> SectionEntry<'a> {
    /// The results behind it.
    pub fn results(&self) -> Vec<&'a MetricResult> {
        match self {
            Self::Single(result) => vec![result],
            Self::Curve(curve) => curve.results().collect(),
            Self::Matrix(matrix) => matrix.results().collect(),
        }
    }

    /// The metric of them all.
    pub fn metric(&self) -> &'a Metric {
        match self {
            Self::Single(result) => &result.metric,
            Self::Curve(curve) => curve.metric,
            Self::Matrix(matrix) => matrix.metric,
        }
    }

    /// Whether it was measured only as an input of predictions.
    pub fn only_input(&self) -> bool {
        self.results().iter().all(|result| result.only_input)
    }

    /// Whether any of it has a figure.
    pub fn has_figures(&self) -> bool {
        self.results().iter().any(|result| result.outcome.summary().is_some())
    }
}

/// Most cases without a number that are named; more are counted. The other formats have them all.
pub const MAX_NAMED: usize = 2;

/// Results without a number for one reason.
#[derive(Clone, Debug)]
pub struct MissingResults<'a> {
    /// Why, in a word or two: `skipped`.
    pub word: &'static str,
    /// Why, in full.
    pub reason: String,
    /// The results.
    pub results: Vec<&'a MetricResult>,
}

impl<'a> MissingResults<'a> {
    /// The reasons of those of some results that have no number, each once.
    pub fn group(results: impl IntoIterator<Item = &'a MetricResult>) -> Vec<Self> {
        let reason =
            |result: &'a MetricResult| Some((labels::missing_reason(&result.outcome, result.metric.unit)?, result));
        let groups = grouped(results.into_iter().filter_map(reason));
        groups.into_iter().map(|((word, reason), results)| Self { word, reason, results }).collect()
    }

    /// Whether it is the reason of this result.
    pub fn includes(&self, result: &MetricResult) -> bool {
        self.results.iter().any(|other| std::ptr::eq(*other, result))
    }

    /// Each metric once, by the name that `name_of` gives it, with its cases: `syscall.null (call=gettid; call=libc_getpid),
    /// process.shell`. Many cases are counted, and metrics that lack the same ones stand together: `transfer.time, transfer.rate
    /// (16 cases each), transfer.cold, transfer.cold.device (each files=large)`.
    pub fn labels(&self, common_axes: &CommonAxes, name_of: fn(&str) -> &str) -> String {
        let case = |result: &&MetricResult| common_axes.rest_text(&result.metric, &result.case);
        let mut metrics = grouped(self.results.iter().map(|result| (name_of(result.metric.id.as_str()), case(result))));
        metrics.iter_mut().for_each(|(_, cases)| cases.retain(|case| !case.is_empty()));
        let group_text = |metrics: &[(&str, Vec<String>)]| {
            let ids = metrics.iter().map(|(id, _)| *id).collect::<Vec<_>>().join(", ");
            let is_several = metrics.len() > 1;
            match metrics[0].1.as_slice() {
                [] => ids,
                cases if cases.len() <= MAX_NAMED => {
                    format!("{ids} ({}{})", if is_several { "each " } else { "" }, cases.join("; "))
                }
                cases => format!("{ids} ({} cases{})", cases.len(), if is_several { " each" } else { "" }),
            }
        };
        let chunks = metrics.chunk_by(|(_, a), (_, b)| !a.is_empty() && a == b);
        chunks.map(group_text).collect::<Vec<_>>().join(", ")
    }
}

/// The id without its area, which is in the title of its table.
pub fn without_area(id: &str) -> &str {
    id.split_once('.').map_or(id, |(_, rest)| rest)
}

/// The areas of a report, those known in their order, then any other; an area without results is left out.
pub fn sections<'a>(report: &Report<'a>) -> Vec<Section<'a>> {
    // Comparisons with rivals have their own table.
    let results = report.analysis.results.iter().filter(|result| !RivalResult::is_rival_metric(result));
    let mut areas = grouped(results.map(|result| (result.metric.area(), result)));
    areas.indirect_sort_by_key(|(area, _)| labels::area(area).0);
    let topology = &report.run.header.machine.topology;
    let core_kinds = topology.core_kinds.get().map_or(&[][..], Vec::as_slice);
    let section = |(area, results): (&'static str, Vec<&'a MetricResult>)| Section {
        area,
        title: labels::area(area).1,
        common_axes: CommonAxes::of_results(&results, core_kinds),
        entries: entries(&results, topology, &report.analysis.growth_ends),
    };
    areas.into_iter().map(section).collect()
}

/// Rows and curves in the order in which their metrics first appear.
fn entries<'a>(
    results: &[&'a MetricResult],
    topology: &Topology,
    growth_ends: &'a [GrowthEnd],
) -> Vec<SectionEntry<'a>> {
    let mut entries = Vec::new();
    for (_, metric_results) in grouped(results.iter().map(|result| (result.metric.id, *result))) {
        if let Some(matrices) = matrices(&metric_results, topology) {
            entries.extend(matrices.into_iter().map(SectionEntry::Matrix));
        } else if let Some(curve) = curve(&metric_results, growth_ends) {
            entries.push(SectionEntry::Curve(curve));
        } else {
            entries.extend(metric_results.into_iter().map(SectionEntry::Single));
        }
    }
    entries
}

/// The results of one metric over pairs, one matrix for each combination of the other axes' values, if they are any.
fn matrices<'a>(results: &[&'a MetricResult], topology: &Topology) -> Option<Vec<Matrix<'a>>> {
    let metric = &results.first()?.metric;
    let axis = |name: &str| metric.axes().find(|axis| axis.name == *name).copied();
    let axes = [axis(MATRIX_AXES[0])?, axis(MATRIX_AXES[1])?];
    let is_pair = |result: &&MetricResult| axes.iter().all(|axis| result.case.get(&axis.name).is_some());
    let groups = grouped(results.iter().map(|result| (case_without(&result.case, &axes), *result)));
    let matrix = |(fixed, results): (Case, Vec<&'a MetricResult>)| {
        let values = pair_values(axes, &results, topology);
        let matrix = Matrix::with_sides(metric, fixed, axes.map(|axis| (axis, values.clone())), &results);
        let distances = if matrix.is_symmetric() { pair_distances(&results, topology) } else { Vec::new() };
        Matrix { distances, ..matrix }
    };
    results.iter().all(is_pair).then(|| groups.into_iter().map(matrix).collect())
}

/// The results of one metric as a curve over its first numeric axis that has enough values, if they are one.
fn curve<'a>(results: &[&'a MetricResult], growth_ends: &'a [GrowthEnd]) -> Option<Curve<'a>> {
    let numeric_axes = results.first()?.metric.axes().filter(|axis| axis.scale != AxisScale::Category);
    numeric_axes.copied().find_map(|axis| curve_over(axis, results, growth_ends))
}

fn curve_over<'a>(axis: Axis, results: &[&'a MetricResult], growth_ends: &'a [GrowthEnd]) -> Option<Curve<'a>> {
    let metric = &results.first()?.metric;
    let point = |result: &&'a MetricResult| {
        Some((case_without(&result.case, &[axis]), (axis.number_in(&result.case)?, *result)))
    };
    // A case without the axis (a variant that has no size) makes this a list of rows.
    let points: Vec<_> = results.iter().map(point).collect::<Option<_>>()?;
    let line = |(fixed, mut points): (Case, Vec<(u64, &'a MetricResult)>)| {
        points.indirect_sort_by_key(|(position, _)| *position);
        let is_of_line = |end: &&GrowthEnd| end.metric == metric.id && end.axis == axis.name && end.fixed == fixed;
        let growth_end = growth_ends.iter().find(is_of_line);
        CurveSeries { label: units::case(metric, &fixed), growth_end, fixed, points }
    };
    let mut series: Vec<CurveSeries<'a>> = grouped(points).into_iter().map(line).collect();
    // Numbers by size, words as they come.
    series.sort_by_cached_key(|line| -> Vec<u64> {
        let number = |value| if let Value::Integer(number) = value { Some(number) } else { None };
        line.fixed.iter().filter_map(|(_, value)| number(value)).collect()
    });
    let is_long_enough = series.iter().any(|line| line.points.len() >= MIN_CURVE_POINTS);
    is_long_enough.then_some(Curve { metric, axis, series })
}
