//! `kelvin selfcheck`: known truths, and kelvin's own error and cost.

use std::io::{self, Write};
use std::process::ExitCode;

use kelvin_analysis::{Analysis, MetricResult, Outcome, Verdict};
use kelvin_harness::{Effort, Judge, ProbeKind, supervise};
use kelvin_model::{ClockInfo, Outline, Run};
use kelvin_report::units;
use kelvin_sys::usage::{Who, usage};
use serde::Serialize;

use crate::budget::Fitted;
use crate::cli::SelfcheckArgs;
use crate::costs::Costs;
use crate::fault::{Done, WITH_FAILURES};
use crate::measure::{Finished, Wishes, measure};
use crate::output;
use crate::place::Here;
use crate::prepare::Prepared;
use crate::private::Told;
use crate::selection::plan_of;

/// Default seconds and rounds.
const BUDGET: f64 = 10.0;
const ROUNDS: u32 = 5;

/// What kelvin measured of itself.
#[derive(Serialize)]
struct Findings<'a> {
    clock: &'a ClockInfo,
    peak_resident_bytes: u64,
    truths: &'a [MetricResult],
}

/// `kelvin selfcheck`.
pub fn selfcheck(args: &SelfcheckArgs) -> Done {
    let here = Here::read()?;
    let kind = if args.faults { ProbeKind::Fault } else { ProbeKind::Truth };
    let plan = plan_of(kind, &[], &here, Effort::Default)?;
    let wishes = Wishes {
        mode: "selfcheck",
        most: None,
        budget: BUDGET,
        rounds: ROUNDS,
        causes: 0.0,
        args: &args.measure,
        told: Told::ForFigures,
        members: None,
    };
    let Fitted { plan, budget, .. } = Fitted::new(plan, &wishes, &Costs::of_table(&here.machine))?;
    let wishes = Wishes { budget: budget.seconds, ..wishes };
    let prepared = Prepared::new(here, &plan, &args.measure)?;
    let options = prepared.options(&plan, budget, args.measure.round_limit);
    let supervised = |outline: &Outline, judge: &mut dyn Judge| {
        supervise(&plan, outline, &options, judge);
    };
    let Finished { run, analysis, .. } = measure(&plan, &wishes, (prepared, None), budget.causes, supervised)?;
    let peak = usage(Who::Process).peak_resident;
    if args.json {
        let findings = Findings { clock: &run.outline.clock, peak_resident_bytes: peak, truths: &analysis.results };
        output::print_json(&findings)?;
    } else {
        output::print(|out| write_terminal(out, &run, &analysis, peak))?;
    }
    let wrong = analysis.results.iter().any(|result| match result.outcome {
        // A probe that fails on purpose has to fail.
        Outcome::Failed(_) => !args.faults,
        Outcome::Measured(_) => args.faults || verdict(result) == WRONG,
        Outcome::Skipped(_) => false,
        _ => true,
    });
    Ok(if wrong { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}

fn write_terminal(out: &mut dyn Write, run: &Run, analysis: &Analysis, peak: u64) -> io::Result<()> {
    let clock = &run.outline.clock;
    writeln!(
        out,
        "clock        {:.6} MHz, accurate to {:.2} ppm; an empty pair of reads costs {:.1} ns",
        clock.hertz / 1e6,
        clock.relative_error * 1e6,
        clock.pair_nanoseconds
    )?;
    writeln!(out, "memory       {:.1} MiB peak of this process\n", peak as f64 / f64::from(1 << 20))?;
    let name = |result: &MetricResult| match result.outcome {
        // Probes that fail on purpose have one metric.
        Outcome::Failed(_) => result.probe.to_string(),
        _ => units::metric_at(&result.metric, &result.case),
    };
    let width = analysis.results.iter().map(|result| name(result).chars().count()).max().unwrap_or_default();
    writeln!(out, "{:width$} {:>14} {:>14} {:>9}  verdict", "truth", "known", "measured", "error")?;
    for result in &analysis.results {
        write_truth(out, &format!("{:width$}", name(result)), result)?;
    }
    Ok(())
}

const WRONG: &str = "WRONG";

/// A figure is right within what the construction allows. One outside, whose interval still reaches there, is inconclusive.
fn verdict(result: &MetricResult) -> &'static str {
    let is_within =
        |value: f64| result.prediction.as_ref().is_some_and(|known| (known.low..=known.high).contains(&value));
    match (&result.outcome, result.verdict) {
        (_, Verdict::Above | Verdict::Below) => WRONG,
        (Outcome::Measured(summary), _) if is_within(summary.headline) => "right",
        _ => "inconclusive: run it again on a quieter machine",
    }
}

/// A truth with its name, which is as long as the longest one.
fn write_truth(out: &mut dyn Write, name: &str, result: &MetricResult) -> io::Result<()> {
    match (&result.outcome, &result.prediction) {
        (Outcome::Measured(summary), Some(known)) => {
            let verdict = verdict(result);
            let text = |value| units::plain(value, result.metric.unit);
            let error = (summary.headline / known.value - 1.0) * 100.0;
            writeln!(out, "{name} {:>14} {:>14} {error:>+8.3}%  {verdict}", text(known.value), text(summary.headline))
        }
        (Outcome::Measured(_), None) => {
            writeln!(out, "{name} not judged: {}", result.none_because.as_deref().unwrap_or("no known value"))
        }
        (Outcome::Skipped(reason), _) => writeln!(out, "{name} skipped: {reason}"),
        (Outcome::Failed(reason), _) => writeln!(out, "{name} failed: {reason}"),
        _ => writeln!(out, "{name} not known: {}", result.probe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help_of;

    #[test]
    fn the_help_tells_the_usual_time_and_rounds() {
        let budget = help_of("selfcheck", "budget");
        assert!(budget.contains(&format!("[default: {BUDGET}s, longer where")), "{budget}");
        let rounds = help_of("selfcheck", "rounds");
        assert!(rounds.contains(&format!("[default: {ROUNDS}]")), "{rounds}");
    }
}
