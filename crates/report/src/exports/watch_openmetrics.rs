//! A run of a watch as OpenMetrics text: its figures, and which of them have become worse for good.

use std::io;
use std::time::Duration;

use kelvin_analysis::alarming_changes;
use kelvin_core::{History, HistoryChange, SeriesHistory};

use super::openmetrics::{Sample, report_samples, sample, series_labels, unix_seconds, write_families};
use crate::Report;

/// What a watch knows after a run.
#[derive(Clone, Copy, Debug)]
pub struct WatchStatus<'a> {
    /// The time from one run to the next.
    pub interval: Duration,
    /// All figures over the runs so far.
    pub history: &'a History,
    /// The share by which a figure must be worse to be reported.
    pub threshold: f64,
}

/// Writes the run of a watch, with the regressions that last.
///
/// # Errors
/// Those of the writer.
pub fn write_watch_openmetrics(
    report: &Report<'_>,
    status: &WatchStatus<'_>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let regressions: Vec<_> = alarming_changes(status.history, status.threshold).collect();
    let mut samples = report_samples(report);
    let help = "The time from one run of the watch to the next.";
    samples.push(sample("watch_interval", "seconds", help, (Vec::new(), status.interval.as_secs_f64())));
    let help = "Figures that have become worse for good.";
    samples.push(sample("watch_regressions", "", help, (Vec::new(), regressions.len() as f64)));
    samples.extend(regressions.iter().flat_map(|(series, change)| regression_samples(series, change, status.history)));
    write_families(&samples, out)
}

fn regression_samples(series: &SeriesHistory, change: &HistoryChange, history: &History) -> Vec<Sample> {
    let labels = || series_labels(series.metric.id, &series.case);
    let ratio = change.ratio().map(|ratio| {
        let help = "The level of a figure that has become worse for good, over its level before.";
        sample("watch_regression", "ratio", help, (labels(), ratio))
    });
    let started = history.runs.get(change.run).and_then(|run| unix_seconds(&run.started)).map(|seconds| {
        let help = "When the first run of that level began, since 1970.";
        sample("watch_regression_start_time", "seconds", help, (labels(), seconds))
    });
    ratio.into_iter().chain(started).collect()
}
