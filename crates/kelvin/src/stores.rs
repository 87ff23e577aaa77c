//! The stores of runs that a command line names.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use kelvin_core::Run;
use kelvin_file::output_file;
use kelvin_store::{Location, Store, UploadResult};

use crate::cli::{StoreArgs, option_or_setting};
use crate::cli_error::{CliError, Context};
use crate::output;

/// Opens the store that the command line or the environment names. The default one is made with its directories; a named one
/// only in an existing directory, like every named file: a missing directory is likely a typo.
pub fn open_store(args: &StoreArgs) -> Result<Store, CliError> {
    args.store
        .as_ref()
        .map_or_else(open_local_store, |store_name| open_named(store_name, &option_or_setting("store", store_name)))
}

/// Opens the store that an option names. A server is sent what waits for it first.
pub fn open_named(store_name: &OsStr, option: &str) -> Result<Store, CliError> {
    let location = parse_location(store_name, option)?;
    if let Location::File(path) = &location {
        output_file::check_directory(path).map_err(|error| CliError::msg(format!("{option} {error}")))?;
    }
    let store = Store::open(location)?;
    send_pending_runs(&store);
    Ok(store)
}

/// Opens the store whose runs are wanted: a named one must be there.
pub fn store_to_read(args: &StoreArgs) -> Result<Store, CliError> {
    args.store
        .as_ref()
        .map_or_else(open_local_store, |store_name| open_existing(store_name, &option_or_setting("store", store_name)))
}

/// A store that an option names, which must be there: reading from a new one is a typo.
pub fn open_existing(store_name: &OsStr, option: &str) -> Result<Store, CliError> {
    match parse_location(store_name, option)? {
        Location::File(path) if !path.exists() => {
            output_file::check_directory(&path).map_err(|error| CliError::msg(format!("{option} {error}")))?;
            Err(CliError::msg(format!(
                "{option} {}: there is no such store: name a file in which `kelvin run` has stored runs",
                path.display()
            )))
        }
        _ => open_named(store_name, option),
    }
}

/// The store that the command line or the environment names, if it is there.
pub fn open_existing_store(args: &StoreArgs) -> Result<Option<Store>, CliError> {
    let location =
        args.store.as_ref().map(|store_name| parse_location(store_name, &option_or_setting("store", store_name)));
    match location.unwrap_or_else(|| Ok(Location::File(default_store_path()?)))? {
        Location::File(path) if !path.exists() => Ok(None),
        _ => open_store(args).map(Some),
    }
}

/// The default store, in which runs for a server wait too.
pub fn open_local_store() -> Result<Store, CliError> {
    Ok(Store::open(default_store_path()?)?)
}

fn parse_location(store_name: &OsStr, option: &str) -> Result<Location, CliError> {
    Location::parse(store_name, |name| std::env::var_os(name)).context(option)
}

pub fn default_store_path() -> Result<PathBuf, CliError> {
    Ok(Store::default_path(|name| std::env::var_os(name))?)
}

/// Sends a server the runs that wait for it in the local store, and reports it. What cannot be sent stays there, and is no reason not
/// to go on.
fn send_pending_runs(server: &Store) {
    // Without a local store nothing waits in it.
    let Some(file) = default_store_path().ok().filter(|file| server.key().is_some() && file.exists()) else { return };
    let result = Store::open(&file).map_err(CliError::from).and_then(|local| Ok(local.upload_pending(server)?));
    let (server, file) = (server.name(), file.display());
    match result {
        Ok(UploadResult { sent, failures }) => {
            if sent > 0 {
                notice!("{} sent to {server}", run_count_text(sent));
            }
            failures.iter().for_each(|(id, reason)| notice!("{id} stays in {file}: {reason}"));
        }
        Err(error) => notice!("runs for {server} wait in {file}: {error}"),
    }
}

/// A number of runs.
pub fn run_count_text(count: usize) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

/// A run by its name in the store, or from the file that it names; `-` is standard input.
pub fn load_run(name: &OsStr, store: &StoreArgs) -> Result<Run, CliError> {
    Ok(find_run(name, store)?.0)
}

/// Like `load_run`, with the store that it is from, or that an option names.
pub fn find_run(name: &OsStr, args: &StoreArgs) -> Result<(Run, Option<Store>), CliError> {
    let path = Path::new(name);
    if name == "-" || path.is_file() {
        let run = match name.to_str() {
            Some("-") => kelvin_store::import(output::locked_stdin()?),
            _ => kelvin_store::import(File::open(path).context(format_args!("cannot open {}", path.display()))?),
        };
        let run = run.context(path.display())?;
        return Ok((run, args.store.as_ref().map(|_| store_to_read(args)).transpose()?));
    }
    let store = store_to_read(args)?;
    Ok((store.load(&name.to_string_lossy())?, Some(store)))
}
