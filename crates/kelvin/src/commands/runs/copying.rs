//! `kelvin runs push` and `pull`: runs from one store into another, each once.

use std::process::ExitCode;

use kelvin_store::{Filter, InsertError, Inserted, RunLine, Store, copy};

use crate::commands::runs_in_words;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

/// `kelvin runs push`.
pub fn push(from: &Store, to: &Store, runs: &[String]) -> Done {
    all(from, to, (runs, "sent to"))
}

/// `kelvin runs pull`.
pub fn pull(from: &Store, to: &Store, runs: &[String]) -> Done {
    all(from, to, (runs, "fetched into"))
}

/// How far it came.
#[derive(Default)]
struct Tally {
    new: usize,
    there: usize,
    differing: usize,
}

/// Copies the named runs, or all that have ended. What was copied before a failure is there.
fn all(from: &Store, to: &Store, (runs, done): (&[String], &str)) -> Done {
    if from.is_same(to) {
        return Err(Fault::because(format!("{} is the store that its runs come from: name another one", to.name())));
    }
    let (lines, unended) = chosen(from, runs)?;
    let mut tally = Tally::default();
    let progress = output::Line::new();
    let copied = lines.iter().enumerate().try_for_each(|(done, line)| {
        progress.show(format_args!("{} of {}", done + 1, lines.len()));
        one(from, to, line, &mut tally)
    });
    drop(progress);
    let told = format!("kelvin: {} {done} {}, {} already there", runs_in_words(tally.new), to.name(), tally.there);
    output::remark(told);
    if unended > 0 {
        let it = if unended == 1 { "it" } else { "them" };
        output::remark(format!(
            "kelvin: {} left out: still running, or killed; name {it} to copy {it} all the same",
            runs_in_words(unended)
        ));
    }
    copied?;
    Ok(if tally.differing > 0 { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}

fn one(from: &Store, to: &Store, line: &RunLine, tally: &mut Tally) -> Result<(), Fault> {
    match copy(from, to, line) {
        Ok(Inserted::New) => tally.new += 1,
        Ok(Inserted::AlreadyThere) => tally.there += 1,
        Err(error) if error.is_of_store() => return Err(Fault::because(error)),
        Err(kelvin_store::CopyError::Insert(InsertError::Differs { id })) => {
            tally.differing += 1;
            output::remark(format!("kelvin: {id} is another run in {}: left as it is there", to.name()));
        }
        Err(error) => {
            tally.differing += 1;
            output::remark(format!("kelvin: {} left out: {error}", line.id));
        }
    }
    Ok(())
}

/// The lines of the named runs, or of all that have ended and the number of those that have not.
fn chosen(from: &Store, runs: &[String]) -> Result<(Vec<RunLine>, usize), Fault> {
    let mut lines = from.list(&Filter::default()).map_err(Fault::because)?;
    let all = lines.len();
    if runs.is_empty() {
        lines.retain(|line| line.status.is_some());
        let unended = all - lines.len();
        return Ok((lines, unended));
    }
    let ids: Result<Vec<Vec<String>>, _> = runs.iter().map(|name| from.find_all(name)).collect();
    let ids = ids.map_err(Fault::because)?.concat();
    lines.retain(|line| ids.contains(&line.id));
    Ok((lines, 0))
}
