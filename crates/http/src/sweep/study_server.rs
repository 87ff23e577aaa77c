//! Servers that are started for a study and ended with it: of its own, or for one that is made on another host.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_file::cache::PageCacheState;
use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_machine::memory::{MEMINFO, kibibytes};
use kelvin_machine::resources::ProcessMonitor;
use kelvin_sys::child::{ChildEnd, GuardedChild, WaitLimit};
use kelvin_sys::process::ExitKind;
use kelvin_transfer::wire::Hash;
use kelvin_transfer::wire::file_server::{DiskRateReport, FileCacheState, FileHost, FileServerInfo};
use kelvin_transfer::wire::secret::new_nonce;

use crate::sweep::error::{Error, Result};
use crate::sweep::file_set::FileList;
use crate::sweep::load_step::StatsClient;
use crate::sweep::setup::OwnServer;
use crate::sweep::topology::{LoadTopology, PinnedThread, run_at_server, server_address};

/// Time in which a server reports where it listens.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of that report.
const MAX_STARTUP_BYTES: usize = 1 << 10;
/// The signal that no process can handle.
const SIGKILL: i32 = 9;

/// A `kelvin serve` that runs. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it reports what it uses.
    pub stats_client: StatsClient,
    process: GuardedChild,
    /// Processes of its group that had been killed for want of memory before it started.
    killed_before: u64,
}

/// Limits and rights that a process of the server's side has.
pub(crate) struct ServerSide<'s> {
    /// The server that is wanted.
    pub options: &'s OwnServer,
    topology: &'s LoadTopology,
    /// The group that limits the memory of its processes, to be dropped once these have ended.
    pub memory: Option<Cgroup>,
}

impl<'s> ServerSide<'s> {
    /// The server's side, with this many bytes of memory, or as many as there are.
    ///
    /// # Errors
    /// A limit of memory that cannot be had.
    pub fn new(options: &'s OwnServer, topology: &'s LoadTopology, bytes: Option<u64>) -> Result<Self> {
        let group_error = |error: kelvin_file::Error| Error::MemoryGroup(error.to_string());
        let memory = bytes.map(|_| Cgroup::create(Controller::Memory)).transpose().map_err(group_error)?;
        if let Some((group, bytes)) = memory.as_ref().zip(bytes) {
            group.limit_memory(bytes).map_err(group_error)?;
        }
        Ok(Self { options, topology, memory })
    }

    /// Starts a process there, with the server's CPUs, namespace and control groups.
    ///
    /// # Errors
    /// A program that does not start; a group that it cannot enter.
    pub fn start(&self, arguments: &[&str]) -> Result<GuardedChild> {
        let process = run_at_server(self.topology, || {
            let _pinned = PinnedThread::pin(&self.options.cpus)?;
            spawn(&self.options.program, arguments)
        })??;
        self.enter(process.id())?;
        Ok(process)
    }

    /// Has a process be in the control groups of this side.
    fn enter(&self, process: u32) -> Result<()> {
        let groups = self.options.groups.iter().map(|group| group.join("cgroup.procs"));
        for file in groups.chain(self.memory.iter().map(Cgroup::procs_file)) {
            let group = file.parent().unwrap_or(&file);
            fs::write(&file, process.to_string()).map_err(|error| Error::Group(group.to_owned(), error))?;
        }
        Ok(())
    }

    /// Starts a server for the files of a directory, with these options; its token has this extension.
    ///
    /// # Errors
    /// A server that does not report where it listens.
    pub fn serve(&self, root: &Path, (extension, options): (&str, &[String])) -> Result<ServerProcess> {
        let listen = SocketAddr::new(server_address(self.topology), 0);
        let command = ServeCommand { root, token_file: &root.with_extension(extension), listen, options };
        let mut server = command.start(|words| self.start(words))?;
        // One that forks may have done so before it was in its groups.
        let processes = ProcessMonitor::new(server.process.id(), None).processes();
        processes.into_iter().try_for_each(|process| self.enter(process))?;
        server.killed_before = oom_kills(self.memory.as_ref());
        Ok(server)
    }
}

/// Time that the disk is read for.
const DISK_READ_TIME: Duration = Duration::from_millis(2000);
/// Time after which reading it has failed.
const DISK_READ_LIMIT: Duration = Duration::from_secs(30);

/// What the disk gives when the files of a directory are read by a process of its own, which this starts: limits are those of processes.
///
/// # Errors
/// Those of that process.
pub fn measure_disk_rate(
    directory: &Path,
    start: impl FnOnce(&[&str]) -> Result<GuardedChild>,
) -> Result<DiskRateReport> {
    let time = DISK_READ_TIME.as_millis().to_string();
    let mut process = start(&["disk-rate", path_text(directory)?, &time])?;
    // It waits for its input to end, so that it reads only once it is in its groups.
    process.write_stdin(&[]);
    let ending = process.wait(WaitLimit::fixed(DISK_READ_LIMIT), MAX_STARTUP_BYTES)?;
    if ending.end == ChildEnd::Interrupted {
        return Err(Error::Interrupted(kelvin_sys::stop_signals::stop_signal().unwrap_or("a signal").into()));
    }
    serde_json::from_slice(&ending.output).map_err(|_| {
        Error::Disk(match ending.end {
            ChildEnd::Signalled(SIGKILL) => "its reader was killed: is --server-memory too small for it?".into(),
            ChildEnd::TimedOut => format!("its reader took longer than {} s", DISK_READ_LIMIT.as_secs()),
            _ => ending.stderr,
        })
    })
}

/// A command line of `kelvin serve`.
#[derive(Clone, Copy, Debug)]
pub struct ServeCommand<'w> {
    /// The directory.
    pub root: &'w Path,
    /// Where it finds the token that only who has it asks with; it is written there, and may be removed once the server runs.
    pub token_file: &'w Path,
    /// Where it listens; the port is chosen by the system.
    pub listen: SocketAddr,
    /// More of its options: its model.
    pub options: &'w [String],
}

impl ServeCommand<'_> {
    /// Has a server started with these words.
    ///
    /// # Errors
    /// A server that does not report where it listens.
    fn start(&self, start: impl FnOnce(&[&str]) -> Result<GuardedChild>) -> Result<ServerProcess> {
        let nonce = new_nonce().map_err(|error| Error::Server(error.to_string()))?;
        let token = Hash::from_bytes(nonce).to_hex().to_string();
        // Nobody else may read it.
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.token_file);
        let write_result = file.and_then(|mut file| file.write_all(token.as_bytes()));
        let directory = self.token_file.parent().unwrap_or(self.token_file);
        write_result.map_err(|error| Error::Files(directory.to_owned(), error))?;
        let (root, secret, listen) = (path_text(self.root)?, path_text(self.token_file)?, self.listen.to_string());
        let fixed = ["serve", root, "--listen", &listen, "--expose-stats", "--token-file", secret];
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let mut process = start(&[&fixed[..], &options].concat())?;
        // The ends of its first two lines state where it serves files, and where it reports what it uses.
        let lines = process.first_lines(2, STARTUP_TIMEOUT, MAX_STARTUP_BYTES)?;
        let ports: Vec<u16> = lines.iter().filter_map(|line| line.rsplit(':').next()?.parse().ok()).collect();
        let ports: [u16; 2] = ports.try_into().map_err(|_| {
            let stderr = process.stderr();
            Error::Server(if stderr.is_empty() { "it does not report its address".into() } else { stderr })
        })?;
        let [address, stats_address] = ports.map(|port| {
            let mut address = self.listen;
            address.set_port(port);
            address
        });
        let stats_client = StatsClient { address: stats_address, token };
        Ok(ServerProcess { address, stats_client, process, killed_before: 0 })
    }
}

impl ServerProcess {
    /// Why it runs no longer, or not all of it, if so; `memory` limits its memory.
    pub fn failure(&mut self, memory: Option<&Cgroup>) -> Option<Error> {
        let is_for_memory = oom_kills(memory) > self.killed_before;
        let Some(exit) = self.process.peek_exit() else {
            let message =
                "a process of the server was killed, as its memory was used up: give it more by --server-memory";
            return is_for_memory.then(|| Error::ServerEnded(message.into()));
        };
        let description = match exit {
            ExitKind::Exited(status) => format!("it exited with status {status}"),
            ExitKind::Signalled(signal) if is_for_memory => {
                format!("it was killed by signal {signal}, as its memory was used up: give it more by --server-memory")
            }
            ExitKind::Signalled(signal) => format!("it was killed by signal {signal}"),
        };
        // A process that is killed has reported no reason.
        let stderr = if exit == ExitKind::Signalled(SIGKILL) { String::new() } else { self.process.stderr() };
        let suffix = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
        Some(Error::ServerEnded(format!("the server ended: {description}{suffix}")))
    }
}

/// Processes of a group that were killed for want of memory.
fn oom_kills(group: Option<&Cgroup>) -> u64 {
    group.and_then(|group| group.oom_kill_count().ok()).unwrap_or_default()
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Server(format!("{} is not UTF-8: give another --dir", path.display())))
}

/// Time in which files are brought into memory before the client gets an answer that states how far that is.
const CACHE_FILL_INTERVAL: Duration = Duration::from_secs(5);

/// A server that an agent starts for a client. Dropped, it is killed.
#[derive(Debug)]
pub struct HostedServer {
    program: String,
    directory: PathBuf,
    files: FileList,
    server: ServerProcess,
}

impl HostedServer {
    /// Starts it, by this program, for these files of its directory.
    ///
    /// # Errors
    /// A server that does not report where it listens.
    pub fn start(program: &str, command: &ServeCommand<'_>, files: FileList) -> Result<Self> {
        let server = command.start(|words| spawn(program, words))?;
        Ok(Self { program: program.to_owned(), directory: command.root.to_owned(), files, server })
    }
}

impl FileHost for HostedServer {
    fn info(&self) -> FileServerInfo {
        let StatsClient { address, token } = &self.server.stats_client;
        FileServerInfo {
            files_port: self.server.address.port(),
            stats_port: address.port(),
            token: token.clone(),
            files: self.files.names.len() as u32,
            bytes: self.files.bytes,
            skipped: self.files.skipped_entries,
            cacheable_bytes: fs::read_to_string(MEMINFO).ok().and_then(|text| kibibytes(&text, "MemAvailable")),
        }
    }

    fn file_names(&self) -> &[String] {
        &self.files.names
    }

    fn disk_rate(&self) -> Result<DiskRateReport, String> {
        measure_disk_rate(&self.directory, |words| spawn(&self.program, words)).map_err(|error| error.to_string())
    }

    fn set_cache_state(&self, cache: FileCacheState, first: u32) -> Result<u32, String> {
        let is_cached = cache == FileCacheState::Cached;
        let state = if is_cached { PageCacheState::Cached } else { PageCacheState::Uncached };
        let next = self.files.set_cache_state(&self.directory, state, (first as usize, CACHE_FILL_INTERVAL));
        next.map(|next| next as u32).map_err(|error| error.to_string())
    }
}

fn spawn(program: &str, words: &[&str]) -> Result<GuardedChild> {
    Ok(GuardedChild::spawn(OsStr::new(program), words, [("", ""); 0])?)
}
