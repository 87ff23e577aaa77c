//! `kelvin runs`: list, show, delete, export, import.

mod import;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kelvin_analysis::analyse;
use kelvin_harness::SocketOptions;
use kelvin_model::{Run, RunStatus};
use kelvin_report::{Json, Render, Report};
use kelvin_store::{AppendError, Filter, Inserted, RunLine, Store};
use serde::Serialize;

use crate::cli::{RunsArgs, RunsCommand};
use crate::commands::{explain, open_store};
use crate::fault::{Done, Fault};
use crate::output;
use crate::private::Told;
use crate::sockets;

/// `kelvin runs`.
pub fn runs(args: &RunsArgs) -> Done {
    let store = open_store(&args.store)?;
    match &args.command {
        RunsCommand::List { json } => list(&store, *json)?,
        RunsCommand::Show { run, json, with_private } => show(&load(&store, run, *with_private)?, *json)?,
        RunsCommand::Delete { run } => {
            let id = store.delete(run).map_err(Fault::because)?;
            output::remark(format!("kelvin: deleted {id}"));
        }
        RunsCommand::Export { run, output: path, with_private } => {
            let run = load(&store, run, *with_private)?;
            let write = |out: &mut dyn Write| kelvin_store::export(&run, out).map_err(io::Error::other);
            match path {
                Some(path) => output::write_file(path, write)?,
                None => output::print_as_it_is(write)?,
            }
        }
        RunsCommand::Import { table: true, .. } => import::table()?,
        RunsCommand::Import { file, from, .. } => {
            let file = file.as_deref().unwrap_or(Path::new("-"));
            let name = file.display();
            let run = import::read(file, *from)?;
            let said = match store.insert(&run).map_err(|error| Fault::new(name, error))? {
                Inserted::New => {
                    learn_from(&store, &run).map_err(|error| Fault::new(file.display(), error))?;
                    "imported"
                }
                Inserted::AlreadyThere => "already stored:",
            };
            match &run.outline.foreign {
                None => output::remark(format_args!("kelvin: {said} {}", run.outline.id)),
                Some(foreign) => import::tell(said, &run, foreign),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Keeps the headlines of an imported run, which histories are made of. Those of a stream with options of its own are left out, as
/// when it is measured; a foreign run has none.
fn learn_from(store: &Store, run: &Run) -> Result<(), AppendError> {
    if run.status != RunStatus::Complete || run.outline.foreign.is_some() {
        return Ok(());
    }
    let options = ["--congestion-control", "--socket-buffers"];
    let has_options = run.outline.command.iter().any(|word| options.iter().any(|option| word.starts_with(option)));
    // Which they were does not matter.
    let asked = SocketOptions { congestion_control: has_options.then(String::new), buffers: None };
    store.record_headlines(&run.outline.id, &analyse(run).teaches(|metric| sockets::is_usual(metric, &asked)))
}

/// A run in the list, as JSON.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    started: &'a str,
    status: Option<&'a RunStatus>,
    machine: &'a str,
    cpu_model: Option<&'a str>,
    /// `foreign` where another program measured it, whose name ends the id.
    mode: &'a str,
    kelvin: &'a str,
    measured_rounds: u64,
    bytes: u64,
}

fn list(store: &Store, json: bool) -> Result<(), Fault> {
    let lines = store.list(&Filter::default()).map_err(Fault::because)?;
    if json {
        let lines: Vec<_> = lines.iter().map(line).collect();
        return output::print_json(&lines);
    }
    if lines.is_empty() {
        output::remark(format!("kelvin: no runs in {}", store.path().display()));
        return Ok(());
    }
    output::print(|out| {
        let width = lines.iter().map(|line| line.id.len()).max().unwrap_or(0);
        writeln!(
            out,
            "{:width$}  {:20}  {:8}  {:8}  {:>6}  {:>9}  {:8}  processor",
            "id", "started", "mode", "status", "rounds", "size", "machine"
        )?;
        lines.iter().try_for_each(|line| {
            let status = match &line.status {
                Some(RunStatus::Complete) => "complete",
                _ => "partial",
            };
            let size = format!("{:.0} KiB", line.bytes as f64 / 1024.0);
            let processor = line.cpu_model.as_deref().unwrap_or("unknown");
            // As much of it as `kelvin history --machine` needs.
            let machine: String = line.machine.chars().take(8).collect();
            writeln!(
                out,
                "{:width$}  {:20}  {:8}  {status:8}  {:>6}  {size:>9}  {machine:8}  {processor}",
                line.id, line.started, line.mode, line.measured_rounds
            )
        })
    })
}

fn line(line: &RunLine) -> Line<'_> {
    Line {
        id: &line.id,
        started: &line.started,
        status: line.status.as_ref(),
        machine: &line.machine,
        cpu_model: line.cpu_model.as_deref(),
        mode: &line.mode,
        kelvin: &line.kelvin,
        measured_rounds: line.measured_rounds,
        bytes: line.bytes,
    }
}

fn load(store: &Store, name: &str, with_private: bool) -> Result<Run, Fault> {
    Told::with(with_private).run(store.load(name).map_err(Fault::because)?)
}

fn show(run: &Run, json: bool) -> Result<(), Fault> {
    let analysis = analyse(run);
    let probes = explain::texts();
    let report = Report { run, analysis: &analysis, references: &[], probes: &probes };
    output::print_as_it_is(|out| {
        if json {
            return Json::default().render(&report, out);
        }
        output::terminal(output::color()).render(&report, out)
    })
}
