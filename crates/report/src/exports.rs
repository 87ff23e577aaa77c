//! Figures for other tools: what all of their formats leave out, and how they name units.
//!
//! Values are in base units that never change with their size, since these tools compare the numbers of one run with those of the
//! next.

pub mod bencher;
pub mod benchstat;
pub mod github_action;
pub mod influx;
pub mod openmetrics;
#[cfg_attr(not(feature = "parquet"), path = "exports/without_parquet.rs")]
pub mod parquet;
pub mod watch_openmetrics;

use std::collections::HashSet;
use std::fmt;

use kelvin_analysis::{MetricResult, Outcome, Summary};
use kelvin_core::{Better, Metric, Unit};

use crate::Report;

pub use bencher::Bencher;
pub use benchstat::Benchstat;
pub use github_action::GithubAction;
pub use influx::Influx;
pub use openmetrics::OpenMetrics;
pub use parquet::{Parquet, ParquetSamples};
pub use watch_openmetrics::{WatchStatus, write_watch_openmetrics};

/// A figure that other tools can read: it has a headline, and is not only an input of predictions.
pub(crate) struct ExportedFigure<'a> {
    pub result: &'a MetricResult,
    pub summary: &'a Summary,
}

impl ExportedFigure<'_> {
    /// Metric and case: `os.syscall.null call=getppid`.
    pub fn name(&self) -> String {
        let (id, case) = (self.result.metric.id, &self.result.case);
        if case.is_empty() { id.to_string() } else { format!("{id} {case}") }
    }
}

/// What of a run a format does not hold, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedFigures {
    /// Without a value: not known, invalid, skipped, failed, not reached.
    pub without_value: usize,
    /// Measured briefly, only as an input of predictions.
    pub inputs: usize,
    /// Of a metric and case that an earlier probe of the run measured too.
    pub repeated: usize,
    /// Where lower is better, in a format of the other direction.
    pub lower_is_better: usize,
    /// Where higher is better, in a format of the other direction.
    pub higher_is_better: usize,
    /// Where neither is better, in a format of one direction.
    pub neither_is_better: usize,
}

impl fmt::Display for OmittedFigures {
    /// `3 without a value, 14 where higher is better`; nothing where nothing is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.lower_is_better, "where lower is better"),
            (self.higher_is_better, "where higher is better"),
            (self.neither_is_better, "where neither is better"),
            (self.without_value, "without a value"),
            (self.inputs, "measured only as inputs of predictions"),
            (self.repeated, "measured twice"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"));
        f.pad(&parts.collect::<Vec<String>>().join(", "))
    }
}

/// The figures of a run that another tool can read, in their order, and what is left out.
pub(crate) fn exported_figures<'a>(report: &Report<'a>) -> (Vec<ExportedFigure<'a>>, OmittedFigures) {
    let mut omissions = OmittedFigures::default();
    let mut exported_cases = HashSet::new();
    let mut figures = Vec::new();
    for result in &report.analysis.results {
        match &result.outcome {
            _ if result.only_input => omissions.inputs += 1,
            Outcome::Measured(summary) if exported_cases.insert((result.metric.id, &result.case)) => {
                figures.push(ExportedFigure { result, summary });
            }
            Outcome::Measured(_) => omissions.repeated += 1,
            _ => omissions.without_value += 1,
        }
    }
    (figures, omissions)
}

/// What of a report a format of figures in both directions does not hold.
pub fn omitted(report: &Report<'_>) -> OmittedFigures {
    exported_figures(report).1
}

/// What other tools call a unit: Bencher a measure of it, Go's benchmarks, and people.
struct UnitNames {
    slug: &'static str,
    go: &'static str,
    symbol: &'static str,
}

fn unit_names(unit: Unit) -> UnitNames {
    let names = |slug, go, symbol| UnitNames { slug, go, symbol };
    match unit {
        Unit::Nanoseconds => names("nanoseconds", "ns/op", "ns"),
        Unit::Cycles => names("cycles", "cycles/op", "cycles"),
        Unit::Hertz => names("hertz", "Hz", "Hz"),
        Unit::Bytes => names("bytes", "B", "B"),
        Unit::BytesPerSecond => names("bytes-per-second", "B/s", "B/s"),
        Unit::PerSecond => names("operations-per-second", "op/s", "1/s"),
        Unit::Ratio => names("ratio", "ratio", "ratio"),
        Unit::Count => names("count", "count", "count"),
    }
}

/// A suffix for the unit of a metric that has not the usual direction of the unit: these tools know no direction of a
/// benchmark, only one of a unit.
pub(crate) fn direction(metric: &Metric) -> &'static str {
    match (metric.better, metric.unit) {
        // The direction that most metrics of a unit have: a tool that judges by units alone takes it for granted.
        (Better::Lower, Unit::Nanoseconds | Unit::Cycles)
        | (Better::Higher, Unit::BytesPerSecond | Unit::PerSecond | Unit::Hertz) => "",
        (Better::Lower, _) => "-lower-is-better",
        (Better::Higher, _) => "-higher-is-better",
        (Better::Neither, _) => "-fact",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_figures_are_counted_in_words() {
        assert_eq!(OmittedFigures::default().to_string(), "");
        let omissions = OmittedFigures { without_value: 3, higher_is_better: 14, ..OmittedFigures::default() };
        assert_eq!(omissions.to_string(), "14 where higher is better, 3 without a value");
    }

    #[test]
    fn each_unit_has_one_direction() {
        let metric = |unit, better| Metric::duration("a.b", "A metric").unit(unit, better);
        assert_eq!(direction(&metric(Unit::Nanoseconds, Better::Lower)), "");
        assert_eq!(direction(&metric(Unit::Nanoseconds, Better::Higher)), "-higher-is-better");
        assert_eq!(direction(&metric(Unit::Ratio, Better::Lower)), "-lower-is-better");
        assert_eq!(direction(&metric(Unit::Count, Better::Neither)), "-fact");
    }
}
