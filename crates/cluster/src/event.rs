//! What rank 0 writes to the file of results, one event in each line: plain data.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::matrix::Analysis;
use crate::protocol::{PairFigures, PairPlan, Transport};

/// The format of a file of results: one JSON object in each line. Raised when a field changes its meaning.
pub const FORMAT: &str = "kelvin-cluster 1";

/// A rank as the file of results has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFacts {
    /// Its number.
    pub rank: usize,
    /// The name by which it is shown: that of its host, with its address where several hosts have one name.
    pub label: String,
    /// The hash of the machine id; unknown where the system has none.
    pub host: Option<String>,
    /// Ranks with the same number run on one kernel.
    pub kernel: usize,
    /// CPUs that it may use.
    pub cpus: usize,
    /// The address that it was measured by over TCP.
    pub address: IpAddr,
    /// Its clock less that of rank 0, in seconds.
    pub clock_offset_s: f64,
    /// The offset is wrong by at most this, in seconds.
    pub clock_error_s: f64,
}

#[cfg(test)]
impl RankFacts {
    /// A rank of a test, on a kernel of its own and with the clock of rank 0.
    pub(crate) fn made(rank: usize) -> Self {
        Self {
            rank,
            label: format!("n{rank}"),
            host: None,
            kernel: rank,
            cpus: 2,
            address: "10.0.0.1".parse().unwrap(),
            clock_offset_s: 0.0,
            clock_error_s: 0.0,
        }
    }
}

/// One line of the file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first line: what is measured, and where.
    Start {
        /// [`FORMAT`].
        format: String,
        /// [`crate::protocol::PROGRAM`].
        program: String,
        /// What MPI says that it is.
        mpi: String,
        /// Seconds since 1970 by the clock of rank 0.
        time_s: f64,
        /// All ranks, in order.
        ranks: Vec<RankFacts>,
        /// What each pair measures, one for each transport.
        plans: Vec<PairPlan>,
        /// Relative difference from which on a link or host is named.
        tolerance: f64,
    },
    /// A pair was measured.
    Pair {
        /// The transport.
        transport: Transport,
        /// The pass, from 1; 0 of those that were measured again.
        pass: usize,
        /// The ranks, the lower one first.
        pair: [usize; 2],
        /// What was measured.
        figures: PairFigures,
    },
    /// A pair could not be measured.
    PairFailed {
        /// The transport.
        transport: Transport,
        /// The ranks, the lower one first.
        pair: [usize; 2],
        /// Why.
        reason: String,
    },
    /// A pair was measured while all others across the middle were.
    Bisection {
        /// The transport.
        transport: Transport,
        /// The ranks, the lower one first.
        pair: [usize; 2],
        /// What was measured.
        figures: PairFigures,
    },
    /// All ranks exchanged with all.
    AllToAll {
        /// Bytes of each rank for each other.
        bytes: usize,
        /// Exchanges.
        count: usize,
        /// Seconds of the slowest rank.
        seconds: f64,
    },
    /// What the pairs say together.
    Analysis {
        /// The matrices with the predictions, and what is slow.
        analysis: Analysis,
    },
    /// The job ended before its end.
    Failure {
        /// The rank that is to blame, where it is known.
        rank: Option<usize>,
        /// Why.
        reason: String,
    },
    /// The job is complete.
    End,
}
