//! kelvin measures a Linux machine end to end and explains every number.
#![forbid(unsafe_code)]

mod budget;
mod byte_progress;
mod cli;
mod commands;
mod costs;
mod elsewhere;
mod fault;
mod gaps;
mod inquiry;
mod keeper;
mod measure;
mod members;
mod other_host;
mod output;
mod place;
mod predict;
mod prepare;
mod private;
mod progress;
mod record;
mod selection;
mod sockets;

use std::process::ExitCode;

use fault::Fault;

fn main() -> ExitCode {
    let ready = kelvin_sys::interrupt::write_errors_only().map_err(Fault::because);
    let result = ready.and_then(|()| cli::parse()).and_then(commands::dispatch);
    let result = result.and_then(|code| output::end().map(|()| code));
    result.unwrap_or_else(|fault| fault.report())
}
