//! The results of a load as text for a terminal: ranks, what each requested, and the merged load.

use std::fmt::{self, Write};

use super::results::LoadResults;
use crate::report::{write_binding, write_end, write_failures, write_ranks};
use crate::results::Results;

/// Writes all of it. `merged` is the text of `kelvin load merge`, where generators measured something.
///
/// # Errors
/// Those of the writer.
pub fn write_text(out: &mut impl Write, results: &Results<LoadResults>, merged: Option<&str>) -> fmt::Result {
    let LoadResults { plan, failures, .. } = &results.measured;
    writeln!(out, "{} generators, MPI: {}", results.ranks.len(), results.mpi)?;
    write_ranks(out, results)?;
    write_binding(out, results)?;
    if plan.urls.len() > 1 {
        writeln!(out, "\nTargets, given to the ranks in turn:")?;
        for (first, url) in plan.urls.iter().enumerate() {
            let ranks = (first..results.ranks.len()).step_by(plan.urls.len());
            match ranks.len() {
                0 => writeln!(out, "  {url}: no rank")?,
                1 => writeln!(out, "  {url}: rank {first}")?,
                count => writeln!(out, "  {url}: {count} ranks, {first} the first")?,
            }
        }
    }
    write_failures(out, results, "Generators that measured nothing:", failures)?;
    match merged {
        Some(text) => write!(out, "\n{text}")?,
        None => writeln!(out, "\nNo generator measured anything.")?,
    }
    write_end(out, results)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::RankFacts;
    use crate::load::event::LoadPlan;

    #[test]
    fn targets_and_failures_have_their_ranks() {
        let urls = ["http://a/", "http://b/"].map(str::to_owned).to_vec();
        let measured = LoadResults {
            plan: LoadPlan { urls, ..LoadPlan::default() },
            failures: BTreeMap::from([(1, "no answer".to_owned())]),
            ..LoadResults::default()
        };
        let results = Results {
            mpi: "a test".into(),
            ranks: (0..3).map(RankFacts::made).collect(),
            measured,
            failure: None,
            is_complete: true,
        };
        let mut text = String::new();
        write_text(&mut text, &results, Some("merged\n")).unwrap();
        let expected = "
Targets, given to the ranks in turn:
  http://a/: 2 ranks, 0 the first
  http://b/: rank 1

Generators that measured nothing:
  rank 1 (n1): no answer

merged
";
        assert!(text.starts_with("3 generators, MPI: a test\n") && text.ends_with(expected), "{text}");
    }
}
