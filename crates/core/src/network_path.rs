//! The path from this machine to the other host of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fact;

/// The path to the agent that a run measured with, when the run began; without addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkPath {
    /// Version of the Internet Protocol: 4 or 6.
    pub protocol: u8,
    /// Name of the interface over which packets to the agent leave this machine.
    pub interface: Fact<String>,
    /// Advertised link speed of the agent's interface, bits per second. Whether a physical line stands behind it is not known here.
    pub agent_link_speed: Fact<f64>,
    /// MTU of the agent's interface, bytes.
    pub agent_mtu: Fact<u32>,
    /// CPUs that the agent may use.
    #[serde(default)]
    pub agent_cpus: Fact<u32>,
}
