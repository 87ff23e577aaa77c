//! kelvin measures a Linux machine end to end and explains every number.
#![forbid(unsafe_code)]

#[macro_use]
mod cli_error;

mod answer;
mod cause_experiment;
mod class_members;
mod cli;
mod command_runner;
mod commands;
mod costs;
mod fallback_dirs;
mod gaps;
mod host_claim;
mod launcher;
mod locale;
mod measure;
mod output;
mod peer_agent;
mod placement;
mod predict;
mod probe_options;
mod progress;
mod redact;
mod run_directory;
mod run_plan;
mod run_recorder;
mod run_schedule;
mod run_writer;
mod selection;
mod socket_options;
mod standard_error;
mod start_delay;
mod stores;
mod study_defaults;
mod study_selection;
mod version;

use std::process::ExitCode;

use cli_error::CliError;

#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: kelvin_sys::heap::Heap = kelvin_sys::heap::Heap;

fn main() -> ExitCode {
    let ready = kelvin_sys::stop_signals::ignore_sigxfsz().map_err(CliError::msg);
    let command = ready.and_then(|()| cli::parse());
    let result = command.and_then(|command| command.map_or(Ok(true), commands::dispatch));
    cli_error::exit_code(result.and_then(|is_success| output::close_stdout().map(|()| is_success)))
}
