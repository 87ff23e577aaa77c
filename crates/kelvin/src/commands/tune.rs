//! `kelvin tune`: what would quieten this machine; apply it, or put everything back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kelvin_machine::tune::{self, Change, Done as Step, Outcome};
use serde::Serialize;

use crate::cli::TuneArgs;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

/// Where the journal of a tuned machine lies: settings last until the next boot, and so does this directory.
const JOURNAL: &str = "/run/kelvin/tune.json";

#[derive(Serialize)]
struct State<'a> {
    pending: &'a [Change],
    offered: &'a [Change],
}

/// `kelvin tune`.
pub fn tune(args: &TuneArgs) -> Done {
    let root = Path::new("/");
    let journal = PathBuf::from(JOURNAL);
    if args.restore {
        let outcomes = tune::restore(root, &journal).map_err(Fault::because)?;
        return told(&outcomes, "nothing to put back");
    }
    let offered = tune::plan(root);
    if args.apply {
        let wanted: Vec<Change> = offered.into_iter().filter(|change| args.optional || !change.optional).collect();
        if !wanted.is_empty() {
            let directory = journal.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(directory)
                .map_err(|error| Fault::new(format!("cannot keep a journal in {}", directory.display()), error))?;
        }
        let outcomes = tune::apply(root, &journal, &wanted).map_err(Fault::because)?;
        return told(&outcomes, "nothing to change: this machine is as quiet as settings can make it");
    }
    let pending = tune::pending(&journal).map_err(Fault::because)?;
    if args.json {
        output::print_json(&State { pending: &pending, offered: &offered })?;
    } else {
        output::print(|out| show(out, &pending, &offered))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(out: &mut dyn Write, pending: &[Change], offered: &[Change]) -> io::Result<()> {
    if !pending.is_empty() {
        writeln!(out, "Changed, and to be put back by `kelvin tune --restore`:")?;
        for change in pending {
            writeln!(out, "  {}: was {}, set to {}", change.path, change.from, change.to)?;
        }
    }
    if offered.is_empty() {
        return writeln!(out, "Nothing to change: this machine is as quiet as settings can make it.");
    }
    writeln!(out, "Would be changed by `kelvin tune --apply` (nothing has been changed):")?;
    for change in offered {
        let optional = if change.optional { "  (optional: only with --optional)" } else { "" };
        writeln!(out, "  {}: {} -> {}{optional}\n    {}", change.path, change.from, change.to, change.why)?;
    }
    Ok(())
}

/// Tells what was done; exit status 1 if a setting could not be changed.
fn told(outcomes: &[Outcome], nothing: &str) -> Done {
    output::print(|out| {
        if outcomes.is_empty() {
            writeln!(out, "{nothing}")?;
        }
        outcomes.iter().try_for_each(|outcome| {
            let result = match &outcome.result {
                Step::Changed { from, to } => format!("{from} -> {to}"),
                Step::AsWanted(value) => format!("is {value} already"),
                Step::ChangedByOthers { ours, now } => {
                    format!("left alone: somebody changed it from {ours} to {now} meanwhile")
                }
                Step::Gone(reason) => format!("is gone: {reason}"),
                Step::Refused(reason) => format!("NOT changed: {reason}"),
            };
            writeln!(out, "{}: {result}", outcome.path)
        })
    })?;
    let refused = outcomes.iter().any(|outcome| matches!(outcome.result, Step::Refused(_)));
    Ok(if refused { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}
