//! Heat maps: a value for each row and column, as one of a few colours, and the best cell if known.

use std::collections::BTreeSet;

use kelvin_analysis::{BestCell, MetricResult};
use kelvin_core::{Axis, AxisScale, Case, Metric, Name, Unit, Value};
use serde::{Serialize, Serializer};

use super::curves::{headline, metric_title, predicted_interval, prefix, verdict_counts};
use super::{AxisKind, Drawing, Figure, Sig6, safe_file_name};
use crate::palette::HEAT_COLORS;
use crate::scale::min_max;
use crate::sections::{Curve, Matrix};
use crate::{Report, labels, units};

/// Maximum pairs without a value that a sentence names.
const MAX_NAMED_PAIRS: usize = 6;

/// A coloured grid. Serialised for the script: what is not in its drawing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heat {
    /// What the rows are.
    pub row_label: String,
    /// What the columns are.
    pub column_label: String,
    /// Names of the parameters of the rows and of the columns: `from`, `to`.
    pub axes: [Name; 2],
    /// What a cell is called: `pair`, `cell`.
    #[serde(skip)]
    pub called: &'static str,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// What the values are.
    #[serde(skip)]
    pub unit: AxisKind,
    /// Divisor of the values in the cells: one unit for all of them.
    #[serde(skip)]
    pub factor: f64,
    /// The symbol of that unit.
    #[serde(skip)]
    pub symbol: String,
    /// The range of each colour in words, lowest first; never empty.
    #[serde(skip)]
    pub steps: Vec<String>,
    /// The cells with a value.
    pub cells: Vec<HeatCell>,
}

/// A cell against the best one, if tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellRank {
    /// It is worse, or not tested.
    Other,
    /// It is not significantly different from the best.
    AsGood,
    /// It is the best.
    Best,
}

impl CellRank {
    /// Its class in a drawing, and its label.
    pub fn labels(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Best => Some(("best", "best")),
            Self::AsGood => Some(("as-good", "as good")),
            Self::Other => None,
        }
    }
}

/// One cell. Serialised as an array of row, column, value, low, high, and the prediction if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeatCell {
    /// Index of its row.
    pub row: usize,
    /// Index of its column.
    pub column: usize,
    /// Index of its colour.
    pub step: usize,
    /// Value.
    pub value: f64,
    /// Lower end of its interval; the value itself without one.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What was predicted.
    pub predicted: Option<f64>,
    /// It against the best.
    pub standing: CellRank,
}

impl Serialize for HeatCell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [value, low, high] = [self.value, self.low, self.high].map(Sig6);
        let predicted = self.predicted.map(Sig6);
        (self.row, self.column, value, low, high, predicted).serialize(serializer)
    }
}

impl Heat {
    /// The cell of a pair, if it has a value.
    pub fn cell(&self, row: usize, column: usize) -> Option<&HeatCell> {
        self.cells.iter().find(|cell| cell.row == row && cell.column == column)
    }

    /// A cell in words: `from CPU 0 to CPU 1: 42.1 ns (41.8 to 42.5), predicted 40.0 ns, best`.
    pub fn cell_text(&self, cell: &HeatCell) -> String {
        let text = |value: f64| self.unit.text(value);
        let spread = format!(" ({})", self.unit.span(cell.low, cell.high));
        format!(
            "{} {} {} {}: {}{}{}{}",
            self.row_label,
            self.rows[cell.row],
            self.column_label,
            self.columns[cell.column],
            text(cell.value),
            if cell.low == cell.high { "" } else { &spread },
            cell.predicted.map(|value| format!(", predicted {}", text(value))).unwrap_or_default(),
            cell.standing.labels().map(|(_, words)| format!(", {words}")).unwrap_or_default()
        )
    }

    /// A value in a cell: three significant digits in the unit of all cells.
    pub fn value_text(&self, value: f64) -> String {
        units::value_text(value / self.factor, Unit::Ratio)
    }

    /// The label of the columns, with the unit of the cells.
    pub fn column_caption(&self) -> String {
        format!("{} (values in {})", self.column_label, self.symbol)
    }
}

/// The source of a heat map: results by row and column.
struct HeatMapGrid<'a> {
    metric: &'a Metric,
    /// What distinguishes it from other heat maps of the metric.
    label: String,
    /// What a cell is called.
    called: &'static str,
    /// What a cell's place is called, from the names of its row and its column.
    place: fn(&Self, &str, &str) -> String,
    rows: GridAxis,
    columns: GridAxis,
    cells: Vec<(usize, usize, &'a MetricResult)>,
}

/// The rows or the columns of a grid.
struct GridAxis {
    axis: Axis,
    names: Vec<String>,
}

impl GridAxis {
    fn new(axis: Axis, values: &[Value]) -> Self {
        Self { axis, names: values.iter().map(|&value| units::axis_value(value, axis.scale)).collect() }
    }
}

/// The figure of a matrix; `None` where nothing of it was measured.
pub(super) fn heat_figure(matrix: &Matrix<'_>) -> Option<Figure> {
    let grid = HeatMapGrid {
        metric: matrix.metric,
        label: matrix.label.clone(),
        called: "pair",
        place: |_, from, to| format!("{from} to {to}"),
        rows: GridAxis::new(matrix.from, &matrix.names),
        columns: GridAxis::new(matrix.to, &matrix.names),
        cells: matrix.cells.iter().map(|cell| (cell.from, cell.to, cell.result)).collect(),
    };
    let title = metric_title(matrix.metric).to_owned();
    grid.figure(safe_file_name(&format!("{} {}", matrix.metric.id, matrix.label)), title, matrix.label.clone(), None)
}

/// Fewest values of each of two numeric parameters for a heat map of a metric over both; fewer are lines.
const MIN_GRID_SIDE: usize = 4;

/// The figures of a curve over two parameters, one for each combination of the others: the parameters' grid. Where a best is
/// known, it and the cells not significantly different are marked; otherwise both are numbers, each with several values.
pub(super) fn grid_figures(report: &Report<'_>, curve: &Curve<'_>) -> Vec<Figure> {
    let cells = report.analysis.best_cells.iter().filter(|cell| cell.metric == curve.metric.id);
    let tested: Vec<Figure> = cells.filter_map(|best| grid_figure(curve, &best.fixed, Some(best))).collect();
    if tested.is_empty() { surface_figures(curve) } else { tested }
}

/// The heat maps of a metric over exactly two numbers.
fn surface_figures(curve: &Curve<'_>) -> Vec<Figure> {
    let numbers: Vec<&Axis> = curve.metric.axes().filter(|axis| axis.scale != AxisScale::Category).collect();
    let [first, second] = numbers[..] else { return Vec::new() };
    let rest =
        |case: &Case| -> Case { case.iter().filter(|(name, _)| *name != first.name && *name != second.name).collect() };
    let held: BTreeSet<Case> = curve.results().map(|result| rest(&result.case)).collect();
    let is_surface = |held: &&Case| {
        let of = |axis: &Axis| -> BTreeSet<u64> {
            let here = curve.results().filter(|result| rest(&result.case) == **held);
            here.filter_map(|result| axis.number_in(&result.case)).collect()
        };
        [first, second].into_iter().all(|axis| of(axis).len() >= MIN_GRID_SIDE)
    };
    held.iter().filter(is_surface).filter_map(|held| grid_figure(curve, held, None)).collect()
}

fn grid_figure(curve: &Curve<'_>, held: &Case, best: Option<&BestCell>) -> Option<Figure> {
    let metric = curve.metric;
    let mut varied = metric.axes().filter(|axis| held.get(&axis.name).is_none());
    let (rows, columns) = (*varied.next()?, *varied.next()?);
    let rest =
        |case: &Case| -> Case { case.iter().filter(|(name, _)| *name != rows.name && *name != columns.name).collect() };
    let here: Vec<&MetricResult> = curve.results().filter(|result| rest(&result.case) == *held).collect();
    let values = |axis: Name| -> Vec<Value> {
        let values: BTreeSet<Value> = here.iter().filter_map(|result| result.case.get(&axis)).collect();
        values.into_iter().collect()
    };
    let (down, across) = (values(rows.name), values(columns.name));
    let place = |values: &[Value], result: &MetricResult, axis: Name| {
        values.iter().position(|value| Some(*value) == result.case.get(&axis))
    };
    let cell =
        |result: &&'_ MetricResult| Some((place(&down, result, rows.name)?, place(&across, result, columns.name)?));
    let mut cells: Vec<(usize, usize, &MetricResult)> =
        here.iter().filter_map(|result| cell(result).map(|(row, column)| (row, column, *result))).collect();
    cells.sort_by_key(|&(row, column, _)| (row, column));
    let label = units::case(metric, held);
    let (down, across) = (GridAxis::new(rows, &down), GridAxis::new(columns, &across));
    let which = if label.is_empty() { String::new() } else { format!(", {label}") };
    let title = format!("{}: {} by {}{which}", metric_title(metric), rows.label, columns.label);
    let id = safe_file_name(&format!("{} grid {label}", metric.id));
    // No row of the table has this name: those lead to the curve.
    let shown = format!("{} by {} {label}", rows.name, columns.name);
    let place = |grid: &HeatMapGrid<'_>, row: &str, column: &str| {
        format!("{}={row} {}={column}", grid.rows.axis.name, grid.columns.axis.name)
    };
    HeatMapGrid { metric, label, called: "cell", place, rows: down, columns: across, cells }
        .figure(id, title, shown, best)
}

impl HeatMapGrid<'_> {
    /// `None` where nothing of it was measured.
    fn figure(&self, id: String, title: String, shown: String, best: Option<&BestCell>) -> Option<Figure> {
        let values = self.cells.iter().filter_map(|&(row, column, result)| {
            let [value, low, high] = headline(result)?;
            let predicted = predicted_interval(result).map(|[value, ..]| value);
            let finite = [value, low, high].iter().all(|value| value.is_finite());
            let standing = best.map_or(CellRank::Other, |best| cell_rank(best, &result.case));
            finite.then_some(HeatCell { row, column, step: 0, value, low, high, predicted, standing })
        });
        let mut cells: Vec<HeatCell> = values.collect();
        let steps = ColorSteps::of_cells(&cells)?;
        for cell in &mut cells {
            cell.step = steps.step_of(cell.value);
        }
        let unit = self.metric.unit;
        let scale = units::scale_for(cells.iter().map(|cell| cell.value).fold(0.0, f64::max), unit);
        let mut description = self.describe(&cells);
        description.extend(best.map(|best| format!("{} ({}).", best.conclusion.text, best.conclusion.test)));
        Some(Figure {
            id,
            title,
            description,
            shows: vec![(self.metric.id, shown)],
            drawing: Drawing::Heat(Heat {
                row_label: self.rows.axis.label.to_string(),
                column_label: self.columns.axis.label.to_string(),
                axes: [self.rows.axis.name, self.columns.axis.name],
                called: self.called,
                rows: self.rows.names.clone(),
                columns: self.columns.names.clone(),
                unit: unit.into(),
                factor: scale.factor,
                symbol: scale.symbol.to_owned(),
                steps: steps.labels(unit.into()),
                cells,
            }),
        })
    }

    /// `0 to 1`, `threads=4 block=64 KiB`.
    fn name(&self, row: usize, column: usize) -> String {
        (self.place)(self, &self.rows.names[row], &self.columns.names[column])
    }

    /// The grid in words: lowest and highest cell, ratios to predictions, and what is missing.
    fn describe(&self, cells: &[HeatCell]) -> Vec<String> {
        let unit = self.metric.unit;
        let called = self.called;
        let one = |cell: &HeatCell| {
            format!("{} at {}", units::value_text(cell.value, unit), self.name(cell.row, cell.column))
        };
        let by_value = |a: &&HeatCell, b: &&HeatCell| a.value.total_cmp(&b.value);
        let (Some(lowest), Some(highest)) = (cells.iter().min_by(by_value), cells.iter().max_by(by_value)) else {
            return Vec::new();
        };
        let mut sentences = vec![format!(
            "{}lowest {}, highest {}, of {}{}.",
            prefix(&self.label),
            one(lowest),
            one(highest),
            labels::plural(cells.len() as u64, called),
            verdict_counts(self.cells.iter().map(|&(_, _, result)| result))
        )];
        let without = self.cells.iter().filter(|(_, _, result)| result.outcome.summary().is_none());
        let missing: Vec<String> = without.map(|&(row, column, _)| self.name(row, column)).collect();
        if !missing.is_empty() {
            let which =
                if missing.len() > MAX_NAMED_PAIRS { String::new() } else { format!(": {}", missing.join(", ")) };
            sentences.push(format!("No value for {}{which}.", labels::plural(missing.len() as u64, called)));
        }
        sentences
    }
}

fn cell_rank(best: &BestCell, case: &Case) -> CellRank {
    if *case == best.best {
        CellRank::Best
    } else if best.equivalent.contains(case) {
        CellRank::AsGood
    } else {
        CellRank::Other
    }
}

/// Equal ratios from the lowest to the highest value, so that twice as long looks the same at either end; equal
/// differences where a value is not positive.
struct ColorSteps {
    low: f64,
    high: f64,
}

impl ColorSteps {
    fn of_cells(cells: &[HeatCell]) -> Option<Self> {
        let (low, high) = min_max(cells.iter().map(|cell| cell.value))?;
        Some(Self { low, high })
    }

    fn count(&self) -> usize {
        if self.high > self.low { HEAT_COLORS } else { 1 }
    }

    fn step_of(&self, value: f64) -> usize {
        if self.count() == 1 {
            return 0;
        }
        let share = if self.low > 0.0 {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        ((share * HEAT_COLORS as f64) as usize).min(HEAT_COLORS - 1)
    }

    fn lower_bound(&self, step: usize) -> f64 {
        let share = step as f64 / self.count() as f64;
        if self.low > 0.0 {
            self.low * (self.high / self.low).powf(share)
        } else {
            self.low + share * (self.high - self.low)
        }
    }

    fn labels(&self, unit: AxisKind) -> Vec<String> {
        (0..self.count()).map(|step| unit.span(self.lower_bound(step), self.lower_bound(step + 1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_equal_ratio_and_include_ends() {
        let steps = ColorSteps { low: 10.0, high: 1280.0 };
        assert_eq!(
            (0..7).map(|power| steps.step_of(15.0 * 2f64.powi(power))).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5, 6]
        );
        assert_eq!((steps.step_of(10.0), steps.step_of(1280.0)), (0, 6));
        assert!((steps.lower_bound(3) - 80.0).abs() < 1e-9);
        assert_eq!(steps.labels(AxisKind::Nanoseconds)[6], "640 ns to 1.28 µs");
    }

    #[test]
    fn equal_values_have_one_step() {
        let steps = ColorSteps { low: 5.0, high: 5.0 };
        assert_eq!((steps.step_of(5.0), steps.labels(AxisKind::Nanoseconds)), (0, vec!["5.00 ns".to_owned()]));
    }

    #[test]
    fn values_from_zero_have_linear_steps() {
        let steps = ColorSteps { low: 0.0, high: 7.0 };
        assert_eq!([0.0, 0.9, 1.1, 6.5, 7.0].map(|value| steps.step_of(value)), [0, 0, 1, 6, 6]);
    }
}
