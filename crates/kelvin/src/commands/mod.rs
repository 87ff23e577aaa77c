//! One file per sub-command.

mod ab;
mod agent;
mod compare;
mod comparison_output;
mod digest;
mod explain;
mod file;
mod gate;
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

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kelvin_file::output_file;
use kelvin_store::{Location, Store, UploadResult};
use kelvin_sys::kmod::KmodDevice;
use kelvin_transfer::wire::secret::Secret;

use crate::cli::{Command, StoreArgs};
use crate::cli_error::{CliError, CmdResult};
use crate::output;

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

/// The secret in a file, or none.
fn read_secret(token_file: Option<&Path>) -> Result<Secret, CliError> {
    let read = |file| Secret::read(file).map_err(|error| CliError::new("--token-file", error));
    token_file.map_or_else(|| Ok(Secret::none()), read)
}

/// What the last sentence of a transfer adds where this end's socket was that of a device.
fn kernel_socket_note(device: Option<KmodDevice>) -> String {
    device.map(|device| format!("; this end was in the kernel ({})", device.path())).unwrap_or_default()
}

/// Opens the store that the command line or the environment names. The default one is made with its directories; a named one
/// only in an existing directory, like every named file: a missing directory is likely a typo.
fn open_store(args: &StoreArgs) -> Result<Store, CliError> {
    match &args.store {
        Some(place) => open_named(place, "--store"),
        None => Store::open(default_store_path()?).map_err(CliError::msg),
    }
}

/// Opens the store that an option names. A server is sent what waits for it first.
fn open_named(place: &OsStr, option: &str) -> Result<Store, CliError> {
    let location = parse_location(place, option)?;
    if let Location::File(path) = &location {
        output_file::check_directory(path).map_err(|error| CliError::msg(format!("{option} {error}")))?;
    }
    let store = Store::open(location).map_err(CliError::msg)?;
    send_pending_runs(&store);
    Ok(store)
}

/// Opens the store whose runs are wanted: a named one must be there.
fn store_to_read(args: &StoreArgs) -> Result<Store, CliError> {
    match &args.store {
        Some(place) => existing(place, "--store"),
        None => open_store(args),
    }
}

/// A store that an option names, which must be there: reading from a new one is a typo.
fn existing(place: &OsStr, option: &str) -> Result<Store, CliError> {
    match parse_location(place, option)? {
        Location::File(path) if !path.exists() => {
            output_file::check_directory(&path).map_err(|error| CliError::msg(format!("{option} {error}")))?;
            Err(CliError::msg(format!("{option} {}: there is no such store", path.display())))
        }
        _ => open_named(place, option),
    }
}

/// Where the store is that an option names.
fn parse_location(place: &OsStr, option: &str) -> Result<Location, CliError> {
    Location::parse(place, |name| std::env::var_os(name)).map_err(|error| CliError::new(option, error))
}

/// Sends a server the runs that wait for it in the local store, and says so. What cannot be sent stays there, and is no reason not
/// to go on.
fn send_pending_runs(server: &Store) {
    // Without a local store nothing waits in it.
    let Some(file) = default_store_path().ok().filter(|file| server.key().is_some() && file.exists()) else { return };
    let delivered =
        Store::open(&file).map_err(CliError::msg).and_then(|local| local.upload_pending(server).map_err(CliError::msg));
    match delivered {
        Ok(UploadResult { sent, kept }) => {
            if sent > 0 {
                output::eprint_line(format_args!("kelvin: {} sent to {}", run_count_text(sent), server.name()));
            }
            for (id, why) in kept {
                output::eprint_line(format_args!("kelvin: {id} stays in {}: {why}", file.display()));
            }
        }
        Err(error) => {
            output::eprint_line(format_args!("kelvin: runs for {} wait in {}: {error}", server.name(), file.display()))
        }
    }
}

/// A number of runs.
fn run_count_text(count: usize) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

/// The same store, if it is there.
fn open_existing_store(args: &StoreArgs) -> Result<Option<Store>, CliError> {
    let location = match &args.store {
        Some(place) => parse_location(place, "--store")?,
        None => Location::File(default_store_path()?),
    };
    match location {
        Location::File(path) if !path.exists() => Ok(None),
        _ => open_store(args).map(Some),
    }
}

/// The store in which runs for a server wait.
fn open_local_store() -> Result<Store, CliError> {
    Store::open(default_store_path()?).map_err(CliError::msg)
}

/// Where the store is by default.
fn default_store_path() -> Result<PathBuf, CliError> {
    Store::default_path(|name| std::env::var_os(name)).map_err(CliError::msg)
}
