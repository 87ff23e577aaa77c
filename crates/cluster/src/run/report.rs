//! The results of runs as text for a terminal: ranks, their runs, and what hosts do to each other.

use std::fmt::{self, Write};

use kelvin_core::units::plural;

use super::ratios::{CommonRatio, common_ratios};
use super::results::RunResults;
use super::task::Phase;
use crate::report::{shared_kernels, write_binding, write_end, write_failures, write_ranks};
use crate::results::Results;

/// Figures that differ have a line each, up to so many in a direction; of the others, the largest.
const MAX_DIFFERENT_ROWS: usize = 20;
const MAX_OTHER_ROWS: usize = 8;
/// A longer name has a line of its own.
const NAME_WIDTH: usize = 42;

/// Writes all of it. `fleet` is the text of `kelvin fleet report`, where there is one.
///
/// # Errors
/// Those of the writer.
pub fn write_text(out: &mut impl Write, results: &Results<RunResults>, fleet: Option<&str>) -> fmt::Result {
    let measured = &results.measured;
    writeln!(out, "{} ranks, MPI: {}", results.ranks.len(), results.mpi)?;
    write_ranks(out, results)?;
    write_binding(out, results)?;
    if let Some(kernels) = shared_kernels(results) {
        let verb = if kernels == 1 { "kernel runs" } else { "kernels run" };
        writeln!(out, "Only {kernels} {verb} these ranks. Hosts on one kernel share its CPUs.")?;
    }
    write_runs(out, results)?;
    for phase in [Phase::Together, Phase::Alone] {
        let failures = measured.failures.iter().filter(|((of_phase, _), _)| *of_phase == phase);
        let failures = failures.map(|(&(_, rank), reason)| (rank, reason.clone())).collect();
        write_failures(out, results, &format!("Hosts that did not measure {}:", phase.name()), &failures)?;
    }
    write_failures(out, results, "Hosts whose runs cannot be compared:", &measured.compare_failures)?;
    write_ratios(out, measured)?;
    if let Some(fleet) = fleet {
        write!(out, "\nHosts against each other, {}:\n\n{fleet}", phase_text(measured.best_phase()))?;
    }
    write_end(out, results)
}

fn phase_text(phase: Phase) -> &'static str {
    match phase {
        Phase::Together => "while all measured at once",
        Phase::Alone => "each measured alone",
    }
}

fn write_runs(out: &mut impl Write, results: &Results<RunResults>) -> fmt::Result {
    let RunResults { plan, ranks, .. } = &results.measured;
    let idle = (results.ranks.len() - ranks.len().min(results.ranks.len())) * usize::from(!ranks.is_empty());
    if idle > 0 {
        let verb = if idle == 1 { "rank measured" } else { "ranks measured" };
        writeln!(out, "{idle} {verb} nothing: another rank measured the same host.")?;
    }
    writeln!(out)?;
    for phase in [Phase::Together, Phase::Alone] {
        let count = results.measured.run_count(phase);
        if count > 0 {
            let directory = plan.out.join(phase.name());
            let hosts = plural(ranks.len() as u64, "host");
            writeln!(out, "{count} of {hosts}, {}: {}", phase_text(phase), directory.display())?;
        }
    }
    let partial = results.measured.runs.iter().filter(|(_, run)| !run.is_complete);
    for (&(phase, rank), run) in partial {
        let label = &results.ranks[rank].label;
        writeln!(out, "{label} did not measure all cases {}: kelvin report {}", phase.name(), run.path.display())?;
    }
    Ok(())
}

fn write_ratios(out: &mut impl Write, measured: &RunResults) -> fmt::Result {
    let ratios = common_ratios(measured.ratios.values());
    if ratios.is_empty() {
        return Ok(());
    }
    let (different, others): (Vec<&CommonRatio>, Vec<&CommonRatio>) = ratios.iter().partition(|ratio| ratio.differs);
    let (worse, better): (Vec<&CommonRatio>, Vec<&CommonRatio>) = different.iter().partition(|ratio| ratio.is_worse());
    let hosts = measured.ratios.len();
    let verb = if different.len() == 1 { "differs" } else { "differ" };
    writeln!(
        out,
        "\nWhat {} to each other, together over alone: {} of {} figures {verb}.",
        if hosts == 1 { "1 host does".to_owned() } else { format!("{hosts} hosts do") },
        different.len(),
        ratios.len(),
    )?;
    write_rows(out, "Worse together", &worse, MAX_DIFFERENT_ROWS)?;
    write_rows(out, "Better or other together", &better, MAX_DIFFERENT_ROWS)?;
    write_rows(out, "Not known to differ, the most certain first", &others, MAX_OTHER_ROWS)
}

fn write_rows(out: &mut impl Write, title: &str, ratios: &[&CommonRatio], max_rows: usize) -> fmt::Result {
    if ratios.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title:<NAME_WIDTH$}  {:>5}  {:<12}  hosts", "mean", "95 %")?;
    for ratio in ratios.iter().take(max_rows) {
        let CommonRatio { figure, ratio, range, .. } = ratio;
        let name = format!("  {figure}");
        let name = if name.chars().count() > NAME_WIDTH {
            writeln!(out, "{name}")?;
            String::new()
        } else {
            name
        };
        let interval = format!("{:.2} to {:.2}", ratio.low, ratio.high);
        let hosts = format!("{:.2} to {:.2}", range[0], range[1]);
        writeln!(out, "{name:<NAME_WIDTH$}  {:>5.2}  {interval:<12}  {hosts}", ratio.value)?;
    }
    match ratios.len().saturating_sub(max_rows) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more, which the file of results has"),
    }
}
