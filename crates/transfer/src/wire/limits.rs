//! The agent's limits.

use std::time::Duration;

use crate::wire::admission::AdmissionLimits;

/// The agent's limits.
#[derive(Clone, Copy, Debug)]
pub struct AgentLimits {
    /// Authenticated clients at one time.
    pub max_clients: u32,
    /// Unauthenticated connections at one time.
    pub unauthenticated: AdmissionLimits,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
    /// Time in which a client must request something, and in which a test must make progress.
    pub idle_timeout: Duration,
    /// Time of one test.
    pub test_timeout: Duration,
    /// Bytes of a message.
    pub max_message_bytes: u32,
    /// Connections of one test.
    pub max_streams: u32,
    /// Bytes that may be requested for each socket buffer.
    pub max_buffer_bytes: u32,
}

impl Default for AgentLimits {
    /// Enough for full runs by a few clients; each of their connections costs a thread of 256 KiB and the memory of a message.
    fn default() -> Self {
        Self {
            max_clients: 4,
            unauthenticated: AdmissionLimits::default(),
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            test_timeout: Duration::from_secs(120),
            max_message_bytes: 1 << 20,
            max_streams: 16,
            max_buffer_bytes: 64 << 20,
        }
    }
}
