//! `kelvin agent`: the other end of what another kelvin measures over the network.

use std::net::SocketAddr;
use std::process::ExitCode;

use kelvin_wire::Error;
use kelvin_wire::agent::{Agent, Event, Limits};
use kelvin_wire::secret::Secret;

use crate::cli::AgentArgs;
use crate::fault::{Done, Fault};
use crate::output;

/// Serves until it is asked to stop. Its address is the one line on standard output; what happens is told on standard error.
pub fn agent(args: &AgentArgs) -> Done {
    let secret = match &args.token_file {
        Some(file) => Secret::read(file).map_err(|error| Fault::new("--token-file", error))?,
        None => Secret::none(),
    };
    kelvin_sys::interrupt::watch()?;
    let limits = Limits { clients: args.clients, ..Limits::default() };
    let agent = Agent::listen(args.listen, secret, limits, Box::new(tell)).map_err(|error| match error {
        Error::Call { source, .. } => Fault::new(format!("--listen {}", args.listen), source),
        error => Fault::new("--listen", error),
    })?;
    let address = agent.address().map_err(Fault::because)?;
    output::print(|out| writeln!(out, "{address}"))?;
    let whom = if args.token_file.is_some() { "whoever knows the secret" } else { "everybody on this host" };
    output::remark(format!("kelvin: serves {whom}, {} at one time, until Ctrl-C", args.clients));
    agent.serve(|| kelvin_sys::interrupt::requested().is_some()).map_err(Fault::because)?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each event, with who it is about.
fn tell(from: SocketAddr, event: &Event) {
    let what = match event {
        Event::Came => "came".to_owned(),
        Event::Asked(ask) => ask.to_string(),
        Event::Left => "left".to_owned(),
        Event::Fault(error) => error.to_string(),
    };
    output::remark(format!("kelvin: {from}: {}", what));
}
