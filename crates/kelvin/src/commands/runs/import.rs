//! `kelvin runs import`: a run that kelvin exported, or what another program measured.

use std::io::{self, Read, Write};
use std::path::Path;

use jiff::Timestamp;
use kelvin_core::{Foreign, Run};
use kelvin_store::foreign::{ImportInfo, MAX_FILE_BYTES, MetricMapping, Tool};
use kelvin_sys::fs::open_to_read;
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::ImportSource;
use crate::cli_error::{CliError, Context};
use crate::output;
use crate::version::VERSION;

/// The run that a file holds.
///
/// # Errors
/// A file that cannot be read, or is not of the program that the option names.
pub(super) fn read_run(file: &Path, from: Option<ImportSource>) -> Result<Run, CliError> {
    let is_input = file.as_os_str() == "-";
    let name = file.display().to_string();
    let io_error = |action: &str, error: io::Error| CliError::new(format!("cannot {action} {name}"), error);
    let read_error = |error| io_error("read", error);
    let (mut input, written): (Box<dyn Read>, Timestamp) = if is_input {
        (Box::new(output::locked_stdin()?), Timestamp::now())
    } else {
        let input_file = open_to_read(file).map_err(|error| io_error("open", error))?;
        let written = input_file.metadata().and_then(|metadata| metadata.modified()).map_err(read_error)?;
        (Box::new(input_file), Timestamp::try_from(written).unwrap_or(Timestamp::UNIX_EPOCH))
    };
    let mut beginning = Vec::new();
    input.by_ref().take(MAX_FILE_BYTES).read_to_end(&mut beginning).map_err(read_error)?;
    // What is longer than another program's file can only be a run of kelvin.
    let is_complete = (beginning.len() as u64) < MAX_FILE_BYTES;
    let tool = match from {
        Some(ImportSource(tool)) => tool,
        None => Tool::detect(&beginning).filter(|_| is_complete),
    };
    let import = ImportInfo { written, kelvin: VERSION };
    if let Some(tool) = tool {
        if !is_complete {
            bail!("{name}: longer than what {} writes: {MAX_FILE_BYTES} bytes at most", tool.name());
        }
        return tool.read(&beginning, &import).context(&name);
    }
    kelvin_store::import(beginning.as_slice().chain(input)).map_err(|error| {
        let quoted = Tool::detect_quoted(&beginning).filter(|_| from.is_none() && is_complete);
        let reason = match quoted.map(|tool| (tool.name(), tool.read(&beginning, &import))) {
            None if from.is_none() => {
                let tools = Tool::ALL.map(Tool::name).join(", ");
                format!("{error}; if one of {tools} wrote it, name that with --from")
            }
            None => error.to_string(),
            Some((_, Err(problem @ kelvin_store::foreign::Error::NotOf { .. }))) => problem.to_string(),
            Some((tool, _)) => format!("{tool} wrote a part of it, which --from {tool} reads"),
        };
        CliError::new(&name, reason)
    })
}

/// What became of a foreign run: how much of it is here, and what is not.
pub(super) fn report_import(outcome: &str, run: &Run, foreign: &Foreign) {
    let figures: usize = run.measurements.iter().map(|measurement| measurement.planned.metrics.len()).sum();
    let program = kelvin_analysis::wording::compare::program_text(foreign);
    notice!("{outcome} {}, a foreign run of {program}: figures: {figures}", run.header.id);
    run.notes.iter().for_each(|note| notice!("{note}"));
}

/// A result of another program, as JSON.
#[derive(Serialize)]
struct MappedResult {
    program: &'static str,
    result: &'static str,
    /// None if it is not imported.
    metric: Option<&'static str>,
    reason: &'static str,
}

/// What of each program's results is a metric, and what is not.
pub(super) fn write_table(outlet: AnswerOutlet) -> Result<(), CliError> {
    let rows = Tool::ALL.into_iter().flat_map(|tool| {
        tool.table().into_iter().map(move |row| MappedResult {
            program: tool.name(),
            result: row.foreign_name,
            metric: row.metric.map(|metric| metric.id.as_str()),
            reason: row.reason,
        })
    });
    outlet.write(&rows.collect::<Vec<_>>(), |out| {
        Tool::ALL.into_iter().try_for_each(|tool| {
            writeln!(out, "{}", tool.name())?;
            tool.table().iter().try_for_each(|row| write_row(row, out))
        })
    })
}

fn write_row(row: &MetricMapping, out: &mut dyn Write) -> io::Result<()> {
    let metric_id = row.metric.map_or("not imported", |metric| metric.id.as_str());
    output::write_wrapped(out, output::width(), "  ", row.foreign_name)?;
    output::write_wrapped(out, output::width(), "      ", &format!("{metric_id}: {}", row.reason))
}
