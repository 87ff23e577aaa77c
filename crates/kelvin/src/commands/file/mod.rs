//! `kelvin file`: files read or written by one method, with all that is known of it.

mod cache;
mod copy;
mod figures;
mod read;
mod write;

use kelvin_file::{Error, recording_cost};
use kelvin_sys::clock::{self, Clock};

pub use cache::process as cache_process;

use crate::cli::{FileArgs, FileCommand};
use crate::fault::{Done, Fault};

/// Seconds spent calibrating the clock: an error of 0.01 % is enough for latencies.
const CALIBRATION: f64 = 0.01;

/// `kelvin file`.
pub fn file(args: &FileArgs) -> Done {
    kelvin_sys::interrupt::watch().map_err(|error| Fault::new("cannot watch for signals", error))?;
    match &args.command {
        FileCommand::Read(args) => read::read(args),
        FileCommand::Autosize(args) => read::autosize(args),
        FileCommand::Write(args) => write::write(args),
        FileCommand::Copy(args) => copy::copy(args),
        FileCommand::Sweep(args) => super::run::sweep(args),
        FileCommand::Cache(args) => cache::cache(args),
    }
}

/// Why a file could not be read or written, in the words of the command line.
fn fault(error: Error) -> Fault {
    match error {
        Error::Setting { .. } => Fault::because(format!("--{error}")),
        other => Fault::because(other),
    }
}

/// A clock for latencies, and what it costs to use it.
struct Timer {
    clock: Clock,
    hertz: f64,
    cost: f64,
}

impl Timer {
    fn new() -> Self {
        let (_, clock, _) = kelvin_harness::best_clock();
        let hertz = clock::calibrate(clock, CALIBRATION).hertz;
        Self { clock, hertz, cost: recording_cost(clock, hertz) }
    }

    /// As a job wants it.
    fn of_job(&self) -> (Clock, f64) {
        (self.clock, self.hertz)
    }
}
