//! The JSON of github-action-benchmark, `customSmallerIsBetter` and `customBiggerIsBetter`: a list of names, units and values, for a
//! tool that takes all figures of a file to have one direction.
//!
//! Source: the section on custom benchmarks of github.com/benchmark-action/github-action-benchmark (README.md).

use std::io;

use kelvin_analysis::{Interval, IntervalKind};
use kelvin_core::{Better, json};
use serde::Serialize;

use super::{ExportedFigure, OmittedFigures, exported_figures, unit_names};
use crate::{Render, Report};

/// The figures of a run that have one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GithubAction {
    /// `customSmallerIsBetter`.
    SmallerIsBetter,
    /// `customBiggerIsBetter`.
    BiggerIsBetter,
}

#[derive(Serialize)]
struct BenchmarkEntry {
    name: String,
    unit: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

impl GithubAction {
    /// What it does not hold.
    pub fn omitted(self, report: &Report<'_>) -> OmittedFigures {
        self.entries(report).1
    }

    fn entries(self, report: &Report<'_>) -> (Vec<BenchmarkEntry>, OmittedFigures) {
        let (figures, mut omissions) = exported_figures(report);
        let mut entries = Vec::new();
        for figure in figures {
            match (self, figure.result.metric.better) {
                (Self::SmallerIsBetter, Better::Lower) | (Self::BiggerIsBetter, Better::Higher) => {
                    entries.push(benchmark_entry(&figure));
                }
                (_, Better::Lower) => omissions.lower_is_better += 1,
                (_, Better::Higher) => omissions.higher_is_better += 1,
                (_, Better::Neither) => omissions.neither_is_better += 1,
            }
        }
        (entries, omissions)
    }
}

impl Render for GithubAction {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "{}", json::to_string_pretty(&self.entries(report).0)?)
    }
}

fn benchmark_entry(figure: &ExportedFigure<'_>) -> BenchmarkEntry {
    let (metric, summary) = (&figure.result.metric, figure.summary);
    BenchmarkEntry {
        name: figure.name(),
        unit: unit_names(metric.unit).symbol,
        value: summary.headline,
        range: summary.interval.map(half_width_text),
        extra: format!(
            "{}\n{} rounds, {} samples, method version {}",
            metric.summary, summary.rounds, summary.distribution.n, metric.version
        ),
    }
}

/// How far the interval goes from the value: the tool shows it as it is, and its own readers write `± 5`.
fn half_width_text(interval: Interval) -> String {
    let half = interval.half_width();
    match interval.kind {
        IntervalKind::Confidence => format!("± {half}"),
        IntervalKind::Range => format!("± {half} (range)"),
    }
}
