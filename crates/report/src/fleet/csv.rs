//! A report of a fleet as CSV: a line for each figure of each group, with its distribution over hosts and the hosts that are out by it.

use std::io;

use kelvin_core::units::case;
use kelvin_fleet::{FleetGroup, FleetReport, SeriesDistribution};

use crate::csv::{csv_writer, escape_formula};

const COLUMNS: [&str; 17] = [
    "group",
    "metric",
    "version",
    "case",
    "unit",
    "better",
    "hosts",
    "runs",
    "median",
    "lower_quartile",
    "upper_quartile",
    "lowest",
    "lowest_host",
    "highest",
    "highest_host",
    "between_hosts",
    "between_runs",
];

/// Writes a report of a fleet as CSV, in base units.
///
/// # Errors
/// Those of the writer.
pub fn write_csv(report: &FleetReport, out: &mut dyn io::Write) -> io::Result<()> {
    let mut lines = csv_writer(out);
    lines.write_record(COLUMNS.into_iter().chain(["outliers"]))?;
    for group in &report.groups {
        for series in &group.series {
            lines.write_record(fields(group, series))?;
        }
    }
    lines.flush()
}

fn fields(group: &FleetGroup, series: &SeriesDistribution) -> Vec<String> {
    let text = |text: &str| escape_formula(text).into_owned();
    let is_out = |host: &&kelvin_fleet::OutlierHost| {
        host.figures.iter().any(|figure| figure.metric.id == series.metric.id && figure.case == series.case)
    };
    let outliers: Vec<&str> = group.outliers.iter().filter(is_out).map(|host| host.label.as_str()).collect();
    let number = |value: f64| value.to_string();
    vec![
        text(&group.name),
        text(&series.metric.id),
        series.metric.version.to_string(),
        text(&case(&series.metric, &series.case)),
        series.metric.unit.name().to_owned(),
        series.metric.better.name().to_owned(),
        series.hosts.to_string(),
        series.runs.to_string(),
        number(series.median),
        number(series.quartiles[0]),
        number(series.quartiles[1]),
        number(series.lowest.1),
        text(&series.lowest.0),
        number(series.highest.1),
        text(&series.highest.0),
        number(series.between_hosts),
        series.between_runs.map(number).unwrap_or_default(),
        text(&outliers.join(" ")),
    ]
}
