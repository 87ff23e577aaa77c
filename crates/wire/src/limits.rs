//! What an agent gives its clients at most.

use std::time::Duration;

/// What the agent gives at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at one time.
    pub clients: u32,
    /// Connections at one time that have not proven the secret.
    pub unauthenticated: usize,
    /// How many of them may come from one network: an IPv4 address, or the /64 of an IPv6 address.
    pub of_one_network: usize,
    /// Time for a handshake.
    pub handshake: Duration,
    /// The part of it for which a connection keeps its place whoever else comes from another network.
    pub undisturbed: Duration,
    /// Time in which a client must ask for something, and in which a test must go on.
    pub idle: Duration,
    /// Time of one test.
    pub test: Duration,
    /// Bytes of a message.
    pub message: u32,
    /// Connections of one test.
    pub streams: u32,
    /// Bytes that each buffer of a socket may be asked to have.
    pub buffers: u32,
}

impl Default for Limits {
    /// Enough for a run of all there is by a few clients; a thread of 256 KiB and a message of memory for each of their connections.
    fn default() -> Self {
        Self {
            clients: 4,
            unauthenticated: 512,
            of_one_network: 64,
            handshake: Duration::from_secs(5),
            // Longer than any round trip.
            undisturbed: Duration::from_secs(1),
            idle: Duration::from_secs(30),
            test: Duration::from_secs(120),
            message: 1 << 20,
            streams: 16,
            buffers: 64 << 20,
        }
    }
}
