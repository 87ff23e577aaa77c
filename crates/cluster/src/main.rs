//! `kelvin-cluster` measures many hosts at once, under MPI: `mpirun -n 8 kelvin-cluster net`.
#![forbid(unsafe_code)]

mod channel;
mod cli;
mod coordinator;
mod monitor;
mod mpi_pair;
mod rank;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use kelvin_cluster::analysis::analyse;
use kelvin_cluster::report::write_text;
use kelvin_cluster::results::Results;
use mpi::Threading;
use mpi::traits::Communicator;

use crate::cli::{Command, NetArgs, ReportArgs};

/// Exit status of a mistake on the command line, or of hosts that cannot be measured like this.
const EXIT_MISTAKE: u8 = 2;

fn main() -> ExitCode {
    match cli::parse() {
        Ok(Command::Net(args)) => run_net(&args),
        Ok(Command::Report(args)) => report(&args),
        Err(status) => ExitCode::from(status),
    }
}

fn run_net(args: &NetArgs) -> ExitCode {
    // Threads beside the main one hear the heartbeats, and none of them calls MPI.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return mistake("MPI cannot be initialised");
    };
    let world = universe.world();
    if world.rank() == 0 { coordinator::run_net(&world, args) } else { rank::serve(&world, args.network.as_ref()) }
}

fn report(args: &ReportArgs) -> ExitCode {
    match Results::read(&args.file) {
        Ok(results) => print_report(&results),
        Err(error) => mistake(format_args!("{}: {error}", args.file.display())),
    }
}

/// Prints results, and returns status 0.
fn print_report(results: &Results) -> ExitCode {
    let mut text = String::new();
    write_text(&mut text, results, &analyse(results)).expect("a string takes all that is written");
    // A reader that closes the pipe, such as head, has read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints a line on standard error.
fn notice(text: impl Display) {
    // Nothing can be done if even standard error is gone.
    let _ = writeln!(std::io::stderr(), "kelvin-cluster: {text}");
}

fn mistake(text: impl Display) -> ExitCode {
    notice(text);
    ExitCode::from(EXIT_MISTAKE)
}
