//! Times of commands as Markdown.

use std::io;

use kelvin_core::{CommandTimes, TimedCommand};

use super::{mean_text, memory_text, ratio_text, sentences, time_text, title};
use crate::escape::{MarkdownText, md};

/// Writes them as Markdown (GitHub's flavour: tables).
///
/// # Errors
/// Those of the writer.
pub fn write_markdown(times: &CommandTimes, out: &mut dyn io::Write) -> io::Result<()> {
    let rows: MarkdownText = times.results.iter().map(row).collect();
    let remarks: MarkdownText = sentences(times).iter().map(|sentence| md!("- {}\n", sentence)).collect();
    let head = md!(
        "| Command | Mean (95 %) | Min | Max | Relative (95 %) | User | Kernel | Memory |\n|:---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    let page = md!("{}\n\n{}{}\n{}", title(times), head, rows, remarks);
    out.write_all(page.as_str().as_bytes())
}

fn row(command: &TimedCommand) -> MarkdownText {
    let [min, max, user, system] = [command.min, command.max, command.user, command.system].map(time_text);
    let relative = ratio_text(command.relative.as_ref());
    md!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
        command.command,
        mean_text(command),
        min,
        max,
        relative,
        user,
        system,
        memory_text(command)
    )
}
