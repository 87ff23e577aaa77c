//! kelvin measures a Linux machine end to end and explains every number.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod fault;
mod measure;
mod other_host;
mod output;
mod place;
mod private;
mod progress;
mod record;
mod scratch;
mod selection;
mod sockets;

use std::process::ExitCode;

fn main() -> ExitCode {
    let result = cli::parse().and_then(commands::dispatch);
    result.unwrap_or_else(|fault| fault.report())
}
