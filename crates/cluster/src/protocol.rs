//! What ranks say to each other over MPI: plain data.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Raised when a message changes its meaning. Ranks with another protocol or version would measure by another method.
pub const PROGRAM: &str = concat!("kelvin-cluster ", env!("CARGO_PKG_VERSION"), " (protocol 2)");

/// Bytes of the secret by which ranks know each other's connections.
pub const TOKEN_BYTES: usize = 16;

/// The first message of each rank. Its field `program` stays for ever, so that a rank of any version is understood this far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The program with its version, such as [`PROGRAM`].
    pub program: String,
    /// Where the rank runs.
    pub place: Place,
}

/// Where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The hash of the machine id, as a run of kelvin has it; unknown where the system has none.
    pub host: Option<String>,
    /// The name of the host, by which people know it.
    pub hostname: String,
    /// The kernel: its boot id, which no other kernel has.
    pub boot_id: String,
    /// The network namespace: its number within the kernel.
    pub network_namespace: u64,
    /// CPUs that the rank may use, ascending.
    pub cpus: Vec<u32>,
    /// How many CPUs the host has, if that is known.
    pub online_cpus: Option<usize>,
}

/// How to reach rank 0 beside MPI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Its addresses, to be tried in this order.
    pub addresses: Vec<IpAddr>,
    /// The port of its heartbeats.
    pub port: u16,
    /// What each connection begins with.
    pub token: [u8; TOKEN_BYTES],
}

/// What rank 0 asks of another rank. `T` is a task of the sub-command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command<T> {
    /// To connect its heartbeat.
    Connect(Contact),
    /// To answer this many readings of its clock.
    ReadClock(usize),
    /// To do a task.
    Perform(T),
    /// To end.
    End,
}

/// What another rank answers. `T` is the outcome of a task of the sub-command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer<T> {
    /// The heartbeat is connected from this address.
    Connected(IpAddr),
    /// The task is done.
    Performed(T),
    /// The end of the job is known.
    Done,
    /// What was asked could not be done, for this reason.
    Failed(String),
}
