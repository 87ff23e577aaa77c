//! The agent's limits.

use std::time::Duration;

use crate::places::Room;

/// The agent's limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Authenticated clients at one time.
    pub clients: u32,
    /// Unauthenticated connections at one time.
    pub unauthenticated: Room,
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time in which a client must request something, and in which a test must make progress.
    pub idle: Duration,
    /// Time of one test.
    pub test: Duration,
    /// Bytes of a message.
    pub message: u32,
    /// Connections of one test.
    pub streams: u32,
    /// Bytes that may be requested for each socket buffer.
    pub buffers: u32,
}

impl Default for Limits {
    /// Enough for full runs by a few clients; each of their connections costs a thread of 256 KiB and the memory of a message.
    fn default() -> Self {
        Self {
            clients: 4,
            unauthenticated: Room::default(),
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            test: Duration::from_secs(120),
            message: 1 << 20,
            streams: 16,
            buffers: 64 << 20,
        }
    }
}
