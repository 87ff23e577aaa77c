//! Bencher Metric Format: for each benchmark a measure with its value and the ends of its interval.
//!
//! Bencher sets a threshold on a measure, for better or worse, and knows no direction of a benchmark; so a measure here is a unit in one
//! direction. `latency` (nanoseconds) and `throughput` (operations per second) are its own.
//!
//! Source: bencher.dev/docs/reference/bencher-metric-format and its JSON Schema.

use std::collections::BTreeMap;
use std::io;

use kelvin_core::{Metric, Unit, json};
use serde::Serialize;

use super::{ExportedFigure, direction, exported_figures, unit_names};
use crate::{Render, Report};

/// The figures of a run as benchmarks of Bencher.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bencher;

/// One measure of a benchmark.
#[derive(Serialize)]
struct Measure {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

impl Render for Bencher {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let (figures, _) = exported_figures(report);
        let benchmark = |figure: &ExportedFigure<'_>| {
            let interval = figure.summary.interval;
            let measure = Measure {
                value: figure.summary.headline,
                lower_value: interval.map(|interval| interval.lower),
                upper_value: interval.map(|interval| interval.upper),
            };
            (figure.name(), BTreeMap::from([(measure_name(&figure.result.metric), measure)]))
        };
        let benchmarks: BTreeMap<String, BTreeMap<String, Measure>> = figures.iter().map(benchmark).collect();
        writeln!(out, "{}", json::to_string_pretty(&benchmarks)?)
    }
}

/// The slug of a measure.
fn measure_name(metric: &Metric) -> String {
    let unit = match metric.unit {
        Unit::Nanoseconds if direction(metric).is_empty() => "latency",
        Unit::PerSecond if direction(metric).is_empty() => "throughput",
        unit => unit_names(unit).slug,
    };
    format!("{unit}{}", direction(metric))
}
