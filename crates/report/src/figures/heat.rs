//! Heat maps: a value for each pair of a row and a column, as one of a few colours.

use kelvin_model::Unit;
use serde::{Serialize, Serializer};

use super::curves::{foreseen, headline, prefix, standing};
use super::{AxisKind, Drawing, Figure, file_name};
use crate::sections::Matrix;
use crate::{units, words};

/// Colours of a heat map: as many as an eye can tell apart and name by the legend.
pub const HEAT_STEPS: usize = 7;

/// Most pairs without a number that a sentence names.
const MOST_NAMED: usize = 6;

/// A coloured grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heat {
    /// What the rows are.
    pub row_label: String,
    /// What the columns are.
    pub column_label: String,
    /// Names of the rows and of the columns, which are the same.
    pub names: Vec<String>,
    /// What the values are.
    pub unit: AxisKind,
    /// What the values that stand in the cells are divided by: one unit for all of them.
    pub factor: f64,
    /// The symbol of that unit.
    pub symbol: String,
    /// The range of each colour in words, lowest first; never empty.
    pub steps: Vec<String>,
    /// The pairs that came to a number.
    pub cells: Vec<Cell>,
}

/// One pair.
///
/// Serialised for drawing: an array of row, column, step, value, low, high, and the prediction if there is one.
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
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let short = super::short::<S::Error>;
        let predicted = self.predicted.map(short).transpose()?;
        (self.row, self.column, self.step, short(self.value)?, short(self.low)?, short(self.high)?, predicted)
            .serialize(serializer)
    }
}

impl Heat {
    /// The cell of a pair, if it came to a number.
    pub fn cell(&self, row: usize, column: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.row == row && cell.column == column)
    }

    /// A value as it stands in a cell: three significant digits in the unit of all cells.
    pub fn digits(&self, value: f64) -> String {
        units::plain(value / self.factor, Unit::Ratio)
    }

    /// What the columns are, and the unit of what stands in the cells.
    pub fn column_caption(&self) -> String {
        format!("{} (values in {})", self.column_label, self.symbol)
    }
}

/// The figure of a matrix; `None` where nothing of it was measured.
pub(super) fn heat_figure(matrix: &Matrix<'_>) -> Option<Figure> {
    let metric = matrix.metric;
    let values = matrix.cells.iter().filter_map(|cell| {
        let [value, low, high] = headline(cell.result)?;
        let predicted = foreseen(cell.result).map(|[value, ..]| value);
        let finite = [value, low, high].iter().all(|value| value.is_finite());
        finite.then_some(Cell { row: cell.from, column: cell.to, step: 0, value, low, high, predicted })
    });
    let mut cells: Vec<Cell> = values.collect();
    let steps = Steps::over(&cells)?;
    for cell in &mut cells {
        cell.step = steps.of(cell.value);
    }
    let most = cells.iter().map(|cell| cell.value).fold(0.0, f64::max);
    let scale = units::scale_for(most, metric.unit);
    Some(Figure {
        id: file_name(&format!("{} {}", metric.id, matrix.label)),
        title: metric.summary.to_string(),
        description: describe(matrix, &cells),
        shows: vec![(metric.id, matrix.label.clone())],
        drawing: Drawing::Heat(Heat {
            row_label: matrix.from.label.to_string(),
            column_label: matrix.to.label.to_string(),
            names: (0..matrix.names.len()).map(|index| matrix.name(index)).collect(),
            unit: metric.unit.into(),
            factor: scale.factor,
            symbol: scale.symbol.to_owned(),
            steps: steps.labels(metric.unit.into()),
            cells,
        }),
    })
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

/// The matrix in words: fastest and slowest pair, how it stands to its predictions, and what is missing.
fn describe(matrix: &Matrix<'_>, cells: &[Cell]) -> Vec<String> {
    let unit = matrix.metric.unit;
    let pair = |cell: &Cell| {
        format!("{} from {} to {}", units::plain(cell.value, unit), matrix.name(cell.row), matrix.name(cell.column))
    };
    let by_value = |a: &&Cell, b: &&Cell| a.value.total_cmp(&b.value);
    let (Some(lowest), Some(highest)) = (cells.iter().min_by(by_value), cells.iter().max_by(by_value)) else {
        return Vec::new();
    };
    let results = || matrix.cells.iter().map(|cell| cell.result);
    let mut sentences = vec![format!(
        "{}lowest {}, highest {}, of {}{}.",
        prefix(&matrix.label),
        pair(lowest),
        pair(highest),
        words::plural(cells.len() as u64, "pair"),
        standing(results())
    )];
    let missing: Vec<String> = matrix
        .cells
        .iter()
        .filter(|cell| cell.result.outcome.summary().is_none())
        .map(|cell| format!("{} to {}", matrix.name(cell.from), matrix.name(cell.to)))
        .collect();
    if !missing.is_empty() {
        let which = if missing.len() > MOST_NAMED { String::new() } else { format!(": {}", missing.join(", ")) };
        sentences.push(format!("{} came to no number{which}.", words::plural(missing.len() as u64, "pair")));
    }
    sentences
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
