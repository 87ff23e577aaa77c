//! Heat maps: a value for each row and column, as one of a few colours, and the best cell if known.

use std::collections::BTreeSet;

use kelvin_analysis::{BestCell, MetricResult};
use kelvin_model::{Axis, AxisScale, Case, Metric, Name, Unit, Value};
use serde::{Serialize, Serializer};

use super::curves::{foreseen, headline, prefix, standing, title};
use super::{AxisKind, Drawing, Figure, Short, file_name};
use crate::palette::HEAT_STEPS;
use crate::sections::{Curve, Matrix};
use crate::{Report, units, words};

/// Maximum pairs without a value that a sentence names.
const MOST_NAMED: usize = 6;

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
    pub cells: Vec<Cell>,
}

/// A cell against the best one, if tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is worse, or not tested.
    Other,
    /// It is not significantly different from the best.
    AsGood,
    /// It is the best.
    Best,
}

impl Standing {
    /// Its class in a drawing, and its label.
    pub fn words(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Best => Some(("best", "best")),
            Self::AsGood => Some(("as-good", "as good")),
            Self::Other => None,
        }
    }
}

/// One cell. Serialised as an array of row, column, value, low, high, and the prediction if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
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
    pub standing: Standing,
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [value, low, high] = [self.value, self.low, self.high].map(Short);
        let predicted = self.predicted.map(Short);
        (self.row, self.column, value, low, high, predicted).serialize(serializer)
    }
}

impl Heat {
    /// The cell of a pair, if it has a value.
    pub fn cell(&self, row: usize, column: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.row == row && cell.column == column)
    }

    /// A cell in words: `from CPU 0 to CPU 1: 42.1 ns (41.8 to 42.5), predicted 40.0 ns, best`.
    pub fn said(&self, cell: &Cell) -> String {
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
            cell.standing.words().map(|(_, words)| format!(", {words}")).unwrap_or_default()
        )
    }

    /// A value in a cell: three significant digits in the unit of all cells.
    pub fn digits(&self, value: f64) -> String {
        units::plain(value / self.factor, Unit::Ratio)
    }

    /// The label of the columns, with the unit of the cells.
    pub fn column_caption(&self) -> String {
        format!("{} (values in {})", self.column_label, self.symbol)
    }
}

/// The source of a heat map: results by row and column.
struct Grid<'a> {
    metric: &'a Metric,
    /// What distinguishes it from other heat maps of the metric.
    label: String,
    /// What a cell is called.
    called: &'static str,
    /// What a cell's place is called, from the names of its row and its column.
    place: fn(&Self, &str, &str) -> String,
    rows: Side,
    columns: Side,
    cells: Vec<(usize, usize, &'a MetricResult)>,
}

/// The rows or the columns of a grid.
struct Side {
    axis: Axis,
    names: Vec<String>,
}

impl Side {
    fn of(axis: Axis, values: &[Value]) -> Self {
        Self { axis, names: values.iter().map(|&value| units::axis_value(value, axis.scale)).collect() }
    }
}

/// The figure of a matrix; `None` where nothing of it was measured.
pub(super) fn heat_figure(matrix: &Matrix<'_>) -> Option<Figure> {
    let grid = Grid {
        metric: matrix.metric,
        label: matrix.label.clone(),
        called: "pair",
        place: |_, from, to| format!("{from} to {to}"),
        rows: Side::of(matrix.from, &matrix.names),
        columns: Side::of(matrix.to, &matrix.names),
        cells: matrix.cells.iter().map(|cell| (cell.from, cell.to, cell.result)).collect(),
    };
    let title = title(matrix.metric).to_owned();
    grid.figure(file_name(&format!("{} {}", matrix.metric.id, matrix.label)), title, matrix.label.clone(), None)
}

/// Fewest values of each of two numeric parameters for a heat map of a metric over both; fewer are lines.
const LEAST_SIDE: usize = 4;

/// The figures of a curve over two parameters, one for each combination of the others: the parameters' grid. Where a best is
/// known, it and the cells not significantly different are marked; otherwise both are numbers, each with several values.
pub(super) fn grid_figures(report: &Report<'_>, curve: &Curve<'_>) -> Vec<Figure> {
    let cells = report.analysis.best_cells.iter().filter(|cell| cell.metric == curve.metric.id);
    let tested: Vec<Figure> = cells.filter_map(|best| grid_figure(curve, &best.held, Some(best))).collect();
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
            here.filter_map(|result| axis.of(&result.case)).collect()
        };
        [first, second].into_iter().all(|axis| of(axis).len() >= LEAST_SIDE)
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
    let (down, across) = (Side::of(rows, &down), Side::of(columns, &across));
    let which = if label.is_empty() { String::new() } else { format!(", {label}") };
    let title = format!("{}: {} by {}{which}", title(metric), rows.label, columns.label);
    let id = file_name(&format!("{} grid {label}", metric.id));
    // No row of the table has this name: those lead to the curve.
    let shown = format!("{} by {} {label}", rows.name, columns.name);
    let place = |grid: &Grid<'_>, row: &str, column: &str| {
        format!("{}={row} {}={column}", grid.rows.axis.name, grid.columns.axis.name)
    };
    Grid { metric, label, called: "cell", place, rows: down, columns: across, cells }.figure(id, title, shown, best)
}

impl Grid<'_> {
    /// `None` where nothing of it was measured.
    fn figure(&self, id: String, title: String, shown: String, best: Option<&BestCell>) -> Option<Figure> {
        let values = self.cells.iter().filter_map(|&(row, column, result)| {
            let [value, low, high] = headline(result)?;
            let predicted = foreseen(result).map(|[value, ..]| value);
            let finite = [value, low, high].iter().all(|value| value.is_finite());
            let standing = best.map_or(Standing::Other, |best| standing_of(best, &result.case));
            finite.then_some(Cell { row, column, step: 0, value, low, high, predicted, standing })
        });
        let mut cells: Vec<Cell> = values.collect();
        let steps = Steps::over(&cells)?;
        for cell in &mut cells {
            cell.step = steps.of(cell.value);
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
    fn describe(&self, cells: &[Cell]) -> Vec<String> {
        let unit = self.metric.unit;
        let called = self.called;
        let one = |cell: &Cell| format!("{} at {}", units::plain(cell.value, unit), self.name(cell.row, cell.column));
        let by_value = |a: &&Cell, b: &&Cell| a.value.total_cmp(&b.value);
        let (Some(lowest), Some(highest)) = (cells.iter().min_by(by_value), cells.iter().max_by(by_value)) else {
            return Vec::new();
        };
        let mut sentences = vec![format!(
            "{}lowest {}, highest {}, of {}{}.",
            prefix(&self.label),
            one(lowest),
            one(highest),
            words::plural(cells.len() as u64, called),
            standing(self.cells.iter().map(|&(_, _, result)| result))
        )];
        let without = self.cells.iter().filter(|(_, _, result)| result.outcome.summary().is_none());
        let missing: Vec<String> = without.map(|&(row, column, _)| self.name(row, column)).collect();
        if !missing.is_empty() {
            let which = if missing.len() > MOST_NAMED { String::new() } else { format!(": {}", missing.join(", ")) };
            sentences.push(format!("No value for {}{which}.", words::plural(missing.len() as u64, called)));
        }
        sentences
    }
}

fn standing_of(best: &BestCell, case: &Case) -> Standing {
    if *case == best.best {
        Standing::Best
    } else if best.as_good.contains(case) {
        Standing::AsGood
    } else {
        Standing::Other
    }
}

/// Equal ratios from the lowest to the highest value, so that twice as long looks the same at either end; equal
/// differences where a value is not positive.
struct Steps {
    low: f64,
    high: f64,
}

impl Steps {
    fn over(cells: &[Cell]) -> Option<Self> {
        let values = || cells.iter().map(|cell| cell.value);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        low.is_finite().then_some(Self { low, high })
    }

    fn count(&self) -> usize {
        if self.high > self.low { HEAT_STEPS } else { 1 }
    }

    fn of(&self, value: f64) -> usize {
        if self.count() == 1 {
            return 0;
        }
        let share = if self.low > 0.0 {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        ((share * HEAT_STEPS as f64) as usize).min(HEAT_STEPS - 1)
    }

    fn bound(&self, step: usize) -> f64 {
        let share = step as f64 / self.count() as f64;
        if self.low > 0.0 {
            self.low * (self.high / self.low).powf(share)
        } else {
            self.low + share * (self.high - self.low)
        }
    }

    fn labels(&self, unit: AxisKind) -> Vec<String> {
        (0..self.count()).map(|step| unit.span(self.bound(step), self.bound(step + 1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_of_equal_ratio_and_hold_both_ends() {
        let steps = Steps { low: 10.0, high: 1280.0 };
        assert_eq!((0..7).map(|power| steps.of(15.0 * 2f64.powi(power))).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((steps.of(10.0), steps.of(1280.0)), (0, 6));
        assert!((steps.bound(3) - 80.0).abs() < 1e-9);
        assert_eq!(steps.labels(AxisKind::Nanoseconds)[6], "640 ns to 1.28 µs");
    }

    #[test]
    fn equal_values_have_one_colour() {
        let steps = Steps { low: 5.0, high: 5.0 };
        assert_eq!((steps.of(5.0), steps.labels(AxisKind::Nanoseconds)), (0, vec!["5.00 ns".to_owned()]));
    }

    #[test]
    fn values_from_zero_are_parted_evenly() {
        let steps = Steps { low: 0.0, high: 7.0 };
        assert_eq!([0.0, 0.9, 1.1, 6.5, 7.0].map(|value| steps.of(value)), [0, 0, 1, 6, 6]);
    }
}
