//! One file per sub-command.

mod ab;
mod agent;
mod compare;
mod comparison_output;
mod digest;
mod explain;
mod file;
mod history;
mod list;
mod load;
mod machine;
mod other_machine;
mod page_table;
mod receive;
mod report;
mod run;
mod runs;
mod selfcheck;
mod send;
mod serve;
pub(crate) mod study;
mod tune;
mod watch;
mod why;

use std::process::ExitCode;

use kelvin_sys::kmod::KmodDevice;

use crate::cli::Command;
use crate::cli_error::{CliError, CmdResult};

/// Runs the command.
pub fn dispatch(command: Command) -> CmdResult {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Study(args) => study::study(&args),
        Command::File(args) => file::file(&args),
        Command::Digest(args) => digest::digest(&args),
        Command::Send(args) => send::send(&args),
        Command::Receive(args) => receive::receive(&args),
        Command::Load(args) => load::load(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Agent(args) => agent::agent(&args),
        Command::Runs(args) => runs::runs(&args),
        Command::Selfcheck(args) => selfcheck::selfcheck(&args),
        Command::List(args) => list::list(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Why(args) => why::why(&args),
        Command::Machine(args) => machine::machine(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::History(args) => history::history(&args),
        Command::Ab(args) => ab::ab(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::ProgramProcess => ab::command_process(),
        Command::OtherMachine { name, runs, store } => other_machine::other_machine(name, &runs, &store),
        Command::BookPage { area } => explain::book_page(&area),
        Command::ProbeProcess => {
            kelvin_harness::run_probe_process(&kelvin_probes::all()).map_err(CliError::msg).map(|()| ExitCode::SUCCESS)
        }
        Command::FileCacheProcess => file::cache_process(),
        Command::DiskRate { directory, milliseconds } => study::disk_rate(&directory, milliseconds),
        Command::HelpPrinted => Ok(ExitCode::SUCCESS),
    }
}

/// What the last sentence of a transfer adds where this end's socket was that of a device.
fn kernel_socket_note(device: Option<KmodDevice>) -> String {
    device.map(|device| format!("; this end was in the kernel ({})", device.path())).unwrap_or_default()
}
