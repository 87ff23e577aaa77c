//! The agent that a run measures with: asked once before anything is measured, with the route to it.

use std::net::SocketAddr;
use std::path::Path;

use kelvin_core::{Fact, NetworkPath};
use kelvin_harness::AgentEndpoint;
use kelvin_sys::net::route;
use kelvin_transfer::wire::address::resolve;
use kelvin_transfer::wire::client::{self, AgentClient};
use kelvin_transfer::wire::message::TestReport;
use kelvin_transfer::wire::secret::Secret;
use kelvin_transfer::wire::test_socket::Interface;

use crate::cli::RunOptions;
use crate::cli_error::{CliError, Context};

/// Every network carries packets of this many bytes (RFC 791): a smaller MTU is invalid.
const MIN_MTU: u32 = 68;

/// The agent that options name, if they name one: how probes reach it, and the path to it.
///
/// # Errors
/// The agent's error, or that of the file of its secret.
pub fn requested_agent(options: &RunOptions) -> Result<Option<(AgentEndpoint, NetworkPath)>, CliError> {
    options.peer.as_ref().map(|peer| connect_agent(peer, options.token_file.as_deref())).transpose()
}

/// Does the handshake with the agent at `HOST[:PORT]`, so that errors show before anything is measured: how probes reach it, and the path
/// to it.
///
/// # Errors
/// The agent's error, or that of the file of its secret.
pub fn connect_agent(peer: &str, token_file: Option<&Path>) -> Result<(AgentEndpoint, NetworkPath), CliError> {
    let option = format!("--peer {peer}");
    let addresses = resolve(peer).context(&option)?;
    let secret = read_secret(token_file)?;
    let mut client = AgentClient::connect(&addresses, &secret).context(&option)?;
    let (address, local_address) = (client.agent_addr, client.local_addr);
    // The end of any test names the agent's interface and CPUs; this test ends at once.
    let test = client.accept_connections().and_then(client::RunningTest::<client::AcceptTarget>::finish);
    let report = test.context(&option)?;
    let endpoint = AgentEndpoint { address, token_file: token_file.map(Into::into) };
    Ok((endpoint, network_path(address, local_address, &report)))
}

/// The secret in a file, or none.
///
/// # Errors
/// A file that cannot be read, or that others may read.
pub fn read_secret(token_file: Option<&Path>) -> Result<Secret, CliError> {
    token_file.map_or_else(|| Ok(Secret::none()), |file| Secret::read(file).context("--token-file"))
}

/// The path from a local address to the agent's.
fn network_path(agent: SocketAddr, local_address: SocketAddr, report: &TestReport) -> NetworkPath {
    let agent_interface = report.interface.as_ref();
    let interface = match route::route_interface(agent, local_address) {
        Ok(name) => Fact::known(name, "the kernel's routing, by rtnetlink"),
        Err(error) => Fact::unknown(format!("the kernel gives no route: {error}")),
    };
    NetworkPath {
        protocol: if agent.ip().to_canonical().is_ipv4() { 4 } else { 6 },
        interface,
        agent_link_speed: interface_fact(agent_interface, "rate", |interface| interface.bits_per_second),
        agent_mtu: interface_fact(agent_interface, "MTU", |interface| {
            interface.largest_packet.filter(|&bytes| bytes >= MIN_MTU)
        }),
        agent_cpus: match report.cpus {
            0 => Fact::unknown("the agent's host does not name its CPUs"),
            cpus => Fact::known(cpus, "reported by the agent"),
        },
    }
}

/// A property of the agent's interface.
fn interface_fact<T>(
    interface: Option<&Interface>,
    property: &str,
    value: impl Fn(&Interface) -> Option<T>,
) -> Fact<T> {
    let Some(interface) = interface else { return Fact::unknown("the agent's host does not name its interface") };
    match value(interface) {
        Some(value) => Fact::known(value, format!("reported by the agent for its interface {}", interface.name)),
        None => Fact::unknown(format!("the agent reports no {property} for its interface {}", interface.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conclusions cannot import the watcher's constant, and must use the same share.
    #[test]
    fn full_cpu_share_equals_that_of_conclusions() {
        assert_eq!(
            kelvin_analysis::FULL_CPU_SHARE.to_bits(),
            kelvin_transfer::wire::cpu_usage::SATURATED_SHARE.to_bits()
        );
    }

    #[test]
    fn path_to_this_host_is_loopback() {
        let address = "127.0.0.1:1".parse().unwrap();
        let interface = Interface::with_address(address);
        let report = TestReport { interface, cpus: 8, ..TestReport::default() };
        let path = network_path(address, address, &report);
        assert_eq!((path.protocol, path.agent_link_speed.get(), path.agent_cpus.get()), (4, None, Some(&8)));
        assert!(path.agent_mtu.get().is_some(), "{path:?}");
        // Where there is no rtnetlink it is not known, which sys tests.
        assert!(path.interface.get().is_none_or(|name| name == "lo"), "{path:?}");
        let mapped_path = network_path("[::ffff:127.0.0.1]:1".parse().unwrap(), address, &TestReport::default());
        let facts = (mapped_path.protocol, mapped_path.agent_mtu.get(), mapped_path.agent_cpus.get());
        assert_eq!(facts, (4, None, None));
    }
}
