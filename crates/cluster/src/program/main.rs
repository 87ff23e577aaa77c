//! `kelvin-cluster` measures many hosts at once, under MPI: `mpirun -n 8 kelvin-cluster net`.
#![forbid(unsafe_code)]

mod channel;
mod cli;
mod coordinator;
mod monitor;
mod net;
mod rank;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kelvin_cluster::results::{Measured, Results, command_of};
use mpi::Threading;
use mpi::traits::Communicator;

use crate::cli::{Command, NetArgs};
use crate::coordinator::Subcommand;

/// Exit status of a mistake on the command line, or of hosts that cannot be measured like this.
const EXIT_MISTAKE: u8 = 2;

fn main() -> ExitCode {
    match cli::parse() {
        Ok(Command::Net(args)) => run(&args),
        Ok(Command::Report(args)) => match report_of(&args.file) {
            Ok(text) => print(&text),
            Err(error) => mistake(format_args!("{}: {error}", args.file.display())),
        },
        Err(status) => ExitCode::from(status),
    }
}

/// Runs this rank's part of a sub-command.
fn run<S: Subcommand>(subcommand: &S) -> ExitCode {
    // Threads beside the main one hear the heartbeats, and none of them calls MPI.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return mistake("MPI cannot be initialised");
    };
    let world = universe.world();
    if world.rank() == 0 {
        coordinator::run(&world, subcommand)
    } else {
        rank::serve::<S::Worker<'_>>(&world, subcommand.job().network.as_ref())
    }
}

/// The report of a file of results.
fn report_of(path: &Path) -> io::Result<String> {
    fn report<S: Subcommand>(path: &Path) -> io::Result<String> {
        Ok(S::report(&Results::read(path)?))
    }
    match command_of(path)?.as_str() {
        <NetArgs as Subcommand>::Measured::COMMAND => report::<NetArgs>(path),
        other => Err(io::Error::other(format!("it is of `kelvin-cluster {other}`, which this version does not have"))),
    }
}

/// Prints a report, and returns status 0.
fn print(text: &str) -> ExitCode {
    // A reader that closes the pipe, such as head, has read enough.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints a line on standard error.
fn notice(text: impl Display) {
    // Nothing can be done if even standard error is gone.
    let _ = writeln!(io::stderr(), "kelvin-cluster: {text}");
}

fn mistake(text: impl Display) -> ExitCode {
    notice(text);
    ExitCode::from(EXIT_MISTAKE)
}
