//! A run compared with published machines: the same quantity here and there, for the formats that have a table for it.

use kelvin_analysis::reference::{Comparability, comparability};
use kelvin_core::{Reference, ReferenceValue};

use kelvin_analysis::MetricResult;

use crate::{Report, units};

/// One published machine and what it has in common with the run.
pub(crate) struct PublishedComparison<'a> {
    /// The machine.
    pub reference: &'a Reference,
    /// The common quantities, in the order of the run.
    pub rows: Vec<PublishedTableRow>,
}

/// A quantity measured here and published there.
pub(crate) struct PublishedTableRow {
    /// Metric and case.
    pub quantity: String,
    /// Measured here, with its interval.
    pub measured: String,
    /// Published there.
    pub published: String,
    /// Here over there; empty if the two are not the same quantity.
    pub ratio: String,
    /// Why there is no ratio.
    pub remark: String,
}

/// What each of the report's published machines has in common with the run; machines with nothing in common are left
/// out.
pub(crate) fn published_comparisons<'a>(report: &Report<'a>) -> Vec<PublishedComparison<'a>> {
    let rows = |reference: &Reference| {
        let results = report.analysis.results.iter().filter(|result| !result.only_input);
        results.flat_map(|result| rows_of(result, reference)).collect()
    };
    let tables = report.references.iter().map(|reference| PublishedComparison { reference, rows: rows(reference) });
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn rows_of(result: &MetricResult, reference: &Reference) -> Vec<PublishedTableRow> {
    let Some(summary) = result.outcome.summary() else { return Vec::new() };
    let measured = units::measured_text(summary, result.metric.unit);
    let is_published = |value: &&ReferenceValue| value.metric == result.metric.id && value.case == result.case;
    let row = |value: &ReferenceValue| {
        let (ratio, remark) = match comparability(value, &result.metric) {
            Comparability::Equal if value.value != 0.0 => (units::ratio(summary.headline / value.value), String::new()),
            Comparability::Equal => (String::new(), "the published value is zero".into()),
            Comparability::ShownOnly(reason) => (String::new(), reason),
        };
        let case = units::case(&result.metric, &result.case);
        let quantity =
            if case.is_empty() { result.metric.id.to_string() } else { format!("{} {case}", result.metric.id) };
        PublishedTableRow {
            quantity,
            measured: measured.clone(),
            published: units::value_text(value.value, value.unit),
            ratio,
            remark,
        }
    };
    reference.values.iter().filter(is_published).map(row).collect()
}
