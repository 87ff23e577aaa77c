//! `kelvin ab`: two settings of this machine, or two commands, measured in turn in blocks of four, and compared.

mod alternation;
mod arm;
mod probes;
mod programs;

use std::io::Write;
use std::process::ExitCode;

use kelvin_machine::private::hide_in;
use kelvin_report::compare::{Compared, Pulled, Tested};

use self::alternation::{Limits, alternate};
use super::gate::AskedGate;
use crate::cli::{AbArgs, CompareFormat, MINIMUM};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

pub use programs::command_process;

/// Seconds, unless asked otherwise; and where a precision is asked for.
const USUAL: f64 = 60.0;
const USUAL_UNTIL: f64 = 600.0;
/// Blocks that are made in any case while there is time, unless asked otherwise.
const BLOCKS: u32 = 8;

/// `kelvin ab`.
pub fn ab(args: &AbArgs) -> Done {
    let format = if args.json { CompareFormat::Json } else { args.format };
    let gate = AskedGate::of(&args.gate)?;
    gate.check_format(format, args.full)?;
    let limits = limits(args);
    let outcome = match args.a_cmd.as_ref().zip(args.b_cmd.as_ref()) {
        Some((a, b)) => alternate(&mut programs::Programs::new([a, b])?, &limits)?,
        None if args.names.is_empty() => {
            return Err(Fault::because(
                "name what to measure under both, as in `kelvin ab --b cpu=0 os.syscall`; or give --a-cmd and --b-cmd",
            ));
        }
        None => probes::compare(args, &limits)?,
    };
    let mut comparison = outcome.comparison;
    gate.judge(&mut comparison);
    if !args.with_private && (args.output.is_some() || format != CompareFormat::Terminal) {
        comparison = hide_in(&comparison).map_err(|error| Fault::new("cannot leave out what is private", error))?;
    }
    let write = |out: &mut dyn Write| match format {
        CompareFormat::Terminal => {
            Compared { width: output::width(), full: args.full, more: "--full" }.render(&comparison, out)
        }
        CompareFormat::Md => Pulled.render(&comparison, out),
        CompareFormat::Junit => Tested.render(&comparison, out),
        CompareFormat::Json => writeln!(out, "{}", kelvin_model::json::pretty(&comparison)?),
    };
    match &args.output {
        Some(path) => output::write_file(path, write)?,
        None if format == CompareFormat::Terminal => output::print(write)?,
        None => output::print_as_it_is(write)?,
    }
    if !outcome.is_whole {
        return Ok(ExitCode::from(WITH_FAILURES));
    }
    if let Some(until) = args.until.filter(|_| !outcome.is_precise) {
        output::remark(format_args!(
            "kelvin: --until: the time was over before every ratio was known to within {}",
            kelvin_model::units::percent(until)
        ));
    }
    Ok(gate.tell(&comparison))
}

fn limits(args: &AbArgs) -> Limits {
    let usual = if args.until.is_some() { USUAL_UNTIL } else { USUAL };
    let asked = args.measure.budget;
    Limits {
        seconds: match asked {
            Some(MINIMUM) => 0.0,
            Some(asked) => asked.as_secs_f64(),
            None => usual,
        },
        blocks: args.measure.rounds.unwrap_or(BLOCKS).max(kelvin_stats::LEAST_ROUNDS as u32),
        is_asked: args.measure.rounds.is_some(),
        until: args.until,
        threshold: args.threshold,
        seed: args.measure.seed.unwrap_or_else(|| u64::from(std::process::id())),
    }
}
