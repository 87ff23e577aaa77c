//! The page of the book on causes.

use std::collections::BTreeSet;
use std::io::{self, Write};

use kelvin_analysis::wording::capitalise;
use kelvin_probes::causes::{Cause, CauseText};

/// The page of the book on causes.
pub const CAUSES_PAGE: &str = "causes";

/// Writes it, from the texts of the causes.
pub fn write_causes_page(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<!-- Made by `make docs` from the texts of the causes; edit those. -->\n")?;
    kelvin_probes::causes::all().iter().try_for_each(|cause| {
        let CauseText { how, cost, remedy, pitfalls } = cause.text();
        writeln!(out, "## {} (`{}`)\n\n{how}\n", capitalise(cause.summary), cause.id)?;
        writeln!(out, "**What it costs.** {cost}\n")?;
        writeln!(out, "**What helps.** {}.\n", capitalise(&remedy))?;
        writeln!(out, "**Metrics.** {}\n\n**Pitfalls**\n", metrics_text(cause, "`"))?;
        pitfalls.iter().try_for_each(|pitfall| writeln!(out, "- {pitfall}"))?;
        writeln!(out)
    })
}

/// The metrics that a cause can touch; none if it can touch all.
pub fn metric_ids(cause: &Cause) -> BTreeSet<&'static str> {
    let metrics = cause.affected.listed().unwrap_or_default().iter();
    metrics.flat_map(|cases| cases.metrics).map(|metric| metric.id.as_str()).collect()
}

/// The metrics that a cause can touch, in such quotes.
pub fn metrics_text(cause: &Cause, quote: &str) -> String {
    let ids: Vec<String> = metric_ids(cause).into_iter().map(|id| format!("{quote}{id}{quote}")).collect();
    if ids.is_empty() { "all".into() } else { ids.join(", ") }
}
