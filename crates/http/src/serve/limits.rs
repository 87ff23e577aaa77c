//! The server's limits: what one client, and all of them together, may cost.

use std::time::Duration;

use kelvin_core::quantity::MinProgress;

/// The server's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at one time; one more is answered 503.
    pub connections: u32,
    /// Bytes of a request: its first line and its header fields.
    pub head_bytes: usize,
    /// Bytes of a request's target.
    pub target_bytes: usize,
    /// Time for a request to arrive, from its first byte on.
    pub request_timeout: Duration,
    /// Time between two requests of a connection, and for a client to take anything of what is sent.
    pub idle_timeout: Duration,
    /// What a client must take of answers in any time for which it is sent some.
    pub min_progress: MinProgress,
    /// Time for the connections to end once the server was asked to stop.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    /// Heads and targets as nginx takes them by default (4 buffers of 8 KiB); times between its own (60 and 75 s) and what a
    /// server of many idle connections can afford.
    fn default() -> Self {
        Self {
            connections: 16_384,
            head_bytes: 32 << 10,
            target_bytes: 8 << 10,
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            min_progress: MinProgress::default(),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
