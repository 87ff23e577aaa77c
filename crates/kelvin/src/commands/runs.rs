//! `kelvin runs`: list, show, tag, note, delete, prune, copy, export, import.

mod copy;
mod import;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kelvin_analysis::analyse;
use kelvin_core::identifiers::short_hash;
use kelvin_core::{NODE_TAG, Run, RunStatus};
use kelvin_harness::TcpOptions;
use kelvin_report::text::display_width;
use kelvin_report::{Json, Render, Report};
use kelvin_store::{
    AppendError, FindError, InPlaceStore, InsertOutcome, PruneOptions, RunFilter, RunSummary, Store, Tag,
};

use crate::answer::AnswerOutlet;
use crate::cli::{RunsArgs, RunsCommand};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::commands::explain;
use crate::fallback_dirs;
use crate::output::{self, Outlet};
use crate::redact::Redaction;
use crate::socket_options;
use crate::stores::{open_existing, open_named, open_store, run_count_text, store_to_read};

/// Columns of the rounds, the size and the machine of a run, with the blanks before each and behind the last.
const RUN_SIZE_WIDTH: usize = 2 + 6 + 2 + 9 + 2 + 8 + 2;

/// `kelvin runs`.
pub fn runs(args: &RunsArgs) -> CmdResult {
    if let RunsCommand::Import { table, answer, .. } = &args.command {
        match table {
            true => return import::write_table(AnswerOutlet::find(answer)?).map(|()| true),
            false if answer.is_json() || answer.path().is_some() => {
                bail!("--json and --output: only --table prints an answer: leave them out")
            }
            false => {}
        }
    }
    let store = match &args.command {
        RunsCommand::Import { .. } | RunsCommand::Pull { .. } => open_store(&args.store)?,
        _ => store_to_read(&args.store)?,
    };
    match &args.command {
        RunsCommand::List { tags, answer } => list_runs(&store, tags, AnswerOutlet::find(answer)?)?,
        RunsCommand::Show { run, answer, with_samples, with_private } => {
            if *with_samples && !answer.is_json() {
                bail!("--with-samples: only JSON may lack samples: leave it out, or give --json");
            }
            let outlet = Outlet::find(answer.path())?;
            let color = outlet.is_standard_output() && output::uses_color();
            let run = Redaction::from_flag(*with_private).redact_run(store.load(run)?)?;
            let (analysis, probes) = (analyse(&run), explain::probe_texts());
            let report = Report { run: &run, analysis: &analysis, references: &[], probes: &probes };
            outlet.write_output(false, |out| match answer.is_json() {
                true => Json { pretty: false, samples: *with_samples }.render(&report, out),
                false => output::terminal(color).render(&report, out),
            })?;
        }
        RunsCommand::Delete { run } => {
            let id = store.find(run)?;
            remove_and_shrink(store, |store| store.delete(&id))?;
            notice!("deleted {id}");
        }
        RunsCommand::Tag { run, tags, remove } => {
            let id = store.update_tags(run, tags, remove)?;
            let lines = store.list(&RunFilter::default())?;
            let line = lines.iter().find(|line| line.id == id);
            let tags = line.map(|line| tags_text(&line.labels.tags)).filter(|tags| !tags.is_empty());
            notice!("{id} has {}", tags.as_deref().unwrap_or("no tags"));
        }
        RunsCommand::Note { run, text } => {
            let id = store.set_note(run, text)?;
            notice!("{id} has {}", if text.is_empty() { "no note" } else { "this note" });
        }
        RunsCommand::Prune { keep, labelled_too, dry_run, answer } => {
            let keep = usize::try_from(*keep).unwrap_or(usize::MAX);
            let now = jiff::Timestamp::now().as_microsecond();
            let (options, outlet) =
                (PruneOptions { keep, include_labelled: *labelled_too, now }, AnswerOutlet::find(answer)?);
            prune_runs(store, options, *dry_run, outlet)?;
        }
        RunsCommand::Push { to, runs } => return copy::copy_runs(&store, &open_named(to, "--to")?, runs, "sent to"),
        RunsCommand::Pull { from, runs } => {
            return copy::copy_runs(&open_existing(from, "--from")?, &store, runs, "fetched into");
        }
        RunsCommand::Export { run, output: path, with_private } => {
            let outlet = Outlet::find(path.as_deref())?;
            let run = Redaction::from_flag(*with_private).redact_run(store.load(run)?)?;
            outlet.write_output(false, |out| kelvin_store::export(&run, out).map_err(io::Error::other))?;
        }
        RunsCommand::Import { file, from, .. } => {
            let file = file.as_deref().unwrap_or(Path::new("-"));
            let name = file.display();
            let run = import::read_run(file, *from)?;
            let outcome = match store.insert(&run).context(name)? {
                InsertOutcome::New => {
                    keep_headlines(&store, &run).context(file.display())?;
                    "imported"
                }
                InsertOutcome::AlreadyThere => "already stored:",
            };
            match &run.header.foreign {
                None => notice!("{outcome} {}", run.header.id),
                Some(foreign) => import::report_import(outcome, &run, foreign),
            }
        }
    }
    Ok(true)
}

/// Keeps the headlines of an imported run, which histories are made of. Those of a stream with options of its own are left out, as
/// when it is measured; a foreign run has none.
fn keep_headlines(store: &Store, run: &Run) -> Result<(), AppendError> {
    if run.status != RunStatus::Complete || run.header.foreign.is_some() {
        return Ok(());
    }
    let options = ["--congestion-control", "--socket-buffers"];
    let has_options = run.header.command.iter().any(|word| options.iter().any(|option| word.starts_with(option)));
    // Which they were does not matter.
    let tcp_options = TcpOptions { congestion_control: has_options.then(String::new), ..TcpOptions::default() };
    store.record_figures(
        run,
        &analyse(run).stored_headlines(|metric| socket_options::has_default_options(metric, &tcp_options)),
    )
}

fn list_runs(store: &Store, tags: &[Tag], outlet: AnswerOutlet) -> Result<(), CliError> {
    let lines = store.list(&RunFilter { tags: tags.to_vec(), ..RunFilter::default() })?;
    if outlet.is_json {
        return outlet.write_json(&lines);
    }
    if lines.is_empty() {
        let tags: Vec<String> = tags.iter().map(Tag::to_string).collect();
        let tags_clause = if tags.is_empty() { String::new() } else { format!(" with {}", tags.join(" and ")) };
        notice!("no runs{tags_clause} in {}", store.name());
        return Ok(());
    }
    let columns = outlet.columns();
    outlet.write_lines(|out| {
        let width = lines.iter().map(|line| line.id.len()).max().unwrap_or(0);
        // Of many hosts each line has the name of its own.
        let node = |line: &RunSummary| line.labels.tags.get(NODE_TAG).cloned();
        let node_width = lines.iter().filter_map(node).map(|name| name.len().max(NODE_TAG.len())).max();
        let node_column = |name: String| node_width.map_or_else(String::new, |width| format!("{name:width$}  "));
        let row = |[id, started, mode, status]: [&str; 4]| format!("{id:width$}  {started:20}  {mode:8}  {status:8}");
        let titles = row(["id", "started", "mode", "status"]);
        let processors = lines.iter().map(|line| line.cpu_model.as_deref().unwrap_or("unknown"));
        let widest = processors.map(display_width).max().unwrap_or(0).max("processor".len());
        let is_narrow =
            display_width(&titles) + RUN_SIZE_WIDTH + node_width.map_or(0, |width| width + 2) + widest > columns;
        if is_narrow {
            writeln!(out, "{}", titles.trim_end())?;
        } else {
            let node = node_column(NODE_TAG.to_owned());
            writeln!(out, "{titles}  {:>6}  {:>9}  {:8}  {node}processor", "rounds", "size", "machine")?;
        }
        lines.iter().try_for_each(|line| {
            let status = if line.status == Some(RunStatus::Complete) { "complete" } else { "partial" };
            let size = format!("{:.0} KiB", line.bytes as f64 / 1024.0);
            let processor = line.cpu_model.as_deref().unwrap_or("unknown");
            // As much of it as `kelvin history --machine` needs.
            let machine = short_hash(&line.machine);
            let mode = line.mode.to_string();
            let (which, rounds) = (row([&line.id, &line.started, &mode, status]), line.measured_rounds);
            if is_narrow {
                let node = node(line).map_or_else(String::new, |name| format!("{NODE_TAG} {name}, "));
                writeln!(out, "{}", which.trim_end())?;
                let rest = format!("{rounds} rounds, {size}, machine {machine}, {node}{processor}");
                output::write_wrapped(out, columns, "  ", &rest)?;
            } else {
                let node = node_column(node(line).unwrap_or_default());
                writeln!(out, "{which}  {rounds:>6}  {size:>9}  {machine:8}  {node}{processor}")?;
            }
            let tags = Some(tags_text(&line.labels.tags)).filter(|tags| !tags.is_empty());
            let server = line.pending_server.as_ref().map(|server| format!("waits for {server}"));
            let mut texts = tags.into_iter().chain(line.labels.note.clone()).chain(server);
            texts.try_for_each(|text| output::write_wrapped(out, output::width(), "  ", &text))
        })
    })
}

fn tags_text(tags: &BTreeMap<String, String>) -> String {
    tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("  ")
}

/// Removes old runs, or lists them.
fn prune_runs(store: Store, prune: PruneOptions, dry_run: bool, outlet: AnswerOutlet) -> Result<(), CliError> {
    let lines = match dry_run {
        true => store.prunable(prune)?,
        false => remove_and_shrink(store, |store| Ok(store.prune(prune)?))?,
    };
    let verb = if dry_run { "would be deleted" } else { "deleted" };
    outlet.write(&lines, |out| {
        lines.iter().try_for_each(|line| writeln!(out, "{}  {:20}  {}", line.id, line.started, line.mode))
    })?;
    let kib: u64 = lines.iter().map(|line| line.bytes).sum::<u64>() / 1024;
    notice!("{} {verb}, {kib} KiB", run_count_text(lines.len()));
    Ok(())
}

/// Removes runs and returns their space to the file system: on a disk without space for a log of that, within the file of the store.
fn remove_and_shrink<T>(store: Store, remove: impl Fn(&Store) -> Result<T, FindError>) -> Result<T, CliError> {
    let (file, is_file) = (PathBuf::from(store.name()), store.key().is_none());
    let removal = remove(&store);
    let is_full = match &removal {
        Err(FindError::Database(fault)) => fault.is_disk_full(),
        Err(_) => false,
        Ok(_) => match store.reclaim() {
            Err(fault) if !(fault.is_disk_full() && is_file) => return Err(CliError::msg(fault)),
            reclaimed => reclaimed.is_err(),
        },
    };
    if !(is_full && is_file) {
        return removal.map_err(CliError::msg);
    }
    // Nobody else may use it meanwhile.
    drop(store);
    let in_place = InPlaceStore::open(&file, &fallback_dirs::fallback_directories())?;
    let copy = in_place.copy().to_owned();
    notice!(
        "the disk is full, and runs are deleted within {}: until that is done, the store as it was is in {}",
        file.display(),
        copy.display()
    );
    let outcome = removal.or_else(|_| remove(in_place.store())).map_err(CliError::from);
    outcome
        .and_then(|value| Ok(in_place.finish().map(|()| value)?))
        .map_err(|error| CliError::msg(format!("{error}; the store as it was is in {}", copy.display())))
}
