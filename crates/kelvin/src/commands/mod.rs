//! One file per sub-command.

mod ab;
mod agent;
mod causes_page;
mod compare;
mod comparison_output;
mod config;
mod digest;
mod explain;
mod file;
mod fleet;
mod help;
mod history;
mod list;
mod load;
mod machine;
mod net;
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
mod time;
mod tune;
mod watch;
mod why;

use std::path::Path;

use kelvin_sys::kmod::KmodDevice;

use crate::cli::Command;
use crate::cli_error::{CliError, CmdResult};
use crate::command_runner;

/// This program, which each round is a new process of. Files that are held open are found beside it.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Runs the command.
pub fn dispatch(command: Command) -> CmdResult {
    if !Path::new(OWN_PROGRAM).exists() {
        bail!("/proc is not mounted here, and kelvin needs it: mount -t proc proc /proc");
    }
    match command {
        Command::Run(args) => return run::run(args),
        Command::Study(args) => return study::study(&args.0),
        Command::File(args) => return file::file(&args),
        Command::Digest(args) => return digest::digest(&args),
        Command::Send(mut args) => {
            args.expand_rsync_options();
            return send::send(&args);
        }
        Command::Receive(args) => return receive::receive(&args),
        Command::Load(args) => return load::load(&args),
        Command::Serve(args) => serve::serve(&args)?,
        Command::Net(args) => return net::net(&args),
        Command::Agent(args) => agent::agent(&args)?,
        Command::Runs(args) => return runs::runs(&args),
        Command::Selfcheck(args) => return selfcheck::selfcheck(&args),
        Command::List(args) => list::list(&args)?,
        Command::Explain(args) => explain::explain(&args)?,
        Command::Why(args) => return why::why(&args),
        Command::Machine(args) => machine::machine(&args)?,
        Command::Tune(args) => return tune::tune(&args),
        Command::Report(args) => report::report(&args)?,
        Command::Compare(args) => return compare::compare(&args),
        Command::History(args) => return history::history(&args),
        Command::Fleet(args) => return fleet::fleet(&args),
        Command::Ab(args) => return ab::ab(&args),
        Command::Time(args) => return time::time(&args),
        Command::Watch(args) => return watch::watch(&args),
        Command::Config(args) => config::config(&args)?,
        Command::Help(args) => help::help(&args)?,
        Command::ProgramProcess => command_runner::command_process()?,
        Command::OtherMachine { name, runs, store } => other_machine::other_machine(name, &runs, &store)?,
        Command::BookPage { area } => explain::book_page(&area)?,
        Command::ProbeProcess => kelvin_harness::run_probe_process(&kelvin_probes::all()).map_err(CliError::msg)?,
        Command::FileCacheProcess => file::cache_process()?,
        Command::DiskRate { directory, milliseconds } => study::disk_rate(&directory, milliseconds)?,
    }
    Ok(true)
}

/// What the last sentence of a transfer adds where this end's socket was that of a device.
fn kernel_socket_note(device: Option<KmodDevice>) -> String {
    device.map(|device| format!("; this end was in the kernel ({})", device.path())).unwrap_or_default()
}
