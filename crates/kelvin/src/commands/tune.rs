//! `kelvin tune`: the settings that would quieten this machine; measure what each is worth, apply them, or restore the old ones.

mod setting_effect;

use std::io::{self, Write};
use std::path::Path;

use kelvin_machine::tune::{self, ChangeOutcome, ChangeResult as Step, JOURNAL_PATH, SettingChange, TuneError};
use kelvin_sys::stop_signals;
use serde::Serialize;

use self::setting_effect::SettingEffect;
use crate::answer::AnswerOutlet;
use crate::cli::TuneArgs;
use crate::cli_error::{CliError, CmdResult};
use crate::output;

const NOTHING_TO_CHANGE: &str = "Nothing to change: this machine is as quiet as settings can make it.";

#[derive(Serialize)]
struct TuneState {
    /// Absent if only root may read it.
    pending: Option<Vec<SettingChange>>,
    offered: Vec<SettingChange>,
    /// Settings that this user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
}

/// What was done.
#[derive(Serialize)]
struct TuneReport {
    /// Absent if nothing was to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Vec<SettingEffect>>,
    /// Absent if nothing was to be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcomes: Option<Vec<ChangeOutcome>>,
}

/// `kelvin tune`.
pub fn tune(args: &TuneArgs) -> CmdResult {
    let (root, journal) = (Path::new("/"), Path::new(JOURNAL_PATH));
    let outlet = AnswerOutlet::find(&args.answer)?;
    if args.restore {
        let outcomes = tune::restore(root, journal)?;
        return print_report(TuneReport { measured: None, outcomes: Some(outcomes) }, "Nothing to restore.", outlet);
    }
    let offered = tune::plan_changes(root);
    if args.apply || args.measure {
        return measure_and_apply(offered, args, outlet);
    }
    let pending = match tune::pending_changes(journal) {
        // Only root may read it.
        Err(TuneError::JournalIo { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => None,
        pending => Some(pending?),
    };
    let state = TuneState { pending, offered, unread: tune::unreadable_settings(root) };
    outlet.write(&state, |out| write_state(out, &state)).map(|()| true)
}

/// Measures what changes are worth, applies them, or both. What was interrupted applies nothing.
fn measure_and_apply(offered: Vec<SettingChange>, args: &TuneArgs, outlet: AnswerOutlet) -> CmdResult {
    let (root, journal) = (Path::new("/"), Path::new(JOURNAL_PATH));
    let unreadable = tune::unreadable_settings(root);
    if offered.is_empty() && !unreadable.is_empty() {
        return Err(CliError::msg(unreadable_note(&unreadable)));
    }
    let empty_message =
        if offered.is_empty() { NOTHING_TO_CHANGE } else { "Nothing to change except with --optional." };
    let changes: Vec<SettingChange> = offered.into_iter().filter(|change| args.optional || !change.optional).collect();
    let (mut report, mut is_complete) = (TuneReport { measured: None, outcomes: None }, true);
    if args.measure {
        let (effects, is_measured) = setting_effect::measure(&tune::group_by_setting(&changes), args)?;
        (report.measured, is_complete) = (Some(effects), is_measured);
    }
    if args.apply && stop_signals::stop_signal().is_none() {
        report.outcomes = Some(tune::apply(root, journal, &changes)?);
    }
    Ok(print_report(report, empty_message, outlet)? && is_complete)
}

/// Of settings that cannot be read nothing is known.
fn unreadable_note(unreadable: &[String]) -> String {
    format!("cannot read {}: whether this machine is quiet is not known; try sudo kelvin tune", unreadable.join(", "))
}

fn write_state(out: &mut dyn Write, TuneState { pending, offered, unread }: &TuneState) -> io::Result<()> {
    match pending.as_deref() {
        None => write_paragraph(out, "Only root can read what is still to be restored: sudo kelvin tune")?,
        Some([]) => {}
        Some(_) => write_paragraph(out, "Changed; `kelvin tune --restore` restores:")?,
    }
    for change in pending.iter().flatten() {
        writeln!(out, "  {}: was {}, set to {}", change.path, change.from, change.to)?;
    }
    if !unread.is_empty() {
        write_paragraph(out, &unreadable_note(unread))?;
    }
    if offered.is_empty() {
        return if unread.is_empty() { write_paragraph(out, NOTHING_TO_CHANGE) } else { Ok(()) };
    }
    write_paragraph(out, "`kelvin tune --apply` would change (nothing changed yet):")?;
    for change in offered {
        let optional = if change.optional { "  (only with --optional)" } else { "" };
        writeln!(out, "  {}: {} -> {}{optional}", change.path, change.from, change.to)?;
        output::write_wrapped(out, output::width(), "    ", &change.benefit)?;
    }
    Ok(())
}

/// Writes a sentence as wide as the terminal.
fn write_paragraph(out: &mut dyn Write, text: &str) -> io::Result<()> {
    output::write_wrapped(out, output::width(), "", text)
}

/// Prints what was done; exit status 1 if a setting could not be changed.
fn print_report(report: TuneReport, empty_message: &str, outlet: AnswerOutlet) -> CmdResult {
    outlet.write(&report, |out| write_report(out, &report, empty_message))?;
    let is_refused = |outcome: &ChangeOutcome| matches!(outcome.result, Step::Refused(_));
    Ok(!report.outcomes.iter().flatten().any(is_refused))
}

fn write_report(
    out: &mut dyn Write,
    TuneReport { measured, outcomes }: &TuneReport,
    empty_message: &str,
) -> io::Result<()> {
    if measured.iter().flatten().next().is_none() && outcomes.iter().flatten().next().is_none() {
        return write_paragraph(out, empty_message);
    }
    if let Some(effects) = measured {
        setting_effect::write_effects(out, effects)?;
        let blank = if outcomes.is_some() { "\n" } else { "" };
        write!(out, "{blank}")?;
    }
    outcomes.iter().flatten().try_for_each(|outcome| {
        let result = match &outcome.result {
            Step::Changed { from, to } => format!("{from} -> {to}"),
            Step::AlreadySet(value) => format!("already {value}"),
            Step::ChangedByOther { ours, now } => {
                format!("not restored: changed from {ours} to {now} by someone else")
            }
            Step::Missing(reason) => format!("gone: {reason}"),
            Step::Refused(reason) => format!("NOT changed: {reason}"),
        };
        writeln!(out, "{}: {result}", outcome.path)
    })
}
