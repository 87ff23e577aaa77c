//! The network between this host and one with `kelvin agent`: round trips, bandwidth, connections.

pub(crate) mod bandwidth;
pub(super) mod connect;
pub(super) mod datagrams;
mod link_rate;
pub(super) mod loaded_rtt;
pub(super) mod message_streams;
pub(super) mod ping;
mod rate_windows;
pub(super) mod rtt;
pub(crate) mod stream_cpus;
mod streams;

use std::net::SocketAddr;
use std::path::Path;

use kelvin_harness::{Bench, ProbeError};
use kelvin_transfer::wire::client::AgentClient;
use kelvin_transfer::wire::message::TestReport;
use kelvin_transfer::wire::secret::Secret;
use kelvin_transfer::wire::test_socket::Interface;

use crate::reasons::ProbeResult;

/// A connection to the agent that `--peer` names.
fn connect_agent(bench: &Bench<'_>) -> ProbeResult<AgentClient> {
    let agent = bench.agent()?;
    let secret = match &agent.token_file {
        Some(file) => Secret::read(Path::new(file)).map_err(probe_error)?,
        None => Secret::none(),
    };
    AgentClient::connect(&[agent.address], &secret).map_err(probe_error)
}

fn probe_error(error: kelvin_transfer::wire::Error) -> ProbeError {
    ProbeError::fail(error.to_string())
}

/// The agent's account of a test, in words; `own_tests` concurrent tests are those of the measure itself.
fn describe_agent_side(report: &TestReport, own_tests: u32) -> String {
    let [user, system] = report.cpu_nanoseconds.map(|nanoseconds| nanoseconds as f64 / 1e6);
    let mut words = format!("the agent used {user:.0} ms of CPU in user mode and {system:.0} ms in the kernel");
    if report.max_concurrent_tests > own_tests {
        words.push_str(&format!(
            ", AND SERVED {} TESTS AT ONCE: this one had a share of it",
            report.max_concurrent_tests
        ));
    }
    words
}

/// The interfaces of this address here and at the agent, in words.
fn describe_interfaces(address: SocketAddr, report: &TestReport) -> String {
    let words = |interface: Option<&Interface>| match interface {
        Some(interface) => interface.to_string(),
        None => "an interface that the system does not name".to_owned(),
    };
    let interface = Interface::with_address(address);
    format!("over {} here and {} at the agent", words(interface.as_ref()), words(report.interface.as_ref()))
}
