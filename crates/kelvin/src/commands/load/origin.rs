//! Which generator a result of `kelvin load` comes from.

use std::path::Path;

use kelvin_http::load::document::{ClockState, GeneratorOrigin, LOAD_FORMAT};

use crate::cli::LoadArgs;
use crate::cli_error::CliError;
use crate::version::VERSION;

/// This one, with the tags that were given.
pub fn read(args: &LoadArgs) -> Result<GeneratorOrigin, CliError> {
    Ok(GeneratorOrigin {
        load_format: LOAD_FORMAT,
        id: format!("{:016x}", kelvin_sys::random::kernel_random()?),
        kelvin_version: VERSION.into(),
        host: kelvin_machine::host(Path::new("/")).get().cloned(),
        tags: args.tags.iter().map(|tag| (tag.name().to_owned(), tag.value().to_owned())).collect(),
        clock: ClockState::read(),
    })
}
