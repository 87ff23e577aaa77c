//! The results of a file system as text for a terminal.

use std::fmt::{self, Write};

use kelvin_core::{Interval, Unit, units};
use kelvin_stats::MIN_LOADS;

use super::analysis::{Figure, Finding, Limit, Load};
use super::results::FileResults;
use crate::report::{shared_kernels, write_end, write_ranks};
use crate::results::Results;

/// The largest share of the page cache that is no cached read.
const MAX_UNCACHED_SHARE: f64 = 0.005;

/// From this share of the time of all ranks on the error of clocks is said.
const MAX_CLOCK_ERROR: f64 = 0.02;
/// An interval of contention that is wider than this says nothing.
const MAX_SIGMA_WIDTH: f64 = 0.9;

/// Writes all of it.
///
/// # Errors
/// Those of the writer.
pub fn write_text(out: &mut impl Write, results: &Results<FileResults>, findings: &[Finding]) -> fmt::Result {
    let plan = &results.measured.plan;
    let ranks = results.ranks.len();
    writeln!(out, "{ranks} {}, MPI: {}", if ranks == 1 { "rank" } else { "ranks" }, results.mpi)?;
    writeln!(out, "{} ({})", plan.directory.display(), plan.file_system)?;
    writeln!(
        out,
        "each rank: {} in blocks of {}, {}; {} files; {} passes",
        units::bytes(plan.part_bytes),
        units::bytes(plan.block_bytes as u64),
        if plan.is_direct { "O_DIRECT" } else { "buffered" },
        plan.files,
        plan.passes,
    )?;
    write_ranks(out, results)?;
    if let Some(kernels) = shared_kernels(results) {
        writeln!(out, "These ranks run on {kernels} {}.", if kernels == 1 { "kernel" } else { "kernels" })?;
    }
    write_caches(out, results, findings)?;
    write_summary(out, ranks, findings)?;
    findings.iter().try_for_each(|finding| write_finding(out, results, finding))?;
    write_end(out, results)
}

/// Whether what was read could come from a cache.
fn write_caches(out: &mut impl Write, results: &Results<FileResults>, findings: &[Finding]) -> fmt::Result {
    let plan = &results.measured.plan;
    let (checks, seconds) = results.measured.verified;
    if checks > 0 {
        writeln!(
            out,
            "\nAll that was read is what was written ({checks} checks, {}, not in the rates).",
            units::seconds(seconds)
        )?;
    }
    if plan.is_in_memory {
        return writeln!(out, "{} lives in memory: its rates are those of memory.", plan.file_system);
    }
    let cached: Vec<f64> = findings.iter().filter_map(|finding| finding.cached_share).collect();
    match cached.iter().copied().max_by(f64::total_cmp) {
        None => {}
        Some(share) if share <= MAX_UNCACHED_SHARE => {
            writeln!(out, "Nothing that was read was in the page cache of its reader.")?;
        }
        Some(share) => {
            writeln!(out, "Up to {} of what was read was in the page cache of its reader.", units::percent(share))?;
        }
    }
    if results.ranks.iter().all(|rank| rank.kernel == 0) && results.ranks.len() > 1 {
        writeln!(out, "One kernel wrote and read all of it: hosts of their own may cache otherwise.")?;
    }
    let memory = results.measured.memory_bytes.iter().copied().max().unwrap_or_default();
    let bytes = plan.part_bytes * results.ranks.len() as u64;
    if bytes < memory {
        writeln!(
            out,
            "A server or device may cache all {}: a host here has {} of memory.",
            units::bytes(bytes),
            units::bytes(memory)
        )?;
    }
    Ok(())
}

/// One line for each activity: what all ranks reached, and what it is of the prediction.
fn write_summary(out: &mut impl Write, ranks: usize, findings: &[Finding]) -> fmt::Result {
    let all: Vec<(&Finding, &Load)> = findings
        .iter()
        .filter_map(|finding| Some((finding, finding.loads.last().filter(|load| load.ranks == ranks)?)))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:<32}{:>12}{:>14}{:>8}  limit", "", "all ranks", format!("{ranks} x one"), "share")?;
    for (finding, load) in all {
        let (operation, place) = finding.activity.label();
        let predicted = load.share.map(|share| text(load.rate.value / share.value, finding)).unwrap_or_default();
        let share = load.share.map(|share| units::percent(share.value)).unwrap_or_default();
        let limit = match finding.limit {
            None => "",
            Some(Limit::Ranks) => "ranks",
            Some(Limit::SlowRanks) => "slow ranks",
            Some(Limit::Common) => "common",
            Some(Limit::Unknown) => "not known",
        };
        let rate = text(load.rate.value, finding);
        let line = format!("{operation:<7} {place:<24}{rate:>12}{predicted:>14}{share:>8}  {limit}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// All that is known of an activity.
fn write_finding(out: &mut impl Write, results: &Results<FileResults>, finding: &Finding) -> fmt::Result {
    let (operation, place) = finding.activity.label();
    writeln!(out, "\n{operation}, {place}")?;
    for load in &finding.loads {
        let ranks = format!("{} {}", load.ranks, if load.ranks == 1 { "rank" } else { "ranks" });
        write!(out, "  {ranks:<12}{}", spread_text(load.rate, finding))?;
        if let Some(share) = load.share {
            write!(
                out,
                ", {} of {} x one{}",
                units::percent(share.value),
                load.ranks,
                percent_interval(share.interval)
            )?;
        }
        writeln!(out)?;
    }
    write_fit(out, finding)?;
    let label = |rank: usize| format!("rank {rank} ({})", results.ranks[rank].label);
    if let Some([first, last]) = finding.finishers.filter(|[first, last]| first.rank != last.rank) {
        for (word, end) in [("first", first), ("last", last)] {
            writeln!(out, "  {word} to end: {} after {}", label(end.rank), units::seconds(end.end_s))?;
        }
    }
    if finding.clock_error > MAX_CLOCK_ERROR {
        writeln!(
            out,
            "  inexact: the clocks of hosts are known to {} of that time",
            units::percent(finding.clock_error)
        )?;
    }
    for slow in &finding.slow {
        let (low, high) = slow.usual;
        writeln!(
            out,
            "  {} is slow: {} of the rate of the others, usual are {:.0} to {:.0} %",
            label(slow.rank),
            units::percent(slow.ratio),
            100.0 * low,
            100.0 * high,
        )?;
    }
    match finding.limit {
        Some(Limit::SlowRanks) => writeln!(out, "  limit: slow ranks. The others ended that much earlier."),
        Some(Limit::Common) if shared_kernels(results).is_some() => {
            writeln!(out, "  limit: common to all ranks: the file system, its link, or a kernel they share")
        }
        Some(Limit::Common) => writeln!(out, "  limit: common to all ranks: the file system or its link"),
        Some(Limit::Ranks) => writeln!(out, "  limit: the ranks. One more adds about the rate of one."),
        Some(Limit::Unknown) => writeln!(out, "  limit: not known. The passes are too few, or differ too much."),
        None => Ok(()),
    }
}

fn write_fit(out: &mut impl Write, finding: &Finding) -> fmt::Result {
    if finding.loads.len() < MIN_LOADS {
        return Ok(());
    }
    let Some(fit) = &finding.fit else {
        return writeln!(out, "  scalability: one pass does not determine it");
    };
    if fit.sigma.1 - fit.sigma.0 >= MAX_SIGMA_WIDTH {
        return writeln!(out, "  scalability: the passes differ too much to determine it");
    }
    if !fit.describes {
        return writeln!(
            out,
            "  scalability: no such law, it is off by {:.0} % at {} ranks",
            100.0 * (fit.worst_misfit.ratio - 1.0).abs(),
            fit.worst_misfit.n
        );
    }
    let percents = |value: f64, (low, high): (f64, f64)| {
        format!("{:.1} % [{:.1} to {:.1}]", 100.0 * value, 100.0 * low, 100.0 * high)
    };
    writeln!(
        out,
        "  scalability: contention {}, coherency {}",
        percents(fit.law.sigma, fit.sigma),
        percents(fit.law.kappa, fit.kappa)
    )
}

fn unit(finding: &Finding) -> Unit {
    if finding.activity.is_data() { Unit::BytesPerSecond } else { Unit::PerSecond }
}

fn text(value: f64, finding: &Finding) -> String {
    units::value_text(value, unit(finding))
}

fn spread_text(figure: Figure, finding: &Finding) -> String {
    units::with_interval(figure.value, figure.interval, unit(finding)).to_string()
}

fn percent_interval(interval: Option<Interval>) -> String {
    interval
        .map(|interval| format!(" [{:.0} to {:.0}]", 100.0 * interval.lower, 100.0 * interval.upper))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
