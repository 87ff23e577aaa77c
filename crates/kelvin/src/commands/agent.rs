//! `kelvin agent`: the measurement server for another kelvin's network measurements.

mod files;
pub(super) mod log;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kelvin_core::json;
use kelvin_transfer::wire::Error;
use kelvin_transfer::wire::address::DisplayAddr;
use kelvin_transfer::wire::admission::AgentLimits;
use kelvin_transfer::wire::agent::{Agent, AgentEvent};

use crate::cli::AgentArgs;
use crate::cli_error::CliError;
use crate::output;
use crate::peer_agent::read_secret;
use files::ServedDirectory;
use log::{Log, LogSource};

/// How long exiting waits for the reader of the log.
pub(super) const LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until asked to stop. Prints its address on standard output, and logs to standard error.
pub fn agent(args: &AgentArgs) -> Result<(), CliError> {
    let secret = read_secret(args.token_file.as_deref())?;
    let files = args.serve.as_deref().map(ServedDirectory::open).transpose()?;
    kelvin_sys::stop_signals::install_handlers()?;
    // With fewer descriptors it serves fewer clients.
    let _ = kelvin_sys::process::raise_open_file_limit();
    let limits = AgentLimits { max_clients: args.clients, ..AgentLimits::default() };
    let limits = limits.with_streams_on(kelvin_probes::agent_cpu_order().len());
    let log = Arc::new(Log::with_writer(std::io::stderr())?);
    let event_log = Arc::clone(&log);
    let report = Box::new(move |from: SocketAddr, event: &AgentEvent| {
        let (source, description) = match event {
            AgentEvent::Authenticated => (LogSource::Client, "connected".to_owned()),
            AgentEvent::TestRequested(request) => (LogSource::Client, request.to_string()),
            AgentEvent::Disconnected => (LogSource::Client, "disconnected".to_owned()),
            AgentEvent::Fault(error) => (LogSource::Client, error.to_string()),
            AgentEvent::Rejected(error) => (LogSource::Unauthenticated, error.to_string()),
        };
        event_log.write_line(source, &format!("{}: {description}", DisplayAddr(from)));
    });
    let agent = Agent::listen(args.listen, secret, limits, report).map_err(|error| match error {
        Error::Call { source, .. } => CliError::new(format!("--listen {}", DisplayAddr(args.listen)), source),
        error => CliError::new("--listen", error),
    })?;
    let agent = agent.with_cpu_order(Box::new(kelvin_probes::agent_cpu_order));
    let agent = match files {
        Some(files) => agent.with_files(Box::new(move |design, listen| files.start(design, listen))),
        None => agent,
    };
    let address = agent.address()?;
    output::print(|out| match args.json {
        true => writeln!(out, "{}", json::to_string(&BTreeMap::from([("address", DisplayAddr(address).to_string())]))?),
        false => writeln!(out, "{}", DisplayAddr(address)),
    })?;
    let client_kind = if args.token_file.is_some() { "clients with the secret" } else { "any process on this host" };
    let files = args.serve.as_deref().map_or_else(String::new, |directory| {
        format!(
            "; while one studies a server of files, whoever reaches it can read the files of {} by HTTP, unencrypted",
            directory.display()
        )
    });
    log.note(format_args!("serving {client_kind}, at most {} at a time, until Ctrl-C{files}", args.clients));
    let result = agent.serve(|| kelvin_sys::stop_signals::stop_signal().is_some());
    log.close(LOG_FLUSH_TIMEOUT);
    result.map_err(CliError::msg)
}
