//! A server that is started for a study, and ended with it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_file::group::{Controller, Group};
use kelvin_resources::Watched;
use kelvin_sys::child::{End, Guarded, Patience};
use kelvin_sys::process::Ended;

use crate::disk::DiskRate;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::pinned::Pinned;
use crate::place::Place;
use crate::setup::Own;

/// Time in which a server says where it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of what it says there.
const MOST: usize = 1 << 10;
/// The signal that no process can say anything about.
const KILLED: i32 = 9;
/// Bytes of the token that only this study knows.
const TOKEN: usize = 32;

/// A server that runs. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it tells what it uses.
    pub endpoint: Endpoint,
    process: Guarded,
    /// Processes of its group that had been killed for want of memory before it started.
    killed_before: u64,
}

/// Limits and rights that a process of the server's side has.
pub(crate) struct Side<'s> {
    own: &'s Own,
    place: &'s Place,
    memory: Option<Group>,
}

impl<'s> Side<'s> {
    /// The server's side, with so many bytes of memory, or as many as there are.
    ///
    /// # Errors
    /// A limit of memory that cannot be had.
    pub fn new(own: &'s Own, place: &'s Place, bytes: Option<u64>) -> Result<Self> {
        let refused = |error: kelvin_file::Error| Error::Memory(error.to_string());
        let memory = bytes.map(|_| Group::make(Controller::Memory)).transpose().map_err(refused)?;
        if let Some((group, bytes)) = memory.as_ref().zip(bytes) {
            group.limit_memory(bytes).map_err(refused)?;
        }
        Ok(Self { own, place, memory })
    }

    /// The server that is wanted.
    pub fn own(&self) -> &'s Own {
        self.own
    }

    /// The group that limits the memory of its processes, to be dropped once these have ended.
    pub fn into_memory(self) -> Option<Group> {
        self.memory
    }

    /// Starts a process there, with the server's CPUs, namespace and control groups.
    ///
    /// # Errors
    /// A program that does not start; a group that it cannot enter.
    pub fn start(&self, arguments: &[&str]) -> Result<Guarded> {
        let mut words = self.own.program.iter().map(String::as_str);
        let program = words.next().unwrap_or_default();
        let all: Vec<&str> = words.chain(arguments.iter().copied()).collect();
        let nothing: [(&str, &str); 0] = [];
        let start = || Guarded::spawn(OsStr::new(program), &all, nothing);
        let pinned = || Pinned::to(&self.own.cpus).and_then(|_pinned| start());
        let process = self.place.at_server(pinned)??;
        self.enter(process.id())?;
        Ok(process)
    }

    /// Has a process be in the control groups of this side.
    fn enter(&self, process: u32) -> Result<()> {
        let own = self.own.groups.iter().map(|group| group.join("cgroup.procs"));
        for door in own.chain(self.memory.iter().map(Group::door)) {
            fs::write(&door, process.to_string()).map_err(|source| Error::Group { group: group_of(&door), source })?;
        }
        Ok(())
    }
}

/// Time that the disk is read for.
const TIME: Duration = Duration::from_millis(2000);
/// Time after which reading it has failed.
const LIMIT: Duration = Duration::from_secs(30);

/// What the disk gives when the files of a directory are read by a process of its own, which this starts.
///
/// # Errors
/// What that process says.
pub(crate) fn disk_rate_by(directory: &Path, start: impl FnOnce(&[&str]) -> Result<Guarded>) -> Result<DiskRate> {
    let time = TIME.as_millis().to_string();
    let mut process = start(&["disk-rate", text(directory)?, &time])?;
    // It waits for its input to end, so that it reads only once it is in its groups.
    process.give(&[]);
    let ending = process.wait(Patience::exactly(LIMIT), MOST)?;
    if ending.end == End::Interrupted {
        return Err(Error::Interrupted(kelvin_sys::interrupt::requested().unwrap_or("a signal").into()));
    }
    serde_json::from_slice(&ending.output).map_err(|_| {
        Error::Disk(match ending.end {
            End::Signalled(KILLED) => "its reader was killed: is --server-memory too small for it?".into(),
            End::TimedOut => format!("its reader took longer than {} s", LIMIT.as_secs()),
            _ => ending.complaint,
        })
    })
}

impl Side<'_> {
    /// What the disk gives when the files of a directory are read on the server's side: by a process of its own, since limits are
    /// those of processes.
    ///
    /// # Errors
    /// What that process says.
    pub fn disk_rate(&self, directory: &Path) -> Result<DiskRate> {
        disk_rate_by(directory, |words| self.start(words))
    }
}

/// What `kelvin serve` is told.
pub(crate) struct Words<'w> {
    /// The directory.
    pub root: &'w Path,
    /// Where it finds the token, which is written there.
    pub secret: &'w Path,
    pub listen: SocketAddr,
    /// More of its options.
    pub more: &'w [String],
}

/// A server that was started: its process, where it serves files, and where it tells what it uses.
pub(crate) type Started = (Guarded, SocketAddr, Endpoint);

impl Words<'_> {
    /// Has a server started with these words.
    ///
    /// # Errors
    /// A server that does not say where it listens.
    pub fn start(&self, start: impl FnOnce(&[&str]) -> Result<Guarded>) -> Result<Started> {
        let token = token()?;
        let place = || self.secret.parent().unwrap_or(self.secret).to_owned();
        write_secret(self.secret, &token).map_err(|source| Error::Files { directory: place(), source })?;
        let (root, secret, listen) = (text(self.root)?, text(self.secret)?, self.listen.to_string());
        let fixed = ["serve", root, "--listen", &listen, "--expose-resources", "--token-file", secret];
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let mut process = start(&[&fixed[..], &more].concat())?;
        let [address, resources] = listening(&mut process)?.map(|port| at_port(self.listen, port));
        Ok((process, address, Endpoint { address: resources, token }))
    }
}

fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

impl Server {
    /// Starts one for the files of a directory.
    ///
    /// # Errors
    /// A server that does not say where it listens.
    pub fn start(side: &Side<'_>, root: &Path) -> Result<Self> {
        Self::start_with(side, root, ("token", &side.own.arguments))
    }

    /// Starts one with other options; its token has this extension.
    ///
    /// # Errors
    /// A server that does not say where it listens.
    pub fn start_with(side: &Side<'_>, root: &Path, (extension, more): (&str, &[String])) -> Result<Self> {
        let secret = root.with_extension(extension);
        let listen = SocketAddr::new(side.place.address(), 0);
        let words = Words { root, secret: &secret, listen, more };
        let (process, address, endpoint) = words.start(|words| side.start(words))?;
        // One that forks may have done so before it was in its groups.
        Watched::new(process.id(), None).processes().into_iter().try_for_each(|process| side.enter(process))?;
        Ok(Self { address, endpoint, process, killed_before: killed_for_memory(side.memory.as_ref()) })
    }

    /// Why it runs no longer, or not all of it, if so; `memory` limits its memory.
    pub fn end(&mut self, memory: Option<&Group>) -> Option<Error> {
        let is_for_memory = killed_for_memory(memory) > self.killed_before;
        let Some(ended) = self.process.ended() else { return is_for_memory.then_some(Error::ServerShort) };
        let how = match ended {
            Ended::Exited(status) => format!("it exited with status {status}"),
            Ended::Signalled(signal) if is_for_memory => {
                format!("it was killed by signal {signal}, as its memory was used up: give it more by --server-memory")
            }
            Ended::Signalled(signal) => format!("it was killed by signal {signal}"),
        };
        // Of a process that is killed nothing that it has said tells why.
        let complaint = if ended == Ended::Signalled(KILLED) { String::new() } else { self.process.complaint() };
        let words = if complaint.is_empty() { how } else { format!("{how}: {complaint}") };
        Some(Error::ServerEnded(words))
    }
}

/// Processes of a group that were killed for want of memory.
fn killed_for_memory(group: Option<&Group>) -> u64 {
    group.and_then(|group| group.killed_for_memory().ok()).unwrap_or_default()
}

/// The ports at which it serves files and tells what it uses: the ends of its first two lines.
fn listening(process: &mut Guarded) -> Result<[u16; 2]> {
    let said = process.first_lines(2, PATIENCE, MOST)?;
    let ports: Vec<u16> = said.iter().filter_map(|line| line.rsplit(':').next()?.parse().ok()).collect();
    ports.try_into().map_err(|_| {
        let complaint = process.complaint();
        Error::Server(if complaint.is_empty() { "it does not say where it listens".into() } else { complaint })
    })
}

fn group_of(door: &Path) -> PathBuf {
    door.parent().unwrap_or(door).to_owned()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Server(format!("{} is not UTF-8: give another --dir", path.display())))
}

/// Writes a file that nobody else may read.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// A secret of this study.
fn token() -> Result<String> {
    let mut bytes = [0; TOKEN];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
