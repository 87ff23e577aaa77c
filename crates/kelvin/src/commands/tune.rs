//! `kelvin tune`: the settings that would quieten this machine; measure what each is worth, apply them, or restore the old ones.

mod worth;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kelvin_machine::tune::{self, Change, Done as Step, Outcome, TuneError};
use kelvin_sys::interrupt;
use serde::Serialize;

use self::worth::{Worth, Worths};
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
    /// Settings that this user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
}

/// What was done.
#[derive(Serialize)]
struct Report {
    /// Absent if nothing was to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Vec<Worth>>,
    /// Absent if nothing was to be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcomes: Option<Vec<Outcome>>,
}

/// `kelvin tune`.
pub fn tune(args: &TuneArgs) -> Done {
    let (root, journal) = (Path::new("/"), Path::new(JOURNAL));
    if args.restore {
        let outcomes = tune::restore(root, journal).map_err(Fault::because)?;
        return told(Report { measured: None, outcomes: Some(outcomes) }, "Nothing to restore.", args.json);
    }
    let offered = tune::plan(root);
    if args.apply || args.measure {
        return changed(offered, args);
    }
    let state = State { pending: pending(journal)?, offered, unread: tune::unread(root) };
    if args.json {
        output::print_json(&state)?;
    } else {
        output::print(|out| show(out, &state))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures what changes are worth, applies them, or both. What was interrupted applies nothing.
fn changed(offered: Vec<Change>, args: &TuneArgs) -> Done {
    let (root, journal) = (Path::new("/"), Path::new(JOURNAL));
    let unread = tune::unread(root);
    if offered.is_empty() && !unread.is_empty() {
        return Err(Fault::because(not_known(&unread)));
    }
    let nothing = if offered.is_empty() { QUIET } else { "Nothing to change except with --optional." };
    let wanted: Vec<Change> = offered.into_iter().filter(|change| args.optional || !change.optional).collect();
    let measured = args.measure.then(|| worth::measure(&tune::by_setting(&wanted), args)).transpose()?;
    let is_whole = measured.as_ref().is_none_or(|worths| worths.is_whole);
    let is_stopped = interrupt::requested().is_some();
    let applied = (args.apply && !is_stopped).then(|| tune::apply(root, journal, &wanted)).transpose();
    let outcomes = applied.map_err(Fault::because)?;
    let status = told(Report { measured: measured.map(|Worths { each, .. }| each), outcomes }, nothing, args.json)?;
    Ok(if is_whole { status } else { ExitCode::from(WITH_FAILURES) })
}

/// What is still to be restored, if this user may read it.
fn pending(journal: &Path) -> Result<Option<Vec<Change>>, Fault> {
    match tune::pending(journal) {
        Err(TuneError::Journal { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        pending => pending.map(Some).map_err(Fault::because),
    }
}

/// Of settings that cannot be read nothing is known.
fn not_known(unread: &[String]) -> String {
    format!("cannot read {}: whether this machine is quiet is not known; try sudo kelvin tune", unread.join(", "))
}

fn show(out: &mut dyn Write, State { pending, offered, unread }: &State) -> io::Result<()> {
    match pending.as_deref() {
        None => writeln!(out, "Only root can read what is still to be restored: sudo kelvin tune")?,
        Some([]) => {}
        Some(_) => writeln!(out, "Changed; `kelvin tune --restore` restores:")?,
    }
    for change in pending.iter().flatten() {
        writeln!(out, "  {}: was {}, set to {}", change.path, change.from, change.to)?;
    }
    if !unread.is_empty() {
        writeln!(out, "{}", not_known(unread))?;
    }
    if offered.is_empty() {
        return if unread.is_empty() { writeln!(out, "{QUIET}") } else { Ok(()) };
    }
    writeln!(out, "`kelvin tune --apply` would change (nothing changed yet):")?;
    for change in offered {
        let optional = if change.optional { "  (only with --optional)" } else { "" };
        writeln!(out, "  {}: {} -> {}{optional}\n    {}", change.path, change.from, change.to, change.why)?;
    }
    Ok(())
}

/// Prints what was done; exit status 1 if a setting could not be changed.
fn told(report: Report, nothing: &str, is_json: bool) -> Done {
    if is_json {
        output::print_json(&report)?;
    } else {
        output::print(|out| tell(out, &report, nothing))?;
    }
    let is_refused = |outcome: &Outcome| matches!(outcome.result, Step::Refused(_));
    let refused = report.outcomes.iter().flatten().any(is_refused);
    Ok(if refused { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}

fn tell(out: &mut dyn Write, Report { measured, outcomes }: &Report, nothing: &str) -> io::Result<()> {
    if measured.iter().flatten().next().is_none() && outcomes.iter().flatten().next().is_none() {
        return writeln!(out, "{nothing}");
    }
    if let Some(worths) = measured {
        worth::show(out, worths)?;
        let blank = if outcomes.is_some() { "\n" } else { "" };
        write!(out, "{blank}")?;
    }
    outcomes.iter().flatten().try_for_each(|outcome| {
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
}
