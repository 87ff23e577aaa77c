//! The path from this machine to the other host of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fact;

/// The way to the agent that a run measured with, as it was when the run began. No address is in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathToAgent {
    /// Version of the Internet Protocol: 4 or 6.
    pub protocol: u8,
    /// Name of the interface over which packets to the agent leave this machine.
    pub interface: Fact<String>,
    /// Bits per second that the agent's own interface claims. What stands behind that claim is not known here.
    pub claimed_there: Fact<f64>,
    /// Bytes of the largest packet of the agent's own interface.
    pub mtu_there: Fact<u32>,
}
