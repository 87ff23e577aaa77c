//! What the reports of all sub-commands have in common: the ranks, and how the job ended.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::results::Results;

/// Writes a line for each rank.
///
/// # Errors
/// Those of the writer.
pub fn write_ranks<M>(out: &mut impl Write, results: &Results<M>) -> fmt::Result {
    let width = results.ranks.iter().map(|rank| rank.label.chars().count()).max().unwrap_or_default().max(4);
    writeln!(out, "\nrank  {:width$}  CPUs  clock offset to rank 0", "host")?;
    for rank in &results.ranks {
        let offset = match rank.rank {
            0 => "-".to_owned(),
            _ => format!("{:.1} us (at most {:.1} us wrong)", 1e6 * rank.clock_offset_s, 1e6 * rank.clock_error_s),
        };
        writeln!(out, "{:4}  {:width$}  {:4}  {offset}", rank.rank, rank.label, rank.cpus)?;
    }
    Ok(())
}

/// How many kernels run the hosts, where several hosts share one.
pub fn shared_kernels<M>(results: &Results<M>) -> Option<usize> {
    let kernels = results.ranks.iter().map(|rank| rank.kernel + 1).max().unwrap_or_default();
    (kernels < results.ranks.len()).then_some(kernels)
}

/// Writes a line for each rank that failed, below a title, where there is any.
///
/// # Errors
/// Those of the writer.
pub fn write_failures<M>(
    out: &mut impl Write,
    results: &Results<M>,
    title: &str,
    failures: &BTreeMap<usize, String>,
) -> fmt::Result {
    if failures.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    for (&rank, reason) in failures {
        for line in wrapped(&format!("rank {rank} ({}): {reason}", results.ranks[rank].label)) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Columns of a terminal.
const WIDTH: usize = 80;

/// A text as lines that are indented, the later ones more than the first; a word that is longer than a line is left whole.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::from(" ")];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if line.chars().count() + 1 + word.chars().count() > WIDTH && !line.trim().is_empty() {
            lines.push(format!("    {word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines
}

/// Writes how the job ended, where that was early.
///
/// # Errors
/// Those of the writer.
pub fn write_end<M>(out: &mut impl Write, results: &Results<M>) -> fmt::Result {
    match (&results.failure, results.is_complete) {
        (Some(reason), _) => writeln!(out, "\nThe job ended early: {reason}."),
        (None, false) => writeln!(out, "\nThe job ended early. These are the results until then."),
        (None, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_end_is_said_with_its_reason() {
        let mut results =
            Results { mpi: String::new(), ranks: Vec::new(), measured: (), failure: None, is_complete: false };
        let end = |results: &Results<()>| {
            let mut text = String::new();
            write_end(&mut text, results).unwrap();
            text
        };
        assert_eq!(end(&results), "\nThe job ended early. These are the results until then.\n");
        results.failure = Some("rank 1 (n1) has died".into());
        assert_eq!(end(&results), "\nThe job ended early: rank 1 (n1) has died.\n");
        (results.failure, results.is_complete) = (None, true);
        assert_eq!(end(&results), "");
    }
}
