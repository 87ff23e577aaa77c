//! The tables of studies, as all formats that show them have them in common.

use kelvin_analysis::{Figure, MetricResult, StudyColumn, StudyRow, StudyTable};
use kelvin_core::{Conclusion, Interval, Metric, Unit};

use crate::{Report, units};

/// Whether the claim of a conclusion is so, in one word: its sentence is the claim with its limit, then the figure.
pub(crate) fn verdict(conclusion: &Conclusion) -> &'static str {
    match conclusion.holds {
        Some(true) => "true",
        Some(false) => "false",
        None if conclusion.same_within().is_some() => "same",
        None => "not known",
    }
}

/// Whether a table of a study has this figure.
pub(crate) fn has_result(report: &Report<'_>, result: &MetricResult) -> bool {
    let mut tables = report.analysis.studies.iter().flat_map(|study| &study.tables);
    result.outcome.summary().is_some() && tables.any(|table| table.metrics.contains(&result.metric.id))
}

/// Whether tables of studies are place enough for a metric.
pub(crate) fn has_metric(report: &Report<'_>, metric: &Metric) -> bool {
    report.analysis.studies.iter().any(|study| study.in_tables.contains(&metric.id))
}

/// The columns of a table that have a figure in some row, with their places; where there is little room, the main ones.
pub(crate) fn columns(table: &StudyTable, is_narrow: bool) -> Vec<(usize, &StudyColumn)> {
    let has_figures = |index: usize| table.rows.iter().any(|row| row.cells[index].is_some());
    let columns = table.columns.iter().enumerate();
    columns.filter(|(index, column)| has_figures(*index) && (column.is_main || !is_narrow)).collect()
}

/// A figure of a row as text; empty without one.
pub(crate) fn cell_text(row: &StudyRow, (index, column): (usize, &StudyColumn)) -> String {
    let figure = row.cells[index].as_ref();
    figure.map_or_else(String::new, |figure| match column.unit {
        Unit::Ratio => share(figure),
        unit => units::figure_text(figure, unit).to_string(),
    })
}

/// A share of a whole in percent, as each ratio in a table of a study is.
fn share(figure: &Figure) -> String {
    let percent = |interval: Interval| {
        let [lower, upper] = [interval.lower, interval.upper].map(|end| 100.0 * end);
        Interval { lower, upper, ..interval }
    };
    let percent = Figure { value: 100.0 * figure.value, interval: figure.interval.map(percent), ..*figure };
    format!("{} %", units::figure_text(&percent, Unit::Ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_cell_has_percent_sign() {
        let row = StudyRow { label: "1 user".into(), cells: vec![Some(Figure { value: 0.608, interval: None, n: 1 })] };
        let column = |unit| StudyColumn { label: "user".into(), unit, is_main: true };
        assert_eq!(cell_text(&row, (0, &column(Unit::Ratio))), "60.8 %");
        assert_eq!(cell_text(&row, (0, &column(Unit::Count))), "0.608");
    }
}
