//! Messages between rank 0 and the others over MPI. Who waits for one sleeps: a rank that polled would take a CPU from a pair that measures
//! on the same kernel.

use std::time::{Duration, Instant};

use mpi::topology::{Process, SimpleCommunicator};
use mpi::traits::{Communicator, Destination, MatchedReceiveVec, Source};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Tags of all messages: each kind of message has one.
pub mod tag {
    use mpi::Tag;

    /// The first message of a rank.
    pub const GREETING: Tag = 1;
    /// From rank 0.
    pub const COMMAND: Tag = 2;
    /// To rank 0.
    pub const ANSWER: Tag = 3;
    /// Readings of a clock.
    pub const CLOCK: Tag = 4;
    /// Of two ranks that measure.
    pub const ROUND_TRIP: Tag = 5;
    /// What follows in a direction, and its end.
    pub const WINDOW: Tag = 6;
    /// Large messages.
    pub const DATA: Tag = 7;
}

/// An answer that comes at once is not slept past; then a rank asks MPI less and less often, down to 200 times a second.
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// Messages of one rank.
#[derive(Clone, Copy)]
pub struct Channel<'w> {
    world: &'w SimpleCommunicator,
}

impl<'w> Channel<'w> {
    /// In this world.
    pub fn new(world: &'w SimpleCommunicator) -> Self {
        Self { world }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.world.size() as usize
    }

    /// Another rank, for messages of its own kind.
    pub fn process(&self, rank: usize) -> Process<'w> {
        self.world.process_at_rank(rank as i32)
    }

    /// Sends a message. It is small: MPI takes it at once unless the connection is stuck, which the heartbeat finds out.
    pub fn send(&self, rank: usize, tag: mpi::Tag, message: &impl Serialize) {
        let bytes = serde_json::to_vec(message).expect("messages have no maps with keys that are no strings");
        self.process(rank).send_with_tag(&bytes[..], tag);
    }

    /// The next message with a tag, and its rank, until a time has passed. One that is none of this type is an error with its text.
    pub fn receive<T: DeserializeOwned>(&self, tag: mpi::Tag, timeout: Duration) -> Option<(usize, Result<T, String>)> {
        let start = Instant::now();
        let mut sleep = FIRST_SLEEP;
        loop {
            if let Some(probed) = self.world.any_process().immediate_matched_probe_with_tag(tag) {
                let (bytes, status) = probed.matched_receive_vec::<u8>();
                let message = serde_json::from_slice(&bytes)
                    .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&bytes)));
                return Some((status.source_rank() as usize, message));
            }
            if start.elapsed() >= timeout {
                return None;
            }
            std::thread::sleep(sleep);
            sleep = (2 * sleep).min(LONGEST_SLEEP);
        }
    }
}
