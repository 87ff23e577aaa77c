//! What is studied: which server, with which files, by how many users, for how long.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{NetworkSetup, RequestPattern};
use kelvin_transfer::wire::file_server::DiskRateReport;

use crate::load::stream_socket::is_own_address;
use crate::sweep::file_set::FileSetSpec;

/// A study of one server.
#[derive(Clone, Debug)]
pub struct StudySetup {
    /// Who serves.
    pub target: StudyTarget,
    /// What is asked for: one sweep for each.
    pub loads: Vec<SweepLoad>,
    /// Numbers of users, where they were given.
    pub users: Option<Vec<u64>>,
    /// Visits to each.
    pub visits: u32,
    /// Time that all visits together may take.
    pub budget: Duration,
    /// The most that they may take, where there is one: numbers of users that do not fit are left out.
    pub max_duration: Option<Duration>,
    /// Whether the budget is of all that is measured, and not of the visits' load alone, whose time may be that of a published study.
    pub budget_is_total: bool,
    /// Time of a visit that counts, where it was given.
    pub duration: Option<Duration>,
    /// CPUs of the load generator, at least one: a thread on each, in this order, as far as there are users.
    pub cpus: Vec<u32>,
    /// Seed of all that is drawn.
    pub seed: u64,
}

impl ExistingServer {
    /// Whether it runs on this host.
    pub fn is_on_this_host(&self) -> bool {
        is_own_address(self.stats_address)
    }
}

impl StudySetup {
    /// How many sweeps there are: one of each load for each place where files are to be.
    pub(crate) fn sweeps(&self) -> usize {
        let places = if let StudyTarget::Own(server) = &self.target { server.caches.len() } else { 1 };
        self.loads.len() * places
    }
}

/// One way of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepLoad {
    /// Which files.
    pub pattern: RequestPattern,
    /// Mean think time.
    pub think: Duration,
}

/// Who serves.
#[derive(Clone, Debug)]
pub enum StudyTarget {
    /// A server that is started for the study, with files that are made for it.
    Own(OwnServer),
    /// One that runs already, and reports what it uses.
    Running(ExistingServer),
}

/// A server that runs already.
#[derive(Clone, Debug)]
pub struct ExistingServer {
    /// URL of the directory, ending in a slash.
    pub url: String,
    /// Paths of files in it.
    pub paths: Vec<String>,
    /// Where it reports what it uses.
    pub stats_address: SocketAddr,
    /// The token for that.
    pub token: String,
    /// Its files, where somebody at the server knows them.
    pub files: Option<KnownFiles>,
}

/// What is known of a server's files.
#[derive(Clone, Debug)]
pub struct KnownFiles {
    /// Bytes of each.
    pub bytes: u64,
    /// Whether they are in the page cache there.
    pub cache: CacheState,
    /// What the disk gave in each round, where they are to come from it.
    pub disk: Vec<DiskRateReport>,
}

impl OwnServer {
    /// The memory of the server whose files are there.
    pub(crate) fn memory_for(&self, cache: CacheState) -> Option<u64> {
        self.memory.filter(|_| cache == CacheState::Uncached || self.caches.len() == 1)
    }
}

/// A server of the study's own.
#[derive(Clone, Debug)]
pub struct OwnServer {
    /// The program.
    pub program: String,
    /// More arguments of the server: its model.
    pub arguments: Vec<String>,
    /// Directory for the files, which is emptied by its maker.
    pub directory: PathBuf,
    /// The files, for which there is room: see [`FileSetSpec::fit`].
    pub files: FileSetSpec,
    /// Where they are to be, in the page cache or not: a server with a set of files for each.
    pub caches: Vec<CacheState>,
    /// Bytes of memory that the server may have, page cache included: of two, the one whose files come from the disk.
    pub memory: Option<u64>,
    /// Control groups that it enters.
    pub groups: Vec<PathBuf>,
    /// CPUs that it may use.
    pub cpus: Vec<u32>,
    /// What lies between it and the load generator.
    pub network: NetworkSetup,
    /// Bits a second that the link between two namespaces passes, if it is limited.
    pub link: Option<u64>,
}
