//! What the reports of all sub-commands have in common: the ranks, and how the job ended.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use kelvin_core::text::unbreakable_pieces;

use crate::event::RankFacts;
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

/// Writes that ranks may use a part of the CPUs only, where that is so.
///
/// # Errors
/// Those of the writer.
pub fn write_binding<M>(out: &mut impl Write, results: &Results<M>) -> fmt::Result {
    let lines = binding_text(&results.ranks).map(|text| wrapped(&text)).unwrap_or_default();
    lines.iter().try_for_each(|line| writeln!(out, "{}", line.trim_start()))
}

/// That launchers have bound ranks to a part of the CPUs, where that is so: then what they start has no more.
pub fn binding_text(ranks: &[RankFacts]) -> Option<String> {
    let is_bound = |rank: &&RankFacts| rank.online_cpus.is_some_and(|online| rank.cpus < online);
    let first = ranks.iter().find(is_bound)?;
    let others = match ranks.iter().filter(is_bound).count() - 1 {
        0 => String::new(),
        1 => ", and another rank too".to_owned(),
        count => format!(", and {count} other ranks too"),
    };
    Some(format!(
        "rank {} ({}) is bound to {} of the {} CPUs of its host, and so is the kelvin that it starts{others}. All CPUs: \
         `mpirun --bind-to none` (Open MPI), `mpiexec -bind-to none` (MPICH), `srun --cpu-bind=none`",
        first.rank,
        first.label,
        first.cpus,
        first.online_cpus.unwrap_or_default()
    ))
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
    for piece in unbreakable_pieces(text) {
        let line = lines.last_mut().expect("there is a line");
        if line.chars().count() + 1 + piece.chars().count() > WIDTH && !line.trim().is_empty() {
            lines.push(format!("    {piece}"));
        } else {
            line.push(' ');
            line.push_str(&piece);
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
    fn bound_ranks_are_said_with_the_remedy() {
        let mut ranks: Vec<RankFacts> = (0..4).map(RankFacts::made).collect();
        assert_eq!(binding_text(&ranks), None);
        ranks[1].cpus = 1;
        ranks[3].cpus = 1;
        ranks[2].online_cpus = None;
        let text = binding_text(&ranks).unwrap();
        let expected = "rank 1 (n1) is bound to 1 of the 2 CPUs of its host, and so is the kelvin that it starts, and another rank too.";
        assert!(text.starts_with(expected) && text.contains("--bind-to none"), "{text}");
    }

    #[test]
    fn failures_are_wrapped_lines() {
        let results = Results {
            mpi: String::new(),
            ranks: vec![RankFacts::made(0)],
            measured: (),
            failure: None,
            is_complete: true,
        };
        let mut text = String::new();
        let failures = BTreeMap::from([(0, "no ".repeat(30))]);
        write_failures(&mut text, &results, "Failed:", &failures).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["", "Failed:"]);
        assert!(lines[2].starts_with("  rank 0 (n0): no no") && lines[3].starts_with("    no"), "{text}");
        assert!(lines.len() == 4 && lines.iter().all(|line| line.len() <= WIDTH), "{text}");
        text.clear();
        write_failures(&mut text, &results, "Failed:", &BTreeMap::new()).unwrap();
        assert_eq!(text, "");
    }

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
