//! `kelvin selfcheck`: known truths, and kelvin's own error and cost.

use std::io::{self, Write};

use kelvin_analysis::{Analysis, MetricResult, Outcome, RangeVerdict};
use kelvin_core::{ClockInfo, Run};
use kelvin_harness::{Effort, ProbeKind};
use kelvin_report::units;
use kelvin_sys::usage::{UsageScope, read_usage};
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::SelfcheckArgs;
use crate::cli_error::CmdResult;
use crate::commands::run::plan_run;
use crate::measure::FinishedRun;
use crate::placement::LocalMachine;
use crate::run_schedule::RunDefaults;
use crate::selection::plan_names;

/// Default seconds and rounds.
const DEFAULTS: RunDefaults = RunDefaults::new("selfcheck", 10.0, 5);

/// What kelvin measured of itself.
#[derive(Serialize)]
struct SelfcheckReport<'a> {
    clock: &'a ClockInfo,
    peak_resident_bytes: u64,
    truths: &'a [MetricResult],
}

/// `kelvin selfcheck`.
pub fn selfcheck(args: &SelfcheckArgs) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let local = LocalMachine::read(args.options.cpu)?;
    let kind = if args.faults { ProbeKind::Fault } else { ProbeKind::Truth };
    let cases = plan_names(kind, &[], &local, Effort::Default)?;
    let FinishedRun { run, analysis, .. } = plan_run(local, cases, &DEFAULTS, &args.options, None)?.measure()?;
    let peak = read_usage(UsageScope::Process).peak_resident;
    let report = SelfcheckReport { clock: &run.header.clock, peak_resident_bytes: peak, truths: &analysis.results };
    outlet.write(&report, |out| write_terminal(out, &run, &analysis, peak))?;
    let has_wrong_result = analysis.results.iter().any(|result| match result.outcome {
        // A probe that fails on purpose has to fail.
        Outcome::Failed(_) => !args.faults,
        Outcome::Measured(_) => args.faults || verdict(result) == WRONG_VERDICT,
        Outcome::Skipped(_) => false,
        _ => true,
    });
    Ok(!has_wrong_result)
}

fn write_terminal(out: &mut dyn Write, run: &Run, analysis: &Analysis, peak: u64) -> io::Result<()> {
    let clock = &run.header.clock;
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

const WRONG_VERDICT: &str = "WRONG";

/// A figure is right within what the construction allows. One outside, whose interval still reaches there, is inconclusive.
fn verdict(result: &MetricResult) -> &'static str {
    let is_within = |value: f64| {
        result.prediction.as_ref().is_some_and(|prediction| (prediction.low..=prediction.high).contains(&value))
    };
    match (&result.outcome, result.verdict) {
        (_, RangeVerdict::Above | RangeVerdict::Below) => WRONG_VERDICT,
        (Outcome::Measured(summary), _) if is_within(summary.headline) => "right",
        _ => "inconclusive: run it again on a quieter machine",
    }
}

/// A truth with its name, which is as long as the longest one.
fn write_truth(out: &mut dyn Write, name: &str, result: &MetricResult) -> io::Result<()> {
    match (&result.outcome, &result.prediction) {
        (Outcome::Measured(summary), Some(prediction)) => {
            let verdict = verdict(result);
            let text = |value| units::value_text(value, result.metric.unit);
            let error = (summary.headline / prediction.value - 1.0) * 100.0;
            writeln!(
                out,
                "{name} {:>14} {:>14} {error:>+8.3}%  {verdict}",
                text(prediction.value),
                text(summary.headline)
            )
        }
        (Outcome::Measured(_), None) => {
            writeln!(out, "{name} not judged: {}", result.no_prediction_reason.as_deref().unwrap_or("no known value"))
        }
        (Outcome::Skipped(reason), _) => writeln!(out, "{name} skipped: {reason}"),
        (Outcome::Failed(reason), _) => writeln!(out, "{name} failed: {reason}"),
        _ => writeln!(out, "{name} not known: {}", result.probe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flag_help;

    #[test]
    fn help_states_default_time_and_rounds() {
        let budget = flag_help("selfcheck", "budget");
        assert!(budget.contains(&format!("[default: {}s, longer where", DEFAULTS.seconds)), "{budget}");
        let rounds = flag_help("selfcheck", "rounds");
        assert!(rounds.contains(&format!("[default: {}]", DEFAULTS.rounds)), "{rounds}");
    }
}
