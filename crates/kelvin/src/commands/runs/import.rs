//! `kelvin runs import`: a run that kelvin exported, or what another program measured.

use std::io::{self, Read, Write};
use std::path::Path;

use jiff::Timestamp;
use kelvin_core::{Foreign, Run};
use kelvin_store::foreign::{ImportInfo, MAX_FILE_BYTES, MetricMapping, Tool};
use kelvin_sys::fs::open_to_read;

use crate::cli::ImportSource;
use crate::cli_error::{CliError, Context};
use crate::output;

/// The run that a file holds.
///
/// # Errors
/// A file that cannot be read, or is not of the program that it is said to be of.
pub(super) fn read_run(file: &Path, from: Option<ImportSource>) -> Result<Run, CliError> {
    let is_input = file.as_os_str() == "-";
    let name = file.display().to_string();
    let cannot = |doing: &str, error: io::Error| CliError::new(format!("cannot {doing} {name}"), error);
    let cannot_read = |error| cannot("read", error);
    let (mut from_where, written): (Box<dyn Read>, Timestamp) = if is_input {
        (Box::new(output::locked_stdin()?), Timestamp::now())
    } else {
        let open = open_to_read(file).map_err(|error| cannot("open", error))?;
        let written = open.metadata().and_then(|found| found.modified()).map_err(cannot_read)?;
        (Box::new(open), Timestamp::try_from(written).unwrap_or(Timestamp::UNIX_EPOCH))
    };
    let mut begun = Vec::new();
    from_where.by_ref().take(MAX_FILE_BYTES).read_to_end(&mut begun).map_err(cannot_read)?;
    // What is longer than another program's file can only be a run of kelvin.
    let is_whole = (begun.len() as u64) < MAX_FILE_BYTES;
    let tool = match from {
        Some(ImportSource(tool)) => tool,
        None => Tool::detect(&begun).filter(|_| is_whole),
    };
    let import = ImportInfo { written, kelvin: env!("CARGO_PKG_VERSION") };
    let Some(tool) = tool else {
        let quoted = Tool::detect_quoted(&begun).filter(|_| from.is_none() && is_whole);
        let run = kelvin_store::import(begun.as_slice().chain(from_where));
        return run.map_err(|error| match quoted.map(|tool| (tool.name(), tool.read(&begun, &import))) {
            None if from.is_none() => {
                let tools = Tool::ALL.map(Tool::name).join(", ");
                CliError::new(&name, format_args!("{error}; if one of {tools} wrote it, name that with --from"))
            }
            None => CliError::new(&name, error),
            Some((_, Err(problem @ kelvin_store::foreign::Error::NotOf { .. }))) => CliError::new(&name, problem),
            Some((tool, _)) => {
                CliError::new(&name, format_args!("{tool} wrote a part of it, which --from {tool} reads"))
            }
        });
    };
    if !is_whole {
        bail!("{name}: longer than what {} writes: {MAX_FILE_BYTES} bytes at most", tool.name());
    }
    tool.read(&begun, &import).context(&name)
}

/// What became of a foreign run: how much of it is here, and what is not.
pub(super) fn report_import(said: &str, run: &Run, foreign: &Foreign) {
    let figures: usize = run.measurements.iter().map(|measurement| measurement.planned.metrics.len()).sum();
    let program = kelvin_analysis::wording::compare::program_text(foreign);
    notice!("{said} {}, a foreign run of {program}: figures: {figures}", run.header.id);
    run.notes.iter().for_each(|note| notice!("{note}"));
}

/// What of each program's results is a metric, and what is not.
pub(super) fn print_table() -> Result<(), CliError> {
    output::print(|out| {
        Tool::ALL.into_iter().try_for_each(|tool| {
            writeln!(out, "{}", tool.name())?;
            tool.table().iter().try_for_each(|row| write_row(row, out))
        })
    })
}

fn write_row(row: &MetricMapping, out: &mut dyn Write) -> io::Result<()> {
    let ours = row.ours.map_or("not imported", |metric| metric.id.as_str());
    output::write_wrapped(out, output::width(), "  ", row.theirs)?;
    output::write_wrapped(out, output::width(), "      ", &format!("{ours}: {}", row.why))
}
