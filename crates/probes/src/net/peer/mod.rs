//! The network between this host and one with `kelvin agent`: round trips, bandwidth, connections.

pub(super) mod bandwidth;
pub(super) mod connect;
pub(super) mod loaded;
pub(super) mod ping;
pub(super) mod rtt;

use std::path::Path;

use kelvin_harness::{Bench, Stop};
use kelvin_model::{Input, Machine, Unit};
use kelvin_wire::client::Client;
use kelvin_wire::message::Seen;
use kelvin_wire::secret::Secret;

/// What all of them say of the other end.
const AGENT: &str = "An agent that refuses, or a connection that is lost: the round fails with the reason.";

/// A connection to the agent that `--peer` names.
fn client(bench: &Bench<'_>) -> Result<Client, Stop> {
    let agent = bench.agent()?;
    let secret = match &agent.token_file {
        Some(file) => Secret::read(Path::new(file)).map_err(stopped)?,
        None => Secret::none(),
    };
    Client::connect(&[agent.address], &secret).map_err(stopped)
}

fn stopped(error: kelvin_wire::Error) -> Stop {
    Stop::fail(error.to_string())
}

/// What the agent saw, in words; `own` tests at one time are those of the measure itself.
fn told(seen: &Seen, own: u32) -> String {
    let [user, system] = seen.cpu_nanoseconds.map(|nanoseconds| nanoseconds as f64 / 1e6);
    let mut words = format!("the agent used {user:.0} ms of CPU in user mode and {system:.0} ms in the kernel");
    if seen.tests > own {
        words.push_str(&format!(", AND SERVED {} TESTS AT ONE TIME: this one had a part of it", seen.tests));
    }
    words
}

/// The fastest link that an interface of this machine claims, in bytes per second, and the largest packet that it takes.
fn link(machine: &Machine) -> Option<(Input, u32)> {
    let claims = machine.nics.iter().filter_map(|nic| {
        let bits = *nic.bits_per_second.get().filter(|bits| **bits > 0.0)?;
        let source = nic.bits_per_second.source_or_reason().to_owned();
        let rate =
            Input { name: format!("rate of {}", nic.name), value: bits / 8.0, unit: Unit::BytesPerSecond, source };
        Some((rate, *nic.mtu.get()?))
    });
    claims.max_by(|(left, _), (right, _)| left.value.total_cmp(&right.value))
}
