//! Heat maps: a value for each row and column, as one of a few colours, and the best cell if known.

use std::collections::BTreeSet;

use kelvin_analysis::BestCell;
use kelvin_core::{Axis, AxisScale, Case, IndirectSort, Name, Unit};
use kelvin_stats::min_max;
use serde::{Serialize, Serializer};

use super::curves::{headline, metric_title, predicted_interval, prefix, verdict_counts};
use super::{AxisKind, Drawing, Figure, Sig6, safe_file_name};
use crate::palette::HEAT_COLORS;
use crate::scale::share_between;
use crate::sections::{Curve, Matrix, MatrixCell, PairDistance, case_without};
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
    /// Row and column of the cells that were not measured; a CPU and itself is no pair.
    #[serde(skip)]
    pub unmeasured: Vec<(usize, usize)>,
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
        let Self { row_label, column_label, .. } = self;
        let (row, column, value) = (&self.rows[cell.row], &self.columns[cell.column], text(cell.value));
        let spread = format!(" ({})", self.unit.span(cell.low, cell.high));
        let spread = if cell.low == cell.high { "" } else { &spread };
        let predicted = cell.predicted.map(|value| format!(", predicted {}", text(value))).unwrap_or_default();
        let standing = cell.standing.labels().map(|(_, words)| format!(", {words}")).unwrap_or_default();
        format!("{row_label} {row} {column_label} {column}: {value}{spread}{predicted}{standing}")
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

/// The figure of a matrix; `None` where nothing of it was measured.
pub(super) fn heat_figure(matrix: &Matrix<'_>) -> Option<Figure> {
    let (heat, mut description) = heat_map(matrix, None)?;
    description.extend(describe_distances(matrix));
    Some(Figure {
        id: safe_file_name(&format!("{} {}", matrix.metric.id, matrix.label)),
        title: metric_title(matrix.metric).to_owned(),
        description,
        shows: vec![(matrix.metric.id, matrix.label.clone())],
        drawing: Drawing::Heat(heat),
    })
}

/// Fewest values of each of two numeric parameters for a heat map of a metric over both; fewer are lines.
const MIN_GRID_SIDE: usize = 4;

/// The figures of a curve over two parameters, one for each combination of the others: the parameters' grid. Where a best is
/// known, it and the cells not significantly different are marked; otherwise both are numbers, each with several values.
pub(super) fn grid_figures(report: &Report<'_>, curve: &Curve<'_>) -> Vec<Figure> {
    let cells = report.analysis.best_cells.iter().filter(|cell| cell.metric == curve.metric.id);
    let tested: Vec<Figure> = cells.filter_map(|best| grid_figure(&grid(curve, &best.fixed)?, Some(best))).collect();
    if tested.is_empty() { surface_figures(curve) } else { tested }
}

/// The heat maps of a metric over exactly two numbers.
fn surface_figures(curve: &Curve<'_>) -> Vec<Figure> {
    let numbers: Vec<Axis> = curve.metric.axes().filter(|axis| axis.scale != AxisScale::Category).copied().collect();
    if numbers.len() != 2 {
        return Vec::new();
    }
    let fixed: BTreeSet<Case> = curve.results().map(|result| case_without(&result.case, &numbers)).collect();
    let is_surface =
        |grid: &Matrix<'_>| [&grid.rows, &grid.columns].iter().all(|side| side.names.len() >= MIN_GRID_SIDE);
    let surfaces = fixed.iter().filter_map(|fixed| grid(curve, fixed)).filter(is_surface);
    surfaces.filter_map(|grid| grid_figure(&grid, None)).collect()
}

/// The results of a curve at these values of all parameters except two; `None` where the others are not two.
fn grid<'a>(curve: &Curve<'a>, fixed: &Case) -> Option<Matrix<'a>> {
    let mut varied = curve.metric.axes().filter(|axis| fixed.get(&axis.name).is_none());
    let axes = [*varied.next()?, *varied.next()?];
    let results = curve.results().filter(|result| case_without(&result.case, &axes) == *fixed);
    Some(Matrix::new(curve.metric, fixed.clone(), axes, &results.collect::<Vec<_>>()))
}

fn grid_figure(grid: &Matrix<'_>, best: Option<&BestCell>) -> Option<Figure> {
    let (heat, description) = heat_map(grid, best)?;
    let Matrix { metric, label, rows, columns, .. } = grid;
    let suffix = if label.is_empty() { String::new() } else { format!(", {label}") };
    Some(Figure {
        id: safe_file_name(&format!("{} grid {label}", metric.id)),
        title: format!("{}: {} by {}{suffix}", metric_title(metric), rows.axis.label, columns.axis.label),
        description,
        // No row of the table has this name: those lead to the curve.
        shows: vec![(metric.id, format!("{} by {} {label}", rows.axis.name, columns.axis.name))],
        drawing: Drawing::Heat(heat),
    })
}

/// The heat map of a matrix, and its description; `None` where nothing of it was measured.
fn heat_map(matrix: &Matrix<'_>, best: Option<&BestCell>) -> Option<(Heat, Vec<String>)> {
    let cell = |&MatrixCell { row, column, result }: &MatrixCell<'_>| {
        let [value, low, high] = headline(result)?;
        let predicted = predicted_interval(result).map(|[value, ..]| value);
        let standing = match best {
            Some(best) if best.best == result.case => CellRank::Best,
            Some(best) if best.equivalent.contains(&result.case) => CellRank::AsGood,
            _ => CellRank::Other,
        };
        let is_finite = [value, low, high].iter().all(|value| value.is_finite());
        is_finite.then_some(HeatCell { row, column, step: 0, value, low, high, predicted, standing })
    };
    let mut cells: Vec<HeatCell> = matrix.cells.iter().filter_map(cell).collect();
    let (low, high) = min_max(cells.iter().map(|cell| cell.value))?;
    let steps = ColorSteps { low, high };
    cells.iter_mut().for_each(|cell| cell.step = steps.step_of(cell.value));
    let unit = AxisKind::from(matrix.metric.unit);
    let scale = units::scale_for(cells.iter().map(|cell| cell.value).fold(0.0, f64::max), matrix.metric.unit);
    let mut description = describe(matrix, &cells);
    if matrix.is_symmetric() {
        description.push("A pair has one figure for both directions.".into());
        let mirrored = |cell: &HeatCell| HeatCell { row: cell.column, column: cell.row, ..*cell };
        cells.extend(cells.iter().map(mirrored).collect::<Vec<_>>());
        cells.indirect_sort_by_key(|cell| (cell.row, cell.column));
    }
    description.extend(best.map(|best| format!("{} ({}).", best.conclusion.text, best.conclusion.test)));
    let heat = Heat {
        row_label: matrix.rows.axis.label.to_string(),
        column_label: matrix.columns.axis.label.to_string(),
        axes: [matrix.rows.axis.name, matrix.columns.axis.name],
        called: matrix.cell_word(),
        rows: matrix.rows.names.clone(),
        columns: matrix.columns.names.clone(),
        unit,
        factor: scale.factor,
        symbol: scale.symbol.to_owned(),
        steps: steps.labels(unit),
        unmeasured: unmeasured(matrix, &cells),
        cells,
    };
    Some((heat, description))
}

/// The cells of a matrix that are none of these.
fn unmeasured(matrix: &Matrix<'_>, cells: &[HeatCell]) -> Vec<(usize, usize)> {
    let measured: BTreeSet<(usize, usize)> = cells.iter().map(|cell| (cell.row, cell.column)).collect();
    let columns = 0..matrix.columns.names.len();
    let all = (0..matrix.rows.names.len()).flat_map(|row| columns.clone().map(move |column| (row, column)));
    let is_no_pair = |(row, column): (usize, usize)| matrix.is_symmetric() && row == column;
    all.filter(|&cell| !(measured.contains(&cell) || is_no_pair(cell))).collect()
}

/// The figures of pairs of CPUs by what these share, in words.
fn describe_distances(matrix: &Matrix<'_>) -> Option<String> {
    let text = |distance: &PairDistance| {
        let pairs = labels::plural(distance.pairs as u64, matrix.cell_word());
        format!("{} {} ({pairs})", distance.level, units::value_text(distance.median, matrix.metric.unit))
    };
    let texts: Vec<String> = matrix.distances.iter().map(text).collect();
    (!texts.is_empty()).then(|| format!("Medians by what the CPUs share: {}.", texts.join(", ")))
}

/// A grid in words: lowest and highest cell, ratios to predictions, and what is missing.
fn describe(matrix: &Matrix<'_>, cells: &[HeatCell]) -> Vec<String> {
    let position = |row: usize, column: usize| match (&matrix.rows, &matrix.columns) {
        _ if matrix.is_of_pairs() => matrix.pair_name(row, column),
        (rows, columns) => {
            format!("{}={} {}={}", rows.axis.name, rows.names[row], columns.axis.name, columns.names[column])
        }
    };
    let text = |cell: &HeatCell| {
        format!("{} at {}", units::value_text(cell.value, matrix.metric.unit), position(cell.row, cell.column))
    };
    let by_value = |a: &&HeatCell, b: &&HeatCell| a.value.total_cmp(&b.value);
    let (Some(lowest), Some(highest)) = (cells.iter().min_by(by_value), cells.iter().max_by(by_value)) else {
        return Vec::new();
    };
    let (lowest, highest) = (text(lowest), text(highest));
    let count = labels::plural(cells.len() as u64, matrix.cell_word());
    let (name, verdicts) = (prefix(&matrix.label), verdict_counts(matrix.results()));
    let mut sentences = vec![format!("{name}lowest {lowest}, highest {highest}, of {count}{verdicts}.")];
    let missing_cells = matrix.cells.iter().filter(|cell| cell.result.outcome.summary().is_none());
    let missing: Vec<String> = missing_cells.map(|cell| position(cell.row, cell.column)).collect();
    if !missing.is_empty() {
        let pairs_text =
            if missing.len() > MAX_NAMED_PAIRS { String::new() } else { format!(": {}", missing.join(", ")) };
        sentences
            .push(format!("No value for {}{pairs_text}.", labels::plural(missing.len() as u64, matrix.cell_word())));
    }
    sentences
}

/// Equal ratios from the lowest to the highest value, so that twice as long looks the same at either end; equal
/// differences where a value is not positive.
struct ColorSteps {
    low: f64,
    high: f64,
}

impl ColorSteps {
    fn count(&self) -> usize {
        if self.high > self.low { HEAT_COLORS } else { 1 }
    }

    fn step_of(&self, value: f64) -> usize {
        let share = share_between(value, (self.low, self.high), self.low > 0.0);
        ((share * self.count() as f64) as usize).min(self.count() - 1)
    }

    fn lower_bound(&self, step: usize) -> f64 {
        match step as f64 / self.count() as f64 {
            share if self.low > 0.0 => self.low * (self.high / self.low).powf(share),
            share => self.low + share * (self.high - self.low),
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
        assert_eq!(steps.labels(AxisKind::Unit(Unit::Nanoseconds))[6], "640 ns to 1.28 µs");
    }

    #[test]
    fn equal_values_have_one_step() {
        let steps = ColorSteps { low: 5.0, high: 5.0 };
        assert_eq!(
            (steps.step_of(5.0), steps.labels(AxisKind::Unit(Unit::Nanoseconds))),
            (0, vec!["5.00 ns".to_owned()])
        );
    }

    #[test]
    fn values_from_zero_have_linear_steps() {
        let steps = ColorSteps { low: 0.0, high: 7.0 };
        assert_eq!([0.0, 0.9, 1.1, 6.5, 7.0].map(|value| steps.step_of(value)), [0, 0, 1, 6, 6]);
    }
}
