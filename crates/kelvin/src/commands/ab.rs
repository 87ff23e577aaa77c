//! `kelvin ab`: two settings of this machine, or two commands, measured in turn in blocks of four, and compared.

mod arm;
mod interleave;
mod probes;
mod programs;

use std::process::ExitCode;
use std::time::Instant;

use kelvin_harness::Effort;

use self::interleave::interleave;
use super::comparison_output::{ComparisonOutput, ComparisonView};
use crate::cli::{AbArgs, MINIMUM_ROUNDS_BUDGET, MeasureArgs};
use crate::cli_error::{CliError, CmdResult, EXIT_WITH_FAILURES};
use crate::output;

pub use self::interleave::InterleaveLimits;
pub use self::probes::{ProbeComparison, compare};
pub use self::programs::command_process;

/// Seconds, unless asked otherwise; and where a precision is asked for.
const DEFAULT_SECONDS: f64 = 60.0;
const DEFAULT_PRECISION_SECONDS: f64 = 600.0;
/// Blocks that are made in any case while there is time, unless asked otherwise.
const MIN_BLOCKS: u32 = 8;

/// `kelvin ab`.
pub fn ab(args: &AbArgs) -> CmdResult {
    let limits = limits(&args.measure, args.until, args.shown.threshold);
    let shown = ComparisonOutput::new(&args.shown)?;
    let outcome = match args.a_cmd.as_ref().zip(args.b_cmd.as_ref()) {
        Some((a, b)) => interleave(&mut programs::ProgramArms::new([a, b], &limits)?, &limits)?,
        None if args.names.is_empty() => {
            return Err(CliError::msg(
                "name what to measure under both, as in `kelvin ab --b cpu=0 os.syscall`; or give --a-cmd and --b-cmd",
            ));
        }
        None => {
            let effort = if args.thorough { Effort::Thorough } else { Effort::Quick };
            let sides = [&args.a[..], &args.b];
            compare(&ProbeComparison { names: &args.names, effort, measure: &args.measure, sides }, &limits)?
        }
    };
    // What is measured in turn is chosen for the settings, and no picture of a machine.
    let of = ComparisonView { comparison: outcome.comparison, ladder: &|_| Vec::new(), more: "--full" };
    let is_kept = args.with_private || !shown.is_redirected();
    let told = shown.show(of, is_kept)?;
    if !outcome.is_complete {
        return Ok(ExitCode::from(EXIT_WITH_FAILURES));
    }
    if let Some(until) = args.until.filter(|_| !outcome.is_precise) {
        output::eprint_line(format_args!(
            "kelvin: --until: the time was over before every ratio was known to within {}",
            kelvin_core::units::percent(until)
        ));
    }
    Ok(told.report_gate())
}

/// When measuring in turn that begins now ends, as its flags say.
pub fn limits(measure: &MeasureArgs, until: Option<f64>, threshold: f64) -> InterleaveLimits {
    let usual = if until.is_some() { DEFAULT_PRECISION_SECONDS } else { DEFAULT_SECONDS };
    InterleaveLimits {
        began: Instant::now(),
        budget: measure.budget.filter(|&asked| asked != MINIMUM_ROUNDS_BUDGET),
        seconds: match measure.budget {
            Some(MINIMUM_ROUNDS_BUDGET) => 0.0,
            Some(asked) => asked.as_secs_f64(),
            None => usual,
        },
        blocks: measure.rounds.unwrap_or(MIN_BLOCKS).max(kelvin_stats::MIN_INTERVAL_ROUNDS as u32),
        blocks_are_required: measure.rounds.is_some(),
        until,
        threshold,
        seed: measure.seed.unwrap_or_else(|| u64::from(std::process::id())),
    }
}
