//! `kelvin file`: files read or written by one method, with all that is known of it.

mod cache;
mod copy;
mod figures;
mod job_limit;
mod job_report;
mod mix;
mod read;
mod run_jobs;
mod write;

use kelvin_file::{Error, recording_cost};
use kelvin_sys::clock::{self, Clock};

pub use cache::run_process as cache_process;

use crate::cli::{FileArgs, FileCommand};
use crate::cli_error::{CliError, CmdResult, Context};

/// Seconds spent calibrating the clock: an error of 0.01 % is enough for latencies.
const CALIBRATION_SECONDS: f64 = 0.01;

/// `kelvin file`.
pub fn file(args: &FileArgs) -> CmdResult {
    kelvin_sys::stop_signals::install_handlers().context("cannot watch for signals")?;
    match &args.command {
        FileCommand::Read(args) => read::read(args)?,
        FileCommand::Autosize(args) => read::autosize(args)?,
        FileCommand::Write(args) => write::write(args)?,
        FileCommand::Copy(args) => copy::copy(args)?,
        FileCommand::Mix(args) => return mix::mix(args),
        FileCommand::Run(args) => return run_jobs::run_jobs(args),
        FileCommand::Sweep(args) => return super::run::sweep(args),
        FileCommand::Cache(args) => return cache::cache(args),
    }
    Ok(true)
}

/// Why a file could not be read or written, in the words of the command line.
fn to_cli_error(error: Error) -> CliError {
    match error {
        Error::InvalidSetting { .. } => CliError::msg(format!("--{error}")),
        error => CliError::msg(error),
    }
}

/// A clock for latencies, and what it costs to use it.
struct LatencyTimer {
    /// The clock and its frequency, as a job takes them.
    clock: (Clock, f64),
    cost: f64,
}

impl LatencyTimer {
    fn new() -> Self {
        let (_, clock, _) = kelvin_harness::best_clock();
        let hertz = clock::calibrate(clock, CALIBRATION_SECONDS).hertz;
        Self { clock: (clock, hertz), cost: recording_cost(clock, hertz) }
    }
}
