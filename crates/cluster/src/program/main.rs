//! `kelvin-cluster` measures many hosts at once, under MPI: `mpirun -n 8 kelvin-cluster net`.
#![forbid(unsafe_code)]

mod channel;
mod cli;
mod coordinator;
mod file;
mod kelvin_versions;
mod load;
mod monitor;
mod net;
mod rank;
mod run;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use kelvin_cluster::kelvin_program::KelvinProgram;
use kelvin_cluster::results::{Measured, Results, command_of};
use kelvin_cluster::srun::refusal;
use mpi::Threading;
use mpi::traits::Communicator;

use crate::cli::{Command, FileArgs, LoadArgs, NetArgs, ReportArgs, RunArgs};
use crate::coordinator::{Report, Subcommand, mpi_library};

/// Exit status of a mistake on the command line, or of hosts that cannot be measured like this.
const EXIT_MISTAKE: u8 = 2;

fn main() -> ExitCode {
    match cli::parse() {
        Ok(Command::Net(args)) => run(&args),
        Ok(Command::File(args)) => run(&args),
        Ok(Command::Load(args)) => run(&args),
        Ok(Command::Run(args)) => run(&args),
        Ok(Command::Report(args)) => match report_of(&args) {
            // What the job found is no failure of this command.
            Ok(report) => ExitCode::from(print(&Report { is_success: true, ..report })),
            Err(error) => mistake(format_args!("{}: {error}", args.file.display())),
        },
        Err(status) => ExitCode::from(status),
    }
}

/// Runs this rank's part of a sub-command.
fn run<S: Subcommand>(subcommand: &S) -> ExitCode {
    if let Some(reason) = srun_refusal(None) {
        return reason;
    }
    // Threads beside the main one hear the heartbeats, and none of them calls MPI.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return mistake("MPI cannot be initialised");
    };
    let world = universe.world();
    if let Some(reason) = srun_refusal(Some(world.size() as usize)) {
        return reason;
    }
    if world.rank() == 0 {
        coordinator::run(&world, subcommand)
    } else {
        rank::serve::<S::Worker<'_>>(&world, subcommand.job().network.as_ref())
    }
}

/// Says once why the ranks that `srun` started are no job of this MPI, if so.
fn srun_refusal(ranks: Option<usize>) -> Option<ExitCode> {
    let reason = refusal(&mpi_library(), ranks, |name| std::env::var(name).ok())?;
    Some(if cli::is_first_rank() { mistake(reason) } else { ExitCode::from(EXIT_MISTAKE) })
}

/// The report of a file of results.
fn report_of(args: &ReportArgs) -> io::Result<Report> {
    fn report<S: Subcommand>(args: &ReportArgs) -> io::Result<Report> {
        let kelvin = KelvinProgram::find(args.kelvin.path.as_deref());
        S::report(&Results::read(&args.file)?, &kelvin).map_err(io::Error::other)
    }
    match command_of(&args.file)?.as_str() {
        <NetArgs as Subcommand>::Measured::COMMAND => report::<NetArgs>(args),
        <FileArgs as Subcommand>::Measured::COMMAND => report::<FileArgs>(args),
        <LoadArgs as Subcommand>::Measured::COMMAND => report::<LoadArgs>(args),
        <RunArgs as Subcommand>::Measured::COMMAND => report::<RunArgs>(args),
        other => Err(io::Error::other(format!("it is of `kelvin-cluster {other}`, which this version does not have"))),
    }
}

/// Prints a report, and returns status 0, or 1 where it is of no success.
fn print(report: &Report) -> u8 {
    // A reader that closes the pipe, such as head, has read enough.
    let _ = io::stdout().write_all(report.text.as_bytes());
    u8::from(!report.is_success)
}

/// Prints a line on standard error, by one call: a launcher mixes what ranks write.
fn notice(text: impl Display) {
    // Nothing can be done if even standard error is gone.
    let _ = io::stderr().write_all(format!("kelvin-cluster: {text}\n").as_bytes());
}

fn mistake(text: impl Display) -> ExitCode {
    notice(text);
    ExitCode::from(EXIT_MISTAKE)
}
