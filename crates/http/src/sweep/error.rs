//! What can keep a study of a server from being made.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kelvin_core::units::seconds;

/// Why a study cannot be made, or goes on no longer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files cannot be made in this directory.
    #[error("cannot make the files in {directory}: {1}", directory = .0.display())]
    Files(PathBuf, #[source] std::io::Error),
    /// There is no room for any, or less than the file system had reported.
    #[error("{0}")]
    NoSpace(String),
    /// The server did not start.
    #[error("the server did not start: {0}")]
    Server(String),
    /// The server, or a process of it, has ended while the study needed it.
    #[error("{0}")]
    ServerEnded(String),
    /// The server at this address does not report what it uses, but this.
    #[error("the server at {0} does not report its resource use: {1}")]
    Resources(SocketAddr, String),
    /// No namespaces or no link between them.
    #[error("cannot join two network namespaces: {0}")]
    Namespaces(String),
    /// A control group that the server cannot enter.
    #[error("the server cannot enter the control group {group}: {1}", group = .0.display())]
    Group(PathBuf, #[source] std::io::Error),
    /// A control group that cannot be made.
    #[error("cannot limit the server's memory: {0}")]
    MemoryGroup(String),
    /// The load generator failed.
    #[error(transparent)]
    Load(#[from] crate::load::Error),
    /// What this process or the server uses cannot be read.
    #[error("cannot read what is used here: {0}")]
    ReadUsage(kelvin_machine::resources::Error),
    /// The rate of the disk cannot be measured.
    #[error("cannot measure the disk: {0}")]
    Disk(String),
    /// A directory whose files cannot be asked for, and why.
    #[error("{directory}: {1}", directory = .0.display())]
    FileList(PathBuf, String),
    /// Files that cannot be had in memory, or out of it.
    #[error(transparent)]
    CacheState(#[from] kelvin_file::Error),
    /// No request was answered when capacities were measured.
    #[error("the server answered no request correctly: {0}")]
    Unanswered(String),
    /// All visits take longer than they may.
    #[error("{visits} visits to each of {numbers} numbers of users take about {}, and {} are left: ask for fewer sweeps, or give --budget", seconds(needed.as_secs_f64().round()), seconds(available.as_secs_f64().round()))]
    TooLong {
        /// Numbers of users of all sweeps.
        numbers: usize,
        /// Visits to each.
        visits: u32,
        /// What all visits take.
        needed: Duration,
        /// What they may take.
        available: Duration,
    },
    /// A call of the system.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// This process was asked to stop.
    #[error("interrupted by {0}")]
    Interrupted(String),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
