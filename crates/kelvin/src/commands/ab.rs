//! `kelvin ab`: two settings of this machine, or two commands, measured interleaved in blocks of four, and compared.

mod arm;
mod interleave;
mod probes;
mod programs;

use std::time::Instant;

use kelvin_harness::Effort;

use self::interleave::interleave;
use super::comparison_output::{ComparisonOutput, report_gate};
use crate::cli::{AbArgs, RunOptions};
use crate::cli_error::CmdResult;

pub use self::interleave::InterleaveLimits;
pub use self::probes::{ProbeComparison, compare};

/// Seconds, unless asked otherwise; and where a precision is asked for.
const DEFAULT_SECONDS: f64 = 60.0;
const DEFAULT_PRECISION_SECONDS: f64 = 600.0;
/// Blocks that are made in any case while there is time, unless asked otherwise.
const MIN_BLOCKS: u32 = 8;

/// `kelvin ab`.
pub fn ab(args: &AbArgs) -> CmdResult {
    let limits = limits(&args.options, args.until, args.shown.threshold);
    let output = ComparisonOutput::new(&args.shown)?;
    let outcome = match args.a_cmd.as_ref().zip(args.b_cmd.as_ref()) {
        Some((a, b)) => interleave(&mut programs::ProgramArms::new([a, b], &limits)?, &limits)?,
        None if args.names.is_empty() => {
            bail!(
                "name what to measure under both, as in `kelvin ab --b cpu=0 os.syscall`; or give --a-cmd and --b-cmd"
            );
        }
        None => {
            let effort = if args.thorough { Effort::Thorough } else { Effort::Quick };
            let sides = [&args.a[..], &args.b];
            compare(&ProbeComparison { names: &args.names, effort, options: &args.options, sides }, &limits)?
        }
    };
    let keeps_private = args.with_private || !output.is_redirected();
    // Interleaved cases are chosen for the settings, and no picture of a machine: they have no ladder.
    let comparison = output.show(outcome.comparison, |_| Vec::new(), ("--full", keeps_private))?;
    if !outcome.is_complete {
        return Ok(false);
    }
    if let Some(precision) = args.until.filter(|_| !outcome.is_precise) {
        notice!(
            "--until: the time was over before every ratio was known to within {}",
            kelvin_core::units::percent(precision)
        );
    }
    Ok(report_gate(&args.shown, &comparison))
}

/// The limits by the flags of an interleaved measurement that begins now.
pub fn limits(options: &RunOptions, precision: Option<f64>, threshold: f64) -> InterleaveLimits {
    let default_seconds = if precision.is_some() { DEFAULT_PRECISION_SECONDS } else { DEFAULT_SECONDS };
    InterleaveLimits {
        start: Instant::now(),
        budget: options.budget.fixed_time(),
        seconds: options.budget.seconds(default_seconds),
        default_seconds,
        blocks: options.rounds.unwrap_or(MIN_BLOCKS).max(kelvin_stats::MIN_INTERVAL_ROUNDS as u32),
        blocks_are_required: options.rounds.is_some(),
        precision,
        threshold,
        seed: options.seed.unwrap_or_else(|| u64::from(std::process::id())),
    }
}
