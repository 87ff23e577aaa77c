//! Servers of files that an agent starts for its clients: of one directory, each by a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use kelvin_file::cache::State;
use kelvin_file::temporary::Scratch;
use kelvin_machine::memory::{MEMINFO, kibibytes};
use kelvin_serve::Model;
use kelvin_serve::sending::Sending;
use kelvin_sweep::{DiskRate, Host, Hosted, Listed};
use kelvin_wire::files::{self, Cache, Design, MOST, Rate, RequestRate, Served};

use crate::fault::Fault;

/// Most threads that a client may ask for.
const THREADS: u32 = 64;
/// Time in which files are brought into memory before the client is told how far that is.
const PART: Duration = Duration::from_secs(5);

/// The directory whose files are served.
pub struct Files(PathBuf);

impl Files {
    /// Checks that there are some.
    ///
    /// # Errors
    /// A directory that cannot be read, or has no file to serve.
    pub fn of(directory: &Path) -> Result<Self, Fault> {
        let directory = fs::canonicalize(directory)
            .map_err(|error| Fault::new(format!("--serve {}", directory.display()), error))?;
        Listed::of(&directory).map_err(|error| Fault::new("--serve", error))?;
        Ok(Self(directory))
    }

    /// Starts a server for a client, of the files that are there now.
    ///
    /// # Errors
    /// A design that no server has; a server that does not start.
    pub fn start(&self, design: &Design, listen: SocketAddr) -> Result<Box<dyn files::Host>, String> {
        let options = options(design)?;
        let files = Listed::of(&self.0).map_err(|error| error.to_string())?.at_most(MOST as usize);
        // The token is read when the server starts, and goes with its directory.
        let scratch = Scratch::make(&std::env::temp_dir())
            .map_err(|error| format!("no scratch directory for the token of the server: {error}"))?;
        let secret = scratch.path().join("token");
        let (program, options, directory) = ("/proc/self/exe", options.as_slice(), self.0.as_path());
        let host = Host { program, options, directory, listen, secret: &secret };
        let hosted = Hosted::start(&host, files).map_err(|error| error.to_string())?;
        Ok(Box::new(Running(hosted)))
    }
}

/// The options of `kelvin serve` for a design; only words that it knows become any.
fn options(design: &Design) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    if let Some(model) = &design.model {
        options.extend(["--model".to_owned(), Model::from_str(model)?.to_string()]);
    }
    if let Some(send) = &design.send {
        options.extend(["--send".to_owned(), Sending::from_str(send)?.to_string()]);
    }
    match design.threads {
        Some(threads @ 1..=THREADS) => options.extend(["--threads".to_owned(), threads.to_string()]),
        Some(_) => return Err(format!("a server of files may have 1 to {THREADS} threads")),
        None => {}
    }
    Ok(options)
}

/// A server of files that runs.
struct Running(Hosted);

impl files::Host for Running {
    fn served(&self) -> Served {
        let Listed { names, bytes, left_out } = self.0.files();
        Served {
            files_port: self.0.address().port(),
            looks_port: self.0.looks().port(),
            token: self.0.token().to_owned(),
            files: names.len() as u32,
            bytes: *bytes,
            left_out: *left_out,
            may_be_cached: fs::read_to_string(MEMINFO).ok().and_then(|text| kibibytes(&text, "MemAvailable")),
        }
    }

    fn names(&self) -> &[String] {
        &self.0.files().names
    }

    fn disk_rate(&self) -> Result<Rate, String> {
        let DiskRate { bytes_per_second, read_per_second, requests } =
            self.0.disk_rate().map_err(|error| error.to_string())?;
        let requests =
            requests.map(|kelvin_sweep::RequestRate { per_second, bytes }| RequestRate { per_second, bytes });
        Ok(Rate { bytes_per_second, read_per_second, requests })
    }

    fn bring(&self, cache: Cache, from: u32) -> Result<u32, String> {
        let state = match cache {
            Cache::Cached => State::Cached,
            Cache::Uncached => State::Uncached,
        };
        self.0.bring(state, from as usize, PART).map(|reached| reached as u32).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_designs_of_the_server_become_options() {
        let design = |model: &str, send: &str, threads| {
            options(&Design { model: Some(model.into()), send: Some(send.into()), threads: Some(threads) })
        };
        let all = design("pool", "sendfile", 4).unwrap();
        assert_eq!(all, ["--model", "pool", "--send", "sendfile", "--threads", "4"]);
        assert_eq!(options(&Design::default()), Ok(Vec::new()));
        assert!(design("--root", "rw", 1).is_err() && design("pool", "--index", 1).is_err());
        for threads in [0, 65] {
            assert_eq!(design("pool", "rw", threads), Err("a server of files may have 1 to 64 threads".into()));
        }
    }
}
