//! What rank 0 writes to the file of results, one event in each line: plain data.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

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
    /// CPUs of its host, if their number is known.
    pub online_cpus: Option<usize>,
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
            online_cpus: Some(2),
            address: "10.0.0.1".parse().unwrap(),
            clock_offset_s: 0.0,
            clock_error_s: 0.0,
        }
    }
}

/// The first line of a file of results: what is measured, and where. `P` is the plan of the sub-command, whose fields stand beside these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start<P> {
    /// [`kelvin_core::cluster::RESULTS_FORMAT`].
    pub format: String,
    /// The sub-command. Files of the time when there was only one do not name it.
    #[serde(default = "first_command")]
    pub command: String,
    /// [`crate::protocol::PROGRAM`].
    pub program: String,
    /// What MPI says that it is.
    pub mpi: String,
    /// Seconds since 1970 by the clock of rank 0.
    pub time_s: f64,
    /// All ranks, in order.
    pub ranks: Vec<RankFacts>,
    /// What the sub-command measures.
    #[serde(flatten)]
    pub plan: P,
}

/// One line of the file of results. `P` is the plan of the sub-command, and `E` what it measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<P, E> {
    /// The first line.
    Start(Start<P>),
    /// The job ended before its end.
    Failure {
        /// The rank that is to blame, where it is known.
        rank: Option<usize>,
        /// Why.
        reason: String,
    },
    /// The job is complete.
    End,
    /// What the sub-command measured, with a field `event` of its own.
    #[serde(untagged)]
    Measured(E),
}

fn first_command() -> String {
    "net".into()
}
