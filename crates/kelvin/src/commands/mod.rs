//! One file per sub-command.

mod ab;
mod agent;
mod compare;
mod digest;
mod explain;
mod file;
mod gate;
mod history;
mod list;
mod load;
mod machine;
mod other_machine;
mod page;
mod receive;
mod report;
mod run;
mod runs;
mod selfcheck;
mod send;
mod serve;
mod shown;
pub(crate) mod study;
mod tune;
mod watch;
mod why;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kelvin_file::user_file;
use kelvin_store::{Delivered, Location, Store};
use kelvin_sys::kernel_end::Device;
use kelvin_wire::secret::Secret;

use crate::cli::{Command, StoreArgs};
use crate::fault::{Done, Fault};
use crate::output;

/// Runs the command.
pub fn dispatch(command: Command) -> Done {
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
            kelvin_harness::serve(&kelvin_probes::all()).map_err(Fault::because).map(|()| ExitCode::SUCCESS)
        }
        Command::FileCacheProcess => file::cache_process(),
        Command::DiskRate { directory, milliseconds } => study::disk_rate(&directory, milliseconds),
        Command::Nothing => Ok(ExitCode::SUCCESS),
    }
}

/// The secret in a file, or none.
fn secret(token_file: Option<&Path>) -> Result<Secret, Fault> {
    let read = |file| Secret::read(file).map_err(|error| Fault::new("--token-file", error));
    token_file.map_or_else(|| Ok(Secret::none()), read)
}

/// What the last sentence of a transfer adds where this end's socket was that of a device.
fn in_kernel(device: Option<Device>) -> String {
    device.map(|device| format!("; this end was in the kernel ({})", device.path())).unwrap_or_default()
}

/// Opens the store that the command line or the environment names. The default one is made with its directories; a named one
/// only in an existing directory, like every named file: a missing directory is likely a typo.
fn open_store(args: &StoreArgs) -> Result<Store, Fault> {
    match &args.store {
        Some(place) => open_named(place, "--store"),
        None => Store::open(default_store()?).map_err(Fault::because),
    }
}

/// Opens the store that an option names. A server is sent what waits for it first.
fn open_named(place: &OsStr, option: &str) -> Result<Store, Fault> {
    let location = location(place, option)?;
    if let Location::File(path) = &location {
        user_file::check_directory(path).map_err(|error| Fault::because(format!("{option} {error}")))?;
    }
    let store = Store::open(location).map_err(Fault::because)?;
    deliver(&store);
    Ok(store)
}

/// Opens the store whose runs are wanted: a named one must be there.
fn store_to_read(args: &StoreArgs) -> Result<Store, Fault> {
    match &args.store {
        Some(place) => existing(place, "--store"),
        None => open_store(args),
    }
}

/// A store that an option names, which must be there: reading from a new one is a typo.
fn existing(place: &OsStr, option: &str) -> Result<Store, Fault> {
    match location(place, option)? {
        Location::File(path) if !path.exists() => {
            user_file::check_directory(&path).map_err(|error| Fault::because(format!("{option} {error}")))?;
            Err(Fault::because(format!("{option} {}: there is no such store", path.display())))
        }
        _ => open_named(place, option),
    }
}

/// Where the store is that an option names.
fn location(place: &OsStr, option: &str) -> Result<Location, Fault> {
    Location::parse(place, |name| std::env::var_os(name)).map_err(|error| Fault::new(option, error))
}

/// Sends a server the runs that wait for it in the local store, and says so. What cannot be sent stays there, and is no reason not
/// to go on.
fn deliver(server: &Store) {
    // Without a local store nothing waits in it.
    let Some(file) = default_store().ok().filter(|file| server.key().is_some() && file.exists()) else { return };
    let delivered =
        Store::open(&file).map_err(Fault::because).and_then(|local| local.deliver(server).map_err(Fault::because));
    match delivered {
        Ok(Delivered { sent, kept }) => {
            if sent > 0 {
                output::remark(format_args!("kelvin: {} sent to {}", runs_in_words(sent), server.name()));
            }
            for (id, why) in kept {
                output::remark(format_args!("kelvin: {id} stays in {}: {why}", file.display()));
            }
        }
        Err(error) => {
            output::remark(format_args!("kelvin: runs for {} wait in {}: {error}", server.name(), file.display()))
        }
    }
}

/// A number of runs.
fn runs_in_words(count: usize) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

/// The same store, if it is there.
fn existing_store(args: &StoreArgs) -> Result<Option<Store>, Fault> {
    let location = match &args.store {
        Some(place) => location(place, "--store")?,
        None => Location::File(default_store()?),
    };
    match location {
        Location::File(path) if !path.exists() => Ok(None),
        _ => open_store(args).map(Some),
    }
}

/// The store in which runs for a server wait.
fn local_store() -> Result<Store, Fault> {
    Store::open(default_store()?).map_err(Fault::because)
}

/// Where the store is by default.
fn default_store() -> Result<PathBuf, Fault> {
    Store::default_path(|name| std::env::var_os(name)).map_err(Fault::because)
}
