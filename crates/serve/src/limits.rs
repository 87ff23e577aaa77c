//! The server's limits: what one client, and all of them together, may cost.

use std::time::Duration;

use kelvin_model::quantity::MinProgress;

/// The server's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time; one more is answered 503.
    pub connections: u32,
    /// Bytes of a request: its first line and its header fields.
    pub head: usize,
    /// Bytes of a request's target.
    pub target: usize,
    /// Time for a request to arrive, from its first byte on.
    pub request: Duration,
    /// Time between two requests of a connection, and for a client to take anything of what is sent.
    pub idle: Duration,
    /// What a client must take of answers in any time for which it is sent some.
    pub progress: MinProgress,
    /// Time for the connections to end once the server was asked to stop.
    pub drain: Duration,
}

impl Default for Limits {
    /// Heads and targets as nginx takes them by default (4 buffers of 8 KiB); times between its own (60 and 75 s) and what a
    /// server of many idle connections can afford.
    fn default() -> Self {
        Self {
            connections: 16_384,
            head: 32 << 10,
            target: 8 << 10,
            request: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            progress: MinProgress::default(),
            drain: Duration::from_secs(10),
        }
    }
}
