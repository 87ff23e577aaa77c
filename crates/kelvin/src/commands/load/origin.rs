//! Which generator a result of `kelvin load` comes from.

use std::path::Path;

use kelvin_http::load::document::{ClockState, GeneratorOrigin, LOAD_FORMAT};

use crate::cli::LoadArgs;
use crate::cli_error::CliError;
use crate::launcher::LaunchedProcess;
use crate::version::VERSION;

/// This one, with the tags that were given, and those of its launcher.
pub fn read(args: &LoadArgs) -> Result<GeneratorOrigin, CliError> {
    let process = LaunchedProcess::from_environment(|name| std::env::var(name).ok());
    let name = kelvin_machine::host_name(Path::new("/"));
    let launch = process.map(|process| process.tags(name.get().map(String::as_str))).unwrap_or_default();
    // Of two tags with one name the last one counts: that of the user.
    let tags = launch.iter().chain(&args.tags);
    Ok(GeneratorOrigin {
        load_format: LOAD_FORMAT,
        id: format!("{:016x}", kelvin_sys::random::kernel_random()?),
        kelvin_version: VERSION.into(),
        host: kelvin_machine::host(Path::new("/")).get().cloned(),
        tags: tags.map(|tag| (tag.name().to_owned(), tag.value().to_owned())).collect(),
        clock: ClockState::read(),
    })
}
