//! The files of a directory, served to a study that is made on another host.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelvin_file::Target;
use kelvin_file::cache::{PageCacheState, set_cache_state};
use kelvin_sys::child::GuardedChild;

use crate::sweep::disk::DiskRate;
use crate::sweep::error::Result;
use crate::sweep::file_list::FileList;
use crate::sweep::stats_client::StatsClient;
use crate::sweep::study_server::{ServeCommand, disk_rate_by};

/// What is to be served, and by which program.
#[derive(Clone, Copy, Debug)]
pub struct HostedServerOptions<'h> {
    /// The program.
    pub program: &'h str,
    /// Options of its server: its model.
    pub options: &'h [String],
    /// The directory.
    pub directory: &'h Path,
    /// Where it listens; the port is chosen by the system.
    pub listen: SocketAddr,
    /// A file for the token that only who has it asks with; it is written, and may be removed once the server runs.
    pub token_file: &'h Path,
}

/// A server that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct HostedServer {
    program: String,
    directory: PathBuf,
    files: FileList,
    address: SocketAddr,
    stats_client: StatsClient,
    _process: GuardedChild,
}

impl HostedServer {
    /// Starts it for these files of its directory.
    ///
    /// # Errors
    /// A server that does not say where it listens.
    pub fn start(host: &HostedServerOptions<'_>, files: FileList) -> Result<Self> {
        let HostedServerOptions { program, options, directory, listen, token_file } = *host;
        let command = ServeCommand { root: directory, token_file, listen, extra_options: options };
        let (process, address, stats_client) = command.start(|words| spawn(program, words))?;
        let (program, directory) = (program.to_owned(), directory.to_owned());
        Ok(Self { program, directory, files, address, stats_client, _process: process })
    }

    /// Its files.
    pub fn files(&self) -> &FileList {
        &self.files
    }

    /// Where it serves files.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it tells what it uses.
    pub fn stats_address(&self) -> SocketAddr {
        self.stats_client.address
    }

    /// The token for that.
    pub fn token(&self) -> &str {
        &self.stats_client.token
    }

    /// What the disk gives when its files are read past the page cache, for two seconds.
    ///
    /// # Errors
    /// Files that cannot be read or dropped from memory.
    pub fn disk_rate(&self) -> Result<DiskRate> {
        disk_rate_by(&self.directory, |words| spawn(&self.program, words))
    }

    /// Has its files in a state, from this one on, for so long, and at least one more; returns the first that was not reached.
    ///
    /// # Errors
    /// A file that cannot be had in that state.
    pub fn set_cache_state(&self, state: PageCacheState, from: usize, within: Duration) -> Result<usize> {
        let begun = Instant::now();
        let mut reached = from;
        for name in self.files.names.iter().skip(from) {
            set_cache_state(&Target::find(&self.directory.join(name))?, state)?;
            reached += 1;
            if begun.elapsed() >= within {
                break;
            }
        }
        Ok(reached)
    }
}

fn spawn(program: &str, words: &[&str]) -> Result<GuardedChild> {
    let nothing: [(&str, &str); 0] = [];
    Ok(GuardedChild::spawn(OsStr::new(program), words, nothing)?)
}
