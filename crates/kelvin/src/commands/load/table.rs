//! Tables of loads: the response times of one, and several below each other with their plot.

use std::io::{self, Write};

use kelvin_core::load::{LatencySummary, LoadFigures};
use kelvin_core::units;
use kelvin_report::figures::Drawing;
use kelvin_report::text::{pad_left, pad_right};

use super::plot;
use super::sentence::{load_name, rate_text, time_text};
use crate::output;

/// Width of the names and of the columns.
pub const NAME_WIDTH: usize = 22;
const COLUMN_WIDTH: usize = 9;

/// Writes the head of a table of response times.
pub fn write_latency_head(out: &mut dyn Write) -> io::Result<()> {
    write_cells(out, "response time", &["mean", "p50", "p95", "p99", "p99.9", "max"])
}

/// Writes a line of a table of response times.
pub fn write_latencies(name: &str, times: &LatencySummary, out: &mut dyn Write) -> io::Result<()> {
    let LatencySummary { mean, p50, p95, p99, p999, max, .. } = *times;
    match times.count {
        0 => write_cells(out, name, &["-"]),
        _ => write_cells(out, name, &[mean, p50, p95, p99, p999, max].map(time_text)),
    }
}

/// Writes a line of each load, and their throughput against their response times.
pub fn write_comparison(loads: &[LoadFigures<'_>], out: &mut dyn Write) -> io::Result<()> {
    write_cells(out, "response time of", &["answers", "mean", "p50", "p95", "p99", "errors"])?;
    loads.iter().try_for_each(|load| write_row(load, out))?;
    let Drawing::Plot(plot) = &plot::throughput_figure(loads).drawing else { return Ok(()) };
    writeln!(out)?;
    kelvin_report::terminal::plot_lines(plot, output::width()).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// A load in a line.
fn write_row(load: &LoadFigures<'_>, out: &mut dyn Write) -> io::Result<()> {
    let LatencySummary { mean, p50, p95, p99, .. } = load.response;
    let [mean, p50, p95, p99] =
        [mean, p50, p95, p99].map(|value| if load.response.count > 0 { time_text(value) } else { "-".into() });
    let [rate, errors] = [rate_text(load.rate), units::count(load.failed_requests)];
    write_cells(out, &load_name(load.offered), &[rate, mean, p50, p95, p99, errors])
}

/// Writes a line of a table.
pub fn write_cells(out: &mut dyn Write, name: &str, cells: &[impl AsRef<str>]) -> io::Result<()> {
    let cells: String = cells.iter().map(|cell| pad_left(cell.as_ref(), COLUMN_WIDTH)).collect();
    writeln!(out, "{}{cells}", pad_right(name, NAME_WIDTH))
}
