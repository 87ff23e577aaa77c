//! `kelvin tune`: the settings that would quieten this machine; apply them, or restore the old ones.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kelvin_machine::tune::{self, Change, Done as Step, Outcome, TuneError};
use serde::Serialize;

use crate::cli::TuneArgs;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

/// Directory of the journal: the settings last until the next boot, and so does it.
pub const JOURNAL: &str = "/run/kelvin/tune.json";
const QUIET: &str = "Nothing to change: this machine is as quiet as settings can make it.";

#[derive(Serialize)]
struct State {
    /// Absent if only root may read it.
    pending: Option<Vec<Change>>,
    offered: Vec<Change>,
}

/// `kelvin tune`.
pub fn tune(args: &TuneArgs) -> Done {
    let (root, journal) = (Path::new("/"), Path::new(JOURNAL));
    if args.restore {
        return told(&tune::restore(root, journal).map_err(Fault::because)?, "Nothing to restore.");
    }
    let offered = tune::plan(root);
    if args.apply {
        let wanted: Vec<Change> = offered.iter().filter(|change| args.optional || !change.optional).cloned().collect();
        let nothing = if offered.is_empty() { QUIET } else { "Nothing to change except with --optional." };
        return told(&tune::apply(root, journal, &wanted).map_err(Fault::because)?, nothing);
    }
    let state = State { pending: pending(journal)?, offered };
    if args.json {
        output::print_json(&state)?;
    } else {
        output::print(|out| show(out, &state))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is still to be restored, if this user may read it.
fn pending(journal: &Path) -> Result<Option<Vec<Change>>, Fault> {
    match tune::pending(journal) {
        Err(TuneError::Journal { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        pending => pending.map(Some).map_err(Fault::because),
    }
}

fn show(out: &mut dyn Write, State { pending, offered }: &State) -> io::Result<()> {
    match pending.as_deref() {
        None => writeln!(out, "Only root can read what is still to be restored: sudo kelvin tune")?,
        Some([]) => {}
        Some(_) => writeln!(out, "Changed; `kelvin tune --restore` restores:")?,
    }
    for change in pending.iter().flatten() {
        writeln!(out, "  {}: was {}, set to {}", change.path, change.from, change.to)?;
    }
    if offered.is_empty() {
        return writeln!(out, "{QUIET}");
    }
    writeln!(out, "`kelvin tune --apply` would change (nothing changed yet):")?;
    for change in offered {
        let optional = if change.optional { "  (only with --optional)" } else { "" };
        writeln!(out, "  {}: {} -> {}{optional}\n    {}", change.path, change.from, change.to, change.why)?;
    }
    Ok(())
}

/// Prints what was done; exit status 1 if a setting could not be changed.
fn told(outcomes: &[Outcome], nothing: &str) -> Done {
    output::print(|out| {
        if outcomes.is_empty() {
            writeln!(out, "{nothing}")?;
        }
        outcomes.iter().try_for_each(|outcome| {
            let result = match &outcome.result {
                Step::Changed { from, to } => format!("{from} -> {to}"),
                Step::AsWanted(value) => format!("already {value}"),
                Step::ChangedByOthers { ours, now } => {
                    format!("left alone: changed from {ours} to {now} by someone else")
                }
                Step::Gone(reason) => format!("gone: {reason}"),
                Step::Refused(reason) => format!("NOT changed: {reason}"),
            };
            writeln!(out, "{}: {result}", outcome.path)
        })
    })?;
    let refused = outcomes.iter().any(|outcome| matches!(outcome.result, Step::Refused(_)));
    Ok(if refused { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}
