//! `kelvin agent`: the measurement server for another kelvin's network measurements.

mod files;
pub(super) mod log;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kelvin_wire::Error;
use kelvin_wire::address::Shown;
use kelvin_wire::agent::{Agent, Event};
use kelvin_wire::limits::Limits;

use crate::cli::AgentArgs;
use crate::fault::{Done, Fault};
use crate::output;
use files::Files;
use log::{About, Log};

/// How long exiting waits for the reader of the log.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Serves until asked to stop. Prints its address on standard output, and logs to standard error.
pub fn agent(args: &AgentArgs) -> Done {
    let secret = super::secret(args.token_file.as_deref())?;
    let files = args.serve.as_deref().map(Files::of).transpose()?;
    kelvin_sys::interrupt::watch()?;
    // With fewer descriptors it serves fewer clients.
    let _ = kelvin_sys::process::raise_open_files();
    let limits = Limits { clients: args.clients, ..Limits::default() };
    let log = Arc::new(Log::over(std::io::stderr())?);
    let told = Arc::clone(&log);
    let tell = Box::new(move |from: SocketAddr, event: &Event| tell(&told, from, event));
    let agent = Agent::listen(args.listen, secret, limits, tell).map_err(|error| match error {
        Error::Call { source, .. } => Fault::new(format!("--listen {}", Shown(args.listen)), source),
        error => Fault::new("--listen", error),
    })?;
    let agent = match files {
        Some(files) => agent.with_files(Box::new(move |design, listen| files.start(design, listen))),
        None => agent,
    };
    let address = agent.address().map_err(Fault::because)?;
    output::print(|out| writeln!(out, "{}", Shown(address)))?;
    log.line(About::Client, &offer(args));
    let served = agent.serve(|| kelvin_sys::interrupt::requested().is_some());
    log.end(PATIENCE);
    served.map(|()| ExitCode::SUCCESS).map_err(Fault::because)
}

/// What is offered to whom.
fn offer(args: &AgentArgs) -> String {
    let whom = if args.token_file.is_some() { "clients with the secret" } else { "any process on this host" };
    let files = |directory: &Path| {
        let directory = directory.display();
        format!(
            "; while one studies a server of files, whoever reaches it can read the files of {directory} by HTTP, unencrypted"
        )
    };
    let files = args.serve.as_deref().map_or_else(String::new, files);
    format!("serving {whom}, at most {} at a time, until Ctrl-C{files}", args.clients)
}

/// Logs an event with the client's address.
fn tell(log: &Log, from: SocketAddr, event: &Event) {
    let (about, what) = match event {
        Event::Came => (About::Client, "connected".to_owned()),
        Event::Asked(ask) => (About::Client, ask.to_string()),
        Event::Left => (About::Client, "disconnected".to_owned()),
        Event::Fault(error) => (About::Client, error.to_string()),
        Event::TurnedAway(error) => (About::Unauthenticated, error.to_string()),
    };
    log.line(about, &format!("{}: {what}", Shown(from)));
}
