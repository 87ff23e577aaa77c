//! `kelvin ab`: two settings of this machine, or two commands, measured in turn in blocks of four, and compared.

mod alternation;
mod arm;
mod probes;
mod programs;

use std::process::ExitCode;
use std::time::Instant;

use kelvin_harness::Effort;

use self::alternation::alternate;
use super::shown::{Showing, Shown};
use crate::cli::{AbArgs, MINIMUM, MeasureArgs};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

pub use self::alternation::Limits;
pub use self::probes::{Probed, compare};
pub use self::programs::command_process;

/// Seconds, unless asked otherwise; and where a precision is asked for.
const USUAL: f64 = 60.0;
const USUAL_UNTIL: f64 = 600.0;
/// Blocks that are made in any case while there is time, unless asked otherwise.
const BLOCKS: u32 = 8;

/// `kelvin ab`.
pub fn ab(args: &AbArgs) -> Done {
    let limits = limits(&args.measure, args.until, args.shown.threshold);
    let shown = Shown::of(&args.shown)?;
    let outcome = match args.a_cmd.as_ref().zip(args.b_cmd.as_ref()) {
        Some((a, b)) => alternate(&mut programs::Programs::new([a, b], &limits)?, &limits)?,
        None if args.names.is_empty() => {
            return Err(Fault::because(
                "name what to measure under both, as in `kelvin ab --b cpu=0 os.syscall`; or give --a-cmd and --b-cmd",
            ));
        }
        None => {
            let effort = if args.thorough { Effort::Thorough } else { Effort::Quick };
            let sides = [&args.a[..], &args.b];
            compare(&Probed { names: &args.names, effort, measure: &args.measure, sides }, &limits)?
        }
    };
    // What is measured in turn is chosen for the settings, and no picture of a machine.
    let of = Showing { comparison: outcome.comparison, ladder: &|_| Vec::new(), more: "--full" };
    let is_kept = args.with_private || !shown.leaves();
    let told = shown.show(of, is_kept)?;
    if !outcome.is_whole {
        return Ok(ExitCode::from(WITH_FAILURES));
    }
    if let Some(until) = args.until.filter(|_| !outcome.is_precise) {
        output::remark(format_args!(
            "kelvin: --until: the time was over before every ratio was known to within {}",
            kelvin_model::units::percent(until)
        ));
    }
    Ok(told.judged())
}

/// When measuring in turn that begins now ends, as its flags say.
pub fn limits(measure: &MeasureArgs, until: Option<f64>, threshold: f64) -> Limits {
    let usual = if until.is_some() { USUAL_UNTIL } else { USUAL };
    Limits {
        began: Instant::now(),
        asked: measure.budget.filter(|&asked| asked != MINIMUM),
        seconds: match measure.budget {
            Some(MINIMUM) => 0.0,
            Some(asked) => asked.as_secs_f64(),
            None => usual,
        },
        blocks: measure.rounds.unwrap_or(BLOCKS).max(kelvin_stats::LEAST_ROUNDS as u32),
        is_asked: measure.rounds.is_some(),
        until,
        threshold,
        seed: measure.seed.unwrap_or_else(|| u64::from(std::process::id())),
    }
}
