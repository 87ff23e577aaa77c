//! What ranks that measure the network between them are asked, and what they answer: plain data.

use std::net::SocketAddr;

use kelvin_core::cluster::Transport;
use serde::{Deserialize, Serialize};

/// What a pair measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairPlan {
    /// By what the bytes move.
    pub transport: Transport,
    /// Seconds of small messages to and fro; none are sent if it is 0.
    pub round_trip_seconds: f64,
    /// Seconds of large messages in each direction.
    pub rate_seconds: f64,
    /// Bytes of a large message of MPI.
    pub message_bytes: usize,
}

/// The part of a rank in measuring a pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairTask {
    /// The other rank.
    pub peer: usize,
    /// Where the other rank accepts connections.
    pub peer_address: SocketAddr,
    /// Whether this rank begins, measures and answers.
    pub is_initiator: bool,
    /// The CPU that it has alone while it measures, where other ranks of the same kernel measure too.
    pub cpu: Option<u32>,
    /// What is measured.
    pub plan: PairPlan,
}

/// What rank 0 asks of another rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NetTask {
    /// To say where it accepts connections for measuring.
    Listen,
    /// To measure with another rank.
    MeasurePair(PairTask),
    /// To exchange this many bytes with every rank at once, this many times.
    AllToAll {
        /// Bytes for each other rank.
        bytes: usize,
        /// Exchanges.
        count: usize,
    },
}

/// What another rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NetOutcome {
    /// Connections for measuring are accepted there.
    Listening(SocketAddr),
    /// What the pair measured.
    Pair(PairFigures),
    /// This rank's part in a pair is done, and the other end has the figures.
    PairDone {
        /// As [`PairFigures::cpu_wait`], of this end.
        cpu_wait: f64,
    },
    /// Seconds that the exchanges took.
    AllToAll(f64),
}

/// Times of small messages to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// How many were timed.
    pub count: u64,
    /// Their mean, in nanoseconds.
    pub mean_ns: f64,
    /// Half of them took at most this long, in nanoseconds.
    pub median_ns: f64,
    /// 99 % of them took at most this long, in nanoseconds.
    pub p99_ns: f64,
}

/// What a pair measured in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairFigures {
    /// Small messages of 8 bytes, if they were measured.
    pub round_trip: Option<RoundTrip>,
    /// Payload in bytes per second: from the lower rank to the higher one, and back.
    pub bytes_per_second: [f64; 2],
    /// Payload that the lower rank sent, in bytes.
    pub sent_bytes: u64,
    /// By how many bytes the network interfaces of its network namespace have sent more, without loopback.
    pub interface_bytes: u64,
    /// The part of the time in which an end could run and had no CPU: that of the end that waited longer. 0 where the kernel does not count
    /// it.
    pub cpu_wait: f64,
}

/// From this part of the time on a pair measured the other programs on its hosts.
const MAX_CPU_WAIT: f64 = 0.05;

impl PairFigures {
    /// Whether other programs took the CPUs that the pair needed.
    pub fn is_disturbed(&self) -> bool {
        self.cpu_wait > MAX_CPU_WAIT
    }
}
