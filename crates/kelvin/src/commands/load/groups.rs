//! The kinds of requests of a load, and its stages: a line of each.

use std::io::{self, Write};

use kelvin_core::Unit;
use kelvin_core::load::{GroupFigures, LatencySummary, LoadResult, StageLevel};
use kelvin_core::text::escape_invisible;
use kelvin_core::units;
use kelvin_report::text::display_width;

use super::sentence::{rate_text, time_text};
use super::table::{NAME_WIDTH, write_cells};

/// Writes a table of the kinds, and one of the stages, of a load that has them.
pub fn write_groups(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    let kinds = load.kinds.iter().map(|kind| (kind.name.clone(), &kind.figures, load.seconds));
    write_table("kind of request", kinds, out)?;
    let stages = load.stages.iter().map(|stage| {
        let level = match stage.level {
            StageLevel::Rate(rate) => units::value_text(rate, Unit::PerSecond),
            StageLevel::Users(users) => units::plural(u64::from(users), "user"),
        };
        (format!("{}, {level}", units::seconds(stage.seconds)), &stage.figures, stage.seconds)
    });
    write_table("stage", stages, out)
}

/// Writes a line of each group: its name, its figures, and in how many seconds they came.
fn write_table<'f>(
    head: &str,
    groups: impl ExactSizeIterator<Item = (String, &'f GroupFigures, f64)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if groups.len() == 0 {
        return Ok(());
    }
    write_cells(out, head, &["answers", "mean", "p50", "p95", "p99", "errors"])?;
    for (name, figures, seconds) in groups {
        let GroupFigures { requests, failed_requests, response, .. } = figures;
        let LatencySummary { count, mean, p50, p95, p99, .. } = *response;
        let [mean, p50, p95, p99] =
            [mean, p50, p95, p99].map(|value| if count > 0 { time_text(value) } else { "-".into() });
        let rate = rate_text((seconds > 0.0).then(|| *requests as f64 / seconds));
        let name = escape_invisible(&name);
        // A name that is wider than its column has a line of its own.
        let is_wide = display_width(&name) >= NAME_WIDTH;
        if is_wide {
            writeln!(out, "{name}")?;
        }
        write_cells(
            out,
            if is_wide { "" } else { &name },
            &[rate, mean, p50, p95, p99, units::count(*failed_requests)],
        )?;
    }
    writeln!(out)
}
