//! `kelvin runs push` and `pull`: runs from one store into another, each once.

use kelvin_store::{InsertError, InsertOutcome, RunFilter, RunSummary, Store, copy};

use crate::cli_error::{CliError, CmdResult};
use crate::output;
use crate::progress::StatusLine;
use crate::stores::run_count_text;

/// How far it came.
#[derive(Default)]
struct CopyCounts {
    new: usize,
    existing: usize,
    differing: usize,
}

/// Copies the named runs, or all that have ended, and reports the count with `verb`. What was copied before a failure is there.
pub fn copy_runs(from: &Store, to: &Store, runs: &[String], verb: &str) -> CmdResult {
    if from.is_same(to) {
        bail!("{} is the store that its runs come from: name another one", to.name());
    }
    let (lines, unfinished) = select_runs(from, runs)?;
    let mut tally = CopyCounts::default();
    let progress = StatusLine::new();
    let result = lines.iter().enumerate().try_for_each(|(index, line)| {
        progress.show(format_args!("{} of {}", index + 1, lines.len()));
        copy_run(from, to, line, &mut tally)
    });
    drop(progress);
    let summary =
        format!("kelvin: {} {verb} {}, {} already there", run_count_text(tally.new), to.name(), tally.existing);
    output::eprint_line(summary);
    if unfinished > 0 {
        let pronoun = if unfinished == 1 { "it" } else { "them" };
        notice!(
            "{} left out: still running, or killed; name {pronoun} to copy {pronoun} all the same",
            run_count_text(unfinished)
        );
    }
    result?;
    Ok(tally.differing == 0)
}

fn copy_run(from: &Store, to: &Store, line: &RunSummary, tally: &mut CopyCounts) -> Result<(), CliError> {
    match copy(from, to, line) {
        Ok(InsertOutcome::New) => tally.new += 1,
        Ok(InsertOutcome::AlreadyThere) => tally.existing += 1,
        Err(error) if error.is_store_failure() => return Err(CliError::msg(error)),
        Err(kelvin_store::CopyError::Insert(InsertError::Differs(id))) => {
            tally.differing += 1;
            notice!("{id} is another run in {}: left unchanged there", to.name());
        }
        Err(error) => {
            tally.differing += 1;
            notice!("{} left out: {error}", line.id);
        }
    }
    Ok(())
}

/// The lines of the named runs, or of all that have ended and the number of those that have not.
fn select_runs(from: &Store, runs: &[String]) -> Result<(Vec<RunSummary>, usize), CliError> {
    let mut lines = from.list(&RunFilter::default())?;
    let count = lines.len();
    if runs.is_empty() {
        lines.retain(|line| line.status.is_some());
        let unended = count - lines.len();
        return Ok((lines, unended));
    }
    let ids: Result<Vec<Vec<String>>, _> = runs.iter().map(|name| from.find_all(name)).collect();
    let ids = ids?.concat();
    lines.retain(|line| ids.contains(&line.id));
    Ok((lines, 0))
}
