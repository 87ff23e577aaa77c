//! `kelvin agent`: the other end of what another kelvin measures over the network.

mod log;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kelvin_wire::Error;
use kelvin_wire::address::Shown;
use kelvin_wire::agent::{Agent, Event};
use kelvin_wire::limits::Limits;
use kelvin_wire::secret::Secret;

use crate::cli::AgentArgs;
use crate::fault::{Done, Fault};
use crate::output;
use log::{About, Log};

/// How long the end of the program waits for whoever reads the log.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves until it is asked to stop. Its address is the one line on standard output; what happens is told on standard error.
pub fn agent(args: &AgentArgs) -> Done {
    let secret = match &args.token_file {
        Some(file) => Secret::read(file).map_err(|error| Fault::new("--token-file", error))?,
        None => Secret::none(),
    };
    kelvin_sys::interrupt::watch()?;
    // With fewer it serves fewer.
    let _ = kelvin_sys::process::raise_open_files();
    let limits = Limits { clients: args.clients, ..Limits::default() };
    let log = Arc::new(Log::over(std::io::stderr()));
    let told = Arc::clone(&log);
    let tell = Box::new(move |from: SocketAddr, event: &Event| tell(&told, from, event));
    let agent = Agent::listen(args.listen, secret, limits, tell).map_err(|error| match error {
        Error::Call { source, .. } => Fault::new(format!("--listen {}", Shown(args.listen)), source),
        error => Fault::new("--listen", error),
    })?;
    let address = agent.address().map_err(Fault::because)?;
    output::print(|out| writeln!(out, "{}", Shown(address)))?;
    let whom = if args.token_file.is_some() { "whoever knows the secret" } else { "everybody on this host" };
    log.line(About::Client, &format!("serves {whom}, {} at one time, until Ctrl-C", args.clients));
    let served = agent.serve(|| kelvin_sys::interrupt::requested().is_some());
    log.end(PATIENCE);
    served.map(|()| ExitCode::SUCCESS).map_err(Fault::because)
}

/// A line for an event, with who it is about.
fn tell(log: &Log, from: SocketAddr, event: &Event) {
    let (about, what) = match event {
        Event::Came => (About::Client, "came".to_owned()),
        Event::Asked(ask) => (About::Client, ask.to_string()),
        Event::Left => (About::Client, "left".to_owned()),
        Event::Fault(error) => (About::Client, error.to_string()),
        Event::TurnedAway(error) => (About::Unauthenticated, error.to_string()),
    };
    log.line(about, &format!("{}: {what}", Shown(from)));
}
