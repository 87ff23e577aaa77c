//! Results that are one row of a table together.

use kelvin_analysis::MetricResult;
use kelvin_core::{Case, Metric, Value};

use crate::sections::{Curve, CurveSeries, Matrix, MatrixCell};
use crate::{labels, units};

/// Results that are one row together: a line of a curve, or a matrix.
pub(super) struct ResultGroup<'a> {
    /// The metric.
    pub(super) metric: &'a Metric,
    /// What distinguishes it from the other groups of the metric.
    pub(super) label: String,
    /// The axes that do.
    pub(super) fixed: Case,
    /// What the positions are.
    pub(super) axis: String,
    /// What the results are called: points, pairs.
    unit: &'static str,
    /// Each result with its position.
    pub(super) points: Vec<(String, &'a MetricResult)>,
}

impl<'a> ResultGroup<'a> {
    pub(super) fn of_curve(curve: &Curve<'a>) -> Vec<Self> {
        let text = |position: u64| units::axis_value(Value::Integer(position), curve.axis.scale);
        let group = |line: &CurveSeries<'a>| Self {
            metric: curve.metric,
            label: line.label.clone(),
            fixed: line.fixed.clone(),
            axis: curve.axis.label.to_string(),
            unit: "point",
            points: line.points.iter().map(|(position, result)| (text(*position), *result)).collect(),
        };
        curve.series.iter().map(group).collect()
    }

    pub(super) fn of_matrix(matrix: &Matrix<'a>) -> Self {
        let pair = |cell: &MatrixCell<'a>| (matrix.pair_name(cell.row, cell.column), cell.result);
        Self {
            metric: matrix.metric,
            label: matrix.label.clone(),
            fixed: matrix.fixed.clone(),
            axis: matrix.axes_label(),
            unit: matrix.cell_word(),
            points: matrix.cells.iter().map(pair).collect(),
        }
    }

    /// All its results.
    pub(super) fn results(&self) -> Vec<&'a MetricResult> {
        self.points.iter().map(|(_, result)| *result).collect()
    }

    /// How many there are, and how many of them have a number if not all.
    pub(super) fn count_text(&self) -> String {
        let measured = self.points.iter().filter(|(_, result)| result.outcome.summary().is_some()).count();
        let count = labels::plural(self.points.len() as u64, self.unit);
        if measured == self.points.len() { count } else { format!("{measured} of {count}") }
    }
}
