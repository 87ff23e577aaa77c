//! The files of a directory, served to a study that is made on another host.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kelvin_file::Target;
use kelvin_file::cache::{State, bring};
use kelvin_sys::child::Guarded;

use crate::disk::DiskRate;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::listed::Listed;
use crate::server::{Words, disk_rate_by};

/// What is to be served, and by which program.
#[derive(Clone, Copy, Debug)]
pub struct Host<'h> {
    /// The program.
    pub program: &'h str,
    /// Options of its server: its model.
    pub options: &'h [String],
    /// The directory.
    pub directory: &'h Path,
    /// Where it listens; the port is chosen by the system.
    pub listen: SocketAddr,
    /// A file for the token that only who has it asks with; it is written, and may be removed once the server runs.
    pub secret: &'h Path,
}

/// A server that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Hosted {
    program: String,
    directory: PathBuf,
    files: Listed,
    address: SocketAddr,
    endpoint: Endpoint,
    _process: Guarded,
}

impl Hosted {
    /// Starts it for these files of its directory.
    ///
    /// # Errors
    /// A server that does not say where it listens.
    pub fn start(host: &Host<'_>, files: Listed) -> Result<Self> {
        let Host { program, options, directory, listen, secret } = *host;
        let words = Words { root: directory, secret, listen, more: options };
        let (process, address, endpoint) = words.start(|words| spawn(program, words))?;
        let (program, directory) = (program.to_owned(), directory.to_owned());
        Ok(Self { program, directory, files, address, endpoint, _process: process })
    }

    /// Its files.
    pub fn files(&self) -> &Listed {
        &self.files
    }

    /// Where it serves files.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it tells what it uses.
    pub fn looks(&self) -> SocketAddr {
        self.endpoint.address
    }

    /// The token for that.
    pub fn token(&self) -> &str {
        &self.endpoint.token
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
    pub fn bring(&self, state: State, from: usize, within: Duration) -> Result<usize> {
        let begun = Instant::now();
        let mut reached = from;
        for name in self.files.names.iter().skip(from) {
            bring(&Target::find(&self.directory.join(name))?, state)?;
            reached += 1;
            if begun.elapsed() >= within {
                break;
            }
        }
        Ok(reached)
    }
}

fn spawn(program: &str, words: &[&str]) -> Result<Guarded> {
    let nothing: [(&str, &str); 0] = [];
    Ok(Guarded::spawn(OsStr::new(program), words, nothing)?)
}
